"""`stepwell replay` as it is typed."""

import json
import subprocess
import sys
from pathlib import Path

import by_hand
import numpy as np
import pytest

from stepwell.cli import main

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def good(tmp_path: Path) -> str:
    return str(by_hand.write(tmp_path / "good.npz", by_hand.recording("attnM", tests=("iwl", "icl"))))


@pytest.fixture
def bad(tmp_path: Path) -> str:
    path = tmp_path / "bad.npz"
    path.write_text("nothing")
    return str(path)


def test_json(good: str, capsys: pytest.CaptureFixture[str]):
    assert main(["replay", good, good, "--json", "--engine", "sampled"]) == 0
    printed = capsys.readouterr()
    first, second = json.loads(printed.out)
    assert first["file"] == second["file"] == good and first["engine"] == "sampled"
    assert first["steps"] == 40 and first["seconds"] > 0
    assert set(first["curves"]) == {"loss", "loss_iwl", "loss_icl"}
    assert first["max_abs_error"] == max(first["curves"].values()) < 1e-11
    assert first["weights_error"] < 1e-11
    assert printed.err == ""


def test_table(good: str, capsys: pytest.CaptureFixture[str]):
    assert main(["replay", good]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    for word in (good, "moments", "40 steps", " ok ", "loss ", "loss_iwl ", "loss_icl ", "weights "):
        assert word in line


@pytest.mark.parametrize("change", ["rate", "weight"])
def test_a_change_of_one_per_cent_is_noticed(change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with np.load(DATA / "attnM_linear.npz", allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    if change == "rate":
        config = json.loads(str(arrays["config"]))
        arrays["config"] = json.dumps(config | {"lr": 1.01 * config["lr"]})
    else:
        arrays["init_key_query"][0, 0, 0] *= 1.01
    path = str(by_hand.write(tmp_path / "changed.npz", arrays))
    assert main(["replay", path, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["max_abs_error"] > 5e-6 and found["followed"] < found["steps"] == found["reproducible"]


def test_the_tolerance_decides(good: str, capsys: pytest.CaptureFixture[str]):
    assert main(["replay", good, "--tolerance", "0"]) == 1
    assert "MISMATCH" in capsys.readouterr().out


def test_a_bad_file_is_reported_and_the_others_run(good: str, bad: str, capsys: pytest.CaptureFixture[str]):
    assert main(["replay", bad, good, bad, "--json"]) == 2
    printed = capsys.readouterr()
    assert [found["file"] for found in json.loads(printed.out)] == [good]
    assert len(printed.err.splitlines()) == 2 and printed.err.startswith(f"stepwell replay: {bad}")


def test_what_was_done_before_an_interruption_is_kept(
    good: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def interrupt(path: str):
        raise KeyboardInterrupt

    from stepwell.experiments.recorded import load

    monkeypatch.setattr(
        "stepwell.experiments.recorded.load", lambda path: load(path) if path == good else interrupt(path)
    )
    assert main(["replay", good, "next.npz", "--json"]) == 130
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)) == 1 and "1 of 2" in printed.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["x.npz", "--engine", "flow"],
        ["x.npz", "--tolerance", "nan"],
        ["x.npz", "--tolerance=-1"],
        ["x.npz", "--jsno"],
    ],
)
def test_bad_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["replay", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1


def test_help_does_not_import_jax():
    code = "import sys; from stepwell.cli import main\ntry: main(['replay', '--help'])\nexcept SystemExit: pass\n"
    done = subprocess.run([sys.executable, "-c", code + "sys.exit('jax' in sys.modules)"], capture_output=True)
    assert done.returncode == 0 and b"--tolerance" in done.stdout
