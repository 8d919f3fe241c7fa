"""Sweeps: the runs that they compute, keep, find again and draw."""

import errno
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import stepwell as sw
from stepwell import Experiment
from stepwell._util.errors import InvalidInput
from stepwell.cli import main
from stepwell.store import Shard, Store
from stepwell.sweeps import Study, plan_sweep, sweep, table_of
from stepwell.sweeps._compute import compute
from stepwell.sweeps._plan import Block, blocks_of, programs_of
from stepwell.sweeps._scalars import Measured, regime
from stepwell.sweeps._stacked import Built, build
from stepwell.sweeps._sweep import compute_missing

DESCENT = {"kind": "descent", "steps": 60, "rate": 0.2}
RUN = Experiment(task={"dim": 2}, model="separate", training=DESCENT)
OVER = {"scale": [0.1, 0.3], "seed": {"from": 0, "count": 3}}
FLOW = RUN.replace(training={"kind": "flow", "until": 20.0})
MOMENTS = RUN.replace(objective={"kind": "moments", "sequences": 40})
SEVERAL = Experiment(task={"kind": "multitask", "dims": [2, 3], "context": 20}, training=DESCENT)

KINDS: dict[str, tuple[Experiment, dict[str, Any], float]] = {
    "separate": (
        RUN,
        {"spectrum": ["power", "white"], "noise": [0.0, 0.3], "rate": [0.1, 0.2], "seed": [0, 7]},
        1e-12,
    ),
    "merged": (
        RUN.replace(model="merged", training={"rate": 0.05}),
        {"context": [5, 31], "scale": [0.1, 0.3], "seed": [3, 4]},
        1e-12,
    ),
    "unnormalized": (
        RUN.replace(model={"normalization": "none"}, training={"rate": 0.02}),
        {"context": [5, 31], "seed": [3, 4]},
        1e-12,
    ),
    "task covariance": (
        RUN.replace(task={"dim": 3}),
        {"task_eigenvalues": [[1.0, 2.0, 3.0], [3.0, 1.0, 1.0]], "seed": [0, 1]},
        1e-12,
    ),
    "rank": (RUN.replace(model={"rank": 2, "scheme": "per-head"}), OVER, 1e-12),
    "balanced": (RUN.replace(model={"balanced": True}), OVER, 1e-12),
    "merged, balanced": (RUN.replace(model={"kind": "merged", "balanced": True}), OVER, 1e-12),
    "lengths": (RUN.replace(task={"context": [4, 9]}), OVER, 1e-12),
    "flow": (
        RUN.replace(training={"kind": "flow", "until": 20.0}),
        {"spectrum": ["power", "white"], "seed": [0, 1]},
        1e-5,
    ),
    "unnormalized flow": (
        FLOW.replace(model={"normalization": "none"}),
        {"context": [5, 31], "seed": [0, 1]},
        1e-5,
    ),
    "converged": (
        RUN.replace(training={"kind": "flow", "until": "converged"}),
        {"noise": [0.0, 0.1], "seed": [0, 1]},
        1e-12,
    ),
    "moments": (MOMENTS, {"rate": [0.1, 0.2], "seed": [0, 1]}, 1e-12),
    "softmax": (
        RUN.replace(
            task={"context": 6}, model={"activation": "softmax"}, objective={"kind": "sampled", "sequences": 40}
        ),
        OVER,
        1e-12,
    ),
    "online": (RUN.replace(objective={"kind": "online", "batch_size": 8}), {"seed": [0, 1]}, 1e-12),
    "adam": (RUN.replace(training={"optimizer": "adam", "rate": 0.02}), OVER, 1e-9),
    "mlp": (RUN.replace(model="mlp", training={"rate": 0.01}), OVER, 1e-12),
    "mixture": (
        RUN.replace(task={"kind": "mixture"}, objective={"kind": "moments", "sequences": 40}),
        {"in_context": [0.2, 0.8], "seed": [0, 1]},
        1e-12,
    ),
    "several": (SEVERAL, OVER, 1e-12),
    "several, a sample": (SEVERAL.replace(objective={"kind": "reduced", "sequences": 40}), {"seed": [0, 1]}, 1e-12),
}


