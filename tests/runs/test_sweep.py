"""Sweeps: the runs that they compute, keep, find again and draw."""

import dataclasses
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import stepwell as sw
from stepwell._errors import InvalidInput
from stepwell.cli import main
from stepwell.published import run_in
from stepwell.published.training import paper_time, set_up, train
from stepwell.runs import Shard, Store, Study, plan_sweep, run_job, sweep, table_of
from stepwell.runs._compute import compute
from stepwell.runs._fields import run_from
from stepwell.runs._plan import Work, blocks_of, programs_of

RUN = {"model": "attnS", "heads": 2, "dim": 2, "engine": "population", "epoch": 60, "lr": 0.02}
OVER = {"init": [0.1, 0.3], "seed": {"from": 0, "count": 3}}

KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "separate": (
        RUN,
        {"spectrum": ["power:1", "white"], "noise": [0.0, 0.3], "lr": [0.01, 0.02], "seed": [0, 7]},
        1e-12,
    ),
    "merged": ({**RUN, "model": "attnM", "lr": 0.005}, {"context": [5, 31], "init": [0.1, 0.3], "seed": [3, 4]}, 1e-12),
    "task covariance": (
        {**RUN, "dim": 3},
        {"task_eigenvalues": [[1.0, 2.0, 3.0], [3.0, 1.0, 1.0]], "seed": [0, 1]},
        1e-12,
    ),
    "rank": ({**RUN, "rank": 2, "start": "per-head"}, OVER, 1e-12),
    "lengths": ({**RUN, "context": [4, 9]}, OVER, 1e-12),
    "flow": ({**RUN, "engine": "population-flow", "lr": 0.1}, {"spectrum": ["power:1", "white"], "seed": [0, 1]}, 1e-6),
    "moments": ({**RUN, "engine": "moments", "trainset_size": 40}, {"lr": [0.01, 0.02], "seed": [0, 1]}, 1e-12),
    "softmax": ({**RUN, "softmax": True, "engine": "sampled", "trainset_size": 40, "context": 6}, OVER, 1e-12),
    "adam": ({**RUN, "optimiser": "adam"}, OVER, 1e-9),
    "mlp": ({**RUN, "model": "mlp", "cubic_feat": True, "lr": 0.001}, OVER, 1e-12),
    "several": (
        {"dims": [2, 3], "heads": 2, "context": 20, "epoch": 60, "lr": 0.1, "engine": "population"},
        OVER,
        1e-12,
    ),
}


FORMER: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "adam at several rates": ({**RUN, "optimiser": "adam"}, {"lr": [0.002, 0.02]}, 1e-9),
    "a schedule at several rates": ({**RUN, "schedule": "cosine"}, {"lr": [0.002, 0.02]}, 1e-9),
    "optimisers at several rates": (RUN, {"optimiser": ["sgd", "adam"], "lr": [0.002, 0.02]}, 1e-9),
    "flow at several rates": ({**RUN, "engine": "population-flow"}, {"lr": [0.02, 0.2]}, 1e-6),
    "noise of regressions": (
        {"dims": [2, 3], "heads": 2, "context": 20, "epoch": 60, "lr": 0.1},
        {"noise": [0.0, 0.5]},
        1e-12,
    ),
    "noise of a sample": ({**RUN, "engine": "moments", "trainset_size": 40}, {"noise": [0.0, 0.5]}, 1e-12),
    "a time at several rates": (RUN, {"until": [3.0, 5.0], "lr": [0.002, 0.02]}, 1e-12),
    "task covariances, one the default": ({**RUN, "init": 0.3}, {"task_eigenvalues": [[1.0, 3.0], [1.0, 1.0]]}, 1e-12),
    "task covariance of the run": (
        {**RUN, "task_eigenvalues": [2.0, 0.5]},
        {"eigenvalues": [[0.6, 0.4], [0.7, 0.1]]},
        1e-12,
    ),
    "lengths of the run": ({**RUN, "vary_len": True}, {"context": [5, 9]}, 1e-12),
    "strengths of the run": (
        {"strengths": [3.0], "epoch": 60, "lr": 0.1, "context": 20},
        {"dims": [[2, 3], [2]]},
        1e-12,
    ),
    "dimensions": ({**RUN, "spectrum": "power:1"}, {"dim": [2, 3]}, 1e-12),
    "starts": (RUN, {"start": ["plain", "per-head"], "rank": [1, 2]}, 1e-12),
    "large seeds": (RUN, {"seed": [2**32 - 1, 2**31]}, 1e-12),
}


