"""Attention with query, key, value and output matrices of its own."""

from typing import ClassVar, Unpack, get_args

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import remembered
from stepwell._util.types import Activation, Normalization, RandomKey

from ._attention import AbstractAttention, AttentionOptions, checked_options
from ._initialization import (
    MultiHeadScheme,
    ScoreScale,
    check_scale,
    gaussians,
    require_weights,
    score_scale_of,
    uniforms,
)
from ._model import Form


class MultiHeadOptions(AttentionOptions, total=False):
    """The settings of attention, and what scores are multiplied by."""

    score_scale: float | ScoreScale


class MultiHeadAttention(AbstractAttention):
    r"""Attention with query, key, value and output matrices, by default softmax attention.

    $\hat y = \sum_h O_h V_h Z\, p_h$, $p_h = \mathrm{softmax}((K_h Z)^\top Q_h z_q/\sqrt{d_e})$,

    with $d_e$ the width of a head, called `embedding`. The columns of Z are the tokens of the context.

    **Arguments:**

    - `query`: $Q_h$, (heads, embedding, dim), the columns that meet the input; the label of a query is zero.
    - `key`: $K_h$, (heads, embedding, dim + outputs).
    - `value`: $V_h$, (heads, embedding, dim + outputs).
    - `output`: $O_h$, (heads, outputs, embedding).
    - `activation`: what turns scores into attention weights: "softmax", "linear" or "relu" (the positive part).
    - `normalization`: what attention is divided by: "1/N" (the number of context pairs), "1/tokens" or "none". By
      default "none", whatever the activation.
    - `attends_query`: whether the query is among the tokens attended to, with its label zero.
    - `score_scale`: what scores are multiplied by: "head" for $1/\sqrt{d_e}$, "token" for one over the root of a
      token's width, as in the published simulation, or a positive number.

    **Example:**

    A head with a query matrix of zero attends to all tokens equally, and predicts the mean label:

    >>> zero, one, label = jnp.zeros((1, 1, 1)), jnp.ones((1, 1, 1)), jnp.array([[[0.0, 1.0]]])
    >>> model = sw.models.MultiHeadAttention(query=zero, key=label, value=label, output=one)
    >>> prediction = model(jnp.array([[1.0, 2.0], [2.0, 4.0], [3.0, 0.0]]))
    >>> print(f"{prediction[0]:.3f}")
    3.000
    """

    query: Float[Array, "head embedding dim"]
    key: Float[Array, "head embedding width"]
    value: Float[Array, "head embedding width"]
    output: Float[Array, "head outputs embedding"]
    activation: Activation = eqx.field(static=True)
    normalization: Normalization = eqx.field(static=True)
    attends_query: bool = eqx.field(static=True)
    score_scale: float = eqx.field(static=True)

    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "query": ("head", "embedding", "dim"),
        "key": ("head", "embedding", "token_dim"),
        "value": ("head", "embedding", "token_dim"),
        "output": ("head", "output_dim", "embedding"),
    }
    factors: ClassVar[int] = 4
    declared_form: ClassVar[Form] = "attention"

    @checked
    def __init__(
        self,
        query: Float[Array, "head embedding dim"],
        key: Float[Array, "head embedding width"],
        value: Float[Array, "head embedding width"],
        output: Float[Array, "head outputs embedding"],
        *,
        activation: Activation = "softmax",
        normalization: Normalization | None = None,
        attends_query: bool = False,
        score_scale: float | ScoreScale = "head",
    ):
        self.query = jnp.asarray(query)
        self.key = jnp.asarray(key)
        self.value = jnp.asarray(value)
        self.output = jnp.asarray(output)
        self.activation, self.normalization = checked_options(activation, normalization or "none")
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
    @checked
    def from_matrices(
        cls,
        query: Float[Array, "head embedding width"],
        key: Float[Array, "head embedding width"],
        value: Float[Array, "head embedding width"],
        output: Float[Array, "head outputs embedding"],
        **options: Unpack[MultiHeadOptions],
    ) -> "MultiHeadAttention":
        """Return the model with given whole matrices; columns of the query matrix that never matter are dropped.

        All have columns for inputs and labels but `output`, which is (heads, outputs, embedding); `**options` as in the
        constructor.
        """
        return cls(query[:, :, : query.shape[2] - output.shape[1]], key, value, output, **options)

    @classmethod
    @checked
    @remembered
    def random(
        cls,
        *,
        dim: int,
        outputs: int,
        heads: int,
        embedding: int | None = None,
        scale: float,
        scheme: MultiHeadScheme = "plain",
        key: RandomKey,
        **options: Unpack[MultiHeadOptions],
    ) -> "MultiHeadAttention":
        r"""Return a model with random weights, or some that are multiples of the identity.

        With the scale s and tokens of width E, the `scheme` is

        - "plain": every weight is $\mathcal N(0, s^2)$;
        - "uniform": between $\pm s/\sqrt{n}$, with n the inputs of the layer, E for queries, keys and values and
          $H d_e$ for the output of all heads together; s = 1 is the default of PyTorch's linear layers;
        - "identity": $Q_h = K_h = V_h = sI$, and the output as in "uniform" with s = 1. All heads attend alike, with
          scores of positive sign;
        - "identity-qk": $Q_h = K_h = sI$, and values and output as in "uniform" with s = 1;
        - "opposite": as "identity-qk", with $Q_h = -sI$ in the second half of the heads, of which there is an even
          number.

        The last four are those of the simulations of He, Pan, Chen and Yang (arXiv 2503.12734), which take s = 1 for
        "uniform", $10^{-4}$ for "identity-qk" and $10^{-6}$ for the two others.

        **Arguments:**

        - `dim`: the dimension of an input x.
        - `outputs`: the number of labels of a token.
        - `heads`: the number of heads.
        - `embedding`: the width of a head; by default that of a token, dim + outputs.
        - `scale`: s.
        - `scheme`: which of the above.
        - `key`: a JAX random key.
        - `**options`: `activation`, `normalization`, `attends_query` and `score_scale`, as in the constructor.
        """
        dim, outputs, heads = checks.whole("dim", dim), checks.whole("outputs", outputs), checks.whole("heads", heads)
        width = dim + outputs
        embedding = width if embedding is None else checks.whole("embedding", embedding)
        wide = (heads, embedding, width)
        shapes = (heads, embedding, dim), wide, wide, (heads, outputs, embedding)
        scale = check_scale(scale)
        if checks.one_of("scheme", scheme, get_args(MultiHeadScheme)) == "plain":
            return cls(*gaussians(shapes, (scale,) * 4, key=key), **options)
        size = scale if scheme == "uniform" else 1.0
        bounds = (size * width**-0.5,) * 3 + (size * (heads * embedding) ** -0.5,)
        query, keys, value, output = uniforms(shapes, bounds, key=key)
        if scheme != "uniform":
            if scheme == "opposite" and heads % 2:
                raise InvalidInput(f"{heads} heads; the scheme opposite needs an even number, half of each sign")
            keys = jnp.broadcast_to(scale * jnp.eye(embedding, width), wide)
            second_half = (jnp.arange(heads) >= heads / 2) & (scheme == "opposite")
            query = jnp.where(second_half, -1.0, 1.0)[:, None, None] * keys[:, :, :dim]
            value = keys if scheme == "identity" else value
        return cls(query, keys, value, output, **options)

    @classmethod
    @checked
    @remembered
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
        r"""Return the diagonal initialization of the published simulation.

        $Q_h = a_h I$, $K_h = b_h I$, $V_h = O_h = r\,\mathrm{diag}(1 + (c - 1) 1_{h = i})$ on labels, 0 on inputs, with
        $a_h, b_h \sim \mathcal N(0, \text{scale}^2)$, so that $\omega^h$ is the same for all tasks and of either sign.
        Heads are as wide as a token.

        **Arguments:**

        - `dim`: the dimension of an input x.
        - `outputs`: the number of labels of a token.
        - `heads`: the number of heads.
        - `scale`: the standard deviation of $a_h$ and $b_h$.
        - `readout`: r.
        - `advantage`: c, the factor by which head i reads label i more than others; it enters both value and output.
        - `key`: a JAX random key.
        - `**options`: `activation`, `normalization`, `attends_query` and `score_scale`, as in the constructor.
        """
        dim, outputs, heads = checks.whole("dim", dim), checks.whole("outputs", outputs), checks.whole("heads", heads)
        readout = checks.number("readout", readout)
        advantage = checks.number("advantage", advantage)
        width = dim + outputs
        require_weights((heads, width, dim), (heads, width, width), (heads, width, width), (heads, outputs, width))
        spread = check_scale(scale)
        a, b = gaussians(((heads, 1, 1), (heads, 1, 1)), (spread, spread), key=key)
        own = jnp.eye(heads, outputs)
        reading = readout * (1 + (advantage - 1) * own)[:, :, None] * jnp.eye(outputs)
        output = jnp.pad(reading, ((0, 0), (0, 0), (dim, 0)))
        value = jnp.pad(output, ((0, 0), (dim, 0), (0, 0)))
        whole = jnp.eye(width)
        return cls(a * whole[:, :dim], b * whole, value, output, **options)

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
