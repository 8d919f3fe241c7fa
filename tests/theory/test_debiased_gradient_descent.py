"""One step of gradient descent in context: closed forms against samples, differences and published numbers."""

import numpy as np
import pytest
import scipy

from stepwell._util.errors import InvalidInput
from stepwell.theory import MultiRegression, Regression, softmax

RATE = np.array([0.897])
PAPER = MultiRegression((5,), (0.2,), 0.1, 40)


def sampled(lam, prior, noise, length, gamma, debiased, samples, seed):
    """Mean and standard error of the squared error of the predictor itself, on whole sequences."""
    rng = np.random.default_rng(seed)
    root, prior_root = np.linalg.cholesky(lam), np.linalg.cholesky(prior)
    x = rng.normal(size=(samples, length, len(lam))) @ root.T
    q, w = (rng.normal(size=(samples, len(lam))) @ each.T for each in (root, prior_root))
    y = np.einsum("sld,sd->sl", x, w) + noise**0.5 * rng.normal(size=(samples, length))
    if debiased:
        x = x - x.mean(axis=1, keepdims=True)
    prediction = np.einsum("sl,sld,de,se->s", y, x, gamma, q, optimize=True) / length
    errors = (np.sum(w * q, axis=1) - prediction) ** 2
    return errors.mean(), errors.std(ddof=1) / samples**0.5


def random_regression(seed, dim, noise, length):
    rng = np.random.default_rng(seed)
    halves = rng.normal(size=(2, dim, dim))
    lam, prior = halves @ halves.transpose(0, 2, 1) / dim + 0.2 * np.eye(dim)
    return Regression(lam, prior, noise, length)


@pytest.mark.parametrize("debiased", [True, False])
@pytest.mark.parametrize(("dim", "noise", "length"), [(2, 0.0, 4), (3, 0.7, 10), (5, 0.1, 40)])
def test_the_preconditioned_loss_against_samples(dim, noise, length, debiased):
    task = random_regression(dim, dim, noise, length)
    gamma = softmax.best_preconditioner(task) + 0.1 * np.random.default_rng(1).normal(size=(dim, dim))
    mean, error = sampled(
        task.covariance, task.task_covariance, noise, length, gamma, debiased, 50_000, seed=length + debiased
    )
    # Six numbers: 4.5 standard errors by chance have probability 4e-5.
    assert abs(softmax.preconditioned_loss(task, gamma, debiased=debiased) - mean) < 4.5 * error


@pytest.mark.parametrize("debiased", [True, False])
def test_the_best_preconditioner_is_where_a_search_ends(debiased):
    task = random_regression(7, 3, 0.4, 12)
    best = softmax.best_preconditioner(task, debiased=debiased)
    search = scipy.optimize.minimize(
        lambda flat: softmax.preconditioned_loss(task, flat.reshape(3, 3), debiased=debiased), np.zeros(9), tol=1e-14
    )
    np.testing.assert_allclose(best, search.x.reshape(3, 3), atol=1e-4)
    assert softmax.preconditioned_loss(task, best, debiased=debiased) <= search.fun * (1 + 1e-12)


@pytest.mark.parametrize("debiased", [True, False])
def test_isotropic_steps_are_those_with_a_multiple_of_one(debiased):
    task = MultiRegression((3, 6), (0.5, 2.0), 0.7, 11)
    best = softmax.best_gradient_step(task, debiased=debiased)
    np.testing.assert_allclose(best.loss, softmax.gradient_step_loss(task, best.rate, debiased=debiased), rtol=1e-13)
    for i, (d, strength) in enumerate(zip(task.dims, task.strengths, strict=True)):
        one = Regression(np.eye(d), strength * np.eye(d), 0.7, 11)
        found = softmax.best_preconditioner(one, debiased=debiased)
        np.testing.assert_allclose(found, best.rate[i] * np.eye(d), atol=1e-13)
        np.testing.assert_allclose(softmax.preconditioned_loss(one, found, debiased=debiased), best.loss[i])


