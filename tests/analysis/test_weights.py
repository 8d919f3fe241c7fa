"""Probes of weights, on weights whose answers are known."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from stepwell._util.errors import InvalidInput
from stepwell.analysis import (
    alignment,
    compare,
    conserved,
    conserved_drift,
    effective_map,
    nearest_fixed_point,
    pcr_test,
    winners,
)
from stepwell.dynamics import Record, descend, flow
from stepwell.models import AbstractModel, Form, MergedAttention, MultiHeadAttention, SeparateAttention
from stepwell.objectives import Population, Sampled
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import model_at

TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]


def separate(value, key, query, axis="time"):
    """A trajectory of one run from v (point, head), k and q (point, head, pair, dim)."""
    points, heads = value.shape
    full_value = np.zeros((1, points, heads, 1, 4))
    full_value[0, :, :, 0, 3] = value
    full_key = np.concatenate([key, np.zeros((*key.shape[:-1], 1))], axis=-1)[None]
    variables = {
        "value": (("run", axis, "head", "output", "token_dim"), full_value),
        "key": (("run", axis, "head", "pair", "token_dim"), full_key),
        "query": (("run", axis, "head", "pair", "dim"), query[None]),
    }
    return xr.Dataset(variables, {"run": [0], axis: np.arange(points) * 10})


@pytest.fixture(scope="module")
def task():
    return InContextRegression(covariance([0.5, 0.3, 0.2], TURN), 20)


@pytest.fixture(scope="module", params=["descend", "flow"])
def run(request, task):
    model = SeparateAttention.random(dim=3, heads=3, rank=2, scale=0.2, key=jax.random.key(0))
    if request.param == "descend":
        return model, descend(
            model, Population(task), rate=0.02, steps=2000, record=Record(snapshots=11), progress=False
        )
    return model, flow(model, Population(task), until=500.0, record=Record(points=11), progress=False)


def test_alignment_of_turned_vectors():
    angle = np.array([0.0, 0.3, 1.2])
    key = np.outer(np.cos(angle), TURN[:, 0]) + np.outer(np.sin(angle), TURN[:, 2])
    key, query = 1e-200 * key[:, None, None], np.zeros((3, 1, 1, 3))
    found = alignment(separate(np.ones((3, 1)), key, query), TURN)
    expected = np.stack([np.cos(angle) ** 2, 0 * angle, np.sin(angle) ** 2], axis=1)
    np.testing.assert_allclose(found["key"][0, :, 0, 0], expected, atol=1e-14)
    assert np.all(np.isnan(found["query"]))
    assert found["key"].dims == ("run", "time", "head", "pair", "component")


def test_cosines_add_up(run):
    found = alignment(run[1], TURN)
    np.testing.assert_allclose(found["key"].sum("component"), 1, rtol=1e-12)
    np.testing.assert_allclose(found["query"].sum("component"), 1, rtol=1e-12)


def test_alignment_refuses(run):
    with pytest.raises(InvalidInput, match="orthonormal"):
        alignment(run[1], 2 * TURN)
    with pytest.raises(InvalidInput, match="no weights"):
        alignment(run[1][["loss"]], TURN)


def test_effective_map_is_the_models(run):
    model, trajectory = run
    found = effective_map(trajectory)
    points = trajectory["snapshot" if "snapshot" in trajectory.dims else "time"].values
    for place in (0, 4, -1):
        expected = model_at(trajectory, model, at=float(points[place])).effective_map()[0, 0]
        np.testing.assert_allclose(found[0, place], expected, atol=1e-14)


def test_effective_map_of_merged(task):
    model = MergedAttention.random(dim=3, heads=2, scale=0.3, key=jax.random.key(1))
    trajectory = descend(model, Population(task), rate=0.02, steps=50, record=Record(snapshots=3), progress=False)
    expected = model_at(trajectory, model).effective_map()[0, 0]
    np.testing.assert_allclose(effective_map(trajectory)[0, -1], expected, atol=1e-14)
    with pytest.raises(InvalidInput, match="merged"):
        alignment(trajectory, TURN)
    assert set(conserved(trajectory).data_vars) == {"value_key_query"}


def test_runs_that_do_not_name_their_model_ask_for_it(task):
    """As those of a store: with the model the map is that of the trajectory that names it."""
    model = MultiHeadAttention.random(
        dim=3, outputs=1, heads=2, scale=0.3, activation="linear", normalization="1/N", key=jax.random.key(0)
    )
    batch = Sampled(task.sample(20, key=jax.random.key(1)))
    run = descend(model, batch, rate=0.05, steps=4, record=Record(snapshots=3), progress=False)
    nameless = run.drop_attrs()
    with pytest.raises(InvalidInput, match=r"no weights of separate .* as the argument model, such as experiment"):
        effective_map(nameless)
    np.testing.assert_array_equal(effective_map(nameless, model), effective_map(run))


def test_winners_of_two_of_three():
    time = np.linspace(0, 1, 101)
    steps = np.stack([-2 / (1 + np.exp(-(time - 0.7) / 0.02)), 0 * time + 1e-3, 1 / (1 + np.exp(-(time - 0.2) / 0.02))])
    first = np.tile(TURN[:, 0], (101, 3, 1, 1))
    found = winners(separate(steps.T, first, first).assign_coords(time=time), least=0.1).isel(run=0)
    assert found["grown"].values.tolist() == [True, False, True]
    assert found["order"].values.tolist() == [1, -1, 0]
    np.testing.assert_allclose(found["half"], [0.7, np.nan, 0.2], atol=1e-6)
    np.testing.assert_allclose(found["final"], [2, 1e-3, 1], rtol=1e-5)


def test_no_winner_of_zeros():
    nothing = np.zeros((5, 2, 1, 3))
    assert not winners(separate(np.zeros((5, 2)), nothing, nothing))["grown"].any()


def test_conserved_by_hand():
    key, query = np.array([[1.0, 2, 0], [0, 0, 1]]), np.array([[1.0, 0, 0], [0, 1, 0]])
    trajectory = separate(np.array([[3.0]]), key[None, None], query[None, None])
    found = conserved(trajectory).isel(run=0, time=0, head=0)
    assert float(found["value_key"]) == 9 - 6
    assert found["key_query"].values.tolist() == [[4, 0], [0, 0]]
    sums = conserved(trajectory, control=True).isel(run=0, time=0, head=0)
    assert float(sums["value_key"]) == 9 + 6
    assert sums["key_query"].values.tolist() == [[6, 0], [0, 2]]


def test_drift_sees_one_head_that_breaks_the_law():
    value = np.ones((4, 2))
    value[2, 1] = 1.5
    nothing = np.zeros((4, 2, 1, 3))
    drift = conserved_drift(separate(value, nothing, nothing, axis="snapshot"))
    assert drift["value_key"].dims == ("run", "snapshot")
    np.testing.assert_allclose(drift["value_key"][0], [0, 0, 1.25, 0])
    np.testing.assert_allclose(drift["key_query"][0], 0)


def test_the_flow_conserves(run):
    drift = conserved_drift(run[1])
    # Descent of rate η: one step changes the quantities by η² times squared gradients. The flow: the solver's error.
    allowed = 1e-4 if "time" in drift.dims else 0.02
    assert float(drift.to_array().max()) < allowed
    moved = np.abs(run[1]["value"] - run[1]["value"][:, 0]).max()
    assert float(moved) > 0.3
    assert float(conserved_drift(run[1], control=True).to_array().max()) > 50 * allowed


@pytest.mark.parametrize("kind", ["separate", "merged"])
def test_random_label_blocks_are_counted_in(task, kind):
    """On data, where label blocks move, the drift of descent is of first order in the rate: a fourth of it at η/4."""
    from stepwell.objectives import Moments

    made = SeparateAttention if kind == "separate" else MergedAttention
    model = made.random(dim=3, heads=2, scale=0.3, label_blocks="random", key=jax.random.key(2))
    moments = Moments.of_batch(task.sample(200, key=jax.random.key(3)))
    coarse, fine = (
        conserved_drift(
            descend(model, moments, rate=0.02 / f, steps=400 * f, record=Record(snapshots=2), progress=False)
        )
        for f in (1, 4)
    )
    for name in coarse:
        assert float(fine[name][0, -1]) == pytest.approx(float(coarse[name][0, -1]) / 4, rel=0.1)


@pytest.mark.parametrize("m", [0, 1, 2, 3])
def test_pcr_is_recognized(m):
    """A map that is regression on m components for long contexts, in a task with them."""
    lam = np.array([0.5, 0.3, 0.2])
    task = InContextRegression(covariance(lam, TURN), 200)
    value, key, query = np.zeros((3, 1, 4)), np.zeros((3, 1, 4)), np.zeros((3, 1, 3))
    for d in range(m):
        value[d, 0, 3], key[d, 0, :3], query[d, 0] = 1 / lam[d], TURN[:, d], TURN[:, d]
    model = SeparateAttention(jnp.array(value), jnp.array(key), jnp.array(query))
    found = pcr_test(model, task.sample(400, key=jax.random.key(m)), TURN)
    assert int(found["closest"]) == m
    assert float(found["margin"]) > 3
    # The context's own covariance is off by 1/√N a component.
    assert float(found["difference"][m]) < 2 * (1 + m) / 200
    assert np.all(found["difference"].drop_sel(components=m) > found["difference"][m] + 3 * found["standard_error"][m])


def test_all_components_are_least_squares():
    from stepwell.analysis import principal_component_regression

    batch = InContextRegression(covariance([0.5, 0.3, 0.2], TURN), 8).sample(50, key=jax.random.key(0))
    found = principal_component_regression(batch, TURN)
    np.testing.assert_allclose(found[3], batch.labels[:, -1, 0], atol=1e-9)
    np.testing.assert_array_equal(found[0], 0)


def test_the_nearest_fixed_point_is_that_of_the_plateau(task):
    """Weights put on two of three fixed-point components, and a known way off."""
    components = theory.components(task)
    off = 0.1 * components.maps[1]
    maps = [components.maps[0], components.maps[0] + components.maps[2], components.maps[0] + off]
    model = MergedAttention(
        jnp.zeros((1, 1, 4)).at[0, 0, 3].set(1.0), jnp.zeros((1, 4, 3)), activation="linear", normalization="1/N"
    )
    key_query = np.zeros((1, 3, 1, 4, 3))
    key_query[0, :, 0, :3] = maps
    value = np.broadcast_to(np.asarray(model.value), (1, 3, 1, 1, 4))
    run = xr.Dataset(
        {
            "value": (("run", "time", "head", "output", "token_dim"), value),
            "key_query": (("run", "time", "head", "token_dim", "dim"), key_query),
        },
        {"run": [0], "time": [0.0, 1.0, 2.0]},
    )
    found = nearest_fixed_point(run, task)
    assert found["has"].values[0].tolist() == [[True, False, False], [True, False, True], [True, False, False]]
    assert found["learned"].values[0].tolist() == [1, 2, 1]
    # 0.1 of a component is 0.1 of the root of its gain away.
    np.testing.assert_allclose(found["distance"][0], [0, 0, 0.1 * components.gains[1] ** 0.5], atol=1e-7)
    levels = theory.levels(task)
    np.testing.assert_allclose(found["loss"][0, [0, 2]], levels[1], rtol=1e-12)


def test_a_run_visits_fixed_points_in_turn(task):
    model = SeparateAttention.random(dim=3, heads=3, scale=1e-5, key=jax.random.key(1)).balanced()
    found = nearest_fixed_point(flow(model, Population(task), record=Record(points=201), progress=False), task)
    learned = found["learned"].values[0]
    assert learned[0] == 0 and learned[-1] == 3 and np.all(np.diff(learned) >= 0)
    assert float(found["distance"][0, -1]) < 1e-3
    assert {0, 1, 2, 3} == set(learned.tolist())


class Gated(AbstractModel):
    """A model of one's own: heads with gates, by names that no probe knows."""

    scores: jax.Array
    gate: jax.Array
    declared_form: ClassVar[Form] = "linear"

    def __call__(self, tokens):
        scores = jnp.einsum("ni,hij,j->hn", tokens[:-1, :-1], self.scores, tokens[-1, :-1]) / (tokens.shape[0] - 1)
        return (jnp.tanh(self.gate) @ scores @ tokens[:-1, -1])[None]

    def head_maps(self):
        return jnp.einsum("h,hij->hij", jnp.tanh(self.gate), self.scores)[:, None, None]

    def effective_map(self):
        return self.head_maps().sum(axis=0)


