"""Configurations and the names made of them."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import digests
from stepwell._util.text import name_of
from stepwell.store import Column
from stepwell.store._values import RESERVED, configuration_text

NUMBERS = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = (
    st.none()
    | st.booleans()
    | NUMBERS
    | st.text("aäß€😀\"\\'{}[],: ", max_size=9)
    | st.lists(NUMBERS | st.booleans() | st.text("ab", max_size=3), max_size=4)
)
FIELDS = st.from_regex(r"([a-z]{1,5}\.)?[a-z][a-z0-9_]{0,9}", fullmatch=True).filter(lambda name: name not in RESERVED)
CONFIGURATIONS = st.dictionaries(FIELDS, VALUES, max_size=6)


@given(CONFIGURATIONS)
def test_the_name_is_the_hash_of_sorted_json_and_the_text_is_read_back(configuration):
    text = json.dumps(configuration, sort_keys=True, separators=(",", ":"))
    assert configuration_text(configuration) == text
    assert name_of(configuration) == hashlib.sha256(text.encode()).hexdigest()[:32]
    assert configuration_text(json.loads(text)) == text


@given(CONFIGURATIONS, st.dictionaries(FIELDS, st.lists(VALUES, min_size=3, max_size=3), max_size=4))
def test_names_of_many_runs_are_those_of_each(common, fields):
    common = {name: value for name, value in common.items() if name not in fields}
    columns = {name: Column.of(values) for name, values in fields.items()}
    made = digests(common, {name: column.texts() for name, column in columns.items()}, 3)
    each = [name_of(common | {name: values[row] for name, values in fields.items()}) for row in range(3)]
    assert [row.tobytes().hex() for row in made] == each


def test_one_is_not_one_point_nought():
    assert len({configuration_text({"a": value}) for value in (1, 1.0, True, "1", [1], [1.0])}) == 6
    assert configuration_text({"a": np.float64(0.1), "b": np.int32(3)}) == configuration_text({"b": 3, "a": 0.1})
    assert configuration_text({"a": (1, 2)}) == configuration_text({"a": np.array([1, 2])})


@pytest.mark.parametrize(
    "configuration",
    [
        {"a": float("nan")},
        {"a": [1.0, float("inf")]},
        {"a": 2**63},
        {"a": {"b": 1}},
        {"a": [[1]]},
        {"a": [None]},
        {"a": ["\0"]},
        {"a": "\0"},
        {"a": "\ud800"},
        {"a": object()},
        {"a": b"x"},
        {"A": 1},
        {"a.b.c": 1},
        {"a.": 1},
        {".a": 1},
        {"../a": 1},
        {"": 1},
        {"run": 1},
        {"name": 1},
    ],
)
def test_what_is_not_a_configuration_is_refused(configuration):
    with pytest.raises(InvalidInput):
        configuration_text(configuration)
