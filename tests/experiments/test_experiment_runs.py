"""What an experiment builds, trains, predicts and compares: seeds, times, grids, and the theory of the same objects."""

import json
import re
from typing import Any, cast

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import stepwell as sw
from stepwell import cli, dynamics
from stepwell._util import paper_time
from stepwell._util.errors import InvalidInput
from stepwell.analysis import sample_task
from stepwell.dynamics import _diffrax, _lsoda, _rodas
from stepwell.experiments import Experiment, Keys, _kind, compare_run
from stepwell.experiments._keys import NAMES
from stepwell.objectives import Moments
from stepwell.theory import linear

# ---- seeds ----


def test_keys_follow_from_the_seed_and_differ():
    assert bool(Keys(7).initialization == jax.random.key(7))
    data = [np.asarray(jax.random.key_data(getattr(Keys(7), name))).tolist() for name in NAMES]
    assert data == [[number, 7] for number in range(6)]
    with pytest.raises(AttributeError, match="there is no key tests; there are initialization, train"):
        _ = Keys(7).tests
    many = Keys(np.array([3, 2**32 - 1]))
    for name in NAMES:
        assert bool(getattr(many, name)[0] == getattr(Keys(3), name))
        assert bool(getattr(many, name)[1] == getattr(Keys(2**32 - 1), name))


def test_the_seed_draws_task_weights_and_data():
    one, same, other = (
        Experiment(objective={"kind": "sampled", "sequences": 8}, task={"dim": 2}, seed=seed).build()
        for seed in (1, 1, 2)
    )
    one, same, other = (cast(Any, built) for built in (one, same, other))
    for first, second in zip(jax.tree.leaves(tuple(one)), jax.tree.leaves(tuple(same)), strict=True):
        assert np.array_equal(first, second)
    assert not np.array_equal(one.task.covariance, other.task.covariance)
    assert not np.array_equal(one.model.key, other.model.key)
    assert not np.array_equal(one.objective.batch.tokens, other.objective.batch.tokens)


def test_several_seeds_are_each_alone():
    experiment = Experiment(
        task={"dim": 2, "context": 8}, training={"until": 4.0}, record={"points": 5, "spacing": "log"}
    )
    together = experiment.run(seeds=[5, 2], progress=False)
    assert together["run"].values.tolist() == [5, 2]
    for number, seed in enumerate([5, 2]):
        alone = experiment.replace(seed=seed).run(progress=False)
        np.testing.assert_array_equal(together["key"][number, 0], alone["key"][0, 0])
        np.testing.assert_allclose(together["loss"][number], alone["loss"][0], rtol=1e-5)
    assert Experiment.of(together) == experiment.replace(seed=5)
    for wrong, message in (([], "empty"), ([1, 1], "twice"), ([-1], "seed")):
        with pytest.raises(InvalidInput, match=message):
            experiment.run(seeds=wrong, progress=False)


# ---- time ----


@pytest.mark.parametrize("normalization", ["1/N", "none", "1/tokens"])
@pytest.mark.parametrize(("kind", "factors"), [("separate", 3), ("merged", 2), ("mlp", 2)])
def test_the_time_scale_is_that_of_dynamics(normalization: str, kind: str, factors: int):
    experiment = Experiment(task={"context": 20}, model={"kind": kind, "normalization": normalization})
    scale = experiment.time_scale
    assert scale.unit == paper_time.PAPER_UNIT
    assert scale.factor == dynamics.time_factor(normalization, "1/N", length=20, factors=factors)  # pyright: ignore
    assert scale.of_steps(7, 0.5) == scale.factor * dynamics.flow_time(7, rate=0.5)


def test_time_that_is_not_the_papers_says_so():
    mixed = Experiment(model={"normalization": "none"}, task={"context": [5, 9]})
    for experiment in (Experiment(model={"activation": "softmax"}), mixed):
        assert experiment.time_scale == (1.0, paper_time.TIME_UNIT)


