"""Controls of the page, derived from the declarations of kinds: one for each field of a chosen kind.

What is written here by hand is how they are presented: what is folded away, what is left out, and how much work a page
may ask for. Nothing here imports JAX.
"""

import dataclasses
import functools
import types
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from stepwell.experiments import SEED, DeclaredField, find_kind

Shape = Literal["choice", "integer", "number", "integers", "numbers", "text"]


class Hint(NamedTuple):
    """How the page presents a field, where that does not follow from its declaration."""

    most: float | None = None  # the largest value that the page computes
    count: int = 0  # values of a list, at the most
    default: str = ""  # what the page begins with, instead of the declared default
    more: bool = False  # whether it is folded away
    hidden: bool = False
    glossary: str = ""  # the word of docs/glossary.md that explains it


HINTS: dict[str, Hint] = {
    "task.dim": Hint(most=8),
    "task.eigenvalues": Hint(count=8),
    "task.task_eigenvalues": Hint(count=8, glossary="Task vector"),
    "task.context": Hint(most=1000, count=4, glossary="Context length N"),
    "task.outputs": Hint(most=8, more=True),
    "task.directions": Hint(more=True),
    "task.centered": Hint(more=True),
    "task.whitened": Hint(more=True),
    "task.dims": Hint(most=60, count=6, glossary="Task vector"),
    "task.strengths": Hint(count=6),
    "model.kind": Hint(glossary="Merged, separate"),
    "model.heads": Hint(most=8),
    "model.rank": Hint(most=8, glossary="Pair"),
    "model.normalization": Hint(more=True),
    "model.scheme": Hint(more=True, glossary="Initialization scheme, initialization scale"),
    "model.scale": Hint(most=10.0, glossary="Initialization scheme, initialization scale"),
    "model.balanced": Hint(more=True),
    "objective.kind": Hint(glossary="Objective"),
    "objective.sequences": Hint(most=4000, default="500"),
    "objective.batch_size": Hint(most=1000),
    "training.kind": Hint(glossary="Flow, flow time t/τ"),
    "training.rate": Hint(default="0.2"),
    "training.steps": Hint(most=10_000),
    "training.schedule": Hint(more=True),
    "training.tolerance": Hint(more=True),
    "training.descent.until": Hint(hidden=True),  # steps say it, too
    "record.spacing": Hint(more=True),
    "seed": Hint(default="59"),  # four drops that are well apart
}
"""By dotted name, or by section, kind and field."""
RECORDED = {"flow": {"points": 128}, "descent": {"snapshots": 201}}
"""What the page keeps of a run, by the kind of training; of other kinds what they keep by default. Losses of a descent
are kept at every step: drops are measured on them."""
_RECORD_FIELDS = ("spacing",)  # what can be set of the section `record`


@dataclasses.dataclass(frozen=True)
class Control:
    """One control of the page.

    - `name`: the dotted name, as the address has it; `label`: beside the control.
    - `shape`: a choice of `choices`, one number, several (up to `count` of them), or a text. One number may also be
      one of the `choices`, or several where `count` says so.
    - `default`: as a text; empty where it follows from other values, and where there is none.
    - `slider`: from where to where a slider goes, logarithmic if `log` says so; None without one.
    - `most`: the largest value that the page computes, or None.
    - `when`: other fields of the same kind, with the values, as texts, at which this one has an effect.
    - `more`: whether it is folded away.
    """

    name: str
    label: str
    shape: Shape
    default: str
    help: str
    unit: str = ""
    slider: tuple[float, float] | None = None
    log: bool = False
    choices: tuple[str, ...] = ()
    most: float | None = None
    count: int = 0
    when: tuple[tuple[str, tuple[str, ...]], ...] = ()
    more: bool = False
    glossary: str = ""


class Preset(NamedTuple):
    """An experiment to begin with, as the words of an address."""

    title: str
    words: dict[str, str]


PRESETS: dict[str, Preset] = {
    "linear": Preset("Linear attention", {}),
    "softmax": Preset("Softmax attention", {"task.kind": "multitask", "model.scale": "0.004", "seed": "9"}),
}
"""By the figures that they show."""


def hint_of(section: Any, kind: str, field: str) -> Hint:
    """How a field of a kind is presented. A user's kind has the bounds and defaults that it declares, and no others."""
    if not find_kind(section, kind).is_own:
        return Hint()
    return HINTS.get(f"{section}.{kind}.{field}") or HINTS.get(f"{section}.{field}") or Hint()


def controls(section: str, kind: str) -> dict[str, Control]:
    """The controls of a kind by dotted name, in the order in which it declares its fields."""
    return _controls(section, kind, find_kind(section, kind).build)  # pyright: ignore[reportArgumentType]


@functools.lru_cache(maxsize=256)
def _controls(section: Any, kind: str, builder: Any) -> dict[str, Control]:
    made = {}
    for field in find_kind(section, kind).fields.values():
        hint = hint_of(section, kind, field.name)
        if not hint.hidden and (section != "record" or field.name in _RECORD_FIELDS):
            made[f"{section}.{field.name}"] = _control(f"{section}.{field.name}", field, hint)
    return made


def seed_control() -> Control:
    return _control("seed", SEED, HINTS["seed"])


def _control(name: str, field: DeclaredField, hint: Hint) -> Control:
    about, words = field.about, tuple(text_of(word) for word in field.choices)
    shape = _shape(field)
    if shape == "choice" and not words:
        words = ("true", "false")
    number = shape in ("integer", "number", "integers", "numbers")
    label = field.name.replace("_", " ").capitalize() + (f" {about.symbol}" if about.symbol else "")
    return Control(
        name=name,
        label=label,
        shape=shape,
        default=hint.default or text_of(field.default),
        help=f"{about.help[:1].upper()}{about.help[1:]}.",
        unit=about.unit,
        slider=_slider(field, hint, whole=shape in ("integer", "integers")) if number else None,
        log=about.log,
        choices=words,
        most=hint.most,
        count=(hint.count or 8) if field.is_list else 0,
        when=tuple((other, tuple(map(text_of, values))) for other, values in about.when.items()),
        more=hint.more,
        glossary=hint.glossary,
    )


def _shape(field: DeclaredField) -> Shape:
    """What a value is: of a union, the number rather than the word, and the single number rather than several."""
    shapes: dict[Any, Shape] = {bool: "choice", int: "integer", float: "number", str: "text"}
    if field.scalar is not None:
        return shapes[field.scalar]
    parts = get_args(field.kind) if get_origin(field.kind) in (Union, types.UnionType) else (field.kind,)
    single = [part for part in parts if part in (int, float)]
    several = [get_args(part)[0] for part in parts if get_origin(part) is tuple]
    if single:
        return shapes[single[0]]
    if not several:
        return "choice"
    return "integers" if several[0] is int else "numbers" if several[0] is float else "text"


def _slider(field: DeclaredField, hint: Hint, *, whole: bool) -> tuple[float, float] | None:
    about = field.about
    least = about.above if about.least is None else about.least
    if about.slider is not None:
        low, high = about.slider
    elif field.name == "seed":
        low, high = 0, 60  # larger ones are typed
    elif least is not None and about.most is not None and about.most - least <= 1e6:
        low, high = least, about.most
    else:
        return None
    high = high if hint.most is None else min(high, hint.most)
    return (int(low), int(high)) if whole else (float(low), float(high))


def text_of(value: Any) -> str:
    """A value as the address has it: as short as reads back the same; nothing for None and for an empty list."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ",".join(map(text_of, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0").replace("e-0", "e-").replace("e+", "e")
    return str(value)
