"""A claim holds if and only if the numbers say so."""

import dataclasses
import json
import math
import sys
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell.figures import Claim, Known, Origin, slug

ID = "linear/fig1/one-curve"
ORIGIN = Origin("check", "the definition")
numbers = st.floats(-1e6, 1e6)


@given(numbers, numbers, st.floats(0, 1e6))
def test_the_three_relations(predicted, measured, tolerance):
    options = {"predicted": predicted, "measured": measured, "tolerance": tolerance, "basis": "given"}
    assert ORIGIN.close(ID, "s", **options).passed == (abs(measured - predicted) <= tolerance)
    assert ORIGIN.at_most(ID, "s", **options).passed == (measured - predicted <= tolerance)
    assert ORIGIN.at_least(ID, "s", **options).passed == (predicted - measured <= tolerance)


def test_passed_cannot_be_given():
    with pytest.raises(TypeError):
        Claim(ID, "s", 0.0, 1.0, 0.0, "b", passed=True, kind="check", source="it")  # pyright: ignore
    claim = ORIGIN.close(ID, "s", predicted=0, measured=1, tolerance=0.5, basis="b")
    with pytest.raises(dataclasses.FrozenInstanceError):
        claim.passed = True  # pyright: ignore
    with pytest.raises(TypeError if sys.version_info >= (3, 13) else ValueError):
        dataclasses.replace(claim, passed=True)
    assert dataclasses.replace(claim, tolerance=1.0).passed


def test_paper_and_figure_are_parts_of_the_identifier():
    local = ORIGIN.close("merged-slope", "s", predicted=0, measured=1, tolerance=0.5, basis="b")
    assert (local.id, local.paper, local.figure) == ("merged-slope", "", "")
    claim = local.of_figure("linear/escape-times")
    assert (claim.paper, claim.figure) == ("linear", "escape-times")
    assert claim.as_json()["id"] == "linear/escape-times/merged-slope"


@pytest.mark.parametrize("wrong", ["linear/fig1", "linear/fig1/", "linear/fig1/One", "linear/fig1/a b", "a/b/c/d"])
def test_another_form_of_identifier_is_refused(wrong: str):
    with pytest.raises(InvalidInput, match="such as levels"):
        ORIGIN.close(wrong, "s", predicted=0, measured=0, tolerance=0, basis="b")


@given(st.text())
def test_a_slug_can_stand_in_an_identifier(words: str):
    if (part := slug(words)).strip("."):
        assert ORIGIN.close(f"a/b/x-{part}", "s", predicted=0, measured=0, tolerance=0, basis="b").passed
    assert slug("separate, rank 1") == "separate-rank-1"


@pytest.mark.parametrize("measured", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_fails_and_is_null(measured):
    claim = ORIGIN.close(ID, "s", predicted=0, measured=measured, tolerance=1e300, basis="b")
    assert not claim.passed
    assert json.loads(json.dumps(claim.as_json(), allow_nan=False))["measured"] is None


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=8), st.floats(0.01, 1.0))
def test_the_deciding_value_decides(measured, required):
    claim = ORIGIN.close(ID, "s", predicted=0, measured=measured, tolerance=1, basis="b", required=required)
    holding = sum(abs(m) <= 1 for m in measured)
    assert claim.count == len(measured) and claim.pass_rate == holding / len(measured)
    assert claim.passed == (holding >= math.ceil(required * len(measured) - 1e-9))
    assert claim.passed == (abs(claim.measured - claim.predicted) <= claim.tolerance)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.sampled_from([0.25, 0.5, 1.0]))
def test_a_fraction_is_counted(holds, required):
    claim = ORIGIN.fraction(ID, "s", holds=holds, required=required, basis="b", counted="runs")
    assert claim.measured == claim.pass_rate == sum(holds) / len(holds) and claim.count == len(holds)
    assert claim.passed == (sum(holds) >= required * len(holds)) and claim.counted == "runs"
    assert not ORIGIN.fraction(ID, "s", holds=[], basis="b").judged()


def test_every_value_is_in_the_document_with_what_it_belongs_to():
    runs = xr.DataArray([[1.0, 2.0], [np.nan, 4.0]], {"seed": [300, 301], "drop": [1, 2]}, ("seed", "drop"))
    claim = ORIGIN.at_most(ID, "s", predicted=[2, 2, 3, 3], measured=runs.stack(value=("seed", "drop")), basis="b")
    values = json.loads(json.dumps(claim.as_json(), allow_nan=False))["values"]
    assert [one["label"] for one in values] == [f"seed {seed}, drop {drop}" for seed in (300, 301) for drop in (1, 2)]
    assert [one["measured"] for one in values] == [1, 2, None, 4] and [one["predicted"] for one in values] == [
        2,
        2,
        3,
        3,
    ]
    assert [one["passed"] for one in values] == [True, True, False, False] and not claim.passed
    plain = ORIGIN.close(ID, "s", measured=runs.drop_vars("drop"), basis="b").values
    assert [one.label for one in plain] == [f"seed {seed}, drop {place}" for seed in (300, 301) for place in (1, 2)]
    named = ORIGIN.close(ID, "s", measured=[0.1, 0.2], labels=["head 1", "head 2"], tolerance=[1, 2], basis="b")
    assert [(one.label, one.tolerance) for one in named.values] == [("head 1", 1), ("head 2", 2)]
    held = ORIGIN.fraction(ID, "s", holds=runs[:, 1] > 3, required=0.5, basis="b")
    assert [(one.label, one.measured, one.passed) for one in held.values] == [
        ("seed 300", 0, False),
        ("seed 301", 1, True),
    ]
    assert [one.label for one in ORIGIN.close(ID, "s", measured=[0, 0], basis="b").values] == [None, None]
    assert ORIGIN.close(ID, "s", measured=0, basis="b").values == ()
    with pytest.raises(InvalidInput, match="1 labels of 2 values"):
        ORIGIN.close(ID, "s", measured=[0, 0], labels=["one"], basis="b")


