"""The digest of what determines a run: equal for equal things in any process, and not for others."""

import collections
import functools
import os
import subprocess
import sys
import threading
from typing import NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

from stepwell.dynamics import LSODA, Diffrax, Ensemble, Rodas5P
from stepwell.dynamics._fingerprint import fingerprint
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population
from stepwell.tasks import InContextRegression

TASK = InContextRegression(np.diag([0.6, 0.4]), 6)


class Point(NamedTuple):
    x: float
    y: float


def model(seed=0, scale=0.3, **settings):
    return MergedAttention.random(dim=2, heads=2, scale=scale, key=jax.random.key(seed), **settings)


def closure(factor):
    def scaled(model):
        return factor * model.value

    return scaled


def recursive(depth):
    def countdown(number):
        return countdown(number - 1) if number > depth else number

    return countdown


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, model):
        return self.factor * model.value


class Narrow:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor


DIFFERENT = {
    "numbers": lambda: [0, 1, 1.0, True, "1", b"1", None, 1 + 0j, np.float64(1), np.float32(1), np.int64(1)],
    "arrays": lambda: [
        np.zeros(4),
        np.zeros((2, 2)),
        np.zeros(4, "float32"),
        np.ones(4),
        jnp.full(4, 2.0),
        np.zeros(0),
    ],
    "keys": lambda: [jax.random.key(0), jax.random.key(1), jax.random.key_data(jax.random.key(0))],
    "containers": lambda: [[], (), {}, [1, 2], (1, 2), [[1], 2], [1, [2]], {"a": 1}, {"a": 2}, {"b": 1}, {1, 2}, [12]],
    "tuples with names": lambda: [Point(1, 2), Point(2, 1), (1, 2)],
    "models": lambda: [model(), model(1), model(activation="softmax"), Ensemble.of([model()])],
    "tasks": lambda: [TASK, InContextRegression(np.diag([0.6, 0.4]), 7), InContextRegression(np.diag([0.6, 0.5]), 6)],
    "objectives": lambda: [
        Population(TASK),
        Population(TASK, "1/tokens"),
        *(Moments.of_task(TASK, 30, key=jax.random.key(seed)) for seed in range(2)),
    ],
    "objects": lambda: [
        *(Scaled(factor) for factor in (1.0, 2.0)),
        *(Narrow(factor) for factor in (1.0, 2.0)),
        *(Scaled(1.0).__call__, Scaled(2.0).__call__, range(2), range(3)),
        *(xr.Dataset({"a": ("x", [value])}) for value in (1.0, 2.0)),
        *(collections.deque([value]) for value in (1, 2)),
        *(threading.Lock(), np),  # of which nothing is known but what they are
    ],
    "solvers": lambda: [LSODA(), Rodas5P(), Diffrax(diffrax.Tsit5()), Diffrax(diffrax.Kvaerno5())],
    "optimizers": lambda: [
        *(optax.adam(rate) for rate in (1e-2, 1e-3)),
        optax.adam(1e-2, b1=0.8),
        optax.sgd(1e-2),
        *(optax.sgd(optax.cosine_decay_schedule(1e-2, steps)) for steps in (10, 20)),
        optax.chain(optax.clip(1.0), optax.sgd(1e-2)),
    ],
    "functions": lambda: [
        closure(1.0),
        closure(2.0),
        lambda model: model.value,
        lambda model: model.key_query,
        lambda model, power=1: model.value**power,
        lambda model, power=2: model.value**power,
        functools.partial(closure(1.0), 1),
        functools.partial(closure(1.0), 2),
        model().weights,
        model(1).weights,
        recursive(1),
        recursive(2),
        np.mean,
        len,
        SeparateAttention,
        MergedAttention,
    ],
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_equal_things_have_the_same_and_no_others(kind):
    once, again = ([fingerprint(thing) for thing in DIFFERENT[kind]()] for _ in range(2))
    assert once == again
    assert len(set(once)) == len(once)


def test_decorators_do_not_count():
    scaled = closure(2.0)
    assert fingerprint(jax.jit(scaled)) == fingerprint(scaled) == fingerprint(functools.wraps(scaled)(lambda *_: None))


def test_it_is_the_same_in_another_process():
    """Where hashes of texts, and so the order of sets, are others."""
    program = (
        "import test_fingerprint as here\n"
        "from stepwell.dynamics._fingerprint import fingerprint\n"
        "print(*(fingerprint(thing) for kind in here.DIFFERENT.values() for thing in kind()))\n"
    )
    folder = os.path.dirname(__file__)
    printed = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([folder, *sys.path])},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1] and len(printed[0].split()) > 50
