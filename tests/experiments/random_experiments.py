"""Random experiments of every kind, small enough that one trains in well under a second.

Shapes are drawn from a few, so that compiled programs are shared; numbers are free.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell._util.text import canonical_text
from stepwell.experiments import DeclaredField, Experiment, Field, find_kind, kinds, note_of
from stepwell.experiments._kind import SectionName

NUMBERS = st.floats(0.05, 2.0).map(lambda value: float(f"{value:.4g}"))


def _sometimes(draw: Any, made: dict[str, Any], **values: st.SearchStrategy) -> None:
    """Give each of these values half of the time."""
    for name, strategy in values.items():
        if draw(st.booleans()):
            made[name] = draw(strategy)


def _perhaps(draw: Any, made: dict[str, Any], field: DeclaredField) -> None:
    """Give a field a value half of the time, where some are known that fit."""
    if (values := _values(field)) is not None:
        _sometimes(draw, made, **{field.name: values})


@st.composite
def tasks(draw: Any, kind: str, drawn: bool, finite: bool) -> dict[str, Any]:
    """The section of a task; where sequences are drawn, their length is a shape. Fields that no kind of the package has
    are drawn as their declarations say."""
    made: dict[str, Any] = {"kind": kind}
    if kind == "multitask":
        made["dims"] = draw(st.sampled_from([[2, 3], [3]]))
        made["context"] = 8 if drawn else draw(st.integers(8, 30))
        _sometimes(draw, made, strengths=st.lists(NUMBERS, min_size=len(made["dims"]), max_size=len(made["dims"])))
        _sometimes(draw, made, noise=NUMBERS)
        return made
    if kind == "overlapping":
        made |= {"dims": [2, 2], "first": draw(st.sampled_from([[1, 2], [2, 1]])), "context": 8}
        lists = {name: st.lists(NUMBERS, min_size=n, max_size=n) for name, n in (("strengths", 2), ("eigenvalues", 3))}
        _sometimes(draw, made, **lists, noise=NUMBERS, target_noise=st.just(True))
        return made
    fields = find_kind("task", kind).fields
    if "spectrum" in fields:
        named = draw(st.sampled_from(["published", "white", "power", "spiked", "eigenvalues"]))
        if named == "eigenvalues":
            made["eigenvalues"] = draw(st.lists(NUMBERS, min_size=2, max_size=2))
        else:
            made |= {"spectrum": named, "dim": 2}
        if named == "power":
            _sometimes(draw, made, exponent=NUMBERS)
        if named == "spiked":
            _sometimes(draw, made, ratio=st.floats(1.0, 10.0))
    if "context" in fields:
        several = [st.just([5, 9])] if fields["context"].is_list else []
        made["context"] = draw(st.one_of(st.just(9) if drawn else st.integers(4, 40), *several))
    exact = st.booleans() if finite else st.just(False)
    weights = st.lists(st.one_of(st.just(0.0), NUMBERS), min_size=2, max_size=2).filter(any)
    known = {
        "directions": st.sampled_from(["random", "axes"]),
        "centered": exact,
        "in_context": st.floats(0.0, 1.0),
        "noise": NUMBERS,
        "task_eigenvalues": weights,
        "whitened": exact,
    }
    _sometimes(draw, made, **{name: values for name, values in known.items() if name in fields})
    left = set(fields) - set(made) - set(known) - {"outputs"}
    for name in sorted(left - set(_SPECTRUM) if "spectrum" in fields else left):
        _perhaps(draw, made, fields[name])
    return made


_SPECTRUM = ("eigenvalues", "spectrum", "dim", "exponent", "ratio", "spikes")
"""Fields that are drawn together where a task has all of them."""


@st.composite
def models(draw: Any, kind: str, softmax: bool) -> dict[str, Any]:
    """The section of a model."""
    fields = find_kind("model", kind).fields
    made: dict[str, Any] = {"kind": kind, "scale": draw(st.floats(0.01, 0.5))}
    made["units" if "units" in fields else "heads"] = 2
    if "activation" in fields:
        made["activation"] = "softmax" if softmax else "linear"
    for name in ("balanced", "normalization", "rank", *sorted(fields)):
        if name in fields and name not in made and not (softmax and name == "normalization"):
            _perhaps(draw, made, fields[name])
    return made


def _values(field: DeclaredField) -> st.SearchStrategy | None:
    """Values of a field within its bounds: of integers one, as they may be shapes, and of lists of numbers two entries.

    None for what only its default is known to fit: words, and what has an effect at some values of another field.
    """
    about = field.about
    if about.when or field.scalar is str:
        return None
    if field.choices:
        return st.sampled_from(field.choices)
    if field.scalar is bool:
        return st.booleans()
    if field.scalar is int:
        least = max(2, about.least or 2)
        return st.just(int(least if about.most is None else min(least, about.most)))
    numbers = st.floats(*_range(about), exclude_min=_range(about)[0] == about.above)
    if field.scalar is float:
        return numbers
    return st.lists(numbers, min_size=2, max_size=2) if field.kind == tuple[float, ...] else None


def _range(about: Field) -> tuple[float, float]:
    """From where to where a number is drawn: as the slider goes, or what the bounds leave of a usual range."""
    if about.slider:
        return about.slider
    least = about.least if about.above is None else about.above
    low, high = max(0.05, least or 0.0), min(2.0, 2.0 if about.most is None else about.most)
    if low < high:
        return low, high
    return (low, 2 * low) if about.most is None else (about.most / 2 if least is None else least, about.most)


class Kinds(NamedTuple):
    """The kinds of an experiment, and whether its attention is softmax."""

    task: str
    model: str
    softmax: bool
    objective: str
    training: str

    def __str__(self) -> str:
        return "-".join([self.task, self.model, *["softmax"] * self.softmax, self.objective, self.training])


_FLOWING = ("population", "moments", "spectral", "features", "examples")
"""Objectives that are trained by flow, too."""


def _ours(section: SectionName) -> list[str]:
    return [name for name, kind in kinds(section).items() if kind.build.__module__.startswith("stepwell.")]


def _combinations() -> Iterator[Kinds]:
    """All kinds of the package that fit together: those that an experiment takes."""
    for task, model in itertools.product(_ours("task"), _ours("model")):
        fixed = note_of(model, "activation", "linear") == "softmax"
        for softmax in (True, False) if "activation" in find_kind("model", model).fields else (fixed,):
            for objective, training in itertools.product(_ours("objective"), ("descent", "flow")):
                made = Kinds(task, model, softmax, objective, training)
                if (training == "descent" or objective in _FLOWING) and _fits(made):
                    yield made


def _fits(made: Kinds) -> bool:
    model: dict[str, Any] = {"kind": made.model}
    if "heads" in find_kind("model", made.model).fields:
        model["heads"] = 1
    if "activation" in find_kind("model", made.model).fields:
        model["activation"] = "softmax" if made.softmax else "linear"
    training = {"kind": made.training} | ({"until": 1.0} if made.training == "flow" else {})
    try:
        Experiment(task=made.task, model=model, objective=made.objective, training=training)
    except InvalidInput:
        return False
    return True


COMBINATIONS = tuple(_combinations())


@st.composite
def descriptions(draw: Any, chosen: Kinds | None = None) -> dict[str, Any]:
    """What `Experiment(**…)` takes, of these kinds or of any that fit together.

    The experiment is made by the test: Hypothesis minds that the checks of types draw random numbers.
    """
    kinds: Kinds = draw(st.sampled_from(COMBINATIONS)) if chosen is None else chosen
    drawn = kinds.objective in ("sampled", "online", "reduced", "exact")
    task = draw(tasks(kinds.task, drawn, kinds.objective in ("moments", "sampled")))
    model = draw(models(kinds.model, kinds.softmax))
    objective: dict[str, Any] = {"kind": kinds.objective}
    if kinds.objective == "exact":
        model["heads"] = 1
    if kinds.objective in ("moments", "sampled", "reduced"):
        objective["sequences"] = draw(st.integers(32, 48)) if kinds.objective == "moments" else 32
    if kinds.objective == "online":
        objective["batch_size"] = 8
    training: dict[str, Any] = {"kind": kinds.training}
    record: dict[str, Any] = {}
    if kinds.training == "flow":
        training["until"] = draw(st.floats(0.5, 8.0))
        record["points"] = draw(st.sampled_from([5, 9]))
        _sometimes(draw, record, spacing=st.sampled_from(["steps", "linear", "log"]), snapshots=st.just(3))
    else:
        stable = 1e-3 if model.get("normalization", "1/N") == "none" else 1.0  # its gradient grows as the square of N
        training |= {"rate": stable * draw(st.floats(1e-3, 2e-2)), "steps": 12}
        rule = draw(st.sampled_from([{}, {}, {"optimizer": "adam:b1=0.8"}, {"schedule": "cosine"}]))
        training |= rule  # each is a program of its own
        _sometimes(draw, record, points=st.sampled_from([4, 7]), spacing=st.sampled_from(["linear", "log"]))
        record["snapshots"] = draw(st.sampled_from([2, 3]))
    made = {"task": task, "model": model, "objective": objective, "training": training, "record": record}
    return {**made, "seed": draw(st.integers(0, 2**32 - 1))}


def kinds_of(experiment: Experiment) -> str:
    """The kinds of an experiment in one line."""
    sections = (experiment.task, experiment.model, experiment.objective, experiment.training)
    return " × ".join(section.kind for section in sections)


def text_of(experiment: Experiment) -> str:
    """An experiment as one line that it can be made of again."""
    return canonical_text(experiment.canonical())
