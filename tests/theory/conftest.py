"""A stand-in task: the theory needs only these attributes."""

from dataclasses import dataclass

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
    lengths: Lengths
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
