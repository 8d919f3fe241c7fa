"""Fig 3: its claims."""

import math

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from stepwell.papers._claim import Claim
from stepwell.probes import staircase

from ._fig03_settings import INIT, MOST, NAME, NEAR_TIE, PLATEAU, STANDARD_ERRORS
from ._fig03_theory import HIGH, LOW, PAPER_SCALE, exponent, neglected, next_component, schedule_error
from ._published import (
    ALLOWED_OUTSIDE,
    DROP_ERROR,
    DROPS,
    PUBLISHED_RUNS,
    chance_outside,
    published_drops,
    runs_outside,
)
from ._rank_one import DIM


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    training, predictions = data["training"], data["theory"]
    return [
        _published_claim(training),
        *_staircase_claims(training, predictions),
        *_key_claims(training, data["flows"], data["turned"], predictions),
        *_schedule_claims(data["flows"], predictions),
    ]


def _published_claim(training: xr.Dataset) -> Claim:
    steps = training["half"].values / training.attrs["unit"]
    seeds = len(steps)
    chance = chance_outside(seeds, PUBLISHED_RUNS, ALLOWED_OUTSIDE)
    return Claim.over(
        f"{NAME}/published-drops",
        f"The drops of the paper's {PUBLISHED_RUNS} runs come within the range of {seeds} of our seeds: number of the "
        f"paper's runs outside, for each of the {len(DROPS)} drops",
        predicted=ALLOWED_OUTSIDE,
        measured=[runs_outside(groups, steps[:, d]) for d, groups in enumerate(published_drops())],
        tolerance=0,
        basis=f"more than {ALLOWED_OUTSIDE} of {PUBLISHED_RUNS} outside the range of {seeds} of the same "
        f"distribution, at any of {len(DROPS)} drops: level {len(DROPS) * chance:.1%}; read to ±{DROP_ERROR:g} steps",
        relation="<=",
        counted="drops",
        kind="paper",
        source="Fig 3(a)",
        only_published=True,
    )


def _staircase_claims(training: xr.Dataset, predictions: xr.Dataset) -> list[Claim]:
    due, over = _due(training, predictions)
    clear = training["clear"].values
    judged, ties = due & clear, int(np.sum(due & ~clear))
    apart = clear.all(axis=1) & (due | over).all(axis=1)
    rule = f"near ties of the schedule (closer than {NEAR_TIE:g} time constants)"
    left_out = f"; of {due.sum()} drops that the schedule has before the end {ties} are left out, in {rule}"
    size = training.attrs["sequences"]
    on = f"on {'P' if math.isfinite(size) else 'infinitely many'} sequences"
    time = training["time"].values
    blind = [len(staircase(time, loss).drops) for loss in training["loss"].values[apart]]
    off, allowed = _levels_off(training, predictions)
    learned = training["map"].values > predictions["map_end"].values / 2
    in_order = (learned == np.tri(DIM, dtype=bool)).all(axis=2)
    heads = training["head"].values
    own = [len(set(row[kept & (row >= 0)].tolist())) for row, kept in zip(heads, judged, strict=True)]
    return [
        Claim.over(
            f"{NAME}/drops",
            f"The loss {on} drops once from each level to the next: number of drops, detected without knowing the "
            "levels, against those that the schedule has before the end, in runs whose schedule has no near ties and "
            f"no drop too near the end ({apart.sum()} of {apart.size})",
            predicted=due.sum(axis=1)[apart],
            measured=blind,
            tolerance=0,
            basis=f"a count, in {MOST:.0%} of runs; a plateau is 4 times slower than the falls beside it",
            required=MOST,
            kind="paper",
            source="Fig 3(a)",
            explored=True,
        ),
        Claim.over(
            f"{NAME}/levels",
            f"The plateaus {on} are at the levels L(M_m): median relative difference over those of at least "
            f"{PLATEAU:g} time constants, in their middle, for each m",
            predicted=0.0,
            measured=off,
            tolerance=allowed,
            basis="3 standard errors of the median, from other sequences; growth of the next head by then",
            counted="plateaus",
            kind="paper",
            source="Fig 3(a), the dashed levels",
            explored=True,
        ),
        Claim.over(
            f"{NAME}/order",
            f"Components are learned in falling order of λ, {on}: just after drop m exactly the first m are "
            f"learned (1) or not (0){left_out}",
            predicted=1,
            measured=in_order[judged].astype(int),
            tolerance=0,
            basis=f"a count, {MOST:.0%} of drops; learned is more than half of its final share in the map",
            required=MOST,
            counted="drops",
            kind="paper",
            source="Fig 3(a)",
            explored=True,
        ),
        Claim.over(
            f"{NAME}/heads",
            f"Each component is learned by a head of its own, {on}: number of heads that learn in a run{left_out}",
            predicted=judged.sum(axis=1),
            measured=own,
            tolerance=0,
            basis=f"a count, as many as components, in {MOST:.0%} of runs",
            required=MOST,
            kind="paper",
            source="Fig 3(b)",
            explored=True,
        ),
        Claim.over(
            f"{NAME}/keys",
            f"Just after drop m, {on}, the key of the newest head is nearest to eigenvector m: its largest component "
            f"along another, relative to that along e_m{left_out}",
            predicted=1.0,
            measured=_largest_other(training["key"].values)[judged],
            tolerance=0.0,
            basis=f"nearest means a ratio below 1, for {MOST:.0%} of drops; how small it is depends on the initial "
            "weights (keys-power)",
            relation="<=",
            required=MOST,
            counted="drops",
            kind="paper",
            source="Fig 3(c)",
            explored=True,
        ),
    ]


