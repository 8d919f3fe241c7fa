r"""Escape times: $\ln(1/w)/\|\Lambda^2\|$ for merged attention, $1/(\lambda_d^2 v_0)$ for an aligned separate head.

Of the paper's two laws the first is that of a strict saddle, left exponentially, the second that of a saddle without
negative curvature, left hyperbolically. Both are leading orders: what they leave out stays bounded as w or v_0 → 0.
"""

from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell.models import MergedAttention, SeparateAttention
from stepwell.papers._claim import Claim
from stepwell.papers._style import BLACK, PALETTE, new_figure, styled
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT, provenance

from ._escape import flow_losses, slope, waits

NAME = "linear/escape-times"
DIM = 4
CONTEXT = 31
HEADS = 8
SPECTRA = ((0.25, 0.25, 0.25, 0.25), (0.4, 0.3, 0.2, 0.1), (0.7, 0.15, 0.1, 0.05))
ALIGNED = SPECTRA[1]
RTOL = 1e-9
SOLVER = 1e-6
"""Relative error of a time: the solver's tolerance at each of up to a thousand steps."""
HALF_OF_THE_MAP = 0.75
"""With the map at half its end, the loss, quadratic in it, has made three quarters of its fall."""

TITLE = "How long small weights wait: a logarithm for merged attention, a hyperbola for separate"
CAPTION = (
    "Time from the start until the first drop is half done, on infinitely many sequences, and the paper's two laws. "
    "(a) Merged attention, random weights of standard deviation w, three covariances, a curve for each seed. Beyond "
    "the law ln(1/w) there is a constant that depends on the seed and on the drop itself, but not on w: curves are "
    "flat over five decades, in which ln(1/w) goes from 18 to 7. (b) Separate attention, one head along component "
    "d at k = q = v₀ e_d: multiplied by λ_d² v₀, the time tends to 1 for all components as v₀ → 0. Lines solve the "
    "scalar equation, which holds at any v₀."
)


@dataclass(frozen=True)
class Settings:
    """What a quick run has less of."""

    seeds: tuple[int, ...] = (0, 1, 2)
    scales: tuple[float, ...] = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
    values: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 0.3)


FULL = Settings()
QUICK = Settings(seeds=(0,), scales=(1e-8, 1e-6, 1e-4), values=(1e-4, 1e-3, 1e-2, 1e-1))
FITTED = 1e-2
"""The separate law is fitted to starts up to this."""


