"""Other context lengths, and how sharp softmax weights can be: recorded values, samples and limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from stepwell._util.errors import InvalidInput
from stepwell.theory import softmax

LENGTHS = [20, 50, 100, 200, 1000, 2000]


def test_recorded_losses(make_multi_task):
    task = make_multi_task([10], noise=1)
    # Half of the last digit given.
    recorded = [0.9390, 0.4074, 0.2302, 0.1416, 0.0707, 0.0618]
    np.testing.assert_allclose(softmax.softmax_length_loss(task, LENGTHS)[:, 0] / 10, recorded, rtol=0, atol=5.1e-5)
    recorded = [0.8522, 0.4208, 0.2518, 0.1582, 0.0756, 0.0645]
    np.testing.assert_allclose(softmax.exact_length_loss(task, LENGTHS)[:, 0] / 10, recorded, rtol=0, atol=5.1e-5)
    recorded = [0.4898, 0.2028, 0.1071, 0.0593, 0.0210, 0.0163]
    by_test = softmax.linear_length_loss(task, LENGTHS, divided_by="test")[:, 0] / 10
    np.testing.assert_allclose(by_test, recorded, rtol=0, atol=5.1e-5)
    by_train = softmax.linear_length_loss(task, LENGTHS, divided_by="train")[:, 0] / 10
    np.testing.assert_allclose(by_train[:4], [0.6939, 0.3543, 0.1071, 0.8087], rtol=0, atol=5.1e-5)
    np.testing.assert_allclose(by_train[4:], [63.82, 286.1], rtol=2e-4)
    plateau = softmax.softmax_length_loss(task, [10**9])[0, 0] / 10
    assert plateau == pytest.approx(0.0530, abs=5.1e-5)


@given(data=st.data(), length=st.integers(1, 10**5))
@settings(max_examples=30)
def test_lengths_are_other_formulas(multi_tasks, data, length):
    """The spectral loss of the trained weights at the other length; linear attention's of its trained weights."""
    from dataclasses import replace

    task = data.draw(multi_tasks)
    other = replace(task, context=type(task.context)((length,), (1.0,)))
    heads = [np.diag(weights) for weights in softmax.flow_limit(task)]
    np.testing.assert_allclose(
        softmax.softmax_length_loss(task, [length])[0], softmax.spectral_loss(other, *heads), rtol=1e-11
    )
    found, own = softmax.task_numbers(task), task.context.counts[0]
    c = 1 / (1 + (found.dims * found.phi + 1) / own)
    for loss, weight in (
        (softmax.linear_length_loss(task, [length], divided_by="test")[0], c),
        (softmax.linear_length_loss(task, [length], divided_by="train")[0], c * length / own),
    ):
        np.testing.assert_allclose(loss, softmax.linear_heads_loss(other, np.eye(len(c)), np.diag(weight)), rtol=1e-11)
    at_own = softmax.linear_length_loss(task, [own], divided_by="train")[0]
    np.testing.assert_allclose(at_own, softmax.linear_attention_loss(task), rtol=1e-10)


def test_recorded_ratios():
    squares = np.sqrt([0.5, 1, 1.5, 2, 3, 4])
    recorded = {
        50: [0.973, 0.896, 0.769, 0.618, 0.343, 0.167],
        100: [0.986, 0.940, 0.848, 0.719, 0.441, 0.231],
        1000: [0.999, 0.993, 0.975, 0.936, 0.770, 0.532],
        10_000: [1, 0.999, 0.997, 0.992, 0.949, 0.826],
    }
    for context, ratios in recorded.items():
        np.testing.assert_allclose(softmax.concentration_ratio(squares, context), ratios, rtol=0, atol=5.1e-4)


def test_recorded_saturation_points():
    recorded = {
        20: (0.44, 0.68, 1.92),
        50: (0.69, 0.98, 2.39),
        100: (0.92, 1.25, 2.78),
        300: (1.34, 1.72, 3.41),
        1000: (1.86, 2.29, 4.13),
        10_000: (2.99, 3.49, 5.58),
        100_000: (4.21, 4.77, 7.07),
    }
    for context, points in recorded.items():
        found = [softmax.saturation_point(context, ratio) for ratio in (0.95, 0.9, 0.5)]
        # Recorded from a table of a², so to one unit of the last digit.
        np.testing.assert_allclose(found, points, rtol=0, atol=0.01)
    thresholds = [softmax.thresholds(context).annealed for context in recorded]
    np.testing.assert_allclose(thresholds, [2.0, 2.6, 3.1, 3.8, 4.6, 6.1, 7.7], rtol=0, atol=0.051)
    assert softmax.thresholds(100).typical == pytest.approx(0.5 * np.log(100))


def test_the_random_energy_model_joins():
    context = 10_000
    log = np.log(context)
    joints = np.sqrt(2 * log * np.array([1 / 3, 1.0]))
    np.testing.assert_allclose(softmax.concentration_exponent(joints, context), [-1 / 3, 0], rtol=0, atol=1e-12)
    before, after = softmax.concentration_exponent(joints[0] * np.array([1 - 1e-6, 1 + 1e-6]), context)
    assert after - before == pytest.approx(4 / 3 * 2e-6, rel=1e-3)  # the same slope on both sides
    # A heuristic that is far off at this size.
    assert context ** softmax.concentration_exponent(np.array([3.0]), context)[0] == pytest.approx(0.29, abs=0.0051)
    flat = np.sqrt(0.1 * 2 * log)
    exponent = softmax.concentration_exponent(np.array([flat]), context)[0]
    assert context**exponent == pytest.approx(np.exp(flat**2) / context, rel=1e-12)


def test_hardmax():
    for context in (1, 2, 10, 1000):

        def density(z, context=context):
            return z * context * norm.pdf(z) * norm.cdf(z) ** (context - 1)

        expected = quad(density, -12, 12, epsabs=1e-12, epsrel=1e-11, limit=400)[0]
        assert softmax.expected_maximum(context) == pytest.approx(expected, rel=1e-9, abs=1e-11)
    assert softmax.expected_maximum(2) == pytest.approx(np.pi**-0.5, rel=1e-12)
    sharp = np.array([10.0, 20.0, 80.0])
    exact = softmax.softmax_moments(sharp, 100).concentration
    # What is left is of second order in 1/a.
    gap = exact - softmax.hardmax_concentration(sharp, 100)
    assert np.all(gap > 0) and np.all(gap < 1 / sharp**2)


def test_bad_input(make_multi_task):
    with pytest.raises(InvalidInput, match="context"):
        softmax.softmax_length_loss(make_multi_task([3]), [0])
    with pytest.raises(InvalidInput, match="ratio"):
        softmax.saturation_point(10, 1.5)
