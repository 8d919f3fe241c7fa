"""Which files belong to a run: their names, what they hold, and a previous run that can be continued."""

import abc
import dataclasses
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from stepwell._util.errors import InvalidInput
from stepwell._util.outcomes import DONE
from stepwell.trajectory import load

from ._build import IN_CONTEXT, IN_WEIGHT, VALUE_WEIGHTS
from ._experiment import Experiment, canonical_text
from ._resume import is_beginning, last_step
from ._run import experiment_and_seeds

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


class AbstractNames(abc.ABC):
    """How the files of a run are named."""

    @abc.abstractmethod
    def own(self, folder: Path) -> list[Path]:
        """The trajectories that this run may have written, the likeliest first."""

    @abc.abstractmethod
    def pattern(self) -> str:
        """A regular expression for the names of trajectories that may be of the same run with fewer steps."""

    @abc.abstractmethod
    def place(self, folder: Path, extended: Path | None, *, overwrite: bool) -> tuple[Place, str]:
        """Where the files go, and a line if that is not where they usually would. `extended` is continued."""

    @abc.abstractmethod
    def tables(self, trajectory: xr.Dataset) -> dict[str, Table]:
        """What the text files have in them, by the names of `Place.tables`."""


@dataclasses.dataclass(frozen=True)
class Names(AbstractNames):
    """The names of what `stepwell train` writes: model, heads, seed, and digits that no other experiment has."""

    experiment: Experiment
    seeds: Sequence[int] | None = None

    def stem(self) -> str:
        model, seeds = self.experiment.model, self.seeds
        heads = f"_h{model['heads']}" if isinstance(model.get("heads"), int) else ""
        seed = f"seed{self.experiment.seed}" if seeds is None else f"seeds{seeds[0]}-{seeds[-1]}"
        return f"{model.kind}{heads}_{seed}_{run_name(self.experiment, seeds)[:8]}"

    def own(self, folder: Path) -> list[Path]:
        return [folder / f"{self.stem()}.nc"]

    def pattern(self) -> str:
        return re.escape(self.stem()[:-8]) + r"[0-9a-f]{8}\.nc"

    def place(self, folder: Path, extended: Path | None, *, overwrite: bool) -> tuple[Place, str]:
        stem = self.stem()
        place = Place(folder, stem, {"losses": folder / f"{stem}.txt"})
        if not overwrite and os.path.lexists(place.trajectory) and held_by(place.trajectory) != self._held():
            raise InvalidInput(
                f"{place.trajectory} is not this run's, or damaged; move it away, give another --out, or --overwrite"
            )
        return place, ""

    def _held(self) -> Held:
        return self.experiment, None if self.seeds is None else list(self.seeds)

    def tables(self, trajectory: xr.Dataset) -> dict[str, Table]:
        columns = {"step": trajectory["step"].values} if "step" in trajectory.dims else {}
        if "time" in trajectory.coords and trajectory["time"].ndim == 1:
            columns["time[t/tau]"] = trajectory["time"].values
        for name in ("loss", IN_WEIGHT, IN_CONTEXT):
            if name in trajectory:
                for seed, curve in zip(trajectory["run"].values, trajectory[name].values, strict=True):
                    columns[name if self.seeds is None else f"{name}[seed={seed}]"] = curve
        if VALUE_WEIGHTS in trajectory:
            for head, curve in enumerate(trajectory[VALUE_WEIGHTS].values[0].T, start=1):
                columns[f"{VALUE_WEIGHTS}[head={head}]"] = curve
        return {"losses": Table(list(columns), np.stack(list(columns.values()), axis=1))}


def run_name(experiment: Experiment, seeds: Sequence[int] | None = None) -> str:
    """The name of an experiment, or of several seeds of it."""
    if seeds is None:
        return experiment.name
    whole = {**experiment.canonical(), "seed": list(seeds)}
    return hashlib.sha256(canonical_text(whole).encode()).hexdigest()[:32]


def held_by(path: Path) -> Held | None:
    """What a trajectory file holds; None if it cannot be read, or is not of an experiment."""
    try:
        return experiment_and_seeds(load(path))
    except (InvalidInput, OSError):
        return None


def find_previous(
    folder: Path, names: AbstractNames, experiment: Experiment, seeds: Sequence[int] | None
) -> Path | None:
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
        if held is not None and held[1] == asked[1] and is_beginning(held[0], experiment):
            steps[path] = last_step(load(path))
    return max(steps, key=lambda path: steps[path], default=None)


def stored_run(path: Path) -> xr.Dataset:
    """The trajectory in a file, verified, of a run that can be continued or is complete."""
    stored = load(path, unverified=False)
    experiment_and_seeds(stored)
    if stored.attrs["outcome"] not in (*DONE, "interrupted"):
        raise InvalidInput(f"{path} ended as {stored.attrs['outcome']!r} and cannot be resumed; leave out --resume")
    return stored
