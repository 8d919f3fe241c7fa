"""Figs 4 and 12: separate attention of rank R waits where R divides the number of components learned.

**As published**: the initialization, rate and number of steps of the figures, but on infinitely many sequences, six
seeds. After 20 001 steps most runs are still on a plateau, as in the paper.

**Ours**: many seeds, from the same initialization and from smaller ones, by gradient flow to convergence, and how long
each waits on each plateau, against `_low_rank_theory`: from there comes what counts as conspicuous. Random heads are
unequal, and a wait is the gap between one head and the next, so that now and then a head is ready early: this holds in
the middle of the seeds, and in all the better the smaller the initialization.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from stepwell.analysis import passage_time
from stepwell.analysis.style import BLACK, BLUE, GRAY, PALETTE, VERMILION, new_figure, styled
from stepwell.dynamics import Ensemble, Record, descend, flow, rate_for
from stepwell.figures import Claim, Data, Figure, Origin
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._low_rank_theory import DIM, LANES, Settings, describe, heads_of, longest_pair, paper_settings, predict, race

CAPTION = (
    "Separate attention of rank R. Above, the loss at the published initialization, rate and number of steps (init "
    "0.005, rate 0.02, 20,001 steps), six seeds, on infinitely many sequences where the paper has 80,000. Dashed "
    "lines are the predicted levels L(M_m) with m components learned, black where R divides m: there a fresh head has "
    "to grow from its small initialization, which is slow (hyperbolic); elsewhere a head that has grown already takes "
    "up a further pair, which is fast (exponential). Most runs have not ended: the plateaus are that long. Below, "
    "ours: the same initialization carried to convergence by gradient flow in {seeds} seeds, and how long each waits "
    "on each plateau, in units of the escape rate ρ_m = λ_{{m+1}}². Dots are seeds. Where R divides m (shaded) the "
    "bars span 80 % of what a race of random heads predicts, with its median; elsewhere the ticks are the predicted "
    "wait for a further pair. Dashed, the threshold from which a plateau counts as conspicuous, the geometric mean of "
    "the two laws. A wait for a fresh head is the gap between two random heads, so some are short. Last, how often "
    "that is so, with smaller and smaller initialization, at rank {first}: simulated (bars: one standard error) and "
    "predicted."
)


SCHEDULED = 4
"""Up to this rank the schedule is computed from the initial weights; beyond, it takes longer than the runs."""
RECORD = 4
FINE = 40
"""Drops from small initial weights are shorter beside their times, and need finer ones."""
SMALL = 2
"""The decade at which the race, a limit, is compared with the schedule."""


def simulate(settings: Settings) -> Data:
    drops = measure(settings)
    return {
        "theory": predict(settings),
        "published": train(settings),
        "drops": drops,
        "smaller": measure_smaller(drops.isel(rank=0), settings),
        "schedule": schedule(settings),
        "small_schedule": compare_small(settings),
    }


def train(settings: Settings) -> xr.Dataset:
    """Descent as published, all seeds of a rank as one program. Losses only."""
    runs = []
    for rank in settings.ranks:
        trajectory = descend(
            Ensemble.of(settings.initial_models(rank, settings.shown_seeds)),
            Population(settings.task),
            rate=rate_for(settings.step, 1),
            steps=settings.steps,
            record=Record(every=RECORD, snapshots=2),
            progress=False,
        )
        runs.append(trajectory[["loss"]])
    joined: Any = xr.concat(runs, dim=xr.Variable("rank", list(settings.ranks)), combine_attrs="drop_conflicts")
    return joined


def measure(settings: Settings) -> xr.Dataset:
    """`drop_time`, halfway down each drop, of all seeds and ranks, by gradient flow to the end."""
    models = [settings.initial_models(rank, settings.every_seed) for rank in settings.ranks]
    return _drops({"rank": settings.ranks}, [drop_times(settings.task, each, LANES) for each in models])


def measure_smaller(drops: xr.Dataset, settings: Settings) -> xr.Dataset:
    """The same for one rank, from smaller initial weights; `drops` are from the published one."""
    models = [
        settings.initial_models(settings.ranks[0], settings.every_seed, decade=decade) for decade in settings.decades
    ]
    smaller = [drop_times(settings.task, each, LANES, fine=FINE) for each in models]
    return _drops({"decade": (0, *settings.decades)}, [drops["drop_time"].values, *smaller])


def schedule(settings: Settings) -> xr.Dataset:
    """`drop_time` as the schedule has it from the initial weights, of the seeds drawn and ranks up to `SCHEDULED`."""
    low = tuple(rank for rank in settings.ranks if rank <= SCHEDULED)
    models = [settings.initial_models(rank, settings.shown_seeds) for rank in low]
    return _drops({"rank": low}, [_scheduled(settings.task, each) for each in models])


def compare_small(settings: Settings) -> xr.Dataset:
    """Waits for fresh heads from small initial weights, by the schedule and by the race, of the seeds drawn."""
    rank, gains = settings.ranks[0], theory.escape_rates(settings.task)
    models = settings.initial_models(rank, settings.shown_seeds, decade=SMALL)
    size, there = settings.size / 10**SMALL, settings.fresh(rank)
    weights = (np.stack(part) / size for part in zip(*map(_weights, models), strict=True))
    made = {
        "schedule": waits(_scheduled(settings.task, models), gains)[:, there],
        "race": race(gains, heads_of(*weights), rank) / size,
    }
    dims = ("run", "plateau")
    return xr.Dataset({key: (dims, values) for key, values in made.items()}, {"plateau": np.flatnonzero(there)})


def _weights(model: SeparateAttention) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """v, k and q of all heads."""
    return np.asarray(model.value)[:, 0, DIM], np.asarray(model.key)[:, :, :DIM], np.asarray(model.query)


def _scheduled(task: InContextRegression, models: Sequence[SeparateAttention]) -> Float[np.ndarray, "run drop"]:
    """Of every run the times of all drops; nan for those that do not come."""
    times = np.full((len(models), DIM), np.nan)
    for run, model in enumerate(models):
        drops = theory.drop_schedule(task, *_weights(model))
        times[run, : len(drops)] = [drop.time for drop in drops]
    return times


def _drops(first: dict[str, tuple[int, ...]], times: Sequence[np.ndarray]) -> xr.Dataset:
    whole = np.stack(times) if times else np.empty((0, 0, DIM))
    return xr.Dataset(
        {"drop_time": ((*first, "run", "plateau"), whole, {"units": TIME_UNIT})},
        {name: list(values) for name, values in first.items()},
    )


def waits(
    times: Float[np.ndarray, "*any plateau"], rates: Float[np.ndarray, " plateau"]
) -> Float[np.ndarray, "*any plateau"]:
    r"""$\rho_mT_m$ from the times of drops."""
    return np.diff(times, axis=-1, prepend=0.0) * rates


def verdicts(data: Data, settings: Settings) -> tuple[Float[np.ndarray, " decade"], Float[np.ndarray, " decade"], int]:
    """(simulated, predicted) fractions of plateaus with R | m that are not conspicuous, and of how many."""
    predicted, smaller = data["theory"], data["smaller"]
    rank = settings.ranks[0]
    each = waits(smaller["drop_time"].values, predicted["escape_rate"].values)[:, :, settings.fresh(rank)]
    scale = 10.0 ** -smaller["decade"].values
    there = predicted.sel(rank=rank).sel(scale=scale, method="nearest")
    simulated = np.mean(each < there["threshold"].values[:, None, None], axis=(1, 2))
    return simulated, there["wrong"].values, each[0].size


COARSE = 300
"""Save times of a first run, evenly in log time."""
GAP = 1e-4
"""A run has ended when so much of the fall is left."""
MARGIN = 5e-3
"""By so much of its time a drop may come earlier or later where tolerances are loose."""


def drop_times(
    task: InContextRegression, models: Sequence[SeparateAttention], lanes: int, *, fine: int = 20
) -> Float[np.ndarray, "run drop"]:
    """When each run on infinitely many sequences is halfway from one level to the next, `lanes` runs at a time; nan
    where it has not the heads for that.

    Drops of different runs come at different times, and each is short beside its own. So all run twice: first with save
    times evenly in log time, with loose tolerances, and then with `fine` save times in each interval where there was
    the middle of a drop.
    """
    levels = theory.levels(task)
    halfway = (levels[1:] + levels[:-1]) / 2
    parts = [models[first : first + lanes] for first in range(0, len(models), lanes)]
    return np.concatenate([_some_drop_times(task, part, halfway, fine) for part in parts])


def _some_drop_times(
    task: InContextRegression, models: Sequence[SeparateAttention], halfway: Float[np.ndarray, " drop"], fine: int
) -> Float[np.ndarray, "run drop"]:
    runs, options = Ensemble.of(list(models)), {"gap": GAP, "progress": False}
    coarse = flow(runs, Population(task), record=Record(points=COARSE, spacing="log"), rtol=1e-4, **options)
    times = coarse["time"].values
    passages = _passages(times, coarse["loss"].values, halfway)
    after = np.unique(np.searchsorted(times, passages[np.isfinite(passages)]))
    finer = [np.linspace(times[i - 1] * (1 - MARGIN), times[i] * (1 + MARGIN), fine) for i in after]
    end = 1.2 * float(times[-1])
    save = np.unique(np.concatenate([times, *finer, [end]]))
    accurate: dict[str, Any] = {"until": end, "record": Record(points=save), "rtol": 1e-6, "progress": False}
    losses = flow(runs, Population(task), **accurate)["loss"].values
    return _passages(save, losses, halfway)


def _passages(
    times: Float[np.ndarray, " time"], losses: Float[np.ndarray, "run time"], levels: Float[np.ndarray, " drop"]
) -> Float[np.ndarray, "run drop"]:
    return np.array([[passage_time(times, loss, level) for level in levels] for loss in losses])


MEDIAN_ERROR = (np.pi / 2) ** 0.5
"""The standard error of a median, of many, over that of a mean."""


def claims(data: Data, settings: Settings, *, source: str) -> list[Claim]:
    """`source` is the paper's figure."""
    predicted, ranks, first = data["theory"], settings.ranks, settings.ranks[0]
    fresh, further = settings.fresh, settings.further
    rates = predicted["escape_rate"].values
    scaled = {rank: waits(data["drops"]["drop_time"].sel(rank=rank).values, rates) for rank in ranks}
    thresholds = {rank: float(predicted["threshold"].sel(rank=rank).sel(scale=1.0, method="nearest")) for rank in ranks}
    paper: Origin = {"kind": "paper", "source": f"Section 5 and {source}", "explored": True}
    theoretical: Origin = {"kind": "theory", "source": "papers/linear/_low_rank_theory.py", "explored": True}
    threshold = "conspicuous: above the geometric mean of the two laws of escape, from theory alone"
    margins = [
        np.where(fresh(rank), middle / thresholds[rank], thresholds[rank] / middle)[fresh(rank) | further(rank)]
        for rank in ranks
        for middle in [np.median(scaled[rank], axis=0)]
    ]
    seeds = settings.seeds
    simulated, expected, plateaus = verdicts(data, settings)
    return [
        Claim.over(
            "middle-seed",
            f"In the median of {seeds} seeds plateau m is conspicuous exactly where R divides m: how many times its "
            "wait is above the threshold there, or below it elsewhere, one for each rank and m",
            predicted=1.0,
            measured=np.concatenate(margins),
            tolerance=0.0,
            basis=threshold,
            relation=">=",
            counted="plateaus",
            **paper,
        ),
        *(
            Claim.over(
                f"rank-{rank}-short-elsewhere",
                f"R = {rank}: no plateau is conspicuous where R does not divide m, in any seed: longest ρT",
                predicted=thresholds[rank],
                measured=scaled[rank][:, further(rank)].max(axis=1),
                tolerance=0.0,
                basis=threshold,
                relation="<=",
                **paper,
            )
            for rank in ranks
            if rank > 1
        ),
        Claim.over(
            "fresh-heads",
            "Waits for a fresh head are those of a race of random heads: place of a seed's wait among those of random "
            "initializations, from 0 to 1, in the mean over seeds, one for each rank and m that R divides",
            predicted=0.5,
            measured=np.concatenate([_places(scaled[rank], predicted.sel(rank=rank))[fresh(rank)] for rank in ranks]),
            tolerance=3 * np.sqrt((1 / seeds + 1 / predicted.sizes["draw"]) / 12),
            basis=f"three standard errors of a mean of {seeds} equally distributed places; random initializations",
            counted="plateaus",
            **theoretical,
        ),
        Claim.over(
            "further-pairs",
            "The median wait for a further pair is the predicted logarithm, ρT = (ℓ′ − ℓ g′/g)/v, one for each rank "
            "and m that R does not divide",
            predicted=np.concatenate([predicted["pair_wait"].sel(rank=rank)[further(rank)] for rank in ranks]),
            measured=np.concatenate([np.median(scaled[rank][:, further(rank)], axis=0) for rank in ranks]),
            tolerance=3
            * MEDIAN_ERROR
            * np.concatenate([predicted["pair_spread"].sel(rank=rank)[further(rank)] for rank in ranks])
            / seeds**0.5,
            basis=f"three standard errors of a median of {seeds} seeds; initial sizes of pairs are χ-distributed",
            counted="plateaus",
            **theoretical,
        ),
        Claim.over(
            "wrong-fraction",
            f"R = {first}: at initial scales a decade apart the fraction of plateaus that are not conspicuous though R "
            f"divides m is what the race of heads predicts, {_percent(expected)}: fraction of {plateaus}, one for each "
            "scale",
            predicted=expected,
            measured=simulated,
            tolerance=3 * np.sqrt(expected * (1 - expected) / plateaus) + 0.5 / plateaus,
            basis="three binomial standard errors of what is predicted; half a count",
            counted="scales",
            **theoretical,
        ),
        _race_claim(data["small_schedule"], settings),
        _first_drop_claim(data, settings),
    ]


