"""Shards computed by the processes of a cluster, one task a shard: Dask distributed.

A worker computes and returns; this process alone writes to the store. What a worker was computing when it was killed is
computed again by another. Threads are limited, so that workers do not fight for cores.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from stepwell import _check
from stepwell._errors import InvalidInput

from ._plan import Work

if TYPE_CHECKING:
    from ._shard import Shard

_AHEAD = 2
"""Shards that each worker has waiting: enough not to be idle, few enough to be forgotten soon after Ctrl-C."""
_RETRIES = 3
"""How often a shard is given out again whose worker died or lost its connection."""
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
"""The environment of local workers: each has one core."""


@contextlib.contextmanager
def on_cluster(
    *, workers: int | None = None, client: Any = None, scheduler: str | None = None
) -> Iterator[Callable[[Iterable[tuple[Work, int]]], Iterator["Shard"]]]:
    """A way to compute shards on a cluster, for `work_off`: one that is made, one at an address, or a client's.

    **Arguments:**

    - `workers`: how many processes to start on this machine.
    - `client`: a `dask.distributed.Client`.
    - `scheduler`: the address of a scheduler, such as `tcp://10.0.0.1:8786`.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise InvalidInput("several workers need Dask; install it: pip install 'stepwell[cluster]'") from None
    if sum(given is not None for given in (workers, client, scheduler)) != 1:
        raise InvalidInput("give one of workers, client and scheduler")
    with contextlib.ExitStack() as stack:
        if client is None and scheduler is None:
            import dask

            count = _check.whole("workers", workers)
            stack.enter_context(dask.config.set({"distributed.nanny.environ": _ONE_THREAD}))
            options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "silence_logs": 50}
            cluster = stack.enter_context(LocalCluster(n_workers=count, **options))
            client = stack.enter_context(Client(cluster, set_as_default=False))
        elif client is None:
            try:
                client = stack.enter_context(Client(scheduler, set_as_default=False, timeout="10s"))
            except (OSError, ValueError) as error:
                raise InvalidInput(f"there is no scheduler at {scheduler} ({error}); check the address") from None
        yield lambda parts: _computed(client, parts)


def _computed(client: Any, parts: Iterable[tuple[Work, int]]) -> Iterator["Shard"]:
    """Shards as they come; a few more are given out than there are workers."""
    from distributed import CancelledError, CommClosedError, KilledWorker, as_completed

    waiting = iter(parts)
    results = as_completed(loop=client.loop)
    pending: set[Any] = set()

    def give_out() -> None:
        cores = max(1, sum(client.nthreads().values()))
        while len(pending) < _AHEAD * cores:
            part = next(waiting, None)
            if part is None:
                return
            future = client.submit(_compute, *part, pure=False, retries=_RETRIES)
            pending.add(future)
            results.add(future)

    try:
        give_out()
        while pending:
            future = next(results)
            pending.discard(future)
            try:
                made = future.result()
            except KilledWorker:
                raise InvalidInput(
                    "a shard ended its worker several times, perhaps for want of memory; give limits.gigabytes, or "
                    "fewer workers"
                ) from None
            yield made
            give_out()
    except (CancelledError, CommClosedError, OSError) as error:
        raise InvalidInput(
            f"the scheduler of the cluster is gone ({type(error).__name__}); what was computed is kept, and the same "
            "call goes on"
        ) from None
    finally:
        with contextlib.suppress(Exception):
            client.cancel(list(pending), force=True)


def _compute(work: Work, size: int) -> "Shard":
    """One shard, on a worker."""
    from ._compute import compute

    return compute(work, size)
