r"""Fig 5: in-context learners compared: ridge regression, the best algorithm, and softmax attention.

Curves are closed forms of d/L, for large d and L. Points are simulations at finite d and L: regressions carried out,
eigenvalues of drawn contexts, and softmax attention itself, trained by gradient descent on its exact loss (`Exact`,
quadrature at finite d and L) or, as many heads as tasks together, over sequences.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any, NamedTuple

import jax
import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis.style import BLACK, BLUE, GRAY, PURPLE, VERMILION, new_figure, styled
from stepwell.dynamics import Record, descend, flow
from stepwell.figures import Claim, Data, Figure, Origin, Seeds, one_blas_thread, slug
from stepwell.models import SpectralAttention
from stepwell.objectives import Exact, Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory
from stepwell.trajectory import model_at

from ._common import DEVIATIONS, EXACT_ROUTES, by_size, compared, note, over, stacked, worst
from ._eigenvalues import (
    SIGMAS,
    equal_tasks,
    leading_weights,
    like_tasks,
    softmax_losses,
    trained_together,
    uniform_head,
)

CAPTION = (
    "Risk of a task divided by its signal, for tasks of dimension d, context length L and signal-to-noise ratio 1. "
    "Curves, closed forms for large d and L; points, simulations. (a) Ridge regression with penalties 0.05 and 5 "
    "(added to the mean XᵀX/L), the Bayes risk, the limit of gradient flow with a head for each task, and the best "
    "single head for 10 tasks. Filled points: contexts drawn, eigenvalues averaged; crosses: regressions carried out; "
    "diamonds and squares: softmax attention itself, trained on its exact loss, with a head for each task (which has "
    "no scores off it, so that heads do not interact) and with a single head. Its risk rises through d = L, where "
    "ridge regression with a small penalty peaks. (b), ours: what a head for each of 10 tasks gains on a single head, "
    "ten-fold where d/L is small; softmax attention trained, ten heads on ten tasks together or, where contexts are "
    "too long for that, each on its task alone, and closed form. That penalties belong to the mean and that signals "
    "are counted in total is inferred: only so does the penalty 0.05 peak and the penalty 5 not, so that these two "
    "shapes are drawn here and not claimed."
)
TASKS = 10
PENALTIES = (0.05, 5.0)
RISKS = ("bayes", "ridge_0.05", "ridge_5")
OTHER_SEED = 1000
"""Of contexts from which the standard errors of all seeds are."""
VECTORS = 30
"""Regressions carried out in each context."""
FOREVER = 1e7
"""When the flow of the spectral loss ends: scores move at rates down to 1/L."""
LARGE = 2.0
"""Values of d/L from here on are large."""
REACH = 10.0
"""Of the tables of `Exact`: heads here have $a^2$ about 1, and dimensions of 12 and more."""


CONVENTIONS = ("total", "per-coordinate")
"""What a task's strength is the variance of; `rates` of the descent go with them."""


@dataclass(frozen=True)
class Settings:
    """Dimensions `dims` go with `context`; `gains` are dimension and context for the gain on a single head."""

    seeds: tuple[int, ...] = (60, 61, 62)
    points: int = 200
    context: int = 120
    dims: tuple[int, ...] = (12, 60, 96, 132, 240, 600)
    contexts_drawn: int = 60
    rates: tuple[float, ...] = (0.3, 0.01)
    steps: int = 3000
    sampled: tuple[int, ...] = (12, 60)
    sequences: int = 500
    gains: tuple[tuple[int, int], ...] = ((20, 1000), (50, 500), (50, 500_000))
    together_to: int = 2000
    """Up to this context as many heads as tasks are trained together, on sequences; beyond, each on its task alone."""
    together_steps: int = 400
    together_rate: float = 0.5
    together_tested: int = 128


def describe(settings: Settings) -> dict[str, Any]:
    return {
        "tasks I": TASKS,
        "signal and noise of a task": "S = 1 in total, σ² = 1 (φ = 2)",
        "penalties": list(PENALTIES),
        **asdict(settings),
        "gains": [f"d = {d}, L = {n}" for d, n in settings.gains],
    }


