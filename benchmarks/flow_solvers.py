"""Solvers of the gradient flow at equal accuracy, and an ensemble beside a loop.

Separate attention, λ in proportion D…1, N = 31, in population, to the time at which the loss has converged. Each
solver has the largest tolerance, of a few, with which and with all smaller ones its loss curve lies within 10⁻⁴ of a
tight one, in time or in loss: L(t (1 + ε)) (1 - ε) ≤ loss(t) ≤ L(t (1 - ε)) (1 + ε). In time, because a front is some
ten units wide after a wait of 1/init: at a given time even a good curve may be before it or behind it. The times at
which curves are compared resolve the fronts.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any, Literal, get_args

import jax
import numpy as np
import xarray as xr

from stepwell.dynamics import Ensemble, flow
from stepwell.models import AbstractModel, SeparateAttention
from stepwell.objectives import AbstractObjective, Population
from stepwell.tasks import InContextRegression, covariance

from ._row import Row
from ._timing import interleaved

Compared = Literal["rodas5p", "lsoda"]
ACCURACY = 1e-4
TOLERANCES = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
"""Of a step, relative; the absolute one is that times ten times the scale of the initial weights, and 1e-5 at most."""
RESOLVED = 0.02
"""Between two times the loss sheds at most this fraction of what it sheds in all."""


def run(quick: bool) -> Iterator[Row]:
    cases = {(2, 2, 1): (1e-2,)} if quick else {(4, 4, 1): (1e-2, 1e-4, 1e-6, 1e-8), (8, 9, 8): (1e-2,)}
    for (dim, heads, rank), scales in cases.items():
        eigenvalues = np.arange(dim, 0, -1) / (dim * (dim + 1) / 2)
        objective = Population(InContextRegression(covariance(eigenvalues), 31))
        for scale in scales:
            model = SeparateAttention.random(dim=dim, heads=heads, rank=rank, scale=scale, key=jax.random.key(0))
            name = f"D = {dim}, H = {heads}, R = {rank}, init {scale:g}"
            yield from _compared(model, objective, scale, name, rounds=1 if quick else 3 if dim < 8 else 1)
    yield from _ensemble(quick)


def _compared(
    model: AbstractModel, objective: AbstractObjective, scale: float, name: str, rounds: int
) -> Iterator[Row]:
    times = _resolving(model, objective, scale)
    near = np.stack([times * (1 - ACCURACY), times * (1 + ACCURACY)])
    save, places = np.unique(near, return_inverse=True)
    early, late = _tight(model, objective, scale, save)[places.reshape(near.shape)]

    def follow(solver: Compared, rtol: float) -> xr.Dataset:
        atol = min(10 * rtol, 1e-5) * scale
        return flow(model, objective, until=times[-1], save=times, solver=solver, rtol=rtol, atol=atol, progress=False)

    def accurate(found: xr.Dataset) -> bool:
        loss = found.loss[0].values
        return bool(np.all(loss <= early * (1 + ACCURACY)) and np.all(loss >= late * (1 - ACCURACY)))

    def largest(solver: Compared) -> float | None:
        good = itertools.takewhile(lambda rtol: accurate(follow(solver, rtol)), reversed(TOLERANCES))
        return min(good, default=None, key=lambda rtol: -rtol)

    tolerances = {solver: largest(solver) for solver in get_args(Compared)}
    reached = {solver: rtol for solver, rtol in tolerances.items() if rtol is not None}
    found = interleaved({solver: lambda s=solver: follow(s, reached[s]) for solver in reached}, rounds=rounds)
    work = {solver: json.loads(follow(solver, reached[solver]).attrs["configuration"])["work"] for solver in reached}
    yield Row(
        f"flow, {name}: solvers within 1e-4",
        len(tolerances) - len(reached),
        "without",
        most=0,
        check=True,
        note=", ".join(f"{solver} with rtol {rtol}" for solver, rtol in tolerances.items()),
    )
    if len(reached) == len(tolerances):
        yield Row(
            f"flow, {name}: rodas5p, against lsoda as accurate",
            found["rodas5p"],
            "s",
            found["lsoda"],
            note="; ".join(
                f"{solver}: " + ", ".join(f"{n:,} {kind}" for kind, n in work[solver].items()) for solver in reached
            ),
        )


def _tight(model: AbstractModel, objective: AbstractObjective, scale: float, save: np.ndarray) -> np.ndarray:
    options: dict[str, Any] = {"solver": "lsoda", "rtol": 1e-10, "atol": 1e-9 * scale, "progress": False}
    found = flow(model, objective, until=save[-1], save=save, **options)
    return found.loss[0].values


def _resolving(model: AbstractModel, objective: AbstractObjective, scale: float) -> np.ndarray:
    """Times up to convergence, more of them where the loss falls fast."""
    times = flow(model, objective, save=101, progress=False).time.values
    while True:
        shed = -np.diff(_tight(model, objective, scale, times))
        steep = np.flatnonzero(shed > RESOLVED * shed.sum())
        if steep.size == 0:
            return times[1:]
        finer = [np.linspace(times[place], times[place + 1], 50) for place in steep]
        times = np.unique(np.concatenate([times, *finer]))


def _ensemble(quick: bool) -> Iterator[Row]:
    """An ensemble to convergence beside a loop over some of its runs, counted as if over all."""
    runs, looped = (4, 2) if quick else (64, 16)
    objective = Population(InContextRegression(covariance((0.4, 0.3, 0.2, 0.1)), 31))
    models = [SeparateAttention.random(dim=4, heads=4, scale=1e-2, key=jax.random.key(seed)) for seed in range(runs)]
    together = Ensemble.of(models)
    found = interleaved(
        {
            "ensemble": lambda: flow(together, objective, progress=False),
            "loop": lambda: [flow(model, objective, progress=False) for model in models[:looped]],
        },
        rounds=1 if quick else 3,
    )
    yield Row(
        f"flow of an ensemble of {runs}, D = 4, init 0.01, against one after the other",
        found["ensemble"],
        "s",
        found["loop"] * runs / looped,
        least_ratio=5,
        note=f"the loop is timed over {looped} of the runs",
    )
