"""Sequences spread over four devices of the host, in a process of their own, against a plain loop on one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.core import Tracer

from stepwell.dynamics import Ensemble, descend, online
from stepwell.dynamics import _host as host_module
from stepwell.dynamics._devices import Divided
from stepwell.models import CubicMLP, MergedAttention, SeparateAttention
from stepwell.objectives import Sampled
from stepwell.tasks import Batch, ContextLengths, InContextRegression

DEVICES = 4
STEPS = 8
RATE = 0.1
KEY = jax.random.key(0)
TASK = InContextRegression(np.diag([0.6, 0.4]), 6, outputs=2)
VARIED = InContextRegression(np.diag([0.6, 0.4]), ContextLengths([2, 5]), noise_variance=0.1)


def softmax(seed=0):
    return MergedAttention.random(dim=2, heads=2, outputs=2, scale=0.5, activation="softmax", key=jax.random.key(seed))


class Doubled(MergedAttention):
    """Not one of the package: it is called, and no native pass takes its place."""

    def __call__(self, example, length=None):
        return 2 * super().__call__(example)


def separate():
    return SeparateAttention.random(dim=2, heads=2, scale=0.5, key=KEY)


def samples(size, task=TASK, seed=0):
    return task.sample(size, key=jax.random.key(seed))


# Models, and the objective of a run at a step. There are 52 or 54 sequences, 13 a device and in the latter case two
# more; or 3, too few to spread; the features of 27 sequences at two lengths are 54 examples.
CASES = {
    "even": lambda: ([softmax()], lambda _, step: Sampled(samples(52))),
    "uneven": lambda: ([softmax()], lambda _, step: Sampled(samples(54), "sum")),
    "own model": lambda: (
        [Doubled.random(dim=2, heads=2, outputs=2, scale=0.5, activation="softmax", key=KEY)],
        lambda _, step: Sampled(samples(54)),
    ),
    "few": lambda: ([softmax()], lambda _, step: Sampled(samples(3))),
    "features": lambda: (
        [CubicMLP.random(dim=2, heads=3, scale=0.5, key=KEY)],
        lambda _, step: Sampled(samples(27, VARIED).cubic_features()),
    ),
    "own data": lambda: ([softmax(0), softmax(1)], lambda run, step: Sampled(samples(54, seed=run))),
    "online": lambda: ([softmax()], lambda _, step: fresh(TASK, 52, step)),
    "online uneven": lambda: ([separate()], lambda _, step: fresh(VARIED, 54, step)),
}


def fresh(task, size, step):
    return Sampled(task.draw(size, key=jax.random.fold_in(KEY, step)))


def by_dynamics(name):
    """The losses (run, step) of `descend` or `online`."""
    models, objective = CASES[name]()
    model = models[0] if len(models) == 1 else Ensemble.of(models)
    options = {"rate": RATE, "steps": STEPS, "progress": False}
    if name.startswith("online"):
        batch = objective(0, 0).batch
        task = TASK if batch.outputs == 2 else VARIED
        return online(model, task, batch_size=batch.size, key=KEY, **options)["loss"].values
    if name == "own data":
        return descend(model, Ensemble.of([objective(run, 0) for run in range(2)]), **options)["loss"].values
    return descend(model, objective(0, 0), **options)["loss"].values


def by_loop(name):
    """The same by the textbook loop."""
    models, objective = CASES[name]()
    gradient = jax.jit(lambda model, objective: jax.value_and_grad(objective)(model))
    losses = np.zeros((len(models), STEPS + 1))
    for run, model in enumerate(models):
        for step in range(STEPS + 1):
            losses[run, step], slope = gradient(model, objective(run, step))
            model = jax.tree.map(lambda w, g: w - RATE * g, model, slope)
    return losses


def on_this_process():
    """For every case: its losses; the shapes of what a device holds of the data; how the compiler placed the examples
    that are drawn or answered, as (rows, whether every device has all of them); and in how many ways the weights were
    placed, in how many calls."""
    found, calls, examples = {}, [], []
    advance, mean, cut = host_module.advance, Sampled._mean, Divided.of

    def watched(*arguments, **options):
        calls.append(arguments)
        return advance(*arguments, **options)

    def inspected(rows):
        size = rows.shape[0]
        jax.debug.inspect_array_sharding(
            rows, callback=lambda placed: examples.append((size, placed.is_fully_replicated))
        )

    def answered(self, model):
        inspected(self.batch.tokens if isinstance(self.batch, Batch) else self.batch.features)
        return mean(self, model)

    def drawn(objective):
        if isinstance(objective.batch, Batch) and isinstance(objective.batch.tokens, Tracer):
            inspected(objective.batch.tokens)
        return cut(objective)

    host_module.advance = watched  # pyright: ignore[reportPrivateImportUsage]
    Sampled._mean, Divided.of = answered, staticmethod(drawn)  # pyright: ignore[reportAttributeAccessIssue]
    for name in CASES:
        calls.clear()
        examples.clear()
        losses = by_dynamics(name).tolist()
        data = jax.tree.leaves(calls[0][0].source)
        found[name] = {
            "losses": losses,
            "shards": [leaf.sharding.shard_shape(leaf.shape) for leaf in data if isinstance(leaf, jax.Array)],
            "examples": sorted(set(examples)),
            "placements": len({str([leaf.sharding for leaf in jax.tree.leaves(call[1:4])]) for call in calls}),
            "calls": len(calls),
        }
    return {"devices": jax.local_device_count(), "found": found}


@pytest.fixture(scope="module")
def four():
    flags = f"--xla_force_host_platform_device_count={DEVICES}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__))], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["devices"] == DEVICES
    return answer["found"]


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_one_device(four, name):
    np.testing.assert_allclose(four[name]["losses"], by_loop(name), rtol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_each_device_has_its_part_unless_there_are_fewer_sequences_than_devices(four, name):
    # What is left over is fewer than the devices, and where it is computed is the compiler's affair.
    placed = {tuple(example) for example in four[name]["examples"] if example[0] >= DEVICES}
    drawn = {(54, False)} if name == "online uneven" else set()
    assert placed == (set() if name == "few" else {(52, False)} | drawn)
    sizes = {size for shape in four[name]["shards"] for size in shape}
    assert (13 in sizes) == (name != "few" and not name.startswith("online")) and not {52, 54} & sizes
    # Weights stay where they begin, so that one program serves all chunks.
    assert four[name]["calls"] > 1 and four[name]["placements"] == 1


if __name__ == "__main__":
    print(json.dumps(on_this_process()))