def simulate(settings: Settings) -> Data:
    trained, wide = softmax_trained(settings), np.geomspace(5e-5, 5, settings.points)
    return {
        "curves": curves(np.geomspace(0.01, 5, settings.points)),
        "gain_curve": xr.Dataset({"gain": ("ratio", _gain(wide))}, {"ratio": wide}),
        "drawn": drawn(settings),
        "softmax": trained,
        "sampled": sampled(settings, trained),
        "gain": gains(settings),
        "surrogate": surrogate_gain(settings),
    }


def curves(ratios: np.ndarray) -> xr.Dataset:
    """All risks for large d and L."""
    tasks = [like_tasks(ratio, TASKS) for ratio in ratios]
    risks = {
        "bayes": [theory.bayes_risk(task)[0] for task in tasks],
        **{f"ridge_{p:g}": [theory.ridge_risk(t, p, penalized="mean")[0] for t in tasks] for p in PENALTIES},
        "flow": [theory.flow_limit_loss(task)[0] for task in tasks],
        "single": [theory.single_head_optimum(task).loss[0] for task in tasks],
    }
    return xr.Dataset({name: ("ratio", values) for name, values in risks.items()}, coords={"ratio": ratios})


def _gain(ratio: Any) -> Any:
    r"""The gain of a head for each task, $I(1+\rho)/(1+I\rho)$, $\rho = e\phi d/L$, φ = 2."""
    rho = 2 * np.e * ratio
    return TASKS * (1 + rho) / (1 + TASKS * rho)


