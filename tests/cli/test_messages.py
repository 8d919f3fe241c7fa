"""Messages of the command line that would lead astray: nonsense suggested, a wrong number, a reason given twice."""

import json
from pathlib import Path

import numpy as np
import pytest

import stepwell as sw
from stepwell._util.text import nearest
from stepwell.cli import main
from stepwell.models import MergedAttention
from stepwell.objectives import Population
from stepwell.theory import softmax
from stepwell.theory.linear import loss_at


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


REFUSED = {
    "compare": "there is no verb compare; `stepwell train --theory` compares a run with the theory",
    "compare a.nc b.nc": "`stepwell.compare` in Python",
    "list": "`stepwell runs ls` lists runs",
    "trian": "there is no verb trian; did you mean train?",
    "frobnicate": "there is no verb frobnicate; see stepwell --help",
    "train --learning-rate 0.1": "there is no flag --learning-rate here; write --training descent --rate",
    "train --learning_rate=0.1": "write --training descent --rate",
    "train --rate 0.1": "the training kind flow has no field 'rate'; leave it out, or give --training descent",
    "train --task multitask --eigenvalues 1 2": "or give --task regression, mixture, overlapping or teacher",
    "train --head 3": "there is no flag --head; did you mean --heads?",
    "train --zzz 3": "there is no flag --zzz; see stepwell train --help",
    "train --training descent --schedule cos": "there is no schedule 'cos'; did you mean cosine?",
    "train.py --white_cov true": "there is no argument true; see train.py --help",
    "train.py --oux 3": "there is no flag --oux; did you mean --out?",
    "reproduce --list": "there is no flag --list; see stepwell reproduce --help",
    "reproduce fig99": "there is no target 'fig99'; the targets are linear, simplicity, softmax, linear/fig1,",
    "reproduce fig3": "the target fig3 is linear/fig3 or softmax/fig3; write one of them",
    "predict --dims 3 4 --init 100": "there is no flag --init here; write --scale",
    "predict --dims 3 4 --scale 100": "the task kind regression has no field 'dims'; leave it out, or give --t",
    "train --scale 1e-322 --until 1": "the initial weights are at most 2.",
}


def test_weights_that_never_move_are_said_to_be_too_small(capsys: pytest.CaptureFixture[str]):
    """Their gradient, of the order of 1e-600, is zero."""
    assert main("train --dim 2 --scale 1e-300 --store off".split()) == 1
    said = capsys.readouterr().err
    assert "the gradient of the initial weights is zero in float64" in said and "times the time" not in said


def test_weights_too_large_to_follow_are_not_said_to_be_too_small(capsys: pytest.CaptureFixture[str]):
    assert main("predict --task multitask --dims 3 4 --scale 100".split()) == 0
    said = capsys.readouterr().out
    assert "cannot be followed from omega up to 100 " in said and "begin with smaller weights" in said
    assert "of size 0.01" not in said


@pytest.mark.parametrize("line", REFUSED)
def test_refused(line: str, capsys: pytest.CaptureFixture[str]):
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert REFUSED[line] in said and said.count("\n") == 1


def test_only_what_is_near_is_suggested():
    names = ["ou", "completion", "--set", "--store", "heads", "eigenvalues", "cosine"]
    for word in ("o", "compare", "--list", "outlook", "xyz"):
        assert nearest(word, names).startswith("there are")
    for word, meant in {"head": "heads", "hedas": "heads", "eigenvalue": "eigenvalues", "cos": "cosine"}.items():
        assert nearest(word, names) == f"did you mean {meant}?"


def test_tiny_weights_are_trained(capsys: pytest.CaptureFixture[str]):
    assert main("train --dim 2 --scale 1e-300 --until 1 --store off".split()) == 0
    assert "train loss: 1 to 1" in capsys.readouterr().out


