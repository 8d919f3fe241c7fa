r"""Runs that several figures share: experiments at several seeds, gradient flow, waits and expected plateaus.

On plateau m a head in the race grows as $\tau\dot v = \rho_m v^2$, whatever came before: with a time t left until the
drop it has $v = 1/(\rho_m t)$. Heads enter the map as $v^3$, to which those already learned respond.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import scipy.special
import xarray as xr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float
from matplotlib.axes import Axes

from stepwell.analysis import passage_time
from stepwell.dynamics import Ensemble, Record, descend, flow
from stepwell.experiments import Experiment
from stepwell.figures import InvalidInput
from stepwell.models import AbstractAttention, MergedAttention, SeparateAttention
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
    dim = {"dim": len(shown["eigenvalues"])} if "eigenvalues" in shown else {}
    return {_LABELS.get(name, name): value for name, value in {**dim, **shown}.items()}


def published_settings(shown: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Of a figure whose settings, as shown, are the paper's: those that a published command has, and `more`."""
    names = [_LABELS.get(name, name) for name in _OF_A_COMMAND]
    return {**{name: shown[name] for name in names if name in shown}, **more}


def described_command(settings: Any, experiment: Experiment, **more: Any) -> dict[str, Any]:
    """The same of a figure whose runs are those of a published command."""
    initial = f"Gaussian, standard deviation {settings.init:g} without 1/N, label blocks zero"
    return described(settings, **more, initial=initial, command=" ".join(experiment.command()))


class Run(NamedTuple):
    """An experiment with one seed, and the objects that it describes."""

    experiment: Experiment
    task: Any
    model: Any
    objective: Any


def runs_of(experiment: Experiment, seeds: Iterable[int]) -> list[Run]:
    """What is trained at each seed."""
    return [Run(member, *member.build()) for member in (experiment.replace(seed=seed) for seed in seeds)]


def train_together(runs: Sequence[Run], **options: Any) -> xr.Dataset:
    """Gradient descent of all as one program. `options` are those of `descend`, beside the rate and the steps."""
    experiment = runs[0].experiment
    if "optimizer" not in options:
        options["rate"] = experiment.training.rate
    options |= {"steps": experiment.training.steps, "configuration": {"experiment": experiment.to_dict()}}
    models, objectives = (Ensemble.of([getattr(run, part) for run in runs]) for part in ("model", "objective"))
    trajectory = descend(models, objectives, progress=False, **options)
    return trajectory.assign_coords(run=[run.experiment.seed for run in runs])


def labeled(values: Any, kept: Any = True, **axes: Iterable[Any]) -> xr.DataArray:
    """Values in one row, each with what it belongs to, which a claim reports: "seed 203, drop 2".

    `axes` are what stands along each axis, the first one outermost. Values not `kept` are left out.
    """
    coordinates = [(name, list(each)) for name, each in axes.items()]
    named = xr.DataArray(np.asarray(values).reshape([len(each) for _, each in coordinates]), coordinates)
    return named.stack(place=list(axes))[np.broadcast_to(np.ravel(kept), named.size)]


def along(rows: Iterable[xr.Dataset], **axis: Iterable[Any]) -> xr.Dataset:
    """Data sets joined along a new axis, with what stands on it."""
    ((name, values),) = axis.items()
    joined: Any = xr.concat(list(rows), dim=xr.Variable(name, list(values)), combine_attrs="drop_conflicts")
    return joined


def held_descent(
    model: AbstractAttention, rate: float, rule: Callable[[float], optax.GradientTransformation] = optax.sgd
) -> optax.GradientTransformation:
    """Descent, plain or by a rule, of the weights that are not zero initially; those that are, the label blocks, stay
    there."""
    moving = ravel_pytree(model)[0] != 0
    held: Any = lambda gradient, _: gradient * moving  # noqa: E731
    return optax.chain(optax.stateless(held), rule(rate))


EIGENVALUES = (0.4, 0.3, 0.2, 0.1)
DIM = len(EIGENVALUES)
HEADS = 4


def initial_models(seeds: Sequence[int], init: float) -> list[SeparateAttention]:
    """The initial weights of each seed: the same draw at every size `init`."""
    return [SeparateAttention.random(dim=DIM, heads=HEADS, scale=init, key=jax.random.key(1 + seed)) for seed in seeds]


