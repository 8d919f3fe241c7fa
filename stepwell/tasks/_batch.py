"""Sequences as they are handed to a model."""

from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import Remembering, remembered
from stepwell._util.types import Normalization, SequenceLabels, SequenceTokens

from ._context_lengths import ContextLengths, attention_scale


class Batch(Remembering):
    """Sequences of tokens (x, y), the query last with its label zeroed, and every true label.

    **Arguments:**

    - `tokens`: (sequences, tokens, dim + outputs), each token an input followed by its labels.
    - `labels`: (sequences, tokens, outputs). `labels[:, n]` is what a model that has the first n tokens as its context
      should predict for token n; only those at the context lengths are used, with one length only the query's.
    - `context`: the distribution of context lengths; by default one length, with the last token as the query. The
      longest may be shorter than the sequences; tokens that follow its query are then ignored.

    **Example:**

    One sequence with y = 2x: two pairs of context, and the query x = 3.

    >>> tokens = jnp.array([[[1.0, 2.0], [2.0, 4.0], [3.0, 0.0]]])
    >>> batch = sw.tasks.Batch(tokens, labels=jnp.array([[[2.0], [4.0], [6.0]]]))
    >>> batch.size, batch.dim, batch.outputs, batch.context.longest
    (1, 1, 1, 2)
    """

    tokens: SequenceTokens
    labels: SequenceLabels
    context: ContextLengths

    @checked
    def __init__(self, tokens: SequenceTokens, labels: SequenceLabels, context: ContextLengths | None = None):
        self.tokens = tokens
        self.labels = labels
        self.context = ContextLengths(tokens.shape[1] - 1) if context is None else context
        if tokens.shape[:2] != labels.shape[:2] or labels.shape[2] >= tokens.shape[2]:
            raise InvalidInput(
                f"tokens of shape {tokens.shape} and labels of shape {labels.shape} do not belong together; "
                "give (sequences, tokens, dim + outputs) and (sequences, tokens, outputs)"
            )
        if self.context.tokens > tokens.shape[1]:
            raise InvalidInput(
                f"a context of {self.context.longest} needs {self.context.tokens} tokens, got {tokens.shape[1]}"
            )

    @property
    def size(self) -> int:
        return self.tokens.shape[0]

    @property
    def outputs(self) -> int:
        return self.labels.shape[2]

    @property
    def dim(self) -> int:
        return self.tokens.shape[2] - self.outputs

    @checked
    @remembered
    @eqx.filter_jit
    def cubic_features(self, normalization: Normalization = "1/N") -> "FeatureBatch":
        r"""Return the cubic features $z = \mathrm{vec}(\beta x_q^\top)$ of every sequence, at every context length.

        $\beta = s_N \sum_{n \le N} y_n x_n$, with the `normalization` $s_N$. Several outputs are stacked: the feature
        vector is (outputs, dim, dim) in row-major order. There is one example for each sequence and context length,
        weighted by the probability of that length.
        """
        x, y = self.tokens[..., : self.dim], self.tokens[..., self.dim :]
        return self._features_of(_context_sums(y, x, self.context), normalization)

    @checked
    @remembered
    @eqx.filter_jit
    def full_features(self, normalization: Normalization = "1/N", *, attends_query: bool = True) -> "FeatureBatch":
        r"""Return all that the prediction of a linear attention depends on, with any label blocks.

        $\phi = \mathrm{upper}(S) \otimes x_q$, $S = s_N \sum_s z_s z_s^\top$ over the tokens $z_s$ of the context and,
        if attention includes it (`attends_query`), the query (x_q, 0). Examples are as in `cubic_features`.
        """
        sums = _context_sums(self.tokens, self.tokens, self.context)
        if attends_query:
            x = self.tokens[:, np.array(self.context.counts), : self.dim]
            sums = sums.at[..., : self.dim, : self.dim].add(x[..., :, None] * x[..., None, :])
        rows, columns = np.triu_indices(self.dim + self.outputs)
        return self._features_of(sums[..., rows, columns], normalization)

    def _features_of(self, sums: Float[Array, "sequences lengths ..."], normalization: Normalization) -> "FeatureBatch":
        """The outer product of context sums with the query, scaled; one example per sequence and context length."""
        counts = np.array(self.context.counts)
        scale = np.broadcast_to(attention_scale(normalization, counts), counts.shape)
        flat = sums.reshape(*sums.shape[:2], -1) * scale[:, None]
        features = flat[..., :, None] * self.tokens[:, counts, None, : self.dim]
        weights = np.broadcast_to(np.array(self.context.probabilities) / self.size, sums.shape[:2])
        examples = self.size * counts.size
        return FeatureBatch(
            features.reshape(examples, -1),
            self.labels[:, counts].reshape(examples, self.outputs),
            jnp.asarray(weights.reshape(-1)),
        )


