"""Initial models and losses of many runs: stacked where a kind offers that, else one by one, grouped by structure."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from stepwell._util import paper_time
from stepwell._util.errors import InvalidInput
from stepwell.dynamics import Ensemble
from stepwell.experiments import (
    AbstractTraining,
    Descent,
    Experiment,
    Flow,
    Online,
    build_model,
    build_objective,
    build_task,
    canonical_text,
    find_kind,
    keys_of,
    normalization_of,
    note_of,
    time_scale,
    training_of,
)
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractQuadraticObjective, Population
from stepwell.tasks import ContextLengths, InContextRegression, random_rotation

from ._plan import Work, is_stacked


@dataclasses.dataclass(frozen=True)
class Built:
    """Runs of one structure, which one program computes."""

    experiment: Experiment
    """The first of them."""
    training: AbstractTraining
    models: Any
    """An `Ensemble`; of a single run its model."""
    losses: Any
    """One objective for all runs, or an `Ensemble` with one for each."""
    rates: Float[np.ndarray, " run"] | None
    """Of plain gradient descent."""
    factors: Float[np.ndarray, " run"]
    """The paper's time for one unit of the flow time of each run."""
    unit: str
    tasks: list[Any]
    """Different tasks; of stacked runs in the basis of their eigenvectors."""
    task_of: np.ndarray
    """Which of them a run has."""
    rotations: Float[np.ndarray, "run dim dim"] | None
    """The eigenvectors of the task of each run, as columns; None where they are the axes, or not known."""
    members: tuple[Experiment, ...] = ()
    """Each run, if they were built one by one."""

    @property
    def size(self) -> int:
        return self.factors.size

    @property
    def template(self) -> Any:
        """A model of their class."""
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
        """Some of the runs."""

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


def build(work: Work) -> Iterator[tuple[np.ndarray, Built]]:
    """The runs of a piece of work in groups of one structure, each with its places."""
    if is_stacked(work.configuration(0)):
        yield np.arange(work.runs), build_stacked(work)
    else:
        yield from build_plainly([Experiment.from_canonical(work.configuration(row)) for row in range(work.runs)])


# Many at once.


def build_stacked(work: Work) -> Built:
    """One regression over infinitely many sequences with linear attention, all runs at once.

    Weights are those of the plain builders bit for bit; moments are those of the task in the basis of its eigenvectors,
    rotated for each run, which is the same to rounding.
    """
    experiment = Experiment.from_canonical(work.configuration(0))
    seeds = np.array(work.column("seed"))
    models = _drawn(experiment, seeds, np.array(work.column("model.scale"), np.float64))
    tasks, task_of = _eigenbasis_tasks(work)
    aligned = np.array([word == "axes" for word in work.column("task.directions")])
    rotations = _rotations(len(experiment.task.eigenvalues), seeds, aligned)
    objectives = [Population(task, normalization_of(experiment)) for task in tasks]
    losses: Any = objectives[0]
    if len(objectives) > 1 or rotations is not None:
        losses = _rotated(objectives, task_of, rotations)
    training = training_of(experiment)
    rates = np.array(work.column("training.rate"), np.float64) if _is_plain(training) else None
    contexts = [experiment.task.context if len(task.context.counts) > 1 else task.context.longest for task in tasks]
    scales = [time_scale({"context": context}, experiment.model) for context in contexts]
    factors = np.array([scale.factor for scale in scales])[task_of]
    return Built(experiment, training, models, losses, rates, factors, scales[0].unit, tasks, task_of, rotations)


def _is_plain(training: AbstractTraining) -> bool:
    return isinstance(training, Descent) and training.plain


def _drawn(experiment: Experiment, seeds: np.ndarray, scales: np.ndarray) -> Ensemble:
    """Random initial models, as the plain builders draw them: standard deviation times normal numbers, weight by
    weight, and zero in the label blocks."""
    unit = experiment.replace(model={"scale": 1.0})
    keys = keys_of(unit.seed)
    template = build_model(unit, build_task(unit, keys), keys)
    parts = [np.asarray(part) for part in jax.tree.leaves(eqx.filter(template, eqx.is_array))]
    divisors = note_of(experiment.model.kind, "divisors")
    dim, outputs = len(experiment.task.eigenvalues), experiment.task.outputs
    deviations = scales[:, None] / np.array(divisors(experiment.model, dim, outputs))
    drawn, seed_of = np.unique(seeds, return_inverse=True)
    sizes = [part.size for part in parts]
    normals = np.asarray(_normals(sum(sizes))(keys_of(drawn).initialization))
    spread = np.repeat(np.arange(len(parts)), sizes)
    weights = deviations[:, spread] * normals[seed_of]
    weights[:, np.concatenate([np.ravel(part) for part in parts]) == 0.0] = 0.0
    return Ensemble.like(template, weights)


@functools.cache
def _normals(count: int) -> Callable[[Any], Any]:
    """Normal numbers of many keys; number i of a key does not depend on how many are drawn."""
    return jax.jit(jax.vmap(lambda key: jax.random.normal(key, (count,))))


