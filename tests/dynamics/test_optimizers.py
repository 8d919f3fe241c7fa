"""Optimizers and schedules of optax, by name or as objects, against formulas in NumPy: to rounding of float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from own_models import GatedKeys

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import Ensemble, Record, descend, flow, named_optimizer, online
from stepwell.models import AbstractModel, SeparateAttention
from stepwell.objectives import AbstractObjective, Sampled
from stepwell.tasks import InContextRegression

RATE, STEPS, WARMUP = 0.3, 21, 6
STEP = np.arange(STEPS)
TASK = InContextRegression(np.diag([0.6, 0.4]), 6)


class Slope(AbstractModel):
    """One number."""

    weight: jax.Array

    def __call__(self, example):
        return self.weight[None]


class Hill(AbstractObjective):
    """A loss of slope 1 everywhere: every step of gradient descent is the rate."""

    def __call__(self, model):
        return model.weight  # pyright: ignore[reportAttributeAccessIssue]

    def check(self, model):
        pass

    def floor(self, model):
        return None


def cosine(start, step, steps):
    return start * 0.5 * (1 + np.cos(np.pi * np.minimum(step, steps) / steps))


def warmed(after):
    return np.where(STEP < WARMUP, RATE * STEP / WARMUP, after(STEP - WARMUP))


def onecycle(peak, step, *, up, between):
    low, end = peak / 25, peak / 25 / 1e4
    rising, falling = step / up, (step - up) / (STEPS - up)
    return np.where(step < up, between(low, peak, rising), between(peak, end, falling))


SCHEDULES = {
    "linear": RATE * (1 - STEP / STEPS),
    "linear:end_value=0.1,transition_begin=3": 0.1 + (RATE - 0.1) * (1 - np.clip(STEP - 3, 0, STEPS) / STEPS),
    "polynomial:power=3": RATE * (1 - STEP / STEPS) ** 3,
    "exponential:decay_rate=0.1": RATE * 0.1 ** (STEP / STEPS),
    "exponential:decay_rate=0.7,transition_steps=4,staircase=true": RATE * 0.7 ** (STEP // 4),
    "cosine": cosine(RATE, STEP, STEPS),
    "onecycle": onecycle(RATE, STEP, up=6, between=lambda a, b, x: b + (a - b) / 2 * (np.cos(np.pi * x) + 1)),
    "warmup:warmup_steps=6": warmed(lambda step: RATE),
    "warmup_cosine:warmup_steps=6": warmed(lambda step: cosine(RATE, step, STEPS - WARMUP)),
    "warmup_exponential:warmup_steps=6,decay_rate=0.1": warmed(lambda step: RATE * 0.1 ** (step / STEPS)),
}
"""The rate at each step, by the formulas of optax's documentation."""


def fall(optimizer) -> np.ndarray:
    """How far the weight has come before each step but the first: the sum of all rates."""
    record = Record(snapshots=list(range(STEPS + 1)))
    run = descend(Slope(jnp.zeros(())), Hill(), optimizer=optimizer, steps=STEPS, record=record, progress=False)
    return -run["weight"].values[0, 1:]


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_exact(name):
    made = named_optimizer("sgd", name, rate=RATE, steps=STEPS, model=Slope(jnp.zeros(())))
    np.testing.assert_allclose(fall(made.optimizer), np.cumsum(SCHEDULES[name]), rtol=1e-15, atol=1e-15)


def test_so_are_those_of_optax_itself_and_functions():
    linear = optax.linear_schedule(RATE, 0.0, STEPS)
    wanted = np.cumsum(SCHEDULES["linear"])
    hyper = optax.inject_hyperparams(optax.sgd)(learning_rate=linear)
    for optimizer in (optax.sgd(linear), optax.chain(optax.identity(), optax.sgd(linear)), hyper):
        np.testing.assert_allclose(fall(optimizer), wanted, rtol=1e-15, atol=1e-15)
    named = named_optimizer("sgd", rate=linear, steps=STEPS, model=Slope(jnp.zeros(())))
    np.testing.assert_allclose(fall(named.optimizer), wanted, rtol=1e-15, atol=1e-15)


