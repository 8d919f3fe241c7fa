"""Between the eigenvalues of attention and its whole matrices."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import remembered
from stepwell._util.types import RandomKey
from stepwell.tasks import MultiTaskRegression, random_rotation

from ._attention import AbstractAttention
from ._initialization import require_weights
from ._multihead import MultiHeadAttention
from ._spectral_attention import SpectralAttention


@checked
@remembered
def decomposable(
    spectral: SpectralAttention,
    task: MultiTaskRegression,
    *,
    embedding: int | None = None,
    key: RandomKey | None = None,
) -> MultiHeadAttention:
    r"""Return the attention with whole matrices that has given eigenvalues in the bases $\Phi, \Psi$ of a task.

    $K = A\, \mathrm{diag}(k) [\Phi^\top, 0]$, $Q = A\, \mathrm{diag}(q) [\Phi^\top, 0]$,
    $V = B\, \mathrm{diag}(v) [0, \Psi^\top]$, $O = \Psi\, \mathrm{diag}(o) B^\top$,

    where A and B have orthonormal columns, and each entry of key and query is repeated over the block of its task and
    divided by $\sqrt{d_i}$. Its predictions are those of `spectral` in the task's own basis.

    **Arguments:**

    - `spectral`: the eigenvalues, as their factors k, q, v and o for each head and task.
    - `task`: the task whose rotations are $\Phi$ and $\Psi$; it has the same `dims`.
    - `embedding`: the width $d_e$ of a head, at least d, which is the default. The scores keep the factor that
      `spectral` has.
    - `key`: a JAX random key for random A and B, different for each head; by default they are columns of the identity.

    **Returns:** the `MultiHeadAttention`, with the activation and normalization of `spectral`.

    **Example:**

    >>> task = sw.tasks.MultiTaskRegression((2, 3), inputs_rotation="random", key=jax.random.key(0))
    >>> spectral = sw.models.SpectralAttention.balanced(np.array([[0.2, 0.1]]), np.array([[1.0, 0.5]]), task.dims)
    >>> attention = sw.models.decomposable(spectral, task)
    >>> np.linalg.eigvalsh(np.asarray(attention.bilinear())[0, : task.dim]).round(6).tolist()
    [0.1, 0.1, 0.1, 0.2, 0.2]
    """
    if spectral.dims != task.dims:
        raise InvalidInput(f"the model has tasks of dimensions {spectral.dims}, the task {task.dims}; they must agree")
    dim, outputs = task.dim, task.outputs
    width = dim if embedding is None else checks.whole("embedding", embedding)
    if width < dim:
        raise InvalidInput(f"heads of width {width} cannot hold {dim} inputs; take an embedding of at least {dim}")
    require_weights(*[(spectral.key.shape[0], width, width)] * 2)
    a, b = _frames(spectral.key.shape[0], width, key)
    a, b = a[:, :, :dim], b[:, :, : len(task.dims)]
    blocks = np.repeat(np.arange(len(task.dims)), task.dims)
    roots = np.sqrt(np.array(task.dims))
    phi = np.pad(task.inputs_rotation.T, ((0, 0), (0, outputs)))
    psi = np.pad(task.outputs_rotation.T[: len(task.dims)], ((0, 0), (dim, 0)))
    k, q, v, o = (np.asarray(weight)[:, None] for weight in spectral.weights().values())
    matrices = (
        a * (q / roots)[..., blocks] @ phi[:, :dim],
        a * (k / roots)[..., blocks] @ phi,
        b * v @ psi,
        psi[:, dim:].T @ (b * o).swapaxes(1, 2),
    )
    options = {name: getattr(spectral, name) for name in ("activation", "normalization", "score_scale")}
    return MultiHeadAttention(*(jnp.asarray(matrix) for matrix in matrices), **options)


class Decomposition(eqx.Module):
    r"""Attention written in the bases of a task: $W = [W_X; W_Y]$ the scores, $U = [U_X, U_Y]$ the readout.

    `decompose` returns one. The four remainders are Frobenius norms, one for each head; all are zero if the attention
    is decomposable.

    **Arguments:**

    - `omega`: means over each block of $\mathrm{diag}(\Phi^\top W_X \Phi)$, (heads, tasks).
    - `mu`: $\mathrm{diag}(\Psi^\top U_Y \Psi)$, of the outputs that belong to a task, (heads, tasks).
    - `score_inputs`: what is left of $W_X$ without `omega`, (heads,).
    - `score_labels`: the norm of $W_Y$, (heads,).
    - `readout_inputs`: the norm of $U_X$, (heads,).
    - `readout_labels`: what is left of $U_Y$ without `mu`, (heads,).
    - `dims`: the dimension of each task.

    **Example:** one head and one task of four dimensions; the decomposable part of the scores, 0.5 I, has the norm 1.

    >>> none = jnp.zeros(1)
    >>> parts = jnp.array([[0.5]]), jnp.array([[2.0]]), jnp.array([0.25]), none, none, jnp.array([1.0])
    >>> {name: float(value) for name, value in sw.models.Decomposition(*parts, dims=(4,)).departures().items()}
    {'score_inputs': 0.25, 'score_labels': 0.0, 'readout_inputs': 0.0, 'readout_labels': 0.5}
    """

    omega: Float[Array, "head task"]
    mu: Float[Array, "head task"]
    score_inputs: Float[Array, " head"]
    score_labels: Float[Array, " head"]
    readout_inputs: Float[Array, " head"]
    readout_labels: Float[Array, " head"]
    dims: tuple[int, ...] = eqx.field(static=True)

    def departures(self) -> dict[str, Float[Array, ""]]:
        """Return how far the attention is from decomposable: the four norms over all heads, each relative to that of
        the decomposable part of the scores or of the readout."""
        scores, readout = jnp.sum(np.array(self.dims) * self.omega**2), jnp.sum(self.mu**2)
        wholes = {"score_inputs": scores, "score_labels": scores, "readout_inputs": readout, "readout_labels": readout}
        return {name: _ratio(getattr(self, name), jnp.sqrt(whole)) for name, whole in wholes.items()}


@checked
def decompose(model: AbstractAttention, task: MultiTaskRegression) -> Decomposition:
    """Return the eigenvalues of any attention's matrices in the bases of a task, and how far it is from decomposable.

    **Arguments:**

    - `model`: an attention with the dimension and the number of outputs of the task.
    - `task`: the task whose rotations are the bases.

    **Returns:** the `Decomposition`, with `omega` and `mu` (heads, tasks) and the norms of what is left.

    **Example:**

    >>> task = sw.tasks.MultiTaskRegression((2, 3))
    >>> sizes = dict(dim=5, outputs=2, heads=2, scale=0.1, readout=0.3, advantage=2.0, key=jax.random.key(0))
    >>> decomposition = sw.models.decompose(sw.models.MultiHeadAttention.diagonal(**sizes), task)
    >>> np.asarray(decomposition.mu).round(6).tolist()
    [[0.36, 0.09], [0.09, 0.36]]
    """
    outputs, dim = model.shape
    if (outputs, dim) != (task.outputs, task.dim):
        raise InvalidInput(
            f"the model has {outputs} outputs and dimension {dim}, the task {task.outputs} and {task.dim}; "
            "they must agree"
        )
    phi, psi = jnp.asarray(task.inputs_rotation), jnp.asarray(task.outputs_rotation)
    tasks = len(task.dims)
    means = np.repeat(np.eye(tasks), task.dims, axis=0) / np.array(task.dims)
    scores, readout = model.bilinear(), model.readout()
    rotated = phi.T @ scores[:, :dim] @ phi
    predictions = psi.T @ readout[..., dim:] @ psi
    omega = jnp.einsum("hii->hi", rotated) @ means
    mu = jnp.einsum("hoo->ho", predictions)[:, :tasks]
    structured = omega[:, np.repeat(np.arange(tasks), task.dims), None] * jnp.eye(dim)
    diagonal = mu[:, :, None] * jnp.eye(tasks)
    rest = jnp.pad(diagonal, ((0, 0), (0, outputs - tasks), (0, outputs - tasks)))
    rests = rotated - structured, scores[:, dim:], readout[..., :dim], predictions - rest
    return Decomposition(omega, mu, *(jnp.sqrt(jnp.sum(each**2, axis=(1, 2))) for each in rests), dims=task.dims)


def _frames(heads: int, width: int, key: RandomKey | None) -> Float[np.ndarray, "2 head width width"]:
    if key is None:
        return np.broadcast_to(np.eye(width), (2, heads, width, width))
    drawn = [random_rotation(width, key=jax.random.fold_in(key, number)) for number in range(2 * heads)]
    return np.stack(drawn).reshape(2, heads, width, width)


def _ratio(norms: Float[Array, " head"], whole: Float[Array, ""]) -> Float[Array, ""]:
    """The norm over all heads relative to `whole`; zero over zero is zero."""
    norm = jnp.sqrt(jnp.sum(norms**2))
    return jnp.where(norm == 0.0, 0.0, norm / whole)
