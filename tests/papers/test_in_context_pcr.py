"""Regression in context is recognized, and each claim fails when its physics is broken."""

import dataclasses

import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.analysis import principal_component_regression
from stepwell.papers.linear import in_context_pcr as pcr
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory

FIGURE = "linear/in-context-pcr"
QUICK = pcr.FIGURE.at(quick=True)

FEW = {"held_out": "1000", "points": "60", "lengths": "100", "contexts": "50", "tokens": "100000"}
EXPONENTS = {"from-regression-exponent", "from-limit-exponent", "merged-least-squares-exponent"}


@pytest.mark.parametrize(
    "changes, unjudged",
    [
        ({"seeds": "40,41", "length_seeds": "2", "context": "60"}, EXPONENTS),
        ({"lengths": "100,200", "context": "6"}, set()),
        (
            {"lengths": "6,100", "contexts": "1", "length_seeds": "3"},
            {*EXPONENTS, "from-regression", "from-limit", "merged-from-least-squares"},
        ),
        ({"init": "0.1", "lengths": "31"}, {*EXPONENTS, "plateaus", "closest", "margin", "held-out"}),
    ],
)
def test_other_settings(survives, changes, unjudged):
    """Few seeds, lengths or contexts, and initial weights from which no plateau lasts."""
    claims = survives({**FEW, **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged
    assert claims["shrinkage"].passed and claims["predictions"].passed


@pytest.mark.parametrize("changes", [{"context": "3"}, {"lengths": "3"}, {"lengths": "5"}])
def test_contexts_too_short_for_the_regression_are_refused(survives, changes):
    with pytest.raises(ValueError, match="the regression needs one length, of at least 4|length above"):
        survives({**FEW, **changes})


def test_initial_weights_too_large_for_a_schedule_are_refused(survives):
    with pytest.raises(InvalidInput, match="small initialization, and these weights are too large"):
        survives({**FEW, "init": "1", "seeds": "33"})


@pytest.fixture(scope="module")
def trained():
    """With its weights, of which the figure keeps none."""
    task, vectors = pcr.prepare(QUICK.context)
    return task, vectors, pcr.train(task, QUICK)


def test_components_in_the_wrong_order_fail(trained, data, failing):
    task, vectors, flows = trained
    wrong = pcr.examine(task, vectors[:, ::-1], flows, QUICK)
    assert "closest" in failing({**data, "tests": wrong})


def test_shorter_contexts_fail(trained, data, failing):
    short = InContextRegression(trained[0].covariance, 15)
    wrong = pcr.examine(*trained, settings=QUICK, fresh_from=short)
    assert "held-out" in failing({**data, "tests": wrong})


def test_noise_on_the_labels_fails(trained, data, failing):
    noisy = InContextRegression(trained[0].covariance, QUICK.context, noise_variance=1.0)
    wrong = pcr.examine(*trained, settings=QUICK, fresh_from=noisy)
    assert "held-out" in failing({**data, "tests": wrong})


def test_a_run_that_stops_early_fails(trained, data, failing):
    task, vectors, flows = trained
    half = float(data["tests"]["time"][0, 2])
    wrong = pcr.examine(task, vectors, flows.sel(time=slice(None, half)), QUICK)
    assert failing({**data, "tests": wrong}) >= {"plateaus", "closest", "margin", "held-out"}


def test_too_few_sequences_cannot_tell(trained, data, failing):
    few = dataclasses.replace(QUICK, held_out=20)
    assert "margin" in failing({**data, "tests": pcr.examine(*trained, settings=few)})


def test_without_the_shrinkage_of_short_contexts_the_maps_fail(data, failing):
    few = dataclasses.replace(QUICK, contexts=100)
    wrong = pcr.examine_lengths(few, shrunk=False)[["distance", "answer"]]
    assert failing({**data, "lengths": data["lengths"].assign(wrong)}) == {"shrinkage", "predictions"}


@pytest.mark.parametrize("name", ["from_regression", "from_limit"])
def test_another_power_of_the_length_fails(data, failing, name):
    lengths = data["lengths"]
    slower = lengths.assign({name: lengths[name] * (lengths["length"] / 100) ** 0.1})
    assert failing({**data, "lengths": slower}) == {name.replace("_", "-"), f"{name.replace('_', '-')}-exponent"}


def test_merged_attention_that_does_not_tend_to_least_squares_fails(data, failing):
    lengths = data["lengths"]
    rests = lengths.assign(merged_from_regression=lengths["merged_from_regression"] + 1e-3)
    assert failing({**data, "lengths": rests}) == {"merged-from-least-squares", "merged-least-squares-exponent"}


def test_a_difference_that_is_ten_percent_larger_fails(data, failing):
    lengths = data["lengths"]
    larger = lengths.assign(from_regression=1.1 * lengths["from_regression"])
    assert failing({**data, "lengths": larger}) == {"from-regression"}


def test_equation_22_is_the_fixed_point():
    task, _ = pcr.prepare(17)
    for m in range(pcr.DIM + 1):
        np.testing.assert_allclose(
            pcr.papers_map(task, m), theory.fixed_point(task, range(m)).effective_map, atol=1e-12
        )


def test_differences_are_those_of_the_answers():
    """Against answers to many queries and task vectors in one context, one by one."""
    task, vectors = pcr.prepare(12)
    rng = np.random.default_rng(0)
    batch = task.sample(1, key=pcr.jax.random.key(0))
    context = np.asarray(batch.tokens)[0, :12, : pcr.DIM]
    count = 4000
    w, query = rng.normal(size=(count, 4)), rng.multivariate_normal(np.zeros(4), task.covariance, count)
    tokens = np.zeros((count, 13, 5))
    tokens[:, :12, :4], tokens[:, 12, :4], tokens[:, :12, 4] = context, query, w @ context.T
    fresh = pcr.Batch(pcr.jax.numpy.asarray(tokens), pcr.jax.numpy.zeros((count, 13, 1)), batch.context)
    regressions = principal_component_regression(fresh, vectors)
    maps = np.array([pcr.papers_map(task, m) for m in range(5)])
    beta = np.einsum("sn,nd->sd", tokens[:, :12, 4], context) / 12
    measured = pcr.context_differences((context.T @ context / 12)[None], maps, vectors)
    for m in range(5):
        answers = np.sum(beta @ maps[m] * query, axis=1)
        for name, other in (
            ("from_regression", regressions[m]),
            ("from_limit", np.sum(w @ vectors[:, :m] @ vectors[:, :m].T * query, axis=1)),
        ):
            squares = (answers - other) ** 2
            assert abs(squares.mean() - measured[name][0, m]) <= 4 * squares.std() / count**0.5


def test_the_drawing_has_four_panels_with_words(data):
    drawn = pcr.draw(data, QUICK)
    assert len(drawn.axes) == 4
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
