"""Flags of the terminal, derived from the declarations of kinds.

Each field is a flag of its own name, `--heads`, where no other section or verb has one of this name, and always besides
`--model.heads`. The kinds themselves are `--task`, `--model`, `--objective` and `--training`.
"""

import argparse
import contextlib
from collections.abc import Iterable
from typing import Any

from stepwell._util.errors import InvalidInput
from stepwell._util.text import nearest, shown

from ._experiment import SEED, Experiment
from ._field import DeclaredField
from ._kind import SECTIONS, Kind, find_kind, kinds, sections_with
from ._section import convert, default_kind, replaced, section_of_given

_MOST_SEEDS = 10**6
OTHER_FLAGS = frozenset(
    "dry_run format fresh help json no_browser out overwrite port reproduction resume seed seeds show store theory "
    "with".split()
)
"""Flags that verbs have beside those of an experiment: a field of such a name has its long flag alone."""


def flag(name: str) -> str:
    """A field as a flag."""
    return f"--{name.replace('_', '-')}"


def full_name(name: str) -> str:
    """Return the dotted name of a field: "model.heads" for "heads".

    **Arguments:**

    - `name`: the short name, if one section has it alone; or the dotted name; "seed"; or a section, for its kind.

    **Returns:** the dotted name. `InvalidInput` is raised if there is no such field.

    **Example:**

    >>> from stepwell.experiments import full_name
    >>> full_name("heads"), full_name("task")
    ('model.heads', 'task.kind')
    """
    if not isinstance(name, str):
        raise InvalidInput(f"{shown(name)} is not the name of a field; it must be a string such as 'model.heads'")
    name = name.replace("-", "_")
    if name == "seed":
        return name
    if name in SECTIONS and name != "record":
        return f"{name}.kind"
    section, dot, field = name.partition(".")
    if not dot:
        having = sections_with(name)
        if len(having) > 1:
            listed = " or ".join(f"{one}.{name}" for one in having)
            raise InvalidInput(f"{name} is a field of {' and '.join(having)}; write {listed}")
        if not having:
            known = [field for one in SECTIONS for kind in kinds(one).values() for field in kind.fields]
            raise InvalidInput(f"there is no field {shown(name)}; {nearest(name, [*dict.fromkeys(known), 'seed'])}")
        return f"{having[0]}.{name}"
    if section not in SECTIONS:
        raise InvalidInput(f"there is no section {shown(section)}; {nearest(section, list(SECTIONS))}")
    for installed in (False, True):
        known = {"kind", *(field for kind in kinds(section, installed=installed).values() for field in kind.fields)}
        if field in known:
            return name
    raise InvalidInput(f"the section {section} has no field {shown(field)}; {nearest(field, sorted(known))}")


def add_experiment_flags(parser: argparse.ArgumentParser, *, seeds: bool = False) -> None:
    """Add the file and all flags of an experiment to a parser.

    **Arguments:**

    - `parser`: of the verb.
    - `seeds`: whether `--seeds` is declared, too.

    **Returns:** nothing; the parser has the flags.

    **Example:**

    >>> import argparse
    >>> from stepwell.experiments import add_experiment_flags, experiment_from
    >>> parser = argparse.ArgumentParser()
    >>> add_experiment_flags(parser)
    >>> experiment_from(parser.parse_args(["--heads", "3"])).model.heads
    3
    """
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="an experiment as a TOML or JSON file; flags replace what it says"
    )
    absent: Any = {"default": argparse.SUPPRESS}
    only = parser.add_argument_group("seed").add_mutually_exclusive_group()
    only.add_argument("--seed", metavar="S", **absent, help=f"{SEED.about.help} (default: 0)")
    if seeds:
        only.add_argument(
            "--seeds",
            nargs="+",
            metavar="S",
            **absent,
            help="train many seeds as one program: how many from the seed on (20), a range (20:40), or each (3 5 8)",
        )
    for section in SECTIONS:
        known = kinds(section)
        group = parser.add_argument_group(section)
        if section != "record":
            text = "; ".join(f"{kind.name}: {kind.help.rstrip('.')}" for kind in known.values()).replace("%", "%%")
            group.add_argument(f"--{section}", metavar="KIND", dest=f"{section}.kind", **absent, help=text)
        for name in dict.fromkeys(name for kind in known.values() for name in kind.fields):
            owners = [kind for kind in known.values() if name in kind.fields]
            names = dict.fromkeys([flag(name), f"--{section}.{name}", f"--{name}"])
            names = list(names) if _is_short(name) else [f"--{section}.{name}"]
            options = _reading([kind.fields[name] for kind in owners]) | absent
            group.add_argument(*names, dest=f"{section}.{name}", help=_help(name, owners, len(known)), **options)