def each_place(over: dict[str, Any]) -> Iterator[dict[str, Any]]:
    axes = Study.of({}, over).axes
    for place in itertools.product(*(range(len(axis)) for axis in axes)):
        yield {name: values[at] for axis, at in zip(axes, place, strict=True) for name, values in axis.fields.items()}


@pytest.mark.parametrize("run,over,tolerance", [*KINDS.values(), *FORMER.values()], ids=[*KINDS, *FORMER])
def test_a_run_of_a_study_is_the_run_that_train_makes(
    run: dict[str, Any], over: dict[str, Any], tolerance: float, tmp_path: Path
):
    """Found by its place in the result, and trained alone from the fields of the study."""
    result = sweep(run, over, record={"points": 7}, store=tmp_path, progress=False)
    assert bool(result.stored.all())
    losses = result.final_loss.values.ravel()
    for number, own in enumerate(each_place(over)):
        replaced = {"eigenvalues": "dim", "until": "epoch"}
        fixed = {name: value for name, value in run.items() if name not in {replaced.get(field) for field in own}}
        described = run_in({**fixed, **own})
        setup = set_up(described.flags, described.engine, described.beyond)
        if described.until is not None:
            steps = int(np.ceil(float(described.until) / float(paper_time(setup, 1.0)) - 1e-9))
            setup = setup._replace(flags=dataclasses.replace(setup.flags, epoch=steps))
        alone = train(setup, None)
        assert losses[number] == pytest.approx(float(alone["loss"].values[0, -1]), rel=tolerance), own


def works(study: Study) -> Iterator[tuple[Work, int]]:
    for program in programs_of(blocks_of(study)):
        for work in program.parts():
            yield work, program.size


def test_curves_and_weights_are_those_of_the_run_alone():
    ((work, size),) = works(Study.of(RUN, OVER, record={"points": 7}))
    shard = compute(work, size)
    described, _ = run_from(work.configuration(4))
    alone = train(set_up(described.flags, described.engine, described.beyond), None)
    steps = shard.data["step"].values
    np.testing.assert_allclose(shard.data["loss"].values[4], alone["loss"].values[0, steps], rtol=1e-12)
    for name in ("value", "key", "query"):
        np.testing.assert_allclose(shard.data[name].values[4], alone[name].values[0, [0, -1]], rtol=1e-12)


def test_the_end_is_kept_however_few_points_there_are(tmp_path: Path):
    few = {"points": 2, "spacing": "log", "measure": ["map"]}
    result = sweep({**RUN, "epoch": 300}, {"seed": [0]}, record=few, store=tmp_path, progress=False)
    many = sweep({**RUN, "epoch": 300}, {"seed": [0]}, record={"measure": ["map"]}, store=tmp_path, progress=False)
    assert float(result.map_1[0]) == float(many.map_1[0])
    assert Store(tmp_path).select(["points=2"])["step"].values.tolist() == [0, 300]


def test_drops_go_by_the_levels_of_each_run(tmp_path: Path):
    run = {**RUN, "engine": "moments", "trainset_size": 60, "epoch": 900, "init": 0.3}
    both = sweep(run, {"noise": [0.0, 0.5]}, record={"measure": ["drops"]}, store=tmp_path / "a", progress=False)
    alone = sweep(run, {"noise": [0.5]}, record={"measure": ["drops"]}, store=tmp_path / "b", progress=False)
    assert float(both.drop_1[1]) == pytest.approx(float(alone.drop_1[0]), rel=1e-9)


