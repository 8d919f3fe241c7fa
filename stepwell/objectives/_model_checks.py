"""What objectives ask of a model: linear features, or eigenvalues of attention."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.types import Activation, Normalization
from stepwell.models import (
    AbstractAttention,
    AbstractCubicModel,
    AbstractModel,
    check_form,
    decompose,
    form_advice,
    form_of,
    is_attention,
    is_proved,
    is_spectral,
    similar,
)
from stepwell.tasks import MultiTaskRegression

from ._abstract_objective import require


def as_cubic(model: AbstractModel) -> AbstractModel:
    """The model, if its effective map may be used in its place."""
    if form_of(model) not in (None, "polynomial"):
        return model
    raise InvalidInput(
        f"{type(model).__name__} is not known to be linear in features of the data, which this loss is for; "
        f"{form_advice(model)}"
    )


def as_attention(model: AbstractModel) -> AbstractAttention:
    """The model, if its matrices may be used in its place."""
    if is_attention(model):
        return model
    name = type(as_cubic(model)).__name__
    raise InvalidInput(f"{name} is a function of cubic features; gather the moments with features='cubic'")


def check_linear(model: AbstractModel, normalization: Normalization) -> None:
    """The model is linear in features of the data, with the normalization that the features have."""
    as_cubic(model)
    if form_of(model) == "linear":
        require(
            normalization == "1/N",
            f"the objective divides the sum over the context by {normalization!r}, and the effective map of "
            f"{type(model).__name__} is declared for '1/N'; build the objective with normalization='1/N'",
        )
    if is_attention(model):
        require(
            model.activation == "linear",
            f"the model's activation is {model.activation!r}; only linear attention has such moments, use Sampled",
        )
        require(
            model.normalization == normalization,
            f"the model divides attention by {model.normalization!r}, the objective by {normalization!r}; "
            f"build the objective with normalization={model.normalization!r}",
        )


def check_label_blocks(model: AbstractModel) -> None:
    """The label blocks are exactly zero and stay so, so that leaving them out changes nothing."""
    largest = float(_largest_in_label_blocks(model))
    require(bool(np.isfinite(largest)), "some initial weights are not finite; start from finite ones")
    require(
        largest == 0.0,
        f"label blocks are up to {largest:.3g}, and cubic features leave them out; set them to zero, or use "
        "Moments with features='full'",
    )
    if not is_proved(model):
        later = max(float(_largest_in_label_blocks(each)) for each in similar(model))  # pyright: ignore
        require(
            later == 0.0,
            f"label blocks of {type(model).__name__} are zero initially, but up to {later:.3g} at other weights, "
            "and cubic features leave them out; use Moments with features='full', or Sampled",
        )


@eqx.filter_jit
def _largest_in_label_blocks(model: AbstractModel) -> Float[Array, ""]:
    """Compiled as one: operation by operation this takes longer than many a run."""
    blocks = model.label_blocks() if isinstance(model, AbstractCubicModel) else []
    largest = [jnp.max(jnp.abs(block), initial=0.0) for block in blocks]
    return jnp.max(jnp.array(largest), initial=0.0)


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
    r"""Return the eigenvalues $\omega$ of the scores and $\mu$ of the readout, for each head and task.

    **Arguments:**

    - `model`: a `SpectralAttention`, which has them; of any other attention they are read off its matrices, in the
      bases of the task (`decompose`).
    - `task`: the tasks, whose dimensions and rotations are those of the model.

    **Returns:** $\omega$ and $\mu$, both of shape (head, task).

    **Example:**

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


def with_plain_target(task: MultiTaskRegression) -> MultiTaskRegression:
    """The task, if its target has no noise: that adds its variance to the loss, which closed forms leave out."""
    if task.target_noise and task.noisy:
        raise InvalidInput(
            "the task has target_noise, and this loss is of a target without noise; build the task with "
            f"target_noise=False, and add its noise_variance, {task.noise_variance:g}, to the loss of each output"
        )
    return task


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