def test_each_value_has_its_own_tolerance():
    options = {"predicted": [1, 2], "measured": [1.5, 2.5], "basis": "b"}
    assert ORIGIN.close(ID, "s", tolerance=[0.6, 0.5], **options).passed
    failing = ORIGIN.close(ID, "s", tolerance=[0.4, 0.5], **options)
    assert (failing.passed, failing.pass_rate, failing.measured) == (False, 0.5, 1.5)


@pytest.mark.parametrize("tolerance", [-1.0, math.nan, math.inf])
def test_a_tolerance_must_be_able_to_fail(tolerance):
    with pytest.raises(InvalidInput):
        ORIGIN.close(ID, "s", predicted=0, measured=0, tolerance=tolerance, basis="b")


@pytest.mark.parametrize("measured", [{"a": 1, "b": 2}.values(), iter([1, 2]), np.array([1, 2]), [np.array(1), 2.0]])
def test_values_may_be_any_iterable(measured):
    claim = ORIGIN.close(ID, "s", predicted=np.array(1.5), measured=measured, tolerance=0.5, basis="b")
    assert claim.passed and claim.count == 2


def test_numbers_of_values_must_match():
    with pytest.raises(InvalidInput):
        ORIGIN.close(ID, "s", predicted=[1, 2], measured=[1], tolerance=0, basis="b")
    with pytest.raises(InvalidInput, match="required"):
        ORIGIN.close(ID, "s", predicted=1, measured=[1], tolerance=0, basis="b", required=0)
    with pytest.raises(InvalidInput, match="required"):
        ORIGIN.fraction(ID, "s", holds=[False], basis="b", required=0)


def test_without_values_a_claim_is_not_judged():
    """Where settings were changed that is no finding; at the figure's own settings it is."""
    claim = ORIGIN.close(ID, "s", predicted=1, measured=[], tolerance=0, basis="b", counted="plateaus")
    assert not claim.judged() and claim.why_not_judged() == "there are no plateaus to judge"
    assert not claim.passed and claim.unexpected(quick=True) and not claim.unexpected(quick=True, changed=["context"])
    assert claim.as_json()["measured"] is None


def test_a_claim_is_not_judged_unless_there_is_no_reason_against_it():
    values: Any = {"predicted": 1, "measured": math.nan, "tolerance": math.nan, "basis": "b"}
    for make in (ORIGIN.close, ORIGIN.at_most, ORIGIN.at_least):
        claim = make(ID, "s", **values, unless="no plateau is long enough")
        assert claim.why_not_judged() == "no plateau is long enough" and not claim.passed
    assert ORIGIN.fraction(ID, "s", holds=[True], basis="b", unless="why").why_not_judged() == "why"
    assert ORIGIN.close(ID, "s", predicted=1, measured=1, basis="b", unless="").judged()


@pytest.mark.parametrize("wrong", [{"measured": np.ones((2, 3))}, {"predicted": np.ones((2, 3))}])
def test_values_are_in_one_row(wrong):
    values: Any = {"predicted": 1.0, "measured": np.ones(2)} | wrong
    with pytest.raises(InvalidInput, match="one number for each value that is compared"):
        ORIGIN.close(ID, "s", **values, tolerance=0.1, basis="b")


def test_a_claim_says_who_says_it():
    options = {"predicted": 0, "measured": 0, "tolerance": 0, "basis": "b"}
    with pytest.raises(InvalidInput, match="paper, other, theory, check"):
        Origin("paper", "").close(ID, "s", **options)
    with pytest.raises(TypeError):
        Origin("paper")  # pyright: ignore
    values: dict[str, Any] = {**options, "measured": [0]}
    claim = Origin("paper", "Theorem 1").close(ID, "s", **values, counted="heads")
    found = claim.as_json()
    assert (found["kind"], found["source"], found["counted"], found["known"]) == ("paper", "Theorem 1", "heads", None)


@pytest.mark.parametrize("measured", [0, 1])
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(
    ("known", "at_quick", "at_full"),
    [
        (None, False, False),
        (Known("why", "heading"), True, True),
        (Known("why", "heading", quick=True), True, False),
        (Known("why", "heading", quick=False), False, True),
    ],
)
def test_unexpected_is_what_is_not_known(measured, quick, known, at_quick, at_full):
    claim = ORIGIN.close(ID, "s", predicted=0, measured=measured, basis="b", known=known)
    expected_to_hold = not (at_quick if quick else at_full)
    assert claim.unexpected(quick) == (claim.passed != expected_to_hold)
    assert claim.as_json()["known"] == (None if known is None else known._asdict())
