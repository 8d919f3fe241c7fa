"""Pictures and films of runs: what they show is what was recorded."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageSequence

from stepwell._util.errors import InvalidInput
from stepwell.analysis import animate, compare, draw_map, draw_staircase, draw_weights
from stepwell.analysis.style import new_figure
from stepwell.dynamics import Ensemble, Record, descend, flow, online
from stepwell.models import MergedAttention, MultiHeadAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear

TASK = InContextRegression(covariance([1.0, 0.5]), 31)
QUIET: Any = {"progress": False}


@pytest.fixture(scope="module")
def run():
    models = [SeparateAttention.aligned(jnp.eye(2), heads=2, scale=s) for s in (0.1, 0.05)]
    return flow(Ensemble.of(models), Population(TASK), progress=False)


@pytest.fixture(scope="module")
def softmax():
    model = MultiHeadAttention.random(dim=2, outputs=1, heads=2, scale=0.3, key=jax.random.key(0))
    return online(model, TASK, batch_size=4, rate=0.05, steps=5, key=jax.random.key(1), progress=False)


def test_a_staircase_has_the_losses_levels_and_predicted_drops(run):
    (axes,) = draw_staircase(run, TASK).axes
    lines = axes.get_lines()
    for line, loss in zip(lines, run["loss"].values, strict=False):
        np.testing.assert_array_equal(line.get_ydata(), loss)
    np.testing.assert_allclose([np.asarray(line.get_ydata())[0] for line in lines[2:5]], linear.levels(TASK))
    np.testing.assert_array_equal(lines[-1].get_xdata(), compare(run, TASK).table["predicted"])


def test_predicted_drops_after_the_end_are_in_the_legend():
    model = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    run = flow(model, Population(TASK), until=20.0, **QUIET)
    axes: Any
    (axes,) = draw_staircase(run, TASK).axes
    late = compare(run, TASK).drops[1].predicted
    assert axes.get_legend().get_texts()[1].get_text() == f"predicted drops (after the end: {late:.5g})"
    assert axes.get_xlim()[1] < late
    early = flow(model, Population(TASK), until=2.0, **QUIET)  # before all of them
    (axes,) = draw_staircase(early, TASK).axes
    assert "after the end" in axes.get_legend().get_texts()[1].get_text()


def test_the_last_level_of_merged_attention_is_that_of_all_components():
    model = MergedAttention.random(dim=2, heads=1, scale=0.1, key=jax.random.key(0))
    (axes,) = draw_staircase(flow(model, Population(TASK), until=2.0, **QUIET), TASK).axes
    assert [text.get_text() for text in axes.texts] == ["$L_{0}$", "$L_{2}$"]


def test_without_a_task_any_run_is_drawn(softmax):
    assert len(draw_staircase(softmax).axes[0].get_lines()) == 1
    assert [axes.get_title("left") for axes in draw_weights(softmax).axes if axes.get_visible()] == [
        "query",
        "key",
        "value",
        "output",
    ]


def test_a_logarithmic_axis_begins_shortly_before_the_loss_moves(run):
    """A solver's first steps are many decades earlier; what happens last is not at the very edge."""
    fine = flow(
        SeparateAttention.aligned(jnp.eye(2), heads=2, scale=1e-3),
        Population(TASK),
        record=Record(spacing="steps"),
        **QUIET,
    )
    first = float(compare(fine, TASK).table["measured"].to_numpy()[0])
    last = float(fine["time"][-1])
    for figure in (draw_staircase(fine, TASK, log=True), draw_weights(fine, log=True)):
        begin, end = figure.axes[0].get_xlim()
        assert float(fine["time"][1]) < first / 1000 < begin < first and last < end < 1.2 * last
    assert draw_staircase(fine).axes[0].get_xlim()[0] == 0.0


