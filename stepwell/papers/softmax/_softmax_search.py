"""Softmax attention itself, without approximation: its loss at given weights, and the weights of least loss."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from stepwell.dynamics.fast import gradient_form
from stepwell.figures import one_blas_thread
from stepwell.models import SpectralAttention
from stepwell.objectives import AbstractObjective, ReducedSampled
from stepwell.tasks import MultiTaskRegression

DRAWS = 16
"""Independent sets of sequences that a loss is averaged over."""
DEVIATIONS = 5.0
"""Standard errors allowed, which are from 16 groups of other sequences: by Student's t one in 6,000 falls outside."""


class Weights(NamedTuple):
    """Eigenvalues of scores and readout, (head, task)."""

    omega: Float[np.ndarray, "head task"]
    mu: Float[np.ndarray, "head task"]


class Evaluated(NamedTuple):
    """The loss summed over tasks, over sampled sequences, and its standard error, from sequences of its own."""

    mean: float
    error: float


def softmax_loss(task: MultiTaskRegression, weights: Weights, sequences: int, *, key: jax.Array) -> Evaluated:
    """The loss of softmax attention over `DRAWS` sets of reduced sequences (`ReducedSampled`)."""
    return softmax_losses(task, [weights], sequences, key=key)[0]


def softmax_losses(
    task: MultiTaskRegression, several: list[Weights], sequences: int, *, key: jax.Array
) -> list[Evaluated]:
    """The losses of several weights of one shape, all over the same sequences; their errors over another set."""
    losses = np.empty((DRAWS, len(several)))
    other = ReducedSampled(task, sequences, precision="float32", key=jax.random.fold_in(key, DRAWS))
    for draw in range(DRAWS):
        objective = _objective(task, several[0].omega.shape[0], sequences, jax.random.fold_in(key, draw))
        for place, weights in enumerate(several):
            losses[draw, place] = _loss_and_slope(objective, jnp.asarray(np.stack(weights)), task.dims)[0]
    models = [_model(jnp.asarray(np.stack(weights)), task.dims) for weights in several]
    errors = [float(other.standard_error(model)) / DRAWS**0.5 for model in models]
    return [Evaluated(float(mean), error) for mean, error in zip(losses.mean(axis=0), errors, strict=True)]


class Slopes(NamedTuple):
    """Derivatives of the loss by ω and by μ, (2, head, task), over sampled sequences, and their standard errors, from
    sequences of their own."""

    mean: Float[np.ndarray, "2 head task"]
    error: Float[np.ndarray, "2 head task"]


def softmax_slopes(task: MultiTaskRegression, weights: Weights, sequences: int, *, key: jax.Array) -> Slopes:
    """The derivatives of the loss of softmax attention over `DRAWS` sets of reduced sequences; errors from as many."""
    drawn = [
        _loss_and_slope(
            _objective(task, weights.omega.shape[0], sequences, jax.random.fold_in(key, draw)),
            jnp.asarray(np.stack(weights)),
            task.dims,
        )[1]
        for draw in range(2 * DRAWS)
    ]
    judged, others = np.split(np.array(drawn), 2)
    return Slopes(judged.mean(axis=0), others.std(axis=0, ddof=1) / DRAWS**0.5)


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
        loss, slope = _loss_and_slope(objective, jnp.asarray(point.reshape(shape) * units), task.dims)
        return float(loss), (np.asarray(slope) * units).ravel()

    start = rng.normal(0, 0.3, shape).ravel()
    with one_blas_thread():  # a few numbers: threads would only wait for each other
        best = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 400})
    return Weights(*(best.x.reshape(shape) * units))


def _objective(task: MultiTaskRegression, heads: int, sequences: int, key: jax.Array) -> AbstractObjective:
    ones = np.ones((heads, len(task.dims)))
    sampled = ReducedSampled(task, sequences, precision="float32", key=key)
    return gradient_form(sampled, SpectralAttention.balanced(ones, ones, task.dims))


@eqx.filter_jit
def _loss_and_slope(objective: AbstractObjective, weights: Float[Array, "2 head task"], dims: tuple[int, ...]):
    """The loss, and its derivatives by ω and μ."""
    return jax.value_and_grad(lambda weights: objective(_model(weights, dims)))(weights)


def _model(weights: Float[Array, "2 head task"], dims: tuple[int, ...]) -> SpectralAttention:
    """With eigenvalues ω and μ."""
    ones = jnp.ones_like(weights[0])
    unit = SpectralAttention(ones, ones, ones, ones, dims=dims).score_scale / np.array(dims)
    return SpectralAttention(weights[0] / unit, ones, weights[1], ones, dims=dims)
