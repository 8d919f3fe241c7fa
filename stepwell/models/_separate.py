"""Attention with separate keys and queries of any rank."""

import warnings
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


class SeparateAttention(AbstractAttention):
    r"""ATTN_S of rank R: $X + \sum_i \tfrac1N W^V_i X X^\top {W^K_i}^\top W^Q_i X$, read at the query's label.

    Kept: the last rows of $W^V_i$ in `value`; `key` with rows $k_{i,r}$ (and their label entries, last); `query` with
    rows $q_{i,r}$ (its label entries never matter). A rank above D is allowed, and adds nothing that D pairs cannot do.
    """

    value: Float[Array, "head outputs width"]
    key: Float[Array, "head rank width"]
    query: Float[Array, "head rank dim"]
    activation: Activation = eqx.field(static=True)
    normalisation: Normalisation = eqx.field(static=True)
    attends_query: bool = eqx.field(static=True)

    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "value": ("head", "output", "token_dim"),
        "key": ("head", "pair", "token_dim"),
        "query": ("head", "pair", "dim"),
    }
    factors: ClassVar[int] = 3
    declared_form: ClassVar[Form] = "separate"

    def __init__(
        self,
        value: Float[Array, "head outputs width"],
        key: Float[Array, "head rank width"],
        query: Float[Array, "head rank dim"],
        *,
        activation: Activation = "linear",
        normalisation: Normalisation | None = None,
        attends_query: bool = True,
    ):
        self.value = jnp.asarray(value)
        self.key = jnp.asarray(key)
        self.query = jnp.asarray(query)
        self.activation, self.normalisation = checked_options(activation, normalisation)
        self.attends_query = attends_query
        heads, outputs, width = self.value.shape
        rank = self.key.shape[1]
        if self.key.shape != (heads, rank, width) or self.query.shape != (heads, rank, width - outputs):
            raise InvalidInput(
                f"value has shape {self.value.shape}, key {self.key.shape}, query {self.query.shape}; they must be "
                "(heads, outputs, dim + outputs), (heads, rank, dim + outputs) and (heads, rank, dim)"
            )

    @classmethod
    def from_matrices(
        cls,
        value: Float[Array, "head width width"],
        key: Float[Array, "head rank width"],
        query: Float[Array, "head rank width"],
        *,
        outputs: int = 1,
        **options: Unpack[AttentionOptions],
    ) -> "SeparateAttention":
        """The model with these whole matrices; the parts that never matter are dropped."""
        return cls(value[:, -outputs:], key, query[:, :, :-outputs], **options)

    @classmethod
    def random(
        cls,
        *,
        dim: int,
        heads: int,
        rank: int = 1,
        scale: float,
        outputs: int = 1,
        scaling: Scaling = "plain",
        label_blocks: LabelBlocks = "zero",
        key: RandomKey,
        **options: Unpack[AttentionOptions],
    ) -> "SeparateAttention":
        """Gaussian weights of standard deviation `scale`, or with `scaling="per-matrix"` the published script's.

        Per matrix, the deviation is scale/√size, size counting the whole matrix over all heads: heads·width² for the
        value, heads·rank·width for key and query. Label blocks are zero, or random too.
        """
        dim, heads, rank = _check.whole("dim", dim), _check.whole("heads", heads), _check.whole("rank", rank)
        if rank > dim:
            warnings.warn(f"rank {rank} is above the dimension {dim}; rank {dim} can do the same", stacklevel=2)
        width = dim + _check.whole("outputs", outputs)
        square = deviation(scale, scaling, heads * width * width)
        thin = deviation(scale, scaling, heads * rank * width)
        shapes = (heads, outputs, width), (heads, rank, width), (heads, rank, dim)
        value, keys, queries = gaussians(shapes, (square, thin, thin), key=key)
        return cls(
            clear(value, np.s_[:, :, :dim], label_blocks),
            clear(keys, np.s_[:, :, dim:], label_blocks),
            queries,
            **options,
        )

    @classmethod
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
        r"""$k_{i,r} = q_{i,r} = s_i e_d$, balanced $v_i = \sqrt R s_i$; pairs take the columns in turn."""
        heads, rank = _check.whole("heads", heads), _check.whole("rank", rank)
        scales = head_scales(scale, heads)
        dim = eigenvectors.shape[0]
        turn = np.arange(heads * rank).reshape(heads, rank) % dim
        pairs = scales[:, None, None] * np.asarray(eigenvectors).T[turn]
        keys = np.concatenate([pairs, np.zeros((heads, rank, outputs))], axis=-1)
        value = np.zeros((heads, outputs, dim + outputs))
        value[:, :, dim:] = scales[:, None, None] * np.eye(outputs) * (rank / outputs) ** 0.5
        weights = (jax.device_put(weight) for weight in (value, keys, pairs))
        return cls(*weights, **options)

    def balanced(self) -> "SeparateAttention":
        r"""Queries and value changed so that $Q_iQ_i^\top = K_iK_i^\top$ and $\|W^V_i\|^2 = \|K_i\|_F^2$.

        The flow conserves both differences. Queries keep their row space: $Q_i \to (K_iK_i^\top)^{1/2}
        (Q_iQ_i^\top)^{-1/2} Q_i$, which needs a rank of at most D.
        """
        if self.query.shape[1] > self.dim:
            raise InvalidInput(
                f"rank {self.query.shape[1]} is above the dimension {self.dim}; a balanced start needs rank ≤ dim"
            )
        key, query = np.asarray(self.key), np.asarray(self.query)
        keys, queries = key @ key.swapaxes(1, 2), query @ query.swapaxes(1, 2)
        norms = np.sqrt(np.trace(keys, axis1=1, axis2=2))
        return self.with_weights(
            {
                "value": scaled_to(self.value, norms),
                "key": key,
                "query": _power(keys, 0.5) @ _power(queries, -0.5) @ query,
            }
        )

    @classmethod
    def from_recording(
        cls, weights: dict[str, Array], *, outputs: int, **options: Unpack[AttentionOptions]
    ) -> "SeparateAttention":
        """The model with the matrices of a recording, by their names there."""
        return cls.from_matrices(**weights, outputs=outputs, **options)

    @staticmethod
    def theory_weights(weights: dict[str, Any]) -> dict[str, Any]:
        """`values` $v_i$, `keys` $k_{i,r}$ and `queries` $q_{i,r}$, for the last output; any leading axes."""
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
