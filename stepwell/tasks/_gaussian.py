"""Tasks whose sequences are made of standard Gaussians: fast, and of finite samples that can be exactly white."""

import abc
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_arrays
from stepwell._util.progress import Meter
from stepwell._util.types import RandomKey

from ._abstract_task import BLOCK, AbstractTask, Correction, block_numbers
from ._batch import Batch
from ._random import ahead, generator, standard_normals

Inputs = Float[Array, "sequences tokens dim"]
TaskVectors = Float[Array, "sequences dim outputs"]
Labels = Float[Array, "sequences tokens outputs"]
Places = Int[Array, " sequences"]
Total = int | Int[Array, ""]


class AbstractGaussianTask(AbstractTask):
    """A task whose sequences are made of standard Gaussians.

    A final class says how, in `compose`; this base draws the Gaussians, natively where it can, in threads ahead of
    their use. Beside those of every task a class has these fields or properties: `centered` and `whitened`, whether
    finite samples are corrected (see `correction`); and `noisy`.
    """

    centered: eqx.AbstractVar[bool]
    whitened: eqx.AbstractVar[bool]

    @property
    @abc.abstractmethod
    def noisy(self) -> bool:
        """Whether `compose` reads the noise; if not, none is drawn."""

    @abc.abstractmethod
    def compose(self, inputs: Inputs, tasks: TaskVectors, noise: Labels, index: Places, total: Total) -> Batch:
        """Return sequences made of standard Gaussians, a `Batch` as `assemble` makes it. JAX traces this method.

        **Arguments:**

        - `inputs`: Gaussians for the inputs of all tokens, the query last.
        - `tasks`: Gaussians for the task vectors, one for each output.
        - `noise`: Gaussians for the noise of labels; zeros unless the task is `noisy`.
        - `index`: the place of each sequence in the sample, from 0.
        - `total`: the number of sequences in the whole sample, which may be a traced number.
        """

    @checked
    def draw(self, sequences: int, *, key: RandomKey) -> Batch:
        """Draw sequences by one traceable computation, for use under `jax.jit`.

        These are other sequences than those of `sample` with the same key, and finite samples are not corrected.
        """
        sequences = checks.whole("number of sequences", sequences)
        require_arrays(
            (sequences, _per_sequence(self)), what=f"{sequences} sequences drawn at once", instead="draw fewer"
        )
        parts = _parts(self, standard_normals(key, (sequences, _per_sequence(self))))
        return self.compose(*parts, jnp.arange(sequences), sequences)

    def drawn_blocks(
        self, sequences: int, key: RandomKey, numbers: range, correction: Correction | None
    ) -> Iterator[Batch]:
        """Return blocks of Gaussians drawn in threads, corrected."""
        known = self.correction(sequences, key=key) if correction is None else correction
        total, normals = jnp.asarray(sequences), zip(numbers, _normals_of(self, key, numbers), strict=True)
        return (_block(self, part, jnp.asarray(number), total, known) for number, part in normals)

    @checked
    def correction(self, sequences: int, *, key: RandomKey) -> Correction | None:
        """Return what to subtract and to divide by for a sample to be centered and white, as the task demands.

        Inputs are centered at each position over the sequences; task vectors get mean zero and sample covariance I
        (divisor n - 1) for each output. The blocks are drawn once for these statistics and again for use. None if the
        task is neither `centered` nor `whitened`; if `whitened`, more than `dim` sequences are needed.
        """
        if not (self.centered or self.whitened):
            return None
        return self.correction_of(sequences, self.correction_sums(sequences, key=key))

    @checked
    def correction_sums(
        self, sequences: int, *, key: RandomKey, numbers: range | None = None
    ) -> tuple[np.ndarray, ...]:
        """Return the sums over sequences that `correction_of` needs; those of several blocks may be added.

        They are of inputs (tokens, dim), task vectors (dim, outputs) and their squares (outputs, dim, dim), over the
        blocks with these `numbers`, by default all.
        """
        sequences = checks.whole("number of sequences", sequences)
        if self.whitened and sequences <= self.dim:
            raise InvalidInput(
                f"{sequences} task vectors of dimension {self.dim} cannot be whitened; "
                f"take more than {self.dim} sequences"
            )
        wanted = block_numbers(sequences) if numbers is None else numbers
        totals = None
        with Meter("centering and whitening", len(wanted) * BLOCK, steady=True) as meter:
            for number, normals in zip(wanted, _normals_of(self, key, wanted), strict=True):
                sums = _sums(self, normals, jnp.asarray(number), jnp.asarray(sequences))
                totals = sums if totals is None else jax.tree.map(jnp.add, totals, sums)
                meter.update((number - wanted.start) * BLOCK)
        assert totals is not None
        return tuple(np.asarray(total) for total in totals)

    @checked
    def correction_of(self, sequences: int, sums: tuple[np.ndarray, ...]) -> Correction:
        """Return the correction of a sample of so many sequences, from what `correction_sums` returned for all blocks,
        or the sum of what it returned for each."""
        input_sum, task_sum, task_square = sums
        dim, outputs = self.dim, self.outputs
        input_mean = input_sum / sequences if self.centered else np.zeros_like(input_sum)
        task_mean, whitener = np.zeros((dim, outputs)), np.broadcast_to(np.eye(dim), (outputs, dim, dim))
        if self.whitened:
            task_mean = task_sum / sequences
            spread = (task_square - sequences * np.einsum("io,jo->oij", task_mean, task_mean)) / (sequences - 1)
            lam, vectors = np.linalg.eigh(spread)
            whitener = np.einsum("oik,ok,ojk->oij", vectors, lam**-0.5, vectors)
        return Correction(jax.device_put(input_mean), jax.device_put(task_mean), jax.device_put(whitener))


