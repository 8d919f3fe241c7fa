"""Regression in context is recognised, and each claim fails when its physics is broken."""

import dataclasses

import pytest

from stepwell.papers.linear_attention import in_context_pcr as pcr
from stepwell.tasks import InContextRegression

FIGURE = "linear/in-context-pcr"


@pytest.fixture(scope="module")
def trained():
    """With its weights, of which the figure keeps none."""
    task, vectors = pcr.prepare()
    return task, vectors, pcr.train(task, pcr.QUICK)


def test_components_in_the_wrong_order_fail(trained, data, failing):
    task, vectors, flows = trained
    wrong = pcr.examine(task, vectors[:, ::-1], flows, pcr.QUICK)
    assert "closest" in failing({**data, "tests": wrong})


def test_shorter_contexts_fail(trained, data, failing):
    short = InContextRegression(trained[0].covariance, 15)
    wrong = pcr.examine(*trained, chosen=pcr.QUICK, fresh_from=short)
    assert "held-out" in failing({**data, "tests": wrong})


def test_noise_on_the_labels_fails(trained, data, failing):
    noisy = InContextRegression(trained[0].covariance, pcr.CONTEXT, noise_variance=1.0)
    wrong = pcr.examine(*trained, chosen=pcr.QUICK, fresh_from=noisy)
    assert "held-out" in failing({**data, "tests": wrong})


def test_a_run_that_stops_early_fails(trained, data, failing):
    task, vectors, flows = trained
    half = float(data["tests"]["time"][0, 2])
    wrong = pcr.examine(task, vectors, flows.sel(time=slice(None, half)), pcr.QUICK)
    assert failing({**data, "tests": wrong}) >= {"plateaus", "closest"}


def test_too_few_sequences_cannot_tell(trained, data, failing):
    few = dataclasses.replace(pcr.QUICK, held_out=20)
    assert "margin" in failing({**data, "tests": pcr.examine(*trained, chosen=few)})


def test_the_drawing_has_two_panels_with_words(data):
    drawn = pcr.draw(data)
    assert len(drawn.axes) == 2
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
