"""The loss over given sequences, by running the model on each."""

from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell._util import checks, text
from stepwell._util.arguments import check_fields, checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory
from stepwell._util.types import Loss, Precision
from stepwell.models import AbstractModel, check_form, check_weights, is_attention, is_proved
from stepwell.tasks import Batch, FeatureBatch, prefix

from ._abstract_objective import AbstractObjective, require

Reduce = Literal["mean", "sum"]
"""How the squared errors of several outputs become one: their mean, or their sum."""


class Sampled(AbstractObjective):
    r"""The loss over given sequences, by running the model on each: for any model, by its own `__call__`.

    $L = \sum_n \pi_n \tfrac1P \sum_p \tfrac1O \|y_{p,n} - \hat y_{p,n}\|^2$ over P sequences and context lengths n,
    with O outputs. Gradients go through every token.

    **Arguments:**

    - `batch`: a `Batch` of tokens, of which the model gets one sequence at a time, the query last with its label zero;
      or a `FeatureBatch` for models of cubic features.
    - `reduce`: "mean" over the outputs, or "sum", which leaves out 1/O.
    - `precision`: that in which a native pass, of softmax attention, takes a sequence; sums over sequences are in
      float64 always. With "float32" it takes half the time, and the loss and its gradient keep six digits.

    **Example:**

    One sequence with a context of one pair, (x, y) = (1, 2), and a query x = 1 whose label is 2. The model predicts
    $v k q\, x y x_q = 0.5^3 \cdot 2 = 0.25$.

    >>> batch = sw.tasks.Batch(tokens=jnp.array([[[1.0, 2.0], [1.0, 0.0]]]), labels=jnp.array([[[2.0], [2.0]]]))
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(1), heads=1, scale=0.5)
    >>> float(sw.objectives.Sampled(batch)(model))  # (2 - 0.25)²
    3.0625
    """

    batch: Batch | FeatureBatch
    reduce: Reduce = eqx.field(static=True, default="mean")
    precision: Precision = eqx.field(static=True, default="float64")

    def __check_init__(self):
        check_fields(self)

    @checked
    def __call__(self, model: AbstractModel) -> Loss:
        mean = self._mean(model)
        return mean if self.reduce == "mean" else mean * self.batch.labels.shape[-1]

    def _mean(self, model: AbstractModel) -> Loss:
        if isinstance(self.batch, FeatureBatch):
            predictions = self._predictions(model, self.batch.features)
            return jnp.sum(self.batch.weights * jnp.mean((self.batch.labels - predictions) ** 2, axis=-1))
        tokens, lengths = self.batch.tokens, self.batch.context
        ours = is_proved(model)
        if ours and lengths.fixed and lengths.tokens == tokens.shape[1]:
            predictions = self._predictions(model, tokens)
            return jnp.mean((self.batch.labels[:, -1] - predictions) ** 2)
        counts = jnp.array(lengths.counts)
        if ours:
            assert is_attention(model)
            predictions = jax.vmap(lambda tokens: jax.vmap(lambda n: model(tokens, n))(counts))(tokens)
        else:
            contexts = [prefix(tokens, n, self.batch.dim) for n in lengths.counts]
            predictions = jnp.stack([self._predictions(model, context) for context in contexts], axis=1)
        errors = jnp.mean((self.batch.labels[:, counts] - predictions) ** 2, axis=(0, 2))
        return jnp.array(lengths.probabilities) @ errors

    def _predictions(
        self, model: AbstractModel, examples: Float[Array, "sequences ..."]
    ) -> Float[Array, "sequences outputs"]:
        """The model's prediction for every example."""
        predictions = jax.vmap(model)(examples)
        wanted = (self.batch.labels.shape[-1],)
        if jnp.shape(predictions)[1:] != wanted or not jnp.issubdtype(predictions.dtype, jnp.floating):
            raise InvalidInput(
                f"{type(model).__name__} predicts for one example of shape {examples.shape[1:]} an array of shape "
                f"{jnp.shape(predictions)[1:]} and type {predictions.dtype}; the data ask for {wanted}, of floats"
            )
        return predictions

    @checked
    def check(self, model: AbstractModel) -> None:
        checks.one_of("reduce", self.reduce, get_args(Reduce))
        checks.one_of("precision", self.precision, get_args(Precision))
        if is_proved(model):
            self._check_ours(model)
            return
        check_weights(model)
        self._check_call(model)
        if isinstance(self.batch, Batch):
            check_form(model, length=self.batch.context.longest, tokens=self.batch.tokens)

    def _check_ours(self, model: AbstractModel) -> None:
        if isinstance(self.batch, FeatureBatch):
            require(
                not is_attention(model),
                f"{type(model).__name__} reads tokens, the data are feature vectors; give the Batch itself",
            )
            return
        require(
            is_attention(model),
            f"{type(model).__name__} reads cubic features, the data are tokens; give batch.cubic_features()",
        )
        assert is_attention(model)
        tokens, lengths = self.batch.tokens, len(self.batch.context.counts)
        heads = model.readout().shape[0]
        require_memory(
            3 * 8 * lengths * tokens.shape[0] * tokens.shape[1] * (tokens.shape[2] + 2 * heads),
            what=f"a gradient through {tokens.shape[0]} sequences of {tokens.shape[1]} tokens and {heads} heads",
            instead="take fewer sequences, train online, or use Moments where attention is linear",
        )
        outputs, dim = model.shape
        require(
            (outputs, dim) == (self.batch.outputs, self.batch.dim),
            f"the model has {outputs} outputs and dimension {dim}, the data {self.batch.outputs} and "
            f"{self.batch.dim}; they must agree",
        )

    def _check_call(self, model: AbstractModel) -> None:
        """Any model can be called on the data and differentiated, in the memory that there is; nothing is computed."""
        given = self.batch.tokens if isinstance(self.batch, Batch) else self.batch.features
        kind = "sequence of tokens" if isinstance(self.batch, Batch) else "feature vector"

        def gradient(weights: dict[str, Array]) -> Any:
            loss, pull = jax.vjp(lambda weights: self(model.with_weights(weights)), weights)
            return pull, pull(jnp.ones_like(loss))

        try:
            kept, _ = jax.eval_shape(gradient, model.weights())
        except InvalidInput:
            raise
        except Exception as error:
            other = "give batch.cubic_features()" if isinstance(self.batch, Batch) else "give the Batch itself"
            raise InvalidInput(
                f"{type(model).__name__} cannot be called on a {kind} of shape {given.shape[1:]} and differentiated "
                f"({text.error_line(error)}); write its __call__ for one such example (if it reads the other kind of "
                f"data, {other})"
            ) from error
        # What is kept for the gradient, and as much again while it is computed.
        require_memory(
            2 * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(kept)),
            what=f"a gradient through {given.shape[0]} examples of {type(model).__name__}",
            instead="take fewer sequences, or train online",
        )

    @checked
    def floor(self, model: AbstractModel) -> float | None:
        return None