REPEATED: dict[str, dict[str, Any]] = {
    "seeds": {"seed": [1, 1, 2]},
    "zeros": {"noise": [0.0, -0.0]},
    "words": {"start": ["script", "stacked"]},
    "a rank that merged attention has not": {"model": ["attnM", "attnS"], "rank": [1, 2]},
    "a sample that the population has not": {"engine": ["moments", "population"], "trainset_size": [30, 40]},
}


@pytest.mark.parametrize("over", REPEATED.values(), ids=REPEATED)
def test_a_run_that_is_asked_for_twice_is_computed_once(tmp_path: Path, over: dict[str, Any]):
    result = sweep({**RUN, "epoch": 10}, over, store=tmp_path, progress=False)
    assert bool(result.stored.all()) and len(Store(tmp_path).table()) < result.stored.size


def test_fresh_runs_take_the_place_of_stored_ones(tmp_path: Path):
    first = sweep(RUN, OVER, store=tmp_path, progress=False)
    ((work, size),) = works(Study.of(RUN, OVER))
    wrong = compute(work, size)
    Store(tmp_path).remove()
    Store(tmp_path).add(Shard(wrong.common, wrong.fields, {**wrong.scalars, "final_loss": np.full(6, 9.0)}, wrong.data))
    assert sweep(RUN, OVER, store=tmp_path, progress=False).final_loss.values.min() == 9.0
    again = sweep(RUN, OVER, store=tmp_path, progress=False, fresh=True)
    np.testing.assert_array_equal(again.final_loss, first.final_loss)


def test_a_result_has_the_scalars_of_its_own_runs_only(tmp_path: Path):
    sweep({**RUN, "epoch": 50}, {"seed": [0]}, record={"measure": ["regime"]}, store=tmp_path, progress=False)
    assert "regime" not in sweep(RUN, {"seed": [0]}, store=tmp_path, progress=False)


def test_a_study_of_one_run_has_a_table(tmp_path: Path):
    assert len(table_of(sweep(RUN, {}, store=tmp_path, progress=False))) == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_at_least_one(tmp_path: Path, limit: int):
    with pytest.raises(InvalidInput, match="limit"):
        sweep(RUN, OVER, store=tmp_path, limit=limit, progress=False)


def test_the_result_has_the_axes_of_the_study_and_finds_each_run(tmp_path: Path):
    result = sweep(RUN, OVER, store=tmp_path, progress=False)
    assert result.final_loss.dims == ("init", "seed") and result.attrs["outcome"] == "finished"
    for init in (0.1, 0.3):
        for seed in (0, 1, 2):
            run = run_in({**RUN, "init": init, "seed": seed})
            alone = train(set_up(run.flags, run.engine, run.beyond), None)
            assert float(result.final_loss.sel(init=init, seed=seed)) == pytest.approx(
                float(alone.loss[0, -1]), rel=1e-12
            )
    table = table_of(result)
    assert len(table) == 6 and {"init", "seed", "final_loss", "outcome"} <= set(table.columns)


def test_what_the_store_has_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    counted: list[int] = []

    def counting(work: Work, size: int | None = None) -> Shard:
        counted.append(work.runs)
        return compute(work, size)

    monkeypatch.setattr("stepwell.runs._compute.compute", counting)
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
        assert run_job(plan_sweep(study, store, part=(number, 4)), progress=False)[0] == "finished"
    whole = Store(tmp_path / "whole")
    for number in (1, 2, 3, 4):
        whole.merge(tmp_path / str(number))
    assert plan_sweep(study, whole).waiting == 0 and plan_sweep(study, whole).stored == 6


