"""Water-filling is what single heads are trained to, and not something else."""

import numpy as np
import pytest
import xarray as xr

from stepwell.figures import InvalidInput
from stepwell.papers.softmax import single_head as figure
from stepwell.papers.softmax._eigenvalues import like_tasks
from stepwell.theory.softmax import flow_limit_loss, single_head_optimum

FIGURE = "softmax/single-head"
QUICK = figure.FIGURE.at(quick=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": "3", "sizes": "1"},
        {"seeds": "3,4", "sizes": "1,2,3", "instances": ("two left out", "unequal dimensions")},
    ],
)
def test_other_settings(survives, changes):
    """Of one size there is no exponent."""
    claims = survives({"steps": "100", **changes})
    unjudged = {name for name, claim in claims.items() if not claim.judged()}
    assert unjudged == ({"one-left-out-softmax-loss"} if changes["sizes"] == "1" else set())


def test_an_unknown_instance_is_refused():
    with pytest.raises(InvalidInput, match="instances has 'none'; it must be of unequal dimensions, one left out"):
        figure.FIGURE.with_changes({"instances": ("none",)})


def test_the_claims_hold(data, failing):
    assert failing(data) == set()


def test_attention_in_equal_parts_fails(data, failing):
    """If softmax attention served all tasks alike."""
    runs = data["softmax1"]
    alike = runs.assign(square=0 * runs["square"] + 0.25)
    assert failing({**data, "softmax1": alike}) == {"one-left-out-softmax-shares"}


def test_a_twentieth_of_attention_or_of_the_price_elsewhere_fails(data, failing):
    """At the larger size, where they may be off by 0.034; at the smaller they may by 0.068."""
    runs = data["softmax1"]
    parts = runs["square"] / runs["square"].sum("task")
    moved = parts + xr.DataArray([-0.025, 0.025, 0.0, 0.0], dims="task")
    assert failing({**data, "softmax1": runs.assign(square=moved)}) == {"one-left-out-softmax-shares"}
    assert failing({**data, "softmax1": runs.assign(several=0.95 * runs["several"])}) == {"one-left-out-softmax-price"}


def test_differences_that_do_not_fall_as_one_over_d_fail(data, failing):
    """As the root of 1/d, and not at all."""
    runs = data["softmax1"]
    for power in (0.5, 0.0):
        excess = float(runs["loss"][0] / runs["best_loss"] - 1) * (runs["size"] / runs["size"][0]) ** -power
        wrong = runs.assign(loss=runs["best_loss"] * (1 + excess))
        assert "one-left-out-softmax-loss" in failing({**data, "softmax1": wrong})


def test_several_heads_as_dear_as_one_fail(data, failing):
    runs = data["softmax1"]
    assert failing({**data, "softmax1": runs.assign(several=runs["loss"])}) == {"one-left-out-softmax-price"}


def test_another_rate_of_fading_fails_for_softmax_attention(data, failing):
    runs = data["softmax1"]
    assert failing({**data, "softmax1": runs.assign(faded=1.2 * runs["faded"])}) == {"one-left-out-softmax-fading"}


def test_another_context_in_the_prediction_fails(data, monkeypatch, failing):
    changed = {name: (d, lam, n + 20) for name, (d, lam, n) in figure.INSTANCES.items()}
    kept = data["unequal2"]
    with monkeypatch.context() as patch:
        patch.setattr(figure, "INSTANCES", changed)
        other = figure.unequal("one left out", QUICK)
    wrong = kept.assign(best_omega=other["best_omega"], best_loss=other["best_loss"], fading=other["fading"])
    assert failing({**data, "unequal2": wrong}) == {"one-left-out-shares", "one-left-out-loss", "one-left-out-fading"}


def test_attention_above_its_budget_fails(data, failing):
    unequal = data["unequal1"]
    wrong = unequal.assign(omega=unequal["omega"] * 2**0.5)
    assert failing({**data, "unequal1": wrong}) == {"unequal-dimensions-shares"}


def test_exponential_fading_fails(data, failing):
    unequal = data["unequal3"]
    assert failing({**data, "unequal3": unequal.assign(fading=1.1 * unequal["fading"])}) == {"two-left-out-fading"}


def test_the_ratio_for_equal_tasks_tends_to_their_number():
    """I(1+ρ)/(1+Iρ), ρ = eφd/L, from the closed forms of both losses; φ = 2."""
    for over in (1e-1, 1e-2, 1e-3):
        for count in (2, 5, 10):
            task = like_tasks(over, count)
            ratio = single_head_optimum(task).loss.sum() / flow_limit_loss(task).sum()
            wanted = count * (1 + 2 * np.e * over) / (1 + count * 2 * np.e * over)
            np.testing.assert_allclose(ratio, wanted, rtol=1e-6)


def test_the_drawing_has_three_panels_with_words(data):
    drawn = figure.draw(data, QUICK)
    assert len(drawn.axes) == 3
    assert all(axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
