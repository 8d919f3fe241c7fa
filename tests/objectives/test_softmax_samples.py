"""Reduced samples of softmax attention: their sums, their errors, their precision."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from stepwell.models import SpectralAttention
from stepwell.objectives import Exact, ReducedSampled
from stepwell.objectives._reduced import softmax_sums
from stepwell.tasks import MultiTaskRegression

KEY = jax.random.key(0)


@eqx.filter_jit
def evaluated(objective, model):
    """(loss, standard error)."""
    return objective(model), objective.standard_error(model)


@eqx.filter_jit
def gradient_of(objective, model):
    return jax.value_and_grad(objective)(model)


def fixed_point(dim, context, noise):
    """A task and the head that flow leads to, in the leading order."""
    task = MultiTaskRegression((dim,), context=context, noise_variance=noise)
    rho = np.e * (1 + noise / dim) * dim / context
    return task, SpectralAttention.balanced(np.array([[dim**-0.5]]), np.array([[dim**0.5 / (1 + rho)]]), (dim,))


@pytest.mark.parametrize(("heads", "tasks", "tokens"), [(1, 1, 3), (3, 2, 12), (2, 3, 7)])
def test_softmax_sums_are_those_of_a_plain_softmax_with_its_derivatives(heads, tasks, tokens):
    rng = np.random.default_rng(2)
    w, z = jnp.asarray(rng.normal(size=(heads, tasks, 4))), jnp.asarray(rng.normal(size=(tokens, tasks, 4)))
    marks = [jnp.asarray(rng.normal(size=(heads, other, 4))) for other in (tasks, heads)]

    def plain(w, z, _):
        p = jax.nn.softmax(jnp.einsum("his,lis->hls", w, z), axis=1)
        return jnp.einsum("hls,lis->his", p, z), jnp.einsum("hls,kls->hks", p, p)

    def scalar(sums):
        def value(w):
            first, second = sums(w, z, jnp.abs(z).max(axis=0))
            return jnp.sum(jnp.sin(marks[0] * first)) + jnp.sum(jnp.exp(marks[1] * second))

        return jax.jit(value), jax.jit(jax.grad(value)), jax.jit(jax.hessian(value))

    for found, expected in zip(scalar(softmax_sums), scalar(plain), strict=True):
        np.testing.assert_allclose(found(w), expected(w), rtol=1e-9, atol=1e-11)


def test_very_sharp_scores_do_not_overflow():
    z = jax.random.normal(KEY, (5, 1, 8))
    first, second = softmax_sums(jnp.full((1, 1, 8), 150.0), z, jnp.abs(z).max(axis=0))
    np.testing.assert_allclose(first[0, 0], z[:, 0].max(axis=0), rtol=1e-3)
    assert np.all((np.asarray(second) > 0.5) & (np.asarray(second) < 1 + 1e-12))


@pytest.mark.parametrize("options", [{}, {"control": False}, {"stratified": False}])
def test_the_standard_error_is_that_of_other_draws(options):
    """Gaps to the exact loss in standard errors, over 40 draws, are t with 15 freedoms: their mean square is 15/13."""
    task, model = fixed_point(6, 12, 0.5)
    model = SpectralAttention.balanced(0.7 * model.omega(), model.mu(), (6,))
    exact = float(Exact(task)(model))
    draws = [
        evaluated(ReducedSampled(task, 256, key=key, **options), model)
        for key in jax.random.split(jax.random.key(3), 40)
    ]
    scores = np.array([(loss - exact) / error for loss, error in draws])
    assert abs(scores.mean()) < 5 * np.sqrt(15 / 13 / 40)
    # The variance of a squared t with 15 freedoms is 3.04.
    assert abs(np.mean(scores**2) - 15 / 13) < 5 * np.sqrt(3.04 / 40)


def test_strata_and_controls_take_most_of_the_variance_of_weights_on_a_plateau():
    task, model = fixed_point(10, 100, 0.0)
    model = SpectralAttention.balanced(0.3 * model.omega(), 2 * model.mu(), (10,))
    variances = {}
    for options in ((False, False), (True, False), (True, True)):
        objective = ReducedSampled(task, 16_384, stratified=options[0], control=options[1], key=KEY)
        variances[options] = float(evaluated(objective, model)[1]) ** 2 * 16_384
    # The raw variance of the loss of a sequence is 5.7 here, of which strata leave 3.4 and controls 0.15. A variance
    # from 16 groups is good to a factor of 3 with near certainty.
    assert variances[True, True] < variances[True, False] / 7 and variances[True, True] < 0.45
    assert 5.7 / 3 < variances[False, False] < 5.7 * 3


def test_single_precision_keeps_six_digits():
    task = MultiTaskRegression((10, 10), context=50, noise_variance=0.5)
    model = SpectralAttention.balanced(0.05 + 0.2 * np.eye(2), 0.3 + 2 * np.eye(2), (10, 10))
    losses, gradients = zip(
        *(
            gradient_of(ReducedSampled(task, 1024, precision=precision, key=KEY), model)
            for precision in ("float64", "float32")
        ),
        strict=True,
    )
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    for name in model.weight_dims:
        np.testing.assert_allclose(getattr(gradients[1], name), getattr(gradients[0], name), rtol=1e-4)
    assert losses[1].dtype == jnp.float64


def test_a_task_that_no_head_serves_costs_its_signal_and_moves_nothing():
    task = MultiTaskRegression((3, 4), (1.0, 2.0), 20)
    model = SpectralAttention.balanced(np.full((2, 2), 0.1), np.array([[1.0, 0.0], [0.5, 0.0]]), (3, 4))
    objective = ReducedSampled(task, 2048, key=KEY)

    def lost(value):
        return objective.per_task(model.with_weights(model.weights() | {"value": value}))[1]

    loss, gradient, curvature = jax.jit(lambda v: (lost(v), jax.grad(lost)(v), jax.hessian(lost)(v)))(model.value)
    # The mean of 2·n², n² ~ χ²₄, has a deviation of 0.125 in 2048 independent draws, of which strata leave little.
    assert abs(loss - 8.0) < 0.125
    assert np.all(np.asarray(gradient) == 0.0) and np.all(np.isfinite(curvature))


@pytest.mark.parametrize("stratified", [True, False])
def test_norms_are_those_of_independent_gaussian_blocks(stratified):
    objective = ReducedSampled(MultiTaskRegression((3, 7), context=4), 3200, stratified=stratified, key=KEY)
    ranks = np.stack([chi2.cdf(norms**2, d) for norms, d in zip(np.asarray(objective.norms), (3, 7), strict=True)])
    assert abs(np.corrcoef(ranks)[0, 1]) < 5 / np.sqrt(3200)
    for row in ranks:
        assert abs(row.mean() - 0.5) < 5 * np.sqrt(1 / 12 / 3200)
        strata = np.sort(np.floor(row.reshape(16, 200) * 200), axis=1)
        assert np.array_equal(strata, np.tile(np.arange(200), (16, 1))) == stratified
