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
from stepwell._errors import InvalidInput
from stepwell.cli import main
from stepwell.explorer import State
from stepwell.explorer._downloads import KINDS, download
from stepwell.explorer._stored import Library
from stepwell.explorer._view import view
from stepwell.explorer._whole import store_run
from stepwell.runs import Store

SMALL = {"dim": "2", "heads": "2", "init": "0.2"}
STATES = {
    "flow": SMALL,
    "merged": {**SMALL, "model": "merged", "dynamics": "descent", "lr": "0.02", "epoch": "300"},
    "softmax": {"mode": "softmax", "dims": "3,4", "heads": "2", "init": "0.05"},
    "sequences": {**SMALL, "model": "softmax", "sequences": "40", "context": "9", "epoch": "200", "lr": "0.05"},
}
TOLERANCE = {"flow": 1e-5, "softmax": 1e-5, "merged": 1e-12, "sequences": 1e-12}
"""That of the flow is 1e-6 a step on the page."""


def read(name):
    state, problems = State.read(STATES[name])
    assert not problems
    return state


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


@pytest.mark.parametrize("name", ["flow", "merged", "softmax"])
def test_netcdf_is_the_trajectory_of_stepwell_train(name, tmp_path):
    path = tmp_path / "run.nc"
    path.write_bytes(file_of("netcdf", name)[1])
    run = sw.load(path)
    last = view(read(name))["loss"][-1]
    np.testing.assert_allclose(float(run["loss"][0, -1]), last, rtol=TOLERANCE[name])


def test_csv_has_what_the_page_shows():
    state = read("merged")
    rows = list(csv.DictReader(io.StringIO(file_of("csv", "merged")[1].decode())))
    made = view(state)
    losses = [float(row["value"]) for row in rows if row["quantity"] == "loss"]
    np.testing.assert_array_equal(losses, made["loss"])
    heads = {row["index"] for row in rows if row["quantity"] == "values"}
    assert heads == {"1", "2"} and {row["configuration"] for row in rows} == {"a"}
    assert [row["index"] for row in rows if row["quantity"] == "map"][0] == "1:1"


def test_a_film_moves():
    film = Image.open(io.BytesIO(file_of("gif", "merged")[1]))
    assert getattr(film, "n_frames", 1) > 5


def test_several_configurations_are_an_archive_where_a_file_has_one():
    name, content = file_of("netcdf", "flow", "merged")
    assert name.endswith(".zip")
    assert zipfile.ZipFile(io.BytesIO(content)).namelist() == ["stepwell-a.nc", "stepwell-b.nc"]


@pytest.mark.parametrize("name", STATES)
def test_the_command_makes_the_same_run(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("STEPWELL_STORE", "off")
    words = shlex.split(file_of("command", name)[1].decode())
    assert words[:2] == ["stepwell", "train"]
    assert main([*words[1:], "--json", "--out", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(report["final_loss"]["train"], view(read(name))["loss"][-1], rtol=TOLERANCE[name])


@pytest.mark.parametrize("name", ["flow", "sequences"])
def test_the_script_makes_the_same_run(name, tmp_path):
    path = tmp_path / "run.py"
    path.write_bytes(file_of("script", name)[1])
    ended = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path, check=True)
    loss = float(ended.stdout.splitlines()[0].removeprefix("final loss "))
    # Ten digits are printed.
    np.testing.assert_allclose(loss, view(read(name))["loss"][-1], rtol=max(TOLERANCE[name], 1e-9))
    assert (tmp_path / "run.png").exists()


@pytest.mark.parametrize("name", ["flow", "softmax"])
def test_a_run_is_stored_and_opened_again(name, tmp_path):
    state, library, store = read(name), Library(str(tmp_path / "store")), Store(str(tmp_path / "store"))
    stored = store_run(state, store)
    assert [row[0] for row in library.runs()["rows"]] == [stored]
    opened, made = library.run_view(stored), view(state)
    np.testing.assert_allclose(opened["loss"][-1], made["loss"][-1], rtol=TOLERANCE[name])
    np.testing.assert_allclose(opened["time"][-1], made["time"][-1], rtol=1e-12)
    assert opened["mode"] == "stored" and opened["kind"] == made["mode"]
    assert store_run(state, store) == stored


def test_a_run_that_diverges_is_not_stored(tmp_path):
    state, _ = State.read({**SMALL, "dynamics": "descent", "lr": "1", "epoch": "200", "init": "1"})
    with pytest.raises(InvalidInput, match="diverged"):
        store_run(state, Store(str(tmp_path / "store")))


def test_there_is_no_other_kind_and_none_of_stored_runs():
    with pytest.raises(InvalidInput, match="no kind"):
        download([State.default()], "exe")
    for kind in KINDS:
        with pytest.raises(InvalidInput, match="stored"):
            download([State.default("stored")], kind)


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