def test_adam_is_exact():
    """Bias corrections included: at a constant gradient the first moment is 1, and every step is the rate."""
    made = named_optimizer("adam:eps=0.5", "linear", rate=RATE, steps=STEPS, model=Slope(jnp.zeros(())))
    np.testing.assert_allclose(fall(made.optimizer), np.cumsum(SCHEDULES["linear"]) / 1.5, rtol=4e-15)


@pytest.mark.parametrize(
    ("optimizer", "schedule", "message"),
    [
        ("sgd", "constant:value=5", "has a value of value, which is the rate; give the rate itself"),
        ("sgd:nesterov=true", "constant", "makes no use of nesterov"),
        ("adam:learning_rate=3", "constant", "has a learning_rate; give the rate itself"),
        ("sgd", "exponential:decay_rate=0", "decay_rate of the schedule .* is 0; it must be a number, above 0"),
        ("sgd", "exponential:decay_rate=-1", "decay_rate of the schedule .* is -1"),
        ("sgd", "warmup:warmup_steps=0", "warmup_steps of the schedule .* an integer of at least 1"),
        ("sgd", "linear:transition_steps=0.5", "transition_steps of the schedule .* is 0.5; it must be an integer"),
        ("sgd", "linear:transition_begin=-3", "transition_begin of the schedule .* from 0"),
        ("sgd", "linear:end_value=-1", "has the rate -.*; it must be 0 or more at every step"),
    ],
)
def test_what_would_not_be_used_is_refused(optimizer, schedule, message):
    with pytest.raises(InvalidInput, match=message):
        named_optimizer(optimizer, schedule, rate=RATE, steps=STEPS, model=Slope(jnp.zeros(())))


def test_what_is_used_is_not():
    for optimizer in (
        "sgd:momentum=0.9,nesterov=true",
        "sgd:nesterov=false",
        "adam:b1=0.8,nesterov=true",
        "muon:beta=0.9",
    ):
        named_optimizer(optimizer, "cosine:alpha=0.1", rate=RATE, steps=STEPS, model=attention())


def attention(seed=0):
    return SeparateAttention.random(dim=2, heads=2, rank=2, scale=0.3, key=jax.random.key(seed))


def cast(model, dtype):
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if isinstance(leaf, jax.Array) else leaf, model)


@pytest.mark.parametrize("own", [False, True])
def test_weights_of_single_precision_are_trained_in_double(own):
    """The run is that of the same numbers in float64, to the last digit, through every way of training."""
    model = GatedKeys.random(dim=2, heads=2, scale=0.3, key=jax.random.key(0)) if own else attention()
    low = cast(model, jnp.float32)
    high = cast(low, jnp.float64)
    batch = TASK.sample(16, key=jax.random.key(1))
    ways = (
        lambda m: descend(m, Sampled(batch), rate=0.1, steps=5, progress=False),
        lambda m: descend(m, Sampled(batch), optimizer="muon", rate=0.1, steps=5, progress=False),
        lambda m: descend(Ensemble.of([m, m]), Sampled(batch), rate=0.1, steps=5, progress=False),
        lambda m: online(m, TASK, batch_size=4, rate=0.1, steps=5, progress=False, key=jax.random.key(2)),
        lambda m: flow(m, Sampled(batch), until=0.5, record=Record(points=3), progress=False),
    )
    for train in ways:
        found, wanted = train(low), train(high)
        for name in wanted.data_vars:
            assert found[name].dtype == np.float64
            np.testing.assert_array_equal(found[name], wanted[name])


def test_an_optimizer_with_a_random_key_in_its_state():
    task = InContextRegression(np.diag([0.6, 0.4]), 31)
    model = SeparateAttention.random(dim=2, heads=2, scale=0.3, key=jax.random.key(0))
    objective = Sampled(task.sample(20, key=jax.random.key(1)))
    run = descend(model, objective, optimizer=optax.noisy_sgd(0.01, key=jax.random.key(2)), steps=5, progress=False)
    assert np.isfinite(run["loss"]).all()