def _due(
    training: xr.Dataset, predictions: xr.Dataset
) -> tuple[Bool[np.ndarray, "run drop"], Bool[np.ndarray, "run drop"]]:
    """Which drops the schedule of the initial weights has before the end of the run, and which after it, both by more
    than its error."""
    ends, constants = (predictions[name].values for name in ("value_end", "time_constant"))
    error = [schedule_error(d, ends, INIT * PAPER_SCALE) for d in range(DIM)] * constants
    scheduled, end = training["predicted"].values, float(training["time"][-1])
    return scheduled + error < end, scheduled - error > end


def _levels_off(training: xr.Dataset, predictions: xr.Dataset) -> tuple[list[float], list[float]]:
    """Of each plateau, the median relative difference of the loss from its level, and what sampling and growth
    allow."""
    time, constants = training["time"].values, predictions["time_constant"].values
    steps, errors = predictions["level"].values, predictions["level_error"].values
    ends = np.minimum(training["half"].values, time[-1])
    edges = np.concatenate([np.zeros((len(ends), 1)), ends, np.full((len(ends), 1), time[-1])], axis=1)
    off, allowed = [], []
    for m, level in enumerate(steps):
        start, end = edges[:, m], edges[:, m + 1]
        kept = end - start >= PLATEAU * constants[min(m, DIM - 1)]
        middles = (start + end)[kept] / 2
        losses = [np.interp(t, time, loss) for t, loss in zip(middles, training["loss"].values[kept], strict=True)]
        off.append(float(np.median(losses) / level - 1) if losses else float("nan"))
        to_come = (steps[m] - steps[m + 1]) / level if m < DIM else 0.0
        # The median of many Gaussian numbers has √(π/2) times the standard error of their mean.
        sampling = (np.pi / 2) ** 0.5 * errors[m] / (training.attrs["sequences"] * max(len(losses), 1)) ** 0.5
        allowed.append(STANDARD_ERRORS * sampling + 2 * (2 / PLATEAU) ** 3 * to_come + _ROUNDING)
    return off, allowed


_ROUNDING = 1e-12


def _largest_other(key: Float[np.ndarray, "... drop component"]) -> Float[np.ndarray, "... drop"]:
    """Of keys relative to their learned component, the largest other one."""
    return np.where(np.eye(DIM, dtype=bool), 0.0, abs(key)).max(axis=-1)


def off_next(flows: xr.Dataset) -> Float[np.ndarray, "init run drop"]:
    """The component of each newest key along the eigenvector in whose direction it is farthest off in the limit."""
    key = abs(flows["key"].values)
    return np.stack([key[..., d, next_component(d)] for d in range(DIM)], axis=-1)


def slopes(flows: xr.Dataset) -> Float[np.ndarray, " drop"]:
    """Powers of the initial size between its two smallest values: of each drop the median over seeds, near ties left
    out."""
    off = np.where(flows["clear"].values, off_next(flows), np.nan)[-2:]
    inits = flows["init"].values[-2:]
    return np.nanmedian(np.log(off[0] / off[1]), axis=0) / np.log(inits[0] / inits[1])


