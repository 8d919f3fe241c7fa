"""What the module of a figure must have. No more than the standard library is imported here."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ._claim import Claim

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


@runtime_checkable
class FigureModule(Protocol):
    """A module `figNN_name.py`, listed in `_registry.py`."""

    TITLE: str
    """A line."""
    CAPTION: str
    """What the figure shows, in a few sentences: the figure must be understood without the paper."""

    PAPER_SETTINGS: dict[str, Any]
    """The paper's own settings, as far as known, under the names that `settings` has, to be shown beside ours; empty if
    the paper has no such figure."""

    def settings(self, quick: bool) -> dict[str, Any]:
        """The settings by name, for the report; values are numbers, texts or lists of them."""
        ...

    def simulate(self, quick: bool) -> "dict[str, xr.Dataset]":
        """Run everything, theory included. Each data set becomes a file `data/PAPER-FIGURE-KEY.nc`."""
        ...

    def claims(self, data: "dict[str, xr.Dataset]") -> list[Claim]:
        """Compare; nothing is computed here that could not be read from the files."""
        ...

    def draw(self, data: "dict[str, xr.Dataset]") -> "Figure":
        """Draw."""
        ...


@runtime_checkable
class WithExtras(Protocol):
    """What the module of a figure may have besides."""

    def extras(self, data: "dict[str, xr.Dataset]") -> dict[str, Callable[[str], None]]:
        """Further files of the figure, such as a video: how each name ends, with what writes it to a given path.

        An ending `gif` becomes `figures/PAPER-FIGURE.gif`. A GIF is shown in the report, the rest is linked.
        """
        ...
