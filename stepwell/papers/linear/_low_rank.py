r"""Figs 4 and 12: separate attention of rank R waits where R divides the number of components learned.

**As published**: the commands of the README, 20 001 steps from the initialization of its time, six seeds, and, below
them, what makes a figure like the one that the text describes: the `plain` initialization of before January 2025, and
the 50 001 steps of the README of that month. On infinitely many sequences, or on so many (`sequences`).

**Ours**: many seeds, from the README's initialization and from a smaller one, by gradient flow to convergence, and how
long each waits on each plateau, against theory alone (`_low_rank_waits`): from there comes what counts as conspicuous.
Random heads are unequal, and a wait is the gap between one head and the next, so that now and then a head is ready
early: this holds in the middle of the seeds, and in all the better the smaller the initialization.

**What counts as conspicuous.** In units of the escape rate, where all plateaus can be compared: a wait $\rho_mT_m$
with $\rho_m = \lambda_{m+1}^2$, where $T_m$ goes from the middle of a drop to the middle of the next, above the
geometric mean of two waits, for the plateaus on which they are closest: the longest wait for a further pair (m = 1)
and the shortest median wait for a fresh head of that rank. It grows as $\sqrt{\ln(1/s)/s}$, waits for fresh heads as
1/s. In training time: a plateau on which `SHARE` of all training up to its end is spent. As the initialization
shrinks, that is a constant for a fresh head, whatever m, and nothing for a further pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import jax
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from stepwell.analysis import passage_time
from stepwell.analysis.style import BLACK, BLUE, GRAY, PALETTE, new_figure, styled
from stepwell.dynamics import Ensemble, Record, descend, flow, rate_for, time_factor, weight_factor
from stepwell.figures import Claim, Data, Figure, Known, Origin, Seeds
from stepwell.models import SeparateAttention
from stepwell.objectives import Moments, Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._drawing import lines, note
from ._low_rank_waits import DIM, further_pairs, heads_of, longest_pair, race, random_heads
from ._runs import along, flow_at, labeled, passages, weights_of

Scheme = Literal["plain", "per-head", "stacked"]
README: Scheme = "per-head"  # inferred from the date of its commands
LANES = 8  # Runs of one program: as many as a vector of the widest processors holds.
NAMED = (1, 2, 4)  # the ranks of which the text says on which plateaus the loss waits
SHARE = 0.2
"""Of all training up to its end, spent on a plateau that is conspicuous in training time: between the shortest median
share where R divides m (0.28) and the longest elsewhere (0.14) on seeds 1000 to 1023."""


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
    early_scheme: Scheme = "plain"  # the initialization of an earlier script, and the steps of an earlier README
    early_steps: int = 50_000
    early_seeds: int = 24
    sequences: int | None = None  # of each run by descent; None: infinitely many
    seeds: int = 24
    first_seed: int = 200
    shown: int = 6  # so many seeds are trained by descent, as published, and drawn
    small: float = 0.01  # waits are compared with each seed's own heads from so much of the initialization
    draws: int = 300  # random initializations of which the waits are predicted

    @property
    def every_seed(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def every_early_seed(self) -> range:
        return range(self.first_seed, self.first_seed + self.early_seeds)

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
        return InContextRegression(self._covariance, self.context)

    @property
    def _covariance(self) -> Any:
        spectrum = 1 / np.arange(1, DIM + 1)
        return covariance(spectrum / spectrum.sum())

    def objective(self) -> Any:
        """Of the runs by descent: infinitely many sequences, or so many for each seed."""
        if self.sequences is None:
            return Population(self.task)
        task = InContextRegression(self._covariance, self.context, centered=True, whitened=True)
        keys = (jax.random.fold_in(jax.random.key(seed), 1) for seed in self.shown_seeds)
        return Ensemble.of([Moments.of_task(task, self.sequences, progress=False, key=key) for key in keys])

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

    def initial_models(
        self, rank: int, seeds: Sequence[int], *, part: float = 1.0, scheme: Scheme = README
    ) -> list[SeparateAttention]:
        """One for each seed, in the paper's convention, or the same draw at this part of its size."""
        options: dict[str, Any] = {"dim": DIM, "heads": self.heads, "rank": rank, "scheme": scheme}
        scale = self.size * part
        return [SeparateAttention.random(**options, scale=scale, key=jax.random.key(seed)) for seed in seeds]


