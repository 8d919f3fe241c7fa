"""Moments of more sequences than one machine would draw: parts of them on the workers of a cluster, and their mean."""

import contextlib
import functools
import operator
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.progress import Meter
from stepwell._util.recipes import remember
from stepwell._util.types import Normalization, RandomKey
from stepwell.objectives import Features, Moments
from stepwell.tasks import BLOCK, AbstractGaussianTask, AbstractTask

from ._cluster import Cluster, open_cluster

_SECONDS = 2.0  # how long a part should take, about
_PARTS = 32  # parts at the least, if there are as many blocks: so many workers have something to do
_RATE = 5e9  # multiplications a second, and a thousandth of that in random numbers


@checked
def moments(
    task: AbstractTask,
    sequences: int,
    *,
    workers: int | None = None,
    client: Any = None,
    scheduler: str | None = None,
    features: Features = "full",
    normalization: Normalization = "1/N",
    attends_query: bool = True,
    progress: bool = True,
    key: RandomKey,
) -> Moments:
    """Return the moments of sequences that the workers of a cluster draw: those of `Moments.of_task`, to rounding.

    Each worker draws some blocks of 2048 sequences and returns their moments, which are added up here in the order of
    the blocks: numbers do not depend on how many workers there are, and of their results a few are held at a time. A
    task that is `centered` or `whitened` takes two passes, both on the cluster. The blocks of a killed worker are drawn
    again.

    **Arguments:**

    - `task`: the distribution of sequences. Workers must be able to import its class.
    - `sequences`: how many are drawn; they are those of `task.sample(sequences, key=key)`.
    - `workers`: how many processes to start on this machine; or one of the next two.
    - `client`: a `dask.distributed.Client` of a cluster.
    - `scheduler`: the address of a scheduler, such as `tcp://10.0.0.1:8786`.
    - `features`: "full" for any linear attention, or "cubic", which are fewer and leave out the label blocks.
    - `normalization`: what attention is divided by, as in the model.
    - `attends_query`: whether the query is among the tokens attended to, as in the model.
    - `progress`: whether to show a progress bar.
    - `key`: the random key that the sequences are drawn from.

    **Returns:** the loss over these sequences, a `Moments`.

    **Example:**

    >>> task = sw.InContextRegression(sw.covariance([0.6, 0.4]), 8)
    >>> shared = sw.sweeps.moments(task, 5000, workers=1, key=jax.random.key(0), progress=False)
    >>> alone = sw.Moments.of_task(task, 5000, key=jax.random.key(0), progress=False)
    >>> bool(abs(shared.gram - alone.gram).max() < 1e-12)
    True
    """
    sequences = checks.whole("number of sequences", sequences)
    _check_blocks(task)
    packed = _packed(key)
    parts = _parts(task, sequences)
    options = {"features": features, "normalization": normalization, "attends_query": attends_query}
    with open_cluster(workers=workers, client=client, scheduler=scheduler) as cluster:
        correction = _correction(cluster, task, sequences, packed, parts, progress)
        items = ((task, sequences, packed, numbers, correction, options) for numbers in parts)
        results = cluster.map(_part, items, in_order=True)
        with contextlib.closing(results):  # it handles signals, and an error that is kept would keep it
            made = Moments.of_parts(_counted(results, parts, sequences, "moments", progress))
    return remember(made, "of_task", task=task, sequences=sequences, key=key, **options)


def _check_blocks(task: AbstractTask) -> None:
    kind = type(task)
    own = kind.drawn_blocks not in (None, AbstractGaussianTask.drawn_blocks)
    if own or kind.chunks is not AbstractTask.chunks or kind.blocks is not AbstractTask.blocks:
        raise InvalidInput(
            f"{kind.__name__} has blocks or chunks of its own, which cannot be drawn in parts on several machines; "
            "use Moments.of_task, or Moments.of_parts of what you draw"
        )


def _parts(task: AbstractTask, sequences: int) -> list[range]:
    """The numbers of the blocks of each part; they depend on the task alone, and so do the last digits."""
    width = task.dim + task.outputs
    block = BLOCK * ((task.dim * width * (width + 1) / 2) ** 2 + 1000 * task.context.tokens * width) / _RATE
    blocks = -(-sequences // BLOCK)
    size = max(1, min(int(_SECONDS / block), blocks // _PARTS))
    return [range(begin, min(begin + size, blocks)) for begin in range(0, blocks, size)]


def _correction(
    cluster: Cluster, task: AbstractTask, sequences: int, key: Any, parts: list[range], progress: bool
) -> Any:
    if not isinstance(task, AbstractGaussianTask) or not (task.centered or task.whitened):
        return None
    results = cluster.map(_sums, ((task, sequences, key, numbers) for numbers in parts), in_order=True)
    counted = _counted(results, parts, sequences, "centering and whitening", progress)
    totals = functools.reduce(lambda one, other: tuple(map(operator.add, one, other)), (sums for sums, _ in counted))
    return task.correction_of(sequences, totals)


def _counted(results: Iterator[Any], parts: list[range], sequences: int, name: str, progress: bool) -> Iterator[Any]:
    """Results, each with the number of its sequences, and progress shown."""
    done = 0
    with Meter(name, sequences, shown=progress, steady=True) as meter:
        meter.update(0)
        for numbers, result in zip(parts, results, strict=True):
            size = min(sequences, numbers.stop * BLOCK) - numbers.start * BLOCK
            yield result, size
            done += size
            meter.update(done)


def _packed(key: RandomKey) -> tuple[np.ndarray, str | None]:
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return np.asarray(key), None
    return np.asarray(jax.random.key_data(key)), str(jax.random.key_impl(key))


def _unpacked(packed: tuple[np.ndarray, str | None]) -> RandomKey:
    data, kind = packed
    return jnp.asarray(data) if kind is None else jax.random.wrap_key_data(jnp.asarray(data), impl=kind)


def _part(
    task: AbstractTask, sequences: int, key: Any, numbers: range, correction: Any, options: dict[str, Any]
) -> Moments:
    """The moments of some blocks, on a worker."""
    chunks = task.chunks(sequences, key=_unpacked(key), size=1, numbers=numbers, correction=correction)
    return Moments.of_chunks(chunks, **options)


def _sums(task: AbstractGaussianTask, n: int, key: Any, numbers: range) -> tuple[np.ndarray, ...]:
    """What the correction of some blocks is made of, on a worker."""
    return task.correction_sums(n, key=_unpacked(key), numbers=numbers)
