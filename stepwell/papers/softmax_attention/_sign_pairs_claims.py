"""The claims of `sign_pairs`."""

import numpy as np
import xarray as xr

from stepwell.papers._claim import Claim

from ._search import FLATTEST
from ._sign_pairs_settings import DEVIATIONS, DIM, NAME, OFF_BALANCE, SIZES, SPACING
from ._worst import worst_point


def expectations(data: dict[str, xr.Dataset]) -> list[Claim]:
    return [*_of_pairs(data), *_of_training(data), *_of_heads(data["heads"])]


def _of_pairs(data: dict[str, xr.Dataset]) -> list[Claim]:
    curve, sampled = data["curves"], data["sampled"]
    flat = sampled.isel(a=0).sel(kind="pair")
    pairs = sampled.sel(kind="pair")
    return [
        Claim.at_most(
            f"{NAME}/share",
            "A sign pair has the share a/sinh a: largest relative difference of the loss of its weights",
            measured=float(abs(curve["pair_gap"]).max()),
            tolerance=1e-12,
            basis="rounding, where large readouts of either sign cancel",
            kind="check",
            source="theory.softmax.bounds, the share a/sinh a",
        ),
        Claim.over(
            f"{NAME}/flat-pair",
            f"Softmax itself, sampled, at a = {SIZES[0]:g}: a sign pair is linear attention on centred scores: loss",
            predicted=float(flat["limit"]),
            measured=flat["mean"].values,
            tolerance=DEVIATIONS * flat["error"].values + 2 * SIZES[0] * float(flat["limit"]),
            basis=f"{DEVIATIONS:g} standard errors; cubic terms of the softmax, relative order a (twice)",
            kind="theory",
            source="theory.softmax.bounds, sign pairs are linear attention as a → 0",
        ),
        worst_point(
            f"{NAME}/linear-variance",
            "Linear attention, sampled: its variance is (dφ+1)/L: loss",
            measured=sampled["mean"].sel(kind="linear"),
            predicted=float(curve["linear_exact"][0]),
            tolerance=DEVIATIONS * sampled["error"].sel(kind="linear"),
            basis=f"{DEVIATIONS:g} standard errors",
            kind="theory",
            source="linear attention, variance (dφ+1)/L",
        ),
        Claim.close(
            f"{NAME}/linear-leading",
            "With e^x replaced by x, the leading-order loss is that of linear attention: relative difference",
            predicted=0.0,
            measured=float(curve["linear"][0] / curve["linear_exact"][0] - 1),
            tolerance=1 / DIM,
            basis="(dφ+1)/L against dφ/L: relative order 1/d",
            kind="check",
            source="linear attention, exact and leading order",
        ),
        Claim.over(
            f"{NAME}/pairs-beat-one-head",
            "Softmax itself, sampled: sign pairs beat the best that one head can do: greatest loss, a from 0.02 to 1",
            predicted=float(curve["best_exact"]),
            measured=(pairs["mean"] + DEVIATIONS * pairs["error"]).max("a").values,
            tolerance=0.0,
            basis=f"strict, {DEVIATIONS:g} standard errors added",
            kind="theory",
            source="theory.softmax.limits, the best single head; as arXiv 2503.12734 reports of trained pairs",
            relation="<=",
        ),
    ]


def _of_training(data: dict[str, xr.Dataset]) -> list[Claim]:
    curve, left = data["curves"], data["unbalanced"]
    limit, bound = float(curve["flow"]), float(curve["bound"])
    logs = np.log(1 / left["delta"].values)
    slope = (left["passage"][:, -1] - left["passage"][:, 0]).values / (logs[-1] - logs[0])
    last, pair, exact = left.isel(time=-1), data["signed"].isel(time=-1), data["exact"]
    training_claims = [
        Claim.over(
            f"{NAME}/balanced-end",
            "Trained from positive balanced weights, two heads end at the limit of the flow: loss",
            predicted=limit,
            measured=data["balanced"]["loss"].values[:, -1],
            tolerance=1e-6 * limit,
            basis="training goes on until less than this is left",
            kind="paper",
            source="abstract: the flow converges; level by theory.softmax.limits.flow_limit_loss",
        ),
        Claim.over(
            f"{NAME}/plateau-slope",
            "Off balance, the plateau lasts ln(1/δ)/κ and a constant: slope of its end against ln(1/δ), times κ",
            predicted=1.0,
            measured=slope * left["rate"].values,
            tolerance=2 * SPACING / (logs[-1] - logs[0]) * left["rate"].values + OFF_BALANCE[0],
            basis="twice the spacing of saved times; the largest δ",
            kind="theory",
            source="docs/differences.md, the limit of the flow is a saddle",
        ),
    ]
    training_claims.append(
        worst_point(
            f"{NAME}/unbalanced-end",
            "Trained from positive weights off balance, two heads near the bound: loss at the δ furthest off",
            measured=last["loss"],
            predicted=bound,
            tolerance=bound * last["size"] / 2 + 1e-8,
            basis="heads (ω, 0) with (μ, -μ) have the share a/(e^a - 1), short of 1 by a/2 at their last a; solver",
            kind="theory",
            source="theory.softmax.bounds",
        )
    )
    training_claims.append(
        Claim.over(
            f"{NAME}/signed-end",
            "Trained from weights of either sign, two heads end at the bound: loss",
            predicted=bound,
            measured=pair["loss"].values,
            tolerance=bound * pair["size"].values ** 2 / 6 + 1e-8,
            basis="a sign pair's share a/sinh a is short of 1 by a²/6 at its last a; solver",
            kind="theory",
            source="theory.softmax.bounds; arXiv 2503.12734 reports such pairs",
        )
    )
    training_claims.append(
        Claim.at_most(
            f"{NAME}/exact-leaves",
            "Trained on softmax itself, off balance: the loss on new sequences is below the best of one head",
            predicted=float(curve["best_exact"]),
            measured=float(exact["tested"] + DEVIATIONS * exact["tested_error"]),
            basis=f"strict, {DEVIATIONS:g} standard errors added",
            kind="theory",
            source="docs/differences.md, the limit of the flow is a saddle",
        )
    )
    return training_claims


def _of_heads(searched: xr.Dataset) -> list[Claim]:
    slack = FLATTEST**2 * searched["heads"] * searched["bound"] + searched["rounding"]
    wanted = int(searched.attrs["tasks"]) + 1
    bound = float(searched["bound"].sel(heads=wanted))
    return [
        worst_point(
            f"{NAME}/heads-signed",
            "Three tasks, weights of either sign: the least loss of a search is the bound: loss, at the H furthest off",
            measured=searched["signed"],
            predicted=searched["bound"],
            tolerance=slack,
            basis=f"Σ|ω^h|² in the search is at least {FLATTEST:g}²·H; rounding",
            kind="theory",
            source="theory.softmax.bounds",
        ),
        worst_point(
            f"{NAME}/heads-positive",
            "Three tasks, weights not negative: the least loss of a search is that of tasks divided among heads: "
            "loss, at the H furthest off",
            measured=searched["positive"],
            predicted=searched["partition"],
            tolerance=1e-8,
            basis="the search's tolerance",
            kind="theory",
            source="theory.softmax.limits, tasks divided among heads",
        ),
        Claim.close(
            f"{NAME}/heads-contrasts",
            "Three tasks on contrasts of four heads reach the bound: loss",
            predicted=bound,
            measured=float(searched["contrast"]),
            tolerance=bound * FLATTEST**2 * wanted,
            basis=f"scores are not zero but |ω^h| is up to {FLATTEST:g}",
            kind="theory",
            source="theory.softmax.bounds",
        ),
    ]
