"""`stepwell train`: its files and report, what is resumed, and what the runs amount to."""

import json
import re
import signal
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import stepwell as sw
from stepwell._util.paper_time import PAPER_UNIT
from stepwell.cli import main
from stepwell.dynamics import _checkpoint as checkpoints
from stepwell.dynamics import _host as training
from stepwell.experiments import Experiment

DATA = ["--dim", "2", "--context", "5", "--objective", "moments", "--sequences", "40", "--heads", "2", "--scale", "0.3"]
SMALL = [*DATA, "--training", "descent", "--steps", "12", "--rate", "0.01", "--model", "merged"]
FLOW = [*DATA, "--scale", "0.01", "--training", "flow", "--until", "3000", "--value-weights"]


def train(folder: Path, *flags: str) -> int:
    return main(["train", *flags, "--out", str(folder)])


def report(capsys: pytest.CaptureFixture[str], folder: Path, *flags: str) -> dict:
    """The JSON document of a run that finished; nothing else is on standard output."""
    assert train(folder, *flags, "--json") == 0
    return json.loads(capsys.readouterr().out)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def experiment(*flags: str) -> sw.Experiment:
    """The experiment that words describe."""
    from stepwell.experiments._flags import parsed

    return parsed(list(flags))


@pytest.mark.usefixtures("drawn_plots")
def test_a_run_leaves_its_three_files_named_by_its_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    asked = experiment(*SMALL)
    name = f"merged_h2_seed0_{asked.name[:8]}"
    assert train(tmp_path, *SMALL) == 0
    out, err = capsys.readouterr()
    assert files(tmp_path) == {f"{name}.nc", f"{name}.txt", f"{name}.png"} and err == ""
    assert all(file in out for file in files(tmp_path))
    run = sw.load(tmp_path / f"{name}.nc")
    assert Experiment.of(run) == asked and run["time"].attrs["units"] == PAPER_UNIT
    xr.testing.assert_identical(run, asked.run(progress=False))
    table = tmp_path / f"{name}.txt"
    assert table.read_text().startswith("# step time[t/tau] loss\n")
    np.testing.assert_array_equal(np.loadtxt(table), np.stack([run["step"], run["time"], run["loss"][0]], axis=1))


def test_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = [*SMALL, "--scale", "0.01"]
    found = report(capsys, tmp_path, *words, "--theory")
    asked = experiment(*words)
    run = sw.load(found["files"]["trajectory"])
    assert sw.Experiment.from_dict(found["experiment"]) == asked and found["name"] == asked.name
    assert (found["outcome"], found["steps"], found["time_unit"]) == ("finished", 12, PAPER_UNIT)
    assert found["time"] == float(run["time"][-1]) == pytest.approx(2 * 0.01 * 12, rel=1e-15)
    assert found["first_loss"] == {"train": float(run["loss"][0, 0])}
    assert found["final_loss"] == {"train": float(run["loss"][0, -1])}
    predicted = asked.predict()
    assert found["levels"] == predicted.document["levels"] and found["learned"] == predicted.document["learned"]
    assert found["predicted_drops"] == predicted.document["drops"]
    (row,) = found["drops"]
    assert row["predicted"] == pytest.approx(predicted.drops[0].time, rel=1e-12)
    assert row["predicted_step"] == pytest.approx(predicted.drops[0].step, rel=1e-12)
    assert set(found["files"]) == {"trajectory", "losses", "plot"} and found["seconds"] > 0
    plain = report(capsys, tmp_path, *words)
    assert plain["drops"] is None and plain["predicted_drops"] is None and plain["levels"] == found["levels"]
    withheld = report(capsys, tmp_path, *SMALL, "--theory")
    assert withheld["predicted_drops"] == experiment(*SMALL).predict().document["drops"] == []


CURVES = {
    "tests": (["--test-sequences", "40"], "step time[t/tau] loss in_weight_test_loss in_context_test_loss"),
    "values": (["--value-weights"], "step time[t/tau] loss value_weight[head=1] value_weight[head=2]"),
    "seeds": (["--seeds", "4:7"], "step time[t/tau] loss[seed=4] loss[seed=5] loss[seed=6]"),
    "adam": (["--optimizer", "adam"], "step loss"),
    "mixture": (
        ["--task", "mixture", "--test-sequences", "40"],
        "step time[t/tau] loss in_weight_test_loss in_context_test_loss",
    ),
}


