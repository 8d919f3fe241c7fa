"""The drop schedules of many starts in one call, against a call for each.

Separate attention of rank one with D heads, N = 31: D = 4, λ = .4 .3 .2 .1, 10,000 starts, and D = 16, λ in proportion
1/k, 200 starts, all Gaussian with init 10⁻². Both sides call `theory.linear.drop_schedule` with one thread of BLAS. Of
the starts one by one a few are timed, and the time of all is their mean times the number of starts.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from stepwell.theory import Regression, linear

from ._row import Row, quantity
from ._timing import interleaved
from .flow import harmonic


class Case(NamedTuple):
    eigenvalues: Float[np.ndarray, " dim"]
    starts: int
    most: float
    """Seconds that one start may take."""
    least_ratio: float


FOUR = Case(np.array([0.4, 0.3, 0.2, 0.1]), 10_000, most=0.05, least_ratio=30)
SIXTEEN = Case(harmonic(16), 200, most=0.2, least_ratio=4)
INIT = 1e-2


def run(quick: bool) -> Iterator[Row]:
    for case in (FOUR._replace(starts=4),) if quick else (FOUR, SIXTEEN):
        yield from _compared(case, alone=2 if quick else 10, rounds=1 if quick else 3)


def _compared(case: Case, *, alone: int, rounds: int) -> Iterator[Row]:
    dim = case.eigenvalues.size
    task = Regression(np.diag(case.eigenvalues), np.eye(dim), 0.0, 31)
    rng = np.random.default_rng(0)
    shapes = (case.starts, dim), (case.starts, dim, dim), (case.starts, dim, dim)
    weights = [INIT * rng.normal(size=shape) for shape in shapes]
    made: dict[str, Any] = {}

    def together() -> None:
        made["together"] = linear.drop_schedule(task, *weights, trials=0)

    def one_by_one() -> None:
        made["alone"] = [
            linear.drop_schedule(task, *(part[number] for part in weights), trials=0) for number in range(alone)
        ]

    times = interleaved({"together": together, "alone": one_by_one}, rounds=rounds)
    single = times["alone"] / alone
    name = f"drop schedules, separate attention of rank 1, D = H = {dim}, init {INIT:g}"
    yield Row(f"{name}: one start", single, "s", most=case.most, note=f"the mean of {alone}")
    yield Row(
        f"{name}: {case.starts:,} starts in one call, against one by one",
        times["together"],
        "s",
        single * case.starts,
        least_ratio=case.least_ratio,
        note=f"{quantity(times['together'] / case.starts, 's')} a start",
    )
    apart = np.array([[drop.time for drop in drops] for drops in made["alone"]])
    yield Row(
        f"{name}: times together and alone differ by, {alone} starts",
        float(np.max(np.abs(made["together"].times[:alone] / apart - 1))),
        "",
        most=1e-8,
        check=True,
        note="relative",
    )
