"""One answer: for any experiment every door gives the same weights, losses, times, heads and levels.

The quick test draws an experiment of some kinds, and sends it through every door. The slow one draws one of each kind
that fits together, and sends it through the cheap doors and a share of the others. `make one-answer` is the whole test:
over 200 experiments, each through every door. Ten fixed ones, long enough to have their drops, go through all doors.
"""

import os
from pathlib import Path
from typing import Any

import doors
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from random_experiments import COMBINATIONS, Kinds, descriptions, text_of

from stepwell._util import paper_time
from stepwell.experiments import Experiment, _keys

EVERYTHING = os.environ.get("STEPWELL_ONE_ANSWER") == "all"
"""Whether the slow test is the whole one, which takes some six minutes on two cores: `make one-answer`."""
EACH = 4 if EVERYTHING else 1
"""Experiments of each combination of kinds in the slow test."""
assert not EVERYTHING or EACH * len(COMBINATIONS) >= 200

_DRAWING: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": True,  # what compiles once is found in the cache by the next run
    "phases": [Phase.generate],  # a failing experiment is shown as it is: shrinking would compile for minutes
    "suppress_health_check": [*HealthCheck],
}


def problems(experiment: Experiment, folder: Path, names: tuple[str, ...] = tuple(doors.DOORS)) -> dict[str, list[str]]:
    """What the doors say differently from the experiment itself."""
    answer = doors.reference(experiment)
    found = {}
    for name in names:
        other = doors.DOORS[name](experiment, folder)
        if other is not None and (differing := doors.differences(answer, other, experiment)):
            found[name] = differing
    return found


CHEAP = ("objects by hand", "TOML", "flags", "rerun", "predict FILE", "store")
"""Doors that take a moment; each of the others compiles, draws or writes for most of a second."""
COSTLY = tuple(name for name in doors.DOORS if name not in CHEAP)
SHARES = 4
"""An experiment goes through one in so many of the costly doors, unless all go through all."""


def _check(described: dict[str, Any], folder: Path, number: int | None = None) -> None:
    """Compare the doors; an experiment with a number takes its share of the costly ones."""
    experiment = Experiment(**described)
    names = CHEAP + (COSTLY if number is None or EVERYTHING else COSTLY[number % SHARES :: SHARES])
    with doors.undrawn():
        found = problems(experiment, folder, names)
    assert not found, f"{found}\nof Experiment.from_canonical({text_of(experiment)})"


@pytest.mark.slow
@pytest.mark.parametrize("kinds", COMBINATIONS, ids=str)
def test_random_experiments_of_every_kind_have_one_answer(kinds: Kinds, tmp_path_factory: pytest.TempPathFactory):
    drawn = []

    @given(descriptions(kinds))
    @settings(max_examples=EACH, **_DRAWING)
    def check(described: dict[str, Any]) -> None:
        _check(described, tmp_path_factory.mktemp("answer"), COMBINATIONS.index(kinds) + len(drawn))
        drawn.append(described)

    check()
    assert len(drawn) >= EACH


QUICK = tuple(COMBINATIONS[:: len(COMBINATIONS) // 12])[:12]


@pytest.mark.parametrize("kinds", QUICK, ids=str)
def test_some_random_experiments_have_one_answer(kinds: Kinds, tmp_path_factory: pytest.TempPathFactory):
    @given(descriptions(kinds))
    @settings(max_examples=1, **_DRAWING)
    def check(described: dict[str, Any]) -> None:
        _check(described, tmp_path_factory.mktemp("answer"))

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", doors.TEN)
def test_ten_experiments_have_one_answer(name: str, tmp_path: Path):
    experiment = doors.TEN[name]
    assert problems(experiment, tmp_path) == {}


@pytest.mark.slow
def test_a_flow_that_ends_when_it_has_converged_has_one_answer(tmp_path: Path):
    """By default a flow does, at a time of its own; random experiments end at a given one."""
    record = {"points": 17, "spacing": "linear"}
    experiment = Experiment(task={"dim": 2, "context": 9}, model={"scale": 0.2}, record=record, seed=5)
    assert problems(experiment, tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize("door", [doors.train, doors.predict, doors.page_script, doors.page_command])
def test_real_processes_have_the_same_answer(door: Any, tmp_path: Path):
    experiment = doors.TEN["separate, unnormalized"]
    assert doors.differences(doors.reference(experiment), door(experiment, tmp_path, process=True), experiment) == []


# ---- the test can fail ----


BROKEN = Experiment(
    task={"dim": 2, "context": 9},
    model={"scale": 0.2, "normalization": "none"},
    training={"kind": "descent", "rate": 0.02, "steps": 12},
    record={"snapshots": 3},
    seed=3,
)


def test_the_experiment_that_is_broken_below_is_whole(tmp_path: Path):
    assert problems(BROKEN, tmp_path) == {}


def test_a_wrong_conversion_of_time_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Times by the root of N instead of its power of two thirds, in the one module that converts, are seen."""
    answer = doors.reference(BROKEN)
    right = paper_time.time_factor
    monkeypatch.setattr(paper_time, "time_factor", lambda *given, **named: right(*given, **named) ** 0.75)
    found = doors.differences(answer, doors.toml(BROKEN, tmp_path), BROKEN)
    assert any(line.startswith("the times of the losses differ") for line in found), found


def test_a_door_that_takes_other_keys_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    answer = doors.reference(BROKEN)
    right = _keys.Keys
    monkeypatch.setattr(_keys, "Keys", lambda seed: right(seed + 1))
    found = doors.differences(answer, doors.toml(BROKEN, tmp_path), BROKEN)
    assert "the initial key differ" in found and "the losses differ" in found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": 1 + 1e-7}, "the losses differ"),
        ({"time": 2.0}, "the times of the losses differ"),
        ({"levels": 1 + 1e-6}, "the levels differ"),
        ({"head": 1}, "predicted drop 1 is of head"),
        ({"predicted": 1 + 1e-4}, "predicted drop 1 is at time"),
        ({"measured": 1 + 1e-4}, "measured drop 1 is at level"),
        ({"weights": 1 + 1e-15}, "the initial"),
        ({"drop": None}, "predicted drops"),
    ],
)
def test_every_part_of_an_answer_is_compared(change: dict[str, Any], message: str):
    answer: Any = doors.reference(BROKEN)
    (what, by), *_ = change.items()
    first, *rest = answer.predicted
    changed = {
        "loss": lambda: {"loss": answer.loss * by},
        "time": lambda: {"time": answer.time * by},
        "levels": lambda: {"levels": [level * by for level in answer.levels]},
        "head": lambda: {"predicted": [{**first, "head": first["head"] + by}, *rest]},
        "predicted": lambda: {"predicted": [{**first, "time": first["time"] * by}, *rest]},
        "measured": lambda: {"measured": [{**answer.measured[0], "level": by}, *answer.measured[1:]]},
        "weights": lambda: {"weights": {name: weight * by for name, weight in answer.weights.items()}},
        "drop": lambda: {"predicted": rest},
    }[what]()
    assert any(message in line for line in doors.differences(answer, answer._replace(**changed), BROKEN))
    assert doors.differences(answer, answer, BROKEN) == []
