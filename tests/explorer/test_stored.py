"""Runs of a store and figures of a reproduction, and nothing else on the disk."""

import json

import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.experiments import Experiment, _kind, compare_run
from stepwell.explorer._state import State
from stepwell.explorer._stored import Library
from stepwell.explorer._view import view
from stepwell.store import save_run
from stepwell.sweeps import sweep

SMALL = {"task": {"dim": 2}, "training": {"kind": "descent", "steps": 20}}


def trained(library, **fields):
    made = Experiment(**fields).run(progress=False)
    save_run(library.store, made)
    return made


@pytest.fixture
def library(tmp_path):
    figures = tmp_path / "reproduction" / "figures"
    figures.mkdir(parents=True)
    for name in ("linear-fig3.svg", "linear-fig3.png", "notes.txt"):
        (figures / name).write_text("<svg/>")
    claim = {"paper": "linear", "figure": "fig3", "statement": "it falls", "passed": True}
    figure = {"name": "linear/fig3", "title": "A staircase", "caption": "Loss."}
    document = {"claims": [claim], "figures": [figure]}
    (tmp_path / "reproduction" / "claims.json").write_text(json.dumps(document))
    return Library(str(tmp_path / "store"), str(tmp_path / "reproduction"))


def test_a_store_that_is_off_is_none():
    assert Library("off").store is None and Library("off").runs()["total"] == 0
    with pytest.raises(InvalidInput, match="name a folder"):
        Library("")


DESCENT = {"kind": "descent", "steps": 40, "rate": 0.02}


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"task": {"dim": 2, "spectrum": "white"}, "training": DESCENT}, "linear"),
        ({"task": {"dim": 2}, "model": {"scale": 0.1}, "training": {"until": 50.0}}, "linear"),
        ({"task": {"dim": 2}, "model": {"normalization": "none"}, "training": DESCENT}, "linear"),
        ({"task": {"kind": "multitask", "dims": [3, 4]}, "training": DESCENT}, "softmax"),
        (
            {
                "task": {"dim": 2},
                "model": "mlp",
                "objective": {"kind": "moments", "sequences": 50},
                "training": DESCENT,
            },
            "curve",
        ),
        (
            {
                "task": {"dim": 2},
                "objective": {"kind": "moments", "sequences": 50},
                "training": {**DESCENT, "optimizer": "adam"},
            },
            "linear",
        ),
        ({"task": {"dim": 2}, "training": DESCENT, "record": {"snapshots": 2}}, "curve"),
    ],
    ids=str,
)
def test_any_run_of_the_store_has_a_view(library, fields, kind):
    made = trained(library, **fields)
    ((name, *_),) = library.runs()["rows"]
    opened = view(State.read({"mode": "stored", "run": name})[0], library=library)
    assert (opened["mode"], opened["kind"], opened["name"]) == ("stored", kind, name)
    assert Experiment.from_canonical(opened["configuration"]) == Experiment(**fields)
    np.testing.assert_array_equal(opened["loss"], made["loss"].values[0])
    if "time" in made.coords:
        np.testing.assert_allclose(opened["time"], made["time"].values, rtol=1e-14)
        assert opened["time_unit"] == made["time"].attrs["units"]
    assert opened["scalars"]["final_loss"] == opened["loss"][-1]


@pytest.mark.parametrize(("snapshots", "kind"), [(2, "curve"), (40, "linear")])
def test_a_converged_flow_of_a_sweep_has_a_view(library, snapshots, kind):
    """Each run of the sweep has times of its own."""
    record = {"points": 40, "spacing": "linear", "snapshots": snapshots}
    experiment = Experiment(task={"dim": 2}, model={"scale": 0.1}, record=record)
    sweep(experiment, {"seed": [0, 1]}, store=library.store, progress=False)
    for seed in (0, 1):
        alone = experiment.replace(seed=seed)
        opened, run = library.run_view(alone.name), alone.run(progress=False)
        assert opened["kind"] == kind and opened["outcome"] == "converged"
        np.testing.assert_allclose(opened["time"], run["time"], rtol=1e-12)
        np.testing.assert_allclose(opened["loss"], run["loss"][0], rtol=1e-12)
        if kind == "linear":
            np.testing.assert_allclose(opened["measured_times"], compare_run(run).table["measured"], rtol=1e-9)