FORMER: dict[str, tuple[Experiment, dict[str, Any], float]] = {
    "adam at several rates": (RUN.replace(training={"optimizer": "adam"}), {"rate": [0.002, 0.02]}, 1e-9),
    "a schedule at several rates": (RUN.replace(training={"schedule": "cosine"}), {"rate": [0.002, 0.02]}, 1e-9),
    "optimizers at several rates": (RUN, {"optimizer": ["sgd", "adam"], "rate": [0.002, 0.02]}, 1e-9),
    "flow at several times": (RUN.replace(training="flow"), {"until": [2.0, 20.0]}, 1e-5),
    "flow of several regressions": (SEVERAL.replace(training="flow"), {"scale": [0.1, 0.01]}, 1e-4),
    "noise of regressions": (SEVERAL, {"noise": [0.0, 0.5]}, 1e-12),
    "noise of a sample": (MOMENTS, {"noise": [0.0, 0.5]}, 1e-12),
    "a time at several rates": (RUN, {"until": [3.0, 5.0], "rate": [0.02, 0.2]}, 1e-12),
    "task covariances, one the default": (
        RUN.replace(model={"scale": 0.3}),
        {"task_eigenvalues": [[1.0, 3.0], [1.0, 1.0]]},
        1e-12,
    ),
    "task covariance of the run": (
        RUN.replace(task={"task_eigenvalues": [2.0, 0.5]}),
        {"eigenvalues": [[0.6, 0.4], [0.7, 0.1]]},
        1e-12,
    ),
    "directions": (RUN, {"directions": ["axes", "random"], "seed": [0, 1]}, 1e-12),
    "strengths of the run": (
        SEVERAL.replace(task={"strengths": [3.0]}, training={"rate": 0.02}),
        {"dims": [[2, 3], [2]]},
        1e-12,
    ),
    "dimensions": (RUN.replace(task={"spectrum": "power"}), {"dim": [2, 3]}, 1e-12),
    "schemes": (RUN, {"scheme": ["plain", "per-head", "stacked"], "rank": [1, 2]}, 1e-12),
    "kinds": (RUN, {"model": ["separate", "merged", "mlp"], "seed": [0, 1]}, 1e-12),
    "large seeds": (RUN, {"seed": [2**32 - 1, 2**31]}, 1e-12),
}


def each_place(base: Experiment, over: dict[str, Any]) -> Iterator[Experiment]:
    """The experiment at each place of a study, in the order of its axes."""
    study = Study.of(base, over, record={"points": 7})
    for place in itertools.product(*(range(len(axis)) for axis in study.axes)):
        changes: dict[str, Any] = {}
        for axis, at in zip(study.axes, place, strict=True):
            for name, values in axis.fields.items():
                section, _, field = name.partition(".")
                changes[section] = {**changes.get(section, {}), field: values[at]} if field else values[at]
        yield study.base.replace(**changes)


@pytest.mark.parametrize("base,over,tolerance", [*KINDS.values(), *FORMER.values()], ids=[*KINDS, *FORMER])
def test_a_run_of_a_study_is_the_run_of_its_experiment(
    base: Experiment, over: dict[str, Any], tolerance: float, tmp_path: Path
):
    """Found by its name, with the losses, times and weights of the run alone."""
    result = sweep(base, over, record={"points": 7}, store=tmp_path, progress=False)
    assert bool(result.stored.all())
    losses = result.final_loss.values.ravel()
    store = Store(tmp_path)
    for number, experiment in enumerate(each_place(base, over)):
        alone = experiment.run(progress=False)
        assert losses[number] == pytest.approx(float(alone["loss"].values[0, -1]), rel=tolerance), experiment
        kept = store.select([f"name={experiment.name}"])
        assert kept.sizes["run"] == 1
        np.testing.assert_allclose(kept["loss"].values, alone["loss"].values, rtol=tolerance, atol=tolerance)
        if "time" in alone.coords:
            assert kept["time"].attrs == alone["time"].attrs
            np.testing.assert_allclose(np.ravel(kept["time"]), alone["time"].values, rtol=1e-9)


def works(study: Study) -> Iterator[tuple[Block, int]]:
    for program in programs_of(blocks_of(study)):
        for work in program.parts():
            yield work, program.size


def built(work: Block) -> Built:
    ((_, made),) = build(work)
    return made


def test_curves_and_weights_are_those_of_the_run_alone():
    ((work, size),) = works(Study.of(RUN, OVER, record={"points": 7}))
    (shard,) = compute(work, size)
    alone = Experiment.from_canonical(work.configuration(4)).run(progress=False)
    np.testing.assert_allclose(shard.data["loss"].values[4], alone["loss"].values[0], rtol=1e-12)
    for name in ("value", "key", "query"):
        np.testing.assert_allclose(shard.data[name].values[4], alone[name].values[0], rtol=1e-12)


