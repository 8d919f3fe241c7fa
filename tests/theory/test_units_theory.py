"""Networks of units in closed form, against their flow integrated by SciPy."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from stepwell._util.errors import InvalidInput
from stepwell.theory import units

CROSS = np.array([[0.9, 0.1, 0.0], [-0.2, 0.4, 0.3]])


def linear_flow(cross, outer, inner, times):
    """The loss above its least, of all units together."""
    shapes = outer.size, (outer.shape, inner.shape)

    def field(_, state):
        v, u = (part.reshape(shape) for part, shape in zip(np.split(state, [shapes[0]]), shapes[1], strict=True))
        residual = cross - v.T @ u
        return np.concatenate([(u @ residual.T).ravel(), (v @ residual).ravel()])

    start = np.concatenate([outer.ravel(), inner.ravel()])
    run = solve_ivp(field, (0, times[-1]), start, "DOP853", times, rtol=1e-12, atol=1e-16)
    ends = (np.split(state, [shapes[0]]) for state in run.y.T)
    return np.array([np.sum((cross - v.reshape(shapes[1][0]).T @ u.reshape(shapes[1][1])) ** 2) for v, u in ends])


def weights(size, seed=0, count=12, dim=3):
    rng = np.random.default_rng(seed)
    return size * rng.normal(size=(count, 2)), size * rng.normal(size=(count, dim))


@pytest.mark.parametrize("size", [1e-4, 1e-6])
def test_times_of_directions(size):
    sizes = np.linalg.svd(CROSS, compute_uv=False)
    times = units.direction_times(CROSS, *weights(size))
    around = times[:, None] + np.linspace(-0.5, 0.5, 2001)
    levels = np.array([np.sum(sizes**2), sizes[1] ** 2, 0.0])
    for k in range(2):
        loss = linear_flow(CROSS, *weights(size), around[k])
        measured = np.interp(-(levels[k] + levels[k + 1]) / 2, -loss, around[k])
        # At the first drop the second mode has grown to size^(1 - s2/s1), and enters the loss squared.
        assert abs(times[k] - measured) < 20 * size ** (2 * (1 - sizes[1] / sizes[0])) + 1e-6


def test_times_of_directions_are_those_of_logistic_modes():
    """One balanced unit for each mode: its product p obeys dp/dt = 2p(s - p), which halves its loss."""
    strengths, scale = np.array([1.0, 0.5]), 1e-4
    outer = scale * np.eye(4)[:, :2]
    times = units.direction_times(np.diag(strengths), outer, outer)
    products = strengths / (1 + (strengths / scale**2 - 1) * np.exp(-2 * strengths * times))
    np.testing.assert_allclose((strengths - products) ** 2, strengths**2 / 2, rtol=1e-6)


@pytest.mark.parametrize("count", [2, 7])
def test_modes_of_equal_strength_do_not_depend_on_their_basis(count):
    """White of two kinds: each pair of equal modes is learned as the eigenvectors of what it has of hidden space."""
    rng = np.random.default_rng(5)
    outer, inner = 1e-5 * rng.normal(size=(2, count, 4))
    strengths = np.array([1.0, 1.0, 0.4, 0.4])
    first = np.linalg.eigvalsh((outer + inner)[:, :2].T @ (outer + inner)[:, :2] / 4)[::-1]
    expected = np.log((np.sqrt(2) - 1) / first) / 2
    for _ in range(3):
        rotation = np.zeros((4, 4))
        for pair in (slice(0, 2), slice(2, 4)):
            rotation[pair, pair] = np.linalg.qr(rng.normal(size=(2, 2)))[0]
        times = units.direction_times((rotation * strengths) @ rotation.T, outer, inner)
        np.testing.assert_allclose(times[:2], expected, rtol=1e-9)
        assert np.all(times[2:] == np.inf) if count == 2 else np.all(np.diff(times) > 0) and np.isfinite(times).all()


def test_two_equal_modes_are_learned_when_half_of_their_own_loss_is():
    """Balanced, with orthogonal m: the loss is the sum of two logistic ones, whichever basis they are given in."""
    rotation = np.linalg.qr(np.random.default_rng(6).normal(size=(2, 2)))[0]
    inner = np.array([[1e-4, 0.0], [0.0, 1e-5]]) @ rotation
    times = units.direction_times(np.eye(2), inner, inner)
    courses = units.riccati_course(np.eye(2), inner, inner, times).maps
    own = np.einsum("ki,tij,kj->tk", rotation, courses, rotation)
    np.testing.assert_allclose(np.diagonal(own), 1 - np.sqrt(0.5), rtol=1e-6)


@pytest.mark.parametrize("count", [2, 5, 40])
def test_what_no_unit_is_left_for_is_never_learned(count):
    """Units that are proportional are as one, which learns one mode. Of balanced weights, U = VO with a reflection O,
    the map has a negative determinant and keeps it; the best map's is positive."""
    cross, rng = np.array([[0.7, 0.3, 0.1], [-0.2, 0.4, 0.3]]), np.random.default_rng(count)
    sizes, factors = np.linalg.svd(cross, compute_uv=False), rng.normal(size=(count, 1))
    alike = 1e-3 * factors * rng.normal(size=2), 1e-3 * factors * rng.normal(size=3)
    outer = 1e-3 * np.linalg.qr(rng.normal(size=(count, 2)))[0]
    angle = np.array([np.cos(0.7), np.sin(0.7)])
    reflected = outer, outer @ np.array([angle, angle[::-1] * [1, -1]])
    for one, field, rest in ((alike, cross, sizes[1]), (reflected, np.diag([1.0, 0.6]), 0.6)):
        times = units.direction_times(field, *one)
        assert np.isfinite(times[0]) and np.isinf(times[1])
        course = units.riccati_course(field, *one, np.array([200.0, 2000.0]))
        np.testing.assert_allclose(course.loss, rest**2, rtol=1e-5)


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1e-140])
def test_the_smallest_weights(size):
    """Later by ln(1/size)/s_k, and 1/size as late."""
    outer, inner = weights(1.0)
    sizes = np.linalg.svd(CROSS, compute_uv=False)
    late = units.direction_times(CROSS, size * outer, size * inner) - units.direction_times(CROSS, outer, inner)
    np.testing.assert_allclose(late, -np.log(size) / sizes, rtol=1e-12)
    spectrum = np.array([1.0, 0.5, -0.3])
    early = units.blow_up_time(spectrum, outer[:, 0], inner)
    np.testing.assert_allclose(units.blow_up_time(spectrum, size * outer[:, 0], size * inner) * size, early, rtol=1e-12)


