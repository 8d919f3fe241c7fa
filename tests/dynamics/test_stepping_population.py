"""Steps along the flow of `Population`, native and by resolvent, against dense ones in NumPy; flows made of them."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell import native as kernels
from stepwell.dynamics import Ensemble, Record, flow
from stepwell.dynamics._rosenbrock import RODAS5P, step
from stepwell.dynamics.fast import (
    AbstractResolvent,
    AbstractRosenbrock,
    ResolventPopulation,
    SteppingPopulation,
    stiff_form,
)
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance


def task_of(dim, seed=0):
    return InContextRegression(
        covariance(np.linspace(1.0, 0.3, dim), key=jax.random.key(seed)),
        7 + seed,
        task_covariance=covariance(np.linspace(0.5, 2.0, dim), key=jax.random.key(seed + 50)),
        noise_variance=0.2,
    )


def diagonal():
    return InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)


def model_of(dim, heads, rank=1, seed=0, scale=0.4):
    return SeparateAttention.random(dim=dim, heads=heads, rank=rank, scale=scale, key=jax.random.key(seed))


def stepping(objective, alone="population_step_alone"):
    """In any dimension; a flow takes it in few only. One run alone has the kernel that is named."""
    together, own = (kernels.kernel(name, "double") for name in ("population_step", alone))
    assert together is not None and own is not None
    return SteppingPopulation(objective, objective.matrices(), together.target, own.target)


def read(model):
    """The weights that the loss reads, head by head."""
    parts = model.value[:, 0, model.dim :], model.key[..., : model.dim], model.query
    return np.concatenate([np.asarray(part).reshape(len(part), -1) for part in parts], axis=1)


def native(objective, model):
    """weights, length ↦ loss; weights after, estimate, three dense-output coefficients"""
    kernel = stepping(objective)
    return lambda weights, length: kernel.rosenbrock_step(weights, length, RODAS5P)


def in_lanes(objective, model):
    """The same with the pass for several runs."""
    kernel = stepping(objective, "population_step")
    return lambda weights, length: kernel.rosenbrock_step(weights, length, RODAS5P)


def by_resolvent(objective, model):
    """The same in JAX."""
    system = ResolventPopulation(objective, objective.matrices())
    lam, drive, second = system.moments
    heads, rank, dim = model.query.shape

    def velocity(flat):
        rows = flat.reshape(heads, -1)
        v, (k, q) = rows[:, 0], (part.reshape(heads, rank, dim) for part in jnp.split(rows[:, 1:], 2, axis=1))
        slope = second @ jnp.einsum("h,hri,hrj->ij", v, k, q) @ lam - drive
        on_key, on_query = jnp.einsum("h,ij,hrj->hri", v, slope, q), jnp.einsum("h,ij,hri->hrj", v, slope, k)
        on_value = jnp.sum(k * (q @ slope.T), axis=(1, 2))
        return -jnp.concatenate([part.reshape(heads, -1) for part in (on_value, on_key, on_query)], axis=1).reshape(-1)

    def along(weights, length):
        solve = system.resolvent(weights, 1 / (RODAS5P.gamma * length))
        flat = weights.reshape(-1)
        found = step(velocity, lambda r: solve(r.reshape(weights.shape)).reshape(-1), flat, velocity(flat), length)
        loss = objective(model.with_weights(written(model, weights)))
        return loss, jnp.stack([found.after, found.estimate, *found.dense]).reshape(-1, *weights.shape)

    return along


FORMS = pytest.mark.parametrize("form", [native, in_lanes, by_resolvent])


def made_step(form, objective, model, length):
    loss, found = jax.jit(form(objective, model))(read(model), jnp.asarray(length))
    return float(loss), np.asarray(found)


def written(model, weights):
    """The weights of a model from those that the loss reads."""
    heads, rank, dim = model.query.shape
    pairs = weights[:, 1:].reshape(heads, 2, rank, dim)
    value = jnp.zeros_like(model.value).at[:, 0, dim].set(weights[:, 0])
    key = jnp.zeros_like(model.key).at[..., :dim].set(pairs[:, 0])
    return {"value": value, "key": key, "query": pairs[:, 1]}


def velocity_of(objective, model):
    """The loss and the velocity of weights by their formulas, in NumPy, for complex ones too."""
    lam, drive, second = map(np.asarray, (objective.input, objective.cross @ objective.input, objective.second))
    heads, rank, dim = model.query.shape

    def loss_and_velocity(flat):
        rows = flat.reshape(heads, -1)
        v, (k, q) = rows[:, 0], (part.reshape(heads, rank, dim) for part in np.split(rows[:, 1:], 2, axis=1))
        a = np.einsum("h,hri,hrj->ij", v, k, q)
        slope = second @ a @ lam - drive
        on_key, on_query = np.einsum("h,ij,hrj->hri", v, slope, q), np.einsum("h,ij,hri->hrj", v, slope, k)
        on_value = np.einsum("hri,ij,hrj->h", k, slope, q)
        parts = on_value[:, None], on_key.reshape(heads, -1), on_query.reshape(heads, -1)
        return objective.label_power + np.sum(a * (slope - drive)), -np.concatenate(parts, axis=1).reshape(-1)

    return loss_and_velocity


def plain_step(objective, model, length):
    """The same with the whole Jacobian, which is exact by steps into the complex plane."""
    along, weights = velocity_of(objective, model), read(model).reshape(-1)
    jacobian = np.stack([np.imag(along(weights + 1e-30j * axis)[1]) / 1e-30 for axis in np.eye(weights.size)], axis=1)
    matrix = np.eye(weights.size) / (RODAS5P.gamma * length) - jacobian
    stages, place = np.zeros((len(RODAS5P.a), weights.size)), weights
    for number, (a, c) in enumerate(zip(RODAS5P.a, RODAS5P.c, strict=True)):
        place = weights + a @ stages
        stages[number] = np.linalg.solve(matrix, along(place)[1] + c @ stages / length)
    found = np.stack([place + stages[-1], stages[-1], *(RODAS5P.d @ stages)])
    return along(weights)[0], found.reshape(-1, *read(model).shape)


def assert_same_step(form, objective, model, length, digits):
    found, plain = made_step(form, objective, model, length), plain_step(objective, model, length)
    assert np.all(np.isfinite(plain[1]))
    np.testing.assert_allclose(found[0], plain[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], plain[1], rtol=0, atol=digits * np.abs(plain[1]).max())


@pytest.mark.parametrize(
    ("dim", "heads", "rank"), [(1, 1, 1), (2, 3, 2), (3, 2, 1), (4, 4, 1), (5, 2, 3), (7, 2, 5), (8, 9, 1), (12, 3, 1)]
)
@pytest.mark.parametrize("length", [1e-4, 0.05, 0.3])
@FORMS
def test_steps_are_those_with_the_whole_jacobian(dim, heads, rank, length, form):
    assert_same_step(form, Population(task_of(dim)), model_of(dim, heads, rank), length, 1e-11)


@pytest.mark.parametrize("length", [1.0, 1e3, 1e6])
@FORMS
def test_steps_are_those_with_the_whole_jacobian_however_long(length, form):
    """On plateaus, where a step is longer than all that decays, and at the end. Bends are sums of large terms."""
    digits = float(np.finfo(float).eps * np.abs(RODAS5P.d).sum())
    objective, model = Population(diagonal()), model_of(4, 4, scale=1e-6)
    run = flow(model, objective, record=Record(points=401), progress=False)
    loss, fall = run.loss[0].values, np.abs(np.diff(run.loss[0].values))
    shed = (loss[0] - loss[:-1]) / (loss[0] - loss[-1])
    for least, most in ((0.3, 0.6), (0.6, 0.8), (0.999, 1.0)):
        place = np.argmin(np.where((shed > least) & (shed < most), fall, np.inf))
        there = model.with_weights({name: run[name].values[0, place] for name in ("value", "key", "query")})
        assert_same_step(form, objective, there, length, digits)


@pytest.mark.parametrize("inputs", [[0.6, 0.4, 0.0], [1.0, 0.0, 0.0], [1e-200, 0.0, 0.0]])
@FORMS
def test_a_slope_of_any_rank_has_a_basis(inputs, form):
    """Directions without inputs have singular values of zero, and nothing moves along them."""
    objective, model = Population(InContextRegression(np.diag(inputs), 9)), model_of(3, 2, 2)
    assert_same_step(form, objective, model, 0.3, 1e-11)
    queries = made_step(form, objective, model, 0.3)[1][1:, :, 7:].reshape(4, 2, 2, 3)
    assert np.all(queries[..., 2] == 0.0)


@pytest.mark.parametrize("inputs", [np.ones((2, 2)), np.ones((5, 5)), np.kron(np.eye(2), np.ones((2, 2)))])
@FORMS
def test_columns_of_a_slope_may_cancel_to_the_last_digit(inputs, form):
    """Of inputs that are all the same: one turn of two equal columns leaves nothing of the one, and no direction."""
    objective, model = Population(InContextRegression(inputs, 9)), model_of(len(inputs), 2, 2, scale=0.1)
    for length in (1e-4, 0.3):
        assert_same_step(form, objective, model, length, 1e-11)
    assert flow(model, objective, record=Record(points=3), progress=False).attrs["outcome"] == "converged"


@FORMS
def test_weights_of_zero_that_get_no_gradient_stay_zero(form):
    """Along eigenvectors modes do not mix. Rounding would lead off the saddle."""
    model = SeparateAttention.aligned(jnp.eye(4)[:, ::-1], heads=3, scale=0.3)
    for length in (0.3, 20.0):
        _, (after, *_) = made_step(form, Population(diagonal()), model, length)
        np.testing.assert_array_equal(after == 0.0, read(model) == 0.0)


@pytest.mark.parametrize("runs", [3, 250])
@pytest.mark.parametrize("own", [False, True])
def test_every_run_has_its_own_weights_length_and_task(runs, own):
    """Few runs leave lanes empty, several blocks of them go to several threads; one that is lost disturbs no other."""
    kinds = [stepping(Population(task_of(3, seed)), "population_step") for seed in range(3 if own else 1)]
    tasks = [kinds[run % len(kinds)] for run in range(runs)]
    weights, lengths = np.random.default_rng(0).normal(size=(runs, 2, 7)), np.geomspace(1e-4, 1.0, runs)
    weights[1] = np.nan
    step = jax.jit(lambda each, w, h: each.rosenbrock_step(w, h, RODAS5P))
    losses, found = jax.jit(jax.vmap(step))(Ensemble.of(tasks).stacked, weights, lengths)
    assert not np.any(np.isfinite(found[1]))
    for run in [0, *range(2, runs)]:
        loss, moved = step(tasks[run], weights[run], lengths[run])
        np.testing.assert_array_equal(losses[run], loss)
        np.testing.assert_array_equal(found[run], moved)


def test_without_native_functions_the_flow_is_the_same(with_and_without):
    model, objective = model_of(3, 3, rank=2, scale=1e-3), Population(task_of(3))
    options = {"record": Record(points=50), "rtol": 1e-8, "progress": False}
    native, plain = with_and_without(lambda: flow(model, objective, **options))
    assert native.attrs["outcome"] == plain.attrs["outcome"] == "converged"
    work = [json.loads(found.attrs["configuration"])["work"] for found in (native, plain)]
    assert work[0] == work[1]
    # The end is where the loss crosses the target, within the last step.
    np.testing.assert_allclose(native.time, plain.time, rtol=1e-6)
    np.testing.assert_allclose(native.loss, plain.loss, rtol=1e-6)
    np.testing.assert_allclose(native["key"], plain["key"], atol=1e-5)


def test_a_tiny_start_leaves_saddles_when_it_does_without(with_and_without):
    """What leads off a saddle is rounded by its own last digit, some 10⁻²⁴ here, not by that of other weights."""
    model, objective = model_of(4, 4, scale=1e-8), Population(diagonal())
    native, plain = with_and_without(lambda: flow(model, objective, record=Record(points=3), progress=False))
    assert native.attrs["outcome"] == plain.attrs["outcome"] == "converged"
    np.testing.assert_allclose(native.time[-1], plain.time[-1], rtol=1e-9)


@pytest.mark.parametrize(
    ("dim", "heads", "kind"), [(8, 2, AbstractRosenbrock), (9, 5, Population), (9, 8, AbstractResolvent)]
)
def test_the_form_taken_has_the_smallest_system(dim, heads, kind):
    """Native in few dimensions; beyond, D² equations where there are more weights than that."""
    assert isinstance(stiff_form(Population(task_of(dim)), model_of(dim, heads)), kind)


def test_a_flow_by_resolvent_is_that_by_lsoda():
    objective = Population(InContextRegression(covariance(1 / np.arange(1, 10)), 31))
    model = model_of(9, 7, scale=0.03)
    options = {"until": 400.0, "record": Record(points=30), "rtol": 1e-9, "atol": 1e-10, "progress": False}
    found, tight = (flow(model, objective, solver=solver, **options) for solver in ("auto", "lsoda"))
    assert json.loads(found.attrs["configuration"])["solver"] == "rodas5p"
    assert isinstance(stiff_form(objective, model), AbstractResolvent)
    # Each of some hundred steps has an error of its own.
    np.testing.assert_allclose(found.loss, tight.loss, rtol=1e3 * 1e-9)
    assert float(found.loss[0, -1]) < 0.5 * float(found.loss[0, 0])
