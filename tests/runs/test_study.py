"""Studies: what is varied, how it is written down, and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell._errors import InvalidInput
from stepwell.runs import Study
from stepwell.runs._configuration import canonical_text, run_name
from stepwell.runs._fields import configuration_of, run_from
from stepwell.runs._plan import blocks_of, names_of, programs_of
from stepwell.runs._study import Record

BASE = {"model": "attnS", "heads": 2, "dim": 2, "engine": "population", "epoch": 50}

AXES: dict[str, tuple[Any, list[Any]]] = {
    "list": ([0.1, 0.2], [0.1, 0.2]),
    "array": (np.array([0.1, 0.2]), [0.1, 0.2]),
    "grid": ({"from": 0.0, "to": 1.0, "count": 3}, [0.0, 0.5, 1.0]),
    "log": ({"from": 0.01, "to": 1.0, "count": 3, "spacing": "log"}, [0.01, 0.1, 1.0]),
}


@pytest.mark.parametrize("written,values", AXES.values(), ids=AXES)
def test_an_axis_can_be_written_in_several_ways(written: Any, values: list[float]):
    (axis,) = Study.of(BASE, {"init": written}).axes
    assert axis.fields["init"] == pytest.approx(values, rel=1e-15) and axis.name == "init"


def test_seeds_are_whole_numbers_that_follow_each_other():
    assert Study.of(BASE, {"seed": {"from": 3, "count": 4}}).axes[0].fields["seed"] == [3, 4, 5, 6]
    assert Study.of(BASE, {"seed": range(2)}).axes[0].fields["seed"] == [0, 1]


def test_axes_are_crossed_and_what_is_together_is_not():
    study = Study.of(
        BASE, {"init": [0.1, 0.2, 0.3], "seed": [0, 1]}, together=[{"lr": [0.1, 0.2], "noise": [0.0, 1.0]}]
    )
    assert study.shape == (3, 2, 2) and study.size == 12
    names = {tuple(row) for row in names_of(blocks_of(study)).tolist()}
    assert len(names) == 12
    found = {
        (fields["init"], fields["seed"], fields["lr"], fields["noise"])
        for block in blocks_of(study)
        for fields in (
            {name: values[row].item() for name, values in block.fields.items()} for row in range(block.places.size)
        )
    }
    assert found == {(i, s, r, n) for i in (0.1, 0.2, 0.3) for s in (0, 1) for r, n in ((0.1, 0.0), (0.2, 1.0))}


def test_draws_are_random_within_their_range_and_do_not_depend_on_each_other():
    ranges = {
        "init": {"from": 1e-3, "to": 1.0, "spacing": "log"},
        "heads": {"from": 1, "to": 4},
        "model": {"choose": ["attnM", "attnS"]},
    }
    base = {name: value for name, value in BASE.items() if name not in ranges}
    (axis,) = Study.of(base, {}, draws={"count": 4000, **ranges}).axes
    drawn = axis.fields
    assert axis.name == "draw" and len(axis) == 4000
    scale = np.log10(drawn["init"])
    # Uniform on [-3, 0]: mean -1.5, standard error 0.866/sqrt(4000) = 0.0137.
    assert abs(scale.mean() + 1.5) < 5 * 0.0137 and scale.min() > -3 and scale.max() < 0
    assert set(drawn["heads"]) == {1, 2, 3, 4} and set(drawn["model"]) == {"attnM", "attnS"}
    alone = Study.of(base, {}, draws={"count": 4000, "init": ranges["init"]}).axes[0].fields["init"]
    assert alone == drawn["init"]
    other = Study.of(base, {}, draws={"count": 4000, "seed": 1, "init": ranges["init"]}).axes[0].fields["init"]
    assert other != alone


def test_a_file_says_the_same_as_python(tmp_path: Path):
    file = tmp_path / "study.toml"
    file.write_text(
        """
        [task]
        dim = 2
        [model]
        model = "attnS"
        heads = 2
        [training]
        engine = "population"
        epoch = 50
        [sweep]
        init = { from = 0.01, to = 1.0, count = 3, spacing = "log" }
        [[sweep.together]]
        lr = [0.1, 0.2]
        noise = [0.0, 1.0]
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
        {"init": {"from": 0.01, "to": 1.0, "count": 3, "spacing": "log"}},
        together=[{"lr": [0.1, 0.2], "noise": [0.0, 1.0]}],
        draws={"count": 2, "context": {"from": 10, "to": 40}},
        record={"points": 7, "measure": ["drops"]},
        limits={"runs": 1000},
    )
    read = Study.read(str(file))
    assert (read.axes, read.record, read.limits) == (study.axes, study.record, study.limits)
    np.testing.assert_array_equal(names_of(blocks_of(read)), names_of(blocks_of(study)))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no list": ({"sweep": {"init": 0.1}}, "an axis is a list"),
    "empty": ({"sweep": {"init": []}}, "an axis is a list"),
    "unknown field": ({"sweep": {"inti": [0.1]}}, "did you mean init"),
    "two words": ({"sweep": {"init": [0.1]}, "together": [{"init": [0.1]}]}, "varied twice"),
    "unequal": ({"sweep": {}, "together": [{"init": [0.1], "lr": [0.1, 0.2]}]}, "all must be the same"),
    "below zero": ({"sweep": {"lr": [0.1, -0.1]}}, "--lr"),
    "not a number": ({"sweep": {"lr": [0.1, "x"]}}, "lr is 'x'"),
    "seed of 0.5": ({"sweep": {"seed": [0.5]}}, "whole number"),
    "log of 0": ({"sweep": {"lr": {"from": 0.0, "to": 1.0, "count": 3, "spacing": "log"}}}, "above 0"),
    "no count": ({"sweep": {"lr": {"from": 0.0, "to": 1.0}}}, "count"),
    "unknown key": ({"sweep": {"lr": {"from": 0.0, "to": 1.0, "cuont": 3}}}, "cuont"),
    "too many": (
        {"sweep": {"seed": {"from": 0, "count": 10**6}, "lr": {"from": 0.1, "to": 1.0, "count": 10**4}}},
        "at most",
    ),
    "one too many": ({"sweep": {"seed": {"from": 0, "count": 10**9}}}, "at most"),
    "measure": ({"sweep": {}, "record": {"measure": ["regmie"]}}, "regime"),
    "record": ({"sweep": {}, "record": {"pionts": 3}}, "points"),
    "limits": ({"sweep": {}, "limits": {"runs": 0}}, "limit of runs"),
    "a flag as a value": ({"sweep": {"context": [["5", "--help"]]}}, "begin with -"),
    "synonyms": ({"sweep": {"heads": [1], "head_num": [2]}}, "varied twice"),
    "lengths": ({"sweep": {"context": [5], "seq_len": [6]}}, "varied twice"),
    "seeds": ({"sweep": {"seeds": [["3", "4"]]}}, "vary seed"),
    "test sets": ({"sweep": {"testset_size": [100]}}, "single runs"),
    "converged": ({"sweep": {"until": ["converged"]}}, "converged"),
    "a pair that contradicts": (
        {"sweep": {"eigenvalues": [[0.5, 0.3, 0.2]], "task_eigenvalues": [[1.0]]}},
        "same number",
    ),
}


