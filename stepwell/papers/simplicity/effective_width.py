r"""The effective width of a network grows by one at each drop: how near its weights are to narrower networks.

On the plateau after drop r the weights are near the manifold of width r, and leave it as the theory says: the next
direction, ray or unit grows in what the r in use leave over. How near they come to it decides whether there is a
plateau at all.
"""

from dataclasses import dataclass
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from stepwell.analysis import effective_width, manifold_distance
from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, ORANGE, VERMILION, new_figure, styled
from stepwell.figures import Claim, Data, Figure, InvalidInput, Origin, Seeds
from stepwell.theory.units import direction_times

from . import _fig02_runs as pairs
from ._width_runs import STRENGTHS, TYPES, distances, levels, model, predicted_distances, train

COLORS = (BLUE, VERMILION, GREEN, ORANGE)
EVERY = 4  # of the recorded times
ORDERS = {"linear": 10.0, "ReLU": 200.0, "quadratic": 10.0}
"""Times ε, the error of distances. On seeds 0 to 3 at most 0.2, 43 and 0.25."""
EXPONENTS = {"linear": 0.4, "ReLU": 0.4, "quadratic": 1.0}
CLOSEST = {"linear": 0.02, "ReLU": 0.02, "quadratic": 0.05}
"""On these seeds off by at most 0.003, 0.001 and 0.023."""
AGREE = 0.95


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    linear_units: int = 10
    relu_units: int = 20
    quadratic_units: int = 8
    linear_scales: tuple[float, ...] = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    relu_scales: tuple[float, ...] = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    quadratic_scales: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5)
    ratios: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # s_2 over s_1
    map_scales: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    map_units: int = 10
    seeds: tuple[int, ...] = tuple(range(1400, 1404))

    def __post_init__(self):
        if min(self.linear_units, self.quadratic_units) < 3 or min(self.relu_units, self.map_units) < 2:
            raise InvalidInput(
                f"linear_units is {self.linear_units}, quadratic_units {self.quadratic_units}, relu_units "
                f"{self.relu_units}, map_units {self.map_units}; give at least 3, 3, 2, 2: one for each drop"
            )
        if not all(0 < ratio < 1 for ratio in self.ratios):
            raise InvalidInput(f"ratios are {self.ratios}; give numbers between 0 and 1, of two modes that differ")

    def of(self, kind: str, name: str) -> Any:
        return getattr(self, f"{kind.lower()}_{name}")

    def shown(self, kind: str) -> float:
        """The scale of the runs that are shown: the second."""
        return sorted(self.of(kind, "scales"), reverse=True)[:2][-1]


def simulate(settings: Settings) -> Data:
    made = {}
    for kind in TYPES:
        made |= _of_kind(kind, settings)
    return made | {"map": two_modes(settings)}


def _of_kind(kind: str, settings: Settings) -> Data:
    """All scales and seeds of one type of network, trained together."""
    scales, seeds, units = settings.of(kind, "scales"), settings.seeds, settings.of(kind, "units")
    slow, small = STRENGTHS[kind][-1], min(scales)
    until = 20 / small if kind == "quadratic" else (10 - np.log(small)) / slow
    models = [model(kind, units, scale, seed) for scale in scales for seed in seeds]
    run = train(kind, models, until)
    steps = levels(kind)
    passed = np.array([pairs.passages(run["time"].values, loss, steps) for loss in run["loss"].values])[..., 1:]
    return {kind: _shown(kind, settings, run, models, passed), f"law-{kind}": _closest(kind, settings, run, passed)}


def _shown(kind: str, settings: Settings, run: xr.Dataset, models: Any, passed: Any) -> xr.Dataset:
    """Runs from one scale: loss, distances, effective width, at some of the times."""
    first = settings.of(kind, "scales").index(settings.shown(kind)) * len(settings.seeds)
    rows = range(first, first + len(settings.seeds))
    # The last time, of the largest weights, is one of them.
    part = run.isel(run=list(rows), time=slice((run.sizes["time"] - 1) % EVERY, None, EVERY))
    times = part["time"].values
    expected = [predicted_distances(kind, models[row], times) for row in rows]
    return xr.Dataset(
        {
            "loss": (("seed", "time"), part["loss"].values),
            "distance": (("width", "seed", "time"), distances(part, kind).values),
            "predicted": (("seed", "width", "time"), np.array(expected)),
            "effective": (("seed", "time"), effective_width(part).values),
            "half": (("seed", "mode"), passed[list(rows), :, 1]),
        },
        {"seed": list(settings.seeds), "time": times, "width": range(len(levels(kind)))},
    ).assign_coords(mode=range(1, len(levels(kind))))