def settings(quick: bool) -> dict[str, Any]:
    return {
        "context length N": CONTEXT,
        "eigenvalues, merged": [str(spectrum) for spectrum in SPECTRA],
        "heads, merged": HEADS,
        "eigenvalues, separate": list(ALIGNED),
        "data": "infinitely many sequences",
        **asdict(QUICK if quick else FULL),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    return {"merged": merged_times(chosen), "separate": separate_times(chosen)}


def task(spectrum: tuple[float, ...], *, context: int = CONTEXT) -> InContextRegression:
    return InContextRegression(covariance(spectrum), context)


def merged_times(chosen: Settings) -> xr.Dataset:
    """`time` of half the drop over (spectrum, seed, scale), from random weights; `rate` is the law's."""
    times = np.empty((len(SPECTRA), len(chosen.seeds), len(chosen.scales)))
    for row, spectrum in enumerate(SPECTRA):
        given = task(spectrum)
        levels = theory.levels(given)
        for column, scale in enumerate(chosen.scales):
            models = [
                MergedAttention.random(dim=DIM, heads=HEADS, scale=scale, key=jax.random.key(seed))
                for seed in chosen.seeds
            ]
            until = 1.5 * theory.merged_escape_time(given, scale) + 10 / theory.merged_escape_rate(given)
            runs = flow_losses(models, given, until, name=NAME)
            times[row, :, column] = waits(runs, levels[0], levels[-1], part=0.5)
    waiting = xr.Dataset(
        {
            "time": (("spectrum", "seed", "scale"), times),
            "rate": ("spectrum", [theory.merged_escape_rate(task(spectrum)) for spectrum in SPECTRA]),
            "grown": ("spectrum", [np.linalg.norm(theory.modes(task(s)).ends) ** 0.5 for s in SPECTRA]),
        },
        {"seed": list(chosen.seeds), "scale": list(chosen.scales)},
    )
    waiting["time"].attrs["units"] = TIME_UNIT
    return waiting.assign_attrs(provenance({"figure": NAME, **asdict(chosen)}))


def separate_times(chosen: Settings, *, context: int = CONTEXT) -> xr.Dataset:
    """`time` until the map is halfway, over (component, start), of one aligned head; `context` is the prediction's."""
    expected_of = task(ALIGNED, context=context)
    shape = (DIM, len(chosen.values))
    times, course, law = np.empty(shape), np.empty(shape), np.empty(shape)
    for place in np.ndindex(shape):
        component, value = place[0], chosen.values[place[1]]
        order = jnp.asarray(np.roll(np.eye(DIM), -component, axis=1))
        model = SeparateAttention.aligned(order, heads=1, scale=value)
        end = theory.aligned_end(expected_of, component)
        course[place] = theory.aligned_time(expected_of, component, value, np.array([end * 0.5 ** (1 / 3)]))[0]
        law[place] = theory.aligned_escape_time(expected_of, component, value)
        until, width = (2 + 20 * value) * law[place], min(end * value * law[place], course[place] / 20)
        # As many times for every start: a program compiled once serves all.
        fine = course[place] + width * np.linspace(-1, 1, 801)
        given = task(ALIGNED)
        high = theory.levels(given)[0]
        low = high - theory.component_gains(given)[component]
        run = flow_losses([model], given, until, name=NAME, rtol=RTOL, atol=RTOL * value, extra_times=fine)
        times[place] = waits(run, high, low, part=HALF_OF_THE_MAP)[0]
    waiting = xr.Dataset(
        {
            "time": (("component", "value"), times),
            "course": (("component", "value"), course),
            "law": (("component", "value"), law),
            "grown": ("component", [theory.aligned_end(expected_of, d) for d in range(DIM)]),
        },
        {"value": list(chosen.values)},
    )
    for name in ("time", "course", "law"):
        waiting[name].attrs["units"] = TIME_UNIT
    return waiting.assign_attrs(provenance({"figure": NAME, "context": context, **asdict(chosen)}))


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    merged, separate = data["merged"], data["separate"]
    logs = np.log(1 / merged["scale"].values)
    slopes = [[slope(logs, row) for row in rows] for rows in merged["time"].values]
    largest = merged["scale"].values.max() * (HEADS * (DIM**2 + 1)) ** 0.5
    allowed = np.repeat(largest / merged["grown"].values / np.ptp(logs), merged.sizes["seed"])
    small = separate.sel(value=separate["value"].values <= FITTED)
    starts = small["value"].values
    ratios = (separate["time"] / separate["course"]).values.ravel()
    return [
        Claim.over(
            f"{NAME}/merged-slope",
            f"Merged: time against ln(1/w) has the slope 1/‖Λ²‖: slope × ‖Λ²‖, one for each of {len(SPECTRA)} "
            "covariances and each seed",
            predicted=1.0,
            measured=(np.array(slopes) * merged["rate"].values[:, None]).ravel(),
            tolerance=allowed + 1e-4,
            basis="initial over grown weights, at the largest w; solver",
        ),
        Claim.over(
            f"{NAME}/separate-exponent",
            f"Separate: time goes as a power of the initial weight v₀: exponent, one for each of {DIM} components",
            predicted=-1.0,
            measured=[slope(np.log(starts), np.log(row)) for row in small["time"].values],
            tolerance=starts.max() / small["grown"].values,
            basis="initial over grown weight, at the largest start fitted",
        ),
        Claim.over(
            f"{NAME}/separate-prefactor",
            f"Separate: time from the smallest v₀ over 1/(λ²v₀), one ratio for each of {DIM} components",
            predicted=1.0,
            measured=(small["time"] / small["law"]).isel(value=0).values,
            tolerance=starts[0] / small["grown"].values,
            basis="initial over grown weight",
        ),
        Claim.over(
            f"{NAME}/separate-course",
            f"Separate: time over that of the scalar equation, one ratio for each of {DIM} components and each v₀",
            predicted=1.0,
            measured=ratios,
            tolerance=SOLVER,
            basis="the solver's tolerance at each of a thousand steps",
        ),
    ]


def draw(data: dict[str, xr.Dataset]) -> Figure:
    merged, separate = data["merged"], data["separate"]
    with styled():
        figure = new_figure(10.5, 4.6)
        left, right = figure.subplots(1, 2)
        scales = merged["scale"].values
        for place, (spectrum, colour, marker) in enumerate(zip(SPECTRA, PALETTE, "osv", strict=False)):
            one = merged.isel(spectrum=place)
            label = "λ = " + ", ".join(f"{value:g}" for value in spectrum)
            for row in one["time"].values * float(one["rate"]):
                style: dict[str, Any] = {"color": colour, "markersize": 5, "linewidth": 1.1, "label": label}
                left.plot(scales, row - np.log(1 / scales), marker + "-", fillstyle="none", **style)
                label = None
        left.axhline(0.0, color=BLACK, linestyle="--", linewidth=1.2, label="law: $\\ln(1/w)/\\|\\Lambda^2\\|$")
        left.set_xscale("log")
        left.set_ylim(-2.2, 2.2)
        left.set_xlabel("scale of the initial weights, w")
        left.set_ylabel("$\\|\\Lambda^2\\|\\, t/\\tau - \\ln(1/w)$, t the time of half the drop")
        left.set_title("(a) Merged: a logarithm, and a constant")
        left.legend(loc="upper left")

        values = separate["value"].values
        for component, colour in zip(range(DIM), PALETTE, strict=False):
            one = separate.isel(component=component)
            factor = 1 / one["law"].values
            right.plot(
                values, one["time"].values * factor, "o", color=colour, markersize=6, label=f"d = {component + 1}"
            )
            right.plot(values, one["course"].values * factor, color=colour, linewidth=1.1)
        right.axhline(1.0, color=BLACK, linestyle="--", linewidth=1.2, label="law: $1/(\\lambda_d^2 v_0)$")
        right.set_xscale("log")
        right.set_ylim(0.6, 1.05)
        right.set_xlabel("start of the aligned head, $v_0$")
        right.set_ylabel("time to half the map, $\\lambda_d^2 v_0\\, t/\\tau$")
        right.set_title("(b) Separate: one over the start")
        right.legend(loc="lower left")
    return figure
