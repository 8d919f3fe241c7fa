r"""Fig 6: the scale of the initial weights, from rich (a wait, then drops) to lazy (an exponential decay).

Heads come in pairs with the same keys and queries and opposite values, so that every run starts from the map zero,
whatever its scale. With independent heads a large start has a large loss, and at a fixed number of heads it is never
lazy: the map has to move by as much as it starts with.
"""

from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell.models import MergedAttention, SeparateAttention
from stepwell.papers._claim import Claim
from stepwell.probes import passage_time
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT, provenance

from ._escape import flow_losses, slope, waits
from ._fig06_drawing import draw_sweeps
from ._fig06_lazy import linearised

NAME = "linear/fig6"
SPECTRUM = (0.4, 0.3, 0.2, 0.1)
CONTEXT = 31
KINDS = ("merged", "separate")
HEADS = {"merged": 8, "separate": 12}
RICH = {"merged": (1e-6, 1e-5, 1e-4, 1e-3), "separate": (1e-4, 3e-4, 1e-3, 3e-3)}
BETWEEN = {"merged": (0.01, 0.1, 0.3, 1.0), "separate": (0.01, 0.1, 0.3, 1.0)}
LAZY = {"merged": (3.0, 6.0, 12.0), "separate": (3.0, 4.0, 6.0)}
FACTORS = {"merged": MergedAttention.factors, "separate": SeparateAttention.factors}
POWER = {"merged": -2, "separate": -4}
"""The kernel is of second order in merged weights, of fourth in separate ones; lazy times go as one over it."""
LAZY_RTOL = 1e-8
"""Of the solver, for large weights, which make a small map by cancellation."""

TITLE = "Small initial weights wait and drop, large ones decay at once"
CAPTION = (
    "Gradient flow on infinitely many sequences from initial weights of standard deviation w, in the paper's "
    "convention; heads come in pairs of opposite value, so that every run starts with the loss 1. (a, b) Merged "
    "attention waits, then drops once; separate attention waits at every level. Larger weights wait less, and very "
    "large ones (lazy, warm colours) not at all. (c) The time until the first fall has begun (a tenth of it). Small "
    "weights: ln(1/w)/‖Λ²‖ merged, 1/w separate (dashed: slope predicted, height fitted). Large ones: training "
    "linearised at its start, w⁻² and w⁻⁴ (dotted, no free height). (d) At large w the excess of the loss over its "
    "minimum is the sum of exponentials that the tangent kernel at the start predicts."
)


@dataclass(frozen=True)
class Settings:
    """What a quick run has less of."""

    seeds: tuple[int, ...] = (0, 1, 2)
    every_scale: bool = True
    """Or only the first and last of the rich and of the lazy ones, and 0.3."""

    def scales(self, kind: str) -> list[float]:
        if self.every_scale:
            return [*RICH[kind], *BETWEEN[kind], *LAZY[kind]]
        return [RICH[kind][0], RICH[kind][-1], 0.3, LAZY[kind][0], LAZY[kind][-1]]


FULL, QUICK = Settings(), Settings(seeds=(0,), every_scale=False)


