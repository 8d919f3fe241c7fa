"""The exact full-batch loss of linear attention from moments of the data."""

from collections.abc import Iterable, Iterator
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from stepwell._util import checks
from stepwell._util.arguments import check_fields, checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory
from stepwell._util.progress import Meter
from stepwell._util.recipes import remember
from stepwell._util.text import shown
from stepwell._util.types import Loss, Normalization, RandomKey
from stepwell.models import AbstractModel, check_form, effective_map, form_of, is_attention, map_rank, map_shape
from stepwell.tasks import AbstractTask, Batch, FeatureBatch

from ._abstract_objective import AbstractQuadraticObjective, require
from ._model_checks import as_attention, as_cubic, check_label_blocks, check_linear

Features = Literal["full", "cubic"]

_WORKING_SET = 2**26
"""Bytes of feature vectors held at a time while moments are gathered."""

_UNKNOWN_LENGTH = 31
"""Context of the sequences on which a declared form is checked, where the moments do not say."""


class Moments(AbstractQuadraticObjective):
    r"""The loss of linear attention over given sequences, from moments of the data: exactly what `Sampled` computes.

    $L = c + \tfrac1O \sum_o (\Theta_o^\top G\, \Theta_o - 2\, b_o^\top \Theta_o)$

    Linear attention is linear in features $\phi$ of a sequence, $\hat y_o = \Theta_o^\top \phi$, so the data enter the
    loss only through $G = \langle\phi\phi^\top\rangle$, $b_o = \langle y_o \phi\rangle$ and
    $c = \tfrac1O \langle \|y\|^2 \rangle$. They are gathered in one pass; no step touches the data again.

    Build it with `of_batch`, `of_chunks`, `of_task` (bounded memory for any number of sequences) or `of_features`.

    **Arguments:**

    - `gram`: $G$, of shape (features, features).
    - `cross`: $b$, of shape (outputs, features).
    - `label_power`: $c$.
    - `dim`: the dimension D of an input.
    - `outputs`: the number O of outputs.
    - `features`: "full": $\phi = \mathrm{upper}(S) \otimes x_q$ with $S = s_N \sum_s z_s z_s^\top$; with $S$ symmetric,
      $\Theta_o$ is $\sum_h U_h \otimes W_h$ with the entries for (a, b) and (b, a) added. Or "cubic": $\phi = \beta
      x_q^\top$; label blocks must be zero, and get no gradient.
    - `normalization`: what attention is divided by, $s_N$; None where the features were given and their normalization
      is not known.
    - `attends_query`: whether the query is among the tokens s.
    - `_longest`: the longest context of the data, by which a model's declared form is checked; None where it is not
      known.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 8)
    >>> batch = task.sample(100, key=jax.random.key(0))
    >>> moments, sampled = sw.objectives.Moments.of_batch(batch), sw.objectives.Sampled(batch)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.5)
    >>> abs(float(moments(model)) - float(sampled(model))) < 1e-12
    True
    """

    gram: Float[Array, "features features"]
    cross: Float[Array, "outputs features"]
    label_power: Float[Array, ""]
    dim: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    features: Features = eqx.field(static=True)
    normalization: Normalization | None = eqx.field(static=True)
    attends_query: bool = eqx.field(static=True)
    _longest: Int[Array, ""] | None = None

    def __check_init__(self):
        check_fields(self)

    @classmethod
    @checked
    def of_batch(
        cls,
        batch: Batch,
        *,
        features: Features = "full",
        normalization: Normalization = "1/N",
        attends_query: bool = True,
    ) -> "Moments":
        """Return the moments of sequences in memory.

        **Arguments:**

        - `batch`: the sequences.
        - `features`: "full" for any linear attention, or "cubic", which are fewer and leave out the label blocks.
        - `normalization`: what attention is divided by, as in the model.
        - `attends_query`: whether the query is among the tokens attended to, as in the model.
        """
        options = {"features": features, "normalization": normalization, "attends_query": attends_query}
        return remember(cls.of_chunks([batch], **options), "of_batch", batch=batch, **options)

    @classmethod
    @checked
    def of_task(
        cls,
        task: AbstractTask,
        sequences: int,
        *,
        features: Features = "full",
        normalization: Normalization = "1/N",
        attends_query: bool = True,
        progress: bool = True,
        key: RandomKey,
    ) -> "Moments":
        """Return the moments of sequences drawn on the fly, in bounded memory.

        **Arguments:**

        - `task`: the distribution of sequences.
        - `sequences`: how many are drawn; they are those of `task.sample(sequences, key=key)`.
        - `features`, `normalization`, `attends_query`: as in `of_batch`.
        - `progress`: whether to show a progress bar.
        - `key`: the random key that the sequences are drawn from.
        """
        parts = task.chunks(sequences, key=key, size=1)  # the smallest there are stay in cache
        chunks = _counted(parts, sequences, progress)
        options = {"features": features, "normalization": normalization, "attends_query": attends_query}
        return remember(cls.of_chunks(chunks, **options), "of_task", task=task, sequences=sequences, key=key, **options)

    @classmethod
    @checked
    def of_chunks(
        cls,
        chunks: Iterable[Batch],
        *,
        features: Features = "full",
        normalization: Normalization = "1/N",
        attends_query: bool = True,
    ) -> "Moments":
        """Return the moments of a data set given in parts: batches of sequences, each used once; an iterator will do.
        Options are those of `of_batch`."""
        checks.one_of("features", features, ("full", "cubic"))
        checks.one_of("normalization", normalization, get_args(Normalization))
        gathered, dim, outputs, longest = None, 0, 0, 0
        for chunk in chunks:
            if not isinstance(chunk, Batch):
                raise InvalidInput(f"chunks has {shown(chunk)}; it must be a list or an iterator of Batch")
            dim, outputs, longest = chunk.dim, chunk.outputs, max(longest, chunk.context.longest)
            for piece in _pieces(chunk, features):
                gathered = _gather(gathered, piece, features, normalization, attends_query)
        if gathered is None:
            raise InvalidInput("there are no sequences; give at least one chunk")
        count, matrix, cross, power = gathered
        sums = matrix / count, cross / count, power / count
        return cls(*sums, dim, outputs, features, normalization, attends_query, jnp.asarray(longest))

    @classmethod
    @checked
    def of_parts(cls, parts: Iterable[tuple["Moments", int]]) -> "Moments":
        """Return the moments of a data set, from those of its parts: their mean, by numbers of sequences.

        `parts` has pairs of both for each part; an iterator will do, and one is held at a time.
        """
        first, count, totals, longest = None, 0, [], 0
        for entry in parts:
            if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], Moments)):
                raise InvalidInput(f"parts has {shown(entry)}; it must have pairs of Moments and numbers of sequences")
            part, size = entry[0], checks.whole("number of sequences", entry[1])
            if first is None:
                first, totals = part, [np.zeros(each.shape) for each in (part.gram, part.cross, part.label_power)]
            if _kind(part) != _kind(first):
                raise InvalidInput(
                    f"parts have moments of {_kind(first)} and of {_kind(part)} (dim, outputs, features, "
                    "normalization, attends_query); they must be the same"
                )
            for total, each in zip(totals, (part.gram, part.cross, part.label_power), strict=True):
                total += size * np.asarray(each)
            count += size
            longest = None if longest is None or part._longest is None else max(longest, int(part._longest))
        if first is None:
            raise InvalidInput("there are no parts; give at least one")
        gram, cross, power = (jax.device_put(total / count) for total in totals)
        return cls(gram, cross, power, *_kind(first), None if longest is None else jnp.asarray(longest))

    @classmethod
    @checked
    def of_features(cls, batch: FeatureBatch) -> "Moments":
        """Return the moments of cubic feature vectors, outputs · dim · dim numbers each, whatever normalization they
        were made with."""
        outputs = batch.labels.shape[1]
        dim = round((batch.features.shape[1] / outputs) ** 0.5)
        require(
            outputs * dim * dim == batch.features.shape[1],
            f"{batch.features.shape[1]} features for {outputs} outputs; cubic features number outputs * dim * dim",
        )
        return cls(*_sums(batch), dim, outputs, "cubic", None, True)

    @checked
    def coefficients(self, model: AbstractModel) -> Float[Array, "outputs features"]:
        r"""Return the coefficients $\Theta$ of the features."""
        if self.features == "cubic":
            return effective_map(as_cubic(model)).reshape(self.outputs, -1)
        attention = as_attention(model)
        whole = jnp.einsum("hoa,hbc->oabc", attention.readout(), attention.bilinear())
        rows, columns = np.triu_indices(self.dim + self.outputs)
        both = (whole + whole.transpose(0, 2, 1, 3))[:, rows, columns]
        return (both * np.where(rows == columns, 0.5, 1.0)[:, None]).reshape(self.outputs, -1)

    @checked
    def quadratic(self, coefficients: Float[Array, "outputs features"]) -> Loss:
        theta = coefficients
        return self.label_power + jnp.sum(theta * (theta @ self.gram - 2 * self.cross)) / self.outputs

    @checked
    def check(self, model: AbstractModel) -> None:
        if self.normalization is not None:
            check_linear(model, self.normalization)
        cubic = as_cubic(model) if self.features == "cubic" else as_attention(model)
        require(
            self.normalization is not None or not (is_attention(model) or form_of(model) == "linear"),
            f"{type(model).__name__} reads tokens, the moments are of feature vectors; gather them from a Batch",
        )
        outputs, dim = map_shape(cubic)
        require(
            (outputs, dim) == (self.outputs, self.dim),
            f"the model has {outputs} outputs and dimension {dim}, the data {self.outputs} and {self.dim}; "
            "they must agree",
        )
        if self.features == "cubic":
            check_label_blocks(cubic)
        else:
            attends = as_attention(model).attends_query
            require(
                attends == self.attends_query,
                f"the model has attends_query={attends}, the moments {self.attends_query}; "
                "gather them with the model's",
            )
        check_form(model, length=_UNKNOWN_LENGTH if self._longest is None else int(self._longest))

    @checked
    def floor(self, model: AbstractModel) -> float | None:
        """Return the loss of least squares, where the model can reach it: one output and a map of full rank."""
        if self.features != "cubic" or self.outputs != 1 or map_rank(model) != self.dim:
            return None
        gram, cross = np.asarray(self.gram), np.asarray(self.cross)[0]
        return float(self.label_power) - float(cross @ np.linalg.lstsq(gram, cross, rcond=None)[0])


