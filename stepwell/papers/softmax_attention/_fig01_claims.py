r"""What is claimed of Fig 1.

Of noise: descent at a small rate η on batches of B sequences settles at weights with covariance Σ about a minimum with
Hessian H, $H\Sigma + \Sigma H = \tfrac\eta B C$, where C is the covariance of the gradient of a sequence. So the loss
is above its least by $\tfrac12\mathrm{tr}\,H\Sigma = \eta\,\mathrm{tr}\,C/4B$. Finite steps make it more: each
direction, of curvature h, counts 1/(1 - ηh/2) times.
"""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from stepwell.papers._claim import Claim
from stepwell.probes import head_task_allocation

from ._full_model import CONTEXT, DIMS
from ._slope import slope

NAME = "softmax/fig1"
ROOT = DIMS[0] ** 0.5
QUIET = 256
"""Sequences in a batch from which on the noise of whole matrices is small beside what is claimed of their curves."""
DEVIATIONS = 4.0
"""Standard errors allowed of each of some twenty numbers."""
FINITE = 2 / DIMS[0] + np.e**2 / CONTEXT
"""What the spectral loss neglects, relatively: the spread of |q|², and of the normaliser."""


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    all_claims = _structure(data["gradient"]) + _emergence(data) + _limits(data)
    if np.unique(data["descent"]["batch"]).size >= 3:
        all_claims += _without_noise(data)
    return all_claims


