"""`stepwell train` brings what was trained to safety: from signals, full disks, and folders that go away."""

import argparse
import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import stepwell as sw
from stepwell._util import interrupt
from stepwell.cli import _training_files as _files
from stepwell.cli import main
from stepwell.cli._flags import chosen_store
from stepwell.cli._training_files import draw
from stepwell.dynamics import Record, _host
from stepwell.experiments import Experiment
from stepwell.trajectory import load

EXPERIMENT = sw.Experiment(
    task={"dim": 2, "context": 5},
    model={"kind": "merged", "heads": 1, "scale": 0.3},
    objective={"kind": "moments", "sequences": 40},
    training={"kind": "descent", "rate": 0.005, "steps": 500},
)
SMALL = EXPERIMENT.command()[2:]
NAME = f"merged_h1_seed0_{EXPERIMENT.name[:8]}"
INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def train(folder: Path, *flags: str) -> int:
    return main(["train", *SMALL, *flags, "--out", str(folder)])


def endings(folder: Path) -> set[str]:
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    assert all(name.endswith(".checkpoint") for name in hidden), hidden
    return {path.suffix for path in folder.iterdir() if not path.name.startswith(".")}


@pytest.fixture
def strike(monkeypatch: pytest.MonkeyPatch):
    """Raise signals when a function of a module is called for the n-th time."""

    def at(module, name: str, *signals: int, call: int = 1, urgent: bool = False) -> None:
        monkeypatch.setattr(interrupt, "_URGENT", 1e9 if urgent else -1.0)
        function, calls = getattr(module, name), []

        def struck(*arguments, **options):
            calls.append(1)
            if len(calls) == call:
                for number in signals:
                    signal.raise_signal(number)
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, struck)

    return at


@pytest.mark.parametrize("signals", [[INT], [TERM], [HUP], [INT] * 5, [TERM] * 5, [TERM, INT]], ids=str)
def test_a_signal_ends_the_training_and_all_is_saved(
    signals: list[int], tmp_path: Path, strike, capfd: pytest.CaptureFixture[str]
):
    strike(_host, "advance", *signals, call=3)
    assert train(tmp_path) == 128 + signals[0]
    err = capfd.readouterr().err
    assert endings(tmp_path) == {".nc", ".txt", ".png"}
    assert err.count("saving …") == len(signals) - 1 and "--resume" in err
    run = load(tmp_path / f"{NAME}.nc")
    assert run.attrs["outcome"] == "interrupted" and 0 < run.sizes["step"] < 500
    assert (signals[0] == INT) != (signal.Signals(signals[0]).name in run.attrs["message"])
    assert len(np.loadtxt(tmp_path / f"{NAME}.txt")) == run.sizes["step"]
    assert [signal.getsignal(number) for number in (INT, TERM)] == [signal.default_int_handler, signal.SIG_DFL]


@pytest.mark.parametrize(("module", "name", "call"), [(_host, "advance", 3), (_files, "to_bytes", 1)])
def test_pressed_three_times_within_a_second_the_trajectory_is_saved_alone(
    module, name: str, call: int, tmp_path: Path, strike, capfd: pytest.CaptureFixture[str]
):
    strike(module, name, *[INT] * 4, call=call, urgent=True)
    assert train(tmp_path) == 130
    assert endings(tmp_path) == {".nc"} and "given up" in capfd.readouterr().err
    assert load(tmp_path / f"{NAME}.nc").attrs["outcome"] == ("interrupted" if call == 3 else "finished")


@pytest.mark.parametrize("name", ["to_bytes", "write_bytes"])
@pytest.mark.parametrize("number", [INT, TERM])
def test_signals_while_the_trajectory_is_written_wait(name: str, number: int, tmp_path: Path, strike):
    strike(_files, name, number, number)
    assert train(tmp_path) == 128 + number
    assert endings(tmp_path) == {".nc", ".txt", ".png"}
    assert load(tmp_path / f"{NAME}.nc").attrs["outcome"] == "finished"


def test_giving_up_while_the_plot_is_drawn(tmp_path: Path, strike):
    strike(_files, "draw", INT, INT, INT, urgent=True)
    assert train(tmp_path) == 130
    assert endings(tmp_path) == {".nc", ".txt"}


def test_before_anything_is_trained_there_is_nothing_to_wait_for(tmp_path: Path, strike):
    strike(Record, "steps", TERM)
    assert train(tmp_path) == 143
    assert endings(tmp_path) == set()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state folder, where a run is kept that finds no room."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def kept(folder: Path) -> Path:
    (path,) = folder.rglob("*.nc")
    return path


def test_without_room_the_run_is_kept_elsewhere_and_can_be_resumed(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with monkeypatch.context() as patch:

        def full(path: Path, data: bytes, **options) -> Path:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(_files, "write_bytes", full)
        assert train(tmp_path / "runs") == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "No space left on device" in err and str(kept(elsewhere)) in err
    assert endings(tmp_path / "runs") == set()
    shutil.move(kept(elsewhere), tmp_path / "runs")
    assert train(tmp_path / "runs", "--steps", "600", "--resume") == 0
    assert "resuming from step 500" in capsys.readouterr().out


def test_a_text_without_room_is_an_error_and_the_trajectory_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    write = _files.write_bytes

    def nearly_full(path: Path, data: bytes, **options) -> Path:
        if path.suffix == ".txt":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data, **options)

    monkeypatch.setattr(_files, "write_bytes", nearly_full)
    assert train(tmp_path) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "No space" in err and f"{NAME}.nc" in err and endings(tmp_path) == {".nc"}


