"""What is claimed of the allocation of heads."""

import numpy as np
import xarray as xr

from stepwell.analysis import passage_time
from stepwell.figures import Claim, Data

from ._allocation_settings import MARGIN, Settings, number_word, shared_words
from ._softmax_search import DEVIATIONS
from ._unless import unless

SMALL = 1e-2
"""Below this size a losing μ is free, but for the variance that it and the others like it add."""
LEFT = (0.1, 10.0)
"""The limit has been left when a losing μ has a size between these."""
ALONE = 0.99
"""A head that gives this part of the prediction to a task serves it alone."""
ENDED = 0.9
"""The fraction of runs whose training must have ended; in a few, two heads nearly tie and part late."""
RULE = "theory.softmax.winners, first order in differences of log ω and log μ"
APART = "theory.softmax.winners; that tasks which want one head can only be driven apart was observed first"
UNDECIDED = "no task has a head of its own that leads clearly"
SADDLE = "docs/differences.md, the limit of the flow is a saddle"


def claims(data: Data, settings: Settings) -> list[Claim]:
    return [
        *_softmax_equal(data["equal"]),
        *_softmax_unequal(data["unequal"]),
        *_winners(data["starts"]),
        *_costs(data["starts"]),
        *_sharing(data["sharing"], settings),
        *_imbalance(data["imbalance"], settings),
    ]


def _wrong(runs: xr.Dataset) -> np.ndarray:
    """Tasks that did not get the head named for them, and for no other task."""
    return (runs["served_by"] != runs["predicted"]).values & ~runs["contested"].values


def _merged(runs: xr.Dataset) -> int:
    """Runs with fewer heads in use than predicted."""
    return int(sum(used < np.unique(p).size for used, p in zip(runs["heads_used"], runs["predicted"], strict=True)))


def _softmax_equal(runs: xr.Dataset) -> list[Claim]:
    clear, tasks = runs["lead"].values > MARGIN, runs.sizes["task"]
    decided = int((clear & ~runs["contested"].values).sum())
    return [
        unless(
            "" if decided else UNDECIDED,
            Claim.close,
            "softmax-winners",
            "Softmax attention from random ω and μ: a task whose predicted head is no other task's, and leads by more "
            "than second-order terms, gets it: exceptions among "
            f"{decided} tasks",
            predicted=0,
            measured=(_wrong(runs) & clear).sum(),
            tolerance=0,
            basis="a count; the rule is of first order in differences of 0.3",
            kind="theory",
            source=RULE,
            explored=True,
        ),
        Claim.close(
            "softmax-contention",
            "Softmax attention: contention for a head never adds to sharing: runs of "
            f"{runs.sizes['run']} with fewer heads in use than predicted",
            predicted=0,
            measured=_merged(runs),
            tolerance=0,
            basis="a count",
            kind="theory",
            source=APART,
            explored=True,
        ),
        Claim.over(
            "softmax-one-head",
            "Softmax attention from random ω and μ: each task is learned by one head: that head's part of the "
            f"prediction, the least of the {number_word(tasks)} tasks, for each run ({ENDED:g} of the runs must have "
            "ended)",
            predicted=ALONE,
            measured=runs["share"].min("task").values,
            tolerance=0,
            basis="a level",
            relation=">=",
            required=ENDED,
            counted="runs",
            kind="paper",
            source="abstract: task allocation, each head focuses on solving a single task",
            explored=True,
        ),
        *[
            _ended(
                f"softmax-cost-{used}-heads",
                f"Softmax attention, runs that end with {shared_words(used, tasks)}: loss over fresh sequences over "
                f"the least by quadrature, for each such run ({ENDED:g} of them must have ended)",
                runs.isel(run=np.flatnonzero(runs["heads_used"] == used)),
                float(runs["level"].sel(used=used)),
                required=ENDED,
                source="theory.softmax.exact_loss, least over the weights",
            )
            for used in runs["used"].values[::-1].tolist()
            if np.any(runs["heads_used"] == used)
        ],
    ]