def _places(each: Float[np.ndarray, "run plateau"], predicted: xr.Dataset) -> np.ndarray:
    return np.mean(predicted["fresh_wait"].values[:, None] < each, axis=(0, 1))


def _race_claim(small: xr.Dataset, settings: Settings) -> Claim:
    rank, size = settings.ranks[0], settings.size / 10**SMALL
    race_waits, scheduled = small["race"].values, small["schedule"].values
    return Claim.over(
        "race",
        f"R = {rank}, init 10⁻{SMALL} of the published: waits of the race are those of the schedule from the same "
        f"weights, which follows every drop: ρT, one for each m that R divides and each of {len(race_waits)} seeds",
        predicted=scheduled.ravel(),
        measured=race_waits.ravel(),
        tolerance=rank * longest_pair(settings.task, size) + 1e-3 * scheduled.ravel(),
        basis=f"the race leaves out {rank} drops, each at most the wait of a further pair; its steps are good to 10⁻³",
        counted="plateaus",
        kind="check",
        source="theory.linear.drop_schedule",
    )


def _first_drop_claim(data: Data, settings: Settings) -> Claim:
    """Of the drops that are to come before the end of training."""
    published, scheduled, levels = data["published"], data["schedule"], data["theory"]["level"].values
    time, ranks = published["time"].values, [int(rank) for rank in scheduled["rank"]]
    halfway = (levels[0] + levels[1]) / 2
    logarithm = np.log(theory.aligned_end(settings.task, 0) * (2 * (DIM + 1)) ** 0.5 / settings.size)
    expected, tolerance = scheduled["drop_time"].values[:, :, 0].ravel(), settings.step * logarithm
    measured = np.array(
        [passage_time(time, loss, halfway) for rank in ranks for loss in published["loss"].sel(rank=rank).values]
    )
    in_time = expected < time[-1] - tolerance
    return Claim.over(
        "first-drop",
        f"Trained as published, R = {', '.join(map(str, ranks))}, the first drop comes when the schedule from the "
        "initial weights says: time t/τ of half the drop, one for each rank and seed",
        predicted=expected[in_time],
        measured=measured[in_time],
        tolerance=tolerance,
        basis="descent in steps h is later than the flow by up to h ℓ, ℓ the logarithm of the growth",
        counted="runs",
        kind="theory",
        source="theory.linear.drop_schedule",
    )


