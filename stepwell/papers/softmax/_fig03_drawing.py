"""The drawing of Fig 3."""

from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, ORANGE, VERMILION, new_figure, styled
from stepwell.figures import Data

SHIFT = 4.0
"""Times are drawn later by this."""
_TIME = f"time t + {SHIFT:g}, dW/dt = −∂L/∂W"


def draw(data: Data, settings: object) -> matplotlib.figure.Figure:
    predictions = data["theory"]
    with styled():
        figure = new_figure(12.0, 7.4)
        halves: Any = figure.subfigures(2, 1, height_ratios=(1.1, 1))
        above, below = halves
        a, b, c = above.subplots(1, 3)
        d, e, f = below.subplots(1, 3, width_ratios=(1.25, 1, 1))
        _course(a, data, "omega", float(predictions["omega"]))
        _course(b, data, "mu", float(predictions["mu"]))
        _speed(c, data["speed"], float(predictions["omega"]))
        _plane(d, data)
        _sweep(e, data["sweep"])
        _sizes(f, data["softmax"])
    return figure


def _course(axes: Any, data: Data, name: str, limit: float) -> None:
    course, first = data["course"], data["softmax"].isel(dim=0)
    dim = float(first["dim"])
    trained = {"omega": first["x"] / dim**0.5, "mu": first["y"] * dim**0.5}[name]
    time = course["time"].values + SHIFT
    axes.axhline(limit, color=ORANGE, linewidth=1.0, zorder=0)
    axes.plot(time, course[f"full_{name}"], color=BLUE, label="two equations")
    axes.plot(time[::20], trained[::20], "o", color=BLACK, markersize=3.5, fillstyle="none", label="softmax, trained")
    axes.plot(time, course[f"reduced_{name}"], "--", color=VERMILION, label="reduced equation")
    axes.set_xlim(SHIFT, time[-1])
    axes.set_xlabel(_TIME)
    if name == "omega":
        axes.set_title("(a) Score: ω")
        axes.set_ylabel("ω")
        axes.annotate("$d^{-1/2}$", (SHIFT, limit), xytext=(3, 3), textcoords="offset points", color="#8a5f00")
        axes.set_ylim(0, 1.15 * limit)
        axes.legend(loc="lower right")
    else:
        axes.set_title("(b) Readout: μ")
        axes.set_ylabel("μ")
        axes.annotate(
            "$\\sqrt{d}/(1+\\rho)$",
            (time[-1], limit),
            xytext=(0, -16),
            textcoords="offset points",
            ha="right",
            color="#8a5f00",
        )


def _speed(axes: Any, speeds: xr.Dataset, limit: float) -> None:
    omega, speed = speeds["omega"].values, speeds["speed"].values
    axes.axhline(0, color=GRAY, linewidth=0.8)
    axes.plot(omega, speed, "--", color=VERMILION)
    place = int(np.argmax(speed))
    axes.plot(omega[place], speed[place], "o", color=VERMILION)
    text = f"fastest: dω/dt = {speed[place]:.3f}\nat ω = {omega[place]:.3f}"
    axes.text(0.98, 0.98, text, transform=axes.transAxes, ha="right", va="top", fontsize=9)
    axes.plot(limit, 0, "*", color=ORANGE, markersize=12, zorder=3)
    axes.set_xlabel("ω")
    axes.set_ylabel("dω/dt of the reduced equation")
    axes.set_title("(c) Slow, fast, slow")


def _plane(axes: Any, data: Data) -> None:
    course, speeds, predictions = data["course"], data["speed"], data["theory"]
    field = speeds["field"].values
    wide, high = np.ptp(speeds["grid_omega"].values), np.ptp(speeds["grid_mu"].values)
    arrows = field / np.array([wide, high])
    arrows = arrows / np.linalg.norm(arrows, axis=-1, keepdims=True) * np.array([wide, high]) * 0.05
    x, y = np.meshgrid(speeds["grid_omega"], speeds["grid_mu"], indexing="ij")
    style: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "color": "#bbbbbb", "width": 0.003}
    axes.quiver(x, y, arrows[..., 0], arrows[..., 1], **style)
    axes.plot(speeds["omega"], speeds["nullcline"], color=GREEN, label="nullcline of μ: the reduced equation")
    axes.plot(course["full_omega"], course["full_mu"], color=BLUE, label="two equations")
    axes.plot(course["omega"][0], course["mu"][0], "o", color=BLACK, markersize=5, label="initialization")
    axes.plot(predictions["omega"], predictions["mu"], "*", color=ORANGE, markersize=12, zorder=3, label="fixed point")
    axes.set_xlim(0, 0.36 / 0.34 * float(speeds["grid_omega"][-1]))
    axes.set_ylim(0, 7.6 / 4.6 * float(speeds["grid_mu"][-1]))
    axes.set_xlabel("ω")
    axes.set_ylabel("μ")
    axes.set_title(f"(d) Directions of the flow, κ = {float(predictions['kappa']):.2f}")
    axes.legend(loc="upper right", fontsize=8.5)


def _sweep(axes: Any, by_kappa: xr.Dataset) -> None:
    kappa = by_kappa["kappa"].values
    lag = (by_kappa["time"].sel(system="full") / by_kappa["time"].sel(system="reduced") - 1).values
    axes.plot(kappa, lag, "o-", color=VERMILION, markersize=5, label="reduced equation")
    axes.plot(kappa, lag[-1] * kappa / kappa[-1], ":", color=BLACK, label="in proportion to κ")
    axes.plot(kappa[0], lag[0], "o", color=BLACK, markersize=10, fillstyle="none", label="(a) to (d)")
    if (lag > 0).any():
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel("κ = L/(φ d √d_e), by wider heads")
    axes.set_ylabel("relative error of the time to half")
    axes.set_title("(e) Right as κ → 0")
    axes.legend(loc="upper left", fontsize=8.5)


def furthest(runs: xr.Dataset) -> np.ndarray:
    """The largest difference of μω from that of the two equations, for each dimension."""
    return np.abs((runs["x"] * runs["y"] - runs["full_x"] * runs["full_y"]).values).max(axis=1)


def _sizes(axes: Any, runs: xr.Dataset) -> None:
    dims, away = runs["dim"].values, furthest(runs)
    axes.plot(dims, away, "o-", color=BLUE, markersize=5, label="softmax, trained")
    axes.plot(dims, away[-1] * dims[-1] / dims, ":", color=BLACK, label="in proportion to 1/d")
    axes.plot(dims[0], away[0], "o", color=BLACK, markersize=10, fillstyle="none", label="(a) to (d)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(dims, [str(dim) for dim in dims])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(f"dimension d, with L = {runs.attrs['pairs_by_dim']:g} d")
    axes.set_ylabel("largest difference of μω\nfrom the two equations")
    axes.set_title("(f) Softmax attention at finite size")
    axes.legend(loc="upper right", fontsize=8.5)
