"""Predicted drops of networks of units, against their whole flow on examples, integrated by SciPy."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from stepwell._util.errors import InvalidInput
from stepwell.theory import units
from stepwell.theory.units._narrow import Field
from stepwell.theory.units._rays import _ray


@dataclass(frozen=True)
class Moments:
    cross: np.ndarray
    gram: np.ndarray
    label_power: float


@dataclass(frozen=True)
class Examples:
    """Inputs and labels, a row each."""

    x: np.ndarray
    y: np.ndarray

    @property
    def dim(self):
        return self.x.shape[1]

    @property
    def outputs(self):
        return self.y.shape[1]

    def moments(self, degree=1, patches=1):
        split = self.x.reshape(len(self.x), patches, -1)
        made = split
        for _ in range(degree - 1):
            made = (made[..., :, None] * split[..., None, :]).reshape(*split.shape[:2], -1)
        z, count = made.reshape(len(self.x), -1), len(self.x)
        return Moments(self.y.T @ z / count, z.T @ z / count, float(np.sum(self.y**2) / count))


def drawn(seed, outputs=2, dim=3, degree=1, patches=1, count=40):
    """Inputs that are not white, and labels of a teacher of the same degree with strengths 1, 0.6, … and 0.1 noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, dim)) * np.linspace(1.2, 0.8, dim)
    split = x.reshape(count, patches, -1)
    turn = np.linalg.qr(rng.normal(size=(split.shape[2], split.shape[2])))[0]
    scores = (split @ turn) ** degree
    labels = sum(0.6**k * scores[:, k % patches, k, None] * np.eye(outputs)[k % outputs] for k in range(split.shape[2]))
    return Examples(x, labels + 0.1 * rng.normal(size=(count, outputs)))


def initial(size, task, count, patches=1, seed=0):
    rng = np.random.default_rng(seed)
    outer = size * rng.normal(size=(count, task.outputs, patches))
    return outer, size * rng.normal(size=(count, task.dim // patches))


POWER = {n: (lambda s, n=n: s**n, lambda s, n=n: n * s ** (n - 1)) for n in (1, 2, 3)}
RELU = (lambda s: np.maximum(s, 0.0), lambda s: (s > 0).astype(float))


def measured(task, outer, inner, functions, drops, method="LSODA"):
    """When the loss of all units passes between the levels of the drops, and which unit has grown most by each."""
    phi, slope = functions
    patches = outer.shape[2]
    x, cut = task.x.reshape(len(task.x), patches, -1), outer.size

    def parts(state):
        v, u = state[:cut].reshape(outer.shape), state[cut:].reshape(inner.shape)
        scores = np.einsum("npk,ik->nip", x, u)
        return v, scores, task.y - np.einsum("iop,nip->no", v, phi(scores))

    def field(_, state):
        v, scores, error = parts(state)
        toward = np.einsum("no,iop->nip", error, v) * slope(scores)
        moved = np.einsum("no,nip->iop", error, phi(scores)), np.einsum("nip,npk->ik", toward, x)
        return np.concatenate([each.ravel() for each in moved]) / len(x)

    def crossing(level):
        return lambda _, state: np.sum(parts(state)[2] ** 2) / len(x) - level

    events = [crossing((drop.level_before + drop.level_after) / 2) for drop in drops]
    events[-1].terminal = True
    start = np.concatenate([outer.ravel(), inner.ravel()])
    options = {"rtol": 1e-10, "atol": 1e-11 * np.abs(start).max()}
    run = solve_ivp(field, (0, 1.5 * drops[-1].time), start, method, events=events, **options)
    sizes = [np.linalg.norm(state[0, cut:].reshape(inner.shape), axis=1) for state in run.y_events]
    return np.array([times[0] for times in run.t_events]), sizes


def errors(drops, times):
    """Differences of times, and that part of what is allowed."""
    off = np.abs([drop.time for drop in drops] - times)
    return off / times, off / [drop.uncertainty for drop in drops]


@pytest.mark.parametrize(("outputs", "dim", "patches"), [(2, 3, 1), (1, 4, 2)], ids=["inputs not white", "patches"])
@pytest.mark.parametrize("seed", [0, 1])
def test_drops_of_directions(seed, outputs, dim, patches):
    task = drawn(seed, outputs, dim, patches=patches)
    largest = []
    for size in (1e-2, 1e-3):
        weights = initial(size, task, 12, patches, seed)
        drops = units.direction_schedule(task, *weights)
        relative, share = errors(drops, measured(task, *weights, POWER[1], drops)[0])
        assert len(drops) == 2 and drops.reason == "" and np.all(share < 1)
        largest.append(relative.max())
    # Second order in the product of the next direction, which has grown to a power of the size.
    assert largest[0] < 2e-2 and largest[1] < largest[0] / 10


def test_levels_of_directions_are_those_of_reduced_rank_regression():
    task = drawn(3)
    moments = task.moments()
    drops = units.direction_schedule(task, *initial(1e-3, task, 12))
    gains = np.linalg.eigvalsh(moments.cross @ np.linalg.solve(moments.gram, moments.cross.T))[::-1]
    expected = moments.label_power - np.cumsum([0.0, *gains])
    np.testing.assert_allclose([drop.level_before for drop in drops], expected[:-1], rtol=1e-10)
    np.testing.assert_allclose([drop.level_after for drop in drops], expected[1:], rtol=1e-10)


@pytest.mark.parametrize("rank", [1, 2])
def test_a_narrow_linear_network_comes_to_rest_there(rank):
    field = Field(drawn(3).moments(), heads=2)
    reduced = field._reduced_rank(rank)
    assert reduced is not None
    loss, left = reduced
    rested = field.residual(field._rest(0.1 * np.random.default_rng(0).normal(size=(rank, 5))))
    assert rested[0] == pytest.approx(loss, rel=1e-10)
    np.testing.assert_allclose(rested[1], left, atol=1e-6)


def test_any_rotation_of_the_units_has_the_same_drops():
    task = drawn(4)
    outer, inner = initial(1e-3, task, 7)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 7)))[0]
    turned = np.einsum("ij,jop->iop", turn, outer), turn @ inner
    one, other = (units.direction_schedule(task, *weights) for weights in ((outer, inner), turned))
    np.testing.assert_allclose([drop.time for drop in one], [drop.time for drop in other], rtol=1e-6)


