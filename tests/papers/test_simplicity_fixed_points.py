"""Fixed points of narrow networks are those of wide ones under their conditions, and not without."""

import jax.numpy as jnp
import numpy as np
import pytest

from stepwell.papers.simplicity import fixed_points as figure
from stepwell.papers.simplicity._networks import NETWORKS, Landscape, Sigmoid, random_weights

FIGURE = "simplicity/fixed-points"
KNOWN = {"zero-inner"}
SLOPES = {"zero-inner", "zero-inner-slope", "zero-inner-gradient"}


@pytest.mark.parametrize(
    ("networks", "unjudged"),
    [("sigmoid", {"degrees", "images", *SLOPES}), ("linear,attention", SLOPES), ("ReLU", {"degrees", "images"})],
)
def test_other_settings(survives, networks: str, unjudged: set[str]):
    claims = survives({"networks": networks, "seeds": "3"})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


def test_other_conditions_fail(data, failing):
    points = data["points"]
    wrong = points.assign(applies=~points["applies"])
    expected = {"listed", "same-map", "conditions", "degrees", "images"}
    assert failing({**data, "points": wrong}) - KNOWN == expected


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_at_a_point_found_fails(data, failing, value: float):
    points = data["points"].copy(deep=True)
    points["gradient"].loc[{"network": "quadratic"}] = value
    assert failing({**data, "points": points}) - KNOWN == {"listed", "conditions", "degrees", "images"}
    points = data["points"].copy(deep=True)
    points["change"].loc[{"network": "quadratic", "seed": 200}] = value
    assert failing({**data, "points": points}) - KNOWN == {"same-map"}
    ways = data["zero-inner"].copy(deep=True)
    ways["slope"][0, 0] = value
    assert "zero-inner-slope" in failing({**data, "zero-inner": ways})


def test_a_search_that_found_none_is_counted(data):
    points = data["points"].copy(deep=True)
    for name, value in {"found": False, "gradient": np.nan, "change": np.nan}.items():
        points[name].loc[{"network": "quadratic", "seed": 200}] = value
    claims = figure.claims({**data, "points": points}, figure.FIGURE.at(quick=True))
    before = figure.claims(data, figure.FIGURE.at(quick=True))
    for claim, other in zip(claims[:5], before[:5], strict=True):
        assert claim.passed and len(claim.values) < len(other.values)
        none = int((~data["points"]["found"]).sum())
        assert f"{none} of 6 searches" in other.statement and f"{none + 1} of 6 searches" in claim.statement


def test_a_slope_of_the_other_sign_fails(data, failing):
    ways = data["zero-inner"]
    assert failing({**data, "zero-inner": ways.assign(predicted=-ways["predicted"])}) - KNOWN == {"zero-inner-slope"}


def test_if_no_slope_were_negative_the_paper_would_be_right(data, failing):
    ways = data["zero-inner"].map(abs)
    assert failing({**data, "zero-inner": ways}) == set()


def test_a_gradient_of_first_order_fails(data, failing):
    assert failing({**data, "zero-inner": data["zero-inner"].assign(gradient=1e-9)}) - KNOWN == {"zero-inner-gradient"}


@pytest.mark.parametrize("power", [1, 2, 3])
def test_gradients_are_the_formulas(power: int):
    """∂L/∂v = -2E[φ(u) e] and ∂L/∂u = -2E[(v·e) ∂φ(u)], written out for powers."""
    name = {1: "linear", 2: "quadratic", 3: "cubic"}[power]
    rng = np.random.default_rng(power)
    landscape = Landscape(name, rng)
    x, y = map(np.asarray, landscape.examples)
    weights = random_weights(NETWORKS[name], 2, rng)
    v, u = weights[:, :3], weights[:, 3:]
    scores = x @ u.T
    error = y - scores**power @ v
    outer = -2 * (scores**power).T @ error / len(x)
    inner = -2 * (power * scores ** (power - 1) * (error @ v.T)).T @ x / len(x)
    losses, gradients = landscape(weights[None])
    np.testing.assert_allclose(losses[0], np.mean(np.sum(error**2, axis=1)), rtol=1e-12)
    np.testing.assert_allclose(gradients[0], np.hstack([outer, inner]), atol=1e-12 * np.abs(gradients).max())


def test_a_sigmoid_is_not_zero_for_zero_weights():
    model = Sigmoid(jnp.ones((1, 1, 1)), jnp.zeros((1, 3)))
    assert model(jnp.ones(3)).tolist() == [0.5] and model.smooth


def test_the_drawing_has_two_panels_with_words(data):
    drawn = figure.draw(data, figure.FIGURE.at(quick=True))
    table, leaving, *_ = drawn.axes
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in (table, leaving))
