"""Softmax attention reduced to the eigenvalues of its matrices."""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import remembered
from stepwell._util.types import Activation, Normalization

from ._attention import AbstractAttention, checked_options
from ._initialization import ScoreScale, score_scale_of
from ._model import Form


class SpectralAttention(AbstractAttention):
    r"""Decomposable attention in its eigenbasis: one $\omega_i^h$ and one $\mu_i^h$ for each head and task.

    $\hat y_i = \sum_h \mu_i^h \sum_l p_l^h\, y_{l,i}$,
    $p^h = \mathrm{softmax}_l \sum_i \omega_i^h \langle x_l^{(i)}, x_q^{(i)} \rangle$,

    with $x^{(i)}$ the block of $d_i$ inputs that belongs to task i. It reads tokens in the task's own basis; see
    `decomposable` for the same attention in any other, with whole matrices.

    The weights are the factors of the eigenvalues, $\omega_i = s\, k_i q_i/d_i$ and $\mu_i = v_i o_i$. Key and query
    have $d_i$ equal singular values $k_i/\sqrt{d_i}$, which move together; taken as one coordinate of length $k_i$,
    plain gradient flow here is exactly the flow of the whole matrices.

    **Arguments:**

    - `key`: $k_i$, (heads, tasks).
    - `query`: $q_i$, (heads, tasks).
    - `value`: $v_i$, (heads, tasks).
    - `output`: $o_i$, (heads, tasks).
    - `dims`: $d_i$, the dimension of each task.
    - `embedding`: the width $d_e$ of a head, by default the smallest, $d = \sum_i d_i$; it only sets the scale of the
      scores, with `score_scale="head"`.
    - `score_scale`: s, "head" for $1/\sqrt{d_e}$, "token" for one over the root of a token's width, or a positive
      number.
    - `activation`: what turns scores into attention weights: "softmax", "linear" or "relu" (the positive part).
    - `normalization`: what attention is divided by: "1/N" (the number of context pairs), "1/tokens" or "none". By
      default "none", whatever the activation.

    **Example:**

    One head, one task of four dimensions: $\omega = \tfrac{1}{\sqrt4}\, 2 \cdot 2/4$.

    >>> two, one = jnp.array([[2.0]]), jnp.array([[1.0]])
    >>> model = sw.models.SpectralAttention(key=two, query=two, value=one, output=one, dims=(4,))
    >>> model.omega().tolist(), model.mu().tolist()
    ([[0.5]], [[1.0]])
    """

    key: Float[Array, "head task"]
    query: Float[Array, "head task"]
    value: Float[Array, "head task"]
    output: Float[Array, "head task"]
    dims: tuple[int, ...] = eqx.field(static=True)
    score_scale: float = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    normalization: Normalization = eqx.field(static=True)
    attends_query: bool = eqx.field(static=True)

    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = dict.fromkeys(
        ("key", "query", "value", "output"), ("head", "task")
    )
    factors: ClassVar[int] = 4
    declared_form: ClassVar[Form] = "spectral"

    @checked
    def __init__(
        self,
        key: Float[Array, "head task"],
        query: Float[Array, "head task"],
        value: Float[Array, "head task"],
        output: Float[Array, "head task"],
        *,
        dims: Sequence[int],
        embedding: int | None = None,
        score_scale: float | ScoreScale = "head",
        activation: Activation = "softmax",
        normalization: Normalization | None = None,
    ):
        self.key, self.query = jnp.asarray(key), jnp.asarray(query)
        self.value, self.output = jnp.asarray(value), jnp.asarray(output)
        self.dims = tuple(checks.whole("dimension of a task", d) for d in dims)
        wanted = (self.key.shape[0], len(self.dims))
        for name, weight in self.weights().items():
            if weight.shape != wanted:
                raise InvalidInput(f"{name} has shape {weight.shape}; with dims {self.dims} it must be {wanted}")
        embedding = self.dim if embedding is None else checks.whole("embedding", embedding)
        self.score_scale = score_scale_of(score_scale, embedding=embedding, width=self.dim + len(self.dims))
        self.activation, self.normalization = checked_options(activation, normalization or "none")
        self.attends_query = False

    @classmethod
    @checked
    @remembered
    def balanced(
        cls,
        omega: Float[Array, "head task"] | Float[np.ndarray, "head task"],
        mu: Float[Array, "head task"] | Float[np.ndarray, "head task"],
        dims: Sequence[int],
        *,
        embedding: int | None = None,
        score_scale: float | ScoreScale = "head",
        activation: Activation = "softmax",
        normalization: Normalization | None = None,
    ) -> "SpectralAttention":
        r"""Return the model with given eigenvalues and balanced weights, $|k| = |q|$, $|v| = |o|$.

        The flow conserves that. Keys and values are not negative; queries and outputs have the signs of the
        eigenvalues.

        **Arguments:**

        - `omega`: $\omega_i^h$, the eigenvalues of the scores, (heads, tasks), the factor s included.
        - `mu`: $\mu_i^h$, the eigenvalues of the readout, (heads, tasks).
        - `dims`, `embedding`, `score_scale`, `activation`, `normalization`: as in the constructor.
        """
        ones = jnp.ones_like(jnp.asarray(omega, dtype=float))
        scores: dict[str, Any] = {"embedding": embedding, "score_scale": score_scale}
        model = cls(*[ones] * 4, dims=dims, **scores, activation=activation, normalization=normalization)
        units = np.broadcast_to(model.score_scale / np.array(model.dims), ones.shape)
        query, key = _halves(jnp.asarray(omega, dtype=float), jnp.asarray(units))
        output, value = _halves(jnp.asarray(mu, dtype=float), jnp.asarray(np.ones(jnp.shape(mu))))
        return model.with_weights({"key": key, "query": query, "value": value, "output": output})

    def omega(self) -> Float[Array, "head task"]:
        r"""Return the eigenvalues of the scores, $\omega_i^h$, (heads, tasks), the factor s of the scores included."""
        return self.key * self.query * (self.score_scale / np.array(self.dims))

    def mu(self) -> Float[Array, "head task"]:
        r"""Return the eigenvalues of the readout, $\mu_i^h$, (heads, tasks)."""
        return self.value * self.output

    @property
    def dim(self) -> int:
        return sum(self.dims)

    def bilinear(self) -> Float[Array, "head width dim"]:
        return jnp.pad(self._spread()[:, :, None] * jnp.eye(self.dim), ((0, 0), (0, len(self.dims)), (0, 0)))

    def directions(self, query: Float[Array, " dim"]) -> Float[Array, "head width"]:
        return jnp.pad(self._spread() * query, ((0, 0), (0, len(self.dims))))

    def readout(self) -> Float[Array, "head outputs width"]:
        return jnp.pad(self.mu()[:, :, None] * jnp.eye(len(self.dims)), ((0, 0), (0, 0), (self.dim, 0)))

    def map_rank(self) -> int | None:
        return None

    def _spread(self) -> Float[Array, "head dim"]:
        """The eigenvalue of every input coordinate."""
        return self.omega()[:, np.repeat(np.arange(len(self.dims)), self.dims)]


@jax.jit
def _halves(
    product: Float[Array, "head task"], unit: Float[Array, "head task"]
) -> tuple[Float[Array, "head task"], Float[Array, "head task"]]:
    """Two factors of the same size, whose product times the unit is given; the first takes the sign."""
    root = jnp.sqrt(jnp.abs(product / unit))
    return jnp.sign(product) * root, root