@pytest.mark.parametrize("parts,words", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused(parts: dict[str, Any], words: str):
    with pytest.raises(InvalidInput, match=words) as caught:
        blocks_of(Study.of(BASE, **parts))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


SAME = {
    "words": ({"in_dim": 2, "head_num": 3}, {"dim": 2, "heads": 3}),
    "spectrum": ({"spectrum": "published", "dim": 3}, {"eigenvalues": [3 / 6, 2 / 6, 1 / 6]}),
    "white": ({"spectrum": "white", "dim": 2}, {"eigenvalues": [0.5, 0.5]}),
    "rank of merged attention": ({"model": "attnM", "rank": 3}, {"model": "attnM"}),
    "size of no sample": ({"engine": "population", "trainset_size": 77}, {"engine": "population"}),
    "length": ({"seq_len": 11}, {"context": 10}),
    "start": ({"model": "attnS", "start": "script"}, {"model": "attnS", "start": "stacked"}),
}


@pytest.mark.parametrize("one,other", SAME.values(), ids=SAME)
def test_one_run_has_one_name_whatever_words_describe_it(one: dict[str, Any], other: dict[str, Any]):
    from stepwell.published import run_in

    names = {run_name(configuration_of(run_in(fields), Record())) for fields in (one, other)}
    assert len(names) == 1


RUNS = {
    "separate": {"model": "attnS", "heads": 3, "rank": 2, "engine": "population-flow", "context": [5, 9]},
    "merged": {"model": "attnM", "engine": "moments", "noise": 0.3, "task_eigenvalues": [1.0, 2.0], "dim": 2},
    "softmax": {"model": "attnS", "softmax": True, "trainset_size": 60, "optimiser": "adam", "schedule": "cosine"},
    "several": {"dims": [2, 3], "strengths": [1.0, 2.0], "heads": 3, "engine": "flow", "noise": 0.5},
    "mlp": {"model": "mlp", "cubic_feat": True, "vary_len": True},
}


@pytest.mark.parametrize("fields", RUNS.values(), ids=RUNS)
def test_a_configuration_describes_its_run_completely(fields: dict[str, Any]):
    from stepwell.published import run_in

    made = configuration_of(run_in(fields), Record(points=9, measure=("regime",)))
    run, record = run_from(made)
    assert canonical_text(configuration_of(run, record)) == canonical_text(made)


def test_what_is_varied_takes_the_place_of_what_the_run_says():
    whole = {**BASE, "lr": 0.5, "epoch": 50, "seed": 3, "context": 9}
    over = {"lr": [0.1], "seed": [1], "seq_len": [21], "eigenvalues": [[0.6, 0.4]]}
    (block,) = blocks_of(Study.of(whole, over))
    assert (block.first["lr"], block.first["seed"], block.first["context"]) == (0.1, 1, 20)
    assert block.first["eigenvalues"] == [0.6, 0.4]


def test_other_numerics_are_other_runs():
    from stepwell.published import run_in

    made = configuration_of(run_in({}), Record())
    with pytest.raises(InvalidInput, match="version 99"):
        run_from({**made, "numerics": 99})


def test_runs_of_equal_shape_are_one_program():
    over = {"spectrum": ["power:1", "power:2", "white"], "noise": [0.0, 0.1], "lr": [0.1, 0.2], "seed": [0, 1, 2]}
    programs = programs_of(blocks_of(Study.of(BASE, over)))
    assert [program.runs for program in programs] == [36]
    programs = programs_of(
        blocks_of(Study.of({k: v for k, v in BASE.items() if k != "heads"}, {"heads": [1, 2], **over}))
    )
    assert [program.runs for program in programs] == [36, 36]


def test_the_parts_of_a_program_are_its_runs():
    study = Study.of(BASE, {"spectrum": ["power:1", "power:2"], "seed": {"from": 0, "count": 40}})
    (program,) = programs_of(blocks_of(study))
    (part,) = program.parts()
    assert part.runs == 80 and program.size == 128
    small = type(program)(program.blocks, 16)
    parts = list(small.parts())
    assert [each.runs for each in parts] == [16] * 5
    names = [run_name(each.configuration(row)) for each in parts for row in range(each.runs)]
    known = {bytes(row).hex() for row in names_of(blocks_of(study))}
    assert set(names) == known and len(names) == 80


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["sweep", "record", "limits", "task", "model", "training", "init", "together", "draws", "lr"])
KNOWN = st.sampled_from(
    ["from", "to", "count", "spacing", "choose", "seed", "init", "heads", "points", "runs", "draws", "together"]
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
    study = Study.of(BASE, {"init": [0.1, 0.2], "context": [5, 6, 7], "seed": [0, 1]})
    places = np.concatenate([block.places for block in blocks_of(study)])
    assert sorted(places.tolist()) == list(range(math.prod(study.shape)))
    for block in blocks_of(study):
        for row, place in enumerate(block.places.tolist()):
            init, context, seed = np.unravel_index(place, study.shape)
            assert block.fields["init"][row] == [0.1, 0.2][init] and block.fields["seed"][row] == seed
            assert block.common["context"] == [5, 6, 7][context]
