"""Every kernel earns its place: what each is good for, with it and without it, and beside what a library does.

For each kernel there are a piece of work that is little else, and a command or figure that a user waits for. Both run
in processes of their own, with the kernel and without it (`STEPWELL_NATIVE_WITHOUT`) in turns, and with all others.
A kernel stays if it makes something that a user waits for at least three times faster: a figure, or training that
lasts as long as asked for. Figures also start, compile and draw, which no kernel changes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stepwell.dynamics import Ensemble, Record, descend, flow, online
from stepwell.models import MergedAttention, MultiHeadAttention, SeparateAttention, SpectralAttention
from stepwell.native import KERNELS
from stepwell.objectives import Population, ReducedSampled, Sampled
from stepwell.tasks import InContextRegression, MultiTaskRegression, covariance

from ._row import Row, Unavailable
from ._timing import best, interleaved

ROOT = Path(__file__).parents[1]
ROUNDS = 2
STEPS = 100
SPECTRUM = [0.4, 0.3, 0.2, 0.1]


class Work(NamedTuple):
    """Something that a kernel does most of."""

    kernel: str
    what: str
    prepare: Callable[[bool], Callable[[], Any]]
    """Given whether it should be quick: what is timed, again and again."""


def softmax(precision: Any) -> Callable[[bool], Callable[[], Any]]:
    def prepare(quick: bool) -> Callable[[], Any]:
        task = InContextRegression(covariance(SPECTRUM), 31)
        objective = Sampled(task.sample(200 if quick else 5000, key=jax.random.key(0)), precision=precision)
        model = MergedAttention.random(dim=4, heads=8, scale=0.3, activation="softmax", key=jax.random.key(1))
        return lambda: descend(model, objective, rate=0.01, steps=STEPS, record=Record(points=2), progress=False)

    return prepare


def reduced(precision: Any) -> Callable[[bool], Callable[[], Any]]:
    def prepare(quick: bool) -> Callable[[], Any]:
        task = MultiTaskRegression((10, 10, 10))
        model = SpectralAttention.balanced(0.004 + 0.004 * np.eye(3), np.full((3, 3), 0.3), task.dims)
        objective = ReducedSampled(task, 64 if quick else 2048, precision=precision, key=jax.random.key(0))
        return lambda: descend(model, objective, rate=0.01, steps=STEPS, record=Record(points=2), progress=False)

    return prepare


def population_runs(heads: int, rank: int, runs: int, scale: float) -> Ensemble:
    keys = jax.random.split(jax.random.key(0), runs)
    dim = heads
    return Ensemble.of([SeparateAttention.random(dim=dim, heads=heads, rank=rank, scale=scale, key=k) for k in keys])


def population(dim: int) -> Population:
    return Population(InContextRegression(covariance([1 / k for k in range(1, dim + 1)]), 31))


def descents(runs: int) -> Callable[[bool], Callable[[], Any]]:
    def prepare(quick: bool) -> Callable[[], Any]:
        models, steps = population_runs(4, 1, 8 if quick else runs, 0.01), 50 if quick else 1000
        models = models if runs > 1 else models.member(0)
        return lambda: descend(models, population(4), rate=0.05, steps=steps, record=Record(points=2), progress=False)

    return prepare


def flows(dim: int, rank: int, runs: int) -> Callable[[bool], Callable[[], Any]]:
    def prepare(quick: bool) -> Callable[[], Any]:
        models = population_runs(dim, rank, 2 if quick else runs, 1e-2)
        models = models if runs > 1 else models.member(0)
        return lambda: flow(models, population(dim), record=Record(points=2), solver="rodas5p", progress=False)

    return prepare


def streamed(batch: int) -> Callable[[bool], Callable[[], Any]]:
    """The training of arXiv 2402.19442, Fig 1: fresh sequences of 100 tokens, d = 30, at every step."""

    def prepare(quick: bool) -> Callable[[], Any]:
        task, outputs = MultiTaskRegression((10, 10, 10)), 3
        model = MultiHeadAttention.random(
            dim=task.dim, outputs=outputs, heads=3, embedding=task.dim, scale=0.1, key=jax.random.key(1)
        )
        options = {"batch_size": 2 if quick else batch, "rate": 1e-3, "steps": STEPS, "record": Record(points=2)}
        return lambda: online(model, task, **options, progress=False, key=jax.random.key(2))

    return prepare


WORK = [
    Work("softmax_loss", f"{STEPS} steps, softmax attnM, 8 heads, P = 5000, float64", softmax("float64")),
    Work("softmax_loss", f"{STEPS} steps, softmax attnM, 8 heads, P = 5000, float32", softmax("float32")),
    Work("reduced_sums", f"{STEPS} steps on 2048 reduced sequences, I = H = 3, L = 100, float64", reduced("float64")),
    Work("reduced_sums", f"{STEPS} steps on 2048 reduced sequences, I = H = 3, L = 100, float32", reduced("float32")),
    Work("population_descent", "1,000 steps of 1,000 runs, D = H = 4", descents(1000)),
    Work("population_descent", "1,000 steps of one run, D = H = 4", descents(1)),
    Work("population_step", "a flow to convergence, D = H = 4, rank 1", flows(4, 1, 1)),
    Work("population_step", "64 flows to convergence, D = H = 4, rank 1", flows(4, 1, 64)),
    Work("population_step", "a flow to convergence, D = H = 8, rank 8", flows(8, 8, 1)),
    Work("population_step_alone", "a flow to convergence, D = H = 8, rank 1", flows(8, 1, 1)),
    Work("population_step_alone", "a flow to convergence, D = H = 8, rank 8", flows(8, 8, 1)),
    Work("normals", f"{STEPS} online steps of 16 sequences, softmax multi-head, d = 30, L = 100", streamed(16)),
    Work("normals", f"{STEPS} online steps of 64 sequences, softmax multi-head, d = 30, L = 100", streamed(64)),
]

COMMANDS: dict[str, list[str]] = {
    "softmax_loss": ["reproduce", "linear/fig5"],
    "reduced_sums": ["reproduce", "softmax/fig1"],
    "population_descent": ["reproduce", "linear/fig12"],
    "population_step": ["reproduce", "linear/fig3"],
    "population_step_alone": ["reproduce", "linear/fig3"],
    "normals": ["reproduce", "softmax/fig1"],
}
"""What a user waits for, for each kernel."""


def run(quick: bool) -> Iterator[Row]:
    if quick:  # a process for each side takes seconds to start: one pair shows that it works
        for work in {work.kernel: work for work in reversed(WORK)}.values():
            yield Row(f"{work.kernel}: {work.what}", best(work.prepare(True), rounds=1, warm=False), "s")
    for number, work in enumerate(WORK[:1] if quick else WORK):
        yield _row(f"{work.kernel}: {work.what}", lambda side, number=number: _work(number, quick, side), work.kernel)
    if not quick:
        yield from libraries()
        for name, command in COMMANDS.items():
            yield _row(f"{name}: stepwell {' '.join(command)}", lambda side, c=command: _command(c, side), name)


def _row(what: str, seconds: Callable[[str], float], kernel: str) -> Row:
    """With the kernel and without it, in turns."""
    found = [(seconds(""), seconds(kernel)) for _ in range(ROUNDS)]
    ours, without = (min(times) for times in zip(*found, strict=True))
    return Row(what, ours, "s", without, note="baseline: the same without this kernel")


def libraries() -> Iterator[Row]:
    """The same by what a library offers."""
    count = 10**6
    rng = np.random.default_rng(0)
    rbg = jax.random.key(0, impl="rbg")
    drawn: dict[str, Callable[[], Any]] = {
        "ours": jax.jit(lambda: _normals((count,))),
        "rbg": jax.jit(lambda: jax.random.normal(rbg, (count,))),
        "NumPy": lambda: rng.standard_normal(count),
    }
    times = interleaved(drawn, rounds=10)
    note = f"JAX's rbg generator, other numbers; NumPy's, on one core, takes {times['NumPy'] / count * 1e9:.2g} ns"
    yield Row("normals: a standard normal", times["ours"] / count, "s", times["rbg"] / count, note=note)


def _normals(shape: tuple[int, ...]) -> Any:
    from stepwell.tasks._random import standard_normals

    return standard_normals(jax.random.key(0), shape)


def _environment(without: str) -> dict[str, str]:
    return {**os.environ, "STEPWELL_NATIVE_WITHOUT": without}


def _work(number: int, quick: bool, without: str) -> float:
    """The best time of a piece of work, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.natives", str(number), *(["--quick"] if quick else [])]
    return float(json.loads(_run(command, without, ROOT)))


def _command(arguments: list[str], without: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        _run([sys.executable, "-m", "stepwell", *arguments, "--out", folder], without, Path(folder))
        return time.perf_counter() - begun


def _run(command: list[str], without: str, folder: Path) -> str:
    environment = _environment(without) | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # 1: a claim does not hold
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise Unavailable(f"`{' '.join(command)}` ended with status {done.returncode} and said: {said[-1]}")
    return done.stdout


if __name__ == "__main__":
    chosen = WORK[int(sys.argv[1])]
    assert chosen.kernel in KERNELS
    call = chosen.prepare("--quick" in sys.argv)
    print(json.dumps(best(call, rounds=1 if "--quick" in sys.argv else 5)))
