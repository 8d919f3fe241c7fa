"""Trained at one context length and tested at others: softmax attention has no blow-up, linear attention may have one.

Softmax weights add up to one at any length. Linear attention is divided by a number of tokens: that of the test, or for
ever that of the training.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, VERMILION, new_figure, styled
from stepwell.dynamics import Record, flow
from stepwell.figures import Claim, Data, Figure, Origin, Seeds
from stepwell.models import MergedAttention
from stepwell.objectives import Exact, Population
from stepwell.tasks import InContextRegression, MultiTaskRegression
from stepwell.theory import softmax as theory

from ._common import DEVIATIONS, EXACT_ROUTES, compared, labeled, named_settings, note, over, worst
from ._eigenvalues import descent, sampled_loss, softmax, uniform_head

CAPTION = (
    "Ours. Loss over signal at test length L', for attention trained at L = 100 on one linear regression (d = 10, "
    "label noise of variance 1). Softmax attention itself is trained, as its two eigenvalues ω and μ, on its exact "
    "loss, and not its spectral surrogate; linear attention is trained at infinitely many sequences. (a) Curves: "
    "closed forms, that of softmax for the limit of the surrogate's flow. Points: trained models on sampled contexts "
    "of length L', means over seeds. Softmax attention falls to a plateau, since its weights add up to one. So does "
    "linear attention that is divided by the length it is tested at; always divided by 100, it grows as (L'/L)² and "
    "soon does worse than predicting zero. (b) The points over the closed forms, with two standard errors. Those of "
    "linear attention are exact; that of softmax attention is to leading order in d and L, and the black line is the "
    "exact loss of the same limit, by quadrature."
)

GAP = 1e-10
"""Training goes on until the loss is this near to its least, relative to the fall."""
LONGER = 20
"""So many times the length of the training is where models are compared with it."""
FAR = 10_000
"""Test length at which the approach to the plateau is measured."""
ORDER_DIMS, ORDER_RATIOS = (100, 400), (1, 3, 10, 30)
"""Dimensions d and ratios L'/L, at d/L = 0.1, at which the order of the closed form is measured."""
KINDS = ("softmax", "test", "train")
"""Softmax attention, and linear attention divided by the length of the test or of the training."""


@dataclass(frozen=True)
class Settings:
    dim: int = 10
    context: int = 100
    noise: float = 1.0
    seeds: tuple[int, ...] = (0, 1, 2)
    lengths: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000, 2000)
    most_sequences: int = 4000
    numbers: int = 4_000_000
    """Drawn for each length: as many sequences as that makes, and not more than the most."""
    steps: int = 3000
    rate: float = 0.003

    @cached_property
    def task(self) -> MultiTaskRegression:
        return MultiTaskRegression((self.dim,), 1.0, self.context, noise_variance=self.noise)


def describe(settings: Settings) -> dict[str, Any]:
    training = "softmax: descent on the exact loss; linear: flow at infinitely many sequences"
    return {**named_settings(settings), "training": training}


def simulate(settings: Settings) -> Data:
    heads, maps = train_softmax(settings), train_linear(settings)
    return {"curves": curves(settings), "orders": orders(settings), "trained": tested(settings, heads, maps)}


def curves(settings: Settings) -> xr.Dataset:
    """Closed forms and quadrature at the limit of the flow."""
    task, tested = settings.task, settings.lengths
    lengths = np.unique(np.geomspace(min(10, *tested), max(2000, *tested), 47).astype(int)).tolist()
    losses = {"leading": theory.softmax_length_loss(task, lengths), "exact": theory.exact_length_loss(task, lengths)}
    for by in ("test", "train"):
        losses[by] = theory.linear_length_loss(task, lengths, divided_by=by)
    over_signal = {name: ("length", values[:, 0] / settings.dim) for name, values in losses.items()}
    return xr.Dataset(over_signal, {"length": lengths})


