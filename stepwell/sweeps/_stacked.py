"""Initial models and losses of many runs: stacked where a kind offers that, else one by one, grouped by structure."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from stepwell._util import paper_time
from stepwell._util.errors import InvalidInput
from stepwell._util.text import canonical_text
from stepwell.dynamics import Ensemble
from stepwell.experiments import AbstractTraining, Descent, Experiment, Flow, Keys, Online, build_together, find_kind
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractQuadraticObjective

from ._plan import Block, is_stacked, rotated_field


@dataclasses.dataclass(frozen=True)
class Built:
    """Runs of one structure, which one program computes."""

    experiment: Experiment  # the first of them
    training: AbstractTraining
    models: Any  # an `Ensemble`; of a single run its model
    losses: Any  # one objective for all runs, or an `Ensemble` with one for each
    rates: Float[np.ndarray, " run"] | None  # of plain gradient descent
    factors: Float[np.ndarray, " run"]  # the paper's time for one unit of the flow time of each run
    unit: str
    tasks: list[Any]  # different tasks; of stacked runs in the basis of their eigenvectors
    task_of: np.ndarray  # which of them a run has
    rotations: Float[np.ndarray, "run dim dim"] | None
    """What the task of each run is rotated by; None for runs whose tasks are as they are."""
    members: tuple[Experiment, ...] = ()  # each run, if they were built one by one

    @property
    def size(self) -> int:
        return self.factors.size

    @property
    def template(self) -> Any:
        return self.models.member(0) if isinstance(self.models, Ensemble) else self.models

    def weights(self) -> dict[str, np.ndarray]:
        """All initial weights, with the run as their first axis."""
        stacked = isinstance(self.models, Ensemble)
        weights = self.models.stacked.weights() if stacked else self.models.weights()
        return {name: np.asarray(value) if stacked else np.asarray(value)[None] for name, value in weights.items()}

    def step_times(self) -> Float[np.ndarray, " run"] | None:
        """The paper's time of one step of each run, if it is known."""
        return None if self.rates is None else self.factors * paper_time.flow_time(1.0, self.rates)

    def times(self, steps: np.ndarray) -> np.ndarray | None:
        """The paper's time after so many steps, (run, step), or (step,) if it is the same for all; if it is known."""
        each = self.step_times()
        if each is None:
            return None
        return each[0] * steps if (each == each[0]).all() else each[:, None] * steps

    def take(self, rows: np.ndarray) -> "Built":
        def of(thing: Any) -> Any:
            if not isinstance(thing, Ensemble):
                return thing
            parts = jax.tree.map(lambda leaf: leaf[rows] if eqx.is_array(leaf) else leaf, thing.stacked)
            return Ensemble(parts, rows.size)

        return dataclasses.replace(
            self,
            models=of(self.models),
            losses=of(self.losses),
            rates=None if self.rates is None else self.rates[rows],
            factors=self.factors[rows],
            task_of=self.task_of[rows],
            rotations=None if self.rotations is None else self.rotations[rows],
            members=tuple(self.members[row] for row in rows) if self.members else (),
        )


def build(work: Block) -> Iterator[tuple[np.ndarray, Built]]:
    """The runs of a piece of work in groups of one structure, each with its places."""
    if is_stacked(work.configuration()):
        yield np.arange(len(work)), build_stacked(work)
    else:
        yield from build_plainly([Experiment.from_canonical(work.configuration(row)) for row in range(len(work))])


