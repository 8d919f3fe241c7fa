r"""Runs that several figures share: experiments at several seeds, gradient flow, waits and expected plateaus.

On plateau m a head in the race grows as $\tau\dot v = \rho_m v^2$, whatever came before: with a time t left until the
drop it has $v = 1/(\rho_m t)$. Heads enter the map as $v^3$, to which those already learned respond.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import xarray as xr
from jax.flatten_util import ravel_pytree
from jaxtyping import Bool, Float

from stepwell.analysis import passage_time
from stepwell.dynamics import Ensemble, Record, descend, flow
from stepwell.experiments import Experiment
from stepwell.figures import InvalidInput
from stepwell.models import AbstractAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory

_LABELS = {
    "dim": "dimension D",
    "context": "context length N",
    "heads": "heads H",
    "rank": "rank R",
    "eigenvalues": "eigenvalues of the covariance",
    "initial": "initial weights",
}
_OF_A_COMMAND = ("dim", "context", "heads", "rank", "eigenvalues", "initial", "rate", "steps", "sequences")


def described(settings: Any, **more: Any) -> dict[str, Any]:
    """What the report shows of settings: what `more` says, then every field, sizes by their name in the paper."""
    shown = {**more, **dataclasses.asdict(settings)}
    return {_LABELS.get(name, name): value for name, value in shown.items()}


def published_settings(shown: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Of a figure whose settings, as shown, are the paper's: those that a published command has, and `more`."""
    names = [_LABELS.get(name, name) for name in _OF_A_COMMAND]
    return {**{name: shown[name] for name in names if name in shown}, **more}


class Run(NamedTuple):
    """An experiment with one seed, and the objects that it describes."""

    experiment: Experiment
    task: Any
    model: Any
    objective: Any


def runs_of(experiment: Experiment, seeds: Iterable[int]) -> list[Run]:
    """What is trained at each seed."""
    members = [experiment.replace(seed=seed) for seed in seeds]
    return [Run(member, *member.build()) for member in members]


def train_together(runs: Sequence[Run], **options: Any) -> xr.Dataset:
    """Gradient descent of all as one program. `options` are those of `descend`, beside the rate and the steps."""
    training = runs[0].experiment.training
    rule = {} if "optimizer" in options else {"rate": training.rate}
    trajectory = descend(
        Ensemble.of([run.model for run in runs]),
        Ensemble.of([run.objective for run in runs]),
        steps=training.steps,
        progress=False,
        configuration={"experiment": runs[0].experiment.to_dict()},
        **rule,
        **options,
    )
    return trajectory.assign_coords(run=[run.experiment.seed for run in runs])


def masked_descent(moving: Any, rate: float) -> optax.GradientTransformation:
    """Plain descent of the weights at which `moving`, a model of zeros and ones, is one; the others stay."""
    mask, _ = ravel_pytree(moving)

    def masked(gradient: Any, _: Any) -> Any:
        return gradient * mask

    return optax.chain(optax.stateless(masked), optax.sgd(rate))


EIGENVALUES = (0.4, 0.3, 0.2, 0.1)
DIM = len(EIGENVALUES)
HEADS = 4


def initial_models(seeds: Sequence[int], init: float) -> list[SeparateAttention]:
    """The initial weights of each seed: the same draw at every size `init`."""
    return [SeparateAttention.random(dim=DIM, heads=HEADS, scale=init, key=jax.random.key(1 + seed)) for seed in seeds]


def schedules(task: InContextRegression, models: list[SeparateAttention]) -> theory.Schedules:
    """The schedule of drops of each run, from its initial weights alone."""
    made = theory.drop_schedule(task, Ensemble.of(models))
    for reason in filter(None, made.reasons):
        raise InvalidInput(reason)
    return made


def flow_at(models: Any, objective: Any, times: Float[np.ndarray, " time"], **options: Any) -> xr.Dataset:
    """Gradient flow of one model, or of several as one program, recorded at these times."""
    models = Ensemble.of(list(models)) if isinstance(models, Sequence) else models
    return flow(models, objective, until=float(times[-1]), record=Record(points=times), progress=False, **options)


POINTS = 2000


def flow_losses(
    models: Sequence[AbstractAttention],
    task: InContextRegression,
    until: float,
    *,
    extra_times: Float[np.ndarray, " more"],
    **options: Any,
) -> xr.Dataset:
    """`loss` of gradient flow on infinitely many sequences from each model, also at `extra_times`."""
    times = np.unique(np.concatenate([spread_times(until), extra_times]))
    return flow_at(models, Population(task), times, **options)[["loss"]]


def spread_times(until: float) -> Float[np.ndarray, " time"]:
    """`POINTS` times, evenly over time and over its logarithm by halves."""
    even = np.linspace(0.0, until, POINTS // 2, endpoint=False)
    return np.sort(np.concatenate([even, np.geomspace(1e-5 * until, until, POINTS // 2)]))


def waits(runs: xr.Dataset, high: float, low: float, part: float = 0.1) -> Float[np.ndarray, " run"]:
    """t/τ until each loss has made this part of its fall from one level to another; nan if it never does."""
    level = high - part * (high - low)
    return np.array([passage_time(runs["time"].values, loss, level) for loss in runs["loss"].values])


def slope(x: Float[np.ndarray, " point"], y: Float[np.ndarray, " point"]) -> float:
    """Of the straight line through the points, by least squares."""
    return float(np.polyfit(x, y, 1)[0])


@dataclass(frozen=True)
class ExpectedPlateaus:
    """Of each run and plateau m = 0, …, D.

    - `middle`: the time halfway between the drops on either side, in units of τ.
    - `size`: that of the head which makes the next drop, at that time; 0 on the last plateau.
    - `lasting`: whether the plateau is so long that what has yet to settle has shrunk from 1 to the initial weight w
      by its middle.
    """

    middle: Float[np.ndarray, "run plateau"]
    size: Float[np.ndarray, "run plateau"]
    lasting: Bool[np.ndarray, "run plateau"]


def expected_plateaus(
    task: InContextRegression, drops: Float[np.ndarray, "run drop"], *, init: float, heads: int
) -> ExpectedPlateaus:
    """Between the times `drops`; the last plateau is followed for as long as everything before it took."""
    edges = np.append(np.pad(drops, ((0, 0), (1, 0))), 2 * drops[:, -1:], axis=1)
    wait = np.diff(edges, axis=1)
    rates = np.append(theory.escape_rates(task), np.inf)
    return ExpectedPlateaus(
        edges[:, :-1] + wait / 2, 2 / (rates * wait), settling_rate(task, heads=heads) * wait / 2 >= -np.log(init)
    )


def settling_rate(task: InContextRegression, *, heads: int) -> float:
    """The slowest rate at which weights settle on a plateau of the path: half the least positive eigenvalue of the
    Hessian."""
    path = [theory.fixed_point_landscape(task, range(m), heads=heads) for m in range(1, task.dim + 1)]
    return min(float(point.eigenvalues[point.eigenvalues > point.tolerance][0]) for point in path) / 2
