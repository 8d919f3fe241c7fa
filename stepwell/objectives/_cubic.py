"""What objectives on cubic features ask of a model."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell._util.errors import InvalidInput
from stepwell._util.types import Normalization
from stepwell.models import (
    AbstractAttention,
    AbstractModel,
    form_advice,
    is_attention,
    is_cubic,
    is_linear,
    is_proved,
    similar,
)

from ._abstract import require


def as_cubic(model: AbstractModel) -> AbstractModel:
    """The model, if its effective map may be used in its place."""
    if not is_cubic(model):
        raise InvalidInput(
            f"{type(model).__name__} is not known to be linear in features of the data, which this loss is for; "
            f"{form_advice(model)}"
        )
    return model


def as_attention(model: AbstractModel) -> AbstractAttention:
    """The model, if its matrices may be used in its place."""
    if not is_attention(model):
        raise InvalidInput(
            f"{type(as_cubic(model)).__name__} is a function of cubic features; gather the moments with "
            "features='cubic'"
        )
    return model


def check_linear(model: AbstractModel, normalization: Normalization) -> None:
    """The model is linear in features of the data, with the normalization that the features have."""
    as_cubic(model)
    if is_linear(model):
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
    require(
        largest == 0.0,
        f"label blocks are up to {largest:.3g}, and cubic features leave them out; start them at zero, or use "
        "Moments with features='full'",
    )
    if not is_proved(model):
        later = max(float(_largest_in_label_blocks(each)) for each in similar(model))  # pyright: ignore
        require(
            later == 0.0,
            f"label blocks of {type(model).__name__} are zero at the start, but up to {later:.3g} at other weights, "
            "and cubic features leave them out; use Moments with features='full', or Sampled",
        )


@eqx.filter_jit
def _largest_in_label_blocks(model: AbstractModel) -> Float[Array, ""]:
    """Compiled as one: operation by operation this takes longer than many a run."""
    largest = [jnp.max(jnp.abs(block), initial=0.0) for block in model.label_blocks()]
    return jnp.max(jnp.array(largest), initial=0.0)
