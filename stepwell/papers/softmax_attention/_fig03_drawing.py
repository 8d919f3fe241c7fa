"""The drawing of Fig 3."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell.papers._style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, new_figure, styled

SHIFT = 4.0
"""Times are drawn later by this."""
_TIME = f"time t + {SHIFT:g}, dW/dt = −∂L/∂W"


def draw(data: dict[str, xr.Dataset]) -> Figure:
    course, predictions = data["course"], data["theory"]
    with styled():
        figure = new_figure(11.5, 7.0)
        halves: Any = figure.subfigures(2, 1)
        above, below = halves
        a, b, c = above.subplots(1, 3)
        d, e = below.subplots(1, 2)
        _course(a, course, "omega", float(predictions["omega"]))
        _course(b, course, "mu", float(predictions["mu"]))
        _speed(c, data["speed"], float(predictions["omega"]))
        _plane(d, data)
        _sweep(e, data["sweep"])
    return figure


def _course(axes: Any, course: xr.Dataset, name: str, limit: float) -> None:
    time = course["time"].values + SHIFT
    axes.axhline(limit, color=ORANGE, linewidth=1.0, zorder=0)
    axes.plot(time, course[f"full_{name}"], color=BLUE, label="two equations")
    axes.plot(time[::20], course[name][::20], "o", color=BLUE, markersize=3.5, fillstyle="none", label="trained model")
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
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.plot(omega, speed, "--", color=VERMILION)
    place = int(np.argmax(speed))
    axes.plot(omega[place], speed[place], "o", color=VERMILION)
    text = f"dω/dt = {speed[place]:.4f}\nat ω = {omega[place]:.4f}"
    axes.annotate(text, (omega[place], speed[place]), xytext=(14, 2), textcoords="offset points", va="top", fontsize=9)
    axes.plot(limit, 0, "*", color=ORANGE, markersize=12, zorder=3)
    axes.set_xlabel("ω")
    axes.set_ylabel("dω/dt of the reduced equation")
    axes.set_title("(c) Slow, fast, slow")


def _plane(axes: Any, data: dict[str, xr.Dataset]) -> None:
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
    axes.plot(course["omega"][0], course["mu"][0], "o", color=BLACK, markersize=5, label="start")
    axes.plot(predictions["omega"], predictions["mu"], "*", color=ORANGE, markersize=12, zorder=3, label="fixed point")
    axes.set_xlim(0, 0.36)
    axes.set_ylim(0, 5.6)
    axes.set_xlabel("ω")
    axes.set_ylabel("μ")
    axes.set_title(f"(d) The plane of both weights, κ = {float(predictions['kappa']):.2f}: directions of the flow")
    axes.legend(loc="lower right", framealpha=0.9, frameon=True, edgecolor="none")


def _sweep(axes: Any, by_kappa: xr.Dataset) -> None:
    kappa = by_kappa["kappa"].values
    lag = (by_kappa["time"].sel(system="full") / by_kappa["time"].sel(system="reduced") - 1).values
    axes.plot(kappa, lag, "o-", color=BLUE, label="time to half by two equations / by one, minus 1")
    axes.plot(kappa, lag[-1] * kappa / kappa[-1], ":", color=BLACK, label="in proportion to κ")
    axes.plot(kappa[0], lag[0], "o", color=VERMILION, markersize=9, fillstyle="none", label="the numbers of (a) to (d)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("κ = L/(φ d √d_e), by wider heads")
    axes.set_ylabel("relative error of the time")
    axes.set_title("(e) The reduced equation becomes right as κ → 0")
    axes.legend(loc="upper left")
