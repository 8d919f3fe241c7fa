"""Stand-in tasks: the theory needs only these attributes."""

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest


@dataclass(frozen=True)
class Lengths:
    counts: tuple[int, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Task:
    covariance: np.ndarray
    task_covariance: np.ndarray
    noise_variance: float
    context: Lengths
    outputs: int = 1


def _rotation(dim, seed):
    return np.eye(dim) if seed is None else np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))[0]


def _make_task(
    variances, task_variances=None, *, lengths=(31,), noise=0.0, rotation=None, task_rotation=None, outputs=1
):
    """Diagonal covariances, each turned by a random rotation if a seed is given (one seed: they commute)."""
    lam = np.asarray(variances, dtype=float)
    omega = np.ones_like(lam) if task_variances is None else np.asarray(task_variances, dtype=float)
    turn = _rotation(lam.size, rotation)
    task_turn = turn if task_rotation is None else _rotation(lam.size, task_rotation)
    weights = Lengths(tuple(lengths), (1.0 / len(lengths),) * len(lengths))
    return Task((turn * lam) @ turn.T, (task_turn * omega) @ task_turn.T, noise, weights, outputs)


@pytest.fixture(scope="session")
def make_task():
    return _make_task


@dataclass(frozen=True)
class Moments:
    input: np.ndarray
    cross: np.ndarray
    second: np.ndarray
    label_power: float


@dataclass(frozen=True)
class TaskOfMoments:
    """A task that is known by its moments alone."""

    own: Moments
    context: Lengths = Lengths((20,), (1.0,))
    outputs: int = 1

    @property
    def dim(self):
        return len(self.own.input)

    def moments(self, normalization):
        assert normalization == "1/N"
        return self.own


def _make_task_of_moments(gains, seed, *, spread=2.0, rest=0.1):
    r"""Moments without common eigenvectors, of these gains.

    $M = C^{1/2} P\,\mathrm{diag}(\sqrt\gamma)\,Q^\top\Lambda^{-1/2}$ with random rotations P and Q. The eigenvalues of
    $\Lambda$ and C are between one and one over `spread`; `rest` cannot be learned.
    """
    gains = np.asarray(gains, dtype=float)
    turns = [_rotation(gains.size, (seed, number)) for number in range(4)]
    spectrum = np.geomspace(1, 1 / spread, gains.size)
    root, second_root = ((turn * np.sqrt(spectrum)) @ turn.T for turn in turns[:2])
    cross = second_root @ (turns[2] * np.sqrt(gains)) @ turns[3].T @ np.linalg.inv(root)
    return TaskOfMoments(Moments(root @ root, cross, second_root @ second_root, float(gains.sum()) + rest))


@pytest.fixture(scope="session")
def make_task_of_moments():
    return _make_task_of_moments


@dataclass(frozen=True)
class MultiTask:
    dims: tuple[int, ...]
    strengths: tuple[float, ...]
    noise_variance: float
    context: Lengths


def _make_multi_task(dims, strengths: Any = 1.0, *, context=100, noise=0.0):
    """One strength for all, or one for each."""
    each = np.broadcast_to(np.asarray(strengths, dtype=float), len(dims))
    return MultiTask(tuple(dims), tuple(each.tolist()), float(noise), Lengths((context,), (1.0,)))


@pytest.fixture(scope="session")
def make_multi_task():
    return _make_multi_task


@pytest.fixture(scope="session")
def multi_tasks():
    """A Hypothesis strategy of tasks with one to four parts, each with its dimension and strength."""
    parts = st.lists(st.tuples(st.integers(1, 30), st.floats(0.05, 3.0)), min_size=1, max_size=4)
    return st.builds(
        lambda found, context, noise: _make_multi_task(
            [d for d, _ in found], [lam for _, lam in found], context=context, noise=noise
        ),
        parts,
        st.integers(2, 2000),
        st.sampled_from([0.0, 0.1, 1.0, 20.0]),
    )