def orders(settings: Settings) -> xr.Dataset:
    """Relative difference of the closed form of softmax attention from quadrature, at one d/L and φ."""
    error = []
    for dim in ORDER_DIMS:
        context = dim * settings.context // settings.dim
        task = MultiTaskRegression((dim,), 1.0, context, noise_variance=settings.noise * dim / settings.dim)
        lengths = [ratio * context for ratio in ORDER_RATIOS]
        closed = theory.softmax_length_loss(task, lengths)[:, 0]
        error.append(np.abs(closed / theory.exact_length_loss(task, lengths)[:, 0] - 1))
    return xr.Dataset({"error": (("dim", "ratio"), error)}, {"dim": list(ORDER_DIMS), "ratio": list(ORDER_RATIOS)})


def approach(settings: Settings, omega: float, mu: float) -> float:
    """What the loss has above its plateau at length `FAR`, by quadrature, over what it has to first order in 1/L'."""
    dim, weights = settings.dim, (np.array([[omega]]), np.array([[mu]]))
    exact = theory.exact_loss(settings.task, *weights, context=FAR)[0] / dim
    head = theory.HeadWeights(omega, mu)
    first_order = theory.nonlinear_loss(lambda s: s, dim, FAR, head, noise=settings.noise / dim)
    plateau = (1 - mu * omega) ** 2
    return float((exact - plateau) / (first_order - plateau))


def train_softmax(settings: Settings) -> np.ndarray:
    """ω and μ of one head (seed, 2), from random positive weights, trained on the exact loss at L."""
    task = settings.task
    models = [uniform_head(task, seed, highest=0.5) for seed in settings.seeds]
    run = descent(models, Exact(task), rate=settings.rate, steps=settings.steps, points=2)
    return np.stack([run.omega[:, -1, 0, 0], run.mu[:, -1, 0, 0]], axis=1)


def train_linear(settings: Settings) -> np.ndarray:
    """The matrix (seed, dim, dim) that merged linear attention multiplies the query with, trained at L from small
    random weights of several heads."""
    dim = settings.dim
    objective = Population(InContextRegression(np.eye(dim), settings.context, noise_variance=settings.noise))
    maps = []
    for seed in settings.seeds:
        model = MergedAttention.random(dim=dim, heads=2, scale=0.1, key=jax.random.key(seed))
        run = flow(model, objective, record=Record(points=2), gap=GAP, progress=False)
        value, score = run["value"].values[0, -1], run["key_query"].values[0, -1]
        maps.append(np.einsum("h,hij->ij", value[:, 0, dim], score[:, :dim]))
    return np.array(maps)


