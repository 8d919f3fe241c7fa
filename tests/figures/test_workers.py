"""Figures made side by side, in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepwell.figures import _workers, reproduce

QUICKEST = ["linear/fig2", "softmax/regimes", "softmax/nonlinear"]


def test_side_by_side_is_as_one_by_one(tmp_path: Path):
    two = QUICKEST[:2]
    told, begun = [], []
    options = {"quick": True, "begin": lambda name, title: begun.append(name)}
    apart = reproduce(two, out=tmp_path / "a", jobs=2, tell=lambda entry, claims: told.append(entry["name"]), **options)
    assert sorted(begun) == sorted(told) == sorted(two)
    alone = reproduce(two, out=tmp_path / "b", **options)
    assert apart.passed == alone.passed and not apart.interrupted
    assert [claim["statement"] for claim in apart.document["claims"]] == [
        claim["statement"] for claim in alone.document["claims"]
    ]
    for one, other in zip(apart.document["claims"], alone.document["claims"], strict=True):
        assert one["measured"] == pytest.approx(other["measured"], rel=1e-6, abs=1e-9)
    for path in (tmp_path / "b" / "figures").iterdir():
        assert (tmp_path / "a" / "figures" / path.name).is_file()


@pytest.mark.parametrize("quick", [True, False])
def test_only_quick_figures_are_compiled_without_optimizing(quick: bool):
    """A line that is dead from the start ends the process's work at once."""
    program = (
        "import os, multiprocessing\nfrom stepwell.figures import _workers\n"
        "near, far = multiprocessing.Pipe()\nnear.close()\n_workers._end_with_parent = lambda: None\n"
        f"_workers._work(far, _workers.Request({quick}, {{}}, None), set(), True)\nprint(os.environ['XLA_FLAGS'])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ("--xla_backend_optimization_level=0" in run.stdout.split()) == quick


def test_a_process_that_dies_costs_its_figure_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The second figure's process is killed as it begins; the third is made by a new one."""
    send = _workers._Worker.send

    def murderous(worker, name):
        send(worker, name)
        if name == QUICKEST[1]:
            os.kill(worker.process.pid, signal.SIGKILL)

    monkeypatch.setattr(_workers._Worker, "send", murderous)
    names = [QUICKEST[1], QUICKEST[0]]
    done = reproduce(names, quick=True, out=tmp_path, jobs=2)
    by_name = {entry["name"]: entry for entry in done.document["figures"]}
    assert by_name[QUICKEST[1]]["error"] == "its process ended with status -9" and not done.passed
    assert done.problem == f"1 of 2 figures ended in an error ({QUICKEST[1]})"
    assert by_name[QUICKEST[0]]["status"] == "done"


OWN = """
import os, shutil
from pathlib import Path
from dataclasses import dataclass
import matplotlib.figure
from stepwell.figures import Figure, Origin
numbers = {"predicted": 1, "measured": 1, "basis": "b"}
claims = lambda data, settings: [Origin("check", "counting").close("one", "one is one", **numbers)]
draw = lambda data, settings: matplotlib.figure.Figure()
def simulate(settings):
    REMOVE and shutil.rmtree(os.environ["OUT"], ignore_errors=True)
    return {}
@dataclass(frozen=True)
class Settings: pass
FIGURE = Figure(title="A figure", caption="Mine.", settings=Settings(), simulate=simulate, claims=claims, draw=draw)
"""
SCRIPT = """
import os
from stepwell.figures import FIGURES
from stepwell.figures import reproduce
FIGURES.update({"linear/own1": "own1", "linear/own2": "own2"})
done = reproduce(["linear/own1", "linear/own2"], jobs=2, out=os.environ["OUT"])
print(done.passed, [entry["error"] for entry in done.document["figures"]], done.problem)
"""


def run_script(folder: Path, *, remove: bool = False, by_stdin: bool = False) -> str:
    """What a script without `if __name__ == "__main__"` prints that makes two figures of its own side by side."""
    for name in ("own1.py", "own2.py"):
        (folder / name).write_text(OWN.replace("REMOVE", str(remove)))
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-" if by_stdin else "script.py"]
    environment = {**os.environ, "OUT": str(folder / "out"), "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    with open(folder / "script.py") as script:
        run = subprocess.run(
            command, stdin=script, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
        )
    assert run.stderr == "" and run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("by_stdin", [False, True])
def test_a_script_need_not_ask_whether_it_is_the_main_one(tmp_path: Path, by_stdin: bool):
    """Spawned processes import the script that spawns them: it would spawn again, or is not to be found at all."""
    assert run_script(tmp_path, by_stdin=by_stdin) == "True [None, None] None\n"


def test_a_folder_that_a_process_cannot_write_to_ends_the_run(tmp_path: Path):
    printed = run_script(tmp_path, remove=True)
    assert printed.startswith(
        f"False [] cannot write to {tmp_path / 'out'} (No such file or directory); 0 of 2 figures"
    )


def test_interrupted_side_by_side(tmp_path: Path):
    """Ctrl-C goes to all processes of the terminal: none goes on, no half-written file stays, the report is whole."""
    command = [sys.executable, "-m", "stepwell", "reproduce", *QUICKEST, "linear/fig5", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    run = subprocess.Popen(
        [*command, "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline().startswith("begun: ")
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130 and "Traceback" not in err, err
    assert "claims" in json.loads((tmp_path / "claims.json").read_text())
    assert [path for path in tmp_path.rglob(".*")] == []
    with pytest.raises(ProcessLookupError):
        for _ in range(100):  # Python's own helper process may take a moment to notice
            os.killpg(run.pid, 0)
            time.sleep(0.1)


def test_processes_end_with_a_parent_that_is_killed(tmp_path: Path):
    command = [sys.executable, "-m", "stepwell", "reproduce", "linear/fig5", "linear/fig3", "--out", str(tmp_path)]
    run = subprocess.Popen([*command, "--jobs", "2"], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert run.stdout is not None
    assert run.stdout.readline().startswith("begun: ")
    run.kill()
    run.wait(timeout=20)
    with pytest.raises(ProcessLookupError):
        for _ in range(300):
            os.killpg(run.pid, 0)
            time.sleep(0.1)
    run.stdout.close()