def test_modes_of_no_strength_are_never_learned():
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(2))
    start = weights(1e-4)[1], weights(1e-4, seed=1)[1]
    for cross, rank in ((np.diag([1.0, 0.5, 0.0]), 2), (np.outer(left[0], right[0]), 1), (np.zeros((3, 3)), 0)):
        times = units.direction_times(cross, *start)
        assert np.all((times[:rank] > 0) & np.isfinite(times[:rank])) and np.all(times[rank:] == np.inf)


@pytest.mark.parametrize("cross", [CROSS, np.diag([1.0, 0.4])], ids=["wide", "square"])
@pytest.mark.parametrize("size", [1e-2, 1e-4])
@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_the_whole_course_of_small_weights(cross, size, count):
    start, times = weights(size, count=count, dim=cross.shape[1]), np.linspace(0.0, 60.0, 200)
    course = units.riccati_course(cross, *start, times)
    # The imbalance, of second order.
    atol = 30 * count * size**2 * np.sum(cross**2)
    np.testing.assert_allclose(course.loss, linear_flow(cross, *start, times), rtol=0, atol=atol)
    np.testing.assert_allclose(course.maps[0], start[0].T @ start[1], rtol=1e-9)


def test_the_whole_course_of_balanced_weights_of_any_size():
    rng = np.random.default_rng(1)
    hidden = np.linalg.qr(rng.normal(size=(6, 3)))[0] * [0.7, 0.2, 0.4]
    inner = hidden @ np.linalg.qr(rng.normal(size=(3, 3)))[0].T
    outer = hidden[:, :2] @ np.eye(2)
    hidden[:, 2], inner = 0.0, hidden[:, :2] @ np.linalg.qr(rng.normal(size=(3, 2)))[0].T
    np.testing.assert_allclose(inner @ inner.T, outer @ outer.T, atol=1e-15)  # balanced
    times = np.linspace(0.1, 20.0, 50)
    course = units.riccati_course(CROSS, outer, inner, times)
    # The solver's 1e-12 a step.
    np.testing.assert_allclose(course.loss, linear_flow(CROSS, outer, inner, times), rtol=0, atol=1e-9)
    far = units.riccati_course(CROSS, outer, inner, np.array([300.0, 1e4]))
    np.testing.assert_allclose(far.maps, [CROSS, CROSS], rtol=0, atol=1e-12)


