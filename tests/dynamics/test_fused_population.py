"""The native descent at infinitely many sequences against the formula of the gradient, step by step, in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell.dynamics import Ensemble, Record, descend
from stepwell.dynamics.fast import AbstractMultiStep, multi_step_form, stiff_form
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance

WEIGHTS = "value", "key", "query"


def task_of(dim, seed=0):
    return InContextRegression(
        covariance(np.linspace(1.0, 0.3, dim), key=jax.random.key(seed)),
        7 + seed,
        task_covariance=covariance(np.linspace(0.5, 2.0, dim), key=jax.random.key(seed + 50)),
        noise_variance=0.2,
    )


def model_of(dim, heads, rank=1, seed=0):
    return SeparateAttention.random(dim=dim, heads=heads, rank=rank, scale=0.4, key=jax.random.key(seed))


def fused(task, model):
    found = multi_step_form(Population(task), model)
    assert isinstance(found, AbstractMultiStep)
    return found


def by_formula(task, model, rate, steps):
    """The loss, and the weights after the steps."""
    moments, dim = Population(task), model.dim
    lam, drive, second = (np.asarray(m) for m in (moments.input, moments.cross @ moments.input, moments.second))
    value, key, query = (np.array(weight) for weight in (model.value, model.key, model.query))
    losses = []
    for _ in range(max(steps, 1)):
        v, k = value[:, 0, dim], key[..., :dim]
        a = np.einsum("h,hri,hrj->ij", v, k, query)
        moved = second @ a @ lam
        losses.append(float(moments.label_power) + np.sum(a * (moved - 2 * drive)))
        slope = 2 * (moved - drive)
        on_key = np.einsum("h,ij,hrj->hri", v, slope, query)
        on_query = np.einsum("h,ij,hri->hrj", v, slope, k)
        on_value = np.einsum("hri,ij,hrj->h", k, slope, query)
        if steps > 0:
            value[:, 0, dim] -= rate * on_value
            key[..., :dim] -= rate * on_key
            query -= rate * on_query
    return losses[0], (value, key, query)


def leap(objective, model, rate, steps):
    return jax.jit(lambda m, r, s: objective.multi_step(m, r, s))(model, jnp.asarray(rate), jnp.asarray(steps))


@pytest.mark.parametrize(
    ("dim", "heads", "rank"), [(1, 1, 1), (2, 3, 2), (3, 2, 1), (4, 4, 1), (5, 2, 3), (8, 8, 1), (16, 3, 2)]
)
@pytest.mark.parametrize("steps", [0, 1, 17])
def test_steps_are_those_of_the_formula(dim, heads, rank, steps):
    task, model = task_of(dim), model_of(dim, heads, rank)
    loss, moved = leap(fused(task, model), model, 0.03, steps)
    expected, weights = by_formula(task, model, 0.03, steps)
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    for name, weight in zip(WEIGHTS, weights, strict=True):
        np.testing.assert_allclose(getattr(moved, name), weight, rtol=1e-11, atol=1e-14)


def test_entries_for_labels_stay_as_they_are():
    model = model_of(3, 2)
    key, value = np.array(model.key), np.array(model.value)
    key[..., 3], value[..., :3] = 5.0, 7.0
    marked = model.with_weights({"value": value, "key": key, "query": model.query})
    _, moved = leap(fused(task_of(3), model), marked, 0.03, 4)
    _, plain = leap(fused(task_of(3), model), model, 0.03, 4)
    np.testing.assert_array_equal(moved.key[..., 3], 5.0)
    np.testing.assert_array_equal(moved.value[..., :3], 7.0)
    np.testing.assert_array_equal(moved.query, plain.query)


@pytest.mark.parametrize("runs", [2, 8, 19])
@pytest.mark.parametrize("own", [False, True])
def test_every_run_has_its_own_weights_rate_and_task(runs, own):
    """Few runs leave lanes empty, several blocks of them go to several threads."""
    models = [model_of(4, 3, seed=seed) for seed in range(runs)]
    tasks = [task_of(4, seed % 3 if own else 0) for seed in range(runs)]
    rates = np.linspace(0.01, 0.05, runs) if own else np.full(runs, 0.02)
    found = descend(
        Ensemble.of(models),
        Ensemble.of([Population(task) for task in tasks]) if own else Population(tasks[0]),
        rate=rates if own else 0.02,
        steps=500,
        record=Record(every=500, snapshots=2),
        progress=False,
    )
    for run in range(runs):
        first, weights = by_formula(tasks[run], models[run], rates[run], 500)
        last, _ = by_formula(tasks[run], models[run].with_weights(dict(zip(WEIGHTS, weights, strict=True))), 0.0, 0)
        np.testing.assert_allclose(found.loss[run], [first, last], rtol=1e-10)
        for name, weight in zip(WEIGHTS, weights, strict=True):
            np.testing.assert_allclose(found[name][run, -1], weight, rtol=1e-9, atol=1e-12)


def test_a_run_that_diverges_leaves_its_neighbors_alone():
    models = [model_of(4, 3, seed=seed) for seed in range(3)]
    options = {"steps": 100, "record": Record(every=10, snapshots=2), "progress": False}
    rates = np.array([0.02, 50.0, 0.02])
    found = descend(Ensemble.of(models), Population(task_of(4)), rate=rates, **options, throw=False)
    assert not np.isfinite(found.loss[1]).all()
    for run in (0, 2):
        alone = descend(models[run], Population(task_of(4)), rate=0.02, **options)
        np.testing.assert_array_equal(found.loss[run], alone.loss[0])


def test_records_every_step_or_at_the_end_are_of_one_run():
    model, objective = model_of(4, 3), Population(task_of(4))
    every = descend(model, objective, rate=0.02, steps=60, progress=False)
    seldom = descend(model, objective, rate=0.02, steps=60, record=Record(every=20), progress=False)
    np.testing.assert_array_equal(every.loss[:, ::20], seldom.loss)


def test_without_native_functions_the_descent_is_the_same(with_and_without):
    model, objective = model_of(4, 3), Population(task_of(4))
    options = {"rate": 0.02, "steps": 60, "record": Record(every=20), "progress": False}
    native, plain = with_and_without(lambda: descend(model, objective, **options))
    np.testing.assert_allclose(native.loss, plain.loss, rtol=1e-12)
    np.testing.assert_allclose(native["query"], plain["query"], rtol=1e-10)


@pytest.mark.parametrize(("form", "most"), [(multi_step_form, 16), (stiff_form, 8)])
def test_what_the_native_passes_do_not_know_is_left_to_the_objective(form, most: int, with_and_without):
    several = SeparateAttention.random(dim=3, heads=2, outputs=2, scale=0.1, key=jax.random.key(0))
    single = jax.tree.map(lambda weight: weight.astype(np.float32), model_of(3, 2))
    cases = (
        (several, InContextRegression(np.eye(3), 7, outputs=2)),
        (model_of(most + 1, 2), task_of(most + 1)),
        (single, task_of(3)),
    )
    for model, task in cases:
        objective = Population(task)
        assert form(objective, model) is objective
    model, objective = model_of(most, 2), Population(task_of(most))
    native, plain = with_and_without(lambda: form(objective, model))
    assert native is not objective and plain is objective


def test_rounding_does_not_lead_off_a_saddle():
    """In the eigenbasis modes do not mix: heads along the first stay there, however long they are followed."""
    task = InContextRegression(covariance((0.4, 0.3, 0.2, 0.1), key=jax.random.key(3)), 31)
    weights = {name: np.array(weight) for name, weight in model_of(4, 2).weights().items()}
    for name in ("key", "query"):
        weights[name][..., 1:] = 0.0
    start = model_of(4, 2).with_weights(weights)
    found = descend(
        start, Population(task, basis="eigen"), rate=0.05, steps=5000, record=Record(every=5000), progress=False
    )
    assert np.all(found["key"].values[..., 1:] == 0.0)
    assert found["loss"].values.ravel()[-1] < found["loss"].values.ravel()[0]
