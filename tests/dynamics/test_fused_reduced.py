"""The native pass over reduced sequences against automatic differentiation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.dynamics import Ensemble, descend
from stepwell.dynamics.fast import FusedReduced, gradient_form
from stepwell.models import SpectralAttention, decomposable
from stepwell.native import _kernels
from stepwell.objectives import ReducedSampled
from stepwell.tasks import MultiTaskRegression

KEY = jax.random.key(0)


@eqx.filter_jit
def value_and_gradient(objective, model):
    return eqx.filter_value_and_grad(objective)(model)


def random_model(rng: np.random.Generator, heads: int, dims: tuple[int, ...], scale: float) -> SpectralAttention:
    shape = heads, len(dims)
    signs = rng.choice([-1.0, 1.0], size=(2, *shape))
    values = scale * rng.random((2, *shape))
    return SpectralAttention(
        jnp.asarray(values[0]),
        jnp.asarray(signs[0] * values[0]),
        jnp.asarray(values[1]),
        jnp.asarray(signs[1] * values[1]),
        dims=dims,
    )


def assert_same(objective: ReducedSampled, model, *, rtol: float):
    fused = gradient_form(objective, model)
    assert isinstance(fused, FusedReduced)
    (loss, gradient), (fused_loss, fused_gradient) = (value_and_gradient(each, model) for each in (objective, fused))
    np.testing.assert_allclose(fused_loss, loss, rtol=rtol, equal_nan=False)
    scale = max(np.abs(value).max() for value in gradient.weights().values())
    for name, value in gradient.weights().items():
        np.testing.assert_allclose(getattr(fused_gradient, name), value, atol=rtol * scale, rtol=0, err_msg=name)


@settings(max_examples=5, deadline=None)
@given(
    dims=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    heads=st.integers(1, 5),
    context=st.integers(1, 12),
    sequences=st.integers(32, 80),
    control=st.booleans(),
    noise=st.sampled_from([0.0, 0.7]),
    scale=st.sampled_from([0.1, 1.0]),
)
def test_any_size(dims, heads, context, sequences, control, noise, scale):
    strengths = np.linspace(0.5, 2.0, len(dims))
    task = MultiTaskRegression(dims, strengths, context, noise_variance=noise)
    model = random_model(np.random.default_rng(1), heads, tuple(dims), scale)
    assert_same(ReducedSampled(task, sequences, control=control, key=KEY), model, rtol=1e-10)


def test_right_to_rounding():
    """One head and one task, from the definition in extended precision."""
    objective = ReducedSampled(MultiTaskRegression((5,), context=30), 64, control=False, key=KEY)
    model = SpectralAttention.balanced(np.array([[0.4]]), np.array([[1.7]]), (5,))
    normals, norms = (np.asarray(part, np.longdouble)[..., 0, :] for part in (objective.normals, objective.norms))
    omega, mu = (np.longdouble(part[0, 0]) for part in (model.omega(), model.mu()))
    weights = np.exp(omega * norms * normals)
    shares = weights / weights.sum(axis=0)
    errors = (norms - mu * np.sum(shares * normals, axis=0)) ** 2 + 4 * mu**2 * np.sum(shares**2, axis=0)
    loss, _ = value_and_gradient(gradient_form(objective, model), model)
    np.testing.assert_allclose(float(loss), float(errors.mean()), rtol=8 * np.finfo(float).eps)


def test_whole_matrices_have_the_gradient_of_their_eigenvalues():
    task = MultiTaskRegression((2, 3), context=9, inputs_rotation="random", outputs_rotation="random", key=KEY)
    model = decomposable(random_model(np.random.default_rng(2), 3, (2, 3), 1.0), task)
    assert_same(ReducedSampled(task, 37, key=KEY), model, rtol=1e-10)  # the last block is not full


def test_scores_far_apart():
    """Scores a hundred apart: nearly all weight is on one token."""
    task = MultiTaskRegression((4, 3), context=20)
    model = random_model(np.random.default_rng(3), 2, (4, 3), 30.0)
    assert float(jnp.abs(model.omega()).max()) > 20
    assert_same(ReducedSampled(task, 64, key=KEY), model, rtol=1e-9)


def test_blocks_of_small_and_of_large_scores():
    """Only in blocks that have large ones, whose exponentials overflow, is the largest taken off first."""
    objective = ReducedSampled(MultiTaskRegression((4,), context=100), 64, key=KEY)
    objective = eqx.tree_at(lambda o: o.norms, objective, objective.norms * np.linspace(0.1, 12, 64))
    model = SpectralAttention.balanced(np.array([[4.0], [1.0]]), np.array([[0.5], [0.2]]), (4,))
    largest = 4.0 * np.log2(np.e) * np.asarray(objective.norms * objective.normals.max(axis=0)).reshape(8, 8)
    assert largest[0].max() < 200 and largest.max() > 512  # the square overflows
    assert_same(objective, model, rtol=1e-9)


def test_scores_of_thousands_pick_one_token():
    """Their exponentials would overflow. The softmax is then the token of the largest score, and nothing else."""
    objective = ReducedSampled(MultiTaskRegression((3,), context=7), 50, control=False, key=KEY)
    model = SpectralAttention.balanced(np.array([[1e5]]), np.array([[0.8]]), (3,))
    loss, gradient = value_and_gradient(gradient_form(objective, model), model)
    picked, norms = np.asarray(objective.normals)[:, 0].max(axis=0), np.asarray(objective.norms)[0]
    np.testing.assert_allclose(loss, np.mean((norms - 0.8 * picked) ** 2 + 2 * 0.8**2), rtol=1e-12)
    assert float(jnp.abs(gradient.key[0, 0])) < 1e-12 < float(jnp.abs(gradient.value[0, 0]))


def test_single_precision_keeps_six_digits():
    task = MultiTaskRegression((10, 10), context=50, noise_variance=0.5)
    model = SpectralAttention.balanced(0.05 + 0.2 * np.eye(2), 0.3 + 2 * np.eye(2), (10, 10))
    double, single = (ReducedSampled(task, 1000, precision=name, key=KEY) for name in ("float64", "float32"))
    fused = gradient_form(single, model)
    assert isinstance(fused, FusedReduced) and fused.normals.dtype == jnp.float32
    (loss, gradient), (fused_loss, fused_gradient) = (value_and_gradient(each, model) for each in (double, fused))
    np.testing.assert_allclose(fused_loss, loss, rtol=1e-6)
    for name in model.weight_dims:
        np.testing.assert_allclose(getattr(fused_gradient, name), getattr(gradient, name), rtol=1e-4)
    assert fused_loss.dtype == jnp.float64


def test_a_task_that_no_head_serves_moves_nothing():
    task = MultiTaskRegression((3, 4), (1.0, 2.0), 20)
    model = SpectralAttention.balanced(np.full((2, 2), 0.1), np.array([[1.0, 0.0], [0.5, 0.0]]), (3, 4))
    loss, gradient = value_and_gradient(gradient_form(ReducedSampled(task, 64, key=KEY), model), model)
    assert np.isfinite(loss) and all(np.all(np.asarray(w)[:, 1] == 0.0) for w in (gradient.value, gradient.output))


def test_what_is_not_a_number_stays_so():
    """Else a run that diverged would seem to go on."""
    task = MultiTaskRegression((2,), context=5)
    model = SpectralAttention.balanced(np.array([[np.nan]]), np.array([[1.0]]), (2,))
    loss, _ = value_and_gradient(gradient_form(ReducedSampled(task, 32, key=KEY), model), model)
    assert np.isnan(loss)


@pytest.mark.parametrize("who", ["one", "shared data", "own data"])
def test_a_descent_is_the_same_with_and_without(who: str, with_and_without):
    task = MultiTaskRegression((3,), context=8)
    rng = np.random.default_rng(4)
    models = [random_model(rng, 2, (3,), 0.5) for _ in range(3)]
    objectives = [ReducedSampled(task, 40, key=key) for key in jax.random.split(KEY, 3)]
    model = models[0] if who == "one" else Ensemble.of(models)
    objective = Ensemble.of(objectives) if who == "own data" else objectives[0]
    found = with_and_without(lambda: descend(model, objective, rate=0.02, steps=50, progress=False))
    for name in ("loss", "key", "value"):
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-9, atol=1e-12)
    assert float(found[0]["loss"][0, -1]) < float(found[0]["loss"][0, 0])


def test_without_a_compiler_it_stays_as_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("STEPWELL_NATIVE_REPORTED", "1")
    _kernels.state.cache_clear()
    objective = ReducedSampled(MultiTaskRegression((2,), context=5), 32, key=KEY)
    model = SpectralAttention.balanced(np.array([[0.1]]), np.array([[1.0]]), (2,))
    assert gradient_form(objective, model) is objective
    _kernels.state.cache_clear()
