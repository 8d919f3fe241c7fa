"""Heads are allocated as claimed, and claims fail when the physics is broken."""

import numpy as np
import pytest

from stepwell.papers.softmax_attention import allocation

ALONE, RANDOM_MU, CONTENTION, CHANCE, MORE = range(5)


@pytest.fixture(scope="module")
def data():
    return allocation.simulate(quick=True)


def failing(data) -> set[str]:
    return {claim.statement for claim in allocation.claims(data) if not claim.passed}


def fails(data, words: str) -> bool:
    found = [claim for claim in allocation.claims(data) if words in claim.statement]
    assert len(found) == 1
    return not found[0].passed


def test_all_claims_hold(data):
    assert failing(data) == set()


def test_the_opposite_rule_fails(data):
    """The head of smallest ω in place of the largest."""
    starts = data["starts"]
    other = (starts["predicted"] + 1) % 3
    wrong = {**data, "starts": starts.assign(predicted=other)}
    assert fails(wrong, "Equal μ") and fails(wrong, "Random ω and μ")


def test_sharing_that_costs_nothing_fails(data):
    starts = data["starts"]
    wrong = starts.assign(cost=0 * starts["cost"] + starts["cost"].values.min())
    assert fails({**data, "starts": wrong}, "two tasks in one head: final loss")


def test_heads_that_merge_by_contention_fail(data):
    starts = data["starts"]
    assert fails({**data, "starts": starts.assign(heads_used=0 * starts["heads_used"] + 1)}, "never adds to sharing")


def test_another_context_fails_the_threshold_or_the_rate(data):
    """The first head is then not at its best for the context that is trained on."""
    wrong = allocation.sharing(allocation.Settings(starts=1, steps=100), context=60)
    claims = {c.statement[:30]: c.passed for c in allocation.claims({**data, "sharing": wrong})}
    assert not claims["A small head beside a shared o"]


def test_a_threshold_for_a_head_alone_fails(data):
    sharing = data["sharing"]
    assert fails({**data, "sharing": sharing.assign(threshold=1.0)}, "Sharing is left")


def test_an_imbalance_that_does_nothing_fails(data):
    found = data["imbalance"]
    loss = np.broadcast_to(found["loss"].values[0], found["loss"].shape)
    claims = [c for c in allocation.claims({**data, "imbalance": found.assign(loss=(found["loss"].dims, loss))})]
    assert any(not c.passed and "ends below the middle" in c.statement for c in claims)


def test_a_rate_of_half_fails(data):
    found = data["imbalance"]
    wrong = {**data, "imbalance": found.assign(dying=found["dying"] / 2)}
    assert fails(wrong, "goes through zero") and fails(wrong, "grown back")


def test_the_drawing_has_four_panels(data):
    assert len(allocation.draw(data).axes) == 4
