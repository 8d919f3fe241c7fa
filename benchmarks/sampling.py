"""Drawing sequences of 32 tokens, held in memory; and drawing standard normals inside a compiled loop, as `online`
does at every step, against `jax.random.normal`."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from stepwell.tasks import InContextRegression, covariance
from stepwell.tasks._random import standard_normals

from ._row import Row
from ._timing import best, interleaved


def run(quick: bool) -> Iterator[Row]:
    count = 3_000 if quick else 80_000
    task = InContextRegression(covariance([1 / d for d in range(1, 9)]), 31)
    seconds = best(lambda: task.sample(count, key=jax.random.key(0)), rounds=1 if quick else 5)
    note = f"{count / seconds:,.0f} sequences a second"
    yield Row(f"sample {count:,} sequences, D = 8", seconds, "s", most=2.0, note=note)
    yield from normals(quick)


def normals(quick: bool) -> Iterator[Row]:
    """Those of 64 sequences of 101 tokens with 3 labels, D = 30, at every step."""
    shape, steps, key = (64, 3120), 2 if quick else 50, jax.random.key(0)

    def looped(draw):
        def fresh(step, _):
            return draw(jax.random.fold_in(key, step), shape)

        return jax.jit(lambda: jax.lax.fori_loop(0, steps, fresh, jnp.zeros(shape)))

    sides = {"ours": looped(standard_normals), "JAX": looped(jax.random.normal)}
    times = interleaved(sides, rounds=1 if quick else 10)
    each = {side: seconds / (steps * shape[0] * shape[1]) for side, seconds in times.items()}
    what = f"a standard normal, {shape[0] * shape[1]:,} a step"
    yield Row(
        what, each["ours"], "s", each["JAX"], least_ratio=5, note="baseline: jax.random.normal; both on all cores"
    )
    ours, theirs = (np.asarray(draw(key, shape)) for draw in (standard_normals, jax.random.normal))
    yield Row(
        "the two differ by", float(np.max(np.abs(ours / theirs - 1))), "", most=1e-14, check=True, note="relative"
    )