class Disagreeing(Gated):
    declared_form: ClassVar[Form] = "linear"

    def head_maps(self):
        return 2 * super().head_maps()

    def effective_map(self):
        return Gated.head_maps(self).sum(axis=0)


def gated(kind, heads=2):
    first, second = jax.random.split(jax.random.key(0))
    return kind(0.1 * jax.random.normal(first, (heads, 3, 3)), 0.1 * jax.random.normal(second, (heads,)))


def test_winners_of_a_model_of_ones_own(task):
    """The map of each head, as the class declares it; the flow ends at the lowest loss that the task's moments give."""
    run = flow(gated(Gated), Population(task), progress=False)
    assert run.attrs["outcome"] == "converged"
    np.testing.assert_allclose(run["loss"][0, -1], theory.levels(task)[-1], rtol=2e-3)
    sizes = np.linalg.norm(model_at(run).head_maps(), axis=(-2, -1))[:, 0, 0]
    np.testing.assert_allclose(winners(run)["final"][0], sizes)
    assert winners(run)["order"][0, np.argmax(sizes)] == 0


def test_probes_say_what_a_model_lacks(task):
    batch = task.sample(50, key=jax.random.key(1))
    run = descend(gated(Gated), Sampled(batch), rate=0.1, steps=3, progress=False)
    for probe in (lambda: alignment(run, TURN), lambda: conserved(run), lambda: conserved_drift(run)):
        with pytest.raises(InvalidInput, match="Gated of .* declares no keys, queries and values"):
            probe()
    wrong = descend(gated(Disagreeing), Sampled(batch), rate=0.1, steps=3, progress=False)
    with pytest.raises(InvalidInput, match="do not add up"):
        winners(wrong)


