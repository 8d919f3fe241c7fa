"""Filters: what is written is what is compared, and nonsense is refused in one line."""

import math
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell.store import Column
from stepwell.store._query import full_column, parsed_condition

SIGNS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
NUMBERS = st.integers(-(10**20), 10**20) | st.floats()
WHOLE = st.lists(st.integers(-(2**63) + 1, 2**63 - 1), min_size=1)
MIXED = st.none() | st.text("ab1", max_size=3) | st.integers(0, 3) | st.lists(st.floats(0, 1), max_size=2)
COLUMNS = (
    WHOLE
    | st.lists(st.floats(), min_size=1)
    | st.lists(st.booleans(), min_size=1)
    | st.lists(
        st.none() | st.text("ab1", max_size=3) | st.integers(0, 3) | st.lists(st.floats(0, 1), max_size=2), min_size=1
    )
)


@given(st.text(max_size=60), COLUMNS)
def test_any_text_is_a_filter_or_refused_in_one_line(text, values):
    try:
        condition = parsed_condition(text)
    except InvalidInput as error:
        assert "\n" not in str(error)
        return
    assert len(condition.mask(Column.of(values))) == len(values)


@given(st.sampled_from([*SIGNS, "==", "~"]), st.text(max_size=30), COLUMNS)
def test_any_value_is_compared_or_refused_in_one_line(sign, text, values):
    try:
        condition = parsed_condition(f"a{sign}{text}")
    except InvalidInput as error:
        assert "\n" not in str(error)
        return
    assert condition.name == "a"
    assert len(condition.mask(Column.of(values))) == len(values)


@given(st.sampled_from([*SIGNS]), NUMBERS, WHOLE | st.lists(st.floats(), min_size=1))
def test_numbers_are_compared_as_python_does(sign, number, values):
    if sign in ("=", "!=") and isinstance(number, float) and math.isnan(number):
        expected = [(isinstance(one, float) and math.isnan(one)) == (sign == "=") for one in values]
    else:
        number = number if isinstance(number, float) or abs(number) < 2**63 else float(number)
        if isinstance(number, float) != isinstance(values[0], float):  # NumPy compares as float64
            expected = [SIGNS[sign](float(one), float(number)) for one in values]
        else:
            expected = [SIGNS[sign](one, number) for one in values]
    assert parsed_condition(f"a{sign}{number!r}").mask(Column.of(values)).tolist() == expected


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("a=separate", ["separate", "merged"], [True, False]),
        ("a != separate", ["separate", "merged"], [False, True]),
        ("a~^(sep|mer)", ["separate", "mlp"], [True, False]),
        ('a="true"', ["true", True], [True, False]),
        ("a=true", ["true", True, 1], [True, True, False]),
        ("a=none", ["none", None, 0], [True, True, False]),
        ("a!=none", [None, "x"], [False, True]),
        ("a=0.6,0.4", [[0.6, 0.4], [0.4, 0.6]], [True, False]),
        ("a=[0.6, 0.4]", [[0.6, 0.4], "x"], [True, False]),
        ("a=drops,map", [["drops", "map"], ["drops"]], [True, False]),
        ("a=drops", [["drops"], "drops", []], [True, True, False]),
        ("a=2", [2, [2], "2"], [True, False, True]),
        ("a<2", [1, [1], "1", None], [True, False, False, False]),
        ("a=true", [True, False], [True, False]),
        ("a=1", [True, False], [False, False]),
        ("a=x", [1, 2], [False, False]),
    ],
)
def test_texts_lists_and_truth_values(text, values, expected):
    assert parsed_condition(text).mask(Column.of(values)).tolist() == expected


def test_a_name_without_its_section_is_the_column_that_has_it_alone():
    known = ["model.heads", "model.kind", "task.kind", "task.noise", "final_loss", "seed"]
    names = {"heads": "model.heads", "model.heads": "model.heads", "model": "model.kind", "seed": "seed"}
    assert {name: full_column(name, known) for name in names} == names
    with pytest.raises(InvalidInput, match="write model.kind or task.kind"):
        full_column("kind", known)
    with pytest.raises(InvalidInput, match="did you mean heads"):
        full_column("haeds", known)


@pytest.mark.parametrize(
    "text",
    ["", "a", "a.b.c=1", "a.=1", ".a=1", "=1", "a b=1", "a<x", "a<none", "a~(", "a~[", "../a=1", "a" * 3000 + "=1", 3],
)
def test_nonsense_is_refused(text):
    with pytest.raises(InvalidInput):
        parsed_condition(text)
