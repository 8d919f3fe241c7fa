"""The lowest reachable loss, and what objectives refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from stepwell._util.errors import InvalidInput, WouldNotFit
from stepwell.models import CubicMLP, MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import InContextRegression, covariance

KEY = jax.random.key(0)
TASK = InContextRegression(
    covariance([0.6, 0.3, 0.2], key=jax.random.key(1)),
    6,
    task_covariance=covariance([2.0, 1.0, 0.5], key=jax.random.key(2)),
    noise_variance=0.1,
)


@pytest.mark.parametrize("heads", [1, 2, 3, 5])
def test_the_floor_is_what_an_optimizer_finds(heads):
    objective = Population(TASK)
    model = SeparateAttention.random(dim=3, heads=heads, scale=1.0, key=KEY)

    def loss(flat):
        keys, queries = flat.reshape(2, heads, 3)
        keys = jnp.concatenate([keys, jnp.zeros((heads, 1))], axis=1)[:, None]
        value = jnp.zeros((heads, 1, 4)).at[:, :, 3].set(1.0)
        return objective(SeparateAttention(value, keys, queries[:, None]))

    lowest = min(
        scipy.optimize.minimize(jax.jit(jax.value_and_grad(loss)), start, jac=True, method="BFGS", tol=1e-10).fun
        for start in np.random.default_rng(0).normal(size=(4, 6 * heads))
    )
    floor = objective.floor(model)
    assert floor is not None
    np.testing.assert_allclose(lowest, floor, rtol=1e-8)


def test_the_floor_of_moments_is_least_squares():
    batch = TASK.sample(200, key=KEY)
    features = batch.cubic_features()
    best = np.linalg.lstsq(features.features, features.labels[:, 0], rcond=None)
    floor = Moments.of_batch(batch, features="cubic").floor(MergedAttention.random(dim=3, heads=1, scale=1.0, key=KEY))
    assert floor is not None
    np.testing.assert_allclose(floor, best[1][0] / 200, rtol=1e-10)


def test_a_floor_that_is_not_known_is_none():
    batch = TASK.sample(50, key=KEY)
    model = SeparateAttention.random(dim=3, heads=1, scale=1.0, key=KEY)
    assert Sampled(batch).floor(model) is None
    assert Moments.of_batch(batch).floor(model) is None
    assert Moments.of_batch(batch, features="cubic").floor(model) is None


def merged(**changes):
    return MergedAttention.random(**({"dim": 3, "heads": 2, "scale": 0.1, "key": KEY} | changes))


BATCH = TASK.sample(20, key=KEY)


@pytest.mark.parametrize(
    ("objective", "model", "words"),
    [
        (Population(TASK), merged(label_blocks="random"), "label blocks"),
        (Population(TASK), merged(activation="softmax"), "use Sampled"),
        (Population(TASK), merged(normalization="none"), "normalization='none'"),
        (Population(TASK), merged(dim=2), "must agree"),
        (Moments.of_batch(BATCH, features="cubic"), merged(label_blocks="random"), "label blocks"),
        (Moments.of_batch(BATCH), CubicMLP.random(dim=3, heads=2, scale=0.1, key=KEY), "features='cubic'"),
        (Moments.of_batch(BATCH, attends_query=False), merged(), "attends_query"),
        (Moments.of_features(BATCH.cubic_features()), merged(), "gather them from a Batch"),
        (Sampled(BATCH), CubicMLP.random(dim=3, heads=2, scale=0.1, key=KEY), "cubic_features"),
        (Sampled(BATCH.cubic_features()), merged(), "reads tokens"),
        (Sampled(BATCH), merged(dim=2), "must agree"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_in_one_line(objective, model, words):
    with pytest.raises(InvalidInput) as refusal:
        objective.check(model)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_moments_that_would_not_fit_are_refused_with_the_estimate():
    with pytest.raises(WouldNotFit, match=r"needs about [\d.]+ GiB"):
        Moments.of_batch(InContextRegression(np.eye(96), 3).sample(2, key=KEY))


def test_no_data_is_refused():
    with pytest.raises(InvalidInput, match="no sequences"):
        Moments.of_chunks([])