@pytest.mark.parametrize(("kind", "factors"), [("separate", 3), ("merged", 2)])
@pytest.mark.parametrize("normalization", ["none", "1/tokens"])
@pytest.mark.parametrize("training", ["descent", "flow"])
def test_a_run_and_its_rescaled_twin_have_one_loss_at_one_time(kind, factors, normalization, training):
    """Attention divided by something else, with weights and rate rescaled, is the same run at the same t/τ."""
    scale, rate, weight = 0.3, 0.05, paper_time.weight_factor(normalization, "1/N", length=9, factors=factors)
    common = {"task": {"dim": 2, "context": 9}, "record": {"points": 9, "spacing": "linear"}, "seed": 5}
    given = {"kind": "flow", "until": 30.0} if training == "flow" else {"kind": "descent", "rate": rate, "steps": 40}
    run = Experiment(
        **common, model={"kind": kind, "scale": scale, "normalization": normalization}, training=given
    ).run(progress=False)
    if training == "descent":
        given["rate"] = rate * weight**2
    twin = Experiment(**common, model={"kind": kind, "scale": scale * weight}, training=given).run(progress=False)
    np.testing.assert_allclose(run["time"], twin["time"], rtol=1e-12)
    assert run["time"].attrs["units"] == twin["time"].attrs["units"] == paper_time.PAPER_UNIT
    np.testing.assert_allclose(run["loss"], twin["loss"], rtol=1e-10 if training == "descent" else 1e-4)
    assert float(run["loss"][0, -1]) < 0.99 * float(run["loss"][0, 0])


def test_until_is_the_same_time_by_steps_and_by_flow():
    given = {"task": {"dim": 2, "context": 9}, "model": {"normalization": "none"}}
    flow = Experiment(**given, training={"until": 12.0})
    descent = Experiment(**given, training={"kind": "descent", "rate": 0.003, "until": 12.0})
    ends = [float(one.run(progress=False)["time"][-1]) for one in (flow, descent)]
    step = descent.time_scale.of_steps(1, 0.003)
    assert ends[0] == pytest.approx(12.0) and 12.0 <= ends[1] + 1e-9 < 12.0 + step


# ---- what is recorded ----


@given(st.integers(2, 40), st.sampled_from(["linear", "log"]), st.integers(1, 5000), st.integers(2, 40))
@settings(deadline=None)
def test_grids_begin_and_end_where_they_should(points, spacing, last, snapshots):
    record = sw.Record(points=points, spacing=spacing, snapshots=snapshots)
    steps = record.steps(last)
    assert steps[0] == 0 and steps[-1] == last and (np.diff(steps) > 0).all() and steps.size <= points
    if spacing == "linear":
        assert steps.size == min(points, last + 1)
    times = record.times(3.0)
    assert times.size == points and times[0] == 0.0 and times[-1] == pytest.approx(3.0) and (np.diff(times) > 0).all()
    places = record.places(steps)
    assert places[0] == 0 and places[-1] == steps.size - 1 and places.size == min(snapshots, steps.size)


def test_a_run_has_the_points_asked_for():
    given = {"task": {"dim": 2, "context": 9}}
    descent = Experiment(**given, training={"kind": "descent", "steps": 100}, record={"points": 5, "snapshots": 3})
    run = descent.run(progress=False)
    assert run["step"].values.tolist() == [0, 25, 50, 75, 100] and run["snapshot"].values.tolist() == [0, 50, 100]
    np.testing.assert_allclose(run["time"], 2 * 0.01 * run["step"])
    np.testing.assert_allclose(run["snapshot_time"], 2 * 0.01 * run["snapshot"])
    flow = Experiment(**given, training={"until": 8.0}, record={"points": 5, "snapshots": 3, "spacing": "linear"}).run(
        progress=False
    )
    assert flow["time"].values.tolist() == [0, 2, 4, 6, 8] and flow["snapshot"].values.tolist() == [0, 4, 8]
    curves = Experiment(
        **given,
        training={"kind": "descent", "steps": 4},
        record={"value_weights": True, "test_sequences": 16},
    ).run(progress=False)
    assert curves["value_weight"].dims == ("run", "step", "head")
    np.testing.assert_array_equal(curves["value_weight"][0, 0], curves["value"][0, 0, :, 0, -1])
    assert {"in_weight_test_loss", "in_context_test_loss"} <= set(curves.data_vars)