def _ended(id: str, statement: str, runs: xr.Dataset, level: float, *, required: float, source: str) -> Claim:
    parameters = 2 * runs.sizes["task"]
    tail = runs["tail"].values if "tail" in runs else 0.0
    return Claim.over(
        id,
        statement,
        predicted=1.0,
        measured=runs["tested"].values / level,
        tolerance=DEVIATIONS * runs["tested_error"].values / level + parameters / runs.attrs["sequences"] + tail,
        basis=f"{DEVIATIONS:g} standard errors, from other sequences; ω and μ of each task, fitted to N "
        "sequences, lose on others at most 1/N each"
        + ("; the tail that the spectral flow from the same initialization has left" if "tail" in runs else ""),
        required=required,
        counted="runs",
        kind="theory",
        source=source,
        explored=True,
    )


def _softmax_unequal(runs: xr.Dataset) -> list[Claim]:
    tasks, heads = runs.sizes["task"], runs.sizes["head"]
    return [
        Claim.over(
            "softmax-unequal-winners",
            f"Softmax attention, {heads} heads on {tasks} unequal tasks with noise: where theory names a head of its "
            "own for every task, by more than second-order terms, each gets it: number of such tasks, for each "
            "initialization",
            predicted=tasks,
            measured=(runs["served_by"] == runs["predicted"]).sum("task").values,
            tolerance=0,
            basis="a count",
            counted="starts",
            kind="theory",
            source=RULE,
            explored=True,
        ),
        Claim.over(
            "softmax-unequal-one-head",
            f"Softmax attention, {heads} heads on {tasks} unequal tasks with noise: each task is learned by one head, "
            "and the head without a task gives nothing: part of the prediction, the least of the tasks, for each "
            "initialization",
            predicted=ALONE,
            measured=runs["share"].min("task").values,
            tolerance=0,
            basis="a level",
            relation=">=",
            counted="starts",
            kind="paper",
            source="abstract: convergence of gradient flow, task allocation",
            explored=True,
        ),
        _ended(
            "softmax-unequal-end",
            f"Softmax attention, {heads} heads on {tasks} unequal tasks with noise, converges to the least loss of a "
            "head for each task by quadrature: loss over fresh sequences over it, for each initialization",
            runs,
            float(runs["level"]),
            required=1.0,
            source="abstract: convergence of gradient flow; level: theory.softmax.exact_optimum",
        ),
    ]


def _winners(trained: xr.Dataset) -> list[Claim]:
    wrong, equal, clear = _wrong(trained), trained["equal_mu"].values, trained["lead"].values > MARGIN
    decided = clear & ~trained["contested"].values
    return [
        *[
            unless(
                "" if decided[kind].any() else UNDECIDED,
                Claim.close,
                id,
                f"Spectral loss, {words}, is no other task's, and leads by more than second-order terms, gets it: "
                f"exceptions among {int(decided[kind].sum())} tasks",
                predicted=0,
                measured=(wrong & clear)[kind].sum(),
                tolerance=0,
                basis="a count; the rule is of first order in differences of 0.3",
                kind="theory",
                source=RULE,
                explored=True,
            )
            for id, words, kind in (
                ("equal-mu", "equal μ: a task whose head of largest ω", equal),
                ("random-mu", "random ω and μ: a task whose predicted head", ~equal),
            )
        ],
        Claim.close(
            "contention",
            "Spectral loss: contention for a head never adds to sharing: runs of "
            f"{trained.sizes['run']} with fewer heads in use than predicted",
            predicted=0,
            measured=_merged(trained),
            tolerance=0,
            basis="a count",
            kind="theory",
            source=APART,
            explored=True,
        ),
    ]


