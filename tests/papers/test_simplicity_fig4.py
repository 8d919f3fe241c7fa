"""Activations wait as powers of the initial scale, and claims fail for other powers, slopes and speeds."""

import jax
import numpy as np
import pytest

from stepwell.figures import InvalidInput
from stepwell.papers.simplicity import fig04_activations as figure

FIGURE = "simplicity/fig4"
EXPONENTS = {"waits", "no-saddle", "saddle", "least-speed"}


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({"activations": "tanh", "seeds": "3"}, EXPONENTS | {"first-unit", "lone-unit"}),
        ({"activations": "x tanh x", "seeds": "3,4", "scales": "1e-3"}, EXPONENTS | {"slope"}),
        (
            {"activations": "cubic,quadratic", "seeds": "0:4", "scales": "1e-2,1e-3", "units": "2", "examples": "20"},
            {"slope", "no-saddle", "lone-unit"},
        ),
    ],
)
def test_other_settings(survives, changes: dict[str, str], unjudged: set[str]):
    claims = survives(changes)
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


@pytest.mark.parametrize(
    ("name", "value"), [("activations", ("relu",)), ("activations", ()), ("scales", (1e-3, 1e-2)), ("scales", (0.0,))]
)
def test_settings_that_cannot_be_are_refused(name: str, value):
    with pytest.raises(InvalidInput, match=name):
        figure.Settings(**{name: value})


@pytest.mark.parametrize(
    ("name", "activation", "power", "failed"),
    [
        ("first", "cubic", 0.05, {"waits"}),
        ("first", "quadratic", 0.05, {"waits", "first-unit"}),
        ("first", "tanh", -0.01, {"slope"}),
        ("least", "tanh", 0.2, {"no-saddle"}),
        ("least", "x tanh x", -0.6, {"saddle"}),
        ("least", "cubic", -0.4, {"least-speed"}),
    ],
)
def test_another_power_of_the_scale_fails(data, failing, name: str, activation: str, power: float, failed: set[str]):
    run = data["courses"].copy(deep=True)
    one = run[name].sel(activation=activation)
    run[name].loc[{"activation": activation}] = one * run["scale"] ** power
    assert failing({**data, "courses": run}) == failed


def test_what_is_not_reached_fails(data, failing):
    run = data["courses"].copy(deep=True)
    run["first"].loc[{"activation": "cubic", "seed": 830}] = np.nan
    assert failing({**data, "courses": run}) == {"waits"}


def test_a_unit_that_comes_to_rest_fails(data, failing):
    """As a quadratic one does."""
    lone = figure.lone("quadratic", figure.FIGURE.at(quick=True))
    assert failing({**data, "lone": lone}) == {"lone-unit"}


@pytest.mark.parametrize("name", figure.ACTIVATIONS)
def test_the_lowest_power_is_that_of_small_units(name: str):
    x = np.array([0.6, -1.1])
    values = [float(figure.build(name, np.ones((1, 1, 1)), size * np.ones((1, 2)))(x)[0]) for size in (1e-3, 1e-4)]
    power = np.log10(values[0] / values[1])
    assert power == pytest.approx(figure.ACTIVATIONS[name].power, abs=1e-5)


def test_labels_have_a_mean_square_of_one():
    for name in figure.ACTIVATIONS:
        x, y = figure.teacher_data(name, figure.Settings())
        assert x.shape == (60, 2) and float(jax.numpy.mean(y**2)) == pytest.approx(1.0)


def test_the_drawing_has_five_panels_with_words(data):
    drawn = figure.draw(data, figure.FIGURE.at(quick=True))
    assert len(drawn.axes) == 5
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
