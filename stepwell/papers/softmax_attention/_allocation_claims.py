"""What is claimed of the allocation of heads."""

from math import factorial

import numpy as np
import xarray as xr

from stepwell.papers._claim import Claim
from stepwell.probes import passage_time

from ._full_model import CONTEXT, DIMS, HEADS, TASKS

NAME = "softmax/allocation"
SECOND_ORDER = 0.09
"""The square of the deviation 0.3 of log ω and log μ: the rule is of first order in differences."""
STEP = 0.02 / 4
"""Descent of rate η multiplies a weight that grows as e^{rt} by (1 + ηr/2)² a step: r is low by ηr²/4."""
SMALL = 1e-2
"""Below this size a losing μ is free, but for the variance that it and the others like it add."""
VARIANCE = 4 * DIMS[0] / CONTEXT
"""What a losing μ of size 1 takes off the rate of growth of another: 4Sφ/L."""


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    return _winners(data["starts"]) + _costs(data["starts"]) + _sharing(data["sharing"]) + _imbalance(data["imbalance"])


def _winners(trained: xr.Dataset) -> list[Claim]:
    wrong = (trained["head"] != trained["predicted"]).values & ~trained["contested"].values
    equal = trained["equal_mu"].values
    predicted_heads = np.array([np.unique(heads).size for heads in trained["predicted"].values])
    chance = factorial(TASKS) / HEADS**TASKS
    runs = trained.sizes["run"]
    return [
        Claim.close(
            f"{NAME}/equal-mu",
            f"Equal μ: a task whose head of largest ω is no other task's gets that head: exceptions among "
            f"{int((~trained['contested'].values)[equal].sum())}",
            predicted=0,
            measured=wrong[equal].sum(),
            tolerance=0,
            basis="a count",
            kind="theory",
            source="theory.softmax.allocation, the head of largest ω",
        ),
        Claim.close(
            f"{NAME}/random-mu",
            "Random ω and μ: a task whose predicted head is no other task's, and leads by more than second-order "
            "terms, gets it: exceptions",
            predicted=0,
            measured=(wrong & (trained["lead"].values > SECOND_ORDER))[~equal].sum(),
            tolerance=0,
            basis="a count; the rule is of first order in differences of 0.3",
            kind="theory",
            source="theory.softmax.allocation, first order in differences",
        ),
        Claim.close(
            f"{NAME}/contention",
            f"Contention for a head never adds to sharing: runs of {runs} with fewer heads in use than predicted",
            predicted=0,
            measured=np.sum(trained["heads_used"].values < predicted_heads),
            tolerance=0,
            basis="a count",
            kind="theory",
            source="theory.softmax.allocation, tasks that want one head are driven apart",
        ),
        Claim.close(
            f"{NAME}/chance",
            "The rule gives each task a head of its own as often as chance does, 3!/3³ = 2/9: fraction of starts",
            predicted=chance,
            measured=np.mean(predicted_heads == TASKS),
            tolerance=3 * (chance * (1 - chance) / runs) ** 0.5,
            basis="three binomial standard errors",
            kind="check",
            source="counting: 3!/3³",
        ),
        Claim.at_least(
            f"{NAME}/more-than-chance",
            "Random starts end one head to a task at least as often as the rule alone says: fraction of starts",
            predicted=np.mean(predicted_heads == TASKS),
            measured=np.mean(trained["heads_used"].values == TASKS),
            basis="contention can only drive tasks apart",
            kind="theory",
            source="theory.softmax.allocation, tasks that want one head are driven apart",
        ),
    ]


def _costs(trained: xr.Dataset) -> list[Claim]:
    end = trained["loss"].values[:, -1]
    tail = 2 * (trained["middle"].values - end)
    cost_claims = []
    for used, words in ((3, "a head for each task"), (2, "two tasks in one head"), (1, "all tasks in one head")):
        chosen = trained["heads_used"].values == used
        if np.any(chosen):
            cost_claims.append(
                Claim.over(
                    f"{NAME}/cost-{used}-heads",
                    f"Runs that end with {words}: final loss, one for each such run",
                    predicted=trained["cost"].values[chosen],
                    measured=end[chosen],
                    tolerance=np.abs(tail[chosen]) + 1e-9 * end[chosen],
                    basis="the rest of the tail: at most twice what it lost in the second half of the run; rounding",
                    counted="runs",
                    kind="theory",
                    source="theory.softmax.limits, heads that share tasks",
                )
            )
    return cost_claims


