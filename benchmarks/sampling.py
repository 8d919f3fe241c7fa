"""Drawing sequences, and gathering the moments of more than one would hold.

Sequences have 32 tokens. Moments have the full features: 60 for D = 4, 360 for D = 8. Memory is the peak of a process
of its own, and what it had before the first sequence stands beside it.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from stepwell.objectives import Moments
from stepwell.tasks import InContextRegression, covariance

from ._row import Row, Unavailable
from ._timing import best

ROOT = Path(__file__).parents[1]


def task(dim: int) -> InContextRegression:
    return InContextRegression(covariance([1 / d for d in range(1, dim + 1)]), 31)


def run(quick: bool) -> Iterator[Row]:
    wide, many = 3_000 if quick else 80_000, 1_000_000
    rounds = 1 if quick else 5
    key = jax.random.key(0)
    yield Row(
        f"sample {wide:,} sequences, D = 8",
        best(lambda: task(8).sample(wide, key=key), rounds=rounds),
        "s",
        most=2.0,
    )
    for count, dim in ((wide, 8),) if quick else ((wide, 8), (many, 4)):
        found = stream_apart(count, dim, rounds)
        what = f"moments of {count:,} sequences, D = {dim}, streamed"
        yield Row(what, found.seconds, "s", note=f"{count / found.seconds:,.0f} sequences a second")
        held = f"a process with nothing drawn has {found.before / 2**20:.0f} MiB"
        yield Row(f"{what}: peak memory", found.peak, "bytes", note=held)
    count = min(wide, 20_000)
    yield Row(
        f"moments of chunks differ from those of the whole, {count:,} sequences, D = 4",
        difference(count, 4),
        "",
        most=1e-12,
        check=True,
        note="relative, the largest of the three moments",
    )


def difference(count: int, dim: int) -> float:
    """How far moments streamed in chunks are from those of the same sequences held at once."""
    key = jax.random.key(1)
    whole = Moments.of_batch(task(dim).sample(count, key=key))
    parts = Moments.of_chunks(task(dim).chunks(count, key=key, size=2048))
    pairs = ((whole.gram, parts.gram), (whole.cross, parts.cross), (whole.label_power, parts.label_power))
    return max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(a))) for a, b in pairs)


class Streamed(NamedTuple):
    """What streaming took: seconds, and bytes of memory at the peak and before."""

    seconds: float
    peak: int
    before: int


def stream_apart(count: int, dim: int, rounds: int) -> Streamed:
    """`stream` in a new process, whose memory is its own."""
    command = [sys.executable, "-m", "benchmarks.sampling", str(count), str(dim), str(rounds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"streaming {count:,} sequences failed: {done.stderr.strip().splitlines()[-1:]}")
    return Streamed(*json.loads(done.stdout))


def stream(count: int, dim: int, rounds: int) -> Streamed:
    """The best time of gathering the moments of sequences drawn on the fly, and this process's memory."""
    jnp.zeros(1).block_until_ready()
    before = peak_memory()
    times = []
    # The first compiles. The rest stop after five seconds, of which a long one needs no repeat.
    while len(times) < 1 + rounds and sum(times[1:]) < 5.0:
        begun = time.perf_counter()
        jax.block_until_ready(Moments.of_task(task(dim), count, key=jax.random.key(0)).gram)
        times.append(time.perf_counter() - begun)
    return Streamed(min(times[1:]), peak_memory(), before)


def peak_memory() -> int:
    """The most bytes this process has had. On Linux from its status: getrusage starts at the parent's."""
    try:
        with open("/proc/self/status") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


if __name__ == "__main__":
    print(json.dumps(stream(*map(int, sys.argv[1:]))))