def test_time_ends_a_sweep_and_keeps_what_there_is(tmp_path: Path):
    study = Study.of(RUN, OVER, limits={"minutes": 1e-9})
    outcome, message = run_job(plan_sweep(study, Store(tmp_path)), progress=False)
    assert outcome == "out of time" and "minutes" in message


def test_a_clock_that_jumps_ends_no_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    jumps = itertools.count(time.time(), 1e6)
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    study = Study.of(RUN, OVER, limits={"minutes": 60})
    assert run_job(plan_sweep(study, Store(tmp_path)), progress=False) == ("finished", "")


def test_an_interruption_keeps_what_is_done_and_the_same_call_goes_on(tmp_path: Path):
    study = Study.of(RUN, {"heads": [1, 2, 3], **OVER})
    store = Store(tmp_path)

    def interrupted(parts: Any) -> Iterator[Shard]:
        for number, (work, size) in enumerate(parts):
            if number == 1:
                raise KeyboardInterrupt
            yield compute(work, size)

    outcome, message = run_job(plan_sweep(study, store), interrupted, progress=False)
    assert outcome == "interrupted" and "6 of 18 runs" in message
    assert plan_sweep(study, store).waiting == 12
    assert run_job(plan_sweep(study, store), progress=False) == ("finished", "")
    assert plan_sweep(study, store).waiting == 0


def test_a_run_that_diverges_does_not_harm_the_others(tmp_path: Path):
    result = sweep({**RUN, "epoch": 300}, {"lr": [0.01, 100.0], "seed": [0, 1]}, store=tmp_path, progress=False)
    assert result.outcome.values.tolist() == [["finished"] * 2, ["diverged"] * 2]
    assert np.isfinite(result.final_loss[0]).all() and np.isnan(result.final_loss[1]).all()
    alone = sweep({**RUN, "epoch": 300}, {"lr": [0.01], "seed": [0, 1]}, store=tmp_path / "b", progress=False)
    np.testing.assert_allclose(result.final_loss[0], alone.final_loss[0], rtol=1e-12)


