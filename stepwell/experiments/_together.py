"""Tasks, initial models and losses of many runs, built at once where the notes of their kinds say how."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell.dynamics import Ensemble
from stepwell.tasks import random_rotation

from ._experiment import Experiment
from ._keys import Keys
from ._kind import SECTIONS, find_kind, note_of
from ._memory import sizes


class Together(NamedTuple):
    """What `build_together` returns."""

    models: Ensemble
    losses: Any
    """One objective for all runs, or an `Ensemble` with one for each."""
    tasks: list[Any]
    """Different tasks, in the basis of their eigenvectors."""
    rotations: Float[np.ndarray, "run dim dim"] | None
    """What the task of each run is rotated by; None for runs whose tasks are as they are."""


def rotated_field(experiment: Experiment) -> str | None:
    """The field that says whether the eigenvectors of the task are the axes; None unless many runs like this one are
    built at once, as the kinds of its task, model and objective say."""
    model, (dim, _, outputs) = experiment.model, sizes(experiment)
    field, divisors = find_kind("task", experiment.task.kind).notes.get("rotates"), note_of(model.kind, "divisors")
    rotates = find_kind("objective", experiment.objective.kind).notes.get("rotates", False)
    return field if rotates and divisors is not None and divisors(model, dim, outputs) is not None else None


def build_seeds(experiment: Experiment, field: str, seeds: Sequence[int]) -> Together:
    """Build the runs of an experiment from several seeds, whose `rotated_field` is `field`."""
    aligned = np.full(len(seeds), experiment.task[field] == "axes")
    axes = Experiment.from_canonical(experiment.canonical() | {f"task.{field}": "axes"})
    return build_together(
        [axes],
        np.zeros(len(seeds), int),
        ends=(experiment.replace(seed=seeds[0]), experiment.replace(seed=seeds[-1])),
        seeds=np.array(seeds),
        scales=np.full(len(seeds), float(experiment.model.scale)),
        aligned=aligned,
    )


@checked
def build_together(
    alike: Sequence[Experiment],
    task_of: Int[np.ndarray, " run"],
    *,
    ends: tuple[Experiment, Experiment],
    seeds: Int[np.ndarray, " run"],
    scales: Float[np.ndarray, " run"],
    aligned: Bool[np.ndarray, " run"],
) -> Together:
    """Return the initial models and the losses of many runs whose kinds say how they are built at once.

    Weights are those of the plain builders bit for bit; losses are those of the task in the basis of its eigenvectors,
    rotated for each run, which is the same to rounding. Of users' kinds the first and the last run are compared with
    what the plain builders make.

    **Arguments:**

    - `alike`: an experiment of each different task and objective, in the basis of its eigenvectors.
    - `task_of`: which of them each run has.
    - `ends`: the experiments of the first and the last run.
    - `seeds`, `scales`: the seed and the initialization scale of each run.
    - `aligned`: whether the eigenvectors of a run's task are the axes; else they are drawn from its seed.

    **Returns:** models, losses, tasks and rotations.

    **Example:**

    >>> first, last = (sw.Experiment(task={"dim": 2}, seed=seed) for seed in (0, 1))
    >>> made = sw.experiments.build_together(
    ...     [first.replace(task={"directions": "axes"})],
    ...     np.zeros(2, int),
    ...     ends=(first, last),
    ...     seeds=np.arange(2),
    ...     scales=np.full(2, 0.01),
    ...     aligned=np.zeros(2, bool),
    ... )
    >>> bool((made.models.member(1).key == last.build().model.key).all())
    True
    """
    if seeds.size == 0 or not (0 <= task_of.min() and task_of.max() < len(alike)):
        raise InvalidInput(
            f"there are {seeds.size} runs of {len(alike)} experiments in alike; give at least one run, and as task_of "
            "places in alike, counted from 0"
        )
    for experiment in ends:
        if rotated_field(experiment) is None:
            raise InvalidInput(
                f"the kinds {experiment.task.kind}, {experiment.model.kind} and {experiment.objective.kind} do not say "
                "how many runs are built at once; build them one by one"
            )
    tasks = [one.build_task() for one in alike]
    objectives = [one.build_objective(task, None) for one, task in zip(alike, tasks, strict=True)]
    rotations = _rotations(tasks[0].dim, seeds, aligned)
    losses: Any = objectives[0]
    if len(objectives) > 1 or rotations is not None:
        losses = _rotated(objectives, task_of, rotations)
    made = Together(_drawn(ends[0], tasks[0], seeds, scales), losses, tasks, rotations)
    if not all(find_kind(section, getattr(ends[0], section).kind).is_own for section in SECTIONS[:3]):
        for row, experiment in ((0, ends[0]), (seeds.size - 1, ends[1])):
            _check_plain(made, row, experiment)
    return made


def _check_plain(made: Together, row: int, experiment: Experiment) -> None:
    """Refuse kinds that are not what they say: built together, a run is another than by itself."""
    _, model, objective = experiment.build()
    loss = made.losses.member(row) if isinstance(made.losses, Ensemble) else made.losses
    same = eqx.tree_equal(made.models.member(row), model), eqx.tree_equal(loss, objective, rtol=1e-9, atol=1e-12)
    for section, note, agrees in zip(("model", "objective"), ("divisors", "rotates"), same, strict=True):
        if not agrees:
            kind = getattr(experiment, section).kind
            raise InvalidInput(
                f"many runs of the {section} kind {kind}, built at once, have another {section} than by the plain "
                f"builder, at seed {experiment.seed}; mend its note {note} or that of the task {experiment.task.kind}"
            )


def _drawn(experiment: Experiment, task: Any, seeds: np.ndarray, scales: np.ndarray) -> Ensemble:
    """Random initial models, as the plain builders draw them: standard deviation times normal numbers, weight by
    weight, and zero in the label blocks."""
    template = experiment.replace(model={"scale": 1.0}).build_model(task)
    parts = [np.asarray(part) for part in jax.tree.leaves(eqx.filter(template, eqx.is_array))]
    divisors = note_of(experiment.model.kind, "divisors")(experiment.model, task.dim, task.outputs)
    deviations = scales[:, None] / np.array(divisors)
    drawn, seed_of = np.unique(seeds, return_inverse=True)
    part_sizes = [part.size for part in parts]
    normals = np.asarray(_normals(sum(part_sizes))(Keys(drawn).initialization))
    spread = np.repeat(np.arange(len(parts)), part_sizes)
    weights = deviations[:, spread] * normals[seed_of]
    weights[:, np.concatenate([np.ravel(part) for part in parts]) == 0.0] = 0.0
    return Ensemble.like(template, weights)


@functools.cache
def _normals(count: int) -> Callable[[Any], Any]:
    """Normal numbers of many keys; number i of a key does not depend on how many are drawn."""
    return jax.jit(jax.vmap(lambda key: jax.random.normal(key, (count,))))


def _rotations(dim: int, seeds: np.ndarray, aligned: np.ndarray) -> np.ndarray | None:
    """The eigenvectors of the covariance of each run, as the plain builder draws them."""
    if aligned.all():
        return None
    drawn, places = np.unique(seeds, return_inverse=True)
    made = random_rotation(dim, key=Keys(drawn).task)[places]
    made[aligned] = np.eye(dim)
    return made


def _rotated(losses: list[Any], task_of: np.ndarray, rotations: np.ndarray | None) -> Ensemble:
    """The loss of each run: that of its task in the basis of its eigenvectors, rotated."""
    stacked = Ensemble.of(losses).stacked

    def of_runs(part: Any) -> Any:
        each = np.asarray(part)[task_of]
        if each.ndim == 3 and rotations is not None:
            each = np.einsum("rij,rjk,rlk->ril", rotations, each, rotations, optimize=True)
        return jax.device_put(each)

    return Ensemble(jax.tree.map(of_runs, stacked), task_of.size)
