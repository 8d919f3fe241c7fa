"""Softmax attention by its eigenvalues ω and μ: trained, evaluated over sequences, and searched for the least loss."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
import xarray as xr
from jaxtyping import Array, Float

from stepwell.dynamics import Ensemble, Record, descend
from stepwell.dynamics.fast import gradient_form
from stepwell.figures import one_blas_thread
from stepwell.models import SpectralAttention
from stepwell.objectives import AbstractObjective, ReducedSampled
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import Lengths, MultiRegression
from stepwell.theory import softmax as theory

from ._common import over


class Descent(NamedTuple):
    """Losses (run, time), eigenvalues at each snapshot (run, snapshot, head, task), and times, rate × step."""

    loss: np.ndarray
    omega: np.ndarray
    mu: np.ndarray
    time: np.ndarray


def descent(
    models: list[SpectralAttention], objective: Any, *, rate: float, steps: int, points: Any, snapshots: Any = 2
) -> Descent:
    """Gradient descent of several models, as one program."""
    record = Record(points=points, snapshots=snapshots)
    run = descend(Ensemble.of(models), objective, rate=rate, steps=steps, record=record, progress=False)
    return Descent(run["loss"].values, *eigenvalues(run, models[0]), rate * run["step"].values)


def eigenvalues(run: xr.Dataset, model: SpectralAttention) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ (run, snapshot, head, task) of a trajectory."""
    key, query, value, output = (run[name].values for name in ("key", "query", "value", "output"))
    return key * query * model.score_scale / np.array(model.dims), value * output


def equal_tasks(count: int, dim: int, context: int) -> MultiTaskRegression:
    """Of total signal 1, with noise of variance 1."""
    return MultiTaskRegression((dim,) * count, 1.0, context, noise_variance=1.0, convention="total")


def uniform_head(
    task: MultiTaskRegression, seed: int, *, highest: float = 0.4, score_scale: float | Literal["head"] = "head"
) -> SpectralAttention:
    r"""One head whose $\omega\sqrt d$ and $\mu/\sqrt d$ are drawn between 0.1 and `highest`."""
    omega, mu = np.random.default_rng(seed).uniform(0.1, highest, (2, 1, len(task.dims)))
    roots = np.array(task.dims) ** 0.5
    return SpectralAttention.balanced(omega / roots, mu * roots, task.dims, score_scale=score_scale)