def _sharing(trained: xr.Dataset) -> list[Claim]:
    rate, wanted = trained["rate"].values, trained["predicted_rate"].values
    worst = int(np.argmax(np.abs(rate - wanted) / (STEP * wanted**2)))
    root = float(np.interp(0.0, rate, trained["x"].values))
    spacing = float(np.diff(trained["x"].values)[0])
    limit = np.where(trained["revives"], trained["split"], trained["shared"])
    tail = 2 * np.abs(trained["end_middle"].values - trained["end_loss"].values)
    return [
        Claim.close(
            f"{NAME}/sharing-rate",
            "A small head beside a shared one grows at the rate 4Sω(1-c)(x - e^{x/2-1}): rate at the x furthest off",
            predicted=wanted[worst],
            measured=rate[worst],
            tolerance=1.1 * STEP * wanted[worst] ** 2,
            basis="descent in steps: ηr²/4, and a tenth of that",
            kind="theory",
            source="theory.softmax.allocation, a small head beside a shared one",
        ),
        Claim.close(
            f"{NAME}/sharing-threshold",
            "Two tasks in one head: the second head grows if its ω is above x times that of the first: threshold x",
            predicted=float(trained["threshold"]),
            measured=root,
            tolerance=spacing**2 / 8,
            basis="a line between the points of the scan: its curvature over slope is below 1",
            kind="theory",
            source="theory.softmax.allocation, x = e^(x/2 − 1)",
        ),
        Claim.over(
            f"{NAME}/sharing-end",
            "Two tasks in one head split if x is above 0.464 and stay together if it is below: final loss, one for "
            f"each of {trained.sizes['end']} sizes x of the second head",
            predicted=limit,
            measured=trained["end_loss"].values,
            tolerance=tail + 1e-6,
            basis="twice what the loss lost in the second half of the run; 1e-6 for a head that is still dying",
            counted="sizes",
            kind="theory",
            source="theory.softmax.allocation, x = e^(x/2 − 1)",
        ),
    ]


def _imbalance(trained: xr.Dataset) -> list[Claim]:
    limit, bound = float(trained["limit"]), float(trained["bound"])
    time, parts = trained["time"].values, trained["part"].values[1:]
    balanced, loss = trained["loss"].values[0], trained["loss"].values[1:]
    rates, wanted, allowed, left = [], [], [], {}
    for row, part in enumerate(parts, start=1):
        half = passage_time(time, trained["loss"].values[row], (limit + bound) / 2)
        mu, dying = trained["losing_mu"].values[row], trained["dying"].values[row]
        free = (np.abs(mu) < SMALL) & (time > float(trained["settled"]))
        if free.sum() < 3:  # an imbalance so large that the limit is left before it is reached
            continue
        # μ = (δ/2) sinh s, and s has the velocity that log μ has where weights are balanced.
        arsinh_mu = np.arcsinh(2 * mu / float(trained["delta"][row]))
        rates.append(np.polyfit(time[free], arsinh_mu[free], 1)[0])
        wanted.append(dying[free].mean())
        allowed.append(
            np.ptp(dying[free]) + (STEP * abs(wanted[-1]) + 0.01) * abs(wanted[-1]) + (HEADS - 1) * VARIANCE * SMALL
        )
        left[part] = half
    times = np.array(list(left.values()))
    # The limit may never be left.
    slope = np.polyfit(np.log(list(left)), times, 1)[0] if np.all(np.isfinite(times)) else np.nan
    speed = -trained["dying"].values[0][(time >= np.nanmin([*times, time[-1]])) & (time <= np.nanmax([*times, 0.0]))]
    speed = speed if speed.size else -trained["dying"].values[0][-1:]
    return [
        Claim.close(
            f"{NAME}/balanced-end",
            "Balanced values and outputs: the loss ends at the flow's limit",
            predicted=limit,
            measured=balanced[-1],
            tolerance=2 * (balanced[np.argmin(np.abs(time - time[-1] / 2))] - balanced[-1]),
            basis="twice what the tail lost in the second half of the run",
            kind="paper",
            source="abstract: convergence, a head to a task; level: theory.softmax.limits.flow_limit_loss",
        ),
        Claim.over(
            f"{NAME}/unbalanced-rate",
            "Unbalanced by δ = o² - v²: the μ of a head that has no task passes through zero, at the rate at which it "
            "would have decayed: d arsinh(2μ/δ)/dt, one for each δ",
            predicted=wanted,
            measured=rates,
            tolerance=allowed,
            basis="change of the rate; descent in steps; a hundredth of the slow mode; variance of the losing heads",
            counted="imbalances",
            kind="theory",
            source="docs/differences.md, the limit of the flow is a saddle",
        ),
        Claim.close(
            f"{NAME}/unbalanced-time",
            "Unbalanced: the loss leaves the flow's limit after μ has fallen to δ and grown back: slope of that time "
            "in ln δ is -2 over the rate of decay",
            predicted=-2 / speed.mean(),
            measured=slope,
            tolerance=2 * np.ptp(1 / speed) + 2 * STEP + 0.02 / speed.mean(),
            basis="change of the rate meanwhile; descent in steps; a hundredth of the slow mode is left",
            kind="theory",
            source="docs/differences.md, the limit of the flow is a saddle",
        ),
        Claim.over(
            f"{NAME}/unbalanced-end",
            "Unbalanced: the loss ends below the middle between the flow's limit and the bound for three heads: final "
            "loss, one for each imbalance",
            predicted=(limit + bound) / 2,
            measured=loss[:, -1],
            tolerance=0,
            basis="a level",
            counted="imbalances",
            kind="theory",
            source="docs/differences.md, the limit of the flow is a saddle",
            relation="<=",
        ),
        Claim.over(
            f"{NAME}/unbalanced-bound",
            "Unbalanced: the loss stays above the bound for three heads: least loss, one for each imbalance",
            predicted=bound,
            measured=loss.min(axis=1),
            tolerance=0,
            basis="a bound",
            counted="imbalances",
            kind="theory",
            source="theory.softmax.bounds",
            relation=">=",
        ),
    ]
