"""Which files belong to a run. The published names leave out most flags, so that several runs may want one name.

The published name belongs to the run that is first there, and to every repetition of it. Another run whose name is
taken gets the published name and eight digits made of its own configuration, the same ones every time.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from stepwell._errors import InvalidInput
from stepwell.trajectory import load

from ._beyond import NOTHING, Beyond
from ._flags import Published
from ._setup import Setup

FORMATS = ("png", "pdf", "svg", "gif")
"""In which a plot can be written; a GIF moves."""


class Place(NamedTuple):
    """The files of a run: their folder, and the published names with a suffix, which is empty for the first run."""

    folder: Path
    flags: Published
    suffix: str
    beyond: Beyond = NOTHING

    @property
    def _name(self) -> str:
        return self.beyond.name(self.flags)

    @property
    def _stem(self) -> str:
        return self._name + self.flags.mark() + self.suffix

    @property
    def trajectory(self) -> Path:
        return self.folder / f"{self._stem}.nc"

    def plot(self, ending: str = "png") -> Path:
        return self.folder / f"{self._stem}.{ending}"

    @property
    def tables(self) -> dict[str, Path]:
        """The text files that the flags ask for: `loss`, with test losses if there are any, and `value`."""
        flags, tables = self.flags, {}
        if flags.testset_size or not flags.track_value:
            tables["loss"] = self.folder / f"{self._stem}.txt"
        if flags.track_value:
            tables["value"] = self.folder / f"{self._name}_value{self.suffix}.txt"
        return tables


def identity(setup: Setup) -> dict[str, Any]:
    """The configuration of a run, as its file has it: flags, engine, and what is beyond the published script.

    **Arguments:**

    - `setup`: what is trained, as `set_up` builds it.

    **Returns:** the values by flag, as JSON has them.

    **Example:**

    >>> from stepwell.published import run_in, training
    >>> flags, beyond, engine, until = run_in({"heads": 3, "noise": 0.5})
    >>> made = training.identity(training.set_up(flags, engine, beyond))
    >>> made["head_num"], made["noise"], made["engine"]
    (3, 0.5, 'moments')
    """
    own = setup.beyond.identity()
    return {**setup.flags.__dict__, "icl": float(setup.flags.icl), "engine": setup.engine, **own}


def choose_place(
    folder: Path, setup: Setup, extended: Path | None = None, *, overwrite: bool = False
) -> tuple[Place, str]:
    """Where the files of a run go: to the published name if it is free or its own, else to a name of its own.

    What the published script cannot train always gets a name of its own.

    **Arguments:**

    - `folder`: the folder of the files.
    - `setup`: what is trained, as `set_up` builds it.
    - `extended`: the file of the run that is resumed, perhaps to more steps than it was begun with; it keeps the
      published name if it has it.
    - `overwrite`: whether another run's files of the same name may be replaced.

    **Returns:** the `Place`, and an empty text; or a line that says whose the published name is. `InvalidInput` is
    raised if both names are taken.

    **Example:**

    >>> import argparse
    >>> from pathlib import Path
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--in_dim", "2"])), "population")
    >>> place, remark = training.choose_place(Path("runs"), setup)
    >>> place.trajectory.name, remark
    ('attnM_head1_D2_R1_P5000_N32_seed10.nc', '')
    """
    asked = identity(setup)
    plain, own = Place(folder, setup.flags, "", setup.beyond), own_place(folder, setup)
    published = not setup.beyond.identity()
    if overwrite:
        return plain if published else own, ""
    taken = _taken(plain, asked) if published else ""
    if published and not taken and (plain.trajectory.exists() or not os.path.lexists(own.trajectory)):
        return plain, ""
    if extended is not None and extended == plain.trajectory:
        return plain, ""
    if os.path.lexists(own.trajectory) and _flags_in(own.trajectory) != asked:
        raise InvalidInput(
            f"{own.trajectory} is not this run's, or damaged; move it away, give another --out, or --overwrite"
        )
    return own, f"{taken}; this run is named {own.trajectory.stem}" if taken else ""


def find_stored(folder: Path, setup: Setup) -> Path | None:
    """The file of a previous run that can be resumed: of the same configuration, or of one with another `--epoch`.

    **Arguments:**

    - `folder`: the folder of the files.
    - `setup`: what is to be trained, as `set_up` builds it.

    **Returns:** the path: that of the same configuration if there is one, else of the run that came farthest. None if
    there is none. A file of the published name that cannot be read is returned, for `stored_run` to say why.

    **Example:**

    >>> import argparse
    >>> from pathlib import Path
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--in_dim", "2"])), "population")
    >>> training.find_stored(Path("no-such-folder"), setup) is None
    True
    """
    asked = identity(setup)
    plain, own = Place(folder, setup.flags, "", setup.beyond).trajectory, own_place(folder, setup).trajectory
    if own.exists():
        return own
    if plain.exists() and _flags_in(plain) in (None, asked):
        return plain
    name = re.compile(re.escape(plain.stem) + r"(_[0-9a-f]{8})?\.nc")
    others = (path for path in sorted(folder.glob("*.nc")) if name.fullmatch(path.name))
    steps = {path: _steps(path) for path in others if not differences(_flags_in(path), asked, but=("epoch",))}
    return max(steps, key=lambda path: steps[path], default=None)


def differences(stored: dict[str, Any] | None, asked: dict[str, Any], *, but: tuple[str, ...] = ()) -> list[str]:
    """In which flags a stored run differs from the one asked for, as words; all of them if there is none stored."""
    stored = stored or {}
    return [
        f"--{name} {stored.get(name)} instead of {value}"
        for name, value in asked.items()
        if name not in but and stored.get(name) != value
    ]


def own_place(folder: Path, setup: Setup) -> Place:
    """The place that no other configuration has."""
    digits = hashlib.sha256(json.dumps(identity(setup), sort_keys=True).encode()).hexdigest()[:8]
    return Place(folder, setup.flags, f"_{digits}", setup.beyond)


def _taken(place: Place, asked: dict[str, Any]) -> str:
    """Why files cannot be written to a place; empty if they can, because it is free or the run's own."""
    if os.path.lexists(place.trajectory):
        stored = _flags_in(place.trajectory)
        if stored is None:
            return f"{place.trajectory} is not a run that can be read"
        different = differences(stored, asked)
        if different:
            return f"{place.trajectory} holds another run ({', '.join(different)})"
    elif there := [path for path in (*place.tables.values(), *map(place.plot, FORMATS)) if os.path.lexists(path)]:
        return f"{there[0]} is there without a trajectory"
    # Tracked values have a file name that runs with and without test sets share.
    sharing = [path.with_suffix(".nc") for path in place.tables.values()]
    sharing = [path for path in sharing if path != place.trajectory and os.path.lexists(path)]
    return f"{sharing[0]} is there, a run with the same table" if sharing else ""


def _flags_in(path: Path) -> dict[str, Any] | None:
    """The configuration of the run in a file; None if it cannot be read or was not written by `stepwell train`."""
    try:
        flags = json.loads(load(path).attrs["configuration"])["flags"]
    except (InvalidInput, KeyError, TypeError, ValueError):
        return None
    return flags if isinstance(flags, dict) else None


def _steps(path: Path) -> int:
    return int(load(path)["snapshot"][-1])