def _reading(fields: list[DeclaredField]) -> dict[str, Any]:
    """How argparse takes the words of a field, which several kinds may have; what they mean depends on the kind."""
    first = fields[0]
    word = first.about.symbol if first.about.symbol.isascii() and first.about.symbol else "VALUE"
    if first.choices and first.scalar is None and not first.is_list:
        word = "|".join(dict.fromkeys(str(choice) for field in fields for choice in field.choices))
    if any(field.is_list for field in fields):
        return {"nargs": "*" if any(field.may_be_empty for field in fields) else "+", "metavar": word}
    if any(field.scalar is bool for field in fields):
        return {"nargs": "?", "const": "true", "metavar": "true|false" if first.scalar is bool else word}
    return {"metavar": word}


def _help(name: str, owners: list[Kind], total: int) -> str:
    field = owners[0].fields[name]
    text = field.description()
    texts: dict[str, list[str]] = {}
    for kind in owners:
        texts.setdefault(kind.fields[name].about.help, []).append(kind.name)
    if len(texts) > 1:
        text = "; ".join(f"{', '.join(names)}: {line}" for line, names in texts.items())
    defaults = {kind.name: kind.fields[name].default for kind in owners}
    known = {_shown(value) for value in defaults.values() if value is not None and value is not False and value != ()}
    if len(known) == 1:
        text += f" (default: {known.pop()})"
    elif known:
        of_value: dict[str, list[str]] = {}
        for kind, value in defaults.items():
            of_value.setdefault(_shown(value), []).append(kind)
        listed = ", ".join(f"{value} for {' and '.join(names)}" for value, names in of_value.items())
        text += f" (default: {listed})"
    text += "" if len(owners) == total else f" [{', '.join(kind.name for kind in owners)}]"
    return text.replace("%", "%%")


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def experiment_from(arguments: argparse.Namespace) -> Experiment:
    """Return the experiment of a parsed command: the file, if there is one, with what the flags say in its place.

    **Arguments:**

    - `arguments`: what a parser with the flags of `add_experiment_flags` returned.

    **Returns:** the experiment. `InvalidInput` is raised where values are not allowed.

    **Example:**

    >>> import argparse
    >>> from stepwell.experiments import experiment_from
    >>> experiment_from(argparse.Namespace(**{"model.heads": "3"})).model.heads
    3
    """
    given: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, words in vars(arguments).items():
        section, dot, field = name.partition(".")
        if dot and section in SECTIONS:
            given[section][field] = words
    path = getattr(arguments, "file", None)
    base = Experiment() if path is None else Experiment.read(path)
    seed = SEED.convert(arguments.seed, name="--seed", text=True) if hasattr(arguments, "seed") else base.seed
    made: dict[str, Any] = {"seed": seed}
    sections: dict[str, Any] = {"seed": seed}
    for section in SECTIONS:  # which kind a section has by default depends on those before it
        words, current = given[section], getattr(base, section)
        named = words.pop("kind", None)
        kind = find_kind(section, named or current.given.get("kind") or default_kind(section, sections))
        change = {field: convert(kind, field, value, label=flag(field), text=True) for field, value in words.items()}
        made[section] = replaced(section, current, {**({"kind": named} if named else {}), **change})
        sections[section] = section_of_given(section, made[section], sections)
    return Experiment(**made)


