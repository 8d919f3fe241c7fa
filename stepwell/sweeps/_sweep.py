"""Run a study: what the store lacks is computed, shard by shard, and kept."""

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.interrupt import Interruptible, interrupted
from stepwell._util.outcomes import return_or_raise
from stepwell._util.progress import Meter
from stepwell._util.run_names import first_of_each
from stepwell.experiments import Experiment
from stepwell.store import Column, Shard, Store

from ._plan import Block, Program, blocks_of, bytes_of, names_of, programs_of, seconds_of
from ._study import RECORD, Study, short_name

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

Compute = Callable[[Iterable[tuple[Block, int]]], Iterator[Shard]]
"""From pieces of work, each with the size of its program, to shards, one or more of each, in any order."""


class Plan(NamedTuple):
    """The cost of a study, estimated before anything is computed."""

    runs: int
    stored: int  # of which the store has so many
    waiting: int  # of which so many will be computed, within the limits
    programs: int  # to be compiled
    shards: int  # files to be written
    seconds: float
    bytes: int  # on the disk


@dataclasses.dataclass(frozen=True)
class Job:
    """A planned study: all its runs, and the programs that compute those which the store lacks."""

    study: Study
    store: Store
    blocks: list[Block]
    programs: list[Program]
    stored: int
    fresh: bool = False  # whether runs that are stored are replaced

    @property
    def waiting(self) -> int:
        return sum(program.runs for program in self.programs)

    def plan(self) -> Plan:
        """Return the cost of the runs that are computed."""
        seconds = sum(program.runs * seconds_of(program.blocks[0].configuration()) for program in self.programs)
        size = sum(program.runs * bytes_of(program.blocks[0].configuration()) for program in self.programs)
        shards = sum(-(-program.runs // program.size) for program in self.programs)
        compiling = 3.0 * len(self.programs)
        return Plan(self.study.size, self.stored, self.waiting, len(self.programs), shards, seconds + compiling, size)

    def remarks(self) -> list[str]:
        """Return remarks on values of the runs to compute that are allowed but doubtful, each once."""
        return list(dict.fromkeys(line for first in self._first_of_each() for line in first.remarks()))

    def check(self) -> None:
        """Raise what the first run of each program would raise before its first step."""
        for first in self._first_of_each():
            first.check()

    def _first_of_each(self) -> Iterator[Experiment]:
        ours = {f"record.{name}": value for name, value in RECORD.items()}
        for first in (program.blocks[0].configuration() for program in self.programs):
            given = {name: value for name, value in first.items() if name not in ours or ours[name] != value}
            yield Experiment.from_canonical(given)

    def parts(self) -> Iterator[tuple[Block, int]]:
        """Return the blocks of runs that are computed at once, each with the size of its program."""
        for program in self.programs:
            for work in program.parts():
                yield work, program.size


def plan_sweep(
    study: Study, store: Store, *, part: tuple[int, int] | None = None, limit: int | None = None, fresh: bool = False
) -> Job:
    """Return the runs of a study that the store lacks, and the programs that compute them.

    **Arguments:**

    - `study`: the study.
    - `store`: where its runs are stored.
    - `part`: (i, n) takes the i-th of n equal parts of the study, counted from 1; by default all of it.
    - `limit`: no more runs than so many; by default all.
    - `fresh`: whether to compute runs again that the store has.

    **Returns:** the `Job`.

    **Example:**

    >>> experiment = sw.Experiment(task={"dim": 2}, training={"kind": "descent", "steps": 20})
    >>> study = sw.sweeps.Study.of(experiment, {"seed": {"from": 0, "count": 3}})
    >>> job = sw.sweeps.plan_sweep(study, sw.store.Store("runs_1"))
    >>> job.plan().waiting
    3
    """
    blocks = blocks_of(study)
    mine = np.ones(study.size, bool)
    if part is not None:
        number, count = part
        if not 1 <= number <= count:
            raise InvalidInput(f"the part is {number}/{count}; give 1/{count} to {count}/{count}")
        mine = np.arange(study.size) * count // study.size == number - 1
    if limit is not None:
        checks.whole("limit", limit)
    names = names_of(blocks)
    known, asked = store.known(names), mine & first_of_each(names)
    missing = []
    left = min([most for most in (limit, study.limits.runs) if most is not None], default=study.size)
    for block in blocks:
        rows = np.flatnonzero(asked[block.places] & (fresh | ~known[block.places]))[:left]
        left -= rows.size
        if rows.size:
            missing.append(block.take(rows))
    most_bytes = {} if study.limits.gigabytes is None else {"most_bytes": study.limits.gigabytes * 1e9}
    return Job(study, store, blocks, programs_of(missing, **most_bytes), int((known & mine).sum()), fresh)


def compute_in_process(parts: Iterable[tuple[Block, int]]) -> Iterator[Shard]:
    from ._compute import compute  # JAX takes a second to import

    for work, size in parts:
        yield from compute(work, size)


def compute_missing(job: Job, compute: Compute = compute_in_process, *, progress: bool = True) -> tuple[str, str]:
    """Compute what is missing, and store each shard as soon as it is there; the outcome, and a message."""
    deadline = None if job.study.limits.minutes is None else time.monotonic() + 60 * job.study.limits.minutes
    done, total, late = 0, job.waiting, False
    if not total:
        return "finished", ""

    def in_time() -> Iterator[tuple[Block, int]]:
        nonlocal late
        for part in job.parts():
            if late := deadline is not None and time.monotonic() > deadline:
                return
            if signals.pressed:
                raise KeyboardInterrupt
            yield part

    with Meter("sweep", total, shown=progress, steady=True) as meter, Interruptible() as signals:
        meter.update(0, f"0 of {total} runs")
        try:
            for shard in compute(in_time()):
                job.store.add(shard, replace=job.fresh)
                done += len(shard)
                meter.update(done, f"{done} of {total} runs")
                if signals.pressed:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            message = f"{interrupted()}; {done} of {total} runs are in {job.store.path}, the same call resumes it"
            return "interrupted", message
    if late:
        return "out of time", f"the limit of {job.study.limits.minutes:g} minutes came after {done} of {total} runs"
    return "finished", ""


@checked
def sweep(
    study: Experiment | Study | Mapping | str | os.PathLike,
    over: Mapping | None = None,
    *,
    together: Sequence[Mapping] | None = None,
    draws: Mapping | None = None,
    record: Mapping | None = None,
    store: Store | str | os.PathLike | None = None,
    workers: int | None = None,
    client: Any = None,
    limit: int | None = None,
    fresh: bool = False,
    progress: bool = True,
    throw: bool = True,
) -> "xr.Dataset":
    """Train many runs that differ in some fields, and return their scalars. What the store has is not computed again.

    Ctrl-C, SIGTERM, SIGHUP and the study's limit of minutes end it, and the same call resumes it.

    **Arguments:**

    - `study`: the `Experiment`, or its tables as a dictionary; or a `Study`; or the name of a TOML file
      (docs/sweeps.md).
    - `over`: what is varied and crossed, by field, such as `"heads"` or `"model.heads"`: a list of values; `{"from": …,
      "to": …, "count": …, "spacing": "log"}`, a grid; or `{"from": 0, "count": 100}`, integers.
    - `together`: lists of equal length that are varied together, a dictionary for each such axis.
    - `draws`: random draws, as one axis: their `count`, and ranges by field.
    - `record`: `points` of the loss that are stored of each run, `snapshots` of the weights, and what to `measure`; by
      default 65 points and 2 snapshots.
    - `store`: where runs are stored; by default `stepwell-runs`, or what `STEPWELL_STORE` says.
    - `workers`: how many processes compute; by default this one does. It needs Dask (`stepwell[cluster]`).
    - `client`: a `dask.distributed.Client` of a cluster, instead.
    - `limit`: compute no more runs than so many.
    - `fresh`: whether to compute runs again that the store has.
    - `progress`: whether to show a progress bar.
    - `throw`: whether a sweep that ends before it has computed what was asked raises `Interrupted`, or `RunFailed` if
      its time is over; both have as `trajectory` what there is. If not, that is returned.

    **Returns:** a data set of all scalars of each run, such as `final_loss`, with the varied fields as dimensions; not
    a number where a run is not in the store. The attribute `outcome` is "finished", "interrupted" or "out of time". How
    each run ended is its scalar `outcome`: one that diverges is a result, and raises nothing.

    **Example:**

    >>> training = {"kind": "descent", "rate": 0.2, "steps": 500}
    >>> experiment = sw.Experiment(task={"dim": 2}, training=training)
    >>> over = {"scale": [0.1, 0.3], "seed": {"from": 0, "count": 20}}
    >>> result = sw.sweep(experiment, over, store="runs", progress=False)
    >>> dict(result.sizes), result.final_loss.mean("seed", skipna=False).values.round(2).tolist()
    ({'scale': 2, 'seed': 20}, [0.21, 0.09])
    """
    chosen = study_of(study, over, together=together, draws=draws, record=record)
    job = plan_sweep(chosen, store if isinstance(store, Store) else Store(store), limit=limit, fresh=fresh)
    return run_job(job, workers=workers, client=client, progress=progress, throw=throw)


@checked
def run_job(
    job: Job,
    *,
    workers: int | None = None,
    client: Any = None,
    scheduler: str | None = None,
    progress: bool = True,
    throw: bool = True,
) -> "xr.Dataset":
    """Compute the runs of a study that the store lacks, and return its scalars.

    **Arguments:**

    - `job`: the planned study, as `plan_sweep` returns it.
    - `workers`: how many processes compute; by default this one does.
    - `client`: a `dask.distributed.Client` of a cluster, instead.
    - `scheduler`: the address of a scheduler, such as `tcp://10.0.0.1:8786`, instead.
    - `progress`, `throw`: as for `sweep`.

    **Returns:** the data set, as `sweep` returns it.

    **Example:**

    >>> experiment = sw.Experiment(task={"dim": 2}, training={"kind": "descent", "steps": 20})
    >>> study = sw.sweeps.Study.of(experiment, {"seed": {"from": 0, "count": 3}})
    >>> result = sw.sweeps.run_job(sw.sweeps.plan_sweep(study, sw.store.Store("runs_4")), progress=False)
    >>> result.sizes["seed"], result.attrs["outcome"]
    (3, 'finished')
    """
    if workers is None and client is None and scheduler is None:
        return return_or_raise(_result(job, *compute_missing(job, progress=progress)), throw)
    from ._cluster import open_cluster, shards_from

    with open_cluster(workers=workers, client=client, scheduler=scheduler) as cluster:
        ended = compute_missing(job, partial(shards_from, cluster), progress=progress)
    return return_or_raise(_result(job, *ended), throw)


def _result(job: Job, outcome: str, message: str) -> "xr.Dataset":
    """All scalars of the runs of a study that the store has, over the axes of the study."""
    import xarray as xr

    study, store = job.study, job.store
    known, columns = store.lookup(names_of(job.blocks))
    dims = tuple(axis.name for axis in study.axes)
    variables: dict[str, Any] = {
        name: (dims, _placed(known, column).reshape(study.shape), _notes(name)) for name, column in columns.items()
    }
    variables["stored"] = (dims, known.reshape(study.shape), {"long_name": "whether the run is in the store"})
    coordinates: dict[str, Any] = {axis.name: np.arange(len(axis)) for axis in study.axes}
    for axis in study.axes:
        coordinates |= {short_name(field): (axis.name, _labels(values)) for field, values in axis.fields.items()}
    attributes = {"runs": study.size, "stored": int(known.sum()), "store": str(store.path)}
    return xr.Dataset(variables, coordinates, attributes | {"outcome": outcome, "message": message})


def _placed(known: np.ndarray, column: Column) -> np.ndarray:
    """A column at the places of its runs; where there is none, not a number or an empty string."""
    values = column.labels()
    if known.all():
        return values
    made = np.full(known.size, "", values.dtype) if values.dtype.kind == "U" else np.full(known.size, np.nan)
    made[known] = values
    return made


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _labels(values: list[Any]) -> np.ndarray:
    """Values of an axis as a coordinate: numbers and strings as they are, lists as strings."""
    if any(isinstance(value, list | tuple) for value in values):
        return np.array([_text(value) for value in values])
    return np.array(values)


def _notes(name: str) -> dict[str, str]:
    if name.startswith(("drop_", "predicted_", "uncertainty_")):
        return {"units": "t/tau"}
    return {"long_name": "mean squared error"} if name.endswith("_loss") else {}


def table_of(result: "xr.Dataset") -> "pd.DataFrame":
    """Return the result of a study as a table: a row for each stored run, with what is varied and its scalars.

    **Arguments:**

    - `result`: what `sweep` returned.

    **Returns:** a data frame.

    **Example:**

    >>> experiment = sw.Experiment(task={"dim": 2}, training={"kind": "descent", "steps": 20})
    >>> result = sw.sweep(experiment, {"seed": [0, 1]}, store="runs_5", progress=False)
    >>> sw.sweeps.table_of(result)[["seed", "outcome"]].to_dict("records")
    [{'seed': 0, 'outcome': 'finished'}, {'seed': 1, 'outcome': 'finished'}]
    """
    whole = (result if result.sizes else result.expand_dims("run")).to_dataframe().reset_index()
    return whole.loc[whole["stored"].to_numpy(bool)].drop(columns="stored").reset_index(drop=True)


def study_of(study: Any, over: Mapping | None, **parts: Any) -> Study:
    given: dict[str, Any] = {name: value for name, value in parts.items() if value is not None}
    if isinstance(study, Experiment | Mapping):
        return Study.of(study, over or {}, **given)
    if over is not None or given:
        raise InvalidInput("over, together, draws and record are for an experiment; a study has its own")
    return study if isinstance(study, Study) else Study.read(os.fspath(study))