def drawn(settings: Settings) -> xr.Dataset:
    """Contexts of each seed and dimension: risks given the inputs, from eigenvalues, and errors of regressions.

    Standard errors are from contexts of no seed's.
    """
    shape = (len(RISKS), len(settings.seeds), len(settings.dims))
    table = {name: np.empty(shape) for name in ("mean", "error", "regressed", "regressed_error")}
    predicted, order = np.empty((2, shape[0], shape[2]))
    for column, d in enumerate(settings.dims):
        ratio = d / settings.context
        at = curves(np.array([ratio]))
        for place, (name, risk) in enumerate(_risks(ratio).items()):
            predicted[place, column] = at[name][0]
            order[place, column] = finite_size_term(risk.of_eigenvalue, ratio) / d
        for row, seed in enumerate((*settings.seeds, OTHER_SEED)):
            rng = np.random.default_rng([seed, d])
            with one_blas_thread():
                pairs = np.array([_context(rng, d, settings.context) for _ in range(settings.contexts_drawn)])
            if row == len(settings.seeds):
                several = settings.contexts_drawn > 1
                error = (pairs.std(axis=0, ddof=1) if several else pairs[0] * np.nan) / settings.contexts_drawn**0.5
                table["error"][:, :, column], table["regressed_error"][:, :, column] = error[:, :, None]
            else:
                table["mean"][:, row, column], table["regressed"][:, row, column] = pairs.mean(axis=0)
    return xr.Dataset(
        {name: (("risk", "run", "dim"), values) for name, values in table.items()}
        | over("risk dim", predicted=predicted, next_order=order),
        coords={"risk": list(RISKS), "dim": list(settings.dims), "run": list(settings.seeds)},
        attrs={"context": settings.context, "tasks": TASKS},
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
    """For one drawn context: risks in the mean over task vectors and noise, and errors in that over `VECTORS` drawn."""
    x, noise = rng.standard_normal((context, dim)), rng.standard_normal((context, VECTORS))
    vectors = rng.standard_normal((dim, VECTORS)) / dim**0.5
    labels = x @ vectors + noise
    wide = dim > context
    squares, axes = np.linalg.eigh((x @ x.T if wide else x.T @ x) / context)
    projected = axes.T @ (labels if wide else x.T @ labels) / context
    every = np.concatenate([squares.clip(0), np.zeros(max(0, dim - context))])
    pairs = []
    for risk in _risks(dim / context).values():
        solved = axes @ (projected / (squares + risk.alpha)[:, None])
        missed = vectors - (x.T @ solved if wide else solved)
        pairs.append((np.mean(risk.of_eigenvalue(every)), np.sum(missed**2) / VECTORS))
    return np.array(pairs).T


def finite_size_term(function: Callable[[np.ndarray], np.ndarray], ratio: float) -> float:
    r"""What $\mathbb E\sum_eg(e)$ has beyond d times the mean of g over Marchenko and Pastur's law, for large d and L:
    $\tfrac14[g(a)+g(b)] - \tfrac1{2\pi}\int_a^b g(x)/\sqrt{(x-a)(b-x)}\,dx$ for real Gaussians (Bai and Silverstein).
    """
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2
    angles = (np.arange(2000) + 0.5) * np.pi / 2000
    inside = function((low + high) / 2 + (high - low) / 2 * np.cos(angles)).mean() / 2
    return float(function(np.array([low, high])).sum() / 4 - inside)


def softmax_trained(settings: Settings) -> xr.Dataset:
    """Softmax attention by gradient descent, a head for each of several tasks of unequal dimension.

    `risk` is the loss of each task over its signal at the end, for both conventions of the signal, and `best` the least
    by quadrature.
    """
    dims, rows = np.array(settings.dims), []
    begun = np.random.default_rng(settings.seeds[0]).uniform(0.1, 0.4, (2, dims.size))
    for convention, rate in zip(CONVENTIONS, cycle(settings.rates), strict=False):
        task = MultiTaskRegression(settings.dims, 1.0, settings.context, noise_variance=1.0, convention=convention)
        start = (np.diag(begun[0] * dims**-0.5), np.diag(begun[1] * dims**0.5))
        model = SpectralAttention.balanced(*start, task.dims, score_scale=1.0)
        objective = Exact(task, reach=REACH)
        run = descend(model, objective, rate=rate, steps=settings.steps, record=Record(points=2), progress=False)
        last = model_at(run, model)
        best = theory.exact_optimum(task).loss
        rows.append(
            over("dim", risk=np.asarray(objective.per_task(last)) / task.signals, best=best / task.signals)
            | over("dim", omega=np.diag(np.asarray(last.omega())), mu=np.diag(np.asarray(last.mu())))
        )
    trained = stacked(rows, convention=CONVENTIONS).assign_coords(dim=list(settings.dims))
    return trained.assign_attrs(context=settings.context)


def sampled(settings: Settings, trained: xr.Dataset) -> xr.Dataset:
    """The loss of trained weights over sampled sequences, for some dimensions, signal 1 in total."""
    one, rows = trained.sel(convention="total"), [np.empty((2, 0))]
    dims = [d for d in settings.sampled if d in settings.dims]
    for d in dims:
        omega, mu = (np.full((1, 1, 1), float(one[name].sel(dim=d))) for name in ("omega", "mu"))
        task, key = equal_tasks(1, d, settings.context), jax.random.key(settings.seeds[0])
        rows.append(np.array(softmax_losses(task, omega, mu, settings.sequences, key=key)))
    mean, error = np.concatenate(rows, axis=1)
    return xr.Dataset(over("dim", mean=mean, error=error), {"dim": np.array(dims, dtype=int)})


def gains(settings: Settings) -> xr.Dataset:
    """Softmax attention with a single head for all of ten equal tasks, and with a head for each.

    The single head is trained by the flow of its exact loss. The several are trained all together on sequences
    (`trained_together`), where the context is not too long; else one is, on its task alone, by the exact loss.
    """
    rows = []
    how: dict[str, Any] = {"rate": settings.together_rate, "steps": settings.together_steps}
    for d, context in settings.gains:
        single, alone = (_one_head(settings, tasks, d, context) for tasks in (TASKS, 1))
        together, row = context <= settings.together_to, over("", several=alone, error=0.0, left=0.0)
        if together:
            run = trained_together(TASKS, TASKS, d, context, tested=settings.together_tested, **how)
            per_task = {name: run[name][1] / TASKS for name in ("loss", "error")}
            row = over("", several=per_task["loss"], error=per_task["error"], left=run["left"][1])
        rows.append(row | over("", single=single, alone=alone, together=together))
    return xr.concat([xr.Dataset(row) for row in rows], "size").assign_coords(by_size(settings.gains))


def _one_head(settings: Settings, tasks: int, dim: int, context: int) -> float:
    """The loss of a task at the end of the flow of the exact loss, with one head for so many tasks."""
    task = equal_tasks(tasks, dim, context)
    model, objective = uniform_head(task, settings.seeds[0], score_scale=1.0), Exact(task, reach=REACH)
    run = flow(model, objective, until=3000 * dim**0.5, record=Record(points=2), progress=False)
    return float(run["loss"][0, -1]) / tasks


def surrogate_gain(settings: Settings) -> xr.Dataset:
    """At the smallest d/L: ten heads on ten tasks together, and a single head, by the flow of the spectral loss."""
    dim, context = min(settings.gains, key=lambda size: size[0] / size[1])
    task = equal_tasks(TASKS, dim, context)
    several = SpectralAttention.balanced(*leading_weights(task, TASKS), task.dims, score_scale=1.0)
    losses = [
        float(flow(model, Spectral(task), until=FOREVER, record=Record(points=2), progress=False)["loss"][0, -1])
        for model in (several, uniform_head(task, settings.seeds[0], score_scale=1.0))
    ]
    return xr.Dataset(over("", several=losses[0] / TASKS, single=losses[1] / TASKS, ratio=dim / context))


def claims(data: Data, settings: Settings) -> list[Claim]:
    return [*_baselines(data["drawn"]), *_softmax(data), *_gains(data["gain"], data["surrogate"])]


def _no_error(over_contexts: xr.Dataset) -> str:
    """Why standard errors are not known, if they are not."""
    return "" if np.isfinite(over_contexts["error"]).all() else "a standard error needs two contexts"


def _baselines(over_contexts: xr.Dataset) -> Iterator[Claim]:
    words = {"bayes": "Bayes risk", "ridge_0.05": "Ridge, penalty 0.05", "ridge_5": "Ridge, penalty 5"}
    for name, word in words.items():
        one = over_contexts.sel(risk=name)
        for kind, how in (("mean", "eigenvalues of drawn contexts"), ("regressed", "regressions carried out")):
            error = one["error" if kind == "mean" else "regressed_error"]
            yield Origin("theory", f"theory.softmax.{'bayes_risk' if name == 'bayes' else 'ridge_risk'}").close(
                f"{slug(name)}-{kind}",
                f"{word}: {how} lie on the curve: risk at the dimension furthest off",
                **worst(one[kind], one["predicted"], DEVIATIONS * error + 2 * abs(one["next_order"])),
                unless=_no_error(over_contexts),
                basis=f"{DEVIATIONS:g} standard errors, from other contexts; twice the term of order 1/L of "
                "Marchenko and Pastur's law",
            )


def _softmax(data: Data) -> Iterator[Claim]:
    trained, sample, over_contexts = data["softmax"], data["sampled"], data["drawn"]
    total = trained["risk"].sel(convention="total")
    steps = trained["risk"].sortby("dim").diff("dim")
    large = trained["dim"][(trained["dim"] / trained.attrs["context"] >= LARGE).values]
    ridge = over_contexts.sel(risk="ridge_5", dim=large)
    ratio = large / trained.attrs["context"]
    rho = 2 * np.e * ratio
    closed = rho / (1 + rho) / ridge["predicted"]
    percent = ", ".join(f"{100 * (float(each) - 1):.0f} %" for each in closed)
    above = f"predicted above 1 by {percent} at d/L = {', '.join(f'{float(each):g}' for each in ratio)}, "
    off = DEVIATIONS * ridge["error"] + 2 * abs(ridge["next_order"])
    yield Origin("check", EXACT_ROUTES).close(
        "softmax-end",
        "Softmax attention trained with a head for each task, without scores off its task, so that heads do not "
        "interact, ends at the least loss by quadrature: loss over it, for each task and convention of the signal",
        **compared(trained["risk"] / trained["best"], 1.0, 1e-6),
        basis="the tables of the loss have relative errors below 1e-6; training goes on until less is left",
        counted="tasks",
    )
    yield Origin("check", "objectives.Exact against objectives.ReducedSampled").close(
        "softmax-sampled",
        "Softmax attention: the loss of the trained weights over sampled sequences is that by quadrature, for each "
        "dimension sampled",
        **compared(sample["mean"], total.sel(dim=sample["dim"]), SIGMAS * sample["error"]),
        basis=f"{SIGMAS:g} standard errors, from other sequences",
        counted="dimensions",
    )
    yield Origin("paper", "Fig 5").at_least(
        "no-double-descent",
        "Softmax attention trained with a head for each task, without scores off its task, so that heads do not "
        "interact, has no double descent: its risk rises with d/L, through d = L: least step to the next dimension, "
        "for each convention of the signal",
        unless="" if steps.size else "a step needs two dimensions",
        predicted=0.0,
        measured=steps.min("dim") if steps.size else [],
        basis="a sign; the losses have relative errors below 1e-6",
        counted="conventions",
    )
    source = "theory.softmax.flow_limit_loss over ridge_risk; the paper's Fig 5 says on par, without a number"
    yield Origin("theory", source, explored=True).close(
        "on-par",
        "At large d/L the risk of softmax attention, trained, over that of ridge regression with penalty 5, over "
        "drawn contexts, is the ratio of closed forms: ratio at the dimension furthest off, "
        f"{above if large.size else ''}for each seed",
        **worst(total.sel(dim=large) / ridge["mean"], closed, closed * (off / ridge["predicted"] + 2 / large)),
        unless=_no_error(over_contexts) if large.size else f"no d/L is {LARGE:g} or more",
        basis=f"{DEVIATIONS:g} standard errors, from other contexts; twice the next order of the regression, and "
        "that of attention, 2/d",
    )


def _gains(gains: xr.Dataset, surrogate: xr.Dataset) -> Iterator[Claim]:
    gain, ratio, dim = (gains["single"] / gains["several"]).values, gains["dim"] / gains["context"], gains["dim"].values
    least = int(np.argmin(ratio.values))
    rho = 2 * np.e * float(ratio[least])
    joint = gains.isel(size=np.flatnonzero(gains["together"]))
    sampling = SIGMAS * gains["error"] / gains["several"] + gains["left"]
    basis = f"{SIGMAS:g} standard errors; two weights of a task fitted to N sequences, 2/N; the tail of the flow"
    yield Origin("theory", "theory.softmax.exact_loss: heads without a score off their task do not interact").close(
        "together",
        f"Softmax attention, {TASKS} heads trained on {TASKS} tasks together (one run for each size), ends at the loss "
        "of a head trained on its task alone: ratio, for each size",
        unless="" if joint.sizes["size"] else "no context is short enough",
        **compared(joint["several"] / joint["alone"], 1.0, sampling.isel(size=np.flatnonzero(gains["together"]))),
        basis=basis,
        counted="sizes",
    )
    several = f"Softmax attention, {TASKS} heads on {TASKS} tasks trained together (one run for each size)"
    yield Origin("paper", "abstract (strict separation of one head and several)").at_least(
        "several-better",
        f"{several}, is better than one head for all: loss of the single head over theirs, less the error, for each "
        "size",
        unless="" if joint.sizes["size"] else "no context is short enough",
        **compared((joint["single"] / (joint["several"] + SIGMAS * joint["error"])), 1.0),
        basis=f"strict; {SIGMAS:g} standard errors taken off",
        counted="sizes",
    )
    yield Origin("theory", "theory.softmax.single_head_optimum over flow_limit_loss").close(
        "gain",
        f"Softmax attention with a head for each of {TASKS} tasks (trained together, or at the smallest d/L each on "
        "its task alone) gains on a single head for all what the closed form says: ratio of the losses over it, for "
        "each size",
        **compared((gains["single"] / gains["several"]) / _gain(ratio), 1.0, 2 / gains["dim"] + sampling),
        basis=f"next order: the spread of |q|², 2/d; {basis}",
        counted="sizes",
    )
    said = Origin("paper", "abstract (separation between one head and several) and Fig 5")
    few = "" if TASKS * rho < 1 else "no d/L is small"
    yield said.close(
        "ten-fold",
        f"Where d/L is small the gain is as many as there are tasks, ten-fold: ratio of the losses at d/L = "
        f"{float(ratio[least]):g}, of softmax attention, each of the several heads trained on its task alone",
        unless=few,
        predicted=TASKS,
        measured=gain[least],
        tolerance=TASKS * (TASKS * rho + 2 / dim[least]),
        basis="next order in d/L, Iρ, and in 1/d, 2/d",
    )
    yield said.close(
        "ten-fold-together",
        f"The same of {TASKS} heads trained on {TASKS} tasks together, by the spectral loss",
        unless=few,
        predicted=TASKS,
        measured=float(surrogate["single"] / surrogate["several"]),
        tolerance=TASKS * TASKS * rho,
        basis="next order in d/L, Iρ",
    )


def draw(data: Data, settings: object) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(11.6, 4.9)
        left, right = figure.subplots(1, 2, width_ratios=(2.1, 1))
        _learners(left, data)
        _draw_gain(right, data["gain_curve"], data["gain"])
    return figure


def _learners(axes: Any, data: Data) -> None:
    curve, drawn, trained, gains = (data[name] for name in ("curves", "drawn", "softmax", "gain"))
    ratio = drawn["dim"] / drawn.attrs["context"]
    lines = {
        "ridge_0.05": (VERMILION, "-", "ridge, penalty 0.05"),
        "ridge_5": (PURPLE, "-", "ridge, penalty 5"),
        "bayes": (GRAY, "-", "Bayes risk"),
        "flow": (BLACK, "--", "softmax, a head a task (flow)"),
        "single": (BLUE, "--", "softmax, best single head"),
    }
    for name, (color, dashes, label) in lines.items():
        axes.plot(curve["ratio"], curve[name], dashes, color=color, label=label)
        if name in drawn["risk"]:
            one = drawn.sel(risk=name).mean("run")
            axes.plot(ratio, one["mean"], "o", color=color, markersize=5, clip_on=False)
            axes.plot(ratio, one["regressed"], "x", color=color, markersize=8, clip_on=False)
    several = trained["risk"].sel(convention="total")
    axes.plot(trained["dim"] / trained.attrs["context"], several, "D", color=BLACK, markersize=5, clip_on=False)
    shown = (gains["dim"] / gains["context"]).values >= 0.01
    style: dict[str, Any] = {"color": BLUE, "markersize": 5, "clip_on": False}
    axes.plot((gains["dim"] / gains["context"])[shown], gains["single"][shown], "s", **style)
    for marker, label in (
        ("o", f"contexts drawn, L = {drawn.attrs['context']}"),
        ("x", "regressions carried out"),
        ("D", f"softmax trained, a head a task, L = {trained.attrs['context']}"),
        ("s", "softmax trained, single head"),
    ):
        axes.plot([], [], marker, color=GRAY, markersize=5, label=label)
    axes.set(xscale="log", xlim=(0.01, 5), ylim=(0, 2.1), xlabel="dimension of a task over context, d/L")
    axes.set(
        title=f"(a) In-context learners, I = {drawn.attrs['tasks']} tasks, φ = 2", ylabel="risk of a task / its signal"
    )
    axes.legend(loc="upper left", fontsize=8.5)


def _draw_gain(axes: Any, curve: xr.Dataset, gains: xr.Dataset) -> None:
    axes.axhline(10, color=GRAY, linewidth=1.0)
    note(axes, "I = 10", (2.0, 10), (0, 3), color="#555555", ha="right")
    axes.plot(curve["ratio"], curve["gain"], "--", color=BLACK, label="closed form")
    ratio, gain = gains["dim"] / gains["context"], gains["single"] / gains["several"]
    together = gains["together"].values.astype(bool)
    for chosen, marker, words in (
        (together, "o", "10 heads trained together"),
        (~together, "D", "heads trained alone"),
    ):
        axes.plot(ratio[chosen], gain[chosen], marker, color=VERMILION, markersize=6, label=f"softmax, {words}")
    axes.set(xscale="log", ylim=(0, 11.5), title="(b) Gain of several heads")
    axes.set(xlabel="dimension of a task over context, d/L", ylabel="loss of a single head / loss of a head a task")
    axes.legend(loc="lower left")


FIGURE = Figure(
    title="Softmax attention beside ridge regression and the Bayes risk",
    caption=CAPTION,
    source="Fig 5",
    settings=Settings(),
    quick=Settings(
        seeds=(60,),
        points=100,
        dims=(12, 60, 132, 240),
        contexts_drawn=40,
        sampled=(12,),
        gains=((20, 200), (50, 500_000)),
        together_steps=200,
        together_tested=64,
    ),
    described=describe,
    paper_settings={"tasks I": 10, "penalties": [0.05, 5.0]},
    seeds=Seeds(explored="others and other dimensions, not recorded which, for the ratio to ridge regression"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
