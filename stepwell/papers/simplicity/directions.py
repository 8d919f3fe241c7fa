r"""Directions of unequal growth, Theorem 4: linear networks from small weights, mode by mode.

While weights are small, units that are linear in u follow $\dot v = S u$, $\dot u = S^\top v$ with $S = \sum_k s_k q_k
r_k^\top$. A part along $(q_k; r_k)/\sqrt2$ grows as $e^{s_k t}$. When the fastest parts have grown to one, from weights
of size ε, the others have $\epsilon^{1 - s_{r+1}/s_1}$.
"""

from dataclasses import dataclass
from typing import Any

import jax
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, ORANGE, PURPLE, VERMILION, new_figure, styled, superscript
from stepwell.dynamics import Ensemble, Record, flow
from stepwell.figures import Claim, Data, Figure, InvalidInput, Origin
from stepwell.models import PolynomialUnits
from stepwell.objectives import FeatureMoments
from stepwell.tasks import GaussianTeacher
from stepwell.theory.units import direction_times, riccati_course

from ._common import linear_levels, passage

SPECTRA = {"1, ½, ¼": (1.0, 0.5, 0.25), "1, 0.8, 0.1": (1.0, 0.8, 0.1), "1, 1, 0.6, 0.3": (1.0, 1.0, 0.6, 0.3)}
SPECTRA |= {"1, 0.95": (1.0, 0.95), "1, 0.7, 0.3": (1.0, 0.7, 0.3)}
FASTEST = dict.fromkeys(SPECTRA, 1) | {"1, 1, 0.6, 0.3": 2, "1, 0.7, 0.3": 2}
"""How many modes are the fastest, r."""
COLORS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE)
EXPONENT = 1e-3
NEWTON = 20  # steps; each ends closer than the last, and the error squares
POINTS = 4001
RTOL = 1e-12
AFTER, BEFORE = 20.0, 1000.0  # times the orders in ε of a drop's time. On seeds 0 to 11 at most 12 and 580.
SHARE = 10.0  # times the share of the next mode; on these seeds at most 3.6
IMBALANCE = 10.0  # times ε², the error of the whole curve; on these seeds at most 3.3
SOLVER = 1e4 * RTOL  # the error of the loss after thousands of steps
CLOSEST = 0.03  # at most 0.014 on these seeds


@dataclass(frozen=True)
class Settings:
    """What can be changed. Settings were chosen on seeds 0 to 11."""

    strengths: tuple[float, ...] = (1.0, 0.6, 0.3)
    scales: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5)
    units: int = 10
    seeds: tuple[int, ...] = tuple(range(400, 406))
    drawn: int = 2000  # units in the field of small weights
    smallest: tuple[float, ...] = tuple(10.0**-n for n in range(2, 9))

    def __post_init__(self):
        if self.units < 2 * len(self.strengths):
            raise InvalidInput(f"units is {self.units}; give at least {2 * len(self.strengths)}, two for each strength")
        if np.any(np.diff(self.strengths) >= 0):
            raise InvalidInput(f"strengths are {self.strengths}; they must fall, with no two alike")


def simulate(settings: Settings) -> Data:
    return {"field": small_weights(settings), "flow": whole_flow(settings)}


def small_weights(settings: Settings) -> xr.Dataset:
    """What is left beside the fastest modes when these have grown to one: for each unit."""
    rng = np.random.default_rng(settings.seeds[0])
    scales = np.array(settings.smallest)
    rest, predicted = [], []
    for name, spectrum in SPECTRA.items():
        size, fastest = len(spectrum), FASTEST[name]
        q, r = (np.linalg.qr(rng.normal(size=(size, size)))[0] for _ in range(2))
        cross = (q * spectrum) @ r.T
        field = np.block([[np.zeros((size, size)), cross], [cross.T, np.zeros((size, size))]])
        grown = np.vstack([q[:, :fastest], r[:, :fastest]]) / np.sqrt(2)
        units = scales[:, None, None] * rng.normal(size=(settings.drawn, 2 * size))
        times = _grown(units @ grown, np.array(spectrum[:fastest]))
        rates, basis = np.linalg.eigh(field)
        after = (units @ basis * np.exp(times[..., None] * rates)) @ basis.T
        rest.append(np.median(np.linalg.norm(after - after @ grown @ grown.T, axis=-1), axis=1))
        predicted.append(1 - spectrum[fastest] / spectrum[0])
    return xr.Dataset(
        {"rest": (("spectrum", "scale"), rest), "exponent": ("spectrum", predicted)},
        {"spectrum": list(SPECTRA), "scale": scales},
    )


