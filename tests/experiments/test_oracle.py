"""The oracle is right, imports nothing of what it judges, and finds nothing wrong: `make oracle` is the whole of it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy_oracle as oracle
import pytest
from judge import Judge, Page, Truth, report
from oracle_draws import described

from stepwell._util import paper_time
from stepwell.experiments import Experiment


@pytest.mark.parametrize("name", ["numpy_oracle", "oracle_draws", "by_hand"])
def test_the_oracle_imports_nothing_of_what_it_judges(name: str):
    nodes = list(ast.walk(ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8"))))
    names = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    allowed = {"collections", "json", "math", "pathlib", "typing", "numpy", "scipy", "by_hand", "numpy_oracle"}
    assert {name.split(".")[0] for name in names} <= allowed


def losses(rng: np.random.Generator) -> Iterator[tuple[oracle.Loss, oracle.Weights]]:
    """Every loss of the oracle, with weights."""
    inputs, tasks = (np.cov(rng.standard_normal((2, 9))) for _ in range(2))
    lengths = {3: 0.4, 5: 0.6}
    tokens, labels = oracle.draw(rng, 7, 5, inputs, [tasks, tasks], 0.3)
    separate = {"value": (2, 2, 4), "key": (2, 3, 4), "query": (2, 3, 2)}
    shapes = {"separate": separate, "merged": {"value": (2, 2, 4), "key_query": (2, 4, 2)}}
    shapes["multihead"] = {"output": (2, 2, 3), "value": (2, 3, 4), "key": (2, 3, 4), "query": (2, 3, 2)}
    for kind, weights in shapes.items():
        drawn = {name: rng.standard_normal(shape) for name, shape in weights.items()}
        for activation in ("linear", "softmax"):
            yield oracle.of_weights(kind, oracle.sequences(tokens, labels, lengths, activation, "1/N", True)), drawn
        moments = oracle.moments(inputs, tasks, 0.3, lengths, "1/tokens")
        yield oracle.of_weights(kind, oracle.population(moments)), drawn
    task = {"dims": [2, 3], "strengths": [0.5, 0.8], "noise": 0.2, "context": 9}
    yield oracle.spectral(task), {name: rng.standard_normal((2, 2)) for name in ("key", "query", "value", "output")}


def test_gradients_are_those_of_the_losses():
    rng = np.random.default_rng(0)
    for loss, weights in losses(rng):
        toward = {name: rng.standard_normal(w.shape) for name, w in weights.items()}
        ends = [loss({n: w + sign * 1e-6 * toward[n] for n, w in weights.items()})[0] for sign in (1, -1)]
        value, gradient = loss(weights)
        slope = sum(np.sum(gradient[name] * toward[name]) for name in weights)
        # A central difference: rounding of the loss over the step, and its square.
        assert abs((ends[0] - ends[1]) / 2e-6 - slope) < 1e-8 * max(abs(value), abs(slope))


def test_the_closed_form_is_the_mean_over_sequences():
    rng = np.random.default_rng(1)
    inputs, tasks = (np.cov(rng.standard_normal((2, 9))) for _ in range(2))
    readout, scores = np.zeros((2, 1, 3)), np.zeros((2, 3, 2))
    readout[:, :, 2:], scores[:, :2] = rng.standard_normal((2, 1, 1)), rng.standard_normal((2, 2, 2))
    for divided in ("1/N", "none", "1/tokens"):
        drawn = (oracle.draw(rng, 200, 6, inputs, [tasks], 0.3) for _ in range(100))
        each = [
            oracle.sequences(tokens, labels, {6: 1.0}, "linear", divided, True)(readout, scores)[0]
            for tokens, labels in drawn
        ]
        right = oracle.Estimate.of(np.array(each))
        closed = oracle.population(oracle.moments(inputs, tasks, 0.3, {6: 1.0}, divided))(readout, scores)[0]
        assert abs(closed - right.mean) < 5 * right.error


def test_task_vectors_and_noise_are_integrated_out():
    rng = np.random.default_rng(2)
    task = {"dims": [2, 1], "strengths": [0.5, 0.8], "noise": 0.4, "context": 7}
    omega, mu = rng.uniform(0.2, 0.8, (2, 2)), rng.uniform(0.2, 0.8, (2, 2))
    block = np.array([0, 0, 1])
    tasks = [np.diag(strength * (block == i)) for i, strength in enumerate(task["strengths"])]
    tokens, labels = oracle.draw(rng, 20_000, 7, np.eye(3), tasks, 0.4)
    readout, scores = np.zeros((2, 2, 5)), np.zeros((2, 5, 3))
    readout[:, [0, 1], [3, 4]], scores[:, range(3), range(3)] = mu, omega[:, block]
    parts = zip(np.split(tokens, 100), np.split(labels, 100), strict=True)
    each = [oracle.sequences(*part, {7: 1.0}, "softmax", "none", False)(readout, scores)[0] for part in parts]
    right, ours = oracle.Estimate.of(2 * np.array(each)), oracle.softmax_risk(rng, 20_000, task, omega, mu)
    assert abs(ours.mean - right.mean) < 5 * np.hypot(ours.error, right.error)


@pytest.mark.slow
def test_a_dozen_experiments_are_right():
    with Page.serve() as page:
        judge = Judge(page, samples=4000, every=12)
        for number in (*range(12), 62):  # of the last, two tasks share a head
            judge.experiment(0, number)
    lines, failed = report(judge)
    assert not failed, "\n".join([*lines, *failed])
    assert len(judge.commands) == 13 and judge.covered


def test_a_wrong_time_is_found(monkeypatch: pytest.MonkeyPatch):
    """Times by the root of N instead of its power of two thirds."""
    right = paper_time.time_factor
    monkeypatch.setattr(paper_time, "time_factor", lambda *given, **named: right(*given, **named) ** 0.75)
    judge, experiment = Judge(), Experiment(**described(0, 0)[1])
    run = experiment.run(progress=False)
    judge.judge_run(Truth(experiment, run), run)
    failed = {one.quantity for one in judge.findings if one.share > 1}
    assert failed >= {"loss along the run", "final loss", "weights at the end"}


def test_uncertainties_of_one_kind_of_model_are_not_excused_by_those_of_another():
    judge = Judge()
    judge.covered = {"separate": [True] * 600, "merged": [True] * 30 + [False] * 20}
    (failed,) = report(judge)[1]
    assert failed.startswith("predicted drops of merged attention failed")
