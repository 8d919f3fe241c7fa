"""Heads are allocated as claimed, and claims fail when the physics is broken."""

from dataclasses import replace

import numpy as np
import pytest

from stepwell.papers.softmax import allocation
from stepwell.papers.softmax._allocation_runs import sharing

FIGURE = "softmax/allocation"
QUICK = allocation.FIGURE.at(quick=True)
SMALL = {
    "context": "20",
    "embedding": "4",
    "omega": "0.01",
    "rate": "0.05",
    "draws": "1",
    "steps": "100",
    "softmax_runs": "1",
    "softmax_sequences": "32",
    "softmax_steps": "40",
    "softmax_tested": "32",
    "unequal_runs": "1",
    "unequal_sequences": "32",
}


@pytest.mark.parametrize(
    "changes",
    [
        {"dims": "4"},
        {"dims": "4,4", "draws": "2", "softmax_runs": "2"},
        {"dims": "3,5,4,6"},
    ],
)
def test_other_settings(survives, changes):
    """Too short for the limit to be left; a single task has no contention, and tasks that differ no common level."""
    claims = survives({**SMALL, **changes})
    assert claims["sharing-rate"].judged() and claims["balanced-end"].judged() and claims["unbalanced-bound"].judged()
    assert not claims["unbalanced-time"].judged() and not claims["unbalanced-end"].judged()
    assert any(name.startswith("softmax-cost") for name in claims) <= (changes.get("dims") != "3,5,4,6")


@pytest.fixture
def failing(failing):
    """What fails besides the claim that is known to."""
    return lambda data: failing(data) - {"softmax-one-head"}


def test_the_claims_hold_but_for_the_one_that_is_known(data):
    assert [claim.id for claim in allocation.claims(data, QUICK) if claim.unexpected(quick=True)] == []


def test_two_tasks_in_one_head_are_no_head_a_task(data):
    """The claim holds of the runs that end with a head for each task, and fails of the others."""
    for name, claim in (("equal", "softmax-one-head"), ("unequal", "softmax-unequal-one-head")):
        runs = data[name]
        for heads, served_by in ((2, [0, 1, 0]), (3, [2, 0, 1])):
            given = runs.assign(served_by=0 * runs["served_by"] + np.array(served_by))
            judged = {one.id: one for one in allocation.claims({**data, name: given}, QUICK)}
            assert judged[claim].passed == (heads == 3)


def test_another_rule_fails(data, failing):
    """The next head in place of the predicted one."""
    for name, claims in (
        ("equal", {"softmax-winners"}),
        ("unequal", {"softmax-unequal-winners"}),
        ("random", {"equal-mu", "random-mu"}),
    ):
        runs = data[name]
        other = (runs["predicted"] + 1) % 3
        assert failing({**data, name: runs.assign(predicted=other)}) == claims


def test_heads_that_share_the_work_fail(data, failing):
    """Two heads that give half of each prediction."""
    for name, claim in (("equal", "softmax-undivided"), ("unequal", "softmax-unequal-undivided")):
        assert failing({**data, name: data[name].assign(share=data[name]["share"] / 2)}) == {claim}


def test_the_limit_of_the_surrogate_is_not_that_of_softmax_attention(data, failing):
    """It is a tenth lower."""
    runs = data["unequal"]
    assert failing({**data, "unequal": runs.assign(level=runs["limit"])}) == {"softmax-unequal-end"}


def test_sharing_that_costs_nothing_fails(data, failing):
    drawn, equal = data["random"], data["equal"]
    wrong = drawn.assign(cost=0 * drawn["cost"] + drawn["cost"].values.min())
    assert failing({**data, "random": wrong}) == {"cost-2-heads", "cost-1-heads"}
    free = equal.assign(level=0 * equal["level"] + equal["level"].sel(used=3))
    assert failing({**data, "equal": free}) == {"softmax-cost-2-heads"}


def test_heads_that_merge_by_contention_fail(data, failing):
    for name, claim in (("random", "contention"), ("equal", "softmax-contention")):
        merged = data[name].assign(heads_used=0 * data[name]["heads_used"] + 1)
        assert claim in failing({**data, name: merged})


def test_another_context_fails_the_rate(data, failing):
    """The first head is then not at its best for the context that is trained on."""
    wrong = sharing(replace(QUICK, draws=1, steps=100), context=60)
    assert "sharing-rate" in failing({**data, "sharing": wrong})


def test_a_threshold_for_a_head_alone_fails(data, failing):
    sharing = data["sharing"]
    assert "sharing-threshold" in failing({**data, "sharing": sharing.assign(threshold=1.0)})


def test_an_imbalance_that_does_nothing_fails(data, failing):
    imbalance = data["imbalance"]
    loss = np.broadcast_to(imbalance["loss"].values[0], imbalance["loss"].shape)
    assert "unbalanced-end" in failing({**data, "imbalance": imbalance.assign(loss=(imbalance["loss"].dims, loss))})


def test_a_rate_of_half_fails(data, failing):
    imbalance = data["imbalance"]
    slower = imbalance["log_mu"][0] + (imbalance["log_mu"] - imbalance["log_mu"][0]) / 2
    wrong = {**data, "imbalance": imbalance.assign(log_mu=slower)}
    assert failing(wrong) == {"unbalanced-rate", "unbalanced-time"}


def test_the_drawing_has_six_panels_with_words(data):
    drawn = allocation.draw(data, QUICK)
    assert len(drawn.axes) == 6
    assert all(axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
