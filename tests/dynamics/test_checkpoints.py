"""A run that was killed and continued is the run that was not, bit for bit; and no other run's checkpoint is taken."""

import itertools
import random

import jax
import optax
import pytest
import xarray as xr

from stepwell.dynamics import Ensemble, _checkpoint, _chunk_size, descend, flow, online
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import InContextRegression, covariance

KEY = jax.random.key(0)
TASK = InContextRegression(covariance([0.5, 0.3], key=jax.random.key(1)), 10)
POPULATION = Population(TASK)
MOMENTS = Moments.of_task(TASK, 60, key=jax.random.key(2))
SEQUENCES = Sampled(TASK.draw(40, key=jax.random.key(3)))


def separate(seed=0):
    return SeparateAttention.random(dim=2, heads=3, scale=0.2, key=jax.random.key(seed))


def merged(seed=0):
    return MergedAttention.random(dim=2, heads=2, scale=0.2, key=jax.random.key(seed))


def softmax():
    return MergedAttention.random(dim=2, heads=2, scale=0.2, activation="softmax", key=KEY)


def ensemble(make):
    return Ensemble.of([make(seed) for seed in range(3)])


def noisy():
    """An optimiser whose state has a random key."""
    return optax.chain(optax.add_noise(0.01, 0.55, jax.random.key(7)), optax.sgd(0.05))


RUNS = {
    "rate": lambda **how: descend(merged(), MOMENTS, rate=0.05, steps=90, observe={"exact": POPULATION}, **how),
    "native": lambda **how: descend(separate(), POPULATION, rate=0.05, steps=90, record=40, **how),
    "adam": lambda **how: descend(separate(), MOMENTS, optimiser=optax.adam(1e-2), steps=90, record=7, **how),
    "noise": lambda **how: descend(merged(), MOMENTS, optimiser=noisy(), steps=60, snapshots=3, start=5, **how),
    "ensemble": lambda **how: descend(ensemble(merged), MOMENTS, rate=[0.1, 0.05, 0.02], steps=60, record=25, **how),
    "softmax": lambda **how: descend(softmax(), SEQUENCES, rate=0.1, steps=40, record=15, **how),
    "diverging": lambda **how: descend(ensemble(merged), MOMENTS, rate=[0.1, 50.0, 0.1], steps=60, record=25, **how),
    "online": lambda **how: online(softmax(), TASK, batch=8, rate=0.1, steps=40, key=KEY, **how),
    "online adam": lambda **how: online(
        ensemble(separate), TASK, batch=8, optimiser=optax.adam(1e-2), steps=40, record=9, key=KEY, **how
    ),
    "rodas5p": lambda **how: flow(separate(), POPULATION, solver="rodas5p", save=20, **how),
    "rodas5p moments": lambda **how: flow(merged(), MOMENTS, solver="rodas5p", until=90.0, save=20, rtol=1e-8, **how),
    "rodas5p ensemble": lambda **how: flow(ensemble(separate), POPULATION, solver="rodas5p", save=20, **how),
    "lsoda": lambda **how: flow(merged(), POPULATION, solver="lsoda", save=20, observe={"exact": POPULATION}, **how),
    "lsoda softmax": lambda **how: flow(softmax(), SEQUENCES, solver="lsoda", until=30.0, **how),
    "kvaerno5": lambda **how: flow(ensemble(separate), POPULATION, solver="kvaerno5", save=20, rtol=1e-9, **how),
    "tsit5": lambda **how: flow(separate(), POPULATION, solver="tsit5", until=300.0, save=20, rtol=1e-12, **how),
}


class Killed(BaseException):
    """In place of a signal: the run ends here and now."""


@pytest.fixture
def cut(monkeypatch):
    """Cut runs into calls of few steps, now more and now fewer."""

    def set_up(seed: int) -> None:
        numbers = random.Random(seed)
        steps = property(lambda self: numbers.randint(1, 23), lambda self, value: None)
        monkeypatch.setattr(_chunk_size.ChunkSize, "steps", steps, raising=False)

    return set_up


def same(one: xr.Dataset, other: xr.Dataset) -> None:
    """Equal in every bit and in every attribute."""
    xr.testing.assert_identical(one, other)
    for name, values in one.variables.items():
        assert values.values.tobytes() == other[name].values.tobytes(), name


@pytest.fixture(scope="module")
def whole():
    """The runs that were not interrupted, each made once."""
    made = {}

    def get(name: str) -> xr.Dataset:
        if name not in made:
            made[name] = RUNS[name]()
        return made[name]

    return get


@pytest.mark.parametrize("name", RUNS)
def test_a_run_killed_again_and_again_is_the_run_that_was_not(name, whole, cut, monkeypatch, tmp_path):
    monkeypatch.setattr(_checkpoint, "_EVERY", 0.0)
    monkeypatch.setattr(_checkpoint, "_SHARE", 0.0)
    expected, path = whole(name), tmp_path / "run.checkpoint"
    save = _checkpoint.Saves.save
    kills = 0
    for attempt in itertools.count():
        cut(attempt)
        saves = []

        def killing(self, state, saves=saves, last=attempt % 3 + 1):
            saves.append(1)
            save(self, state)
            if len(saves) == last:
                raise Killed

        monkeypatch.setattr(_checkpoint.Saves, "save", killing)
        try:
            found = RUNS[name](checkpoint=path)
            break
        except Killed:
            kills += 1
    assert kills > 2
    same(found, expected)
    monkeypatch.setattr(_checkpoint.Saves, "save", None)
    same(RUNS[name](checkpoint=path), expected)


@pytest.mark.parametrize("name", RUNS)
def test_the_digits_do_not_depend_on_how_a_run_is_cut(name, whole, cut):
    cut(1)
    same(RUNS[name](), whole(name))