def test_a_real_limit_on_files_is_no_crash(tmp_path: Path):
    """A limit of the process on the size of files stands for a full disk, on which HDF5 crashed at exit."""
    limited = ["sh", "-c", 'ulimit -f 4; exec "$0" -m stepwell train "$@"', sys.executable]
    done = subprocess.run(
        [*limited, *SMALL, "--out", tmp_path / "runs"],
        # Bytecode would be cut off, too, and stay.
        env=os.environ
        | {"XDG_STATE_HOME": str(tmp_path / "state"), "STEPWELL_CACHE": "off", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    checkpoint, last = done.stderr.splitlines()
    assert "the checkpoint" in checkpoint and "File too large" in last and done.stdout == ""
    assert endings(tmp_path / "runs") == set() and not list(tmp_path.rglob("*.nc"))


def test_a_folder_that_was_removed_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def removed(*arguments, **options):
        trajectory = run(*arguments, **options)
        shutil.rmtree(tmp_path / "runs")
        return trajectory

    run = Experiment.run
    monkeypatch.setattr(Experiment, "run", removed)
    assert train(tmp_path / "runs") == 0
    assert endings(tmp_path / "runs") == {".nc", ".txt", ".png"}


def test_a_folder_that_became_a_file_does_not_take_the_run_with_it(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def changed(*arguments, **options):
        trajectory = run(*arguments, **options)
        shutil.rmtree(tmp_path / "runs")
        (tmp_path / "runs").touch()
        return trajectory

    run = Experiment.run
    monkeypatch.setattr(Experiment, "run", changed)
    assert train(tmp_path / "runs") == 2
    assert str(kept(elsewhere)) in capsys.readouterr().err


@pytest.mark.parametrize("place", [3, 5000, -200, -70, -2])
def test_a_damaged_run_is_not_resumed(place: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert train(tmp_path) == 0
    path = tmp_path / f"{NAME}.nc"
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)
    capsys.readouterr()
    assert train(tmp_path, "--resume") == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "checksum" in err and path.read_bytes() == content


def test_a_run_that_another_program_wrote_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert train(tmp_path) == 0
    path = tmp_path / f"{NAME}.nc"
    load(path).to_netcdf(path, engine="h5netcdf")
    assert train(tmp_path, "--resume") == 2
    assert "no checksum" in capsys.readouterr().err


def test_a_loss_that_is_never_finite_is_no_interruption(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert train(tmp_path, "--scale", "1e50", "--eigenvalues", "1e50", "1e49") == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "not finite at step 0" in err and list(tmp_path.iterdir()) == []


def test_what_is_finite_is_drawn(tmp_path: Path):
    watched = EXPERIMENT.replace(model={"heads": 2}, record={"value_weights": True, "test_sequences": 40})
    run = watched.run(progress=False)
    run["loss"].values[0, 100:] = [1e308, np.inf, np.nan] * 133 + [0, 1]
    run["in_context_test_loss"].values[:] = np.nan
    run["in_weight_test_loss"].values[0, 1:] = np.inf
    run["value_weight"].values[0, :, 0] = np.linspace(-1.0, 1.0, 501) * 1e308
    figure = Figure()
    FigureCanvasAgg(figure)
    draw(figure, watched, run, watched.predict().levels, None)
    figure.savefig(tmp_path / "a.png")
    curve = figure.axes[0].lines[0].get_ydata()
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(curve)), [*range(100), 499, 500])
    assert 0 < figure.axes[0].get_ylim()[1] < 10


@pytest.mark.usefixtures("drawn_plots")
@pytest.mark.parametrize(
    "flags", [["--rate", "1e50"], ["--rate", "1e50", "--context", "2", "5", "--value-weights"]], ids=" ".join
)
def test_a_run_of_which_little_is_finite_has_a_plot(flags: list[str], tmp_path: Path):
    assert train(tmp_path, *flags) == 1
    assert endings(tmp_path) == {".nc", ".txt", ".png"}


@pytest.mark.parametrize(
    ("flag", "variable", "kept"), [("off", "runs", False), (None, "off", False), ("runs", "off", True)]
)
def test_a_store_is_switched_off_by_its_flag_or_by_the_variable(flag, variable, kept, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPWELL_STORE", variable)
    assert (chosen_store(argparse.Namespace(store=flag)) is not None) == kept
    assert not Path("off").exists()


@pytest.mark.parametrize(
    "words", [["train", *SMALL], ["sweep", "study.toml"], ["runs", "ls"]], ids=lambda words: words[0]
)
def test_no_folder_is_made_of_off_and_an_empty_name_is_refused(words, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(f"{EXPERIMENT.to_toml()}\n[sweep]\nseed = [0]\n")
    there = {*Path().iterdir()}
    assert main([*words, "--store", ""]) == 2
    assert "the store is ''; name a folder (. is this one), or write off for no store" in capsys.readouterr().err
    assert {*Path().iterdir()} == there
    assert main([*words, "--store", "off"]) == (0 if words[0] == "train" else 2)
    assert (
        words[0] == "train" or "the store is off, so that there is no store; name a folder" in capsys.readouterr().err
    )
    assert not Path("off").exists() and not Path("shards").exists() and not Path("stepwell-runs").exists()
