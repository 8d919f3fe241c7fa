"""The noise of gradients: how much of one lies off the decomposable weights, and how much it varies in all."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.dynamics.fast import gradient_form
from stepwell.models import MergedAttention, MultiHeadAttention
from stepwell.objectives import Sampled
from stepwell.tasks import MultiTaskRegression

_TOGETHER = 4
"""Batches that are averaged, of the second half; those of the first half are taken one by one."""


def off_structure_gradient(
    model: MultiHeadAttention, task: MultiTaskRegression, *, blocks: int, size: int, seed: int
) -> xr.Dataset:
    r"""The gradient of the loss in W and U, split into its decomposable part and the rest.

    Drawn are `blocks` independent batches of `size` sequences, and half as many others (at least 16), which all errors
    are from. Over (matrix, group): `off`, the norm of the rest of the gradient over each of several independent groups
    of `sequences` sequences, and `other_off`, over each of the other batches: what scatters as Gaussian vectors do has
    the same relative scatter in groups of any size. Over matrix: `square`, an estimate of the squared norm of the rest
    in the population that has no bias, from products of the gradients of different batches, with its standard error
    `error`; and `on`, the norm of the decomposable part. Over (matrix, head, task): `slope`,
    the derivatives by $\omega_i^h$ and $\mu_i^h$ that the decomposable part amounts to, and their standard errors
    `slope_error`.
    """
    every = blocks + max(16, blocks // 2)
    drawn = [_gradient(model, task, size, jax.random.fold_in(jax.random.key(seed), b)) for b in range(every)]
    parts = [_split(np.stack(each), task) for each in zip(*drawn, strict=True)]
    half = blocks // 2
    groups = (blocks - half) // _TOGETHER
    off, other_off, slopes, errors = [], [], [], []
    square, error, on = np.empty((3, 2))
    for row, (derivatives, structured, rest) in enumerate(parts):
        flat, others = np.split(rest.reshape(every, -1), [blocks])
        averaged = flat[half : half + groups * _TOGETHER].reshape(groups, _TOGETHER, flat.shape[1]).mean(axis=1)
        off.append(np.linalg.norm(np.concatenate([flat[:half], averaged]), axis=1))
        other_off.append(np.linalg.norm(others, axis=1))
        pairs, other_pairs = _products(flat), _products(others)
        # Products of pairs that share a batch are uncorrelated if the population has no such gradient.
        count = max(1, pairs.size)  # a single batch has no pairs
        square[row], error[row] = pairs.sum() / count, np.sqrt(2 * np.mean(other_pairs**2) / count)
        on[row] = np.linalg.norm(structured[:blocks].mean(axis=0))
        slopes.append(derivatives[:blocks].mean(axis=0))
        errors.append(derivatives[blocks:].std(axis=0, ddof=1) / blocks**0.5)
    sequences = size * np.repeat([1, _TOGETHER], [half, groups])
    return xr.Dataset(
        {
            "off": (("matrix", "group"), np.array(off)),
            "other_off": (("matrix", "other"), np.array(other_off)),
            "square": ("matrix", square),
            "error": ("matrix", error),
            "on": ("matrix", on),
            "slope": (("matrix", "head", "task"), np.array(slopes)),
            "slope_error": (("matrix", "head", "task"), np.array(errors)),
        },
        {"matrix": ["W", "U"], "sequences": ("group", sequences)},
    )


def _products(vectors: Float[np.ndarray, "block entry"]) -> Float[np.ndarray, " pair"]:
    """Of every two different vectors."""
    return (vectors @ vectors.T)[~np.eye(len(vectors), dtype=bool)]


@eqx.filter_jit
def _gradient(model: MultiHeadAttention, task: MultiTaskRegression, size: int, key):
    """Gradients in W and U, in the bases of the task."""
    batch = task.draw(size, key=key)
    merged = MergedAttention(model.readout(), model.bilinear(), activation="softmax", attends_query=False)
    objective = gradient_form(Sampled(batch, "sum"), merged)
    gradient = eqx.filter_grad(lambda m: objective(m))(merged)
    phi, psi = task.inputs_rotation, task.outputs_rotation
    both = jax.scipy.linalg.block_diag(phi, psi)
    return both.T @ gradient.key_query @ phi, psi.T @ gradient.value @ both


def gradient_variance(
    model: MultiHeadAttention, task: MultiTaskRegression, *, blocks: int, size: int, seed: int
) -> xr.Dataset:
    r"""`total`, the variance of the gradient of one sequence in all weights added up, $\mathrm{tr}\,C$, from that of
    `blocks` batches of `size` sequences; and its standard `error`, from the spread of their squared distances."""
    keys = [jax.random.fold_in(jax.random.key(seed), block) for block in range(blocks)]
    drawn = np.stack([np.asarray(_whole_gradient(model, task, size, key)) for key in keys])
    squares = size * blocks / (blocks - 1) * np.sum((drawn - drawn.mean(axis=0)) ** 2, axis=1)
    return xr.Dataset({"total": squares.mean(), "error": squares.std(ddof=1) / blocks**0.5})


@eqx.filter_jit
def _whole_gradient(model: MultiHeadAttention, task: MultiTaskRegression, size: int, key):
    """The gradient in keys, queries, values and outputs, as one vector."""
    objective = gradient_form(Sampled(task.draw(size, key=key), "sum"), model)
    gradient = eqx.filter_grad(lambda m: objective(m))(model)
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)])


def _split(gradient: Float[np.ndarray, "block head rows columns"], task: MultiTaskRegression):
    """(derivatives by the eigenvalues, decomposable part, rest) of gradients in W, which is the taller, or in U."""
    dim, tasks = task.dim, len(task.dims)
    structured = np.zeros_like(gradient)
    if gradient.shape[-1] == dim:
        of_task, place = np.repeat(np.arange(tasks), task.dims), np.arange(dim)
        derivatives = gradient[..., place, place] @ np.eye(tasks)[of_task]
        structured[..., place, place] = (derivatives / np.array(task.dims))[..., of_task]
    else:
        place = np.arange(tasks)
        derivatives = gradient[..., place, dim + place]
        structured[..., place, dim + place] = derivatives
    return derivatives, structured, gradient - structured