@pytest.mark.parametrize("flags, names", CURVES.values(), ids=CURVES)
def test_columns(flags: list[str], names: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    found = report(capsys, tmp_path, *SMALL, *flags)
    path = Path(found["files"]["losses"])
    assert path.read_text().splitlines()[0] == f"# {names}"
    run, rows = sw.load(found["files"]["trajectory"]), np.loadtxt(path)
    assert rows.shape == (13, len(names.split())) and np.all(np.isfinite(rows))
    expected = np.concatenate([np.reshape(run[name].values, (-1, 13)) for name in ("loss",)])
    np.testing.assert_array_equal(rows[:, [i for i, n in enumerate(names.split()) if n.startswith("loss")]], expected.T)
    if "value_weight" in run:
        np.testing.assert_array_equal(rows[:, 3:], run["value_weight"].values[0])
        np.testing.assert_array_equal(rows[:, 3:], run["value"].values[0, :, :, -1, -1])  # a snapshot at every step


def test_value_weights_of_another_model_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert train(tmp_path / "new", "--task", "multitask", "--value-weights") == 2
    assert "value_weights" in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_data_do_not_depend_on_what_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plain = report(capsys, tmp_path, *SMALL)
    watched = report(capsys, tmp_path, *SMALL, "--value-weights", "--test-sequences", "40")
    # The same sums in another compiled program: a few roundings apart.
    assert watched["final_loss"]["train"] == pytest.approx(plain["final_loss"]["train"], rel=1e-12)


def test_a_file_of_the_same_name_is_the_same_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first = Path(report(capsys, tmp_path, *SMALL)["files"]["trajectory"])
    other = Path(report(capsys, tmp_path, *SMALL, "--rate", "0.02")["files"]["trajectory"])
    assert first != other and len(files(tmp_path)) == 6
    report(capsys, tmp_path, *SMALL)  # itself
    other.replace(first)
    for content in (first.read_bytes(), b"nonsense"):
        first.write_bytes(content)
        assert train(tmp_path, *SMALL) == 2
        assert "move it away" in capsys.readouterr().err and first.read_bytes() == content
    report(capsys, tmp_path, *SMALL, "--overwrite")
    assert Experiment.of(sw.load(first)) == experiment(*SMALL)


def test_seeds_are_named_by_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    names = set()
    for words in (["--seeds", "3", "5", "8"], ["--seeds", "3", "4", "8"], ["--seeds", "3:9"]):
        found = report(capsys, tmp_path, *SMALL, *words)
        names.add(Path(found["files"]["trajectory"]).stem)
        assert found["seeds"][0] == 3 and len(found["final_losses"]) == len(found["seeds"])
    assert len(names) == 3 and all(re.fullmatch("merged_h2_seeds3-8_[0-9a-f]{8}", name) for name in names)
    alone = report(capsys, tmp_path, *SMALL, "--seeds", "1")
    assert "seeds" not in alone and Experiment.of(sw.load(alone["files"]["trajectory"])) == experiment(*SMALL)


def test_seeds_count_from_that_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "run.toml").write_text(experiment(*SMALL, "--seed", "4").to_toml())
    found = report(capsys, tmp_path, str(tmp_path / "run.toml"), "--seeds", "3")
    assert found["seeds"] == [4, 5, 6]
    for place, seed in enumerate(found["seeds"]):
        alone = report(capsys, tmp_path, *SMALL, "--seed", str(seed))
        assert found["final_losses"][place] == pytest.approx(alone["final_loss"]["train"], rel=1e-12)


