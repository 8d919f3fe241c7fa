"""Linear networks learn mode after mode at the times predicted, and not at those of other predictions."""

import numpy as np
import pytest
import scipy.integrate

from stepwell.figures import InvalidInput
from stepwell.papers.simplicity import directions as figure
from stepwell.papers.simplicity._linear_networks import drop_times, loss_curve

FIGURE = "simplicity/directions"


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({"strengths": "1", "scales": "1e-3"}, {"whole-flow", "closest-approach"}),
        ({"strengths": "1,0.4", "scales": "1e-3,1e-4", "smallest": "1e-3"}, {"exponents"}),
    ],
)
def test_other_settings(survives, changes: dict[str, str], unjudged: set[str]):
    claims = survives({"seeds": "3", "drawn": "20", **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


@pytest.mark.parametrize(("name", "value"), [("units", 3), ("strengths", (0.5, 1.0))])
def test_settings_without_a_prediction_are_refused(name: str, value):
    with pytest.raises(InvalidInput, match=name):
        figure.Settings(**{name: value})


def test_another_exponent_fails(data, failing):
    field = data["field"]
    wrong = field.assign(rest=field["rest"] * field["scale"] ** 0.01)
    assert failing({**data, "field": wrong}) == {"exponents"}


@pytest.mark.parametrize(("name", "claim"), [("rest", "whole-flow"), ("least", "closest-approach")])
def test_another_power_of_the_scale_fails(data, failing, name: str, claim: str):
    run = data["flow"]
    assert failing({**data, "flow": run.assign({name: run[name] * run["scale"] ** 0.05})}) == {claim}


def test_times_without_what_is_orthogonal_fail(data, failing):
    """As if the second mode grew from all of its part in the initial weights."""
    run = data["flow"]
    late = run["predicted"] - 0.3 * (run["mode"] == 2)
    assert failing({**data, "flow": run.assign(predicted=late)}) == {"drop-times"}


def test_a_curve_that_is_off_fails(data, failing):
    run = data["flow"]
    assert failing({**data, "flow": run.assign(error=100 * run["error"])}) == {"whole-curve"}


def test_the_curve_of_balanced_weights_is_that_of_the_flow():
    rng = np.random.default_rng(0)
    cross = rng.normal(size=(2, 3))
    left, sizes, right = np.linalg.svd(cross, full_matrices=False)
    factor = np.linalg.qr(rng.normal(size=(7, 7)))[0][:, :2] * [0.3, 0.2]
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    outer, inner = factor @ turn @ left.T, factor @ turn @ right
    # Balanced weights have no part in some directions: add a little, balanced up to its square.
    outer, inner = outer + 1e-6 * rng.normal(size=outer.shape), inner + 1e-6 * rng.normal(size=inner.shape)

    def velocity(_, flat):
        v, u = flat[:14].reshape(7, 2), flat[14:].reshape(7, 3)
        rest = cross - v.T @ u
        return np.concatenate([(u @ rest.T).ravel(), (v @ rest).ravel()])

    times = np.linspace(0, 4, 9)
    start = np.concatenate([outer.ravel(), inner.ravel()])
    solved = scipy.integrate.solve_ivp(velocity, (0, 4), start, t_eval=times, rtol=1e-10, atol=1e-12).y.T
    losses = [np.sum((cross - flat[:14].reshape(7, 2).T @ flat[14:].reshape(7, 3)) ** 2) for flat in solved]
    np.testing.assert_allclose(loss_curve(cross, outer, inner, times), losses, atol=1e-5 * losses[0])
    assert losses[-1] < 0.1 * losses[0] and sizes.size == 2


def test_times_of_drops_are_those_of_logistic_modes():
    """One balanced unit for each mode: its product p obeys dp/dt = 2p(s - p), which halves its loss."""
    strengths, scale = np.array([1.0, 0.5]), 1e-4
    outer = scale * np.eye(4)[:, :2]
    times = drop_times(np.diag(strengths), outer, outer)
    start = scale**2
    products = strengths / (1 + (strengths / start - 1) * np.exp(-2 * strengths * times))
    np.testing.assert_allclose((strengths - products) ** 2, strengths**2 / 2, rtol=1e-6)


def test_the_drawing_has_three_panels_with_words(data):
    drawn = figure.draw(data, figure.FIGURE.at(quick=True))
    assert len(drawn.axes) == 3
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
