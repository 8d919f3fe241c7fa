"""Fig 11 holds, and each claim fails when the law is another."""

from dataclasses import replace

import numpy as np
import pytest

from stepwell.analysis import passage_time
from stepwell.papers.linear import fig11_new_pair as fig11
from stepwell.theory import linear as theory

FIGURE = "linear/fig11"
QUICK = fig11.FIGURE.at(quick=True)
TASK = QUICK.task


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({"seeds": "2,3", "eigenvalues": "1,0.5", "context": "5", "steps": "50", "points": "20"}, set()),
        (
            {"init": "5", "sizes": "2", "heads": "3", "runs": "1"},
            {"head-rate", "pair-rate", "head-hyperbolic", "pair-exponential", "head-wait", "pair-wait"},
        ),
    ],
)
def test_other_settings(survives, changes, unjudged):
    claims = survives({"steps": "200", "runs": "2", **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged
    assert claims["same-head"].passed


def test_the_driving_of_the_wrong_component_fails(data, failing):
    wrong = data["theory"].assign(driving=QUICK.eigenvalues[2] ** 2)
    assert failing({**data, "theory": wrong}) >= {"head-rate", "pair-rate", "pair-wait"}


def test_a_third_of_the_context_fails(data, failing):
    """N sets the value of the grown head, and with it the rate of a pair."""
    assert failing({**data, "theory": fig11.predict(replace(QUICK, context=10).task)}) >= {"pair-rate", "pair-wait"}


def test_the_whole_gradient_in_place_of_half_fails(data, failing):
    fast = {name: data[name].assign(time=data[name]["time"] / 2) for name in ("new_head", "new_pair")}
    assert failing({**data, **fast}) == {"head-rate", "pair-rate"}


def test_a_head_that_grows_exponentially_fails(data, failing):
    head = data["new_head"].copy(deep=True)
    time = head["time"].values - head["time"].values[:, :1]
    head["size"] = (head["size"].dims, head["size"].values[:, :1] * np.exp(1.6 * time / np.ptp(time, axis=1)[:, None]))
    assert failing({**data, "new_head": head}) >= {"head-rate", "head-hyperbolic"}


def test_a_pair_that_grows_hyperbolically_fails(data, failing):
    pair = data["new_pair"].copy(deep=True)
    first, last = 1 / pair["size"].values[:, :1], 1 / pair["size"].values[:, -1:]
    part = np.linspace(0, 1, pair.sizes["point"])
    pair["size"] = (pair["size"].dims, 1 / (first + (last - first) * part))
    assert failing({**data, "new_pair": pair}) >= {"pair-rate", "pair-exponential"}


def test_head_and_pair_exchanged_fail(data, failing):
    waited = data["waits"].rename(head="pair", pair="head")
    assert failing({**data, "waits": waited}) == {"head-wait", "pair-wait"}


def test_what_is_not_given_a_start_stays_zero():
    weights = 1e-2 * np.random.default_rng(0).normal(size=9)
    trajectory = fig11.run(TASK, fig11.initial_model(TASK, "pair", weights), 300.0)
    assert float(abs(trajectory["value"][0, :, 1]).max()) == 0.0
    trajectory = fig11.run(TASK, fig11.initial_model(TASK, "head", weights), 300.0)
    assert float(abs(trajectory["key"][0, :, 0, 1]).max()) == 0.0
    assert float(abs(trajectory["key"][0, :, 1, 1]).max()) == 0.0


def test_what_the_law_leaves_out_is_the_slope_at_the_first_point(data):
    """From the start alone, against a difference quotient of the run; the rise itself takes (v/v_end)³."""
    head = data["new_head"]
    y, t = 1 / head["size"].values, head["time"].values
    slopes = -(y[:, 1] - y[:, 0]) / (t[:, 1] - t[:, 0]) / float(data["theory"]["driving"])
    np.testing.assert_allclose(abs(1 - slopes), head["left_out"].values, atol=2e-3)


def test_nothing_is_left_out_of_an_aligned_head():
    weights = np.zeros(9)
    weights[[0, 2, 6]] = 1e-3
    # v² = ‖k‖² stays so, and one direction is all there is; the path is cut into steps of 0.004 in I.
    assert fig11.left_out(TASK, weights, 0.1) < 2e-3


@pytest.mark.parametrize("kind", fig11.KINDS)
def test_waits_against_the_integrated_equations(data, kind):
    half = float(theory.levels(TASK)[1:3].mean())
    for small, wait in zip(QUICK.sizes, data["waits"][kind].values, strict=True):
        if kind == "head":
            # The gain is 1 - (1 - x³)², x = v/v_end.
            height = theory.aligned_end(TASK, fig11.NEXT) * (1 - 0.5**0.5) ** (1 / 3)
            wanted = theory.aligned_time(TASK, fig11.NEXT, small, np.array([height]))[0]
        else:
            end, times = theory.aligned_end(TASK, 0), np.linspace(0.0, 1.5 * wait, 2001)
            course = theory.head_course(TASK, [0, 1], times, end, np.array([end, small]))
            wanted = passage_time(times, course.loss, half)
        # Saved times are 0.6 % apart.
        assert wait == pytest.approx(wanted, rel=6e-3)


def test_a_fresh_head_for_every_drop_fails(data, failing):
    """As in rank one."""
    every = np.repeat(np.arange(8)[None], data["makers"].sizes["run"], axis=0)
    assert failing({**data, "makers": data["makers"].assign(head=(("run", "component"), every))}) == {"same-head"}


def test_heads_that_take_turns_fail(data, failing):
    """Two components each, but not one after the other."""
    every = np.repeat(np.array([0, 1, 0, 1, 2, 3, 2, 3])[None], data["makers"].sizes["run"], axis=0)
    assert failing({**data, "makers": data["makers"].assign(head=(("run", "component"), every))}) == {"same-head"}


def test_the_drawing(data):
    titles = [axes.get_title(loc="left")[:3] for axes in fig11.draw(data, QUICK).axes]
    assert titles == ["(a)", "", "(b)", "(c)", "(d)"]
