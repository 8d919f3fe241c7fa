"""The state of the page: an experiment within the bounds of what a page computes, as the address has it.

The words of an address are fields by their dotted names, `model.heads=3`. Nothing here imports JAX.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from stepwell._util.errors import InvalidInput
from stepwell._util.text import nearest, shown
from stepwell.experiments import SECTIONS, SEED, Experiment, find_kind, kinds, registrations

from ._controls import HINTS, RECORDED, controls, hint_of, seed_control, text_of

Mode = Literal["explore", "stored"]  # experiments that are run here, and what was computed before
Problems = dict[str, str]  # messages, by the control that caused each
Words = Mapping[str, str]

PREFIXES = ("", "b.", "c.", "d.")  # of the words of up to four configurations in one address
_PAGE_WORDS = ("t", "axis", "tour", "picked")  # words of the address that only the page reads
STORED = ("run", "figure")  # what can be chosen among what was computed before
_NUMBERS = 2_000_000  # numbers in all sequences that are trained on, at the most
_CHOSEN = SECTIONS[:-1]  # the sections of which a kind is chosen


@dataclass(frozen=True)
class State:
    """What the page is set to: the words that were given, as far as they are allowed, and the experiment that they
    describe, which is None in the mode "stored".
    """

    mode: Mode
    words: Words
    experiment: Experiment | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", MappingProxyType(dict(self.words)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> Any:
        return self.mode, tuple(sorted(self.words.items())) if self.experiment is None else self.experiment.name

    @property
    def run(self) -> Experiment:
        if self.experiment is None:
            raise InvalidInput("a stored run is exported by `stepwell runs export`")
        return self.experiment

    @classmethod
    def read(cls, words: Mapping[str, str], *, first: str | None = None) -> "tuple[State, Problems]":
        """The state that an address describes, and messages by name for values that are not allowed and left out; with
        them those that do not go together with `first`, the word that was changed last."""
        problems: Problems = {}
        mode = words.get("mode", "explore")
        if mode not in ("explore", "stored"):
            problems["mode"] = f"mode is {shown(mode)}; it must be stored, or be left out"
        own = {str(name): text for name, text in words.items() if name != "mode" and text != ""}
        given = _readable(own, problems, stored=mode == "stored")
        if mode == "stored":
            return cls("stored", given), problems
        try:
            return cls("explore", given, _experiment(given)), problems
        except InvalidInput:
            accepted, experiment, refused = _accepted(given, first)
        problems |= {name: text for name, text in refused.items() if first is None or name == first}
        return cls("explore", accepted, experiment), problems

    @classmethod
    def of(cls, experiment: Experiment) -> "State":
        """The state in which the page shows an experiment, but for what is recorded, or why it cannot."""
        wanted, problems = _without_record(experiment), {}
        for given in (True, False):
            state, problems = cls.read(_words_of(experiment, given=given))
            if not problems and _without_record(state.run) == wanted:
                return state
        reason = "; ".join(problems.values()) or "it lies beyond the bounds of the page"
        raise InvalidInput(f"the page cannot show this experiment: {reason}. Take stepwell train")

    def query(self) -> dict[str, str]:
        """The words of an address that make this state, without defaults; `State.read` reads them back exactly."""
        if self.experiment is None:
            return {"mode": "stored", **self.words}
        made = {}
        for name, text in self.words.items():
            value = text if name.endswith(".kind") else text_of(_value(self.experiment, name, text))
            if value != _default(self.experiment, name):
                made[name] = value
        return made

    def values(self) -> dict[str, str]:
        """The text of every control of the chosen kinds, kinds and seed among them, defaults filled in."""
        experiment = self.run
        made = {f"{section}.kind": getattr(experiment, section).kind for section in _CHOSEN}
        for section in SECTIONS:
            chosen = getattr(experiment, section)
            for name in controls(section, chosen.kind):
                made[name] = text_of(chosen[name.partition(".")[2]])
        return made | {"seed": str(experiment.seed)}

    def kinds(self) -> dict[str, list[str]]:
        """The kinds of each section that go together with those of the sections before."""
        experiment = self.run
        activation = experiment.model.get("activation")
        chosen = {section: getattr(experiment, section).kind for section in _CHOSEN}
        fitting = _fitting(registrations(), chosen["task"], chosen["model"], chosen["objective"], activation)
        return {
            section: [*of, *([] if chosen[section] in of else [chosen[section]])] for section, of in fitting.items()
        }

    @property
    def long(self) -> bool:
        """Whether the run may take longer than a moment: all but those on a loss in closed form."""
        return self.experiment is not None and self.experiment.objective.kind not in ("population", "spectral")


def read_all(words: Mapping[str, str], *, first: str | None = None) -> tuple[list[State], list[Problems]]:
    """Up to four configurations of one address, and for each its messages by control.

    The words of the second to the fourth begin with `b.`, `c.`, `d.`, `b.=` at the least; what they do not say is as in
    the first, as far as it goes together with what they say.
    """
    words = {name: text for name, text in words.items() if name not in _PAGE_WORDS}
    own = {name: text for name, text in words.items() if not name.startswith(PREFIXES[1:])}
    state, problems = State.read(own, first=first if first in own else None)
    states, all_problems = [state], [problems]
    for prefix in PREFIXES[1:]:
        further = {name.removeprefix(prefix): text for name, text in words.items() if name.startswith(prefix)}
        if not further:
            continue
        further.pop("", None)
        basis = state.query() if further.get("mode", state.mode) == state.mode else {}
        changed = None if first is None or not first.startswith(prefix) else first.removeprefix(prefix)
        # Its own words come first: of those of the first configuration, what does not fit is left out.
        made, problems = State.read({**further, **{n: t for n, t in basis.items() if n not in further}}, first=changed)
        states.append(made)
        all_problems.append({name: message for name, message in problems.items() if name in further})
    return states, all_problems


def _without_record(experiment: Experiment) -> dict[str, Any]:
    return {name: value for name, value in experiment.canonical().items() if not name.startswith("record.")}


def _words_of(experiment: Experiment, *, given: bool) -> dict[str, str]:
    """The words of an experiment: the whole canonical form, or what was `given` and what the page has defaults for."""
    words = {"seed": str(experiment.seed)}
    for section in SECTIONS if given else _CHOSEN:
        chosen = getattr(experiment, section)
        values = chosen.canonical
        if given:
            fields = [name.partition(".")[2] for name in controls(section, chosen.kind)]
            own = [field for field in fields if section != "record" and hint_of(section, chosen.kind, field).default]
            values = {field: chosen[field] for field in fields if field in chosen.given or field in own}
        words |= {f"{section}.{field}": text_of(value) for field, value in values.items()}
        words |= {f"{section}.kind": chosen.kind} if section in _CHOSEN else {}
    return words


def _readable(words: Words, problems: Problems, *, stored: bool) -> dict[str, str]:
    """Words that name a field of some kind; or the run and the figure that are named."""
    made, known = {}, STORED if stored else _names()
    for name, text in words.items():
        if name not in known:
            section = name in _CHOSEN and not stored
            near = f"did you mean {name}.kind?" if section else nearest(name, sorted(known))
            problems[name] = f"there is no control {shown(name)}: {near}"
        else:
            made[name] = text
    return made


def _names() -> set[str]:
    fields = {name for one in SECTIONS for kind in kinds(one, installed=True) for name in controls(one, kind)}
    return {"seed", *(f"{section}.kind" for section in _CHOSEN), *fields}


def _accepted(words: Words, first: str | None) -> tuple[dict[str, str], Experiment, Problems]:
    """As many of the words as go together, the one that was changed before all others, then kinds; and why not others.
    A word may need a later one, as `spectrum=custom` needs eigenvalues: what is refused is tried again."""
    order = sorted(words, key=lambda name: (name != first, not name.endswith(".kind")))
    accepted: dict[str, str] = {}
    experiment, refused = _experiment({}), {}
    waiting, before = order, len(words) + 1
    while len(waiting) < before:
        before, refused = len(waiting), {}
        for name in waiting:
            try:
                experiment = _experiment({**accepted, name: words[name]})
                accepted[name] = words[name]
            except InvalidInput as error:
                refused[name] = str(error)
        waiting = list(refused)
    return {name: text for name, text in words.items() if name in accepted}, experiment, refused


def _experiment(words: Words) -> Experiment:
    given: dict[str, Any] = {section: {} for section in SECTIONS}
    for name, text in words.items():
        section, _, field = name.partition(".")
        if field == "kind":
            given[section]["kind"] = text
    chosen = _chosen_kinds(
        registrations(), *(given[section].get("kind") for section in _CHOSEN), words.get("model.activation")
    )
    for section, kind in zip(SECTIONS, (*chosen, "record"), strict=True):
        for field in find_kind(section, kind).fields:
            default = hint_of(section, kind, field).default
            if default and f"{section}.{field}" not in words:
                given[section][field] = _converted(section, kind, field, default)
        for name, text in words.items():
            if name.startswith(f"{section}.") and not name.endswith(".kind"):
                field = name.removeprefix(f"{section}.")
                given[section][field] = _converted(section, kind, field, text)
    given["record"] = {**RECORDED.get(chosen[-1], {}), **given["record"]}
    seed: int = SEED.convert(words.get("seed", HINTS["seed"].default), name="seed", text=True)
    made = Experiment(**given, seed=seed)
    most = HINTS["model.heads"].most
    heads = made.model.get("heads") if find_kind("model", made.model.kind).is_own else None
    if heads is not None and most is not None and heads > most:  # by default, in many dimensions
        made = made.replace(model={"heads": most})
    _check_size(made)
    return made


@functools.lru_cache(maxsize=512)
def _chosen_kinds(
    registered: int, task: str | None, model: str | None, objective: str | None, training: str | None, activation: Any
) -> tuple[str, ...]:
    given: dict[str, Any] = {"task": task, "model": model, "objective": objective, "training": training}
    if activation is not None:
        given["model"] = {"kind": model, "activation": activation}
    made = Experiment(**given)
    return tuple(getattr(made, section).kind for section in _CHOSEN)


@functools.lru_cache(maxsize=512)
def _fitting(registered: int, task: str, model: str, objective: str, activation: str | None) -> dict[str, list[str]]:
    active = {"kind": model, **({} if activation is None else {"activation": activation})}
    before: dict[str, Any] = {"task": task, "model": active, "objective": objective}
    made: dict[str, list[str]] = {}
    for place, section in enumerate(_CHOSEN):
        made[section] = []
        for name in kinds(section, installed=True):
            try:
                Experiment(**{other: before[other] for other in _CHOSEN[:place]}, **{section: name})
                made[section].append(name)
            except InvalidInput:
                continue
    return made


def _converted(section: Any, kind: str, field: str, text: str) -> Any:
    """A text as a value of a field, within the bounds of the page."""
    name = f"{section}.{field}"
    declared = find_kind(section, kind).fields.get(field)
    if declared is None:
        having = [other for other, found in kinds(section).items() if field in found.fields]
        raise InvalidInput(f"the {section} kind {kind} has no field {field}; the kinds with it are {', '.join(having)}")
    if name not in controls(section, kind):
        raise InvalidInput(f"{name} cannot be set on this page")
    hint = hint_of(section, kind, field)
    words = [part.strip() for part in text.split(",")] if declared.is_list else text.strip()
    try:
        value = declared.convert(words, name=name, text=True)
    except InvalidInput as error:
        if hint.most is None:
            raise
        allowed = declared.allowed().partition(" to ")[0]
        raise InvalidInput(f"{name} is {shown(text)}; it must be {allowed} to {hint.most:g}") from error
    control = controls(section, kind)[name]
    several = value if isinstance(value, tuple) else (value,)
    if len(several) > max(control.count, 1):
        raise InvalidInput(f"{name} has {len(several)} values; on this page it may have up to {control.count}")
    if hint.most is not None and any(not isinstance(one, str) and one > hint.most for one in several):
        least = declared.about.least
        low = "" if least is None else f" from {least:g}"
        raise InvalidInput(f"{name} is {shown(text)}; on this page it must be{low} to {hint.most:g}")
    return value


def _check_size(experiment: Experiment) -> None:
    """Refuse more sequences than a request may hold in memory."""
    if not all(find_kind(section, getattr(experiment, section).kind).is_own for section in _CHOSEN[:3]):
        return  # how long they are is not known here
    task, count = experiment.task, experiment.objective.get("sequences") or experiment.objective.get("batch_size")
    if count is None or experiment.objective.kind == "moments":
        return
    context = task.get("context", 1)
    longest = max(context) if isinstance(context, tuple) else context
    dims = task.get("dims")
    width = len(task.get("eigenvalues") or (1,)) + 1 if dims is None else len(dims) + experiment.model.get("heads", 1)
    most = _NUMBERS // ((longest + 1) * width)
    if count > most:
        raise InvalidInput(f"objective.sequences is {count}; with sequences of this length it must be at most {most}")


def _value(experiment: Experiment, name: str, text: str) -> Any:
    if name == "seed":
        return experiment.seed
    section, _, field = name.partition(".")
    return _converted(section, getattr(experiment, section).kind, field, text)


def _default(experiment: Experiment, name: str) -> str:
    """The text of the default of a field, or of the kind that follows from the sections before."""
    if name == "seed":
        return seed_control().default
    section, _, field = name.partition(".")
    if field != "kind":
        return controls(section, getattr(experiment, section).kind)[name].default
    place = _CHOSEN.index(section)  # pyright: ignore[reportArgumentType]
    before = [getattr(experiment, one).kind if number < place else None for number, one in enumerate(_CHOSEN)]
    return _chosen_kinds(registrations(), *before, experiment.model.get("activation") if place > 1 else None)[place]
