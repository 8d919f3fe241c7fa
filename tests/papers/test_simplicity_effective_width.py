"""The effective width grows by one at each drop, and the distances to narrower networks are those predicted."""

import numpy as np
import pytest

from stepwell.figures import InvalidInput
from stepwell.papers.simplicity import _width_runs as runs
from stepwell.papers.simplicity import effective_width as figure
from stepwell.theory.units import direction_times

FIGURE = "simplicity/effective-width"
SMALL = {
    "linear_scales": "1e-3",
    "relu_scales": "1e-3",
    "quadratic_scales": "1e-2",
    "ratios": "0.5",
    "map_scales": "1e-3",
}


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({"seeds": "3"}, {"linear-closest", "relu-closest", "quadratic-closest"}),
        ({"seeds": "3,5", "linear_scales": "1e-3,1e-2", "linear_units": "3"}, {"relu-closest", "quadratic-closest"}),
    ],
)
def test_other_settings(survives, changes: dict[str, str], unjudged: set[str]):
    claims = survives({**SMALL, **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


@pytest.mark.parametrize(("name", "value"), [("linear_units", 2), ("ratios", (0.5, 1.0))])
def test_settings_without_drops_one_by_one_are_refused(name: str, value):
    with pytest.raises(InvalidInput, match=name):
        figure.Settings(**{name: value})


@pytest.mark.parametrize("kind", runs.TYPES)
def test_distances_that_are_off_fail(data, failing, kind: str):
    run = data[kind]
    wrong = run.assign(predicted=run["predicted"] * (1 + 0.03 * (run["width"] == 1)))
    assert failing({**data, kind: wrong}) == {f"{kind.lower()}-distance"}
    missing = run.assign(predicted=run["predicted"].where(run["width"] != 1))
    assert failing({**data, kind: missing}) == {f"{kind.lower()}-distance"}


@pytest.mark.parametrize("kind", runs.TYPES)
def test_a_unit_that_is_not_counted_fails(data, failing, kind: str):
    run = data[kind]
    assert failing({**data, kind: run.assign(effective=np.maximum(run["effective"] - 1, 0))}) == {"one-by-one"}


@pytest.mark.parametrize("kind", runs.TYPES)
def test_another_power_of_the_scale_fails(data, failing, kind: str):
    law = data[f"law-{kind}"]
    changed = law.assign(distance=law["distance"] * law["scale"] ** 0.06)
    assert failing({**data, f"law-{kind}": changed}) == {f"{kind.lower()}-closest"}


def test_plateaus_elsewhere_fail(data, failing):
    two = data["map"]
    assert failing({**data, "map": two.assign(expected_plateau=2 * two["expected_plateau"])}) == {"plateau-left"}


def test_levels_of_squares_are_the_ends_of_narrow_networks():
    assert runs.levels("quadratic") == pytest.approx([1.6275, 0.36, 0.05625, 0.0])


def test_the_line_on_which_a_plateau_is_as_long_as_its_drop():
    """As stated: t_2 - t_1 = 2.86/s_2 + 0.83/s_1."""
    s, half = np.array([0.7, 0.3]), np.array([0.0, 2.86 / 0.3 + 0.83 / 0.7])
    begin, end = (half + figure._after_half(part) / (2 * s) for part in (0.1, 0.9))
    assert begin[1] - end[0] == pytest.approx(end[1] - begin[1], abs=0.02)


def test_distances_of_linear_units_from_direction_times():
    """At its time mode k has the size s(1 - √½), and the distance to the width before is √2 times its root."""
    initial = runs.model("linear", 10, 1e-5, 0)
    weights = [np.asarray(initial.weights()["outer"])[..., 0], np.asarray(initial.weights()["inner"])]
    times = direction_times(np.diag(runs.STRENGTHS["linear"]), *weights)
    found = runs.predicted_distances("linear", initial, times)
    for mode, s in enumerate(runs.STRENGTHS["linear"]):
        assert found[mode, mode] == pytest.approx(np.sqrt(2 * s * (1 - np.sqrt(0.5))), rel=1e-2)


def test_the_drawing_has_six_panels_with_words(data):
    drawn = figure.draw(data, figure.FIGURE.at(quick=True))
    assert len(drawn.axes) == 7, "and a bar of colors"
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes[:6])
