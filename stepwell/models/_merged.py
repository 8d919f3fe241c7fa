"""Attention with key and query merged into one matrix."""

from typing import Any, ClassVar, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import remembered
from stepwell._util.types import Activation, Normalization, RandomKey

from ._attention import AbstractAttention, AttentionOptions, checked_options
from ._initialization import LabelBlocks, check_scale, clear, gaussians, head_scales, require_weights, scaled_to
from ._model import Form, Theory


class MergedAttention(AbstractAttention):
    r"""ATTN_M: $X + \sum_i \tfrac1N W^V_i X X^\top W^{KQ}_i X$, read at the query's label.

    Only what reaches the prediction is kept: the last rows of $W^V_i$ in `value`, $(\mathbf v_i^\top, v_i)$, and the
    first D columns of $W^{KQ}_i$ in `key_query`, $(U_i; u_i^\top)$. The constructor takes these parts;
    `MergedAttention.from_matrices` takes whole matrices, and `MergedAttention.random` draws initial weights.

    **Arguments:**

    - `value`: (heads, outputs, dim + outputs), the readout of inputs and then of labels; with one output
      (heads, 1, D + 1).
    - `key_query`: (heads, dim + outputs, dim), the scores of inputs and then of labels.
    - `activation`: what turns scores into attention weights: "linear", "relu" (the positive part) or "softmax".
    - `normalization`: what attention is divided by: "1/N" (the number of context pairs), "1/tokens" or "none". By
      default "none" for softmax attention and "1/N" otherwise.
    - `attends_query`: whether the query is among the tokens attended to, with its label zero.

    **Example:**

    One head with an effective map of 0.4 predicts $0.4\, \tfrac12 (1 \cdot 2 + 2 \cdot 4) \cdot 3 = 6$ for the context
    (1, 2), (2, 4) and the query 3:

    >>> model = sw.models.MergedAttention(value=jnp.array([[[0.0, 1.0]]]), key_query=jnp.array([[[0.4], [0.0]]]))
    >>> prediction = model(jnp.array([[1.0, 2.0], [2.0, 4.0], [3.0, 0.0]]))
    >>> print(f"{prediction[0]:.3f}")
    6.000
    """

    value: Float[Array, "head outputs width"]
    key_query: Float[Array, "head width dim"]
    activation: Activation = eqx.field(static=True)
    normalization: Normalization = eqx.field(static=True)
    attends_query: bool = eqx.field(static=True)

    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "value": ("head", "output", "token_dim"),
        "key_query": ("head", "token_dim", "dim"),
    }
    factors: ClassVar[int] = 2
    declared_form: ClassVar[Form] = "attention"
    theory: ClassVar[Theory] = "merged"

    @checked
    def __init__(
        self,
        value: Float[Array, "head outputs width"],
        key_query: Float[Array, "head width dim"],
        *,
        activation: Activation = "linear",
        normalization: Normalization | None = None,
        attends_query: bool = True,
    ):
        self.value = jnp.asarray(value)
        self.key_query = jnp.asarray(key_query)
        self.activation, self.normalization = checked_options(activation, normalization)
        self.attends_query = attends_query
        heads, outputs, width = self.value.shape
        if self.key_query.shape != (heads, width, width - outputs):
            raise InvalidInput(
                f"value has shape {self.value.shape}, key_query {self.key_query.shape}; they must be "
                "(heads, outputs, dim + outputs) and (heads, dim + outputs, dim)"
            )

    @classmethod
    @checked
    def from_matrices(
        cls,
        value: Float[Array, "head width width"],
        key_query: Float[Array, "head width width"],
        *,
        outputs: int = 1,
        **options: Unpack[AttentionOptions],
    ) -> "MergedAttention":
        """Return the model with given square matrices $W^V_i$ and $W^{KQ}_i$, of which the parts that never matter are
        dropped; `**options` as in the constructor."""
        return cls(value[:, -outputs:], key_query[:, :, :-outputs], **options)

    @classmethod
    @checked
    @remembered
    def random(
        cls,
        *,
        dim: int,
        heads: int,
        scale: float,
        outputs: int = 1,
        label_blocks: LabelBlocks = "zero",
        key: RandomKey,
        **options: Unpack[AttentionOptions],
    ) -> "MergedAttention":
        r"""Return a model with Gaussian weights.

        **Arguments:**

        - `dim`: the dimension of an input x.
        - `heads`: the number of heads.
        - `scale`: the standard deviation of a weight.
        - `outputs`: the number of labels of a token.
        - `label_blocks`: "zero" sets the label blocks $\mathbf v_i$ and $u_i$ to zero; "random" leaves them random.
        - `key`: a JAX random key.
        - `**options`: `activation`, `normalization` and `attends_query`, as in the constructor.
        """
        dim, heads, outputs = checks.whole("dim", dim), checks.whole("heads", heads), checks.whole("outputs", outputs)
        width = dim + outputs
        spread = check_scale(scale)
        value, key_query = gaussians(((heads, outputs, width), (heads, width, dim)), (spread, spread), key=key)
        key_query = clear(key_query, np.s_[:, dim:], label_blocks)
        return cls(clear(value, np.s_[:, :, :dim], label_blocks), key_query, **options)

    @classmethod
    @checked
    @remembered
    def aligned(
        cls,
        direction: Float[Array, "dim dim"],
        *,
        heads: int,
        scale,
        outputs: int = 1,
        **options: Unpack[AttentionOptions],
    ) -> "MergedAttention":
        r"""Return a model with all heads along one matrix: $U_i = s_i g$, $v_i = s_i$, with g of Frobenius norm one.

        It is balanced, $v_i^2 = \|U_i\|_F^2$. With O outputs the labels are read by $s_i I/\sqrt O$.

        **Arguments:**

        - `direction`: a matrix (dim, dim) proportional to g; $\Lambda^2$ for the unstable mode at zero weights.
        - `heads`: the number of heads.
        - `scale`: $s_i$, one number or one for each head.
        - `outputs`: the number of labels of a token.
        - `**options`: `activation`, `normalization` and `attends_query`, as in the constructor.
        """
        heads, outputs, dim = checks.whole("heads", heads), checks.whole("outputs", outputs), direction.shape[0]
        require_weights((heads, dim + outputs, dim), (heads, outputs, dim + outputs))
        scales = head_scales(scale, heads)
        key_query = np.zeros((heads, dim + outputs, dim))
        key_query[:, :dim] = scales[:, None, None] * np.asarray(direction) / np.linalg.norm(direction)
        value = np.zeros((heads, outputs, dim + outputs))
        value[:, :, dim:] = scales[:, None, None] * np.eye(outputs) / outputs**0.5
        return cls(jax.device_put(value), jax.device_put(key_query), **options)

    @remembered
    def balanced(self) -> "MergedAttention":
        r"""Return the model with the value of each head rescaled so that $\|W^V_i\|^2 = \|W^{KQ}_i\|_F^2$.

        Gradient flow conserves the difference of the two. A value that is zero stays zero.
        """
        norms = np.sqrt(np.sum(np.asarray(self.key_query) ** 2, axis=(1, 2)))
        return self.with_weights({"value": scaled_to(self.value, norms), "key_query": self.key_query})

    @staticmethod
    def theory_weights(weights: dict[str, Any]) -> dict[str, Any]:
        """Return `values` $v_i$ and `key_queries` $U_i$ of the theory's reduced equations for the last output, from
        weights with any leading axes, as of time."""
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
