"""The Rosenbrock solver: its order, its linear systems, and its runs against LSODA's."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell.dynamics import Ensemble, Record, _rodas, _stiffness, flow
from stepwell.dynamics._ensemble import flatten, skeleton_of
from stepwell.dynamics._field import Field
from stepwell.dynamics._rosenbrock import RODAS5P, Pace, between, next_pace, step
from stepwell.models import CubicMLP, MergedAttention, SeparateAttention
from stepwell.objectives import AbstractQuadraticObjective, Moments, Population, Sampled
from stepwell.tasks import InContextRegression

KEY = jax.random.key(0)
TASK = InContextRegression(np.diag([0.5, 0.3]), 10)


def separate(scale, seed=0):
    return SeparateAttention.random(dim=2, heads=3, scale=scale, key=jax.random.key(seed))


class Divided(AbstractQuadraticObjective):
    """A loss from outside the package, with a number among its fields, and no number where its array is zero."""

    population: Population
    divisor: jax.Array
    target: float

    def coefficients(self, model):
        return self.population.coefficients(model)

    def quadratic(self, coefficients):
        return jnp.sum((coefficients / self.divisor - self.target) ** 2)

    def check(self, model):
        self.population.check(model)

    def floor(self, model):
        return None


def logistic(count):
    """A logistic curve in steps of one length from 0 to 2: errors at the end, and halfway through the steps."""
    rates, start = np.array([1.0, 3.0]), np.array([0.1, 0.4])
    length = 2.0 / count

    def velocity(w):
        return rates * w * (1 - w)

    def exact(time):
        grown = np.exp(rates * time)
        return start * grown / (1 + start * (grown - 1))

    @jax.jit
    def forward(state):
        matrix = jnp.eye(2) / (RODAS5P.gamma * length) - jax.jacfwd(velocity)(state)
        solve = functools.partial(jnp.linalg.solve, matrix)
        return step(velocity, solve, state, velocity(state), jnp.asarray(length))

    state, middle = jnp.asarray(start), 0.0
    for number in range(count):
        after, _, dense = forward(state)
        half = between(np.array([0.5]), *(np.asarray(part)[None] for part in (state, after, dense)))[0]
        middle = max(middle, np.abs(half - exact((number + 0.5) * length)).max())
        state = after
    return np.array([np.abs(np.asarray(state) - exact(2.0)).max(), middle])


def test_steps_are_of_order_five_and_the_path_between_them_of_order_four():
    end, middle = np.log2(logistic(8) / logistic(16))
    assert 4.7 < end < 6.0 and 3.7 < middle < 6.0


def test_a_shrinking_pace_is_followed():
    """Where each step must be shorter by a factor, as on the way off a saddle, no step is rejected after the first."""
    follow = jax.jit(lambda pace, error: next_pace(pace, pace.length, error))
    pace = Pace(jnp.ones(()), jnp.ones(()), jnp.ones(()), jnp.asarray(False))
    scale, bad = 1.0, 0
    for number in range(60):
        error = (pace.length / scale) ** 5
        bad += number > 5 and error > 1
        scale *= 0.85 if error <= 1 else 1.0
        pace = follow(pace, error)
    assert bad == 0 and pace.length < 1e-3


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("model", "heads", "objective"),
    [
        (separate(0.7), 3, Population(TASK)),
        (
            MergedAttention.random(dim=2, heads=2, scale=0.7, label_blocks="random", key=KEY),
            2,
            Moments.of_task(TASK, 50, key=KEY, progress=False),
        ),
        (CubicMLP.random(dim=2, heads=3, scale=0.7, key=KEY), 3, Population(TASK)),
        (separate(0.7), 3, Divided(Population(TASK), jnp.asarray(2.0), 0.7)),
    ],
)
def test_systems_from_heads_are_those_of_the_plain_jacobian(model, heads, objective, whole, monkeypatch):
    monkeypatch.setattr(_stiffness, "_WHOLE", 1000 if whole else 0)
    field, weights = Field(objective, skeleton_of(model)), flatten(model)
    places, found_heads = _stiffness.structure(field, weights)
    assert found_heads == heads
    right = np.random.default_rng(0).normal(size=len(places))
    reading = _stiffness.Reading(field, places, heads)
    found = jax.jit(lambda w: reading.shifted(w, jnp.asarray(0.8))(jnp.asarray(right)))(weights[np.array(places)])
    jacobian = np.asarray(jax.jit(lambda w: field.jacobian(w))(weights))[np.ix_(places, places)]
    np.testing.assert_allclose(found, np.linalg.solve(0.8 * np.eye(right.size) - jacobian, right), rtol=1e-9)
    unread = np.setdiff1d(np.arange(weights.size), places)
    assert np.all(np.asarray(jax.jit(lambda w: field(w))(weights))[unread] == 0.0)


@pytest.mark.usefixtures("own_traces")
@pytest.mark.parametrize(("scale", "way"), [(1e-2, "by parts"), (1e-6, "whole"), (1e-6, "native")])
def test_default_curves_are_within_a_ten_thousandth_of_a_tight_run_of_lsoda(scale, way, monkeypatch):
    """In time or in loss: a front is some ten units of time wide after a wait of 1/scale."""
    monkeypatch.setattr(_stiffness, "_WHOLE", 1000 if way == "whole" else 0)
    if way != "native":
        monkeypatch.setattr(_rodas, "stiff_form", lambda objective, model: objective)
    model, objective = separate(scale), Population(TASK)
    found = flow(model, objective, record=Record(points=201), progress=False)
    assert found.attrs["outcome"] == "converged"
    times, loss = found.time.values[1:], found.loss[0].values[1:]
    near = np.stack([times * (1 - 1e-4), times * (1 + 1e-4)])
    save, places = np.unique(near, return_inverse=True)
    tight = flow(
        model,
        objective,
        until=save[-1],
        record=Record(points=save),
        solver="lsoda",
        rtol=1e-10,
        atol=1e-9 * scale,
        progress=False,
    )
    early, late = tight.loss[0].values[places.reshape(near.shape)]
    assert np.all(loss <= early * (1 + 1e-4))
    assert np.all(loss >= late * (1 - 1e-4))


def test_an_ensemble_is_its_runs_though_their_steps_differ():
    models = [separate(scale, seed) for seed, scale in enumerate((1e-1, 1e-3, 1e-2))]
    objective = Population(TASK)
    together = flow(Ensemble.of(models), objective, record=Record(points=50), rtol=1e-9, atol=1e-9, progress=False)
    assert together.attrs["outcome"] == "converged"
    for run, model in enumerate(models):
        end = float(together.time[-1])
        alone = flow(model, objective, until=end, record=Record(points=50), rtol=1e-9, atol=1e-9, progress=False)
        np.testing.assert_allclose(together.loss[run], alone.loss[0], rtol=1e-6)
        np.testing.assert_allclose(together["query"][run], alone["query"][0], atol=1e-6)


def test_auto_takes_it_where_the_loss_depends_on_few_numbers():
    def chosen(dim, heads=2):
        model = SeparateAttention.random(dim=dim, heads=heads, scale=0.1, key=jax.random.key(0))
        objective = Population(InContextRegression(np.eye(dim) / dim, 20))
        found = flow(model, objective, until=0.1, record=Record(points=2), progress=False)
        return json.loads(found.attrs["configuration"])["solver"]

    assert chosen(4) == "rodas5p" and chosen(20) == "lsoda" and chosen(20, heads=10) == "rodas5p"


def test_softmax_sequences_and_single_precision():
    """The native pass has no second gradient, so the plain objective is followed; weights may be float32."""
    task = InContextRegression(np.diag([0.7, 0.3]), 6)
    model = SeparateAttention.random(dim=2, heads=2, scale=0.5, activation="softmax", key=jax.random.key(0))
    objective = Sampled(task.sample(20, key=jax.random.key(1)))
    rodas, lsoda = (
        flow(model, objective, solver=s, until=2.0, record=Record(points=3), progress=False)
        for s in ("rodas5p", "lsoda")
    )
    np.testing.assert_allclose(rodas["loss"], lsoda["loss"], rtol=1e-5)
    linear = SeparateAttention.random(dim=2, heads=2, scale=0.5, key=jax.random.key(0))
    single = linear.with_weights({name: np.float32(weight) for name, weight in linear.weights().items()})
    double, rounded = (
        flow(m, Population(task), until=2.0, record=Record(points=3), progress=False) for m in (linear, single)
    )
    np.testing.assert_allclose(rounded["loss"], double["loss"], rtol=1e-6)
