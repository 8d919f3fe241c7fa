"""What can be taken away from the page: figures, data, a film, a script and a command that make the same run."""

import csv
import io
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepwell._errors import InvalidInput
from stepwell._text import shown

from ._state import State
from ._view import kept_view

_FRAMES = 24
_NAME = "stepwell"


class Kind(NamedTuple):
    """A kind of download."""

    label: str
    ending: str
    media: str
    make: "Callable[[Sequence[State]], bytes]"
    alone: bool = False
    """Whether it is of one configuration; of several there is an archive of one for each."""


def download(states: Sequence[State], kind: str) -> tuple[str, str, bytes]:
    """The file of a kind for up to four configurations: its name, media type and content.

    `InvalidInput` is raised where there is none: for a stored run, or one that takes too long.
    """
    if kind not in KINDS:
        raise InvalidInput(f"{shown(kind)} is no kind of download; there are {', '.join(KINDS)}")
    for state in states:
        if state.mode == "stored":
            raise InvalidInput("a stored run is exported by `stepwell runs export`")
    what = KINDS[kind]
    if not what.alone or len(states) == 1:
        return f"{_NAME}.{what.ending}", what.media, what.make(states)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for letter, state in zip("abcd", states, strict=False):
            file.writestr(f"{_NAME}-{letter}.{what.ending}", what.make([state]))
    return f"{_NAME}-{what.ending}.zip", "application/zip", archive.getvalue()


def _figure(states: Sequence[State], ending: str) -> bytes:
    from ._picture import draw

    figure = draw([kept_view(state) for state in states], _names(states))
    made = io.BytesIO()
    metadata = {"Date": None} if ending == "svg" else {"CreationDate": None}
    figure.savefig(made, format=ending, metadata=metadata)
    return made.getvalue()


def _names(states: Sequence[State]) -> list[str]:
    """What a configuration is called: what differs from the first."""
    first = states[0]
    names = ["first"]
    for state in states[1:]:
        if state.mode != first.mode:
            names.append(state.mode)
            continue
        changed = [f"{name} {value}" for name, value in state.fields.items() if value != first.fields[name]]
        names.append(", ".join(changed)[:60] or "the same")
    return names


def _netcdf(states: Sequence[State]) -> bytes:
    from stepwell.trajectory import to_bytes

    from ._whole import trajectory

    return to_bytes(trajectory(states[0])[2])


def _csv(states: Sequence[State]) -> bytes:
    """A row for each point and quantity: configuration, time, quantity, its indices from 1, and value."""
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow(["configuration", "time", "step", "quantity", "index", "value"])
    for letter, state in zip("abcd", states, strict=False):
        shown_view = kept_view(state)
        time, steps = shown_view["time"], shown_view.get("steps")
        for name in ("loss", "values", "values_theory", "map", "omega", "mu", "allocation"):
            if name not in shown_view:
                continue
            values = np.asarray(shown_view[name])
            flat = values.reshape(values.shape[0], -1)
            places = list(np.ndindex(values.shape[1:]))
            for column, place in enumerate(places):
                index = ":".join(str(number + 1) for number in place)
                for row in range(len(flat)):
                    value = float(flat[row, column])
                    if np.isfinite(value):
                        step = "" if steps is None else int(steps[row])
                        writer.writerow([letter, repr(float(time[row])), step, name, index, repr(value)])
    return made.getvalue().encode()


def _gif(states: Sequence[State]) -> bytes:
    from stepwell.plots import animate

    from ._whole import trajectory

    state = states[0]
    _, setup, made = trajectory(state)
    task: Any = setup.task if state.mode == "linear" and not setup.flags.softmax else None
    with tempfile.TemporaryDirectory() as folder:
        film = Path(folder) / "film.gif"
        animate(made, task, frames=_FRAMES).save(film, writer="pillow")
        return film.read_bytes()


def _script(states: Sequence[State]) -> bytes:
    from ._whole import script

    return script(states[0]).encode()


def _command(states: Sequence[State]) -> bytes:
    from ._whole import command

    return "".join(f"{command(state)}\n" for state in states).encode()


KINDS: dict[str, Kind] = {
    "svg": Kind("Figure (SVG)", "svg", "image/svg+xml", lambda states: _figure(states, "svg")),
    "pdf": Kind("Figure (PDF)", "pdf", "application/pdf", lambda states: _figure(states, "pdf")),
    "netcdf": Kind("Data (netCDF)", "nc", "application/x-netcdf", _netcdf, alone=True),
    "csv": Kind("Data (CSV)", "csv", "text/csv", _csv),
    "gif": Kind("Film (GIF)", "gif", "image/gif", _gif, alone=True),
    "script": Kind("Python script", "py", "text/x-python", _script, alone=True),
    "command": Kind("Command", "sh", "text/x-shellscript", _command),
}
"""Kinds of downloads by name."""
