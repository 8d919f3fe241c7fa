"""The schedules of many starts in one call: against those of each alone, the whole flow, and another method."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from stepwell._util.errors import InvalidInput
from stepwell.theory import linear
from stepwell.theory.linear import _fall as fall_module


def starts(runs, heads, rank, dim, seed, init=None):
    """Weights of many runs, each of its own size from 0.1 to 1e-6, or all of one."""
    rng = np.random.default_rng(seed)
    sizes = 10 ** rng.uniform(-6, -1, size=runs) if init is None else np.full(runs, init)
    shapes = (heads,), (heads, rank, dim), (heads, rank, dim)
    return [np.expand_dims(sizes, tuple(range(1, 1 + len(s)))) * rng.normal(size=(runs, *s)) for s in shapes]


def compared(task, weights, rtol=0.0):
    """All schedules, which are those of each run alone: to the last digit, uncertainties included, or to `rtol`."""
    schedules = linear.drop_schedule(task, *weights)
    assert len(schedules) == len(weights[0])
    for run, drops in enumerate(schedules):
        alone = linear.drop_schedule(task, *(part[run] for part in weights))
        assert drops.reason == alone.reason and (rtol or drops == alone)
        assert [(d.head, d.component) for d in drops] == [(d.head, d.component) for d in alone]
        np.testing.assert_allclose([d.time for d in drops], [d.time for d in alone], rtol=rtol)
    return schedules


def equal(one, other):
    """Whether two `Schedules` are the same, to the last digit."""
    for name in ("times", "heads", "uncertainties", "ties"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.reasons == other.reasons


ROUNDING = 1e-8
"""Sums in another order, where others have heads in the place of zeros, amplified by the growth of the weights."""
STEPS = 1e-6
"""Other weights by a factor lead to other steps, some hundred of 1e-7 to 1e-9."""
IMPLICIT = 1e-5
"""The implicit method's 1e-10 a step, with errors that are absolute below the start, amplified by the growth."""


@pytest.mark.parametrize(
    "kwargs",
    [
        {"variances": [0.4, 0.3, 0.2, 0.1], "rotation": 0},
        {"variances": [0.3, 0.3, 0.3], "rotation": 1},
        {"variances": [0.3 + 3e-6, 0.3, 0.15]},
        # Directions that are not orthogonal, and for some runs rotated.
        {"variances": [0.3, 0.6, 0.2], "task_variances": [2.0, 1.0, 1.0]},
        {"variances": [1.2, 0.7, 0.3], "task_variances": [0.5, 2.0, 1.0], "rotation": 1, "task_rotation": 2},
        {"variances": [0.5, 0.3, 0.2], "task_variances": [1.0, 1.0, 0.0], "rotation": 1},
    ],
)  # fmt: skip
@pytest.mark.parametrize("rank", [1, 2])
def test_all_schedules_in_one_call_are_those_of_each_start(make_task, kwargs, rank):
    task = make_task(**kwargs)
    schedules = compared(task, starts(4, 3, rank, len(task.covariance), 0))
    assert np.isfinite(schedules.times[:, 0]).all() and schedules.reasons == ("",) * 4


def test_many_schedules_of_a_task_of_moments(make_task_of_moments):
    compared(make_task_of_moments([0.6, 0.6, 0.3], 1), starts(4, 3, 1, 3, 0))


def test_each_run_has_its_own_outcome(make_task):
    """Beside ordinary runs: zeros, too large, too small, a head alone, on the stable manifold, and stiff."""
    task = make_task([1.0, 1e-3])
    values, keys, queries = starts(7, 2, 2, 2, 0, init=1e-2)
    for part in (values, keys, queries):
        part[1], part[2], part[3], part[4, 1] = 0.0, 1e3 * part[2], 1e-290 * part[3], 0.0
    values[5], keys[5], queries[5] = 0.01, 0.0, 0.0
    keys[5, :, 0, 0], queries[5, :, 0, 0] = 0.01, -0.01
    schedules = compared(task, (values, keys, queries), ROUNDING)
    named = ["", "", "too large", "no head escapes", "", "no head escapes", ""]
    assert all(
        name in reason and bool(name) == bool(reason) for name, reason in zip(named, schedules.reasons, strict=True)
    )
    assert [len(drops) for drops in schedules] == [2, 0, 0, 0, 2, 0, 2]


@pytest.mark.parametrize("common", [True, False])
def test_a_run_is_the_same_whatever_others_are_beside_it(make_task, common, monkeypatch):
    """Alone, among seven, in another order, and where fewer are followed together."""
    kwargs = {} if common else {"task_variances": [0.5, 2.0, 1.0], "task_rotation": 2}
    task, weights = make_task([1.2, 0.7, 0.3], rotation=1, **kwargs), starts(12, 3, 1, 3, 4)
    whole, order = linear.drop_schedule(task, *weights), np.random.default_rng(0).permutation(12)
    assert np.isfinite(whole.times).all() and (whole.uncertainties > 0).all()
    equal(linear.drop_schedule(task, *(part[3:10] for part in weights)), whole[3:10])
    equal(linear.drop_schedule(task, *(part[5:6] for part in weights)), whole[5:6])
    shuffled = linear.drop_schedule(task, *(part[order] for part in weights))
    np.testing.assert_array_equal(shuffled.times, whole.times[order])
    np.testing.assert_array_equal(shuffled.uncertainties, whole.uncertainties[order])
    for most in (1, 3000):
        monkeypatch.setattr("stepwell.theory.linear._race._TOGETHER", most)
        equal(linear.drop_schedule(task, *weights), whole)


