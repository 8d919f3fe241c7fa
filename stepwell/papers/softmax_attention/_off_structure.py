"""How much of a gradient lies off the decomposable weights, by the number of sequences it is averaged over."""

import equinox as eqx
import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.models import MergedAttention, MultiHeadAttention
from stepwell.objectives import Sampled
from stepwell.tasks import MultiTaskRegression


def off_structure_gradient(
    model: MultiHeadAttention, task: MultiTaskRegression, *, blocks: int, size: int, seed: int
) -> xr.Dataset:
    r"""The gradient of the loss in W and U, split into its decomposable part and the rest.

    Drawn are `blocks` independent batches of `size` sequences. Over (matrix, sequences): `off`, the mean norm of the
    rest of the gradient over groups of so many sequences, and `spread`, the standard error of its logarithm. Over
    matrix: `square`, an estimate of the squared norm of the rest in the population that has no bias, from products of
    the gradients of different batches, with its standard error `error`; and `on`, the norm of the decomposable part.
    """
    drawn = [_gradient(model, task, size, jax.random.fold_in(jax.random.key(seed), b)) for b in range(blocks)]
    parts = [_split(np.stack(each), task) for each in zip(*drawn, strict=True)]
    groups = [2**k for k in range(blocks.bit_length()) if blocks // 2**k >= 4]
    off, spread = np.empty((2, 2, len(groups)))
    square, error, on = np.empty((3, 2))
    for row, (structured, rest) in enumerate(parts):
        flat = rest.reshape(blocks, -1)
        for column, group in enumerate(groups):
            norms = np.linalg.norm(flat.reshape(blocks // group, group, -1).mean(axis=1), axis=1)
            off[row, column] = np.exp(np.log(norms).mean())
            spread[row, column] = np.log(norms).std(ddof=1) / norms.size**0.5
        products = flat @ flat.T
        pairs = products[~np.eye(blocks, dtype=bool)]
        # Products of pairs that share a batch are uncorrelated if the population has no such gradient.
        square[row], error[row] = pairs.mean(), np.sqrt(2 * np.mean(pairs**2) / pairs.size)
        on[row] = np.linalg.norm(structured.mean(axis=0))
    dims = ("matrix", "sequences")
    return xr.Dataset(
        {
            "off": (dims, off),
            "spread": (dims, spread),
            "square": ("matrix", square),
            "error": ("matrix", error),
            "on": ("matrix", on),
        },
        {"matrix": ["W", "U"], "sequences": size * np.array(groups)},
    )


@eqx.filter_jit
def _gradient(model: MultiHeadAttention, task: MultiTaskRegression, size: int, key):
    """Gradients in W and U, in the bases of the task."""
    batch = task.draw(size, key=key)
    merged = MergedAttention(model.readout(), model.bilinear(), activation="softmax", attends_query=False)
    gradient = eqx.filter_grad(lambda m: Sampled(batch, "sum")(m))(merged)
    phi, psi = task.inputs_rotation, task.outputs_rotation
    both = jax.scipy.linalg.block_diag(phi, psi)
    return both.T @ gradient.key_query @ phi, psi.T @ gradient.value @ both


def _split(gradient: Float[np.ndarray, "block head rows columns"], task: MultiTaskRegression):
    """(decomposable part, rest) of gradients in W, which has more rows than columns, or in U."""
    dim, tasks = task.dim, len(task.dims)
    structured = np.zeros_like(gradient)
    if gradient.shape[-1] == dim:
        of_task = np.repeat(np.arange(tasks), task.dims)
        means = np.repeat(np.eye(tasks), task.dims, axis=0) / np.array(task.dims)
        place = np.arange(dim)
        structured[..., place, place] = (gradient[..., place, place] @ means)[..., of_task]
    else:
        place = np.arange(tasks)
        structured[..., place, dim + place] = gradient[..., place, dim + place]
    return structured, gradient - structured
