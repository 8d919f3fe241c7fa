"""The store of runs: adding shards, asking which runs are there, and listing with a filter, beside a file for each run.

The other side is the loop that one writes first: a JSON file for each run with its configuration and scalars, and a
loop over all of them to find some. Of that side fewer runs are timed, and the time of one is multiplied.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr

from stepwell.store import Shard, Store

from ._row import Row

RUNS = 4000
"""Runs of a shard."""
STEPS = 20
"""Recorded losses of a run."""


def run(quick: bool) -> Iterator[Row]:
    shards, files = (4, 200) if quick else (250, 10_000)
    total = shards * RUNS
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder, "store"))
        written, beyond, names = 0, 0.0, []
        for number in range(shards):
            shard = _shard(number)
            before = time.perf_counter()
            content = shard.to_bytes()
            _write_flushed(Path(folder, "plain"), content)
            alone = time.perf_counter() - before
            before = time.perf_counter()
            store.add(shard)
            beyond += time.perf_counter() - before - alone
            written += len(content)
            names.append(shard.names)
        every = np.concatenate(names)
        loop = _loop(Path(folder, "files"), files)
        yield Row(
            f"adding a shard of {RUNS} runs, beyond making and flushing its bytes",
            max(beyond / shards, 0.0),
            "s",
            most=0.02,
            note=f"{written / shards / 2**20:.1f} MiB each",
        )
        more = _shard(shards)
        add = _best(lambda: store.add(more), 1) / RUNS
        yield Row("adding, a run", add, "s", loop["write"], least_ratio=20, note="a file for each run: JSON, renamed")
        known = _best(lambda: store.known(every), 3)
        yield Row(f"which of {total:,} runs are known", known, "s", most=1.0)
        command = [sys.executable, "-m", "stepwell", "runs", "ls", "--store", str(store.path)]
        command += ["model=separate", "rank=2", "final_loss<0.01", "--limit", "20"]
        listing = _best(lambda: _call(command), 3)
        yield Row(
            f"stepwell runs ls, {total:,} runs, three filters, from a cold process",
            listing,
            "s",
            loop["find"] * total,
            most=2.0,
            note="beside a loop over a file for each run, extrapolated",
        )
        index = store.path / "index.sqlite"
        index.unlink()
        rebuilt = _best(store.rebuild_index, 1)
        yield Row("making the index anew, a run", rebuilt / total, "s")
        yield Row("runs listed a second", total / listing, "")
        chosen = store.listing(["model=separate", "rank=2", "final_loss<0.01"], columns=["seed"])
        losses = [_shard(number).scalars["final_loss"].values for number in range(1, shards + 1, 2)]
        expected = int((np.concatenate(losses) < 0.01).sum())
        yield Row("runs found and not expected", abs(chosen.total - expected), "", most=0, check=True)


def _shard(number: int) -> Shard:
    rng = np.random.default_rng(number)
    loss = rng.uniform(size=(RUNS, STEPS))
    return Shard(
        {
            "model.kind": "separate" if number % 2 else "merged",
            "model.rank": 2,
            "task.eigenvalues": [0.4, 0.3, 0.2, 0.1],
            "training.steps": STEPS,
        },
        {"seed": np.arange(RUNS) + number * RUNS, "model.scale": rng.uniform(size=RUNS)},
        {"final_loss": loss[:, -1], "outcome": rng.choice(["finished", "diverged"], RUNS).tolist()},
        xr.Dataset({"loss": (("run", "step"), loss), "step": np.arange(STEPS)}),
    )


def _loop(folder: Path, files: int) -> dict[str, float]:
    """Seconds a run of a loop with a file for each."""
    folder.mkdir()
    shard = _shard(0)
    begun = time.perf_counter()
    for number in range(files):
        row = number % RUNS
        record = {
            **shard.common,
            **{name: column.value(row) for name, column in (shard.fields | shard.scalars).items()},
            "loss": shard.data["loss"].values[row].tolist(),
        }
        path = folder / f"{number}.json"
        path.with_suffix(".part").write_text(json.dumps(record))
        os.replace(path.with_suffix(".part"), path)
    written = time.perf_counter()
    found = 0
    for path in folder.iterdir():
        record = json.loads(path.read_text())
        found += record["model.kind"] == "separate" and record["model.rank"] == 2 and record["final_loss"] < 0.01
    read = time.perf_counter()
    return {"write": (written - begun) / files, "find": (read - written) / files}


def _write_flushed(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _best(call, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return min(times)


def _call(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, check=True)
