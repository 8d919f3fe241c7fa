"""Length generalisation is as predicted, and not so when theory is told another length, dimension or model."""

import numpy as np
import pytest

from stepwell.papers.softmax_attention import length_generalisation as figure
from stepwell.papers.softmax_attention._tokens import sampled_loss, softmax
from stepwell.theory import softmax as theory

SOFTMAX, TEST, TRAIN, LEADING, BEST, MAP, NO_WORSE, PLATEAU, BLOWN_UP = range(9)


@pytest.fixture(scope="module")
def data():
    return figure.simulate(quick=True)


def failing(data) -> set[int]:
    return {place for place, claim in enumerate(figure.claims(data)) if not claim.passed}


def test_all_claims_hold(data):
    assert failing(data) == set()


def test_another_training_length_fails(data):
    task = figure.MultiTaskRegression((figure.DIM,), 1.0, 150, noise_variance=figure.NOISE)
    found = data["trained"]
    wrong = found["predicted"].copy()
    for kind in ("test", "train"):
        lengths = found["length"].values.tolist()
        told = theory.lengths.linear_length_loss(task, lengths, divided_by=kind)[:, 0] / figure.DIM
        wrong.loc[{"kind": kind}] = told
    assert {TRAIN} <= failing({**data, "trained": found.assign(predicted=wrong)})


def test_the_two_divisions_are_not_alike(data):
    found = data["trained"]
    swapped = found["predicted"].sel(kind=["softmax", "train", "test"]).values
    assert {TEST, TRAIN} <= failing({**data, "trained": found.assign(predicted=(found["predicted"].dims, swapped))})


def test_softmax_divided_by_nothing_is_not_linear(data):
    found = data["trained"]
    wrong = found["mean"].copy()
    wrong.loc[{"kind": "softmax"}] = found["mean"].sel(kind="train").values
    assert {SOFTMAX, NO_WORSE} <= failing({**data, "trained": found.assign(mean=wrong)})
    wrong.loc[{"kind": "train"}] = found["mean"].sel(kind="test").values
    assert BLOWN_UP in failing({**data, "trained": found.assign(mean=wrong)})


def test_weights_that_are_not_trained_fail(data):
    found = data["trained"]
    assert failing({**data, "trained": found.assign(softmax_end=1.01 * found["softmax_end"])}) == {BEST}
    assert failing({**data, "trained": found.assign(map=1.01 * found["map"])}) == {MAP}
    assert failing({**data, "trained": found.assign(plateau=found["plateau"] + 0.2)}) == {PLATEAU}
    curve = data["curves"]
    assert failing({**data, "curves": curve.assign(leading=1.6 * curve["leading"])}) == {LEADING}


def test_sampled_loss_is_that_of_whole_sequences():
    """Against task vectors and noise that are drawn, not integrated out."""
    d, n, omega, mu, noise, count = 4, 12, 0.5, 1.3, 0.7, 20_000
    rng = np.random.default_rng(0)
    found = sampled_loss(omega * np.eye(d), lambda s: mu * softmax(s), n, count, noise=noise, rng=rng)
    x, q, g = rng.standard_normal((count, n, d)), rng.standard_normal((count, d)), rng.standard_normal((count, d))
    y = np.einsum("snd,sd->sn", x, g) + noise**0.5 * rng.standard_normal((count, n))
    p = softmax(omega * np.einsum("snd,sd->sn", x, q))
    square = (np.sum(g * q, axis=1) - mu * np.sum(p * y, axis=1)) ** 2 / d
    assert abs(square.mean() - found.mean) < 4 * np.hypot(found.error, square.std() / count**0.5)


def test_the_drawing_has_two_panels_with_words(data):
    drawn = figure.draw(data)
    assert len(drawn.axes) == 2
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
