"""Work given out to the processes of a cluster, one task a piece of work: Dask distributed.

A worker computes and returns; this process alone writes to the store. What a worker was computing when it was killed is
computed again by another: that is Dask's own. Local workers are processes of ours (`_worker.py`) and not those of
`LocalCluster`, which import the main module of the program, get Ctrl-C of its terminal, and share all cores.
"""

import contextlib
import importlib
import logging
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell._util import checks
from stepwell._util.errors import InvalidInput
from stepwell._util.interrupt import Interruptible
from stepwell._util.text import error_line, shown
from stepwell.experiments import LOADED, SECTIONS, find_kind, load_kinds

from ._plan import Block

if TYPE_CHECKING:
    from stepwell.store import Shard

_AHEAD = 2  # tasks given out for each thread of the cluster: enough that none is idle, few enough to be forgotten soon
_TICK = 0.1  # seconds between two checks of signals, workers and the scheduler
_DEATHS = 4  # local workers that may end without any result between, beyond all of them once, before that is an error
_PATIENCE = 3.0  # seconds that a local worker has to end by itself, before it is killed
_LOUD = ("distributed", "tornado", "asyncio")  # they log every worker that ends; here that is handled
_MOST_WORKERS = 1024
_CONNECT = "10s"  # how long a scheduler has to answer
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"), "1")
"""In the environment of local workers; the last is XLA's. On Linux the one core that they may use says the same."""
_SETTINGS = {
    "distributed.scheduler.worker-saturation": 1.0,  # what is begun is what is computed: a shard takes seconds
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.profile.enabled": False,
}


class Cluster:
    """Processes that compute: an open connection to a scheduler, and local workers if there are any."""

    def __init__(self, client: Any, workers: "_LocalWorkers | None" = None):
        self._client, self._workers = client, workers

    def width(self) -> int:
        if self._workers is not None:
            return len(self._workers.processes)
        with _connected():
            return max(1, sum(self._client.nthreads().values()))

    @property
    def processes(self) -> list[int]:
        return [] if self._workers is None else [process.pid for process in self._workers.processes]

    def check(self) -> None:
        """Replace local workers that have ended; `InvalidInput` if nothing will ever come back."""
        if self._workers is not None:
            self._workers.replace_ended()
        if self._client.status not in ("running", "connecting"):
            raise _lost(f"its connection is {self._client.status}")

    def map(
        self, function: Callable[..., Any], items: Iterable[tuple[Any, ...]], *, in_order: bool = False
    ) -> Generator[Any]:
        """`function(*item)` for each, computed by workers; a few are given out ahead, and no more results are held.

        Results come as soon as they are there, or `in_order`. Raises `KeyboardInterrupt` where a signal arrived.
        """
        from distributed import wait

        waiting = iter(items)
        pending: list[Any] = []
        try:
            with Interruptible() as signals:
                while True:
                    if signals.pressed:
                        raise KeyboardInterrupt
                    self.check()
                    while len(pending) < _AHEAD * self.width() and (item := next(waiting, None)) is not None:
                        with _connected():
                            pending.append(self._client.submit(function, *item, pure=False))
                    if not pending:
                        return
                    next_ones = pending[:1] if in_order else pending
                    with contextlib.suppress(Exception):  # what went wrong is raised by `result`
                        wait(next_ones, timeout=_TICK, return_when="FIRST_COMPLETED")
                    future = next((future for future in next_ones if future.done()), None)
                    if future is None:
                        continue
                    pending.remove(future)
                    try:
                        result = future.result()
                    except Exception as error:
                        raise _translated(error, of_task=future.status == "error") from None
                    del future  # its result is forgotten by the cluster
                    if self._workers is not None:
                        self._workers.deaths = 0
                    yield result
        finally:
            with contextlib.suppress(Exception):
                self._client.cancel(pending, force=True)


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _lost(error_line(error)) from None


def _lost(reason: str) -> InvalidInput:
    return InvalidInput(
        f"the scheduler of the cluster is gone ({reason}); what was computed is kept, and the same call resumes it"
    )


def _translated(error: BaseException, *, of_task: bool) -> BaseException:
    """What a task ended with, or what its result could not be fetched for, as an error that a user can act on."""
    from distributed import CancelledError, KilledWorker

    if isinstance(error, KilledWorker):
        return InvalidInput(
            "a shard ended its worker several times, perhaps for want of memory; take fewer workers, or smaller "
            "shards (limits.gigabytes)"
        )
    if isinstance(error, CancelledError):
        return _lost("its tasks were cancelled")
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return InvalidInput("a worker has too little memory; take fewer workers, or smaller shards (limits.gigabytes)")
    if isinstance(error, ImportError):
        return InvalidInput(f"the workers lack a module ({error_line(error)}); install there what is installed here")
    if isinstance(error, OSError):
        line = error_line(error)
        return InvalidInput(f"a worker cannot read or write what it has to ({line})") if of_task else _lost(line)
    return error