def _context_sums(
    left: Float[Array, "sequences tokens left"], right: Float[Array, "sequences tokens right"], context: ContextLengths
) -> Float[Array, "sequences lengths left right"]:
    """Sums of outer products over the first n tokens, for each context length n."""
    if context.fixed:
        n = context.longest
        return jnp.einsum("sna,snb->sab", left[:, :n], right[:, :n])[:, None]
    running = jnp.cumsum(left[..., :, None] * right[..., None, :], axis=1)
    return running[:, np.array(context.counts) - 1]


@checked
def prefix(tokens: SequenceTokens, length: int, dim: int) -> Float[Array, "sequences context width"]:
    """Return the first tokens of every sequence as its context, and the next as the query, its label zeroed.

    **Arguments:**

    - `tokens`: sequences of more than `length` tokens.
    - `length`: the number of context pairs.
    - `dim`: the dimension of an input; the entries of a token from there on are its labels.

    **Returns:** the sequences, cut to `length` + 1 tokens.

    **Example:**

    >>> tokens = jnp.array([[[1.0, 2.0], [2.0, 4.0], [3.0, 0.0]]])
    >>> sw.tasks.prefix(tokens, 1, dim=1).tolist()
    [[[1.0, 2.0], [2.0, 0.0]]]
    """
    if not 0 <= length < tokens.shape[1]:
        raise InvalidInput(
            f"length is {length}; of {tokens.shape[1]} tokens it must be from 0 to {tokens.shape[1] - 1}"
        )
    return tokens[:, : length + 1].at[:, length, dim:].set(0.0)


class FeatureBatch(Remembering):
    """Examples given as feature vectors, each with a label vector and a weight.

    `Batch.cubic_features` returns these. A loss is the weighted sum of squared errors over the examples.

    **Arguments:**

    - `features`: (examples, features).
    - `labels`: (examples, outputs).
    - `weights`: the weight of each example, 0 or more. They should add up to one, which is not checked. By default all
      examples have the same weight.

    **Example:**

    The cubic feature of the sequence (1, 2), (2, 4) with the query 3 is (1·2 + 2·4)/2 · 3 = 15.

    >>> batch = sw.tasks.FeatureBatch(jnp.array([[15.0], [5.0]]), jnp.array([[6.0], [2.0]]))
    >>> batch.size, batch.weights.tolist()
    (2, [0.5, 0.5])
    """

    features: Float[Array, "sequences features"]
    labels: Float[Array, "sequences outputs"]
    weights: Float[Array, " sequences"]

    @checked
    def __init__(
        self,
        features: Float[Array, "sequences features"],
        labels: Float[Array, "sequences outputs"],
        weights: Float[Array, " sequences"] | None = None,
    ):
        size = features.shape[0]
        if weights is not None and not isinstance(weights, Tracer) and np.any(np.asarray(weights) < 0):
            raise InvalidInput(f"a weight of an example is {float(np.min(weights)):g}; weights are 0 or more")
        self.features = features
        self.labels = labels
        self.weights = jnp.full(size, 1.0 / size) if weights is None else weights

    @property
    def size(self) -> int:
        return self.features.shape[0]


@checked
def concatenate(batches: list[Batch]) -> Batch:
    """Return one batch of all sequences, in order.

    **Arguments:**

    - `batches`: at least one batch, all with sequences of equal shape. The context lengths of the first are kept.

    **Returns:** the `Batch` of all sequences.

    **Example:**

    >>> task = sw.tasks.InContextRegression(np.eye(2), 5)
    >>> batches = [task.sample(10, key=jax.random.key(seed)) for seed in range(3)]
    >>> sw.tasks.concatenate(batches).size
    30
    """
    if len(batches) == 0:
        raise InvalidInput("batches are empty; give at least one")
    if len(batches) == 1:
        return batches[0]
    tokens = cast(SequenceTokens, jax.device_put(np.concatenate([b.tokens for b in batches])))
    labels = cast(SequenceLabels, jax.device_put(np.concatenate([b.labels for b in batches])))
    return Batch(tokens, labels, batches[0].context)