STACKED = {
    "plain": {"kind": "separate", "heads": 3, "rank": 2},
    "per-head": {"kind": "separate", "heads": 3, "scheme": "per-head"},
    "stacked": {"kind": "separate", "heads": 3, "rank": 2, "scheme": "stacked"},
    "merged": {"kind": "merged", "heads": 5},
    "mlp": {"kind": "mlp", "heads": 40},
}


@pytest.mark.parametrize("model", STACKED.values(), ids=STACKED)
@pytest.mark.parametrize("outputs", [1, 2])
def test_weights_of_many_runs_are_bit_for_bit_those_of_the_plain_builder(model: dict[str, Any], outputs: int):
    base = Experiment(task={"dim": 5, "outputs": outputs}, model=model, training=DESCENT)
    over = {"scale": [0.1, 1 / 3, 1e-7, 0.0], "noise": [0.0, 0.2], "seed": [0, 1, 77, 2**32 - 1]}
    ((work, _),) = works(Study.of(base, over))
    many = built(work)
    assert many.members == () and many.size == 32
    for row in range(len(work)):
        task, alone, objective = Experiment.from_canonical(work.configuration(row)).build()
        for name, weight in alone.weights().items():
            assert np.asarray(weight).tobytes() == np.ascontiguousarray(many.weights()[name][row]).tobytes()
        member = many.losses.member(row)
        for name in ("input", "cross", "second", "label_power"):
            np.testing.assert_allclose(getattr(member, name), getattr(objective, name), rtol=1e-12, atol=1e-15)


def test_runs_are_grouped_by_what_they_build(tmp_path: Path):
    """Numbers that make no difference to the structure are one program; what does is another, and one shard each."""
    study = Study.of(MOMENTS, {"noise": [0.0, 0.1], "rate": [0.1, 0.2], "seed": [0, 1]})
    ((work, size),) = works(study)
    ((rows, group),) = build(work)
    assert rows.tolist() == list(range(8)) and group.models.size == 8
    assert len(compute(work, size)) == 1
    alone = RUN.replace(training={"kind": "flow", "until": "converged"})
    ((work, size),) = works(Study.of(alone, {"noise": [0.0, 0.1], "seed": [0, 1]}))
    assert len(list(build(work))) == 4 and [len(shard) for shard in compute(work, size)] == [4]


def test_the_end_is_kept_however_few_points_there_are(tmp_path: Path):
    few = {"points": 2, "spacing": "log", "measure": ["map"]}
    run = RUN.replace(training={"steps": 300})
    result = sweep(run, {"seed": [0]}, record=few, store=tmp_path, progress=False)
    many = sweep(run, {"seed": [0]}, record={"measure": ["map"]}, store=tmp_path, progress=False)
    assert float(result.map_1[0]) == float(many.map_1[0])
    assert Store(tmp_path).select(["points=2"])["step"].values.tolist() == [0, 300]


def test_drops_go_by_the_levels_of_each_run(tmp_path: Path):
    run = MOMENTS.replace(training={"steps": 900}, model={"scale": 0.3})
    both = sweep(run, {"noise": [0.0, 0.5]}, record={"measure": ["drops"]}, store=tmp_path / "a", progress=False)
    alone = sweep(run, {"noise": [0.5]}, record={"measure": ["drops"]}, store=tmp_path / "b", progress=False)
    assert float(both.drop_1[1]) == pytest.approx(float(alone.drop_1[0]), rel=1e-9)


REPEATED: dict[str, tuple[Experiment, dict[str, Any], str]] = {
    "seeds": (RUN, {"seed": [1, 1, 2]}, "seed = 1 is there twice"),
    "zeros": (RUN, {"noise": [0.0, -0.0]}, "task.noise = 0.0 and task.noise = -0.0 are one run"),
    "words": (RUN, {"spectrum": ["published", "power"]}, "'published' and task.spectrum = 'power' are one run"),
    "lists": (RUN, {"eigenvalues": [[0.6, 0.4], [0.6, 0.4]]}, "twice"),
    "integers": (RUN, {"scale": [1, 1.0]}, "are one run"),
}


@pytest.mark.parametrize("run,over,said", REPEATED.values(), ids=REPEATED)
def test_an_axis_without_effect_is_refused(run: Experiment, over: dict[str, Any], said: str):
    run = run.replace(task={"eigenvalues": None, "dim": 1}) if "spectrum" in over else run
    with pytest.raises(InvalidInput, match=f"values without effect: .*{said}"):
        blocks_of(Study.of(run, {**over, "context": [5, 9]}))


