"""A gradient step of separate rank-one attention at infinitely many sequences as dimensions grow, and of moments.

Heads are 8 (4 in four dimensions), the spectrum is a power law with random eigenvectors, and a step is one turn of a
compiled loop. Three ways to one loss: in the eigenbasis, where all moments are diagonal; in the basis given, with
products by whole matrices; and by effective maps, the baseline, which has D³ operations.
"""

import time
from collections.abc import Iterator
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from stepwell._util.errors import WouldNotFit
from stepwell.models import AbstractModel, SeparateAttention
from stepwell.objectives import AbstractObjective, Moments, Population
from stepwell.tasks import InContextRegression, covariance

from ._row import Row, quantity
from ._timing import interleaved

RATE = 1e-3
SECONDS = 0.1
"""What a timed call should last, at the least."""


class ByMaps(AbstractObjective):
    """The population loss through A, whatever the model's rank."""

    population: Population

    def __call__(self, model):
        assert isinstance(model, SeparateAttention)
        return self.population.quadratic(self.population.coefficients(model))

    def check(self, model):
        self.population.check(model)

    def floor(self, model):
        return self.population.floor(model)


def run(quick: bool) -> Iterator[Row]:
    dims = (4, 16) if quick else (4, 16, 64, 256, 1024)
    rounds = 1 if quick else 3
    seconds: dict[str, list[float]] = {"eigen": [], "given": [], "maps": []}
    for dim in dims:
        heads = min(dim, 8)
        problem = task(dim)
        start = SeparateAttention.random(dim=dim, heads=heads, scale=0.5 / dim**0.5, key=jax.random.key(1))
        given, eigen = Population(problem), Population(problem, basis="eigen")
        ways: dict[str, tuple[AbstractObjective, AbstractModel]] = {
            "eigen": (eigen, eigen.rotated(start)),
            "given": (given, start),
            "maps": (ByMaps(given), start),
        }
        found = step_times(ways, rounds)
        for name, each in found.items():
            seconds[name].append(each)
        what = f"population, attnS rank 1, H = {heads}, D = {dim}: a step"
        yield Row(f"{what} in the eigenbasis, against maps", found["eigen"], "s", found["maps"])
        yield Row(f"{what} in the basis given, against maps", found["given"], "s", found["maps"])
        yield Row(
            f"the three losses differ by, D = {dim}",
            difference(ways),
            "",
            most=1e-10,
            check=True,
            note="relative, loss and norm of the gradient",
        )
    for name, way in {"eigen": "in the eigenbasis", "given": "in the basis given", "maps": "by maps"}.items():
        late = slope(dims[-3:], seconds[name][-3:])
        yield Row(
            f"exponent of D in the time of a step {way}, D = {dims[0]} to {dims[-1]}",
            slope(dims, seconds[name]),
            "",
            note=f"over the last {len(dims[-3:])}: {late:.2f}",
        )
    yield from moments(quick)


def task(dim: int) -> InContextRegression:
    return InContextRegression(covariance(np.arange(1, dim + 1) ** -0.5, key=jax.random.key(0)), 2 * dim)


@eqx.filter_jit
def steps_of(objective: AbstractObjective, model: AbstractModel, steps: jax.Array) -> AbstractModel:
    def step(_, model):
        return jax.tree.map(lambda w, g: w - RATE * g, model, jax.grad(objective)(model))

    return jax.lax.fori_loop(0, steps, step, model)


def step_times(ways: dict[str, tuple[AbstractObjective, AbstractModel]], rounds: int) -> dict[str, float]:
    """Of each way, the best time of a step, over calls long enough to be timed."""
    counts, sides = {}, {}
    for name, (objective, model) in ways.items():
        counts[name] = 1
        taken = 0.0
        while True:
            steps = jnp.asarray(counts[name])
            jax.block_until_ready(steps_of(objective, model, steps))
            begun = time.perf_counter()
            jax.block_until_ready(steps_of(objective, model, steps))
            taken = time.perf_counter() - begun
            if taken >= SECONDS:
                break
            counts[name] *= 4
        sides[name] = lambda objective=objective, model=model, steps=steps: steps_of(objective, model, steps)
    times = interleaved(sides, rounds=rounds, warm=False)
    return {name: seconds / counts[name] for name, seconds in times.items()}


@eqx.filter_jit
def loss_and_norm(objective: AbstractObjective, model: AbstractModel) -> jax.Array:
    loss, gradient = jax.value_and_grad(objective)(model)
    return jnp.stack([loss, optax.tree.norm(gradient)])


def difference(ways: dict[str, tuple[AbstractObjective, AbstractModel]]) -> float:
    """The largest relative difference of loss and norm of the gradient; both are the same in every basis."""
    found = np.stack([np.asarray(loss_and_norm(objective, model)) for objective, model in ways.values()])
    return float(np.max(np.ptp(found, axis=0) / found.min(axis=0)))


def slope(dims: tuple[int, ...], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(dims), np.log(seconds), 1)[0])


def moments(quick: bool) -> Iterator[Row]:
    """Moments know every feature of the data: time and memory of a step, and where they do not fit."""
    cases: tuple[tuple[Literal["full", "cubic"], int], ...]
    cases = (("full", 4),) if quick else (("full", 16), ("cubic", 64), ("full", 64))
    sequences = 32 if quick else 256
    for features, dim in cases:
        count = dim * (dim + 1) * (dim + 2) // 2 if features == "full" else dim**2
        batch = task(dim).sample(sequences, key=jax.random.key(2))
        model = SeparateAttention.random(dim=dim, heads=min(dim, 8), scale=0.5 / dim**0.5, key=jax.random.key(1))
        what = f"moments, {features} features, D = {dim}"
        try:
            gathered = Moments.of_batch(batch, features=features)
        except WouldNotFit as reason:
            yield Row(f"{what}: the matrix of {count:,} features", 8.0 * count**2, "bytes", note=str(reason))
            continue
        begun = time.perf_counter()
        jax.block_until_ready(Moments.of_batch(batch, features=features).gram)
        gathering = time.perf_counter() - begun
        yield Row(
            f"{what}: the matrix of {count:,} features",
            float(gathered.gram.nbytes),
            "bytes",
            note=f"gathered from {sequences} sequences in {quantity(gathering, 's')}",
        )
        yield Row(f"{what}: a step", step_times({"": (gathered, model)}, 1 if quick else 3)[""], "s")
