"""What is taken away from the page can be opened, and makes the same run."""

import csv
import io
import json
import shlex
import subprocess
import sys
import zipfile
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import stepwell as sw
from stepwell._util.errors import InvalidInput
from stepwell.cli import main
from stepwell.experiments import Experiment
from stepwell.explorer._downloads import KINDS, download, store_run
from stepwell.explorer._state import State
from stepwell.explorer._stored import Library
from stepwell.explorer._view import view
from stepwell.store import Store

SMALL = {"task.dim": "2", "model.heads": "2", "model.scale": "0.2"}
STATES = {
    "flow": SMALL,
    "merged": {
        **SMALL,
        "model.kind": "merged",
        "training.kind": "descent",
        "training.rate": "0.2",
        "training.steps": "300",
    },
    "softmax": {"task.kind": "multitask", "task.dims": "3,4", "model.heads": "2", "model.scale": "0.05"},
    "sequences": {
        **SMALL,
        "model.activation": "softmax",
        "objective.sequences": "40",
        "task.context": "9",
        "training.steps": "200",
        "training.rate": "0.05",
    },
}
TOLERANCE = {"flow": 1e-12, "softmax": 1e-5, "merged": 1e-12, "sequences": 1e-12}
"""The flow of several regressions amplifies rounding on its way off a saddle."""


def read(name):
    state, problems = State.read(STATES[name])
    assert not problems
    return state


def final_loss(report):
    return json.loads(report)["final_loss"]["train"]


def file_of(kind, *names):
    name, media, content = download([read(each) for each in names], kind)
    assert media and isinstance(content, bytes) and "/" not in name
    return name, content


@pytest.mark.parametrize("name", STATES)
def test_figures_open(name):
    assert ElementTree.fromstring(file_of("svg", name)[1]).tag.endswith("svg")
    assert file_of("pdf", name)[1].startswith(b"%PDF-")


def test_figures_of_several_configurations():
    assert ElementTree.fromstring(file_of("svg", "flow", "merged", "softmax")[1]).tag.endswith("svg")


@pytest.mark.parametrize("name", STATES)
def test_netcdf_is_the_run_of_the_experiment(name, tmp_path):
    path = tmp_path / "run.nc"
    path.write_bytes(file_of("netcdf", name)[1])
    run, made = sw.load(path), view(read(name))
    assert Experiment.of(run) == read(name).run
    if "step" in run.dims:  # the page shows the points at which there are weights, of losses at every step
        assert run.sizes["step"] == read(name).run.training.steps + 1
        run = run.sel(step=run["snapshot"].values)
    np.testing.assert_allclose(run["loss"].values[0], made["loss"], rtol=TOLERANCE[name])
    np.testing.assert_allclose(run["time"].values, made["time"], rtol=10 * TOLERANCE[name])
    assert run["time"].attrs["units"] == made["time_unit"] and made["time_unit"].startswith("t/tau")


@pytest.mark.parametrize("name", STATES)
def test_toml_is_the_experiment(name, tmp_path):
    path = tmp_path / "run.toml"
    path.write_bytes(file_of("toml", name)[1])
    assert Experiment.read(path) == read(name).run


def test_csv_has_what_the_page_shows():
    state = read("merged")
    rows = list(csv.DictReader(io.StringIO(file_of("csv", "merged")[1].decode())))
    made = view(state)
    losses = [row for row in rows if row["quantity"] == "loss"]
    np.testing.assert_array_equal([float(row["value"]) for row in losses], made["loss"])
    np.testing.assert_array_equal([float(row["time_t_over_tau"]) for row in losses], made["time"])
    np.testing.assert_array_equal([int(row["step"]) for row in losses], made["steps"])
    heads = {row["index"] for row in rows if row["quantity"] == "values"}
    assert heads == {"1", "2"} and {row["configuration"] for row in rows} == {"a"}
    assert [row["index"] for row in rows if row["quantity"] == "map"][0] == "1:1"


def test_an_animation_moves():
    film = Image.open(io.BytesIO(file_of("gif", "merged")[1]))
    assert getattr(film, "n_frames", 1) > 5


def test_several_configurations_are_an_archive_where_a_file_has_one():
    name, content = file_of("netcdf", "flow", "merged")
    assert name.endswith(".zip")
    assert zipfile.ZipFile(io.BytesIO(content)).namelist() == ["explorer_run-a.nc", "explorer_run-b.nc"]


