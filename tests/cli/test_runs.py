"""`stepwell runs`: what is printed, as text and as JSON, and with which status."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from own_shards import shard_of

from stepwell.cli import main
from stepwell.store import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("STEPWELL_STORE", str(tmp_path / "store"))
    store = Store()
    store.add(shard_of(0))
    store.add(shard_of(5, kind="merged"))
    return store


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    status = main(["runs", *words])
    captured = capsys.readouterr()
    return status, captured.err if status == 2 else captured.out


def test_runs_are_listed(store: Store, capsys):
    status, text = called(capsys, "ls", "model=separate", "final_loss<0.25", "--sort=-final_loss")
    lines = text.splitlines()
    assert status == 0 and lines[0].startswith(
        "in all rows: model.kind=separate model.rank=2 task.eigenvalues=[0.6, 0.4]"
    )
    assert (
        sorted(lines[1].split()) == ["final_loss", "name", "outcome", "seed", "training.rate"] and lines[-1] == "3 runs"
    )
    assert [line.split()[lines[1].split().index("seed")] for line in lines[2:-1]] == ["2", "1", "0"]
    status, text = called(capsys, "ls", "--limit", "2", "--columns", "seed", "--json")
    document = json.loads(text)
    assert (
        document["total"] == 10
        and document["left_out"] == 8
        and [list(one) for one in document["runs"]] == [["name", "seed"]] * 2
    )
    assert "8 of them not shown" in called(capsys, "ls", "--limit", "2")[1]
    head = [
        "name",
        "model.kind",
        "model.rank",
        "seed",
        "task.eigenvalues",
        "training.rate",
        "final_loss",
        "outcome",
    ]  # fields, then scalars
    lines = called(capsys, "ls", "rank=7")[1].splitlines()
    assert lines[0].split() == head and lines[1:] == ["0 runs"]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("words", [["ls"], ["open"], ["export", "runs.csv", "--format", "csv"]], ids=lambda one: one[0])
def test_a_damaged_shard_is_named_and_strict_fails(store: Store, words, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["runs", *words, "--strict"]) == 0
    capsys.readouterr()
    (path, _) = store.shards()
    path.write_bytes(path.read_bytes()[:-10])
    assert main(["runs", *words, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("stepwell runs: runs of damaged shards are left out: ") and path.name in printed.err
    (damaged,) = json.loads(printed.out)["damaged"]
    assert damaged["file"] == str(path) and "cut short" in damaged["reason"]
    assert main(["runs", *words, "--strict"]) == 1 and path.name in capsys.readouterr().err


def test_a_json_document_is_whole(store: Store, capsys):
    store.add(shard_of(100, 80))
    document = json.loads(called(capsys, "ls", "--json")[1])
    assert (document["total"], document["left_out"], len(document["runs"])) == (90, 0, 90)
    assert "40 of them not shown" in called(capsys, "ls")[1]


def test_one_run_is_shown(store: Store, capsys):
    name = shard_of(0).names[3].tobytes().hex()
    text = called(capsys, "show", name[:12])[1]
    assert name in text and re.search(r"seed +3\n", text) and "loss (run: 5, step: 3)" in text
    assert json.loads(called(capsys, "show", name, "--json")[1])["scalars"]["final_loss"] == pytest.approx(0.3)


def test_what_was_recorded_is_shown_with_the_line_that_opens_it(store: Store, capsys):
    text = called(capsys, "open", "model=separate")[1]
    line = next(line for line in text.splitlines() if line.startswith("data = "))
    names: dict = {}
    exec(f"import stepwell\n{line}", names)
    assert repr(names["data"]) in text and names["data"].sizes["run"] == 5


def test_export_verify_merge_remove_and_collect(store: Store, tmp_path: Path, capsys):
    out = tmp_path / "runs.csv"
    assert called(capsys, "export", str(out), "seed<3", "--format", "csv") == (0, f"written: {out}\n")
    assert len(out.read_text().splitlines()) == 4
    assert called(capsys, "verify") == (0, "every file is as it was written\n")
    other = str(tmp_path / "other")
    assert called(capsys, "merge", str(store.path), "--store", other)[1].endswith(": 10 runs in 2 shards copied\n")
    assert called(capsys, "rm", "seed<3")[1] == "3 runs match; with --yes they are removed\n"
    assert called(capsys, "rm", "seed<3", "--yes")[1] == "3 runs removed\n" and len(store.table()) == 7
    assert called(capsys, "rm")[0] == 2 and called(capsys, "rm", "--all", "seed=3")[0] == 2
    store.shards()[0].write_bytes(b"x")
    status, text = called(capsys, "verify", "--json")
    assert status == 1 and len(json.loads(text)["problems"]) == 1
    assert called(capsys, "gc")[1] == "0 files removed\n"
    assert called(capsys, "gc", "--damaged")[1].endswith("1 files removed\n")
    assert called(capsys, "verify")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ls", "modl=separate"], "did you mean model?"),
        (["ls", "model"], "is not a filter"),
        (["ls", "--limit", "-1"], "--limit is -1"),
        (["ls", "--store", "nowhere"], "there is no store nowhere"),
        (["show", "zz"], "digits"),
        (["show", "0123456789"], "names no run"),
        (["lss"], "invalid choice"),
        ([], "ACTION"),
    ],
)
def test_refused_with_one_line(store: Store, capsys, words: list[str], message: str):
    status, text = called(capsys, *words)
    assert status == 2 and message in text and len(text.splitlines()) == 1


def test_listing_imports_no_more_than_it_needs(store: Store):
    code = (
        "import sys\nfrom stepwell.cli import main\nmain(['runs', 'ls', 'seed<3'])\n"
        "print(sorted({'jax', 'pandas', 'xarray', 'h5py', 'matplotlib'}.intersection(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
