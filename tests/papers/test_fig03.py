"""Fig 3: what holds, what does not, and that each claim fails when its physics is broken."""

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from stepwell.dynamics import flow
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.papers.linear_attention import fig03_staircase as fig3
from stepwell.probes import passage_time

FIGURE = "linear/fig3"


@pytest.fixture(scope="module")
def infinite(data):
    """Infinite data in place of the sequences, and the smaller start: there every claim holds."""
    task, _ = fig3.prepare()
    predicted = fig3.schedules(task, fig3.starts(fig3.QUICK.seeds, 1e-4))
    training = fig3.run(task, Population(task), fig3.QUICK, 1e-4, predicted)
    return {**data, "training": training.assign_attrs(sequences=0, frames=6)}


def test_all_claims_hold_on_infinite_data(infinite, failing):
    assert failing(infinite) == set()


def test_half_the_context_in_the_levels_fails(infinite, failing):
    task, _ = fig3.prepare()
    assert "levels" in failing({**infinite, "theory": fig3.levels(task, context=15)})


def test_a_flow_up_the_gradient_in_time_fails(infinite, failing):
    """The run read backwards has no staircase down."""
    training = infinite["training"]
    back = training.copy(deep=True)
    for name in ("loss", "value", "key", "query"):
        back[name] = (training[name].dims, training[name].values[:, ::-1])
    assert failing({**infinite, "training": back}) >= {"drops", "levels", "order"}


def test_components_in_rising_order_fail(infinite, failing):
    predictions = infinite["theory"]
    reversed_vectors = predictions.assign(
        eigenvectors=(predictions["eigenvectors"].dims, predictions["eigenvectors"].values[:, ::-1])
    )
    assert failing({**infinite, "theory": reversed_vectors}) == {"order"}


def test_other_axes_than_the_eigenvectors_fail(infinite, failing):
    predictions = infinite["theory"]
    assert failing(
        {**infinite, "theory": predictions.assign(eigenvectors=(predictions["eigenvectors"].dims, np.eye(4)))}
    ) >= {"keys"}


def test_shuffled_heads_fail(infinite, failing):
    timing = infinite["drops"]
    shuffled = timing.assign(predicted_head=(timing["predicted_head"] + 1) % 4)
    assert failing({**infinite, "drops": shuffled}) == {"scheduled-heads"}


def test_the_schedule_of_another_covariance_fails(infinite, failing):
    """One tenth off the largest eigenvalue. (N does not matter here: it sets where a head ends, not when it leaves.)"""
    task, _ = fig3.prepare()
    e = infinite["theory"]["eigenvectors"].values[:, 0]
    wrong = fig3.InContextRegression(task.covariance - 0.04 * np.outer(e, e), fig3.CONTEXT)
    timing = infinite["drops"].copy(deep=True)
    drops = fig3.schedules(wrong, fig3.starts(fig3.QUICK.seeds, fig3.QUICK.inits[-1]))
    timing["predicted"][-1] = [[drop.time for drop in each] for each in drops]
    assert failing({**infinite, "drops": timing}) >= {"times", "vanishing-error"}


def test_twice_the_time_unit_fails(infinite, failing):
    """The flow is that of half the gradient: with the whole, all is over twice as soon."""
    timing = infinite["drops"]
    assert failing({**infinite, "drops": timing.assign(measured=timing["measured"] / 2)}) >= {
        "times",
        "vanishing-error",
    }


def test_a_rise_without_the_square_fails(infinite, failing):
    """An exponential rise to the same end takes another time."""
    timing = infinite["drops"]
    assert failing({**infinite, "drops": timing.assign(rise=timing["rise"] * 1.1)}) == {"scalar-course"}


def test_two_heads_on_one_component_fail(infinite, failing):
    training = infinite["training"].copy(deep=True)
    head = int(fig3.shares(training.isel(run=0), infinite["theory"]["eigenvectors"].values)[-1].argmax(axis=0)[0])
    for name in ("value", "key", "query"):
        training[name].values[:, -1, :] = training[name].values[:, -1, head][:, None]
    assert "heads" in failing({**infinite, "training": training})


def test_the_finest_saved_times_are_about_the_first_drops(infinite):
    time = infinite["drops"]["predicted"].sel(init=1e-4).values[:, 0]
    saved = fig3.save_times(
        fig3.prepare()[0], fig3.schedules(fig3.prepare()[0], fig3.starts(fig3.QUICK.seeds, 1e-4)), 300
    )
    assert np.all(np.diff(saved) > 0) and saved[0] == 0
    for first in time:
        assert np.diff(saved)[abs(saved[1:] - first) < 10].max() < 3


def test_the_scalar_course_is_at_half_its_gain_at_time_zero(infinite):
    predictions = infinite["theory"]
    for d in range(4):
        x = np.interp(0.0, predictions["course"].values[d], predictions["height"].values)
        assert 1 - (1 - x**3) ** 2 == pytest.approx(0.5, abs=2e-3)  # linear interpolation between 120 heights


def test_an_aligned_head_rises_as_the_equation_says():
    """`rise` on a run that the theory describes exactly: one aligned head."""
    task, _ = fig3.prepare()
    predictions = fig3.levels(task)
    end = float(predictions["value_end"][0])
    model = SeparateAttention.aligned(jnp.asarray(predictions["eigenvectors"].values), heads=1, scale=0.1)
    trajectory = flow(model, Population(task), until=200.0, save=np.linspace(0, 200, 4001), progress=False, rtol=1e-9)
    assert passage_time(trajectory["time"].values, -trajectory["value"].values[0, :, 0, 0, 4], -0.9 * end) < 200
    assert fig3.rise(trajectory.isel(run=0), predictions) == pytest.approx(1.0, abs=2e-3)


def test_the_drawing_and_the_film(infinite, tmp_path):
    drawn = fig3.draw(infinite)
    titled = [axes for axes in drawn.axes if axes.get_title(loc="left").startswith("(")]
    assert len(titled) == 3 and all(axes.get_xlabel() and axes.get_ylabel() for axes in titled)
    write = fig3.extras(infinite)["gif"]
    for name in ("a.gif", "b.gif"):
        write(str(tmp_path / name))
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()
    with Image.open(tmp_path / "a.gif") as film:
        assert 3 <= film.n_frames <= 6  # pyright: ignore[reportAttributeAccessIssue]
