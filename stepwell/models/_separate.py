"""Attention with separate keys and queries of any rank."""

import warnings
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
from ._initialization import (
    LabelBlocks,
    Scheme,
    clear,
    deviations_of,
    gaussians,
    head_scales,
    require_weights,
    scaled_to,
)
from ._model import Form


class SeparateAttention(AbstractAttention):
    r"""ATTN_S of rank R: $X + \sum_i \tfrac1N W^V_i X X^\top {W^K_i}^\top W^Q_i X$, read at the query's label.

    Only what reaches the prediction is kept. The constructor takes these parts; `SeparateAttention.from_matrices` takes
    whole matrices, and `SeparateAttention.random` draws initial weights. A rank above D is allowed, and adds nothing
    that D pairs cannot do.

    **Arguments:**

    - `value`: the last rows of $W^V_i$, (heads, outputs, dim + outputs), the readout of inputs and then of labels.
    - `key`: rows $k_{i,r}$, (heads, rank, dim + outputs), their label entries last.
    - `query`: rows $q_{i,r}$, (heads, rank, dim); their label entries never matter.
    - `activation`: what turns scores into attention weights: "linear", "relu" (the positive part) or "softmax".
    - `normalization`: what attention is divided by: "1/N" (the number of context pairs), "1/tokens" or "none". By
      default "none" for softmax attention and "1/N" otherwise.
    - `attends_query`: whether the query is among the tokens attended to, with its label zero.

    **Example:**

    One head with v = 2, k = 1 and q = 0.2 has an effective map of 0.4, and predicts
    $0.4\, \tfrac12 (1 \cdot 2 + 2 \cdot 4) \cdot 3 = 6$ for the context (1, 2), (2, 4) and the query 3:

    >>> value, key, query = jnp.array([[[0.0, 2.0]]]), jnp.array([[[1.0, 0.0]]]), jnp.array([[[0.2]]])
    >>> prediction = sw.models.SeparateAttention(value, key, query)(jnp.array([[1.0, 2.0], [2.0, 4.0], [3.0, 0.0]]))
    >>> print(f"{prediction[0]:.3f}")
    6.000
    """

    value: Float[Array, "head outputs width"]
    key: Float[Array, "head rank width"]
    query: Float[Array, "head rank dim"]
    activation: Activation = eqx.field(static=True)
    normalization: Normalization = eqx.field(static=True)
    attends_query: bool = eqx.field(static=True)

    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "value": ("head", "output", "token_dim"),
        "key": ("head", "pair", "token_dim"),
        "query": ("head", "pair", "dim"),
    }
    factors: ClassVar[int] = 3
    declared_form: ClassVar[Form] = "separate"

    @checked
    def __init__(
        self,
        value: Float[Array, "head outputs width"],
        key: Float[Array, "head rank width"],
        query: Float[Array, "head rank dim"],
        *,
        activation: Activation = "linear",
        normalization: Normalization | None = None,
        attends_query: bool = True,
    ):
        self.value = jnp.asarray(value)
        self.key = jnp.asarray(key)
        self.query = jnp.asarray(query)
        self.activation, self.normalization = checked_options(activation, normalization)
        self.attends_query = attends_query
        heads, outputs, width = self.value.shape
        rank = self.key.shape[1]
        if self.key.shape != (heads, rank, width) or self.query.shape != (heads, rank, width - outputs):
            raise InvalidInput(
                f"value has shape {self.value.shape}, key {self.key.shape}, query {self.query.shape}; they must be "
                "(heads, outputs, dim + outputs), (heads, rank, dim + outputs) and (heads, rank, dim)"
            )

    @classmethod
    @checked
    def from_matrices(
        cls,
        value: Float[Array, "head width width"],
        key: Float[Array, "head rank width"],
        query: Float[Array, "head rank width"],
        *,
        outputs: int = 1,
        **options: Unpack[AttentionOptions],
    ) -> "SeparateAttention":
        """Return the model with given whole matrices $W^V_i$, $W^K_i$ and $W^Q_i$, of which the parts that never matter
        are dropped; `**options` as in the constructor."""
        return cls(value[:, -outputs:], key, query[:, :, :-outputs], **options)

    @classmethod
    @checked
    @remembered
    def random(
        cls,
        *,
        dim: int,
        heads: int,
        rank: int = 1,
        scale: float,
        outputs: int = 1,
        scheme: Scheme = "plain",
        label_blocks: LabelBlocks = "zero",
        key: RandomKey,
        **options: Unpack[AttentionOptions],
    ) -> "SeparateAttention":
        """Return a model with Gaussian weights.

        **Arguments:**

        - `dim`: the dimension of an input x.
        - `heads`: the number of heads.
        - `rank`: the number of pairs of key and query in a head. Above `dim` it is allowed, with a warning.
        - `scale`: the standard deviation of a weight, or what `scheme` makes of it.
        - `outputs`: the number of labels of a token.
        - `scheme`: the initialization scheme: how the standard deviations follow, with width = dim + outputs. "plain":
          `scale` for all weights, as in Fig 3 of the linear-attention paper. "per-head": `scale` for values and
          scale/√(rank · width) for keys and queries, as in its Figs 4 and 12. "stacked": scale/√size, the size counting
          the entries of a whole matrix over all heads (heads · width² for the value, heads · rank · width for key and
          query), as in the published script since December 2025.
        - `label_blocks`: "zero" sets the label blocks of value and key to zero; "random" leaves them random.
        - `key`: a JAX random key.
        - `**options`: `activation`, `normalization` and `attends_query`, as in the constructor.
        """
        dim, heads, rank = checks.whole("dim", dim), checks.whole("heads", heads), checks.whole("rank", rank)
        if rank > dim:
            warnings.warn(f"rank {rank} is above the dimension {dim}; rank {dim} can do the same", stacklevel=2)
        width = dim + checks.whole("outputs", outputs)
        square, thin = deviations_of(scheme, scale, heads=heads, rank=rank, width=width)
        shapes = (heads, outputs, width), (heads, rank, width), (heads, rank, dim)
        value, keys, queries = gaussians(shapes, (square, thin, thin), key=key)
        value, keys = clear(value, np.s_[:, :, :dim], label_blocks), clear(keys, np.s_[:, :, dim:], label_blocks)
        return cls(value, keys, queries, **options)

    @classmethod
    @checked
    @remembered
    def aligned(
        cls,
        eigenvectors: Float[Array, "dim dim"],
        *,
        heads: int,
        rank: int = 1,
        scale,
        outputs: int = 1,
        **options: Unpack[AttentionOptions],
    ) -> "SeparateAttention":
        r"""Return a balanced model with keys and queries along eigenvectors.

        $k_{i,r} = q_{i,r} = s_i e_d$ and $v_i = \sqrt R s_i$. The pairs of all heads take the eigenvectors in turn: the
        first pair has $e_1$, the second $e_2$, and after $e_D$ comes $e_1$ again. With O outputs the labels are read by
        $s_i I \sqrt{R/O}$.

        **Arguments:**

        - `eigenvectors`: (dim, dim), with $e_d$ as column d.
        - `heads`: the number of heads.
        - `rank`: R, the number of pairs in a head.
        - `scale`: $s_i$, one number or one for each head.
        - `outputs`: the number of labels of a token.
        - `**options`: `activation`, `normalization` and `attends_query`, as in the constructor.
        """
        heads, rank, outputs = map(checks.whole, ("heads", "rank", "outputs"), (heads, rank, outputs))
        dim = eigenvectors.shape[0]
        require_weights((heads, rank, dim + outputs), (heads, rank, dim), (heads, outputs, dim + outputs))
        scales = head_scales(scale, heads)
        turn = np.arange(heads * rank).reshape(heads, rank) % dim
        pairs = scales[:, None, None] * np.asarray(eigenvectors).T[turn]
        keys = np.concatenate([pairs, np.zeros((heads, rank, outputs))], axis=-1)
        value = np.zeros((heads, outputs, dim + outputs))
        value[:, :, dim:] = scales[:, None, None] * np.eye(outputs) * (rank / outputs) ** 0.5
        weights = (jax.device_put(weight) for weight in (value, keys, pairs))
        return cls(*weights, **options)

    @remembered
    def balanced(self) -> "SeparateAttention":
        r"""Return the model with queries and value changed to be balanced with the keys.

        Then $Q_iQ_i^\top = K_iK_i^\top$ and $\|W^V_i\|^2 = \|K_i\|_F^2$; the flow conserves both differences. Queries
        keep their row space, $Q_i \to (K_iK_i^\top)^{1/2} (Q_iQ_i^\top)^{-1/2} Q_i$, which needs a rank of at most D.
        """
        if self.query.shape[1] > self.dim:
            raise InvalidInput(
                f"rank {self.query.shape[1]} is above the dimension {self.dim}; balanced weights need rank ≤ dim"
            )
        key, query = np.asarray(self.key), np.asarray(self.query)
        keys, queries = key @ key.swapaxes(1, 2), query @ query.swapaxes(1, 2)
        norms = np.sqrt(np.trace(keys, axis1=1, axis2=2))
        query = _power(keys, 0.5) @ _power(queries, -0.5) @ query
        return self.with_weights({"value": scaled_to(self.value, norms), "key": key, "query": query})

    @staticmethod
    def theory_weights(weights: dict[str, Any]) -> dict[str, Any]:
        """Return `values` $v_i$, `keys` $k_{i,r}$ and `queries` $q_{i,r}$ of the theory's equations for the last
        output, from weights with any leading axes, as of time."""
        key, query = weights["key"], weights["query"]
        return {"values": weights["value"][..., -1, -1], "keys": key[..., : query.shape[-1]], "queries": query}

    @property
    def dim(self) -> int:
        return self.query.shape[-1]

    def bilinear(self) -> Float[Array, "head width dim"]:
        return jnp.einsum("hrw,hrd->hwd", self.key, self.query)

    def directions(self, query: Float[Array, " dim"]) -> Float[Array, "head width"]:
        return jnp.einsum("hrw,hr->hw", self.key, self.query @ query)

    def readout(self) -> Float[Array, "head outputs width"]:
        return self.value

    def map_rank(self) -> int | None:
        heads, rank, _ = self.key.shape
        return min(self.dim, heads * rank)


def _power(matrices: Float[np.ndarray, "head rank rank"], exponent: float) -> Float[np.ndarray, "head rank rank"]:
    lam, vectors = np.linalg.eigh(matrices)
    return np.einsum("hik,hk,hjk->hij", vectors, np.clip(lam, 0.0, None) ** exponent, vectors)
