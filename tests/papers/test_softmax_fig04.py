"""The lower bound holds, of the spectral loss and of softmax attention, and fails when the physics is broken."""

import numpy as np
import pytest

from stepwell.papers.softmax import fig04_lower_bound as figure
from stepwell.papers.softmax._eigenvalues import like_tasks, loss_and_slope
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

FIGURE = "softmax/fig4"
QUICK = figure.FIGURE.at(quick=True)

REFERENCE = {
    # d/L: the Bayes risk, the bound for 1, 2, 3, 5, 10 and 11 heads, the limit of the flow
    0.01: (0.0100, 0.3522, 0.1667, 0.0909, 0.0476, 0.0217, 0.0196, 0.0516),
    0.1: (0.0990, 0.8446, 0.6667, 0.5000, 0.3333, 0.1818, 0.1667, 0.3522),
    0.5: (0.4142, 0.9645, 0.9091, 0.8333, 0.7143, 0.5263, 0.5000, 0.7311),
    1.0: (0.6180, 0.9819, 0.9524, 0.9091, 0.8333, 0.6897, 0.6667, 0.8446),
    1.2: (0.6667, 0.9849, 0.9600, 0.9231, 0.8571, 0.7273, 0.7059, 0.8671),
    2.0: (0.7808, 0.9909, 0.9756, 0.9524, 0.9091, 0.8163, 0.8000, 0.9158),
    5.0: (0.9050, 0.9963, 0.9901, 0.9804, 0.9615, 0.9174, 0.9091, 0.9645),
}
"""Worked out apart from this program, from the formulas for equal tasks; four digits."""


