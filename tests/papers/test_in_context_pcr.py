"""Regression in context is recognised, and each claim fails when its physics is broken."""

import pytest

from stepwell.papers.linear_attention import in_context_pcr as pcr
from stepwell.tasks import InContextRegression

PLATEAUS, CLOSEST, MARGIN, HELD_OUT = range(4)
SMALL = pcr.Settings(seeds=(0, 1), held_out=2000, points=300)


@pytest.fixture(scope="module")
def trained():
    task, vectors = pcr.prepare()
    return task, vectors, pcr.train(task, SMALL)


@pytest.fixture(scope="module")
def data(trained):
    return {"flows": trained[2], "tests": pcr.examine(*trained, chosen=SMALL)}


def failing(data) -> set[int]:
    return {place for place, claim in enumerate(pcr.claims(data)) if not claim.passed}


def test_all_claims_hold(data):
    assert failing(data) == set()


def test_components_in_the_wrong_order_fail(trained, data):
    task, vectors, flows = trained
    wrong = pcr.examine(task, vectors[:, ::-1], flows, SMALL)
    assert CLOSEST in failing({**data, "tests": wrong})


def test_shorter_contexts_fail(trained, data):
    short = InContextRegression(trained[0].covariance, 15)
    wrong = pcr.examine(*trained, chosen=SMALL, fresh_from=short)
    assert HELD_OUT in failing({**data, "tests": wrong})


def test_noise_on_the_labels_fails(trained, data):
    noisy = InContextRegression(trained[0].covariance, pcr.CONTEXT, noise_variance=1.0)
    wrong = pcr.examine(*trained, chosen=SMALL, fresh_from=noisy)
    assert HELD_OUT in failing({**data, "tests": wrong})


def test_a_run_that_stops_early_fails(trained, data):
    task, vectors, flows = trained
    half = float(data["tests"]["time"][0, 2])
    wrong = pcr.examine(task, vectors, flows.sel(time=slice(None, half)), SMALL)
    assert failing({**data, "tests": wrong}) >= {PLATEAUS, CLOSEST}


def test_too_few_sequences_cannot_tell(trained, data):
    few = pcr.Settings(seeds=(0, 1), held_out=20, points=300)
    assert MARGIN in failing({**data, "tests": pcr.examine(*trained, chosen=few)})


def test_the_drawing_has_two_panels_with_words(data):
    drawn = pcr.draw(data)
    assert len(drawn.axes) == 2
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
