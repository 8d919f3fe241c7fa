r"""Figs 4 and 12: separate attention of rank R waits where R divides the number of components learned.

**As published**: the initialization, rate and number of steps of the figures, but on infinitely many sequences, six
seeds. After 20 001 steps most runs are still on a plateau, as in the paper.

**Ours**: many seeds, from the same initialization and from smaller ones, by gradient flow to convergence, and how long
each waits on each plateau, against theory alone (`_low_rank_waits`): from there comes what counts as conspicuous.
Random heads are unequal, and a wait is the gap between one head and the next, so that now and then a head is ready
early: this holds in the middle of the seeds, and in all the better the smaller the initialization.

Time is measured in units of the escape rate, $\rho_mT_m$ with $\rho_m = \lambda_{m+1}^2$, and $T_m$ goes from the
middle of a drop to the middle of the next.

**What counts as conspicuous.** A plateau is conspicuous if $\rho_mT_m$ is above the geometric mean of two waits, for
the plateaus on which they are closest: the longest wait for a further pair (m = 1) and the shortest median wait for a
fresh head of that rank. It grows as $\sqrt{\ln(1/s)/s}$, waits for fresh heads as 1/s. So the probability that a
plateau with R | m is not conspicuous, $P(W_m < s\theta)$, falls about as $\sqrt{s\ln(1/s)}$: slowly, and never to
zero in every seed.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from stepwell.analysis import passage_time
from stepwell.analysis.style import BLACK, BLUE, GRAY, PALETTE, VERMILION, new_figure, styled
from stepwell.dynamics import Ensemble, Record, descend, flow, rate_for, time_factor, weight_factor
from stepwell.figures import Claim, Data, Figure, Origin, Seeds
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._drawing import lines, note
from ._low_rank_waits import DIM, further_pairs, heads_of, longest_pair, race, random_heads
from ._runs import along, flow_at, labeled, passages, weights_of

LANES = 8  # Runs of one program: as many as a vector of the widest processors holds.


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    ranks: tuple[int, ...]  # from smaller initial weights, runs are of the first alone
    context: int = 31
    heads: int = 9
    init: float = 5e-3
    """What the published command calls `--init`: the standard deviation of the values, where attention is not divided
    by N."""
    rate: float = 0.02
    steps: int = 20_000  # the published 20 001 losses have so many steps between them
    seeds: int = 24
    first_seed: int = 200
    shown: int = 6  # so many seeds are trained by descent, as published, and drawn
    decades: tuple[int, ...] = (1, 2, 3)  # of one rank, runs also begin from init/10, init/100, …
    draws: int = 300  # random initializations of which the waits are predicted

    @property
    def every_seed(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def shown_seeds(self) -> range:
        return self.every_seed[: self.shown]

    @cached_property
    def size(self) -> float:
        """`init` in the paper's convention, attention divided by N."""
        return self.init * weight_factor("none", "1/N", length=self.context, factors=SeparateAttention.factors)

    @cached_property
    def step(self) -> float:
        """The time t/τ of a published step, in the paper's convention."""
        return 2 * self.rate * time_factor("none", "1/N", length=self.context, factors=SeparateAttention.factors)

    @cached_property
    def task(self) -> InContextRegression:
        """Variances in proportion 1/d, trace 1. The initialization is isotropic, so the axes may be the
        eigenvectors."""
        spectrum = 1 / np.arange(1, DIM + 1)
        return InContextRegression(covariance(spectrum / spectrum.sum()), self.context)

    def fresh(self, rank: int) -> np.ndarray:
        """Whether a fresh head leads off each plateau m: where R divides m, as long as there are any."""
        m = np.arange(DIM)
        return (m % rank == 0) & (m < self.heads * rank)

    def further(self, rank: int) -> np.ndarray:
        """Whether a further pair of a head does."""
        m = np.arange(DIM)
        return (m % rank != 0) & (m < self.heads * rank)

    def left(self, rank: int) -> np.ndarray:
        """Whether either does: plateau m is left at all."""
        return self.fresh(rank) | self.further(rank)

    def initial_models(self, rank: int, seeds: Sequence[int], *, decade: int = 0) -> list[SeparateAttention]:
        """One for each seed, in the paper's convention; at a `decade` the same draw, smaller by powers of ten."""
        options: dict[str, Any] = {"dim": DIM, "heads": self.heads, "rank": rank, "init": "per-head"}
        scale = self.size / 10**decade
        return [SeparateAttention.random(**options, scale=scale, key=jax.random.key(seed)) for seed in seeds]


