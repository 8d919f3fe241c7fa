"""The landscape holds, and each claim fails when its physics is broken."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell.objectives import Population
from stepwell.papers.linear import landscape
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory

FIGURE = "linear/landscape"
QUICK = landscape.FIGURE.at(quick=True)
KNOWN = {"c3"}


def task(context, eigenvalues=QUICK.eigenvalues):
    return InContextRegression(covariance(eigenvalues, key=jax.random.key(0)), context)


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({"heads": "1", "context": "3", "eigenvalues": "3,2,1", "searches": "2"}, set()),
        ({"eigenvalues": "1", "heads": "5", "searches": "20", "steps": "60", "search_context": "5"}, {"strict"}),
    ],
)
def test_other_settings(survives, changes, unjudged):
    claims = survives({"searches": "8", "steps": "2", "seed": "3", **changes})
    searched = {f"{family}-no-others" for family in ("merged", "rank-one", "low-rank")} | {
        "c2",
        "c3",
        "merged-contained",
    }
    assert {name for name, claim in claims.items() if not claim.judged()} - searched == unjudged
    # Two steps find nothing.
    assert claims["rank-one-no-others"].judged() == ("steps" in changes) == claims["c2"].passed
    assert all(claims[name].passed for name in ("gradient", "loss", "path", "one-minimum", "third-order"))


def test_merged_points_of_another_context_fail(data, failing):
    wrong = landscape.survey_merged(task(31), 4, QUICK.drawn, theory_task=task(15))
    assert failing({**data, "merged": wrong}) - KNOWN >= {"merged-points"}


@pytest.mark.parametrize(
    ("place", "name", "number", "broken"),
    [(0, "negative", 0, "merged-unstable"), (1, "negative", 1, "merged-stable"), (2, "positive", 15, "merged-stable")],
)
def test_other_signs_of_the_hessian_fail(data, failing, place, name, number, broken):
    merged = data["merged"].copy(deep=True)
    merged[name].values[place] = number
    assert failing({**data, "merged": merged}) - KNOWN == {broken}


@pytest.mark.parametrize("change", [{"beyond": True}, {"theory_task": task(15)}])
def test_weights_off_the_conditions_fail(data, failing, change):
    """Idle heads outside the span, and heads in use with another map."""
    wrong = landscape.meet_conditions(task(31), QUICK.drawn, **change)
    assert failing({**data, "conditions": wrong}) - KNOWN == {"conditions"}


def test_points_of_merged_attention_elsewhere_fail(data, failing):
    search = data["search"]
    moved = search.assign(map=search["map"] + 1e-6 * (search["family"] == "merged"))
    assert failing({**data, "search": moved}) - KNOWN == {"merged-contained"}


def test_there_are_sixteen_points_of_three_kinds(data):
    kinds, counts = np.unique(data["points"]["kind"], return_counts=True)
    assert dict(zip(kinds.tolist(), counts.tolist(), strict=True)) == {
        "higher-order saddle": 4,
        "minimum": 1,
        "strict saddle": 11,
    }
    np.testing.assert_array_equal(data["points"]["negative"], data["points"]["predicted_negative"])


def test_the_theory_of_another_context_fails(data, failing):
    wrong = landscape.survey(task(31), 4, theory_task=task(15))
    assert failing({**data, "points": wrong}) >= {"gradient", "loss"}


def test_the_wrong_sign_of_the_values_fails(data, failing):
    wrong = landscape.survey(task(31), 4, sign=-1.0)
    assert failing({**data, "points": wrong}) >= {"gradient", "loss", "path"}


def test_a_point_off_the_path_without_a_negative_direction_fails(data, failing):
    points = data["points"].copy(deep=True)
    points["negative"][2] = 0
    assert failing({**data, "points": points}) - KNOWN == {"strict", "one-minimum"}


def test_a_way_down_of_second_order_fails(data, failing):
    points = data["points"].copy(deep=True)
    points["fall_near"] = points["fall_near"] * 10
    assert failing({**data, "points": points}) - KNOWN == {"third-order"}


def test_fixed_points_of_another_context_are_not_found(data, failing):
    wrong = landscape.search_all(QUICK, theory_context=19)
    assert failing({**data, "search": wrong}) - KNOWN == {
        "merged-no-others",
        "rank-one-no-others",
        "low-rank-no-others",
    }


def test_a_fixed_point_that_is_never_reached_fails(data, failing):
    search = data["search"].copy(deep=True)
    one = search["family"] == "rank-one"
    missed = one & (search["nearest"] == 1)  # one component alone
    search["converged"] = search["converged"] & ~missed
    search["group"] = search["group"].where(~missed, -1)
    assert failing({**data, "search": search}) - KNOWN == {"rank-one-all"}


def test_a_fixed_point_that_nobody_predicted_fails(data, failing):
    search = data["search"].copy(deep=True)
    row = int(np.flatnonzero(search["family"] == "merged")[0])
    place = int(np.flatnonzero(search["converged"][row])[0])
    search["distance"][row, place], search["group"][row, place] = 0.1, 9
    assert failing({**data, "search": search}) - KNOWN == {"merged-no-others", "merged-all"}


def test_keys_outside_the_span_fail(data, failing):
    search = data["search"].copy(deep=True)
    row = int(np.flatnonzero(search["family"] == "rank-one")[0])
    search["off_span"][row] += 1e-6
    assert failing({**data, "search": search}) - KNOWN == {"c2"}


def test_if_the_papers_lists_were_complete_the_claims_of_more_would_fail(data, failing):
    search = data["search"].assign(elsewhere=0 * data["search"]["elsewhere"])
    assert failing({**data, "search": search}) == {"more-zeros", "more-idle-heads"}


def test_weights_that_the_paper_does_not_list_are_fixed():
    """A head with v = 0, key and query along two unlearned eigenvectors; values zero, U at right angles to Λ²."""
    given = task(20, (0.6, 0.4))
    first, second = theory.modes(given).directions.T
    _, separate = landscape.model_of_weights("separate", 2, 1)
    _, merged = landscape.model_of_weights("merged", 2, 1)
    for build, weights in (
        (separate, np.concatenate([[0.0], first, second])),
        (merged, np.concatenate([[0.0], np.outer(first, second).ravel()])),
    ):
        slope = jax.grad(lambda w, build=build: Population(given)(build(w)))(jnp.asarray(weights))
        assert float(jnp.abs(slope).max()) < 1e-15


def test_the_method_finds_minima_and_saddles_alike():
    """Critical points of x⁴/4 − x²/2 + y²: (0, 0) and (±1, 0)."""
    starts = np.random.default_rng(0).normal(size=(40, 2)) * 2
    ends, gradient = landscape.minimize_gradient(lambda w: w[0] ** 4 / 4 - w[0] ** 2 / 2 + w[1] ** 2, starts, 100)
    converged = gradient <= landscape.GRADIENT
    assert converged.sum() > 20
    assert set(np.round(ends[converged, 0], 9)) == {-1.0, 0.0, 1.0}
    assert np.abs(ends[converged, 1]).max() < 1e-11


@pytest.mark.parametrize("searched", landscape.FIGURE.settings.searched, ids=lambda searched: searched.name)
def test_the_bound_on_the_distance(searched):
    """Near every fixed point, weights whose gradient is ε have maps within the bound for ε."""
    given = landscape.search_task(searched, QUICK.search_context)
    dim, rng = given.dim, np.random.default_rng(0)
    size, build = landscape.model_of_weights(searched.kind, dim, searched.heads, searched.rank)
    slope = jax.jit(jax.grad(lambda w: Population(given)(build(w))))
    for point in theory.fixed_points(given):
        if searched.kind == "merged":
            if 0 < len(point.learned) < dim:
                continue
            exact = np.concatenate([np.full(searched.heads, 1.0), np.zeros(size - searched.heads)])
            exact[searched.heads :] = np.tile(point.effective_map.ravel() / searched.heads, searched.heads)
            exact = exact if point.learned else 0 * exact
        else:
            weights = theory.aligned_weights(given, point.learned, heads=searched.heads, rank=searched.rank)
            exact = np.concatenate([part.ravel() for part in weights])
        moved = exact + 1e-5 * rng.normal(size=size)
        ends = np.asarray(build(jnp.asarray(moved)).effective_map()[0, 0])
        distance = theory.prediction_distance(given, ends, point.effective_map)
        # The bound holds for weights up to `WEIGHT` and any gradient, in proportion.
        gradient = float(jnp.abs(slope(jnp.asarray(moved))).max())
        assert distance <= landscape.distance_bound(given, searched) * gradient / landscape.GRADIENT


def test_the_drawing_has_four_panels_with_words(data):
    drawn = landscape.draw(data, QUICK)
    assert len(drawn.axes) == 4
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
