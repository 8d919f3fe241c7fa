"""A run described by settings: one frozen value, from which everything that runs, predicts or stores takes it."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from stepwell._util.errors import InvalidInput
from stepwell._util.text import name_of, nearest, shown
from stepwell._util.versions import NUMERICS

from ._field import DeclaredField, Field
from ._kind import SECTIONS, find_kind, note_of, sections_with
from ._section import Section, as_mapping, replaced, section_of_given

if TYPE_CHECKING:
    import xarray as xr

    from stepwell.dynamics import Checkpoint, Record
    from stepwell.models import AbstractModel
    from stepwell.tasks import AbstractTask

    from ._prediction import Prediction
    from ._training import AbstractTraining, TimeScale

SEED = DeclaredField.of(
    "seed", Annotated[int, Field("seed of task, data and initial weights", least=0, most=2**32 - 1, free=True)], 0
)
"""The declaration of the seed, which belongs to no section."""


class Built(NamedTuple):
    """The task, initial model and objective of an experiment."""

    task: "AbstractTask"
    model: "AbstractModel"
    objective: Any


class Experiment:
    """A run, described once: task, model, objective, training, what is recorded, and a seed.

    A section is a kind by its name, or a dictionary of its fields with `kind`. What is left out has its default, which
    may depend on the sections before it. Every value that is given is used or refused.

    **Arguments:**

    - `task`: "regression" (the default), "mixture", "multitask", "overlapping", "teacher", "points", or a kind of
      your own.
    - `model`: "separate", "merged" or another that `kinds("model")` lists, or a kind of your own.
    - `objective`: how the loss is computed: "population", "moments", "sampled", "online", "spectral", "reduced",
      "exact", "features", "examples", or a kind of your own.
    - `training`: "flow", "descent", or a kind of your own.
    - `record`: what is kept, and when.
    - `seed`: the keys of data, task and initial weights follow from it.

    **Example:**

    >>> experiment = sw.Experiment(task={"dim": 2, "context": 31}, model={"scale": 0.1}, seed=1)
    >>> experiment.model.kind, experiment.model.heads, experiment.training.kind
    ('separate', 2, 'flow')
    >>> run = experiment.run(progress=False)
    >>> run.attrs["outcome"]
    'converged'
    >>> experiment.replace(model={"head": 3})
    Traceback (most recent call last):
        ...
    stepwell._util.errors.InvalidInput: the model kind separate has no field 'head'; did you mean heads?
    """

    task: Section
    model: Section
    objective: Section
    training: Section
    record: Section
    seed: int

    def __init__(
        self,
        task: Any = None,
        model: Any = None,
        objective: Any = None,
        training: Any = None,
        record: Any = None,
        seed: Any = None,
    ):
        sections: dict[str, Any] = {"seed": SEED.convert(0 if seed is None else seed)}
        for name, given in zip(SECTIONS, (task, model, objective, training, record), strict=True):
            sections[name] = section_of_given(name, given, sections)
        vars(self).update(sections)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an experiment does not change; make another: experiment.replace({name}=…)")

    # ---- what it is ----

    @property
    def sections(self) -> dict[str, Any]:
        """All sections by name, and the seed: what `fill` and `canonical` of a kind read."""
        return {name: getattr(self, name) for name in (*SECTIONS, "seed")}

    @property
    def normalization(self) -> Any:
        """What attention is divided by: "1/N" where the model does not say."""
        return self.model.get("normalization") or "1/N"

    @property
    def theory(self) -> Any:
        """The equations that the model follows, "separate", "merged" or "units"; None if they are not known."""
        return note_of(self.model.kind, "theory")

    @property
    def time_scale(self) -> "TimeScale":
        """How times of its runs become the paper's t/τ: a factor, and the unit as files have it."""
        from ._training import TimeScale

        return TimeScale.of(self.task, self.model)

    def canonical(self) -> dict[str, Any]:
        """Return the canonical form: every value that matters, by dotted name, in one way of saying it.

        **Returns:** plain values by names such as "model.heads"; what has no effect is not among them.
        """
        made: dict[str, Any] = {}
        for name in SECTIONS:
            section: Section = getattr(self, name)
            if name != "record":
                made[f"{name}.kind"] = section.kind
            made |= {f"{name}.{field}": value for field, value in _plain(section.canonical).items()}
        return {**made, "seed": self.seed, "numerics": NUMERICS}

    @functools.cached_property
    def name(self) -> str:
        """The name of the run: 32 hexadecimal digits of a hash of its canonical form."""
        return name_of(self.canonical())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experiment) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> Any:
        return functools.partial(Experiment, **self.given()), ()

    def given(self) -> dict[str, Any]:
        """Return what was given, as nested dictionaries: what `Experiment(**…)` takes."""
        made = {name: _plain(getattr(self, name).given) for name in SECTIONS}
        return {**{name: given for name, given in made.items() if given}, "seed": self.seed}

    def to_dict(self) -> dict[str, Any]:
        """Return the whole experiment as nested dictionaries of plain values, defaults filled in.

        **Returns:** what `Experiment(**…)`, a TOML file or JSON has. Of what is recorded there is what was given.
        """
        sections: dict[str, Section] = {name: getattr(self, name) for name in SECTIONS if name != "record"}
        made = {name: {"kind": one.kind, **_plain(one.canonical)} for name, one in sections.items()}
        record = {"record": _plain(self.record.given)} if self.record.given else {}
        return {**made, **record, "seed": self.seed}

    def command(self, verb: str = "train") -> list[str]:
        """Return the words of the command that describes the experiment.

        **Arguments:**

        - `verb`: "train" or "predict".

        **Returns:** the words, beginning with "stepwell". Values that are the default are left out. `InvalidInput` is
        raised for a list of strings of which one begins with a hyphen: a command cannot say it.

        **Example:**

        >>> sw.Experiment(model={"kind": "merged", "heads": 8}, seed=3).command()
        ['stepwell', 'train', '--model', 'merged', '--heads', '8', '--seed', '3']
        """
        from ._flags import command_of

        return command_of(self, verb)

    def to_toml(self) -> str:
        """Return the experiment as the text of a TOML file."""
        from stepwell._util.toml import as_toml

        return as_toml(self.to_dict())

    @classmethod
    def from_canonical(cls, canonical: Mapping[str, Any]) -> "Experiment":
        """Return the experiment that has this canonical form.

        **Arguments:**

        - `canonical`: values by dotted name, as `canonical` returns them and a store keeps them.

        **Returns:** the experiment.
        """
        _check_table(canonical, "the canonical form")
        version = canonical.get("numerics")
        if version != NUMERICS:
            raise InvalidInput(f"the run is of version {version} of the numerics; this program has {NUMERICS}")
        nested: dict[str, Any] = {}
        for name, value in canonical.items():
            section, dot, field = name.partition(".")
            if dot:
                nested.setdefault(section, {})[field] = value
            elif name != "numerics":
                nested[name] = value
        return cls.from_dict(nested, "the canonical form")

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], source: str = "the experiment") -> "Experiment":
        """Return the experiment that nested dictionaries describe.

        **Arguments:**

        - `document`: tables `task`, `model`, `objective`, `training` and `record`, and `seed`.
        - `source`: what messages call it.

        **Returns:** the experiment.
        """
        _check_table(document, source)
        if "sweep" in document:
            raise InvalidInput(f"{source} has the table sweep, so that it is a study; run it with `stepwell sweep`")
        for name in document:
            if name not in (*SECTIONS, "seed"):
                advice = nearest(str(name), [*SECTIONS, "seed"])
                if having := sections_with(name):
                    advice = f"it is a field of the section {having[0]}: write it in the table [{having[0]}]"
                raise InvalidInput(f"{source} has the unknown key {shown(name)}; {advice}")
        return cls(**document)

    @classmethod
    def of(cls, trajectory: "xr.Dataset") -> "Experiment":
        """Return the experiment that a trajectory is of.

        **Arguments:**

        - `trajectory`: what `run` returned, or what `stepwell.load` read.

        **Returns:** the experiment; of several seeds that of the first run. `InvalidInput` is raised where the
        trajectory was made by hand, of objects.

        **Example:**

        >>> run = sw.Experiment(task={"dim": 2}, training={"until": 1.0}).run(progress=False)
        >>> sw.Experiment.of(run).task.eigenvalues
        (0.6666666666666666, 0.3333333333333333)
        """
        from ._run import experiment_and_seeds

        return experiment_and_seeds(trajectory)[0]

    @classmethod
    def read(cls, path: str | os.PathLike) -> "Experiment":
        """Return the experiment in a TOML or JSON file.

        **Arguments:**

        - `path`: the file, as `to_toml` writes it.

        **Returns:** the experiment.
        """
        from stepwell._util.toml import document_in

        return cls.from_dict(document_in(path), str(path))

    def replace(self, **changes: Any) -> "Experiment":
        """Return an experiment with some values changed.

        A new kind keeps the given fields that it has, too. What was not given gets its default anew: with other
        eigenvalues there may be another number of heads.

        **Arguments:**

        - `**changes`: by section, a kind or a dictionary of fields; and `seed`. A field that is None gets its default.

        **Returns:** the new experiment.

        **Example:**

        >>> sw.Experiment().replace(model={"heads": 8}, seed=3).model.heads
        8
        """
        made: dict[str, Any] = {"seed": changes.pop("seed", self.seed)}
        for name in changes:
            if name not in SECTIONS:
                raise InvalidInput(f"there is no section {shown(name)}; {nearest(name, [*SECTIONS, 'seed'])}")
        for name in SECTIONS:
            section: Section = getattr(self, name)
            made[name] = replaced(name, section, as_mapping(name, changes.get(name)))
        return Experiment(**made)

    # ---- what it does ----

    def build(self) -> Built:
        """Return its task, initial model and objective.

        **Returns:** the three, as the room that each belongs to has them.

        **Example:**

        >>> task, model, objective = sw.Experiment(task={"dim": 2}).build()
        >>> type(task).__name__, model.key.shape, type(objective).__name__
        ('InContextRegression', (2, 1, 3), 'Population')
        """
        task = self.build_task()
        model = self.build_model(task)
        return Built(task, model, self.build_objective(task, model))

    def build_task(self) -> Any:
        """Return its task alone."""
        return self._built("task", "task")

    def build_model(self, task: Any) -> Any:
        """Return its model at the initial weights, for its task."""
        return self._built("model", "initialization", task=task)

    def build_objective(self, task: Any, model: Any) -> Any:
        """Return its training loss, of its task and model."""
        return self._built("objective", "train", task=task, model=model, normalization=self.normalization)

    def build_training(self) -> "AbstractTraining":
        """Return its training: how the weights move.

        **Returns:** a `Flow`, a `Descent`, or what the builder of a kind of your own returns.

        **Example:**

        >>> sw.Experiment(training={"kind": "descent", "rate": 0.1, "steps": 5}).build_training()
        Descent(rate=0.1, steps=5, optimizer='sgd', schedule='constant')
        """
        return self._built("training", "")

    def build_record(self, observe: dict[str, Callable[[Any], Any]] | None = None) -> "Record":
        """Return what is kept of its run, with further curves to observe."""
        from stepwell.dynamics import Record

        kept = self.record
        return Record(points=kept.points, spacing=kept.spacing, snapshots=kept.snapshots, observe=observe or None)

    def _built(self, section: Any, key: str, **context: Any) -> Any:
        """What a builder makes of its fields and of what it asks for; a key is made only if it is asked for."""
        from ._keys import Keys

        values, keys = getattr(self, section), Keys(self.seed)
        kind = find_kind(section, values.kind)
        context["keys"] = keys
        wanted = [getattr(keys, key) if name == "key" else context[name] for name in kind.wants]
        return kind.build(*wanted, **{name: values[name] for name in kind.fields})

    def remarks(self) -> list[str]:
        """Return a line for each value that is allowed but doubtful.

        **Returns:** the lines; none if there is nothing to remark.

        **Example:**

        >>> sw.Experiment(task={"dim": 2}, model={"rank": 3}).remarks()
        ['rank 3 is above the dimension 2: rank 2 can do the same']
        """
        from ._run import remarks

        return remarks(self)

    def check(self, seeds: Sequence[int] | None = None) -> None:
        """Raise what `run` would raise before its first step; build all that it needs, and train nothing.

        **Arguments:**

        - `seeds`: as for `run`.

        **Returns:** nothing; the experiment can be run.

        **Example:**

        >>> sw.Experiment(training={"kind": "descent", "optimizer": "adam:b3=0.9"}).check()
        Traceback (most recent call last):
            ...
        stepwell._util.errors.InvalidInput: optimizer 'adam:b3=0.9' has no parameter b3; it has learning_rate, b1, ...
        """
        from ._run import check

        check(self, seeds)

    def check_memory(self, seeds: int = 1) -> None:
        """Raise `WouldNotFit`, with one line, if a run of so many seeds as one program would not fit in memory.

        The weights of a kind of model that does not say how many it has are not counted.
        """
        from ._memory import check_memory

        check_memory(self, seeds)

    def run(
        self, *, seeds: Sequence[int] | None = None, progress: bool = True, checkpoint: Any = None, throw: bool = True
    ) -> "xr.Dataset":
        """Train, and return the trajectory.

        **Arguments:**

        - `seeds`: several seeds, trained as one program; each has its own task, data and initial weights. By default
          the seed of the experiment.
        - `progress`: whether to show a progress bar.
        - `checkpoint`: the path of a file where the state of the run is saved now and then, or a `Checkpoint`; as in
          `descend`. The same call continues a run that was killed.
        - `throw`: whether a run that does not come to its end raises `RunFailed`, or `Interrupted`, which have its
          trajectory so far. If not, that is returned, and its attribute `outcome` says how it ended.

        **Returns:** the trajectory. Its attribute `experiment` has the experiment, and `rerun` needs nothing else; with
        `seeds` its coordinate `run` has them. Times are the paper's t/τ, with steps beside where there are steps.

        **Example:**

        >>> runs = sw.Experiment(task={"dim": 2}, training={"until": 10.0}).run(seeds=range(3), progress=False)
        >>> runs["run"].values.tolist()
        [0, 1, 2]
        """
        from ._run import train

        return train(self, seeds=seeds, progress=progress, checkpoint=checkpoint, throw=throw)

    def resume(
        self,
        trajectory: "xr.Dataset",
        *,
        seeds: Sequence[int] | None = None,
        progress: bool = True,
        checkpoint: "Checkpoint | None" = None,
        throw: bool = True,
    ) -> "xr.Dataset":
        """Train from where a stored run ended, and return the whole trajectory.

        A run that is continued by its checkpoint is bit for bit the run that was not interrupted, and so are the losses
        of a descent that is continued from its trajectory.

        **Arguments:**

        - `trajectory`: a run of the experiment that was interrupted, or of the same with fewer steps.
        - `seeds`, `progress`, `checkpoint`, `throw`: as for `run`. If the checkpoint says so, a run that was killed or
          interrupted continues from there.

        **Returns:** the trajectory, as `run` returns it.

        **Example:**

        >>> short = sw.Experiment(task={"dim": 2}, training={"kind": "descent", "steps": 20})
        >>> long = short.replace(training={"steps": 50})
        >>> made = long.resume(short.run(progress=False), progress=False)
        >>> bool((made["loss"] == long.run(progress=False)["loss"]).all())
        True
        """
        from ._resume import resume

        return resume(self, trajectory, seeds=seeds, progress=progress, checkpoint=checkpoint, throw=throw)

    def predict(self, built: Built | None = None) -> "Prediction":
        """Return what theory says of the experiment, from its own initial weights, before anything is trained.

        **Arguments:**

        - `built`: its objects, as `build` returned them, if they are at hand.

        **Returns:** the `Prediction`: levels, drops and limits; where there is none, the reason.

        **Example:**

        >>> prediction = sw.Experiment(task={"eigenvalues": [0.6, 0.4]}, model={"scale": 0.01}).predict()
        >>> [level.learned for level in prediction.levels]
        [0, 1, 2]
        """
        from ._prediction import Prediction

        return Prediction(self, built)

    def no_theory(self) -> str:
        """Return why no theory of linear attention or of networks of units describes a run, or an empty string."""
        from ._prediction import no_theory

        return no_theory(self)

    def no_comparison(self) -> str:
        """Return why the drops of a run are not compared with the theory; an empty string if they are."""
        from ._prediction import no_comparison

        return no_comparison(self)

    def __repr__(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name in SECTIONS if name != "record" or self.record.given]
        return f"Experiment({', '.join(parts)}, seed={self.seed})"

    def _repr_html_(self) -> str:
        from html import escape

        left, rows = "style='text-align:left'", []
        for name in SECTIONS:
            section: Section = getattr(self, name)
            kind = find_kind(name, section.kind)
            rows.append(f"<th colspan=3 {left}>{name}: {escape(section.kind)}</th>")
            for field, value in _plain(section.canonical).items():
                cells = field, _short(value), kind.fields[field].description() if field in kind.fields else ""
                rows.append("".join(f"<td {left}>{escape(cell)}</td>" for cell in cells))
        rows.append(f"<th {left}>seed</th><td>{self.seed}</td><td>{self.name[:8]}</td>")
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _check_table(given: Any, what: str) -> None:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{what} is {shown(given)}; it must be a table of values by name")


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not None, lists in place of tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value is not None
    }
