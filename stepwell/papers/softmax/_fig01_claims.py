r"""What is claimed of Fig 1.

Of noise: descent at a small rate η on batches of B sequences settles at weights with covariance Σ about a minimum with
Hessian H, $H\Sigma + \Sigma H = \tfrac\eta B C$, where C is the covariance of the gradient of a sequence. So the loss
is above its least by $\tfrac12\mathrm{tr}\,H\Sigma = \eta\,\mathrm{tr}\,C/4B$. Finite steps make it more: each
direction, of curvature h, counts 1/(1 - ηh/2) times.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from stepwell.analysis import head_task_allocation
from stepwell.figures import Claim, Data

from ._full_model import FirstSetting
from ._slope import slope
from ._unless import unless

QUIET = 256
"""Sequences in a batch from which on the noise of whole matrices is small beside what is claimed of their curves."""
DEVIATIONS = 4.0
"""Standard errors allowed of each of some twenty numbers."""
TAIL = (60.0, 120.0)
"""Between these times the fading of what is off task is measured."""


def claims(data: Data, settings: FirstSetting) -> list[Claim]:
    all_claims = _structure(data["gradient"]) + _emergence(data, settings) + _limits(data, settings)
    if np.unique(data["descent"]["batch"]).size >= 3:
        all_claims += _without_noise(data)
    return all_claims


def _unequal(settings: FirstSetting) -> str:
    """Why claims for tasks of one dimension cannot be judged, if there are several."""
    return "tasks have different dimensions" if len(set(settings.dims)) > 1 else ""


def _structure(gradient: xr.Dataset) -> list[Claim]:
    logs = np.log(gradient["sequences"].values)
    norms, others = (np.log(gradient[name].values) for name in ("off", "other_off"))
    fits = [slope(logs, *each) for each in zip(norms, others, strict=True) if np.unique(logs).size > 1]
    squares, their = (gradient[name] / gradient["on"] ** 2 for name in ("square", "error"))
    symmetry: dict[str, Any] = {"kind": "theory", "source": "symmetry of the task: docstring of fig02_blocks"}
    return [
        Claim.over(
            "gradient-noise",
            "A gradient is off the decomposable structure by the noise of its batch only: exponent of its norm in the "
            "number of sequences, one for each of the matrices W and U",
            predicted=-0.5,
            measured=[fit.value for fit in fits],
            tolerance=[fit.allowed for fit in fits],
            basis="Student's interval for the scatter of other batches, as rare as three standard errors",
            counted="matrices",
            **symmetry,
        ),
        unless(
            "" if gradient.sizes["group"] else "there is a single batch",
            Claim.over,
            "gradient-population",
            "The population's gradient keeps weights decomposable: its squared norm off the structure over that on it, "
            "one ratio for each of the matrices W and U",
            predicted=0.0,
            measured=squares.values,
            tolerance=3 * their.values,
            basis="three standard errors of the products of gradients of different batches, from other batches",
            counted="matrices",
            **symmetry,
        ),
        Claim.over(
            "gradient-eigenvalues",
            "On the structure the gradient of whole matrices is that of the eigenvalues alone on the exact loss: "
            "difference of each derivative by ω and μ, in standard errors",
            predicted=0.0,
            measured=(
                (gradient["slope"] - gradient["reduced"]) / np.hypot(gradient["slope_error"], gradient["reduced_error"])
            ).values.ravel(),
            tolerance=DEVIATIONS,
            basis=f"{DEVIATIONS:g} standard errors, over other whole and other reduced sequences",
            counted="derivatives",
            kind="check",
            source="objectives.Sampled of whole matrices against objectives.ReducedSampled",
        ),
    ]


def _emergence(data: Data, settings: FirstSetting) -> list[Claim]:
    runs, predictions, scaled = data["descent"], data["theory"], data["emergence"]
    quiet = runs.isel(run=np.flatnonzero(runs["batch"] >= QUIET))
    early, late = (scaled["bracket"].isel(end=end).values for end in (0, 1))
    width, alone = float(predictions["width"]), "" if settings.tasks > 1 else "there is a single head"
    last = runs.isel(time=-1)
    allocated = head_task_allocation(last["omega"].values, last["mu"].values)
    scales, times = scaled["scale"].values, scaled["time"].values
    exponent = np.log(times[-1] / times[-2]) / np.log(scales[-1] / scales[-2])
    half = float(data["population"]["half"].mean())
    unknown = "" if np.isfinite(half) else "training on the exact loss ends before half the fall"
    # What the spectral loss neglects, relatively: the spread of |q|², and of the normalizer.
    finite = 2 / settings.dims[0] + np.e**2 / settings.context
    unequal = _unequal(settings)
    short = "training ends before tasks emerge" if runs["time"][-1] <= predictions["bracket"][0] else ""
    drop = "the drop, whose shape finite sizes change by 2/d + e²/L of its width; the warm-up, by 1/L"
    bracket = "theory.softmax.emergence_bracket"
    curves = []
    if quiet.sizes["run"]:
        curves = [
            unless(
                short,
                Claim.fraction,
                "three-phases",
                "The loss waits, falls once and settles: fraction of the runs of whole matrices, on batches of "
                f"{QUIET} sequences and more, in which three phases are detected",
                holds=np.isfinite(quiet["phase"].values[:, 0]),
                counted="runs",
                basis="a count; the first and last tenth of the fall are 4 times slower than any between",
                kind="paper",
                source="abstract (three phases) and Fig 1",
                explored=True,
            ),
            unless(
                short or unknown,
                Claim.over,
                "emergence-whole",
                "Whole matrices emerge when eigenvalues alone do on the exact loss: time of half the fall, for each "
                f"run on batches of {QUIET} sequences and more",
                counted="runs",
                predicted=half,
                measured=quiet["half"].values,
                tolerance=width / 2,
                basis="half the width of the drop, in which the fall takes place",
                kind="theory",
                source="objectives.ReducedSampled, the exact loss without noise",
                explored=True,
            ),
        ]
    return [
        unless(
            short,
            Claim.over,
            "one-head-a-task",
            "Whole matrices: every task is learned by the head that theory names from the initial weights, and no two "
            "tasks by the same head: number of such tasks, for each run",
            counted="runs",
            predicted=settings.tasks,
            measured=(allocated.head == predictions["winner"].values).sum(axis=1) * allocated.one_to_one,
            tolerance=0,
            basis="a count",
            kind="paper",
            source="abstract (task allocation) and Fig 1",
        ),
        *curves,
        unless(
            unknown or unequal,
            Claim.close,
            "emergence-exact",
            "Softmax attention without noise emerges when the flow of the spectral loss does: time of half the fall",
            predicted=times[0],
            measured=half,
            tolerance=width * finite + times[0] / settings.context,
            basis=drop,
            kind="theory",
            source="theory.softmax.spectral_loss, leading order in 1/d and 1/L",
        ),
        unless(
            unequal,
            Claim.close,
            "emergence-exponent",
            "Spectral flow: the emergence time goes as one over the size of the initial weights: exponent between the "
            "two smallest",
            predicted=-1.0,
            measured=exponent,
            tolerance=width / times[-2] / np.log(scales[-2] / scales[-1]),
            basis="the width of the drop over the shorter of the times",
            kind="theory",
            source=bracket,
        ),
        unless(
            alone or unequal,
            Claim.over,
            "emergence-brackets",
            "Spectral flow: emergence times lie in the predicted brackets, between those with one effective head (0) "
            f"and with H (1): place in the bracket, for each of {scales.size} sizes of the initial weights",
            predicted=0.5,
            measured=[] if alone else (times - early) / (late - early),
            tolerance=0.5,
            basis="the bracket itself",
            counted="sizes",
            kind="theory",
            source=bracket,
        ),
    ]


def _limits(data: Data, settings: FirstSetting) -> list[Claim]:
    predictions, population, spectral = data["theory"], data["population"], data["spectral"]
    end, root, unequal = population.isel(time=-1), settings.dims[0] ** 0.5, _unequal(settings)
    emerged = float(predictions["bracket"][1])
    early = "training on the exact loss ends before tasks have emerged" if end["time"] <= emerged else ""
    then = spectral.sel(time=float(end["time"]))
    tail, others = float(then["loss"] - spectral["loss"][-1]), _square(_off(then), settings)
    limit_claims = []
    for name, unit, word in (("omega", root, "ω√d"), ("mu", 1.0, "μ")):
        values = _own(end[name].values).ravel() * unit
        scatter, best = (float(each) * unit for each in (data["scatter"][name], predictions[f"best_{name}"].mean()))
        limit_claims.append(
            unless(
                early or unequal,
                Claim.close,
                f"end-{name}",
                f"Softmax attention without noise: {word} of the heads in use ends where quadrature has the least "
                "loss, mean over tasks and sets of samples",
                predicted=best,
                measured=values.mean(),
                tolerance=DEVIATIONS * scatter / values.size**0.5 + best * others,
                basis=f"{DEVIATIONS:g} standard errors, the scatter from sequences of their own; the square of what is "
                "off task, by the flow of the spectral loss",
                kind="theory",
                source="theory.softmax.exact_optimum",
            )
        )
    limit_claims.append(
        unless(
            early,
            Claim.close,
            "end-loss",
            "Softmax attention without noise ends at the least loss by quadrature, mean over sets of samples",
            predicted=float(predictions["best_loss"]),
            measured=float(end["loss"].mean()),
            tolerance=DEVIATIONS * float(np.sqrt((end["error"] ** 2).sum())) / end.sizes["set"] + tail,
            basis=f"{DEVIATIONS:g} standard errors of the sampled loss, from other sequences; its tail, as in the flow "
            "of the spectral loss",
            kind="theory",
            source="theory.softmax.exact_optimum",
        )
    )
    before, final = (spectral.sel(time=time) for time in TAIL)
    alone = "" if settings.tasks > 1 else "there is a single task: nothing is off task"
    late = f"tasks emerge after t = {TAIL[0]:g}" if emerged >= TAIL[0] else ""
    slow = float(np.exp(-predictions["slow"] * (TAIL[1] - emerged)))
    sooner, later = (0.0 if late else _off_task(data, time, settings) for time in TAIL)
    for name, unit, word in (("omega", root, "ω√d = 1"), ("mu", 1.0, "μ = √d/(1+ρ)")):
        limit_claims.append(
            unless(
                alone or late or unequal,
                Claim.over,
                f"limit-{name}",
                f"The flow of the spectral loss ends at {word}, for each head in use",
                predicted=float(predictions[name][0]) * unit,
                measured=_own(final[name].values) * unit,
                tolerance=float(predictions[name][0]) * unit * (slow + later),
                basis="the slow mode; the square of what is off task",
                counted="heads",
                kind="paper",
                source="abstract (convergence of the flow); limit by theory.softmax.flow_limit",
            )
        )
    first, last = _off(before), _off(final)
    mu = float(predictions["mu"][0])
    cost = np.e / settings.context * mu**2 * float(sum(settings.dims)) * _square(last, settings)
    limit_claims += [
        unless(
            alone or late or unequal,
            Claim.close,
            "fading",
            "Spectral flow: what is off task fades as one over time: d(1/ω)/dt",
            predicted=float(predictions["fading"]),
            measured=np.nan if alone else (1 / last - 1 / first) / (TAIL[1] - TAIL[0]),
            tolerance=float(predictions["fading"]) * sooner,
            basis="next order: the square of what is off task",
            kind="theory",
            source="theory.softmax.off_task_fading",
        ),
        unless(
            alone or late or unequal,
            Claim.close,
            "tail",
            "Spectral flow: the loss is above its limit by what scores off task cost, which fall as one over time and "
            "not exponentially: excess over (eφμ²/L)Σ S Σ dω²",
            predicted=1.0,
            measured=np.nan if alone else float(final["loss"] - predictions["loss"]) / cost,
            tolerance=sooner,
            basis="next order: the square of what is off task",
            kind="theory",
            source="theory.softmax.spectral_loss to second order in ω off task",
        ),
    ]
    return limit_claims


def _off(course: xr.Dataset) -> float:
    """ω of the first head off task, if there is another task."""
    return float(course["omega"][0, 1]) if course.sizes["task"] > 1 else 0.0


def _off_task(data: Data, time: float, settings: FirstSetting) -> float:
    """At most the square of what a head has off task at a time: 1/ω has grown at its rate since the emergence."""
    predictions = data["theory"]
    return _square(1 / (float(predictions["fading"]) * (time - float(predictions["bracket"][1]))), settings)


def _square(off: float, settings: FirstSetting) -> float:
    """What a head has in its scores off task, squared, given ω there."""
    return (settings.tasks - 1) * settings.dims[0] * off**2


def late_part(course: xr.Dataset, times: Sequence[float]) -> xr.Dataset:
    """A course between two times; if it ends before, it has no numbers."""
    part = course.sel(time=slice(*times))
    return part if part.sizes["time"] > 1 else course.isel(time=[-1, -1]) * np.nan


def _without_noise(data: Data) -> list[Claim]:
    """Runs of whole matrices approach those of the exact loss as batches grow."""
    runs, population, others = data["descent"], data["population"], data["others"]
    late = late_part(population, runs.attrs["late"])
    reached = np.isfinite(runs["late_loss"]).all() and np.isfinite(late["loss"]).all()
    why = "" if reached else "training ends before the drop is over"
    batches, rate = runs["batch"].values, float(np.diff(runs["time"].values[:2])[0])
    cost = rate * float(data["noise"]["total"]) / 4 / batches
    share = cost.max() / float(data["theory"]["best_loss"])
    calm = Mean(float(late["loss"].mean()), float(np.sqrt((population["error"] ** 2).sum())) / population.sizes["set"])
    exact = _own(late["mu"].values).mean(axis=1)
    own = Mean(float(exact.mean()), float(data["scatter"]["mu"]) / exact.size**0.5)
    # Of a single value at the smallest batch.
    loss_error = float(np.sqrt((others["late_loss_error"] ** 2).mean()))
    rows = (
        ("mu", "μ of the heads in use", own, float(others["late_mu"].std(ddof=1))),
        ("loss", "the loss", calm, loss_error),
    )
    origin: dict[str, Any] = {
        "kind": "theory",
        "source": "stationary noise of descent at rate η: docstring of _fig01_claims.py",
        "explored": True,
    }
    noise_claims = []
    for name, word, reference, single in rows:
        away = runs[f"late_{name}"] - reference.value
        expected = Mean(float(others[f"late_{name}"].mean()) - reference.value, single)
        measured, allowed = _power(away, expected, reference.error, share)
        noise_claims.append(
            unless(
                why,
                Claim.close,
                f"batch-{name}",
                f"Whole matrices: {word} differs from that of the exact loss as one over the batch: exponent, batches "
                f"of {', '.join(str(each) for each in np.unique(batches))}",
                predicted=-1.0,
                measured=measured,
                tolerance=allowed,
                basis=f"{DEVIATIONS:g} standard errors, the scatter from other runs; next order: what noise costs, "
                "over the loss",
                **origin,
            )
        )
    noisy = batches <= QUIET
    error = loss_error * (batches.min() / batches) ** 0.5
    noise_claims.append(
        unless(
            why,
            Claim.over,
            "noise-cost",
            "Whole matrices: noise raises the loss by at least η tr C/4B, C the covariance of the gradient of a "
            f"sequence, measured apart: excess over it, for each run on batches of {QUIET} sequences and fewer (with "
            "more it is within its error)",
            predicted=1.0,
            measured=((runs["late_loss"].values - calm.value) / cost)[noisy],
            tolerance=(DEVIATIONS * np.hypot(error, calm.error) / cost)[noisy],
            basis=f"{DEVIATIONS:g} standard errors of both losses, from other runs and sequences; finite steps raise "
            "it further",
            relation=">=",
            **origin,
        )
    )
    return noise_claims


def _power(away: xr.DataArray, expected: "Mean", error: float, share: float) -> tuple[float, float]:
    """The exponent of what falls with the batch, by weighted least squares, and by how much it may be off -1.

    `expected` is what other runs have at the smallest batch, with the error of a single value; `error` is that of what
    is subtracted from all, and `share` the next order, relatively, at the smallest batch.
    """
    grouped = away.groupby("batch")
    batches = np.array(list(grouped.groups), dtype=float)
    counts = np.array([each.size for _, each in grouped])
    means = np.array([float(each.mean()) for _, each in grouped])
    fall = batches[0] / batches
    size = expected.value * fall
    relative = expected.error * np.sqrt(fall / counts) / np.abs(size)
    weights = 1 / (relative**2 + (error / size) ** 2)
    x = np.log(batches) - weights @ np.log(batches) / weights.sum()
    lever = weights * x / (weights @ x**2)
    with np.errstate(invalid="ignore", divide="ignore"):  # not a number where the sign changes
        exponent = lever @ np.log(means / expected.value)
    chance = np.hypot(np.linalg.norm(lever * relative), error * (lever / size).sum())
    return float(exponent), float(DEVIATIONS * chance + abs(share * lever @ fall))


class Mean(NamedTuple):
    """A mean with an error."""

    value: float
    error: float


def _own(weights: np.ndarray) -> np.ndarray:
    """Of each task, the entry of the head with its number."""
    return np.einsum("...hh->...h", weights)
