"""The names of the published script's files. They leave out most flags, so that several runs may want one name.

The published name belongs to the run that is first there, and to every repetition of it. Another run whose name is
taken gets the published name and eight digits of its experiment, the same ones every time.
"""

import dataclasses
import os
import re
from pathlib import Path

import numpy as np
import xarray as xr

from stepwell._util.errors import InvalidInput

from .. import IN_CONTEXT, IN_WEIGHT, VALUE_WEIGHTS, AbstractNames, Experiment, Place, Table, held_by
from ._experiment import experiment_of, published_flags
from ._flags import Published

_FORMATS = ("png", "pdf", "svg", "gif")


@dataclasses.dataclass(frozen=True)
class PublishedNames(AbstractNames):
    """The files of a run of the published script."""

    flags: Published

    @property
    def experiment(self) -> Experiment:
        return experiment_of(self.flags)

    def own(self, folder: Path) -> list[Path]:
        return [self._own(folder).trajectory, self._place(folder, "").trajectory]

    def pattern(self) -> str:
        return re.escape(self.flags.name() + self.flags.mark()) + r"(_[0-9a-f]{8})?\.nc"

    def place(self, folder: Path, extended: Path | None, *, overwrite: bool) -> tuple[Place, str]:
        """The published name if it is free or the run's own, or belongs to the run that is continued; else another."""
        plain, own = self._place(folder, ""), self._own(folder)
        if overwrite or (extended is not None and extended == plain.trajectory):
            return plain, ""
        taken = self._taken(plain)
        if not taken and (plain.trajectory.exists() or not os.path.lexists(own.trajectory)):
            return plain, ""
        if os.path.lexists(own.trajectory) and held_by(own.trajectory) != (self.experiment, None):
            raise InvalidInput(
                f"{own.trajectory} is not this run's, or damaged; move it away, give another --out, or --overwrite"
            )
        return own, f"{taken}; this run is named {own.trajectory.stem}" if taken else ""

    def tables(self, trajectory: xr.Dataset) -> dict[str, Table]:
        """A row before each step: the losses, with test losses if there are any; and the tracked values."""
        flags, taken = self.flags, slice(0, self.flags.epoch)
        loss = trajectory["loss"].values[0, taken]
        made = {}
        if flags.testset_size:
            made["loss"] = np.stack(
                [loss, trajectory[IN_WEIGHT].values[0, taken], trajectory[IN_CONTEXT].values[0, taken]], axis=1
            )
        elif not flags.track_value:
            made["loss"] = loss
        if flags.track_value:
            made["value"] = np.concatenate([loss[:, None], trajectory[VALUE_WEIGHTS].values[0, taken]], axis=1)
        return {kind: Table(None, values) for kind, values in made.items()}

    def _place(self, folder: Path, suffix: str) -> Place:
        flags = self.flags
        stem, tables = flags.name() + flags.mark() + suffix, {}
        if flags.testset_size or not flags.track_value:
            tables["loss"] = folder / f"{stem}.txt"
        if flags.track_value:
            tables["value"] = folder / f"{flags.name()}_value{suffix}.txt"
        return Place(folder, stem, tables)

    def _own(self, folder: Path) -> Place:
        return self._place(folder, f"_{self.experiment.name[:8]}")

    def _taken(self, place: Place) -> str:
        """Why files cannot be written to a place; empty if they can, because it is free or the run's own."""
        if os.path.lexists(place.trajectory):
            held = held_by(place.trajectory)
            if held is None:
                return f"{place.trajectory} is not a run that can be read"
            if held != (self.experiment, None):
                return f"{place.trajectory} holds another run{self._differences(held[0])}"
        elif there := [path for path in (*place.tables.values(), *map(place.plot, _FORMATS)) if os.path.lexists(path)]:
            return f"{there[0]} is there without a trajectory"
        # Tracked values have a file name that runs with and without test sets share.
        sharing = [path.with_suffix(".nc") for path in place.tables.values()]
        sharing = [path for path in sharing if path != place.trajectory and os.path.lexists(path)]
        return f"{sharing[0]} is there, a run with the same table" if sharing else ""

    def _differences(self, stored: Experiment) -> str:
        try:
            flags, asked = published_flags(stored), published_flags(self.experiment)
        except InvalidInput:
            return ""
        listed = [f"--{name} {flags[name]} instead of {value}" for name, value in asked.items() if flags[name] != value]
        return f" ({', '.join(listed)})"
