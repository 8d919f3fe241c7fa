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
from distributed import Future, KilledWorker

import stepwell as sw
from stepwell._util.errors import InvalidInput
from stepwell.cli import main
from stepwell.store import Shard, Store
from stepwell.sweeps import Study, plan_sweep, sweep
from stepwell.sweeps._cluster import _ONE_THREAD, Cluster, _translated, open_cluster, shards_from
from stepwell.sweeps._cluster_moments import _packed, _part, _parts
from stepwell.sweeps._compute import compute
from stepwell.sweeps._sweep import compute_missing

ROOT = Path(__file__).parents[2]
RUNS, SHARDS = 160, 10
STUDY = """
[task]
spectrum = "white"
dim = 2
[model]
kind = "merged"
heads = 1
normalization = "none"
[training]
kind = "descent"
steps = 10000
rate = 1e-3
[sweep]
seed = { from = 0, count = 160 }
[record]
points = 3
[limits]
gigabytes = 0.0005
"""
"""Ten shards of some hundredths of a second: enough of them to end a process between two."""

# In a mount namespace of its own, which ends with the process.
_MOUNTED = ["unshare", "-rm"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """What waits for ever is a failure."""

    def give_up(*_: object) -> None:
        raise AssertionError("it does not end")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(150)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all runs, computed in this process."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "study.toml").write_text(STUDY)
    assert complete(folder / "study.toml", folder / "runs") == RUNS
    return folder / "runs"


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


def workers_of(process: int) -> set[int]:
    """The workers that a process started and that live, on Linux."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            worker = b"stepwell.sweeps._worker" in path.with_name("cmdline").read_bytes()
            if int(parent) == process and state != "Z" and worker:
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
            counted.append(len(work))
            yield from compute(work, size)

    assert compute_missing(plan_sweep(Study.read(str(file)), Store(path)), counting, progress=False) == ("finished", "")
    check_whole(path)
    return sum(counted)


# What a cluster computes is what one process computes.


def test_a_sweep_whose_workers_are_all_killed_is_the_sweep_in_one_process(
    cluster: Cluster, file: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing is missing and nothing double, and all may be killed at once."""
    monkeypatch.setattr("stepwell.sweeps._cluster._DEATHS", 0)
    first = cluster.processes

    def killing(parts: Iterable[Any]) -> Iterator[Shard]:
        for number, shard in enumerate(shards_from(cluster, parts)):
            if number == 3:
                for process in first:
                    os.kill(process, signal.SIGKILL)
            yield shard

    job = plan_sweep(Study.read(str(file)), Store(tmp_path))
    assert compute_missing(job, killing, progress=False)[0] == "finished"
    check_whole(tmp_path)
    names = [path.relative_to(alone) for path in files(alone)]
    assert names == [path.relative_to(tmp_path) for path in files(tmp_path)] and len(names) == SHARDS
    a, b = (Store(path).select(variables=["loss"])["loss"].values for path in (alone, tmp_path))
    np.testing.assert_allclose(a, b, rtol=1e-12)
    assert len(cluster.processes) == 2 and not set(first) & set(cluster.processes)


def test_a_client_that_exists_is_used_and_left_open(cluster: Cluster, tmp_path: Path):
    run = sw.Experiment(task={"dim": 2}, training={"kind": "descent", "steps": 10})
    client = cluster._client
    result = sweep(run, {"seed": [0, 1]}, store=tmp_path, client=client, progress=False)
    assert bool(result.stored.all()) and client.status == "running"


def test_workers_have_a_core_each(cluster: Cluster):
    assert list(cluster.map(_threads, [()])) == [{"blas": [1], "pool": 1, "cores": 1, "variables": ["1"]}]
    wait_for(lambda: all(len(os.sched_getaffinity(process)) == 1 for process in cluster.processes), 60)
    taken = set().union(*map(os.sched_getaffinity, cluster.processes))
    assert len(taken) == min(2, len(os.sched_getaffinity(0)))


def _threads() -> dict[str, Any]:
    """How many threads libraries take on a worker, how many cores a task has, and what the environment says."""
    from threadpoolctl import threadpool_info

    from stepwell.native import cores

    return {
        "blas": sorted({library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}),
        "pool": cores(),
        "cores": len(os.sched_getaffinity(0)),
        "variables": sorted({os.environ.get(name, "") for name in _ONE_THREAD}),
    }


def _fail(kind: str) -> None:
    if kind == "memory":
        raise MemoryError
    if kind == "module":
        raise ModuleNotFoundError("no module named xyz")
    if kind == "disk":
        raise OSError(28, "No space left on device", "kernel.so")
    raise InvalidInput("the rate is 3; give less")


@pytest.mark.parametrize(
    "kind,said",
    [
        ("memory", "too little memory"),
        ("module", "xyz.*install"),
        ("disk", "a worker cannot .*No space left"),
        ("ours", "the rate is 3; give less"),
    ],
)
def test_an_error_of_a_worker_is_one_line(cluster: Cluster, kind: str, said: str):
    with pytest.raises(InvalidInput, match=said) as raised:
        list(cluster.map(_fail, [(kind,)]))
    assert "\n" not in str(raised.value)


def test_tasks_that_others_cancel_and_a_connection_that_is_closed_end_with_one_line(cluster: Cluster):
    with open_cluster(scheduler=cluster._client.scheduler.address) as other:
        client = other._client
        with pytest.raises(InvalidInput, match="tasks were cancelled.*the same call resumes it"):
            for _ in other.map(_slow, [(4 * number,) for number in range(12)]):
                client.cancel([Future(key, client) for key in client.futures], force=True)
        client.close()
        with pytest.raises(InvalidInput, match="connection is closed.*the same call resumes it"):
            list(other.map(_slow, [(1,)]))


def test_results_come_in_order_if_that_is_asked_for(cluster: Cluster):
    assert list(cluster.map(_slow, [(number,) for number in range(12)], in_order=True)) == list(range(12))
    assert sorted(cluster.map(_slow, [(number,) for number in range(12)])) == list(range(12))


def _slow(number: int) -> int:
    time.sleep(0.2 * (number % 4 == 0))
    return number


# Moments.

TASKS = {
    "lengths": lambda: sw.InContextRegression(np.diag([0.6, 0.4]), sw.tasks.ContextLengths([2, 5]), noise_variance=0.1),
    "corrected": lambda: sw.InContextRegression(np.diag([0.6, 0.4]), 5, centered=True, whitened=True),
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
    shared = sw.sweeps.moments(task, n, key=key, client=cluster._client, progress=False)
    for name in ("gram", "cross", "label_power", "_longest"):
        np.testing.assert_allclose(getattr(shared, name), getattr(alone, name), rtol=1e-12, atol=1e-14)
    again = sw.sweeps.moments(task, n, key=key, client=cluster._client, progress=False)
    assert np.array_equal(again.gram, shared.gram)


def test_moments_with_a_worker_that_is_killed(cluster: Cluster):
    task, key, n = TASKS["corrected"](), jax.random.key(3), 40 * 2048
    cluster.check()
    before = cluster.processes
    options = {"features": "full", "normalization": "1/N", "attends_query": True}
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


def test_after_an_error_signals_are_handled_as_before(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    def failing(parts: Iterator[Any]) -> None:
        next(parts)
        raise MemoryError

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(sw.Moments, "of_parts", failing)
    with pytest.raises(MemoryError) as kept:
        sw.sweeps.moments(TASKS["lengths"](), 5000, key=jax.random.key(0), client=cluster._client, progress=False)
    assert kept.tb is not None and signal.getsignal(signal.SIGINT) is before


def test_moments_of_a_task_that_numbers_its_sequences_itself_are_refused():
    class Own(sw.tasks.AbstractTask):
        context: sw.tasks.ContextLengths = sw.tasks.ContextLengths(3)
        dim: int = 2
        outputs: int = 1

        def draw(self, size: int, *, key: Any) -> Any: ...

        def blocks(self, n: int, **_: Any) -> Any: ...

    with pytest.raises(InvalidInput, match="Moments.of_task"):
        sw.sweeps.moments(Own(), 10, workers=1, key=jax.random.key(0))


REFUSED = {
    "workers": ({"workers": 0}, "workers is 0"),
    "too many workers": ({"workers": 5000}, "1024 at the most"),
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


def test_workers_that_end_at_once_are_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with open_cluster(workers=2) as opened, pytest.raises(InvalidInput, match="again and again .*status 1"):
        list(opened.map(_fail, [("ours",)]))


def test_a_shard_that_ends_its_worker_every_time_is_given_up():
    worker: Any = None
    assert "several times" in str(_translated(KilledWorker("a shard", worker, 3), of_task=True))


def test_the_scheduler_is_killed(file: Path, tmp_path: Path):
    store, described = tmp_path / "runs", tmp_path / "scheduler.json"
    begin = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    begin += ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(described)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    with contextlib.ExitStack() as stack:
        scheduler = stack.enter_context(_ending(subprocess.Popen(begin, **quiet)))
        address = wait_for(lambda: described.exists() and json.loads(described.read_text() or "{}"))["address"]
        work = [sys.executable, "-m", "stepwell.sweeps._worker", address, str(tmp_path / "scratch"), "-1"]
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
    from stepwell.sweeps._plan import blocks_of, names_of

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
        workers = workers_of(driver.pid)
        assert workers
        driver.kill()
        driver.wait()
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 20)
    assert list(scratch.iterdir()) == []
    stored = int(Store(store).known(_all_names(file)).sum())
    assert 0 < stored < RUNS and complete(file, store) == RUNS - stored


def test_two_drivers_on_one_store(file: Path, tmp_path: Path):
    """Another process, and this one from the first shard on, so that both compute the same."""
    store = tmp_path / "runs"
    with command("sweep", file, "--store", store) as driver:
        wait_for(lambda: files(store))
        assert main(["sweep", str(file), "--store", str(store)]) == 0
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
    "workers, Ctrl-C while they start": (signal.SIGINT, ["--workers", 1], True),
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
        wait_for(lambda: workers_of(process.pid) if early else files(store))
        time.sleep(rng.uniform(0.0, 0.2))
        workers = workers_of(process.pid)
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
    assert early or f"{stored} of {RUNS} runs are in {store}, the same call resumes it" in errors.splitlines()[-1]


# The store, under a sweep.


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_shard_is_named_never_used_and_computed_again(
    file: Path, alone: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
):
    store = shutil.copytree(alone, tmp_path / "runs")
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
    with pytest.warns(RuntimeWarning, match=path.name):
        assert len(Store(store).table()) == RUNS - RUNS // SHARDS
    assert path in Store(store).damaged()
    assert complete(file, store) == RUNS // SHARDS
    assert Store(store).table(columns=["seed", "final_loss"], sort="seed").equals(before)
    assert main(["runs", "verify", "--store", str(store)]) == 0


def test_the_index_is_deleted_under_a_sweep(file: Path, tmp_path: Path):
    store = Store(tmp_path / "runs")

    def deleting(parts: Iterable[Any]) -> Iterator[Shard]:
        for number, (work, size) in enumerate(parts):
            yield from compute(work, size)
            if number % 3 == 1:
                for path in store.path.glob("index.sqlite*"):
                    path.unlink()

    assert compute_missing(plan_sweep(Study.read(str(file)), store), deleting, progress=False)[0] == "finished"
    check_whole(store.path)
    assert complete(file, store.path) == 0


def mounted(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    if shutil.which("unshare") is None or subprocess.run([*_MOUNTED, "true"], capture_output=True).returncode:
        pytest.skip("there are no mount namespaces")
    begin = "import subprocess, sys\nfrom stepwell.cli import main\nfrom stepwell.store import Store\n"
    command = [*_MOUNTED, sys.executable, "-c", begin + code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.optional
def test_a_disk_that_is_full_or_read_only_ends_a_sweep_with_one_line_and_what_is_there_is_of_use(
    file: Path, tmp_path: Path
):
    code = """
place, study = sys.argv[1:]
def mount(*options):
    subprocess.run(["mount", *options, place], check=True)
def sweep(*more):
    status = main(["sweep", study, "--store", place + "/runs", "--json", *more])
    print("ran", status, len(Store(place + "/runs").table()))
mount("-t", "tmpfs", "-o", "size=200k", "none")
sweep()
assert Store(place + "/runs").verify() == []
mount("-o", "remount,ro")
sweep()
sweep("--limit", "1", "--shard", "1/160")
mount("-o", "remount,rw,size=50M")
sweep()
"""
    place = tmp_path / "disk"
    place.mkdir()
    done = mounted(code, place, file)
    assert done.returncode == 0, done.stderr
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("ran ")]
    stored = int(lines[0][1])
    assert lines == [["2", str(stored)], ["2", str(stored)], ["0", str(stored)], ["0", str(RUNS)]]
    assert 0 < stored < RUNS
    full, closed = done.stderr.splitlines()
    assert "No space left" in full and "Read-only" in closed and str(place) in closed
