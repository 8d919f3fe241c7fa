"""The schedule of drops against the flow of all heads together."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy
from scipy.integrate import solve_ivp

from stepwell._util.errors import InvalidInput
from stepwell.theory import Lengths, MultiRegression, Regression, linear
from stepwell.theory.linear import _fall as fall_module
from stepwell.theory.linear import _race as race_module
from stepwell.theory.linear._heads import Directions, Plateau, drift, gains
from stepwell.theory.linear._narrow import Narrow
from stepwell.theory.linear._principal import principal


def start(heads, dim, init, seed):
    weights = init * np.random.default_rng(seed).normal(size=(heads, 2 * dim + 1))
    return weights[:, 0].copy(), weights[:, 1 : dim + 1].copy(), weights[:, dim + 1 :].copy()


def full_flow(task, values, keys, queries, until, rtol=1e-8):
    """Times at which the loss of the whole flow passes halfway between levels, its dense solution and its unpacking."""
    lam, cross, second, _ = linear.moments(task)
    heads, dim = keys.shape

    def split(state):
        state = state.reshape(heads, -1)
        return state[:, 0], state[:, 1 : dim + 1], state[:, dim + 1 :]

    def field(_, state):
        v, k, q = split(state)
        g = (cross - second @ (v[:, None] * k).T @ q) @ lam
        gq = q @ g.T
        return np.concatenate([np.sum(k * gq, 1)[:, None], v[:, None] * gq, v[:, None] * (k @ g)], axis=1).ravel()

    initial = np.concatenate([values[:, None], keys, queries], axis=1).ravel()
    atol = 100 * rtol * np.abs(initial).max()
    run = solve_ivp(field, (0, until), initial, method="LSODA", rtol=rtol, atol=atol, dense_output=True)
    assert run.sol is not None
    loss = np.array([loss_of(task, *split(state)) for state in run.y.T])
    steps = linear.levels(task)
    midpoints = (steps[:-1] + steps[1:]) / 2
    crossings = [run.t[np.argmax(loss < level)] for level in midpoints if loss[-1] < level]
    return np.array(crossings), run.sol, split


def loss_of(task, v, k, q):
    return linear.loss_at(task, (v[:, None] * k).T @ q)


@pytest.mark.parametrize("init", [0.05, 0.005])
@pytest.mark.parametrize("seed", range(3))
def test_drop_times_and_heads(make_task, init, seed):
    task = make_task([0.5, 0.3, 0.2], lengths=(20,), rotation=seed)
    weights = start(3, 3, init, seed)
    drops = linear.drop_schedule(task, *weights)
    assert [drop.component for drop in drops] == [0, 1, 2]
    predicted = np.array([drop.time for drop in drops])
    measured, solution, split = full_flow(task, *weights, predicted[-1] * 2)
    assert measured.size == 3
    # The schedule makes each drop instantaneous. A drop lasts about five of its own times 1/(ρ v_end), from a fifth of
    # the height of v to 99 %; every drop so far shifts a later one by that much, in the later one's own time.
    # This does not depend on init while the times grow as 1/init: the relative error falls with init.
    found = linear.modes(task)
    own_time = 1 / (found.driving * found.ends ** (1 / 3))
    assert np.all(np.abs(predicted - measured) < 5 * np.arange(1, 4) * own_time)
    v, k, q = split(solution(predicted[-1] * 2))
    taken = np.abs(v[:, None] * (k @ found.directions) * (q @ found.directions))
    assert [drop.head for drop in drops] == list(np.argmax(taken, axis=0))


@pytest.mark.parametrize("init", [3e-3, 3e-4])
@pytest.mark.parametrize("seed", range(2))
def test_drop_times_of_a_task_of_moments(make_task_of_moments, init, seed):
    task = make_task_of_moments([0.6, 0.3], seed)
    weights = start(2, 2, init, seed)
    drops = linear.drop_schedule(task, *weights)
    assert [drop.component for drop in drops] == [0, 1] and {drop.head for drop in drops} == {0, 1}
    predicted = np.array([drop.time for drop in drops])
    measured, solution, split = full_flow(task, *weights, predicted[-1] * 2)
    # As above: five of each drop's own times 1/(ρ v_end), with v_end the cube root of the size of the component's map.
    sizes = np.linalg.norm(linear.components(task).maps, axis=(1, 2))
    own_time = 1 / (linear.escape_rates(task) * sizes ** (1 / 3))
    assert np.all(np.abs(predicted - measured) < 5 * np.arange(1, 3) * own_time)
    half = split(solution(predicted.mean()))
    found = linear.nearest_fixed_point(task, linear.separate_map(half[0], half[1][:, None], half[2][:, None]))
    assert found.point.learned == (0,)


def test_drop_times_from_moments_are_those_from_covariances(make_task, make_task_of_moments):
    kwargs = {"rotation": 1, "task_rotation": 2, "noise": 0.3, "lengths": (20,)}
    task = make_task([1.2, 0.7, 0.3], [0.5, 2.0, 1.0], **kwargs)
    own = make_task_of_moments([1.0], 0)
    same = dataclasses.replace(own, own=type(own.own)(*linear.moments(task)))
    rng = np.random.default_rng(0)
    for shape in ((3,), (3, 3), (3, 3)), ((2,), (2, 2, 3), (2, 2, 3)):
        weights = [1e-3 * rng.normal(size=part) for part in shape]
        by_covariances, by_moments = (linear.drop_schedule(one, *weights) for one in (task, same))
        assert [(d.head, d.component) for d in by_moments] == [(d.head, d.component) for d in by_covariances]
        # The solver's 1e-10 a step, in other coordinates, amplified by the growth of the weights.
        np.testing.assert_allclose([d.time for d in by_moments], [d.time for d in by_covariances], rtol=1e-6)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"variances": [0.3, 0.3, 0.3], "rotation": 1},
        {"variances": [0.3 + 3e-6, 0.3, 0.15]},
        # Equal gains, and the strongest driving is not that of the first.
        {"variances": [0.3, 0.6], "task_variances": [2.0, 1.0]},
    ],
)
def test_of_components_of_one_gain_the_head_chooses(make_task, kwargs):
    task = make_task(lengths=(31,), **kwargs)
    weights = start(5, len(task.covariance), 1e-3, 3)
    predicted = np.array([drop.time for drop in linear.drop_schedule(task, *weights)])
    measured, _, _ = full_flow(task, *weights, predicted[-1] * 2)
    # A direction of half the driving has grown from w to sqrt(w) when the head is halfway down the strongest, and what
    # it does from there on is left out.
    np.testing.assert_allclose(predicted, measured, rtol=1e-3**0.5)


def test_of_components_of_one_gain_the_head_chooses_in_a_task_of_moments(make_task_of_moments):
    task = make_task_of_moments([0.4, 0.4], 0)
    weights = start(4, 2, 1e-4, 3)
    predicted = np.array([drop.time for drop in linear.drop_schedule(task, *weights)])
    measured, _, _ = full_flow(task, *weights, predicted[-1] * 2)
    # As above.
    np.testing.assert_allclose(predicted, measured, rtol=1e-4**0.5)


def test_small_heads_leave_the_first_plateau_exactly(make_task):
    task = make_task([0.5, 0.3, 0.2], lengths=(20,), rotation=1)
    found = linear.modes(task)
    e, v0 = found.directions[:, 0], 0.01
    drop = linear.drop_schedule(task, np.array([v0]), v0 * e[None], v0 * e[None])[0]
    half = (1 - 2**-0.5) ** (1 / 3) * linear.aligned_end(task, 0)
    # The gain is 1 - (1 - (v/v_end)^3)^2. Until the head is noticed, at a gain 2(v/v_end)^3 of at most twice _NOTICED,
    # v^5 is left out: (v/v_end)^2/2 of the time 1/(ρ v_end), where the drop comes at 1/(ρ v0). Steps err by 1e-7.
    left_out = v0 / linear.aligned_end(task, 0) * race_module._NOTICED ** (2 / 3) / 2
    assert drop.time == pytest.approx(linear.aligned_time(task, 0, v0, np.array([half]))[0], rel=left_out + 1e-7)


@pytest.mark.parametrize(
    "kwargs",
    [
        {
            "variances": [1.2, 0.7, 0.3],
            "task_variances": [0.5, 2.0, 1.0],
            "noise": 0.3,
            "rotation": 1,
            "task_rotation": 2,
        },
        # Here the strongest driving (1 against .48) is not the largest gain (.86 against 1.05).
        {"variances": [1.0, 0.4], "task_variances": [1.0, 3.0]},
    ],
)
def test_long_plateaus_are_at_the_best_levels_of_each_rank(make_task, kwargs):
    task = make_task(lengths=(20,), **kwargs)
    dim = len(kwargs["variances"])
    weights = start(dim, dim, 5e-4, 1)
    drops = linear.drop_schedule(task, *weights)
    assert len(drops) == dim
    times = np.array([0.0, *(drop.time for drop in drops), 2 * drops[-1].time])
    _, solution, split = full_flow(task, *weights, times[-1])
    # Late on a plateau, three quarters of the way, the heads in use have settled and the next is still of order init.
    late = 0.25 * times[:-1] + 0.75 * times[1:]
    loss = np.array([loss_of(task, *split(solution(t))) for t in late])
    np.testing.assert_allclose(loss, linear.levels(task), rtol=0, atol=1e-3 * linear.moments(task).label_power)
    np.testing.assert_allclose(linear.predicted_staircase(task, drops, late), linear.levels(task), rtol=1e-13)


def test_limits_of_a_schedule(make_task):
    task = make_task([0.5, 0.3, 0.2], lengths=(20,))
    weights = start(2, 3, 0.01, 0)
    drops = linear.drop_schedule(task, *weights)
    assert len(drops) == 2 and {drop.head for drop in drops} == {0, 1}
    assert [drop.level_after for drop in drops] == list(linear.levels(task)[1:3])
    between = (drops[0].time + drops[1].time) / 2
    (only,) = linear.drop_schedule(task, *weights, until=between)
    # Another end means other steps: 1e-10 each, a few hundred of them.
    assert only.head == drops[0].head and only.time == pytest.approx(drops[0].time, rel=1e-7)
    assert linear.drop_schedule(task, np.zeros(2), np.zeros((2, 3)), np.zeros((2, 3))) == []
    flat = linear.predicted_staircase(task, [], np.array([0.0, 1.0]))
    np.testing.assert_array_equal(flat, [linear.moments(task).label_power] * 2)


def test_components_without_gain_are_not_learned(make_task):
    task = make_task([0.5, 0.3, 0.2], [1.0, 1.0, 0.0], rotation=1)
    assert len(linear.drop_schedule(task, *start(4, 3, 0.01, 0))) == 2


@pytest.mark.parametrize(("init", "bound"), [(1e-2, (1e-4, 1e-3)), (1e-3, (1e-6, 1e-5))])
def test_relative_errors_vanish_as_the_square_of_the_initial_size(make_task, init, bound):
    """In the median of twelve drops by the first bound, and in nine of ten by the second."""
    task, errors = make_task([0.4, 0.3, 0.2, 0.1], lengths=(31,)), []
    steps = linear.levels(task)
    for seed in range(3):
        weights = start(4, 4, init, 70 + seed)
        drops = linear.drop_schedule(task, *weights, trials=0)
        _, solution, split = full_flow(task, *weights, 1.02 * drops[-1].time, rtol=1e-11)
        for drop in drops:
            level, near = (drop.level_before + drop.level_after) / 2, 0.01 * drop.time

            def above(t, level=level, solution=solution, split=split):
                return loss_of(task, *split(solution(t))) - level

            time = scipy.optimize.brentq(above, drop.time - near, drop.time + near)
            errors.append(abs(drop.time / time - 1))
    assert len(errors) == 3 * (len(steps) - 1)
    assert np.median(errors) < bound[0] and np.quantile(errors, 0.9) < bound[1]


def test_the_course_is_that_of_the_flow_between_and_through_drops(make_task):
    task, (values, keys, queries) = make_task([0.6, 0.4], lengths=(31,), rotation=0), start(2, 2, 0.01, 0)
    weights: dict[str, Any] = {"values": values, "keys": keys[:, None], "queries": queries[:, None]}
    until = 1.5 * linear.drop_schedule(task, **weights)[-1].time
    course = linear.PREDICTORS["separate"].course(task, weights, np.linspace(0.0, until, 300))
    assert course.times[0] == 0.0 and course.times[-1] == until and len(course.drops) == 2
    _, solution, split = full_flow(task, values, keys, queries, until, rtol=1e-10)
    states = [split(solution(time)) for time in course.times]
    loss = np.array([loss_of(task, *state) for state in states])
    maps = np.array([(v[:, None] * k).T @ q for v, k, q in states])
    assert course.values is not None and course.maps is not None
    # A drop that is late by 1e-4 of its time of some hundreds is so by a percent of its duration; plateaus are not off.
    np.testing.assert_allclose(course.loss, loss, rtol=0, atol=0.01)
    np.testing.assert_allclose(course.values, [state[0] for state in states], rtol=0, atol=0.02)
    assert np.median(np.abs(course.loss - loss)) < 1e-4 and np.median(np.abs(course.maps - maps)) < 1e-2
    too_large = linear.PREDICTORS["separate"].course(
        task, {n: 1e3 * w for n, w in weights.items()}, np.array([0.0, 1.0])
    )
    assert np.isnan(too_large.loss).all() and "too large" in too_large.drops.reason


def plateau_of(basis, learned=0, runs=1):
    known = np.broadcast_to(np.arange(basis.sizes.size)[:, None] < learned, (basis.sizes.size, runs))
    return Plateau.of(basis, Directions.of(basis, runs), known)


@pytest.mark.parametrize("rank", [1, 2])
def test_the_narrow_network_of_all_heads_follows_the_flow(make_task, make_task_of_moments, rank):
    """Its residual and velocity are those of the loss in the weights themselves, and its Jacobian of its velocity."""
    rng, dim, heads = np.random.default_rng(0), 2, 3
    regressions = (make_task([0.6, 0.4], [1.0, 0.5], rotation=0, task_rotation=other) for other in (None, 1))
    for task in (*regressions, make_task_of_moments([0.6, 0.3], 0)):
        v, k, q = rng.normal(size=heads), *rng.normal(size=(2, heads, rank, dim))
        basis = principal(task)
        directions = Directions.of(basis, 1)

        def rows(v, k, q, directions=directions):
            pairs = np.stack(directions.coordinates(k[None], q[None]))
            rest = np.transpose(pairs, (0, 3, 4, 2, 1)).reshape(-1, heads, 1)
            return np.concatenate([v[None, :, None], rest])

        network, state = Narrow(plateau_of(basis), np.ones((heads, 1))), rows(v, k, q)
        shape = state.shape[:2]
        lam, cross, second, _ = linear.moments(task)
        g = (cross - second @ linear.separate_map(v, k, q)) @ lam
        expected = rows(np.einsum("hri,ij,hrj->h", k, g, q), v[:, None, None] * (q @ g.T), v[:, None, None] * (k @ g))
        velocity = np.empty((state.size, 1))
        network.field(shape)(state.reshape(-1, 1), velocity)
        # Sums of a few terms of order one, in other coordinates.
        np.testing.assert_allclose(velocity.reshape(expected.shape), expected, rtol=0, atol=1e-12)
        excess = network.excess(network.residual(state))[0]
        least = linear.minimal_loss(task)
        assert excess == pytest.approx(linear.loss_at(task, linear.separate_map(v, k, q)) - least, rel=1e-12)

        some = Narrow(plateau_of(basis, 1), np.array([[1.0], [0.0], [1.0]]))
        changes = np.empty((state.size, state.size))
        for column, change in enumerate(1e-5 * np.eye(state.size)):
            ends = np.empty((2, state.size, 1))
            for sign, end in zip((1, -1), ends, strict=True):
                some.field(shape)((state.ravel() + sign * change)[:, None], end)
            changes[:, column] = (ends[0] - ends[1])[:, 0] / 2e-5
        # The third derivatives, of order one, times the squared step; and rounding over the step.
        np.testing.assert_allclose(some.jacobian(state), changes, rtol=0, atol=1e-8)


def test_a_test_particle_feels_the_network_and_adds_nothing(make_task):
    basis, rng = principal(make_task([0.6, 0.4], rotation=1)), np.random.default_rng(1)
    state, velocities = rng.normal(size=(5, 3, 1)), []
    for particle in (state[:, 2], 7 * state[:, 2]):
        state[:, 2] = particle
        network, moved = Narrow(plateau_of(basis), np.array([[1.0], [1.0], [0.0]])), np.empty((15, 1))
        network.field((5, 3))(state.reshape(-1, 1), moved)
        velocities.append(moved.reshape(5, 3))
    np.testing.assert_array_equal(velocities[0][:, :2], velocities[1][:, :2])
    # Trilinear in the head itself: its velocity is quadratic.
    np.testing.assert_allclose(velocities[1][:, 2], 49 * velocities[0][:, 2], rtol=1e-12)


@pytest.mark.parametrize("learned", [0, 1])
@pytest.mark.parametrize("rank", [1, 2])
def test_velocity_and_gain_of_a_head_alone_are_those_of_the_loss(make_task_of_moments, learned, rank):
    """In the weights themselves: v, k and q, and the map of what others have learned, which follows at once."""
    task = make_task_of_moments([0.6, 0.4, 0.2], 1)
    basis, known = principal(task), list(range(learned))
    lam, cross, second, _ = linear.moments(task)
    a = linear.components(task).keys[:, known]
    b = cross.T @ a / np.sqrt(basis.gains[known])
    left, right = second - second @ a @ a.T @ second, lam - lam @ b @ b.T @ lam
    drive = (cross - second @ a @ a.T @ cross) @ lam
    v, (k, q) = 0.7, np.random.default_rng(2).normal(size=(2, rank, 3))
    g = drive - v * left @ k.T @ q @ right
    directions = Directions.of(basis, 1)

    def state(v, k, q):
        x, y = directions.coordinates(k[None, None], q[None, None])
        return np.concatenate([[v], x.ravel(), y.ravel()])[:, None, None]

    plateau, moved = plateau_of(basis, learned), np.empty((1 + 6 * rank, 1))
    velocity = Narrow(plateau, np.ones((1, 1))).field((1 + 6 * rank, 1))
    velocity(state(v, k, q)[..., 0], moved)
    np.testing.assert_allclose(moved[..., None], state(np.sum(k @ g * q), v * q @ g.T, v * k @ g), rtol=0, atol=1e-12)
    gain = 2 * v * np.sum(k @ drive * q) - v**2 * np.sum((k @ left @ k.T) * (q @ right @ q.T))
    np.testing.assert_allclose(gains(plateau, state(v, k, q)), [[gain]], rtol=0, atol=1e-12)

    def field(_, y):
        velocity(y[:, None], moved)
        return moved[:, 0].copy()

    # A short step of an accurate method leaves what is conserved.
    path = solve_ivp(field, (0, 0.1), state(v, k, q)[:, 0, 0], method="DOP853", rtol=1e-12, atol=1e-12)
    assert drift(plateau, state(v, k, q), path.y[:, -1:, None]) < 1e-10


def test_a_second_component_far_smaller_than_the_first_has_a_time(make_task):
    rng = np.random.default_rng(0)
    weights = [1e-3 * rng.normal(size=shape) for shape in ((2,), (2, 2, 2), (2, 2, 2))]
    times = [linear.drop_schedule(make_task([1.0, small]), *weights)[1].time * small**2 for small in (1e-5, 1e-6)]
    # The head that has learned the first waits for the second at the rate of its squared eigenvalue, to first order.
    np.testing.assert_allclose(times[1], times[0], rtol=1e-4)


@pytest.mark.parametrize("small", [1e-9, 1e-30])
def test_what_float64_cannot_follow_ends_with_a_reason(make_task, small, monkeypatch):
    monkeypatch.setattr(fall_module, "MOST_STEPS", 600)
    rng = np.random.default_rng(0)
    weights = [1e-3 * rng.normal(size=shape) for shape in ((2,), (2, 2, 2), (2, 2, 2))]
    drops = linear.drop_schedule(make_task([1.0, small]), *weights)
    assert len(drops) == 1 and "steps did not lead further" in drops.reason


def test_a_time_that_rounding_decides_is_not_given(make_task, monkeypatch):
    weights = start(2, 2, 1e-3, 0)
    assert len(linear.drop_schedule(make_task([0.6, 0.4]), *weights)) == 2
    monkeypatch.setattr(race_module, "_MOST_DRIFT", 0.0)
    drops = linear.drop_schedule(make_task([0.6, 0.4]), *weights)
    assert drops == [] and "rounding" in drops.reason


def test_no_time_from_weights_that_are_too_large(make_task):
    for size in (1e2, 1e49, 1e100):
        drops = linear.drop_schedule(make_task([0.6, 0.4]), *start(2, 2, size, 0))
        assert drops == [] and "too large" in drops.reason


def test_times_are_in_proportion_to_one_over_the_weights_until_their_squares_underflow(make_task):
    sizes, task = (1e-20, 1e-40, 1e-290), make_task([0.6, 0.4])
    large, small, none = (linear.drop_schedule(task, *start(2, 2, size, 0)) for size in sizes)
    # To the solver's tolerance: the drop's own duration is far less.
    np.testing.assert_allclose([d.time * 1e-40 for d in small], [d.time * 1e-20 for d in large], rtol=1e-5)
    assert none == [] and "no head escapes" in none.reason


def test_heads_that_run_out_need_no_reason(make_task):
    drops = linear.drop_schedule(make_task([0.6, 0.4]), *start(1, 2, 1e-3, 0))
    assert len(drops) == 1 and drops.reason == ""


def test_a_task_described_by_numbers_takes_one_context_length():
    for described in (Regression(np.eye(2), np.eye(2), 0.0, 31), MultiRegression((2, 2), (1.0, 1.0), 0.0, 31)):
        assert described.context == Lengths((31,), (1.0,))
        assert dataclasses.replace(described, context=Lengths.uniform([5, 9])).context.counts == (5, 9)
    with pytest.raises(InvalidInput, match="context length is 0"):
        Regression(np.eye(2), np.eye(2), 0.0, 0)


def test_a_model_in_place_of_its_weights():
    import jax

    from stepwell.dynamics import renormalized, time_factor
    from stepwell.models import MergedAttention, SeparateAttention

    task = Regression(np.diag([0.6, 0.4]), np.eye(2), 0.0, 31)
    model = SeparateAttention.random(dim=2, heads=2, rank=2, scale=0.05, key=jax.random.key(0))
    weights = model.theory_weights({name: np.asarray(weight) for name, weight in model.weights().items()})
    drops = linear.drop_schedule(task, **weights)
    assert len(drops) == 2 and linear.drop_schedule(task, model) == drops
    other, factor = renormalized(model, "none", length=31), time_factor("1/N", "none", length=31, factors=3)
    np.testing.assert_allclose(
        [drop.time for drop in linear.drop_schedule(task, other)], [factor * drop.time for drop in drops], rtol=1e-6
    )
    assert len(linear.drop_schedule(task, other, until=factor * (drops[0].time + drops[1].time) / 2)) == 1
    merged = MergedAttention.random(dim=2, heads=2, scale=0.05, key=jax.random.key(0))
    with pytest.raises(InvalidInput, match="learns all components at once"):
        linear.drop_schedule(task, merged)
    softmax = SeparateAttention.random(dim=2, heads=2, scale=0.05, activation="softmax", key=jax.random.key(0))
    with pytest.raises(InvalidInput, match="softmax"):
        linear.drop_schedule(task, softmax)
    with pytest.raises(InvalidInput, match="give all three"):
        linear.drop_schedule(task, np.ones(2))
