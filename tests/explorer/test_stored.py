"""Runs of a store and figures of a reproduction, and nothing else on the disk."""

import json

import numpy as np
import pytest

from stepwell._errors import InvalidInput
from stepwell.explorer import State
from stepwell.explorer._stored import Library
from stepwell.explorer._view import view
from stepwell.probes import compare, convention
from stepwell.published import run_in, training
from stepwell.runs import save_run


def trained(library, **fields):
    run = run_in(fields)
    setup = training.set_up(run.flags, run.engine, run.beyond)
    made = training.train(setup, None)
    save_run(library.store, setup, made)
    return made


@pytest.fixture
def library(tmp_path):
    figures = tmp_path / "reproduction" / "figures"
    figures.mkdir(parents=True)
    for name in ("linear-fig3.svg", "linear-fig3.png", "notes.txt"):
        (figures / name).write_text("<svg/>")
    (tmp_path / "secret.svg").write_text("secret")
    (figures / "link.svg").symlink_to(tmp_path / "secret.svg")
    claim = {"paper": "linear", "figure": "fig3", "statement": "it falls", "passed": True}
    figure = {"name": "linear/fig3", "title": "A staircase", "caption": "Loss."}
    document = {"claims": [claim], "figures": [figure]}
    (tmp_path / "reproduction" / "claims.json").write_text(json.dumps(document))
    return Library(str(tmp_path / "store"), str(tmp_path / "reproduction"))


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"model": "attnS", "heads": 2, "dim": 2, "spectrum": "white", "engine": "population"}, "linear"),
        ({"dims": [3, 4], "engine": "population"}, "softmax"),
        ({"model": "mlp", "cubic_feat": True, "in_dim": 2, "trainset_size": 50}, "curve"),
        ({"in_dim": 2, "trainset_size": 50, "optimiser": "adam"}, "curve"),
    ],
)
def test_any_run_of_the_store_has_a_view(library, fields, kind):
    made = trained(library, epoch=40, lr=0.02, **fields)
    ((name, *_),) = library.runs()["rows"]
    opened = view(State.read({"mode": "stored", "run": name})[0], library=library)
    assert (opened["mode"], opened["kind"], opened["name"]) == ("stored", kind, name)
    steps = opened["steps"].round().astype(int)
    np.testing.assert_array_equal(opened["loss"], made["loss"].values[0, steps])
    assert opened["scalars"]["final_loss"] == opened["loss"][-1]


def test_drops_are_measured_on_every_recorded_loss(library):
    """Weights are recorded at every tenth step alone, and the loss has fallen by the second of them."""
    fields = {"model": "attnM", "heads": 3, "in_dim": 3, "engine": "population", "init": 0.02, "lr": 0.01}
    made = trained(library, epoch=1000, **fields)
    ((name, *_),) = library.runs()["rows"]
    opened = library.run_view(name)
    run = run_in(fields | {"epoch": 1000})
    setup = training.set_up(run.flags, run.engine, run.beyond)
    expected = compare(made, setup.task)["measured"] * convention(made, setup.task).unit  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(opened["measured_times"], expected, rtol=1e-9)
    assert opened["table"]["rows"][0][opened["table"]["columns"].index("measured time")] == opened["measured_times"][0]


@pytest.mark.parametrize(
    ("fields", "finite"),
    [
        ({"in_dim": 2, "engine": "population"}, False),
        ({"in_dim": 2, "engine": "moments", "trainset_size": 50}, True),
        ({"dims": [3, 4], "engine": "population"}, False),
        ({"dims": [3, 4], "engine": "sampled", "trainset_size": 50}, True),
    ],
)
def test_a_run_on_finitely_many_sequences_says_what_its_predictions_are_for(library, fields, finite):
    trained(library, epoch=20, lr=0.01, **fields)
    ((name, *_),) = library.runs()["rows"]
    remark = library.run_view(name)["remark"]
    assert ("infinitely many sequences, and the run is on 50 of them" in remark) == finite


def test_runs_are_listed_with_filters(library):
    assert library.runs() == {"columns": [], "rows": [], "total": 0}
    for seed in (1, 2):
        trained(library, in_dim=2, engine="population", epoch=20, seed=seed)
    assert library.runs()["total"] == 2
    listed = library.runs(["seed=2"])
    assert listed["rows"][0][listed["columns"].index("seed")] == 2 and listed["total"] == 1
    with pytest.raises(InvalidInput):
        library.runs(["final_loss<<"])


@pytest.mark.parametrize("name", ["../secret", "ffff", "zz", "name=1", "*"])
def test_what_names_no_run_is_said(library, name):
    trained(library, in_dim=2, engine="population", epoch=20)
    with pytest.raises(InvalidInput):
        library.run_view(name)
    made = view(State("stored", {"run": name, "figure": ""}), library=library)
    assert list(made["problems"]) == ["run"] and "time" not in made


def test_figures_are_those_of_the_folder(library):
    (figure,) = library.figures()
    assert figure["name"] == "linear-fig3" and sorted(figure["files"]) == ["png", "svg"]
    assert (figure["title"], figure["claims"]) == ("A staircase", [["it falls", True]])
    assert library.figure("linear-fig3") == ("image/svg+xml", b"<svg/>")


@pytest.mark.parametrize("name", ["link", "notes", "../claims", "../../secret", "", "linear-fig3.svg", "/etc/passwd"])
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