def test_a_run_that_the_solver_gives_up_does_not_harm_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One start is so large that the flow does not get through; found by dividing the program."""
    run = {**RUN, "engine": "population-flow", "epoch": 100, "lr": 0.1}
    result = sweep(run, {"init": [0.1, 1e120], "seed": [0, 1]}, store=tmp_path, progress=False)
    assert result.outcome.values.tolist() == [["finished"] * 2, ["solver failed"] * 2]
    alone = sweep(run, {"init": [0.1], "seed": [0, 1]}, store=tmp_path / "b", progress=False)
    np.testing.assert_allclose(result.final_loss[0], alone.final_loss[0], rtol=1e-6)


# What is measured.


def test_drops_are_those_of_a_curve_recorded_at_every_step(tmp_path: Path):
    run = {**RUN, "engine": "population", "epoch": 900, "lr": 0.05, "init": 0.3, "dim": 2, "spectrum": "power:2"}
    result = sweep(run, {"seed": [0, 1]}, record={"measure": ["drops"]}, store=tmp_path, progress=False)
    for seed in (0, 1):
        described = run_in({**run, "seed": seed})
        setup = set_up(described.flags, described.engine, described.beyond)
        from stepwell.published.training import levels_of

        alone, levels = train(setup, None), levels_of(setup)
        assert levels is not None
        times = np.asarray(paper_time(setup, alone["step"].values))
        drops = sw.probes.level_drops(times, alone["loss"].values[0], np.array(levels.losses))
        found = [float(result[f"drop_{number + 1}"].sel(seed=seed)) for number in range(len(drops))]
        np.testing.assert_allclose(found, [drop.time for drop in drops], rtol=1e-12)


@pytest.mark.parametrize("model", ["attnS", "attnM"])
def test_predicted_times_are_those_of_the_theory_and_drops_follow_them(tmp_path: Path, model: str):
    run = {"model": model, "heads": 2, "engine": "population-flow", "lr": 0.1, "init": 0.01, "start": "plain", "dim": 2}
    run |= {"until": 3000.0 if model == "attnS" else 60.0, "spectrum": "power:2"}
    over = {"context": [10, 31], "seed": [0, 1, 2]}
    result = sweep(run, over, record={"measure": ["drops", "predicted"]}, store=tmp_path, progress=False)
    described = run_in({**run, "context": 10, "seed": 1})
    setup = set_up(described.flags, described.engine, described.beyond)
    factor = sw.dynamics.weight_factor("none", "1/N", length=10, factors=setup.model.factors)  # pyright: ignore
    scaled = {name: factor * np.asarray(values) for name, values in setup.model.weights().items()}
    kind = described.flags.kind
    weights = sw.models.class_of(kind).theory_weights(scaled)
    assert kind.theory is not None
    for number, drop in enumerate(sw.theory.linear.PREDICTORS[kind.theory].drops(setup.task, weights)):  # pyright: ignore
        found = float(result[f"predicted_{number + 1}"].sel(context=10, seed=1))
        assert found == pytest.approx(drop.time, rel=1e-5)
    names = ("drop_1", "drop_2") if model == "attnS" else ("drop_1",)
    for name in names:
        seen, said = result[name].values, result[name.replace("drop", "predicted")].values
        both = np.isfinite(seen) & np.isfinite(said)
        assert both.sum() >= 3
        np.testing.assert_allclose(seen[both], said[both], rtol=0.1)


def test_the_map_of_a_converged_run_is_that_of_the_theory(tmp_path: Path):
    run = {
        **RUN,
        "engine": "population-flow",
        "epoch": 4000,
        "lr": 0.1,
        "init": 0.3,
        "spectrum": "power:1",
        "noise": 0.2,
    }
    result = sweep(run, {"seed": [0, 1]}, record={"measure": ["map"]}, store=tmp_path, progress=False)
    task = sw.InContextRegression(np.diag([2 / 3, 1 / 3]), 31, noise_variance=0.2)
    wanted = np.diag(task.covariance) * np.diag(sw.theory.linear.fixed_point(task, [0, 1]))
    for seed in (0, 1):
        found = [float(result[f"map_{number}"].sel(seed=seed)) for number in (1, 2)]
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_regimes(tmp_path: Path):
    """One head in one dimension, L = c - 2 m w + s w² with w = v u: at the fixed point the sharpness is known."""
    run = {
        "model": "attnM",
        "heads": 1,
        "spectrum": "white",
        "dim": 2,
        "engine": "population",
        "epoch": 400,
        "init": 0.05,
    }
    result = sweep(run, {"lr": [0.002, 0.2]}, record={"measure": ["regime"]}, store=tmp_path, progress=False)
    assert result.regime.values.tolist() == ["monotone", "diverged"]
    from stepwell.runs._build import build
    from stepwell.runs._scalars import Measured, regime

    ((work, _),) = works(Study.of(run, {"seed": [0, 1, 2, 3]}))
    steps = np.arange(401)
    falling, cycle = np.exp(-steps / 20.0), 1.0 + 0.1 * (-1.0) ** steps
    thrown = np.where(steps == 5, 1.5, falling)
    gone = np.where(steps > 50, np.nan, falling)
    curves = np.stack([falling, thrown, cycle, gone])
    measured = Measured(build(work), steps, curves, xr.Dataset(), np.zeros(4, bool))
    assert regime(measured)["regime"].decoded().tolist() == ["monotone", "catapult", "cycles", "diverged"]


def test_allocation(tmp_path: Path):
    run = {
        "dims": [5, 5],
        "heads": 4,
        "context": 60,
        "epoch": 3000,
        "lr": 0.05,
        "engine": "flow",
        "init": 1e-3,
        "noise": 0.5,
    }
    result = sweep(run, {"seed": [0, 1, 2, 3]}, record={"measure": ["allocation"]}, store=tmp_path, progress=False)
    described = run_in({**run, "seed": 2})
    alone = train(set_up(described.flags, described.engine, described.beyond), None).isel(run=0, snapshot=-1)
    scale = set_up(described.flags, described.engine, described.beyond).model.score_scale  # pyright: ignore
    omega = alone["key"].values * alone["query"].values * scale / np.array([5, 5])
    found = sw.probes.head_task_allocation(omega, alone["value"].values * alone["output"].values)
    assert int(result.heads_used.sel(seed=2)) == int(found.heads_used)
    assert set(result.tasks_served.values.tolist()) <= {0, 1, 2}
    np.testing.assert_array_equal(result.shared.values, result.tasks_sharing.values > 0)


def test_the_band_of_a_share_is_its_standard_error():
    shared = xr.DataArray(np.array([[0.0, 1, 1, 1], [0, 0, 0, 0]]), dims=("heads", "seed"), coords={"heads": [2, 3]})
    result = xr.Dataset({"shared": shared, "stored": xr.ones_like(shared, bool)})
    figure = sw.runs.draw(result, "shared", "heads")
    (band,) = figure.axes[0].collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1].tolist()
    low, high = heights[1], heights[-2]
    assert sorted([low, high]) == pytest.approx([0.75 - np.sqrt(0.75 * 0.25 / 4), 0.75 + np.sqrt(0.75 * 0.25 / 4)])
    assert "standard error" in figure.axes[0].get_title(loc="left")


MEASURES_REFUSED = [
    ("regime", {**RUN, "epoch": 5000}, "up to 1024 steps"),
    ("regime", {**RUN, "engine": "population-flow"}, "descent"),
    ("map", {**RUN, "engine": "moments", "trainset_size": 40}, "infinitely many"),
    ("allocation", RUN, "several regressions"),
    ("drops", {**RUN, "softmax": True, "engine": "sampled", "trainset_size": 40}, "linear"),
    ("drops", {**RUN, "optimiser": "adam"}, "plain gradient descent"),
    ("predicted", {**RUN, "schedule": "cosine"}, "plain gradient descent"),
]


@pytest.mark.parametrize("name,run,words", MEASURES_REFUSED)
def test_a_measure_that_does_not_apply_is_refused_before_anything_is_computed(
    name: str, run: dict[str, Any], words: str
):
    with pytest.raises(InvalidInput, match=words):
        blocks_of(Study.of(run, {"seed": [0]}, record={"measure": [name]}))


# The command line.

STUDY = """
[task]
dim = 2
[model]
model = "attnM"
[training]
engine = "population"
epoch = 50
[sweep]
lr = { from = 1e-3, to = 1e-1, count = 10, spacing = "log" }
init = { from = 1e-2, to = 1.0, count = 9, spacing = "log" }
seed = [0, 1]
[record]
points = 5
measure = ["regime"]
"""


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
        ["final_loss", "lr"],
        ["regime", "lr"],
        ["regime", "lr", "init"],
        ["final_loss", "lr", "init"],
        ["final_loss", "lr", "seed"],
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


BAD = {
    "no file": (["no-such-file.toml"], "cannot read"),
    "shard": (["{study}", "--shard", "4/3"], "--shard"),
    "plot": (["{study}", "--plot", "final_lsos", "lr"], "final_loss"),
    "plot field": (["{study}", "--plot", "final_loss", "rl"], "lr"),
    "plot of nothing": (["{study}", "--plot", "final_loss"], "one or two fields"),
    "plot of too much": (["{study}", "--plot", "final_loss", "lr", "init", "seed"], "one or two fields"),
    "ending": (["{study}", "--plot", "final_loss", "lr", "--out", "a.bmp"], "png"),
}


@pytest.mark.parametrize("words,said", BAD.values(), ids=BAD)
def test_bad_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str):
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    given = [str(file) if word == "{study}" else word for word in words]
    assert main(["sweep", *given, "--store", str(tmp_path / "runs")]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and not (tmp_path / "runs").exists()
