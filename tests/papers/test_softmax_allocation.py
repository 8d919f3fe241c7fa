"""Heads are allocated as claimed, and claims fail when the physics is broken."""

import numpy as np

from stepwell.papers.softmax_attention import allocation

FIGURE = "softmax/allocation"


def test_the_opposite_rule_fails(data, failing):
    """The head of smallest ω in place of the largest."""
    starts = data["starts"]
    other = (starts["predicted"] + 1) % 3
    wrong = {**data, "starts": starts.assign(predicted=other)}
    assert failing(wrong) >= {"equal-mu", "random-mu"}


def test_sharing_that_costs_nothing_fails(data, failing):
    starts = data["starts"]
    wrong = starts.assign(cost=0 * starts["cost"] + starts["cost"].values.min())
    assert "cost-2-heads" in failing({**data, "starts": wrong})


def test_heads_that_merge_by_contention_fail(data, failing):
    starts = data["starts"]
    merged = starts.assign(heads_used=0 * starts["heads_used"] + 1)
    assert "contention" in failing({**data, "starts": merged})


def test_another_context_fails_the_rate(data, failing):
    """The first head is then not at its best for the context that is trained on."""
    wrong = allocation.sharing(allocation.Settings(starts=1, steps=100), context=60)
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
    wrong = {**data, "imbalance": imbalance.assign(dying=imbalance["dying"] / 2)}
    assert failing(wrong) >= {"unbalanced-rate", "unbalanced-time"}


def test_the_drawing_has_four_panels(data):
    assert len(allocation.draw(data).axes) == 4
