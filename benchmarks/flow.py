"""Gradient flow of separate attention to convergence, compiled.

At infinitely many sequences, N = 31: heads of rank one, D = 4, λ = .4 .3 .2 .1, 4 heads; of full rank, D = 8, λ in
proportion 1/k, 9 heads; and of rank one with D heads, D = 16 and 32, λ in proportion 1/k. There are D saddles to pass,
where the time spent grows as 1/init. Beside the solver's steps stands the number that gradient descent would take over
the same flow time at the largest rate that is stable at the end, 2/(largest eigenvalue of the Hessian). It is computed,
not run.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.dynamics import flow, steps_for
from stepwell.models import AbstractModel, SeparateAttention
from stepwell.objectives import AbstractObjective, Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.trajectory import model_at

from ._row import Row
from ._timing import interleaved


class Case(NamedTuple):
    eigenvalues: Float[np.ndarray, " dim"]
    heads: int
    rank: int
    scale: float
    seeds: int = 1
    most: float | None = None
    """Seconds that it may take."""
    rounds: int = 5
    """How often it is timed, after a call that compiles it."""
    beside: bool = False
    """Whether it is timed beside a busy process too."""


def harmonic(dim: int) -> Float[np.ndarray, " dim"]:
    """In proportion 1/k, of sum one."""
    raw = 1 / np.arange(1, dim + 1)
    return raw / raw.sum()


RANK_ONE = Case(np.array([0.4, 0.3, 0.2, 0.1]), heads=4, rank=1, scale=1e-2, seeds=3, most=0.15)
FULL_RANK = Case(harmonic(8), heads=9, rank=8, scale=1e-8, most=3.0)
SIXTEEN = Case(harmonic(16), heads=16, rank=1, scale=1e-3, most=3.0, beside=True)
THIRTY_TWO = Case(harmonic(32), heads=32, rank=1, scale=1e-3, rounds=1)


def run(quick: bool) -> Iterator[Row]:
    full = (RANK_ONE, RANK_ONE._replace(scale=1e-8), FULL_RANK, SIXTEEN, THIRTY_TWO)
    for case in (RANK_ONE._replace(seeds=1, rounds=1),) if quick else full:
        yield from _followed(case)


def _followed(case: Case) -> Iterator[Row]:
    dim, seeds = len(case.eigenvalues), range(case.seeds)
    objective = Population(InContextRegression(covariance(case.eigenvalues), 31))
    starts = [
        SeparateAttention.random(dim=dim, heads=case.heads, rank=case.rank, scale=case.scale, key=jax.random.key(seed))
        for seed in seeds
    ]
    found: dict[str, xr.Dataset] = {}

    def follow(seed: int) -> None:
        found[str(seed)] = flow(starts[seed], objective, progress=False)

    sides = {str(seed): lambda seed=seed: follow(seed) for seed in seeds}
    times = interleaved(sides, rounds=case.rounds)
    slowest = max(times, key=lambda seed: times[seed])
    start, trajectory = starts[int(slowest)], found[slowest]
    work = json.loads(trajectory.attrs["configuration"])["work"]
    name = f"flow, attnS rank {case.rank}, D = {dim}, H = {case.heads}, init {case.scale:g}"
    yield Row(
        f"{name}: to convergence",
        times[slowest],
        "s",
        most=case.most,
        note=f"the slowest of {len(times)} seeds; the fastest {min(times.values()):.3g} s" if len(times) > 1 else "",
    )
    if case.beside:
        with _busy_process():
            beside = interleaved(sides, rounds=case.rounds, warm=False)
        what = f"{name}: to convergence, beside a process that keeps a core busy"
        yield Row(what, max(beside.values()), "s", most=case.most)
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


@contextlib.contextmanager
def _busy_process() -> Iterator[None]:
    """Threads that wait for each other wait for it too."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def descent_steps(trajectory: xr.Dataset, template: AbstractModel, objective: AbstractObjective) -> float:
    """Steps of gradient descent over the same flow time, at the largest rate that is stable at the end."""
    final = model_at(trajectory, template)
    vector, restore = jax.flatten_util.ravel_pytree(final.weights())
    hessian = jax.jit(jax.hessian(lambda w: objective(template.with_weights(restore(w)))))(vector)
    sharpness = float(jnp.linalg.eigvalsh(hessian)[-1])
    return float(steps_for(float(trajectory["time"][-1]), 2.0 / sharpness))
