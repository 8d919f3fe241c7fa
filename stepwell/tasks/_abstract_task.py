"""What every task can do: draw sequences, all at once or in chunks of bounded size."""

import abc
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util import checks, text
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory
from stepwell._util.recipes import remember
from stepwell._util.spectrum import spectrum_of
from stepwell._util.types import Normalization, RandomKey

from ._batch import Batch, concatenate
from ._context_lengths import ContextLengths
from ._random import THREADS


class Correction(eqx.Module):
    """Shifts and whitening that make a finite sample exactly centered or white; see `correction`."""

    input_mean: Float[Array, "tokens dim"]
    task_mean: Float[Array, "dim outputs"]
    task_whitener: Float[Array, "outputs dim dim"]


class PopulationMoments(eqx.Module):
    r"""Second moments of $\beta = s_N \sum_n y_n x_n$, of the task vector and of the query.

    They are averaged over context lengths, with $s_N$ set by the attention's normalization, and are for targets
    $y_q = w^\top x_q$ with a query $x_q$ of mean zero that is independent of the context and of w. With several outputs
    these moments are those of every one of them, and the $\beta$ of two outputs are uncorrelated with each other and
    with the other's w.

    **Arguments:**

    - `input`: $\Lambda = E[x_q x_q^\top]$, (dim, dim).
    - `cross`: $M = E[\beta w^\top]$, (dim, dim).
    - `second`: $C = E[\beta \beta^\top]$, (dim, dim).
    - `label_power`: $E[y_q^2] = \mathrm{tr}(E[w w^\top]\Lambda)$, the loss of predicting zero.

    **Example:**

    White inputs in two dimensions and a context of 10 pairs; the lowest loss of linear attention,
    $E[y_q^2] - \mathrm{tr}(M^\top C^{-1} M \Lambda)$:

    >>> one = np.eye(2)
    >>> moments = sw.tasks.PopulationMoments(input=one, cross=one, second=(1 + 3 / 10) * one, label_power=2.0)
    >>> explained = moments.cross.T @ np.linalg.solve(moments.second, moments.cross) @ moments.input
    >>> print(f"{moments.label_power - np.trace(explained):.4f}")
    0.4615
    """

    input: Float[np.ndarray, "dim dim"]
    cross: Float[np.ndarray, "dim dim"]
    second: Float[np.ndarray, "dim dim"]
    label_power: float


_CHUNK = 2**26
"""Bytes of sequences handed over at a time."""
BLOCK = 2048
"""Sequences drawn by one call. Block number b of a key is always the same, however many are asked for."""


