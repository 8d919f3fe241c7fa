r"""Fig 5: in-context learners compared: ridge regression, the best algorithm, and softmax attention.

Curves are closed forms of d/L. Points are simulations at finite d and L: regressions carried out, eigenvalues of drawn
contexts, heads trained, and the exact loss of softmax attention.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell.dynamics import Ensemble, descend
from stepwell.models import SpectralAttention
from stepwell.objectives import ReducedSampled, Spectral
from stepwell.papers._claim import Claim, slug
from stepwell.papers._completed import completed
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._fig05_drawing import drawing
from ._sizes import Sizes, like_tasks
from ._worst import worst_point

NAME = "softmax/fig5"
TITLE = "Softmax attention beside ridge regression and the Bayes risk"
CAPTION = (
    "Risk of a task divided by its signal, for 10 equal tasks of dimension d and context length L, signal-to-noise "
    "ratio 1. Curves, closed forms for large d and L; points, simulations. Left: ridge regression with penalties 0.05 "
    "and 5 (added to the mean XᵀX/L), the Bayes risk, the limit of gradient flow with a head for each task, and the "
    "best single head. Filled points: contexts drawn, eigenvalues averaged; crosses: regressions carried out; squares: "
    "a single head trained. Right: the limit of the flow at finite sizes, without approximation, over its curve on the "
    "left, by quadrature (lines) and by sampling (points): it lies above where d is small. "
    "That penalties belong to the mean and that signals are counted in total is inferred: only so does the penalty "
    "0.05 peak and the penalty 5 not."
)

TASKS = 10
PENALTIES = (0.05, 5.0)
RISKS = ("bayes", "ridge_0.05", "ridge_5")
DEVIATIONS = 4.0
"""Standard errors allowed: one point in some 16,000 falls outside."""


@dataclass(frozen=True)
class Settings:
    seeds: tuple[int, ...] = (0, 1, 2)
    points: int = 80
    context: int = 100
    dims: tuple[int, ...] = (10, 20, 50, 80, 110, 150, 200, 300)
    contexts_drawn: int = 60
    finite: tuple[int, ...] = (30, 100, 1000)
    finite_dims: tuple[int, ...] = (3, 4, 5, 7, 10, 14, 20, 30, 50, 100, 200, 500)
    sampled: tuple[tuple[int, int], ...] = ((10, 30), (10, 100), (50, 100), (30, 1000))
    sequences: int = 8000
    trained: tuple[tuple[int, int], ...] = ((2, 100), (10, 100), (50, 100))
    steps: int = 100_000
    rate: float = 0.2


FULL = Settings()
QUICK = Settings(
    seeds=(0,),
    points=40,
    dims=(20, 50, 110, 200),
    contexts_drawn=40,
    sampled=((10, 100),),
    sequences=4000,
    trained=((10, 100),),
)


def settings(quick: bool) -> dict[str, Any]:
    chosen = asdict(QUICK if quick else FULL)
    pairs = {name: [f"d = {d}, L = {n}" for d, n in chosen.pop(name)] for name in ("sampled", "trained")}
    return {
        "tasks I": TASKS,
        "signal and noise of a task": "S = 1 in total, σ² = 1 (φ = 2)",
        "penalties": list(PENALTIES),
        **chosen,
        **pairs,
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    return {
        "curves": curves(np.geomspace(0.01, 5, chosen.points)),
        "drawn": drawn(chosen),
        "finite": finite(chosen),
        "sampled": sampled(chosen),
        "trained": trained(chosen),
    }


def curves(ratios: np.ndarray) -> xr.Dataset:
    """All risks for large d and L."""
    tasks = [like_tasks(ratio, TASKS) for ratio in ratios]
    risks = {
        "bayes": [theory.bayes.bayes_risk(task)[0] for task in tasks],
        **{f"ridge_{p:g}": [theory.bayes.ridge_risk(t, p, penalised="mean")[0] for t in tasks] for p in PENALTIES},
        "flow": [theory.limits.flow_limit_loss(task)[0] for task in tasks],
        "single": [theory.limits.single_head_optimum(task).loss[0] for task in tasks],
    }
    return xr.Dataset({name: ("ratio", values) for name, values in risks.items()}, coords={"ratio": ratios})


def drawn(chosen: Settings) -> xr.Dataset:
    """Contexts of each seed and dimension: risks given the inputs, from eigenvalues, and errors of regressions."""
    shape = (len(RISKS), len(chosen.seeds), len(chosen.dims))
    table = {name: np.empty(shape) for name in ("mean", "error", "regressed", "regressed_error")}
    predicted, order = np.empty((2, shape[0], shape[2]))
    for column, d in enumerate(chosen.dims):
        ratio = d / chosen.context
        at = curves(np.array([ratio]))
        for place, (name, risk) in enumerate(_risks(ratio).items()):
            predicted[place, column] = at[name][0]
            order[place, column] = finite_size_term(risk.of_eigenvalue, ratio) / d
        for row, seed in enumerate(chosen.seeds):
            rng = np.random.default_rng([seed, d])
            pairs = np.array([_context(rng, d, chosen.context) for _ in range(chosen.contexts_drawn)])
            mean, error = pairs.mean(axis=0), pairs.std(axis=0, ddof=1) / chosen.contexts_drawn**0.5
            for name, values in zip(table, (mean[0], error[0], mean[1], error[1]), strict=True):
                table[name][:, row, column] = values
    return xr.Dataset(
        {
            **{name: (("risk", "run", "dim"), values) for name, values in table.items()},
            "predicted": (("risk", "dim"), predicted),
            "next_order": (("risk", "dim"), order),
        },
        coords={"risk": list(RISKS), "dim": list(chosen.dims), "run": list(chosen.seeds)},
        attrs={"context": chosen.context, "tasks": TASKS},
    )


class _Risk(NamedTuple):
    r"""Ridge regression with $X^\top X/L + \alpha I$: its risk is a mean over the d eigenvalues of XᵀX/L."""

    alpha: float
    ratio: float

    def of_eigenvalue(self, e: np.ndarray) -> np.ndarray:
        return (self.alpha**2 + self.ratio * e) / (e + self.alpha) ** 2


def _risks(ratio: float) -> dict[str, _Risk]:
    """By name, for total signal 1 and noise 1; the posterior mean is ridge regression with α = σ²/(λL) = d/L."""
    return dict(zip(RISKS, (_Risk(alpha, ratio) for alpha in (ratio, *PENALTIES)), strict=True))


def _context(rng: np.random.Generator, dim: int, context: int) -> np.ndarray:
    """For one drawn context: risks in the mean over task vectors and noise, and errors for one of each."""
    x, noise = rng.standard_normal((context, dim)), rng.standard_normal(context)
    vector = rng.standard_normal(dim) / dim**0.5
    label = x @ vector + noise
    wide = dim > context
    squares, axes = np.linalg.eigh((x @ x.T if wide else x.T @ x) / context)
    projected = axes.T @ (label if wide else x.T @ label) / context
    every = np.concatenate([squares.clip(0), np.zeros(max(0, dim - context))])
    pairs = []
    for risk in _risks(dim / context).values():
        solved = axes @ (projected / (squares + risk.alpha))
        answer = x.T @ solved if wide else solved
        pairs.append((np.mean(risk.of_eigenvalue(every)), np.sum((vector - answer) ** 2)))
    return np.array(pairs).T


def finite_size_term(function: Callable[[np.ndarray], np.ndarray], ratio: float) -> float:
    r"""What $\mathbb E\sum_eg(e)$ has beyond d times the mean of g over Marchenko and Pastur's law, for large d and L:
    $\tfrac14[g(a)+g(b)] - \tfrac1{2\pi}\int_a^b g(x)/\sqrt{(x-a)(b-x)}\,dx$ for real Gaussians (Bai and Silverstein).
    """
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2
    angles = (np.arange(2000) + 0.5) * np.pi / 2000
    inside = function((low + high) / 2 + (high - low) / 2 * np.cos(angles)).mean() / 2
    return float(function(np.array([low, high])).sum() / 4 - inside)


def finite(chosen: Settings) -> xr.Dataset:
    """The exact loss at the limit of the flow, over its leading order, at finite sizes."""
    rows = np.full((len(chosen.finite), len(chosen.finite_dims)), np.nan)
    for row, context in enumerate(chosen.finite):
        for column, d in enumerate(chosen.finite_dims):
            if 0.01 <= d / context <= 5:
                task = like_tasks(d / context, 1, context=context)
                rows[row, column] = _exact(task) / theory.limits.flow_limit_loss(task)[0]
    return xr.Dataset(
        {"over_leading": (("context", "dim"), rows)},
        coords={"context": list(chosen.finite), "dim": list(chosen.finite_dims)},
    )


def _exact(task: Sizes) -> float:
    return float(theory.losses.exact_loss(task, *map(theory.limits.as_heads, theory.limits.flow_limit(task)))[0])


def sampled(chosen: Settings) -> xr.Dataset:
    """The loss at the limit of the flow, over sampled sequences, and by quadrature."""
    shape = (len(chosen.sampled), len(chosen.seeds))
    mean, error, exact, leading = np.empty(shape), np.empty(shape), [], []
    for row, (d, context) in enumerate(chosen.sampled):
        task = MultiTaskRegression((d,), 1.0, context, noise_variance=1.0, convention="total")
        exact.append(_exact(like_tasks(d / context, 1, context=context)))
        leading.append(theory.limits.flow_limit_loss(task)[0])
        limit = theory.limits.flow_limit(task)
        model = SpectralAttention.balanced(
            theory.limits.as_heads(limit.omega), theory.limits.as_heads(limit.mu), task.dims
        )
        for column, seed in enumerate(chosen.seeds):
            objective = ReducedSampled(task, chosen.sequences, key=jax.random.key(seed))
            mean[row, column], error[row, column] = (float(value) for value in _evaluated(objective, model))
    return xr.Dataset(
        {
            "mean": (("size", "run"), mean),
            "error": (("size", "run"), error),
            "exact": ("size", exact),
            "leading": ("size", leading),
        },
        coords={
            "dim": ("size", [d for d, _ in chosen.sampled]),
            "context": ("size", [n for _, n in chosen.sampled]),
            "run": list(chosen.seeds),
        },
    )


@eqx.filter_jit
def _evaluated(objective: ReducedSampled, model: SpectralAttention):
    return objective(model), objective.standard_error(model)


def trained(chosen: Settings) -> xr.Dataset:
    """One head trained on all tasks at once, to leading order, from random positive weights of each seed."""
    ends, best = [], []
    for d, context in chosen.trained:
        task = MultiTaskRegression((d,) * TASKS, 1.0, context, noise_variance=1.0, convention="total")
        models = []
        for seed in chosen.seeds:
            omega, mu = np.random.default_rng(seed).uniform(0.1, 0.4, (2, 1, TASKS))
            models.append(SpectralAttention.balanced(omega * d**-0.5, mu * d**0.5, task.dims))
        options: dict[str, Any] = {"steps": chosen.steps, "record": chosen.steps, "progress": False}
        run = completed(descend(Ensemble.of(models), Spectral(task), rate=chosen.rate, **options))
        ends.append(run["loss"].values[:, -1] / TASKS)
        best.append(theory.limits.single_head_optimum(task).loss[0])
    return xr.Dataset(
        {"loss": (("size", "run"), np.array(ends)), "best": ("size", best)},
        coords={"ratio": ("size", [d / n for d, n in chosen.trained]), "run": list(chosen.seeds)},
    )


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    over_contexts, sample, single, curve = data["drawn"], data["sampled"], data["trained"], data["curves"]
    all_claims = []
    words = {"bayes": "Bayes risk", "ridge_0.05": "Ridge, penalty 0.05", "ridge_5": "Ridge, penalty 5"}
    for name, word in words.items():
        one = over_contexts.sel(risk=name)
        for kind, how in (("mean", "eigenvalues of drawn contexts"), ("regressed", "regressions carried out")):
            error = one["error" if kind == "mean" else "regressed_error"]
            slack = DEVIATIONS * error + 2 * abs(one["next_order"])
            all_claims.append(
                worst_point(
                    f"{NAME}/{slug(name)}-{kind}",
                    f"{word}: {how} lie on the curve: risk at the dimension furthest off",
                    measured=one[kind],
                    predicted=one["predicted"],
                    tolerance=slack,
                    basis=f"{DEVIATIONS:g} standard errors; twice the term of order 1/L of Marchenko and Pastur's law",
                )
            )
    all_claims.append(
        worst_point(
            f"{NAME}/flow-sampled",
            "Limit of the flow at finite d and L: sampled sequences agree with quadrature: the size furthest off",
            measured=sample["mean"],
            predicted=sample["exact"],
            tolerance=DEVIATIONS * sample["error"],
            basis=f"{DEVIATIONS:g} standard errors",
        )
    )
    off = abs(sample["leading"] / sample["exact"] - 1)
    rho = np.e**2 / sample["context"]
    worst = int(np.argmax((off / (2 / sample["dim"] + rho)).values))
    all_claims.append(
        Claim.at_most(
            f"{NAME}/flow-leading",
            "Limit of the flow: leading order against quadrature, relative difference at the size furthest off",
            measured=float(off[worst]),
            tolerance=float((2 / sample["dim"] + rho)[worst]),
            basis="neglected: the spread of |q|², 2/d, and of the normaliser, e²/L",
        )
    )
    all_claims.append(
        worst_point(
            f"{NAME}/single-head",
            "A single head trained on all tasks ends at the best single head: loss, at the size furthest off",
            measured=single["loss"],
            predicted=single["best"],
            tolerance=1e-6 * single["best"],
            basis="training goes on until less than this is left; its slowest mode, at large d/L, takes 100,000 steps",
        )
    )
    ridge, heavy = curve["ridge_0.05"], curve["ridge_5"]
    all_claims.append(
        Claim.at_least(
            f"{NAME}/peak",
            "Ridge with penalty 0.05 peaks above the risk of answering zero, which is 1: its greatest value",
            predicted=1.0,
            measured=float(ridge.max()),
            basis="strict",
        )
    )
    all_claims.append(
        Claim.at_least(
            f"{NAME}/rises",
            "Ridge with penalty 5 only rises with d/L: least step of its curve",
            predicted=0.0,
            measured=float(heavy.diff("ratio").min()),
            basis="strict",
        )
    )
    others = xr.concat([curve[name] for name in ("ridge_0.05", "ridge_5", "flow", "single")], dim="other")
    all_claims.append(
        Claim.at_least(
            f"{NAME}/least",
            "No curve is below the Bayes risk: least difference",
            predicted=0.0,
            measured=float((others - curve["bayes"]).min()),
            tolerance=1e-12,
            basis="rounding: ridge with penalty 5 is the posterior mean at d/L = 5",
        )
    )
    return all_claims


def draw(data: dict[str, xr.Dataset]) -> Figure:
    return drawing(data)