@pytest.mark.parametrize("rank", [1, 2])
def test_explicit_and_implicit_steps_agree(make_task, rank, monkeypatch):
    task, weights = make_task([0.5, 0.3, 0.2], rotation=1), starts(3, 3, rank, 3, 1)
    explicit = linear.drop_schedule(task, *weights)
    monkeypatch.setattr(fall_module, "_EXPLICIT", 0)
    implicit = linear.drop_schedule(task, *weights)
    np.testing.assert_array_equal(implicit.heads, explicit.heads)
    # A head becomes a member of the network at the end of an explicit step, or within one of the implicit method.
    off = np.abs(implicit.times - explicit.times)
    assert np.all(off < explicit.uncertainties + IMPLICIT * explicit.times)


def test_times_are_those_of_the_whole_flow(make_task):
    task = make_task([0.5, 0.3, 0.2], lengths=(20,), rotation=2)
    lam, cross, second, _ = linear.moments(task)
    values, keys, queries = starts(3, 3, 1, 3, 2, init=5e-3)
    schedules = linear.drop_schedule(task, values, keys, queries)
    modes, steps = linear.modes(task), linear.levels(task)
    own_time = 1 / (modes.driving * modes.ends ** (1 / 3))

    def split(state):
        state = state.reshape(3, 7)
        return state[:, 0], state[:, 1:4], state[:, 4:]

    def field(_, state):
        v, k, q = split(state)
        g = (cross - second @ (v[:, None] * k).T @ q) @ lam
        gq = q @ g.T
        return np.concatenate([np.sum(k * gq, 1)[:, None], v[:, None] * gq, v[:, None] * (k @ g)], axis=1).ravel()

    for run, predicted in enumerate(schedules.times):
        start = np.concatenate([values[run, :, None], keys[run, :, 0], queries[run, :, 0]], axis=1).ravel()
        path = solve_ivp(field, (0, 2 * predicted[-1]), start, method="LSODA", rtol=1e-8, atol=1e-9)
        parts = [split(state) for state in path.y.T]
        loss = np.array([linear.loss_at(task, (v[:, None] * k).T @ q) for v, k, q in parts])
        measured = [path.t[np.argmax(loss < level)] for level in (steps[:-1] + steps[1:]) / 2]
        # Each drop before it may shift a drop by a few of its own times, whatever the size of the start.
        assert np.all(np.abs(predicted - measured) < 5 * np.arange(1, 4) * own_time)


def test_an_ensemble_of_models():
    import jax

    from stepwell.dynamics import Ensemble
    from stepwell.models import SeparateAttention
    from stepwell.tasks import InContextRegression

    task = InContextRegression(np.diag([0.6, 0.4]), 31)
    for normalization in ("1/N", "none"):
        models = [
            SeparateAttention.random(dim=2, heads=2, scale=s, normalization=normalization, key=jax.random.key(0))
            for s in (0.1, 0.01, 0.001)
        ]
        schedules = linear.drop_schedule(task, Ensemble.of(models))
        alone = [linear.drop_schedule(task, model) for model in models]
        times = [[drop.time for drop in drops] for drops in alone]
        np.testing.assert_allclose(schedules.times, times, rtol=STEPS)
        between = float(np.mean(schedules.times[1]))
        until = linear.drop_schedule(task, Ensemble.of(models), until=between)
        assert [len(drops) for drops in until] == [2, 1, 0]


def test_the_parts_of_many_schedules(make_task):
    task, weights = make_task([0.6, 0.4]), starts(3, 2, 1, 2, 0)
    schedules = linear.drop_schedule(task, *weights)
    assert schedules.times.shape == schedules.heads.shape == (3, 2)
    np.testing.assert_array_equal(schedules.levels, linear.levels(task))
    assert [drop.time for drop in schedules[-1]] == schedules.times[2].tolist()
    assert [drop.level_after for drop in schedules[0]] == schedules.levels[1:].tolist()
    np.testing.assert_array_equal(schedules[1:].times, schedules.times[1:])
    # One pair of each head needs no axis.
    same = linear.drop_schedule(task, weights[0], weights[1][:, :, 0], weights[2][:, :, 0])
    np.testing.assert_array_equal(same.times, schedules.times)
    none = linear.drop_schedule(task, *(part[:0] for part in weights))
    assert len(none) == 0 and none.times.shape == (0, 2)


def test_shapes_that_do_not_fit_together(make_task):
    task, (values, keys, queries) = make_task([0.6, 0.4]), starts(3, 2, 1, 2, 0)
    for v, k, q in (
        (values[0], keys, queries),
        (values[:, :1], keys, queries),
        (values, keys[0], queries[0]),
        (values[None], keys[None], queries[None]),
    ):
        with pytest.raises(InvalidInput, match="with or without the axis of pairs"):
            linear.drop_schedule(task, v, k, q)
    with pytest.raises(InvalidInput, match="they must agree"):
        linear.drop_schedule(task, values, keys, queries[:1])
