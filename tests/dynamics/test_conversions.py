"""Conversions between conventions, against training itself and against each other."""

import jax
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import descend, flow_time, rate_for, renormalized, steps_for, time_factor, weight_factor
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Moments
from stepwell.tasks import InContextRegression

KEY = jax.random.key(0)


def test_steps_rate_and_time_invert_each_other():
    assert flow_time(300, 0.02) == pytest.approx(12.0)
    assert steps_for(flow_time(300, 0.02), 0.02) == pytest.approx(300)
    assert rate_for(flow_time(300, 0.02), 300) == pytest.approx(0.02)


def test_the_papers_factors():
    assert weight_factor("none", "1/N", length=31, factors=2) == pytest.approx(31**0.5)
    assert time_factor("none", "1/N", length=31, factors=2) == pytest.approx(31)
    assert weight_factor("none", "1/N", length=31, factors=3) == pytest.approx(31 ** (1 / 3))
    assert time_factor("none", "1/N", length=31, factors=3) == pytest.approx(31 ** (2 / 3))


@pytest.mark.parametrize("wanted", ["1/N", "1/tokens", "none"])
@pytest.mark.parametrize("given", ["none", "1/N"])
@pytest.mark.parametrize("kind", [MergedAttention, SeparateAttention])
def test_training_is_the_same_in_every_normalization(kind, given, wanted):
    n = 7
    batch = InContextRegression(np.diag([0.6, 0.4]), n).sample(60, key=KEY)
    model = kind.random(dim=2, heads=2, scale=0.3, label_blocks="random", normalization=given, key=KEY)
    other = renormalized(model, wanted, length=n)
    assert other.normalization == wanted
    factor = time_factor(given, wanted, length=n, factors=model.factors)
    rate = 0.002
    first = descend(model, Moments.of_batch(batch, normalization=given), rate=rate, steps=100)
    second = descend(other, Moments.of_batch(batch, normalization=wanted), rate=rate * factor, steps=100)
    np.testing.assert_allclose(second.loss, first.loss, rtol=1e-10)
    np.testing.assert_allclose(second.time[-1], factor * first.time[-1])
    scale = weight_factor(given, wanted, length=n, factors=model.factors)
    np.testing.assert_allclose(second["value"], scale * first["value"], rtol=1e-8, atol=1e-12)


def test_softmax_is_not_rescaled():
    model = MergedAttention.random(dim=2, heads=1, scale=0.3, activation="softmax", key=KEY)
    with pytest.raises(InvalidInput, match="softmax"):
        renormalized(model, "1/N", length=7)
