"""A model and a task of one's own, registered in a file: the same run through every door."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jax
import numpy as np
import pytest
import xarray as xr

import stepwell as sw
from stepwell._util.errors import InvalidInput
from stepwell.cli import main
from stepwell.dynamics import _checkpoint
from stepwell.experiments import _kind, compare_run, find_kind, load_kinds
from stepwell.experiments._flags import parsed
from stepwell.explorer._state import State
from stepwell.tasks import check_moments

LAB = Path(__file__).parents[2] / "examples" / "my_lab.py"
WORDS = "--task sparse --density 0.25 --model gated --heads 3 --gate 0.2 --scale 0.01".split()


@pytest.fixture(autouse=True)
def lab():
    return load_kinds(LAB)


@pytest.fixture
def experiment() -> sw.Experiment:
    return parsed(list(WORDS))


def test_the_file_is_short():
    """Lines of code, without docstrings and empty lines."""
    lines = [line.strip() for line in LAB.read_text().splitlines()]
    assert sum(bool(line) and not line.startswith('"""') for line in lines) <= 35


def test_the_documentation_has_the_same_file():
    assert f"```python\n# my_lab.py\n{LAB.read_text()}```" in (LAB.parents[1] / "docs" / "own.md").read_text()


def test_flags_files_and_dictionaries_describe_one_experiment(experiment: sw.Experiment, tmp_path: Path):
    assert (experiment.model.gate, experiment.task.density, experiment.objective.kind) == (0.2, 0.25, "population")
    (tmp_path / "run.toml").write_text(experiment.to_toml())
    assert sw.Experiment.read(tmp_path / "run.toml") == experiment
    assert parsed(experiment.command()[2:]) == experiment == sw.Experiment.from_canonical(experiment.canonical())
    with pytest.raises(InvalidInput, match=r"--gate is '1.5'; it must be a number above 0, at most 1"):
        parsed([*WORDS, "--gate", "1.5"])
    with pytest.raises(InvalidInput, match="no field 'gatte'; did you mean gate"):
        experiment.replace(model={"gatte": 0.1})


def test_what_is_built_is_what_the_file_says(experiment: sw.Experiment, lab):
    built: Any = experiment.build()
    task, model = built.task, built.model
    plain = sw.SeparateAttention.random(dim=3, heads=3, scale=0.01, key=jax.random.key(0))
    np.testing.assert_array_equal(model.value, 0.2 * plain.value)
    np.testing.assert_array_equal(model.query, plain.query)
    assert type(model) is lab.Gated and type(task) is lab.Sparse
    check_moments(task, key=jax.random.key(1))
    assert task.moments().label_power == pytest.approx(0.25 * (1 + 1 / 2 + 1 / 3))


def test_it_is_trained_predicted_and_compared(experiment: sw.Experiment):
    """The end is the lowest level; the first drop, which has no rivals, comes when the theory says."""
    run, prediction = experiment.run(progress=False), experiment.predict()
    assert float(run["loss"][0, -1]) == pytest.approx(prediction.levels[-1].loss, rel=1e-5)
    assert [level.learned for level in prediction.levels] == [0, 1, 2, 3] and len(prediction.drops) == 3
    table = compare_run(run).table
    np.testing.assert_array_equal(table["predicted"], [drop.time for drop in prediction.drops])
    assert table["head"].tolist() == table["measured_head"].tolist() == [drop.head for drop in prediction.drops]
    assert abs(table["error"].to_numpy()[0]) < 1e-3 and bool(table["in_order"].all())


def test_a_smaller_gate_delays_the_first_drop(experiment: sw.Experiment):
    first = [experiment.replace(model={"gate": gate}).predict().drops[0].time for gate in (1.0, 0.1)]
    assert first[1] > first[0]


SHORT = {"kind": "descent", "rate": 0.05, "steps": 300}


@pytest.mark.parametrize("objective", ["population", "sampled"])
def test_it_is_run_again_and_continued(objective: str, experiment: sw.Experiment, tmp_path: Path, monkeypatch):
    sequences = {} if objective == "population" else {"sequences": 40}
    short = experiment.replace(objective={"kind": objective, **sequences}, training=SHORT)
    run = short.run(progress=False)
    assert sw.rerun(sw.save(run, tmp_path / "run.nc"), progress=False).identical(run)

    monkeypatch.setattr(_checkpoint, "_EVERY", 0.0)
    monkeypatch.setattr(_checkpoint, "_SHARE", 0.0)
    save = _checkpoint.Saves._save

    def killing(self, state, wait):
        save(self, state, wait=wait)
        raise SystemExit("killed")

    with monkeypatch.context() as patch:
        patch.setattr(_checkpoint.Saves, "_save", killing)
        with pytest.raises(SystemExit, match="killed"):
            short.run(progress=False, checkpoint=tmp_path / "run.checkpoint")
    xr.testing.assert_identical(short.run(progress=False, checkpoint=tmp_path / "run.checkpoint"), run)


