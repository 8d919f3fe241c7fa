r"""Escape times: $\ln(1/w)/\|\Lambda^2\|$ for merged attention, $1/(\lambda_d^2 v_0)$ for an aligned separate head.

Of the paper's two laws the first is that of a strict saddle, left exponentially, the second that of a saddle without
negative curvature, left hyperbolically. Both are leading orders: what they leave out stays bounded as w or v_0 → 0.

*What the first leaves out*, with w the norm of a layer. Of all weights only $\mu_h = \tfrac12(v_h + \langle U_h,
g\rangle)$ grow (`theory.linear.merged_initial`). For independent Gaussian weights $\|\mu\|^2$ is on average half of
$\|w_2\|^2$, and $1/2D^2$ of $\|W_1\|^2$. From a vanishing $\|\mu\|$ along g the loss is halfway down after
$(\ln(1/\|\mu\|) + c)/\|\Lambda^2\|$, c a number of the covariance and the context (`half_drop_time`; for
$\Lambda = \lambda I$ it is $\tfrac12\ln(s_\infty x/(1 - x))$, $s_\infty$ the final weights' square, $x = 1 -
1/\sqrt2$). So the time is $(\ln(1/w) + \tfrac12\ln 2 + c)/\|\Lambda^2\|$ with $w = \|w_2\|$, and longer by
$\ln D/\|\Lambda^2\|$ with $w = \|W_1\|$.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from stepwell.analysis.style import BLACK, PALETTE, new_figure, styled
from stepwell.figures import Claim, Data, Figure, Origin, Seeds
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._drawing import lines
from ._runs import described, flow_at, labeled, passages, slope, spread_times, weights_of

DIM = 4
SPECTRA = ((0.25, 0.25, 0.25, 0.25), (0.4, 0.3, 0.2, 0.1), (0.7, 0.15, 0.1, 0.05))
ALIGNED = SPECTRA[1]
RTOL = 1e-9
VANISHING = 1e-9  # ‖µ‖ from which c is worked out
LAYERS = ("w_2", "W_1")
SOLVER = 1e-6
"""Relative error of a time, or error in units of 1/‖Λ²‖: the solver's tolerance at each of up to a thousand steps."""
HALF_OF_THE_MAP = 0.75  # with the map at half its end, the loss, quadratic in it, has made three quarters of its fall
STANDARD_ERRORS = 3.0
FITTED = 1e-2  # the separate law is fitted to initial weights up to this


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    context: int = 31
    heads: int = 8
    seeds: tuple[int, ...] = tuple(range(40, 52))
    scales: tuple[float, ...] = (1e-8, 1e-6 * 31**0.5, 1e-4, 1e-3)
    """Of the initial weights, with 1/N; the second is that of Fig 1."""
    values: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 0.3)

    def task(self, spectrum: tuple[float, ...]) -> InContextRegression:
        return InContextRegression(covariance(spectrum), self.context)


def simulate(settings: Settings) -> Data:
    return {"merged": merged_times(settings), "separate": separate_times(settings)}


def _time(models: Any, task: InContextRegression, times: np.ndarray, level: float, init: float) -> np.ndarray:
    """When the loss of gradient flow on infinitely many sequences from each model comes down to a level."""
    runs = flow_at(models, Population(task), times, rtol=RTOL, atol=RTOL * init)
    return passages(runs["time"].values, runs["loss"].values, [level])[:, 0]


