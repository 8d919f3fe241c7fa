"""Trained at one context length and tested at others: softmax attention has no blow-up, linear attention may have one.

Softmax weights add up to one at any length. Linear attention is divided by a number of tokens: that of the test, or for
ever that of the training.
"""

from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell.dynamics import Ensemble, descend, flow
from stepwell.models import MergedAttention, SpectralAttention
from stepwell.objectives import Exact, Population
from stepwell.papers._claim import Claim
from stepwell.papers._completed import completed
from stepwell.papers._settings import changeable, setting
from stepwell.papers._style import BLACK, BLUE, GREEN, GREY, VERMILION, new_figure, styled
from stepwell.tasks import InContextRegression, MultiTaskRegression
from stepwell.theory import softmax as theory

from ._tokens import sampled_loss, softmax
from ._worst import worst_point

NAME = "softmax/length-generalisation"
TITLE = "Trained at L = 100 and tested at other lengths: softmax attention stays good, frozen linear attention blows up"
CAPTION = (
    "Ours. Loss over signal at test length L', for attention trained at L = 100 on one linear regression (d = 10, "
    "label noise of variance 1). Softmax attention itself is trained, as its two eigenvalues ω and μ, on its exact "
    "loss, and not its spectral surrogate; linear attention is trained on infinite data. (a) Curves: closed forms, "
    "that of softmax for the limit of the surrogate's flow. Points: trained models on sampled contexts of length L', "
    "means over seeds. Softmax attention falls to a plateau, since its weights add up to one. So does linear attention "
    "that is divided by the length it is tested at; always divided by 100, it grows as (L'/L)² and soon does worse "
    "than answering zero. (b) The points over the closed forms, with two standard errors. Those of linear attention "
    "are exact; that of softmax attention is to leading order in d and L, and the black line is the exact loss of "
    "the same limit, by quadrature."
)

DIM = setting("dim", 10)
CONTEXT = setting("context", 100)
NOISE = setting("noise", 1.0)
PHI = 1 + NOISE / DIM
DEVIATIONS = 4.0
"""Standard errors allowed."""
GAP = 1e-10
"""Training goes on until the loss is this near to its least, relative to the fall."""
FAR = 10_000
"""Test length at which the approach to the plateau is measured."""
ORDER_DIMS, ORDER_RATIOS = (100, 400), (1, 3, 10, 30)
"""Dimensions d and ratios L'/L, at d/L = 0.1, at which the order of the closed form is measured."""
KINDS = ("softmax", "test", "train")
"""Softmax attention, and linear attention divided by the length of the test or of the training."""


@changeable
@dataclass(frozen=True)
class Settings:
    seeds: tuple[int, ...] = (0, 1, 2)
    lengths: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000, 2000)
    most_sequences: int = 4000
    numbers: int = 4_000_000
    """Drawn for each length: as many sequences as that makes, and not more than the most."""
    steps: int = 3000
    rate: float = 0.003


FULL = Settings()
QUICK = Settings(seeds=(0,), lengths=(20, 100, 500, 2000), most_sequences=1000, numbers=2_000_000)


PAPER_SETTINGS: dict[str, Any] = {}
"""The paper has no such figure."""