def test_seeds_of_it_are_one_program(experiment: sw.Experiment):
    runs = experiment.replace(training=SHORT).run(seeds=[4, 5], progress=False)
    for number, seed in enumerate((4, 5)):
        alone = experiment.replace(training=SHORT, seed=seed).run(progress=False)
        np.testing.assert_allclose(runs["loss"][number], alone["loss"][0], rtol=1e-12)
    assert sw.rerun(runs, progress=False).identical(runs)


def test_without_its_file_a_run_says_what_it_lacks(experiment: sw.Experiment, tmp_path: Path, monkeypatch):
    file = sw.save(experiment.replace(training=SHORT).run(progress=False), tmp_path / "run.nc")
    monkeypatch.delitem(_kind._REGISTRY["task"], "sparse")
    with pytest.raises(InvalidInput, match=r"there is no task kind 'sparse'; .* registered by --with FILE.py"):
        sw.rerun(file)


def test_a_theory_that_the_class_does_not_declare_is_refused():
    @_kind.register("model", "promised", theory="separate", follows="sampled")
    def promised(task, key, *, heads: int = 2):
        class Promised(sw.SeparateAttention):
            pass

        return Promised.random(dim=task.dim, heads=heads, scale=0.1, key=key)

    with pytest.raises(InvalidInput, match="class Promised does not declare; write declared_form = 'separate'"):
        str(sw.Experiment(model="promised").predict())


def test_a_task_without_moments_has_no_theory(lab):
    @_kind.register("task", "drawn")
    def drawn(*, context: int = 5):
        return sw.tasks.SamplerTask(lambda n, key: (x := jax.random.normal(key, (n, 6, 2)), x.sum(axis=-1)))

    prediction = sw.Experiment(task="drawn").predict()
    assert not prediction.levels and "SamplerTask has no covariance" in prediction.reason
    short = {"kind": "descent", "steps": 5}
    run = sw.Experiment(task="drawn", objective={"kind": "sampled", "sequences": 9}, training=short).run(progress=False)
    assert run.sizes["step"] == 6
    with pytest.raises(InvalidInput, match="nothing is compared"):
        compare_run(run)


def test_the_command_line_trains_the_same(experiment: sw.Experiment, tmp_path: Path, capsys):
    words = ["--with", str(LAB), *WORDS]
    assert main(["train", *words, "--out", str(tmp_path)]) == 0
    (file,) = tmp_path.glob("*.nc")
    run = experiment.run(progress=False)
    stored = sw.load(file)
    np.testing.assert_array_equal(stored["loss"], run["loss"])
    assert json.loads(stored.attrs["experiment"]) == experiment.to_dict()
    capsys.readouterr()
    assert main(["predict", *words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [drop["time"] for drop in document["drops"]] == [drop.time for drop in experiment.predict().drops]


def test_an_installed_package_brings_kinds(tmp_path: Path, monkeypatch):
    """A distribution as pip leaves it: its module, and an entry point in its metadata."""
    for section in ("task", "model"):
        for name in ("sparse", "gated"):
            monkeypatch.delitem(_kind._REGISTRY[section], name, raising=False)
    shutil.copy(LAB, tmp_path / "lab_package.py")
    about = tmp_path / "lab_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[stepwell.kinds]\nlab = lab_package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(_kind._LOADED, "entry points", False)
    assert find_kind("model", "gated").build.__module__ == "lab_package"
    assert sw.Experiment(task="sparse").model.kind == "gated"
    del sys.modules["lab_package"]


def test_the_page_begins_with_the_experiment_of_flags_or_a_file(
    experiment: sw.Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    opened: list[Any] = []
    monkeypatch.setattr("stepwell.explorer._server.Explorer.run", lambda self, address=None: opened.append(address))
    monkeypatch.setattr("stepwell.explorer._explore.sys.setswitchinterval", lambda seconds: None)
    (tmp_path / "run.toml").write_text(experiment.replace(record={"points": 50}).to_toml())
    for words in (WORDS, [str(tmp_path / "run.toml")]):
        assert main(["explore", "--with", str(LAB), *words, "--port", "0"]) == 0
        state, problems = State.read(dict(parse_qsl(opened.pop().partition("?")[2])))
        assert not problems and state.run.replace(record=dict(experiment.record)) == experiment
    assert "records points of its own; points left out" in capsys.readouterr().err
    assert main(["explore", "--port", "0", "--no-browser"]) == 0 and opened == [None]
    assert main(["explore", "--heads", "12", "--port", "0"]) == 2
    assert "the page cannot show this experiment" in capsys.readouterr().err
