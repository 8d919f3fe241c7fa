"""Several figures at once, each in a process of its own.

A figure spends its time in compiling and in loops of small steps, which gain nothing from a second core: threads that
wait for each other only take time. So each process gets some of the cores and keeps to them. Processes are spawned,
never forked: a fork of a program that runs JAX hangs.

`concurrent.futures` and loky cannot do this: one killed process breaks the pool, without a word of which it was.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait

from stepwell._util.files import end_at_once
from stepwell._util.process import configure
from stepwell._util.threads import limit_blas_threads
from stepwell.native import report_elsewhere

from ._registry import FIGURES
from ._run import CannotWrite, Progress, Request, Result, failure, run

_PATIENCE = 5.0
"""Seconds that a process has to end after SIGTERM, before it is killed: one that compiles handles it late."""


def side_by_side(
    names: Sequence[str],
    asked: Request,
    begin: Callable[[str, str], None],
    progress: Callable[[Progress], None],
    jobs: int,
) -> Generator[Result]:
    """The results of the figures as they come, or `CannotWrite`. Leaving the iteration ends the processes at once."""
    waiting = list(reversed(names))
    jobs = min(jobs, len(names))
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    workers: list[_Worker] = []
    try:
        for number in range(jobs):
            workers.append(_Worker(asked, set(cores[number::jobs]), reports=number == 0))
            workers[-1].send(waiting.pop())
        while busy := {worker.pipe: worker for worker in workers if worker.name}:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # pyright: ignore[reportArgumentType]
                message = worker.receive()
                if isinstance(message, Result):
                    if waiting:
                        worker.send(waiting.pop())
                    yield message
                elif isinstance(message, CannotWrite):
                    raise message
                elif isinstance(message, Progress):
                    progress(message)
                else:
                    begin(*message)
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.join()


class _Worker:
    """A process that runs one figure after another, the pipe to it, and the name of the figure it is at, if any."""

    def __init__(self, asked: Request, cores: set[int], *, reports: bool):
        self._asked, self._cores, self._reports = asked, cores, reports
        self.name = ""
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far = context.Pipe()
        given = far, self._asked, self._cores, self._reports
        self.process = context.Process(target=_work, args=given, daemon=True)
        with _without_script():
            self.process.start()
        far.close()

    def send(self, name: str) -> None:
        self.name = name
        if not self.process.is_alive():
            self._start()
        with contextlib.suppress(ConnectionError):  # `receive` reports that the process is gone
            self.pipe.send((name, FIGURES[name]))

    def receive(self) -> Result | CannotWrite | Progress | tuple[str, str]:
        try:
            message = self.pipe.recv()
        except (EOFError, ConnectionError):  # the process is gone
            self.process.join()
            message = failure(self.name, self._asked.quick, f"its process ended with status {self.process.exitcode}")
        if isinstance(message, Result):
            self.name = ""
        return message

    def join(self) -> None:
        self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """Processes started in this context do not import the program that runs here: a script that calls `reproduce`
    without asking whether it is `__main__` would call it in each of them again."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _end_with_parent() -> None:
    """A parent that is killed cannot end its processes."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(pipe: Connection, asked: Request, cores: set[int], reports: bool) -> None:
    """What the process does. SIGINT is ignored: the parent handles it and ends this process by SIGTERM, on which
    half-written files are removed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: end_at_once(1))
    configure(compiler="unoptimized" if asked.quick else "quick")
    if not reports:
        report_elsewhere()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if cores:
        os.sched_setaffinity(0, cores)
    limit_blas_threads(max(1, len(cores)))  # NumPy's are as many as the cores that were allowed when it was imported

    def begin(name: str, title: str) -> None:
        if gc.get_freeze_count() == 0:
            gc.freeze()  # what was imported stays: searching it for garbage takes a fifth of the time
        pipe.send((name, title))

    with contextlib.suppress(EOFError):
        while True:
            name, module = pipe.recv()
            FIGURES[name] = module  # the script that asks for it may have added it
            try:
                pipe.send(run(name, asked, begin, pipe.send))
            except CannotWrite as problem:
                pipe.send(problem)
