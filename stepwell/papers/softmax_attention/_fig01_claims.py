"""What is claimed of Fig 1."""

import numpy as np
import xarray as xr

from stepwell.papers._claim import Claim
from stepwell.probes import head_task_allocation

from ._full_model import DIMS

NAME = "softmax/fig1"
ROOT = DIMS[0] ** 0.5
STUDENT = 4.3
"""Two-sided 95 % point of Student's t for three tasks."""


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    all_claims = _structure(data["gradient"]) + _emergence(data) + _limits(data)
    if np.unique(data["descent"]["batch"]).size >= 3:
        all_claims += _without_noise(data)
    return all_claims


def _structure(gradient: xr.Dataset) -> list[Claim]:
    logs = np.log(gradient["sequences"].values)
    rows = []
    for matrix in gradient["matrix"].values:
        one = gradient.sel(matrix=matrix)
        slope, error = _line(logs, np.log(one["off"].values), one["spread"].values)
        rows.append((slope, error, float(one["square"] / one["on"] ** 2), float(one["error"] / one["on"] ** 2)))
    slopes, errors, squares, their = np.array(rows).T
    return [
        Claim.over(
            f"{NAME}/gradient-noise",
            "A gradient is off the decomposable structure by the noise of its batch only: exponent of its norm in the "
            "number of sequences, one for each of the matrices W and U",
            predicted=-0.5,
            measured=slopes,
            tolerance=3 * errors,
            basis="three standard errors, from the spread of independent batches",
        ),
        Claim.over(
            f"{NAME}/gradient-population",
            "The population's gradient keeps weights decomposable: its squared norm off the structure over that on it, "
            "one ratio for each of the matrices W and U",
            predicted=0.0,
            measured=squares,
            tolerance=3 * their,
            basis="three standard errors of the products of gradients of different batches",
        ),
    ]


def _emergence(data: dict[str, xr.Dataset]) -> list[Claim]:
    runs, predictions, scaled = data["descent"], data["theory"], data["emergence"]
    early, late = predictions["bracket"].values
    half_width = float(predictions["width"]) / 2
    last = runs.isel(time=-1)
    allocated = head_task_allocation(last["omega"].values, last["mu"].values)
    logs = np.log(scaled["scale"].values)
    slope, _ = _line(logs, np.log(scaled["time"].values), None)
    middle = scaled["bracket"].mean("end").values
    return [
        Claim.over(
            f"{NAME}/one-head-a-task",
            "Whole matrices: every task is learned by the head that theory names from the initial weights, and no two "
            "tasks by the same head: number of such tasks, for each run",
            predicted=len(DIMS),
            measured=(allocated.head == predictions["winner"].values).sum(axis=1) * allocated.one_to_one,
            tolerance=0,
            basis="a count",
        ),
        Claim.over(
            f"{NAME}/three-phases",
            "The loss waits, falls once and settles: three phases are detected in the curve (1 if so), for each run",
            predicted=1,
            measured=np.isfinite(runs["span"].values[:, 1]).tolist(),
            tolerance=0,
            basis="a count; the first and last tenth of the fall are 4 times slower than any between",
        ),
        Claim.over(
            f"{NAME}/emergence-whole",
            "Whole matrices: the time of half the fall is in the predicted bracket, between the emergence times with "
            "one effective head and with H (its middle is given), for each run",
            predicted=(early + late) / 2,
            measured=runs["span"].values[:, 1],
            tolerance=(late - early) / 2 + half_width,
            basis="half the bracket, and half the width of the drop",
        ),
        Claim.close(
            f"{NAME}/emergence-exact",
            "The exact loss without noise: the time of half the fall is in the predicted bracket, between the "
            "emergence times with one effective head and with H (its middle is given)",
            predicted=(early + late) / 2,
            measured=data["population"]["emerged"],
            tolerance=(late - early) / 2 + half_width,
            basis="half the bracket, and half the width of the drop",
        ),
        Claim.close(
            f"{NAME}/emergence-exponent",
            "Spectral flow: the emergence time goes as one over the size of the initial weights: exponent",
            predicted=-1.0,
            measured=slope,
            tolerance=2 * half_width / scaled["time"].values.min() / np.ptp(logs),
            basis="the width of the drop over the shortest time, over the range of the fit",
        ),
        Claim.over(
            f"{NAME}/emergence-brackets",
            "Spectral flow: emergence times are in the predicted brackets: time over the middle of the bracket, for "
            f"each of {logs.size} sizes of the initial weights",
            predicted=1.0,
            measured=scaled["time"].values / middle,
            tolerance=(np.ptp(scaled["bracket"].values, axis=1) / 2 + half_width) / middle,
            basis="half the bracket, and half the width of the drop",
        ),
    ]