class _LocalWorkers:
    """Processes on this machine, each on a core of its own; one that ends is started again."""

    def __init__(self, count: int, address: str, folder: Path):
        self._address, self._folder = address, folder
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [-1]
        random.Random(os.getpid()).shuffle(cores)  # two programs with one worker each need not meet on one core
        self._cores = [cores[number % len(cores)] for number in range(count)]
        self.processes: list[subprocess.Popen] = []
        self.deaths = 0  # how many have ended since the last result

    def __enter__(self) -> "_LocalWorkers":
        self.processes += map(self._start, self._cores)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            _close(process)
        for process in self.processes:
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, core: int) -> subprocess.Popen:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # what can be imported here can be there
        command = [sys.executable, "-P", "-m", "stepwell.sweeps._worker", self._address, str(self._folder), str(core)]
        try:
            with open(self._folder / "errors", "ab") as errors:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=errors,
                    stderr=errors,
                    env={**os.environ, **_ONE_THREAD, "PYTHONPATH": paths},
                    start_new_session=True,  # Ctrl-C in a terminal goes to this process alone
                )
        except OSError as error:
            raise InvalidInput(f"cannot start a worker ({error_line(error)}); take fewer workers") from None

    def replace_ended(self) -> None:
        for number, process in enumerate(self.processes):
            if process.poll() is None:
                continue
            _close(process)
            self.deaths += 1
            if self.deaths > len(self.processes) + _DEATHS:
                lines = (self._folder / "errors").read_text(errors="replace").split("\n")
                last = next((line for line in reversed(lines) if line.strip()), f"status {process.returncode}")
                raise InvalidInput(f"worker processes end by themselves again and again ({shown(last)})")
            self.processes[number] = self._start(self._cores[number])


def _close(process: subprocess.Popen) -> None:
    """Close the pipe to a process, on which it ends."""
    with contextlib.suppress(OSError):
        process.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]


@contextlib.contextmanager
def open_cluster(*, workers: int | None = None, client: Any = None, scheduler: str | None = None) -> Iterator[Cluster]:
    """A cluster: `workers` that are started here, and end with the context, a client's, or one at an address."""
    if sum(given is not None for given in (workers, client, scheduler)) != 1:
        raise InvalidInput("give one of workers, client and scheduler")
    try:
        from distributed import Client
    except ImportError:
        raise InvalidInput("several workers need Dask; install it: pip install 'stepwell[cluster]'") from None
    with contextlib.ExitStack() as stack:
        for name in [one for one in logging.root.manager.loggerDict if one.startswith(_LOUD)]:
            stack.callback(logging.getLogger(name).setLevel, logging.getLogger(name).level)
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        if workers is not None:
            if checks.whole("workers", workers) > _MOST_WORKERS:
                raise InvalidInput(f"workers is {workers}; one machine can have {_MOST_WORKERS} at the most")
            yield stack.enter_context(_local(workers))
        elif scheduler is not None:
            try:
                connected = stack.enter_context(Client(scheduler, set_as_default=False, timeout=_CONNECT))
            except (OSError, ValueError) as error:
                raise InvalidInput(
                    f"there is no scheduler at {shown(scheduler)} ({error_line(error)}); give an address such as "
                    "tcp://10.0.0.1:8786"
                ) from None
            yield Cluster(connected)
        elif isinstance(client, Client) and not client.asynchronous:
            yield Cluster(client)
        else:
            raise InvalidInput(f"client is {shown(client)}; it must be a dask.distributed.Client, not asynchronous")


@contextlib.contextmanager
def _local(count: int) -> Iterator[Cluster]:
    """A scheduler in a thread of this process, and workers."""
    from dask import config
    from distributed import Client, LocalCluster

    options: Any = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": False}
    with (
        tempfile.TemporaryDirectory(prefix="stepwell-workers-", ignore_cleanup_errors=True) as folder,
        config.set({**_SETTINGS, "temporary-directory": folder}),
        LocalCluster(n_workers=0, **options) as scheduler,
        Client(scheduler, set_as_default=False) as client,
        _LocalWorkers(count, scheduler.scheduler_address, Path(folder)) as workers,  # pyright: ignore
    ):
        yield Cluster(client, workers)


def shards_from(cluster: Cluster, parts: Iterable[tuple[Block, int]]) -> Iterator["Shard"]:
    files = tuple(LOADED)
    for shards in cluster.map(_compute, ((work, size, files, _modules(work)) for work, size in parts)):
        yield from shards


def _modules(work: Block) -> tuple[str, ...]:
    """The modules of the user's kinds of a piece of work that were imported and not loaded by file."""
    first = work.configuration()
    chosen = [find_kind(section, first[f"{section}.kind"]) for section in SECTIONS if section != "record"]
    modules = {kind.build.__module__ for kind in chosen if not kind.is_own}
    if "__main__" in modules:
        raise InvalidInput(
            "a kind is registered by the program itself, which workers do not run; put it into a file, such as "
            "my_lab.py, and import that"
        )
    return tuple(sorted(modules - {Path(file).stem for file in LOADED}))


def _compute(work: Block, size: int, files: tuple[str, ...], modules: tuple[str, ...]) -> "list[Shard]":
    from ._compute import compute

    for file in files:
        load_kinds(file)
    for module in modules:
        importlib.import_module(module)
    return compute(work, size)
