"""The loss of reduced sequences with its gradient, in one native pass."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from stepwell import native
from stepwell._util.types import Loss
from stepwell.models import AbstractModel
from stepwell.objectives import CONTROL_SUMS, AbstractObjective, ReducedSampled, controlled_mean, eigenvalues
from stepwell.tasks import MultiTaskRegression

from ._registry import gradient_form
from ._shared import AbstractForm, blocked


class FusedReduced(AbstractForm):
    r"""What `ReducedSampled` computes; with a first gradient only.

    The loss is made of sums over sequences (see `controlled_mean`) of

    $l_i = \lambda_i a_i (a_i - 2 n_i) + \kappa_i q_i, \quad u_i = \sum_h \mu_i^h [f_i^h - w_i^h (1 - g^{hh})]$

    with $a_i = \sum_h \mu_i^h f_i^h$, $q_i = \sum_{hk} \mu_i^h g^{hk} \mu_i^k$, $\kappa_i = \lambda_i (d_i - 1) +
    \sigma^2$, $w_i^h = \omega_i^h n_i$ and f, g as in `softmax_sums`. One pass over the tokens of a sequence gives f, g
    and their derivatives:

    $\partial f_i^h/\partial w_j^h = \sum_l p_l^h z_{l,i} z_{l,j} - f_i^h f_j^h, \quad \partial g^{hk}/\partial w_j^h =
    (1 + 1_{h = k}) (\sum_l p_l^h p_l^k z_{l,j} - g^{hk} f_j^h)$

    The gradient by the sums is known only after the last sequence. So the pass returns with the sums their derivatives
    by all $\omega$ and $\mu$, which are few numbers, and the gradient is a product of the two.
    """

    task: MultiTaskRegression
    normals: Float[Array, "*run block token task lanes"]
    norms: Float[Array, "*run block task lanes"]
    present: Float[Array, "*run block lanes"]
    """One for a sequence, zero where the last block is filled up."""
    largest: Float[Array, "*run block task lanes"]
    signal: Float[Array, "*run"]
    sequences: int = eqx.field(static=True)
    control: bool = eqx.field(static=True)
    target: str = eqx.field(static=True)

    @classmethod
    def of(cls, objective: ReducedSampled) -> "FusedReduced | None":
        """Return this form of `objective`; None where the pass cannot be built."""
        if type(objective) is not ReducedSampled:
            return None
        dtype = objective.normals.dtype
        kernel = native.kernel("reduced_sums", "double" if dtype == np.float64 else "float")
        if kernel is None:
            return None
        array: Any = jnp if isinstance(objective.normals, Tracer) else np
        normals, norms = array.asarray(objective.normals), array.asarray(objective.norms)
        sequences = norms.shape[-1]
        parts = array.moveaxis(normals, -1, 0), norms.T, array.ones(sequences), array.abs(normals).max(axis=0).T
        data = [blocked(array, part.astype(dtype), kernel) for part in parts]
        signal = jnp.asarray(array.sum(array.asarray(objective.task.strengths) @ norms**2) / sequences)
        return cls(
            objective.task, *data, signal=signal, sequences=sequences, control=objective.control, target=kernel.target
        )

    def __call__(self, model: AbstractModel) -> Loss:
        task = self.task
        strengths, dims = np.array(task.strengths), np.array(task.dims)
        numbers = np.stack([strengths, strengths * (dims - 1) + task.noise_variance, np.sqrt(dims)], axis=1)
        data = jnp.asarray(numbers, self.norms.dtype), self.norms, self.present, self.largest, self.normals
        sums: Array = _sums(eigenvalues(model, task), data, self.target)  # pyright: ignore[reportAssignmentType]
        mean = controlled_mean(sums, self.sequences) if self.control else sums[:, 0] / self.sequences
        return self.signal + jnp.sum(mean)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _sums(weights: tuple[Array, Array], data: tuple[Array, ...], target: str) -> Float[Array, "task 8"]:
    """From omega and mu."""
    return _forward(weights, data, target)[0]


def _forward(weights: tuple[Array, Array], data: tuple[Array, ...], target: str) -> Any:
    heads, tasks = weights[0].shape
    dtype = data[0].dtype
    results = jax.ShapeDtypeStruct((tasks, 1 + heads * (tasks + 1), CONTROL_SUMS), np.float64)
    call = jax.ffi.ffi_call(target, results, vmap_method="expand_dims")
    outputs = call(*(weight.astype(dtype) for weight in weights), *data)
    return outputs[:, 0], outputs[:, 1:].reshape(tasks, heads, tasks + 1, CONTROL_SUMS)


def _backward(target: str, derivatives: Float[Array, "task head by 8"], cotangent: Float[Array, "task 8"]) -> Any:
    """The derivatives of a task's sums are by its row of omega, then by mu of this task."""
    gradients = jnp.sum(derivatives * cotangent[:, None, None], axis=-1)
    return (jnp.sum(gradients[:, :, :-1], axis=0), gradients[:, :, -1].T), None


_sums.defvjp(_forward, _backward)


@gradient_form.register
def _(objective: ReducedSampled, model: AbstractModel) -> AbstractObjective:
    return FusedReduced.of(objective) or objective