def _percent(fractions: np.ndarray) -> str:
    return ", ".join(f"{100 * fraction:.2g} %" for fraction in fractions)


LIGHT = "#B0B0B0"
SHADE = "#E3EAF2"


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    predicted, ranks = data["theory"], settings.ranks
    with styled():
        figure = new_figure(13.2, 7.6)
        halves: Any = figure.subfigures(2, 1, height_ratios=(3, 2.2))
        upper, lower = halves
        above = upper.subplots(1, len(ranks), sharey=True, squeeze=False)[0]
        *below, last = lower.subplots(1, len(ranks) + 1, width_ratios=[*(len(ranks) * [1.0]), 1.15])
        for place, rank in enumerate(ranks):
            _losses(above[place], rank, data["published"].sel(rank=rank), predicted["level"].values, settings.steps)
            times = data["drops"]["drop_time"].sel(rank=rank).values
            each, fresh = waits(times, predicted["escape_rate"].values), settings.fresh(rank)
            _waits(below[place], rank, each, predicted.sel(rank=rank), fresh)
        for axes in below[1:]:
            axes.set_yticklabels([])
        above[0].set_ylabel("loss (mean squared error)")
        below[0].set_ylabel("wait $\\rho_m T_m$")
        _fractions(last, data, settings)
        handles, words = below[0].get_legend_handles_labels()
        more, others = below[-1].get_legend_handles_labels()
        unseen = [(handle, word) for handle, word in zip(more, others, strict=True) if word not in words]
        handles, words = [*handles, *(h for h, _ in unseen)], [*words, *(w for _, w in unseen)]
        lower.legend(handles, words, loc="outside lower left", ncols=3, fontsize=8.5)
    return figure


