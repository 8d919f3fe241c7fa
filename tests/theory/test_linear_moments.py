"""M, C and the label power: Monte Carlo, the paper's special case, and the tasks' own closed form."""

import subprocess
import sys

import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.theory import RegressionTask, linear
from stepwell.theory._task_protocols import require_regression


def test_moments_agree_with_monte_carlo(make_task):
    task = make_task([1.0, 0.6, 0.3], [0.5, 2.0, 1.0], lengths=(3, 8), noise=0.7, rotation=1, task_rotation=2)
    rng = np.random.default_rng(0)
    samples = 40_000
    beta, w, y_query = [], [], []
    for n in task.context.counts:
        x = rng.multivariate_normal(np.zeros(3), task.covariance, (samples, n + 1))
        tasks = rng.multivariate_normal(np.zeros(3), task.task_covariance, samples)
        truth = np.einsum("sni,si->sn", x, tasks)
        labels = truth[:, :n] + np.sqrt(task.noise_variance) * rng.normal(size=(samples, n))
        beta.append(np.einsum("sn,sni->si", labels, x[:, :n]) / n)
        w.append(tasks)
        y_query.append(truth[:, n])
    beta, w, y_query = np.concatenate(beta), np.concatenate(w), np.concatenate(y_query)
    for draws, exact in (
        (beta[:, :, None] * w[:, None, :], linear.moments(task).cross),
        (beta[:, :, None] * beta[:, None, :], linear.moments(task).second),
        (y_query**2, linear.moments(task).label_power),
    ):
        error = draws.std(axis=0) / np.sqrt(len(draws))
        # Nineteen numbers: a deviation of five standard errors by chance has probability 1e-5.
        assert np.all(np.abs(draws.mean(axis=0) - exact) < 5 * error)


def test_second_moment_is_the_papers_for_unit_tasks(make_task):
    task = make_task([0.4, 0.3, 0.2, 0.1], rotation=3)
    lam = task.covariance
    expected = lam @ lam + (lam + np.trace(lam) * np.eye(4)) @ lam / 31
    np.testing.assert_allclose(linear.moments(task).second, expected, rtol=0, atol=8 * np.finfo(float).eps)


def test_a_mixture_of_lengths_is_the_average(make_task):
    kwargs = {"task_variances": [2.0, 1.0], "noise": 0.3, "rotation": 4, "task_rotation": 5}
    mixed = linear.moments(make_task([1.0, 0.5], lengths=(2, 7, 30), **kwargs)).second
    alone = [linear.moments(make_task([1.0, 0.5], lengths=(n,), **kwargs)).second for n in (2, 7, 30)]
    np.testing.assert_allclose(mixed, np.mean(alone, axis=0), rtol=1e-14)


def test_tasks_and_theory_agree(make_task):
    from stepwell import tasks

    like = make_task([1.0, 0.5, 0.2], [2.0, 1.0, 0.1], lengths=(4, 9), noise=0.3, rotation=4, task_rotation=5)
    real = tasks.InContextRegression(
        like.covariance,
        tasks.ContextLengths(like.context.counts),
        task_covariance=like.task_covariance,
        noise_variance=like.noise_variance,
    )
    assert isinstance(real, RegressionTask)
    other = tasks.population_moments(real)
    np.testing.assert_allclose(linear.moments(real).cross, other.cross, rtol=1e-13)
    np.testing.assert_allclose(linear.moments(real).second, other.second, rtol=1e-13)
    assert linear.moments(real).label_power == pytest.approx(other.label_power, rel=1e-13)


def test_several_outputs_are_refused(make_task):
    with pytest.raises(InvalidInput, match="outputs=1"):
        linear.levels(make_task([1.0, 0.5], outputs=2))


def test_a_task_that_the_theory_cannot_read_is_refused_with_what_it_lacks(make_multi_task):
    """Called directly: while tests run, types are checked before any function of the theory begins."""
    with pytest.raises(InvalidInput, match=r"MultiTask has no covariance; .*theory\.Regression") as refusal:
        require_regression(make_multi_task([2, 3]))
    assert "\n" not in str(refusal.value)


def test_theory_does_not_import_jax():
    code = "import sys, stepwell.theory.linear; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
