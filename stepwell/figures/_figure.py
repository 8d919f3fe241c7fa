"""An executable figure as one value: its settings, what it simulates, claims and draws."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from stepwell._util.errors import InvalidInput

from ._claim import Claim
from ._settings import changed_settings

Data = dict[str, Any]
"""What a figure simulates: `xarray.Dataset`s by name, each of which becomes a netCDF file."""
Settings = TypeVar("Settings")
Writers = dict[str, Callable[[str], None]]
"""Further files of a figure, by the ending of their names: functions that write to a path."""


def all_fields(settings: Any) -> dict[str, Any]:
    """All settings by name."""
    return dataclasses.asdict(settings)


def no_extras(data: Data, settings: Any) -> Writers:
    """No files beside the figure and its data."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Figure(Generic[Settings]):
    """A figure that can be run: settings, data, claims and a drawing.

    **Arguments:**

    - `title`: a line.
    - `caption`: what the figure shows, in a few sentences: it must be understood without the paper.
    - `settings`: an instance of a frozen data class, every field of which `stepwell reproduce --set` can change.
    - `quick`: another, for a run that takes seconds; by default `settings`.
    - `simulate`: takes settings, runs everything, theory included, and returns data sets by name.
    - `claims`: takes data and settings and returns a list of `Claim`, each with an identifier of its own within the
      figure, such as "levels". It computes nothing that could not be read from the data.
    - `draw`: takes data and settings and returns a matplotlib figure, made inside `with styled():`.
    - `described`: takes settings and returns what the report shows of them: numbers, strings and lists by name; by
      default all fields.
    - `paper_settings`: the paper's own settings under the same names, as far as they are known.
    - `extras`: takes data and settings and returns further files, such as an animation: how each name ends (`gif`),
      with a function that writes it to a path. By default there are none.
    - `source`: where the paper has it, such as "Fig 3"; empty for a figure that is not in the paper.
    - `name`: PAPER/FIGURE, such as "own/first". A figure in a file of your own may leave it out; those that are listed
      are called as the list says.

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
    described: Callable[[Settings], dict[str, Any]] = all_fields
    paper_settings: Mapping[str, Any] = field(default_factory=dict)
    extras: Callable[[Data, Settings], Writers] = no_extras
    source: str = ""
    name: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are not the figure's own, by name: what `with_changes` was given, as values."""

    def __post_init__(self) -> None:
        for name in ("settings", "quick"):
            given = getattr(self, name)
            if name == "quick" and given is None:
                object.__setattr__(self, "quick", self.settings)
            elif isinstance(given, type) or not dataclasses.is_dataclass(given):
                raise InvalidInput(
                    f"{name} of the figure {self.name or self.title!r} is {given!r}; it must be an instance of a "
                    "frozen data class, such as Settings(context=31)"
                )

    def at(self, quick: bool) -> Settings:
        """Return the settings of a quick or a full run."""
        return self.quick if quick else self.settings  # pyright: ignore[reportReturnType]

    def with_changes(self, changes: Mapping[str, Any]) -> "Figure[Settings]":
        """Return the figure with other settings, for quick runs and for full ones.

        **Arguments:**

        - `changes`: settings by name, each as a value or as the text of one, such as "60", "0.1,0.2" or "20:40".

        **Returns:** another figure, whose `changes` are the values. `InvalidInput` is raised where there is no such
        setting, or the value is of another type than that of the figure.
        """
        if not changes:
            return self
        label = self.name or self.title
        full, values = changed_settings(label, self.settings, changes)
        quick, _ = changed_settings(label, self.quick, changes)
        return dataclasses.replace(self, settings=full, quick=quick, changes={**self.changes, **values})

    def simulated(self, settings: Settings) -> Data:
        """Return what the figure simulates. Every data set says of which figure, settings and versions it is."""
        from stepwell.trajectory import provenance

        values: Any = settings
        said = provenance(dataclasses.asdict(values))
        attributes = {"figure": self.name, "settings": said["configuration"], "versions": said["versions"]}
        return {name: made.assign_attrs({**attributes, **made.attrs}) for name, made in self.simulate(settings).items()}

    def judged(self, data: Data, settings: Settings) -> list[Claim]:
        """Return the claims on given data, with their whole identifiers, such as linear/fig3/levels."""
        claims = self.claims(data, settings)
        if not isinstance(claims, list) or not all(isinstance(claim, Claim) for claim in claims):
            raise InvalidInput(f"claims of {self.name} must return a list of Claim")
        return [claim.of_figure(self.name) for claim in claims]