def describe(settings: Settings) -> dict[str, Any]:
    return {
        **paper_settings(settings),
        "initial weights": _initial_weights(settings),
        "data": "infinitely many sequences",
        "seeds": f"{settings.shown} of them drawn above, {settings.seeds} below, from {settings.first_seed} on",
        **{name: getattr(settings, name) for name in ("first_seed", "decades", "draws")},
    }


def paper_settings(settings: Settings) -> dict[str, Any]:
    """Of the paper's figure, where these settings are."""
    return {
        "dimension D": DIM,
        "context length N": settings.context,
        "heads H": settings.heads,
        "eigenvalues of the covariance": "in proportion 1, 1/2, …, 1/8, trace 1",
        "initial weights": f"{_initial_weights(settings)} (the scheme is inferred from the date of the published "
        "commands)",
        "data": "80,000 sequences",
        "training": f"{settings.steps + 1:,} recorded losses, rate {settings.rate:g}, attention not divided by N",
        "seeds": 6,
        "ranks R": list(settings.ranks),
    }


def _initial_weights(settings: Settings) -> str:
    return f"init {settings.init:g}: values with that standard deviation, keys and queries with init/√(R(D+1))"


def predict(settings: Settings) -> xr.Dataset:
    """Levels, rates, both laws of waiting; at parts of the published init thresholds, and how often a plateau with
    R | m is not conspicuous."""
    task, size, ranks = settings.task, settings.size, settings.ranks
    gains = theory.escape_rates(task)
    smallest, largest = max(3, *settings.decades), min(0, *settings.decades)
    scales = np.geomspace(10.0**-smallest, 10.0**-largest, 10 * (smallest - largest) + 1)
    sizes = size * scales
    longest = np.array([longest_pair(task, each) for each in sizes])
    waits = np.full((len(ranks), settings.draws, DIM), np.nan)
    pairs = [further_pairs(task, rank, size) for rank in ranks]
    thresholds, wrong = np.empty((2, len(ranks), scales.size))
    for place, rank in enumerate(ranks):
        scaled = race(gains, random_heads(rank, settings.draws, dim=DIM, heads=settings.heads), rank)
        waits[place][:, settings.fresh(rank)] = scaled / size
        thresholds[place] = np.sqrt(longest * np.median(scaled, axis=0).min() / sizes)
        wrong[place] = [np.mean(scaled < s * limit) for s, limit in zip(sizes, thresholds[place], strict=True)]
    return xr.Dataset(
        {
            "level": ("component", theory.levels(task)),
            "escape_rate": ("plateau", gains),
            "fresh_wait": (("rank", "draw", "plateau"), waits),
            "pair_wait": (("rank", "plateau"), [pair.wait for pair in pairs]),
            "pair_spread": (("rank", "plateau"), [pair.spread for pair in pairs]),
            "threshold": (("rank", "scale"), thresholds),
            "wrong": (("rank", "scale"), wrong),
        },
        {"rank": list(ranks), "scale": scales, "plateau": np.arange(DIM)},
    )


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
FINE = 40  # drops from small initial weights are shorter beside their times, and need finer ones
SMALL = 2  # the decade at which the race, a limit, is compared with the schedule


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
    options: Any = {"rate": rate_for(settings.step, 1), "steps": settings.steps, "progress": False}
    record, objective = Record(every=RECORD, snapshots=2), Population(settings.task)
    models = [Ensemble.of(settings.initial_models(rank, settings.shown_seeds)) for rank in settings.ranks]
    return along((descend(each, objective, record=record, **options)[["loss"]] for each in models), rank=settings.ranks)


def measure(settings: Settings) -> xr.Dataset:
    """`drop_time`, halfway down each drop, of all seeds and ranks, by gradient flow to the end."""
    models = [settings.initial_models(rank, settings.every_seed) for rank in settings.ranks]
    return _drops("rank", settings.ranks, [drop_times(settings.task, each, LANES) for each in models])


def measure_smaller(drops: xr.Dataset, settings: Settings) -> xr.Dataset:
    """The same for one rank, from smaller initial weights; `drops` are from the published one."""
    rank, seeds = settings.ranks[0], settings.every_seed
    models = [settings.initial_models(rank, seeds, decade=decade) for decade in settings.decades]
    smaller = [drop_times(settings.task, each, LANES, fine=FINE) for each in models]
    return _drops("decade", (0, *settings.decades), [drops["drop_time"].values, *smaller])