def build_stacked(work: Block) -> Built:
    """Runs whose kinds say how their tasks, models and objectives are built together.

    Weights are those of the plain builders bit for bit; losses are those of the task in the basis of its eigenvectors,
    rotated for each run, which is the same to rounding.
    """
    alike, task_of = _eigenbasis(work)
    first, last = (Experiment.from_canonical(work.configuration(row)) for row in (0, len(work) - 1))
    aligned = np.array([word == "axes" for word in work.column(str(rotated_field(work.configuration())))])
    seeds, scales = np.array(work.column("seed")), np.array(work.column("model.scale"), np.float64)
    made = build_together(alike, task_of, ends=(first, last), seeds=seeds, scales=scales, aligned=aligned)
    training = first.build_training()
    plain = isinstance(training, Descent) and training.plain
    rates = np.array(work.column("training.rate"), np.float64) if plain else None
    times = [one.time_scale for one in alike]
    factors = np.array([time.factor for time in times])[task_of]
    return Built(
        first, training, made.models, made.losses, rates, factors, times[0].unit, made.tasks, task_of, made.rotations
    )


def _eigenbasis(work: Block) -> tuple[list[Experiment], np.ndarray]:
    """A run of each different task and objective, in the basis of its eigenvectors, and which of them each run has."""
    rotated = str(rotated_field(work.configuration()))
    names = [name for name in work.fields if name.startswith(("task.", "objective.")) and name != rotated]
    columns = [[tuple(v) if isinstance(v, list) else v for v in work.column(name)] for name in names]
    rows = list(zip(*columns, strict=True)) if names else [()] * len(work)
    firsts = {row: place for place, row in reversed([*enumerate(rows)])}
    number = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    alike = [Experiment.from_canonical(work.configuration(firsts[row]) | {rotated: "axes"}) for row in number]
    return alike, np.array([number[row] for row in rows])


def build_plainly(experiments: list[Experiment]) -> Iterator[tuple[np.ndarray, Built]]:
    """Runs of any kinds, each built by the builders of its kinds, in groups whose arrays can be stacked.

    A group has one structure, the same static fields, arrays of the same shapes, one training but for rates of plain
    descent, and one time scale. What cannot be stacked or compared is a group of its own.
    """
    task_keys = [_key(experiment, "task") for experiment in experiments]
    firsts = dict(zip(reversed(task_keys), reversed(experiments), strict=True))
    made = {key: experiment.build_task() for key, experiment in firsts.items()}
    tasks = [made[key] for key in task_keys]
    models = _models(experiments, tasks)
    objectives: dict[Any, Any] = {}
    built: list[tuple[Any, Any, Any]] = []
    groups: dict[Any, list[int]] = {}
    for row, (experiment, task, model) in enumerate(zip(experiments, tasks, models, strict=True)):
        wanted = "model" in find_kind("objective", experiment.objective.kind).wants
        model_key = (_key(experiment, "model"), experiment.seed) if wanted else experiment.model.get("normalization")
        key = task_keys[row], _key(experiment, "objective"), model_key
        if key not in objectives:
            objectives[key] = experiment.build_objective(task, model)
        built.append((task, model, objectives[key]))
        groups.setdefault(_structure(experiment, model, objectives[key], row), []).append(row)
    for rows in groups.values():
        yield np.array(rows), _grouped([experiments[row] for row in rows], [built[row] for row in rows])


def _models(experiments: list[Experiment], tasks: list[Any]) -> list[Any]:
    """The initial model of each run: by the vectorized builder of its kind where there is one, else one by one."""
    models: list[Any] = [None] * len(experiments)
    groups: dict[Any, list[int]] = {}
    for row, experiment in enumerate(experiments):
        kind = find_kind("model", experiment.model.kind)
        same = None
        if "many" in kind.notes:
            fixed = {
                name: experiment.model[name] for name in kind.fields if not isinstance(experiment.model[name], float)
            }
            same = kind.name, id(tasks[row]), repr(fixed)
        groups.setdefault(same, []).append(row)
    for same, rows in groups.items():
        members, task = [experiments[row] for row in rows], tasks[rows[0]]
        if same is not None and len(rows) > 1:
            each = _vectorized(members, task)
        else:
            each = (experiments[row].build_model(tasks[row]) for row in rows)
        for row, model in zip(rows, each, strict=True):
            models[row] = model
    return models