# ---- theory ----


@pytest.mark.parametrize("kind", ["separate", "merged"])
@pytest.mark.parametrize("normalization", ["1/N", "none"])
@pytest.mark.parametrize("objective", ["population", "moments"])
def test_a_prediction_is_the_theory_of_the_built_objects(kind: str, normalization: str, objective: str):
    experiment = Experiment(
        task={"eigenvalues": [1.0, 0.5], "context": 9, "noise": 0.1},
        model={"kind": kind, "heads": 2, "scale": 0.002, "normalization": normalization},
        objective=objective if objective == "population" else {"kind": objective, "sequences": 200},
        training={"kind": "descent", "rate": 0.05},
        seed=11,
    )
    task: Any
    model: Any
    task, model, _ = experiment.build()
    divided = dynamics.renormalized(model, "1/N", length=9)
    if objective == "moments":
        sample = Moments.of_task(task, 200, normalization="1/N", progress=False, key=Keys(11).train)
        task = sample_task(task, sample, commuting=kind == "merged")
    weights = {name: np.asarray(value) for name, value in divided.weights().items()}
    drops = linear.PREDICTORS[kind].drops(task, type(divided).theory_weights(weights))
    if kind == "separate":
        by_hand = linear.drop_schedule(
            task, np.asarray(divided.value[:, 0, -1]), np.asarray(divided.key[..., :2]), np.asarray(divided.query)
        )
        assert [drop.time for drop in by_hand] == [drop.time for drop in drops]
    prediction = experiment.predict()
    np.testing.assert_allclose([drop.time for drop in prediction.drops], [drop.time for drop in drops], rtol=1e-9)
    assert [drop.head for drop in prediction.drops] == [None if d.head is None else d.head + 1 for d in drops]
    losses = linear.levels(task)[[0, 1, 2] if kind == "separate" else [0, 2]]
    np.testing.assert_allclose([level.loss for level in prediction.levels], losses)
    per_step = experiment.time_scale.of_steps(1, 0.05)
    np.testing.assert_allclose(
        np.array([d.step for d in prediction.drops], float), [d.time / per_step for d in prediction.drops]
    )
    assert prediction.document["experiment"] == experiment.to_dict() and str(prediction)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"model": {"activation": "softmax"}}, "softmax attention on one regression"),
        ({"task": "mixture"}, "the task mixture"),
        ({"task": {"outputs": 2}}, "several outputs"),
        ({"model": "multihead"}, "the model multihead"),
        ({"model": {"normalization": "none"}, "task": {"context": [5, 9]}}, "not divided by N"),
    ],
)
def test_where_there_is_no_theory_it_says_why(given: dict, reason: str):
    prediction = Experiment(**given).predict()
    assert reason in prediction.reason and not prediction.drops and not prediction.document
    assert str(prediction).startswith("no prediction: there is no theory of")


def test_several_regressions_have_one_time():
    """The bracket of emergence, in t/τ, is the theory's with the flow dW/dt = -1/2 dL/dW: a loss factor of 1."""
    experiment = Experiment(task={"kind": "multitask", "dims": [4, 6], "context": 40}, model={"scale": 1e-3})
    document = experiment.predict().document
    task: Any = experiment.build().task
    bracket = sw.theory.softmax.emergence_bracket(task, np.full(2, 1e-3), heads=2, loss_factor=1.0)
    assert document["emergence_times"] == bracket.early.tolist()
    run = experiment.run(progress=False)
    half = float(run["loss"][0, 0] + run["loss"][0, -1]) / 2
    halfway = float(run["time"][int(np.argmax(run["loss"][0].values < half))])
    assert bracket.early.min() < halfway < 1.1 * bracket.late.max()


