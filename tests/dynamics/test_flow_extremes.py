"""What a flow says of its end is true: at extreme scales of weights and eigenvalues, long contexts, late last drops."""

import json

import jax
import numpy as np
import pytest

from stepwell.dynamics import Record, _lsoda, _rodas, flow
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression

SPECTRUM = np.array([0.4, 0.1])
CASES = {
    "large weights": (SPECTRUM, 31, 0.0, 1e2),
    "larger weights": (SPECTRUM, 31, 0.0, 1e3),
    "tiny weights": (SPECTRUM, 31, 0.0, 1e-9),
    "small eigenvalues": (1e-7 * SPECTRUM, 31, 0.0, 1e-2),
    "large eigenvalues": (1e7 * SPECTRUM, 31, 0.0, 1e-2),
    "long context": (SPECTRUM, 10**9, 0.0, 1e-2),
    "longer context": (SPECTRUM, 10**12, 0.0, 1e-2),
    "noise": (SPECTRUM, 31, 1e6, 1e-2),
    "late last drop": (np.array([1.0, 1e-6]), 31, 0.0, 1e-2),
}


def lowest(variances, context, noise):
    """The lowest loss and the last drop to it, by the paper's formula, of terms that do not cancel."""
    shared = (variances.sum() + noise) / context
    missed = (variances / context + shared) / (variances * (1 + 1 / context) + shared)
    return float(np.sum(variances * missed)), float((variances * (1 - missed))[-1])


def start(kind, scale, seed=1):
    return kind.random(dim=2, heads=2, scale=scale, key=jax.random.key(seed))


@pytest.mark.parametrize("solver", ["rodas5p", "lsoda", "kvaerno5"])
@pytest.mark.parametrize("case", CASES)
def test_a_flow_that_says_so_has_converged(case, solver):
    variances, context, noise, scale = CASES[case]
    task = InContextRegression(np.diag(variances), context, noise_variance=noise)
    run = flow(start(SeparateAttention, scale), Population(task), solver=solver, progress=False)
    assert run.attrs["outcome"] == "converged", run.attrs["message"]
    loss, drop = lowest(variances, context, noise)
    # A thousandth of the lowest loss and of the last drop, or the rounding of a sum of losses of zero weights.
    rounding = 64 * np.finfo(float).eps * variances.sum()
    assert abs(float(run.loss[0, -1]) - loss) <= max(1e-3 * min(loss, drop), rounding)


@pytest.mark.parametrize("case", ["large weights", "small eigenvalues", "long context"])
def test_merged_attention_too(case):
    variances, context, noise, scale = CASES[case]
    task = InContextRegression(np.diag(variances), context, noise_variance=noise)
    run = flow(start(MergedAttention, scale), Population(task), progress=False)
    assert run.attrs["outcome"] == "converged"
    np.testing.assert_allclose(run.loss[0, -1], lowest(variances, context, noise)[0], rtol=1e-3)


def test_a_start_at_the_minimum_has_converged_and_one_at_a_saddle_is_stuck():
    task = InContextRegression(np.diag(SPECTRUM), 31)
    end = (SPECTRUM + (SPECTRUM + SPECTRUM.sum()) / 31) ** (-1 / 3)

    def at(sizes):
        keys = np.zeros((2, 1, 3))
        keys[:, 0, :2] = np.diag(sizes)
        values = np.zeros((2, 1, 3))
        values[:, 0, 2] = sizes
        weights = {"value": values, "key": keys, "query": keys[..., :2]}
        return flow(
            start(SeparateAttention, 1.0).with_weights(weights), Population(task), progress=False, throw=False
        ).attrs

    assert at(end)["outcome"] == "converged"
    assert at(end * [1.0, 0.0])["outcome"] == "stuck"


@pytest.mark.parametrize(("solver", "module"), [("rodas5p", _rodas), ("lsoda", _lsoda)])
def test_a_time_that_is_never_reached_is_given_up(solver, module, monkeypatch):
    monkeypatch.setattr(module, "MOST_STEPS", 50)
    task = InContextRegression(np.diag(SPECTRUM), 31)
    run = flow(
        start(SeparateAttention, 1e-3),
        Population(task),
        until=1e30,
        solver=solver,
        record=Record(points=5),
        progress=False,
        throw=False,
    )
    assert run.attrs["outcome"] == "solver failed" and "not followed beyond time" in run.attrs["message"]
    assert run.sizes["time"] == 5 and np.all(np.isfinite(run.loss))
    assert json.loads(run.attrs["configuration"])["work"]["steps"] <= 128
