"""What was computed before: runs of a store, and figures of a reproduction, both given when the page is started."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell._util.text import shown
from stepwell.experiments import Experiment
from stepwell.store import OFF, VARIABLE, Store

from ._state import State
from ._view import View, plain, run_view, theory_view

_ROWS = 200
"""Runs of a listing, at the most."""
_COLUMNS = (
    "task.kind",
    "model.kind",
    "model.heads",
    "model.rank",
    "model.scale",
    "objective.kind",
    "training.kind",
    "training.rate",
    "training.steps",
    "seed",
    "final_loss",
    "outcome",
)
_ENDINGS = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf", "gif": "image/gif"}
_LONGEST_FILE = 2**25


class Library:
    """Runs and figures that the page may show; nothing else on the disk can be named.

    - `store`: the folder of a store, or None for that of the environment, if it is not off; it need not be there.
    - `reproduction`: the folder that `stepwell reproduce --out` wrote, or None.
    """

    def __init__(self, store: str | None = None, reproduction: str | None = None):
        without = store is None and os.environ.get(VARIABLE) == OFF
        self.store = None if without else Store(store)
        self._figures = None if reproduction is None else Path(reproduction) / "figures"
        self._claims = None if reproduction is None else Path(reproduction) / "claims.json"

    def runs(self, where: Sequence[str] = (), *, sort: str | None = None, limit: int = 50) -> dict[str, Any]:
        """Runs of the store as `columns`, `rows` (the name first) and `total`.

        `where` are filters of `stepwell runs ls`, such as `final_loss<0.3`. `InvalidInput` says what is wrong with one.
        """
        if self.store is None or not self.store.path.is_dir():
            return {"columns": [], "rows": [], "total": 0}
        known = self.store.columns()
        columns = [name for name in _COLUMNS if name in known]
        listing = self.store.listing(list(where), columns=columns, sort=sort, limit=max(1, min(limit, _ROWS)))
        values = {name: plain(column.decoded().tolist()) for name, column in listing.columns.items()}
        rows = [[name, *(values[column][row] for column in columns)] for row, name in enumerate(listing.names)]
        return {"columns": ["name", *columns], "rows": rows, "total": listing.total}

    def run_view(self, name: str) -> View:
        """A run of the store, as the view that a state has."""
        there = self.store is not None and self.store.path.is_dir()
        if not (isinstance(name, str) and name and name.isalnum()) or not there:
            raise InvalidInput(f"{shown(name)} names no run of the store; choose one from the list")
        assert self.store is not None
        described = self.store.describe(name)
        configuration = described["configuration"]
        experiment = _experiment(configuration)
        made = _view_of(experiment, self.store.select([f"name={described['name']}"]).load())
        about = {"scalars": plain(described["scalars"]), "configuration": plain(configuration)}
        return made | about | {"mode": "stored", "name": described["name"]}

    def figures(self) -> list[dict[str, Any]]:
        """Figures of the reproduction: `name`, `title`, `caption`, the `files` (by ending) and their `claims`."""
        if self._figures is None or not self._figures.is_dir():
            return []
        about = self._about()
        made: dict[str, dict[str, Any]] = {}
        for path in sorted(self._figures.iterdir()):
            ending = path.suffix.removeprefix(".")
            if path.is_symlink() or not path.is_file() or ending not in _ENDINGS:
                continue
            entry = made.setdefault(path.stem, {"name": path.stem, "files": [], **about.get(path.stem, _UNKNOWN)})
            entry["files"].append(ending)
        return list(made.values())

    def figure(self, name: str, ending: str = "svg") -> tuple[str, bytes]:
        """Media type and content of a figure that `figures` lists."""
        for entry in self.figures():
            if entry["name"] == name and ending in entry["files"]:
                assert self._figures is not None
                path = self._figures / f"{entry['name']}.{ending}"
                if path.stat().st_size > _LONGEST_FILE:
                    raise InvalidInput(f"the figure {shown(name)} is larger than the page shows")
                return _ENDINGS[ending], path.read_bytes()
        raise InvalidInput(f"{shown(name)} names no figure of the reproduction; choose one from the list")

    def view(self, state: State) -> View:
        """The view of a state of the mode "stored": its run; or, without one, lists of what there is."""
        if "run" in state.words:
            return self.run_view(state.words["run"])
        return {"mode": "stored", "runs": self.runs(), "figures": self.figures(), "problems": {}}

    def _about(self) -> dict[str, dict[str, Any]]:
        """Titles, captions and claims by the names of files; nothing where they cannot be read."""
        assert self._claims is not None
        try:
            if self._claims.stat().st_size > _LONGEST_FILE:
                return {}
            document = json.loads(self._claims.read_text())
            claims: dict[str, list[Any]] = {}
            for claim in document["claims"]:
                stem = f"{claim['paper']}-{claim['figure']}"
                claims.setdefault(stem, []).append([str(claim["statement"]), bool(claim["passed"])])
            return {
                figure["name"].replace("/", "-"): {
                    "title": str(figure["title"]),
                    "caption": str(figure["caption"]),
                    "claims": claims.get(figure["name"].replace("/", "-"), []),
                }
                for figure in document["figures"]
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}


_UNKNOWN: dict[str, Any] = {"title": "", "caption": "", "claims": []}


def _experiment(configuration: dict[str, Any]) -> Experiment:
    """The experiment of a stored run; `InvalidInput` says what is lacking to build it."""
    try:
        return Experiment.from_canonical(configuration)
    except InvalidInput as error:
        raise InvalidInput(f"this run cannot be shown: {error}") from None


def _view_of(experiment: Experiment, data: Any) -> View:
    """The view of a run, from what was recorded of it."""
    from stepwell.experiments import time_scale
    from stepwell.trajectory import provenance

    if not np.isfinite(data["loss"].values[0, 0]):
        raise InvalidInput("this run has no finite loss; there is nothing to show")
    built, outcome = experiment.build(), str(np.ravel(data["outcome"].values)[0]) if "outcome" in data.coords else ""
    kept = ("step", "time", "snapshot")
    run = data.drop_vars([name for name in data.coords if name not in kept]).assign_coords(run=[experiment.seed])
    if "point" in run.dims:
        run = _along_time(run)
    if "time" in run:
        units = {"units": time_scale(experiment.task, experiment.model).unit}
        run = run.assign_coords(time=(run["time"].dims, run["time"].values, units))
    run.attrs = {**provenance({"dynamics": "", "model": built.model}), "outcome": outcome, "message": ""}
    made = run_view(experiment, built, run)
    return made | theory_view(experiment, built, run, made)


def _along_time(run: Any) -> Any:
    """A flow of a sweep that ended when it had converged, whose times are not those of other runs: as a single one."""
    if "snapshot_time" in run:
        run = run.assign_coords(snapshot=run["snapshot_time"].values[0]).drop_vars("snapshot_time")
    return run.assign_coords(time=("point", run["time"].values[0])).swap_dims(point="time")