class AbstractTask(eqx.Module):
    """The base of every task, a distribution over sequences: say how to draw some, in `draw`.

    A class has these fields or properties: `context`, a `ContextLengths`; `dim`, the dimension of an input; and
    `outputs`, the number of labels of a token. Its `draw(sequences, key=key)` returns a `Batch` of so many sequences,
    by any random numbers that are made from the key; `assemble` makes a batch of inputs and labels. `SamplerTask` makes
    a task of a function alone.

    From that, `sample` and `chunks` draw block by block: the sequences of `sample(n)` are the first of `sample(m)` for
    n < m, and `chunks` yields them without ever holding more than a few blocks.

    A method `closed_form(normalization)`, which returns `PopulationMoments`, is optional: with it the task has
    `moments`, and `Population` and the theory of linear attention take it.

    **Example:**

    Task vectors of which one coordinate in four is not zero:

    >>> class Sparse(sw.tasks.AbstractTask):
    ...     context: sw.tasks.ContextLengths
    ...     dim: int = 8
    ...     outputs: int = 1
    ...     def draw(self, sequences, *, key):
    ...         inputs, vectors, coins = jax.random.split(key, 3)
    ...         x = jax.random.normal(inputs, (sequences, self.context.tokens, self.dim))
    ...         w = jax.random.normal(vectors, (sequences, self.dim))
    ...         w = w * jax.random.bernoulli(coins, 0.25, (sequences, self.dim))
    ...         y = jnp.einsum("sni,si->sn", x, w)[..., None]
    ...         return sw.tasks.assemble(x, y, y, self.context)
    >>> Sparse(sw.tasks.ContextLengths(20)).sample(100, key=jax.random.key(0)).tokens.shape
    (100, 21, 9)
    """

    context: eqx.AbstractVar[ContextLengths]
    outputs: eqx.AbstractVar[int]
    if TYPE_CHECKING:  # a field in some classes, a property in others

        @property
        def dim(self) -> int: ...

    else:
        dim: eqx.AbstractVar[int]

    closed_form: ClassVar[Callable[..., PopulationMoments] | None] = None
    """Optional: a method `closed_form(normalization)` that returns the `PopulationMoments`."""
    drawn_blocks: ClassVar[Callable[..., Iterator[Batch]] | None] = None
    """Optional: a method `drawn_blocks(sequences, key, numbers, correction)`, where blocks are not those of `draw`."""

    @abc.abstractmethod
    def draw(self, sequences: int, *, key: RandomKey) -> Batch:
        """Return a `Batch` of so many sequences by one computation, which `online` traces inside `jax.jit`.

        These may be other sequences than those of `sample` with the same key.
        """

    def __repr__(self) -> str:
        return text.one_line(self, self._facts())

    def _repr_html_(self) -> str:
        return text.html_table(self, self._facts())

    def _facts(self) -> dict[str, Any]:
        """Sizes, eigenvalues of covariances in falling order, and settings."""
        counts = self.context.counts
        facts: dict[str, Any] = {"dim": self.dim, "context": counts[0] if len(counts) == 1 else counts}
        for name in ("covariance", "task_covariance"):
            matrix = getattr(self, name, None)
            white = isinstance(matrix, np.ndarray) and np.array_equal(matrix, np.eye(len(matrix)))
            if isinstance(matrix, np.ndarray) and not (white and name == "task_covariance"):
                eigenvalues = np.sort(spectrum_of(matrix).values)[::-1]
                facts[name.replace("covariance", "eigenvalues")] = text.short_numbers(eigenvalues)
        return {**facts, **text.plain_fields(self, but=("dim", "context"))}

    @checked
    def moments(self, normalization: Normalization = "1/N") -> PopulationMoments:
        """Return the moments at infinitely many sequences, in closed form; a class without them raises `InvalidInput`.

        `normalization` says what the sum over context pairs is divided by.
        """
        name = type(self).__name__
        if self.closed_form is None:
            raise InvalidInput(
                f"{name} has no closed-form moments: its class has no method closed_form(normalization) that returns "
                "PopulationMoments; write one, or use Moments.of_task, which measures them on samples"
            )
        moments = self.closed_form(normalization)
        if not isinstance(moments, PopulationMoments):
            raise InvalidInput(f"moments() of {name} returned a {type(moments).__name__}; it must be PopulationMoments")
        return moments

    @checked
    def blocks(
        self, sequences: int, *, key: RandomKey, numbers: range | None = None, correction: Correction | None = None
    ) -> Iterator[Batch]:
        """Return the blocks of 2048 sequences that `chunks` and `sample` are made of; the last is not cut.

        `numbers` are those of the blocks wanted, counted from 0, by default all; `correction` is as in `chunks`.
        """
        wanted = block_numbers(sequences) if numbers is None else numbers
        if self.drawn_blocks is not None:
            return self.drawn_blocks(sequences, key, wanted, correction)
        return (fitting(self, self.draw(BLOCK, key=jax.random.fold_in(key, number)), BLOCK) for number in wanted)

    @checked
    def chunks(
        self,
        sequences: int,
        *,
        key: RandomKey,
        size: int | None = None,
        numbers: range | None = None,
        correction: Correction | None = None,
    ) -> Iterator[Batch]:
        """Return the sequences of `sample(sequences, key=key)`, a `Batch` at a time.

        **Arguments:**

        - `sequences`: the number of sequences in all.
        - `key`: a JAX random key.
        - `size`: the number of sequences in a part, rounded down to a multiple of 2048, and at least 2048; by default
          as many as take about 64 MiB.
        - `numbers`: of the blocks of 2048 sequences that are wanted, a range such as `range(10, 20)`; by default all.
          What several machines draw of one sample, each its own blocks, is the whole of it.
        - `correction`: of tasks that are `centered` or `whitened`, what `correction(sequences, key=key)` returned; by
          default it is computed, from all blocks.
        """
        sequences = checks.whole("number of sequences", sequences)
        block = 8 * BLOCK * self.context.tokens * (self.dim + 2 * self.outputs)
        require_memory(
            (4 + THREADS) * block,
            what=f"{BLOCK} sequences of {self.context.tokens} tokens in dimension {self.dim}",
            instead="take a shorter context or a smaller dimension",
        )
        blocks = max(1, _CHUNK // block if size is None else checks.whole("chunk size", size) // BLOCK)
        wanted = block_numbers(sequences) if numbers is None else numbers
        if wanted and (wanted.step != 1 or wanted[0] < 0 or wanted[-1] not in block_numbers(sequences)):
            raise InvalidInput(
                f"numbers is {wanted}; {sequences} sequences are {block_numbers(sequences)} of {BLOCK} each"
            )
        made = self.blocks(sequences, key=key, numbers=wanted, correction=correction)
        left = sequences - wanted.start * BLOCK
        while part := list(itertools.islice(made, blocks)):
            yield _first(concatenate(part), left)
            left -= len(part) * BLOCK

    @checked
    def sample(self, sequences: int, *, key: RandomKey) -> Batch:
        """Draw sequences, all in memory at once; `chunks` yields the same ones part by part.

        If the task is `centered` or `whitened`, the sample is so exactly.
        """
        sequences = checks.whole("number of sequences", sequences)
        width = self.context.tokens * (self.dim + 2 * self.outputs)
        require_memory(
            2 * 8 * sequences * width,
            what=f"a data set of {sequences} sequences of {self.context.tokens} tokens",
            instead="take fewer, or stream them: Moments.of_task never holds more than a chunk",
        )
        drawn = _first(concatenate(list(self.chunks(sequences, key=key))), sequences)
        return remember(drawn, "sample", task=self, sequences=sequences, key=key)


def block_numbers(sequences: int) -> range:
    """The numbers of the blocks that these sequences are drawn in."""
    return range(-(-sequences // BLOCK))


def fitting(task: AbstractTask, batch: Any, sequences: int) -> Batch:
    """The batch, if it has the number and the shape of sequences that the task says."""
    name = type(task).__name__
    if not isinstance(batch, Batch):
        raise InvalidInput(
            f"draw() of {name} returned a {type(batch).__name__}; it must return a Batch, as assemble does"
        )
    given = batch.size, batch.context.counts, batch.dim, batch.outputs
    wanted = sequences, task.context.counts, task.dim, task.outputs
    if given != wanted:
        words = "{} sequences, context lengths {}, dimension {} and {} outputs"
        raise InvalidInput(
            f"draw() of {name} returned {words.format(*given)}; asked for, or said by the task, are "
            f"{words.format(*wanted)}"
        )
    return batch


def _first(batch: Batch, sequences: int) -> Batch:
    if batch.size <= sequences:
        return batch
    tokens, labels = (jax.device_put(np.asarray(part)[:sequences]) for part in (batch.tokens, batch.labels))
    return Batch(tokens, labels, batch.context)


@checked
def assemble(
    inputs: Float[Array, "sequences tokens dim"],
    shown: Float[Array, "sequences tokens outputs"],
    truth: Float[Array, "sequences tokens outputs"],
    context: ContextLengths,
) -> Batch:
    """Return a batch of tokens (x, shown label), the last label zeroed.

    **Arguments:**

    - `inputs`: x of every token, the query last.
    - `shown`: the labels in the tokens, with noise if there is any; that of the query is not read.
    - `truth`: the labels that a model should predict.
    - `context`: the context lengths of the task, of which the longest is one less than the number of tokens.

    **Returns:** the `Batch`, with tokens of width dim + outputs and `truth` as its labels.

    **Example:**

    >>> x, y = jnp.full((1, 3, 2), 0.5), jnp.ones((1, 3, 1))
    >>> sw.tasks.assemble(x, y, y, sw.tasks.ContextLengths(2)).tokens.tolist()
    [[[0.5, 0.5, 1.0], [0.5, 0.5, 1.0], [0.5, 0.5, 0.0]]]
    """
    tokens = jnp.concatenate([inputs, shown.at[:, -1].set(0.0)], axis=-1)
    return Batch(tokens, truth, context)