def _eigenbasis_tasks(work: Work) -> tuple[list[InContextRegression], np.ndarray]:
    """Different tasks, in the basis of their eigenvectors, and which of them each run has."""
    names = [name for name in work.fields if name.startswith("task.") and name != "task.directions"]
    columns = [[tuple(v) if isinstance(v, list) else v for v in work.fields[name]] for name in names]
    rows = list(zip(*columns, strict=True)) if names else [()] * work.runs
    number = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    places = np.array([number[row] for row in rows])
    firsts = [int(np.argmax(places == place)) for place in range(len(number))]
    made = []
    for given in map(work.configuration, firsts):
        omega = given.get("task.task_eigenvalues")
        made.append(
            InContextRegression(
                np.diag(given["task.eigenvalues"]),
                ContextLengths(given["task.context"]),
                task_covariance=None if omega is None else np.diag(omega),
                noise_variance=given["task.noise"],
                outputs=given["task.outputs"],
                centered=given["task.centered"],
                whitened=given["task.whitened"],
            )
        )
    return made, places


def _rotations(dim: int, seeds: np.ndarray, aligned: np.ndarray) -> np.ndarray | None:
    """The eigenvectors of the covariance of each run, as the plain builder draws them."""
    if aligned.all():
        return None
    drawn, places = np.unique(seeds, return_inverse=True)
    keys = np.asarray(jax.random.key_data(keys_of(drawn).task))
    made = np.stack([random_rotation(dim, key=jax.random.wrap_key_data(key)) for key in keys])[places]
    made[aligned] = np.eye(dim)
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


# One by one.


def build_plainly(experiments: list[Experiment]) -> Iterator[tuple[np.ndarray, Built]]:
    """Runs of any kinds, each built by the builders of its kinds, in groups whose arrays can be stacked.

    A group has one structure, the same static fields, arrays of the same shapes, one training but for rates of plain
    descent, and one time scale. What cannot be stacked or compared is a group of its own.
    """
    task_keys = [_key(experiment, "task") for experiment in experiments]
    made: dict[Any, Any] = {}
    for key, experiment in zip(task_keys, experiments, strict=True):
        if key not in made:
            made[key] = build_task(experiment, keys_of(experiment.seed))
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
            objectives[key] = build_objective(experiment, task, model, keys_of(experiment.seed))
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
            fixed = {name: experiment.model[name] for name in kind.fields if not _varies(experiment.model[name])}
            same = kind.name, id(tasks[row]), repr(fixed)
        groups.setdefault(same, []).append(row)
    for same, rows in groups.items():
        members, task = [experiments[row] for row in rows], tasks[rows[0]]
        if same is not None and len(rows) > 1:
            each = _vectorized(members, task)
        else:
            each = (build_model(experiments[row], tasks[row], keys_of(experiments[row].seed)) for row in rows)
        for row, model in zip(rows, each, strict=True):
            models[row] = model
    return models


def _varies(value: Any) -> bool:
    return isinstance(value, float)


def _vectorized(members: list[Experiment], task: Any) -> Iterator[Any]:
    """Models by the vectorized builder of their kind, the first and the last compared with the plain one."""
    kind, first, keys = find_kind("model", members[0].model.kind), members[0].model, keys_of([m.seed for m in members])
    context = {"task": task, "key": keys.initialization, "keys": keys}
    fields = {
        name: np.array([one.model[name] for one in members]) if _varies(first[name]) else first[name]
        for name in kind.fields
    }
    stacked = kind.notes["many"](*(context[name] for name in kind.wants), **fields)
    arrays, rest = eqx.partition(stacked, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    leaves = [np.asarray(leaf) for leaf in leaves]
    plain = {row: build_model(members[row], task, keys_of(members[row].seed)) for row in {0, len(members) - 1}}
    for row in range(len(members)):
        own = [jax.device_put(leaf[row]) if leaf.shape[:1] == (len(members),) else leaf for leaf in leaves]
        model = eqx.combine(jax.tree.unflatten(structure, own), rest)
        if row in plain and not bool(eqx.tree_equal(model, plain[row])):
            raise InvalidInput(
                f"the vectorized builder (many) of the model kind {kind.name} makes another model than the plain one, "
                f"at seed {members[row].seed}; weights must be the same bit for bit, with the runs as their first "
                "axis: mend it, or leave it out"
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
    training = training_of(experiment)
    together = isinstance(training, Descent) and not isinstance(objective, Online)
    if isinstance(training, Flow) and training.until != "converged":
        # The solver for many runs of other losses takes several times as long as one run after the other.
        together = isinstance(objective, AbstractQuadraticObjective)
    if not together:
        return row
    rule: Any = (training.steps, "plain") if isinstance(training, Descent) and training.plain else training
    scale = time_scale(experiment.task, experiment.model)
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
    first, training = members[0], training_of(members[0])
    tasks, models, objectives = zip(*built, strict=True)
    single = len(members) == 1
    alike = all(objective is objectives[0] for objective in objectives)
    distinct = list({id(task): task for task in tasks}.values())
    number = {id(task): place for place, task in enumerate(distinct)}
    scales = [time_scale(member.task, member.model) for member in members]
    return Built(
        first,
        training,
        models[0] if single else Ensemble.of(list(models)),
        objectives[0] if alike else Ensemble.of(list(objectives)),
        np.array([member.training.rate for member in members]) if _is_plain(training) else None,
        np.array([scale.factor for scale in scales]),
        scales[0].unit,
        distinct,
        np.array([number[id(task)] for task in tasks]),
        _own_rotations(members),
        tuple(members),
    )


def _own_rotations(members: list[Experiment]) -> np.ndarray | None:
    """The eigenvectors of the tasks, where those are of our own kind of regression."""
    if members[0].task.kind != "regression":
        return None
    seeds = np.array([member.seed for member in members])
    aligned = np.array([member.task.directions == "axes" for member in members])
    return _rotations(len(members[0].task.eigenvalues), seeds, aligned)
