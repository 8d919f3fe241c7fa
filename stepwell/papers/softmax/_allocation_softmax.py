"""Softmax attention itself, from random small weights: which head learns which task, and where training ends."""

from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from stepwell.analysis import head_task_allocation
from stepwell.dynamics import Ensemble, Record, descend
from stepwell.models import SpectralAttention
from stepwell.objectives import ReducedSampled
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._allocation_settings import MARGIN, UNEQUAL_HEADS, Settings
from ._full_model import UNIT
from ._softmax_search import Weights, softmax_losses

Starts = tuple[Float[np.ndarray, "run head task"], Float[np.ndarray, "run head task"]]
"""ω and μ."""


def leads(task: MultiTaskRegression, omega: np.ndarray, mu: np.ndarray, *, embedding: int) -> np.ndarray:
    """By how much the predicted head of each task leads, in units of log ω (`theory.head_advantage`)."""
    if omega.shape[0] == 1:
        return np.full(omega.shape[1], np.inf)
    ratio = np.exp(np.mean(np.log(mu / omega), axis=0))
    worth = theory.head_advantage(task, ratio, heads=omega.shape[0], embedding=embedding)
    ordered = np.sort(np.log(omega) + worth.mu / worth.omega * np.log(mu), axis=0)
    return ordered[-1] - ordered[-2]


def equal_tasks(settings: Settings) -> xr.Dataset:
    """Equal tasks and as many heads, from every start drawn. `level` is known with a head for each, or one fewer."""
    tasks, rng = settings.tasks, np.random.default_rng(settings.softmax_seed)
    begun = settings.drawn_weights(rng, settings.softmax_starts, tasks, tasks)
    runs = _train(settings.task, begun, settings.softmax_sequences, settings.softmax_seed, settings)
    levels = {}
    if settings.alike:
        alone = _least_shared(settings, 1)
        if tasks > 1:
            levels[tasks - 1] = _least_shared(settings, 2) + (tasks - 2) * alone
        levels[tasks] = tasks * alone
    return runs.assign(level=("used", list(levels.values()))).assign_coords(used=list(levels))


def unequal_tasks(settings: Settings) -> xr.Dataset:
    """Unequal tasks with noise and more heads than tasks, from the first starts for which the rule is certain.

    It then names a head of its own for every task, by more than `MARGIN`: starts are chosen by their initial weights
    alone. `tail` is what the flow of the spectral loss, from the same start, has left at the end, relative to its
    limit.
    """
    task, rng, kept = settings.unequal_task, np.random.default_rng(settings.unequal_seed), []
    width: theory.FlowOptions = {"embedding": settings.embedding}
    while len(kept) < settings.unequal_starts:
        omega, mu = (each[0] for each in settings.drawn_weights(rng, 1, UNEQUAL_HEADS, len(task.dims)))
        named = theory.winners(task, omega, mu, **width)
        if np.unique(named).size == named.size and leads(task, omega, mu, embedding=settings.embedding).min() > MARGIN:
            kept.append((omega, mu))
    omega, mu = (np.array(each) for each in zip(*kept, strict=True))
    runs = _train(task, (omega, mu), settings.unequal_sequences, settings.unequal_seed, settings)
    limit = theory.flow_limit_loss(task).sum()
    until = np.array([settings.softmax_steps * settings.softmax_rate])
    flows = [theory.spectral_flow(task, omega, mu, until, **width) for omega, mu in kept]
    ends = [each.loss[0].sum() for each in flows]
    best = theory.exact_optimum(task)
    return runs.assign(
        tail=("run", np.array(ends) / limit - 1),
        level=best.loss.sum(),
        best_omega=("task", best.omega),
        best_mu=("task", best.mu),
        limit=limit,
    )


def _train(task: MultiTaskRegression, begun: Starts, sequences: int, seed: int, settings: Settings) -> xr.Dataset:
    """Descent of every start on the same sequences; `tested` is the loss at the end, over fresh sequences."""
    starts, embedding = list(zip(*begun, strict=True)), settings.embedding
    models = [SpectralAttention.balanced(*each, task.dims, embedding=embedding) for each in starts]
    key = jax.random.key(seed)
    every = np.unique(np.linspace(0, settings.softmax_steps, 151).astype(int))
    run = descend(
        Ensemble.of(models),
        ReducedSampled(task, sequences, precision="float32", key=key),
        rate=settings.softmax_rate,
        steps=settings.softmax_steps,
        record=Record(points=every, snapshots=2),
        progress=False,
    )
    k, q, v, o = (run[name].values[:, -1] for name in ("key", "query", "value", "output"))
    omega, mu = k * q * models[0].score_scale / np.array(task.dims), v * o
    weights = [Weights(*each) for each in zip(omega, mu, strict=True)]
    tested = softmax_losses(task, weights, settings.softmax_tested, key=jax.random.fold_in(key, 1))
    allocated = head_task_allocation(omega, mu)
    predicted = np.array([theory.winners(task, *each, embedding=embedding) for each in starts])
    per_head, tasks = ("run", "head", "task"), ("run", "task")
    return xr.Dataset(
        {
            "loss": (("run", "time"), run["loss"].values),
            "tested": ("run", [each.mean for each in tested]),
            "tested_error": ("run", [each.error for each in tested]),
            "omega": (per_head, omega),
            "mu": (per_head, mu),
            "predicted": (tasks, predicted),
            "lead": (tasks, np.array([leads(task, *each, embedding=embedding) for each in starts])),
            "contested": (tasks, (predicted[:, :, None] == predicted[:, None, :]).sum(axis=2) > 1),
            "served_by": (tasks, allocated.head),
            "share": (tasks, allocated.share),
            "heads_used": ("run", allocated.heads_used),
        },
        {"time": ("time", settings.softmax_rate * run["step"].values, {"units": UNIT})},
        {"sequences": sequences, "signal": float(task.signals.sum())},
    )


def _least_shared(settings: Settings, count: int) -> float:
    """The least exact loss, by quadrature, of `count` of the equal tasks in one head, alike in it.

    For each ω the best μ is at the vertex of a parabola through three points.
    """
    task = MultiTaskRegression(settings.dims[:count], 1.0, settings.context)

    def least(log_omega: float) -> float:
        omega = np.full((1, count), np.exp(log_omega))
        zero, one, two = (theory.exact_loss(task, omega, mu + 0 * omega).sum() for mu in (0.0, 1.0, 2.0))
        curvature = (two - 2 * one + zero) / 2
        return zero - (one - zero - curvature) ** 2 / (4 * curvature)

    middle = -np.log(sum(task.dims)) / 2
    # At a minimum an error of 3e-3 in log ω is one of 1e-5 in the loss.
    best: Any = minimize_scalar(least, bounds=(middle - 0.5, middle + 0.5), options={"xatol": 3e-3})
    return float(best.fun)
