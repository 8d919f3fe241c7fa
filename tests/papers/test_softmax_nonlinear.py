"""Nonlinear targets cost what is predicted, and not what is predicted of something else."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from stepwell.papers.softmax import nonlinear as figure
from stepwell.papers.softmax._eigenvalues import softmax
from stepwell.tasks import SingleIndexRegression
from stepwell.theory import softmax as theory

FIGURE = "softmax/nonlinear"
QUICK = figure.FIGURE.at(quick=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": "3", "dims": "20"},
        {"seeds": "3,4", "dims": "4,7", "context": "30", "noise": "0"},
    ],
)
def test_other_settings(survives, changes):
    """In few dimensions the second order is infinite."""
    claims = survives({"contexts": "40", "slope_contexts": "40", **changes})
    assert [name for name, claim in claims.items() if not claim.judged()] == ["first-order-dim-4"] * (
        "context" in changes
    )


def test_another_length_in_the_prediction_fails(data, failing):
    losses = data["losses"]
    other = figure.losses(replace(QUICK, seeds=(0,), contexts=250), theory_context=200)
    wrong = losses.assign(first_order=other["first_order"])
    assert failing({**data, "losses": wrong}) == {"first-order-dim-20", "first-order-dim-50", "first-order-dim-100"}


def test_the_leading_order_is_not_enough(data, failing):
    losses = data["losses"]
    assert {"first-order-dim-20", "first-order-dim-50"} <= failing(
        {**data, "losses": losses.assign(first_order=losses["leading"])}
    )


def test_another_power_of_the_dimension_fails(data, failing):
    along = data["overlaps"]
    assert failing({**data, "overlaps": along.assign(slope=along["slope"] + 0.25)}) == {
        "degree-1",
        "degree-2",
        "degree-3",
    }
    swapped = along["slope"].isel(degree=[0, 2, 1]).values
    wrong = along.assign(slope=(along["slope"].dims, swapped))
    assert failing({**data, "overlaps": wrong}) == {"degree-2", "degree-3"}


def test_a_constant_is_multiplied_by_mu(data):
    """Softmax weights add up to one, so the prediction of 1 is μ, and its loss (1 - μ)² + μ²σ²R, far above 1."""
    drawn = figure.drawn(QUICK, 20, 50, {"1": figure.TARGETS["1"]}, np.random.default_rng(0))
    mu = theory.linear_head(20, QUICK.context, QUICK.noise).mu
    np.testing.assert_allclose(drawn.values, mu, rtol=1e-12)
    constant = data["losses"].sel(target="1")
    predicted, allowed = constant["first_order"], 4 * constant["error"] + constant["second_order"]
    assert (abs(constant["mean"] - predicted) < allowed).all()
    assert (constant["mean"] > 10).all()


def test_drawn_predictions_are_those_of_whole_sequences():
    """Against tokens of all d coordinates, directions and noise that are drawn: mean squares and overlaps."""
    d, count, link = 6, 1500, (0.3, 0.8, 0.0, 0.6)
    omega, mu = theory.linear_head(d, QUICK.context, QUICK.noise)
    task = SingleIndexRegression(d, link, QUICK.context, noise_variance=QUICK.noise)
    batch = task.sample(count, key=jax.random.key(0))
    x, y, q = (
        np.asarray(part) for part in (batch.tokens[:, :-1, :d], batch.tokens[:, :-1, d], batch.tokens[:, -1, :d])
    )
    p = softmax(omega * np.einsum("snd,sd->sn", x, q))
    answers, truth = mu * np.sum(p * y, axis=1), np.asarray(batch.labels[:, -1, 0])
    target = figure.hermite(*link)
    drawn = figure.drawn(QUICK, d, count, {"mixed": target}, np.random.default_rng(0))
    ours = target.function(drawn.index)
    for one, other in (
        ((truth - answers) ** 2, (ours - drawn.values[0]) ** 2 + drawn.noise),
        (truth * answers, ours * drawn.values[0]),
    ):
        error = np.hypot(one.std(), other.std()) / count**0.5
        assert abs(one.mean() - other.mean()) < 4 * error


def test_the_mean_over_directions_is_that_of_drawn_directions():
    d, rng = 6, np.random.default_rng(0)
    directions = rng.standard_normal((400_000, d))
    rho = directions[:, 0] / np.linalg.norm(directions, axis=1)
    for k, name in ((1, "he₁"), (2, "he₂"), (3, "he₃")):
        values = figure.TARGETS[name].function(2.5 * rho) * rho**k
        expected = figure._along(k, np.array([2.5]), d)[0]
        assert abs(values.mean() - expected) < 4 * values.std() / values.size**0.5


def test_the_drawing_has_three_panels_with_words(data):
    drawn = figure.draw(data, QUICK)
    assert len(drawn.axes) == 3
    assert all(axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