def schedule(settings: Settings) -> xr.Dataset:
    """`drop_time` as the schedule has it from the initial weights, of the seeds drawn and ranks up to `SCHEDULED`."""
    low = tuple(rank for rank in settings.ranks if rank <= SCHEDULED)
    models = [settings.initial_models(rank, settings.shown_seeds) for rank in low]
    return _drops("rank", low, [_scheduled(settings.task, each) for each in models])


def _scheduled(task: InContextRegression, models: list[SeparateAttention]) -> Float[np.ndarray, "run drop"]:
    return theory.drop_schedule(task, Ensemble.of(models), trials=0).times


def compare_small(settings: Settings) -> xr.Dataset:
    """Waits for fresh heads from small initial weights, by the schedule and by the race, of the seeds drawn."""
    rank, gains = settings.ranks[0], theory.escape_rates(settings.task)
    models = settings.initial_models(rank, settings.shown_seeds, decade=SMALL)
    size, there = settings.size / 10**SMALL, settings.fresh(rank)
    weights = (np.stack(part) / size for part in zip(*map(weights_of, models), strict=True))
    by_race, dims = race(gains, heads_of(*weights), rank) / size, ("run", "plateau")
    by_schedule = waits(_scheduled(settings.task, models), gains)[:, there]
    return xr.Dataset({"schedule": (dims, by_schedule), "race": (dims, by_race)}, {"plateau": np.flatnonzero(there)})


def _drops(first: str, values: Sequence[int], times: Sequence[np.ndarray]) -> xr.Dataset:
    whole = np.stack(times) if times else np.empty((0, 0, DIM))
    return xr.Dataset({"drop_time": ((first, "run", "plateau"), whole, {"units": TIME_UNIT})}, {first: list(values)})


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


COARSE = 300  # save times of a first run, evenly in log time
GAP = 1e-4  # a run has ended when so much of the fall is left
MARGIN = 5e-3  # by so much of its time a drop may come earlier or later where tolerances are loose


def drop_times(
    task: InContextRegression, models: Sequence[SeparateAttention], lanes: int, *, fine: int = 20
) -> Float[np.ndarray, "run drop"]:
    """When each run on infinitely many sequences is halfway from one level to the next, `lanes` runs at a time; nan
    where it has not the heads for that.

    All run twice: with save times evenly in log time and loose tolerances, and then with `fine` save times about each
    middle of a drop.
    """
    levels = theory.levels(task)
    halfway = (levels[1:] + levels[:-1]) / 2
    parts = [models[first : first + lanes] for first in range(0, len(models), lanes)]
    return np.concatenate([_some_drop_times(task, part, halfway, fine) for part in parts])


def _some_drop_times(
    task: InContextRegression, models: Sequence[SeparateAttention], halfway: Float[np.ndarray, " drop"], fine: int
) -> Float[np.ndarray, "run drop"]:
    runs, record = Ensemble.of(list(models)), Record(points=COARSE, spacing="log")
    coarse = flow(runs, Population(task), record=record, rtol=1e-4, gap=GAP, progress=False)
    times = coarse["time"].values
    passed = passages(times, coarse["loss"].values, halfway)
    after = np.unique(np.searchsorted(times, passed[np.isfinite(passed)]))
    finer = [np.linspace(times[i - 1] * (1 - MARGIN), times[i] * (1 + MARGIN), fine) for i in after]
    save = np.unique(np.concatenate([times, *finer, [1.2 * float(times[-1])]]))
    return passages(save, flow_at(runs, Population(task), save, rtol=1e-6)["loss"].values, halfway)


MEDIAN_ERROR = (np.pi / 2) ** 0.5  # the standard error of a median, of many, over that of a mean