@pytest.mark.parametrize("objective", ["population", "moments"])
def test_seeds_are_compared_with_their_own_task_and_sample(objective: str):
    experiment = Experiment(
        task={"dim": 2, "context": 9},
        model={"scale": 0.005, "normalization": "none"},
        objective=objective if objective == "population" else {"kind": objective, "sequences": 100},
        training={"kind": "descent", "rate": 0.01, "steps": 6000},
    )
    both = compare_run(experiment.run(seeds=[4, 9], progress=False)).table
    assert both["run"].tolist() == [4, 4, 9, 9]
    for seed in (4, 9):
        alone = experiment.replace(seed=seed)
        run = alone.run(progress=False)
        rows = both[both["run"] == seed]
        table = run.stepwell.compare().table
        np.testing.assert_allclose(rows["predicted"], table["predicted"], rtol=1e-9)
        np.testing.assert_allclose(rows["predicted"], [drop.time for drop in alone.predict().drops], rtol=1e-9)
        np.testing.assert_allclose(
            rows["predicted_step"], np.array([drop.step for drop in alone.predict().drops], float), rtol=1e-6
        )
        np.testing.assert_allclose(rows["measured"], table["measured"], rtol=1e-6)
    first = both.drop_duplicates("run")["predicted"]
    assert first.iloc[0] != first.iloc[1]


@pytest.mark.parametrize("places", [[2, 1, 0], [1], [0, 1]])
def test_some_seeds_in_any_order_are_compared_with_their_own_task(places: list[int]):
    runs = Experiment(task={"dim": 2, "context": 9}, model={"scale": 0.02}).run(seeds=[0, 1, 2], progress=False)
    whole, some = runs.stepwell.compare().table, runs.isel(run=places).stepwell.compare().table
    expected = pd.concat([whole[whole["run"] == seed] for seed in places], ignore_index=True)
    pd.testing.assert_frame_equal(some, expected)
    assert all(expected["in_order"]) and max(abs(expected["error"])) < 0.1


def test_one_task_for_seeds_with_tasks_of_their_own_is_refused_and_a_plot_has_their_own():
    experiment = Experiment(task={"dim": 2, "context": 9}, model={"scale": 0.02})
    runs = experiment.run(seeds=[0, 1], progress=False)
    task = experiment.build_task()
    for wrong in (sw.compare, sw.draw_staircase):
        with pytest.raises(InvalidInput, match="each run of the experiment has a task of its own"):
            wrong(runs, task)
    axes = runs.stepwell.plot().axes[0]
    (marks,) = (container.lines[0] for container in axes.containers)
    np.testing.assert_allclose(np.sort(marks.get_xdata()), np.sort(compare_run(runs).table["predicted"]))
    assert {text.get_text() for text in axes.texts} == {"$L_{0}$", "$L_{1}$", "$L_{2}$"}
    aligned = experiment.replace(task={"directions": "axes"})
    assert len(sw.compare(aligned.run(seeds=[0, 1], progress=False), aligned.build_task()).runs) == 2


def test_a_plot_has_the_levels_of_each_sample():
    experiment = Experiment(task={"dim": 2, "context": 9}, objective={"kind": "moments", "sequences": 50})
    runs = experiment.run(seeds=[0, 1], progress=False)
    first, second = (run.levels for run in compare_run(runs).runs)
    axes = runs.stepwell.plot().axes[0]
    assert not np.allclose(first, second)
    drawn = [line[0][1] for lines in axes.collections for line in lines.get_segments() if line.size]
    assert set(second.tolist()) <= set(drawn)


def test_a_run_of_objects_says_that_it_has_no_experiment():
    task, model, objective = Experiment(task={"dim": 2}).build()
    run = sw.flow(model, objective, until=1.0, progress=False)
    with pytest.raises(InvalidInput, match="it was made of objects"):
        Experiment.of(run)