@pytest.mark.parametrize(
    ("changes", "not_judged"),
    [
        (
            {"sizes": "((4, 20),)", "heads": "1", "angle_sizes": "((4, 8),)"},
            {"softmax-sharp", "softmax-linear", "interacting"},
        ),
        (
            {"seeds": "20,21", "softmax_seeds": "1,2", "bound_heads": "1,20", "heads": "1,2", "angles": "2"},
            {"softmax-linear"},
        ),
        (
            {
                "sizes": "((3, 10), (4, 15), (5, 20))",
                "bound_heads": "1,2,3,4,5,6,7,8",
                "heads": "3",
                "angles": "2,3,4,5",
            },
            set(),
        ),
    ],
    ids=["one of each", "two seeds, few heads", "many heads and sizes"],
)
def test_other_settings(survives, changes, not_judged):
    small = {
        "sizes": "((4, 20), (6, 30))",
        "angle_sizes": "((4, 20), (6, 30), (8, 40))",
        "positive": "((4, 10),)",
        "tested": "32",
    }
    numbers = {"searches": "1", "points": "5", "sequences": "32", "steps": "10", "angle_sequences": "32"}
    claims = survives({**small, **numbers, **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == not_judged


def test_curves_are_those_of_the_reference():
    drawn = figure.curves(np.array(list(REFERENCE)), QUICK.bound_heads)
    here = np.stack([drawn["bayes"], *drawn["bound"], drawn["flow"]], axis=1)
    np.testing.assert_allclose(here, np.array(list(REFERENCE.values())), rtol=0, atol=5e-5)


def test_arithmetic_of_the_closed_forms():
    """Heads beyond I + 1 change nothing, the flow's limit is e(1 + γ)/(1 + eγ) of the bound, and Bayes is below all."""
    drawn = figure.curves(np.geomspace(0.01, 5, 40), QUICK.bound_heads)
    gamma = 2 * drawn["ratio"].values
    many = drawn["bound"].sel(heads=11).values
    for heads in (12, 100):
        bounds = [theory.lower_bound(like_tasks(r, figure.TASKS), heads)[0] for r in drawn["ratio"].values]
        np.testing.assert_allclose(bounds, many, rtol=1e-14)
    np.testing.assert_allclose(drawn["flow"] / many, np.e * (1 + gamma) / (1 + np.e * gamma), rtol=1e-6)
    assert float((drawn["bound"] - drawn["bayes"]).min()) > 0


@pytest.mark.parametrize("heads", [2, 3, 4])
def test_heads_at_equal_angles_have_the_equiangular_budget(heads: int):
    corners = figure.directions(heads)
    expected = np.full((heads, heads), -1 / (heads - 1))
    np.fill_diagonal(expected, 1.0)
    np.testing.assert_allclose(corners @ corners.T, expected, atol=1e-12)
    task = figure.pair(20, 100, heads - 1)
    for flatness in figure.FLATNESS:
        shares = theory.profile_loss(task, (flatness / 20) ** 0.5 * corners).shares
        budget = theory.equiangular_budget(heads, flatness, -flatness / (heads - 1))
        np.testing.assert_allclose(shares, budget / (heads - 1), rtol=1e-9)


def test_the_formula_is_the_curve_that_is_drawn(data):
    angles = data["angles"]
    for heads in angles["heads"].values:
        row = angles.sel(heads=heads).isel(size=0)
        between = np.exp(np.interp(np.log(row["flatness"]), np.log(row["fine"]), np.log(row["curve"])))
        np.testing.assert_allclose(between, row["formula"] / (heads - 1), rtol=2e-3)


def test_a_bound_that_is_too_high_fails(data, failing):
    searched = data["searched"]
    assert failing({**data, "searched": searched.assign(bound=1.001 * searched["bound"])}) == {"none-below"}


def test_the_bound_that_is_proved_is_not_sharp(data, failing):
    searched = data["searched"]
    assert failing({**data, "searched": searched.assign(bound=searched["proved"])}) == {"sharp"}


def test_as_many_heads_as_tasks_are_not_enough(data, failing):
    searched = data["searched"]
    heads, tasks, loss = searched["heads"].values, searched["tasks"].values, searched["loss"].values.copy()
    loss[heads == tasks + 1] = loss[heads == tasks]
    wrong = searched.assign(loss=(searched["loss"].dims, loss))
    assert failing({**data, "searched": wrong}) == {"sharp", "enough-heads"}


def test_a_search_without_a_number_fails(data, failing):
    searched = data["searched"]
    enough = searched["heads"] > searched["tasks"]
    wrong = searched.assign(loss=searched["loss"].where(~enough | (searched["tasks"] < 3)))
    assert failing({**data, "searched": wrong}) == {"none-below", "enough-heads"}


def test_softmax_attention_below_the_bound_fails(data, failing):
    """Or above it by as much at any size, or elsewhere than linear attention."""
    minima = data["softmax"]
    lower = minima.assign(loss=2 * minima["bound"] - minima["loss"])
    assert {"softmax-none-below", "softmax-linear"} <= failing({**data, "softmax": lower})
    still = minima.assign(loss=minima["bound"] * (1.02 + 0 * minima["loss"]), linear=1.02 * minima["linear"])
    assert "softmax-sharp" in failing({**data, "softmax": still})
    other = minima.assign(linear=1.02 * minima["linear"])
    assert failing({**data, "softmax": other}) == {"softmax-linear"}


def test_softmax_attention_above_the_factor_fails(data, failing):
    """Or elsewhere than quadrature has it."""
    trained = data["positive"]
    assert failing({**data, "positive": trained.assign(loss=3.05 * trained["bound"])}) == {"trained", "trained-best"}
    for factor in (0.97, 1.03):
        assert failing({**data, "positive": trained.assign(loss=factor * trained["best"])}) == {"trained-best"}


def test_heads_that_do_not_interact_fail(data, failing):
    """A formula that is 3 % off at every size, as one without the overlaps between heads would be."""
    angles = data["angles"]
    assert failing({**data, "angles": angles.assign(formula=0.97 * angles["formula"])}) == {"interacting"}


def test_heads_at_equal_angles_are_near_their_bound(data, failing):
    """Above it by 5 % at the largest angle: a bound 6 % higher fails."""
    others = data["cosines"]
    assert failing({**data, "cosines": others.assign(loss=others["loss"] / 1.06)}) == {"equal-angles"}


@pytest.mark.parametrize(("heads", "cosine"), [(2, -1.0), (3, 0.0), (4, 0.5)])
def test_heads_at_a_cosine_have_it(heads: int, cosine: float):
    vectors = figure.at_cosine(heads, cosine)
    expected = np.full((heads, heads), cosine)
    np.fill_diagonal(expected, 1.0)
    np.testing.assert_allclose(vectors @ vectors.T, expected, atol=1e-12)


def test_slopes_of_the_search_are_derivatives():
    task = MultiTaskRegression((3, 5), (1.0, 2.0), 20, noise_variance=0.5)
    rng = np.random.default_rng(0)
    point, direction = rng.normal(0, 0.4, (2, 2, 3, 2))
    _, slopes = loss_and_slope(task, *point)
    ends = [loss_and_slope(task, *(point + step * direction))[0] for step in (1e-5, -1e-5)]
    np.testing.assert_allclose((ends[0] - ends[1]) / 2e-5, np.sum(slopes * direction), rtol=1e-7)


def test_the_drawing_has_five_panels_with_words(data):
    drawn = figure.draw(data, QUICK)
    assert len(drawn.axes) == 5
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
