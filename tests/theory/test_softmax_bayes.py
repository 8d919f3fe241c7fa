"""Bayes risk and ridge regression: recorded values, random matrices and explicit regressions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import exp1
from scipy.stats import chi2

from stepwell._util.errors import InvalidInput
from stepwell.theory import softmax

# d/L; Bayes, bounds for 1, 2, 3, 5, 10 and 11 heads, limit of the flow, ridge 0.05 and 5, of ten tasks with S = σ² = 1.
RECORDED = [
    (0.01, 0.0100, 0.3522, 0.1667, 0.0909, 0.0476, 0.0217, 0.0196, 0.0516, 0.0115, 0.6953),
    (0.1, 0.0990, 0.8446, 0.6667, 0.5000, 0.3333, 0.1818, 0.1667, 0.3522, 0.1017, 0.7029),
    (0.5, 0.4142, 0.9645, 0.9091, 0.8333, 0.7143, 0.5263, 0.5000, 0.7311, 0.7338, 0.7338),
    (1, 0.6180, 0.9819, 0.9524, 0.9091, 0.8333, 0.6897, 0.6667, 0.8446, 1.8889, 0.7671),
    (1.2, 0.6667, 0.9849, 0.9600, 0.9231, 0.8571, 0.7273, 0.7059, 0.8671, 1.9011, 0.7789),
    (2, 0.7808, 0.9909, 0.9756, 0.9524, 0.9091, 0.8163, 0.8000, 0.9158, 1.3381, 0.8190),
    (5, 0.9050, 0.9963, 0.9901, 0.9804, 0.9615, 0.9174, 0.9091, 0.9645, 1.0424, 0.9050),
]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"d/L={row[0]}")
@pytest.mark.parametrize("context", [50, 1000])
def test_figure_5(make_multi_task, row, context):
    """With the total signal fixed, only d/L matters."""
    ratio, *recorded = row
    dim = round(ratio * context)
    if dim != ratio * context:
        dim, context = 1, round(1 / ratio)
    task = make_multi_task([dim] * 10, 1 / dim, context=context, noise=1)
    found = [softmax.bayes_risk(task)]
    found += [softmax.lower_bound(task, heads) for heads in (1, 2, 3, 5, 10, 11)]
    found += [softmax.flow_limit_loss(task)]
    found += [softmax.ridge_risk(task, penalty, penalized="mean") for penalty in (0.05, 5.0)]
    # Half of the last digit given; all ten tasks are alike.
    np.testing.assert_allclose(np.stack(found, axis=1), [recorded] * 10, rtol=0, atol=5.1e-5)


def test_other_conventions_of_figure_5(make_multi_task):
    """Why the caption fits the penalty on the mean with the total signal: the others look different."""
    sizes = np.arange(5, 251, 5)

    def curve(penalty, penalized, strength):
        tasks = [make_multi_task([int(d)], strength(d), context=50, noise=1) for d in sizes]
        return np.array([softmax.ridge_risk(task, penalty, penalized=penalized)[0] for task in tasks])

    total = curve(0.05, "mean", lambda d: 1 / d)
    assert total.max() == pytest.approx(1.935, abs=5.1e-4) and sizes[np.argmax(total)] == 55
    rising = curve(5.0, "mean", lambda d: 1 / d)
    assert np.all(np.diff(rising) > 0)
    assert curve(5.0, "sum", lambda d: 1 / d).max() == pytest.approx(1.38, abs=0.0051)
    assert curve(0.05, "sum", lambda d: 1.0)[sizes == 50][0] == pytest.approx(16.1, abs=0.051)
    none = curve(0.05, "mean", lambda d: 1.0) / sizes
    assert np.all(np.diff(none) > 0)


@pytest.mark.parametrize(
    ("ratio", "bayes", "small", "large"),
    [(0.5, 0.4165, 0.7449, 0.7343), (1, 0.6191, 1.8826, 0.7675), (2, 0.7811, 1.3458, 0.8193)],
)
def test_finite_sizes(make_multi_task, ratio, bayes, small, large):
    dim = round(60 * ratio)
    task = make_multi_task([dim], 1 / dim, context=60, noise=1)
    rng = np.random.default_rng(0)
    found = [
        softmax.sampled_bayes_risk(task, 300, rng=rng),
        *(softmax.sampled_ridge_risk(task, penalty, 300, penalized="mean", rng=rng) for penalty in (0.05, 5.0)),
    ]
    limits = [
        softmax.bayes_risk(task),
        *(softmax.ridge_risk(task, p, penalized="mean") for p in (0.05, 5.0)),
    ]
    for estimate, recorded, limit in zip(found, (bayes, small, large), limits, strict=True):
        # The recorded value is a sample too, taken as good as this one.
        assert abs(estimate.mean[0] - recorded) < 5 * 2**0.5 * estimate.standard_error[0]
        assert estimate.mean[0] == pytest.approx(limit[0], rel=0.04)


def test_explicit_regressions(make_multi_task):
    """Data, a ridge fit and its error on queries, against the eigenvalue formulas."""
    task = make_multi_task([4, 12], [1.5, 0.3], context=8, noise=0.6)
    rng = np.random.default_rng(1)
    samples = 20_000
    for i, (d, lam) in enumerate(zip(task.dims, task.strengths, strict=True)):
        x = rng.normal(size=(samples, 8, d))
        g = np.sqrt(lam) * rng.normal(size=(samples, d))
        y = np.einsum("slj,sj->sl", x, g) + np.sqrt(0.6) * rng.normal(size=(samples, 8))
        square, cross = np.swapaxes(x, 1, 2) @ x, np.einsum("slj,sl->sj", x, y)
        for penalty, found in (
            (0.6 / lam, softmax.sampled_bayes_risk(task, 4000, rng=rng)),
            (0.9, softmax.sampled_ridge_risk(task, 0.9, 4000, penalized="sum", rng=rng)),
            (0.9, softmax.sampled_ridge_risk(task, 0.9 / 8, 4000, penalized="mean", rng=rng)),
        ):
            fit = np.linalg.solve(square + penalty * np.eye(d), cross[:, :, None])[:, :, 0]
            errors = np.sum((fit - g) ** 2, axis=1)
            slack = np.hypot(errors.std() / samples**0.5, found.standard_error[i])
            assert abs(errors.mean() - found.mean[i]) < 5 * slack


def test_near_square_regressions_need_samples(make_multi_task):
    task = make_multi_task([20], context=30, noise=1)
    assert softmax.ridge_risk(task, 0.5, penalized="sum")[0] == pytest.approx(1.659, abs=5.1e-4)
    found = softmax.sampled_ridge_risk(task, 0.5, 3000, penalized="sum", rng=np.random.default_rng(2))
    assert abs(found.mean[0] - 1.7609) < 5 * np.hypot(found.standard_error[0], 0.0015)


@given(data=st.data(), penalty=st.floats(1e-6, 100))
@settings(max_examples=40)
def test_ridge_is_never_better_than_bayes(multi_tasks, data, penalty):
    task = data.draw(multi_tasks)
    found, bayes = softmax.task_numbers(task), softmax.bayes_risk(task)
    ridge = softmax.ridge_risk(task, penalty, penalized="mean")
    assert np.all(ridge >= bayes * (1 - 1e-9)) and np.all(bayes <= found.signal)
    np.testing.assert_allclose(softmax.ridge_risk(task, penalty * found.context, penalized="sum"), ridge, rtol=1e-12)
    if found.noise > 0:
        # With the penalty of the prior it is Bayes.
        for i, lam in enumerate(task.strengths):
            own = softmax.ridge_risk(task, found.noise / lam, penalized="sum")[i]
            assert own == pytest.approx(bayes[i], rel=1e-9)
    # The formulas by a derivative taken numerically.
    gamma, step = found.dims / found.context, 1e-6 * penalty

    def m(alpha):
        b = 1 - gamma + alpha
        return (-b + np.sqrt(b**2 + 4 * gamma * alpha)) / (2 * gamma * alpha)

    slope = -(m(penalty + step) - m(penalty - step)) / (2 * step)
    plain = found.signal * penalty**2 * slope + found.noise * gamma * (m(penalty) - penalty * slope)
    if penalty > 1e-2:
        np.testing.assert_allclose(ridge, plain, rtol=1e-4, atol=1e-6 * (found.signal.max() + found.noise))


def test_no_noise_and_no_penalty(make_multi_task):
    silent = make_multi_task([5, 20, 30], [1.0, 2.0, 0.5], context=20)
    np.testing.assert_allclose(softmax.bayes_risk(silent), [0, 0, 5], rtol=0, atol=1e-14)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(softmax.sampled_bayes_risk(silent, 2, rng=rng).mean, [0, 0, 5])
    np.testing.assert_allclose(softmax.ridge_risk(silent, 0.0, penalized="mean"), [0, 0, 5], rtol=0, atol=1e-14)
    noisy = make_multi_task([5, 20, 30], [1.0, 2.0, 0.5], context=20, noise=1)
    found = softmax.ridge_risk(noisy, 0.0, penalized="sum")
    np.testing.assert_allclose(found, [1 / 3, np.inf, 5 + 2], rtol=1e-12)
    # Least squares has a closed form at finite sizes: σ² d/(L - d - 1), and λ(d - L) + σ² L/(d - L - 1) beyond.
    sampled = softmax.sampled_ridge_risk(
        make_multi_task([5, 40], [1.0, 0.5], context=20, noise=1), 0.0, 3000, penalized="mean", rng=rng
    )
    assert np.all(np.abs(sampled.mean - [5 / 14, 10 + 20 / 19]) < 5 * sampled.standard_error)


def wishart_of_two(context, c):
    """E tr (1 + cW)⁻¹ over the joint density of the two eigenvalues t and tv of W, t > 0 and 0 < v < 1."""
    (x, wx), (y, wy) = (np.polynomial.legendre.leggauss(count) for count in (300, 200))
    t, v = 60 * (x[:, None] + 1), (y + 1) / 2
    density = wx[:, None] * wy * (t * t * v) ** ((context - 3) / 2) * np.exp(-t * (1 + v) / 2) * t * (1 - v) * t
    return np.sum(density * (1 / (1 + c * t) + 1 / (1 + c * t * v))) / np.sum(density)


def test_the_exact_risk_against_quadrature_and_samples(make_multi_task):
    for context, lam in ((1, 1.0), (5, 7.0), (50, 0.01)):

        def risk(x, context=context, lam=lam):
            return chi2.pdf(x, context) * lam / (1 + lam * x)

        parts = [
            quad(risk, *ends, epsabs=0, epsrel=1e-11)[0] for ends in ((0, 1), (1, context + 60), (context + 60, np.inf))
        ]
        task = make_multi_task([1], [lam], context=context, noise=1.0)
        np.testing.assert_allclose(softmax.exact_bayes_risk(task), sum(parts), rtol=1e-7)
    for context, lam in ((5, 1.0), (9, 0.3), (21, 5.0)):  # odd, for a density without roots
        task = make_multi_task([2], [lam], context=context, noise=1.0)
        np.testing.assert_allclose(softmax.exact_bayes_risk(task), lam * wishart_of_two(context, lam), rtol=1e-7)
    task = make_multi_task([3, 10, 20, 30], [1.0, 0.5, 2.0, 1.0], context=20, noise=0.6)
    sampled = softmax.sampled_bayes_risk(task, 1000, rng=np.random.default_rng(5))
    exact, limit = softmax.exact_bayes_risk(task), softmax.bayes_risk(task)
    assert np.all(np.abs(exact - sampled.mean) < 4 * sampled.standard_error)
    assert np.any(np.abs(limit - sampled.mean) > 4 * sampled.standard_error)  # the leading order does not pass
    # For large sizes it is the limit; the first correction is of order 1/L.
    large = make_multi_task([400], context=800, noise=400.0)
    np.testing.assert_allclose(softmax.exact_bayes_risk(large), softmax.bayes_risk(large), rtol=2e-3)
    np.testing.assert_array_equal(softmax.exact_bayes_risk(make_multi_task([3, 9], context=5)), [0.0, 4.0])


def test_bad_input(make_multi_task):
    task = make_multi_task([3], noise=1)
    with pytest.raises(InvalidInput, match="penalty"):
        softmax.ridge_risk(task, -1.0, penalized="mean")
    with pytest.raises(InvalidInput, match="at least 2"):
        softmax.sampled_bayes_risk(task, 1, rng=np.random.default_rng(0))


@pytest.mark.parametrize("ratio", [1e-3, 0.3, 1.0, 1e2, 1e4, 1e8, 1e12])
def test_the_exact_bayes_risk_from_high_noise_to_low(make_multi_task, ratio: float):
    r"""One coordinate, two pairs: $\chi^2_2/2$ is exponential, and the mean of 1/(1 + ct) an exponential integral."""
    x = 1 / (2 * ratio)
    risk = softmax.exact_bayes_risk(make_multi_task([1], context=2, noise=1 / ratio))
    np.testing.assert_allclose(risk, [x * np.exp(x) * exp1(x)], rtol=1e-8)
