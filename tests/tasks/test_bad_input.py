"""Constructors say what was given and what is allowed, in one line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput, WouldNotFit
from stepwell.tasks import (
    Batch,
    ContextLengths,
    InContextInWeightMixture,
    InContextRegression,
    covariance,
    population_moments,
)

KEY = jax.random.key(0)
SKEW = np.array([[1.0, 0.5], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: InContextRegression(SKEW), "not symmetric"),
        (lambda: InContextRegression(np.diag([1.0, -0.5])), "negative eigenvalue"),
        (lambda: InContextRegression(np.ones((2, 3))), "square matrix"),
        (lambda: InContextRegression([["a", "b"], ["c", "d"]]), "not an array of numbers"),
        (lambda: InContextRegression(np.diag([1.0, np.nan])), "not finite"),
        (lambda: InContextRegression(np.eye(2), 0), "at least 1"),
        (lambda: InContextRegression(np.eye(2), noise_variance=-0.1), "from 0"),
        (lambda: InContextRegression(np.eye(2), task_covariance=np.eye(3)), "must agree"),
        (lambda: InContextRegression(np.eye(2), outputs=0), "outputs"),
        (lambda: InContextRegression(np.eye(4), whitened=True).sample(4, key=KEY), "more than 4"),
        (lambda: InContextRegression(np.eye(2)).sample(0, key=KEY), "number of sequences"),
        (lambda: ContextLengths([]), "at least one"),
        (lambda: ContextLengths([3, 3]), "repeat"),
        (lambda: ContextLengths([3, 4], [1.0]), "one for each"),
        (lambda: ContextLengths([3, 4], [0.0, 0.0]), "positive"),
        (lambda: InContextInWeightMixture.random(np.eye(2), 1.5, key=KEY), "from 0 to 1"),
        (lambda: InContextInWeightMixture(np.eye(2), np.ones(3), 0.5), "fixed_task"),
        (lambda: InContextInWeightMixture(np.eye(2), "abc", 0.5), "not an array of numbers"),
        (lambda: InContextInWeightMixture(np.eye(2), [1.0, np.nan], 0.5), "not finite"),
        (lambda: list(InContextRegression(np.eye(2), 10**9).chunks(1, key=KEY)), "GiB"),
        (lambda: covariance([]), "empty"),
        (lambda: covariance([0.4, -0.1]), "eigenvalue"),
        (lambda: covariance([1.0, 2.0], SKEW), "orthonormal"),
        (lambda: Batch(jnp.zeros((3, 4, 2)), jnp.zeros((3, 4, 2))), "belong together"),
        (lambda: population_moments(InContextInWeightMixture.random(np.eye(2), 0.5, key=KEY)), "Moments.of_task"),
    ],
)
def test_bad_input_is_refused_in_one_line(make, words):
    with pytest.raises(InvalidInput) as refusal:
        make()
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_sample_that_would_not_fit_is_refused_with_the_estimate():
    with pytest.raises(WouldNotFit, match=r"needs about [\d.]+ GiB"):
        InContextRegression(np.eye(8)).sample(10**10, key=KEY)