def settings(quick: bool) -> dict[str, Any]:
    return {
        "dimension d": DIM,
        "context length L of the training": CONTEXT,
        "noise σ²": NOISE,
        "training": "softmax: descent on the exact loss; linear: flow on infinite data",
        **asdict(QUICK if quick else FULL),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    task = MultiTaskRegression((DIM,), 1.0, CONTEXT, noise_variance=NOISE)
    heads, maps = train_softmax(task, chosen), train_linear(chosen)
    return {"curves": curves(task), "orders": orders(), "trained": tested(task, heads, maps, chosen)}


def curves(task: MultiTaskRegression) -> xr.Dataset:
    """Closed forms and quadrature at the limit of the flow."""
    lengths = np.unique(np.geomspace(10, 2000, 47).astype(int)).tolist()
    losses = {
        "leading": theory.lengths.softmax_length_loss(task, lengths),
        "exact": theory.lengths.exact_length_loss(task, lengths),
    }
    for by in ("test", "train"):
        losses[by] = theory.lengths.linear_length_loss(task, lengths, divided_by=by)
    return xr.Dataset({name: ("length", values[:, 0] / DIM) for name, values in losses.items()}, {"length": lengths})


def orders() -> xr.Dataset:
    """Relative difference of the closed form of softmax attention from quadrature, at one d/L and φ."""
    error = []
    for dim in ORDER_DIMS:
        context = dim * CONTEXT // DIM
        task = MultiTaskRegression((dim,), 1.0, context, noise_variance=NOISE * dim / DIM)
        lengths = [ratio * context for ratio in ORDER_RATIOS]
        closed = theory.lengths.softmax_length_loss(task, lengths)[:, 0]
        error.append(np.abs(closed / theory.lengths.exact_length_loss(task, lengths)[:, 0] - 1))
    return xr.Dataset({"error": (("dim", "ratio"), error)}, {"dim": list(ORDER_DIMS), "ratio": list(ORDER_RATIOS)})


def approach(task: MultiTaskRegression, omega: float, mu: float) -> float:
    """What the loss has above its plateau at length `FAR`, by quadrature, over what it has to first order in 1/L'."""
    exact = theory.losses.exact_loss(task, np.array([[omega]]), np.array([[mu]]), context=FAR)[0] / DIM
    head = theory.nonlinear.Head(omega, mu)
    first_order = theory.nonlinear.nonlinear_loss(lambda s: s, DIM, FAR, head, noise=NOISE / DIM)
    plateau = (1 - mu * omega) ** 2
    return float((exact - plateau) / (first_order - plateau))


def train_softmax(task: MultiTaskRegression, chosen: Settings) -> np.ndarray:
    """ω and μ of one head (seed, 2), from random positive weights, trained on the exact loss at L."""
    models = []
    for seed in chosen.seeds:
        omega, mu = np.random.default_rng(seed).uniform(0.1, 0.5, (2, 1, 1))
        models.append(SpectralAttention.balanced(omega * DIM**-0.5, mu * DIM**0.5, task.dims))
    options: dict[str, Any] = {"rate": chosen.rate, "steps": chosen.steps, "record": chosen.steps, "progress": False}
    run = completed(descend(Ensemble.of(models), Exact(task), snapshots=2, **options))
    last = {name: run[name].values[:, -1, 0, 0] for name in ("key", "query", "value", "output")}
    omega = last["key"] * last["query"] * models[0].score_scale / DIM
    return np.stack([omega, last["value"] * last["output"]], axis=1)


def train_linear(chosen: Settings) -> np.ndarray:
    """The matrix (seed, dim, dim) that merged linear attention multiplies the query with, trained at L from small
    random weights of several heads."""
    objective = Population(InContextRegression(np.eye(DIM), CONTEXT, noise_variance=NOISE))
    maps = []
    for seed in chosen.seeds:
        model = MergedAttention.random(dim=DIM, heads=2, scale=0.1, key=jax.random.key(seed))
        run = completed(flow(model, objective, save=2, gap=GAP, progress=False))
        value, score = run["value"].values[0, -1], run["key_query"].values[0, -1]
        maps.append(np.einsum("h,hij->ij", value[:, 0, DIM], score[:, :DIM]))
    return np.array(maps)


def tested(
    task: MultiTaskRegression,
    heads: np.ndarray,
    maps: np.ndarray,
    chosen: Settings,
    *,
    theory_context: int | None = None,
) -> xr.Dataset:
    """Losses of the trained models on drawn contexts, and what theory says of these weights.

    `theory_context` is the L that theory is given, by default that of the task.
    """
    shape = (len(KINDS), len(chosen.seeds), len(chosen.lengths))
    mean, error, predicted = np.empty(shape), np.empty(shape), np.empty(shape)
    theory_task = MultiTaskRegression((DIM,), 1.0, theory_context or CONTEXT, noise_variance=NOISE)
    for column, length in enumerate(chosen.lengths):
        count = min(chosen.most_sequences, chosen.numbers // (length * DIM))
        linear = [
            theory.lengths.linear_length_loss(theory_task, [length], divided_by=by)[0, 0] / DIM
            for by in ("test", "train")
        ]
        for row, seed in enumerate(chosen.seeds):
            omega, mu = heads[row]
            attend = (lambda s, mu=mu: mu * softmax(s), lambda s, n=length: s / n, lambda s: s / CONTEXT)
            matrices = (omega * np.eye(DIM), maps[row], maps[row])
            rng = np.random.default_rng([seed, length])
            for kind in range(len(KINDS)):
                estimate = sampled_loss(matrices[kind], attend[kind], length, count, noise=NOISE, rng=rng)
                mean[kind, row, column], error[kind, row, column] = estimate
            exact = (
                theory.losses.exact_loss(theory_task, np.array([[omega]]), np.array([[mu]]), context=length)[0] / DIM
            )
            predicted[:, row, column] = (exact, *linear)
    best, dims = theory.losses.exact_optimum(task), ("kind", "run", "length")
    ends = [theory.losses.exact_loss(task, head[None, :1], head[None, 1:])[0] / DIM for head in heads]
    return xr.Dataset(
        {
            "mean": (dims, mean),
            "error": (dims, error),
            "predicted": (dims, predicted),
            "softmax_end": ("run", ends),
            "softmax_best": best.loss[0] / DIM,
            "plateau": ("run", (1 - heads.prod(axis=1)) ** 2),
            "approach": ("run", [approach(task, *head) for head in heads.tolist()]),
            "map": (("run", "row", "column"), maps),
        },
        coords={"kind": list(KINDS), "run": list(chosen.seeds), "length": list(chosen.lengths)},
    )


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    trained = data["trained"]
    words = {
        "softmax": "Softmax attention trained at L = 100: its loss on sampled contexts is that of its weights by "
        "quadrature",
        "test": "Linear attention divided by the test length: its loss on sampled contexts is the closed form",
        "train": "Linear attention always divided by the training length: its loss on sampled contexts is the closed "
        "form",
    }
    c = 1 / (1 + (DIM * PHI + 1) / CONTEXT)
    spread = np.sqrt(GAP * DIM / c)
    loss_claims = [
        worst_point(
            f"{NAME}/{kind}-loss",
            f"{word}, at the length furthest off",
            measured=trained["mean"].sel(kind=kind),
            predicted=trained["predicted"].sel(kind=kind),
            tolerance=DEVIATIONS * trained["error"].sel(kind=kind),
            basis=f"{DEVIATIONS:g} standard errors, from other contexts",
            kind="check" if kind == "softmax" else "theory",
            source="theory.softmax.losses.exact_loss, against sampling"
            if kind == "softmax"
            else "theory.softmax.lengths.linear_length_loss",
        )
        for kind, word in words.items()
    ]
    late, early = (trained["mean"].sel(length=length) for length in (2000, CONTEXT))
    small, large = (data["orders"]["error"].sel(dim=dim).values for dim in ORDER_DIMS)
    second_order = ((1 - 6 / DIM) / (1 - 2 / DIM)) ** (-DIM / 2)
    return [
        *loss_claims,
        Claim.over(
            f"{NAME}/softmax-leading",
            "Softmax attention: the closed form is the leading order in 1/d. Its relative difference from quadrature "
            "falls as 1/d, at d/L = 0.1 and L'/L = 1, 3, 10, 30: power of d, from d = 100 to 400",
            predicted=-1.0,
            measured=np.log(large / small) / np.log(ORDER_DIMS[1] / ORDER_DIMS[0]),
            tolerance=np.e**2 / ORDER_DIMS[0],
            basis="next order, e²/d of the difference",
            counted="lengths",
            kind="theory",
            source="theory.softmax.lengths.softmax_length_loss and exact_length_loss",
            explored=True,
        ),
        Claim.over(
            f"{NAME}/softmax-end",
            "Softmax attention: training ends at the minimum of the exact loss, which is searched for separately",
            predicted=float(trained["softmax_best"]),
            measured=trained["softmax_end"].values,
            tolerance=2e-6 * float(trained["softmax_best"]),
            basis="the stated errors of both ways to the exact loss, 1e-6 each",
            kind="theory",
            source="theory.softmax.losses.exact_optimum",
        ),
        Claim.over(
            f"{NAME}/linear-map",
            "Linear attention: training ends at c·I, c = 1/(1+(dφ+1)/L): entry of its matrix that is furthest off",
            predicted=0.0,
            measured=abs(trained["map"] - c * xr.DataArray(np.eye(DIM), dims=("row", "column"))).max(("row", "column")),
            tolerance=float(spread),
            basis="the loss is quadratic: what the end of training leaves, √(gap·d/c)",
            kind="theory",
            source="theory.softmax.lengths.linear_length_loss",
        ),
        Claim.over(
            f"{NAME}/softmax-no-worse",
            "Softmax attention is better at 20 times the length than where it was trained: loss on sampled contexts "
            "of length 2000, against that at 100",
            predicted=early.sel(kind="softmax").values,
            measured=late.sel(kind="softmax").values,
            tolerance=0.0,
            basis="strict",
            relation="<=",
            kind="theory",
            source="theory.softmax.lengths.softmax_length_loss",
        ),
        Claim.over(
            f"{NAME}/softmax-approach",
            "Softmax attention falls to its plateau (1 - μω)² as 1/L': what its loss has above that at L' = 1e4, by "
            "quadrature, over the term of first order",
            predicted=1.0,
            measured=trained["approach"].values,
            tolerance=3 * second_order / FAR,
            basis="second order, 3⟨e^(3a²)⟩/(L'⟨e^(a²)⟩), at a² = |q|²/d",
            kind="theory",
            source="theory.softmax.nonlinear.nonlinear_loss of a linear target",
        ),
        Claim.over(
            f"{NAME}/linear-worse",
            "Linear attention divided by 100 is worse at length 2000 than answering zero: loss over signal on sampled "
            "contexts",
            predicted=1.0,
            measured=late.sel(kind="train").values,
            tolerance=0.0,
            basis="strict",
            kind="theory",
            source="theory.softmax.lengths.linear_length_loss",
            relation=">=",
        ),
    ]


def draw(data: dict[str, xr.Dataset]) -> Figure:
    curve, trained = data["curves"], data["trained"]
    styles = {
        "softmax": ("leading", BLUE, "o", "softmax"),
        "test": ("test", GREEN, "s", "linear, divided by L'"),
        "train": ("train", VERMILION, "^", "linear, divided by 100"),
    }
    with styled():
        figure = new_figure(11.2, 4.6)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2.4))
        for number, (kind, (name, colour, marker, label)) in enumerate(styles.items()):
            left.plot(curve["length"], curve[name], color=colour)
            left.plot([], [], color=colour, marker=marker, markersize=6, label=label)
            one = trained.sel(kind=kind)
            left.plot(one["length"], one["mean"].mean("run"), marker, color=colour, markersize=6)
            closed = np.exp(np.interp(np.log(one["length"]), np.log(curve["length"]), np.log(curve[name])))
            if kind != "softmax":
                closed = one["predicted"].mean("run").values
            error = 2 * np.sqrt((one["error"] ** 2).mean("run") / one.sizes["run"]) / closed
            place = one["length"] * 1.06 ** (number - 1)
            ratio = one["mean"].mean("run") / closed
            right.errorbar(place, ratio, error, fmt=marker, color=colour, markersize=5, label=label)
        left.axhline(1, color=GREY, linestyle="--", linewidth=1.0)
        away: dict[str, Any] = {"xytext": (0, 4), "textcoords": "offset points"}
        left.annotate("answering zero", (2200, 1), ha="right", color="#555555", **away)
        plateau = float(trained["plateau"].mean())
        left.axhline(plateau, color=BLUE, linestyle=":", linewidth=1.0)
        left.annotate("plateau of softmax", (11, plateau), color=BLUE, **away)
        left.set_yscale("log")
        left.set_ylabel("loss / signal")
        left.set_title(f"(a) Trained at L = {CONTEXT}: closed forms (lines), trained models (points)")
        left.legend(loc="upper left")
        right.plot(curve["length"], curve["exact"] / curve["leading"], color=BLACK, label="softmax, by quadrature")
        right.axhline(1, color=GREY, linewidth=1.0)
        right.set_ylabel("loss / closed form")
        right.set_title("(b) Trained over closed form, ± 2 standard errors")
        right.legend(loc="lower right")
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_xlim(9, 2300)
            axes.axvline(CONTEXT, color=GREY, linestyle=":", linewidth=1.0)
            axes.set_xlabel("context length of the test, L'")
    return figure