def _closest(kind: str, settings: Settings, run: xr.Dataset, passed: Any) -> xr.Dataset:
    """The distance to width 1 where the gradient between the first two drops is least."""
    times, speed = run["time"].values, run["speed"].values
    between = (times >= passed[:, :1, 1]) & (times <= passed[:, 1:2, 1])
    places = np.where(between, speed, np.inf).argmin(axis=1)
    some, back = np.unique(places, return_inverse=True)
    distance = manifold_distance(run.isel(time=some), 1).values[np.arange(len(back)), back.ravel()]
    distance = np.where(between.any(axis=1), distance, np.nan)
    scales, seeds = settings.of(kind, "scales"), settings.seeds
    return xr.Dataset(
        {"distance": (("scale", "seed"), distance.reshape(len(scales), -1))},
        {"scale": list(scales), "seed": list(seeds)},
    )


def two_modes(settings: Settings) -> xr.Dataset:
    """Linear networks with two modes: how long the second plateau and the drop after it are, and should be.

    A mode that grows as $a = s/(1 + (s/|m|^2)e^{-2st})$ has made the part p of its drop where $a = s(1 - \\sqrt{1-p})$.
    """
    grid = [
        (ratio, scale, seed) for ratio in settings.ratios for scale in settings.map_scales for seed in settings.seeds
    ]
    starts, expected = [], []
    for ratio, scale, seed in grid:
        kappa = -np.log2(ratio)
        weights = scale * pairs.gaussian(settings.map_units, 2, False, seed)
        starts.append(pairs.Start(False, kappa, weights))
        s = pairs.strengths(kappa, 2)
        half = direction_times(np.diag(s), weights[:, :2], weights[:, 2:])
        begin, end = (half + _after_half(part) / (2 * s) for part in (0.1, 0.9))
        expected.append([begin[1] - end[0], end[1] - begin[1]])
    slowest = min(pairs.strengths(-np.log2(ratio), 2)[1] for ratio in settings.ratios)
    runs = pairs.train(starts, 2, float((10 - np.log(min(settings.map_scales))) / slowest), 1)
    passed = runs["passed"].values[:, 1]
    shape = len(settings.ratios), len(settings.map_scales), len(settings.seeds)
    along = ("ratio", "scale", "seed")
    names = {"ratio": list(settings.ratios), "scale": list(settings.map_scales), "seed": list(settings.seeds)}
    lengths = {
        "plateau": passed[:, 1] - passed[:, 0],
        "drop": passed[:, 3] - passed[:, 1],
        "expected_plateau": np.array(expected)[:, 0],
        "expected_drop": np.array(expected)[:, 1],
    }
    return xr.Dataset({name: (along, values.reshape(shape)) for name, values in lengths.items()}, names)


def _after_half(part: float) -> float:
    """When a logistic mode of rate one half has made a part of its drop, counted from the middle."""
    share, half = 1 - np.sqrt(1 - part), 1 - np.sqrt(0.5)
    return float(np.log(share / (1 - share)) - np.log(half / (1 - half)))


def windows(run: xr.Dataset) -> xr.DataArray:
    """Which times belong to the plateau of each width: from the middle of the drop before to that of the next.

    That of width 0 begins at half of its time, when small weights are where they grow.
    """
    half = run["half"].rename(mode="width").assign_coords(width=range(run.sizes["mode"]))
    begins = xr.where(half["width"] == 0, half / 2, half.shift(width=1))
    return (run["time"] > begins) & (run["time"] < half)