class Twice(SeparateAttention):
    """Weights with the names of `SeparateAttention`, and other answers."""

    def __call__(self, example, length=None):
        return 2 * super().__call__(example, length)


def test_names_of_weights_do_not_say_what_they_mean(task):
    batch = task.sample(50, key=jax.random.key(1))
    model = Twice.random(dim=3, heads=2, scale=0.5, key=jax.random.key(2))
    run = descend(model, Sampled(batch), rate=1e-12, steps=1, progress=False)  # label blocks stay zero
    measured = effective_map(run, batch=batch)[0, 0]
    np.testing.assert_allclose(measured, 2 * SeparateAttention.effective_map(model)[0, 0], atol=1e-12)
    for probe in (effective_map, winners, conserved, lambda run: alignment(run, TURN), lambda run: compare(run, task)):
        with pytest.raises(InvalidInput, match="Twice.* declares no"):
            probe(run)


class Scaled(AbstractModel):
    """Cannot have the best map unless inputs are white."""

    size: jax.Array
    declared_form: ClassVar[Form] = "linear"

    def __call__(self, tokens):
        x, y = tokens[:, :-1], tokens[:-1, -1]
        return (self.size**2 * jnp.mean(y[:, None] * x[:-1], axis=0) @ x[-1])[None]

    def effective_map(self):
        return (self.size**2 * jnp.eye(3))[None, None]


def test_a_flow_that_cannot_reach_the_bound_says_so(task):
    run = flow(Scaled(jnp.asarray(0.1)), Population(task), progress=False, throw=False)
    assert run.attrs["outcome"] == "stuck" and "cannot have the best map" in run.attrs["message"]
