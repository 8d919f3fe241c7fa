"""Gradient flow of separate rank-one attention to convergence, compiled.

D = 4, λ = .4 .3 .2 .1, 4 heads, N = 31, in population: four saddles to pass, where the time spent grows as 1/init.
Beside the solver's steps stands the number that gradient descent would take over the same flow time at the largest
rate that is stable at the end, 2/(largest eigenvalue of the Hessian). It is computed, not run.
"""

import json
from collections.abc import Iterator

import jax
import jax.flatten_util
import jax.numpy as jnp
import xarray as xr

from stepwell.dynamics import flow, steps_for
from stepwell.models import AbstractModel, SeparateAttention
from stepwell.objectives import AbstractObjective, Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.trajectory import model_at

from ._row import Row
from ._timing import interleaved

EIGENVALUES = (0.4, 0.3, 0.2, 0.1)


def run(quick: bool) -> Iterator[Row]:
    objective = Population(InContextRegression(covariance(EIGENVALUES), 31))
    seeds = range(1 if quick else 3)
    scales = (1e-2,) if quick else (1e-2, 1e-8)
    for scale in scales:
        starts = [
            SeparateAttention.random(dim=4, heads=4, rank=1, scale=scale, key=jax.random.key(seed)) for seed in seeds
        ]
        sides = {
            str(seed): lambda start=start: flow(start, objective, progress=False)
            for seed, start in zip(seeds, starts, strict=True)
        }
        times = interleaved(sides, rounds=1 if quick else 5)
        slowest = max(times, key=lambda seed: times[seed])
        start = starts[int(slowest)]
        trajectory = flow(start, objective, progress=False)
        work = json.loads(trajectory.attrs["configuration"])["work"]
        name = f"flow, attnS rank 1, D = 4, H = 4, init {scale:g}"
        yield Row(
            f"{name}: to convergence",
            times[slowest],
            "s",
            most=0.15,
            note=f"the slowest of {len(times)} seeds; the fastest {min(times.values()):.3g} s",
        )
        others = ", ".join(f"{count:,} {kind}" for kind, count in work.items() if kind != "steps")
        yield Row(
            f"{name}: steps, against gradient descent",
            work["steps"],
            "steps",
            descent_steps(trajectory, start, objective),
            note=f"{others}; flow time {float(trajectory['time'][-1]):.3g}; descent's steps are computed, not run",
        )
        floor = objective.floor(start)
        assert floor is not None
        yield Row(
            f"{name}: loss at the end, above the lowest",
            float(trajectory["loss"][0, -1]) - floor,
            "",
            most=1e-7,
            check=True,
            note=f"the lowest is {floor:.8f}; the run is {trajectory.attrs['outcome']}",
        )


def descent_steps(trajectory: xr.Dataset, template: AbstractModel, objective: AbstractObjective) -> float:
    """Steps of gradient descent over the same flow time, at the largest rate that is stable at the end."""
    final = model_at(trajectory, template)
    vector, restore = jax.flatten_util.ravel_pytree(final.weights())
    hessian = jax.jit(jax.hessian(lambda w: objective(template.with_weights(restore(w)))))(vector)
    sharpness = float(jnp.linalg.eigvalsh(hessian)[-1])
    return float(steps_for(float(trajectory["time"][-1]), 2.0 / sharpness))
