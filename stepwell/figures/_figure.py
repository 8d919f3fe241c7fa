"""An executable figure as one value: its settings, what it simulates, claims and draws."""

import ast
import contextlib
import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from stepwell._util.errors import InvalidInput
from stepwell._util.text import shown

from ._claim import Claim

Data = dict[str, Any]
"""What a figure simulates: `xarray.Dataset`s by name, each of which becomes a netCDF file."""
Settings = TypeVar("Settings")
Writers = dict[str, Callable[[str], None]]
"""Further files of a figure, by the ending of their names: functions that write to a path."""


def _all_fields(settings: Any) -> dict[str, Any]:
    return dataclasses.asdict(settings)


class SeedWords(tuple[str, ...]):
    """What was typed after `--seeds`: how many, a range, or each."""


class Seeds(NamedTuple):
    """On which random seeds a figure was made, and on which it is judged.

    **Arguments:**

    - `explored`: those on which its settings and thresholds were chosen, such as "0 to 23".
    - `fixed`: when the thresholds were fixed.
    - `judged`: those that judge its claims, where no setting has "seed" in its name.
    """

    explored: str = "not recorded"
    fixed: str = "not recorded"
    judged: str = ""


@dataclass(frozen=True, kw_only=True)
class Figure(Generic[Settings]):
    """A figure that can be run: its settings, what it simulates, claims and draws.

    **Arguments:**

    - `title`: what the figure says, in a line.
    - `caption`: what it shows, in a few sentences that can be understood without the paper.
    - `settings`: an instance of a frozen data class, every field of which `stepwell reproduce --set` can change.
    - `quick`: another instance, for a run that takes seconds; by default `settings`.
    - `simulate`: takes settings, computes everything, theory included, and returns data sets by name.
    - `claims`: takes data and settings and returns a list of `Claim`. It reads all that it compares from the data.
    - `draw`: takes data and settings and returns a matplotlib figure, made inside `with styled():`.
    - `described`: takes settings and returns what the report shows of them: numbers, strings and lists by name; by
      default all fields.
    - `paper_settings`: the paper's own settings under the same names, as far as they are known.
    - `extras`: takes data and settings and returns further files, such as an animation: a function that writes to a
      path, by the ending of the file's name (`gif`). By default there are none.
    - `source`: where the paper shows it, such as "Fig 3"; empty for a figure that is not in the paper.
    - `picture`: what is known of the published picture, in a sentence, such as "Its curve, read off the picture, is
      dashed in (a)."; by default the report says which claims compare with data of it, or that it was not seen.
    - `seeds`: on which `Seeds` settings and thresholds were chosen, and when; by default that is not recorded.
    - `name`: PAPER/FIGURE, such as "own/first"; by default the name under which it is listed.
    - `changes`: settings that are not the figure's own, by name, as `with_changes` sets them.

    **Example:**

    >>> from dataclasses import dataclass
    >>> from stepwell.figures import Figure
    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     context: int = 31
    >>> figure = Figure(
    ...     title="A title",
    ...     caption="What is seen.",
    ...     settings=Settings(),
    ...     simulate=lambda settings: {},
    ...     claims=lambda data, settings: [],
    ...     draw=lambda data, settings: None,
    ... )
    >>> figure.with_changes({"context": "60"}).settings
    Settings(context=60)
    """

    title: str
    caption: str
    settings: Settings
    quick: Settings | None = None
    simulate: Callable[[Settings], Data]
    claims: Callable[[Data, Settings], list[Claim]]
    draw: Callable[[Data, Settings], Any]
    described: Callable[[Settings], dict[str, Any]] = _all_fields
    paper_settings: Mapping[str, Any] = field(default_factory=dict)
    extras: Callable[[Data, Settings], Writers] = lambda data, settings: {}
    source: str = ""
    picture: str = ""
    seeds: Seeds = Seeds()
    name: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.quick is None:
            object.__setattr__(self, "quick", self.settings)
        for name in ("settings", "quick"):
            given = getattr(self, name)
            if isinstance(given, type) or not dataclasses.is_dataclass(given):
                raise InvalidInput(
                    f"{name} of the figure {self.name or self.title!r} is {given!r}; it must be an instance of a "
                    "frozen data class, such as Settings(context=31)"
                )

    def at(self, quick: bool) -> Settings:
        """Return the settings of a quick or a full run."""
        return self.quick if quick else self.settings  # pyright: ignore[reportReturnType]

    def judged_on(self, settings: Settings) -> dict[str, Any]:
        """Return the seeds that judge the claims at given settings, by name."""
        named = {name: value for name, value in self.described(settings).items() if "seed" in name}
        return named or {"seeds": self.seeds.judged or "not recorded"}

    def with_changes(self, changes: Mapping[str, Any]) -> "Figure[Settings]":
        """Return the figure with other settings, for quick runs and for full ones: by name, each as a value or as a
        string, such as "60", "0.1,0.2" or "20:40"."""
        if not changes:
            return self
        full: Any = self.settings
        quick: Any = self.quick
        values = _values(self.name or self.title, full, changes)
        settings = {"settings": dataclasses.replace(full, **values), "quick": dataclasses.replace(quick, **values)}
        return dataclasses.replace(self, **settings, changes={**self.changes, **values})

    def simulated(self, settings: Settings) -> Data:
        """Return what the figure simulates. Every data set says of which figure, settings and versions it is."""
        import xarray as xr

        from stepwell.trajectory import provenance

        data = self.simulate(settings)
        if not isinstance(data, dict) or not all(isinstance(made, xr.Dataset) for made in data.values()):
            raise InvalidInput(
                f'simulate of {self.name} must return data sets by name, such as {{"runs": run}}, each an '
                "xarray.Dataset; an array becomes one by `.to_dataset(name=…)`"
            )
        said = provenance(dataclasses.asdict(settings))  # pyright: ignore[reportArgumentType]
        attributes = {"figure": self.name, "settings": said["configuration"], "versions": said["versions"]}
        return {name: made.assign_attrs({**attributes, **made.attrs}) for name, made in data.items()}

    def judged(self, data: Data, settings: Settings) -> list[Claim]:
        """Return the claims on given data, with their whole identifiers, such as linear/fig3/levels."""
        claims = self.claims(data, settings)
        if not isinstance(claims, list) or not all(isinstance(claim, Claim) for claim in claims):
            raise InvalidInput(f"claims of {self.name} must return a list of Claim")
        ids = [claim.id for claim in claims]
        if twice := next((one for one in ids if ids.count(one) > 1), None):
            raise InvalidInput(f"two claims of {self.name} have the identifier {twice!r}; give each one of its own")
        return [claim.of_figure(self.name) for claim in claims]