def leading_weights(task: MultiTaskRegression, heads: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Positive ω and μ of as many heads as tasks or more, in which each task leads in a head of its own."""
    shape, roots = 0.02 + 0.58 * np.eye(heads, len(task.dims)), np.array(task.dims) ** 0.5
    return shape / roots, shape * roots


def trained_together(
    tasks: int, heads: int, dim: int, context: int, *, rate: float, steps: int, tested: int
) -> dict[str, Any]:
    """Softmax attention, all heads on all of the equal tasks (`equal_tasks`), by descent from `leading_weights`.

    `loss` is over fresh sequences, with its standard error, and `best` the least of a head for each task by quadrature.
    `left` is what `loss` may be above it by, relatively: two weights of each task, fitted to N sequences, lose on
    others at most 1/N each, and the flow of the spectral loss from the same weights has a tail (scores off task).
    """
    task, key = equal_tasks(tasks, dim, context), jax.random.fold_in(jax.random.key(60), context)
    # The longer the context the less a sequence varies.
    weights, sequences = leading_weights(task, heads), max(64, min(400, 100_000 // context))
    model = SpectralAttention.balanced(*weights, task.dims)
    objective = ReducedSampled(task, sequences, precision="float32", key=key)
    run = descent([model], objective, rate=rate, steps=steps, points=2)
    other = jax.random.fold_in(key, 1)
    (loss,), (error,) = softmax_losses(task, run.omega[:, -1], run.mu[:, -1], tested, key=other)
    best = tasks * theory.exact_optimum(equal_tasks(1, dim, context)).loss.sum()
    end = theory.spectral_flow(task, *weights, run.time[-1:]).loss[0].sum()
    left = 2 / sequences + end / theory.flow_limit_loss(task).sum() - 1
    return over("", loss=loss, error=error, best=best, left=left)


def off_balance(model: SpectralAttention, delta: float) -> SpectralAttention:
    """The model with v times 1 + δ and o over 1 + δ, which leaves μ."""
    weights = {name: np.asarray(weight) for name, weight in model.weights().items()}
    weights |= {"value": weights["value"] * (1 + delta), "output": weights["output"] / (1 + delta)}
    return model.with_weights({name: jax.device_put(weight) for name, weight in weights.items()})


def best_readout_loss(task: MultiTaskRegression, omega: Float[np.ndarray, "1 task"]) -> float:
    """The exact loss of one head with the best μ, alike for all tasks: the vertex of a parabola."""
    zero, one, two = (theory.exact_loss(task, omega, mu + 0 * omega).sum() for mu in (0.0, 1.0, 2.0))
    curvature = (two - 2 * one + zero) / 2
    return float(zero - (one - zero - curvature) ** 2 / (4 * curvature))


def linear_loss(task: MultiTaskRegression) -> float:
    """The loss of linear attention with the labels centered, which leaves L - 1 pairs."""
    fewer = MultiTaskRegression(task.dims, task.strengths, task.context.longest - 1, noise_variance=task.noise_variance)
    return float(theory.linear_attention_loss(fewer).sum())


def like_tasks(ratio: float, tasks: int, noise: float = 1.0, *, context: int = 10**9) -> MultiRegression:
    r"""Tasks of equal dimension d = `ratio`·L and total signal $S_i = 1$, so that $\phi = 1 + $ `noise`.

    Losses to leading order, and Bayes and ridge risks of large d and L, depend on d/L and φ only. The context is such
    that d/L is met to 8 digits from 0.01 on.
    """
    dim = round(ratio * context)
    return MultiRegression((dim,) * tasks, (1 / dim,) * tasks, noise, Lengths((context,), (1.0,)))


Attention = Callable[[Float[np.ndarray, "sequence token"]], Float[np.ndarray, "sequence token"]]
"""What each token's label is multiplied by, from the scores of the tokens."""

_AT_ONCE = 2**21
"""Numbers drawn at a time."""
_FEW = 200
"""The scatter of contexts is from a quarter as many others, and at least from so many."""


class Estimate(NamedTuple):
    """A mean over contexts and its standard error, from contexts of its own."""

    mean: float
    error: float


softmax = partial(scipy.special.softmax, axis=-1)


def sampled_loss(
    scores: Float[np.ndarray, "dim dim"],
    weights: Attention,
    context: int,
    sequences: int,
    *,
    noise: float,
    rng: np.random.Generator,
) -> Estimate:
    r"""$\mathbb E[\,\|q - X^\top P\|^2 + \sigma^2\|P\|^2]/d$ over contexts X and queries q, all standard normal.

    P is `weights` of the scores $x_l^\top Wq$, W = `scores`. It is the loss over the signal of
    $\hat y = \sum_lP_ly_l$, $y_l = g\cdot x_l + \varepsilon_l$, in the mean over $g\sim\mathcal N(0, I)$ and noise.
    The standard error is by the scatter of other contexts.
    """
    drawn = _drawn_losses(scores, weights, context, sequences, noise, rng)
    others = _drawn_losses(scores, weights, context, max(_FEW, sequences // 4), noise, rng.spawn(1)[0])
    return Estimate(float(drawn.mean()), float(others.std(ddof=1) / sequences**0.5))


def _drawn_losses(
    scores: np.ndarray, weights: Attention, context: int, sequences: int, noise: float, rng: np.random.Generator
) -> Float[np.ndarray, " sequence"]:
    """Of each drawn context."""
    dim, values, left = scores.shape[0], [], sequences
    while left > 0:
        count = min(left, max(1, _AT_ONCE // (context * dim)))
        x, q = rng.standard_normal((count, context, dim)), rng.standard_normal((count, dim))
        p = weights(np.matmul(x, (q @ scores.T)[..., None])[..., 0])
        missed = q - np.matmul(p[:, None], x)[:, 0]
        values.append((np.sum(missed**2, axis=1) + noise * np.sum(p**2, axis=1)) / dim)
        left -= count
    return np.concatenate(values)


FLATTEST = 1e-2
r"""The smallest root mean square of $|\omega^h|$ searched: with signed weights the least is at 0, where μ → ∞."""
_SHARPEST = 3.0
RCOND = 1e-9
"""Combinations of heads that are this near to nothing are left out: μ there would be so large that rounding shows."""


def loss_and_slope(
    task: MultiTaskRegression, omega: Float[np.ndarray, "head task"], mu: Float[np.ndarray, "head task"]
) -> tuple[float, Float[np.ndarray, "2 head task"]]:
    r"""The spectral loss (see `stepwell.objectives.Spectral`) summed over tasks, and its derivatives in ω and μ."""
    dims, signals, length = np.array(task.dims), task.signals, task.context.longest
    powers = (signals + task.noise_variance) / length
    overlaps = np.exp((omega * dims) @ omega.T)
    missing = 1 - np.sum(mu * omega, axis=0)
    spread = overlaps @ mu
    loss = np.sum(signals * missing**2 + powers * np.sum(mu * spread, axis=0))
    together = (mu * powers) @ mu.T * overlaps
    slopes = (2 * (together @ omega * dims - signals * missing * mu), 2 * (powers * spread - signals * missing * omega))
    return float(loss), np.stack(slopes)


def least_signed(task: MultiTaskRegression, heads: int, searches: int, *, rng: np.random.Generator) -> Estimate:
    """Of weights of either sign, summed over tasks, with its rounding error where large μ of either sign cancel.

    The best μ is known for each ω, and ω is searched, its size and its shape apart.
    """
    shape = (heads, len(task.dims))

    def value(point: np.ndarray) -> tuple[float, np.ndarray]:
        omega, unit, length = _scaled(task, point, shape)
        loss, (slope, _) = loss_and_slope(task, omega, best_readout(task, omega))
        inner = float(np.sum(slope * unit))
        shape_slope = np.exp(point[0]) / length * (slope - inner * unit * np.array(task.dims) / heads)
        return loss, np.concatenate([[np.exp(point[0]) * inner], shape_slope.ravel()])

    bounds = [(np.log(FLATTEST), np.log(_SHARPEST))] + [(None, None)] * (shape[0] * shape[1])
    first = [np.concatenate([[rng.uniform(-1.5, 0.0)], rng.standard_normal(shape).ravel()]) for _ in range(searches)]
    best = _best(value, first, bounds)
    omega = _scaled(task, best, shape)[0]
    mu = best_readout(task, omega)
    added = np.abs(mu) * (np.exp((omega * np.array(task.dims)) @ omega.T) @ np.abs(mu))
    powers = (task.signals + task.noise_variance) / task.context.longest
    rounding = 4 * heads * np.finfo(float).eps * float(task.signals.sum() + np.sum(powers * added))
    return Estimate(loss_and_slope(task, omega, mu)[0], rounding)


def least_positive(task: MultiTaskRegression, heads: int, searches: int, *, rng: np.random.Generator) -> float:
    """Of weights that are not negative, which is all that the flow reaches from positive ones, summed over tasks."""
    shape = (2, heads, len(task.dims))
    typical = np.array([np.mean(task.dims) ** -0.5, np.mean(task.dims) ** 0.5])[:, None, None]

    def value(point: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slopes = loss_and_slope(task, *(point.reshape(shape) * typical))
        return loss, (slopes * typical).ravel()

    first = [rng.uniform(0.0, 0.5, shape).ravel() for _ in range(searches)]
    omega, mu = _best(value, first, [(0.0, None)] * int(np.prod(shape))).reshape(shape) * typical
    return loss_and_slope(task, omega, mu)[0]


def best_readout(task: MultiTaskRegression, omega: Float[np.ndarray, "head task"]) -> Float[np.ndarray, "head task"]:
    r"""μ of least spectral loss: $E^{-1}\omega_i/(s_i + \phi_i/L)$, $s_i = \omega_i^\top E^{-1}\omega_i$, $E = e^G$."""
    overlaps = np.exp((omega * np.array(task.dims)) @ omega.T)
    solved = np.linalg.lstsq(overlaps, omega, rcond=RCOND)[0]
    return solved / (np.sum(omega * solved, axis=0) + task.noise_factors / task.context.longest)


def _scaled(task: MultiTaskRegression, point: np.ndarray, shape: tuple[int, int]):
    r"""ω whose root mean square of $|\omega^h|$ is the exponential of the first number; also its shape alone."""
    free = point[1:].reshape(shape)
    length = float(np.sqrt(np.sum(np.array(task.dims) * free**2) / shape[0]))
    return np.exp(point[0]) * free / length, free / length, length


def _best(value, first: list[np.ndarray], bounds: list) -> np.ndarray:
    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-14, "gtol": 1e-10}
    with one_blas_thread():  # systems of a few heads: threads would only wait for each other
        minima = [
            scipy.optimize.minimize(value, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            for x in first
        ]
    return min(minima, key=lambda one: one.fun).x


DRAWS = 16
"""Independent sets of sequences that a loss is averaged over."""
SIGMAS = 5.0
"""Standard errors allowed, which are from 16 groups of other sequences: by Student's t one in 6,000 falls outside."""


class Weights(NamedTuple):
    """Eigenvalues of scores and readout, (head, task)."""

    omega: Float[np.ndarray, "head task"]
    mu: Float[np.ndarray, "head task"]


class Losses(NamedTuple):
    """Mean losses of several weights over sequences, and their standard errors."""

    mean: Float[np.ndarray, " weights"]
    error: Float[np.ndarray, " weights"]


def softmax_losses(
    task: MultiTaskRegression, omega: np.ndarray, mu: np.ndarray, sequences: int, *, key: jax.Array
) -> Losses:
    """Losses of softmax attention for several ω and μ (several, head, task), all over `DRAWS` sets of reduced sequences
    (`ReducedSampled`); their errors over another set."""
    several, losses = [jnp.asarray(each) for each in np.stack([omega, mu], axis=1)], []
    other = ReducedSampled(task, sequences, precision="float32", key=jax.random.fold_in(key, DRAWS))
    for draw in range(DRAWS):
        objective = _objective(task, omega.shape[1], sequences, jax.random.fold_in(key, draw))
        losses.append([_softmax_slope(objective, weights, task.dims)[0] for weights in several])
    errors = [float(other.standard_error(_model(weights, task.dims))) / DRAWS**0.5 for weights in several]
    return Losses(np.array(losses).mean(axis=0), np.array(errors))


def softmax_slopes(
    task: MultiTaskRegression, weights: Weights, sequences: int, *, key: jax.Array
) -> tuple[Float[np.ndarray, "2 head task"], Float[np.ndarray, "2 head task"]]:
    """Derivatives of the loss by ω and μ over `DRAWS` sets of reduced sequences; their errors, from as many others."""
    heads, point, drawn = weights.omega.shape[0], jnp.asarray(np.stack(weights)), []
    for draw in range(2 * DRAWS):
        objective = _objective(task, heads, sequences, jax.random.fold_in(key, draw))
        drawn.append(_softmax_slope(objective, point, task.dims)[1])
    judged, others = np.split(np.array(drawn), 2)
    return judged.mean(axis=0), others.std(axis=0, ddof=1) / DRAWS**0.5


def least_softmax(
    task: MultiTaskRegression, heads: int, sequences: int, *, key: jax.Array, rng: np.random.Generator
) -> Weights:
    r"""Weights of least loss over `sequences` reduced sequences, from random weights of either sign, by L-BFGS.

    What is searched are $\omega\sqrt d$ and $\mu/\sqrt d$ of every head and task, for tasks of equal dimension d.
    """
    shape, dim = (2, heads, len(task.dims)), task.dims[0]
    units = np.array([dim**-0.5, dim**0.5])[:, None, None]
    objective = _objective(task, heads, sequences, key)

    def value(point: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slope = _softmax_slope(objective, jnp.asarray(point.reshape(shape) * units), task.dims)
        return float(loss), (np.asarray(slope) * units).ravel()

    start = rng.normal(0, 0.3, shape).ravel()
    with one_blas_thread():  # a few numbers: threads would only wait for each other
        best = scipy.optimize.minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 400})
    return Weights(*(best.x.reshape(shape) * units))


def _objective(task: MultiTaskRegression, heads: int, sequences: int, key: jax.Array) -> AbstractObjective:
    ones = np.ones((heads, len(task.dims)))
    sampled = ReducedSampled(task, sequences, precision="float32", key=key)
    return gradient_form(sampled, SpectralAttention.balanced(ones, ones, task.dims))


@eqx.filter_jit
def _softmax_slope(objective: AbstractObjective, weights: Float[Array, "2 head task"], dims: tuple[int, ...]):
    """The loss, and its derivatives by ω and μ."""
    return jax.value_and_grad(lambda weights: objective(_model(weights, dims)))(weights)


def _model(weights: Float[Array, "2 head task"], dims: tuple[int, ...]) -> SpectralAttention:
    """With eigenvalues ω and μ."""
    ones = jnp.ones_like(weights[0])
    unit = SpectralAttention(ones, ones, ones, ones, dims=dims).score_scale / np.array(dims)
    return SpectralAttention(weights[0] / unit, ones, weights[1], ones, dims=dims)
