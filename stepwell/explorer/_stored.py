"""What was computed before: runs of a store, and figures of a reproduction, both given when the page is started."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell._util.store_path import store_path
from stepwell._util.text import shown
from stepwell.experiments import Experiment
from stepwell.store import Store

from ._state import State
from ._view import View, plain, run_view, theory_view

_ROWS = 200  # runs of a listing, at the most
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


class Library:
    """Runs and figures that the page may show; nothing else on the disk can be named: those of the folder of a store
    ("off" for none, None for that of the environment), and of one that `stepwell reproduce --out` wrote."""

    def __init__(self, store: str | None = None, reproduction: str | None = None):
        self.store = None if store_path(store) is None else Store(store)
        self._reproduction = None if reproduction is None else Path(reproduction)

    def runs(self, where: Sequence[str] = (), *, sort: str | None = None, limit: int = 50) -> dict[str, Any]:
        """Runs of the store as `columns`, `rows` (the name first) and `total`, by filters of `stepwell runs ls`."""
        if self.store is None or not self.store.path.is_dir():
            return {"columns": [], "rows": [], "total": 0}
        known = self.store.columns()
        columns = [name for name in _COLUMNS if name in known]
        listing = self.store.listing(list(where), columns=columns, sort=sort, limit=max(1, min(limit, _ROWS)))
        values = {name: plain(column.decoded().tolist()) for name, column in listing.columns.items()}
        rows = [[name, *(values[column][row] for column in columns)] for row, name in enumerate(listing.names)]
        return {"columns": ["name", *columns], "rows": rows, "total": listing.total}

    def run_view(self, name: str) -> View:
        if self.store is None:
            raise InvalidInput(f"{shown(name)} names no run of the store; choose one from the list")
        described = self.store.describe(name)
        configuration = described["configuration"]
        try:
            experiment = Experiment.from_canonical(configuration)
        except InvalidInput as error:  # it says what is lacking to build it
            raise InvalidInput(f"this run cannot be shown: {error}") from None
        made = _view_of(experiment, self.store.select([f"name={described['name']}"]).load())
        about = {"scalars": plain(described["scalars"]), "configuration": plain(configuration)}
        return made | about | {"mode": "stored", "name": described["name"]}

    def figures(self) -> list[dict[str, Any]]:
        """Figures of the reproduction: `name`, `title`, `caption`, the `files` (by ending) and their `claims`."""
        if self._reproduction is None:
            return []
        about, made = _about(self._reproduction / "claims.json"), {}
        for path in sorted((self._reproduction / "figures").glob("*.*")):
            ending = path.suffix.removeprefix(".")
            if ending in _ENDINGS:
                entry = made.setdefault(path.stem, {"name": path.stem, "files": [], **about.get(path.stem, _UNKNOWN)})
                entry["files"].append(ending)
        return list(made.values())

    def figure(self, name: str, ending: str = "svg") -> tuple[str, bytes]:
        for entry in self.figures():
            if self._reproduction is not None and entry["name"] == name and ending in entry["files"]:
                return _ENDINGS[ending], (self._reproduction / "figures" / f"{name}.{ending}").read_bytes()
        raise InvalidInput(f"{shown(name)} names no figure of the reproduction; choose one from the list")

    def view(self, state: State) -> View:
        """The view of a state of the mode "stored": its run; or, without one, lists of what there is."""
        if "run" in state.words:
            return self.run_view(state.words["run"])
        return {"mode": "stored", "runs": self.runs(), "figures": self.figures(), "problems": {}}


def _about(path: Path) -> dict[str, dict[str, Any]]:
    """Titles, captions and claims of figures by the names of files; nothing where `claims.json` cannot be read."""
    try:
        document = json.loads(path.read_text())
        made = {
            one["name"].replace("/", "-"): {"title": one["title"], "caption": one["caption"], "claims": []}
            for one in document["figures"]
        }
        for claim in document["claims"]:
            made[f"{claim['paper']}-{claim['figure']}"]["claims"].append([claim["statement"], claim["passed"]])
        return made
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


_UNKNOWN: dict[str, Any] = {"title": "", "caption": "", "claims": []}


def _view_of(experiment: Experiment, data: Any) -> View:
    from stepwell.trajectory import provenance

    if not np.isfinite(data["loss"].values[0, 0]):
        raise InvalidInput("this run has no finite loss; there is nothing to show")
    built, outcome = experiment.build(), str(np.ravel(data["outcome"].values)[0]) if "outcome" in data.coords else ""
    kept = ("step", "time", "snapshot")
    run = data.drop_vars([name for name in data.coords if name not in kept]).assign_coords(run=[experiment.seed])
    if "point" in run.dims:
        run = _along_time(run)
    if "time" in run:
        units = {"units": experiment.time_scale.unit}
        run = run.assign_coords(time=(run["time"].dims, run["time"].values, units))
    run.attrs = {**provenance({"dynamics": "", "model": built.model}), "outcome": outcome, "message": ""}
    made = run_view(experiment, built, run)
    return made | theory_view(experiment, built, run, made)


def _along_time(run: Any) -> Any:
    """A flow of a sweep that ended when it had converged, whose times are not those of other runs: as a single one."""
    if "snapshot_time" in run:
        run = run.assign_coords(snapshot=run["snapshot_time"].values[0]).drop_vars("snapshot_time")
    return run.assign_coords(time=("point", run["time"].values[0])).swap_dims(point="time")
