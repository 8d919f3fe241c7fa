"""Fig 5 on one small data set; its counts fail where the models are exchanged or the curve is smooth."""

import dataclasses

import numpy as np
import pytest

from stepwell.papers.linear_attention import fig05_softmax as fig5

ONE_DROP, SEVERAL, MERGED_START, SEPARATE_START = range(4)


@pytest.fixture(scope="module")
def data():
    return fig5.simulate(quick=True)


def failing(data) -> set[int]:
    return {place for place, claim in enumerate(fig5.claims(data)) if not claim.passed}


def test_all_claims_hold(data):
    assert failing(data) == set()


def test_the_models_exchanged_fail(data):
    exchanged = {**data, "merged": data["separate"], "separate": data["merged"]}
    assert failing(exchanged) >= {ONE_DROP, SEVERAL}


def test_a_smooth_decay_has_not_several_drops(data):
    smooth = data["separate"].copy(deep=True)
    smooth["loss"] = smooth["loss"][:, 0] * np.exp(-smooth["time"] / 100)
    assert SEVERAL in failing({**data, "separate": smooth.transpose("run", ...)})


def test_a_start_that_already_answers_fails(data):
    """The level before the first drop must be that of answering zero."""
    lower = data["separate"].assign(loss=0.8 * data["separate"]["loss"])
    assert failing({**data, "separate": lower}) == {SEPARATE_START}


def test_small_dents_do_not_count(data):
    dented = data["merged"].copy(deep=True)
    time = dented["time"].values
    dent = 0.02 / (1 + np.exp(-(time - 0.95 * time[-1])))
    dented["loss"] = dented["loss"] - dent
    assert ONE_DROP not in failing({**data, "merged": dented})


def test_the_level_of_chance_is_the_least_squares_of_the_mean_label():
    batch = fig5.prepare(dataclasses.replace(fig5.QUICK, sequences=50))[0]
    answers, means = np.asarray(batch.labels)[:, -1, 0], np.asarray(batch.tokens)[:, :, 4].mean(axis=1)
    best = np.linalg.lstsq(means[:, None], answers)[0]
    left = np.mean((answers - means * best[0]) ** 2)
    found = fig5.predict([batch])
    assert float(found["power"][0] - found["gain"][0]) == pytest.approx(left)


def test_the_drawing_counts_the_drops(data):
    drawn = fig5.draw(data)
    assert "1 drop" in drawn.axes[0].get_title(loc="left")