def weights_of(model: MergedAttention | SeparateAttention) -> list[np.ndarray]:
    """Those in the equations of the theory: (v, U) of every head, or (v, k, q)."""
    return [np.asarray(each) for each in model.theory_weights(model.weights()).values()]


def squared_errors(
    task: InContextRegression, maps: Iterable[Float[np.ndarray, "dim dim"]], sequences: int, *, key: Array
) -> Float[np.ndarray, "map sequence"]:
    r"""Of $\hat y = \beta^\top A x_q$ on sequences that nothing is trained on, for each map A."""
    batch, dim = task.sample(sequences, key=key), task.dim
    tokens, labels = np.asarray(batch.tokens), np.asarray(batch.labels)[:, -1, 0]
    beta = np.einsum("sn,snd->sd", tokens[:, :-1, dim], tokens[:, :-1, :dim]) / (tokens.shape[1] - 1)
    return np.array([(labels - np.einsum("sa,ab,sb->s", beta, each, tokens[:, -1, :dim])) ** 2 for each in maps])


def schedules(task: InContextRegression, models: list[SeparateAttention]) -> theory.Schedules:
    """The schedule of drops of each run, from its initial weights alone."""
    made = theory.drop_schedule(task, Ensemble.of(models), trials=0)
    for reason in filter(None, made.reasons):
        raise InvalidInput(reason)
    return made


def flow_at(models: Any, objective: Any, times: Float[np.ndarray, " time"], **options: Any) -> xr.Dataset:
    """Gradient flow of one model, or of several as one program, recorded at these times."""
    models = Ensemble.of(list(models)) if isinstance(models, Sequence) else models
    return flow(models, objective, until=float(times[-1]), record=Record(points=times), progress=False, **options)


POINTS = 2000


def spread_times(until: float) -> Float[np.ndarray, " time"]:
    """`POINTS` times, evenly over time and over its logarithm by halves."""
    even = np.linspace(0.0, until, POINTS // 2, endpoint=False)
    return np.sort(np.concatenate([even, np.geomspace(1e-5 * until, until, POINTS // 2)]))


def passages(
    times: Float[np.ndarray, " time"], losses: Float[np.ndarray, "run time"], levels: Iterable[float]
) -> Float[np.ndarray, "run level"]:
    """When each loss first comes down to each level; nan if it never does."""
    return np.array([[passage_time(times, loss, level) for level in levels] for loss in losses])


def name_level(axes: Axes, words: str, level: float, offset: tuple[float, float], **style: Any) -> None:
    """Words beside the right edge, at the height of a level; the offset is in points."""
    place: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    axes.annotate(words, (1.0, level), xytext=offset, fontsize=8.5, **place, **style)


def slope(x: Float[np.ndarray, " point"], y: Float[np.ndarray, " point"]) -> float:
    """Of the straight line through the points, by least squares; nan if there are no two, or one is no number."""
    return float(np.polyfit(x, y, 1)[0]) if np.unique(x).size > 1 and np.isfinite(x + y).all() else np.nan


def largest_of(count: int) -> float:
    """What the largest of so many sizes of Gaussians exceeds as rarely as one exceeds 3."""
    return float(np.sqrt(2) * scipy.special.erfcinv(0.0026998 / max(count, 1)))


class ExpectedPlateaus(NamedTuple):
    """Of each run and plateau m = 0, …, D.

    - `middle`: the time halfway between the drops on either side, in units of τ.
    - `size`: that of the head which makes the next drop, at that time; 0 on the last plateau.
    - `lasting`: whether by its middle what has yet to settle has shrunk from 1 to the initial weight w.
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
    # Weights settle on a plateau no slower than at half the least positive eigenvalue of the Hessian.
    path = [theory.fixed_point_landscape(task, range(m), heads=heads) for m in range(1, task.dim + 1)]
    settling = min(float(point.eigenvalues[point.eigenvalues > point.tolerance][0]) for point in path) / 2
    return ExpectedPlateaus(edges[:, :-1] + wait / 2, 2 / (rates * wait), settling * wait / 2 >= -np.log(init))
