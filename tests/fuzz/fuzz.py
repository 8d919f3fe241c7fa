"""`python tests/fuzz/fuzz.py`: cases one after another, in a process that may crash or hang without harm."""

import argparse
import itertools
import multiprocessing
import random
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection

LIMIT = 60.0
"""Seconds that a case may take, compiling included."""


def _work(pipe: Connection) -> None:
    import matplotlib
    from cases import make
    from oracle import complaint, run

    matplotlib.use("Agg")
    while True:
        try:
            seed, number = pipe.recv()
        except EOFError:
            return
        case = make(seed, number)
        try:
            pipe.send(complaint(case, run(case)))
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            pipe.send(f"{type(error).__name__}: {str(error)[:200]} ({place.filename}, line {place.lineno})")


class Worker:
    """A process for cases, started anew after a crash."""

    def __init__(self):
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_work, args=(far,), daemon=True)
        self._process.start()
        far.close()

    def judge(self, seed: int, number: int, limit: float = LIMIT) -> str:
        """What is wrong with a case; empty if nothing is."""
        self._pipe.send((seed, number))
        try:
            if self._pipe.poll(limit):
                return self._pipe.recv()
            wrong = f"no end within {limit:g} s"
        except (EOFError, ConnectionError):
            self._process.join()
            wrong = f"the process ended with status {self._process.exitcode}"
        self.end()
        self._start()
        return wrong

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def judge_all(seed: int, numbers: Iterable[int], limit: float = LIMIT) -> Iterator[tuple[int, str]]:
    """Each number with what is wrong with its case."""
    worker = Worker()
    try:
        for number in numbers:
            yield number, worker.judge(seed, number, limit)
    finally:
        worker.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="how long (default: until Ctrl-C)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="default: random")
    parser.add_argument("--case", metavar="SEED:NUMBER", help="run one case, and show what it prints")
    given = parser.parse_args()
    if given.case:
        return _show(*map(int, given.case.split(":")))
    begun, found, number = time.monotonic(), 0, 0
    try:
        for number, wrong in judge_all(given.seed, itertools.count()):
            if wrong:
                found += 1
                print(f"{given.seed}:{number}: {wrong}", flush=True)
            if time.monotonic() - begun > given.seconds:
                break
    except KeyboardInterrupt:
        pass
    print(f"{number + 1} cases of seed {given.seed}, {found} with something wrong", flush=True)
    return 1 if found else 0


def _show(seed: int, number: int) -> int:
    from cases import make
    from oracle import complaint, run

    case = make(seed, number)
    print("words:", case.words, "files:", {name: len(data) for name, data in case.files.items()})
    ending = run(case)
    print(ending.out, ending.err, f"status {ending.status}", complaint(case, ending) or "nothing wrong", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