def tested(settings: Settings, heads: np.ndarray, maps: np.ndarray) -> xr.Dataset:
    """Losses of the trained models on drawn contexts, and what theory says of these weights."""
    task, dim = settings.task, settings.dim
    shape = (len(KINDS), len(settings.seeds), len(settings.lengths))
    mean, error, predicted = np.empty(shape), np.empty(shape), np.empty(shape)
    for column, length in enumerate(settings.lengths):
        count = max(1, min(settings.most_sequences, settings.numbers // (length * dim)))
        linear = [theory.linear_length_loss(task, [length], divided_by=by)[0, 0] / dim for by in ("test", "train")]
        for row, seed in enumerate(settings.seeds):
            omega, mu = heads[row]
            attend = (lambda s, mu=mu: mu * softmax(s), lambda s, n=length: s / n, lambda s: s / settings.context)
            matrices = (omega * np.eye(dim), maps[row], maps[row])
            rng = np.random.default_rng([seed, length])
            for kind in range(len(KINDS)):
                estimate = sampled_loss(matrices[kind], attend[kind], length, count, noise=settings.noise, rng=rng)
                mean[kind, row, column], error[kind, row, column] = estimate
            exact = theory.exact_loss(task, np.array([[omega]]), np.array([[mu]]), context=length)[0] / dim
            predicted[:, row, column] = (exact, *linear)
    best, nearing = theory.exact_optimum(task), [approach(settings, *head) for head in heads.tolist()]
    ends = [theory.exact_loss(task, head[None, :1], head[None, 1:])[0] / dim for head in heads]
    return xr.Dataset(
        over("kind run length", mean=mean, error=error, predicted=predicted)
        | over("run", softmax_end=ends, plateau=(1 - heads.prod(axis=1)) ** 2, approach=nearing)
        | over("", softmax_best=best.loss[0] / dim)
        | over("run row column", map=maps),
        coords={"kind": list(KINDS), "run": list(settings.seeds), "length": list(settings.lengths)},
    )


def claims(data: Data, settings: Settings) -> list[Claim]:
    trained, dim, context = data["trained"], settings.dim, settings.context
    long = LONGER * context
    why = "" if {context, long} <= set(settings.lengths) else f"the lengths of the test lack {context} or {long}"
    c = 1 / (1 + (dim * settings.task.noise_factors[0] + 1) / context)
    quadrature = Origin("check", "theory.softmax.exact_loss, against sampling")
    linear = Origin("theory", "theory.softmax.linear_length_loss")
    identity = c * xr.DataArray(np.eye(dim), dims=("row", "column"))
    loss_claims = [
        origin.close(
            f"{kind}-loss",
            f"{attention}: its loss on sampled contexts is {what}, at the length furthest off",
            **worst(one["mean"], one["predicted"], DEVIATIONS * one["error"]),
            basis=f"{DEVIATIONS:g} standard errors, from other contexts",
        )
        for kind, origin, attention, what in (
            ("softmax", quadrature, f"Softmax attention trained at L = {context}", "that of its weights by quadrature"),
            ("test", linear, "Linear attention divided by the test length", "the closed form"),
            ("train", linear, "Linear attention always divided by the training length", "the closed form"),
        )
        for one in [trained.sel(kind=kind)]
    ]
    late, early = (trained["mean"].sel(length=[] if why else [length]) for length in (long, context))
    small, large = (data["orders"]["error"].sel(dim=dim).values for dim in ORDER_DIMS)
    infinite = "" if dim > 6 else "⟨e^(3a²)⟩ is finite from d = 7 on"
    second_order = 0.0 if infinite else ((1 - 6 / dim) / (1 - 2 / dim)) ** (-dim / 2)
    return [
        *loss_claims,
        Origin("check", "theory.softmax.softmax_length_loss and exact_length_loss", explored=True).close(
            "softmax-leading",
            "Softmax attention: the closed form is the leading order in 1/d. Its relative difference from quadrature "
            f"falls as 1/d, at d/L = {dim / context:g} and L'/L = 1, 3, 10, 30: power of d, from d = 100 to 400",
            predicted=-1.0,
            measured=np.log(large / small) / np.log(ORDER_DIMS[1] / ORDER_DIMS[0]),
            labels=[f"L'/L = {ratio}" for ratio in ORDER_RATIOS],
            tolerance=np.e**2 / ORDER_DIMS[0],
            basis="next order, e²/d of the difference",
            counted="lengths",
        ),
        Origin("check", EXACT_ROUTES).close(
            "softmax-end",
            "Softmax attention: training ends at the minimum of the exact loss, which is searched for separately",
            **compared(trained["softmax_end"], float(trained["softmax_best"]), 2e-6 * float(trained["softmax_best"])),
            basis="the stated errors of both ways to the exact loss, 1e-6 each",
        ),
        Origin("check", "objectives.Population and theory.softmax.linear_length_loss, both by eq. (15)").close(
            "linear-map",
            "Linear attention: training ends at c·I, c = 1/(1+(dφ+1)/L): entry of its matrix that is furthest off",
            **compared(abs(trained["map"] - identity).max(("row", "column")), tolerance=float(np.sqrt(GAP * dim / c))),
            basis="the loss is quadratic: what the end of training leaves, √(gap·d/c)",
        ),
        Origin("theory", "theory.softmax.softmax_length_loss").at_most(
            "softmax-no-worse",
            f"Softmax attention is better at {LONGER} times the length than where it was trained: loss on sampled "
            f"contexts of length {long}, against that at {context}",
            unless=why,
            predicted=early.sel(kind="softmax").values.ravel(),
            measured=labeled(late.sel(kind="softmax")),
            basis="strict",
        ),
        Origin("check", "theory.softmax.exact_loss and nonlinear_loss of a linear target").close(
            "softmax-approach",
            "Softmax attention falls to its plateau (1 - μω)² as 1/L': what its loss has above that at L' = 1e4, by "
            "quadrature, over the term of first order",
            unless=infinite,
            **compared(trained["approach"], 1.0, 3 * second_order / FAR),
            basis="second order, 3⟨e^(3a²)⟩/(L'⟨e^(a²)⟩), at a² = |q|²/d",
        ),
        linear.at_least(
            "linear-worse",
            f"Linear attention divided by {context} is worse at length {long} than predicting zero: loss over signal "
            "on sampled contexts",
            unless=why,
            **compared(late.sel(kind="train"), 1.0),
            basis="strict",
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    curve, trained, context = data["curves"], data["trained"], settings.context
    first, last = (float(curve["length"][place]) for place in (0, -1))
    styles = {
        "softmax": ("leading", BLUE, "o", "softmax"),
        "test": ("test", GREEN, "s", "linear, divided by L'"),
        "train": ("train", VERMILION, "^", f"linear, divided by {context}"),
    }
    with styled():
        figure = new_figure(11.2, 4.6)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2.4))
        for number, (kind, (name, color, marker, label)) in enumerate(styles.items()):
            left.plot(curve["length"], curve[name], color=color)
            left.plot([], [], color=color, marker=marker, markersize=6, label=label)
            one = trained.sel(kind=kind)
            left.plot(one["length"], one["mean"].mean("run"), marker, color=color, markersize=6)
            closed = np.exp(np.interp(np.log(one["length"]), np.log(curve["length"]), np.log(curve[name])))
            if kind != "softmax":
                closed = one["predicted"].mean("run").values
            error = 2 * np.sqrt((one["error"] ** 2).mean("run") / one.sizes["run"]) / closed
            place = one["length"] * 1.06 ** (number - 1)
            ratio = one["mean"].mean("run") / closed
            right.errorbar(place, ratio, error, fmt=marker, color=color, markersize=5, label=label)
        left.axhline(1, color=GRAY, linestyle="--", linewidth=1.0)
        note(left, "predicting zero", (1.1 * last, 1), (0, 4), ha="right", color="#555555")
        plateau = float(trained["plateau"].mean())
        left.axhline(plateau, color=BLUE, linestyle=":", linewidth=1.0)
        note(left, "plateau of softmax", (1.1 * first, plateau), (0, 4), color=BLUE)
        left.set(yscale="log", ylabel="loss / signal")
        left.set(title=f"(a) Trained at L = {context}: closed forms (lines), trained models (points)")
        left.legend(loc="upper left")
        right.plot(curve["length"], curve["exact"] / curve["leading"], color=BLACK, label="softmax, by quadrature")
        right.axhline(1, color=GRAY, linewidth=1.0)
        right.set(ylabel="loss / closed form", title="(b) Trained over closed form, ± 2 standard errors")
        right.legend(loc="lower right")
        for axes in (left, right):
            axes.set(xscale="log", xlim=(0.9 * first, 1.15 * last))
            axes.axvline(context, color=GRAY, linestyle=":", linewidth=1.0)
            axes.set_xlabel("context length of the test, L'")
    return figure


FIGURE = Figure(
    title="Trained at L = 100 and tested at other lengths: softmax attention stays good, frozen linear attention blows "
    "up",
    caption=CAPTION,
    settings=Settings(),
    quick=Settings(seeds=(0,), lengths=(20, 100, 500, 2000), most_sequences=1000, numbers=2_000_000),
    described=describe,
    seeds=Seeds(explored="other dimensions and lengths, for the orders of the closed form; of the rest not recorded"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
