r"""How many gradients a flow costs, to the same time and the same accuracy of the loss curve.

Descent is Euler's method, with the largest step that is accurate enough. Tsit5 is explicit and of fifth order, and the
largest eigenvalue of the Hessian bounds its steps. RKC (`_chebyshev`) is explicit and of second order, and pays for a
longer step with the root of its length. LSODA is `flow`'s own, implicit where it has to be; its Jacobian costs as many
gradients as there are weights. Each takes the largest tolerance that will do; the reference is Tsit5 with a tight one.

Sampled softmax attention, merged and separate, has D = 4 and 500 sequences of 32 tokens; linear attention the moments
of the same. RKC saves much against descent and at 10⁻⁴ nothing against Tsit5, for the reason in README.md; so it is not
in `flow`.
"""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import diffrax
import jax
import numpy as np

from stepwell.dynamics import descend, flow, rate_for
from stepwell.models import AbstractModel, MergedAttention, SeparateAttention
from stepwell.objectives import AbstractObjective, Moments, Sampled
from stepwell.tasks import InContextRegression, published_covariance

from ._chebyshev import Chebyshev
from ._counted import ABSOLUTE, count, solve
from ._row import Row, quantity
from ._timing import best, interleaved

ACCURACIES = (1e-2, 1e-4)
"""Largest relative error of the loss curve."""
LADDER = 10.0 ** -np.arange(2, 9.5, 0.5)
"""Relative tolerances to be tried; every other where the cost hardly depends on them."""
REFERENCE = 1e-10
SAVES = 101


class Case(NamedTuple):
    name: str
    model: AbstractModel
    objective: AbstractObjective
    until: float
    descent_steps: int
    """Of the descent whose error is measured; a multiple of the save times."""


class Cost(NamedTuple):
    """What it took to reach an accuracy."""

    gradients: float
    rtol: float
    note: str


def run(quick: bool) -> Iterator[Row]:
    for case in cases(quick):
        yield from compare(case, ACCURACIES[:1] if quick else ACCURACIES)


def cases(quick: bool) -> list[Case]:
    rotation, data, start = jax.random.split(jax.random.key(0), 3)
    task = InContextRegression(published_covariance(4, key=rotation), 31, centred=True, whitened=True)
    batch = task.sample(50 if quick else 500, key=data)
    softmax = {"dim": 4, "activation": "softmax", "key": start}
    merged = MergedAttention.random(heads=8, scale=1e-3, **softmax)
    if quick:
        return [Case("softmax attnM", merged, Sampled(batch), 20.0, 400)]
    separate = SeparateAttention.random(heads=5, rank=1, scale=0.02, **softmax)
    linear = SeparateAttention.random(dim=4, heads=4, rank=1, scale=0.01, key=start)
    return [
        Case("softmax attnM", merged, Sampled(batch), 100.0, 2000),
        Case("softmax attnS", separate, Sampled(batch), 400.0, 4000),
        Case("linear attnS", linear, Moments.of_batch(batch), 1000.0, 50_000),
    ]