def _losses(axes: Axes, rank: int, runs: xr.Dataset, levels: Float[np.ndarray, " component"], steps: int) -> None:
    for m, level in enumerate(levels):
        waiting = m % rank == 0 and m < DIM
        style: dict[str, Any] = {"color": BLACK, "linewidth": 1.1} if waiting else {"color": LIGHT, "linewidth": 0.8}
        axes.axhline(level, linestyle="--", zorder=0, **style)
        if waiting or m == DIM:
            words = f"$m={m}$" if waiting else "end"
            place: dict[str, Any] = {"textcoords": "offset points", "annotation_clip": False, "va": "center"}
            axes.annotate(words, (steps, level), xytext=(3, 0 if waiting else -3), fontsize=7.5, **place)
    for run, loss in enumerate(runs["loss"].values):
        axes.plot(runs["step"].values, loss, color=PALETTE[run % len(PALETTE)], linewidth=1.5)
    axes.set_xlim(0, steps)
    axes.set_ylim(0.15, 1.04)
    ticks = (0, steps // 2, steps)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xlabel("training step")
    axes.set_title(f"R = {rank}")


def _waits(
    axes: Axes, rank: int, each: Float[np.ndarray, "run plateau"], predicted: xr.Dataset, fresh: np.ndarray
) -> None:
    low, middle, high = np.quantile(predicted["fresh_wait"].values, (0.1, 0.5, 0.9), axis=0)
    pairs = predicted["pair_wait"].values
    spread = np.linspace(-0.28, 0.28, len(each)) if len(each) > 1 else np.zeros(1)
    for m in range(DIM):
        if fresh[m]:
            axes.axvspan(m - 0.5, m + 0.5, color=SHADE, zorder=0, linewidth=0, label="R divides m" if m == 0 else None)
            words = "predicted, a fresh head: median and 80 % of random initializations" if m == 0 else None
            span = [[middle[m] - low[m]], [high[m] - middle[m]]]
            axes.errorbar([m], [middle[m]], yerr=span, fmt="_", color=VERMILION, markersize=14, zorder=3, label=words)
        else:
            words = "predicted, a further pair" if m == rank - 1 else None
            axes.plot([m], [pairs[m]], "_", color=BLACK, markersize=14, markeredgewidth=1.5, zorder=3, label=words)
        words = f"simulated, {len(each)} seeds" if m == 0 else None
        axes.plot(m + spread, np.sort(each[:, m]), "o", color=BLUE, markersize=2.4, zorder=2, label=words)
    limit = float(predicted["threshold"].sel(scale=1.0, method="nearest"))
    axes.axhline(limit, color=GRAY, linestyle="--", linewidth=1.2, zorder=1, label="conspicuous from here")
    axes.set_yscale("log")
    axes.set_ylim(0.2, 400)
    axes.set_xlim(-0.5, DIM - 0.5)
    axes.set_xticks(range(DIM))
    axes.set_xlabel("components learned, $m$")
    axes.set_title(f"R = {rank}", fontsize=9.5)


def _fractions(axes: Axes, data: Data, settings: Settings) -> None:
    simulated, _, count = verdicts(data, settings)
    smaller, rank = data["smaller"], settings.ranks[0]
    theory = data["theory"].sel(rank=rank)
    axes.plot(settings.init * theory["scale"], 100 * theory["wrong"], color=VERMILION, label="predicted")
    errors = 100 * np.sqrt(np.maximum(simulated * (1 - simulated), 0.5 / count) / count)
    inits = settings.init / 10.0 ** smaller["decade"].values
    axes.errorbar(inits, 100 * simulated, yerr=errors, fmt="o", color=BLUE, markersize=4, label="simulated")
    axes.set_xscale("log")
    axes.set_ylim(0, None)
    axes.set_xlabel("init")
    axes.set_ylabel("short though R divides m (%)")
    axes.set_title(f"R = {rank}: smaller initialization", fontsize=9.5)
    axes.legend(loc="upper left", fontsize=8)


def low_rank_figure(source: str, *ranks: int) -> Figure[Settings]:
    """Separate attention of these ranks; `source` is the paper's figure."""
    settings, listed = Settings(ranks), ", ".join(map(str, ranks))
    return Figure(
        title=f"Attention of rank R = {listed} learns R components at a time, and waits for a fresh head in between",
        caption=CAPTION.format(seeds=settings.seeds, first=ranks[0]),
        source=source,
        settings=settings,
        quick=Settings(ranks, seeds=4, shown=1, decades=(2,), draws=60),
        described=describe,
        paper_settings=paper_settings(settings),
        simulate=simulate,
        claims=partial(claims, source=source),
        draw=draw,
    )