def merged_times(settings: Settings) -> xr.Dataset:
    """`time` of half the drop over (spectrum, seed, scale), from random weights, and `predicted` from these.

    `start` and `grown` are the norms of all weights at initialization, expected, and of one layer at the end; `norm`
    those of each layer at initialization; `constant` is c of the module's docstring.
    """
    tasks = [settings.task(spectrum) for spectrum in SPECTRA]
    rates = [theory.merged_escape_rate(task) for task in tasks]
    times, predicted = np.empty((2, len(SPECTRA), len(settings.seeds), len(settings.scales)))
    layers = np.empty((len(LAYERS), len(settings.seeds), len(settings.scales)))
    for row, (given, rate) in enumerate(zip(tasks, rates, strict=True)):
        levels = theory.levels(given)
        for column, scale in enumerate(settings.scales):
            options: Any = {"dim": DIM, "heads": settings.heads, "scale": scale}
            models = [MergedAttention.random(**options, key=jax.random.key(seed)) for seed in settings.seeds]
            starts = [theory.merged_initial(given, *weights_of(model)) for model in models]
            expected = np.array([theory.half_drop_time(given, *start) for start in starts])
            layers[..., column] = np.transpose([[np.linalg.norm(w) for w in weights_of(model)] for model in models])
            fine = np.add.outer(expected, np.linspace(-1, 1, 201) / rate)
            saved = np.union1d(spread_times(expected.max() + 5 / rate), fine[fine > 0])
            times[row, :, column] = _time(models, given, saved, (levels[0] + levels[-1]) / 2, scale)
            predicted[row, :, column] = expected
    return xr.Dataset(
        {
            "time": (("spectrum", "seed", "scale"), times, {"units": TIME_UNIT}),
            "predicted": (("spectrum", "seed", "scale"), predicted, {"units": TIME_UNIT}),
            "rate": ("spectrum", rates),
            "constant": ("spectrum", [_constant(task) for task in tasks]),
            "norm": (("layer", "seed", "scale"), layers),
            "grown": ("spectrum", [np.linalg.norm(theory.modes(task).ends) ** 0.5 for task in tasks]),
            "start": ("scale", np.array(settings.scales) * (settings.heads * (DIM**2 + 1)) ** 0.5),
        },
        {"seed": list(settings.seeds), "scale": list(settings.scales), "layer": list(LAYERS)},
    )


def _constant(task: InContextRegression) -> float:
    along = theory.modes(task).driving / theory.merged_escape_rate(task)
    time = theory.half_drop_time(task, VANISHING, VANISHING * along)
    return theory.merged_escape_rate(task) * time + float(np.log(VANISHING))


def separate_times(settings: Settings, *, theory_task: InContextRegression | None = None) -> xr.Dataset:
    """`time` until the map is halfway, over (component, value), of one aligned head; predicted for `theory_task`."""
    given = settings.task(ALIGNED)
    expected_of = given if theory_task is None else theory_task
    times, course, law = np.empty((3, DIM, len(settings.values)))
    for place in np.ndindex(times.shape):
        component, value = place[0], settings.values[place[1]]
        order = jnp.asarray(np.roll(np.eye(DIM), -component, axis=1))
        model = SeparateAttention.aligned(order, heads=1, scale=value)
        end = theory.aligned_end(expected_of, component)
        course[place] = theory.aligned_time(expected_of, component, value, np.array([end * 0.5 ** (1 / 3)]))[0]
        law[place] = theory.new_head_time(expected_of, component, value)
        until, width = (2 + 20 * value) * law[place], min(end * value * law[place], course[place] / 20)
        # As many times for every value: a program compiled once serves all.
        fine = course[place] + width * np.linspace(-1, 1, 801)
        level = theory.levels(given)[0] - HALF_OF_THE_MAP * theory.components(given).gains[component]
        times[place] = _time([model], given, np.union1d(spread_times(until), fine), level, value)[0]
    grown = ("component", [theory.aligned_end(expected_of, d) for d in range(DIM)])
    columns = {"time": times, "course": course, "law": law}
    waiting = {name: (("component", "value"), each, {"units": TIME_UNIT}) for name, each in columns.items()}
    return xr.Dataset({**waiting, "grown": grown}, {"value": list(settings.values)})


