"""Solvers of the gradient flow at equal accuracy, and an ensemble beside a loop.

Separate attention, λ in proportion D…1, N = 31, at infinitely many sequences, to the time at which the loss has
converged. Each solver has the largest tolerance, of a few, with which and with all smaller ones its loss curve lies
within 10⁻⁴ of a tight one, in time or in loss: L(t (1 + ε)) (1 - ε) ≤ loss(t) ≤ L(t (1 - ε)) (1 + ε). In time, because
a front is some ten units wide after a wait of 1/init: at a given time even a good curve may be before it or behind it.
The times at which curves are compared resolve the fronts.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import diffrax
import jax
import numpy as np

from stepwell.dynamics import Ensemble, Record, flow
from stepwell.models import AbstractModel, SeparateAttention
from stepwell.objectives import AbstractObjective, Population
from stepwell.tasks import InContextRegression, covariance

from ._row import Row, Unavailable
from ._solvers import Solved, Solver, of_diffrax, of_sundials, own
from ._timing import interleaved

OWN = ("rodas5p", "lsoda")
OURS = OWN[0]
FOR_DIFFRAX = 200
"""Weights up to which Diffrax's implicit solvers are tried: of some 1000 they take seconds a step."""
ACCURACY = 1e-4
TOLERANCES = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
"""Of a step, relative; the absolute one is that times ten times the scale of the initial weights, and 1e-5 at most."""
RESOLVED = 0.02
"""Between two times the loss sheds at most this fraction of what it sheds in all."""


def run(quick: bool) -> Iterator[Row]:
    cases = {(2, 2, 1): (1e-2,)} if quick else {(4, 4, 1): (1e-2, 1e-4, 1e-6, 1e-8), (8, 9, 8): (1e-2, 1e-8)}
    for (dim, heads, rank), scales in cases.items():
        eigenvalues = np.arange(dim, 0, -1) / (dim * (dim + 1) / 2)
        objective = Population(InContextRegression(covariance(eigenvalues), 31))
        for scale in scales:
            model = SeparateAttention.random(dim=dim, heads=heads, rank=rank, scale=scale, key=jax.random.key(0))
            name = f"D = {dim}, H = {heads}, R = {rank}, init {scale:g}"
            yield from _compared(model, objective, scale, name, quick, rounds=1 if quick else 3 if dim < 8 else 1)
    yield from _ensemble(quick)


def _solvers(model: AbstractModel, objective: AbstractObjective, quick: bool) -> tuple[dict[str, Solver], list[str]]:
    """Those that can be tried here, and a word on each that cannot."""
    found = {name: own(model, objective, name) for name in OWN}
    missing = []
    weights = sum(weight.size for weight in model.weights().values())
    if weights <= FOR_DIFFRAX:
        others = {"kvaerno3": diffrax.Kvaerno3()} | ({} if quick else {"kvaerno5": diffrax.Kvaerno5()})
        found |= {name: of_diffrax(model, objective, solver) for name, solver in others.items()}
    else:
        missing.append(f"Diffrax's are not tried with {weights} weights")
    try:
        found["cvode"] = of_sundials(model, objective)
    except Unavailable as reason:
        missing.append(f"cvode {reason}")
    return found, missing


def _compared(
    model: AbstractModel, objective: AbstractObjective, scale: float, name: str, quick: bool, rounds: int
) -> Iterator[Row]:
    times = _resolving(model, objective)
    near = np.stack([times * (1 - ACCURACY), times * (1 + ACCURACY)])
    save, places = np.unique(near, return_inverse=True)
    early, late = _tight(model, objective, scale, save)[places.reshape(near.shape)]
    solvers, missing = _solvers(model, objective, quick)

    def follow(solver: str, rtol: float) -> Solved:
        return solvers[solver](times, rtol, min(10 * rtol, 1e-5) * scale)

    def accurate(solver: str, rtol: float) -> bool:
        loss = follow(solver, rtol).losses
        return bool(np.all(loss <= early * (1 + ACCURACY)) and np.all(loss >= late * (1 - ACCURACY)))

    def largest(solver: str) -> float | None:
        good = itertools.takewhile(lambda rtol: accurate(solver, rtol), reversed(TOLERANCES))
        return max(good, default=None)

    tolerances = {solver: largest(solver) for solver in solvers}
    reached = {solver: rtol for solver, rtol in tolerances.items() if rtol is not None}
    found = interleaved({solver: lambda s=solver: follow(s, reached[s]).losses for solver in reached}, rounds=rounds)
    yield Row(
        f"flow, {name}: own solvers that miss 1e-4",
        len(set(OWN) - set(reached)),
        f"of {len(OWN)}",
        most=0,
        check=True,
        note="; ".join([*(f"{solver}: rtol {rtol or 'none'}" for solver, rtol in tolerances.items()), *missing]),
    )
    if OURS not in reached:
        return
    mine = _told(follow(OURS, reached[OURS]))
    for other in (solver for solver in reached if solver != OURS):
        yield Row(
            f"flow, {name}: {OURS}, against {other} as accurate",
            found[OURS],
            "s",
            found[other],
            note=f"{OURS}: {mine}; {other}: {_told(follow(other, reached[other]))}",
        )


def _told(solved: Solved) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in solved.work.items())


def _tight(model: AbstractModel, objective: AbstractObjective, scale: float, save: np.ndarray) -> np.ndarray:
    options: dict[str, Any] = {"solver": "lsoda", "rtol": 1e-10, "atol": 1e-9 * scale, "progress": False}
    found = flow(model, objective, until=save[-1], record=Record(points=save), **options)
    return found.loss[0].values


def _resolving(model: AbstractModel, objective: AbstractObjective) -> np.ndarray:
    """Times up to convergence, more of them where the loss falls fast."""
    times = flow(model, objective, record=Record(points=101), progress=False).time.values
    while True:
        shed = -np.diff(
            flow(model, objective, until=times[-1], record=Record(points=times), progress=False).loss[0].values
        )
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