def _limits(data: dict[str, xr.Dataset]) -> list[Claim]:
    predictions, population, spectral = data["theory"], data["population"], data["spectral"]
    end = population.isel(time=-1)
    course = spectral.sel(time=population["time"].values[-1])
    final = spectral.isel(time=-1)
    left = float(np.exp(-predictions["slow"] * (end["time"] - predictions["bracket"][1])))
    tail = float(course["loss"] - final["loss"])
    limit_claims = []
    for name, unit, word in (("omega", ROOT, "ω√d"), ("mu", 1.0, "μ")):
        values = np.diag(end[name].values) * unit
        limit_claims.append(
            Claim.close(
                f"{NAME}/end-{name}",
                f"The exact loss without noise: {word} of the heads in use ends where quadrature has the least loss, "
                "mean over tasks",
                predicted=float(predictions[f"best_{name}"].mean()) * unit,
                measured=values.mean(),
                tolerance=STUDENT * values.std(ddof=1) / values.size**0.5 + left * values.mean(),
                basis="Student's interval over the samples of the tasks; what is left of the slow mode",
            )
        )
    limit_claims.append(
        Claim.close(
            f"{NAME}/end-loss",
            "The exact loss without noise ends at the least loss by quadrature",
            predicted=float(predictions["best_loss"]),
            measured=end["loss"],
            tolerance=3 * float(end["error"]) + tail,
            basis="three standard errors of the sampled loss; its tail, as in the spectral flow",
        )
    )
    slow = float(np.exp(-predictions["slow"] * (final["time"] - predictions["bracket"][1])))
    off_task = spectral["omega"].values[-2:, 0, 1]
    others = (len(DIMS) - 1) * DIMS[0] * off_task[0] ** 2
    faded = float(np.diff(1 / off_task)[0] / np.diff(spectral["time"].values[-2:])[0])
    for name, unit, word in (("omega", ROOT, "ω√d = 1"), ("mu", 1.0, "μ = √d/(1+ρ)")):
        limit_claims.append(
            Claim.close(
                f"{NAME}/limit-{name}",
                f"Spectral flow: heads in use end at {word}",
                predicted=float(predictions[name][0]) * unit,
                measured=np.diag(final[name].values)[0] * unit,
                tolerance=float(predictions[name][0]) * unit * (slow + others),
                basis="the slow mode; the square of what is off task",
            )
        )
    limit_claims += [
        Claim.close(
            f"{NAME}/fading",
            "Spectral flow: what is off task fades as one over time: d(1/ω)/dt",
            predicted=float(predictions["fading"]),
            measured=faded,
            tolerance=float(predictions["fading"]) * others,
            basis="next order: the square of what is off task",
        ),
        Claim.at_least(
            f"{NAME}/tail",
            "Spectral flow: the loss is still above its limit at the end, by a tail that no exponential has",
            predicted=0.0,
            measured=float(final["loss"] - predictions["loss"]),
            basis="a sign",
        ),
    ]
    return limit_claims


def _without_noise(data: dict[str, xr.Dataset]) -> list[Claim]:
    """Runs of whole matrices approach those of the exact loss as batches grow."""
    runs, population = data["descent"], data["population"]
    late = population.sel(time=slice(*runs.attrs["late"]))
    logs = np.log(runs["batch"].values)
    wanted = {name: np.einsum("...hh->...h", late[name].values).mean() for name in ("omega", "mu")}
    wanted["loss"] = float(late["loss"].mean())
    noise_claims = []
    for name, word in (("omega", "ω of the heads in use"), ("mu", "μ of the heads in use"), ("loss", "the loss")):
        measured = runs[f"late_{name}"]
        if name == "loss":
            errors = np.hypot(runs["late_loss_error"].values, float(population["error"]))
        else:
            errors = (measured.std("task", ddof=1) / len(DIMS) ** 0.5).values
            measured = measured.mean("task")
        away = np.abs(measured.values - wanted[name])
        slope, error = _line(logs, np.log(away), errors / away)
        noise_claims.append(
            Claim.at_most(
                f"{NAME}/batch-{name}",
                f"Whole matrices: {word} approaches that of the exact loss at least as one over the root of the batch: "
                "exponent",
                predicted=-0.5,
                measured=slope,
                tolerance=3 * error,
                basis="three standard errors, over tasks or steps; a smooth effect of noise would have -1",
            )
        )
    loss = runs["late_loss"].values
    small, large = (loss[logs == end].mean() for end in (logs.min(), logs.max()))
    slopes, errors = np.array([_line(logs, np.log(sizes), None) for sizes in runs["late_off"].values.T]).T
    noise_claims.append(
        Claim.over(
            f"{NAME}/batch-off-structure",
            "Trained whole matrices are off the structure by the noise of batches: exponent of the distance in the "
            "batch size, one for each of the blocks W_X, W_Y, U_X and U_Y",
            predicted=-0.5,
            measured=slopes,
            tolerance=3 * errors + np.log(small / large) / np.ptp(logs) / 2,
            basis="three standard errors over runs; the noise goes with the loss, which small batches raise",
        )
    )
    return noise_claims


def _line(x: np.ndarray, y: np.ndarray, errors: np.ndarray | None) -> tuple[float, float]:
    """Slope of a line through points with these errors, and its own; without errors, from the scatter of the points."""
    weights = np.ones_like(x) if errors is None else 1 / errors
    fit, covariance = np.polyfit(x, y, 1, w=weights, cov="unscaled")
    scatter = 1.0 if errors is not None else np.sum((y - np.polyval(fit, x)) ** 2) / (x.size - 2)
    return float(fit[0]), float((covariance[0, 0] * scatter) ** 0.5)
