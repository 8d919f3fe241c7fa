"""Many seeds of one experiment: built at once where their kinds say how, with progress and Ctrl-C where not."""

import itertools
import signal
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from stepwell._util.progress import listening
from stepwell.cli import main
from stepwell.dynamics import Ensemble
from stepwell.experiments import Experiment, InvalidInput, build_together
from stepwell.experiments._together import build_seeds, rotated_field
from stepwell.sweeps._plan import is_stacked

TASKS: list[dict[str, Any]] = [
    {"dim": 3},
    {"dim": 3, "directions": "axes"},
    {"dim": 2, "outputs": 2, "noise": 0.1, "task_eigenvalues": [1.0, 2.0]},
    {"dim": 2, "context": [5, 10]},
]
MODELS: list[dict[str, Any]] = [
    {"kind": "separate", "rank": 2, "scheme": "stacked"},
    {"kind": "separate", "scheme": "per-head", "normalization": "none"},
    {"kind": "merged"},
    {"kind": "mlp"},
]
DRAWN = {"task": {"dim": 2}, "objective": {"kind": "moments", "sequences": 9}, "training": {"kind": "descent"}}
"""An experiment whose runs are built one by one."""


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of experiments whose objects are built one by one."""
    seeds, build = [], Experiment.build

    def counted(self: Experiment) -> Any:
        seeds.append(self.seed)
        return build(self)

    monkeypatch.setattr(Experiment, "build", counted)
    return seeds


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_seeds_built_at_once_are_those_built_one_by_one(task: dict[str, Any], model: dict[str, Any]):
    if isinstance(task.get("context"), list) and model.get("normalization") == "none":
        model = {**model, "normalization": "1/N"}
    experiment, seeds = Experiment(task=task, model=model, seed=3), [3, 9, 4]
    made = build_seeds(experiment, str(rotated_field(experiment)), seeds)
    for number, seed in enumerate(seeds):
        alone = experiment.replace(seed=seed).build()
        assert eqx.tree_equal(made.models.member(number), alone.model)
        loss = made.losses.member(number) if isinstance(made.losses, Ensemble) else made.losses
        assert jax.tree.structure(loss) == jax.tree.structure(alone.objective)
        for found, part in zip(jax.tree.leaves(loss), jax.tree.leaves(alone.objective), strict=True):
            # Two products of matrices: a rounding each, of entries up to the largest.
            np.testing.assert_allclose(found, part, rtol=0.0, atol=16 * np.finfo(float).eps * np.abs(part).max())


def test_no_run_of_many_seeds_is_built_by_itself(builds: list[int]):
    experiment = Experiment(task={"dim": 2}, training={"kind": "descent", "steps": 2})
    runs = experiment.run(seeds=range(50), progress=False)
    assert builds == [0]
    np.testing.assert_array_equal(runs["query"][7, 0], experiment.replace(seed=7).build().model.weights()["query"])
    np.testing.assert_allclose(runs["loss"][7], experiment.replace(seed=7).run(progress=False)["loss"][0], rtol=1e-13)


def test_what_is_refused_is_refused_before_anything_is_built(builds: list[int]):
    experiment = Experiment(**DRAWN)
    for seeds in ([], [1, 1], [0, 2**32], [-1, 5]):
        with pytest.raises(InvalidInput):
            experiment.run(seeds=seeds, progress=False)
    assert builds == []


def test_sweeps_and_seeds_are_built_at_once_for_the_same_kinds():
    for model, kind in itertools.product((*MODELS, {"balanced": True}), ("population", "moments", "sampled")):
        experiment = Experiment(task={"dim": 2}, model=model, objective=kind, training={"kind": "descent"})
        assert is_stacked(experiment.canonical()) == (rotated_field(experiment) is not None)
    several = Experiment(task={"kind": "multitask"}, training={"kind": "descent"})
    assert not is_stacked(several.canonical()) and rotated_field(several) is None


def test_runs_that_are_built_one_by_one_say_how_far_it_is():
    heard: list[tuple[str, float]] = []
    with listening(lambda what, part: heard.append((what, part))):
        Experiment(**DRAWN).replace(training={"steps": 2}).run(seeds=range(4), progress=False)
    assert [part for what, part in heard if what == "building runs"] == [0.25, 0.5, 0.75, 1.0]


def test_the_lowest_losses_of_many_runs_are_found_with_progress():
    heard: list[str] = []
    with listening(lambda what, part: heard.append(what)):
        Experiment(task={"dim": 2}, model={"scale": 0.5}).run(seeds=range(3), progress=False)
    assert heard.count("finding the lowest losses") == 3


def test_what_is_read_off_many_runs_after_the_flow_is_shown():
    heard: dict[str, list[float]] = {}
    with listening(lambda what, part: heard.setdefault(what, []).append(part)):
        Experiment(task={"dim": 2}, training={"until": 1.0}).run(seeds=range(4), progress=False)
    assert heard["weights along the runs"] == [0.25, 0.5, 0.75, 1.0] and heard["losses along the runs"][-1] == 1.0


def test_ctrl_c_while_runs_are_built_ends_at_once(builds: list[int], tmp_path: Path):
    def strike(what: str, part: float) -> None:
        if what == "building runs" and part == 0.5:
            signal.raise_signal(signal.SIGINT)

    flags = Experiment(**DRAWN).command()[2:]
    with listening(strike):
        assert main(["train", *flags, "--seeds", "8", "--out", str(tmp_path)]) == 128 + signal.SIGINT
    assert builds == [0, 0, 1, 2, 3] and list(tmp_path.iterdir()) == []


def test_runs_that_cannot_be_built_at_once_are_refused():
    one, drawn = Experiment(task={"dim": 2}), Experiment(**DRAWN)

    def build(experiment: Experiment, places: list[int]) -> None:
        each = {"seeds": np.arange(len(places)), "scales": np.ones(len(places)), "aligned": np.ones(len(places), bool)}
        build_together([experiment], np.array(places, int), ends=(experiment, experiment), **each)

    for places in ([], [1], [-1]):
        with pytest.raises(InvalidInput, match="of 1 experiments in alike; give at least one run"):
            build(one, places)
    with pytest.raises(InvalidInput, match="kinds regression, separate and moments do not say how"):
        build(drawn, [0])
