"""Several figures at once, each in a process of its own.

A figure spends its time in compiling and in loops of small steps, which gain nothing from a second core: threads that
wait for each other only take time. So each process gets some of the cores and keeps to them. Processes are spawned,
never forked: a fork of a program that runs JAX hangs.

`concurrent.futures.ProcessPoolExecutor` cannot do this: one killed process breaks the whole pool, it does not say which
figure that was nor with which status it ended, and a task that runs cannot be ended before Python 3.14.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from stepwell._util.files import end_at_once
from stepwell._util.process import configure
from stepwell._util.threads import limit_blas_threads
from stepwell.native import report_elsewhere

from ._registry import FIGURES
from ._run_figure import CannotWrite, Progress, Request, Result, failure, freeze_imports, make

_PATIENCE = 5.0
"""Seconds that a process has to end after SIGTERM, before it is killed: one that compiles handles it late."""


def side_by_side(
    names: Sequence[str],
    asked: Request,
    begin: Callable[[str, str], None],
    progress: Callable[[Progress], None],
    jobs: int,
) -> Generator[Result]:
    """The results of the figures as they come; `CannotWrite` if one's files cannot be written.

    Leaving the iteration ends the processes at once.
    """
    waiting = list(reversed(names))
    jobs = min(jobs, len(names))
    workers: list[_Worker] = []
    try:
        for number in range(jobs):
            workers.append(_Worker(asked, _cores_of(number, jobs), reports=number == 0))
            workers[-1].send(waiting.pop())
        while busy := [worker for worker in workers if worker.name is not None]:
            ready = wait([worker.pipe for worker in busy])
            for worker in (worker for worker in busy if worker.pipe in ready):
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
            worker.end()
        for worker in workers:
            worker.join()


class _Worker:
    """A process that makes one figure after another, and the pipe to it."""

    def __init__(self, asked: Request, cores: set[int], *, reports: bool):
        self._quick, self._settings = asked.quick, (asked, cores, reports)
        self.name: str | None = None
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far = context.Pipe()
        self._process = context.Process(target=_work, args=(far, *self._settings), daemon=True)
        with _without_script():
            self._process.start()
        far.close()

    def send(self, name: str) -> None:
        """Ask for a figure."""
        self.name = name
        if not self._process.is_alive():
            self._start()
        with contextlib.suppress(ConnectionError):  # `receive` reports that the process is gone
            self.pipe.send((name, FIGURES[name]))

    def receive(self) -> Result | CannotWrite | Progress | tuple[str, str]:
        """The result of the figure asked for; its name and title when it begins, and then how far it is."""
        name = self.name
        assert name is not None
        try:
            message = self.pipe.recv()
        except (EOFError, ConnectionError):  # the process is gone
            self._process.join()
            message = failure(name, self._quick, f"its process ended with status {self._process.exitcode}")
        if isinstance(message, Result):
            self.name = None
        return message

    def end(self) -> None:
        self._process.terminate()

    def join(self) -> None:
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.pipe.close()


def _cores_of(number: int, jobs: int) -> set[int]:
    """The cores of one of several processes; empty where the system does not say, or there are too few."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return set(cores[number::jobs])


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """Processes started in this context do not import the program that runs here, as spawned ones do otherwise.

    They need nothing of it. A script that calls `reproduce` without asking whether it is `__main__` would call it in
    each of them again, and what is read from standard input cannot be imported at all.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _end_with_parent() -> None:
    """End this process when its parent has ended: a parent that is killed cannot end its processes."""
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

    def begin(name: str, title: str) -> Any:
        freeze_imports()
        pipe.send((name, title))

    while True:
        try:
            name, module = pipe.recv()
        except EOFError:
            return
        FIGURES[name] = module  # the script that asks for it may have added it
        try:
            pipe.send(make(name, asked, begin, pipe.send))
        except CannotWrite as problem:
            pipe.send(problem)