def _per_sequence(task: AbstractGaussianTask) -> int:
    """Gaussians that one sequence is made of."""
    tokens, dim, outputs = task.context.tokens, task.dim, task.outputs
    return tokens * dim + dim * outputs + (tokens * outputs if task.noisy else 0)


def _parts(task: AbstractGaussianTask, normals: Float[Array, "sequences numbers"]):
    """Inputs, task vectors and noise from one array of standard Gaussians."""
    tokens, dim, outputs = task.context.tokens, task.dim, task.outputs
    inputs, tasks, noise = jnp.split(normals, [tokens * dim, (tokens + outputs) * dim], axis=1)
    return (
        inputs.reshape(-1, tokens, dim),
        tasks.reshape(-1, dim, outputs),
        noise.reshape(-1, tokens, outputs) if task.noisy else jnp.zeros((normals.shape[0], tokens, outputs)),
    )


def _normals_of(
    task: AbstractGaussianTask, key: RandomKey, numbers: range
) -> Iterator[Float[Array, "sequences numbers"]]:
    """All Gaussians of some blocks, block by block."""
    shape = BLOCK, _per_sequence(task)
    return map(jax.device_put, ahead(lambda block: generator(key, block).standard_normal(shape), numbers))


@eqx.filter_jit
def _block(
    task: AbstractGaussianTask,
    normals: Float[Array, "sequences numbers"],
    number: Int[Array, ""],
    total: Int[Array, ""],
    correction: Correction | None,
) -> Batch:
    inputs, tasks, noise = _parts(task, normals)
    if correction is not None:
        inputs = inputs - correction.input_mean
        tasks = jnp.einsum("sio,oij->sjo", tasks - correction.task_mean, correction.task_whitener)
    return task.compose(inputs, tasks, noise, number * BLOCK + jnp.arange(BLOCK), total)


@eqx.filter_jit
def _sums(
    task: AbstractGaussianTask,
    normals: Float[Array, "sequences numbers"],
    number: Int[Array, ""],
    total: Int[Array, ""],
):
    inputs, tasks, _ = _parts(task, normals)
    counted = (number * BLOCK + jnp.arange(BLOCK) < total)[:, None, None]
    inputs, tasks = inputs * counted, tasks * counted
    return inputs.sum(0), tasks.sum(0), jnp.einsum("sio,sjo->oij", tasks, tasks)