# ---- continued, and several seeds ----


@pytest.mark.parametrize("record", [{"points": 21}, {"points": 11, "spacing": "log"}])
def test_a_run_that_records_fewer_points_than_steps_is_not_continued_from_its_trajectory(record: dict):
    """The steps of the shorter run are all recorded, those of the longer one are not."""
    long = Experiment(task={"dim": 2}, training={"kind": "descent", "steps": 60}, record=record)
    short = long.replace(training={"steps": 2 if "spacing" in record else 20})
    stored = short.run(progress=False)
    assert stored["step"].values.tolist() == list(range(short.training.steps + 1))
    with pytest.raises(InvalidInput, match="recorded at every step"):
        long.resume(stored, progress=False)


def test_the_experiment_of_several_seeds_is_that_of_the_first():
    experiment = Experiment(task={"dim": 2}, training={"until": 1.0})
    runs = experiment.run(seeds=[4, 2], progress=False)
    assert Experiment.of(runs) == experiment.replace(seed=4)
    assert sw.rerun(runs, progress=False).identical(runs)
    some = runs.isel(run=[1])
    assert Experiment.of(some) == experiment.replace(seed=2)
    again = sw.rerun(some, progress=False)
    assert again["run"].values.tolist() == [2]
    np.testing.assert_allclose(again["loss"], experiment.replace(seed=2).run(progress=False)["loss"], rtol=1e-9)
    with pytest.raises(InvalidInput, match="must have the seeds"):
        Experiment.of(runs.assign_coords(run=["a", "b"]))
    for wrong in (runs.assign_coords(run=[0, 2]), xr.concat([runs, runs.assign_coords(run=[8, 9])], "run")):
        with pytest.raises(InvalidInput, match=r"the seeds of the experiment, which are \[4, 2\].* give each alone"):
            wrong.stepwell.compare()
    alone = experiment.run(progress=False)
    with pytest.raises(InvalidInput, match=r"is \[3\]; it must have the seeds of the experiment, which are \[0\]"):
        sw.rerun(alone.assign_coords(run=[3]), progress=False)


def test_a_run_that_is_taken_out_is_that_run():
    """Whether or not it keeps the dimension `run`."""
    experiment = Experiment(task={"dim": 2, "context": 9, "directions": "axes"}, model={"scale": 0.02})
    runs, task = experiment.run(seeds=[5, 6], progress=False), cast(Any, experiment.build_task())
    for out in (runs.isel(run=1), runs.sel(run=6)):
        kept = runs.isel(run=[1])
        for compared in (lambda run: run.stepwell.compare(), compare_run, lambda run: sw.compare(run, task)):
            pd.testing.assert_frame_equal(compared(out).table, compared(kept).table)
        for draw in (lambda run: run.stepwell.plot(), sw.draw_staircase, lambda run: sw.draw_staircase(run, task)):
            first, second = (draw(run).axes[0] for run in (out, kept))
            for one, other in zip(first.lines, second.lines, strict=True):
                np.testing.assert_array_equal(one.get_xydata(), other.get_xydata())
        for name, value in out.stepwell.model().weights().items():
            np.testing.assert_array_equal(value, kept.stepwell.model().weights()[name])
        xr.testing.assert_identical(sw.analysis.effective_map(out), sw.analysis.effective_map(kept))
        assert len(sw.draw_weights(out).axes) == 3 and repr(out.stepwell) == repr(kept.stepwell)


# ---- tasks and models of one's own ----


@pytest.fixture
def registry():
    before = {section: dict(known) for section, known in _kind._REGISTRY.items()}
    yield
    for section, known in before.items():
        _kind._REGISTRY[section].clear()
        _kind._REGISTRY[section].update(known)


