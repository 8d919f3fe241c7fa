"""Length generalization is as predicted, and not so for a theory of another length, dimension or model."""

from dataclasses import replace

import numpy as np
import pytest

from stepwell.papers.softmax import length_generalization as figure
from stepwell.papers.softmax._eigenvalues import sampled_loss, softmax
from stepwell.theory import softmax as theory

FIGURE = "softmax/length-generalization"
QUICK = figure.FIGURE.at(quick=True)


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({"seeds": "3", "lengths": "50"}, {"softmax-no-worse", "linear-worse"}),
        ({"seeds": "3,4", "dim": "5", "context": "30", "lengths": "600,30,5000", "noise": "0"}, {"softmax-approach"}),
    ],
)
def test_other_settings(survives, changes, unjudged):
    """The length of the training and twenty times it may not be tested; in few dimensions the next order is
    infinite."""
    claims = survives({"most_sequences": "20", "numbers": "1000", "steps": "20", **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


def test_another_training_length_fails(data, failing):
    task = replace(QUICK, context=150).task
    trained = data["trained"]
    wrong = trained["predicted"].copy()
    for kind in ("test", "train"):
        lengths = trained["length"].values.tolist()
        loss = theory.linear_length_loss(task, lengths, divided_by=kind)[:, 0] / QUICK.dim
        wrong.loc[{"kind": kind}] = loss
    assert {"train-loss"} <= failing({**data, "trained": trained.assign(predicted=wrong)})


def test_the_two_divisions_are_not_alike(data, failing):
    trained = data["trained"]
    swapped = trained["predicted"].sel(kind=["softmax", "train", "test"]).values
    assert {"test-loss", "train-loss"} <= failing(
        {**data, "trained": trained.assign(predicted=(trained["predicted"].dims, swapped))}
    )


def test_softmax_divided_by_nothing_is_not_linear(data, failing):
    trained = data["trained"]
    wrong = trained["mean"].copy()
    wrong.loc[{"kind": "softmax"}] = trained["mean"].sel(kind="train").values
    assert {"softmax-loss", "softmax-no-worse"} <= failing({**data, "trained": trained.assign(mean=wrong)})
    wrong.loc[{"kind": "train"}] = trained["mean"].sel(kind="test").values
    assert "linear-worse" in failing({**data, "trained": trained.assign(mean=wrong)})


def test_weights_that_are_not_trained_fail(data, failing):
    trained = data["trained"]
    assert failing({**data, "trained": trained.assign(softmax_end=1.01 * trained["softmax_end"])}) == {"softmax-end"}
    assert failing({**data, "trained": trained.assign(map=1.01 * trained["map"])}) == {"linear-map"}


def test_another_plateau_fails(data, failing):
    """1 % off in the part above it; weights with a plateau of their own are followed to it."""
    trained = data["trained"]
    assert failing({**data, "trained": trained.assign(approach=trained["approach"] - 0.01)}) == {"softmax-approach"}
    assert abs(figure.approach(QUICK, 0.25, 1.0) - 1) < 0.01


def test_another_order_of_the_closed_form_fails(data, failing):
    """As the root of 1/d, as 1/d², or not at all."""
    error, order = data["orders"]["error"], data["orders"]["dim"]
    for power in (0.5, -1, 1):
        assert failing({**data, "orders": (error * (1.0 * order) ** power).to_dataset(name="error")}) == {
            "softmax-leading"
        }


def test_sampled_loss_is_that_of_whole_sequences():
    """Against task vectors and noise that are drawn, not integrated out."""
    d, n, omega, mu, noise, count = 4, 12, 0.5, 1.3, 0.7, 20_000
    rng = np.random.default_rng(0)
    estimate = sampled_loss(omega * np.eye(d), lambda s: mu * softmax(s), n, count, noise=noise, rng=rng)
    x, q, g = rng.standard_normal((count, n, d)), rng.standard_normal((count, d)), rng.standard_normal((count, d))
    y = np.einsum("snd,sd->sn", x, g) + noise**0.5 * rng.standard_normal((count, n))
    p = softmax(omega * np.einsum("snd,sd->sn", x, q))
    square = (np.sum(g * q, axis=1) - mu * np.sum(p * y, axis=1)) ** 2 / d
    assert abs(square.mean() - estimate.mean) < 4 * np.hypot(estimate.error, square.std() / count**0.5)


def test_the_drawing_has_two_panels_with_words(data):
    drawn = figure.draw(data, QUICK)
    assert len(drawn.axes) == 2
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