def claims(data: Data, settings: Settings) -> list[Claim]:
    merged, separate = data["merged"], data["separate"]
    logs = np.log(1 / merged["scale"].values)
    spread, rates = np.ptp(logs), merged["rate"].values
    slopes = [slope(logs, row) * rate for rate, rows in zip(rates, merged["time"].values, strict=True) for row in rows]
    # Initial over grown weights, of each spectrum (and scale): the first order that is left out.
    order = (merged["start"] / merged["grown"]).transpose("spectrum", "scale").values
    late = (merged["time"] - merged["predicted"]) * merged["rate"]
    small = separate.sel(value=separate["value"].values <= FITTED).sortby("value")
    starts, smallest = small["value"].values, small.isel(value=slice(1))
    exponents = [slope(np.log(starts), np.log(row)) for row in small["time"].values if starts.size > 1]
    ratios, components = separate["time"] / separate["course"], range(1, DIM + 1)
    spectra = [str(spectrum) for spectrum in SPECTRA]
    by_scalar = Origin("check", "equation (21) is exact for an aligned head, which stays aligned")
    return [
        *_layer_claims(merged.assign_coords(spectrum=spectra), settings),
        Origin("paper", "Section 3.3, Appendix D.6.1").close(
            "merged-slope",
            f"Merged: time against ln(1/w) has the slope 1/‖Λ²‖: slope × ‖Λ²‖, one for each of {len(SPECTRA)} "
            "covariances and each seed",
            predicted=1.0,
            measured=labeled(slopes, spectrum=spectra, seed=merged["seed"].values) if spread > 0 else [],
            tolerance=np.repeat(order.max(axis=1) / (spread or 1.0), merged.sizes["seed"]) + SOLVER,
            basis="initial over grown weights, at the largest w, over the range of ln(1/w); solver",
            counted="runs over all w",
        ),
        Origin("theory", "stepwell.theory.linear.half_drop_time", explored=True).close(
            "merged-time",
            "Merged: time of half the drop, predicted from the initial weights: measured less predicted, times ‖Λ²‖, "
            "one for each covariance, seed and w",
            measured=late.transpose("spectrum", "seed", "scale").assign_coords(spectrum=spectra),
            tolerance=np.repeat(order[:, None], merged.sizes["seed"], axis=1).ravel() + SOLVER,
            basis="initial over grown weights; solver",
            counted="runs",
        ),
        by_scalar.close(
            "separate-exponent",
            f"Separate: time goes as a power of the initial weight v₀: exponent, one for each of {DIM} components",
            predicted=-1.0,
            measured=labeled(exponents, component=components) if exponents else [],
            tolerance=starts.max(initial=0.0) / small["grown"].values,
            basis="initial over grown weight, at the largest initial weight fitted",
            counted="components",
        ),
        by_scalar.close(
            "separate-prefactor",
            "Separate: time goes as 1/λ_d², and is 1/(λ_d²v₀) for small v₀: time from the smallest v₀ over that, one "
            f"ratio for each of {DIM} components",
            predicted=1.0,
            measured=(smallest["time"] / smallest["law"]).rename({"value": "initial value"}),
            tolerance=starts.min(initial=FITTED) / small["grown"].values,
            basis="initial over grown weight",
            counted="components",
        ),
        by_scalar.close(
            "separate-course",
            f"Separate: time over that of the scalar equation, one ratio for each of {DIM} components and each v₀",
            predicted=1.0,
            measured=labeled(ratios, component=components, **{"initial value": separate["value"].values}),
            tolerance=SOLVER,
            basis="the solver's tolerance at each of a thousand steps",
            counted="runs",
        ),
    ]


