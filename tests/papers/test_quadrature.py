"""The loss through the predictions of a model is that of its moments, and of sampled sequences."""

import jax
import numpy as np
import pytest

from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Population, Sampled
from stepwell.papers.linear._quadrature import quadrature_loss
from stepwell.tasks import ContextLengths, InContextRegression, covariance

KEYS = jax.random.split(jax.random.key(0), 4)
TASK = InContextRegression(
    covariance([0.5, 0.3, 0.2], key=KEYS[0]),
    ContextLengths([3, 9]),
    task_covariance=covariance([1.0, 0.6, 1.5], key=KEYS[1]),
    noise_variance=0.1,
)
ROUNDING = 1e-13
"""Some hundreds of terms of order one."""
MODELS = [kind.random(dim=3, heads=2, scale=0.8, key=KEYS[2]) for kind in (SeparateAttention, MergedAttention)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_it_is_the_loss_by_moments(model):
    """Up to rounding, at which forgotten noise shows."""
    expected = float(Population(TASK)(model))
    quiet = InContextRegression(TASK.covariance, TASK.context, task_covariance=TASK.task_covariance)
    agree = [np.isclose(float(quadrature_loss(task, model)), expected, rtol=ROUNDING, atol=0) for task in (TASK, quiet)]
    assert agree == [True, False]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_it_is_the_mean_over_sequences(model):
    losses = [float(Sampled(TASK.sample(4000, key=key))(model)) for key in jax.random.split(KEYS[3], 10)]
    error = np.std(losses, ddof=1) / len(losses) ** 0.5
    assert abs(np.mean(losses) - float(quadrature_loss(TASK, model))) < 4 * error