@pytest.mark.parametrize("count", [3, 12])
def test_units_that_are_proportional_learn_one_direction(count):
    """And what rounding has of others never grows."""
    task, rng = drawn(0), np.random.default_rng(0)
    rows = 1e-3 * np.outer(rng.normal(size=count), rng.normal(size=5))
    drops = units.direction_schedule(task, rows[:, :2, None], rows[:, 2:])
    one = np.linalg.norm(rows[:, 0] / rows[0, 0]) * rows[:1]
    expected = units.direction_schedule(task, one[:, :2, None], one[:, 2:])
    assert len(drops) == 1 and drops.reason == "no unit is left"
    assert drops[0].time == pytest.approx(expected[0].time, rel=1e-7)


@pytest.mark.parametrize(("degree", "size"), [(2, 3e-3), (3, 1e-2)])
@pytest.mark.parametrize("seed", [0, 1])
def test_drops_of_units(degree, size, seed):
    task = drawn(seed, outputs=1, dim=2, degree=degree, count=200)
    weights = initial(size, task, 6, seed=seed)
    drops = units.unit_schedule(task, *weights, degree)
    times, sizes = measured(task, *weights, POWER[degree], drops)
    relative, share = errors(drops, times)
    assert len(drops) >= 2 and relative.max() < 1e-3 and np.all(share < 1)
    for number, grown in enumerate(sizes, start=1):
        assert {drop.unit for drop in drops[:number]} == set(np.argsort(-grown)[:number].tolist())


@pytest.mark.parametrize(
    ("labels", "largest"), [((1.0, -0.3), 1e-4), ((1.0, 0.7, -1.0), 1e-3)], ids=["one of each sign", "two of a sign"]
)
def test_drops_of_rays(labels, largest):
    rng = np.random.default_rng(5)
    x = np.linalg.qr(rng.normal(size=(3, 3)))[0][: len(labels)] * np.array([[1.0], [1.6], [1.3]])[: len(labels)]
    task = Examples(x, np.array(labels)[:, None])
    outer, inner = initial(1e-3, task, 50)
    drops = units.ray_schedule(x, np.array(labels), outer[:, 0, 0], inner)
    relative, share = errors(drops, measured(task, outer, inner, RELU, drops, "DOP853")[0])
    assert len(drops) == 2 and np.all(relative < largest) and np.all(share < 1)
    assert drops[-1].level_after == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("points", [2, 4])
