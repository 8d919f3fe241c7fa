"""Rank R: one head with shared value, the two laws of escape, and the schedule against the flow of all heads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from stepwell._util.errors import InvalidInput
from stepwell.theory import linear


def full_flow(task, values, keys, queries, until, times=None):
    """Times, the loss there, and the weights of all heads at the end of the flow."""
    cross, second, lam = linear.moments(task).cross, linear.moments(task).second, task.covariance
    heads, ends = len(values), [len(values), len(values) + keys.size]

    def split(state):
        v, k, q = np.split(state, ends)
        return v, k.reshape(keys.shape), q.reshape(keys.shape)

    def field(_, state):
        v, k, q = split(state)
        product = np.einsum("hri,hrj->hij", k, q)
        g = (cross - second @ np.einsum("h,hij->ij", v, product)) @ lam
        scale = v[:, None, None]
        return np.concatenate([np.sum(product * g, (1, 2)), (scale * (q @ g.T)).ravel(), (scale * (k @ g)).ravel()])

    start = np.concatenate([values, keys.ravel(), queries.ravel()])
    small = np.abs(start[start != 0]).min() if heads == 1 else np.abs(start).max()
    run = solve_ivp(field, (0, until), start, method="LSODA", t_eval=times, rtol=1e-9, atol=1e-7 * small)
    loss = np.array([linear.loss_at(task, np.einsum("h,hri,hrj->ij", *split(state))) for state in run.y.T])
    return run.t, loss, split(run.y[:, -1])


@settings(max_examples=8)
@given(
    variances=st.lists(st.floats(0.2, 1.5), min_size=3, max_size=3),
    noise=st.floats(0.0, 1.0),
    start=st.tuples(*[st.floats(1e-3, 0.1)] * 3),
)
def test_one_head_with_shared_value(make_task, variances, noise, start):
    task = make_task(sorted(variances, reverse=True), noise=noise)
    along = [2, 0]
    found = linear.modes(task)
    times = np.linspace(0, 3 / (found.driving[0] * min(start)), 20)
    course = linear.head_course(task, along, times, start[0], np.array(start[1:]))
    pairs = np.array(start[1:])[:, None] * found.directions.T[along]
    _, loss, (v, k, _) = full_flow(task, np.array(start[:1]), pairs[None], pairs[None], times[-1], times)
    # Tolerances of 1e-9 and of 1e-7 of the start, amplified by the growth from start to end.
    growth = max(1.0, np.abs(course.value).max()) / min(start)
    np.testing.assert_allclose(course.loss, loss, rtol=0, atol=1e-6 * growth * linear.moments(task).label_power)
    assert course.value[-1] == pytest.approx(v[0], rel=1e-6 * growth)
    conserved = course.value**2 - np.sum(course.pairs**2, axis=1)
    # 1e-10 a step, a thousand steps.
    np.testing.assert_allclose(conserved, conserved[0], rtol=0, atol=1e-7 * course.value.max() ** 2)


def test_one_pair_is_the_scalar_equation(make_task):
    task = make_task([0.5, 0.3, 0.2], [1.0, 2.0, 0.5], noise=0.4, rotation=1)
    times = np.linspace(0, 2 * linear.new_head_time(task, 1, 0.01), 30)
    course = linear.head_course(task, [1], times, 0.01, np.array([0.01]))
    value = linear.aligned_value(task, 1, 0.01, times)
    # 1e-10 a step, a thousand steps, amplified by the growth of v.
    np.testing.assert_allclose(course.value, value, rtol=1e-7 * value.max() / 0.01)
    assert course.loss[-1] == pytest.approx(linear.fixed_point(task, [1]).loss, rel=1e-6)


def test_two_pairs_may_share_a_component(make_task):
    task = make_task([0.5, 0.3], rotation=1)
    times = np.linspace(0, 2000, 10)
    one = linear.head_course(task, [0], times, 0.02, np.array([0.02]))
    two = linear.head_course(task, [0, 0], times, 0.02, np.array([0.012, 0.016]))
    np.testing.assert_allclose(two.loss, one.loss, rtol=0, atol=1e-7)


@given(start=st.floats(1e-8, 1e-3), factor=st.floats(1.5, 100.0))
def test_laws_of_escape(make_task, start, factor):
    task = make_task([0.4, 0.3, 0.2, 0.1], [1.0, 1.0, 2.0, 1.0], rotation=1)
    target = factor * start
    # A fresh head: hyperbolic, with a correction of the cube of target over end.
    fresh = linear.new_head_time(task, 1, start, target)
    whole = linear.aligned_time(task, 1, start, np.array([target]))[0]
    correction = (target / linear.aligned_end(task, 1)) ** 3
    # The whole course is a difference of two numbers of about end/start.
    assert fresh == pytest.approx(whole, rel=correction + 1e-12 * factor)
    # A pair in a grown head: exponential, with a correction of the square.
    value = linear.aligned_end(task, 0)
    time = linear.new_pair_time(task, 1, value, start, target)
    course = linear.head_course(task, [0, 1], np.array([0.0, time]), value, np.array([value, start]))
    assert course.pairs[-1, 1] == pytest.approx(target, rel=20 * target**2 + 1e-6)


def test_small_starts_tell_the_laws_apart(make_task):
    task = make_task([0.4, 0.3, 0.2, 0.1])
    value = linear.aligned_end(task, 0)
    heads = [linear.new_head_time(task, 1, start, 0.1) for start in (1e-3, 1e-4)]
    pairs = [linear.new_pair_time(task, 1, value, start, 0.1) for start in (1e-3, 1e-4)]
    assert heads[1] / heads[0] == pytest.approx(999 / 99)
    assert pairs[1] / pairs[0] == pytest.approx(1.5)
    assert linear.new_pair_time(task, 1, -value, 1e-3, 0.1) == pairs[0]


@pytest.mark.parametrize("rank, seed", [(2, 0), (2, 1), (3, 0), (4, 2)])
@pytest.mark.parametrize("init", [1e-2, 1e-3])
def test_schedule_of_rank_r(make_task, rank, seed, init):
    variances = 1 / np.arange(1, 5)
    task = make_task(variances / variances.sum(), rotation=seed)
    rng = np.random.default_rng(seed)
    weights = init * rng.normal(size=3), *(init * rng.normal(size=(2, 3, rank, 4)))
    drops = linear.drop_schedule(task, *weights)
    assert [drop.component for drop in drops] == [0, 1, 2, 3]
    predicted = np.array([drop.time for drop in drops])
    times, loss, (v, k, q) = full_flow(task, *weights, until=1.5 * predicted[-1])
    steps = linear.levels(task)
    measured = np.array([times[np.argmax(loss < level)] for level in (steps[:-1] + steps[1:]) / 2])
    found = linear.modes(task)
    # As for rank one: each drop before it may shift a drop by a few of its own times, whatever the init.
    own_time = 1 / (found.driving * found.ends ** (1 / 3))
    assert np.all(np.abs(predicted - measured) < 5 * np.arange(1, 5) * own_time)
    # A head alone is integrated whole: what the first head learns is exact, as far as the others are small.
    first = [drop.head == drops[0].head for drop in drops].index(False) if rank < 4 else 4
    np.testing.assert_allclose(predicted[:first], measured[:first], rtol=0.02)
    held = np.einsum("h,hrd,hrd->hd", v, k @ found.directions, q @ found.directions)
    assert [drop.head for drop in drops] == list(np.argmax(held, axis=0))
    # Heads fill up before the next begins.
    heads = [drop.head for drop in drops]
    assert all(len(set(heads[n : n + rank])) == 1 for n in range(0, 4, rank))


def test_a_head_of_rank_one_with_or_without_its_axis(make_task):
    task = make_task([0.5, 0.3, 0.2], lengths=(20,), rotation=1)
    rng = np.random.default_rng(0)
    v, k, q = 0.01 * rng.normal(size=3), *(0.01 * rng.normal(size=(2, 3, 3)))
    assert linear.drop_schedule(task, v, k, q) == linear.drop_schedule(task, v, k[:, None], q[:, None])


def test_a_head_with_pairs_to_spare_needs_no_other(make_task):
    task = make_task([0.5, 0.3, 0.2], lengths=(20,), rotation=1)
    rng = np.random.default_rng(0)
    v, k, q = 0.01 * rng.normal(size=1), *(0.01 * rng.normal(size=(2, 1, 3, 3)))
    alone = linear.drop_schedule(task, v, k, q)
    assert [drop.component for drop in alone] == [0, 1, 2]
    beside = linear.drop_schedule(task, *(np.concatenate([part, 0 * part]) for part in (v, k, q)))
    # Zeros never move, but the solver takes other steps: 1e-10 each, a few hundred of them.
    assert [drop.time for drop in beside] == pytest.approx([drop.time for drop in alone], rel=1e-7)
    assert linear.drop_schedule(task, v[:0], k[:0], q[:0]) == []


def test_schedule_of_correlated_tasks(make_task):
    task = make_task([1.2, 0.7, 0.3], [0.5, 2.0, 1.0], lengths=(20,), noise=0.3, rotation=1, task_rotation=2)
    rng = np.random.default_rng(0)
    weights = 1e-3 * rng.normal(size=2), *(1e-3 * rng.normal(size=(2, 2, 2, 3)))
    drops = linear.drop_schedule(task, *weights)
    predicted = np.array([drop.time for drop in drops])
    times, loss, _ = full_flow(task, *weights, until=1.5 * predicted[-1])
    steps = linear.levels(task)
    measured = [times[np.argmax(loss < level)] for level in (steps[:-1] + steps[1:]) / 2]
    np.testing.assert_allclose(predicted, measured, rtol=0.02)


def test_refusals(make_task):
    task = make_task([0.4, 0.3])
    with pytest.raises(InvalidInput, match="one for each pair"):
        linear.head_course(task, [0], np.array([0.0, 1.0]), 0.1, np.array([0.1, 0.1]))
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        linear.new_head_time(task, 2, 0.1, 0.2)
    with pytest.raises(InvalidInput, match="not be below"):
        linear.new_head_time(task, 0, 0.2, 0.1)
    with pytest.raises(InvalidInput, match="has grown"):
        linear.new_pair_time(task, 0, 0.0, 0.1, 0.2)
