"""Scalars of a study drawn over runs of which some have no value: medians of all, never means of survivors."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import stepwell as sw
from stepwell.analysis.style import new_figure
from stepwell.sweeps import _draw


def study_result(**scalars: Any) -> xr.Dataset:
    """The result of a study over `scale` and `seed`, of these scalars."""
    coords = {"scale": np.arange(1.0, 1 + len(next(iter(scalars.values()))))}
    made = {name: (("scale", "seed"), np.array(values, float)) for name, values in scalars.items()}
    result = xr.Dataset(made, coords)
    return result.assign(stored=xr.ones_like(result[next(iter(scalars))], bool))


def drawn_medians(axes: Any) -> list[float]:
    return axes.lines[0].get_ydata().tolist()


def test_a_median_counts_runs_that_have_not_dropped_as_later():
    """By hand: of (1, 2, 3, -, -) the median is 3, of two of four it is not known, and of one of ten even less."""
    none = np.nan
    times = [[1, 2, 3, none, none], [5, 4, 3, 2, 1], [1, 2, none, none, none], [none] * 5]
    figure = sw.sweeps.draw(study_result(drop_4=times), "drop_4", "scale")
    above, below = figure.axes
    np.testing.assert_array_equal(drawn_medians(above), [3, 3, none, none])
    np.testing.assert_array_equal(below.lines[0].get_ydata(), [0.6, 1, 0.4, 0])
    (band,) = above.collections  # the 90th percentile is known where all have dropped, and nowhere else
    vertices = np.concatenate([path.vertices for path in band.get_paths()])
    assert set(vertices[:, 0]) <= {2.0} and set(vertices[:, 1]) <= {1.4, 3.0, 4.6}
    assert "median" in above.get_title(loc="left") and "10 of 20 runs have no value" in above.get_title(loc="left")
    whole = sw.sweeps.draw(study_result(drop_4=[times[1]] * 2), "drop_4", "scale")
    assert len(whole.axes) == 1 and "no value" not in whole.axes[0].get_title(loc="left")


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=40), st.integers(0, 40))
def test_a_censored_quantile_is_that_of_the_times_if_it_lies_before_the_end(times: list[float], censored: int):
    """The times of runs that have not dropped are unknown: the quantile is drawn only if they cannot change it."""
    ranked = np.sort(times)
    seen = np.where(np.arange(len(times)) < len(times) - censored, ranked, np.inf)
    for percent in (10, 50, 90):
        got = _draw._percentile(seen, percent)
        early, late = (np.percentile(np.where(np.isfinite(seen), seen, end), percent) for end in (10.0, 1e6))
        assert got == pytest.approx(early) if np.isclose(early, late, rtol=1e-9) else np.isnan(got)


@pytest.mark.parametrize("scalar,expected", [("final_loss", 3.0), ("map_1", 2.0), ("drop_1", 3.0)])
def test_a_heat_map_is_gray_where_half_of_the_runs_have_no_value(scalar: str, expected: float):
    """A run that diverged has a loss above all others; whether its map is large or small is not known."""
    values = np.full((9, 9, 5), 1.0)
    values[0, 0], values[0, 1] = [1, 2, 3, np.nan, np.nan], [1, 2, np.nan, np.nan, np.nan]
    axes = {"rate": np.arange(9), "scale": np.arange(9)}
    result = xr.Dataset({scalar: (("rate", "scale", "seed"), values)}, axes)
    result = result.assign(stored=xr.ones_like(result[scalar], bool))
    drawn = sw.sweeps.draw(result, scalar, "rate", "scale").axes[0]
    (mesh,) = (one for one in drawn.collections if one.get_array() is not None)
    array: Any = mesh.get_array()
    cells = np.ma.filled(array, np.nan)  # rows are scales
    assert cells[0, 0] == expected and np.isnan(cells[1, 0]) and cells[2, 2] == 1
    assert "gray" in drawn.get_title(loc="left")


def test_the_median_of_predictions_says_of_which_runs_it_is():
    times = [[1.0, 2.0, 3.0], [1.0, 2.0, np.nan]]
    for withheld, label in ((3.0, "theory"), (np.nan, "theory, of runs that have a prediction")):
        predicted = [[1.0, 2.0, withheld], [4.0, 5.0, 6.0]]
        axes = sw.sweeps.draw(study_result(drop_1=times, predicted_1=predicted), "drop_1", "scale").axes[0]
        (theory,) = (line for line in axes.lines if line.get_label() == label)
        np.testing.assert_array_equal(theory.get_ydata(), [2.0 if np.isfinite(withheld) else 1.5, 5.0])
    few = [[1.0, np.nan, np.nan], [4.0, 5.0, 6.0]]
    axes = sw.sweeps.draw(study_result(drop_1=times, predicted_1=few), "drop_1", "scale").axes[0]
    np.testing.assert_array_equal(axes.lines[-1].get_ydata(), [np.nan, 5.0])


def test_runs_that_the_store_lacks_do_not_count():
    result = study_result(drop_1=[[1.0, 2.0, 3.0, np.nan, np.nan]] * 2)
    result["stored"].values[:, 3:] = False
    figure = sw.sweeps.draw(result, "drop_1", "scale")
    assert len(figure.axes) == 1 and drawn_medians(figure.axes[0]) == [2.0, 2.0]


def test_a_study_is_drawn_on_axes_that_are_given():
    own = new_figure(8.0, 3.0)
    left, _ = own.subplots(1, 2)
    assert sw.sweeps.draw(study_result(drop_1=[[1.0, np.nan, 3.0]] * 2), "drop_1", "scale", ax=left) is own
    assert len(own.axes) == 2 and drawn_medians(left) == [3.0, 3.0]