def claims(data: Data, settings: Settings, *, source: str) -> list[Claim]:
    """`source` is the paper's figure."""
    predicted, ranks, first = data["theory"], settings.ranks, settings.ranks[0]
    fresh, further = settings.fresh, settings.further
    rates = predicted["escape_rate"].values
    scaled = {rank: waits(data["drops"]["drop_time"].sel(rank=rank).values, rates) for rank in ranks}
    thresholds = {rank: float(predicted["threshold"].sel(rank=rank).sel(scale=1.0, method="nearest")) for rank in ranks}
    paper = Origin("paper", f"Section 5 and {source}", explored=True)
    theoretical = Origin("theory", "papers/linear/_low_rank_waits.py", explored=True)
    threshold = "conspicuous: above the geometric mean of the two laws of escape, from theory alone"
    margins, places, pair_waits, spreads, middles = [], [], [], [], []
    for rank in ranks:
        of_rank, middle, limit = predicted.sel(rank=rank), np.median(scaled[rank], axis=0), thresholds[rank]
        margins.append(np.where(fresh(rank), middle / limit, limit / middle)[settings.left(rank)])
        places.append(np.mean(of_rank["fresh_wait"].values[:, None] < scaled[rank], axis=(0, 1))[fresh(rank)])
        for made, values in ((pair_waits, of_rank["pair_wait"]), (spreads, of_rank["pair_spread"]), (middles, middle)):
            made.append(values[further(rank)])
    seeds = settings.seeds
    few = "" if seeds > 2 else "a median needs three seeds"
    simulated, expected, plateaus = verdicts(data, settings)
    percent = ", ".join(f"{100 * fraction:.2g} %" for fraction in expected)
    return [
        paper.at_least(
            "middle-seed",
            f"In the median of {seeds} seeds plateau m is conspicuous exactly where R divides m: how many times its "
            "wait is above the threshold there, or below it elsewhere, one for each rank and m",
            predicted=1.0,
            measured=np.concatenate(margins),
            labels=_places(ranks, settings.left),
            basis=threshold,
            counted="plateaus",
            unless=few,
        ),
        *(
            paper.at_most(
                f"rank-{rank}-short-elsewhere",
                f"R = {rank}: no plateau is conspicuous where R does not divide m, in any seed: longest ρT",
                predicted=thresholds[rank],
                measured=labeled(scaled[rank][:, further(rank)].max(axis=1), seed=settings.every_seed),
                basis=threshold,
            )
            for rank in ranks
            if rank > 1
        ),
        theoretical.close(
            "fresh-heads",
            "Waits for a fresh head are those of a race of random heads: place of a seed's wait among those of random "
            "initializations, from 0 to 1, in the mean over seeds, one for each rank and m that R divides",
            predicted=0.5,
            measured=np.concatenate(places),
            labels=_places(ranks, fresh),
            tolerance=3 * np.sqrt((1 / seeds + 1 / predicted.sizes["draw"]) / 12),
            basis=f"three standard errors of a mean of {seeds} equally distributed places; random initializations",
            counted="plateaus",
        ),
        theoretical.close(
            "further-pairs",
            "The median wait for a further pair is the predicted logarithm, ρT = (ℓ′ − ℓ g′/g)/v, one for each rank "
            "and m that R does not divide",
            predicted=np.concatenate(pair_waits),
            measured=np.concatenate(middles),
            labels=_places(ranks, further),
            tolerance=3 * MEDIAN_ERROR * np.concatenate(spreads) / seeds**0.5,
            basis=f"three standard errors of a median of {seeds} seeds; initial sizes of pairs are χ-distributed",
            counted="plateaus",
            unless=few,
        ),
        theoretical.close(
            "wrong-fraction",
            f"R = {first}: at initial scales a decade apart the fraction of plateaus that are not conspicuous though "
            f"R divides m is what the race of heads predicts, {percent}: fraction of {plateaus}, one for each scale",
            predicted=expected,
            measured=labeled(simulated, init=settings.init * 10.0 ** -data["smaller"]["decade"].values),
            tolerance=3 * np.sqrt(expected * (1 - expected) / plateaus) + 0.5 / plateaus,
            basis="three binomial standard errors of what is predicted; half a count",
            counted="scales",
        ),
        _race_claim(data["small_schedule"], settings),
        _first_drop_claim(data, settings),
    ]


def _places(ranks: Sequence[int], which: Callable[[int], np.ndarray]) -> list[str]:
    """The plateaus m of each rank that `which` has, in words."""
    return [f"R = {rank}, m = {m}" for rank in ranks for m in np.flatnonzero(which(rank))]


