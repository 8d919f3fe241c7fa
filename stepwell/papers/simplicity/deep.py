r"""Linear networks of three layers: one rank after another, and times that are not those of two layers.

A unit of the first layer is linear in its weights, but the product of three layers is of third order, so that small
weights grow as $\dot w = s w^2$. Times are those of a race between initial weights, of the order of 1/ε: directions
part from each other even if their singular values are equal, and wider networks, whose middle layer has the norm
$2\epsilon\sqrt H$, are faster.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from stepwell.analysis import passage_time, staircase
from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, PURPLE, SKY, VERMILION, new_figure, styled
from stepwell.dynamics import Ensemble, Record, descend
from stepwell.figures import Claim, Data, Figure, InvalidInput, Known, Origin, Seeds
from stepwell.objectives import Sampled
from stepwell.tasks import FeatureBatch
from stepwell.theory.units import riccati_course

from ._common import linear_levels
from ._deep_networks import DeepLinear, after_blow_up, blow_up, singular_values

DIM = 3
RATE = 0.02
POINTS = 1000
LONG, SHORT = 5.0, 2.0  # times 1/ε: until all drops; times √(10/H)/ε: until the first
LEARNED = 0.02  # a singular value of the map that is above
SEVERAL = 4  # seeds, of which a median says something
LATE = 3.0  # times ε; on seeds 0 to 23 at most 1.9
EXPONENT, WIDTH, LITTLE = 0.05, 0.1, 0.5
SPECTRA = ("unequal", "equal")
HEADING = "three-layers-that-race"


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    units: int = 10
    widths: tuple[int, ...] = (30, 100)
    scales: tuple[float, ...] = (1e-2, 2e-3)
    seeds: tuple[int, ...] = tuple(range(700, 712))

    def __post_init__(self):
        if not 0 < min(self.scales) <= max(self.scales) <= 0.03:
            raise InvalidInput(f"scales are {self.scales}; give numbers above 0, up to 0.03")
        if min(self.units, *self.widths) < DIM:
            raise InvalidInput(f"units and widths are {self.units} and {self.widths}; give at least {DIM}")


def strengths(spectrum: str) -> Float[np.ndarray, " mode"]:
    """In proportion to 1, 1/2, 1/3, or all equal, of sum one."""
    s = 1 / np.arange(1, DIM + 1.0) if spectrum == "unequal" else np.ones(DIM)
    return s / s.sum()


def objective(spectrum: str) -> Sampled:
    """White inputs, all there are."""
    x = np.sqrt(DIM) * np.eye(DIM)
    return Sampled(FeatureBatch(jnp.asarray(x), jnp.asarray(x * strengths(spectrum))), reduce="sum")


def levels(spectrum: str) -> Float[np.ndarray, " level"]:
    """The losses of the best maps of each rank."""
    return linear_levels(strengths(spectrum))


def simulate(settings: Settings) -> Data:
    return {"courses": courses(settings), "widths": of_widths(settings), "shallow": shallow(settings)}


def courses(settings: Settings) -> xr.Dataset:
    """Each spectrum, scale and seed: the loss, the singular values of the map, drops, and the rank on each plateau."""
    grid = [(name, scale, seed) for name in SPECTRA for scale in settings.scales for seed in settings.seeds]
    models = [_model(settings.units, scale, seed) for _, scale, seed in grid]
    run = _descended(models, Ensemble.of([objective(name) for name, _, _ in grid]), LONG / min(settings.scales))
    times = run["time"].values
    shape = len(SPECTRA), len(settings.scales), len(settings.seeds)
    losses, sizes = run["loss"].values, run["sizes"].values
    drops = [_drops(times, loss, levels(name)) for loss, (name, _, _) in zip(losses, grid, strict=True)]
    ranks = np.array([_ranks(times, loss, size) for loss, size in zip(losses, sizes, strict=True)])
    axes = ("spectrum", "scale", "seed")
    return xr.Dataset(
        {
            "loss": ((*axes, "time"), losses.reshape(*shape, -1)),
            "sizes": ((*axes, "time", "mode"), sizes.reshape(*shape, -1, DIM)),
            "drop": ((*axes, "mode"), np.reshape(drops, (*shape, -1))),
            "rank": ((*axes, "plateau"), ranks.reshape(*shape, -1)),
            "first": (axes, [_first(settings, settings.units, name, settings.scales) for name in SPECTRA]),
        },
        {
            "spectrum": list(SPECTRA),
            "scale": list(settings.scales),
            "seed": list(settings.seeds),
            "time": times,
            "mode": range(1, DIM + 1),
            "plateau": range(DIM + 1),
        },
    )


def of_widths(settings: Settings) -> xr.Dataset:
    """The first drop of wider networks, with equal singular values, from the smallest scale."""
    scale, name = min(settings.scales), "equal"
    found = []
    for width in settings.widths:
        models = [_model(width, scale, seed) for seed in settings.seeds]
        run = _descended(models, objective(name), SHORT * np.sqrt(10 / width) / scale)
        found.append([_drops(run["time"].values, loss, levels(name))[0] for loss in run["loss"].values])
    first = [_first(settings, width, name, (scale,))[0] for width in settings.widths]
    return xr.Dataset(
        {"drop": (("width", "seed"), found), "first": (("width", "seed"), first)},
        {"width": list(settings.widths), "seed": list(settings.seeds)},
    )


def shallow(settings: Settings) -> xr.Dataset:
    """Two layers, in closed form: the course with equal singular values, and the first drop at each width."""
    scale, cross = min(settings.scales), np.diag(strengths("equal"))
    rng = np.random.default_rng(settings.seeds[0])
    times = np.linspace(0.0, LONG / scale, POINTS)
    early = np.linspace(0.0, 2 * np.log(1 / scale) / cross[0, 0], POINTS)  # the drop comes in about half of it
    widths = [settings.units, *settings.widths]
    first = []
    for width in widths:
        drawn = scale * rng.normal(size=(len(settings.seeds), 2, width, DIM))
        losses = [riccati_course(cross, v, u, early).loss for v, u in drawn]
        first.append([_drops(early, loss, levels("equal"))[0] for loss in losses])
    outer, inner = scale * rng.normal(size=(2, settings.units, DIM))
    loss = riccati_course(cross, outer, inner, times).loss
    return xr.Dataset(
        {"loss": ("time", loss), "first": (("width", "seed"), first)},
        {"time": times, "width": widths, "seed": list(settings.seeds)},
    )


def _descended(models: list[DeepLinear], loss: Any, until: float) -> xr.Dataset:
    """Gradient descent at a rate so small that its times are those of the flow to a thousandth."""
    every = max(1, round(until / (2 * RATE * POINTS)))
    record = Record(every=every, snapshots=2, observe={"sizes": singular_values})
    steps = every * POINTS
    return descend(Ensemble.of(models), loss, rate=RATE, steps=steps, record=record, progress=False)


def _model(units: int, scale: float, seed: int) -> DeepLinear:
    return DeepLinear.random(dim=DIM, units=units, scale=scale, key=jax.random.key(seed))


def _first(settings: Settings, units: int, spectrum: str, scales: tuple[float, ...]) -> Float[np.ndarray, "scale seed"]:
    """The predicted time of the first drop from each scale, for every seed, of its initial weights alone."""
    models = [_model(units, 1.0, seed) for seed in settings.seeds]
    layers = [np.stack([np.asarray(getattr(one, name)) for one in models]) for name in ("first", "second", "third")]
    s = strengths(spectrum)
    return blow_up(layers, np.diag(s)) / np.array(scales)[:, None] + after_blow_up(s[0])


def _drops(
    times: Float[np.ndarray, " time"], loss: Float[np.ndarray, " time"], levels: Float[np.ndarray, " level"]
) -> list[float]:
    """When the loss is midway between successive levels."""
    return [passage_time(times, loss, (high + low) / 2) for high, low in zip(levels, levels[1:], strict=False)]


def _ranks(
    times: Float[np.ndarray, " time"], loss: Float[np.ndarray, " time"], sizes: Float[np.ndarray, "time mode"]
) -> Float[np.ndarray, " plateau"]:
    """The rank of the map where the loss falls most slowly on each plateau; nan for those that are not there."""
    slopes, made = np.gradient(loss, times), np.full(DIM + 1, np.nan)
    for number, plateau in enumerate(staircase(times, loss).plateaus[: DIM + 1]):
        on = np.flatnonzero((times >= plateau.start) & (times <= plateau.end))
        made[number] = np.sum(sizes[on[np.argmax(slopes[on])]] > LEARNED)
    return made


def claims(data: Data, settings: Settings) -> list[Claim]:
    run, wide = data["courses"], data["widths"]
    small, large, widest = min(settings.scales), max(settings.scales), max(settings.widths)
    few = "" if len(settings.seeds) >= SEVERAL else f"a median needs {SEVERAL} seeds"
    same = few or ("" if widest > settings.units else "the widest has no more units than the others")
    alike = few or ("" if small < large else "an exponent needs two scales")
    orders = (run["rank"] == run["plateau"]).all("plateau")
    between = np.isfinite(run["rank"]).sum("plateau") - 2
    waits = run["drop"].sel(spectrum="equal", drop=True).diff("mode").median("seed", skipna=False)
    power: Any = np.log(waits.sel(scale=small, drop=True) / waits.sel(scale=large, drop=True))
    narrow: Any = run["drop"].sel(spectrum="equal", scale=small, mode=1)
    ratio = float(narrow.median(skipna=False)) / float(wide["drop"].sel(width=widest).median(skipna=False))
    ours = Origin("theory", "docs/theory/units.md: three linear layers", explored=True)
    section = Origin("paper", "Section 7", explored=True)
    return [
        Origin("paper", "Fig 5 (A)", explored=True).fraction(
            "one-rank",
            "Three layers, singular values in proportion to 1, 1/2, 1/3: on successive plateaus the map has the ranks "
            "0, 1, 2 and 3: fraction of runs",
            holds=orders.sel(spectrum="unequal"),
            required=0.95,
            basis="two directions may grow together by chance",
            counted="runs",
        ),
        ours.fraction(
            "one-rank-equal",
            "If singular values are equal, too, from the smallest scale: fraction of seeds",
            holds=orders.sel(spectrum="equal", scale=small),
            required=0.75,
            basis="two directions grow together more often; in 1 of 24 other seeds",
        ),
        section.at_most(
            "equal-singular-values",
            "A network that is linear in the weights of a unit has no plateau on the way if singular values are equal: "
            "plateaus between the first and the last, from the smallest scale",
            measured=between.sel(spectrum="equal", scale=small),
            basis="an integer",
            known=Known("three layers race as attention does, from their initial weights", HEADING),
        ),
        section.close(
            "width",
            "Width has little effect on a network that is linear in the weights of a unit: time of the first drop of "
            f"{settings.units} units over that of {widest}, medians over seeds",
            predicted=1.0,
            measured=ratio,
            tolerance=LITTLE,
            basis="what two layers do at this scale is less",
            known=Known("the middle layer has the norm 2ε√H, and times are as one over it", HEADING),
            unless=same,
        ),
        ours.close(
            "waits",
            "Plateaus last as long as one over the initial scale, with equal singular values: exponent of the time "
            "between drops, medians over seeds",
            predicted=-1.0,
            measured=power / np.log(small / large) if not alike else [],
            tolerance=EXPONENT,
            basis="the duration of a drop; a tenth of it on other seeds",
            counted="plateaus",
            unless=alike,
        ),
        ours.close(
            "first-drop",
            "The first drop comes T/ε after the start, with T the time in which weights of size one become infinite in "
            "the field of zero, and a constant from the equation of one mode: relative difference",
            measured=run["drop"].sel(mode=1, drop=True) / run["first"] - 1,
            tolerance=np.broadcast_to(LATE * run["scale"].values[:, None], run["first"].shape).ravel(),
            required=0.95,
            basis=f"{LATE:g} ε, the next order and the steps of descent, unless two directions grow together",
            counted="runs",
        ),
        ours.close(
            "first-drop-of-wide",
            "So it does in wider networks",
            measured=wide["drop"] / wide["first"] - 1,
            tolerance=np.repeat(LATE * small * np.sqrt(wide["width"].values / 10), wide.sizes["seed"]),
            required=0.95,
            basis=f"{LATE:g} ε √(H/10), as the middle layer has the norm 2ε√H",
            counted="runs",
        ),
        ours.close(
            "width-law",
            "At one scale it comes as 1/√H: exponent of its time in the number of units, medians over seeds",
            predicted=-0.5,
            measured=-np.log(ratio) / np.log(widest / settings.units) if not same else np.nan,
            tolerance=WIDTH,
            basis="logarithms of the width; 0.02 on other seeds",
            unless=same,
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    run, wide, two = data["courses"], data["widths"], data["shallow"]
    with styled():
        figure = new_figure(14.0, 3.9)
        unequal, equal, sizes, widths = figure.subplots(1, 4)
        _draw_losses(unequal, run.sel(spectrum="unequal"), levels("unequal"))
        unequal.set_title("(a) Singular values 1 : ½ : ⅓")
        _draw_losses(equal, run.sel(spectrum="equal"), levels("equal"))
        scale = min(settings.scales)
        equal.plot(scale * two["time"], two["loss"], color=GRAY, linewidth=1.5, label="two layers, predicted")
        equal.set_title("(b) Equal singular values")
        figure.legend(*equal.get_legend_handles_labels(), loc="outside upper center", ncols=5)
        _draw_sizes(sizes, run.sel(spectrum="equal").sel(scale=scale).isel(seed=0))
        _draw_widths(widths, run["drop"].sel(spectrum="equal", scale=scale, mode=1), wide, two, settings)
    return figure


def _draw_losses(axes: Axes, run: xr.Dataset, levels: Float[np.ndarray, " level"]) -> None:
    """Of the first seeds at the smallest scale, and of one of them at the largest."""
    small, large = float(run["scale"].min()), float(run["scale"].max())
    for number, color in zip(range(min(3, run.sizes["seed"])), (BLUE, VERMILION, GREEN), strict=False):
        one = run.isel(seed=number)
        label = f"three layers, seed {int(one['seed'])}" if not number else f"seed {int(one['seed'])}"
        axes.plot(small * run["time"], one["loss"].sel(scale=small), color=color, linewidth=1.5, label=label)
    if large > small:
        name = f"seed {int(run['seed'][0])}, ε = {large:g}"
        axes.plot(
            large * run["time"], run["loss"].isel(seed=0).sel(scale=large), "--", color=BLACK, linewidth=1.0, label=name
        )
    for level in levels:
        axes.axhline(level, color=BLACK, linestyle=":", linewidth=0.8)
    end = small * float(run["drop"].sel(scale=small).isel(seed=slice(3)).max())
    axes.set(
        xlim=(0, 1.15 * end if np.isfinite(end) else None), xlabel="time times ε, $\\epsilon t/\\tau$", ylabel="loss"
    )


def _draw_sizes(axes: Axes, one: xr.Dataset) -> None:
    scale = float(one["scale"])
    for mode, color in zip(one["mode"].values, (BLUE, SKY, PURPLE), strict=True):
        label = ("largest", "second", "third")[mode - 1]
        axes.plot(scale * one["time"], one["sizes"].sel(mode=mode), color=color, label=label)
    axes.axhline(1 / DIM, color=BLACK, linestyle=":", linewidth=0.8, label="of the target")
    end = scale * float(one["drop"].max())
    axes.set(xlim=(0, 1.15 * end if np.isfinite(end) else None), xlabel="time times ε, $\\epsilon t/\\tau$")
    axes.set(ylabel="singular values of the map", title=f"(c) Seed {int(one['seed'])} of (b)")
    axes.legend(loc="center left", fontsize=8)


def _draw_widths(axes: Axes, narrow: xr.DataArray, wide: xr.Dataset, two: xr.Dataset, settings: Settings) -> None:
    widths = np.array([settings.units, *settings.widths], float)
    drops = np.vstack([narrow.values[None], wide["drop"].values])
    for width, row in zip(widths, drops, strict=True):
        axes.loglog(np.full(row.size, width), row, "o", color=BLUE, markersize=3.5, alpha=0.6)
    middle = np.median(drops, axis=1)
    axes.plot([], [], "o", color=BLUE, markersize=3.5, label="three layers, each seed")
    axes.loglog(widths, middle[0] * np.sqrt(widths[0] / widths), color=BLUE, linewidth=1.0, label="slope −½")
    axes.loglog(widths, two["first"].median("seed"), "s-", color=GRAY, markersize=4, label="two layers, predicted")
    axes.set_xticks(widths, [f"{width:g}" for width in widths])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="units H", ylabel="time of the first drop, $t/\\tau$", title="(d) Width")
    axes.legend(loc="center", fontsize=8)


FIGURE = Figure(
    title="Three linear layers learn one rank after another, but not in the time of two layers",
    caption=(
        "Linear networks of three layers, of ten units each, trained on white inputs and three "
        "outputs. (a) Loss of three seeds from ε = 0.002, against time times ε, with singular values in proportion to "
        "1, 1/2, 1/3; dotted: the losses of the best maps of rank 0 to 3. Dashed: one of them from ε = 0.01; plateaus "
        "last as 1/ε. (b) With equal singular values there are plateaus, too; two "
        "layers (gray, closed form) have none. (c) The singular values of the map of one seed of (b): one rank after "
        "another. (d) The time of the first drop from ε = 0.002 for networks of H units, each seed a point: it falls "
        "as 1/√H, and by a logarithm in two layers."
    ),
    source="Fig 5 (A), Section 7",
    settings=Settings(),
    quick=Settings(seeds=tuple(range(700, 704)), widths=(60,), scales=(1e-2, 4e-3)),
    seeds=Seeds(explored="0 to 23", fixed="on these, before the others were drawn"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
