"""Native steps along the flow in population against dense ones in NumPy, and the flows made of them."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell.dynamics import Ensemble, flow
from stepwell.dynamics._rosenbrock import RODAS5P
from stepwell.models import SeparateAttention
from stepwell.objectives import AbstractStepping, Population
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


def stepping(objective, model):
    found = objective.for_steps(model)
    assert isinstance(found, AbstractStepping)
    return found


def read(model):
    """The weights that the loss reads, head by head."""
    parts = model.value[:, 0, model.dim :], model.key[..., : model.dim], model.query
    return np.concatenate([np.asarray(part).reshape(len(part), -1) for part in parts], axis=1)


def native_step(objective, model, length):
    """(loss; weights after, estimate, three bends)"""
    step = jax.jit(lambda w, h: stepping(objective, model).rosenbrock(w, h, RODAS5P))
    loss, found = step(read(model), jnp.asarray(length))
    return float(loss), np.asarray(found)


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


def assert_same_step(objective, model, length, digits):
    native, plain = native_step(objective, model, length), plain_step(objective, model, length)
    assert np.all(np.isfinite(plain[1]))
    np.testing.assert_allclose(native[0], plain[0], rtol=1e-12)
    np.testing.assert_allclose(native[1], plain[1], rtol=0, atol=digits * np.abs(plain[1]).max())


@pytest.mark.parametrize(
    ("dim", "heads", "rank"), [(1, 1, 1), (2, 3, 2), (3, 2, 1), (4, 4, 1), (5, 2, 3), (7, 2, 5), (8, 9, 1), (12, 3, 1)]
)
@pytest.mark.parametrize("length", [1e-4, 0.05, 0.3])
def test_steps_are_those_with_the_whole_jacobian(dim, heads, rank, length):
    assert_same_step(Population(task_of(dim)), model_of(dim, heads, rank), length, 1e-11)


@pytest.mark.parametrize("length", [1.0, 1e3, 1e6])
def test_steps_are_those_with_the_whole_jacobian_however_long(length):
    """On plateaus, where a step is longer than all that decays, and at the end. Bends are sums of large terms."""
    digits = float(np.finfo(float).eps * np.abs(RODAS5P.d).sum())
    objective, model = Population(diagonal()), model_of(4, 4, scale=1e-6)
    run = flow(model, objective, save=401, progress=False)
    loss, fall = run.loss[0].values, np.abs(np.diff(run.loss[0].values))
    shed = (loss[0] - loss[:-1]) / (loss[0] - loss[-1])
    for least, most in ((0.3, 0.6), (0.6, 0.8), (0.999, 1.0)):
        place = np.argmin(np.where((shed > least) & (shed < most), fall, np.inf))
        there = model.with_weights({name: run[name].values[0, place] for name in ("value", "key", "query")})
        assert_same_step(objective, there, length, digits)


@pytest.mark.parametrize("inputs", [[0.6, 0.4, 0.0], [1.0, 0.0, 0.0], [1e-200, 0.0, 0.0]])
def test_a_slope_of_any_rank_has_a_basis(inputs):
    """Directions without inputs have singular values of zero, and nothing moves along them."""
    objective, model = Population(InContextRegression(np.diag(inputs), 9)), model_of(3, 2, 2)
    assert_same_step(objective, model, 0.3, 1e-11)
    queries = native_step(objective, model, 0.3)[1][1:, :, 7:].reshape(4, 2, 2, 3)
    assert np.all(queries[..., 2] == 0.0)


@pytest.mark.parametrize("inputs", [np.ones((2, 2)), np.ones((5, 5)), np.kron(np.eye(2), np.ones((2, 2)))])
def test_columns_of_a_slope_may_cancel_to_the_last_digit(inputs):
    """Of inputs that are all the same: one turn of two equal columns leaves nothing of the one, and no direction."""
    objective, model = Population(InContextRegression(inputs, 9)), model_of(len(inputs), 2, 2, scale=0.1)
    for length in (1e-4, 0.3):
        assert_same_step(objective, model, length, 1e-11)
    assert flow(model, objective, save=3, progress=False).attrs["outcome"] == "converged"


def test_weights_of_zero_that_get_no_gradient_stay_zero():
    """Along eigenvectors modes do not mix. Rounding would lead off the saddle."""
    model = SeparateAttention.aligned(jnp.eye(4)[:, ::-1], heads=3, scale=0.3)
    for length in (0.3, 20.0):
        _, (after, *_) = native_step(Population(diagonal()), model, length)
        np.testing.assert_array_equal(after == 0.0, read(model) == 0.0)


@pytest.mark.parametrize("runs", [3, 250])
@pytest.mark.parametrize("own", [False, True])
def test_every_run_has_its_own_weights_length_and_task(runs, own):
    """Few runs leave lanes empty, several blocks of them go to several threads; one that is lost disturbs no other."""
    kinds = [stepping(Population(task_of(3, seed)), model_of(3, 2)) for seed in range(3 if own else 1)]
    tasks = [kinds[run % len(kinds)] for run in range(runs)]
    weights, lengths = np.random.default_rng(0).normal(size=(runs, 2, 7)), np.geomspace(1e-4, 1.0, runs)
    weights[1] = np.nan
    step = jax.jit(lambda each, w, h: each.rosenbrock(w, h, RODAS5P))
    losses, found = jax.jit(jax.vmap(step))(Ensemble.of(tasks).stacked, weights, lengths)
    assert not np.any(np.isfinite(found[1]))
    for run in [0, *range(2, runs)]:
        loss, moved = step(tasks[run], weights[run], lengths[run])
        np.testing.assert_array_equal(losses[run], loss)
        np.testing.assert_array_equal(found[run], moved)


def test_without_native_functions_the_flow_is_the_same(with_and_without):
    model, objective = model_of(3, 3, rank=2, scale=1e-3), Population(task_of(3))
    options = {"save": 50, "rtol": 1e-8, "progress": False}
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
    native, plain = with_and_without(lambda: flow(model, objective, save=3, progress=False))
    assert native.attrs["outcome"] == plain.attrs["outcome"] == "converged"
    np.testing.assert_allclose(native.time[-1], plain.time[-1], rtol=1e-9)
