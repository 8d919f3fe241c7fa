"""Sweeps on a cluster and their faults, with processes that are really killed: nothing missing, nothing double."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stepwell as sw
from stepwell._errors import InvalidInput
from stepwell.cli import main
from stepwell.runs import Shard, Store, Study, plan_sweep, run_job, sweep
from stepwell.runs._cluster import Cluster, _compute, open_cluster
from stepwell.runs._compute import compute
from stepwell.runs._moments import _packed, _part, _parts

ROOT = Path(__file__).parents[2]
RUNS, SHARDS = 160, 10
STUDY = """
[task]
spectrum = "white"
dim = 2
[model]
model = "attnM"
heads = 1
[training]
engine = "population"
epoch = 10000
lr = 1e-3
[sweep]
seed = { from = 0, count = 160 }
[record]
points = 3
[limits]
gigabytes = 0.0006
"""
"""Ten shards of some hundredths of a second: enough of them to end a process between two."""

# In a mount namespace of its own, which ends with the process.
_MOUNTED = ["unshare", "-rm"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with open_cluster(workers=2) as opened:
        yield opened


@contextlib.contextmanager
def command(*words: object, before: Iterable[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """A command `stepwell`, which is killed at the end of the context if it still runs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "stepwell", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # a group of its own, as in a terminal
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(happened: Callable[[], Any], seconds: float = 120.0) -> Any:
    end = time.monotonic() + seconds
    while not (value := happened()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
    return value


def files(store: Path) -> list[Path]:
    return sorted(path for path in store.glob("shards/*/*.nc") if not path.name.startswith("."))  # being written


def children(process: int) -> set[int]:
    """Processes that this one started and that live, on Linux."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == process and state != "Z":
                found.add(int(path.parent.name))
    return found


def check_whole(path: Path) -> None:
    """All runs are there, once, in files that are whole."""
    store = Store(path)
    assert sorted(store.table(columns=["seed"])["seed"].tolist()) == list(range(RUNS))
    assert sum(len(shard) for shard in map(_names, files(path))) == RUNS
    assert store.verify() == []


def _names(path: Path) -> np.ndarray:
    import h5py

    with h5py.File(path) as content:
        return np.asarray(content["digest"])


def complete(file: Path, path: Path) -> int:
    """Run the study again, in this process: how many runs it had to compute."""
    counted = []

    def counting(parts: Iterable[Any]) -> Iterator[Shard]:
        for work, size in parts:
            counted.append(work.runs)
            yield compute(work, size)

    assert run_job(plan_sweep(Study.read(str(file)), Store(path)), counting, progress=False) == ("finished", "")
    check_whole(path)
    return sum(counted)


# What a cluster computes is what one process computes.


def test_a_sweep_on_workers_is_the_sweep_in_one_process(cluster: Cluster, file: Path, tmp_path: Path):
    alone, shared = Store(tmp_path / "alone"), Store(tmp_path / "shared")
    study = Study.read(str(file))
    run_job(plan_sweep(study, alone), progress=False)
    assert (
        run_job(plan_sweep(study, shared), lambda parts: cluster.map(_compute, parts), progress=False)[0] == "finished"
    )
    check_whole(shared.path)
    names = [path.relative_to(alone.path) for path in files(alone.path)]
    assert names == [path.relative_to(shared.path) for path in files(shared.path)] and len(names) == SHARDS
    a, b = (store.select(variables=["loss"])["loss"].values for store in (alone, shared))
    np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_client_that_exists_is_used_and_left_open(cluster: Cluster, tmp_path: Path):
    run = {"model": "attnM", "heads": 1, "dim": 2, "engine": "population", "epoch": 10}
    client = cluster._client
    result = sweep(run, {"seed": [0, 1]}, store=tmp_path, client=client, progress=False)
    assert bool(result.stored.all()) and client.status == "running"


def test_workers_have_a_core_each_and_leave_no_files(cluster: Cluster):
    threads = [len(os.sched_getaffinity(process)) for process in cluster.processes]
    assert threads == [1, 1]
    assert list(cluster.map(_thread_counts, [()])) == [{"blas": [1], "pool": 1}]


def _thread_counts() -> dict[str, Any]:
    from threadpoolctl import threadpool_info

    from stepwell.native import cores

    libraries = {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
    return {"blas": sorted(libraries), "pool": cores()}


def _fail(kind: str) -> None:
    if kind == "memory":
        raise MemoryError
    if kind == "module":
        raise ModuleNotFoundError("no module named xyz")
    if kind == "ours":
        raise InvalidInput("the rate is 3; give less")
    os._exit(1)


@pytest.mark.parametrize(
    "kind,said", [("memory", "too little memory"), ("module", "xyz.*install"), ("ours", "the rate is 3; give less")]
)
def test_an_error_of_a_worker_is_one_line(cluster: Cluster, kind: str, said: str):
    with pytest.raises(InvalidInput, match=said) as raised:
        list(cluster.map(_fail, [(kind,)]))
    assert "\n" not in str(raised.value)


def test_results_come_in_order_if_that_is_asked_for(cluster: Cluster):
    assert list(cluster.map(_slow, [(number,) for number in range(12)], in_order=True)) == list(range(12))
    assert sorted(cluster.map(_slow, [(number,) for number in range(12)])) == list(range(12))


def _slow(number: int) -> int:
    time.sleep(0.2 * (number % 4 == 0))
    return number


# Moments.

TASKS = {
    "lengths": lambda: sw.InContextRegression(np.diag([0.6, 0.4]), sw.tasks.ContextLengths([2, 5]), noise_variance=0.1),
    "corrected": lambda: sw.InContextRegression(np.diag([0.6, 0.4]), 5, centred=True, whitened=True),
    "own": lambda: sw.tasks.SamplerTask(_sampler),
}


def _sampler(n: int, key: Any) -> Any:
    inputs, vectors = jax.random.split(key)
    x = jax.random.normal(inputs, (n, 6, 2))
    return x, jnp.einsum("sni,si->sn", x, jax.random.normal(vectors, (n, 2)))


@pytest.mark.parametrize("kind", TASKS)
def test_moments_of_parts_on_workers_are_those_of_one_process(cluster: Cluster, kind: str):
    task, key, n = TASKS[kind](), jax.random.key(3), 9 * 2048 + 77
    alone = sw.Moments.of_task(task, n, key=key, progress=False)
    shared = sw.runs.moments(task, n, key=key, client=cluster._client, progress=False)
    for name in ("gram", "cross", "label_power", "_longest"):
        np.testing.assert_allclose(getattr(shared, name), getattr(alone, name), rtol=1e-12, atol=1e-14)
    again = sw.runs.moments(task, n, key=key, client=cluster._client, progress=False)
    assert np.array_equal(again.gram, shared.gram)


def test_moments_with_a_worker_that_is_killed(cluster: Cluster):
    task, key, n = TASKS["corrected"](), jax.random.key(3), 40 * 2048
    cluster.check()
    before = cluster.processes
    options = {"features": "full", "normalisation": "1/N", "attends_query": True}
    correction, parts = task.correction(n, key=key), _parts(task, n)
    assert [number for part in parts for number in part] == list(range(40))
    items = [(task, n, _packed(key), numbers, correction, options) for numbers in parts]

    def killing() -> Iterator[tuple[sw.Moments, int]]:
        for number, made in enumerate(cluster.map(_part, items, in_order=True)):
            if number == 3:
                os.kill(before[0], signal.SIGKILL)
            yield made, len(parts[number]) * 2048

    shared = sw.Moments.of_parts(killing())
    np.testing.assert_allclose(shared.gram, sw.Moments.of_task(task, n, key=key, progress=False).gram, rtol=1e-12)


def test_moments_of_a_task_that_numbers_its_sequences_itself_are_refused():
    class Own(sw.tasks.AbstractTask):
        lengths: sw.tasks.ContextLengths = sw.tasks.ContextLengths(3)
        dim: int = 2
        outputs: int = 1

        def draw(self, size: int, *, key: Any) -> Any: ...

        def blocks(self, n: int, **_: Any) -> Any: ...

    with pytest.raises(InvalidInput, match="Moments.of_task"):
        sw.runs.moments(Own(), 10, workers=1, key=jax.random.key(0))


REFUSED = {
    "workers": ({"workers": 0}, "workers is 0"),
    "two": ({"workers": 1, "scheduler": "tcp://127.0.0.1:1"}, "one of"),
    "no such address": ({"scheduler": "nonsense://x"}, "nonsense"),
    "client": ({"client": "me"}, "Client"),
}


@pytest.mark.parametrize("given,said", REFUSED.values(), ids=REFUSED)
def test_bad_usage_is_one_line(given: dict[str, Any], said: str):
    with pytest.raises(InvalidInput, match=said) as raised, open_cluster(**given):
        pass
    assert "\n" not in str(raised.value)


# Processes that are killed.


def test_killed_workers_are_replaced_and_nothing_is_missing_or_double(cluster: Cluster, file: Path, tmp_path: Path):
    cluster.check()
    first = cluster.processes

    def killing(parts: Iterable[Any]) -> Iterator[Shard]:
        for number, shard in enumerate(cluster.map(_compute, parts)):
            if number in (1, 3):
                os.kill(first[number // 2], signal.SIGKILL)
            yield shard

    assert (
        run_job(plan_sweep(Study.read(str(file)), Store(tmp_path / "runs")), killing, progress=False)[0] == "finished"
    )
    check_whole(tmp_path / "runs")
    assert len(files(tmp_path / "runs")) == SHARDS
    assert not set(first) & set(cluster.processes)


def test_what_ends_its_worker_every_time_is_given_up(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stepwell.runs._cluster._DEATHS", 1)
    with pytest.raises(InvalidInput, match="again and again|several times"):
        list(cluster.map(_fail, [("exit",)]))


def test_the_scheduler_is_killed(file: Path, tmp_path: Path):
    store, described = tmp_path / "runs", tmp_path / "scheduler.json"
    begin = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    begin += ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(described)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    with contextlib.ExitStack() as stack:
        scheduler = stack.enter_context(_ending(subprocess.Popen(begin, **quiet)))
        address = wait_for(lambda: described.exists() and json.loads(described.read_text() or "{}"))["address"]
        work = [sys.executable, "-m", "stepwell.runs._worker", address, str(tmp_path / "scratch"), "-1"]
        stack.enter_context(_ending(subprocess.Popen(work, stdin=subprocess.PIPE, **quiet)))
        driver = stack.enter_context(command("sweep", file, "--store", store, "--scheduler", address, "--json"))
        wait_for(lambda: files(store))
        scheduler.kill()
        _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 2
    assert errors.startswith("stepwell sweep: the scheduler of the cluster is gone") and errors.count("\n") == 1
    stored = int(Store(store).known(_all_names(file)).sum())
    assert 0 < stored < RUNS
    assert complete(file, store) == RUNS - stored


def _all_names(file: Path) -> np.ndarray:
    from stepwell.runs._plan import blocks_of, names_of

    return names_of(blocks_of(Study.read(str(file))))


@contextlib.contextmanager
def _ending(process: subprocess.Popen) -> Iterator[subprocess.Popen]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_driver_is_killed_and_its_workers_end_with_it(file: Path, tmp_path: Path):
    store, scratch = tmp_path / "runs", tmp_path / "scratch"
    scratch.mkdir()
    with command("sweep", file, "--store", store, "--workers", 1, before=["env", f"TMPDIR={scratch}"]) as driver:
        wait_for(lambda: files(store))
        workers = children(driver.pid)
        assert workers
        driver.kill()
        driver.wait()
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 20)
    assert list(scratch.iterdir()) == []
    stored = int(Store(store).known(_all_names(file)).sum())
    assert 0 < stored < RUNS and complete(file, store) == RUNS - stored


def test_three_drivers_on_one_store(file: Path, tmp_path: Path):
    """Two jobs of an array compute a half each, and a third everything."""
    store = tmp_path / "runs"
    words = (["--shard", "1/2"], ["--shard", "2/2"], [])
    with contextlib.ExitStack() as stack:
        drivers = [stack.enter_context(command("sweep", file, "--store", store, *more)) for more in words]
        for driver in drivers:
            _, errors = driver.communicate(timeout=120)
            assert driver.returncode == 0, errors
    check_whole(store)
    assert complete(file, store) == 0


def test_parts_in_stores_of_their_own_are_merged(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for number in (1, 2, 3):
        assert main(["sweep", str(file), "--store", str(tmp_path / str(number)), "--shard", f"{number}/3"]) == 0
    for number in (1, 2, 3, 3):
        assert main(["runs", "merge", str(tmp_path / str(number)), "--store", str(tmp_path / "all")]) == 0
    check_whole(tmp_path / "all")
    assert complete(file, tmp_path / "all") == 0
    capsys.readouterr()


SIGNALS = {
    "alone, Ctrl-C": (signal.SIGINT, [], False),
    "alone, SIGTERM": (signal.SIGTERM, [], False),
    "workers, Ctrl-C while they start": (signal.SIGINT, ["--workers", 1], True),
    "workers, Ctrl-C": (signal.SIGINT, ["--workers", 1], False),
    "workers, SIGTERM": (signal.SIGTERM, ["--workers", 1], False),
}


@pytest.mark.parametrize("number,words,early", SIGNALS.values(), ids=SIGNALS)
def test_interrupted_at_a_random_moment(
    file: Path, tmp_path: Path, number: signal.Signals, words: list[Any], early: bool
):
    rng = np.random.default_rng()
    store, scratch = tmp_path / "runs", tmp_path / "scratch"
    scratch.mkdir()
    with command("sweep", file, "--store", store, *words, before=["env", f"TMPDIR={scratch}"]) as process:
        wait_for(lambda: children(process.pid) if early else files(store))
        time.sleep(rng.uniform(0.0, 0.2))
        workers = children(process.pid)
        assert len(workers) == len(words) // 2
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert "Traceback" not in errors and "distributed" not in errors
    assert "interrupted" in errors.splitlines()[-1]
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 20)
    assert list(scratch.iterdir()) == []
    assert Store(store).verify() == []
    stored = int(Store(store).known(_all_names(file)).sum())
    assert (stored == 0) == early and complete(file, store) == RUNS - stored


# The store, under a sweep.


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_shard_is_named_never_used_and_computed_again(
    file: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
):
    store = tmp_path / "runs"
    assert complete(file, store) == RUNS
    before = Store(store).table(columns=["seed", "final_loss"], sort="seed")
    path = files(store)[3]
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert main(["runs", "verify", "--store", str(store)]) == 1
    assert path.name in capsys.readouterr().out
    assert len(Store(store).table()) == RUNS - RUNS // SHARDS and path in Store(store).damaged()
    assert complete(file, store) == RUNS // SHARDS
    assert Store(store).table(columns=["seed", "final_loss"], sort="seed").equals(before)
    assert main(["runs", "verify", "--store", str(store)]) == 0


def test_the_index_is_deleted_under_a_sweep(file: Path, tmp_path: Path):
    store = Store(tmp_path / "runs")

    def deleting(parts: Iterable[Any]) -> Iterator[Shard]:
        for number, (work, size) in enumerate(parts):
            yield compute(work, size)
            if number % 3 == 1:
                for path in store.path.glob("index.sqlite*"):
                    path.unlink()

    assert run_job(plan_sweep(Study.read(str(file)), store), deleting, progress=False)[0] == "finished"
    check_whole(store.path)
    assert complete(file, store.path) == 0


def mounted(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    if shutil.which("unshare") is None or subprocess.run([*_MOUNTED, "true"], capture_output=True).returncode:
        pytest.skip("there are no mount namespaces")
    begin = "import subprocess, sys\nfrom stepwell.cli import main\nfrom stepwell.runs import Store\n"
    command = [*_MOUNTED, sys.executable, "-c", begin + code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.optional
def test_a_disk_that_fills_up_ends_a_sweep_with_one_line_and_keeps_what_is_there(file: Path, tmp_path: Path):
    code = """
place, study = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", place], check=True)
words = ["sweep", study, "--store", place + "/runs", "--json"]
status = main(words)
store = Store(place + "/runs")
stored = len(store.table())
assert store.verify() == []
subprocess.run(["mount", "-o", "remount,size=50M", place], check=True)
print(status, stored, main(words), len(Store(place + "/runs").table()))
"""
    place = tmp_path / "disk"
    place.mkdir()
    done = mounted(code, place, file)
    assert done.returncode == 0, done.stderr
    status, stored, again, whole = map(int, done.stdout.splitlines()[-1].split())
    assert status == 2 and 0 < stored < RUNS and (again, whole) == (0, RUNS)
    assert done.stderr.count("\n") == 1 and "No space left" in done.stderr


@pytest.mark.optional
def test_a_store_that_cannot_be_written_serves_what_it_has(file: Path, tmp_path: Path):
    code = """
place, study = sys.argv[1:]
subprocess.run(["mount", "--bind", place, place], check=True)
subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
print(main(["sweep", study, "--store", place, "--json", "--shard", "1/2"]))
print(main(["sweep", study, "--store", place, "--json"]))
"""
    store = tmp_path / "runs"
    run_job(plan_sweep(Study.read(str(file)), Store(store), part=(1, 2)), progress=False)
    before = files(store)
    done = mounted(code, store, file)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if not line.startswith("{")] == ["0", "2"]
    assert done.stderr.count("\n") == 1 and "Read-only" in done.stderr and str(store) in done.stderr
    assert files(store) == before