def test_filters_may_follow_flags(capsys: pytest.CaptureFixture[str]):
    for heads in "12":
        assert main(["train", "--dim", "2", "--until", "0.1", "--heads", heads, "--store", "kept"]) == 0
    lines = (
        "export a.csv heads=2 --format csv",
        "export b.csv --format csv heads=2",
        "export --format csv c.csv heads=2",
    )
    for line in lines:
        assert main(["runs", *line.split(), "--store", "kept"]) == 0
    tables = [Path(name).read_text() for name in ("a.csv", "b.csv", "c.csv")]
    assert tables[0] == tables[1] == tables[2] and tables[0].count("\n") == 2
    capsys.readouterr()
    assert main(["runs", "ls", "--json", "--store", "kept", "heads=2"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == 1
    assert main(["runs", "show", "zzz", "--store", "kept"]) == 2
    assert "the name of a run is given as 'zzz'; give the hexadecimal digits" in capsys.readouterr().err


def test_a_named_spectrum_has_the_dimension_of_the_eigenvalues_it_replaces(capsys: pytest.CaptureFixture[str]):
    Path("two.toml").write_text("[task]\neigenvalues = [0.5, 0.3]\n")
    assert main("train two.toml --white_cov".split()) == 2
    assert "write --spectrum white" in capsys.readouterr().err
    assert main("train two.toml --spectrum white --dry-run".split()) == 0
    assert "eigenvalues = [0.5, 0.5]\n" in capsys.readouterr().out
    two = sw.Experiment(task={"eigenvalues": [0.5, 0.3]})
    assert two.replace(task={"spectrum": "white"}).task.eigenvalues == (0.5, 0.5)
    assert two.replace(task={"spectrum": "white", "dim": 3}).task.eigenvalues == (1 / 3,) * 3


@pytest.mark.parametrize("model", ["separate", "merged"])
def test_too_large_weights_are_said_once_and_with_the_right_number(model: str, capsys: pytest.CaptureFixture[str]):
    """The loss itself, of each head alone; of merged heads, of the map that grows from small weights."""
    words = f"--model {model} --scale 5 --heads 2 --dim 2 --normalization 1/N".split()
    assert main(["train", *words, "--theory", "--until", "0.1", "--store", "off"]) == 0
    found = capsys.readouterr()
    assert (found.out + found.err).count("the theory assumes small initialization") == 1
    task, built, loss = sw.Experiment(task={"dim": 2}, model={"kind": model, "scale": 5.0, "heads": 2}).build()
    assert isinstance(loss, Population)
    zero = built.with_weights({name: 0 * weight for name, weight in built.weights().items()})
    if model == "separate":
        alone = [built.with_weights({n: w.at[1 - h].set(0) for n, w in built.weights().items()}) for h in range(2)]
        raised = max(float(loss(one) - loss(zero)) for one in alone)
        assert f"a head by itself raises the loss by {raised:.3g}," in found.out
    else:
        units = np.eye(4).reshape(2, 2, 2, 2)  # the loss is quadratic in the map: its slope at zero, by differences
        slope = [[loss_at(task, -unit) - loss_at(task, unit) for unit in row] for row in units]
        weights = MergedAttention.theory_weights(built.weights())
        along = np.asarray(slope) / np.linalg.norm(slope)
        sizes = (weights["values"] + np.einsum("hij,ij->h", weights["key_queries"], along)) / 2
        raised = loss_at(task, np.sum(sizes**2) * along) - float(loss(zero))
        assert f"the part of them that grows raises the loss by {raised:.3g}," in found.out


def test_no_times_where_weights_are_large(capsys: pytest.CaptureFixture[str]):
    words = "predict --task multitask --dims 3 4 --scale 100".split()
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["emergence_times"] == found["emergence_times_with_equal_heads"] == [None, None]
    reason = "no time is predicted for task 1 2: the theory assumes small initialization, and from the scale 100 "
    assert found["emergence_reason"].startswith(reason)
    assert main(words) == 0
    assert reason in capsys.readouterr().out
    advised = found["emergence_reason"].rpartition(" ")[2]
    assert main([*words[:-1], advised, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    task = sw.tasks.MultiTaskRegression((3, 4), context=100)
    bracket = softmax.emergence_bracket(task, np.full(2, float(advised)), heads=2, loss_factor=1.0)
    assert found["emergence_reason"] is None and found["emergence_times"] == pytest.approx(bracket.early, rel=1e-12)


def test_where_there_is_no_theory_the_reason_is_given(capsys: pytest.CaptureFixture[str]):
    assert main(["predict", "--activation", "softmax"]) == 1
    assert capsys.readouterr().err == "stepwell predict: there is no theory of softmax attention on one regression\n"


def test_a_sweep_that_cannot_run_is_refused_by_its_dry_run(capsys: pytest.CaptureFixture[str]):
    Path("study.toml").write_text(
        '[task]\ndim = 2\n[training]\nkind = "descent"\nsteps = 5\noptimizer = "lbfgs"\n[sweep]\nscale = [0.1, 0.2]\n'
    )
    assert main(["sweep", "study.toml", "--store", "kept", "--dry-run"]) == 2
    assert "optimizer 'lbfgs' cannot train this model" in capsys.readouterr().err