def claims(data: Data, settings: Settings) -> list[Claim]:
    ours = Origin("theory", "docs/theory/units.md: how near a narrower network", explored=True)
    made = [_widths(data)]
    for kind in TYPES:
        run = data[kind]
        inside = windows(run)
        ratio = (run["predicted"] / run["distance"]).sel(width=inside["width"]).where(inside)
        worst: Any = abs(np.log(ratio))
        complete = ratio.notnull().sum("time") == inside.sum("time")
        worst = worst.max("time").where(complete & inside.any("time"), np.inf).transpose("seed", "width")
        made.append(
            ours.at_most(
                f"{kind.lower()}-distance",
                _DISTANCES[kind],
                measured=worst,
                tolerance=ORDERS[kind] * settings.shown(kind),
                basis=f"{ORDERS[kind]:g} ε, {_NEXT[kind]}",
                counted="plateaus",
            )
        )
    for kind in TYPES:
        near, scales = data[f"law-{kind}"]["distance"], sorted(settings.of(kind, "scales"))
        middle = np.log(near.fillna(np.inf).median("seed").sel(scale=scales[:2]).values)
        made.append(
            ours.close(
                f"{kind.lower()}-closest",
                f"Where the gradient between the first two drops is least, {_NAMES[kind]} is ε to the power "
                f"{EXPONENTS[kind]:g} away from width 1: exponent of the median over seeds, over the last decade",
                predicted=EXPONENTS[kind],
                measured=float(np.diff(middle)[0] / np.log(scales[1] / scales[0])) if len(scales) > 1 else np.nan,
                tolerance=CLOSEST[kind],
                basis="powers of ε that are neglected, at most half of it on other seeds",
                unless="" if len(scales) > 1 else "an exponent needs two scales",
            )
        )
    two = data["map"]
    left, expected = (two[f"{name}plateau"] > two[f"{name}drop"] for name in ("", "expected_"))
    made.append(
        ours.fraction(
            "plateau-left",
            "A linear network with two modes has a second plateau, longer than the drop after it, if two logistic "
            "modes with the initial weights have: fraction of ratios, scales and seeds in which both have, or neither",
            holds=left == expected,
            required=AGREE,
            basis="at the border the two modes are learned together, or the weights are not small",
            counted="runs",
        )
    )
    return made


_NAMES = {"linear": "a linear network", "ReLU": "a ReLU network", "quadratic": "a quadratic network"}
_DISTANCES = {
    "linear": "The distance of a linear network to width r on the plateau after drop r is (2Σσ_k)^½, over the singular "
    "values beyond the r-th of the map of the Riccati equation: largest logarithm of the ratio",
    "ReLU": "That of ReLU units on two orthogonal inputs follows from the logistic mode of each ray, of the units that "
    "come to be on it in the field of zero: largest logarithm of the ratio",
    "quadratic": "That of quadratic units is that of a network of r + 1 units, and of others that follow it as if they "
    "were not there: largest logarithm of the ratio",
}
_NEXT = {
    "linear": "the order of the part of small weights that decays",
    "ReLU": "the order of the units that are on no ray, (ε/d)² at the first drop",
    "quadratic": "the size of the units that are left out",
}


def _widths(data: Data) -> Claim:
    found = []
    for kind in TYPES:
        run = data[kind]
        half = run["half"].values
        edges = np.concatenate(
            [np.zeros_like(half[:, :1]), half, np.full_like(half[:, :1], 2 * run["time"].values[-1])], 1
        )
        middle = np.minimum((edges[:, 1:] + edges[:, :-1]) / 2, run["time"].values[-1])
        at = np.abs(run["time"].values - middle[..., None]).argmin(axis=-1)
        made = np.take_along_axis(run["effective"].values, at, axis=1)
        found.append(xr.DataArray(made, {"seed": run["seed"].values, "plateau": range(made.shape[1])}))
    measured = np.concatenate([each.values.ravel() for each in found])
    labels = [
        f"{kind}, seed {seed}, plateau {plateau}"
        for kind, each in zip(TYPES, found, strict=True)
        for seed in each["seed"].values
        for plateau in each["plateau"].values
    ]
    return Origin("paper", "Fig 1", explored=True).close(
        "one-by-one",
        "From small weights the effective width of linear, ReLU and quadratic networks is 0 on the first plateau and "
        "one more on each that follows: width midway between the drops",
        predicted=np.concatenate([np.broadcast_to(each["plateau"], each.shape).ravel() for each in found]),
        measured=measured,
        labels=labels,
        basis="an integer",
        counted="plateaus",
    )


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(13.5, 7.4)
        grid = figure.subplots(2, 3)
        for axes, letter, kind in zip(grid[0], "abc", TYPES, strict=True):
            _draw_distances(axes, data[kind])
            axes.set_title(f"({letter}) {kind.capitalize() if kind != 'ReLU' else kind} units: distance to width r")
        _draw_widths(grid[1, 0], data)
        _draw_closest(grid[1, 1], data)
        _draw_map(figure, grid[1, 2], data["map"])
    return figure


def _draw_distances(axes: Axes, run: xr.Dataset) -> None:
    """Of the first seed, and the prediction on the plateau of each width, but for that of the origin from its start."""
    one = run.isel(seed=0)
    inside = windows(run).isel(seed=0)
    for color, width in zip(COLORS, inside["width"].values, strict=False):
        axes.semilogy(
            one["time"], one["distance"].sel(width=width), color=color, linewidth=2.4, alpha=0.55, label=f"r = {width}"
        )
        shown = one["predicted"].sel(width=width).where(inside.sel(width=width))
        axes.semilogy(one["time"], shown, "--", color=BLACK, linewidth=1.3)
    for number, half in enumerate(one["half"].values):
        axes.axvline(half, color=GRAY, linewidth=0.8, linestyle=":", label="drops" if number == 0 else None)
    axes.plot([], [], "--", color=BLACK, linewidth=1.3, label="predicted")
    end = float(one["half"].max())
    floor = float(one["distance"].isel(width=slice(0, -1)).min())
    axes.set(xlim=(0, 1.25 * end if np.isfinite(end) else None), ylim=(max(floor, 1e-9) / 2, None))
    axes.set(xlabel="training time $t/\\tau$", ylabel="distance")
    axes.legend(loc="lower right", fontsize=8)


