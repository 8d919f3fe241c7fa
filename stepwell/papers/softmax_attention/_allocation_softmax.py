"""Softmax attention itself, from random small weights: which head learns which task, and where training ends."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from stepwell.dynamics import Ensemble, descend
from stepwell.models import SpectralAttention
from stepwell.objectives import ReducedSampled
from stepwell.papers._completed import completed
from stepwell.probes import head_task_allocation
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._full_model import CONTEXT, DIMS, EMBEDDING, MU, OMEGA, UNIT
from ._softmax_search import Weights, softmax_losses

SPREAD = 0.3
"""Standard deviation of the logarithms of random starts."""
MARGIN = SPREAD**2
"""By so much a head must lead in log ω for the rule to name it with certainty: the rule is of first order in leads."""
UNEQUAL_HEADS = 4


@dataclass(frozen=True)
class SoftmaxSettings:
    """Starts and sequences for equal tasks, and for unequal ones with noise and a head more than tasks."""

    starts: int = 24
    sequences: int = 640
    seed: int = 100
    unequal_starts: int = 12
    unequal_sequences: int = 1000
    unequal_seed: int = 101
    steps: int = 1500
    rate: float = 0.02
    tested: int = 500


FULL = SoftmaxSettings()
QUICK = SoftmaxSettings(starts=8, sequences=320, unequal_starts=3, unequal_sequences=500, steps=1200, tested=250)


def equal_task() -> MultiTaskRegression:
    return MultiTaskRegression(DIMS, 1.0, CONTEXT)


def unequal_task() -> MultiTaskRegression:
    return MultiTaskRegression((6, 10, 14), (2.0, 1.0, 0.5), CONTEXT, noise_variance=2.0)


Starts = tuple[Float[np.ndarray, "run head task"], Float[np.ndarray, "run head task"]]
"""ω and μ."""


def drawn_starts(rng: np.random.Generator, runs: int, heads: int, tasks: int) -> Starts:
    """Random small weights, their logarithms Gaussian."""
    omega, mu = np.exp(SPREAD * rng.standard_normal((2, runs, heads, tasks)))
    return 1.5 * OMEGA * omega, MU * mu


def leads(task: MultiTaskRegression, omega: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """By how much the predicted head of each task leads, in units of log ω (`theory.allocation.head_advantage`)."""
    ratio = np.exp(np.mean(np.log(mu / omega), axis=0))
    worth = theory.allocation.head_advantage(task, ratio, heads=omega.shape[0], embedding=EMBEDDING)
    ordered = np.sort(np.log(omega) + worth.mu / worth.omega * np.log(mu), axis=0)
    return ordered[-1] - ordered[-2]


def equal_tasks(chosen: SoftmaxSettings) -> xr.Dataset:
    """Three equal tasks and three heads, from every start drawn."""
    task = equal_task()
    begun = drawn_starts(np.random.default_rng(chosen.seed), chosen.starts, len(DIMS), len(DIMS))
    runs = _train(task, begun, chosen.sequences, chosen.seed, chosen)
    alone, together = (_least_shared(count) for count in (1, 2))
    return runs.assign(level=("used", [together + alone, 3 * alone])).assign_coords(used=[2, 3])


def unequal_tasks(chosen: SoftmaxSettings) -> xr.Dataset:
    """Unequal tasks with noise and more heads than tasks, from the first starts for which the rule is certain.

    It then names a head of its own for every task, by more than `MARGIN`: starts are chosen by their initial weights
    alone. `tail` is what the flow of the spectral loss, from the same start, has left at the end, relative to its
    limit.
    """
    task, rng, kept = unequal_task(), np.random.default_rng(chosen.unequal_seed), []
    while len(kept) < chosen.unequal_starts:
        omega, mu = (each[0] for each in drawn_starts(rng, 1, UNEQUAL_HEADS, len(task.dims)))
        named = theory.allocation.winners(task, omega, mu, embedding=EMBEDDING)
        if np.unique(named).size == named.size and leads(task, omega, mu).min() > MARGIN:
            kept.append((omega, mu))
    omega, mu = (np.array(each) for each in zip(*kept, strict=True))
    runs = _train(task, (omega, mu), chosen.unequal_sequences, chosen.unequal_seed, chosen)
    limit, until = theory.limits.flow_limit_loss(task).sum(), np.array([chosen.steps * chosen.rate])
    flows = [theory.flow.spectral_flow(task, omega, mu, until, embedding=EMBEDDING) for omega, mu in kept]
    ends = [each.loss[0].sum() for each in flows]
    best = theory.losses.exact_optimum(task)
    return runs.assign(
        tail=("run", np.array(ends) / limit - 1),
        level=best.loss.sum(),
        best_omega=("task", best.omega),
        best_mu=("task", best.mu),
        limit=limit,
    )


def _train(task: MultiTaskRegression, begun: Starts, sequences: int, seed: int, chosen: SoftmaxSettings) -> xr.Dataset:
    """Descent of every start on the same sequences; `tested` is the loss at the end, over fresh sequences."""
    models = [SpectralAttention.balanced(*each, task.dims, embedding=EMBEDDING) for each in zip(*begun, strict=True)]
    key = jax.random.key(seed)
    every = np.unique(np.linspace(0, chosen.steps, 151).astype(int))
    run = completed(
        descend(
            Ensemble.of(models),
            ReducedSampled(task, sequences, precision="float32", key=key),
            rate=chosen.rate,
            steps=chosen.steps,
            record=every,
            snapshots=2,
            progress=False,
        )
    )
    k, q, v, o = (run[name].values[:, -1] for name in ("key", "query", "value", "output"))
    omega, mu = k * q * models[0].score_scale / np.array(task.dims), v * o
    tested = softmax_losses(
        task, [Weights(*each) for each in zip(omega, mu, strict=True)], chosen.tested, key=jax.random.fold_in(key, 1)
    )
    allocated = head_task_allocation(omega, mu)
    starts = list(zip(*begun, strict=True))
    predicted = np.array([theory.allocation.winners(task, *each, embedding=EMBEDDING) for each in starts])
    weights, tasks = ("run", "head", "task"), ("run", "task")
    return xr.Dataset(
        {
            "loss": (("run", "time"), run["loss"].values),
            "tested": ("run", [each.mean for each in tested]),
            "tested_error": ("run", [each.error for each in tested]),
            "omega": (weights, omega),
            "mu": (weights, mu),
            "predicted": (tasks, predicted),
            "lead": (tasks, np.array([leads(task, *each) for each in starts])),
            "contested": (tasks, (predicted[:, :, None] == predicted[:, None, :]).sum(axis=2) > 1),
            "served_by": (tasks, allocated.head),
            "share": (tasks, allocated.share),
            "heads_used": ("run", allocated.heads_used),
        },
        {"time": ("time", chosen.rate * run["step"].values, {"units": UNIT})},
        {"sequences": sequences, "signal": float(task.signals.sum())},
    )


def _least_shared(count: int) -> float:
    """The least exact loss, by quadrature, of `count` of the equal tasks in one head, alike in it.

    For each ω the best μ is at the vertex of a parabola through three points.
    """
    task = MultiTaskRegression(DIMS[:count], 1.0, CONTEXT)

    def least(log_omega: float) -> float:
        omega = np.full((1, count), np.exp(log_omega))
        zero, one, two = (theory.losses.exact_loss(task, omega, mu + 0 * omega).sum() for mu in (0.0, 1.0, 2.0))
        curvature = (two - 2 * one + zero) / 2
        return zero - (one - zero - curvature) ** 2 / (4 * curvature)

    middle = -np.log(sum(DIMS[:count])) / 2
    # At a minimum an error of 3e-3 in log ω is one of 1e-5 in the loss.
    best: Any = minimize_scalar(least, bounds=(middle - 0.5, middle + 0.5), options={"xatol": 3e-3})
    return float(best.fun)
