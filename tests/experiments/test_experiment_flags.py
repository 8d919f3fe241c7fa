"""Flags of the terminal are derived from declarations, and answer without JAX."""

import argparse
import dataclasses
import importlib
import json
import subprocess
import sys
import time
from typing import Any

import pytest

from stepwell._util.errors import InvalidInput
from stepwell._util.parser import Parser
from stepwell.experiments import (
    SECTIONS,
    Experiment,
    add_experiment_flags,
    experiment_from,
    full_name,
    kinds,
    register,
    seeds_of,
)


def _parsed(words: str, **options: Any) -> argparse.Namespace:
    parser = Parser(prog="stepwell train", allow_abbrev=False)
    add_experiment_flags(parser, **options)
    return parser.parse_args(words.split())


def _experiment(words: str) -> Experiment:
    return experiment_from(_parsed(words))


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("", {}),
        ("--heads 8 --seed 3", {"model": {"heads": 8}, "seed": 3}),
        ("--model.heads 8", {"model": {"heads": 8}}),
        ("--task-eigenvalues 1 2 --dim 2", {"task": {"task_eigenvalues": [1, 2], "dim": 2}}),
        ("--task_eigenvalues 1 2 --dim 2", {"task": {"task_eigenvalues": [1, 2], "dim": 2}}),
        ("--context 5 9", {"task": {"context": [5, 9]}}),
        ("--context 5", {"task": {"context": 5}}),
        (
            "--whitened --centered false --objective moments",
            {"task": {"whitened": True, "centered": False}, "objective": "moments"},
        ),
        ("--eigenvalues .4 5. 1.e-1 1e0 +.5", {"task": {"eigenvalues": [0.4, 5.0, 0.1, 1.0, 0.5]}}),
        ("--scale .5", {"model": {"scale": 0.5}}),
        ("--until 3", {"training": {"until": 3.0}}),
        ("--until converged", {"training": {"until": "converged"}}),
        ("--training descent --until 3", {"training": {"kind": "descent", "until": 3.0}}),
        ("--activation softmax --sequences 9", {"model": {"activation": "softmax"}, "objective": {"sequences": 9}}),
        ("--task multitask --dims 4 10 --context 32", {"task": {"kind": "multitask", "dims": [4, 10], "context": 32}}),
        ("--task multitask --heads 1", {"task": "multitask", "model": {"heads": 1}}),
        ("--measure drops map", {"record": {"measure": ["drops", "map"]}}),
        ("--optimizer adam:b1=0.8 --training descent", {"training": {"kind": "descent", "optimizer": "adam:b1=0.8"}}),
    ],
)
def test_flags_are_fields(words: str, given: dict):
    assert _experiment(words) == Experiment(**given)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--heads 0", "--heads is '0'; it must be an integer from 1 to 1000000"),
        ("--heads null", "--heads is 'null'; it must be an integer"),
        ("--heads 1.5", "--heads is '1.5'; it must be an integer"),
        ("--context 5 x", "--context is '5 x'; it must be an integer"),
        ("--rank 2 --model merged", "no field 'rank'; leave it out, or give --model separate"),
        ("--sequences 9", "no field 'sequences'; leave it out, or give --objective moments"),
        ("--dim 3 --eigenvalues 1 2", "dim is given as 3"),
        ("--steps 5", "no field 'steps'; leave it out, or give --training descent"),
        ("--training descent --steps 5 --until 2", "steps and until are both given"),
        ("--model seperate", "did you mean separate"),
        ("--seed -1", "--seed"),
        ("--seed 1.5", "--seed is '1.5'; it must be an integer"),
    ],
)
def test_what_has_no_effect_is_refused(words: str, message: str):
    with pytest.raises(InvalidInput) as caught:
        _experiment(words)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_flags_replace_what_a_file_says(tmp_path):
    path = tmp_path / "run.toml"
    base = Experiment(
        task={"dim": 2, "noise": 0.3}, model={"heads": 3}, training={"kind": "descent", "steps": 9}, seed=4
    )
    path.write_text(base.to_toml())
    assert _experiment(str(path)) == base
    assert _experiment(f"{path} --heads 5 --seed 6") == base.replace(model={"heads": 5}, seed=6)
    assert _experiment(f"{path} --until 4") == base.replace(training={"until": 4.0})
    assert seeds_of(_parsed(f"{path} --seeds 3", seeds=True).seeds, base.seed) == [4, 5, 6]
    with pytest.raises(InvalidInput, match="cannot read"):
        _experiment(str(tmp_path / "none.toml"))


def test_seeds_in_three_forms():
    assert seeds_of(["3"], 10) == [10, 11, 12]
    assert seeds_of(["20:23"], 0) == [20, 21, 22]
    assert seeds_of(["3", "5", "8"], 0) == [3, 5, 8]
    assert "seeds" not in _parsed("", seeds=True)
    for wrong in (["0"], ["5:5"], ["x"], ["1", "1"], ["-1", "2"], ["9999999999"], ["9" * 30], ["1:2:3"]):
        with pytest.raises(InvalidInput, match="--seeds"):
            seeds_of(wrong, 0)
    with pytest.raises(InvalidInput):
        _parsed("--seed 1 --seeds 3", seeds=True)


