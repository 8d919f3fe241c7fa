r"""Figs 4 and 12: separate attention of rank R waits where R divides the number of components learned.

**As published**: the start, rate and number of steps of the figures, but on infinitely many sequences, six seeds. After
20 001 steps most runs are still on a plateau, as in the paper.

**Ours**: many seeds, from the same start and from smaller ones, by gradient flow to the end, and how long each waits on
each plateau, against `_low_rank_theory`: from there comes what counts as conspicuous. Random heads are unequal, and a
wait is the gap between one head and the next, so that now and then a head is ready early: the rule holds in the middle
of the seeds, and in all the better the smaller the start.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.dynamics import Ensemble, Record, descend, rate_for
from stepwell.figures import Data
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._low_rank_race import heads_of, race
from ._low_rank_settings import DIM, LANES, Settings
from ._low_rank_theory import predict
from ._low_rank_waits import drop_times

SCHEDULED = 4
"""Up to this rank the schedule is computed from the initial weights; beyond, it takes longer than the runs."""
RECORD = 4
FINE = 40
"""Drops from small starts are shorter beside their times, and need finer ones."""
SMALL = 2
"""The decade at which the race, a limit, is compared with the schedule."""

CAPTION = (
    "Separate attention of rank R. Above, the loss at the published initialization, rate and number of steps (init "
    "0.005, rate 0.02, 20,001 steps), six seeds, on infinitely many sequences where the paper has 80,000. Dashed lines "
    "are the predicted levels L(M_m) with m components learned, black where R divides m: there a fresh head has to "
    "grow from its small initialization, which is slow (hyperbolic); elsewhere a head that has grown already takes up "
    "a further pair, which is fast (exponential). Most runs have not ended: the plateaus are that long. Below, ours: "
    "the same start carried to the end by gradient flow in {seeds} seeds, and how long each waits on each plateau, in "
    "units of the escape rate ρ_m = λ_{{m+1}}². Dots are seeds. Where R divides m (shaded) the bars span 80 % of what "
    "a race of random heads predicts, with its median; elsewhere the ticks are the predicted wait for a further pair. "
    "Dashed, the threshold from which a plateau counts as conspicuous, the geometric mean of the two laws. A wait "
    "for a fresh head is the gap between two random heads, so some are short. Last, how often that is so, with "
    "smaller and smaller starts, at rank {first}: simulated (bars: one standard error) and predicted."
)


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
    """The same for one rank, from smaller starts; `drops` are from the published one."""
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
    """Waits for fresh heads from a small start, by the schedule and by the race, of the seeds drawn."""
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