def test_a_task_that_does_not_say_its_context_has_a_theory_where_attention_is_divided_by_n(registry):
    @_kind.register("task", "fixed", follows="separate")
    def fixed(key: Any, *, whitened: bool = False):
        return sw.InContextRegression(np.diag([0.6, 0.4]), 8, whitened=whitened)

    plain = Experiment(task="fixed", model={"heads": 2}, objective="population")
    assert len(plain.predict().levels) == 3
    unnormalized = plain.replace(model={"normalization": "none"})
    assert "not divided by N on fixed, which has no field context" in unnormalized.predict().reason
    whitened = Experiment(task={"kind": "fixed", "whitened": True}, objective={"kind": "moments", "sequences": 30})
    assert "30 sequences" in str(whitened.predict().document["remark"])


def test_a_task_that_is_registered_anew_has_a_sample_of_its_own(registry):
    losses = []
    for factor in (1.0, 4.0):

        @_kind.register("task", "changing", follows="separate")
        def changing(key: Any, *, context: int = 8):
            return sw.InContextRegression(factor * np.eye(2), context)  # noqa: B023

        losses.append(Experiment(task="changing", objective="moments").predict().levels[0].loss)
    assert losses[1] == pytest.approx(4 * losses[0])


def test_fields_named_like_ours_may_be_of_another_type(registry, tmp_path, capsys):
    """Names of files, titles and estimates of memory read fields of ours by name."""

    @_kind.register("model", "layered")
    def layered(
        task: Any, key: Any, *, heads: tuple[int, ...] = (1, 2), scale: str = "small", rank: bool = True, dims: int = 3
    ):
        return sw.MergedAttention.random(dim=task.dim, heads=sum(heads), scale=0.1, key=key)

    @_kind.register("task", "worded")
    def worded(*, context: str = "short", dims: str = "two", eigenvalues: float = 1.0, outputs: str = "one"):
        return sw.InContextRegression(eigenvalues * np.eye(2), 5)

    words = ["--task", "worded", "--model", "layered", "--model.heads", "2", "3", "--sequences", "20", "--steps", "3"]
    assert cli.main(["train", *words, "--training", "descent", "--out", str(tmp_path), "--store", str(tmp_path)]) == 0
    assert "layered" in capsys.readouterr().out
    assert [path.name for path in tmp_path.glob("layered_seed0_*.txt")]


def test_a_model_of_ones_own_is_compared_by_train(registry, tmp_path, capsys):
    @_kind.register("model", "mine", theory="separate", follows="population")
    def mine(task: Any, key: Any, *, heads: int = 2):
        return sw.SeparateAttention.random(dim=task.dim, heads=heads, scale=0.02, key=key)

    words = ["--model", "mine", "--dim", "2", "--measure", "drops", "--out", str(tmp_path), "--store", str(tmp_path)]
    assert cli.main(["train", *words, "--theory", "--json"]) == 0
    printed = capsys.readouterr()
    assert [drop["status"] for drop in json.loads(printed.out)["drops"]] == ["measured", "measured"]
    assert "measure is for sweeps; it has no effect here but on the name of the run" in printed.err


def test_messages_have_the_papers_time(monkeypatch: pytest.MonkeyPatch):
    """A flow that is given up says when, in the unit of its trajectory and of `until`."""
    for module in (_lsoda, _rodas, _diffrax):
        monkeypatch.setattr(module, "MOST_STEPS", 20)
    experiment = Experiment(
        task={"dim": 2, "context": 64}, model={"normalization": "none", "scale": 0.001}, training={"until": 4e4}
    )
    with pytest.raises(sw.RunFailed, match="solver failed") as failed:
        experiment.run(progress=False)
    run = failed.value.trajectory
    assert run.attrs["outcome"] == "solver failed" and Experiment.of(run) == experiment
    assert "did not lead to time 4e+04" in run.attrs["message"]
    beyond = re.search(r"beyond time ([\d.e+]+)", run.attrs["message"])
    assert beyond is not None and float(beyond[1]) == pytest.approx(float(run["time"][-1]), rel=1e-3)
