r"""Fig 2: what makes plateaus long or short in linear networks, and in linear attention.

Four things are varied: the width, the singular values $s_n \propto n^{-\kappa}$ of the data, the distance of the
initial weights to a manifold of smaller width, and their scale. Directions of linear networks grow as $e^{s_n t}$, and
heads of attention as $1/(T - t)$, so that the same change has different effects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.figure
import numpy as np
import scipy.special
import xarray as xr
from matplotlib.axes import Axes

from stepwell.analysis.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILION, new_figure, styled, superscript
from stepwell.figures import Claim, Data, Figure, InvalidInput, Known, Origin, Seeds

from ._common import chosen
from ._fig02_runs import (
    RTOL,
    Start,
    curve_error,
    expected_drops,
    gaussian,
    near_manifold,
    plateau_count,
    plateau_lengths,
    strengths,
    train,
)

ARCHITECTURES = ("linear", "attention")
PANELS = {"width": "width H", "spectrum": "exponent κ", "manifold": "r large units", "scale": "initial scale ε"}
COLORS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE)
DEVIATIONS = 4.0
SCATTER = 2.0  # deviations over initializations: what is little
NEXT = 0.02  # τ/s_1, about; the largest error of a drop in the mean over seeds was 0.004
LAW = 0.1  # from 8 heads on: at most 0.056
WIDE = 8
SCHEDULE = 0.02  # at most 0.006
ORDERS = 2.0  # at most 1.4, where the next order is above the error of recorded times
RECORDED = 0.002
ORDER = 50.0  # at most 33
REMAINS = 0.25  # those that remain, at least 0.87; others at most 0.06
SOLVER = 1e4 * RTOL  # after thousands of steps
OURS = Origin("theory", "docs/theory/units.md: long and short plateaus", explored=True)


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    modes: int = 3
    kappa: float = 1.0  # where it is not varied
    kappas: tuple[float, ...] = (2.0, 1.0, 0.5, 0.0)
    linear_units: int = 20
    linear_widths: tuple[int, ...] = (10, 30, 100, 300)
    linear_scales: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-2, 1.0)
    attention_units: int = 8
    attention_widths: tuple[int, ...] = (4, 16, 64, 256)
    attention_scales: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    ranks: tuple[int, ...] = (0, 1, 2, 3)
    linear_scale: float = 1e-6  # where it is not varied
    attention_scale: float = 1e-3
    context: int = 31
    starts: int = 200  # of attention, of which drops are predicted
    trained: int = 2  # of these, at each width
    seeds: tuple[int, ...] = tuple(range(1200, 1224))

    def __post_init__(self):
        if self.modes < 2 or self.kappa <= 0:
            raise InvalidInput(
                f"modes is {self.modes} and kappa {self.kappa:g}; give at least 2 modes, and kappa above 0: there "
                "is no plateau between drops of equal modes"
            )
        if min(self.linear_units, self.attention_units, *self.linear_widths, *self.attention_widths) < self.modes:
            raise InvalidInput(f"there are widths below {self.modes}, the number of modes; give larger ones")
        if max(self.ranks, default=0) > self.modes:
            raise InvalidInput(f"ranks are {self.ranks}; give none above {self.modes}, the number of modes")

    def panel(self, name: str, architecture: str) -> tuple[float, ...]:
        """What is varied: the values in a panel."""
        of = {"width": f"{architecture}_widths", "spectrum": "kappas", "manifold": "ranks"}
        return tuple(getattr(self, of.get(name, f"{architecture}_scales")))

    def start(self, name: str, architecture: str, value: float, seed: int) -> Start:
        """The run of a panel."""
        attention = architecture == "attention"
        units = int(value) if name == "width" else getattr(self, f"{architecture}_units")
        scale = value if name == "scale" else getattr(self, f"{architecture}_scale")
        kappa = value if name == "spectrum" else self.kappa
        if name == "manifold":
            weights = near_manifold(int(value), scale, units, self.modes, attention, seed)
        else:
            weights = scale * gaussian(units, self.modes, attention, seed)
        return Start(attention, kappa, weights)


def simulate(settings: Settings) -> Data:
    panels, widths = tuple(PANELS), settings.attention_widths
    many = range(settings.seeds[0], settings.seeds[0] + settings.starts)
    groups = [[settings.start("width", "attention", width, seed) for seed in many] for width in widths]
    times = np.array([expected_drops(group, 0, settings.modes, settings.context) for group in groups])[..., 0]
    along = {"value": list(widths), "seed": many, "mode": range(1, settings.modes + 1)}
    drawn = xr.DataArray(np.where(np.isfinite(times), times, np.inf), along)
    # Those that are shown and trained are nearest to the medians, at all widths together.
    apart: Any = abs(np.log(drawn / drawn.median("seed")))
    far = apart.fillna(np.inf).sum(("value", "mode"))
    typical = drawn["seed"].values[np.argsort(far.values)[: settings.trained]]
    made = _trained(settings, "linear", panels, settings.seeds)
    made |= _trained(settings, "attention", panels[1:], settings.seeds)
    made |= _trained(settings, "attention", panels[:1], typical.tolist())
    return made | {"drawn": drawn.to_dataset(name="time")}


def _trained(settings: Settings, architecture: str, panels: Sequence[str], seeds: Sequence[int]) -> Data:
    """The runs of some panels of one architecture, trained together, and when their drops are expected."""
    modes, context = settings.modes, settings.context
    places = [(name, value) for name in panels for value in settings.panel(name, architecture)]
    groups = [[settings.start(name, architecture, value, seed) for seed in seeds] for name, value in places]
    ranks = [int(value) if name == "manifold" else 0 for name, value in places]
    expected = np.array(
        [expected_drops(group, rank, modes, context) for group, rank in zip(groups, ranks, strict=True)]
    )
    slowest = min(strengths(kappa, modes)[-1] for kappa in (settings.kappa, *settings.kappas))
    until = 1.05 * float(expected[np.isfinite(expected)].max(initial=0.0)) + 10 / slowest
    expected = expected.reshape(-1, modes, 2)
    starts = [start for group in groups for start in group]
    runs = train(starts, modes, until, context)
    runs["predicted"], runs["next"] = (("run", "mode"), expected[..., 0]), (("run", "mode"), expected[..., 1])
    made = {}
    for name in panels:
        rows = np.flatnonzero(np.repeat([panel == name for panel, _ in places], len(seeds)))
        part, values = runs.isel(run=rows), settings.panel(name, architecture)
        if name == "spectrum" and architecture == "linear":
            every = slice(None, None, 20)
            times, loss = runs["time"].values[every], part["loss"].values[:, every]
            errors = [curve_error(starts[row], modes, times, one) for row, one in zip(rows, loss, strict=True)]
            part["error"] = "run", errors
        made[f"{name}-{architecture}"] = _table(part, values, seeds)
    return made


def _table(runs: xr.Dataset, values: Sequence[float], seeds: Sequence[int]) -> xr.Dataset:
    """Runs by what is varied and seed; of the losses, those of the first seed."""
    shape = len(values), len(seeds)
    arrays = {
        name: (("value", "seed", *each.dims[1:]), each.values.reshape(*shape, *each.shape[1:]))
        for name, each in runs.data_vars.items()
    }
    coordinates = {name: each for name, each in runs.coords.items() if name != "run"}
    table = xr.Dataset(arrays, {**coordinates, "value": list(values), "seed": list(seeds)})
    return table.assign(loss=table["loss"].isel(seed=0, drop=True))


def expected_times(settings: Settings) -> tuple[xr.DataArray, xr.DataArray]:
    r"""Of a linear network with Gaussian weights, the mean time of each drop and its deviation, by width.

    What is orthogonal of mode k has $|m_k|^2 = \tfrac12\epsilon^2\chi^2$ with H - k + 1 degrees of freedom n, and
    $\ln\chi^2_n$ the mean $\psi(n/2) + \ln 2$ and the variance $\psi'(n/2)$.
    """
    mode = np.arange(1, settings.modes + 1)
    free = (np.array(settings.linear_widths)[:, None] - mode + 1) / 2
    s = strengths(settings.kappa, settings.modes)
    scale = (np.sqrt(2) - 1) * s / settings.linear_scale**2
    along = {"value": list(settings.linear_widths), "mode": mode}
    mean = (np.log(scale) - scipy.special.digamma(free)) / (2 * s)
    deviation = np.sqrt(scipy.special.polygamma(1, free)) / (2 * s)
    return xr.DataArray(mean, along), xr.DataArray(deviation, along)


def claims(data: Data, settings: Settings) -> list[Claim]:
    parts = (_of_width, _of_spectrum, _of_manifold, _of_scale)
    return [claim for part in parts for claim in part(data, settings)]


def _paper(panel: str) -> Origin:
    return Origin("paper", f"Fig 2{panel}", explored=True)


def _half(runs: xr.Dataset) -> xr.DataArray:
    """When each drop is midway."""
    return runs["passed"].sel(part="half").drop_vars("part")


def _middle(values: xr.DataArray) -> xr.DataArray:
    """The median over seeds, of which what never comes is part."""
    return values.fillna(np.inf).median("seed")


def _between(times: xr.DataArray) -> xr.DataArray:
    """From the first drop to the last."""
    return times.isel(mode=-1).drop_vars("mode") - times.isel(mode=0).drop_vars("mode")


def _of_width(data: Data, settings: Settings) -> list[Claim]:
    linear, trained, drawn = _half(data["width-linear"]), data["width-attention"], data["drawn"]["time"]
    mean, deviation = expected_times(settings)
    reached = linear.mean("seed", skipna=False)
    narrow, wide = ({"value": kind(settings.linear_widths)} for kind in (min, max))
    heads = sorted(settings.attention_widths)
    apart = _middle(_between(drawn)).sel(value=heads)
    many = [head for head in heads if head >= WIDE]
    first = _middle(drawn.sel(mode=1)).sel(value=many)
    s = strengths(settings.kappa, settings.modes)[0]
    law = np.sqrt(3) / (2 * s * settings.attention_scale * np.sqrt(2 * np.log(many)))
    error = abs(_half(trained) / trained["predicted"] - 1).fillna(np.inf)
    two: Any = {"unless": "" if wide != narrow else "there is one width"}
    several: Any = {"unless": "" if len(heads) > 1 else "there is one width"}
    both: Any = {"unless": two["unless"] or several["unless"]}
    return [
        _paper("A").at_most(
            "attention-width",
            f"Plateaus of attention are shorter in wider networks: time from the first drop to the last, median over "
            f"{settings.starts} initializations by the schedule of drops, over that of the width before",
            predicted=1.0,
            measured=_ratios(apart),
            basis="an order",
            counted="widths",
            **several,
        ),
        _paper("A").at_most(
            "width-contrast",
            "And width does more to attention than to linear networks: time from the first drop to the last at the "
            "largest width over that at the smallest, of attention (median) against linear networks (mean)",
            predicted=float(_between(reached).sel(wide) / _between(reached).sel(narrow)),
            measured=float(apart[-1] / apart[0]),
            basis="an order",
            **both,
        ),
        _paper("A").close(
            "linear-width",
            "Width has little effect on linear networks: mean time of each drop at the largest width over that at "
            "the smallest",
            predicted=1.0,
            measured=reached.sel(wide).drop_vars("value") / reached.sel(narrow).drop_vars("value"),
            tolerance=SCATTER * (deviation / mean).sel(narrow).values,
            basis=f"{SCATTER:g} deviations over initializations of the narrowest network",
            counted="drops",
            known=Known(
                "All drops come earlier by ln(H'/H)/2s_k: a logarithm, beside that of the initial scale",
                "width-of-linear-networks",
            ),
            **two,
        ),
        OURS.close(
            "linear-times",
            "A linear network of H units is midway down drop k after (ln((√2 − 1)s_k/ε²) − ψ((H − k + 1)/2))/2s_k in "
            "the mean over initializations, about ln(H'/H)/2s_k earlier at a width H': difference of each drop at "
            "each width",
            measured=reached - mean,
            tolerance=(DEVIATIONS * deviation / np.sqrt(linear.sizes["seed"]) + NEXT).values.ravel(),
            basis=f"{DEVIATIONS:g} standard errors from the variance ψ′, and {NEXT:g} for powers of ε",
            counted="drops",
        ),
        OURS.close(
            "attention-first-drop",
            "The first drop of H heads of rank one is at √3/(2s_1 ε √(2 ln H)): its median over initializations, over "
            "this, for each width from 8 on",
            predicted=1.0,
            measured=first / law,
            tolerance=LAW,
            basis="the next order, in 1/ln H",
            counted="widths",
            unless="" if many else "all widths are below 8",
        ),
        OURS.at_most(
            "attention-schedule",
            "These times, of the schedule of drops from the initial weights, are those of gradient flow: relative "
            "error, median over the drops of runs near the medians, for each width",
            measured=error.median(("seed", "mode")),
            tolerance=SCHEDULE,
            basis="the duration of a drop, several τ, over that of a plateau, about 1/ε",
            counted="widths",
        ),
    ]


def _ratios(values: xr.DataArray) -> xr.DataArray:
    """Of each value to the one before."""
    return values.isel(value=slice(1, None)) / values.isel(value=slice(None, -1)).values


def _of_spectrum(data: Data, settings: Settings) -> list[Claim]:
    linear, attention = data["spectrum-linear"], data["spectrum-attention"]
    exponents = sorted(settings.kappas, reverse=True)
    lengths = plateau_lengths(attention["passed"])
    share = _middle(lengths.isel(mode=slice(1, None)).sum("mode") / lengths.sel(mode=1)).sel(value=exponents)
    equal: Any = {"unless": "" if 0 in settings.kappas else "no exponent is 0"}
    at = {"value": 0.0} if 0 in settings.kappas else {"value": exponents[0]}
    return [
        _paper("B").close(
            "one-drop",
            "With equal singular values linear networks have no plateau between drops: number of plateaus that are "
            "longer than the drops after them, the first among them",
            predicted=1,
            measured=plateau_count(linear["passed"]).sel(at),
            basis="a count",
            **equal,
        ),
        _paper("B").at_most(
            "attention-spectrum",
            "In attention plateaus are the shorter the closer the singular values are: length of all later plateaus "
            "over that of the first, median over seeds, over the same at the larger exponent before",
            predicted=1.0,
            measured=_ratios(share),
            basis="an order",
            counted="exponents",
            unless="" if len(exponents) > 1 else "there is one exponent",
        ),
        _paper("B").close(
            "attention-equal",
            "They are shorter, not gone, where the singular values are equal: number of plateaus that are longer "
            "than the drops after them, median over seeds",
            predicted=settings.modes,
            measured=float(_middle(plateau_count(attention["passed"]).sel(at))),
            basis="a count",
            **equal,
        ),
        OURS.at_most(
            "linear-curves",
            "The Riccati equation has the whole loss curve of a linear network, with modes that are equal, or learned "
            "together: largest error, relative to the initial loss",
            measured=linear["error"],
            tolerance=10 * settings.linear_scale**2 + SOLVER,
            basis="ten times the order ε² of the imbalance, and the error of the solver",
            counted="runs",
        ),
    ]


def _of_manifold(data: Data, settings: Settings) -> list[Claim]:
    made = []
    for architecture, words in zip(ARCHITECTURES, ("linear networks", "attention"), strict=True):
        lengths = _middle(plateau_lengths(data[f"manifold-{architecture}"]["passed"]))
        small: Any = lengths.sel(value=0) if 0 in settings.ranks else np.nan
        made.append(
            _paper("C").close(
                f"{architecture}-manifold",
                f"From weights near a manifold of width r, but not near a saddle, the plateaus of {words} are those "
                "after the r-th alone: number of plateaus of which the median length over seeds is more than "
                f"{REMAINS:g} of that from small weights, r = 0",
                predicted=settings.modes - np.array(settings.ranks),
                measured=(lengths > REMAINS * small).sum("mode"),
                basis="a count",
                counted="ranks",
                unless="" if 0 in settings.ranks else "no rank is 0",
            )
        )
    linear, attention = data["manifold-linear"], data["manifold-attention"]
    late = _half(linear) - linear["predicted"]
    early = _half(attention) / attention["predicted"]
    inside = xr.DataArray([rank > 0 for rank in settings.ranks], dims="value")
    judged = np.isfinite(linear["predicted"]) & inside
    return [
        *made,
        OURS.close(
            "linear-next-drop",
            "The units of size one move as a network of r units, and the others in the error that it leaves, which "
            "gives the time of the drop after the r-th: difference, if that network is at rest by then",
            measured=chosen(late, judged),
            tolerance=ORDERS * chosen(linear["next"], judged).values + RECORDED,
            basis=f"{ORDERS:g} times the next order: what that network has left, and the mode after; and {RECORDED:g} "
            "between recorded losses",
            counted="runs",
        ),
        OURS.close(
            "attention-next-drop",
            "The next head of attention grows alone in the field that those of size one leave: time of the drop after "
            "the r-th over that at which the first of the small heads would be infinite",
            predicted=1.0,
            measured=chosen(early, np.isfinite(attention["predicted"]) & inside),
            tolerance=ORDER * settings.attention_scale,
            basis=f"{ORDER:g} ε, for {ORDER:g} τ of the course of the large heads, and of the drop",
            counted="runs",
        ),
    ]


def _of_scale(data: Data, settings: Settings) -> list[Claim]:
    made = []
    for architecture, words in zip(ARCHITECTURES, ("linear networks", "attention"), strict=True):
        scales = settings.panel("scale", architecture)
        count = _middle(plateau_count(data[f"scale-{architecture}"]["passed"]))
        made.append(
            _paper("D").close(
                f"{architecture}-scale",
                f"The loss of {words} has all plateaus from small initial weights, and none from weights of size one: "
                "number of plateaus that are longer than the drops after them, median over seeds, at the smallest "
                "scale and at one",
                predicted=[settings.modes, 0],
                measured=count.sel(value=[min(scales), 1.0]) if 1.0 in scales else [],
                basis="a count",
                counted="scales",
                unless="" if 1.0 in scales and min(scales) < 1 else "scales are not of small weights and of one",
            )
        )
    times = {each: _half(data[f"scale-{each}"]).sel(mode=1) for each in ARCHITECTURES}
    small = {each: sorted(settings.panel("scale", each))[:2] for each in ARCHITECTURES}
    two = {each: "" if len(small[each]) > 1 else "there is one scale" for each in ARCHITECTURES}
    first, second = (times["linear"].sel(value=scale, drop=True) for scale in (small["linear"] * 2)[:2])
    below, above = (times["attention"].sel(value=scale, drop=True) * scale for scale in (small["attention"] * 2)[:2])
    least, most = (small["linear"] * 2)[:2]
    return [
        *made,
        OURS.close(
            "logarithm",
            "The first plateau of a linear network is longer by ln(ε/ε′)/s_1 from weights of scale ε′ in place of ε: "
            "difference of the first drop at the smallest two scales, times s_1",
            predicted=np.log(most / least),
            measured=(first - second) * strengths(settings.kappa, settings.modes)[0],
            tolerance=NEXT,
            basis="powers of ε",
            unless=two["linear"],
        ),
        OURS.close(
            "inverse",
            "That of attention lasts as 1/ε: ratio of ε times its first drop at the smallest two scales",
            predicted=1.0,
            measured=above / below,
            tolerance=10 * (small["attention"] * 2)[1],
            basis="ten times the larger of the two, the duration of a drop",
            unless=two["attention"],
        ),
    ]


_PREDICTED: Any = {"markersize": 5, "markeredgecolor": BLACK, "markeredgewidth": 0.7}


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(14.0, 6.4)
        grid = figure.subplots(len(ARCHITECTURES), len(PANELS), sharey=True)
        for row, architecture, letters in zip(grid, ARCHITECTURES, ("abcd", "efgh"), strict=True):
            for axes, letter, (name, title) in zip(row, letters, PANELS.items(), strict=True):
                runs = data[f"{name}-{architecture}"]
                _draw_runs(axes, runs, name, linear=architecture == "linear")
                axes.set_title(f"({letter}) {architecture.capitalize()}: {title}")
            row[0].set_ylabel("loss, of that of zero weights")
        grid[0, 0].plot([], [], "D", label="predicted", **_PREDICTED, color="white")
        grid[0, 0].legend(loc="upper right", fontsize=8)
        for axes in grid[-1]:
            axes.set_xlabel("training time $t/\\tau$")
    return figure


def _draw_runs(axes: Axes, runs: xr.Dataset, name: str, *, linear: bool) -> None:
    """Curves of the first seed, each until it has come to its end."""
    order = np.argsort(runs["value"].values)
    for color, row in zip(COLORS, order, strict=False):
        one = runs.isel(value=row)
        value, top = float(one["value"]), float(one["plateau"].isel(seed=0, level=0))
        first = one.isel(seed=0)
        axes.plot(runs["time"], one["loss"] / top, color=color, linewidth=1.6, label=_label(name, value))
        steps = first["plateau"].values / top
        # Equal modes of a linear network are learned at once, and not at times of their own.
        known = value < 1 if name == "scale" else value > 0 or name != "spectrum" or not linear
        expected = first["predicted"].where(known)
        axes.plot(expected, (steps[:-1] + steps[1:]) / 2, "D", color=color, **_PREDICTED)
    ends = runs["passed"].sel(part="end").isel(seed=0).max()
    if name == "scale":
        axes.set_xscale("log")
    axes.set_xlim((1e-4, 3 * float(ends)) if name == "scale" else (0, 1.05 * float(ends)))
    axes.set_ylim(-0.03, 1.12)
    axes.legend(loc="lower left" if name == "scale" else "upper right", fontsize=8)


def _label(name: str, value: float) -> str:
    symbol = {"width": "H", "spectrum": "κ", "manifold": "r", "scale": "ε"}[name]
    shown = f"10{superscript(round(np.log10(value)))}" if name == "scale" and value != 1 else f"{value:g}"
    return f"{symbol} = {shown}"


FIGURE = Figure(
    title="Long and short plateaus: width, spectrum and initialization of linear networks and attention",
    caption=(
        "Loss of a linear network (above) and of linear attention with heads of rank one (below), three modes each, "
        "while one thing is varied. (a, e) The number of units or heads, H. (b, f) The strengths of the modes, "
        "n^−κ over their sum. (c, g) The distance from saddles: r units, or a matrix of rank r, of size one beside "
        "small weights, near a manifold of smaller width. (d, h) The scale ε of the initial weights. Diamonds: times "
        "of the drops predicted from the initial weights; none for weights of size one, for equal modes of a linear "
        "network, which are learned at once, and beyond the next drop in (c, g). Each curve is one run; in (e) one "
        "whose predicted times are near the medians at all widths."
    ),
    source="Fig 2",
    settings=Settings(),
    quick=Settings(
        kappas=(2.0, 1.0, 0.0),
        linear_widths=(10, 30, 300),
        linear_scales=(1e-6, 1e-5, 1.0),
        attention_widths=(4, 16, 64),
        attention_scales=(1e-3, 1e-2, 1.0),
        ranks=(0, 1, 2),
        starts=100,
        trained=1,
        seeds=tuple(range(1200, 1206)),
    ),
    seeds=Seeds(
        explored="0 to 59, and 0 to 399 of starts that are not trained. On 700 to 723 and 900 to 905 two claims about "
        "(c, g) failed, one that was noisy with six seeds, one whose tolerance was not derived; both were replaced",
        fixed="before seeds 1200 to 1399 were run",
    ),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
