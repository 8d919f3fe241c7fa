"""Attention with query, key, value and output matrices of its own."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell._types import Activation, Normalisation, RandomKey

from ._attention import AbstractAttention, checked_options
from ._starts import deviation, gaussians


class MultiHeadAttention(AbstractAttention):
    r"""$\hat y = \sum_h O_h V_h Z\, p_h$, $p_h = \mathrm{softmax}((K_h Z)^\top Q_h z_q/\sqrt{d_e})$.

    The query is not among the tokens Z. `query` keeps the first D columns, the only ones that meet a query whose label
    is zero. `d_e` is the width of a head; `score_scale` stands for $1/\sqrt{d_e}$ where that is another number. With
    `activation="linear"` the score itself is the weight, with `"relu"` its positive part; there is no 1/L unless
    `normalisation` asks for it.
    """

    query: Float[Array, "head embedding dim"]
    key: Float[Array, "head embedding width"]
    value: Float[Array, "head embedding width"]
    output: Float[Array, "head outputs embedding"]
    activation: Activation = eqx.field(static=True)
    normalisation: Normalisation = eqx.field(static=True)
    attends_query: bool = eqx.field(static=True)
    score_scale: float = eqx.field(static=True)

    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "query": ("head", "embedding", "dim"),
        "key": ("head", "embedding", "token_dim"),
        "value": ("head", "embedding", "token_dim"),
        "output": ("head", "output", "embedding"),
    }
    factors: ClassVar[int] = 4

    def __init__(
        self,
        query: Float[Array, "head embedding dim"],
        key: Float[Array, "head embedding width"],
        value: Float[Array, "head embedding width"],
        output: Float[Array, "head outputs embedding"],
        *,
        activation: Activation = "softmax",
        normalisation: Normalisation | None = None,
        attends_query: bool = False,
        score_scale: float | None = None,
    ):
        self.query = jnp.asarray(query)
        self.key = jnp.asarray(key)
        self.value = jnp.asarray(value)
        self.output = jnp.asarray(output)
        self.activation, self.normalisation = checked_options(activation, normalisation or "none")
        self.attends_query = attends_query
        heads, embedding, width = self.key.shape
        self.score_scale = embedding**-0.5 if score_scale is None else _check.number("score_scale", score_scale)
        outputs = self.output.shape[1]
        wanted = {
            "query": (heads, embedding, width - outputs),
            "value": (heads, embedding, width),
            "output": (heads, outputs, embedding),
        }
        for name, shape in wanted.items():
            if getattr(self, name).shape != shape:
                raise InvalidInput(
                    f"{name} has shape {getattr(self, name).shape}; beside a key of shape {self.key.shape} "
                    f"and {outputs} outputs it must be {shape}"
                )

    @classmethod
    def from_matrices(
        cls,
        query: Float[Array, "head embedding width"],
        key: Float[Array, "head embedding width"],
        value: Float[Array, "head embedding width"],
        output: Float[Array, "head outputs embedding"],
        *,
        activation: Activation = "softmax",
        normalisation: Normalisation | None = None,
        score_scale: float | None = None,
    ) -> "MultiHeadAttention":
        """From whole matrices; the columns of the query matrix that never matter are dropped."""
        dim = query.shape[2] - output.shape[1]
        return cls(
            query[:, :, :dim],
            key,
            value,
            output,
            activation=activation,
            normalisation=normalisation,
            score_scale=score_scale,
        )

    @classmethod
    def random(
        cls,
        *,
        dim: int,
        outputs: int,
        heads: int,
        embedding: int | None = None,
        scale: float,
        activation: Activation = "softmax",
        normalisation: Normalisation | None = None,
        key: RandomKey,
    ) -> "MultiHeadAttention":
        """Gaussian weights of standard deviation `scale`; the width of a head is by default that of a token."""
        dim, outputs, heads = _check.whole("dim", dim), _check.whole("outputs", outputs), _check.whole("heads", heads)
        width = dim + outputs
        embedding = width if embedding is None else _check.whole("embedding", embedding)
        shapes = (
            (heads, embedding, dim),
            (heads, embedding, width),
            (heads, embedding, width),
            (heads, outputs, embedding),
        )
        weights = gaussians(shapes, (deviation(scale, "plain", 1),) * 4, key=key)
        return cls(*weights, activation=activation, normalisation=normalisation)

    @property
    def dim(self) -> int:
        return self.query.shape[-1]

    def bilinear(self) -> Float[Array, "head width dim"]:
        return jnp.einsum("hew,hed->hwd", self.key, self.query) * self.score_scale

    def directions(self, query: Float[Array, " dim"]) -> Float[Array, "head width"]:
        return jnp.einsum("hew,he->hw", self.key, self.query @ query) * self.score_scale

    def readout(self) -> Float[Array, "head outputs width"]:
        return self.output @ self.value

    def map_rank(self) -> int | None:
        heads, embedding, _ = self.key.shape
        return min(self.dim, heads * embedding) if self.output.shape[1] == 1 else None