def _values(figure: str, settings: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The values of changed settings, each of the type that the data class declares."""
    own = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings) if field.init}
    hints = typing.get_type_hints(type(settings))
    values = {}
    for name, given in changes.items():
        if name not in own:
            known = ", ".join(f"{one} ({shown(value)})" for one, value in sorted(own.items()))
            raise InvalidInput(f"{figure} has no setting {name}; its settings are {known or 'none'}")
        try:
            values[name] = _seeds(given, own[name]) if isinstance(given, SeedWords) else _value(given, hints[name])
        except InvalidInput as error:
            raise InvalidInput(f"{figure}: {error}") from None
        except ValueError:
            wanted = f"{_kind(hints[name])}, such as {shown(own[name])}"
            raise InvalidInput(f"{figure}: {name} is {shown(given)}; it must be {wanted}") from None
    return values


def _value(given: Any, hint: Any) -> Any:
    """What was given, a string if it was typed, as the type of a setting; `ValueError` if it is not of that type."""
    readings = [given, (given,)]
    if isinstance(given, str):
        words = tuple(word.strip() for word in given.split(","))
        readings = [_read(given), words, (_read(given),), given]
    for reading in readings:
        with contextlib.suppress(msgspec.ValidationError, TypeError, OverflowError):
            value = msgspec.convert(reading, hint)
            if value not in ((), []):
                return value
    raise ValueError


def _read(text: str) -> Any:
    """A string as a value: a number, true, false, none, a range 20:40, or several with commas between them."""
    words = {"true": True, "false": False, "none": None}
    plain = text.strip()
    if plain.lower() in words:
        return words[plain.lower()]
    begin, colon, end = plain.partition(":")
    if colon and begin.isdigit() and end.isdigit():
        return tuple(range(int(begin), int(end)))
    try:
        return ast.literal_eval(plain)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return plain


def _seeds(given: SeedWords, default: Any) -> Any:
    """Seeds where the figure lists them; where it counts them, how many."""
    from stepwell.experiments import seeds_of

    if isinstance(default, tuple):
        return tuple(seeds_of(given, default[0]))
    if len(given) > 1 or ":" in given[0]:
        raise InvalidInput(
            f"--seeds is {' '.join(given)}; this figure counts its seeds: give how many, such as {default}"
        )
    return len(seeds_of(given, 0))


def _kind(hint: Any) -> str:
    """A type in words, for "it must be …"."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) in (tuple, list):
        return f"several values with commas between them, each {_kind(parts[0])}"
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(map(_kind, parts))
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(str, parts))
    words = {int: "an integer", float: "a number", bool: "true or false", str: "a string", type(None): "none"}
    return words.get(hint, "left as it is: it cannot be written as a string")
