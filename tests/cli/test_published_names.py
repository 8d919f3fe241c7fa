"""`python train.py` never replaces the files of another run."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from stepwell.cli import _training_files as _files
from stepwell.cli import main
from stepwell.experiments import Experiment
from stepwell.trajectory import load

SMALL = ["--seq_len", "6", "--in_dim", "2", "--trainset_size", "40", "--epoch", "12", "--init", "0.3"]
NAME = "attnM_head1_D2_R1_P40_N6_seed10"


@pytest.fixture
def train(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Train, and return the report with what was said on standard error as `said`."""

    def run(*flags: str) -> dict:
        assert main(["train.py", *SMALL, *flags, "--out", str(tmp_path), "--json"]) == 0
        out, err = capsys.readouterr()
        return {**json.loads(out), "said": err}

    return run


def stem(report: dict) -> str:
    return Path(report["files"]["trajectory"]).stem


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


OTHERS = [["--lr", "0.01"], ["--softmax"], ["--white_cov"], ["--init", "0.1"], ["--epoch", "13"]]


def test_another_run_gets_a_name_of_its_own(train, tmp_path: Path):
    assert stem(train()) == NAME
    before, stems = content(tmp_path), set()
    for flags in OTHERS:
        other = train(*flags)
        assert re.fullmatch(NAME + "_[0-9a-f]{8}", stem(other))
        assert {Path(path).stem for path in other["files"].values()} == {stem(other)}
        assert other["said"].count("\n") == 1
        assert f"{NAME}.nc holds another run" in other["said"] and stem(other) in other["said"]
        assert (flags[0] if len(flags) > 1 else f"{flags[0]} False instead of True") in other["said"]
        assert before.items() <= content(tmp_path).items()
        losses, run = np.loadtxt(other["files"]["loss"]), load(other["files"]["trajectory"])
        np.testing.assert_array_equal(losses, run["loss"].values[0, : losses.size])
        stems.add(stem(other))
    assert len(stems) == len(OTHERS)


def test_a_run_finds_its_own_files_again(train, tmp_path: Path):
    flags = OTHERS[0]
    train()
    other = stem(train(*flags))
    names = set(content(tmp_path))
    assert stem(train(*flags)) == other and stem(train()) == NAME
    assert set(content(tmp_path)) == names
    for path in tmp_path.glob(f"{NAME}.*"):  # also when the first is gone
        path.unlink()
    assert stem(train(*flags)) == other
    assert stem(train()) == NAME


def test_the_same_run_replaces_itself(train, tmp_path: Path):
    train()
    (tmp_path / f"{NAME}.txt").unlink()
    assert "said" in train() and set(content(tmp_path)) == {f"{NAME}{ending}" for ending in (".nc", ".txt", ".png")}


@pytest.mark.parametrize("ending", [".txt", ".png"])
def test_a_file_without_a_trajectory_is_not_replaced(ending: str, train, tmp_path: Path):
    path = tmp_path / f"{NAME}{ending}"
    path.write_text("of the published script")
    report = train()
    assert stem(report).startswith(f"{NAME}_") and "without a trajectory" in report["said"]
    assert path.read_text() == "of the published script"


@pytest.mark.parametrize("damage", ["nonsense", "another program", "folder", "nowhere"])
def test_a_file_that_cannot_be_read_is_not_replaced(damage: str, train, tmp_path: Path, capsys):
    path = tmp_path / f"{NAME}.nc"
    if damage == "nonsense":
        path.write_text("nonsense")
    elif damage == "another program":
        xr.Dataset({"a": 1.0}).to_netcdf(path, engine="h5netcdf")
    elif damage == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "gone" / "far.nc")
    report = train()
    assert "not a run that can be read" in report["said"] and stem(report) != NAME
    assert stem(train()) == stem(report)
    own = Path(report["files"]["trajectory"])
    own.write_text("nonsense")
    assert main(["train.py", *SMALL, "--out", str(tmp_path)]) == 2
    assert "move it away" in capsys.readouterr().err and own.read_text() == "nonsense"


def test_tracked_values_are_not_mixed_up(train, tmp_path: Path):
    """Runs with and without test sets have one name for tracked values."""
    for first, second in ((["--testset", "40"], []), ([], ["--testset", "40"])):
        for path in tmp_path.iterdir():
            path.unlink()
        one = train("--track_value", *first)
        before = Path(one["files"]["value"]).read_bytes()
        two = train("--track_value", *second)
        assert Path(one["files"]["value"]).read_bytes() == before
        assert Path(two["files"]["value"]).stem.startswith(f"{NAME}_value_") and "_value" in two["said"]
        assert train("--track_value", *first)["files"] == one["files"]
        assert train("--track_value", *second)["files"] == two["files"]


def test_tracked_values_of_another_run_are_not_replaced_by_one_that_lost_its_own(train):
    one = train("--track_value", "--testset", "40")
    Path(one["files"]["value"]).unlink()
    two = train("--track_value")
    assert two["files"]["value"] == one["files"]["value"]
    again = train("--track_value", "--testset", "40")
    assert "a run with the same table" in again["said"] and not set(again["files"].values()) & set(
        two["files"].values()
    )


def test_a_run_is_extended_where_it_is_and_one_of_its_own_name_too(train, tmp_path: Path):
    train()
    other = train("--lr", "0.01")
    longer = train("--epoch", "20", "--resume")
    assert stem(longer) == NAME and longer["steps"] == 20 and "resuming from step 12" in longer["said"]
    longer = train("--lr", "0.01", "--epoch", "20", "--resume")
    assert "resuming from step 12" in longer["said"] and longer["steps"] == 20
    assert stem(longer) not in (NAME, stem(other))  # of 20 steps: the run of 12 keeps its name
    assert load(other["files"]["trajectory"]).sizes["step"] == 13
    whole = train("--lr", "0.01", "--epoch", "20")
    assert whole["files"] == longer["files"]
    shorter = train("--lr", "0.01", "--epoch", "15", "--resume")
    assert "resuming from step 12" in shorter["said"] and shorter["steps"] == 15  # of the run of 12, not of that of 20
    assert stem(train("--epoch", "12")) != NAME  # the published name is that of the run that was extended


def test_a_run_without_anything_to_resume_starts_beside_the_other(train, tmp_path: Path):
    train()
    before = content(tmp_path)
    other = train("--resume", "--lr", "0.01")
    assert "holds another run (--lr 0.001 instead of 0.01)" in other["said"]
    assert "starting from the beginning" in other["said"]
    assert before.items() <= content(tmp_path).items()


def test_of_two_runs_at_once_neither_replaces_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    """The second writes while the first is about to: both had found the published name free."""
    write, begun = _files.write_bytes, []

    def slowly(path: Path, data: bytes, **options) -> Path:
        if not begun:
            begun.append(1)
            assert main(["train.py", *SMALL, "--lr", "0.01", "--out", str(tmp_path)]) == 0
        return write(path, data, **options)

    monkeypatch.setattr(_files, "write_bytes", slowly)
    assert main(["train.py", *SMALL, "--out", str(tmp_path), "--json"]) == 0
    runs = sorted(tmp_path.glob("*.nc"))
    rates = [Experiment.of(load(path)).training.rate for path in runs]
    assert rates == [0.01, 0.001] and runs[0].stem == NAME and len(content(tmp_path)) == 6
    assert "holds another run" in capsys.readouterr().err
