"""A run that was killed and continued is the run that was not, bit for bit; and no other run's checkpoint is taken."""

import contextlib
import functools
import itertools
import random
import signal
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest
import xarray as xr

from stepwell.dynamics import Ensemble, Record, _checkpoint, _host, _loop, descend, flow, online
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import InContextRegression, covariance
from stepwell.trajectory import model_at

KEY = jax.random.key(0)
TASK = InContextRegression(covariance([0.5, 0.3], key=jax.random.key(1)), 10)
POPULATION = Population(TASK)
MOMENTS = Moments.of_task(TASK, 60, key=jax.random.key(2))
SEQUENCES = Sampled(TASK.draw(40, key=jax.random.key(3)))


def separate(seed=0):
    return SeparateAttention.random(dim=2, heads=3, scale=0.2, key=jax.random.key(seed))


def merged(seed=0):
    return MergedAttention.random(dim=2, heads=2, scale=0.2, key=jax.random.key(seed))


def softmax():
    return MergedAttention.random(dim=2, heads=2, scale=0.2, activation="softmax", key=KEY)


def ensemble(make):
    return Ensemble.of([make(seed) for seed in range(3)])


def noisy():
    """An optimizer whose state has a random key."""
    return optax.chain(optax.add_noise(0.01, 0.55, jax.random.key(7)), optax.sgd(0.05))


RUNS = {
    "rate": lambda **how: descend(
        merged(), MOMENTS, rate=0.05, steps=90, record=Record(observe={"exact": POPULATION}), **how
    ),
    "native": lambda **how: descend(separate(), POPULATION, rate=0.05, steps=90, record=Record(every=40), **how),
    "adam": lambda **how: descend(
        separate(), MOMENTS, optimizer=optax.adam(1e-2), steps=90, record=Record(every=7), **how
    ),
    "noise": lambda **how: descend(
        merged(), MOMENTS, optimizer=noisy(), steps=60, record=Record(snapshots=3), first_step=5, **how
    ),
    "ensemble": lambda **how: descend(
        ensemble(merged), MOMENTS, rate=[0.1, 0.05, 0.02], steps=60, record=Record(every=25), **how
    ),
    "softmax": lambda **how: descend(softmax(), SEQUENCES, rate=0.1, steps=40, record=Record(every=15), **how),
    "diverging": lambda **how: descend(
        ensemble(merged), MOMENTS, rate=[0.1, 50.0, 0.1], steps=60, record=Record(every=25), **how
    ),
    "diverging alone": lambda **how: descend(merged(), MOMENTS, rate=50.0, steps=300, record=Record(every=100), **how),
    "online": lambda **how: online(softmax(), TASK, batch_size=8, rate=0.1, steps=40, key=KEY, **how),
    "online adam": lambda **how: online(
        ensemble(separate),
        TASK,
        batch_size=8,
        optimizer=optax.adam(1e-2),
        steps=40,
        record=Record(every=9),
        key=KEY,
        **how,
    ),
    "rodas5p": lambda **how: flow(separate(), POPULATION, solver="rodas5p", record=Record(points=20), **how),
    "rodas5p moments": lambda **how: flow(
        merged(), MOMENTS, solver="rodas5p", until=90.0, record=Record(points=20), rtol=1e-8, **how
    ),
    "rodas5p ensemble": lambda **how: flow(
        ensemble(separate), POPULATION, solver="rodas5p", record=Record(points=20), **how
    ),
    "lsoda": lambda **how: flow(
        merged(), POPULATION, solver="lsoda", record=Record(points=20, observe={"exact": POPULATION}), **how
    ),
    "lsoda softmax": lambda **how: flow(softmax(), SEQUENCES, solver="lsoda", until=30.0, **how),
    "kvaerno5": lambda **how: flow(
        ensemble(separate), POPULATION, solver="kvaerno5", record=Record(points=20), rtol=1e-9, **how
    ),
    "tsit5": lambda **how: flow(
        separate(), POPULATION, solver="tsit5", until=300.0, record=Record(points=20), rtol=1e-12, **how
    ),
}


class Killed(BaseException):
    """In place of a signal: the run ends here and now."""


@pytest.fixture
def cut(monkeypatch):
    """Cut runs into calls of few steps, now more and now fewer."""

    def set_up(seed: int) -> None:
        numbers = random.Random(seed)
        steps = property(lambda self: numbers.randint(1, 23), lambda self, value: None)
        monkeypatch.setattr(_loop.ChunkSize, "steps", steps, raising=False)

    return set_up


def same(one: xr.Dataset, other: xr.Dataset) -> None:
    """Equal in every bit and in every attribute."""
    xr.testing.assert_identical(one, other)
    for name, values in one.variables.items():
        assert values.values.tobytes() == other[name].values.tobytes(), name


@pytest.fixture(autouse=True)
def saved_at_once(monkeypatch):
    """A run saves wherever it can, and advice after a divergence takes no time, on which it would depend."""
    monkeypatch.setattr(_checkpoint, "_EVERY", 0.0)
    monkeypatch.setattr(_checkpoint, "_SHARE", 0.0)
    monkeypatch.setattr(_host, "stable_rate", lambda *_: "lower the rate")


