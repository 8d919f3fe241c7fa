"""Fig 5 on one small data set; its counts fail where the models are exchanged or the curve is smooth."""

import dataclasses

import numpy as np
import pytest

from stepwell.papers.linear_attention import fig05_softmax as fig5

FIGURE = "linear/fig5"


def test_the_models_exchanged_fail(data, failing):
    exchanged = {**data, "merged": data["separate"], "separate": data["merged"]}
    assert failing(exchanged) >= {"merged-drops-once", "separate-drops"}


def test_a_smooth_decay_has_not_several_drops(data, failing):
    smooth = data["separate"].copy(deep=True)
    smooth["loss"] = smooth["loss"][:, 0] * np.exp(-smooth["time"] / 100)
    assert "separate-drops" in failing({**data, "separate": smooth.transpose("run", ...)})


def test_a_start_that_already_answers_fails(data, failing):
    """The level before the first drop must be that of answering zero."""
    lower = data["separate"].assign(loss=0.8 * data["separate"]["loss"])
    assert failing({**data, "separate": lower}) == {"separate-start"}


def test_small_dents_do_not_count(data, failing):
    dented = data["merged"].copy(deep=True)
    time = dented["time"].values
    dent = 0.02 / (1 + np.exp(-(time - 0.95 * time[-1])))
    dented["loss"] = dented["loss"] - dent
    assert "merged-drops-once" not in failing({**data, "merged": dented})


def test_the_level_of_chance_is_the_least_squares_of_the_mean_label():
    batch = fig5.prepare(dataclasses.replace(fig5.QUICK, sequences=50))[0]
    answers, means = np.asarray(batch.labels)[:, -1, 0], np.asarray(batch.tokens)[:, :, 4].mean(axis=1)
    best = np.linalg.lstsq(means[:, None], answers)[0]
    left = np.mean((answers - means * best[0]) ** 2)
    predicted = fig5.predict([batch])
    assert float(predicted["power"][0] - predicted["gain"][0]) == pytest.approx(left)


def test_the_drawing_counts_the_drops(data):
    drawn = fig5.draw(data)
    assert "1 drop" in drawn.axes[0].get_title(loc="left")