def compare(case: Case, accuracies: tuple[float, ...]) -> Iterator[Row]:
    curve = functools.partial(by_diffrax, case)
    reference = curve(diffrax.Tsit5(), REFERENCE)[0]
    lsoda = by_lsoda(case, REFERENCE * 10)[0]
    yield Row(
        f"{case.name}: loss curves of Tsit5 and LSODA, tight tolerances, differ by",
        error(lsoda, reference),
        "",
        most=min(accuracies) / 100,
        check=True,
    )
    coarse, fine = (
        error(by_descent(case, steps), reference) for steps in (case.descent_steps // 2, case.descent_steps)
    )
    yield Row(
        f"{case.name}: descent's error at half of the steps, over twice its error, away from one by",
        abs(coarse / (2 * fine) - 1),
        "",
        most=0.1,
        check=True,
        note="so that the steps for another accuracy can be computed",
    )
    per_step = best(lambda: by_descent(case, case.descent_steps), rounds=1, warm=False) / case.descent_steps
    found = {
        "Tsit5": cheapest(lambda rtol: curve(diffrax.Tsit5(), rtol), reference, accuracies, LADDER[::2]),
        "RKC": cheapest(lambda rtol: curve(Chebyshev(), rtol), reference, accuracies, LADDER),
        "LSODA": cheapest(lambda rtol: by_lsoda(case, rtol), reference, accuracies, LADDER[::2]),
    }
    for place, accuracy in enumerate(accuracies):
        tsit5, rkc, lsoda = (found[name][place] for name in ("Tsit5", "RKC", "LSODA"))
        sides: dict[str, Callable[[], Any]] = {
            "Tsit5": lambda rtol=tsit5.rtol: solve(case.model, fast(case), diffrax.Tsit5(), rtol, times(case)),
            "RKC": lambda rtol=rkc.rtol: solve(case.model, fast(case), Chebyshev(), rtol, times(case)),
            "LSODA": lambda rtol=lsoda.rtol: by_lsoda(case, rtol),
        }
        taken = interleaved(sides, rounds=1, warm=place == 0)  # one program serves every tolerance
        descent = case.descent_steps * fine / accuracy
        taken["descent"] = per_step * descent
        said = {name: quantity(seconds, "s") for name, seconds in taken.items()}
        what = f"{case.name}, time {case.until:g}, to {accuracy:g}"
        yield Row(
            f"{what}: RKC, against Tsit5",
            rkc.gradients,
            "gradients",
            tsit5.gradients,
            note=f"{rkc.note} against {tsit5.note}; {said['RKC']} against {said['Tsit5']}",
        )
        yield Row(
            f"{what}: RKC, against descent",
            rkc.gradients,
            "gradients",
            descent,
            note=f"{said['RKC']} against {said['descent']}; descent's steps are computed, not run",
        )
        yield Row(
            f"{what}: LSODA, against Tsit5",
            lsoda.gradients,
            "gradients",
            tsit5.gradients,
            note=f"{lsoda.note}; {said['LSODA']} against {said['Tsit5']}",
        )


def cheapest(
    curve: Callable[[float], Any], reference: np.ndarray, accuracies: tuple[float, ...], ladder: np.ndarray
) -> list[Cost]:
    """The cost of each accuracy, at the largest tolerance of the ladder that reaches it."""
    tried: list[tuple[float, Cost]] = []
    for rtol in ladder:
        losses, gradients, note = curve(float(rtol))
        tried.append((error(losses, reference), Cost(gradients, float(rtol), note)))
        if tried[-1][0] <= min(accuracies):
            return [next(cost for off, cost in tried if off <= accuracy) for accuracy in accuracies]
    raise RuntimeError(f"the last tolerance, {ladder[-1]:g}, leaves an error of {tried[-1][0]:.2g}; lengthen LADDER")


def error(losses: np.ndarray, reference: np.ndarray) -> float:
    return float(np.max(np.abs(losses / reference - 1)))


def times(case: Case) -> np.ndarray:
    return np.linspace(0.0, case.until, SAVES)


def fast(case: Case) -> AbstractObjective:
    return case.objective.for_descent(case.model)


def by_descent(case: Case, steps: int) -> np.ndarray:
    every = steps // (SAVES - 1)
    rate = float(rate_for(case.until, steps))
    found = descend(case.model, case.objective, rate=rate, steps=steps, record=every, snapshots=2, progress=False)
    return found["loss"].values[0]


def by_lsoda(case: Case, rtol: float) -> tuple[np.ndarray, float, str]:
    """(losses, gradients, what they were); a Jacobian is as many gradients as there are weights."""
    found = flow(
        case.model,
        case.objective,
        until=case.until,
        save=times(case),
        solver="lsoda",
        rtol=rtol,
        atol=ABSOLUTE * rtol,
        progress=False,
    )
    work = json.loads(found.attrs["configuration"])["work"]
    weights = sum(np.size(weight) for weight in case.model.weights().values())
    note = f"{work['gradients']} gradients and {work['jacobians']} Jacobians of {weights}"
    return found["loss"].values[0], work["gradients"] + weights * work["jacobians"], note


def by_diffrax(case: Case, solver: Any, rtol: float) -> tuple[np.ndarray, float, str]:
    """(losses, gradients, what they were)."""
    found = count(case.model, fast(case), solver, rtol, times(case))
    return found.losses, found.gradients, f"{found.steps} steps of {found.gradients / found.steps:.1f}"