def describe(settings: Settings) -> dict[str, Any]:
    return {
        **paper_settings(settings),
        "initial weights": _initial_weights(settings),
        "training": f"{settings.steps + 1:,} recorded losses from the README's initialization, "
        f"{settings.early_steps + 1:,} from the scheme {settings.early_scheme}; rate {settings.rate:g}, attention not "
        "divided by N. Waits: gradient flow to convergence",
        "data": f"{settings.sequences:,} sequences above" if settings.sequences else "infinitely many sequences",
        "seeds": f"{settings.shown} of them drawn above, {settings.seeds} below, from {settings.first_seed} on",
        **{name: getattr(settings, name) for name in ("first_seed", "early_seeds", "small", "draws")},
    }


def paper_settings(settings: Settings) -> dict[str, Any]:
    """Of the paper's figure, where these settings are."""
    return {
        "dimension D": DIM,
        "context length N": settings.context,
        "heads H": settings.heads,
        "eigenvalues of the covariance": "in proportion 1, 1/2, …, 1/8, trace 1",
        "initial weights": f"init {settings.init:g}; the scheme is not known",
        "data": "80,000 sequences",
        "training": f"rate {settings.rate:g}, attention not divided by N; 50,001 recorded losses in the README of "
        "January 2025, 20,001 since",
        "seeds": 6,
        "ranks R": list(settings.ranks),
    }


def _initial_weights(settings: Settings) -> str:
    return (
        f"init {settings.init:g}: values with that standard deviation, keys and queries with init/√(R(D+1)) (README), "
        f"or as the scheme {settings.early_scheme} has it"
    )


def predict(settings: Settings) -> xr.Dataset:
    """Levels, rates, both laws of waiting, and thresholds."""
    task, size, ranks = settings.task, settings.size, settings.ranks
    gains = theory.escape_rates(task)
    waits = np.full((len(ranks), settings.draws, DIM), np.nan)
    for place, rank in enumerate(ranks):
        scaled = race(gains, random_heads(rank, settings.draws, dim=DIM, heads=settings.heads), rank)
        waits[place][:, settings.fresh(rank)] = scaled / size
    pairs = [further_pairs(task, rank, size) for rank in ranks]
    shortest = np.nanmin(np.median(waits, axis=1), axis=1)
    return xr.Dataset(
        {
            "level": ("component", theory.levels(task)),
            "escape_rate": ("plateau", gains),
            "fresh_wait": (("rank", "draw", "plateau"), waits),
            "pair_wait": (("rank", "plateau"), [pair.wait for pair in pairs]),
            "pair_spread": (("rank", "plateau"), [pair.spread for pair in pairs]),
            "threshold": ("rank", np.sqrt(longest_pair(task, size) * shortest)),
        },
        {"rank": list(ranks), "plateau": np.arange(DIM)},
    )


CAPTION = (
    "Separate attention of rank R. (a) The loss at the README's initialization, rate and number of steps (init 0.005, "
    "rate 0.02, 20,001 steps), six seeds, on infinitely many sequences where the paper has 80,000. Dashed lines are "
    "the predicted levels L(M_m) with m components learned, black where R divides m: there a fresh head has to grow "
    "from its small initialization, which is slow (hyperbolic); elsewhere a head that has grown already takes up a "
    "further pair, which is fast (exponential). (b) The same with larger keys and queries (initialization scheme "
    "plain), for 50,001 steps: what script and README had before. (c) Ours: the initialization of (a) carried to "
    "convergence by gradient flow in {seeds} seeds, and how long each waits on each plateau, in units of the escape "
    "rate ρ_m = λ_{{m+1}}². Dots are seeds. Where R divides m (shaded) bars span 80 % of what a race of random heads "
    "predicts, with its median; elsewhere ticks are the predicted wait for a further pair. A wait for a fresh head is "
    "the gap between two random heads, so some are short. (d) R = {first}, from a hundredth of that initialization: "
    "every wait for a fresh head, and what a race of the seed's own heads predicts."
)


SCHEDULED = 4
"""Up to this rank the schedule is computed from the initial weights; beyond, it takes longer than the runs."""
RECORDED = 5_000  # losses of a run that is drawn, about
FINE = 100  # drops from small initial weights are short beside their times: saved 5·10⁻⁴ of these apart


