"""What `stepwell new` writes runs as it is, and so do the examples."""

import contextlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stepwell as sw
from stepwell.cli import main
from stepwell.experiments import Experiment
from stepwell.figures import FIGURES

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def made(kind: str, folder: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the file prints, run here as a script or as a figure."""
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        capsys.readouterr()
        if kind == "figure":
            before = dict(FIGURES)
            assert main(["reproduce", str(file), "--quick", "--jobs", "1"]) == 0
            FIGURES.clear()
            FIGURES.update(before)
        else:
            patch.syspath_prepend(str(file.parent))
            runpy.run_path(str(file), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", ["model", "task", "figure"])
def test_what_is_written_runs_as_it_is(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["new", kind, "gated-Keys2", "--out", str(tmp_path)]) == 0
    file = tmp_path / "gated_keys2.py"
    assert str(file) in capsys.readouterr().out
    text = file.read_text()
    assert f"own_{kind}" not in text and "Own" not in text
    assert {"model": "class GatedKeys2(", "task": "class GatedKeys2(", "figure": '"own/gated-keys2"'}[kind] in text
    printed = made(kind, tmp_path, file, capsys)
    if kind == "figure":
        assert "1 of 1 claims hold" in printed
        (claim,) = json.loads((tmp_path / "reproduction" / "claims.json").read_text())["claims"]
        assert [value["label"] for value in claim["values"]] == [f"seed {s}, drop {d}" for s in (0, 1) for d in (1, 2)]
    elif kind == "model":
        assert (tmp_path / "gated_keys2.nc").is_file() and (tmp_path / "gated_keys2.png").is_file()
    else:
        level, loss = (line.split()[-1].strip("[]") for line in printed.splitlines()[-2:])
        assert float(level) == pytest.approx(float(loss), abs=1e-3)


@pytest.mark.parametrize("kind", ["model", "task"])
def test_the_printed_command_trains_it(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """With fewer steps: its own fields are flags."""
    assert main(["new", kind, "my-own", "--out", str(tmp_path)]) == 0
    (command,) = re.findall("run it:  stepwell (.*)", capsys.readouterr().out)
    few = ["--steps", "20", "--gate", "0.5"] if kind == "model" else ["--until", "3", "--density", "0.25"]
    assert main([*command.split(), *few, "--out", str(tmp_path)]) == 0
    (file,) = tmp_path.glob("*.nc")
    run = sw.load(file)
    given = Experiment.of(run)
    assert (given.model.kind if kind == "model" else given.task.kind) == "my_own"
    assert sw.rerun(run, progress=False).identical(run)


def test_a_study_runs_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "study", "First-rates.toml"]) == 0
    written, command = (line.partition(":")[2].strip() for line in capsys.readouterr().out.splitlines())
    assert written == "first_rates.toml" and "own_study" not in Path(written).read_text()
    assert f"#     {command}\n" in Path(written).read_text()
    assert main([*command.split()[1:], "--store", "runs", "--limit", "50"]) == 0
    assert "2400 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "name"), [("model", "separate"), ("task", "mixture"), ("model", "json"), ("figure", "jax")]
)
def test_the_name_of_a_kind_or_module_is_refused(kind: str, name: str, tmp_path: Path, capsys):
    """The file would take its place, or could not be loaded."""
    assert main(["new", kind, name, "--out", str(tmp_path)]) == 2
    assert f"such as my_{name}" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_nothing_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "mine.py").write_text("mine")
    assert main(["new", "model", "mine", "--out", str(tmp_path)]) == 2
    assert "there already" in capsys.readouterr().err and (tmp_path / "mine.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["../up", "1st", "class", "", "two words", "a" * 100, "ü"])
def test_a_name_that_cannot_be_is_refused_in_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["new", "task", name, "--out", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "gated-keys" in message and message.count("\n") == 1 and not list(tmp_path.iterdir())


def test_it_needs_no_jax(tmp_path: Path):
    code = "import sys; from stepwell.cli import main; main(['new', 'model', 'a']); sys.exit('jax' in sys.modules)"
    run(tmp_path, "-c", code)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = shutil.copytree(ROOT / "examples", tmp_path / "examples")
    assert f"`{file.name}`" in (folder / "README.md").read_text()
    printed = made("figure" if file.stem.endswith("_figure") else "script", tmp_path, folder / file.name, capsys)
    if file.stem.endswith("_figure"):
        assert "2 of 2 claims hold" in printed
