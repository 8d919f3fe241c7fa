"""Merged attention: closed form, scalar equations and the flow of every weight."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from stepwell._util.errors import InvalidInput
from stepwell.theory import linear

RTOL = 1e-10


def full_flow(task, values, key_queries, times):
    """Loss of τ v' = <U, G>, τ U' = v G for all heads, G = MΛ - C A Λ."""
    cross, second, lam = linear.moments(task).cross, linear.moments(task).second, task.covariance
    shape = key_queries.shape

    def split(state):
        return state[: shape[0]], state[shape[0] :].reshape(shape)

    def field(_, state):
        v, u = split(state)
        g = (cross - second @ np.einsum("h,hij->ij", v, u)) @ lam
        return np.concatenate([np.einsum("hij,ij->h", u, g), np.einsum("h,ij->hij", v, g).ravel()])

    start = np.concatenate([values, key_queries.ravel()])
    atol = 1e-8 * np.abs(start).max()
    run = solve_ivp(field, (0, times[-1]), start, method="LSODA", t_eval=times, rtol=RTOL, atol=atol)
    return np.array([linear.loss_at(task, np.einsum("h,hij->ij", *split(state))) for state in run.y.T])


def solver_error(task, times):
    """An error of RTOL a step, a hundred steps a time constant, all of one sign."""
    return 100 * RTOL * linear.moments(task).label_power * (1 + linear.merged_escape_rate(task) * times[-1])


@pytest.mark.parametrize("dim, length, start", [(1, 5, 1e-2), (4, 31, 1e-3), (10, 20, 1e-5)])
def test_equation_ten(make_task, dim, length, start):
    times = np.linspace(0, 40 / np.sqrt(dim), 50)
    course = linear.white_course(make_task(np.ones(dim), lengths=(length,), rotation=1), times, start)
    grown = np.exp(2 * np.sqrt(dim) * times)
    expected = grown / ((1 + (1 + dim) / length) * (grown - 1) + np.sqrt(dim) / start**2)
    # Exponentials of up to 80 carry their argument's rounding.
    np.testing.assert_allclose(course.value * course.key_query[:, 0], expected, rtol=1e-13)


@settings(max_examples=10, deadline=None)
@given(
    dim=st.integers(1, 5),
    variance=st.floats(0.2, 2.0),
    task_variance=st.floats(0.2, 2.0),
    noise=st.floats(0.0, 2.0),
    start=st.floats(1e-6, 1e-2),
)
def test_closed_form_against_the_scalar_equations(make_task, dim, variance, task_variance, noise, start):
    task = make_task([variance] * dim, [task_variance] * dim, noise=noise, rotation=2)
    times = np.linspace(0, 3 * linear.merged_escape_time(task, start), 40)
    closed = linear.white_course(task, times, start)
    u = np.full(dim, start / np.sqrt(dim))
    solved = linear.merged_course(task, times, start, u)
    np.testing.assert_allclose(solved.loss, closed.loss, rtol=0, atol=solver_error(task, times))
    np.testing.assert_allclose(closed.loss[-1], linear.minimal_loss(task), rtol=0, atol=2 * start)
    half = linear.white_half_drop_time(task, start)
    assert linear.half_drop_time(task, start, u) == pytest.approx(half, rel=1e-7)
    at_half = linear.white_course(task, np.array([half]), start).loss[0]
    assert at_half == pytest.approx(linear.levels(task)[[0, -1]].mean(), rel=1e-12)


@settings(max_examples=8, deadline=None)
@given(
    variances=st.lists(st.floats(0.2, 1.5), min_size=3, max_size=3),
    task_variances=st.lists(st.floats(0.2, 1.5), min_size=3, max_size=3),
    noise=st.floats(0.0, 2.0),
    length=st.integers(2, 40),
)
def test_scalar_equations_are_exact_for_an_aligned_start(make_task, variances, task_variances, noise, length):
    task = make_task(variances, task_variances, noise=noise, lengths=(length,), rotation=3)
    found = linear.modes(task)
    u = 1e-3 * np.array([0.5, -0.2, 0.9])
    key_query = (found.directions * u) @ found.directions.T
    times = np.linspace(0, 2 * linear.merged_escape_time(task, 1e-3), 30)
    course = linear.merged_course(task, times, 1e-3, u)
    full = full_flow(task, np.array([1e-3]), key_query[None], times)
    np.testing.assert_allclose(course.loss, full, rtol=0, atol=solver_error(task, times))
    conserved = course.value**2 - np.sum(course.key_query**2, axis=1)
    np.testing.assert_allclose(conserved, conserved[0], rtol=0, atol=solver_error(task, times) * course.value[-1] ** 2)


@pytest.mark.parametrize("init", [1e-2, 1e-4, 1e-6])
def test_random_heads_follow_the_scalar_equations(make_task, init):
    task = make_task([0.4, 0.3, 0.2, 0.1], rotation=4)
    rng = np.random.default_rng(0)
    values, key_queries = init * rng.normal(size=8), init * rng.normal(size=(8, 4, 4))
    start = linear.merged_initial(task, values, key_queries)
    times = np.linspace(0, 3 * linear.merged_escape_time(task, init), 200)
    course = linear.merged_course(task, times, *start)
    full = full_flow(task, values, key_queries, times)
    # What the reduction leaves out of A: v times weights that have not grown, D by D of size init.
    # The loss feels it with slope 2 |G| <= 2 |MΛ|.
    bound = 2 * linear.merged_escape_rate(task) * course.value.max() * init * 4
    assert np.abs(course.loss - full).max() < bound


def test_escape_time_grows_with_the_logarithm_of_the_start(make_task):
    task = make_task([0.4, 0.3, 0.2, 0.1], [1.0, 2.0, 0.5, 3.0], noise=0.2, rotation=5)
    aligned = linear.modes(task).driving
    aligned = aligned / np.linalg.norm(aligned)
    times = [linear.half_drop_time(task, w, w * aligned) for w in (1e-3, 1e-6)]
    predicted = linear.merged_escape_time(task, 1e-6) - linear.merged_escape_time(task, 1e-3)
    # The first correction to exponential growth is of relative order w^2.
    assert times[1] - times[0] == pytest.approx(predicted, rel=1e-5)


def test_half_drop_time_is_on_the_course(make_task):
    task = make_task([0.9, 0.1], rotation=6)
    start = linear.merged_initial(task, np.array([1e-3]), np.zeros((1, 2, 2)))
    assert start[0] == pytest.approx(5e-4)
    half = linear.half_drop_time(task, *start)
    loss = linear.merged_course(task, np.array([0.0, half]), *start).loss
    assert loss[1] == pytest.approx(linear.levels(task)[[0, -1]].mean(), abs=solver_error(task, np.array([half])))
    assert linear.half_drop_time(task, 1.0, np.array([1.0, 1.0])) == 0.0


def test_refusals(make_task):
    task = make_task([0.9, 0.1])
    with pytest.raises(InvalidInput, match="merged_course takes any"):
        linear.white_course(task, np.array([0.0, 1.0]), 1e-3)
    with pytest.raises(InvalidInput, match="increasing"):
        linear.merged_course(task, np.array([1.0, 0.0]), 1e-3, np.array([1e-3, 0.0]))
    with pytest.raises(InvalidInput, match="above 0"):
        linear.half_drop_time(task, 0.0, np.zeros(2))