def test_random_draws_may_repeat_and_are_computed_once(tmp_path: Path):
    draws = {"count": 12, "model": {"choose": ["merged", "separate"]}}
    result = sweep(RUN, {"seed": [0, 1]}, draws=draws, store=tmp_path, progress=False)
    assert bool(result.stored.all()) and len(Store(tmp_path).table()) == 4


def test_fresh_runs_take_the_place_of_stored_ones(tmp_path: Path):
    first = sweep(RUN, OVER, store=tmp_path, progress=False)
    ((work, size),) = works(Study.of(RUN, OVER))
    (wrong,) = compute(work, size)
    Store(tmp_path).remove()
    Store(tmp_path).add(Shard(wrong.common, wrong.fields, {**wrong.scalars, "final_loss": np.full(6, 9.0)}, wrong.data))
    assert sweep(RUN, OVER, store=tmp_path, progress=False).final_loss.values.min() == 9.0
    again = sweep(RUN, OVER, store=tmp_path, progress=False, fresh=True)
    np.testing.assert_array_equal(again.final_loss, first.final_loss)


def test_a_result_has_the_scalars_of_its_own_runs_only(tmp_path: Path):
    sweep(
        RUN.replace(training={"steps": 50}),
        {"seed": [0]},
        record={"measure": ["regime"]},
        store=tmp_path,
        progress=False,
    )
    assert "regime" not in sweep(RUN, {"seed": [0]}, store=tmp_path, progress=False)


def test_a_study_of_one_run_has_a_table(tmp_path: Path):
    assert len(table_of(sweep(RUN, {}, store=tmp_path, progress=False))) == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_at_least_one(tmp_path: Path, limit: int):
    with pytest.raises(InvalidInput, match="limit"):
        sweep(RUN, OVER, store=tmp_path, limit=limit, progress=False)


def test_the_result_has_the_axes_of_the_study_and_finds_each_run(tmp_path: Path):
    result = sweep(RUN, OVER, store=tmp_path, progress=False)
    assert result.final_loss.dims == ("scale", "seed") and result.attrs["outcome"] == "finished"
    for scale in (0.1, 0.3):
        for seed in (0, 1, 2):
            alone = RUN.replace(model={"scale": scale}, seed=seed).run(progress=False)
            found = float(result.final_loss.sel(scale=scale, seed=seed))
            assert found == pytest.approx(float(alone.loss[0, -1]), rel=1e-12)
    table = table_of(result)
    assert len(table) == 6 and {"scale", "seed", "final_loss", "outcome"} <= set(table.columns)


def test_what_the_store_has_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    counted: list[int] = []

    def counting(work: Block, size: int | None = None) -> list[Shard]:
        counted.append(len(work))
        return compute(work, size)

    monkeypatch.setattr("stepwell.sweeps._compute.compute", counting)
    first = sweep(RUN, OVER, store=tmp_path, progress=False)
    again = sweep(RUN, OVER, store=tmp_path, progress=False)
    assert counted == [6] and again.identical(first)
    sweep(RUN, {**OVER, "seed": {"from": 0, "count": 5}}, store=tmp_path, progress=False)
    assert counted == [6, 4]
    sweep(RUN, OVER, store=tmp_path, progress=False, fresh=True)
    assert counted == [6, 4, 6]


def test_a_limit_is_kept_and_the_rest_is_done_later(tmp_path: Path):
    part = sweep(RUN, OVER, store=tmp_path, limit=4, progress=False)
    assert int(part.stored.sum()) == 4 and int(np.isfinite(part.final_loss).sum()) == 4
    rest = plan_sweep(Study.of(RUN, OVER), Store(tmp_path))
    assert rest.waiting == 2 and rest.stored == 4
    whole = sweep(RUN, OVER, store=tmp_path, progress=False)
    assert bool(whole.stored.all())


def test_parts_of_a_job_array_are_the_study(tmp_path: Path):
    study = Study.of(RUN, OVER)
    for number in (1, 2, 3, 4):
        store = Store(tmp_path / str(number))
        assert compute_missing(plan_sweep(study, store, part=(number, 4)), progress=False)[0] == "finished"
    whole = Store(tmp_path / "whole")
    for number in (1, 2, 3, 4):
        whole.merge(tmp_path / str(number))
    assert plan_sweep(study, whole).waiting == 0 and plan_sweep(study, whole).stored == 6


