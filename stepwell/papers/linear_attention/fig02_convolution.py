r"""Fig 2: separate attention of rank one is a convolution over cubic features.

$\hat y = \sum_i v_i\, q_i^\top K_i z$ with $z = \mathrm{vec}(\beta x_q^\top)$ and $K_i = I_D \otimes k_i^\top$: the key
is a kernel of width D that moves by D. Attention goes through every token, the convolution through z alone.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from stepwell.dynamics import descend
from stepwell.models import ConvolutionalAttention, SeparateAttention
from stepwell.objectives import Moments, Sampled
from stepwell.papers._claim import Claim, Origin
from stepwell.papers._completed import completed
from stepwell.papers._settings import changeable, setting
from stepwell.papers._style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, new_figure, styled
from stepwell.tasks import Batch, InContextRegression, covariance
from stepwell.trajectory import provenance

from ._described import described

NAME = "linear/fig2"
TITLE = "Attention with keys and queries of rank one is a convolution over cubic features"
CAPTION = (
    "(a) One head of ATTN_S, D = 3. The context enters through β = (1/N) Σ yₙ xₙ alone. The features β x_qᵀ are laid "
    "out as one row z, a block of D entries for each entry of the query. The key k is a kernel of width D that moves "
    "by D, and meets one block at each stop; the query weights q add up the D responses, the value weight v scales the "
    "sum. Heads are added. The numbers are those of one sequence and of random weights. (b) Ours: the loss of two "
    "training runs from the same weights, attention through all its tokens and the convolution through z: one curve. "
    "The convolution knows nothing of the label blocks (readout of inputs, label entries of keys): those of attention "
    "are held at zero, where infinitely many sequences would leave them."
)

CONTEXT = setting("context", 31)
HEADS = setting("heads", 3)
EIGENVALUES = setting("eigenvalues", (0.5, 0.3, 0.2))
DIM = len(EIGENVALUES)
EPSILON = float(np.finfo(float).eps)
GROWN = min(EIGENVALUES) ** (-1 / 3)
"""The largest of grown weights (equation 20a, without its terms in 1/N)."""
PAPER_SETTINGS = {"dimension D": DIM}
SOURCE = "Section 4.1, equations 12 and 13, and Fig 2"


@changeable
@dataclass(frozen=True)
class Settings:
    """What a quick run has less of."""

    sequences: int = 100
    checked: int = 100
    """Sequences of which the prediction is compared one by one."""
    rate: float = 0.5
    steps: int = 1000
    record: int = 5
    init: float = 0.1

    @property
    def rounding(self) -> float:
        """What steps of descent make of rounding: one error a step, each grown with the weights, to second order."""
        return EPSILON * self.steps * (GROWN / self.init) ** 2


FULL = Settings()
QUICK = Settings(sequences=50, checked=50, steps=500)


def settings(quick: bool) -> dict[str, Any]:
    return {
        **described(dim=DIM, context=CONTEXT, heads=HEADS, eigenvalues=EIGENVALUES),
        "initial weights": "Gaussian, label blocks zero",
        **asdict(QUICK if quick else FULL),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    batch, model = prepare(chosen)
    return {
        "one_by_one": compare(batch, model, chosen),
        "attention": train_attention(batch, model, chosen),
        "convolution": train_convolution(batch, model, chosen),
    }


def prepare(chosen: Settings) -> tuple[Batch, SeparateAttention]:
    """Sequences and initial weights."""
    task_key, data_key, weight_key = jax.random.split(jax.random.key(0), 3)
    task = InContextRegression(covariance(EIGENVALUES, key=task_key), CONTEXT)
    model = SeparateAttention.random(dim=DIM, heads=HEADS, scale=chosen.init, key=weight_key)
    return task.sample(chosen.sequences, key=data_key), model


def compare(
    batch: Batch, model: SeparateAttention, chosen: Settings, *, convolved: ConvolutionalAttention | None = None
) -> xr.Dataset:
    """Predictions for each sequence and gradients of the loss, at weights of order one, by both forms.

    `convolved` stands for the convolution, if it is to be another than that of the model.
    """
    model = model.scaled(1 / chosen.init)
    convolved = ConvolutionalAttention.from_separate(model) if convolved is None else convolved
    features = batch.cubic_features()
    few = features.features[: chosen.checked]
    gradient = eqx.filter_jit(lambda objective, model: eqx.filter_grad(objective)(model))
    answers = eqx.filter_jit(lambda model, examples: jax.vmap(model)(examples))
    by_tokens, by_kernel = gradient(Sampled(batch), model), gradient(Sampled(features), convolved)
    return xr.Dataset(
        {
            "attention": ("sequence", np.asarray(answers(model, batch.tokens[: chosen.checked]))[:, 0]),
            "convolution": ("sequence", np.asarray(answers(convolved, few))[:, 0]),
            # By the sliding kernel itself, as the figure draws it.
            "sliding": ("sequence", np.asarray(slide(convolved, few))),
            "attention_gradient": ("weight", _flat(ConvolutionalAttention.from_separate(by_tokens))),
            "convolution_gradient": ("weight", _flat(by_kernel)),
            "features": (("dim", "query_dim"), np.asarray(features.features[0]).reshape(DIM, DIM)),
            "value": ("head", np.asarray(convolved.value)),
            "key": (("head", "dim"), np.asarray(convolved.key)),
            "query": (("head", "query_dim"), np.asarray(convolved.query)),
        },
        attrs=provenance({"figure": NAME, **asdict(chosen)}),
    )


@eqx.filter_jit
def slide(
    model: ConvolutionalAttention, features: Float[Array, "sequence features"], *, stride: int = DIM
) -> Float[Array, " sequence"]:
    """The prediction by a general convolution: a window of width D over z, moved by `stride`."""
    # Features come row by row; z has the columns of β x_qᵀ one after another.
    z = features.reshape(-1, DIM, DIM).transpose(0, 2, 1).reshape(-1, 1, DIM * DIM)
    kernels = model.key[:, None, :]
    responses = jax.lax.conv_general_dilated(z, kernels, window_strides=(stride,), padding="VALID")[:, :, :DIM]
    return jnp.einsum("h,hd,shd->s", model.value, model.query, responses)


def train_attention(batch: Batch, model: SeparateAttention, chosen: Settings) -> xr.Dataset:
    """Descent of attention through every token. The label blocks are kept where they are, at zero."""
    trajectory = descend(
        model,
        Sampled(batch),
        optimiser=_held_descent(model, chosen.rate),
        steps=chosen.steps,
        record=chosen.record,
        snapshots=2,
        progress=False,
        configuration={"figure": NAME, **asdict(chosen)},
    )
    return completed(trajectory)


def _held_descent(model: SeparateAttention, rate: float) -> optax.GradientTransformation:
    """Plain descent, with the gradient taken off the label blocks."""
    moving = model.with_weights(
        {
            "value": jnp.zeros_like(model.value).at[:, :, DIM:].set(1.0),
            "key": jnp.zeros_like(model.key).at[:, :, :DIM].set(1.0),
            "query": jnp.ones_like(model.query),
        }
    )
    mask, _ = ravel_pytree(moving)

    def masked(gradient: Any, _: Any) -> Any:
        return gradient * mask

    return optax.chain(optax.stateless(masked), optax.sgd(rate))


def train_convolution(batch: Batch, model: SeparateAttention, chosen: Settings) -> xr.Dataset:
    """Descent of the convolution by the moments of z."""
    trajectory = descend(
        ConvolutionalAttention.from_separate(model),
        Moments.of_features(batch.cubic_features()),
        rate=chosen.rate,
        steps=chosen.steps,
        record=chosen.record,
        snapshots=2,
        progress=False,
        configuration={"figure": NAME, **asdict(chosen)},
    )
    return completed(trajectory)


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    each, attention, convolution = data["one_by_one"], data["attention"], data["convolution"]
    chosen = json.loads(attention.attrs["configuration"])
    rounding = Settings(steps=chosen["steps"], init=chosen["init"]).rounding
    places = ("value", "key", "query")
    paper: Origin = {"kind": "paper", "source": SOURCE}
    sums = "rounding of some hundred multiplications and additions to a prediction"
    grown = "rounding of each step, grown with the weights: ε · steps · (grown/initial)²"
    return [
        Claim.at_most(
            f"{NAME}/prediction",
            "Attention through all tokens and the convolution through z predict the same for every sequence: largest "
            "difference over the largest prediction",
            measured=_apart(each["attention"], each["convolution"]),
            tolerance=100 * EPSILON,
            basis=sums,
            **paper,
        ),
        Claim.at_most(
            f"{NAME}/sliding",
            "A general convolution with kernel k and stride D predicts the same as attention: largest difference over "
            "the largest prediction",
            measured=_apart(each["attention"], each["sliding"]),
            tolerance=100 * EPSILON,
            basis=sums,
            **paper,
        ),
        Claim.at_most(
            f"{NAME}/gradient",
            "The losses of attention and convolution have the same gradient in v, k and q: largest difference over the "
            "largest entry",
            measured=_apart(each["attention_gradient"], each["convolution_gradient"]),
            tolerance=100 * EPSILON,
            basis=sums,
            **paper,
        ),
        Claim.at_most(
            f"{NAME}/curve",
            "Trained from the same weights, with the label blocks of attention held at zero, attention and convolution "
            "have one loss curve: largest difference over the whole fall of the loss",
            measured=_over(abs(attention["loss"] - convolution["loss"]).max(), np.ptp(attention["loss"].values)),
            tolerance=rounding,
            basis=grown,
            **paper,
        ),
        Claim.at_most(
            f"{NAME}/weights",
            "Trained so, attention and convolution end at the same weights: largest difference over the largest change "
            "of a weight",
            measured=_over(
                max(abs(_at(attention, name, -1) - _at(convolution, name, -1)).max() for name in places),
                max(abs(_at(attention, name, -1) - _at(attention, name, 0)).max() for name in places),
            ),
            tolerance=rounding,
            basis=grown,
            **paper,
        ),
    ]


def _over(difference: Any, change: Any) -> float:
    """The ratio; infinite where nothing changed, for agreement of runs that stand still says nothing."""
    return float(difference) / float(change) if change > 0 else np.inf


def _apart(one: xr.DataArray, other: xr.DataArray) -> float:
    return float(abs(one - other).max() / abs(one).max())


def _at(run: xr.Dataset, name: str, snapshot: int) -> np.ndarray:
    """The weights of a snapshot, in the shape that the convolution has."""
    weights = run[name].values[0, snapshot]
    if name == "value":
        return weights if weights.ndim == 1 else weights[:, 0, DIM]
    return weights if weights.ndim == 2 else weights[:, 0, :DIM]


def _flat(model: ConvolutionalAttention) -> np.ndarray:
    return np.concatenate([np.asarray(weights).ravel() for weights in model.weights().values()])


def draw(data: dict[str, xr.Dataset]) -> Figure:
    each = data["one_by_one"]
    with styled():
        figure = new_figure(11.5, 4.6)
        scheme, loss = figure.subplots(1, 2, width_ratios=(2.6, 1))
        _draw_scheme(scheme, each)
        attention, convolution = data["attention"], data["convolution"]
        step = attention["step"].values
        loss.plot(step, attention["loss"][0], color=BLUE, linewidth=3.5, alpha=0.6, label="ATTN_S, through tokens")
        loss.plot(step, convolution["loss"][0], "--", color=BLACK, linewidth=1.2, label="convolution, through z")
        loss.set(xlabel="step", ylabel="training loss", ylim=(0, None), xscale="log")
        loss.set_xlim(step[1], step[-1])
        loss.legend(loc="lower left")
        loss.set_title("(b) Trained from the same weights")
    return figure


_BLOCKS = (BLUE, GREEN, ORANGE)


def _draw_scheme(axes: Any, each: xr.Dataset) -> None:
    """The features as a grid and as a row, the kernel at its D stops, the responses, the sum, the prediction."""
    features, key, query = each["features"].values, each["key"].values[0], each["query"].values[0]
    value = float(each["value"][0])
    axes.set(xlim=(-0.8, 16.6), ylim=(-5.2, 4.6), aspect="equal")
    axes.axis("off")
    axes.set_title("(a) One head as a convolution")
    for d in range(DIM):
        for j in range(DIM):
            _cell(axes, j, 2 - d, features[d, j], _BLOCKS[j])
            _cell(axes, 5 + DIM * j + d, 2, features[d, j], _BLOCKS[j])
        axes.text(-0.15, 2.5 - d, f"$\\beta_{d + 1}$", ha="right", va="center")
        axes.text(d + 0.5, 3.15, f"$x_{{q,{d + 1}}}$", ha="center", va="bottom")
    axes.text(1.5, -0.3, "features $\\beta x_q^\\top$", ha="center", va="top")
    axes.text(9.5, 3.35, "$z$: its columns, one after another", ha="center", va="bottom")
    _arrow(axes, (3.2, 1.5), (4.7, 2.4))
    responses = features.T @ key
    for j in range(DIM):
        left = 5 + DIM * j
        for d in range(DIM):
            _cell(axes, left + d, 0.2, key[d], VERMILION, solid=j == 0)
        _arrow(axes, (left + 1.5, 1.95), (left + 1.5, 1.3))
        _arrow(axes, (left + 1.5, 0.1), (left + 1.5, -0.85))
        _cell(axes, left + 1, -2, responses[j], GREY)
        axes.text(left + 2.05, -1.5, f"$\\times\\, q_{j + 1}$ = {query[j]:.2f}", va="center", fontsize=9)
        _arrow(axes, (left + 1.5, -2.1), (9.5 + 0.4 * (j - 1), -3.15))
    axes.text(14.2, 0.7, "kernel $k$,\nmoved by $D$", ha="left", va="center", color=VERMILION)
    axes.text(4.8, -1.5, "responses $k^\\top\\beta\\, x_{q,d}$", ha="right", va="center", color="#555555")
    total = float(query @ responses)
    axes.text(9.5, -3.5, f"sum {total:.2f}  $\\times\\, v$ = {value:.2f}", ha="center", va="center")
    _arrow(axes, (9.5, -3.85), (9.5, -4.4))
    answer = f"$v\\, q^\\top K z$ = {value * total:.2f}, this head's part of $\\hat y_q$"
    axes.text(9.5, -4.75, answer, ha="center", va="center")


def _cell(axes: Any, x: float, y: float, number: float, colour: str, *, solid: bool = True) -> None:
    style = {"edgecolor": colour, "linewidth": 1.4, "linestyle": "-" if solid else "--"}
    axes.add_patch(Rectangle((x + 0.05, y + 0.05), 0.9, 0.9, facecolor=colour + "28", **style))
    axes.text(x + 0.5, y + 0.5, f"{number:.2f}", ha="center", va="center", fontsize=7.5)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=GREY, linewidth=1.1))
