"""Attention with query, key, value and output matrices of its own."""

from typing import ClassVar, Unpack

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell._types import Activation, Normalisation, RandomKey

from ._attention import AbstractAttention, AttentionOptions, checked_options
from ._model import Form
from ._score_scale import ScoreScale, score_scale_of
from ._starts import deviation, gaussians


class MultiHeadOptions(AttentionOptions, total=False):
    """The settings of attention, and what scores are multiplied by."""

    score_scale: float | ScoreScale


class MultiHeadAttention(AbstractAttention):
    r"""$\hat y = \sum_h O_h V_h Z\, p_h$, $p_h = \mathrm{softmax}((K_h Z)^\top Q_h z_q/\sqrt{d_e})$.

    The query is not among the tokens Z. `query` keeps the first D columns, the only ones that meet a query whose label
    is zero. `d_e` is the width of a head. `score_scale` stands for $1/\sqrt{d_e}$ where that is another number:
    `"token"` is one over the root of a token's width, as in the published simulation. With `activation="linear"` the
    score itself is the weight, with `"relu"` its positive part; there is no 1/L unless `normalisation` asks for it.
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
    declared_form: ClassVar[Form] = "attention"

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
        score_scale: float | ScoreScale = "head",
    ):
        self.query = jnp.asarray(query)
        self.key = jnp.asarray(key)
        self.value = jnp.asarray(value)
        self.output = jnp.asarray(output)
        self.activation, self.normalisation = checked_options(activation, normalisation or "none")
        self.attends_query = attends_query
        heads, embedding, width = self.key.shape
        self.score_scale = score_scale_of(score_scale, embedding=embedding, width=width)
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
        **options: Unpack[MultiHeadOptions],
    ) -> "MultiHeadAttention":
        """The model with these whole matrices; columns of the query matrix that never matter are dropped."""
        dim = query.shape[2] - output.shape[1]
        return cls(
            query[:, :, :dim],
            key,
            value,
            output,
            **options,
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
        key: RandomKey,
        **options: Unpack[MultiHeadOptions],
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
        return cls(*weights, **options)

    @classmethod
    def diagonal(
        cls,
        *,
        dim: int,
        outputs: int,
        heads: int,
        scale: float,
        readout: float,
        advantage: float = 2.0,
        key: RandomKey,
        **options: Unpack[MultiHeadOptions],
    ) -> "MultiHeadAttention":
        r"""$Q_h = a_h I$, $K_h = b_h I$, $V_h = O_h = r\,\mathrm{diag}(1 + (c - 1) 1_{h = i})$ on labels, 0 on inputs.

        The published simulation's diagonal start: $a_h, b_h \sim \mathcal N(0, \text{scale}^2)$, so that $\omega^h$ is
        the same for all tasks and of either sign; r is `readout`; head i reads task i with `advantage` c. Heads are as
        wide as a token.
        """
        dim, outputs, heads = _check.whole("dim", dim), _check.whole("outputs", outputs), _check.whole("heads", heads)
        readout = _check.number("readout", readout)
        advantage = _check.number("advantage", advantage)
        width = dim + outputs
        spread = deviation(scale, "plain", 1)
        a, b = gaussians(((heads, 1, 1), (heads, 1, 1)), (spread, spread), key=key)
        own = jnp.eye(heads, outputs)
        reading = readout * (1 + (advantage - 1) * own)[:, :, None] * jnp.eye(outputs)
        output = jnp.pad(reading, ((0, 0), (0, 0), (dim, 0)))
        value = jnp.pad(output, ((0, 0), (dim, 0), (0, 0)))
        whole = jnp.eye(width)
        return cls(a * whole[:, :dim], b * whole, value, output, **options)

    @classmethod
    def from_recording(
        cls, weights: dict[str, Array], *, outputs: int, **options: Unpack[AttentionOptions]
    ) -> "MultiHeadAttention":
        """From recorded matrices.

        Recorded keys and values may be of different width: rows of zeros make them one, and stay zero, as each meets
        zeros in the matrix that it is multiplied with. The recorded score is over the root of the token's width,
        whatever the head's.
        """
        width = max(weights["key"].shape[1], weights["value"].shape[1])

        def padded(name: str, axis: int) -> Array:
            missing = [(0, 0)] * 3
            missing[axis] = (0, width - weights[name].shape[axis])
            return jnp.pad(weights[name], missing)

        rows = {"query": padded("query", 1), "key": padded("key", 1), "value": padded("value", 1)}
        rows["output"] = padded("output", 2)
        return cls.from_matrices(**rows, **options, score_scale=weights["key"].shape[2] ** -0.5)

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