def test_the_numbers_of_the_published_setting():
    r"""d = 5, L = 40, σ² = 0.1: losses with the noise of the target, the crossing at $L' = \eta d\phi/2(1-\eta)$."""
    debiased, plain = (softmax.best_gradient_step(PAPER, debiased=each) for each in (True, False))
    np.testing.assert_allclose(debiased.loss + 0.1, 0.242857, atol=5e-7)
    np.testing.assert_allclose(plain.loss + 0.1, 0.239785, atol=5e-7)
    np.testing.assert_allclose(plain.loss, softmax.linear_attention_loss(PAPER), rtol=1e-13)
    np.testing.assert_allclose(debiased.rate, 1 / (1 + 5.5 / 40), rtol=1e-13)

    def gain(length):
        losses = [softmax.gradient_step_loss(PAPER, RATE, debiased=each, context=length) for each in (True, False)]
        return float((losses[0] - losses[1])[0])

    assert gain(23) < 0 < gain(24)  # the formula crosses at 23.9
    for length, loss in {10: 0.6078, 20: 0.3703, 40: 0.2432, 100: 0.1643, 200: 0.1376, 400: 0.1241}.items():
        found = softmax.gradient_step_loss(PAPER, RATE, context=length)
        np.testing.assert_allclose(found + 0.1, loss, atol=5.1e-5)


def test_correlated_inputs_of_the_published_setting():
    lam = scipy.linalg.toeplitz(0.5 ** np.arange(5))
    task = Regression(lam, np.eye(5) / 5, 0.1, 40)
    best = softmax.best_preconditioner(task)
    found = np.sort(np.linalg.eigvalsh(best))[::-1]
    np.testing.assert_allclose(found, [2.009, 1.681, 1.208, 0.731, 0.417], atol=5.1e-4)
    kappa = (5 + 0.5) / 40
    np.testing.assert_allclose(best, np.linalg.inv(lam + kappa * np.eye(5)), rtol=1e-12)
    s = np.linalg.eigvalsh(lam)
    loss = np.mean(s * (1 - 39 / 40 * s / (s + kappa)))
    np.testing.assert_allclose(softmax.preconditioned_loss(task, best), loss, rtol=1e-12)


@pytest.mark.parametrize("noise", [0.1, 1.0, 3.0])
def test_the_gap_to_bayes_falls_from_one_plus_the_signal_to_noise_ratio_to_one(noise):
    tasks = [MultiRegression((10**6,), (1e-6,), noise, round(10**6 / xi)) for xi in np.geomspace(1e-6, 1e4, 30)]
    gaps = np.concatenate([softmax.bayes_gap(task) for task in tasks])
    assert np.all(np.diff(gaps) < 1e-9)
    np.testing.assert_allclose(gaps[[0, -1]], [1 + 1 / noise, 1], rtol=1e-3)


@pytest.mark.parametrize(
    ("noise", "largest", "at"),
    [(0.01, 17.95, 0.41), (0.1, 2.53, 0.39), (0.5, 1.22, 0.30), (1.0, 1.08, 0.23), (3.0, 1.013, 0.12)],
)
def test_the_gap_of_the_whole_risk_is_largest_in_between(noise, largest, at):
    def ratio(xi):
        task = MultiRegression((10**6,), (1e-6,), noise, round(10**6 / xi))
        risk = softmax.bayes_risk(task)
        return float((noise + softmax.bayes_gap(task) * risk)[0] / (noise + risk)[0])

    ratios = np.arange(0.01, 1.0, 0.01)
    values = [ratio(xi) for xi in ratios]
    np.testing.assert_allclose(max(values), largest, rtol=4e-3)
    np.testing.assert_allclose(ratios[np.argmax(values)], at, atol=0.011)


def test_without_noise_the_gap_is_infinite():
    assert np.isinf(softmax.bayes_gap(MultiRegression((5,), (1.0,), 0.0, 10))[0])


def test_what_has_no_answer_is_refused():
    with pytest.raises(InvalidInput, match="always 0"):
        softmax.best_preconditioner(Regression(np.eye(2), np.zeros((2, 2)), 0.0, 10))
    with pytest.raises(InvalidInput, match="not finite"):
        softmax.preconditioned_loss(Regression(np.eye(2), np.eye(2), 0.0, 10), np.full((2, 2), np.nan))
    with pytest.raises(InvalidInput, match="context"):
        softmax.gradient_step_loss(PAPER, RATE, context=0)