def seeds_of(words: Iterable[str], first: int) -> list[int]:
    """Return seeds from words: `20`, so many from the first on; `20:40`, from 20 to 39; several words, these.

    **Arguments:**

    - `words`: the words after `--seeds`.
    - `first`: the seed from which a number of seeds is counted.

    **Returns:** the seeds.

    **Example:**

    >>> from stepwell.experiments import seeds_of
    >>> seeds_of(["3"], 10), seeds_of(["4:6"], 0), seeds_of(["5", "8"], 0)
    ([10, 11, 12], [4, 5], [5, 8])
    """
    words = list(words)
    try:
        if len(words) == 1 and ":" in words[0]:
            begin, end = (int(part) for part in words[0].split(":"))
            listed = range(begin, end)
        else:
            listed = range(first, first + int(words[0])) if len(words) == 1 else [int(word) for word in words]
    except ValueError:
        raise InvalidInput(
            f"--seeds is {shown(' '.join(words))}; write how many (20), a range (20:40) or each (3 5 8)"
        ) from None
    if not 0 < (listed.stop - listed.start if isinstance(listed, range) else len(listed)) <= _MOST_SEEDS:
        raise InvalidInput(f"--seeds is {shown(' '.join(words))}; give from 1 to {_MOST_SEEDS} seeds")
    made = [SEED.convert(seed, name="--seeds") for seed in listed]
    if len(set(made)) < len(made):
        raise InvalidInput(f"--seeds has {shown(' '.join(words))}, one of them twice; give each once")
    return made


def command_of(experiment: Experiment, verb: str) -> list[str]:
    """What `Experiment.command` returns."""
    for shorter in (True, False):
        with contextlib.suppress(InvalidInput):  # defaults of the same kinds may not fit together
            kinds_alone = {section: getattr(experiment, section).kind for section in SECTIONS}
            words = _command(experiment, Experiment(**kinds_alone) if shorter else None)
            if parsed(words) == experiment:
                return ["stepwell", verb, *words]
    raise InvalidInput("there is no command for this experiment, since a word of a list begins with -; write a file")


def _command(experiment: Experiment, default: Experiment | None) -> list[str]:
    """The flags of an experiment, but for values that `default` has, too."""
    words = []
    for section in SECTIONS:
        mine = getattr(experiment, section)
        if section != "record" and (default is None or default_kind(section, experiment.sections) != mine.kind):
            words += [f"--{section}", mine.kind]
        values = mine.given if section == "record" else mine.canonical
        for field, value in values.items():
            same = default is not None and getattr(default, section).canonical.get(field) == value
            if value is not None and not same and field != "kind":
                words += _flagged(flag(field) if _is_short(field) else f"--{section}.{field}", value)
    return words + (["--seed", str(experiment.seed)] if experiment.seed else [])


def parsed(words: list[str]) -> Experiment:
    """The experiment that the flags of a command describe."""
    from stepwell._util.parser import Parser

    parser = Parser(prog="stepwell train", add_help=False, allow_abbrev=False)
    add_experiment_flags(parser)
    return experiment_from(parser.parse_args(words))


def _is_short(name: str) -> bool:
    """Whether a field has a flag of its own name."""
    return len(sections_with(name)) == 1 and name not in OTHER_FLAGS and name not in SECTIONS


def _flagged(name: str, value: Any) -> list[str]:
    """A flag with its value; a string that begins with a hyphen would be taken for another flag."""
    words = _words(value)
    return [f"{name}={words[0]}"] if isinstance(value, str) and value.startswith("-") else [name, *words]


def _words(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [word for one in value for word in _words(one)]
    return [str(value).lower()] if isinstance(value, bool) else [value if isinstance(value, str) else repr(value)]
