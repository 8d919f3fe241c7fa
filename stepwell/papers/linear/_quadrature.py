r"""The loss at infinitely many sequences through the predictions of a model, without any moment of the task.

Theory and `objectives.Population` both begin from $E[\hat\Lambda^2]$ in closed form, equation (15). This does not, so
that what is measured with it shares no formula with the prediction.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Integer

from stepwell.models import AbstractAttention
from stepwell.tasks import InContextRegression


def quadrature_loss(task: InContextRegression, model: AbstractAttention) -> Float[Array, ""]:
    r"""Of linear attention divided by N, its label blocks zero: $E[(y_q - \bar f)^2 + \mathrm{Var}(f)/N]$.

    The prediction is the mean over the context of f, that of a context of one token, whose mean and variance given w
    and $x_q$ are taken over nodes. The error is linear in $x_q$ and in w and noise, so that the roots of their
    covariances, row by row, average over these: labels are those of each row of Ω's root, and last noise alone.
    """
    dim = task.dim
    nodes, chances = _gaussian_nodes(dim + 1)
    inputs, tasks = _root(task.covariance), _root(task.task_covariance)
    x = nodes[:, :dim] @ inputs
    labels = np.concatenate([tasks @ x.T, task.noise_variance**0.5 * nodes[:, dim:].T])
    targets = np.concatenate([tasks @ inputs.T, np.zeros((1, dim))])
    tokens = np.zeros((*targets.shape, len(x), 2, dim + 1))
    tokens[..., 0, :dim], tokens[..., 0, dim], tokens[..., 1, :dim] = x, labels[:, None], inputs[:, None]
    each = jax.vmap(model)(jnp.asarray(tokens.reshape(-1, 2, dim + 1))).reshape(*targets.shape, -1)
    mean = each @ chances
    variance = (each - mean[..., None]) ** 2 @ chances
    inverse = sum(chance / n for n, chance in zip(task.context.counts, task.context.probabilities, strict=True))
    return jnp.sum((targets - mean) ** 2 + inverse * variance)


def losses_at(
    task: InContextRegression,
    trajectory: xr.Dataset,
    model: AbstractAttention,
    places: Integer[np.ndarray, "run place"],
) -> Float[np.ndarray, "run place"]:
    """`quadrature_loss` at some places of the time axis of each run, of models such as `model`."""
    loss = eqx.filter_jit(lambda model: quadrature_loss(task, model))
    weights = {name: trajectory[name].values for name in model.weight_dims}

    def at(run: int, place: int) -> float:
        return float(loss(model.with_weights({name: values[run, place] for name, values in weights.items()})))

    return np.array([[at(run, place) for place in row] for run, row in enumerate(places.tolist())])


def _root(matrix: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    values, vectors = np.linalg.eigh(matrix)
    return np.sqrt(np.clip(values, 0.0, None))[:, None] * vectors.T


def _gaussian_nodes(dim: int) -> tuple[Float[np.ndarray, "node dim"], Float[np.ndarray, " node"]]:
    """Nodes and weights that average a polynomial of degree 5 over standard Gaussians (McNamee and Stenger 1967)."""
    axes = 3**0.5 * np.eye(dim)
    pairs = [a * one + b * other for one, other in itertools.combinations(axes, 2) for a in (1, -1) for b in (1, -1)]
    nodes = np.array([np.zeros(dim), *axes, *-axes, *pairs])
    weights = np.repeat([1 + (dim**2 - 7 * dim) / 18, (4 - dim) / 18, 1 / 36], [1, 2 * dim, len(pairs)])
    return nodes, weights
