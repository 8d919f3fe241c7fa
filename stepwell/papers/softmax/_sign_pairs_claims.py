"""The claims of `sign_pairs`."""

import numpy as np
import xarray as xr

from stepwell.figures import Claim, Data, Known

from ._search import FLATTEST
from ._sign_pairs_settings import DEVIATIONS, OFF_BALANCE, SIZES, SPACING, Settings
from ._softmax_search import DEVIATIONS as DRAWN_DEVIATIONS
from ._worst import worst_point

PAIRS = "arXiv 2503.12734, abstract: emergent patterns from random initialization"
ONE_SIGN = Known(
    "in one of the seeds both heads take the same sign and act as a single head, at whose level the loss rests",
    "two-heads-of-one-sign",
)
NOISY = 0.2
"""What whole matrices may have besides the structure, relative to it: noise of batches of 256 sequences."""
NOTHING = 0.1
"""What a readout may have besides the labels, and besides a sum of zero, relative to μ."""
BALANCED = 0.01
"""The same sum of the eigenvalues, which have less noise, relative to Σ|μ|."""


def claims(data: Data, settings: Settings) -> list[Claim]:
    return [
        *_of_random_starts(data),
        *_of_pairs(data, settings),
        *_of_training(data, settings),
        *_of_falls(data["signed"], data["unbalanced"], data["laws"]),
        *_of_heads(data["heads"]),
    ]


def _of_random_starts(data: Data) -> list[Claim]:
    whole, runs = data["whole"], data["random"]
    agree = np.sign(whole["omega"].values) == np.sign(whole["mu"].values)
    opposite = np.sign(whole["omega"].values).sum(axis=1) == 0
    law = data["laws"].sel(kind="signed")
    flat = float(law["unit"] * (law["growth"] * runs["time"][-1] / 4) ** -law["power"])
    levels = (
        ("keys", "key-query weights are ±ω times the identity, with one ω: what else there is", NOISY),
        ("inputs", "output-value weights read the label alone: what they read of the inputs, over μ", NOTHING),
        ("added", "output-value weights add up to zero: |μ¹ + μ²| over μ", NOTHING),
    )
    return [
        Claim.fraction(
            "random-signs",
            "Softmax attention, whole matrices from Gaussian weights: fraction of seeds in which one of two heads has "
            "positive ω and μ and one negative",
            holds=opposite & agree.all(axis=1),
            basis="signs",
            kind="paper",
            source=PAIRS,
            known=ONE_SIGN,
            explored=True,
        ),
        *[
            Claim.over(
                f"random-{name}",
                f"Softmax attention, whole matrices from Gaussian weights: {words}",
                predicted=level,
                measured=whole[name].values,
                tolerance=0,
                basis="a level, set on other seeds: batches are noisy",
                relation="<=",
                kind="paper",
                source=PAIRS,
                known=None if name == "keys" else ONE_SIGN,
                explored=True,
            )
            for name, words, level in levels
        ],
        Claim.over(
            "random-zero-sum",
            "Softmax attention, eigenvalues from Gaussian weights, "
            f"{' and '.join(str(h) for h in runs['heads'].values)} heads: |Σμ| over Σ|μ|, for each run",
            predicted=BALANCED,
            measured=runs["added"].values.ravel(),
            tolerance=0,
            basis="a level, set on other seeds",
            relation="<=",
            counted="runs",
            kind="paper",
            source=PAIRS,
            explored=True,
        ),
        Claim.over(
            "random-linear",
            "Softmax attention, eigenvalues from Gaussian weights: the loss over fresh sequences is that of linear "
            "attention on centered labels, with L − 1 pairs: ratio, for each run",
            predicted=1.0,
            measured=(runs["tested"] / runs["linear"]).values.ravel(),
            tolerance=(
                DRAWN_DEVIATIONS * runs["tested_error"] / runs["linear"]
                + 2 * runs["heads"] / runs.attrs["sequences"]
                + flat**2 / 6
            ).values.ravel(),
            basis=f"{DRAWN_DEVIATIONS:g} standard errors, from other sequences; weights fitted to N sequences lose on "
            "others at most 1/N each; a²/6 of a pair after a quarter of the time, by its law",
            counted="runs",
            kind="paper",
            source="arXiv 2503.12734, abstract: debiased gradient descent; loss: linear_attention_loss",
            explored=True,
        ),
    ]


def _of_pairs(data: Data, settings: Settings) -> list[Claim]:
    curve, sampled = data["curves"], data["sampled"]
    flat = sampled.isel(a=0).sel(kind="pair")
    pairs = sampled.sel(kind="pair")
    return [
        Claim.over(
            "flat-pair",
            f"Softmax itself, sampled, at a = {SIZES[0]:g}: a sign pair is linear attention on centered scores: loss",
            predicted=float(flat["limit"]),
            measured=flat["mean"].values,
            tolerance=DEVIATIONS * flat["error"].values
            + (SIZES[0] ** 2 + 8 * SIZES[0] / settings.context) * float(flat["limit"]),
            basis=f"{DEVIATIONS:g} standard errors, from other contexts; cubic terms of the softmax, relative orders "
            "a² and 8a/L (centered_linear_loss)",
            kind="theory",
            source="theory.softmax.sign_pair_loss, sign pairs are linear attention as a → 0",
        ),
        worst_point(
            "linear-variance",
            "Linear attention, sampled: its variance is (dφ+1)/L: loss",
            measured=sampled["mean"].sel(kind="linear"),
            predicted=float(curve["linear_exact"][0]),
            tolerance=DEVIATIONS * sampled["error"].sel(kind="linear"),
            basis=f"{DEVIATIONS:g} standard errors, from other contexts",
            kind="theory",
            source="linear attention, variance (dφ+1)/L",
        ),
        Claim.over(
            "pairs-beat-one-head",
            "Softmax itself, sampled: sign pairs beat the best that one head can do: greatest loss, a from 0.02 to 1",
            predicted=float(curve["best_exact"]),
            measured=(pairs["mean"] + DEVIATIONS * pairs["error"]).max("a").values,
            tolerance=0.0,
            basis=f"strict, {DEVIATIONS:g} standard errors added",
            kind="theory",
            source="theory.softmax.single_head_optimum; as arXiv 2503.12734 reports of trained pairs",
            relation="<=",
        ),
    ]