def _kind(moments: Moments) -> tuple[int, int, Features, Normalization | None, bool]:
    """What must be the same for moments to be of one loss."""
    return moments.dim, moments.outputs, moments.features, moments.normalization, moments.attends_query


def _counted(chunks: Iterable[Batch], n: int, progress: bool) -> Iterator[Batch]:
    """The chunks, with progress shown."""
    done = 0
    with Meter("gathering moments", n, shown=progress, steady=True) as meter:
        for chunk in chunks:
            yield chunk
            done += chunk.size
            meter.update(done)


def _pieces(chunk: Batch, features: Features) -> Iterable[Batch]:
    """The chunk in parts whose feature vectors fit into the working set."""
    width, lengths = chunk.dim + chunk.outputs, len(chunk.context.counts)
    count = chunk.dim * (width * (width + 1) // 2 if features == "full" else chunk.dim * chunk.outputs)
    require_memory(
        3 * 8 * count**2,
        what=f"the moment matrix of {count} features (dimension {chunk.dim}, {features})",
        instead="use features='cubic', or Population, which needs no matrix of features",
    )
    # Varying lengths need running sums over the tokens, see `Batch`.
    numbers = lengths * count + (0 if chunk.context.fixed else chunk.context.tokens * width**2)
    size = max(1, _WORKING_SET // (8 * numbers))
    for start in range(0, chunk.size, size):
        stop = start + size
        yield Batch(chunk.tokens[start:stop], chunk.labels[start:stop], chunk.context)


def _sums(batch: FeatureBatch):
    root = jnp.sqrt(batch.weights)[:, None]
    phi, y = batch.features * root, batch.labels * root
    return phi.T @ phi, y.T @ phi, jnp.sum(y**2) / y.shape[1]


@eqx.filter_jit
def _gather(gathered, piece: Batch, features: Features, normalization: Normalization, attends_query: bool):
    """Running totals (sequences, G, b, c), with one more piece of the data."""
    if features == "full":
        examples = piece.full_features(normalization, attends_query=attends_query)
    else:
        examples = piece.cubic_features(normalization)
    sums = tuple(piece.size * part for part in _sums(examples))
    new = (jnp.asarray(float(piece.size)), *sums)
    return new if gathered is None else tuple(a + b for a, b in zip(gathered, new, strict=True))