def test_names_are_short_where_one_section_has_them():
    assert full_name("heads") == full_name("model.heads") == "model.heads"
    assert full_name("task") == "task.kind" and full_name("seed") == "seed" and full_name("record.points")
    assert full_name("task-eigenvalues") == "task.task_eigenvalues"
    for wrong in ("head", "model.head", "mod.heads"):
        with pytest.raises(InvalidInput, match="did you mean heads" if "mod." not in wrong else "no section 'mod'"):
            full_name(wrong)


def test_every_field_of_every_kind_has_a_flag_with_its_help():
    parser = argparse.ArgumentParser()
    add_experiment_flags(parser)
    flags = {word: action for action in parser._actions for word in action.option_strings}
    for section in SECTIONS:
        for kind in kinds(section).values():
            for name in kind.fields:
                action = flags[f"--{section}.{name}"]
                assert action.help and action.help is not argparse.SUPPRESS
    assert "attention heads" in parser.format_help()
    assert str(flags["--heads"].help).startswith("separate, merged, mlp: attention heads; by default one")
    assert "(default: 31 for regression and mixture, 100 for multitask, 48 for overlapping)" in str(
        flags["--context"].help
    )


def test_a_command_has_what_is_not_the_default():
    assert Experiment().command() == ["stepwell", "train"]
    words = Experiment(task="multitask", model={"kind": "separate", "activation": "softmax"}).command("predict")
    assert words[:6] == ["stepwell", "predict", "--task", "multitask", "--model", "separate"]
    assert "--objective" not in words  # sampled follows from softmax


PROGRAM = """
import sys
from stepwell.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as end:
    status = end.code
print("LOADED", "jax" in sys.modules, "numpy" in sys.modules, status, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--help"], 0),
        (["train", "--help"], 0),
        (["predict", "--help"], 0),
        (["train", "--heads", "0"], 2),
        (["predict", "--head", "3"], 2),
        (["train", "--model", "seperate"], 2),
        (["train", "--training", "descent", "--optimizer", "adamm"], 2),
        (["predict", "--training", "descent", "--schedule", "cosinus"], 2),
    ],
    ids=str,
)
def test_help_and_mistakes_do_not_import_jax(words: list[str], status: int):
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True)
    assert f"LOADED False False {status}" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 2 and (done.stdout or status)


def test_an_experiment_is_described_without_jax(tmp_path):
    (tmp_path / "run.toml").write_text("seed = 3\n\n[model]\nheads = 2\n")
    program = (
        "import sys, json, stepwell as sw; e = sw.Experiment.read('run.toml'); e.name, e.to_toml(), repr(e);"
        "e.command(); sw.experiments.json_schema(); print(json.dumps([e.name, 'jax' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [Experiment(model={"heads": 2}, seed=3).name, False]


def test_an_experiment_is_made_quickly():
    """Sweeps make one for each structure, the page one for each drag."""
    begin = time.perf_counter()
    for seed in range(200):
        Experiment(task={"dim": 2}, model={"heads": 2}, seed=seed).name  # noqa: B018
    assert time.perf_counter() - begin < 2.0  # 0.1 ms each; loose, for a busy machine


@pytest.mark.parametrize(
    "word, number", [(".3", 0.3), ("3.", 3.0), ("+.5", 0.5), ("+2", 2.0), ("1.e-2", 0.01), ("0.25", 0.25)]
)
def test_numbers_are_read_as_one_writes_them(word: str, number: float):
    assert _experiment(f"--noise {word}").task.noise == number
    assert _experiment("--training descent --optimizer adam:b1=.5").training.optimizer == "adam:b1=0.5"


@pytest.mark.parametrize("verb", ["train", "predict", "explore"])
def test_fields_may_be_called_like_flags_of_a_verb(verb: str):
    """Whatever flags there are: such a field has its dotted flag."""
    module = importlib.import_module(f"stepwell.cli._{verb}")
    module.configure(before := Parser(prog=verb))
    own = {word for action in before._actions if "." not in action.dest for word in action.option_strings}
    names = [word.lstrip("-").replace("-", "_") for word in own] + ["task", "model"]

    @register("model", "clashing")
    def clashing(task: Any, key: Any, *, heads: int = 2) -> Any:
        raise AssertionError

    fields = kinds("model")["clashing"].fields
    fields |= {name: dataclasses.replace(fields["heads"], name=name) for name in names}
    module.configure(parser := Parser(prog=verb))
    given = parser.parse_args(["--model", "clashing", *(word for name in names for word in (f"--model.{name}", "7"))])
    experiment = experiment_from(given)
    assert [experiment.model[name] for name in names] == [7] * len(names) and experiment.seed == 0
    assert experiment_from(parser.parse_args(experiment.command()[2:])) == experiment