def _race_claim(small: xr.Dataset, settings: Settings) -> Claim:
    rank, size = settings.ranks[0], settings.size / 10**SMALL
    race_waits, scheduled = small["race"].values, small["schedule"].values
    return Origin("check", "theory.linear.drop_schedule").close(
        "race",
        f"R = {rank}, {10.0**-SMALL:g} of the published init: waits of the race are those of the schedule from the "
        f"same weights, which follows every drop: ρT, one for each m that R divides and each of {len(race_waits)} "
        "seeds",
        predicted=scheduled.ravel(),
        measured=labeled(race_waits, seed=settings.shown_seeds, plateau=small["plateau"].values),
        tolerance=rank * longest_pair(settings.task, size) + 1e-3 * scheduled.ravel(),
        basis=f"the race leaves out {rank} drops, each at most the wait of a further pair; its steps are good to 10⁻³",
        counted="plateaus",
    )


def _first_drop_claim(data: Data, settings: Settings) -> Claim:
    published, scheduled, levels = data["published"], data["schedule"], data["theory"]["level"].values
    time, ranks = published["time"].values, [int(rank) for rank in scheduled["rank"]]
    halfway = (levels[0] + levels[1]) / 2
    logarithm = np.log(theory.aligned_end(settings.task, 0) * (2 * (DIM + 1)) ** 0.5 / settings.size)
    expected, tolerance = scheduled["drop_time"].values[:, :, 0].ravel(), settings.step * logarithm
    losses = [loss for rank in ranks for loss in published["loss"].sel(rank=rank).values]
    measured = np.array([passage_time(time, loss, halfway) for loss in losses])
    in_time = expected < time[-1] - tolerance
    return Origin("theory", "theory.linear.drop_schedule").close(
        "first-drop",
        f"Trained as published, R = {', '.join(map(str, ranks))}, the first drop comes when the schedule from the "
        "initial weights says: time t/τ of half the drop, one for each rank and seed",
        predicted=expected[in_time],
        measured=labeled(measured, in_time, rank=ranks, seed=settings.shown_seeds),
        tolerance=tolerance,
        basis="descent in steps h is later than the flow by up to h ℓ, ℓ the logarithm of the growth",
        counted="runs",
    )


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
        handles = [zip(*axes.get_legend_handles_labels()[::-1], strict=True) for axes in (below[-1], below[0])]
        named = dict(itertools.chain(*handles[::-1]))
        lower.legend(named.values(), named.keys(), loc="outside lower left", ncols=3, fontsize=8.5)
    return figure


def _losses(axes: Axes, rank: int, runs: xr.Dataset, levels: Float[np.ndarray, " component"], steps: int) -> None:
    for m, level in enumerate(levels):
        waiting = m % rank == 0 and m < DIM
        style: dict[str, Any] = {"color": BLACK, "linewidth": 1.1} if waiting else {"color": LIGHT, "linewidth": 0.8}
        axes.axhline(level, linestyle="--", zorder=0, **style)
        if waiting or m == DIM:
            offset, place = (3, 0 if waiting else -3), {"annotation_clip": False, "va": "center"}
            note(axes, f"$m={m}$" if waiting else "end", (steps, level), offset, fontsize=7.5, **place)
    lines(axes, runs["step"], runs["loss"].values, colors=PALETTE, linewidth=1.5)
    axes.set(xlim=(0, steps), ylim=(0.15, 1.04), xlabel="training step", title=f"R = {rank}")
    ticks = (0, steps // 2, steps)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])


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
    axes.set(yscale="log", ylim=(0.2, 400), xlim=(-0.5, DIM - 0.5), xticks=range(DIM), xlabel="components learned, $m$")
    axes.set_title(f"R = {rank}", fontsize=9.5)


def _fractions(axes: Axes, data: Data, settings: Settings) -> None:
    simulated, _, count = verdicts(data, settings)
    smaller, rank = data["smaller"], settings.ranks[0]
    theory = data["theory"].sel(rank=rank)
    axes.plot(settings.init * theory["scale"], 100 * theory["wrong"], color=VERMILION, label="predicted")
    errors = 100 * np.sqrt(np.maximum(simulated * (1 - simulated), 0.5 / count) / count)
    inits = settings.init / 10.0 ** smaller["decade"].values
    axes.errorbar(inits, 100 * simulated, yerr=errors, fmt="o", color=BLUE, markersize=4, label="simulated")
    axes.set(xscale="log", ylim=(0, None), xlabel="init", ylabel="short though R divides m (%)")
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
        seeds=Seeds(explored="1000 to 1023", fixed="on the exploratory seeds"),
        simulate=simulate,
        claims=partial(claims, source=source),
        draw=draw,
    )
