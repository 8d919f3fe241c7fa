"""Regressions that share inputs, against their stated law and the task without shared inputs."""

import jax
import numpy as np
import pytest

import stepwell as sw
from stepwell._util.errors import InvalidInput
from stepwell.tasks import MultiTaskRegression, OverlappingRegression, covariance
from stepwell.theory import MultiTask, RegressionTask, linear

KEY = jax.random.key(0)
LAMBDA = covariance([2.0, 1.0, 0.5, 0.25], key=jax.random.key(1))


def shared(**changes) -> OverlappingRegression:
    options = {"covariance": LAMBDA, "noise_variance": 0.3} | changes
    return OverlappingRegression([[0, 2, 1], [3, 1]], (1.5, 0.5), 12, **options)


def test_disjoint_white_inputs_are_the_multi_task_regression_sequence_by_sequence():
    options = {"noise_variance": 0.3, "target_noise": True}
    sizes = (1.5, 0.5), 12
    one = OverlappingRegression([range(2), range(2, 5)], *sizes, convention="total", **options)
    other = MultiTaskRegression((2, 3), *sizes, convention="total", **options)
    assert one.strengths == other.strengths
    np.testing.assert_allclose(one.signals, other.signals, rtol=1e-14)
    np.testing.assert_allclose(one.sample(30, key=KEY).tokens, other.sample(30, key=KEY).tokens, atol=1e-14)
    np.testing.assert_allclose(one.sample(30, key=KEY).labels, other.sample(30, key=KEY).labels, atol=1e-14)


def test_the_relation_is_on_the_supports_with_the_given_variances():
    batch = shared(noise_variance=0.0).sample(4000, key=KEY)
    x, y = np.asarray(batch.tokens[..., :4]), np.asarray(batch.labels)
    found = np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(x, y, strict=True)])
    on = np.array([[1, 0], [1, 1], [1, 0], [0, 1]], dtype=bool)
    np.testing.assert_allclose(found[:, ~on], 0.0, atol=1e-8)
    for task, strength in enumerate((1.5, 0.5)):
        g = found[:, on[:, task], task]
        np.testing.assert_allclose(
            g.T @ g / len(g), strength * np.eye(g.shape[1]), atol=5 * strength * np.sqrt(2 / len(g))
        )
    np.testing.assert_allclose(np.mean(found[:, 1, 0] * found[:, 1, 1]), 0.0, atol=5 * np.sqrt(0.75 / len(found)))


def test_inputs_have_the_covariance_and_labels_the_signals_and_the_noise():
    task = shared()
    batch = task.sample(20_000, key=KEY)
    x = np.asarray(batch.tokens[:, -1, :4])
    gap = np.abs(x.T @ x / len(x) - LAMBDA)
    assert np.all(gap < 5 * np.sqrt((np.outer(np.diag(LAMBDA), np.diag(LAMBDA)) + LAMBDA**2) / len(x)))
    target = np.asarray(batch.labels[:, -1]) ** 2
    assert np.all(np.abs(target.mean(axis=0) - task.signals) < 5 * target.std(axis=0) / np.sqrt(len(target)))
    noise = np.asarray(batch.tokens[:, :-1, 4:] - batch.labels[:, :-1]).reshape(-1, 2)
    np.testing.assert_allclose(np.cov(noise.T), 0.3 * np.eye(2), atol=5 * 0.3 * np.sqrt(2 / len(noise)))


def test_no_theory_takes_it_for_a_task_of_its_own():
    task = shared()
    assert not isinstance(task, RegressionTask) and not isinstance(task, MultiTask)
    with pytest.raises(InvalidInput, match="2 outputs; the theory is for one"):
        linear.levels(task)
    with pytest.raises(InvalidInput, match="no task_covariance"):
        linear.levels(OverlappingRegression([[0, 1]]))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"supports": []}, "give the entries of each task"),
        ({"supports": [[0, 0]]}, "each once"),
        ({"supports": [[]]}, "at least one"),
        ({"supports": [[-1]]}, "entry of a support"),
        ({"strengths": (1.0, 2.0, 3.0)}, "one for each task"),
        ({"covariance": np.eye(2)}, "supports name entry 2"),
        ({"covariance": -np.eye(3)}, "covariance"),
    ],
)
def test_bad_input_is_refused_in_one_line(changes, words):
    with pytest.raises(InvalidInput) as refusal:
        OverlappingRegression(**{"supports": [[0, 1], [1, 2]], **changes})
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_the_experiment_has_the_supports_of_its_fields():
    published = {"kind": "overlapping", "first": [1, 3], "noise": 0.4, "target_noise": True}
    task = sw.Experiment(task=published).build_task()
    assert task.supports == ((0, 1, 2, 3), (2, 3, 4, 5)) and task.dim == 6 and task.target_noise
    disjoint = sw.Experiment(task={"kind": "overlapping", "dims": [2, 3], "eigenvalues": [1, 1, 1, 1, 1, 4]})
    assert disjoint.build_task().supports == ((0, 1), (2, 3, 4))
    eigenvalues = np.linalg.eigvalsh(disjoint.build_task().covariance)
    np.testing.assert_allclose(eigenvalues, [1, 1, 1, 1, 1, 4], rtol=1e-12)
    assert disjoint.model.kind == "multihead" and disjoint.model.heads == 6
    for wrong, words in (({"first": [1]}, "2 dims and 1 of first"), ({"eigenvalues": [1.0]}, "up to number 8")):
        with pytest.raises(InvalidInput, match=words):
            sw.Experiment(task={"kind": "overlapping", **wrong})