def settings(quick: bool) -> dict[str, Any]:
    return {
        "eigenvalues of the covariance": list(SPECTRUM),
        "context length N": CONTEXT,
        "heads H": [f"{kind}: {HEADS[kind]}, in pairs of opposite value" for kind in KINDS],
        "initial weights": [f"{kind}: {(QUICK if quick else FULL).scales(kind)}" for kind in KINDS],
        "data": "infinitely many sequences",
        **asdict(QUICK if quick else FULL),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    return {kind: sweep(kind, chosen) for kind in KINDS}


def task(*, context: int = CONTEXT) -> InContextRegression:
    return InContextRegression(covariance(SPECTRUM), context)


def start(kind: str, scale: float, seed: int) -> MergedAttention | SeparateAttention:
    """Random heads, the second half a copy of the first with opposite values."""
    model_class = MergedAttention if kind == "merged" else SeparateAttention
    model = model_class.random(dim=len(SPECTRUM), heads=HEADS[kind], scale=scale, key=jax.random.key(seed))
    half = HEADS[kind] // 2
    weights = {name: np.asarray(weight)[:half] for name, weight in model.weights().items()}
    return model.with_weights(
        {name: np.concatenate([part, -part if name == "value" else part]) for name, part in weights.items()}
    )


def sweep(kind: str, chosen: Settings, *, context: int = CONTEXT) -> xr.Dataset:
    """`wait` of every seed and scale, `loss` of the first seed, and beside large scales what the kernel predicts.

    Between rich and lazy, only the first seed is run. `context` is that of the prediction.
    """
    scales = chosen.scales(kind)
    high, low = first_fall(kind)
    given, end = task(context=context), theory.levels(task(context=context))[-1]
    names = ("wait", "change", "difference", "half", "lazy_wait", "rate", "predicted_rate")
    table = {name: np.full((len(chosen.seeds), len(scales)), np.nan) for name in names}
    curves: dict[str, list[np.ndarray]] = {"time": [], "loss": [], "linearised": []}
    for row, seed in enumerate(chosen.seeds):
        for column, scale in enumerate(scales):
            if row > 0 and scale in BETWEEN[kind]:
                continue
            model, lazy = start(kind, scale, seed), scale in LAZY[kind]
            expected = linearised(given, _weights(model))
            until = 8 / expected.rates.min() if lazy else _patience(kind, scale, whole=row == 0)
            run = flow_losses([model], task(), until, name=NAME, rtol=LAZY_RTOL if lazy else 1e-7)
            times, loss = run["time"].values, run["loss"].values[0]
            predicted = end + expected.excess(times)
            measures = {"wait": waits(run, high, low)[0], "change": expected.change}
            if lazy:
                measures |= {
                    "difference": np.abs(loss - predicted).max(),
                    "half": passage_time(times, loss, _down(0.5)),
                    "lazy_wait": passage_time(times, predicted, high - 0.1 * (high - low)),
                    "rate": _rate(times, loss),
                    "predicted_rate": _rate(times, predicted),
                }
            for name, value in measures.items():
                table[name][row, column] = value
            if row == 0:
                for name, values in zip(curves, (times, loss, predicted), strict=True):
                    curves[name].append(values)
    runs = xr.Dataset(
        {
            **{name: (("seed", "scale"), values) for name, values in table.items()},
            **{name: (("scale", "point"), np.array(values)) for name, values in curves.items()},
        },
        {"seed": list(chosen.seeds), "scale": list(scales)},
    )
    for name in ("wait", "half", "time", "lazy_wait"):
        runs[name].attrs["units"] = TIME_UNIT
    return runs.assign_attrs(provenance({"figure": NAME, "kind": kind, **asdict(chosen)}))


def first_fall(kind: str) -> tuple[float, float]:
    """From the first level to the next, which for merged attention is the last."""
    levels = theory.levels(task())
    return float(levels[0]), float(levels[-1 if kind == "merged" else 1])


def _patience(kind: str, scale: float, *, whole: bool) -> float:
    """Several waits of the paper's laws; for the `whole` run to its end, as many as the last component needs."""
    logarithm = 4 + np.log(1 / scale)
    if kind == "merged":
        return (6 if whole else 1.5) * logarithm / theory.merged_escape_rate(task())
    rates = theory.escape_rates(task())
    return (3 / (rates[-1] * scale) + 4 * logarithm / rates[-1]) if whole else 2 / (rates[0] * scale)


def _weights(model: MergedAttention | SeparateAttention) -> list[np.ndarray]:
    """(v, U) or (v, k, q)."""
    dim = len(SPECTRUM)
    values = np.asarray(model.value[:, 0, dim])
    if isinstance(model, MergedAttention):
        return [values, np.asarray(model.key_query[:, :dim])]
    return [values, np.asarray(model.key[:, 0, :dim]), np.asarray(model.query[:, 0])]


def _down(part: float) -> float:
    """The loss with this part of the whole fall made."""
    levels = theory.levels(task())
    return float(levels[0] - part * (levels[0] - levels[-1]))


def _rate(times: np.ndarray, loss: np.ndarray) -> float:
    """Of the decay of the excess from a half to a hundredth, as one exponential."""
    return float(np.log(50) / (passage_time(times, loss, _down(0.99)) - passage_time(times, loss, _down(0.5))))


def among(runs: xr.Dataset, scales: tuple[float, ...]) -> xr.Dataset:
    """Of these scales, those that were run."""
    return runs.sel(scale=[scale for scale in runs["scale"].values if scale in scales])


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    all_claims = [_merged_claim(data["merged"]), _separate_claim(data["separate"])]
    for kind in KINDS:
        lazy = among(data[kind], LAZY[kind])
        logs = np.log(lazy["scale"].values)
        first = lazy["change"].isel(scale=0).values
        many = len(logs)
        solver = LAZY_RTOL * HEADS[kind] * len(SPECTRUM) * lazy["scale"].values ** FACTORS[kind]
        allowed = (lazy["change"].values + solver).ravel()
        all_claims += [
            Claim.over(
                f"{NAME}/lazy-{kind}-power",
                f"Lazy, {kind}: the time of half the fall goes as a power of the initial weights: exponent",
                predicted=POWER[kind],
                measured=[slope(logs, np.log(half)) for half in lazy["half"].values],
                tolerance=first / (logs[-1] - logs[0]),
                basis="change of the tangent kernel along the linearised path, at the smallest scale fitted",
            ),
            Claim.over(
                f"{NAME}/lazy-{kind}-rate",
                f"Lazy, {kind}: rate of decay over that of training linearised at its start, one ratio for each of "
                f"{many} scales and each seed",
                predicted=1.0,
                measured=(lazy["rate"] / lazy["predicted_rate"]).values.ravel(),
                tolerance=allowed,
                basis="change of the tangent kernel along the linearised path; digits lost by the solver",
            ),
            Claim.over(
                f"{NAME}/lazy-{kind}-curve",
                f"Lazy, {kind}: the whole loss curve is that of linearised training: largest difference, one for each "
                f"of {many} scales and each seed",
                predicted=0.0,
                measured=lazy["difference"].values.ravel(),
                tolerance=allowed,
                basis="change of the tangent kernel along the linearised path; digits lost by the solver",
                relation="<=",
            ),
        ]
    return all_claims


def _merged_claim(runs: xr.Dataset) -> Claim:
    rich = among(runs, RICH["merged"])
    logs = np.log(1 / rich["scale"].values)
    dim = len(SPECTRUM)
    size = rich["scale"].values[-1] * (HEADS["merged"] * (dim**2 + 1)) ** 0.5
    grown = float(np.linalg.norm(theory.modes(task()).ends)) ** 0.5
    return Claim.over(
        f"{NAME}/rich-merged",
        "Rich, merged: the wait grows as ln(1/w)/‖Λ²‖: slope times ‖Λ²‖",
        predicted=1.0,
        measured=[slope(logs, row) * theory.merged_escape_rate(task()) for row in rich["wait"].values],
        tolerance=size / grown / (logs[0] - logs[-1]) + 1e-4,
        basis="initial over grown weights, at the largest scale fitted; solver",
    )


def _separate_claim(runs: xr.Dataset) -> Claim:
    rich = among(runs, RICH["separate"])
    logs = np.log(rich["scale"].values)
    size = rich["scale"].values[-1] * (2 * len(SPECTRUM) + 1) ** 0.5
    return Claim.over(
        f"{NAME}/rich-separate",
        "Rich, separate: the wait goes as a power of the initial weights: exponent",
        predicted=-1.0,
        measured=[slope(logs, np.log(row)) for row in rich["wait"].values],
        tolerance=size / theory.aligned_end(task(), 0),
        basis="initial over grown weights of a head, at the largest scale fitted",
    )


def draw(data: dict[str, xr.Dataset]) -> Figure:
    return draw_sweeps(data, LAZY, theory.levels(task()), theory.merged_escape_rate(task()))
