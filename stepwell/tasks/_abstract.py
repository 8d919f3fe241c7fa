"""What every task can do: draw sequences, all at once or in chunks of bounded size."""

import abc
import itertools
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from stepwell import _check, _portrait
from stepwell._arguments import checked
from stepwell._errors import InvalidInput
from stepwell._memory import require_arrays, require_memory
from stepwell._progress import Meter
from stepwell._recipes import remember
from stepwell._spectrum import spectrum_of
from stepwell._types import Normalisation, RandomKey

from ._ahead import THREADS, ahead
from ._batch import Batch, concatenate
from ._generator import generator
from ._lengths import ContextLengths
from ._moments import PopulationMoments
from ._normals import standard_normals

_CHUNK = 2**26
"""Bytes of sequences handed over at a time."""
_BLOCK = 2048
"""Sequences drawn by one compiled call. Block number b of a key is always the same, however many are asked for."""


class Correction(eqx.Module):
    """Shifts and whitening that make a finite sample exactly centred or white; see `AbstractTask.correction`."""

    input_mean: Float[Array, "tokens dim"]
    task_mean: Float[Array, "dim outputs"]
    task_whitener: Float[Array, "outputs dim dim"]


class AbstractTask(eqx.Module):
    """A distribution over sequences.

    A final class says how sequences are made of standard Gaussians, in `compose`; this base draws the Gaussians, block
    by block, so that those of `sample(n)` are the first of `sample(m)` for n < m, and `chunks` yields the sequences of
    `sample` without ever holding more than a few blocks of them.

    A final class has these fields or properties: `lengths`, a `ContextLengths`; `outputs`, the number of labels of a
    token; `centred` and `whitened`, whether finite samples are corrected (see `correction`).
    """

    lengths: eqx.AbstractVar[ContextLengths]
    outputs: eqx.AbstractVar[int]
    centred: eqx.AbstractVar[bool]
    whitened: eqx.AbstractVar[bool]

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Dimension of an input x."""

    @property
    @abc.abstractmethod
    def noisy(self) -> bool:
        """Whether `compose` reads the noise; if not, none is drawn."""

    @abc.abstractmethod
    def compose(
        self,
        inputs: Float[Array, "sequences tokens dim"],
        tasks: Float[Array, "sequences dim outputs"],
        noise: Float[Array, "sequences tokens outputs"],
        index: Int[Array, " sequences"],
        total: int | Int[Array, ""],
    ) -> Batch:
        """Sequences made of standard Gaussians. It is traced by JAX.

        **Arguments:**

        - `inputs`: Gaussians for the inputs of all tokens, the query last.
        - `tasks`: Gaussians for the task vectors, one for each output.
        - `noise`: Gaussians for the noise of labels; zeros unless the task is `noisy`.
        - `index`: the place of each sequence in the sample, from 0.
        - `total`: the number of sequences in the whole sample, which may be a traced number.

        **Returns:** the sequences; `assemble` makes a `Batch` of inputs and labels.
        """

    def __repr__(self) -> str:
        return _portrait.line(self, self._facts())

    def _repr_html_(self) -> str:
        return _portrait.table(self, self._facts())

    def _facts(self) -> dict[str, Any]:
        """Sizes, eigenvalues of covariances in falling order, and settings."""
        counts = self.lengths.counts
        facts: dict[str, Any] = {"dim": self.dim, "context": counts[0] if len(counts) == 1 else counts}
        for name in ("covariance", "task_covariance"):
            matrix = getattr(self, name, None)
            white = isinstance(matrix, np.ndarray) and np.array_equal(matrix, np.eye(len(matrix)))
            if isinstance(matrix, np.ndarray) and not (white and name == "task_covariance"):
                eigenvalues = np.sort(spectrum_of(matrix).values)[::-1]
                facts[name.replace("covariance", "eigenvalues")] = _portrait.numbers(eigenvalues)
        return {**facts, **_portrait.settings(self, but=("dim", "lengths"))}

    @checked
    def moments(self, normalisation: Normalisation = "1/N") -> PopulationMoments:
        """The moments of the population in closed form, for a task that has them.

        **Arguments:**

        - `normalisation`: what the sum over context pairs is divided by: "1/N", "none" or "1/tokens".

        **Returns:** the `PopulationMoments`. A class without closed-form moments raises `InvalidInput`.
        """
        raise InvalidInput(
            f"{type(self).__name__} has no closed-form moments: its class has no method moments(normalisation) that "
            "returns PopulationMoments; write one, or use Moments.of_task, which measures them on samples"
        )

    @checked
    def draw(self, size: int, *, key: RandomKey) -> Batch:
        """Draw sequences by one traceable computation, for use under `jax.jit`.

        These are other sequences than those of `sample` with the same key, and finite samples are not corrected.

        **Arguments:**

        - `size`: the number of sequences.
        - `key`: a JAX random key.

        **Returns:** a `Batch` of `size` sequences.
        """
        size = _check.whole("size", size)
        require_arrays((size, _per_sequence(self)), what=f"{size} sequences drawn at once", instead="draw fewer")
        parts = _parts(self, standard_normals(key, (size, _per_sequence(self))))
        return self.compose(*parts, jnp.arange(size), size)

    @checked
    def chunks(self, n: int, *, key: RandomKey, size: int | None = None) -> Iterator[Batch]:
        """The sequences of `sample(n, key=key)`, a part at a time.

        **Arguments:**

        - `n`: the number of sequences in all.
        - `key`: a JAX random key.
        - `size`: the number of sequences in a part, rounded down to a multiple of 2048, and at least 2048; by default
          as many as take about 64 MiB.

        **Returns:** an iterator over `Batch` objects.
        """
        n = _check.whole("number of sequences", n)
        block = 8 * _BLOCK * self.lengths.tokens * (self.dim + 2 * self.outputs)
        require_memory(
            (4 + THREADS) * block,
            what=f"{_BLOCK} sequences of {self.lengths.tokens} tokens in dimension {self.dim}",
            instead="take a shorter context or a smaller dimension",
        )
        wanted = _CHUNK // block if size is None else _check.whole("chunk size", size) // _BLOCK
        blocks = max(1, wanted)
        correction = self.correction(n, key=key)
        normals, total = _all_normals(self, key, n), jnp.asarray(n)
        made = (_block(self, part, jnp.asarray(number), total, correction) for number, part in enumerate(normals))
        left = n
        while part := list(itertools.islice(made, blocks)):
            yield _first(concatenate(part), left)
            left -= len(part) * _BLOCK

    @checked
    def sample(self, n: int, *, key: RandomKey) -> Batch:
        """Draw sequences, all in memory at once; `chunks` yields the same ones part by part.

        **Arguments:**

        - `n`: the number of sequences.
        - `key`: a JAX random key.

        **Returns:** a `Batch` of `n` sequences. If the task is `centred` or `whitened`, the sample is so exactly.
        """
        n = _check.whole("number of sequences", n)
        width = self.lengths.tokens * (self.dim + 2 * self.outputs)
        require_memory(
            2 * 8 * n * width,
            what=f"a data set of {n} sequences of {self.lengths.tokens} tokens",
            instead="take fewer, or stream them: Moments.of_task never holds more than a chunk",
        )
        drawn = _first(concatenate(list(self.chunks(n, key=key))), n)
        return remember(drawn, "sample", task=self, n=n, key=key)

    @checked
    def correction(self, n: int, *, key: RandomKey) -> Correction | None:
        """What must be subtracted and divided out for a sample to be exactly centred and white, as the task demands.

        Inputs are centred at each position over the sequences; task vectors get mean zero and sample covariance I
        (divisor n - 1) for each output. The blocks are drawn once for these statistics and again for use.

        **Arguments:**

        - `n`: the number of sequences; more than `dim` if the task is `whitened`.
        - `key`: the JAX random key of the sample.

        **Returns:** the correction of the Gaussians, or None if the task is neither `centred` nor `whitened`.
        """
        if not (self.centred or self.whitened):
            return None
        if self.whitened and n <= self.dim:
            raise InvalidInput(
                f"{n} task vectors of dimension {self.dim} cannot be whitened; take more than {self.dim} sequences"
            )
        totals = None
        with Meter("centring and whitening", n, steady=True) as meter:
            for number, normals in enumerate(_all_normals(self, key, n)):
                sums = _sums(self, normals, jnp.asarray(number), jnp.asarray(n))
                totals = sums if totals is None else jax.tree.map(jnp.add, totals, sums)
                meter.update(number * _BLOCK)
        assert totals is not None
        input_sum, task_sum, task_square = (np.asarray(t) for t in totals)
        dim, outputs = self.dim, self.outputs
        input_mean = input_sum / n if self.centred else np.zeros_like(input_sum)
        task_mean, whitener = np.zeros((dim, outputs)), np.broadcast_to(np.eye(dim), (outputs, dim, dim))
        if self.whitened:
            task_mean = task_sum / n
            spread = (task_square - n * np.einsum("io,jo->oij", task_mean, task_mean)) / (n - 1)
            lam, vectors = np.linalg.eigh(spread)
            whitener = np.einsum("oik,ok,ojk->oij", vectors, lam**-0.5, vectors)
        return Correction(jax.device_put(input_mean), jax.device_put(task_mean), jax.device_put(whitener))


def _per_sequence(task: AbstractTask) -> int:
    """Gaussians that one sequence is made of."""
    tokens, dim, outputs = task.lengths.tokens, task.dim, task.outputs
    return tokens * dim + dim * outputs + (tokens * outputs if task.noisy else 0)


def _parts(task: AbstractTask, normals: Float[Array, "sequences numbers"]):
    """Inputs, task vectors and noise from one array of standard Gaussians."""
    tokens, dim, outputs = task.lengths.tokens, task.dim, task.outputs
    inputs, tasks, noise = jnp.split(normals, [tokens * dim, (tokens + outputs) * dim], axis=1)
    return (
        inputs.reshape(-1, tokens, dim),
        tasks.reshape(-1, dim, outputs),
        noise.reshape(-1, tokens, outputs) if task.noisy else jnp.zeros((normals.shape[0], tokens, outputs)),
    )


def _all_normals(task: AbstractTask, key: RandomKey, n: int) -> Iterator[Float[Array, "sequences numbers"]]:
    """All Gaussians of `n` sequences, block by block."""
    shape = _BLOCK, _per_sequence(task)
    blocks = range(-(-n // _BLOCK))
    return map(jax.device_put, ahead(lambda block: generator(key, block).standard_normal(shape), blocks))


@eqx.filter_jit
def _block(
    task: AbstractTask,
    normals: Float[Array, "sequences numbers"],
    number: Int[Array, ""],
    total: Int[Array, ""],
    correction: Correction | None,
) -> Batch:
    inputs, tasks, noise = _parts(task, normals)
    if correction is not None:
        inputs = inputs - correction.input_mean
        tasks = jnp.einsum("sio,oij->sjo", tasks - correction.task_mean, correction.task_whitener)
    return task.compose(inputs, tasks, noise, number * _BLOCK + jnp.arange(_BLOCK), total)


@eqx.filter_jit
def _sums(
    task: AbstractTask, normals: Float[Array, "sequences numbers"], number: Int[Array, ""], total: Int[Array, ""]
):
    inputs, tasks, _ = _parts(task, normals)
    counted = (number * _BLOCK + jnp.arange(_BLOCK) < total)[:, None, None]
    inputs, tasks = inputs * counted, tasks * counted
    return inputs.sum(0), tasks.sum(0), jnp.einsum("sio,sjo->oij", tasks, tasks)


def _first(batch: Batch, n: int) -> Batch:
    if batch.size <= n:
        return batch
    tokens, labels = (jax.device_put(np.asarray(part)[:n]) for part in (batch.tokens, batch.labels))
    return Batch(tokens, labels, batch.lengths)


@checked
def assemble(
    inputs: Float[Array, "sequences tokens dim"],
    shown: Float[Array, "sequences tokens outputs"],
    truth: Float[Array, "sequences tokens outputs"],
    lengths: ContextLengths,
) -> Batch:
    """A batch of tokens (x, shown label), the last label zeroed.

    **Arguments:**

    - `inputs`: x of every token, the query last.
    - `shown`: the labels in the tokens, with noise if there is any; that of the query is not read.
    - `truth`: the labels that a model should answer.
    - `lengths`: the context lengths of the task, of which the longest is one less than the number of tokens.

    **Returns:** the `Batch`, with tokens of width dim + outputs and `truth` as its labels.

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> x, y = jnp.full((1, 3, 2), 0.5), jnp.ones((1, 3, 1))
    >>> sw.tasks.assemble(x, y, y, sw.tasks.ContextLengths(2)).tokens.tolist()
    [[[0.5, 0.5, 1.0], [0.5, 0.5, 1.0], [0.5, 0.5, 0.0]]]
    """
    tokens = jnp.concatenate([inputs, shown.at[:, -1].set(0.0)], axis=-1)
    return Batch(tokens, truth, lengths)
