"""Sweeps of thousands of runs: in one process and on workers, beside a loop that saves a file for each run.

The study is that of `examples/studies/step_sizes.toml`: 300 steps of merged attention with one head in two dimensions,
at many rates, scales and seeds. Of the loop some runs are timed; of the bookkeeping of other tools some hundred.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import stepwell as sw
from stepwell.store import Shard, Store
from stepwell.sweeps import Study, plan_sweep, sweep
from stepwell.sweeps._cluster import Cluster, open_cluster, shards_from
from stepwell.sweeps._sweep import compute_in_process, compute_missing

from ._row import Row

RUN = sw.Experiment(
    task={"dim": 2, "spectrum": "white", "context": 31},
    model={"kind": "merged", "heads": 1, "normalization": "none"},
    training={"kind": "descent", "steps": 300},
)
RECORD = {"points": 5, "measure": ["regime"]}


def study(rates: int, scales: int, seeds: int) -> Study:
    over = {
        "rate": {"from": 1e-4, "to": 1e-1, "count": rates, "spacing": "log"},
        "scale": {"from": 1e-3, "to": 1.0, "count": scales, "spacing": "log"},
        "seed": {"from": 0, "count": seeds},
    }
    return Study.of(RUN, over, record=RECORD)


def run(quick: bool) -> Iterator[Row]:
    small = study(4, 4, 4) if quick else study(50, 20, 10)
    middle = study(16, 4, 4) if quick else study(64, 64, 16)
    rounds, singles, trials = (1, 3, 10) if quick else (3, 20, 300)
    with tempfile.TemporaryDirectory() as folder:
        new = _stores(Path(folder))
        loop, gap = _loop(Path(folder, "files"), singles)
        _sweep(small, new())  # compiles
        whole, stored = min(_timed_sweep(small, _TimedStore(new().path)) for _ in range(rounds))
        each = whole / small.size
        note = f"a loop over `descend` that saves an .npz for each run, {singles} timed"
        yield Row(f"a sweep of {small.size:,} runs, a run", each, "s", loop, least_ratio=100, note=note)
        yield Row("of which the store takes, as a share", stored / whole, "", most=0.05)
        yield Row("relative difference of losses, sweep and loop", gap, "", most=1e-9, check=True)
        yield from _workers(middle, new, rounds)
        if not quick:
            yield _million(new())
        yield from _bookkeeping(Path(folder), trials)


def _workers(chosen: Study, new: Callable[[], Store], rounds: int) -> Iterator[Row]:
    """One process against one worker and two, each on one core, once all have compiled the program."""
    with contextlib.ExitStack() as stack:
        begun = time.perf_counter()
        one = stack.enter_context(open_cluster(workers=1))
        _sweep(study(2, 2, 2), new(), one)
        started = time.perf_counter() - begun
        two = stack.enter_context(open_cluster(workers=2))
        _sweep(chosen, new(), one)
        _sweep(chosen, new(), two)
        sides = {
            "here": lambda: _on_one_core(lambda: _sweep(chosen, new())),
            "one": lambda: _sweep(chosen, new(), one),
            "two": lambda: _sweep(chosen, new(), two),
        }
        times = _best(sides, rounds)
    runs = f"{chosen.size:,} runs"
    yield Row("starting a worker, until its first shard is kept", started, "s")
    yield Row(f"{runs} on one core, runs a second", chosen.size / times["here"], "")
    yield Row(
        f"{runs} on one worker, time beyond that of one process, as a share", times["one"] / times["here"] - 1, ""
    )
    yield Row(f"{runs} on two workers, runs a second", chosen.size / times["two"], "")
    yield Row("efficiency from one worker to two", times["one"] / times["two"] / 2, "", note="1 is twice as fast")


def _million(store: Store) -> Row:
    chosen = study(400, 250, 10)
    begun = time.perf_counter()
    with open_cluster(workers=2) as cluster:
        _sweep(chosen, store, cluster)
    seconds = time.perf_counter() - begun
    return Row(
        f"{chosen.size:,} runs on two workers, from nothing",
        seconds,
        "s",
        note=f"{chosen.size / seconds:,.0f} runs a second, with the start of the workers",
    )


def _sweep(chosen: Study, store: Store, cluster: Cluster | None = None) -> None:
    compute = compute_in_process if cluster is None else partial(shards_from, cluster)
    assert compute_missing(plan_sweep(chosen, store), compute, progress=False)[0] == "finished"


class _TimedStore(Store):
    """A store that adds up the seconds which a sweep spends in it."""

    seconds = 0.0

    def add(self, shard: Shard, *, replace: bool = False) -> Path:
        return self._timed(lambda one: super(_TimedStore, self).add(one, replace=replace), shard)

    def known(self, names: np.ndarray) -> np.ndarray:
        return self._timed(super().known, names)

    def _timed(self, call: Callable[[Any], Any], argument: Any) -> Any:
        begun = time.perf_counter()
        try:
            return call(argument)
        finally:
            self.seconds += time.perf_counter() - begun


def _timed_sweep(chosen: Study, store: _TimedStore) -> tuple[float, float]:
    """Seconds of a sweep, and of those the seconds spent in the store."""
    begun = time.perf_counter()
    _sweep(chosen, store)
    return time.perf_counter() - begun, store.seconds


def _on_one_core(call: Callable[[], None]) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        call()
    finally:
        os.sched_setaffinity(0, cores)


def _loop(folder: Path, count: int) -> tuple[float, float]:
    """Seconds for a run that is trained alone and saved, and by how much its loss differs from that of a sweep."""
    folder.mkdir()
    base = RUN.replace(model={"scale": 0.1})
    runs = [base.replace(training={"rate": 1e-3 * (1 + n % 3)}, seed=n) for n in range(count + 1)]
    losses, begun = [], 0.0
    for number, experiment in enumerate(runs):
        if number == 1:  # the first compiles
            begun = time.perf_counter()
        _, model, objective = experiment.build()
        rate, steps = experiment.training.rate, experiment.training.steps
        keep: Any = {"record": sw.Record(every=steps // 4, snapshots=2)}
        made = sw.descend(model, objective, rate=rate, steps=steps, progress=False, **keep)
        arrays: Any = {str(name): made[name].values for name in made}
        np.savez(folder / f"{number}.npz", **arrays)
        losses.append(made.loss.values.ravel()[-1])
    seconds = (time.perf_counter() - begun) / count
    together = [{"rate": [one.training.rate for one in runs], "seed": [one.seed for one in runs]}]
    result = sweep(base, together=together, record=RECORD, store=folder / "store", progress=False)
    return seconds, float(np.max(np.abs(result.final_loss.values / np.array(losses) - 1)))


def _bookkeeping(folder: Path, count: int) -> Iterator[Row]:
    """What it takes to note a configuration and its result, durably, with nothing computed."""
    runs = 4096
    values = np.linspace(0.0, 1.0, runs)
    common = {name: value for name, value in RUN.canonical().items() if name not in ("seed", "training.rate")}
    shard = Shard(common, {"seed": np.arange(runs), "training.rate": values}, {"final_loss": values})
    begun = time.perf_counter()
    Store(folder / "books").add(shard)
    ours = (time.perf_counter() - begun) / runs
    for name, note_all in {"Optuna": _optuna, "signac": _signac}.items():
        try:
            begun = note_all(folder, count)
        except ImportError:
            yield Row(
                "noting a run and its result", ours, "s", note=f"{name} is not installed: pip install {name.lower()}"
            )
            continue
        theirs = (time.perf_counter() - begun) / count
        yield Row("noting a run and its result", ours, "s", theirs, note=f"{name}, {count} of them")


def _optuna(folder: Path, count: int) -> float:
    import optuna  # pyright: ignore[reportMissingImports]

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    made = optuna.create_study(storage=f"sqlite:///{folder}/optuna.sqlite")
    begun = time.perf_counter()
    for number in range(count):
        trial = made.ask({"rate": optuna.distributions.FloatDistribution(0.0, 1.0)})
        made.tell(trial, number / count)
    return begun


def _signac(folder: Path, count: int) -> float:
    import signac  # pyright: ignore[reportMissingImports]

    project = signac.init_project(str(folder / "signac"))
    begun = time.perf_counter()
    for number in range(count):
        job = project.open_job({**RUN.canonical(), "seed": number, "training.rate": number / count}).init()
        job.document["final_loss"] = number / count
    return begun


def _stores(folder: Path) -> Callable[[], Store]:
    """Makes an empty store at every call."""
    numbers = iter(range(10**6))
    return lambda: Store(folder / f"store-{next(numbers)}")


def _best(sides: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    from ._timing import interleaved

    return interleaved(sides, rounds=rounds)