def _grown(
    parts: Float[np.ndarray, "scale unit mode"], rates: Float[np.ndarray, " mode"]
) -> Float[np.ndarray, "scale unit"]:
    """When exponentials of small size are of size one together: Newton's method for a logarithm that is convex."""
    times = -np.log(np.linalg.norm(parts, axis=-1)) / rates[-1]
    for _ in range(NEWTON):
        squares = parts**2 * np.exp(2 * rates * times[..., None])
        size = squares.sum(axis=-1)
        times = times - np.log(size) * size / (2 * squares @ rates)
    return times


def whole_flow(settings: Settings) -> xr.Dataset:
    """Gradient flow at each scale and seed: drops, the curve, what is left beside mode one, and the least gradient."""
    strengths = np.array(settings.strengths)
    size, cross = strengths.size, np.diag(strengths)
    objective = FeatureMoments(GaussianTeacher(strengths, np.ones(size), separate=True).moments())
    shape: Any = {"dim": size, "outputs": size, "units": settings.units}
    places = [(seed, scale) for seed in settings.seeds for scale in settings.scales]
    models = [PolynomialUnits.random(**shape, scale=scale, key=jax.random.key(seed)) for seed, scale in places]
    starts = [(np.asarray(model.outer)[:, :, 0], np.asarray(model.inner)) for model in models]
    predicted = np.array([direction_times(cross, *start) for start in starts])
    times = np.linspace(0.0, predicted.max() + 5 / strengths[-1], POINTS)
    options: Any = {"rtol": RTOL, "progress": False, "until": times[-1], "record": Record(points=times)}
    run = flow(Ensemble.of(models), objective, **options)
    losses, outer, inner = run["loss"].values, run["outer"].values[..., 0], run["inner"].values
    levels = linear_levels(strengths)
    halves = (levels[:-1] + levels[1:]) / 2
    drops = np.array([[passage(times, loss, half) for half in halves] for loss in losses])
    curves = np.array([riccati_course(cross, *start, times).loss for start in starts])
    left = cross - np.einsum("rtio,rtij->rtoj", outer, inner)
    gradient = [np.einsum("rtoj,rtij->rtio", left, inner), np.einsum("rtoj,rtio->rtij", left, outer)]
    speed = np.sqrt(sum(np.sum(part**2, axis=(2, 3)) for part in gradient))
    least = [_least(times, one, drop) for one, drop in zip(speed, drops, strict=True)]
    # Beside mode one, which is along the first entries of v and u.
    beside = np.sqrt(np.sum(outer[..., 1:] ** 2, axis=(2, 3)) + np.sum(inner[..., 1:] ** 2, axis=(2, 3)))
    rest = [np.interp(drop[0], times, one) for one, drop in zip(beside, drops, strict=True)]
    grid = len(settings.seeds), len(settings.scales)
    every = slice(None, None, 8)
    return xr.Dataset(
        {
            "drop": (("seed", "scale", "mode"), drops.reshape(*grid, -1)),
            "predicted": (("seed", "scale", "mode"), predicted.reshape(*grid, -1)),
            "error": (("seed", "scale"), (np.abs(curves - losses).max(axis=1) / losses[:, 0]).reshape(grid)),
            "least": (("seed", "scale"), np.reshape(least, grid)),
            "rest": (("seed", "scale"), np.reshape(rest, grid)),
            "loss": (("seed", "scale", "time"), losses[:, every].reshape(*grid, -1)),
            "curve": (("seed", "scale", "time"), curves[:, every].reshape(*grid, -1)),
        },
        {
            "seed": list(settings.seeds),
            "scale": list(settings.scales),
            "mode": range(1, size + 1),
            "time": times[every],
        },
    )


def _least(
    times: Float[np.ndarray, " time"], speed: Float[np.ndarray, " time"], drops: Float[np.ndarray, " drop"]
) -> float:
    """On the plateau between the first two drops, if there is one."""
    between = (times > drops[0]) & (times < drops[1]) if drops.size > 1 else np.zeros(times.size, bool)
    return float(speed[between].min()) if between.any() else np.nan


