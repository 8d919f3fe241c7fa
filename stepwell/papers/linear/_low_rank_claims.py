"""Figs 4 and 12: what is claimed."""

import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.analysis import passage_time
from stepwell.figures import Claim, Data, Origin
from stepwell.theory import linear as theory

from ._low_rank import SMALL, verdicts, waits
from ._low_rank_settings import DIM, Settings
from ._low_rank_theory import longest_pair

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
            "starts, from 0 to 1, in the mean over seeds, one for each rank and m that R divides",
            predicted=0.5,
            measured=np.concatenate([_places(scaled[rank], predicted.sel(rank=rank))[fresh(rank)] for rank in ranks]),
            tolerance=3 * np.sqrt((1 / seeds + 1 / predicted.sizes["draw"]) / 12),
            basis=f"three standard errors of a mean of {seeds} equally distributed places; random starts",
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
            basis=f"three standard errors of a median of {seeds} seeds; starts of pairs are χ-distributed",
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