def _layer_claims(merged: xr.Dataset, settings: Settings) -> list[Claim]:
    """The law with the norm of a layer as w, as the paper has it, and with what that leaves out."""
    law = np.log(1 / merged["norm"])
    halved = xr.DataArray([np.log(2) / 2, np.log(2) / 2 + np.log(DIM)], dims="layer", coords={"layer": list(LAYERS)})
    expected = halved + merged["constant"]
    # Of ln(w/‖µ‖) for H independent heads, to leading order in 1/H.
    spread = (2 * settings.heads) ** -0.5
    axes = ("spectrum", "layer", "seed", "scale")
    ratio = (merged["time"] * merged["rate"] / law).transpose(*axes)
    allowed = ((abs(expected) + STANDARD_ERRORS * spread) / law).transpose(*axes)
    shift = (merged["time"] * merged["rate"] - law - expected).isel(scale=int(np.argmin(merged["scale"].values)))
    order = (merged["start"] / merged["grown"]).min("scale").max()
    return [
        Origin("paper", "Section 3.3", explored=True).close(
            "merged-layer",
            "Merged: time is about ln(1/w)/‖Λ²‖, w the norm of a layer's initial weights: time over that, for each "
            "covariance, layer, seed and scale",
            predicted=1.0,
            measured=ratio,
            tolerance=allowed.values.ravel(),
            basis="next order, a constant over ln(1/w); 3 standard deviations of it over seeds",
            counted="runs",
        ),
        Origin("theory", "papers.linear.escape_times, What the first leaves out", explored=True).close(
            "merged-corrected",
            "Merged: time is (ln(1/w) + ½ ln 2 + c)/‖Λ²‖ with w = ‖w₂‖, and longer by ln D/‖Λ²‖ with w = ‖W₁‖: time "
            f"less that, times ‖Λ²‖, mean over {merged.sizes['seed']} seeds for each covariance and layer",
            measured=shift.mean("seed").transpose("spectrum", "layer").drop_vars("scale"),
            tolerance=STANDARD_ERRORS * spread / merged.sizes["seed"] ** 0.5 + float(order) + SOLVER,
            basis="3 standard errors of the mean, for Gaussian weights; initial over grown weights",
            counted="covariances and layers",
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(10.5, 6.8)
        panels = figure.subplots(2, 2, sharex="col", height_ratios=(3, 2))
        _draw_merged(panels[0, 0], panels[1, 0], data["merged"])
        _draw_separate(panels[0, 1], panels[1, 1], data["separate"])
    return figure


def _draw_merged(above: Axes, below: Axes, merged: xr.Dataset) -> None:
    scales = merged["scale"].values
    law = np.log(1 / scales)
    above.plot(scales, law, "--", color=BLACK, linewidth=1.2, label="law, $\\ln(1/w)$")
    for place, (spectrum, color, marker) in enumerate(zip(SPECTRA, PALETTE, "osv", strict=False)):
        one = merged.isel(spectrum=place)
        style: Any = {"color": color, "markersize": 5.5, "fillstyle": "none", "linestyle": "none"}
        label = "λ = " + ", ".join(f"{value:g}" for value in spectrum)
        time, predicted = (one[name].values * float(one["rate"]) for name in ("time", "predicted"))
        lines(above, scales, time, marker, label=label, **style)
        lines(below, scales, time - law, marker, **style)
        lines(below, scales, predicted - law, color=color, linewidth=1.0)
    below.axhline(0.0, color=BLACK, linestyle="--", linewidth=1.2)
    above.set(xscale="log", ylabel="$\\|\\Lambda^2\\|\\, t/\\tau$ at half the drop", title="(a) Merged: a logarithm")
    above.legend(loc="upper right", fontsize=9)
    below.set(
        xlabel="standard deviation w of the initial weights", ylabel="time less the law, $\\times\\|\\Lambda^2\\|$"
    )
    below.set_title("(c) Merged: besides, a constant, as predicted (lines)")


def _draw_separate(above: Axes, below: Axes, separate: xr.Dataset) -> None:
    values = separate["value"].values
    above.loglog(values, 1 / values, "--", color=BLACK, linewidth=1.2, label="law, $1/v_0$")
    for component, (eigenvalue, color) in enumerate(zip(ALIGNED, PALETTE, strict=False)):
        one = separate.isel(component=component)
        style: Any = {"color": color, "fillstyle": "none", "linestyle": "none", "markeredgewidth": 1.3}
        size, label = 9 - 2 * component, f"component {component + 1}, λ = {eigenvalue:g}"
        above.plot(values, eigenvalue**2 * one["time"], "o", markersize=size, label=label, **style)
        below.loglog(values, 1 - one["time"] / one["law"], "o", markersize=5, **style)
        below.loglog(values, 1 - one["course"] / one["law"], color=color, linewidth=1.0)
    above.set(ylabel="$\\lambda_d^2\\, t/\\tau$ at half the map", title="(b) Separate: one over the initial weight")
    above.legend(loc="upper right", fontsize=9)
    below.set(xlabel="initial weight $v_0$ of the aligned head", ylabel="1 − time / law")
    below.set_title("(d) Separate: distance from the law, by equation (21) (lines)")


FIGURE = Figure(
    title="How long small weights wait: a logarithm for merged attention, a hyperbola for separate",
    caption=(
        "Time from initialization until the first drop, at infinitely many sequences, and the paper's two laws "
        "(dashed). (a) Merged attention from random weights of standard deviation w, for three covariances and several "
        "seeds: time of half the drop. (b) Separate attention, one head along component d at k = q = v₀ e_d: time at "
        "which the map is halfway, multiplied by λ_d². (c), (d) What the laws leave out. (c) A constant, which depends "
        "on the covariance and the seed but not on w: lines are our prediction from the initial weights. (d) A part "
        "that vanishes in proportion to v₀: lines solve the paper's scalar equation (21), which holds at any v₀."
    ),
    source="Sections 3.3 and 4.3",
    settings=Settings(),
    quick=Settings(seeds=(40, 41, 42, 43), scales=(1e-8, 1e-6, 1e-4), values=(1e-4, 1e-3, 1e-2, 1e-1)),
    described=partial(
        described,
        data="infinitely many sequences",
        initial="Gaussian",
        **{"eigenvalues, merged": [str(spectrum) for spectrum in SPECTRA], "eigenvalues, separate": ALIGNED},
    ),
    seeds=Seeds(explored="0 to 2"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
