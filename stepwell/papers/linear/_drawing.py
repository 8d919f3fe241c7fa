"""What several figures draw alike."""

from collections.abc import Iterable, Sequence
from typing import Any


def lines(
    axes: Any, x: Any, rows: Iterable[Any], *form: str, label: Any = None, colors: Sequence[str] = (), **style: Any
):
    """A line for each row, all under one label; of these colors in turn, if there are any."""
    for number, row in enumerate(rows):
        color = {"color": colors[number % len(colors)]} if colors else {}
        axes.plot(x, row, *form, label=None if number else label, **color, **style)


def note(axes: Any, words: str, at: tuple[Any, Any], offset: tuple[float, float], **style: Any) -> None:
    """Words at a point, moved by so many points of print."""
    axes.annotate(words, at, xytext=offset, textcoords="offset points", **style)


def only_ticks(axes: Any, values: Iterable[Any], names: Sequence[str] | None = None) -> None:
    """Ticks of x at these values alone, under their names; by default the numbers themselves."""
    axes.set_xticks(values, [f"{value:g}" for value in values] if names is None else names)
    axes.set_xticks([], minor=True)