def test_predict_and_train_of_one_file_are_one_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """From the same initial weights and sample: drops at the same times, by the same heads."""
    path = tmp_path / "run.toml"
    made = sw.Experiment(
        task={"context": 20, "noise": 0.1, "centered": True},
        model={"kind": "separate", "heads": 5, "scheme": "per-head", "scale": 1e-3, "normalization": "none"},
        objective={"kind": "moments", "sequences": 500},
        training={"kind": "descent", "rate": 0.02, "steps": 30},
        seed=7,
    )
    path.write_text(made.to_toml())
    trained = report(capsys, tmp_path, str(path), "--theory")
    assert main(["predict", str(path), "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    assert predicted["experiment"] == trained["experiment"] and predicted["name"] == trained["name"]
    assert predicted["drops"] == trained["predicted_drops"] and len(predicted["drops"]) > 1
    assert predicted["levels"] == trained["levels"]
    for row, drop in zip(trained["drops"], predicted["drops"], strict=False):
        assert (row["head"], row["component"]) == (drop["head"], drop["component"])
        assert row["predicted"] == pytest.approx(drop["time"], rel=1e-9)


@pytest.mark.parametrize(
    "flags, message",
    [(["--model", "separate", "--rank", "3"], "rank 3 is above the dimension 2"), (["--scale", "0"], "fixed point")],
)
def test_allowed_with_a_word(flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert train(tmp_path, *SMALL, *flags) == 0
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and err.startswith("stepwell train: ")


TOO_LARGE = {
    "sequences": ["--objective", "sampled", "--sequences", "1000000000"],
    "features": ["--dim", "96", "--objective", "moments"],
    "points": ["--training", "descent", "--steps", "1000000000"],
    "weights": ["--heads", "1000000", "--dim", "1000"],
    "Hessian": ["--heads", "10000", "--dim", "16"],
    "batch": ["--objective", "online", "--batch-size", "10000000", "--context", "100000"],
    "seeds": ["--training", "descent", "--steps", "1000000", "--seeds", "100000"],
    "regressions": ["--task", "multitask", "--objective", "reduced", "--sequences", "1000000000"],
}


@pytest.mark.parametrize("flags", TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_does_not_fit_is_refused_first(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert train(tmp_path / "new", *flags) == 2
    out, err = capsys.readouterr()
    assert out == "" and "GiB" in err and err.count("\n") == 1 and not (tmp_path / "new").exists()


class Killed(BaseException):
    """In place of a signal: the run ends here and now."""


class Saves:
    """Where a run saves, and after how many times it is killed or Ctrl-C is pressed."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.patch = patch
        patch.setattr(checkpoints, "_EVERY", 0.0)
        patch.setattr(checkpoints, "_SHARE", 0.0)
        steps = property(lambda self: 9, lambda self, value: None)
        patch.setattr("stepwell.dynamics._loop.ChunkSize.steps", steps, raising=False)
        self.save = checkpoints.Saves.save_if_due

    def end(self, after: int | None, how: str = "kill") -> None:
        left = [after]

        def save(saves, state):
            self.save(saves, state)
            if left[0] is not None:
                left[0] -= 1
                if left[0] == 0 and how == "kill":
                    raise Killed
                if left[0] == 0:
                    signal.raise_signal(signal.SIGINT)

        self.patch.setattr(checkpoints.Saves, "save_if_due", save)


KINDS = {
    "descent": [*SMALL, "--steps", "240"],
    "seeds": [*SMALL, "--steps", "240", "--seeds", "2"],
    "adam": [*SMALL, "--steps", "240", "--optimizer", "adam"],
    "flow": FLOW,
}


@pytest.mark.parametrize("how", ["kill", "press"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_is_resumed_bit_for_bit(
    kind: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    flags, whole, parts = KINDS[kind], tmp_path / "whole", tmp_path / "parts"
    report(capsys, whole, *flags)
    saves = Saves(monkeypatch)
    for resume in ([], ["--resume"]):
        saves.end(2, how)
        if how == "kill":
            with pytest.raises(Killed):
                train(parts, *flags, *resume)
            (name,) = files(parts)
            assert name.startswith(".") and name.endswith(".checkpoint")
            if "--seeds" not in flags:
                assert name == f".{experiment(*flags).name}.checkpoint"
        else:
            assert train(parts, *flags, *resume) == 130
    saves.end(None)
    capsys.readouterr()
    assert train(parts, *flags, "--resume") == 0
    assert "resuming from the checkpoint" in capsys.readouterr().out
    assert files(parts) == files(whole)
    stem = next(name for name in files(whole) if name.endswith(".nc"))
    xr.testing.assert_identical(*(xr.load_dataset(folder / stem, engine="h5netcdf") for folder in (whole, parts)))


def test_a_descent_is_continued_to_more_steps_and_both_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    short = report(capsys, parts, *SMALL, "--value-weights")
    before = Path(short["files"]["trajectory"]).read_bytes()
    longer = [*SMALL, "--value-weights", "--steps", "20"]
    assert train(parts, *longer, "--resume") == 0
    assert "resuming from step 12" in capsys.readouterr().out
    found = report(capsys, whole, *longer)
    name = Path(found["files"]["losses"]).name
    assert (whole / name).read_text() == (parts / name).read_text()
    assert Path(short["files"]["trajectory"]).read_bytes() == before
    continued, at_once = (sw.load(folder / name.replace(".txt", ".nc")) for folder in (parts, whole))
    assert Experiment.of(continued) == Experiment.of(at_once) == experiment(*longer)
    np.testing.assert_array_equal(continued["time"], at_once["time"])
    for weight in ("value", "key_query"):
        np.testing.assert_array_equal(continued[weight].isel(snapshot=-1), at_once[weight].isel(snapshot=-1))


@pytest.mark.parametrize("flags", [["--rate", "0.02"], ["--seed", "1"], ["--steps", "11"]], ids=" ".join)
def test_another_run_is_not_continued(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report(capsys, tmp_path, *SMALL)
    assert train(tmp_path, *SMALL, *flags, "--resume") == 0
    assert "starting from the beginning" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [["--optimizer", "adam"], ["--seeds", "2"]], ids=" ".join)
def test_what_cannot_be_continued_is_refused(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report(capsys, tmp_path, *SMALL, *flags)
    assert train(tmp_path, *SMALL, *flags, "--steps", "20", "--resume") == 2
    assert "leave out --resume" in capsys.readouterr().err


def test_a_complete_run_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    for flags in (SMALL, FLOW):
        before = report(capsys, tmp_path, *flags)
        content = Path(before["files"]["losses"]).read_text()
        with monkeypatch.context() as patch:
            patch.setattr(training, "advance", None)
            patch.setattr("stepwell.dynamics.flow", None)
            assert train(tmp_path, *flags, "--resume") == 0
        assert "is complete" in capsys.readouterr().out
        assert Path(before["files"]["losses"]).read_text() == content


def test_the_store_is_asked_first_and_told_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    kept: dict[str, xr.Dataset] = {}

    class Store:
        def __init__(self, path):
            self.path = path

    def save_run(store, trajectory: xr.Dataset, *, fresh: bool = False) -> Path:
        kept[Experiment.of(trajectory).name] = trajectory
        return Path(store.path)

    def load_run(store, asked: sw.Experiment, seeds=None) -> xr.Dataset | None:
        return kept.get(asked.name) if seeds is None else None

    room = types.SimpleNamespace(Store=Store, save_run=save_run, load_run=load_run)
    monkeypatch.setitem(sys.modules, "stepwell.store", room)
    words = [*SMALL, "--store", str(tmp_path / "store")]
    first = report(capsys, tmp_path / "a", *words)
    assert list(kept) == [first["name"]]
    with monkeypatch.context() as patch:
        patch.setattr(training, "advance", None)
        assert train(tmp_path / "b", *words, "--json") == 0
        out, err = capsys.readouterr()
    assert "has this run" in err
    a, b = (xr.load_dataset(found["files"]["trajectory"], engine="h5netcdf") for found in (first, json.loads(out)))
    xr.testing.assert_identical(a, b)
    kept.clear()
    report(capsys, tmp_path / "c", *words, "--fresh")
    assert list(kept) == [first["name"]]
    assert train(tmp_path / "d", *words, "--rate", "1e8", "--steps", "200") == 1  # diverged: not kept
    assert list(kept) == [first["name"]]


OBJECTIVES = [
    ["--model", "merged", "--test-sequences", "40"],
    ["--model", "separate", "--rank", "2", "--task", "mixture"],
    ["--model", "mlp", "--context", "2", "5", "--normalization", "1/tokens"],
    ["--model", "merged", "--context", "2", "5", "--outputs", "2"],
]


@pytest.mark.parametrize("flags", OBJECTIVES, ids=["merged", "separate", "mlp", "outputs"])
def test_moments_and_sequences_give_the_same_run(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = [report(capsys, tmp_path, *SMALL, *flags, "--objective", kind) for kind in ("moments", "sampled")]
    for name, value in runs[0]["final_loss"].items():
        assert runs[1]["final_loss"][name] == pytest.approx(value, rel=1e-10)


def test_flow_is_the_limit_of_small_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Descent is Euler's method for the flow: half the rate, half the error."""
    errors = []
    for rate, steps in ((0.1, 60), (0.05, 120), (0.025, 240)):
        recorded = ["--training", "flow", "--until", "12", "--points", str(steps + 1), "--spacing", "linear"]
        flow = np.loadtxt(report(capsys, tmp_path, *DATA, *recorded, "--tolerance", "1e-9")["files"]["losses"])
        stepped = ["--training", "descent", "--rate", str(rate), "--until", "12"]
        descent = np.loadtxt(report(capsys, tmp_path, *DATA, *stepped)["files"]["losses"])
        np.testing.assert_allclose(flow[:, 0], descent[:, 1], rtol=1e-12)
        assert descent[-1, 0] == steps
        errors.append(np.abs(flow[:, 1] - descent[:, 2]).max())
    ratios = np.array(errors[:-1]) / np.array(errors[1:])
    # 2 + O(rate): the second-order term halves from one pair to the next.
    assert abs(ratios[1] - 2) < abs(ratios[0] - 2) < 0.5


def test_merged_drop_is_where_the_theory_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data = ["--dim", "2", "--context", "5", "--heads", "3", "--objective", "population", "--theory"]
    flags = [*data, "--scale", "1e-4", "--training", "descent", "--rate", "0.005", "--steps", "6000"]
    found = report(capsys, tmp_path, *flags, "--model", "merged")
    first, last = found["levels"]
    # A step multiplies small weights by 1 + x and not e^x, which takes 1 + x/2 times as long; x = 2 rate ‖Λ²‖_F.
    x = 2 * 0.005 * np.linalg.norm([4 / 9, 1 / 9])
    mlp = report(capsys, tmp_path, *flags, "--model", "mlp")
    for made in (found, mlp):
        step, time, loss = np.loadtxt(made["files"]["losses"]).T
        assert loss[0] == pytest.approx(first, rel=1e-6) and loss[-1] == pytest.approx(last, rel=1e-3)
        middle = np.argmax(loss < (first + last) / 2)
        (drop,) = made["predicted_drops"]
        assert abs(time[middle] / drop["time"] - 1) < x and abs(step[middle] / drop["step"] - 1) < x
    (row,) = found["drops"]
    assert abs(row["error"]) < x and row["status"] == "measured" and mlp["drops"] is None


def test_separate_drops_are_where_the_theory_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data = ["--dim", "2", "--context", "5", "--heads", "3", "--scale", "1e-3", "--theory"]
    found = report(capsys, tmp_path, *data)
    time, loss = np.loadtxt(found["files"]["losses"]).T
    assert len(found["predicted_drops"]) == 2 and found["steps"] is None
    for drop, above, below in zip(found["predicted_drops"], found["levels"][:-1], found["levels"][1:], strict=True):
        early, middle, late = (time[np.argmax(loss < below + part * (above - below))] for part in (0.95, 0.5, 0.05))
        assert abs(middle - drop["time"]) < late - early  # a drop counts as instantaneous
        assert drop["step"] is None


def test_seeds_are_predicted_as_if_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Each from its own covariance, sample and initial weights."""
    words = "--dim 2 --context 9 --objective moments --sequences 200 --scale 0.02 --heads 2 --theory".split()
    words += "--training descent --rate 0.2 --steps 1500".split()
    together = report(capsys, tmp_path, *words, "--seeds", "2", "0", "1")
    assert [row["run"] for row in together["drops"]] == [2, 2, 0, 0, 1, 1]
    for seed in (2, 0, 1):
        alone = report(capsys, tmp_path, *words, "--seed", str(seed))
        rows = [row for row in together["drops"] if row["run"] == seed]
        for row, other in zip(rows, alone["drops"], strict=True):
            assert row.keys() == other.keys()
            for name, value in row.items():
                assert value == (pytest.approx(other[name], rel=1e-6) if isinstance(value, float) else other[name])
        (own,) = (one for one in together["predictions"] if one["seed"] == seed)
        assert own["levels"] == alone["levels"] and own["learned"] == alone["learned"]
        for drop, other in zip(own["predicted_drops"], alone["predicted_drops"], strict=True):
            assert drop.pop("uncertainty") is other.pop("uncertainty") is None  # of a sample
            assert drop == pytest.approx(other, rel=1e-6)
    assert not {"levels", "learned", "predicted_drops"} & together.keys()
    assert len({row["predicted"] for row in together["drops"]}) == 6


def test_seeds_that_are_not_compared_are_predicted_each_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--dim", "2", "--model", "mlp", "--scale", "0.05", "--until", "2", "--seeds", "0", "1"]
    assert main(["train", *words, "--out", str(tmp_path), "--theory"]) == 0
    each = [experiment(*words[:-3], "--seed", str(seed)).predict().drops for seed in (0, 1)]
    said = [line for line in capsys.readouterr().out.splitlines() if "predicted drops" in line]
    assert said == [f"seed {seed}: predicted drops at t/τ = {drops[0].time:.6g}" for seed, drops in enumerate(each)]
    found = report(capsys, tmp_path, *words, "--theory", "--fresh")["predictions"]
    assert [one["predicted_drops"][0]["time"] for one in found] == [drops[0].time for drops in each]
    plain = report(capsys, tmp_path, *words, "--fresh")["predictions"]
    assert [(one["seed"], one["predicted_drops"]) for one in plain] == [(0, None)]


@pytest.mark.usefixtures("drawn_plots")
def test_a_plot_says_which_seed_is_bold_and_which_drops_come_later():
    from matplotlib.figure import Figure

    from stepwell.cli._training_files import draw

    asked = sw.Experiment(task={"dim": 2}, model={"scale": 0.1}, training={"kind": "flow", "until": 20.0}, seed=3)
    prediction, figure = asked.predict(), Figure()
    course, _ = prediction.course(20.0)
    assert course is not None
    draw(figure, asked, asked.run(seeds=[3, 4, 5], progress=False), prediction.levels, course)
    axes = figure.axes[0]
    late = ", ".join(f"{drop.time:.5g}" for drop in course.drops if drop.time > 20.0)
    assert late and axes.get_xscale() == "log"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "training, 2 other seeds",
        "training, seed 3",
        f"theory: course from the initial weights, seed 3 (after the end: {late})",
        "theory: levels, seed 3",
    ]


NO_THEORY = {
    "softmax": ["--activation", "softmax", "--objective", "sampled"],
    "mixture": ["--task", "mixture"],
    "outputs": ["--outputs", "2"],
    "tokens": ["--context", "3", "5", "--normalization", "1/tokens"],
    "regressions": ["--task", "multitask", "--dims", "3", "4", "--until", "2"],
}


@pytest.mark.parametrize("flags", NO_THEORY.values(), ids=NO_THEORY)
def test_where_there_is_no_theory_a_line_says_so(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = [] if "multitask" in flags else [*SMALL[2:], "--dim", "2"]
    assert train(tmp_path, *words, *flags, "--theory") == 0
    err = capsys.readouterr().err
    assert "nothing is drawn" in err and err.count("\n") == 1


def test_why_predicted_drops_are_missing_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--dim", "2", "--objective", "population", "--training", "descent", "--rate", "1e-30", "--steps", "5"]
    for model in ("merged", "separate"):
        assert train(tmp_path, *words, "--theory", "--model", model, "--scale", "1e3") == 0
        printed = capsys.readouterr()
        assert printed.err == "" and printed.out.count("too large") == 1
    assert train(tmp_path, *words[:-4], "--rate", "0.01", "--steps", "5", "--optimizer", "adam", "--theory") == 0
    err = capsys.readouterr().err
    assert "constant rate" in err and err.count("\n") == 1