def allowed_times(settings: Settings) -> Float[np.ndarray, "scale mode"]:
    r"""Of the times of drops, by the next orders: $\epsilon^{2(1 - s_{k+1}/s_k)}$, what the next mode adds to the loss,
    $\epsilon^{2(s_{k-1}/s_k - 1)}$, what the mode before has left of it, and at the ends ε², the imbalance."""
    s, scales = np.array(settings.strengths), np.array(settings.scales)[:, None]
    after = np.append(2 * (1 - s[1:] / s[:-1]), 2.0)
    before = np.append(2.0, 2 * (s[:-1] / s[1:] - 1))
    return AFTER * scales**after + BEFORE * scales**before


def allowed_loss(scales: Any) -> Any:
    return IMBALANCE * np.asarray(scales) ** 2 + SOLVER


def claims(data: Data, settings: Settings) -> list[Claim]:
    field, run = data["field"], data["flow"]
    scales, small = np.log(run["scale"].values), np.log(field["scale"].values)
    s = settings.strengths
    two: Any = {"unless": "" if small.size > 1 else "an exponent needs two scales"}
    both: Any = {"unless": "" if scales.size > 1 and len(s) > 1 else "an exponent needs two scales and two modes"}
    theorem = Origin("paper", "Theorem 4", explored=True)
    ours = Origin("theory", "docs/theory/units.md: linear units", explored=True)
    return [
        theorem.close(
            "exponents",
            "Small weights in a constant field: when the fastest modes of a unit have grown to one, the others have "
            "ε^(1 − s_(r+1)/s_1): exponent of the median unit over the last decade, for each spectrum",
            predicted=field["exponent"].values,
            measured=_last(field["rest"], small) if not two["unless"] else [],
            tolerance=EXPONENT,
            basis="the next mode, or the second of the fastest, at most ε^½ of it in squares",
            counted="spectra",
            **two,
        ),
        theorem.close(
            "whole-flow",
            "In the whole flow of a linear network, too: exponent in ε of the weights beside mode one when the loss is "
            "midway down its drop, over the last decade",
            predicted=1 - s[1] / s[0] if len(s) > 1 else np.nan,
            measured=_last(run["rest"], scales) if not both["unless"] else [],
            tolerance=SHARE * settings.scales[-1] ** (2 * (s[1] - s[2]) / s[0]) if len(s) > 2 else EXPONENT,
            basis=f"{SHARE:g} times ε^(2(s_2 − s_3)/s_1), the share of the next mode",
            **both,
        ),
        ours.close(
            "drop-times",
            "White inputs: the loss is midway down drop k at ln((√2 − 1)s_k/|m_k|²)/2s_k, with m_k the part of mode k "
            "in the initial weights at right angles to m_1, …, m_(k−1) in the space of units: difference of each drop",
            measured=run["drop"] - run["predicted"],
            tolerance=np.broadcast_to(allowed_times(settings), run["drop"].shape).ravel(),
            basis=f"{AFTER:g} and {BEFORE:g} times the next orders in ε, of the modes after and before",
            counted="drops",
        ),
        ours.at_most(
            "whole-curve",
            "White inputs: the matrix Riccati equation gives the whole loss curve from the initial weights: largest "
            "error, relative to the initial loss",
            measured=run["error"],
            tolerance=np.broadcast_to(allowed_loss(run["scale"]), run["error"].shape).ravel(),
            basis=f"{IMBALANCE:g} ε², the order of the imbalance of initial weights, and the solver's error",
            counted="runs",
        ),
        ours.close(
            "closest-approach",
            "Between the first two drops the flow comes within ε^(2(s_1 − s_2)/(2s_1 + s_2)) of the saddle: exponent "
            "of the least gradient there, over the last decade",
            predicted=2 * (s[0] - s[1]) / (2 * s[0] + s[1]) if len(s) > 1 else np.nan,
            measured=_last(run["least"], scales) if not both["unless"] else [],
            tolerance=CLOSEST,
            basis="powers of ε that are neglected; half of it on other seeds",
            **both,
        ),
    ]