def _structure(gradient: xr.Dataset) -> list[Claim]:
    logs = np.log(gradient["sequences"].values)
    norms, others = (np.log(gradient[name].values) for name in ("off", "other_off"))
    fits = [slope(logs, *each) for each in zip(norms, others, strict=True)]
    squares, their = (gradient[name] / gradient["on"] ** 2 for name in ("square", "error"))
    symmetry: dict[str, Any] = {"kind": "theory", "source": "symmetry of the task: docstring of fig02_blocks"}
    return [
        Claim.over(
            f"{NAME}/gradient-noise",
            "A gradient is off the decomposable structure by the noise of its batch only: exponent of its norm in the "
            "number of sequences, one for each of the matrices W and U",
            predicted=-0.5,
            measured=[fit.value for fit in fits],
            tolerance=[fit.allowed for fit in fits],
            basis="Student's interval for the scatter of other batches, as rare as three standard errors",
            counted="matrices",
            **symmetry,
        ),
        Claim.over(
            f"{NAME}/gradient-population",
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
            f"{NAME}/gradient-eigenvalues",
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


def _emergence(data: dict[str, xr.Dataset]) -> list[Claim]:
    runs, predictions, scaled = data["descent"], data["theory"], data["emergence"]
    quiet = runs.isel(run=np.flatnonzero(runs["batch"] >= QUIET))
    early, late = (scaled["bracket"].isel(end=end).values for end in (0, 1))
    width = float(predictions["width"])
    last = runs.isel(time=-1)
    allocated = head_task_allocation(last["omega"].values, last["mu"].values)
    scales, times = scaled["scale"].values, scaled["time"].values
    exponent = np.log(times[-1] / times[-2]) / np.log(scales[-1] / scales[-2])
    drop = "the drop, whose shape finite sizes change by 2/d + e²/L of its width; the warm-up, by 1/L"
    bracket = "theory.softmax.emergence.emergence_bracket"
    curves = []
    if quiet.sizes["run"]:
        curves = [
            Claim.over(
                f"{NAME}/three-phases",
                "The loss waits, falls once and settles: three phases are detected in the curve (1 if so), for each "
                f"run of whole matrices on batches of {QUIET} sequences and more",
                predicted=1,
                measured=np.isfinite(quiet["phase"].values[:, 0]).tolist(),
                tolerance=0,
                basis="a count; the first and last tenth of the fall are 4 times slower than any between",
                kind="paper",
                source="abstract (three phases) and Fig 1",
                explored=True,
            ),
            Claim.over(
                f"{NAME}/emergence-whole",
                "Whole matrices emerge when eigenvalues alone do on the exact loss: time of half the fall, for each "
                f"run on batches of {QUIET} sequences and more",
                predicted=float(data["population"]["half"].mean()),
                measured=quiet["half"].values,
                tolerance=width / 2,
                basis="half the width of the drop, in which the fall takes place",
                kind="theory",
                source="objectives.ReducedSampled, the exact loss without noise",
                explored=True,
            ),
        ]
    return [
        Claim.over(
            f"{NAME}/one-head-a-task",
            "Whole matrices: every task is learned by the head that theory names from the initial weights, and no two "
            "tasks by the same head: number of such tasks, for each run",
            predicted=len(DIMS),
            measured=(allocated.head == predictions["winner"].values).sum(axis=1) * allocated.one_to_one,
            tolerance=0,
            basis="a count",
            kind="paper",
            source="abstract (task allocation) and Fig 1",
        ),
        *curves,
        Claim.close(
            f"{NAME}/emergence-exact",
            "Softmax attention without noise emerges when the flow of the spectral loss does: time of half the fall",
            predicted=times[0],
            measured=float(data["population"]["half"].mean()),
            tolerance=width * FINITE + times[0] / CONTEXT,
            basis=drop,
            kind="theory",
            source="theory.softmax.losses.spectral_loss, leading order in 1/d and 1/L",
        ),
        Claim.close(
            f"{NAME}/emergence-exponent",
            "Spectral flow: the emergence time goes as one over the size of the initial weights: exponent between the "
            "two smallest",
            predicted=-1.0,
            measured=exponent,
            tolerance=width / times[-2] / np.log(scales[-2] / scales[-1]),
            basis="the width of the drop over the shorter of the times",
            kind="theory",
            source=bracket,
        ),
        Claim.over(
            f"{NAME}/emergence-brackets",
            "Spectral flow: emergence times lie in the predicted brackets, between those with one effective head (0) "
            f"and with H (1): place in the bracket, for each of {scales.size} sizes of the initial weights",
            predicted=0.5,
            measured=(times - early) / (late - early),
            tolerance=0.5,
            basis="the bracket itself",
            counted="sizes",
            kind="theory",
            source=bracket,
        ),
    ]


def _limits(data: dict[str, xr.Dataset]) -> list[Claim]:
    predictions, population, spectral = data["theory"], data["population"], data["spectral"]
    end = population.isel(time=-1)
    emerged = float(predictions["bracket"][1])
    then = spectral.sel(time=float(end["time"]))
    tail, others = float(then["loss"] - spectral["loss"][-1]), _square(then["omega"].values[0, 1])
    limit_claims = []
    for name, unit, word in (("omega", ROOT, "ω√d"), ("mu", 1.0, "μ")):
        values = _own(end[name].values).ravel() * unit
        scatter, best = (float(each) * unit for each in (data["scatter"][name], predictions[f"best_{name}"].mean()))
        limit_claims.append(
            Claim.close(
                f"{NAME}/end-{name}",
                f"Softmax attention without noise: {word} of the heads in use ends where quadrature has the least "
                "loss, mean over tasks and sets of samples",
                predicted=best,
                measured=values.mean(),
                tolerance=DEVIATIONS * scatter / values.size**0.5 + best * others,
                basis=f"{DEVIATIONS:g} standard errors, the scatter from sequences of their own; the square of what is "
                "off task, by the flow of the spectral loss",
                kind="theory",
                source="theory.softmax.losses.exact_optimum",
            )
        )
    limit_claims.append(
        Claim.close(
            f"{NAME}/end-loss",
            "Softmax attention without noise ends at the least loss by quadrature, mean over sets of samples",
            predicted=float(predictions["best_loss"]),
            measured=float(end["loss"].mean()),
            tolerance=DEVIATIONS * float(np.sqrt((end["error"] ** 2).sum())) / end.sizes["set"] + tail,
            basis=f"{DEVIATIONS:g} standard errors of the sampled loss, from other sequences; its tail, as in the flow "
            "of the spectral loss",
            kind="theory",
            source="theory.softmax.losses.exact_optimum",
        )
    )
    final, before = spectral.isel(time=-1), spectral.isel(time=-2)
    slow = float(np.exp(-predictions["slow"] * (final["time"] - emerged)))
    others = _off_task(data, float(final["time"]))
    for name, unit, word in (("omega", ROOT, "ω√d = 1"), ("mu", 1.0, "μ = √d/(1+ρ)")):
        limit_claims.append(
            Claim.over(
                f"{NAME}/limit-{name}",
                f"The flow of the spectral loss ends at {word}, for each head in use",
                predicted=float(predictions[name][0]) * unit,
                measured=_own(final[name].values) * unit,
                tolerance=float(predictions[name][0]) * unit * (slow + others),
                basis="the slow mode; the square of what is off task",
                counted="heads",
                kind="paper",
                source="abstract (convergence of the flow); limit by theory.softmax.limits.flow_limit",
            )
        )
    off = [each["omega"].values[0, 1] for each in (before, final)]
    faded = float((1 / off[1] - 1 / off[0]) / (final["time"] - before["time"]))
    mu = float(predictions["mu"][0])
    cost = np.e / CONTEXT * mu**2 * float(sum(DIMS)) * _square(off[1])
    limit_claims += [
        Claim.close(
            f"{NAME}/fading",
            "Spectral flow: what is off task fades as one over time: d(1/ω)/dt",
            predicted=float(predictions["fading"]),
            measured=faded,
            tolerance=float(predictions["fading"]) * _off_task(data, float(before["time"])),
            basis="next order: the square of what is off task",
            kind="theory",
            source="theory.softmax.flow.off_task_fading",
        ),
        Claim.close(
            f"{NAME}/tail",
            "Spectral flow: the loss is above its limit by what scores off task cost, which fall as one over time and "
            "not exponentially: excess over (eφμ²/L)Σ S Σ dω²",
            predicted=1.0,
            measured=float(final["loss"] - predictions["loss"]) / cost,
            tolerance=_off_task(data, float(before["time"])),
            basis="next order: the square of what is off task",
            kind="theory",
            source="theory.softmax.losses.spectral_loss to second order in ω off task",
        ),
    ]
    return limit_claims


def _off_task(data: dict[str, xr.Dataset], time: float) -> float:
    """At most the square of what a head has off task at a time: 1/ω has grown at its rate since the emergence."""
    predictions = data["theory"]
    return _square(1 / (float(predictions["fading"]) * (time - float(predictions["bracket"][1]))))


def _square(off: float) -> float:
    """What a head has in its scores off task, squared, given ω there."""
    return (len(DIMS) - 1) * DIMS[0] * float(off) ** 2


def _without_noise(data: dict[str, xr.Dataset]) -> list[Claim]:
    """Runs of whole matrices approach those of the exact loss as batches grow."""
    runs, population, others = data["descent"], data["population"], data["others"]
    late = population.sel(time=slice(*runs.attrs["late"]))
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
            Claim.close(
                f"{NAME}/batch-{name}",
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
        Claim.over(
            f"{NAME}/noise-cost",
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