def _costs(trained: xr.Dataset) -> list[Claim]:
    end = trained["loss"].values[:, -1]
    cost_claims = []
    tasks = trained.sizes["task"]
    for used in range(tasks, 0, -1):
        chosen = trained["heads_used"].values == used
        if np.any(chosen):
            cost = trained["cost"].values[chosen]
            cost_claims.append(
                Claim.over(
                    f"cost-{used}-heads",
                    f"Spectral loss, runs that end with {shared_words(used, tasks)}: final loss, for each such run "
                    f"({ENDED:g} of them must have ended)",
                    predicted=cost,
                    measured=end[chosen],
                    tolerance=trained["tail"].values[chosen] + 1e-8 * cost,
                    basis="scores off task fade as 1/(Kt), by theory; rounding of 10,000 steps",
                    required=ENDED,
                    counted="runs",
                    kind="theory",
                    source="theory.softmax.shared_loss",
                    explored=True,
                )
            )
    return cost_claims


def _step(rate: float) -> float:
    """Descent of rate η multiplies a weight that grows as e^{rt} by (1 + ηr/2)² a step: r is low by this times r²."""
    return rate / 4


def _sharing(trained: xr.Dataset, settings: Settings) -> list[Claim]:
    step = _step(settings.rate)
    rate, wanted = trained["rate"].values, trained["predicted_rate"].values
    worst = int(np.argmax(np.abs(rate - wanted) / (step * wanted**2)))
    root = float(np.interp(0.0, rate, trained["x"].values))
    spacing = float(np.diff(trained["x"].values)[0])
    limit = np.where(trained["revives"], trained["split"], trained["shared"])
    return [
        Claim.close(
            "sharing-rate",
            "Spectral loss: a small head beside a shared one grows at the rate 4Sω(1-c)(x - e^{x/2-1}): rate at the x "
            "furthest off",
            predicted=wanted[worst],
            measured=rate[worst],
            tolerance=1.1 * step * wanted[worst] ** 2,
            basis="descent in steps: ηr²/4, and a tenth of that",
            kind="theory",
            source="theory.softmax.losing_head_rate, a small head beside a shared one",
        ),
        Claim.close(
            "sharing-threshold",
            "Spectral loss, two tasks in one head: the second head grows if its ω is above x times that of the first: "
            "threshold x",
            predicted=float(trained["threshold"]),
            measured=root,
            tolerance=spacing**2 / 8,
            basis="a line between the points of the scan: its curvature over slope is below 1",
            kind="theory",
            source="theory.softmax.revival_threshold, x = e^(x/2 − 1)",
        ),
        Claim.over(
            "sharing-end",
            "Spectral loss: two tasks in one head split if x is above 0.464 and stay together if it is below: final "
            f"loss, one for each of {trained.sizes['end']} sizes x of the second head",
            predicted=limit,
            measured=trained["end_loss"].values,
            tolerance=float(trained["tail"]) * trained["revives"].values + 1e-6,
            basis="scores off task fade as 1/(Kt), by theory; 1e-6 for a head that is still dying",
            counted="sizes",
            kind="theory",
            source="theory.softmax.revival_threshold, x = e^(x/2 − 1)",
        ),
    ]