def test_drops_are_measured_on_every_recorded_loss(library):
    """Weights are recorded at every tenth step alone, and the loss has fallen by the second of them."""
    model = {"kind": "merged", "heads": 3, "scale": 0.02, "normalization": "none"}
    made = trained(library, task={"dim": 3}, model=model, training={"kind": "descent", "steps": 1000, "rate": 0.01})
    ((name, *_),) = library.runs()["rows"]
    opened, table = library.run_view(name), compare_run(made).table
    np.testing.assert_allclose(opened["measured_times"], table["measured"], rtol=1e-9)
    np.testing.assert_allclose(opened["drop_times"], table["predicted"], rtol=1e-9)
    columns = opened["table"]["columns"]
    assert opened["table"]["rows"][0][columns.index("measured t/τ")] == opened["measured_times"][0]
    assert opened["table"]["rows"][0][columns.index("measured step")] == table["measured_step"][0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task": {"dim": 2}}, ""),
        ({"task": {"dim": 2}, "objective": {"kind": "moments", "sequences": 50}}, "those of the population"),
        ({"task": {"kind": "multitask", "dims": [3, 4]}}, ""),
        (
            {"task": {"kind": "multitask", "dims": [3, 4]}, "objective": {"kind": "reduced", "sequences": 50}},
            "infinitely many sequences, and the run is on 50 of them",
        ),
    ],
    ids=str,
)
def test_a_run_on_finitely_many_sequences_says_what_its_predictions_are_for(library, fields, said):
    trained(library, **fields, training=DESCENT)
    ((name, *_),) = library.runs()["rows"]
    remark = library.run_view(name)["remark"]
    assert said in remark and bool(said) == bool(remark)


def test_a_run_of_an_unknown_kind_is_listed_and_says_what_is_lacking(library, own_kinds, monkeypatch):
    trained(library, model={"kind": "gated", "gate": 0.3}, objective={"sequences": 20}, training={"steps": 3})
    monkeypatch.delitem(_kind._REGISTRY["model"], "gated")
    listed = library.runs(["model.kind=gated"])
    assert listed["total"] == 1
    with pytest.raises(InvalidInput, match=r"no model kind 'gated'.*--with FILE.py"):
        library.run_view(listed["rows"][0][0])


def test_runs_are_listed_with_filters(library):
    assert library.runs() == {"columns": [], "rows": [], "total": 0}
    for seed in (1, 2):
        trained(library, **SMALL, seed=seed)
    assert library.runs()["total"] == 2
    listed = library.runs(["seed=2"])
    assert listed["rows"][0][listed["columns"].index("seed")] == 2 and listed["total"] == 1
    with pytest.raises(InvalidInput):
        library.runs(["final_loss<<"])


@pytest.mark.parametrize("name", ["../secret", "ffff", "zz", "name=1", "*"])
def test_what_names_no_run_is_said(library, name):
    trained(library, **SMALL)
    with pytest.raises(InvalidInput):
        library.run_view(name)
    made = view(State("stored", {"run": name}), library=library)
    assert list(made["problems"]) == ["run"] and "time" not in made


def test_figures_are_those_of_the_folder(library):
    (figure,) = library.figures()
    assert figure["name"] == "linear-fig3" and sorted(figure["files"]) == ["png", "svg"]
    assert (figure["title"], figure["claims"]) == ("A staircase", [["it falls", True]])
    assert library.figure("linear-fig3") == ("image/svg+xml", b"<svg/>")


@pytest.mark.parametrize("name", ["notes", "../claims", "../../secret", "", "linear-fig3.svg", "/etc/passwd"])
def test_no_other_file_is_read(library, name):
    for ending in ("svg", "json", "txt"):
        with pytest.raises(InvalidInput):
            library.figure(name, ending)


@pytest.mark.parametrize("text", ["", "[]", '{"claims": 3, "figures": [{}]}', '{"claims": [], "figures": [7]}'])
def test_claims_that_cannot_be_read_are_left_out(library, text, tmp_path):
    (tmp_path / "reproduction" / "claims.json").write_text(text)
    assert library.figures()[0]["title"] == ""


def test_without_a_reproduction_there_are_no_figures(tmp_path):
    assert Library(str(tmp_path)).figures() == []
    with pytest.raises(InvalidInput):
        Library(str(tmp_path)).figure("linear-fig3")