@pytest.mark.parametrize("name", STATES)
def test_the_command_makes_the_same_run(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("STEPWELL_STORE", "off")
    words = shlex.split(file_of("command", name)[1].decode())
    assert words[:2] == ["stepwell", "train"]
    assert main([*words[1:], "--json", "--out", str(tmp_path)]) == 0
    np.testing.assert_allclose(final_loss(capsys.readouterr().out), view(read(name))["loss"][-1], rtol=TOLERANCE[name])


SCRIPTS = ("flow", "sequences")
EACH = "import os, runpy, sys\nfor one in sys.argv[1:]: os.chdir(one); runpy.run_path('explorer_run.py'); print('END')"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder and the output of each script, one after another in one process, with names of their own."""
    folders = [tmp_path_factory.mktemp(name) for name in SCRIPTS]
    for name, folder in zip(SCRIPTS, folders, strict=True):
        file, content = file_of("script", name)
        assert file == "explorer_run.py"  # called like the package it would import itself
        (folder / file).write_bytes(content)
    ended = subprocess.run([sys.executable, "-c", EACH, *folders], capture_output=True, text=True, check=True)
    return dict(zip(SCRIPTS, zip(folders, ended.stdout.split("END\n"), strict=False), strict=True))


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_makes_the_same_run(name, ran):
    folder, output = ran[name]
    loss = float(output.splitlines()[0].removeprefix("final loss "))
    # Ten digits are printed.
    np.testing.assert_allclose(loss, view(read(name))["loss"][-1], rtol=max(TOLERANCE[name], 1e-9))
    assert (folder / "explorer_run.png").exists()
    if name == "flow":
        drop = view(read(name))["table"]["rows"][0]
        assert f"{drop[5]:.2f}"[:4] in output


def test_files_of_users_kinds_name_their_file(own_kinds, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("STEPWELL_STORE", "off")
    state, problems = State.read({"model.kind": "gated", "training.steps": "20", "objective.sequences": "30"})
    assert not problems
    last = view(state)["loss"][-1]
    path = tmp_path / "explorer_run.py"
    path.write_bytes(download([state], "script")[2])
    ended = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path, check=True)
    np.testing.assert_allclose(float(ended.stdout.split()[2]), last, rtol=1e-9)
    words = shlex.split(download([state], "command")[2].decode())
    assert words[-2:] == ["--with", str(own_kinds)]
    assert main([*words[1:], "--json", "--out", str(tmp_path)]) == 0
    np.testing.assert_allclose(final_loss(capsys.readouterr().out), last, rtol=1e-12)


@pytest.mark.parametrize("name", ["flow", "softmax"])
def test_a_run_is_stored_and_opened_again(name, tmp_path):
    state, library, store = read(name), Library(str(tmp_path / "store")), Store(str(tmp_path / "store"))
    stored = store_run(state, store)
    assert [row[0] for row in library.runs()["rows"]] == [stored]
    opened, made = library.run_view(stored), view(state)
    np.testing.assert_allclose(opened["loss"], made["loss"], rtol=TOLERANCE[name])
    np.testing.assert_allclose(opened["time"], made["time"], rtol=10 * TOLERANCE[name])
    assert opened["mode"] == "stored" and opened["kind"] == made["kind"] and stored == state.run.name
    assert store_run(state, store) == stored


def test_a_run_that_diverges_is_not_stored(tmp_path):
    state, _ = State.read({**STATES["merged"], "training.rate": "50"})
    with pytest.raises(InvalidInput, match="diverged"):
        store_run(state, Store(str(tmp_path / "store")))


def test_there_is_no_other_kind_and_none_of_stored_runs():
    with pytest.raises(InvalidInput, match="no download"):
        download([State.read({})[0]], "exe")
    for kind in KINDS:
        with pytest.raises(InvalidInput, match="stored"):
            download([State.read({"mode": "stored"})[0]], kind)


def test_what_the_page_does_not_finish_in_time_is_neither_stored_nor_recorded(monkeypatch, tmp_path):
    monkeypatch.setattr("stepwell.explorer._training.SECONDS", 0.0)
    state, _ = State.read({**STATES["sequences"], "seed": "77"})  # of no other test, whose view would be kept
    library = Library(str(tmp_path / "store"))
    store = library.store
    assert store is not None
    for make in (lambda: store_run(state, store), lambda: download([state], "netcdf")):
        with pytest.raises(InvalidInput, match="of 200 steps"):
            make()
    assert library.runs()["total"] == 0