def test_rays_that_share_points(points, seed):
    """They slow each other, by more than what the smaller ones take from the loss."""
    x, y, size = np.diag(np.linspace(2.0, 1.0, points)), np.ones((points, 1)), 1e-4
    outer, inner = initial(size, Examples(x, y), 50, seed=seed)
    drops = units.ray_schedule(x, y[:, 0], outer[:, 0, 0], inner)
    relative, share = errors(drops, measured(Examples(x, y), outer, inner, RELU, drops, "DOP853")[0])
    # When they have grown, units differ from their rays by parts of the order of their initial size.
    assert len(drops) >= 1 and np.all(relative < size) and np.all(share < 1)


@pytest.mark.parametrize("seed", range(6))
def test_a_small_unit_ends_on_its_ray(seed):
    rng = np.random.default_rng(seed)
    v, p, drive = float(rng.normal()), rng.normal(size=4), np.array([1.0, 0.6, -0.8, 0.0])

    def field(_, state):
        reached = state[1:] > 0
        return np.append(np.sum(drive * state[1:] * reached), state[0] * drive * reached)

    end = solve_ivp(field, (0, 12.0), np.append(v, p), "RK45", rtol=1e-9, atol=1e-12).y[:, -1]
    active, size = _ray(v, p, drive)
    rate = np.linalg.norm(drive[active])
    assert end[0] == pytest.approx(size * np.exp(12.0 * rate), rel=1e-4, abs=20 * np.abs(p).max() * (size == 0))
    if size:
        np.testing.assert_array_equal(active, (end[1:] > 1e-2 * abs(end[0])) & (drive != 0))


def test_a_single_mode_is_logistic():
    """One point: the loss is midway at ln((√2 - 1)(|y|/|x|)/M²)/2d, M² = Σ m²."""
    outer = np.array([1e-4, 2e-4, 1e-4])
    drops = units.ray_schedule(np.array([[2.0]]), np.array([1.0]), outer, outer[:, None])
    assert drops[0].time == pytest.approx(np.log((np.sqrt(2) - 1) * 0.5 / 6e-8) / 4, rel=1e-7)


def test_two_units_that_are_nearly_equal_are_named():
    task = drawn(0, outputs=1, dim=2, degree=2, count=200)
    outer, inner = initial(1e-3, task, 1)
    twins = np.concatenate([outer, 1.0001 * outer]), np.concatenate([inner, 1.0001 * inner])
    drops = units.unit_schedule(task, *twins)
    assert (drops[0].unit, drops[0].rival) == (1, 0) if drops else "another seed" in drops.reason


def test_why_there_are_no_more_drops():
    task = drawn(0)
    assert units.direction_schedule(task, *initial(1e-3, task, 1)).reason == "no unit is left"
    assert "smaller scale" in units.direction_schedule(task, *initial(2.0, task, 8)).reason
    assert "none of the units that are left grows" in units.direction_schedule(task, *initial(0.0, task, 8)).reason
    positive = np.array([[1.0, 0.0], [0.0, 1.0]])
    drops = units.ray_schedule(positive, np.array([1.0, -1.0]), np.array([1e-3]), np.array([[1e-3, 1e-3]]))
    assert len(drops) == 1 and drops.reason == "no unit is left"


def test_no_drops_are_asked_for_beyond_a_time():
    task = drawn(0)
    weights = initial(1e-3, task, 12)
    drops = units.direction_schedule(task, *weights)
    until = (drops[0].time + drops[1].time) / 2
    some = units.direction_schedule(task, *weights, until=until)
    assert some == drops[:1] and some.reason == f"the next drop is later than until = {until:g}"
    with pytest.raises(InvalidInput, match="until is nan"):
        units.direction_schedule(task, *weights, until=np.nan)


def test_no_units_have_no_drops():
    task = drawn(0)
    none = initial(1e-3, task, 0)
    assert units.direction_schedule(task, *none).reason == units.unit_schedule(task, *none).reason == "no unit is left"
    outer, inner = initial(np.nan, task, 4)
    with pytest.raises(InvalidInput, match="outer has entries that are not finite"):
        units.direction_schedule(task, outer, inner)


def test_what_is_refused():
    task = drawn(0)
    outer, inner = initial(1e-3, task, 4)
    with pytest.raises(InvalidInput, match=r"outer has shape \(4, 2, 1\)"):
        units.direction_schedule(task, outer, inner[:, :2])
    with pytest.raises(InvalidInput, match="direction_schedule has their drops"):
        units.unit_schedule(task, outer, inner, 1)
    with pytest.raises(InvalidInput, match="right angles"):
        units.ray_schedule(task.x[:2], task.y[:2, 0], outer[:, 0, 0], inner)
    with pytest.raises(InvalidInput, match="positive length"):
        units.ray_schedule(np.zeros((1, 3)), np.ones(1), outer[:, 0, 0], inner)
