"""Which files belong to a run: their names, what they hold, and a previous run that can be continued."""

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from stepwell._util.errors import InvalidInput
from stepwell._util.outcomes import DONE
from stepwell._util.text import name_of
from stepwell.experiments import Experiment
from stepwell.experiments.published import Published
from stepwell.trajectory import load

_FORMATS = ("png", "pdf", "svg", "gif")
Held = tuple[Experiment, list[int] | None]
"""What a file holds: an experiment, and its seeds if there are several."""


class Table(NamedTuple):
    """Numbers that are written as text: a column for each of `names`, if the file says them."""

    names: list[str] | None
    values: np.ndarray


class Place(NamedTuple):
    """The files of a run: their folder, the name that most of them share, and the text files by what they hold."""

    folder: Path
    stem: str
    tables: dict[str, Path]

    @property
    def trajectory(self) -> Path:
        return self.folder / f"{self.stem}.nc"

    def plot(self, ending: str = "png") -> Path:
        return self.folder / f"{self.stem}.{ending}"


@dataclasses.dataclass(frozen=True)
class Names:
    """The names of what `stepwell train` writes: model, heads, seed, and digits that no other experiment has."""

    experiment: Experiment
    seeds: Sequence[int] | None = None

    @property
    def stem(self) -> str:
        model, seeds = self.experiment.model, self.seeds
        heads = f"_h{model['heads']}" if isinstance(model.get("heads"), int) else ""
        seed = f"seed{self.experiment.seed}" if seeds is None else f"seeds{seeds[0]}-{seeds[-1]}"
        return f"{model.kind}{heads}_{seed}_{run_name(self.experiment, seeds)[:8]}"

    def own(self, folder: Path) -> list[Path]:
        """The trajectories that this run may have written, the likeliest first."""
        return [folder / f"{self.stem}.nc"]

    def pattern(self) -> str:
        """A regular expression for the names of trajectories that may be of the same run with fewer steps."""
        return re.escape(self.stem[:-8]) + r"[0-9a-f]{8}\.nc"

    def place(self, folder: Path, extended: Path | None, *, overwrite: bool) -> tuple[Place, str]:
        """Where the files go, and a line if that is not where they usually would. `extended` is continued."""
        place = Place(folder, self.stem, {"losses": folder / f"{self.stem}.txt"})
        if not overwrite:
            _check_own(place, (self.experiment, None if self.seeds is None else list(self.seeds)))
        return place, ""

    def tables(self, trajectory: xr.Dataset) -> dict[str, Table]:
        """What the text files have in them, by the names of `Place.tables`."""
        columns = {"step": trajectory["step"].values} if "step" in trajectory.dims else {}
        if "time" in trajectory.coords and trajectory["time"].ndim == 1:
            columns["time[t/tau]"] = trajectory["time"].values
        for name in ("loss", "in_weight_test_loss", "in_context_test_loss"):
            if name in trajectory:
                for seed, curve in zip(trajectory["run"].values, trajectory[name].values, strict=True):
                    columns[name if self.seeds is None else f"{name}[seed={seed}]"] = curve
        if "value_weight" in trajectory:
            for head, curve in enumerate(trajectory["value_weight"].values[0].T, start=1):
                columns[f"value_weight[head={head}]"] = curve
        return {"losses": Table(list(columns), np.stack(list(columns.values()), axis=1))}


@dataclasses.dataclass(frozen=True)
class PublishedNames:
    """As `Names`, those of the published script. They leave out most flags, so that several runs may want one name.

    It belongs to the run that is first there, and to every repetition of it. Another run gets that name and eight
    digits of its experiment, the same ones every time.
    """

    flags: Published

    @property
    def experiment(self) -> Experiment:
        return self.flags.experiment()

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
        _check_own(own, (self.experiment, None))
        return own, f"{taken}; this run is named {own.trajectory.stem}" if taken else ""

    def tables(self, trajectory: xr.Dataset) -> dict[str, Table]:
        """A row before each step: the losses, with test losses if there are any; and the tracked values."""
        flags, taken = self.flags, slice(0, self.flags.epoch)
        loss = trajectory["loss"].values[0, taken]
        made = {}
        if flags.testset_size:
            tests = [trajectory[f"{name}_test_loss"].values[0, taken] for name in ("in_weight", "in_context")]
            made["loss"] = np.stack([loss, *tests], axis=1)
        elif not flags.track_value:
            made["loss"] = loss
        if flags.track_value:
            made["value"] = np.concatenate([loss[:, None], trajectory["value_weight"].values[0, taken]], axis=1)
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
            flags, asked = (vars(Published.of_experiment(one)) for one in (stored, self.experiment))
        except InvalidInput:
            return ""
        listed = [f"--{name} {flags[name]} instead of {value}" for name, value in asked.items() if flags[name] != value]
        return f" ({', '.join(listed)})"


AnyNames = Names | PublishedNames


def _check_own(place: Place, held: Held) -> None:
    """Refuse to write where another run's trajectory is."""
    if os.path.lexists(place.trajectory) and held_by(place.trajectory) != held:
        raise InvalidInput(
            f"{place.trajectory} is not this run's, or damaged; move it away, give another --out, or --overwrite"
        )


def run_name(experiment: Experiment, seeds: Sequence[int] | None = None) -> str:
    """The name of an experiment, or of several seeds of it."""
    return experiment.name if seeds is None else name_of({**experiment.canonical(), "seed": list(seeds)})


def held_by(path: Path) -> Held | None:
    """What a trajectory file holds; None if it cannot be read, or is not of an experiment."""
    try:
        return _held(load(path))
    except (InvalidInput, OSError):
        return None


def _held(trajectory: xr.Dataset) -> Held:
    return Experiment.of(trajectory), trajectory["run"].values.tolist() if trajectory.sizes["run"] > 1 else None


def _is_beginning(stored: Experiment, asked: Experiment) -> bool:
    """Whether a run of one experiment is the beginning of a run of another, or the same: only steps may be more."""
    if stored == asked:
        return True
    if not stored.training.kind == asked.training.kind == "descent" or stored.training.steps > asked.training.steps:
        return False
    return asked.replace(training={"steps": stored.training.steps}) == stored


def last_step(trajectory: xr.Dataset) -> int:
    """The step of the last snapshot, from which a descent can be continued; of a flow 0."""
    return int(trajectory["snapshot"][-1]) if "step" in trajectory.dims else 0


def find_previous(folder: Path, names: AnyNames, experiment: Experiment, seeds: Sequence[int] | None) -> Path | None:
    """The file of a run that can be continued: of the same experiment, or of one with fewer steps.

    A file of the run's own name that cannot be read is returned, so that `stored_run` says why.
    """
    asked = experiment, None if seeds is None else list(seeds)
    for path in names.own(folder):
        if path.exists() and held_by(path) in (None, asked):
            return path
    name = re.compile(names.pattern())
    steps = {}
    for path in sorted(folder.glob("*.nc")):
        held = held_by(path) if name.fullmatch(path.name) else None
        if held is not None and held[1] == asked[1] and _is_beginning(held[0], experiment):
            steps[path] = last_step(load(path))
    return max(steps, key=lambda path: steps[path], default=None)


def stored_run(path: Path) -> xr.Dataset:
    """The trajectory in a file, verified, of a run that can be continued or is complete."""
    stored = load(path, unverified=False)
    Experiment.of(stored)
    if stored.attrs["outcome"] not in (*DONE, "interrupted"):
        raise InvalidInput(f"{path} ended as {stored.attrs['outcome']!r} and cannot be resumed; leave out --resume")
    return stored
