"""Single runs in the store."""

import json
from pathlib import Path
from typing import Any

import pytest

from stepwell.cli import main
from stepwell.published import run_in
from stepwell.published.training import Setup, set_up, train
from stepwell.runs import Store, load_run, save_run
from stepwell.trajectory import load

RUNS: dict[str, dict[str, Any]] = {
    "moments": {"epoch": 60, "trainset_size": 30},
    "seeds": {"epoch": 60, "engine": "population", "seeds": ["0:3"]},
    "everything": {"epoch": 40, "trainset_size": 30, "testset_size": 30, "track_value": True, "engine": "flow"},
    "several": {"dims": [2, 3], "epoch": 40},
}


def setup_of(fields: dict[str, Any]) -> Setup:
    run = run_in(fields)
    return set_up(run.flags, run.engine, run.beyond)


@pytest.mark.parametrize("fields", RUNS.values(), ids=RUNS)
def test_what_is_kept_comes_back_as_it_was(tmp_path: Path, fields: dict[str, Any]):
    store, setup = Store(tmp_path), setup_of(fields)
    assert load_run(store, setup) is None
    trajectory = train(setup, None)
    save_run(store, setup, trajectory)
    found = load_run(store, setup)
    assert found is not None and found.identical(trajectory)
    assert load_run(store, setup_of({**fields, "init": 0.02})) is None


def trained(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    command = ["train", "--epoch", "40", "--trainset_size", "30", "--json", "--out", str(folder)]
    assert main([*command, "--store", str(folder.parent / "runs"), *words]) == 0
    said = capsys.readouterr()
    return json.loads(said.out), said.err


def test_the_same_run_is_not_trained_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    first, _ = trained(capsys, tmp_path / "a")
    calls = []

    def counting(*given: Any) -> Any:
        calls.append(given)
        return train(*given)

    monkeypatch.setattr("stepwell.published.training.train", counting)
    second, said = trained(capsys, tmp_path / "b")
    assert not calls and "--fresh" in said
    assert load(second["files"]["trajectory"]).identical(load(first["files"]["trajectory"]))
    assert Path(second["files"]["loss"]).read_bytes() == Path(first["files"]["loss"]).read_bytes()
    trained(capsys, tmp_path / "c", "--fresh")
    assert len(calls) == 1
    trained(capsys, tmp_path / "d", "--seed", "3")
    assert len(calls) == 2


def test_one_run_in_other_words_keeps_its_own_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--engine", "population"]
    trained(capsys, tmp_path / "a", *words)
    reports = [trained(capsys, tmp_path / "a", *words, "--trainset_size", "200") for _ in range(3)]
    assert len({report["files"]["trajectory"] for report, _ in reports}) == 1
    assert all("--fresh" in said for _, said in reports)


def test_a_seed_of_a_stored_ensemble_is_trained_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trained(capsys, tmp_path / "a", "--seeds", "0", "1", "2")
    assert "--fresh" not in trained(capsys, tmp_path / "b", "--seed", "0")[1]
    assert "--fresh" in trained(capsys, tmp_path / "c", "--seed", "0")[1]


def test_a_store_that_cannot_be_used_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "runs").write_text("not a folder")
    report, said = trained(capsys, tmp_path / "a")
    assert "its file is complete" in said or "cannot be read" in said
    assert load(report["files"]["trajectory"]).sizes["step"] == 41


def test_a_damaged_shard_is_trained_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trained(capsys, tmp_path / "a")
    (shard,) = (tmp_path / "runs" / "shards").rglob("*.nc")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    report, said = trained(capsys, tmp_path / "b")
    assert "--fresh" not in said
    assert load(report["files"]["trajectory"]).identical(
        load(tmp_path / "a" / Path(report["files"]["trajectory"]).name)
    )


def test_a_run_that_diverges_is_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["train", "--epoch", "200", "--trainset_size", "30", "--lr", "50", "--out", str(tmp_path / "a")]
    assert main([*words, "--store", str(tmp_path / "runs")]) == 1
    assert not (tmp_path / "runs").exists()
