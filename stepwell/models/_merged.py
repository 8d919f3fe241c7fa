"""Attention with key and query merged into one matrix."""

from typing import Any, ClassVar, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell._types import Activation, Normalisation, RandomKey

from ._attention import AbstractAttention, AttentionOptions, checked_options
from ._model import Form
from ._starts import LabelBlocks, Scaling, clear, deviation, gaussians, head_scales, scaled_to


class MergedAttention(AbstractAttention):
    r"""ATTN_M: $X + \sum_i \tfrac1N W^V_i X X^\top W^{KQ}_i X$, read at the query's label.

    Only what reaches the prediction is kept: the last rows of $W^V_i$ in `value`, $(\mathbf v_i^\top, v_i)$, and the
    first D columns of $W^{KQ}_i$ in `key_query`, $(U_i; u_i^\top)$. With one output `value` is (heads, 1, D+1).
    """

    value: Float[Array, "head outputs width"]
    key_query: Float[Array, "head width dim"]
    activation: Activation = eqx.field(static=True)
    normalisation: Normalisation = eqx.field(static=True)
    attends_query: bool = eqx.field(static=True)

    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "value": ("head", "output", "token_dim"),
        "key_query": ("head", "token_dim", "dim"),
    }
    factors: ClassVar[int] = 2
    declared_form: ClassVar[Form] = "attention"

    def __init__(
        self,
        value: Float[Array, "head outputs width"],
        key_query: Float[Array, "head width dim"],
        *,
        activation: Activation = "linear",
        normalisation: Normalisation | None = None,
        attends_query: bool = True,
    ):
        self.value = jnp.asarray(value)
        self.key_query = jnp.asarray(key_query)
        self.activation, self.normalisation = checked_options(activation, normalisation)
        self.attends_query = attends_query
        heads, outputs, width = self.value.shape
        if self.key_query.shape != (heads, width, width - outputs):
            raise InvalidInput(
                f"value has shape {self.value.shape}, key_query {self.key_query.shape}; they must be "
                "(heads, outputs, dim + outputs) and (heads, dim + outputs, dim)"
            )

    @classmethod
    def from_matrices(
        cls,
        value: Float[Array, "head width width"],
        key_query: Float[Array, "head width width"],
        *,
        outputs: int = 1,
        **options: Unpack[AttentionOptions],
    ) -> "MergedAttention":
        """The model with these whole square matrices; the parts that never matter are dropped."""
        return cls(value[:, -outputs:], key_query[:, :, :-outputs], **options)

    @classmethod
    def random(
        cls,
        *,
        dim: int,
        heads: int,
        scale: float,
        outputs: int = 1,
        scaling: Scaling = "plain",
        label_blocks: LabelBlocks = "zero",
        key: RandomKey,
        **options: Unpack[AttentionOptions],
    ) -> "MergedAttention":
        r"""Gaussian weights of standard deviation `scale`; the label blocks $\mathbf v_i$, $u_i$ zero or random too."""
        dim, heads, outputs = _check.whole("dim", dim), _check.whole("heads", heads), _check.whole("outputs", outputs)
        width = dim + outputs
        spread = deviation(scale, scaling, heads * width * width)
        value, key_query = gaussians(((heads, outputs, width), (heads, width, dim)), (spread, spread), key=key)
        return cls(
            clear(value, np.s_[:, :, :dim], label_blocks),
            clear(key_query, np.s_[:, dim:], label_blocks),
            **options,
        )

    @classmethod
    def aligned(
        cls,
        direction: Float[Array, "dim dim"],
        *,
        heads: int,
        scale,
        outputs: int = 1,
        **options: Unpack[AttentionOptions],
    ) -> "MergedAttention":
        r"""$U_i = s_i g$ with g the unit matrix along `direction` ($\Lambda^2$ for the unstable mode), $v_i = s_i$.

        `scale` is s, one number or one for each head. Balanced: $v_i^2 = \|U_i\|_F^2$.
        """
        scales = head_scales(scale, _check.whole("heads", heads))
        dim = direction.shape[0]
        key_query = np.zeros((heads, dim + outputs, dim))
        key_query[:, :dim] = scales[:, None, None] * np.asarray(direction) / np.linalg.norm(direction)
        value = np.zeros((heads, outputs, dim + outputs))
        value[:, :, dim:] = scales[:, None, None] * np.eye(outputs) / outputs**0.5
        return cls(jax.device_put(value), jax.device_put(key_query), **options)

    def balanced(self) -> "MergedAttention":
        r"""The value rescaled so that $\|W^V_i\|^2 = \|W^{KQ}_i\|_F^2$, which the flow then conserves."""
        norms = np.sqrt(np.sum(np.asarray(self.key_query) ** 2, axis=(1, 2)))
        return self.with_weights({"value": scaled_to(self.value, norms), "key_query": self.key_query})

    @classmethod
    def from_recording(
        cls, weights: dict[str, Array], *, outputs: int, **options: Unpack[AttentionOptions]
    ) -> "MergedAttention":
        """The model with the matrices of a recording, by their names there."""
        return cls.from_matrices(**weights, outputs=outputs, **options)

    @staticmethod
    def theory_weights(weights: dict[str, Any]) -> dict[str, Any]:
        """`values` $v_i$ and `key_queries` $U_i$, for the last output; weights may have leading axes, as of time."""
        key_query = weights["key_query"]
        return {"values": weights["value"][..., -1, -1], "key_queries": key_query[..., : key_query.shape[-1], :]}

    @property
    def dim(self) -> int:
        return self.key_query.shape[-1]

    def bilinear(self) -> Float[Array, "head width dim"]:
        return self.key_query

    def directions(self, query: Float[Array, " dim"]) -> Float[Array, "head width"]:
        return self.key_query @ query

    def readout(self) -> Float[Array, "head outputs width"]:
        return self.value

    def map_rank(self) -> int | None:
        return self.dim