def test_time_ends_a_sweep_and_keeps_what_there_is(tmp_path: Path):
    study = Study.of(RUN, OVER, limits={"minutes": 1e-9})
    outcome, message = compute_missing(plan_sweep(study, Store(tmp_path)), progress=False)
    assert outcome == "out of time" and "minutes" in message
    with pytest.raises(sw.RunFailed, match="out of time: the limit of 1e-09 minutes came after 0 of 6 runs") as failed:
        sweep(study, store=tmp_path, progress=False)
    assert failed.value.trajectory.sizes["seed"] == 3 and not failed.value.trajectory["stored"].any()
    left = sweep(study, store=tmp_path, progress=False, throw=False)
    assert left.identical(failed.value.trajectory) and left.attrs["outcome"] == "out of time"


def test_a_clock_that_jumps_ends_no_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    jumps = itertools.count(time.time(), 1e6)
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    study = Study.of(RUN, OVER, limits={"minutes": 60})
    assert compute_missing(plan_sweep(study, Store(tmp_path)), progress=False) == ("finished", "")


def test_an_interruption_keeps_what_is_done_and_the_same_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    study = Study.of(RUN, {"heads": [1, 2, 3], **OVER})
    store, calls = Store(tmp_path), itertools.count()

    def compute_until(work: Any, size: int) -> Iterator[Shard]:
        if next(calls):
            raise KeyboardInterrupt
        yield from compute(work, size)

    monkeypatch.setattr("stepwell.sweeps._compute.compute", compute_until)
    with pytest.raises(sw.Interrupted, match="6 of 18 runs") as stopped:
        sweep(study, store=store, progress=False)
    result = stopped.value.trajectory
    assert result.attrs["outcome"] == "interrupted" and result["stored"].values.sum() == 6
    assert plan_sweep(study, store).waiting == 12
    monkeypatch.setattr("stepwell.sweeps._compute.compute", compute)
    assert compute_missing(plan_sweep(study, store), progress=False) == ("finished", "")
    assert plan_sweep(study, store).waiting == 0


def test_a_run_that_diverges_does_not_harm_the_others(tmp_path: Path):
    run = RUN.replace(training={"steps": 300})
    result = sweep(run, {"rate": [0.1, 1000.0], "seed": [0, 1]}, store=tmp_path, progress=False)
    assert result.outcome.values.tolist() == [["finished"] * 2, ["diverged"] * 2]
    assert np.isfinite(result.final_loss[0]).all() and np.isnan(result.final_loss[1]).all()
    alone = sweep(run, {"rate": [0.1], "seed": [0, 1]}, store=tmp_path / "b", progress=False)
    np.testing.assert_allclose(result.final_loss[0], alone.final_loss[0], rtol=1e-12)