def _last(values: xr.DataArray, scales: Float[np.ndarray, " scale"]) -> xr.DataArray:
    """The slope in logarithms between the last two scales."""
    logs: Any = np.log(values)
    return (logs.isel(scale=-1, drop=True) - logs.isel(scale=-2, drop=True)) / (scales[-1] - scales[-2])


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    field, run = data["field"], data["flow"]
    with styled():
        figure = new_figure(11.5, 4.0)
        exponents, curves, errors = figure.subplots(1, 3)
        for color, name in zip(COLORS, field["spectrum"].values, strict=False):
            one = field.sel(spectrum=name)
            scale, rest, power = one["scale"].values, one["rest"].values, float(one["exponent"])
            exponents.loglog(scale, rest, "o", color=color, markersize=5, label=f"s = {name}: {power:.2g}")
            exponents.loglog(scale, rest[-1] * (scale / scale[-1]) ** power, color=color, linewidth=1.0)
        exponents.set(xlabel="initial scale ε", ylabel="size beside the fastest modes", ylim=(3e-6, 4))
        exponents.legend(loc="lower right", fontsize=8)
        exponents.set_title("(a) A unit when its fastest modes reach 1")
        _draw_curves(curves, run.isel(seed=0))
        _draw_errors(errors, run, settings)
    return figure


def _draw_curves(axes: Axes, run: xr.Dataset) -> None:
    shown = run["loss"] > 1e-9 * float(run["loss"].max())
    for row, scale in enumerate(run["scale"].values):
        one, color = run.sel(scale=scale), COLORS[row % len(COLORS)]
        axes.plot(run["time"], one["loss"].where(shown.sel(scale=scale)), color=color, linewidth=2.2, alpha=0.5)
        axes.plot(run["time"], one["curve"], ":", color=BLACK, linewidth=1.2)
        levels = np.interp(one["predicted"], run["time"], one["loss"])
        label = f"ε = 10{superscript(round(np.log10(scale)))}"
        axes.plot(one["predicted"], levels, "D", color=color, markersize=4.5, label=label)
    axes.plot([], [], ":", color=BLACK, label="Riccati equation")
    axes.set(xlabel="training time $t/\\tau$", ylabel="loss", title="(b) A linear network, from four scales")
    axes.legend(loc="upper right", fontsize=8)


def _draw_errors(axes: Axes, run: xr.Dataset, settings: Settings) -> None:
    scale = run["scale"].values
    late = abs(run["drop"] - run["predicted"])
    orders = allowed_times(settings)
    for column, mode in enumerate(run["mode"].values):
        color = COLORS[column % len(COLORS)]
        for row, one in enumerate(late.sel(mode=mode).values):
            axes.loglog(scale, one, "o", color=color, markersize=4, label=None if row else f"drop {mode}")
        axes.loglog(scale, orders[:, column], "--", color=color, linewidth=0.9)
    for row, one in enumerate(run["error"].values):
        axes.loglog(scale, one, "x", color=GRAY, markersize=5, label=None if row else "whole curve")
    axes.loglog(scale, allowed_loss(scale), "--", color=GRAY, linewidth=0.9)
    axes.set(xlabel="initial scale ε", ylabel="error of time, or of the loss", title="(c) Errors, and what is allowed")
    axes.legend(loc="lower right", fontsize=8)


FIGURE = Figure(
    title="Directions grow at different rates: linear networks learn one mode after another",
    caption=(
        "(a) Units with small weights in the constant field of the data, for five spectra s of Σ_yx: size of a unit's "
        "weights beside its fastest modes when these have reached 1 (median unit, points), against the initial "
        "scale ε, and the power 1 − s_(r+1)/s_1 (lines through the last point); r is 2 for 1, 1, 0.6, 0.3 and for "
        "1, 0.7, 0.3, else 1. (b) Loss of a linear network of ten units on white inputs, s = (1, 0.6, 0.3), from the "
        "same weights at four scales: by gradient flow (wide "
        "lines), by the matrix Riccati equation from the initial weights (dotted), and the predicted times of the "
        "drops (diamonds). (c) Errors of these predictions for all seeds: of the times of the drops, and of the whole "
        "curve relative to its start. Dashed: what is allowed, in powers of ε by the theory."
    ),
    source="Theorem 4",
    settings=Settings(),
    quick=Settings(seeds=(400, 401)),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
