"""A line of the table."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Unavailable(Exception):
    """A measurement that could not be made; the message says why and what to do."""


class Row(NamedTuple):
    """One measurement, and the target it has if it has one: a ratio to the baseline, or a value not to exceed."""

    what: str
    ours: float
    unit: str
    baseline: float | None = None
    limit: float | None = None
    """The least that this machine allows, where that can be said."""
    least_ratio: float | None = None
    most: float | None = None
    check: bool = False
    """Whether the target is one of correctness, which holds on any machine and at any size."""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.baseline is None else self.baseline / self.ours

    @property
    def target(self) -> str:
        if self.least_ratio is not None:
            return f"≥ {_number(self.least_ratio)} ×"
        return "" if self.most is None else f"≤ {quantity(self.most, self.unit)}"

    @property
    def reached(self) -> bool | None:
        if self.least_ratio is not None:
            assert self.ratio is not None
            return self.ratio >= self.least_ratio
        return None if self.most is None else self.ours <= self.most

    def without_speed_target(self) -> "Row":
        """The row at other sizes than the target is meant for."""
        return self if self.check else self._replace(least_ratio=None, most=None)

    def brief(self) -> str:
        """One line, shown while the others are still measured."""
        beside = "" if self.ratio is None else f", {_number(self.ratio)} × faster"
        return f"{self.what}: {quantity(self.ours, self.unit)}{beside}"

    def record(self) -> dict[str, Any]:
        """For JSON; seconds and bytes stay seconds and bytes."""
        return {
            "what": self.what,
            "ours": self.ours,
            "unit": self.unit,
            "baseline": self.baseline,
            "ratio": self.ratio,
            "limit": self.limit,
            "target": self.target or None,
            "reached": self.reached,
            "check": self.check,
            "note": self.note,
        }


_SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "bytes": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")),
}


def _number(value: float) -> str:
    if value == 0 or 0.01 <= abs(value) < 1e7:
        digits = 0 if abs(value) >= 1000 or value == int(value) else 2 if abs(value) < 10 else 1
        return f"{value:,.{digits}f}"
    return f"{value:.2g}"


def quantity(value: float, unit: str) -> str:
    """A number with its unit, as people read it: 0.0000041 s is 4.10 µs."""
    for scale, name in _SCALES.get(unit, ()):
        if value >= scale:
            return f"{_number(value / scale)} {name}"
    return f"{_number(value)} {unit}".rstrip()


HEAD = ("what", "ours", "baseline", "ratio", "limit", "target", "reached")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.what,
        quantity(row.ours, row.unit),
        "" if row.baseline is None else quantity(row.baseline, row.unit),
        "" if row.ratio is None else f"{_number(row.ratio)} ×",
        "" if row.limit is None else quantity(row.limit, row.unit),
        row.target,
        {None: "", True: "yes", False: "NO"}[row.reached],
    )


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table for a page, each note under what it is about."""
    lines = ["| " + " | ".join(HEAD) + " |", "|---" + "|--:" * (len(HEAD) - 1) + "|"]
    for row in rows:
        what, *numbers = _cells(row)
        note = f"<br><small>{row.note}</small>" if row.note else ""
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in (what + note, *numbers)) + " |")
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> str:
    """The rows in columns, each note on a line below its row."""
    body = [_cells(row) for row in rows]
    widths = [max(len(line[column]) for line in [HEAD, *body]) for column in range(len(HEAD))]

    def written(line: tuple[str, ...]) -> str:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "  ".join(cells).rstrip()

    lines = [written(HEAD), "  ".join("─" * width for width in widths)]
    for line, row in zip(body, rows, strict=True):
        lines += [written(line), *([f"    {row.note}"] if row.note else [])]
    return "\n".join(lines)