def test_levels_are_drawn_where_no_drops_are_predicted(softmax):
    (axes,) = draw_staircase(softmax, TASK).axes
    heights = [np.asarray(line.get_ydata())[0] for line in axes.get_lines()[1:]]
    np.testing.assert_allclose(heights, linear.levels(TASK))


def test_weights_are_drawn_head_by_head(run):
    panels = draw_weights(run, run=1).axes
    values = run["value"].values[1, :, :, 0, :]
    for head, line in enumerate(panels[0].get_lines()):
        np.testing.assert_allclose(np.asarray(line.get_ydata()), np.linalg.norm(values[:, head], axis=-1))


def test_maps_end_at_the_minimum(run):
    *panels, minimum, _ = draw_map(run, TASK, panels=4).axes
    last, goal = (np.asarray(axes.get_images()[0].get_array()) for axes in (panels[-1], minimum))
    np.testing.assert_allclose(last, goal, atol=2e-3)  # converged to 1e-8 of the loss, which is quadratic in the map
    assert np.abs(np.asarray(panels[0].get_images()[0].get_array())).max() < 0.01


def test_maps_are_drawn_with_the_normalization_of_the_theory():
    from stepwell.dynamics import renormalized

    model = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.9)
    pictures = []
    for normalization in ("1/N", "none"):
        other = renormalized(model, normalization, length=31)
        one = descend(other, Population(TASK, normalization), rate=1e-9, steps=1, progress=False)
        pictures.append(np.asarray(draw_map(one, TASK, panels=2).axes[0].get_images()[0].get_array()))
    np.testing.assert_allclose(*pictures, rtol=1e-6, atol=1e-9)


def test_a_film_has_its_frames(run, softmax, tmp_path):
    animate(run, TASK, frames=3).save(tmp_path / "run.gif", writer="pillow")
    animate(softmax, frames=2).save(tmp_path / "softmax.gif", writer="pillow")
    with Image.open(tmp_path / "run.gif") as film, Image.open(tmp_path / "softmax.gif") as other:
        assert [len(list(ImageSequence.Iterator(each))) for each in (film, other)] == [3, 2]


def test_a_run_that_diverges_has_a_film_too(run, tmp_path):
    lost = run.copy(deep=True)
    lost["loss"][:, 2:] = np.nan
    lost["value"][:, -2:] = 1e200
    animate(lost, frames=4).save(tmp_path / "lost.gif", writer="pillow")
    with Image.open(tmp_path / "lost.gif") as film:
        assert len(list(ImageSequence.Iterator(film))) > 1


def test_figures_are_drawn_on_axes_that_are_given(run):
    own = new_figure(9.0, 6.0)
    loss, *weights, first, last, goal = own.subplots(1, 7)
    assert draw_staircase(run, TASK, ax=loss) is own and draw_weights(run, ax=np.array(weights)) is own
    assert draw_map(run, TASK, panels=2, ax=[first, last, goal]) is own
    np.testing.assert_array_equal(loss.get_lines()[0].get_ydata(), run["loss"].values[0])
    assert [axes.get_title(loc="left") for axes in weights] == ["value", "key", "query"] and goal.get_images()
    with pytest.raises(InvalidInput, match="ax is 2 things; give 3 axes of matplotlib, one for each panel"):
        draw_weights(run, ax=weights[:2])


def test_what_cannot_be_drawn_is_said(run):
    with pytest.raises(InvalidInput, match="2 runs, counted from 0"):
        draw_weights(run, run=2)
    with pytest.raises(InvalidInput, match="no loss over step or time"):
        draw_staircase(run.drop_vars("loss"))


def test_a_notebook_shows_a_figure():
    """Jupyter asks an object for its picture; of figures that pyplot does not know it would print the name alone."""
    figure = new_figure(2.0, 1.0)
    figure.subplots().plot([0, 1])
    picture = figure._repr_png_()  # pyright: ignore[reportAttributeAccessIssue]
    assert picture.startswith(b"\x89PNG")
