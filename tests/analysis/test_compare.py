"""Drops predicted and measured, in one table."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell._util.paper_time import PAPER_UNIT
from stepwell.analysis import compare, level_drops, sample_task, staircase
from stepwell.dynamics import Ensemble, Record, descend, flow, renormalized, time_factor
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear


@pytest.fixture(scope="module")
def task() -> InContextRegression:
    return InContextRegression(covariance([1.0, 0.5]), 31)


def test_all_drops_of_a_power_law_are_found():
    gains = np.arange(1, 17) ** -2.5
    levels = np.concatenate([np.cumsum(gains[::-1])[::-1], [0.0]])
    times = 100.0 * 2.0 ** np.arange(16)
    time = np.geomspace(1.0, 1e7, 4001)
    with np.errstate(over="ignore"):
        loss = np.sum(gains / (1 + (time[:, None] / times) ** 40), axis=1)
    drops = level_drops(time, loss, levels)
    assert [drop.status for drop in drops] == ["measured"] * 16
    # The loss is sampled every 0.4 %, and interpolated.
    np.testing.assert_allclose([drop.time for drop in drops], times, rtol=4e-3)
    assert len(staircase(time, loss).drops) < 16


def test_the_table_is_printed_whole(task):
    """With every column, at any width of the terminal, and remarks."""
    run = flow(SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1), Population(task), progress=False)
    comparison = compare(run, task)
    assert "..." not in str(comparison) and all(column in str(comparison) for column in comparison.table.columns)
    comparison = dataclasses.replace(comparison, remarks=("what the sample changes",))
    assert str(comparison).endswith("what the sample changes") and comparison.lines()[-1] == "what the sample changes"
    assert comparison.table.attrs["remarks"] == ["what the sample changes"]


def test_drops_that_the_recording_cannot_resolve_are_marked():
    time = np.linspace(0.0, 100.0, 11)
    loss = np.where(time < 15, 1.0, np.where(time < 85, 0.5, 0.25))
    drops = level_drops(time, loss, np.array([1.0, 0.5, 0.25, 0.1]))
    assert [drop.status for drop in drops] == ["below resolution", "below resolution", "not reached"]
    assert [drop.spacing for drop in drops[:2]] == [10.0, 10.0]


def test_drops_below_the_noise_are_marked():
    time = np.linspace(0.0, 100.0, 1001)
    noise = 0.01 * np.random.default_rng(0).standard_normal(time.size)
    clean = 1 / (1 + np.exp(time - 20)) + 0.01 / (1 + np.exp(time - 60))
    first, second = level_drops(time, clean + noise, np.array([1.01, 0.01, 0.0]))
    assert (first.status, second.status) == ("measured", "below resolution")


def test_levels_must_fall():
    with pytest.raises(InvalidInput, match="each below the one before"):
        level_drops(np.arange(3.0), np.ones(3), np.array([0.5, 1.0]))


def test_a_table_for_an_ensemble(task):
    starts = [SeparateAttention.aligned(jnp.eye(2), heads=2, scale=s) for s in (0.1, 0.05)]
    run = flow(Ensemble.of(starts), Population(task), progress=False)
    table = compare(run, task).table
    assert table["run"].tolist() == [0, 0, 1, 1]
    assert table["component"].tolist() == table["measured_component"].tolist() == [1, 2, 1, 2]
    assert table["head"].tolist() == table["measured_head"].tolist() == [1, 2, 1, 2]
    assert table["in_order"].tolist() == [True] * 4 and set(table["status"]) == {"measured"}
    # From aligned weights nothing is neglected but how long a drop lasts, which the theory calls of order one.
    assert np.abs(table["measured"] - table["predicted"]).max() < 1.0
    assert table.attrs["unit"] == PAPER_UNIT and bool(table["measured_step"].isna().all())


def test_one_task_for_runs_with_losses_of_their_own_is_remarked_on(task):
    starts = [SeparateAttention.aligned(jnp.eye(2), heads=2, scale=s) for s in (0.1, 0.05)]
    losses = [Population(each) for each in (task, InContextRegression(covariance([0.9, 0.6]), 31))]
    run = flow(Ensemble.of(starts), Ensemble.of(losses), progress=False)
    assert compare(run, task).remarks == ("each run was trained on a loss of its own; all are predicted from one task",)
    assert compare(run.isel(run=[0]), task).remarks == ()


def test_levels_are_measured_on_the_plateaus(task):
    """Between two drops, and at the end; not where the run ends before a drop does."""
    model = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.001)
    whole = compare(flow(model, Population(task), progress=False), task).table
    # On a plateau the loss is what the smallest weights, which grow still, make of it; at the end it has converged.
    levels = whole["measured_level"].to_numpy(float)
    np.testing.assert_allclose(levels, whole["level"], rtol=1e-3)
    assert levels[0] > levels[1] > 0
    between = float(np.sqrt(whole["measured"].to_numpy(float).prod()))
    cut = compare(flow(model, Population(task), until=between, progress=False), task).table
    assert cut["status"].tolist() == ["measured", "after the end"]
    np.testing.assert_allclose(cut["measured_level"], [levels[0], np.nan], rtol=1e-3)


def test_other_normalizations_and_steps(task):
    model = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    other = renormalized(model, "none", length=31)
    factor = time_factor("none", "1/N", length=31, factors=3)
    one = compare(descend(model, Population(task), rate=0.05, steps=600, progress=False), task).table
    two = compare(descend(other, Population(task, "none"), rate=0.05 / factor, steps=600, progress=False), task).table
    assert one.attrs["unit"] == two.attrs["unit"] == PAPER_UNIT
    for column in ("predicted", "measured", "predicted_step", "measured_step", "measured_level"):
        np.testing.assert_allclose(one[column], two[column], rtol=1e-9)
    by_time = linear.drop_schedule(
        task, *(np.asarray(w) for w in (model.value[:, 0, -1], model.key[..., :2], model.query))
    )
    np.testing.assert_allclose(one["predicted"], [drop.time for drop in by_time])
    for column in ("predicted", "measured"):  # a step of rate 0.05 is a time of 0.1
        np.testing.assert_allclose(one[column], 0.1 * one[f"{column}_step"])


def test_a_component_out_of_order_is_said_to_be():
    # The larger head lies along the second component, and escapes before the other can turn it.
    task = InContextRegression(covariance([1.0, 0.9]), 31)
    small = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.02)
    model = small.with_weights(
        {name: weight * jnp.array([1.0, 10.0])[:, None, None] for name, weight in small.weights().items()}
    )
    table = compare(flow(model, Population(task), progress=False), task).table
    assert table["component"].tolist()[:1] == [1] and table["measured_component"].tolist() == [2, 1]
    assert table["in_order"].tolist() == [False, False] and table["measured_head"].tolist() == [2, 1]


def test_weights_that_were_recorded_too_seldom_tell_no_drop_from_another(task):
    """Of the first and the last weights alone both drops would be of the component that grew most."""
    model = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    options = {"rate": 0.05, "steps": 600, "progress": False}
    few = compare(descend(model, Population(task), record=Record(snapshots=2), **options), task).table
    assert few["status"].tolist() == ["measured"] * 2
    for column in ("measured_component", "measured_head", "in_order"):
        assert bool(few[column].isna().all())
    enough = compare(descend(model, Population(task), record=Record(snapshots=20), **options), task).table
    assert enough["measured_component"].tolist() == enough["measured_head"].tolist() == [1, 2]
    np.testing.assert_allclose(few["measured"], enough["measured"], rtol=1e-12)


@pytest.mark.parametrize("middle", [85, 345], ids=["in the first drop", "in the second drop"])
def test_weights_within_a_drop_do_not_tell_it_from_its_neighbor(task, middle):
    """Drops 1 and 2 share the weights before or after them, which would make the first one "out of order"."""
    model = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    options = {"rate": 0.05, "steps": 600, "progress": False}
    comparison = compare(descend(model, Population(task), record=Record(snapshots=[middle]), **options), task)
    for column in ("measured_component", "measured_head", "in_order"):
        assert bool(comparison.table[column].isna().all())
    (remark,) = comparison.remarks
    assert "run 0: the weights recorded about drops 1, 2 are too few" in remark and "more snapshots" in remark
    between = compare(descend(model, Population(task), record=Record(snapshots=[200]), **options), task)
    assert between.table["in_order"].tolist() == [True, True] and not between.remarks


def test_drops_that_noise_could_hide_have_no_order(task):
    """The lowest loss so far passes the second level by noise alone, before the component is learned."""
    model = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    run = flow(model, Population(task), record=Record(points=401, spacing="linear"), until=60.0, progress=False)
    noise = 0.1 * np.random.default_rng(0).standard_normal(run["loss"].shape)
    table = compare(run.assign(loss=run["loss"] + noise), task).table
    assert table["status"].tolist()[1] == "below resolution" and bool(table["in_order"].isna()[1])


def test_a_component_that_is_learned_across_a_level_is_not_out_of_order():
    """The first component of the run makes two drops of levels that are not its own, as those of small samples are."""
    run = flow(
        SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1),
        Population(InContextRegression(covariance([1.4, 0.1]), 31)),
        record=Record(spacing="steps"),
        progress=False,
    )
    table = compare(run, InContextRegression(covariance([0.8, 0.7]), 31)).table
    assert table["measured_component"].tolist() == [1, 1]
    assert table["in_order"].tolist()[0] is True and bool(table["in_order"].isna()[1])


def test_the_head_that_learned_is_the_one_that_grew():
    """Where the tasks' covariance has other eigenvectors than the inputs', heads turn while another one grows."""
    angle = 0.7
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    task = InContextRegression(np.diag([1.0, 0.3]), 31, task_covariance=turn @ np.diag([1.0, 0.07]) @ turn.T)
    model = SeparateAttention.random(dim=2, heads=2, scale=0.05, scheme="plain", key=jax.random.key(33))
    run = flow(model, Population(task), record=Record(spacing="steps"), progress=False)
    drop = compare(run, task).drops[1]
    own, other = drop.measured_head - 1, 2 - drop.measured_head  # pyright: ignore
    before, after = (run.isel(run=0).sel(time=part * drop.measured, method="nearest") for part in (0.7, 1.5))
    growth = np.abs(after["value"].values[:, 0, -1]) - np.abs(before["value"].values[:, 0, -1])
    assert growth[own] > 2 * growth[other] and drop.head == drop.measured_head
    maps = [np.einsum("h,hri,hrj->hij", w["value"][:, 0, -1], w["key"][..., :2], w["query"]) for w in (before, after)]
    changes = np.linalg.norm(maps[1] - maps[0], axis=(1, 2))
    assert changes[other] > changes[own]  # what the head was named by, wrongly


def test_drops_after_the_end_of_a_run_are_listed(task):
    model = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    comparison = compare(flow(model, Population(task), until=20.0, progress=False), task)
    late = comparison.drops[1]
    assert late.status == "after the end" and late.predicted > 20.0 and np.isnan(late.measured)
    assert comparison.lines()[2].endswith("after the end")


def test_merged_attention_has_one_drop(task):
    model = MergedAttention.random(dim=2, heads=2, scale=0.1, key=jax.random.key(0))
    table = compare(flow(model, Population(task), progress=False), task).table
    assert len(table) == 1 and list(table["component"].isna()) == [True]
    assert np.abs(table["error"].to_numpy()).max() < 0.05


def test_without_a_known_rate_drops_are_measured_only(task):
    optax = pytest.importorskip("optax")
    model = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    run = descend(model, Population(task), optimizer=optax.sgd(0.05), steps=600, progress=False)
    table = compare(run, task).table
    assert list(table["predicted"].isna()) == [True] * 2 and list(table["measured"].isna()) == [True] * 2
    assert list(table["measured_step"].notna()) == [True] * 2


def test_softmax_is_refused(task):
    model = SeparateAttention.random(dim=2, heads=1, scale=0.1, activation="softmax", key=jax.random.key(0))
    run = descend(model, Sampled(task.sample(8, key=jax.random.key(1))), rate=0.1, steps=2, progress=False)
    with pytest.raises(InvalidInput, match="softmax"):
        compare(run, task)


def test_the_driving_of_a_sample(task):
    batch = task.sample(500, key=jax.random.key(3))
    x, y = np.asarray(batch.tokens[..., :2]), np.asarray(batch.tokens[..., 2])
    beta = np.einsum("sn,snd->sd", y[:, :-1], x[:, :-1]) / 31
    driving = np.einsum("s,sd,se->de", np.asarray(batch.labels[:, -1, 0]), beta, x[:, -1]) / 500
    own = sample_task(task, batch)
    made = own.covariance @ own.task_covariance @ own.covariance
    np.testing.assert_allclose(made, (driving + driving.T) / 2, rtol=1e-10, atol=1e-12)
    for other in (Sampled(batch), Moments.of_batch(batch), Moments.of_batch(batch, normalization="none")):
        np.testing.assert_allclose(sample_task(task, other).task_covariance, own.task_covariance, rtol=1e-9, atol=1e-12)
    shared = sample_task(task, batch, commuting=True)
    np.testing.assert_allclose(np.diagonal(shared.task_covariance), np.diagonal(own.task_covariance), rtol=1e-12)
    assert np.count_nonzero(shared.task_covariance) == 2


def test_a_finite_sample_is_better_predicted_by_its_own_driving(task):
    """Over several samples, and the same start, the error of the first drop is far smaller."""
    model, errors = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.02), []
    for seed in range(4):
        sample = Moments.of_task(task, 300, features="cubic", progress=False, key=jax.random.key(seed))
        run = descend(model, sample, rate=0.1, steps=1500, progress=False)
        table = compare(run, task, sample=sample).table
        assert "finite sample" in table.attrs["remarks"][0] and np.isnan(table["uncertainty"].to_numpy()).all()
        errors.append((table["error"][0], table["measured"][0] / table["population"][0] - 1))
    own, population = np.sqrt(np.mean(np.square(errors), axis=0))
    assert own < population / 2


def test_merged_heads_without_common_eigenvectors_have_levels_and_the_reason():
    """And no advice to use what separate heads have."""
    rotation = np.array([[0.8, -0.6], [0.6, 0.8]])
    skew = InContextRegression(np.diag([0.6, 0.4]), 6, task_covariance=rotation @ np.diag([1.0, 0.3]) @ rotation.T)
    model = MergedAttention.random(dim=2, heads=2, scale=1e-2, key=jax.random.key(0))
    compared = compare(flow(model, Population(skew), until=3.0, progress=False), skew)
    said = " ".join(compared.lines())
    assert "no common eigenvectors" in said and "drop_schedule" not in said
    assert np.isnan(compared.table["predicted"].to_numpy()).all()
    np.testing.assert_allclose(compared.table["level"], linear.levels(skew)[-1], rtol=1e-12)