def simulate(settings: Settings) -> Data:
    objective = settings.objective()
    return {
        "theory": predict(settings),
        "published": train(objective, settings, README, settings.steps),
        "early": train(objective, settings, settings.early_scheme, settings.early_steps),
        "early_end": early_end(settings),
        "drops": measure(settings),
        "small": measure_small(settings),
        "schedule": schedule(settings),
    }


def train(objective: Any, settings: Settings, scheme: Scheme, steps: int) -> xr.Dataset:
    """Descent, all seeds of a rank as one program. Losses only."""
    options: Any = {"rate": rate_for(settings.step, 1), "steps": steps, "progress": False}
    record = Record(every=max(1, steps // RECORDED), snapshots=2)
    ranks, seeds = settings.ranks, settings.shown_seeds
    models = (Ensemble.of(settings.initial_models(rank, seeds, scheme=scheme)) for rank in ranks)
    return along((descend(each, objective, record=record, **options)[["loss"]] for each in models), rank=ranks)


def early_end(settings: Settings) -> xr.Dataset:
    """The loss of every seed by the end of the earlier README, by gradient flow, of the ranks that the text names."""
    named, until = _named(settings.ranks), settings.early_steps * settings.step
    options: Any = {"until": until, "record": Record(points=2), "rtol": 1e-5, "progress": False}
    losses = np.empty((len(named), settings.early_seeds))
    for place, rank in enumerate(named):
        models = settings.initial_models(rank, settings.every_early_seed, scheme=settings.early_scheme)
        parts = [Ensemble.of(models[first : first + LANES]) for first in range(0, len(models), LANES)]
        losses[place] = np.concatenate(
            [flow(each, Population(settings.task), **options)["loss"].values[:, -1] for each in parts]
        )
    return xr.Dataset({"loss": (("rank", "run"), losses)}, {"rank": named})


def _named(ranks: Sequence[int]) -> list[int]:
    return [rank for rank in ranks if rank in NAMED]


def measure(settings: Settings) -> xr.Dataset:
    """`drop_time`, halfway down each drop, of all seeds and ranks, by gradient flow to the end."""
    models = [settings.initial_models(rank, settings.every_seed) for rank in settings.ranks]
    return _drops(settings.ranks, [drop_times(settings.task, each, LANES) for each in models])


def measure_small(settings: Settings) -> xr.Dataset:
    """The same of the first rank from small initial weights, as waits for fresh heads, and a race of the same heads."""
    rank, gains, there = settings.ranks[0], theory.escape_rates(settings.task), settings.fresh(settings.ranks[0])
    models, size = (
        settings.initial_models(rank, settings.every_seed, part=settings.small),
        settings.size * settings.small,
    )
    weights = (np.stack(part) / size for part in zip(*map(weights_of, models), strict=True))
    times, dims = drop_times(settings.task, models, LANES, fine=FINE), ("run", "plateau")
    columns = {"simulated": waits(times, gains)[:, there], "race": race(gains, heads_of(*weights), rank) / size}
    return xr.Dataset({name: (dims, each) for name, each in columns.items()}, {"plateau": np.flatnonzero(there)})


def schedule(settings: Settings) -> xr.Dataset:
    """`drop_time` as the schedule has it from the initial weights, of the seeds drawn and ranks up to `SCHEDULED`."""
    low = tuple(rank for rank in settings.ranks if rank <= SCHEDULED)
    models = (Ensemble.of(settings.initial_models(rank, settings.shown_seeds)) for rank in low)
    return _drops(low, [theory.drop_schedule(settings.task, each, trials=0).times for each in models])


def _drops(ranks: Sequence[int], times: Sequence[np.ndarray]) -> xr.Dataset:
    whole = np.stack(times) if times else np.empty((0, 0, DIM))
    return xr.Dataset({"drop_time": (("rank", "run", "plateau"), whole, {"units": TIME_UNIT})}, {"rank": list(ranks)})


def waits(
    times: Float[np.ndarray, "*any plateau"], rates: Float[np.ndarray, " plateau"]
) -> Float[np.ndarray, "*any plateau"]:
    r"""$\rho_mT_m$ from the times of drops."""
    return np.diff(times, axis=-1, prepend=0.0) * rates


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
    predicted, ranks = data["theory"], settings.ranks
    rates, times = predicted["escape_rate"].values, data["drops"]["drop_time"]
    scaled = {rank: waits(times.sel(rank=rank).values, rates) for rank in ranks}
    few = "" if settings.seeds > 2 else FEW
    paper = Origin("paper", f"Section 5 and {source}", explored=True)
    shares = []
    for rank in ranks:
        of_rank = times.sel(rank=rank).values
        later = settings.left(rank) & (np.arange(DIM) > 0)
        share = np.median(np.diff(of_rank, axis=1, prepend=0.0) / of_rank, axis=0)
        shares.append(np.where(settings.fresh(rank), share / SHARE, SHARE / share)[later])
    return [
        *(_rank_claim(rank, scaled[rank], predicted, settings, paper, few) for rank in ranks),
        paper.at_least(
            "in-time",
            f"In training time, too: in the median of {settings.seeds} seeds at least a fifth of all training up to "
            "its end is spent on plateau m where R divides m, and less elsewhere: how many times that share is above a "
            "fifth there, or below it elsewhere, one for each rank and m > 0 (of m = 0 it is all by definition)",
            predicted=1.0,
            measured=np.concatenate(shares),
            labels=[f"R = {rank}, m = {m}" for rank in ranks for m in np.flatnonzero(settings.left(rank)) if m],
            basis="the share was chosen on other seeds",
            counted="plateaus",
            unless=few,
        ),
        *_named_claims(data, settings),
        *_law_claims(scaled, predicted, settings, few),
        _own_heads_claim(data["small"], settings),
        _first_drop_claim(data, settings),
    ]


def _rank_claim(
    rank: int,
    scaled: Float[np.ndarray, "run plateau"],
    predicted: xr.Dataset,
    settings: Settings,
    paper: Origin,
    few: str,
) -> Claim:
    fresh, left = settings.fresh(rank), settings.left(rank)
    limit, middle, longest = float(predicted["threshold"].sel(rank=rank)), np.median(scaled, axis=0), scaled.max(axis=0)
    listed = ", ".join(map(str, np.flatnonzero(fresh)))
    elsewhere = ", and nowhere else in any of them" if settings.further(rank).any() else ""
    return paper.at_least(
        f"rank-{rank}",
        f"R = {rank}: in the median of {settings.seeds} seeds there are conspicuous plateaus at m = "
        f"{listed}{elsewhere}: how many times the wait is above the threshold there, or the longest below it "
        "elsewhere, one for each m",
        predicted=1.0,
        measured=np.where(fresh, middle / limit, limit / longest)[left],
        labels=[f"m = {m}" for m in np.flatnonzero(left)],
        basis="conspicuous: above the geometric mean of the two laws of escape, from theory alone",
        counted="plateaus",
        unless=few,
    )


FEW = "a median needs three seeds"


def _named_claims(data: Data, settings: Settings) -> list[Claim]:
    """How far the README's commands, and those before, come, of the ranks that the text names."""
    named = _named(settings.ranks)
    if not named:
        return []
    levels, whole = data["theory"]["level"].values, settings.steps * settings.step
    halfway = (levels[1:] + levels[:-1]) / 2
    learned = (data["drops"]["drop_time"].sel(rank=named).values < whole).sum(axis=2)
    early = (data["early_end"]["loss"].values[:, :, None] < halfway).sum(axis=2)
    last = [int(np.flatnonzero(settings.fresh(rank))[-1]) for rank in named]
    how: Any = {
        "predicted": last,
        "labels": [f"R = {rank}" for rank in named],
        "basis": "the last plateau that the text names, of each rank",
        "counted": "ranks",
    }
    words = "seeds comes to the last plateau that the text names: components learned, one for each rank"
    return [
        Origin("paper", "Section 5 and README", explored=True).at_least(
            "readme",
            f"In the {settings.steps + 1:,} steps of the README, from its initialization, the median of "
            f"{settings.seeds} {words}",
            measured=np.median(learned, axis=1),
            known=Known(
                "R = 1 comes to m = 3 or 4 and R = 2 to m = 4; the eighth drop of R = 1 takes some 200,000 steps",
                "the-steps-of-fig-4",
            ),
            unless="" if settings.seeds > 2 else FEW,
            **how,
        ),
        Origin("paper", "Section 5 and README of January 2025", explored=True).at_least(
            "early",
            f"In {settings.early_steps + 1:,} steps from the initialization scheme {settings.early_scheme}, the median "
            f"of {settings.early_seeds} {words}",
            measured=np.median(early, axis=1),
            unless="" if settings.early_seeds > 2 else FEW,
            **how,
        ),
    ]


def _law_claims(
    scaled: dict[int, Float[np.ndarray, "run plateau"]], predicted: xr.Dataset, settings: Settings, few: str
) -> list[Claim]:
    theoretical = Origin("theory", "papers/linear/_low_rank_waits.py", explored=True)
    seeds, draws = settings.seeds, predicted.sizes["draw"]
    places, errors = [], []
    for rank in settings.ranks:
        fresh, drawn = settings.fresh(rank), predicted["fresh_wait"].sel(rank=rank).values
        places.append(np.mean(drawn[:, None] < scaled[rank], axis=0)[:, fresh].mean())
        ranked = (np.argsort(np.argsort(drawn[:, fresh], axis=0), axis=0) + 0.5) / draws
        errors.append(3 * ranked.mean(axis=1).std() * np.sqrt(1 / seeds + 1 / draws))
    several = [rank for rank in settings.ranks if settings.further(rank).any()]
    pairs, spreads, middles = [], [], []
    for rank in several:
        further, of_rank = settings.further(rank), predicted.sel(rank=rank)
        pairs.append(of_rank["pair_wait"].values[further].sum())
        spreads.append(np.sqrt(np.sum(of_rank["pair_spread"].values[further] ** 2)))
        middles.append(np.median(scaled[rank], axis=0)[further].sum())
    return [
        theoretical.close(
            "fresh-heads",
            "Waits for a fresh head are those of a race of random heads: place of a wait among those of random "
            "initializations, from 0 to 1, in the mean over seeds and plateaus, one for each rank",
            predicted=0.5,
            measured=places,
            labels=[f"R = {rank}" for rank in settings.ranks],
            tolerance=errors,
            basis=f"three standard errors of {seeds} seeds, from the scatter of random initializations",
            counted="ranks",
        ),
        theoretical.close(
            "further-pairs",
            "The median waits for further pairs are the predicted logarithms, ρT = (ℓ′ − ℓ g′/g)/v: sum over all m "
            "that R does not divide, one for each rank",
            predicted=pairs,
            measured=middles,
            labels=[f"R = {rank}" for rank in several],
            tolerance=3 * MEDIAN_ERROR * np.array(spreads) / seeds**0.5,
            basis=f"three standard errors of medians of {seeds} seeds; initial sizes of pairs are χ-distributed",
            counted="ranks",
            unless=few or ("" if several else "every pair is a head of its own"),
        ),
    ]


def _own_heads_claim(small: xr.Dataset, settings: Settings) -> Claim:
    rank, rates = settings.ranks[0], theory.escape_rates(settings.task)[small["plateau"].values]
    raced = small["race"].values
    so_far = np.cumsum(raced / rates, axis=1) * rates
    return Origin("theory", "papers/linear/_low_rank_waits.py", explored=True).close(
        "own-heads",
        f"R = {rank}, from {settings.small:g} of the initialization: the wait for each fresh head is that of a race of "
        "the seed's own heads, from their initial weights: ρT, one for each seed and m that R divides",
        predicted=raced.ravel(),
        measured=labeled(small["simulated"].values, seed=settings.every_seed, plateau=small["plateau"].values),
        tolerance=(rank * longest_pair(settings.task, settings.size * settings.small) + 1e-3 * so_far).ravel(),
        basis=f"the race leaves out {rank} drops, each at most the wait of a further pair; times are good to 10⁻³; "
        "95 % of plateaus: two heads may be nearly tied, and exchange components",
        required=0.95,
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
        unless="the schedule is for infinitely many sequences" if settings.sequences else "",
    )


LIGHT = "#B0B0B0"
SHADE = "#E3EAF2"


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    predicted, ranks = data["theory"], settings.ranks
    levels, rates = predicted["level"].values, predicted["escape_rate"].values
    rows = (
        ("published", settings.steps, "README"),
        ("early", settings.early_steps, settings.early_scheme),
    )
    with styled():
        figure = new_figure(13.2, 10.0)
        halves: Any = figure.subfigures(2, 1, height_ratios=(2, 1.05))
        upper, lower = halves
        above = upper.subplots(2, len(ranks), sharey=True, squeeze=False)
        for letter, axes, (name, steps, words) in zip("ab", above, rows, strict=True):
            for each, rank in zip(axes, ranks, strict=True):
                _losses(each, rank, data[name].sel(rank=rank), levels, steps)
                each.set_title(f"R = {rank}")
            axes[0].set_title(f"({letter}) {words}, {steps + 1:,} steps: R = {ranks[0]}")
            axes[0].set_ylabel("loss (mean squared error)")
        wide, last = lower.subplots(1, 2, width_ratios=(3.6, 1))
        each = {rank: waits(data["drops"]["drop_time"].sel(rank=rank).values, rates) for rank in ranks}
        _waits(wide, each, predicted, settings)
        _own_heads(last, data["small"], settings)
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
    axes.set(xlim=(0, steps), ylim=(0.15, 1.04), xlabel="training step")
    ticks = (0, steps // 2, steps)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])


def _waits(axes: Axes, each: dict[int, np.ndarray], predicted: xr.Dataset, settings: Settings) -> None:
    """Every m has a column for each rank."""
    width = 0.84 / len(each)
    for number, (rank, runs) in enumerate(each.items()):
        of_rank, fresh = predicted.sel(rank=rank), settings.fresh(rank)
        low, middle, high = np.quantile(of_rank["fresh_wait"].values, (0.1, 0.5, 0.9), axis=0)
        spread = np.linspace(-0.3, 0.3, len(runs)) * width if len(runs) > 1 else np.zeros(1)
        color, tick = PALETTE[number % len(PALETTE)], {"color": BLACK, "markersize": 7, "zorder": 3}
        for m in np.flatnonzero(settings.left(rank)):
            x = m + (number - (len(each) - 1) / 2) * width
            words = f"R = {rank}" if m == 0 else None
            axes.plot(x + spread, np.sort(runs[:, m]), "o", color=color, markersize=2.4, zorder=2, label=words)
            if fresh[m]:
                axes.axvspan(x - width / 2, x + width / 2, color=SHADE, zorder=0, linewidth=0)
                axes.errorbar([x], [middle[m]], yerr=[[middle[m] - low[m]], [high[m] - middle[m]]], fmt="_", **tick)
            else:
                axes.plot([x], of_rank["pair_wait"].values[[m]], "_", markeredgewidth=1.5, **tick)
    axes.axvspan(np.nan, np.nan, color=SHADE, label="R divides m")
    axes.plot([], [], "_", color=BLACK, markersize=7, label="predicted")
    axes.set(yscale="log", xlim=(-0.5, DIM - 0.5), xticks=range(DIM), xlabel="components learned, $m$")
    axes.set(ylabel="wait $\\rho_m T_m$", title=f"(c) Waits on each plateau, {settings.seeds} seeds")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8.5)


def _own_heads(axes: Axes, small: xr.Dataset, settings: Settings) -> None:
    axes.loglog(small["race"].values.ravel(), small["simulated"].values.ravel(), "o", color=BLUE, markersize=2.4)
    ends = [small["race"].values.min(), small["race"].values.max()]
    axes.plot(ends, ends, "--", color=GRAY, linewidth=1.2, zorder=1)
    title = f"(d) R = {settings.ranks[0]}, initialization × {settings.small:g}"
    axes.set(xlabel="$\\rho_m T_m$ of a race of its heads", ylabel="simulated $\\rho_m T_m$", title=title)


def low_rank_figure(source: str, *ranks: int) -> Figure[Settings]:
    """Separate attention of these ranks; `source` is the paper's figure."""
    settings, listed = Settings(ranks), ", ".join(map(str, ranks))
    return Figure(
        title=f"Attention of rank R = {listed} learns R components at a time, and waits for a fresh head in between",
        caption=CAPTION.format(seeds=settings.seeds, first=ranks[0]),
        source=source,
        settings=settings,
        quick=Settings(ranks, seeds=4, shown=1, draws=60),
        described=describe,
        paper_settings=paper_settings(settings),
        seeds=Seeds(explored="1000 to 1023", fixed="on the exploratory seeds"),
        simulate=simulate,
        claims=partial(claims, source=source),
        draw=draw,
    )