def _vectorized(members: list[Experiment], task: Any) -> Iterator[Any]:
    """Models by the vectorized builder of their kind, the first and the last compared with the plain one."""
    kind, first, keys = find_kind("model", members[0].model.kind), members[0].model, Keys([m.seed for m in members])
    context = {"task": task, "key": keys.initialization, "keys": keys}
    fields = {
        name: np.array([one.model[name] for one in members]) if isinstance(first[name], float) else first[name]
        for name in kind.fields
    }
    stacked = kind.notes["many"](*(context[name] for name in kind.wants), **fields)
    arrays, rest = eqx.partition(stacked, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    leaves = [np.asarray(leaf) for leaf in leaves]
    plain = {row: members[row].build_model(task) for row in {0, len(members) - 1}}
    for row in range(len(members)):
        own = [jax.device_put(leaf[row]) if leaf.shape[:1] == (len(members),) else leaf for leaf in leaves]
        model = eqx.combine(jax.tree.unflatten(structure, own), rest)
        if row in plain and not bool(eqx.tree_equal(model, plain[row])):
            raise InvalidInput(
                f"the note 'many' of the model kind {kind.name} makes another model than its builder, at seed "
                f"{members[row].seed}; weights must be the same bit for bit, with the runs as their first axis: "
                "correct the note, or leave it out"
            )
        yield model


def _key(experiment: Experiment, section: Any) -> Any:
    """What an object of this section is made of, beside those before it."""
    values = getattr(experiment, section)
    wants = find_kind(section, values.kind).wants
    seed = experiment.seed if "key" in wants or "keys" in wants else None
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.canonical.items()}
    return values.kind, canonical_text(plain), seed


def _structure(experiment: Experiment, model: Any, objective: Any, row: int) -> Any:
    """What runs must have in common to be trained as one."""
    training = experiment.build_training()
    together = isinstance(training, Descent) and not isinstance(objective, Online)
    if isinstance(training, Flow) and training.until != "converged":
        # The solver for many runs of other losses takes several times as long as one run after the other.
        together = isinstance(objective, AbstractQuadraticObjective)
    if not together:
        return row
    rule: Any = (training.steps, "plain") if isinstance(training, Descent) and training.plain else training
    scale = experiment.time_scale
    key = rule, scale.unit, scale.factor if isinstance(training, Flow) else None, _form(model), _form(objective)
    try:
        hash(key)
    except TypeError:
        return row
    return key


def _form(thing: Any) -> Any:
    """A module without the values of its arrays: structure, static fields, shapes and types."""
    stacks = eqx.is_array if isinstance(thing, AbstractModel) else eqx.is_array_like
    arrays, rest = eqx.partition(thing, stacks)
    shapes = tuple((jnp.shape(leaf), str(jnp.result_type(leaf))) for leaf in jax.tree.leaves(arrays))
    return jax.tree.structure(thing), shapes, tuple(jax.tree.leaves(rest))


def _grouped(members: list[Experiment], built: list[tuple[Any, Any, Any]]) -> Built:
    first, training = members[0], members[0].build_training()
    plain = isinstance(training, Descent) and training.plain
    tasks, models, objectives = zip(*built, strict=True)
    single = len(members) == 1
    alike = all(objective is objectives[0] for objective in objectives)
    distinct = list({id(task): task for task in tasks}.values())
    number = {id(task): place for place, task in enumerate(distinct)}
    scales = [member.time_scale for member in members]
    return Built(
        first,
        training,
        models[0] if single else Ensemble.of(list(models)),
        objectives[0] if alike else Ensemble.of(list(objectives)),
        np.array([member.training.rate for member in members]) if plain else None,
        np.array([scale.factor for scale in scales]),
        scales[0].unit,
        distinct,
        np.array([number[id(task)] for task in tasks]),
        None,
        tuple(members),
    )
