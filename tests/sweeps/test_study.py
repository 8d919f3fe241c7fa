"""Studies: what is varied, how it is written down, and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import Experiment
from stepwell._util.errors import InvalidInput
from stepwell._util.text import name_of
from stepwell.sweeps import Study
from stepwell.sweeps._plan import blocks_of, names_of, programs_of

BASE = Experiment(task={"dim": 2}, model={"heads": 2}, training={"kind": "descent", "steps": 50})

AXES: dict[str, tuple[Any, list[Any]]] = {
    "list": ([0.1, 0.2], [0.1, 0.2]),
    "array": (np.array([0.1, 0.2]), [0.1, 0.2]),
    "grid": ({"from": 0.0, "to": 1.0, "count": 3}, [0.0, 0.5, 1.0]),
    "log": ({"from": 0.01, "to": 1.0, "count": 3, "spacing": "log"}, [0.01, 0.1, 1.0]),
}


@pytest.mark.parametrize("written,values", AXES.values(), ids=AXES)
def test_an_axis_can_be_written_in_several_ways(written: Any, values: list[float]):
    (axis,) = Study.of(BASE, {"scale": written}).axes
    assert axis.fields["model.scale"] == pytest.approx(values, rel=1e-15) and axis.name == "scale"


def test_seeds_are_whole_numbers_that_follow_each_other():
    assert Study.of(BASE, {"seed": {"from": 3, "count": 4}}).axes[0].fields["seed"] == [3, 4, 5, 6]
    assert Study.of(BASE, {"seed": range(2)}).axes[0].fields["seed"] == [0, 1]


def test_axes_are_crossed_and_what_is_together_is_not():
    study = Study.of(
        BASE, {"scale": [0.1, 0.2, 0.3], "seed": [0, 1]}, together=[{"rate": [0.1, 0.2], "noise": [0.0, 1.0]}]
    )
    assert study.shape == (3, 2, 2) and study.size == 12
    names = {tuple(row) for row in names_of(blocks_of(study)).tolist()}
    assert len(names) == 12
    found = {
        (fields["model.scale"], fields["seed"], fields["training.rate"], fields["task.noise"])
        for block in blocks_of(study)
        for fields in (
            {name: values[row].item() for name, values in block.fields.items()} for row in range(block.places.size)
        )
    }
    assert found == {(i, s, r, n) for i in (0.1, 0.2, 0.3) for s in (0, 1) for r, n in ((0.1, 0.0), (0.2, 1.0))}


def test_draws_are_random_within_their_range_and_do_not_depend_on_each_other():
    ranges = {
        "scale": {"from": 1e-3, "to": 1.0, "spacing": "log"},
        "heads": {"from": 1, "to": 4},
        "context": {"from": 3, "to": 5},
        "model": {"choose": ["merged", "separate"]},
    }
    (axis,) = Study.of(BASE, {}, draws={"count": 4000, **ranges}).axes
    drawn = axis.fields
    assert axis.name == "draw" and len(axis) == 4000
    scale = np.log10(drawn["model.scale"])
    # Uniform on [-3, 0]: mean -1.5, standard error 0.866/sqrt(4000) = 0.0137.
    assert abs(scale.mean() + 1.5) < 5 * 0.0137 and scale.min() > -3 and scale.max() < 0
    assert set(drawn["model.heads"]) == {1, 2, 3, 4} and set(drawn["task.context"]) == {3, 4, 5}
    assert set(drawn["model.kind"]) == {"merged", "separate"}
    alone = Study.of(BASE, {}, draws={"count": 4000, "scale": ranges["scale"]}).axes[0].fields["model.scale"]
    assert alone == drawn["model.scale"]
    other = Study.of(BASE, {}, draws={"count": 4000, "seed": 1, "scale": ranges["scale"]}).axes[0].fields
    assert other["model.scale"] != alone


def test_a_file_says_the_same_as_python(tmp_path: Path):
    file = tmp_path / "study.toml"
    file.write_text(
        """
        [task]
        dim = 2
        [model]
        heads = 2
        [training]
        kind = "descent"
        steps = 50
        [sweep]
        scale = { from = 0.01, to = 1.0, count = 3, spacing = "log" }
        [[sweep.together]]
        rate = [0.1, 0.2]
        "task.noise" = [0.0, 1.0]
        [sweep.draws]
        count = 2
        context = { from = 10, to = 40 }
        [record]
        points = 7
        measure = ["drops"]
        [limits]
        runs = 1000
        """
    )
    study = Study.of(
        BASE,
        {"model.scale": {"from": 0.01, "to": 1.0, "count": 3, "spacing": "log"}},
        together=[{"rate": [0.1, 0.2], "noise": [0.0, 1.0]}],
        draws={"count": 2, "context": {"from": 10, "to": 40}},
        record={"points": 7, "measure": ["drops"]},
        limits={"runs": 1000},
    )
    read = Study.read(str(file))
    assert (read.axes, read.base, read.limits) == (study.axes, study.base, study.limits)
    np.testing.assert_array_equal(names_of(blocks_of(read)), names_of(blocks_of(study)))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no list": ({"sweep": {"scale": 0.1}}, "an axis is a list"),
    "empty": ({"sweep": {"scale": []}}, "an axis is a list"),
    "unknown field": ({"sweep": {"sclae": [0.1]}}, "did you mean scale"),
    "unknown section": ({"sweep": {"modle.scale": [0.1]}}, "did you mean model"),
    "two axes": ({"sweep": {"scale": [0.1]}, "together": [{"scale": [0.1]}]}, "varied twice"),
    "two names": ({"sweep": {"scale": [0.1], "model.scale": [0.2]}}, "varied twice"),
    "two names together": ({"sweep": {}, "together": [{"scale": [0.1], "model.scale": [0.2]}]}, "varied twice"),
    "unequal": ({"sweep": {}, "together": [{"scale": [0.1], "rate": [0.1, 0.2]}]}, "all must be the same"),
    "below zero": ({"sweep": {"rate": [0.1, -0.1]}}, "training.rate is -0.1; it must be a number above 0"),
    "not a number": ({"sweep": {"rate": [0.1, "x"]}}, "rate is 'x'"),
    "seed of 0.5": ({"sweep": {"seed": [0.5]}}, "seed is 0.5; it must be an integer"),
    "too large": ({"sweep": {"scale": [10**400]}}, "scale"),
    "not finite": ({"sweep": {"scale": [0.1, math.nan]}}, "scale is nan"),
    "infinite": ({"sweep": {"noise": [0.1, math.inf]}}, "noise is inf"),
    "a truth value": ({"sweep": {"scale": [0.1, True]}}, "scale is True"),
    "log of 0": ({"sweep": {"rate": {"from": 0.0, "to": 1.0, "count": 3, "spacing": "log"}}}, "above 0"),
    "no count": ({"sweep": {"rate": {"from": 0.0, "to": 1.0}}}, "count"),
    "unknown key": ({"sweep": {"rate": {"from": 0.0, "to": 1.0, "cuont": 3}}}, "cuont"),
    "too many": (
        {"sweep": {"seed": {"from": 0, "count": 10**6}, "rate": {"from": 0.1, "to": 1.0, "count": 10**4}}},
        "at most",
    ),
    "one too many": ({"sweep": {"seed": {"from": 0, "count": 10**9}}}, "at most"),
    "measure": ({"sweep": {}, "record": {"measure": ["regmie"]}}, "regime"),
    "record": ({"sweep": {}, "record": {"pionts": 3}}, "points"),
    "limits": ({"sweep": {}, "limits": {"runs": 0}}, "limit of runs"),
    "test sets": ({"sweep": {}, "record": {"test_sequences": 100}}, "single runs"),
    "steps of a solver": ({"sweep": {"training": ["flow"], "spacing": ["steps"]}}, "differ from run to run"),
    "a rank of merged attention": (
        {"sweep": {"model": ["separate", "merged"], "rank": [1, 2]}},
        "the model kind merged has no field 'rank'",
    ),
    "a size of no sample": (
        {"sweep": {"objective": ["population", "moments"], "sequences": [30, 40]}},
        "population has no field 'sequences'",
    ),
    "two spectra": ({"sweep": {"eigenvalues": [[0.6, 0.4]], "spectrum": ["power"]}}, "spectrum"),
    "a pair that contradicts": (
        {"sweep": {"eigenvalues": [[0.5, 0.3, 0.2]], "task_eigenvalues": [[1.0]]}},
        "3 eigenvalues and 1 task_eigenvalues|task_eigenvalues",
    ),
}


@pytest.mark.parametrize("parts,words", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused(parts: dict[str, Any], words: str):
    with pytest.raises(InvalidInput, match=words) as caught:
        blocks_of(Study.of(BASE, **parts))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_what_is_varied_takes_the_place_of_what_the_experiment_says():
    whole = BASE.replace(task={"context": 9}, training={"rate": 0.5}, seed=3)
    (block,) = blocks_of(Study.of(whole, {"rate": [0.1], "seed": [1], "context": [20], "eigenvalues": [[0.7, 0.4]]}))
    first = block.configuration()
    assert (first["training.rate"], first["seed"], first["task.context"]) == (0.1, 1, 20)
    assert block.configuration()["task.eigenvalues"] == [0.7, 0.4]


NAMED: dict[str, tuple[Experiment, dict[str, Any]]] = {
    "numbers": (BASE, {"scale": [1, 0.1, 1e-30], "noise": [0, 0.5], "seed": [0, 2**32 - 1], "rate": [0.1, 1e-5]}),
    "structure": (BASE, {"heads": [1, 2], "model": ["separate", "merged"], "context": [5, [5, 9]]}),
    "spectra": (BASE, {"eigenvalues": [[0.6, 0.4], [1, 1]], "task_eigenvalues": [[1.0, 2.0], [1.0, 1.0]]}),
    "a time at several rates": (BASE, {"until": [3.0, 5.0], "rate": [0.01, 0.0100001, 0.2], "scale": [0.1, 0.2]}),
    "scales that the stop time depends on": (
        Experiment(task={"kind": "multitask", "dims": [2, 3]}),
        {"scale": [0.1, 0.01, 0.001], "noise": [0.0, 0.5], "seed": [0, 1]},
    ),
    "the record": (BASE, {"points": [3, 5, 100], "measure": [[], ["regime"], ["drops", "regime"]]}),
}


@pytest.mark.parametrize("base,over", NAMED.values(), ids=NAMED)
def test_the_name_of_a_run_is_that_of_its_experiment(base: Experiment, over: dict[str, Any]):
    """However its numbers were planned: the experiment is described one by one here."""
    study = Study.of(base, over)
    names = [bytes(name).hex() for name in names_of(blocks_of(study))]
    assert len(set(names)) == study.size
    for place in range(study.size):
        changes: dict[str, Any] = {}
        for axis, at in zip(study.axes, np.unravel_index(place, study.shape), strict=True):
            for name, values in axis.fields.items():
                section, _, field = name.partition(".")
                changes[section] = {**changes.get(section, {}), field: values[at]} if field else values[at]
        experiment = study.base.replace(**changes)
        assert names[place] == experiment.name == name_of(experiment.canonical())


def test_only_the_ends_of_free_numbers_are_resolved(monkeypatch: pytest.MonkeyPatch):
    """A million runs take as many descriptions as a hundred."""
    counted = []
    replace = Experiment.replace
    monkeypatch.setattr(Experiment, "replace", lambda self, **c: counted.append(c) or replace(self, **c))
    grid = {"from": 0.001, "to": 1.0, "count": 40, "spacing": "log"}
    study = Study.of(BASE, {"rate": grid, "scale": grid, "seed": {"from": 0, "count": 20}})
    (block,) = blocks_of(study)
    assert block.places.size == 32_000 and len(counted) < 12


def test_runs_of_equal_shape_are_one_program():
    over = {"spectrum": ["power", "spiked", "white"], "noise": [0.0, 0.1], "rate": [0.1, 0.2], "seed": [0, 1, 2]}
    programs = programs_of(blocks_of(Study.of(BASE, over)))
    assert [program.runs for program in programs] == [36]
    programs = programs_of(blocks_of(Study.of(BASE, {"heads": [1, 2], **over})))
    assert [program.runs for program in programs] == [36, 36]


def test_the_parts_of_a_program_are_its_runs():
    study = Study.of(BASE, {"spectrum": ["spiked", "power"], "seed": {"from": 0, "count": 40}})
    (program,) = programs_of(blocks_of(study))
    (part,) = program.parts()
    assert len(part) == 80 and program.size == 128
    small = type(program)(program.blocks, 16)
    parts = list(small.parts())
    assert [len(each) for each in parts] == [16] * 5
    names = [name_of(each.configuration(row)) for each in parts for row in range(len(each))]
    known = {bytes(row).hex() for row in names_of(blocks_of(study))}
    assert set(names) == known and len(names) == 80


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["sweep", "record", "limits", "task", "model", "training", "seed", "together", "draws", "rate"])
KNOWN = st.sampled_from(
    ["from", "to", "count", "spacing", "choose", "seed", "scale", "heads", "points", "runs", "draws", "together"]
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        KEYS | st.text(max_size=5),
        PLAIN | st.dictionaries(KNOWN, PLAIN | st.dictionaries(KNOWN, PLAIN, max_size=3), max_size=4),
        max_size=4,
    )
)
def test_any_document_is_a_study_or_an_error_of_one_line(document: dict[str, Any]):
    try:
        study = Study.in_document(document, "study.toml")
        if study.size < 100:
            blocks_of(study)
    except InvalidInput as error:
        assert "\n" not in str(error) and len(str(error)) < 2000


def test_places_are_those_of_the_axes():
    """The order of runs in a result is that of its axes, whatever is crossed with what."""
    study = Study.of(BASE, {"scale": [0.1, 0.2], "context": [5, 6, 7], "seed": [0, 1]})
    places = np.concatenate([block.places for block in blocks_of(study)])
    assert sorted(places.tolist()) == list(range(math.prod(study.shape)))
    for block in blocks_of(study):
        for row, place in enumerate(block.places.tolist()):
            scale, context, seed = np.unravel_index(place, study.shape)
            assert block.fields["model.scale"][row] == [0.1, 0.2][scale] and block.fields["seed"][row] == seed
            assert block.common["task.context"] == [5, 6, 7][context]
