r"""Fig 2: separate attention of rank one is a convolution over cubic features.

$\hat y = \sum_i v_i\, q_i^\top K_i z$ with $z = \mathrm{vec}(\beta x_q^\top)$ and $K_i = I_D \otimes k_i^\top$: the key
is a kernel of width D that moves by D. Attention goes through every token, the convolution through z alone.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Array, Float
from matplotlib.patches import FancyArrowPatch, Rectangle

from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, ORANGE, VERMILION, new_figure, styled
from stepwell.dynamics import Record, descend
from stepwell.figures import Claim, Data, Figure, Origin, Seeds
from stepwell.models import ConvolutionalAttention, SeparateAttention
from stepwell.objectives import Moments, Sampled
from stepwell.tasks import Batch, InContextRegression, covariance

from ._runs import described, held_descent

EPSILON = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    context: int = 31
    heads: int = 3
    eigenvalues: tuple[float, ...] = (0.5, 0.3, 0.2)
    sequences: int = 100
    checked: int = 100  # sequences of which the prediction is compared one by one
    rate: float = 0.5
    steps: int = 1000
    record: int = 5
    init: float = 0.1

    @property
    def dim(self) -> int:
        return len(self.eigenvalues)

    @property
    def rounding(self) -> float:
        """What steps of descent make of rounding: one error a step, each grown with the weights, to second order.

        The largest of grown weights is that of equation 20a, without its terms in 1/N.
        """
        grown = min(self.eigenvalues) ** (-1 / 3)
        return EPSILON * self.steps * (grown / self.init) ** 2


def simulate(settings: Settings) -> Data:
    batch, model = prepare(settings)
    return {
        "one_by_one": compare(batch, model, settings),
        "attention": train_attention(batch, model, settings),
        "convolution": train_convolution(batch, model, settings),
    }


def prepare(settings: Settings) -> tuple[Batch, SeparateAttention]:
    """Sequences and initial weights."""
    task_key, data_key, weight_key = jax.random.split(jax.random.key(0), 3)
    task = InContextRegression(covariance(settings.eigenvalues, key=task_key), settings.context)
    model = SeparateAttention.random(dim=settings.dim, heads=settings.heads, scale=settings.init, key=weight_key)
    return task.sample(settings.sequences, key=data_key), model


def compare(
    batch: Batch, model: SeparateAttention, settings: Settings, *, convolved: ConvolutionalAttention | None = None
) -> xr.Dataset:
    """Predictions for each sequence and gradients of the loss, at weights of order one, by both forms; `convolved` may
    stand for another convolution."""
    model = model.scaled(1 / settings.init)
    convolved = ConvolutionalAttention.from_separate(model) if convolved is None else convolved
    features = batch.cubic_features()
    few = features.features[: settings.checked]
    gradient = eqx.filter_jit(lambda objective, model: eqx.filter_grad(objective)(model))
    predictions = eqx.filter_jit(lambda model, examples: jax.vmap(model)(examples))
    by_tokens, by_kernel = gradient(Sampled(batch), model), gradient(Sampled(features), convolved)
    return xr.Dataset(
        {
            "attention": ("sequence", np.asarray(predictions(model, batch.tokens[: settings.checked]))[:, 0]),
            "convolution": ("sequence", np.asarray(predictions(convolved, few))[:, 0]),
            # By the sliding kernel itself, as the figure draws it.
            "sliding": ("sequence", np.asarray(slide(convolved, few))),
            "attention_gradient": ("weight", _flat(ConvolutionalAttention.from_separate(by_tokens))),
            "convolution_gradient": ("weight", _flat(by_kernel)),
            "features": (("dim", "query_dim"), np.asarray(features.features[0]).reshape(settings.dim, settings.dim)),
            "value": ("head", np.asarray(convolved.value)),
            "key": (("head", "dim"), np.asarray(convolved.key)),
            "query": (("head", "query_dim"), np.asarray(convolved.query)),
        }
    )


@eqx.filter_jit
def slide(
    model: ConvolutionalAttention, features: Float[Array, "sequence features"], *, stride: int | None = None
) -> Float[Array, " sequence"]:
    """The prediction by a general convolution: a window of width D over z, moved by `stride`, by default D."""
    dim = model.key.shape[1]
    # Features come row by row; z has the columns of β x_qᵀ one after another.
    z = features.reshape(-1, dim, dim).transpose(0, 2, 1).reshape(-1, 1, dim * dim)
    kernels = model.key[:, None, :]
    responses = jax.lax.conv_general_dilated(z, kernels, window_strides=(stride or dim,), padding="VALID")[:, :, :dim]
    return jnp.einsum("h,hd,shd->s", model.value, model.query, responses)


def train_attention(batch: Batch, model: SeparateAttention, settings: Settings) -> xr.Dataset:
    """Descent of attention through every token. The label blocks are kept where they are, at zero."""
    return descend(model, Sampled(batch), optimizer=held_descent(model, settings.rate), **_options(settings))


def train_convolution(batch: Batch, model: SeparateAttention, settings: Settings) -> xr.Dataset:
    """Descent of the convolution by the moments of z."""
    convolved, objective = ConvolutionalAttention.from_separate(model), Moments.of_features(batch.cubic_features())
    return descend(convolved, objective, rate=settings.rate, **_options(settings))


def _options(settings: Settings) -> dict[str, Any]:
    return {"steps": settings.steps, "record": Record(every=settings.record, snapshots=2), "progress": False}


def claims(data: Data, settings: Settings) -> list[Claim]:
    each, attention, convolution = data["one_by_one"], data["attention"], data["convolution"]
    losses, curve = attention["loss"].values, convolution["loss"].values
    fall = np.ptp(losses)
    rounded = EPSILON * losses.max() > settings.rounding * fall
    before, after, other = _at(attention, 0), _at(attention, -1), _at(convolution, -1)
    paper = Origin("paper", "Section 4.1, equations 12 and 13, and Fig 2").at_most
    rounding = "rounding of some hundred multiplications and additions to a prediction"
    sums = partial(paper, tolerance=100 * EPSILON, basis=rounding)
    rounding = "rounding of each step, grown with the weights: ε · steps · (grown/initial)²"
    grown = partial(paper, tolerance=settings.rounding, basis=rounding)
    return [
        sums(
            "prediction",
            "Attention through all tokens and the convolution through z predict the same for every sequence: largest "
            "difference over the largest prediction",
            measured=_apart(each["attention"], each["convolution"]),
        ),
        sums(
            "sliding",
            "A general convolution with kernel k and stride D predicts the same as attention: largest difference over "
            "the largest prediction",
            measured=_apart(each["attention"], each["sliding"]),
        ),
        sums(
            "gradient",
            "The losses of attention and convolution have the same gradient in v, k and q: largest difference over the "
            "largest entry",
            measured=_apart(each["attention_gradient"], each["convolution_gradient"]),
        ),
        grown(
            "curve",
            "Trained from the same weights, with the label blocks of attention held at zero, attention and convolution "
            "have one loss curve: largest difference over the whole fall of the loss",
            unless="the loss has fallen by no more than it is rounded to" if rounded else "",
            measured=_over(abs(losses - curve).max(), fall),
        ),
        grown(
            "weights",
            "Trained so, attention and convolution end at the same weights: largest difference over the largest change "
            "of a weight",
            measured=_over(abs(after - other).max(), abs(after - before).max()),
        ),
    ]


def _over(difference: Any, change: Any) -> float:
    """The ratio; infinite where nothing changed, for agreement of runs that stand still says nothing."""
    return float(difference) / float(change) if change > 0 else np.inf


def _apart(one: xr.DataArray, other: xr.DataArray) -> float:
    return float(abs(one - other).max() / abs(one).max())


def _at(run: xr.Dataset, snapshot: int) -> np.ndarray:
    """All weights of a snapshot that the convolution has."""
    value, key, query = (run[name].values[0, snapshot] for name in ("value", "key", "query"))
    parts = (value, key, query) if value.ndim == 1 else (value[:, 0, -1], key[:, 0, :-1], query[:, 0])
    return np.concatenate([part.ravel() for part in parts])


def _flat(model: ConvolutionalAttention) -> np.ndarray:
    return np.concatenate([np.asarray(weights).ravel() for weights in model.weights().values()])


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    each = data["one_by_one"]
    with styled():
        figure = new_figure(11.5, 4.6)
        scheme, loss = figure.subplots(1, 2, width_ratios=(2.6, 1))
        _draw_scheme(scheme, each)
        attention, convolution = data["attention"], data["convolution"]
        step = attention["step"].values
        loss.plot(
            step, attention["loss"][0], color=BLUE, linewidth=3.5, alpha=0.6, label="$\\mathrm{ATTN}_S$, through tokens"
        )
        loss.plot(step, convolution["loss"][0], "--", color=BLACK, linewidth=1.2, label="convolution, through z")
        loss.set(xlabel="step", ylabel="training loss", ylim=(0, None), xscale="log")
        loss.set_xlim(step[1] / 2 if step.size < 3 else step[1], step[-1])
        loss.legend(loc="lower left")
        loss.set_title("(b) Trained from the same weights")
    return figure


_BLOCKS = (BLUE, GREEN, ORANGE)


def _draw_scheme(axes: Any, each: xr.Dataset) -> None:
    features, key, query = each["features"].values, each["key"].values[0], each["query"].values[0]
    value = float(each["value"][0])
    dim = key.size
    first, half = dim + 2, dim / 2
    middle, right = first + dim * half, first + dim**2
    axes.set(xlim=(-0.8, right + 2.6), ylim=(min(-5.2, 2 - dim), 4.6), aspect="equal")
    axes.axis("off")
    axes.set_title("(a) One head as a convolution")
    for d in range(dim):
        for j in range(dim):
            _cell(axes, j, 2 - d, features[d, j], _BLOCKS[j % 3])
            _cell(axes, first + dim * j + d, 2, features[d, j], _BLOCKS[j % 3])
        axes.text(-0.15, 2.5 - d, f"$\\beta_{d + 1}$", ha="right", va="center")
        axes.text(d + 0.5, 3.15, f"$x_{{q,{d + 1}}}$", ha="center", va="bottom")
    axes.text(half, 2.7 - dim, "features $\\beta x_q^\\top$", ha="center", va="top")
    axes.text(middle, 3.35, "$z$: its columns, one after another", ha="center", va="bottom")
    _arrow(axes, (dim + 0.2, 1.5), (first - 0.3, 2.4))
    responses = features.T @ key
    for j in range(dim):
        left = first + dim * j
        for d in range(dim):
            _cell(axes, left + d, 0.2, key[d], VERMILION, solid=j == 0)
        _arrow(axes, (left + half, 1.95), (left + half, 1.3))
        _arrow(axes, (left + half, 0.1), (left + half, -0.85))
        _cell(axes, left + half - 0.5, -2, responses[j], GRAY)
        axes.text(left + half + 0.55, -1.5, f"$\\times\\, q_{j + 1}$ = {query[j]:.2f}", va="center", fontsize=9)
        _arrow(axes, (left + half, -2.1), (middle + 0.4 * (j + 0.5 - half), -3.15))
    axes.text(right + 0.2, 0.7, "kernel $k$,\nmoved by $D$", ha="left", va="center", color=VERMILION)
    axes.text(first - 0.2, -1.5, "responses $k^\\top\\beta\\, x_{q,d}$", ha="right", va="center", color="#555555")
    total = float(query @ responses)
    axes.text(middle, -3.5, f"sum {total:.2f}  $\\times\\, v$ = {value:.2f}", ha="center", va="center")
    _arrow(axes, (middle, -3.85), (middle, -4.4))
    prediction = f"$v\\, q^\\top K z$ = {value * total:.2f}, this head's part of $\\hat y_q$"
    axes.text(middle, -4.75, prediction, ha="center", va="center")


def _cell(axes: Any, x: float, y: float, number: float, color: str, *, solid: bool = True) -> None:
    style = {"edgecolor": color, "linewidth": 1.4, "linestyle": "-" if solid else "--"}
    axes.add_patch(Rectangle((x + 0.05, y + 0.05), 0.9, 0.9, facecolor=color + "28", **style))
    axes.text(x + 0.5, y + 0.5, f"{number:.2f}", ha="center", va="center", fontsize=7.5)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=GRAY, linewidth=1.1))


FIGURE = Figure(
    title="Attention with keys and queries of rank one is a convolution over cubic features",
    caption=(
        "(a) One head of ATTN_S, D = 3. The context enters through β = (1/N) Σ yₙ xₙ alone. The features β x_qᵀ are "
        "laid out as one row z, a block of D entries for each entry of the query. The key k is a kernel of width D "
        "that moves by D, and meets one block at each stop; the query weights q add up the D responses, the value "
        "weight v scales the sum. Heads are added. The numbers are those of one sequence and of random weights. (b) "
        "Ours: the loss of two training runs from the same weights, attention through all its tokens and the "
        "convolution through z: one curve. The convolution knows nothing of the label blocks (readout of inputs, label "
        "entries of keys): those of attention are held at zero, where infinitely many sequences would leave them."
    ),
    source="Fig 2",
    settings=Settings(),
    quick=Settings(sequences=50, checked=50, steps=500),
    described=partial(described, initial="Gaussian, label blocks zero"),
    paper_settings={"dimension D": 3},
    seeds=Seeds(judged="0"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