def _key_claims(training: xr.Dataset, flows: xr.Dataset, turned: xr.Dataset, predictions: xr.Dataset) -> list[Claim]:
    inits, ends = flows["init"].values, predictions["value_end"].values
    larger = float(inits[-2]) * PAPER_SCALE
    # Along e₂ sampling acts mostly through the growth rates; e₃ and e₄ show the direction.
    measured, predicted = (turned[name].values[:, 2:].ravel() for name in ("measured", "predicted"))
    return [
        Claim.over(
            f"{NAME}/keys-power",
            "On infinite data, the component of the newest key along the next eigenvector, just after drop m, falls "
            "with the power 1 − (λ_(m+1)/λ_m)² of the initial size, for the last drop with the power 1: median over "
            f"seeds, from {inits[-2]:g} to {inits[-1]:g}",
            predicted=[exponent(d) for d in range(DIM)],
            measured=slopes(flows),
            tolerance=max(neglected(d, larger / float(ends[d])) for d in range(DIM)),
            basis="the largest neglected power of the initial size",
            counted="drops",
            kind="theory",
            source="papers.linear_attention._fig03_theory.exponent",
        ),
        Claim.close(
            f"{NAME}/keys-sampled",
            "What P sequences add: they turn the key of the first head, along e₃ and e₄, to the leading singular "
            "vector of ⟨y_q β x_qᵀ⟩: coefficient of the turn, from initial weights of size "
            f"{float(turned['init']):g}, in that direction, {turned.sizes['set']} data sets",
            predicted=1.0,
            measured=measured @ predicted / (predicted @ predicted),
            tolerance=_CURVATURE + STANDARD_ERRORS * _RATES / turned.sizes["set"] ** 0.5,
            basis="5 % of the curvature is felt at a tenth of the drop; 3 standard errors by the sampling of growth "
            "rates",
            kind="theory",
            source="papers.linear_attention.fig03_staircase.turned_keys",
            explored=True,
        ),
    ]


_CURVATURE = 0.05
"""x³ at a tenth of a drop, where 1 - (1 - x³)² = 0.1: so much the other moments of the data count beside ⟨y_q β
x_qᵀ⟩."""
_RATES = 0.08
"""Of one data set: its ratios of growth rates are off by about 1 %, over the ln(v_∞/w) = 9 e-foldings of a key's
components that are as large as the turn itself."""


def _schedule_claims(flows: xr.Dataset, predictions: xr.Dataset) -> list[Claim]:
    inits, ends, constants = (
        flows["init"].values,
        predictions["value_end"].values,
        predictions["time_constant"].values,
    )
    smallest = flows.isel(init=-1)
    clear, size = smallest["clear"].values, float(inits[-1]) * PAPER_SCALE
    words = f"On infinite data from weights of size {inits[-1]:g}"
    left_out = f"; {np.sum(~clear)} of {clear.size} in near ties left out"
    error = (smallest["half"] - smallest["predicted"]).values / constants
    bounds = np.broadcast_to([schedule_error(d, ends, size) for d in range(DIM)], error.shape)
    start = [(size / (LOW * float(end))) ** exponent(d) for d, end in enumerate(ends)]
    before = max(inits.size - 3, 0)
    later = np.where(flows["clear"], abs(flows["half"] / flows["predicted"] - 1), np.nan)[..., 1:]
    medians = np.nanmedian(later.reshape(inits.size, -1), axis=1)
    return [
        Claim.over(
            f"{NAME}/scheduled-heads",
            f"{words}, each drop is due to the head that the schedule names (1) or not (0){left_out}",
            predicted=1,
            measured=(smallest["head"] == smallest["predicted_head"]).values[clear].astype(int),
            tolerance=0,
            basis=f"a count, {MOST:.0%} of drops",
            required=MOST,
            counted="drops",
            kind="theory",
            source="theory.linear.drop_schedule",
        ),
        Claim.over(
            f"{NAME}/times",
            f"{words}, drops come when the schedule says: error in time constants of the drop, after waits of some "
            f"10³ to 10⁵ of them{left_out}",
            predicted=0.0,
            measured=error[clear],
            tolerance=bounds[clear],
            basis="a quarter of a time constant of each component learned before, times the logarithm of the growth "
            f"still to come; one for the drop itself; for {MOST:.0%} of drops",
            required=MOST,
            counted="drops",
            kind="theory",
            source="theory.linear.drop_schedule, papers.linear_attention._fig03_theory.schedule_error",
            explored=True,
        ),
        Claim.at_least(
            f"{NAME}/vanishing-error",
            "The relative error of the scheduled times of the second to fourth drops vanishes at least in proportion "
            f"to the initial size: power of its median, from {inits[before]:g} to {inits[-1]:g}",
            predicted=1.0,
            measured=np.log(medians[before] / medians[-1]) / np.log(inits[before] / inits[-1]),
            tolerance=1 / np.log(1 / float(inits[before])),
            basis="errors of some time constants over waits of the order 1/init; the logarithm in their bound",
            kind="theory",
            source="theory.linear.drop_schedule",
        ),
        Claim.over(
            f"{NAME}/scalar-course",
            f"{words}, heads that learn, first to last, follow the scalar equation: time from {LOW:.0%} to {HIGH:.0%} "
            f"of its final value, over the equation's{left_out}",
            predicted=1.0,
            measured=smallest["rise"].values[clear],
            tolerance=np.broadcast_to(start, clear.shape)[clear],
            basis="angle off the eigenvector as the rise begins, by its power of the initial size (it enters "
            f"squared), for {MOST:.0%} of heads",
            required=MOST,
            counted="heads",
            kind="paper",
            source="eq. 21",
            explored=True,
        ),
    ]
