"""Moments of more sequences than one would hold: sequences a second, peak memory, and the product of features.

Sequences have 32 tokens. Full features number 60 for D = 4, 360 for D = 8 and 2448 for D = 16; cubic ones D². Memory is
the peak of a process of its own, and what it had before the first sequence stands beside it. The product of features
is timed beside the machine's matrix product, as if it computed both halves of what is symmetric.
"""

import json
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stepwell.objectives import Moments
from stepwell.tasks import InContextRegression, covariance

from ._row import Row, Unavailable, quantity
from ._timing import interleaved

ROOT = Path(__file__).parents[1]
BLOCK = 2048
"""Sequences that are drawn together, and whose features are multiplied together."""


def task(dim: int) -> InContextRegression:
    return InContextRegression(covariance([1 / d for d in range(1, dim + 1)]), 31)


def run(quick: bool) -> Iterator[Row]:
    yield from product(quick)
    yield from shares(quick)
    sizes = {4: (5_000,)} if quick else {4: (10**4, 10**5, 10**6, 10**7), 8: (10**4, 10**5, 10**6)}
    for dim, counts in sizes.items():
        for count in counts:
            yield from streamed(count, dim, "full")
    for dim, features in ((8, "cubic"),) if quick else ((16, "full"), (64, "cubic")):
        yield from streamed(500 if quick else 5_000, dim, features)
    count = 3_000 if quick else 20_000
    yield Row(
        f"moments of chunks differ from those of the whole, {count:,} sequences, D = 4",
        difference(count, 4),
        "",
        most=1e-12,
        check=True,
        note="relative, the largest of the three moments",
    )


def product(quick: bool) -> Iterator[Row]:
    """The product of features of a block, against what the machine's matrix product would take for as much."""
    size, rounds = (200, 1) if quick else (1500, 20)
    square = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)))
    multiply, compiled, features = jax.jit(jnp.matmul), jax.jit(lambda phi: phi.T @ phi), {}
    for dim in (4,) if quick else (4, 8):
        batch = task(dim).sample(BLOCK, key=jax.random.key(0))
        features[dim] = batch.full_features().features
    sides: dict[Any, Any] = {dim: lambda phi=phi: compiled(phi) for dim, phi in features.items()}
    times = interleaved({"": lambda: multiply(square, square)} | sides, rounds=rounds)
    rate = 2 * size**3 / times[""]
    yield Row(f"matrix product, {size} × {size}, float64", rate / 1e9, "GFLOP/s")
    for dim, phi in features.items():
        operations = 2 * phi.size * phi.shape[1]
        yield Row(
            f"product of {phi.shape[1]} features of {BLOCK} sequences, D = {dim}, against that rate",
            times[dim],
            "s",
            operations / rate,
            least_ratio=0.5,
            note=f"{operations / times[dim] / 1e9:.1f} GFLOP/s",
        )


def shares(quick: bool) -> Iterator[Row]:
    """Where the time goes: in drawing, in making sequences of what is drawn, in features and their product."""
    rounds, count = (1, BLOCK) if quick else (5, 10 * BLOCK)
    for dim in (4, 8):
        problem, key = task(dim), jax.random.key(0)
        chunks = list(problem.chunks(count, key=key, size=1))
        numbers = 32 * dim + dim
        normals = np.random.Generator(np.random.Philox(0))
        times = interleaved(
            {
                "drawing": lambda normals=normals, numbers=numbers: normals.standard_normal((count, numbers)),
                "sequences": lambda problem=problem, key=key: deque(problem.chunks(count, key=key, size=1), maxlen=0),
                "moments": lambda chunks=chunks: Moments.of_chunks(chunks).gram,
            },
            rounds=rounds,
        )
        each = {name: quantity(seconds / count, "s") for name, seconds in times.items()}
        yield Row(
            f"a sequence, D = {dim}: made, and its moments",
            (times["sequences"] + times["moments"]) / count,
            "s",
            note=f"to make it {each['sequences']}; its {numbers} random numbers alone take one core {each['drawing']}; "
            f"its features and their product {each['moments']}",
        )


def streamed(count: int, dim: int, features: str) -> Iterator[Row]:
    found = stream_apart(count, dim, features)
    what = f"moments of {count:,} sequences, D = {dim}, {features} features, streamed"
    yield Row(what, found.seconds, "s", note=f"{count / found.seconds:,.0f} sequences a second")
    held = f"before the first sequence {quantity(found.before, 'bytes')}"
    yield Row(f"{what}: peak memory", found.peak, "bytes", note=held)


def difference(count: int, dim: int) -> float:
    """How far moments streamed in chunks are from those of the same sequences held at once."""
    key = jax.random.key(1)
    whole = Moments.of_batch(task(dim).sample(count, key=key))
    parts = Moments.of_task(task(dim), count, key=key)
    pairs = ((whole.gram, parts.gram), (whole.cross, parts.cross), (whole.label_power, parts.label_power))
    return max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(a))) for a, b in pairs)


class Streamed(NamedTuple):
    """What streaming took: seconds, and bytes of memory at the peak and before."""

    seconds: float
    peak: int
    before: int


def stream_apart(count: int, dim: int, features: str) -> Streamed:
    """`stream` in a new process, whose memory is its own."""
    command = [sys.executable, "-m", "benchmarks.streaming", str(count), str(dim), features]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"streaming {count:,} sequences failed: {done.stderr.strip().splitlines()[-1:]}")
    return Streamed(*json.loads(done.stdout))


def stream(count: int, dim: int, features: Any) -> Streamed:
    """The time of gathering the moments of sequences drawn on the fly, and this process's memory."""

    def gather(count: int) -> float:
        begun = time.perf_counter()
        jax.block_until_ready(Moments.of_task(task(dim), count, features=features, key=jax.random.key(0)).gram)
        return time.perf_counter() - begun

    jnp.zeros(1).block_until_ready()
    before = peak_memory()
    gather(min(count, 2 * BLOCK + count % BLOCK))  # compiles what it needs: for whole blocks, and for the rest
    first = gather(count)
    return Streamed(min(first, gather(count)) if first < 5.0 else first, peak_memory(), before)


def peak_memory() -> int:
    """The most bytes this process has had. On Linux from its status: getrusage starts at the parent's."""
    try:
        with open("/proc/self/status") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


if __name__ == "__main__":
    print(json.dumps(stream(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