def _imbalance(trained: xr.Dataset, settings: Settings) -> list[Claim]:
    mu, heads = settings.mu, settings.tasks
    # The rate is a quarter. Steps also shrink δ = o² - v², by ηr²t/4 in ln δ.
    step = _step(settings.rate / 4)
    # What a losing μ of size 1 takes off the rate of growth of another: 4Sφ/L.
    variance = 4 * settings.dims[0] / settings.context
    limit, bound = float(trained["limit"]), float(trained["bound"])
    time, loss = trained["time"].values, trained["loss"].values
    fallen = trained["log_mu"].values - np.log(mu)
    alone = "" if heads > 1 else "a single head has no task to lose"
    rates, wanted, allowed, left, leave, ended = [], [], [], [], [], []
    for row, delta in enumerate(trained["delta"].values[1:], start=1):
        # s has gone from ln(4μ(0)/δ) to -ln(4μ/δ) when the limit is left.
        turned = [2 * np.log(delta / 4) - np.log(mu * size) for size in (LEFT[0], 1.0, LEFT[1])]
        if turned[-1] > fallen.min():
            ended.append(row)
        predicted = np.arcsinh(2 * mu / delta) + fallen
        free = (delta / 2 * np.sinh(np.abs(predicted).clip(0, 100)) < SMALL) & (time > float(trained["settled"]))
        if free.sum() < 3:  # an imbalance so large that the limit is left before it is reached
            continue
        observed = np.arcsinh(2 * trained["losing_mu"].values[row] / delta)
        rates.append(np.polyfit(time[free], observed[free], 1)[0])
        wanted.append(np.polyfit(time[free], predicted[free], 1)[0])
        longer = 1 + 2 * time[free][-1] / np.ptp(time[free])
        allowed.append(step * wanted[-1] ** 2 * longer + (heads - 1) * variance * SMALL)
        left.append((np.log(delta), passage_time(time, loss[row], (limit + bound) / 2)))
        leave.append(np.interp(turned, fallen[::-1], time[::-1]))
    logs, times = np.array(left).reshape(-1, 2).T
    few = "" if times.size > 1 else "a slope needs two imbalances of which the limit is reached"
    slopes = np.zeros(3) if few else np.polyfit(logs, np.array(leave), 1)[0]
    # The limit may never be left.
    slope = np.polyfit(logs, times, 1)[0] if not few and np.all(np.isfinite(times)) else np.nan
    return [
        Claim.close(
            "balanced-end",
            "Spectral loss, balanced values and outputs: the loss ends at the flow's limit",
            predicted=limit,
            measured=loss[0, -1],
            tolerance=float(trained["tail"]),
            basis="scores off task fade as 1/(Kt), by theory",
            kind="theory",
            source="theory.softmax.flow_limit_loss",
        ),
        unless(
            alone,
            Claim.over,
            "unbalanced-rate",
            "Spectral loss, unbalanced by δ = o² - v²: the μ of a head that has no task passes through zero, at the "
            "rate at which it decays in the balanced flow: d arsinh(2μ/δ)/dt, one for each δ",
            predicted=wanted,
            measured=rates,
            tolerance=allowed,
            basis="descent in steps, by which δ also shrinks; variance of the losing heads",
            counted="imbalances",
            kind="theory",
            source=SADDLE,
        ),
        unless(
            alone or few,
            Claim.close,
            "unbalanced-time",
            "Spectral loss, unbalanced: the loss leaves the flow's limit after μ has fallen to δ and grown back: slope "
            "of that time in ln δ, about -2 over the rate of decay",
            predicted=slopes[1],
            measured=slope,
            tolerance=np.ptp(slopes) / 2 + 6 * step,
            basis=f"the size of μ that counts, from {LEFT[0]:g} to {LEFT[1]:g}; descent in steps, by which δ shrinks",
            kind="theory",
            source=SADDLE,
        ),
        unless(
            alone,
            Claim.over,
            "unbalanced-end",
            "Spectral loss, unbalanced: the loss ends below the middle between the flow's limit and the bound for "
            f"{number_word(heads)} heads: final loss, one for each imbalance",
            predicted=(limit + bound) / 2,
            measured=loss[ended, -1],
            tolerance=0,
            basis="a level",
            counted="imbalances",
            kind="theory",
            source=SADDLE,
            relation="<=",
        ),
        Claim.over(
            "unbalanced-bound",
            f"Spectral loss, unbalanced: the loss stays above the bound for {number_word(heads)} heads: least loss, "
            "one for each imbalance",
            predicted=bound,
            measured=loss[1:].min(axis=1),
            tolerance=0,
            basis="a bound",
            counted="imbalances",
            kind="theory",
            source="theory.softmax.lower_bound",
            relation=">=",
        ),
    ]
