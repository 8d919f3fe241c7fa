"""What all attention models share: scores, an activation, a weighted sum of tokens, a readout."""

import abc
from typing import TypedDict, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.types import Activation, Normalization, Tokens
from stepwell.tasks import attention_scale

from ._model import AbstractCubicModel


class AttentionOptions(TypedDict, total=False):
    """The settings of every attention beside its weights, as keywords; `AbstractAttention` explains them."""

    activation: Activation
    normalization: Normalization | None
    attends_query: bool


class AbstractAttention(AbstractCubicModel):
    r"""Attention from the query to the tokens of its sequence, read out at the query.

    For tokens $z_s = (x_s, y_s)$ and the query $z_q = (x_q, 0)$, each head h has a bilinear score and a readout:

    $\hat y = \sum_h U_h \sum_s a_{hs} z_s, \quad a_h = c \cdot \mathrm{activation}_s(z_s^\top W_h z_q)$

    with $W_h$ (width, dim; the label of the query is zero, so further columns would never matter) and $U_h$
    (outputs, width) put together from the weights in each final class's own way. c is the `normalization`.
    `attends_query` says whether the query is among the tokens s. The residual stream adds nothing to $\hat y$, since
    the query's label is zero.
    """

    activation: eqx.AbstractVar[Activation]
    normalization: eqx.AbstractVar[Normalization]
    attends_query: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def bilinear(self) -> Float[Array, "head width dim"]:
        r"""Return the matrices $W_h$ of the scores: that of token z for the query x is $z^\top W_h x$."""

    @abc.abstractmethod
    def directions(self, query: Float[Array, " dim"]) -> Float[Array, "head width"]:
        """Return $W_h x_q$, without forming $W_h$ where it is of low rank."""

    @abc.abstractmethod
    def readout(self) -> Float[Array, "head outputs width"]:
        r"""Return the readout $U_h$: the prediction is $\sum_h U_h$ times the pooled tokens of head h."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Dimension of an input x."""

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, dim)."""
        return self.readout().shape[1], self.dim

    def effective_map(self) -> Float[Array, "outputs labels dim dim"]:
        r"""Return the effective map, $A_{op} = \sum_h U_h[o, D+p] \, W_h[:D]$."""
        return jnp.einsum("hop,hij->opij", self.readout()[..., self.dim :], self.bilinear()[:, : self.dim])

    def head_maps(self) -> Float[Array, "head outputs labels dim dim"]:
        r"""Return the part of each head in the effective map, $A_{h,op} = U_h[o, D+p] \, W_h[:D]$."""
        return jnp.einsum("hop,hij->hopij", self.readout()[..., self.dim :], self.bilinear()[:, : self.dim])

    def label_blocks(self) -> list[Array]:
        r"""Return the readout of inputs ($\mathbf v$) and the score of labels (u)."""
        return [self.readout()[..., : self.dim], self.bilinear()[:, self.dim :]]

    @checked
    def __call__(self, example: Tokens, length: Int[Array, ""] | None = None) -> Float[Array, " outputs"]:
        """The prediction (outputs,) for the query of one sequence of tokens (tokens, dim + outputs).

        `length` is the number of tokens that are the context; the next one is the query, whose label is not read, and
        what follows is ignored. By default the last token is the query.
        """
        readout = self.readout()
        if example.shape[1] != self.dim + readout.shape[1]:
            raise InvalidInput(
                f"example has tokens of width {example.shape[1]}; this model reads {self.dim} inputs and "
                f"{readout.shape[1]} labels a token"
            )
        total = example.shape[0]
        position = total - 1 if length is None else length
        place = jnp.arange(total)
        query = example[position, : self.dim]
        is_query = (place == position)[:, None]
        tokens = jnp.where(is_query & (jnp.arange(example.shape[1]) >= self.dim), 0.0, example)
        attended = place <= position if self.attends_query else place < position
        scores = tokens @ self.directions(query).T
        if self.activation == "softmax":
            attention = jax.nn.softmax(jnp.where(attended[:, None], scores, -jnp.inf), axis=0)
        else:
            scores = jax.nn.relu(scores) if self.activation == "relu" else scores
            attention = jnp.where(attended[:, None], scores, 0.0)
        pooled = attention.T @ tokens * attention_scale(self.normalization, position)
        return jnp.einsum("how,hw->o", readout, pooled)


def checked_options(activation: Activation, normalization: Normalization | None) -> tuple[Activation, Normalization]:
    """Both options, checked. By default softmax attention is not divided by anything, and other attention by N."""
    checks.one_of("activation", activation, get_args(Activation))
    if normalization is None:
        return activation, "none" if activation == "softmax" else "1/N"
    return activation, checks.one_of("normalization", normalization, get_args(Normalization))
