"""One part of an experiment, from what is given to checked values with their defaults."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from stepwell._util.errors import InvalidInput
from stepwell._util.text import listed, nearest, shown

from ._kind import SECTIONS, Kind, SectionName, find_kind, kinds, sections_with


class Section(Mapping[str, Any]):
    """One part of an experiment: its kind, and a value for each of its fields, as attributes and by name.

    `given` has the values that were given, `canonical` those that the name of the experiment is made of.
    """

    __slots__ = ("_values", "canonical", "given", "kind")

    def __init__(self, kind: str, given: Mapping[str, Any], values: Mapping[str, Any], canonical: Mapping[str, Any]):
        object.__setattr__(self, "kind", kind)
        for name, each in (("given", given), ("_values", values), ("canonical", canonical)):
            object.__setattr__(self, name, MappingProxyType(dict(each)))

    kind: str
    given: Mapping[str, Any]
    canonical: Mapping[str, Any]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an experiment does not change; make another: experiment.replace(…={{{name!r}: …}})")

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"{self.kind} has no field {name}; {nearest(name, list(self._values))}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __reduce__(self) -> Any:
        return Section, (self.kind, dict(self.given), dict(self._values), dict(self.canonical))

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in self.canonical.items())})"


def as_mapping(section: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, str):
        return {"kind": given}
    if isinstance(given, Section):
        return {"kind": given.kind, **given.given}
    if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
        return dict(given)
    raise InvalidInput(f"{section} is {shown(given)}; it must be the name of a kind, or a table of fields with kind")


def section_of_given(section: SectionName, given: Any, sections: Mapping[str, Any]) -> Section:
    """A section, its values checked and its defaults filled in."""
    values = {name: value for name, value in as_mapping(section, given).items() if value is not None}
    named = values.pop("kind", None)
    kind = find_kind(section, default_kind(section, sections) if named is None else named)
    checked = {name: convert(kind, name, value) for name, value in values.items()}
    filled = {name: field.default for name, field in kind.fields.items()} | checked
    if kind.fill is not None:
        before, filled = filled, kind.fill(dict(filled), sections)
        if not kind.is_own:  # new values as if they had been given: the name of a run does not depend on that
            for name, value in filled.items():
                if value is not None and value is not before.get(name) and name in kind.fields:
                    filled = {**filled, name: convert(kind, name, value)}
    for name in checked:
        _check_effect(kind, name, checked, filled)
    canonical = filled if kind.canonical is None else kind.canonical(filled, sections)
    for name in kind.conditional:  # a default that has no effect would be refused if it were given
        if canonical.get(name) == kind.fields[name].default and _without_effect(kind, name, filled):
            canonical = {other: value for other, value in canonical.items() if other != name}
    remembered = {**({} if named is None else {"kind": kind.name}), **checked}
    return Section(kind.name, remembered, {**filled, **canonical}, canonical)


def _without_effect(kind: Kind, name: str, filled: Mapping[str, Any]) -> str:
    """The field that keeps another from having an effect; empty if it has one."""
    when = kind.fields[name].about.when
    return next((other for other, values in when.items() if filled[other] not in values), "")


def _check_effect(kind: Kind, name: str, given: Mapping[str, Any], filled: Mapping[str, Any]) -> None:
    """Refuse a value that has no effect."""
    if other := _without_effect(kind, name, filled):
        *allowed, here = (
            "left out" if v is None else str(v) for v in (*kind.fields[name].about.when[other], filled[other])
        )
        raise InvalidInput(
            f"{name} is given as {shown(given[name])}, and has an effect only where {other} is {' or '.join(allowed)}; "
            f"here {other} is {here}, so leave it out"
        )


def default_kind(section: SectionName, sections: Mapping[str, Any]) -> str:
    """The kind of a section that is not named."""
    if section in ("task", "record"):
        return {"task": "regression", "record": "record"}[section]
    before: SectionName = SECTIONS[SECTIONS.index(section) - 1]
    previous: Section = sections[before]
    follows = find_kind(before, previous.kind).follows
    if follows is None:
        return {"model": "separate", "objective": "sampled", "training": "descent"}[section]
    return follows if isinstance(follows, str) else follows(dict(previous), sections)


def convert(kind: Kind, name: str, value: Any, *, label: str | None = None, text: bool = False) -> Any:
    """A value of a field of a kind, checked."""
    if name not in kind.fields:
        raise InvalidInput(_no_field(kind, name, text))
    where = name if kind.section == "record" else f"{kind.section}.{name}"
    return kind.fields[name].convert(value, name=label or where, text=text)


def _no_field(kind: Kind, name: str, text: bool) -> str:
    """What to say of a field that a kind does not have: who has it, or what was meant."""
    what = "record" if kind.section == "record" else f"the {kind.section} kind {kind.name}"
    having = [other.name for other in kinds(kind.section).values() if name in other.fields]
    if having:
        choosing = f"give --{kind.section}" if text else f"choose the {kind.section}"
        return f"{what} has no field {shown(name)}; leave it out, or {choosing} {listed(having)}"
    if elsewhere := sections_with(name):
        return f"{what} has no field {shown(name)}; it belongs to the section {elsewhere[0]}"
    return f"{what} has no field {shown(name)}; {nearest(name, list(kind.fields)) if kind.fields else 'it has none'}"


def replaced(section: SectionName, current: Section, change: dict[str, Any]) -> dict[str, Any]:
    """What is given of a section after a change. A kind that was not named follows anew from the sections before."""
    before = {name: value for name, value in current.given.items() if name != "kind"}
    name = change.get("kind", current.given.get("kind"))
    if name is not None and name != current.kind:
        fields = find_kind(section, name).fields
        before = {field: value for field, value in before.items() if field in fields}
    known = [find_kind(section, name or current.kind)]
    changed = change.keys() - {"kind"}
    if name is None and not changed <= known[0].fields.keys():  # another kind may follow, to which these belong
        known = [kind for kind in kinds(section).values() if changed <= kind.fields.keys()]
    for kind in known:
        for field in change:
            for other in kind.replaces.get(field, ()):
                if change[field] is not None and other not in change:
                    dropped = before.pop(other, None)
                    if other == "eigenvalues" and dropped is not None and "dim" in kind.fields:
                        before.setdefault("dim", len(dropped))  # a spectrum by name, of as many
    made = {**before, **{field: value for field, value in change.items() if field != "kind"}}
    return {**({"kind": name} if name is not None else {}), **made}
