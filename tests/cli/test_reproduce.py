"""`stepwell reproduce` as it is typed."""

import contextlib
import dataclasses
import errno
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stepwell.cli import main


def test_help_and_errors_need_no_jax():
    script = (
        "import sys; from stepwell.cli import main; code = main(sys.argv[1:]); "
        "assert 'jax' not in sys.modules; sys.exit(code)"
    )
    wrong = subprocess.run(
        [sys.executable, "-c", script, "reproduce", "linear/fig"], capture_output=True, text=True, timeout=60
    )
    assert wrong.returncode == 2 and wrong.stdout == ""
    assert wrong.stderr.count("\n") == 1 and "did you mean linear/fig" in wrong.stderr


@pytest.mark.parametrize("flags", [["--quik"], ["--out"], ["nothing/fig9"]])
def test_bad_usage(flags: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["reproduce", *flags]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1


def test_an_output_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "out").write_text("mine")
    assert main(["reproduce", "--out", str(tmp_path / "out")]) == 2
    assert "--out" in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == "mine"


def test_quick_with_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    assert main(["reproduce", "linear/fig2", "--quick", "--json", "--out", str(tmp_path)]) == 0
    printed = capfd.readouterr().out
    assert printed == (tmp_path / "claims.json").read_text()
    document = json.loads(printed)
    assert all(claim["passed"] for claim in document["claims"])
    assert [entry["name"] for entry in document["figures"]] == ["linear/fig2"]
    assert document["figures"][0]["quick"] is True
    assert (tmp_path / "index.html").is_file()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch):
    """A figure that takes no time, with one claim, which does not hold."""
    from matplotlib.figure import Figure

    from stepwell.figures import FIGURES, Origin

    numbers: Any = {"predicted": 3, "measured": 2, "tolerance": 0.5, "basis": "arithmetic"}
    claim = Origin("check", "counting").close("sum", "two is three", **numbers)
    module = importlib.import_module(FIGURES["linear/fig1"])
    parts: dict[str, Any] = {
        "paper_settings": {},
        "simulate": lambda settings: {},
        "claims": lambda data, settings: [claim],
    }
    parts["draw"] = lambda data, settings: Figure()

    def change(**further: Any) -> None:
        """Set parts of the figure."""
        monkeypatch.setattr(module, "FIGURE", dataclasses.replace(module.FIGURE, **{**parts, **further}))

    change()
    return change


def test_a_claim_that_fails_is_told(drawn, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["reproduce", "linear/fig1", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "✗ two is three" in told and "measured 2, predicted 3 ± 0.5" in told
    assert "checks: 0 of 1 hold\nunexpected: linear/fig1/sum does not hold\n" in told
    assert told.splitlines()[-1] == f"report: {tmp_path / 'index.html'}"


def test_a_figure_that_ends_in_an_error_is_no_finding(
    drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    drawn(draw=lambda data, settings: 1 / 0)
    assert main(["reproduce", "linear/fig1", "--out", str(tmp_path)]) == 3
    printed = capsys.readouterr()
    assert "✗ error in linear/fig1: ZeroDivisionError: division by zero" in printed.out
    assert printed.err == "stepwell reproduce: could not finish: 1 of 1 figures ended in an error (linear/fig1)\n"


@pytest.mark.parametrize("ending", ["claims.json", "index.html"])
def test_a_report_that_was_not_written_is_not_told(ending: str, drawn, tmp_path: Path, monkeypatch, capsys):
    replace = os.replace

    def full(source, target):
        if str(target).endswith(ending):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    assert main(["reproduce", "linear/fig1", "--out", str(tmp_path)]) == 3
    printed = capsys.readouterr()
    assert "report:" not in printed.out and not (tmp_path / "index.html").exists()
    assert "cannot write the report" in printed.err and "0 of 1 figures were done before" in printed.err


def test_an_exact_claim_is_told_without_a_tolerance(drawn, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from stepwell.figures import Origin

    counting: Any = Origin("check", "counting")
    options = {"measured": [2.0], "basis": "arithmetic"}
    claims = [
        counting.close("is", "is two", predicted=2, **options),
        counting.at_least("more", "is more than one", predicted=1, **options),
        counting.at_most("most", "is little", tolerance=3, **options),
    ]
    drawn(claims=lambda data, settings: claims)
    assert main(["reproduce", "linear/fig1", "--out", str(tmp_path)]) == 0
    told, page = capsys.readouterr().out, (tmp_path / "linear-fig1.html").read_text()
    for words in ("exactly 2", "at least 1", "at most 3"):
        assert f"predicted {words}, 1 of 1 seeds hold" in told and f">{words}<" in page
    assert "±" not in told + page


def test_a_folder_that_is_removed(
    drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "out"
    drawn(simulate=lambda settings: shutil.rmtree(folder) or {})
    assert main(["reproduce", "linear/fig1", "--out", str(folder)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"stepwell reproduce: could not finish: cannot write to {folder} (No such file")


def test_a_claims_file_that_is_not_ours(drawn, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "claims.json").write_text("mine")
    assert main(["reproduce", "linear/fig1", "--out", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("stepwell reproduce: ") and line.endswith("The file is kept as claims.json.unreadable")


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_reader_that_goes_away_is_no_problem(
    flags: list[str], drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """As `stepwell reproduce | head -1`: the report is written, and the exit status is that of its claims."""
    reader, writer = os.pipe()
    os.close(reader)
    with contextlib.suppress(OSError), open(writer, "w", encoding="utf-8") as closed:  # closing it fails again
        monkeypatch.setattr(sys, "stdout", closed)
        assert main(["reproduce", "linear/fig1", "--out", str(tmp_path), *flags]) == 1
    assert capsys.readouterr().err == ""
    (entry,) = json.loads((tmp_path / "claims.json").read_text())["figures"]
    assert entry["status"] == "done"


def test_no_standard_output_at_all(drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["reproduce", "linear/fig1", "--out", str(tmp_path)]) == 1
    assert (tmp_path / "index.html").is_file()


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_output_that_cannot_be_written_is_a_problem(
    flags: list[str], drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with contextlib.suppress(OSError), open("/dev/full", "w", encoding="utf-8") as full:  # closing it fails again
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["reproduce", "linear/fig1", "--out", str(tmp_path), *flags]) == 2
    assert capsys.readouterr().err == "stepwell: cannot write to standard output (No space left on device)\n"
    assert (tmp_path / "index.html").is_file()


def test_interrupted_in_a_run(tmp_path: Path):
    """Ctrl-C while a figure is being computed: exit 130, a report without it, no half-written file."""
    command = [sys.executable, "-m", "stepwell", "reproduce", "linear/fig1", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert run.stdout is not None
    assert run.stdout.readline().startswith("begun: linear/fig1, ")
    time.sleep(1.0)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "interrupted" in err and "Traceback" not in err
    assert json.loads((tmp_path / "claims.json").read_text())["figures"] == []
    assert [path for path in tmp_path.rglob(".*")] == []