@pytest.mark.parametrize("name", RUNS)
def test_a_run_killed_again_and_again_is_the_run_that_was_not(name, cut, monkeypatch, tmp_path):
    run, path = functools.partial(RUNS[name], throw=False), tmp_path / "run.checkpoint"
    whole = run()
    cut(0)
    same(run(), whole)

    save, kills = _checkpoint.Saves._save, 0
    for attempt in itertools.count():
        cut(attempt)
        left = [attempt % 3 + 1]

        def killing(self, state, wait, left=left):
            save(self, state, wait=wait)
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        monkeypatch.setattr(_checkpoint.Saves, "_save", killing)
        try:
            found = run(checkpoint=path)
            break
        except Killed:
            kills += 1
    assert kills > 2
    same(found, whole)
    monkeypatch.setattr(_checkpoint.Saves, "_save", None)  # it has ended: nothing more is done, and nothing saved
    same(run(checkpoint=path), whole)


@pytest.mark.parametrize("name", ["native", "adam", "diverging", "rodas5p", "lsoda", "tsit5"])
def test_a_run_ended_by_ctrl_c_saves_its_checkpoint(name, cut, monkeypatch, tmp_path):
    run, path = functools.partial(RUNS[name], throw=False), tmp_path / "run.checkpoint"
    whole = run()
    cut(3)
    with monkeypatch.context() as patch:
        calls = itertools.count()

        def pressed(self, state):
            if next(calls) == 2:
                signal.raise_signal(signal.SIGINT)

        patch.setattr(_checkpoint.Saves, "save_if_due", pressed)
        partial = run(checkpoint=path)
    assert partial.attrs["outcome"] == "interrupted"
    axis = "snapshot" if "snapshot" in partial.dims else "time"
    assert 0 < float(partial[axis][-1]) < float(whole[axis][-1])
    same(run(checkpoint=path), whole)


def test_a_run_given_up_as_a_snapshot_is_kept_has_all_of_them_when_it_continues(monkeypatch, tmp_path):
    run, path = (
        functools.partial(descend, merged(), MOMENTS, rate=0.05, steps=60, record=Record(snapshots=4)),
        tmp_path / "run",
    )
    step, calls = _host._Plan.step, itertools.count()

    def given_up(self, now):
        if next(calls) == 1:
            raise KeyboardInterrupt
        return step(self, now)

    whole = run()
    with monkeypatch.context() as patch:
        patch.setattr(_host._Plan, "step", given_up)
        assert run(checkpoint=path, throw=False).attrs["outcome"] == "interrupted"
    same(run(checkpoint=path), whole)


def test_an_interruption_between_two_records_keeps_the_weights_it_came_to(cut, monkeypatch):
    run = functools.partial(descend, objective=MOMENTS, rate=0.05, throw=False)
    whole = run(merged(), steps=90, record=Record(every=45))
    cut(3)
    with monkeypatch.context() as patch:
        calls = itertools.count()
        patch.setattr(
            _checkpoint.Saves, "save_if_due", lambda *_: next(calls) == 2 and signal.raise_signal(signal.SIGINT)
        )
        partial = run(merged(), steps=90, record=Record(every=45))
    start = int(partial.snapshot[-1])
    assert partial.step.values.tolist() == [0] and 0 < start < 45
    rest = run(
        model_at(partial, merged()), steps=90 - start, first_step=start, record=Record(points=[45 - start, 90 - start])
    )
    # The step after a record is another copy of the same instructions in the program, and may round otherwise.
    xr.testing.assert_allclose(rest.isel(step=[1, 2]).loss, whole.isel(step=[1, 2]).loss, rtol=1e-13)


_LONG = """
import sys
import jax, numpy as np, optax
from stepwell.dynamics import Ensemble, Record, _checkpoint, descend, flow
from stepwell.models import MergedAttention
from stepwell.objectives import Moments, Sampled
from stepwell.tasks import InContextRegression, covariance

_checkpoint._EVERY, _checkpoint._SHARE = 0.02, 0.0
task = InContextRegression(covariance([0.5, 0.3], key=jax.random.key(1)), 10)
moments, sequences = Moments.of_task(task, 60, key=jax.random.key(2)), Sampled(task.draw(64, key=jax.random.key(3)))
models = [MergedAttention.random(dim=2, heads=2, scale=0.01, key=jax.random.key(s)) for s in range(3)]
softmax = MergedAttention.random(dim=2, heads=2, scale=0.2, activation="softmax", key=jax.random.key(5))
adam = {"optimizer": optax.adam(1e-4), "steps": 30_000, "record": Record(every=7)}
print("ready", flush=True)
for name, run in {
    "descend": lambda **how: descend(Ensemble.of(models), moments, **adam, **how),
    "flow": lambda **how: flow(softmax, sequences, solver="lsoda", until=100.0, rtol=1e-9, **how),
}.items():
    found = run(progress=False, checkpoint=f"{sys.argv[1]}/{name}")
    np.savez(f"{sys.argv[1]}/{name}.npz", **{str(key): values.values for key, values in found.variables.items()})
"""


def test_killed_by_the_system_at_random_moments(tmp_path):
    """SIGKILL wherever it strikes, also within a save."""
    chance, killed, whole = random.Random(), tmp_path / "killed", tmp_path / "whole"
    for folder, kills in ((whole, 0), (killed, 2)):
        folder.mkdir()
        for remaining in reversed(range(kills + 1)):
            command = [sys.executable, "-c", _LONG, str(folder)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None and process.stdout.readline() == "ready\n"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(0.5, 3.0) if remaining else 300)
                process.kill()
    assert process.returncode == 0
    for name in ("descend.npz", "flow.npz"):
        with np.load(whole / name) as one, np.load(killed / name) as other:
            assert set(one) == set(other)
            for key in one:
                assert one[key].tobytes() == other[key].tobytes(), (name, key)