def _of_training(data: Data, settings: Settings) -> list[Claim]:
    curve, left = data["curves"], data["unbalanced"]
    limit = float(curve["flow"])
    logs = np.log(1 / left["delta"].values)
    slope = (left["passage"][:, -1] - left["passage"][:, 0]).values / (logs[-1] - logs[0])
    rate = left["rate"].values
    # A run that had less than twice the time of the plateau need not leave it.
    judged = np.isfinite(slope) | (2 * logs[-1] / rate <= settings.until)
    exact = data["exact"]
    return [
        Claim.over(
            "balanced-end",
            "Spectral loss, from positive balanced weights: two heads end at the limit of the flow: loss",
            predicted=limit,
            measured=data["balanced"]["loss"].values[:, -1],
            tolerance=1e-6 * limit,
            basis="all else dies exponentially, and has had a hundred times as long as it takes",
            kind="theory",
            source="theory.softmax.flow_limit_loss",
        ),
        Claim.over(
            "plateau-slope",
            "Spectral loss, off balance: the plateau lasts ln(1/δ)/κ and a constant: slope of its end against ln(1/δ), "
            "times κ",
            predicted=1.0,
            measured=(slope * rate)[judged],
            tolerance=2 * SPACING / (logs[-1] - logs[0]) * rate[judged] + OFF_BALANCE[0],
            basis="twice the spacing of saved times; the largest δ; κ by theory",
            kind="theory",
            source="docs/differences.md, the limit of the flow is a saddle",
        ),
        Claim.over(
            "exact-leaves",
            "Softmax attention trained from positive weights off balance: the loss on new sequences is below the best "
            "of one head",
            predicted=float(curve["best_exact"]),
            measured=(exact["tested"] + DEVIATIONS * exact["tested_error"]).values,
            tolerance=0,
            basis=f"strict, {DEVIATIONS:g} standard errors added",
            relation="<=",
            kind="theory",
            source="docs/differences.md, the limit of the flow is a saddle",
        ),
    ]


def _of_falls(signed: xr.Dataset, left: xr.Dataset, laws: xr.Dataset) -> list[Claim]:
    fall_claims = []
    for kind, words, runs, counted in (
        ("signed", "from weights of either sign, two heads near the bound as t^(−4/5)", signed, "seeds"),
        ("unbalanced", "from positive weights off balance, two heads near the bound as t^(−2/3)", left, "runs"),
    ):
        law, time = laws.sel(kind=kind), runs["time"].values
        half = int(np.searchsorted(time, time[-1] / 2))
        grown = _clock(runs["loss"], law)
        speed = (grown.isel(time=-1) - grown.isel(time=half)) / (time[-1] - time[half])
        # By the law itself, at the middle of the time.
        a = float(law["unit"] * (law["growth"] * time[half]) ** -law["power"])
        fall_claims.append(
            Claim.over(
                f"{kind}-fall",
                f"Spectral loss, {words}: growth over the last half of the time of what grows evenly by the law, over "
                "the law's",
                predicted=1.0,
                measured=(speed / law["growth"]).values.ravel(),
                tolerance=a ** float(law["next_order"]),
                basis="next order in a, where the law has it in the middle of the time: a for (ω, 0), a² for (ω, −ω)",
                counted=counted,
                kind="theory",
                source="docstring of falling_laws",
            )
        )
    return fall_claims


def _clock(loss: xr.DataArray, law: xr.Dataset) -> xr.DataArray:
    """What grows evenly in time by the law, from the loss over the signal."""
    flatness = loss / (law["gamma"] * (1 - loss)) - 1
    a = (flatness / law["factor"]) ** (1 / law["order"])
    omega = (a / law["unit"]) ** 0.5
    power = 1 + 2 * law["order"]
    return omega**-power + law["inertia"] * power / (power - 2) * omega ** (2 - power)


def _of_heads(searched: xr.Dataset) -> list[Claim]:
    slack = FLATTEST**2 * searched["heads"] * searched["bound"] + searched["rounding"]
    return [
        worst_point(
            "heads-signed",
            "Spectral loss, three tasks, weights of either sign: the least loss of a search is the bound: loss, at "
            "the H furthest off",
            measured=searched["signed"],
            predicted=searched["bound"],
            tolerance=slack,
            basis=f"Σ|ω^h|² in the search is at least {FLATTEST:g}²·H; rounding",
            kind="theory",
            source="theory.softmax.lower_bound",
        ),
        worst_point(
            "heads-positive",
            "Spectral loss, three tasks, weights not negative: the least loss of a search is that of tasks divided "
            "among heads: loss, at the H furthest off",
            measured=searched["positive"],
            predicted=searched["partition"],
            tolerance=1e-8,
            basis="the search's tolerance",
            kind="theory",
            source="theory.softmax.best_partition, tasks divided among heads",
        ),
    ]
