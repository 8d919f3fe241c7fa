"""The effective map of any model that is linear in the query: as it declares it, or measured by calling it."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell.tasks import Batch, prefix

from ._forms import form_of
from ._model import AbstractModel, declared_map

_TOLERANCE = 1.5e-8
"""Half of the digits, as for a declared form."""


class MeasuredMap(NamedTuple):
    r"""An effective map that was measured by calling the model; `measured_map` returns one.

    **Arguments:**

    - `map`: $A_{op}$, (outputs, labels, dim, dim).
    - `unexplained`: the fraction of the predictions, in mean square, that the map leaves.
    - `curvature`: how far the predictions are from linear in the query, relative to the largest.

    **Example:**

    >>> sw.models.MeasuredMap(jnp.eye(2)[None, None], unexplained=jnp.zeros(()), curvature=jnp.zeros(())).map.shape
    (1, 1, 2, 2)
    """

    map: Float[Array, "outputs labels dim dim"]
    unexplained: Float[Array, ""]
    curvature: Float[Array, ""]


@checked
def effective_map(model: AbstractModel, batch: Batch | None = None) -> Float[Array, "outputs labels dim dim"]:
    r"""Return the map A by which a model predicts, $\hat y_o = \sum_p \beta_p^\top A_{op} x_q$.

    It is the model's `effective_map()` for classes of this package and those that declare a form, with $\beta_p$
    divided as the model divides attention. Of any other model it is measured by `measured_map`, for
    $\beta_p = \tfrac1N\sum_n y_{n,p} x_n$.

    **Arguments:**

    - `model`: any model; one without a form must be linear in the query.
    - `batch`: sequences to measure it on, where it is not declared.

    **Returns:** $A_{op}$, of shape (outputs, labels, dim, dim).

    **Example:** one output and one head, $A = v\,k q^\top$.

    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=1, scale=2.0)
    >>> sw.models.effective_map(model)[0, 0].tolist()
    [[8.0, 0.0], [0.0, 0.0]]
    """
    if form_of(model) is not None:
        return declared_map(model)
    if batch is None:
        raise InvalidInput(
            f"{type(model).__name__} declares no effective map; give sequences to measure it on, such as "
            "task.sample(1000, key=…)"
        )
    measured = measured_map(model, batch)
    require_linear(model, measured)
    return measured.map


@checked
@eqx.filter_jit
def measured_map(model: AbstractModel, batch: Batch) -> MeasuredMap:
    r"""Return the effective map of a model that is linear in the query, by calling it on given sequences.

    Such a model predicts $\hat y_o = f_o^\top x_q$, with a vector $f_o$ that depends on the context. The map is the one
    by which $\sum_p A_{op}^\top \beta_p$ is nearest to $f_o$ over the sequences, in least squares. If the model depends
    on its context through $\beta$ alone, and linearly, it is exact; otherwise `unexplained` is the fraction of
    $\sum |f_o|^2$ that it leaves. With several context lengths the longest is taken.

    **Arguments:**

    - `model`: any model that reads tokens.
    - `batch`: the sequences, more than outputs times dimension of them.

    **Returns:** the `MeasuredMap`. It can be traced by JAX: whether predictions are linear is for the caller to ask
    of `curvature`.

    **Example:**

    >>> batch = sw.tasks.InContextRegression(np.eye(2), 8).sample(50, key=jax.random.key(0))
    >>> model = sw.models.MergedAttention.random(dim=2, heads=2, scale=0.5, key=jax.random.key(1))
    >>> measured = sw.models.measured_map(model, batch)
    >>> np.allclose(measured.map, model.effective_map()), bool(measured.unexplained < 1e-12)
    (True, True)
    """
    dim, outputs = batch.dim, batch.outputs
    if batch.size <= dim * outputs:
        raise InvalidInput(
            f"{batch.size} sequences for a map of {outputs} outputs and dimension {dim}; give more than {dim * outputs}"
        )
    tokens = prefix(batch.tokens, batch.context.longest, dim)
    beta = jnp.einsum("sno,sni->soi", tokens[:, :-1, dim:], tokens[:, :-1, :dim]) / batch.context.longest

    def prediction(sequence: Array, query: Array) -> Array:
        return model(sequence.at[-1, :dim].set(query))

    def slopes(sequence: Array) -> tuple[Array, Array, Array]:
        slope = jax.jacfwd(lambda query: prediction(sequence, query))(jnp.zeros(dim, sequence.dtype))
        queries = jnp.stack([sequence[-1, :dim], -2.0 * sequence[-1, :dim]])
        predictions = jax.vmap(lambda query: prediction(sequence, query))(queries)
        return slope, predictions, queries @ slope.T

    slope, predictions, linear = jax.vmap(slopes)(tokens)
    design, targets = beta.reshape(batch.size, -1), slope.reshape(batch.size, -1)
    solved, *_ = jnp.linalg.lstsq(design, targets)
    maps = solved.reshape(outputs, dim, outputs, dim).transpose(2, 0, 1, 3)
    return MeasuredMap(
        maps,
        _ratio(jnp.sum((targets - design @ solved) ** 2), jnp.sum(targets**2)),
        _ratio(jnp.max(jnp.abs(predictions - linear)), jnp.max(jnp.abs(predictions))),
    )


@checked
def require_linear(model: AbstractModel, measured: MeasuredMap) -> None:
    """Raise `InvalidInput` if what was measured, at one set of weights or many, is not of a model linear in the query.

    **Arguments:**

    - `model`: the model, for the message.
    - `measured`: what `measured_map` returned, with any leading axes.

    **Example:** nothing is returned where it is linear.

    >>> model = sw.models.MergedAttention.aligned(jnp.eye(2), heads=1, scale=0.5)
    >>> linear = sw.models.MeasuredMap(model.effective_map(), jnp.zeros(()), jnp.zeros(()))
    >>> sw.models.require_linear(model, linear)
    """
    gap = float(np.max(np.asarray(measured.curvature)))
    if not gap <= _TOLERANCE:  # not a number is not linear
        raise InvalidInput(
            f"the predictions of {type(model).__name__} are not linear in the query (they differ from their linear "
            f"part by {gap:.2g} of their size), so it has no effective map; compare predictions, as pcr_test does"
        )


def _ratio(part: Float[Array, ""], whole: Float[Array, ""]) -> Float[Array, ""]:
    """Zero over zero is zero."""
    return jnp.where(part == 0.0, 0.0, part / jnp.where(whole == 0.0, 1.0, whole))
