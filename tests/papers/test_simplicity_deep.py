"""Linear networks of three layers: predicted times of small weights, and claims that fail for other powers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from stepwell.figures import InvalidInput
from stepwell.papers.simplicity import deep as figure
from stepwell.papers.simplicity._deep_networks import DeepLinear, after_blow_up, blow_up, singular_values

FIGURE = "simplicity/deep"
KNOWN = {"equal-singular-values", "width"}
MEDIANS = {"width", "width-law", "waits"}


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({"seeds": "3", "widths": "20"}, MEDIANS),
        ({"seeds": "0:4", "widths": "10", "scales": "0.03"}, MEDIANS),
        ({"seeds": "3,4", "units": "4", "scales": "0.02,0.01", "widths": "3"}, MEDIANS),
    ],
)
def test_other_settings(survives, changes: dict[str, str], unjudged: set[str]):
    claims = survives(changes)
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


@pytest.mark.parametrize(("name", "value"), [("units", 2), ("widths", (2,)), ("scales", (0.1,)), ("scales", (0.0,))])
def test_settings_without_a_prediction_are_refused(name: str, value):
    with pytest.raises(InvalidInput, match=name):
        figure.Settings(**{name: value})


def test_two_ranks_at_once_fail(data, failing):
    courses = data["courses"].copy(deep=True)
    courses["rank"].loc[{"spectrum": "unequal", "seed": 701, "plateau": 1}] = 2
    assert failing({**data, "courses": courses}) - KNOWN == {"one-rank"}
    courses["rank"].loc[{"spectrum": "equal", "plateau": 1}] = 2
    assert failing({**data, "courses": courses}) - KNOWN == {"one-rank", "one-rank-equal"}


def test_without_plateaus_and_effects_of_width_the_paper_would_be_right(data, failing):
    courses = data["courses"].copy(deep=True)
    courses["rank"].loc[{"spectrum": "equal", "plateau": slice(2, None)}] = np.nan
    narrow = courses["drop"].sel(spectrum="equal", scale=courses["scale"].min(), mode=1)
    wide = data["widths"].assign(drop=1.0 * narrow.broadcast_like(data["widths"]["drop"]).drop_vars("mode"))
    assert not KNOWN & failing({**data, "courses": courses, "widths": wide})


def test_the_first_drop_of_two_layers():
    """Of equal singular values, that are learned together: the loss is midway between its first levels; and twice as
    wide, or more, is less early than what counts as little."""
    settings = figure.Settings(seeds=(0, 1, 2, 3))
    first = figure.shallow(settings)["first"]
    rng = np.random.default_rng(0)
    outer, inner = min(settings.scales) * rng.normal(size=(4, 2, settings.units, 3))[1]

    def velocity(_, state):
        v, u = state.reshape(2, -1, 3)
        left = np.eye(3) / 3 - v.T @ u
        return np.ravel([u @ left.T, v @ left])

    def midway(_, state):
        v, u = state.reshape(2, -1, 3)
        return np.sum((np.eye(3) / 3 - v.T @ u) ** 2) - 2.5 / 9

    run = scipy.integrate.solve_ivp(velocity, (0, 30), np.ravel([outer, inner]), events=midway, rtol=1e-9, atol=1e-12)
    # Balanced up to the square of the scale; and recorded every 0.04.
    assert float(first.sel(width=settings.units, seed=1)) == pytest.approx(run.t_events[0][0], abs=2e-3)
    middle = first.median("seed")
    assert 1 < float(middle[0] / middle[-1]) < 1 + figure.LITTLE


@pytest.mark.parametrize(("change", "claim"), [(1.1, "waits"), (0.9, "waits")])
def test_waits_of_another_power_fail(data, failing, change: float, claim: str):
    courses = data["courses"].copy(deep=True)
    early = courses["drop"].sel(mode=1)
    moved = early + (courses["drop"] - early) * (courses["scale"] / courses["scale"].max()) ** np.log(change)
    assert failing({**data, "courses": courses.assign(drop=moved.transpose(*courses["drop"].dims))}) - KNOWN == {claim}


def test_a_first_drop_without_the_constant_fails(data, failing):
    courses = data["courses"]
    late = courses.assign(first=courses["first"] - after_blow_up(1 / 3))
    assert failing({**data, "courses": late}) - KNOWN == {"first-drop"}


def test_wide_networks_that_are_as_slow_as_others_fail(data, failing):
    wide = data["widths"]
    assert failing({**data, "widths": 1.5 * wide}) - KNOWN == {"width-law"}
    assert failing({**data, "widths": wide.assign(first=1.1 * wide["first"])}) - KNOWN == {"first-drop-of-wide"}


def test_the_time_of_balanced_weights():
    """One entry w in each layer: dw/dt = s w² has T = 1/s, and of the whole equation SciPy knows the first drop."""
    s = 0.5
    layers = [np.ones((1, 1, 1)) for _ in range(3)]
    assert blow_up(layers, np.array([[s]])) == pytest.approx(1 / s, rel=1e-5)
    scale = 1e-3
    half = s * (1 - np.sqrt(0.5))

    def passes(t: float, w: np.ndarray) -> float:
        return w[0] ** 3 - half

    passes.terminal = True
    run = scipy.integrate.solve_ivp(
        lambda t, w: w**2 * (s - w**3), (0, 1e4), [scale], events=passes, rtol=1e-12, atol=1e-18
    )
    assert run.t_events[0][0] == pytest.approx(1 / (s * scale) + after_blow_up(s), abs=1e-5)


def test_a_deep_linear_network_is_the_product_of_its_layers():
    model = DeepLinear.random(dim=3, units=5, scale=1.0, key=jax.random.key(0))
    whole = np.asarray(model.third @ model.second @ model.first)
    np.testing.assert_allclose(jax.vmap(model)(jnp.eye(3)), whole.T, rtol=1e-12)
    np.testing.assert_allclose(singular_values(model), np.linalg.svd(whole, compute_uv=False), rtol=1e-12)


def test_the_drawing_has_four_panels_with_words(data):
    drawn = figure.draw(data, figure.FIGURE.at(quick=True))
    assert len(drawn.axes) == 4
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