def _draw_widths(axes: Axes, data: Data) -> None:
    for shift, (color, kind) in enumerate(zip(COLORS, TYPES, strict=False)):
        one = data[kind].isel(seed=0)
        time = one["time"] / float(one["half"].max())
        axes.step(time, one["effective"] + 0.05 * (shift - 1), where="post", color=color, label=kind)
    axes.set(xlim=(0, 1.25), xlabel="training time, over that of the last drop", ylabel="effective width")
    axes.set_yticks(range(4))
    axes.legend(loc="upper left", fontsize=8)
    axes.set_title("(d) One unit more at each drop")


def _draw_closest(axes: Axes, data: Data) -> None:
    for color, marker, kind in zip(COLORS, "osD", TYPES, strict=False):
        near = data[f"law-{kind}"]["distance"]
        for row, values in enumerate(near.transpose("seed", "scale").values):
            label = None if row else f"{kind}: $\\epsilon^{{{EXPONENTS[kind]:g}}}$"
            axes.loglog(near["scale"], values, marker, color=color, markersize=5, alpha=0.7, label=label)
        smallest = near.sel(scale=near["scale"].min())
        line = float(smallest.median()) * (near["scale"] / near["scale"].min()) ** EXPONENTS[kind]
        axes.loglog(near["scale"], line, color=color, linewidth=1.0)
    axes.set(xlabel="initial scale ε", ylabel="distance to width 1")
    axes.legend(loc="lower right", fontsize=8)
    axes.set_title("(e) Where the second plateau is flattest")


def _draw_map(figure: matplotlib.figure.Figure, axes: Axes, two: xr.Dataset) -> None:
    measured, expected = (
        np.log10(np.maximum((two[f"{name}plateau"] / two[f"{name}drop"]).median("seed").values, 0.1))
        for name in ("", "expected_")
    )
    scale, ratio = np.log10(two["scale"].values), two["ratio"].values
    image = axes.pcolormesh(scale, ratio, measured, cmap="cividis", vmin=-1, vmax=1, shading="nearest")
    if min(measured.shape) > 1:
        axes.contour(scale, ratio, expected, levels=[0.0], colors="white", linewidths=2)
    bar = figure.colorbar(image, ax=axes, label="length of plateau 2 over that of drop 2")
    bar.set_ticks([-1, 0, 1], labels=["≤ 0.1", "1", "≥ 10"])
    axes.set(xlabel="initial scale, $\\log_{10}\\epsilon$", ylabel="ratio of singular values $s_2/s_1$")
    axes.set_title("(f) Where a plateau is left; white: predicted")


FIGURE = Figure(
    title="The effective width grows by one at each drop, and how near it is to an integer is predicted",
    caption=(
        "(a–c) Distance of the weights to the manifold of width r, along a run of each type of network: the least "
        "change of weights after which units span r dimensions (linear), are on r rays (ReLU), or are zero but for r "
        "(quadratic). Dashed: predicted from the initial weights, on the plateau of each width; dotted: the drops of "
        "the loss. (d) The effective width, the smallest r at a distance of less than a tenth of the largest weights; "
        "curves are shifted by 0.05. (e) Distance to width 1 where the gradient between the first two drops is least, "
        "against the initial scale, for each seed, and the predicted powers through the last median. (f) Linear "
        "networks with two modes: length of the second plateau over that of the drop after it (shades), and the line "
        "on which the two are predicted to be equal (white)."
    ),
    settings=Settings(),
    quick=Settings(
        linear_scales=(1e-3, 1e-4, 1e-5),
        relu_scales=(1e-3, 1e-4, 1e-5),
        quadratic_scales=(1e-2, 1e-3, 1e-4),
        ratios=(0.1, 0.3, 0.5, 0.7, 0.9),
        map_scales=(1e-1, 1e-3, 1e-5, 1e-7),
        seeds=(1400, 1401),
    ),
    seeds=Seeds(explored="0 to 3", fixed="before seeds 1400 to 1403 were run"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
