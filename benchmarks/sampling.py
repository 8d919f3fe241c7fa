"""Drawing sequences of 32 tokens, held in memory."""

from collections.abc import Iterator

import jax

from stepwell.tasks import InContextRegression, covariance

from ._row import Row
from ._timing import best


def run(quick: bool) -> Iterator[Row]:
    count = 3_000 if quick else 80_000
    task = InContextRegression(covariance([1 / d for d in range(1, 9)]), 31)
    seconds = best(lambda: task.sample(count, key=jax.random.key(0)), rounds=1 if quick else 5)
    note = f"{count / seconds:,.0f} sequences a second"
    yield Row(f"sample {count:,} sequences, D = 8", seconds, "s", most=2.0, note=note)
