"""What objectives on the eigenvalues of attention ask of a model."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.types import Activation
from stepwell.models import (
    AbstractAttention,
    AbstractModel,
    check_form,
    decompose,
    form_advice,
    is_attention,
    is_spectral,
)
from stepwell.tasks import MultiTaskRegression

from ._abstract import require

_ROUNDING = 1e-8
"""How far from decomposable weights may be, relative to their decomposable part, and count as such."""


def _as_attention(model: AbstractModel) -> AbstractAttention:
    """The model, if its matrices may be used in its place."""
    if not is_attention(model):
        raise InvalidInput(
            f"{type(model).__name__} is not an attention on tokens whose matrices are known, which this loss is for; "
            "give a SpectralAttention or MultiHeadAttention, or "
            + (form_advice(model) if isinstance(model, AbstractAttention) else "use Sampled or online, which call it")
        )
    return model


@checked
@eqx.filter_jit
def eigenvalues(
    model: AbstractModel, task: MultiTaskRegression
) -> tuple[Float[Array, "head task"], Float[Array, "head task"]]:
    r"""The eigenvalues $\omega$ of the scores and $\mu$ of the readout, for each head and task.

    **Arguments:**

    - `model`: a `SpectralAttention`, which has them; of any other attention they are read off its matrices, in the
      bases of the task (`decompose`).
    - `task`: the tasks, whose dimensions and rotations are those of the model.

    **Returns:** $\omega$ and $\mu$, both of shape (head, task).

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression(dims=(2, 2), context=20)
    >>> model = sw.models.SpectralAttention.balanced(jnp.array([[0.3, 0.1]]), jnp.array([[2.0, 0.5]]), dims=(2, 2))
    >>> omega, mu = sw.objectives.eigenvalues(sw.models.decomposable(model, task), task)
    >>> omega.round(3).tolist(), mu.round(3).tolist()
    ([[0.3, 0.1]], [[2.0, 0.5]])
    """
    if is_spectral(model):
        return model.omega(), model.mu()
    decomposition = decompose(_as_attention(model), task)
    return decomposition.omega, decomposition.mu


def check_eigenvalues(model: AbstractModel, task: MultiTaskRegression, activation: Activation) -> None:
    """The model is an attention of this kind, and nothing but its eigenvalues matters to its loss."""
    attention = _as_attention(model)
    require(
        attention.activation == activation,
        f"the model's activation is {attention.activation!r}, the objective is for {activation!r}; they must agree",
    )
    divided = "none" if activation == "softmax" else "1/N"
    require(
        attention.normalization == divided,
        f"the model divides attention by {attention.normalization!r}; build it with normalization={divided!r}",
    )
    require(not attention.attends_query, "the model attends to its query; build it with attends_query=False")
    check_form(model, length=task.context.longest)
    if is_spectral(model):
        require(
            model.dims == task.dims,
            f"the model has tasks of dimensions {model.dims}, the task {task.dims}; they must agree",
        )
        return
    departures = {name: float(np.asarray(value)) for name, value in _departures(attention, task).items()}
    farthest = max(departures, key=lambda name: departures[name])
    require(
        departures[farthest] <= _ROUNDING,
        f"the weights are not decomposable in the task's bases ({farthest} is off by {departures[farthest]:.2g} of the "
        "decomposable part); use Sampled, or start from decomposable()",
    )


@eqx.filter_jit
def _departures(model: AbstractAttention, task: MultiTaskRegression) -> dict[str, Float[Array, ""]]:
    return decompose(model, task).departures()