def test_a_run_that_the_solver_gives_up_does_not_harm_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One initialization is so large that the flow does not get through; found by dividing the program."""
    monkeypatch.setattr("stepwell.dynamics._rodas.MOST_STEPS", 5000)  # of 100,000: it is given up sooner
    run = FLOW
    result = sweep(run, {"scale": [0.1, 1e49], "seed": [0, 1]}, store=tmp_path, progress=False)
    assert result.outcome.values.tolist() == [["finished"] * 2, ["solver failed"] * 2]
    alone = sweep(run, {"scale": [0.1], "seed": [0, 1]}, store=tmp_path / "b", progress=False)
    np.testing.assert_allclose(result.final_loss[0], alone.final_loss[0], rtol=1e-6)


# What is measured.


@pytest.mark.parametrize("objective", ["population", "moments"])
def test_drops_are_those_that_compare_measures(tmp_path: Path, objective: str):
    """Of a curve recorded at every step, by the levels of the task or of the sample trained on."""
    training = {"kind": "descent", "steps": 900, "rate": 0.5}
    task = {"dim": 2, "spectrum": "power", "exponent": 2.0}
    run = Experiment(task=task, model={"scale": 0.3}, objective=objective, training=training)
    result = sweep(run, {"seed": [0, 1]}, record={"measure": ["drops", "predicted"]}, store=tmp_path, progress=False)
    for seed in (0, 1):
        table = run.replace(seed=seed).run(progress=False).stepwell.compare().table
        for name, column in (("drop", "measured"), ("predicted", "predicted")):
            found = [float(result[f"{name}_{number + 1}"].sel(seed=seed)) for number in range(len(table))]
            np.testing.assert_allclose(found, table[column], rtol=1e-6)


def test_predictions_that_are_withheld_have_a_reason(tmp_path: Path):
    run = Experiment(task={"dim": 3}, model={"heads": 2, "scale": 0.01}, training={"kind": "flow", "until": 1.0})
    over = {"scale": [0.01, 3.0], "heads": [2, 3]}
    result = sweep(run, over, record={"measure": ["predicted"]}, store=tmp_path, progress=False)
    for scale, heads in itertools.product(over["scale"], over["heads"]):
        prediction = run.replace(model={"scale": scale, "heads": heads}).predict()
        found = result.sel(scale=scale, heads=heads)
        assert str(found["withheld"].values) == prediction.reason
        times = [drop.time for drop in prediction.drops]
        np.testing.assert_allclose([found[f"predicted_{n + 1}"] for n in range(len(times))], times, rtol=1e-5)
    assert result["withheld"].sel(scale=0.01, heads=3) == "" and result["withheld"].sel(scale=3.0, heads=3) != ""
    finite = run.replace(objective={"kind": "moments", "sequences": 500})
    sampled = sweep(finite, {"seed": [0, 1]}, record={"measure": ["predicted"]}, store=tmp_path, progress=False)
    assert np.isfinite(sampled["predicted_1"]).all() and np.isnan(sampled["uncertainty_1"]).all()
    assert sampled["withheld"].values.tolist() == [finite.replace(seed=seed).predict().reason for seed in (0, 1)]


@pytest.mark.parametrize("normalization", ["1/N", "none"])
@pytest.mark.parametrize("model", ["separate", "merged"])
def test_predicted_times_are_those_of_the_theory_and_drops_follow_them(tmp_path: Path, model: str, normalization: str):
    run = Experiment(
        task={"dim": 2, "spectrum": "power", "exponent": 2.0},
        model={"kind": model, "heads": 2, "scale": 0.01 if normalization == "1/N" else 0.003},
        training={"kind": "flow", "until": 6000.0 if model == "separate" else 60.0},
    ).replace(model={"normalization": normalization})
    over = {"context": [10, 31], "seed": [0, 1, 2]}
    result = sweep(run, over, record={"measure": ["drops", "predicted"]}, store=tmp_path, progress=False)
    for context in (10, 31):
        drops = run.replace(task={"context": context}, seed=1).predict().drops
        for number, drop in enumerate(drops):
            found = float(result[f"predicted_{number + 1}"].sel(context=context, seed=1))
            assert found == pytest.approx(drop.time, rel=1e-5)
            off = float(result[f"uncertainty_{number + 1}"].sel(context=context, seed=1))
            assert off == pytest.approx(drop.uncertainty, rel=1e-5)
    for name in ("drop_1", "drop_2") if model == "separate" else ("drop_1",):
        seen, said = result[name].values, result[name.replace("drop", "predicted")].values
        both = np.isfinite(seen) & np.isfinite(said)
        assert both.sum() >= 3
        np.testing.assert_allclose(seen[both], said[both], rtol=0.1)


@pytest.mark.parametrize("until", [800.0, "converged"])
@pytest.mark.parametrize("normalization", ["1/N", "none", "1/tokens"])
def test_the_map_of_a_converged_run_is_that_of_the_theory(tmp_path: Path, normalization: str, until: Any):
    run = Experiment(
        task={"dim": 2, "spectrum": "power", "noise": 0.2},
        model={"scale": 0.3, "normalization": normalization},
        training={"kind": "flow", "until": until},
    )
    result = sweep(run, {"seed": [0, 1]}, record={"measure": ["map", "drops"]}, store=tmp_path, progress=False)
    task = sw.InContextRegression(np.diag([2 / 3, 1 / 3]), 31, noise_variance=0.2)
    wanted = np.diag(task.covariance) * np.diag(sw.theory.linear.fixed_point(task, [0, 1]).effective_map)
    for seed in (0, 1):
        found = [float(result[f"map_{number}"].sel(seed=seed)) for number in (1, 2)]
        np.testing.assert_allclose(found, wanted, rtol=1e-3)


@pytest.mark.parametrize("model", ["separate", "merged"])
def test_a_map_needs_no_theory_of_the_task(tmp_path: Path, model: str):
    run = Experiment(
        task={"kind": "mixture", "dim": 2},
        model={"kind": model, "scale": 0.3},
        objective={"kind": "moments", "sequences": 60},
        training={"kind": "descent", "steps": 30, "rate": 0.05},
    )
    result = sweep(run, {"seed": [0]}, record={"measure": ["map"]}, store=tmp_path, progress=False)
    values, vectors = np.linalg.eigh(run.build_task().covariance)
    own = sw.analysis.effective_map(run.run(progress=False)).values[0, -1]
    wanted = np.einsum("id,ij,jd,d->d", vectors, own, vectors, values)[::-1]
    np.testing.assert_allclose([float(result[f"map_{number}"][0]) for number in (1, 2)], wanted, rtol=1e-9)
    with pytest.raises(InvalidInput, match="several outputs|mixture"):
        two = run.replace(task={"outputs": 2})
        blocks_of(Study.of(two, {"seed": [0]}, record={"measure": ["map"]}))


def test_regimes(tmp_path: Path):
    """One head in one dimension, L = c - 2 m w + s w² with w = v u: at the fixed point the sharpness is known."""
    run = Experiment(
        task={"spectrum": "white", "dim": 2},
        model={"kind": "merged", "heads": 1, "scale": 0.05, "normalization": "none"},
        training={"kind": "descent", "steps": 400},
    )
    result = sweep(run, {"rate": [0.002, 0.2]}, record={"measure": ["regime"]}, store=tmp_path, progress=False)
    assert result.regime.values.tolist() == ["monotone", "diverged"]
    ((work, _),) = works(Study.of(run, {"seed": [0, 1, 2, 3]}))
    steps = np.arange(401)
    falling, cycle = np.exp(-steps / 20.0), 1.0 + 0.1 * (-1.0) ** steps
    thrown = np.where(steps == 5, 1.5, falling)
    gone = np.where(steps > 50, np.nan, falling)
    curves = np.stack([falling, thrown, cycle, gone])
    measured = Measured(built(work), curves, steps, np.ones(4), {})
    assert regime(measured)["regime"].decoded().tolist() == ["monotone", "catapult", "cycles", "diverged"]


def test_allocation(tmp_path: Path):
    task = {"kind": "multitask", "dims": [5, 5], "context": 60, "noise": 0.5}
    run = Experiment(task=task, model={"heads": 4, "scale": 1e-3}, training={"kind": "flow", "until": 300.0})
    result = sweep(run, {"seed": [0, 1, 2, 3]}, record={"measure": ["allocation"]}, store=tmp_path, progress=False)
    member = run.replace(seed=2)
    alone = member.run(progress=False).isel(run=0, time=-1)
    scale = member.build().model.score_scale  # pyright: ignore
    omega = alone["key"].values * alone["query"].values * scale / np.array([5, 5])
    found = sw.analysis.head_task_allocation(omega, alone["value"].values * alone["output"].values)
    assert int(result.heads_used.sel(seed=2)) == int(found.heads_used)
    assert set(result.tasks_served.values.tolist()) <= {0, 1, 2}
    np.testing.assert_array_equal(result.shared.values, result.tasks_sharing.values > 0)


def test_the_band_of_a_share_is_its_standard_error():
    shared = xr.DataArray(np.array([[0.0, 1, 1, 1], [0, 0, 0, 0]]), dims=("heads", "seed"), coords={"heads": [2, 3]})
    result = xr.Dataset({"shared": shared, "stored": xr.ones_like(shared, bool)})
    figure = sw.sweeps.draw(result, "shared", "heads")
    (band,) = figure.axes[0].collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1].tolist()
    low, high = heights[1], heights[-2]
    assert sorted([low, high]) == pytest.approx([0.75 - np.sqrt(0.75 * 0.25 / 4), 0.75 + np.sqrt(0.75 * 0.25 / 4)])
    assert "standard error" in figure.axes[0].get_title(loc="left")


MEASURES_REFUSED = [
    ("regime", RUN.replace(training={"steps": 5000}), "up to 1024 steps"),
    ("regime", RUN.replace(training={"kind": "flow", "until": 10.0}), "descent"),
    ("map", SEVERAL, "one regression"),
    ("predicted", SEVERAL, "one regression"),
    ("drops", SEVERAL.replace(model={"heads": 1}), "as many heads as regressions"),
    ("drops", RUN.replace(task={"outputs": 2}), "no theory of several outputs"),
    ("allocation", RUN, "several regressions"),
    ("drops", RUN.replace(model={"activation": "softmax"}, objective="sampled"), "softmax"),
    ("drops", RUN.replace(training={"optimizer": "adam"}), "plain gradient descent"),
    ("predicted", RUN.replace(training={"schedule": "cosine"}), "plain gradient descent"),
]


@pytest.mark.parametrize("name,run,words", MEASURES_REFUSED)
def test_a_measure_that_does_not_apply_is_refused_before_anything_is_computed(name: str, run: Experiment, words: str):
    with pytest.raises(InvalidInput, match=words):
        blocks_of(Study.of(run, {"seed": [0]}, record={"measure": [name]}))


# The command line.

STUDY = """
[task]
dim = 2
[model]
kind = "merged"
[training]
kind = "descent"
steps = 50
[sweep]
rate = { from = 1e-2, to = 1, count = 10, spacing = "log" }
"model.scale" = { from = 1e-2, to = 1.0, count = 9, spacing = "log" }
seed = [0, 1]
[record]
points = 5
measure = ["regime"]
"""


def test_doubtful_values_are_remarked_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    study = tmp_path / "study.toml"
    study.write_text(
        '[task]\ndim = 2\n[training]\nkind = "descent"\nsteps = 5\n'
        "[sweep]\nrank = [1, 3]\nscale = [0.1, 0.2]\nseed = [0, 1]\n"
    )
    assert main(["sweep", str(study), "--store", str(tmp_path / "runs"), "--json"]) == 0
    assert capsys.readouterr().err == "stepwell sweep: rank 3 is above the dimension 2: rank 2 can do the same\n"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    words = ["sweep", str(file), "--store", str(tmp_path / "runs"), "--json"]
    assert main([*words, "--dry-run"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["runs"], plan["stored"], plan["waiting"], plan["programs"]) == (180, 0, 180, 1)
    assert main([*words, "--shard", "2/3"]) == 0
    assert json.loads(capsys.readouterr().out)["stored"] == 60
    for plot in (
        ["final_loss", "rate"],
        ["regime", "rate"],
        ["regime", "rate", "scale"],
        ["final_loss", "rate", "scale"],
        ["final_loss", "rate", "seed"],
    ):
        picture = tmp_path / ("_".join(plot) + ".png")
        assert main([*words, "--plot", *plot, "--out", str(picture), "--table", str(tmp_path / "t.csv")]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (
            picture.read_bytes().startswith(b"\x89PNG")
            and report["stored"] == 180
            and report["files"]["plot"] == str(picture)
        )
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 181
    assert main(["runs", "ls", "--store", str(tmp_path / "runs"), "--json", "regime=diverged"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("ending", ["png", "csv"])
def test_a_file_that_cannot_be_written_is_not_told(ending: str, tmp_path: Path, monkeypatch, capsys):
    file, replace = tmp_path / "study.toml", os.replace
    file.write_text(STUDY)

    def full(source, target):
        if str(target).endswith(ending):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    picture, table = str(tmp_path / "p.png"), str(tmp_path / "t.csv")
    words = ["--limit", "3", "--store", str(tmp_path / "runs"), "--plot", "final_loss", "rate", "--out", picture]
    assert main(["sweep", str(file), *words, "--table", table]) == 2
    printed = capsys.readouterr()
    assert "No space left on device" in printed.err and printed.out == ""


def test_strict_takes_runs_that_converged_for_done(tmp_path: Path):
    file = tmp_path / "study.toml"
    words = ["sweep", str(file), "--store", str(tmp_path / "runs"), "--strict", "--json"]
    file.write_text("[task]\neigenvalues = [0.6, 0.4]\n[model]\nscale = 0.1\n[sweep]\nseed = [0, 1]\n")
    assert main(words) == 0
    file.write_text(STUDY)  # large rates diverge
    assert main(words) == 1


BAD = {
    "no file": (["no-such-file.toml"], "cannot read"),
    "shard": (["{study}", "--shard", "4/3"], "--shard"),
    "plot": (["{study}", "--plot", "final_lsos", "rate"], "final_loss"),
    "plot field": (["{study}", "--plot", "final_loss", "raet"], "rate"),
    "plot of nothing": (["{study}", "--plot", "final_loss"], "one or two fields"),
    "plot of too much": (["{study}", "--plot", "final_loss", "rate", "model.scale", "seed"], "one or two fields"),
    "out without plot": (["{study}", "--out", "a.png"], "--plot"),
    "ending": (["{study}", "--plot", "final_loss", "rate", "--out", "a.bmp"], "png"),
}


@pytest.mark.parametrize("words,said", BAD.values(), ids=BAD)
def test_bad_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str):
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    given = [str(file) if word == "{study}" else word for word in words]
    assert main(["sweep", *given, "--store", str(tmp_path / "runs")]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and not (tmp_path / "runs").exists()