def measured_time(spectrum, v, u):
    """In time over the size of the weights, so that no step is too long."""

    def field(_, state):
        v, u = state[0], state[1:-1]
        return np.array([spectrum @ u**2, *(2 * v * spectrum * u), 1]) / np.linalg.norm(state[:-1])

    def large(_, state):
        return abs(state[0]) - 1e6

    large.terminal = True
    run = solve_ivp(field, (0, 1e3), np.array([v, *u, 0.0]), "DOP853", rtol=1e-13, atol=1e-17, events=large)
    if not run.t_events[0].size:
        return np.inf
    # From there it grows along one direction, by 2σ v².
    return run.y[-1, -1] + 1 / (2 * np.abs(spectrum[np.argmax(np.abs(run.y[1:-1, -1]))]) * 1e6)


@pytest.mark.parametrize("spectrum", [[0.5, 0.3, -0.4], [0.5, 0.2, 0.1], [0.2, -0.2]])
def test_blow_up_times(spectrum):
    spectrum, rng = np.array(spectrum), np.random.default_rng(2)
    outer, inner = rng.normal(size=30), rng.normal(size=(30, spectrum.size))
    times = units.blow_up_time(spectrum, outer, inner)

    for time, v, u in zip(times, outer, inner, strict=True):
        assert measured_time(spectrum, v, u) == pytest.approx(time, rel=1e-9)
    assert np.isinf(times).any() == bool(np.all(spectrum > 0))


@pytest.mark.parametrize(
    ("spectrum", "v", "u"),
    [
        ([1.0, 0.6, -0.4], 3e-4, [0.5, -0.3, 2.0]),
        ([1.0, 0.6, -0.4], -3e-4, [0.5, -0.3, 0.2]),
        ([1.0, 0.6, -0.4], 1e-8, [0.5, -0.3, 2.0]),
        ([1.0, -0.5], 0.0, [0.3, 0.2]),
        ([1.0, -0.5], 0.0, [0.1, 1.0]),
        # Past the saddle at v = 0, as near as a part in 1e5 on either side; and what is slow first, and late fast.
        ([1.0, -0.5], 0.704645, [0.307714, 1.570921]),
        ([1.0, -0.5], 0.704655, [0.307714, 1.570921]),
        ([1.0, 0.1], 1.0, [1e-6, 1.0]),
    ],
)
def test_blow_up_times_of_units_that_hesitate(spectrum, v, u):
    spectrum, u = np.array(spectrum), np.array(u)
    (time,) = units.blow_up_time(spectrum, np.array([v]), u[None])
    assert time == pytest.approx(measured_time(spectrum, v, u), rel=1e-9)


@pytest.mark.parametrize("v", [-1.0, -3e-4, 0.0, 1e-8, 0.5])
@pytest.mark.parametrize("spectrum", [1e-9, 0.5, 1e9])
def test_blow_up_times_along_one_direction(v, spectrum):
    """v' = σ (2v² + c), with c = u² - 2v²."""
    c = 0.3
    (time,) = units.blow_up_time(np.array([spectrum]), np.array([v]), np.sqrt([[c + 2 * v**2]]))
    expected = (np.pi / 2 - np.arctan(v * np.sqrt(2 / c))) / (spectrum * np.sqrt(2 * c))
    assert time == pytest.approx(expected, rel=1e-12)


def test_a_unit_at_rest_never_grows():
    assert np.isinf(units.blow_up_time(np.array([0.5, -0.5]), np.zeros(2), np.array([[1.0, 1.0], [0.0, 0.0]]))).all()


def test_a_unit_that_never_grows():
    """All of one sign, with v(0) < 0 and 2v(0)² > |u(0)|²: for three directions 15.2 % of Gaussian units."""
    rng = np.random.default_rng(3)
    outer, inner = rng.normal(size=4000), rng.normal(size=(4000, 3))
    never = np.isinf(units.blow_up_time(np.array([0.5, 0.3, 0.1]), outer, inner))
    np.testing.assert_array_equal(never, (outer < 0) & (2 * outer**2 > np.sum(inner**2, axis=1)))


@pytest.mark.parametrize("name", ["spectrum", "outer", "inner"])
def test_units_that_are_not_numbers_are_refused(name):
    given = {"spectrum": np.ones(2), "outer": np.ones(1), "inner": np.ones((1, 2))}
    given[name] = given[name] * np.nan
    with pytest.raises(InvalidInput, match=name):
        units.blow_up_time(**given)


def test_times_before_the_beginning_are_refused():
    with pytest.raises(InvalidInput, match="times begin at -1"):
        units.riccati_course(CROSS, *weights(1e-3), np.array([0.0, -1.0]))
