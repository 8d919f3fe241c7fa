"""Initial models and losses of many runs, built together."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from stepwell.dynamics import Ensemble
from stepwell.objectives import AbstractObjective, Population
from stepwell.published import Run, is_white
from stepwell.published.training import Setup, keys_of, objective, set_up
from stepwell.tasks import ContextLengths, InContextRegression, random_rotation

from ._fields import run_from
from ._plan import Work, is_closed_form


class Built(NamedTuple):
    """What a program computes with."""

    setup: Setup
    """The first run."""
    models: Ensemble
    losses: AbstractObjective | Ensemble
    """One for all runs, or one for each."""
    rates: np.ndarray
    tasks: list[InContextRegression]
    """Different tasks in the basis of their eigenvectors, where the moments of all are known."""
    task_of: np.ndarray
    """Which of them a run has."""
    rotations: Float[np.ndarray, "run dim dim"] | None
    """The eigenvectors of each run, as columns; None where they are the axes."""


def build(work: Work) -> Built:
    """Models, losses and rates of some runs that one program computes."""
    run, _ = run_from(work.configuration(0))
    setup = set_up(run.flags, run.engine, run.beyond)
    rates = np.array(work.column("lr"), np.float64)
    if not is_closed_form(work.configuration(0)):
        return _one_by_one(work, setup, rates)
    seeds, inits = np.array(work.column("seed")), np.array(work.column("init"), np.float64)
    models = _random(setup, run, seeds, inits)
    tasks, task_of = _tasks(work)
    rotations = _rotations(
        setup, seeds, np.array([is_white(np.diag(task.covariance).tolist()) for task in tasks])[task_of]
    )
    losses = [Population(task, setup.normalisation) for task in tasks]
    if len(losses) == 1 and rotations is None:
        return Built(setup, models, losses[0], rates, tasks, task_of, None)
    return Built(setup, models, _rotated(losses, task_of, rotations), rates, tasks, task_of, rotations)


def _one_by_one(work: Work, setup: Setup, rates: np.ndarray) -> Built:
    """For tasks without moments in closed form, and several regressions."""
    setups = []
    for row in range(work.runs):
        run, _ = run_from(work.configuration(row))
        setups.append(set_up(run.flags, run.engine, run.beyond))
    models = Ensemble.of([each.model for each in setups])
    fixed = setup.beyond.several and setup.engine != "sampled"  # the loss of several regressions knows no seed
    losses = objective(setup) if fixed else Ensemble.of([objective(each) for each in setups])
    return Built(setup, models, losses, rates, [], np.zeros(work.runs, np.int64), None)


def _random(setup: Setup, run: Run, seeds: np.ndarray, inits: np.ndarray) -> Ensemble:
    """Random initial models, as `set_up` draws them one by one.

    Each is a fixed standard deviation for every weight, zero in the label blocks, times normal numbers of the seed's
    key, times the scale. The deviations are read off one model of scale 1: its weights over its normal numbers.
    """
    unit = set_up(dataclasses.replace(run.flags, init=1.0), run.engine, run.beyond).model
    weights = np.concatenate([np.ravel(part) for part in jax.tree.leaves(unit) if hasattr(part, "shape")])
    drawn, places = np.unique(seeds, return_inverse=True)
    normals = np.asarray(_normals(weights.size)(keys_of(drawn).initialisation))
    own = np.asarray(_normals(weights.size)(keys_of(np.array([run.flags.seed])).initialisation))[0]
    deviations = np.where(weights == 0.0, 0.0, weights / own)
    return Ensemble.like(setup.model, inits[:, None] * deviations * normals[places])


@functools.cache
def _normals(count: int) -> Callable[[Any], Any]:
    """Normal numbers of many keys; number i of a key does not depend on how many are drawn."""
    return jax.jit(jax.vmap(lambda key: jax.random.normal(key, (count,))))


def _tasks(work: Work) -> tuple[list[InContextRegression], np.ndarray]:
    """Different tasks, in the basis of their eigenvectors, and which of them each run has."""
    names = [name for name in ("eigenvalues", "task_eigenvalues", "noise", "context") if name in work.fields]
    rows: dict[Any, int] = {}
    places = np.zeros(work.runs, np.int64)
    if names:
        columns = [[tuple(v) if isinstance(v, list) else v for v in work.fields[name]] for name in names]
        for row, key in enumerate(zip(*columns, strict=True)):
            places[row] = rows.setdefault(key, len(rows))
    firsts = [int(np.argmax(places == number)) for number in range(len(rows))] if names else [0]
    made = []
    for row in firsts:
        given = work.configuration(row)
        omega = given.get("task_eigenvalues")
        made.append(
            InContextRegression(
                np.diag(given["eigenvalues"]),
                ContextLengths(given["context"]),
                task_covariance=None if omega is None else np.diag(omega),
                noise_variance=float(given["noise"]),
                outputs=given["out_dim"],
            )
        )
    return made, places


def _rotations(setup: Setup, seeds: np.ndarray, white: np.ndarray) -> np.ndarray | None:
    """The eigenvectors of the covariance of each run, as `set_up` draws them."""
    if white.all():
        return None
    dim = setup.flags.in_dim
    drawn, places = np.unique(seeds, return_inverse=True)
    keys = np.asarray(jax.random.key_data(keys_of(drawn).covariance))
    made = np.stack([random_rotation(dim, key=jax.random.wrap_key_data(key)) for key in keys])[places]
    made[white] = np.eye(dim)
    return made


def _rotated(losses: list[Population], task_of: np.ndarray, rotations: np.ndarray | None) -> Ensemble:
    """The loss of each run: that of its task in the basis of its eigenvectors, rotated."""
    stacked = Ensemble.of(losses).stacked

    def of_runs(part: Any) -> Any:
        each = np.asarray(part)[task_of]
        if each.ndim == 3 and rotations is not None:
            each = np.einsum("rij,rjk,rlk->ril", rotations, each, rotations, optimize=True)
        return jax.device_put(each)

    return Ensemble(jax.tree.map(of_runs, stacked), task_of.size)
