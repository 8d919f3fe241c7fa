"""Whose a checkpoint is, what is wrong with a file, and what a run does when it cannot save."""

import contextlib
import errno
import functools
import hashlib
import json
import random
import resource
import struct
import warnings
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import optax
import pytest

from stepwell._util.errors import AnotherRun, InvalidInput
from stepwell.dynamics import Checkpoint, Ensemble, Record, _checkpoint, descend, flow, online
from stepwell.dynamics._checkpoint_format import Contents, pack, unpack
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression

KEY = jax.random.key(0)
TASK = InContextRegression(np.diag([0.6, 0.4]), 6)
OTHER_TASK = InContextRegression(np.diag([0.6, 0.4]), 7)


def model(seed=0):
    return SeparateAttention.random(dim=2, heads=2, scale=0.3, key=jax.random.key(seed))


def scaled(factor):
    return lambda model: factor * model.value


DESCENT = functools.partial(descend, model(), Population(TASK), rate=0.1, steps=20)
OBSERVED = functools.partial(DESCENT, record=Record(observe={"scaled": scaled(2)}))
ADAM = functools.partial(descend, model(), Population(TASK), optimizer=optax.adam(1e-2), steps=20)
FLOW = functools.partial(flow, model(), Population(TASK), until=2.0, record=Record(points=5))
ONLINE = functools.partial(online, model(), TASK, batch_size=8, rate=0.1, steps=5, key=KEY)

OTHERS = {
    "rate": (DESCENT, {"rate": 0.2}, "rate 0.1 there and 0.2 here"),
    "steps": (DESCENT, {"steps": 21}, "steps 20 there and 21 here"),
    "first step": (DESCENT, {"first_step": 5}, "first step 0 there and 5 here"),
    "records": (DESCENT, {"record": Record(every=2)}, "different recorded steps"),
    "snapshots": (DESCENT, {"record": Record(snapshots=5)}, "different snapshots"),
    "observed": (DESCENT, {"record": Record(observe={"scaled": scaled(2)})}, "different observables"),
    "its value": (OBSERVED, {"record": Record(observe={"scaled": scaled(3)})}, "different observables"),
    "optimizer": (DESCENT, {"rate": None, "optimizer": optax.adam(1e-2)}, "different rate, different optimizer"),
    "its rate": (ADAM, {"optimizer": optax.adam(2e-2)}, "different optimizer"),
    "its kind": (ADAM, {"optimizer": optax.rmsprop(1e-2)}, "different optimizer"),
    "time": (FLOW, {"until": 3.0}, "until 2.0 there and 3.0 here"),
    "points": (FLOW, {"record": Record(points=6)}, "points 5 there and 6 here"),
    "solver": (FLOW, {"solver": "lsoda"}, "different solver"),
    "tolerance": (FLOW, {"rtol": 1e-7}, "rtol 1e-06 there and 1e-07 here"),
    "key": (ONLINE, {"key": jax.random.key(1)}, "different key"),
    "batch": (ONLINE, {"batch_size": 9}, "batch_size 8 there and 9 here"),
}


@pytest.mark.parametrize(("run", "change", "words"), OTHERS.values(), ids=OTHERS)
def test_the_checkpoint_of_another_run_is_refused_and_left_as_it_is(run, change, words, tmp_path):
    path = tmp_path / "run.checkpoint"
    run(checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(AnotherRun) as refusal:
        run(**change, checkpoint=path)
    assert words in str(refusal.value) and "another path" in str(refusal.value) and "\n" not in str(refusal.value)
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["run.checkpoint"]


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (functools.partial(descend, model(1), Population(TASK), rate=0.1, steps=20), "different model"),
        (functools.partial(descend, model(), Population(OTHER_TASK), rate=0.1, steps=20), "different objective"),
        (functools.partial(descend, Ensemble.of([model()]), Population(TASK), rate=0.1, steps=20), "different model"),
        (FLOW, "dynamics descend there and flow here"),
        (ONLINE, "dynamics descend there and online here"),
    ],
)
def test_so_is_one_of_another_model_objective_or_dynamics(run, words, tmp_path):
    DESCENT(checkpoint=tmp_path / "run.checkpoint")
    with pytest.raises(AnotherRun, match=words):
        run(checkpoint=tmp_path / "run.checkpoint")


def test_so_is_one_of_other_versions(tmp_path, monkeypatch):
    DESCENT(checkpoint=tmp_path / "a")
    others = {**_checkpoint.versions(), "jax": "0.0.1"}
    monkeypatch.setattr(_checkpoint, "versions", lambda: others)
    with pytest.raises(AnotherRun, match="version of jax"):
        DESCENT(checkpoint=tmp_path / "a")
    monkeypatch.undo()
    monkeypatch.setattr(_checkpoint, "NUMERICS", 0)
    with pytest.raises(AnotherRun, match="version of the numerics"):
        DESCENT(checkpoint=tmp_path / "a")


def test_what_does_not_change_the_numbers_may_differ(tmp_path):
    path = tmp_path / "run.checkpoint"
    first = DESCENT(checkpoint=path)
    second = DESCENT(checkpoint=path, progress=False, configuration={"note": "again"})
    assert json.loads(second.attrs["configuration"])["note"] == "again"
    np.testing.assert_array_equal(second.loss, first.loss)
    FLOW(checkpoint=tmp_path / "flow")
    observed = FLOW(checkpoint=tmp_path / "flow", record=Record(points=5, observe={"scaled": scaled(2)}))
    np.testing.assert_array_equal(observed["scaled"], 2 * observed["value"])


def test_a_run_continues_on_another_processor_with_a_warning(tmp_path, monkeypatch):
    DESCENT(checkpoint=tmp_path / "a")
    monkeypatch.setattr(_checkpoint, "folder_name", lambda: "xla-another")
    with pytest.warns(RuntimeWarning, match="another processor; the run continues.*last digits"):
        DESCENT(checkpoint=tmp_path / "a")


def test_a_run_that_starts_anew_replaces_a_checkpoint_when_it_saves_its_own(tmp_path, monkeypatch):
    path = tmp_path / "run.checkpoint"
    DESCENT(checkpoint=path)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(_checkpoint.Saves, "save", lambda *_: None)  # as if killed before
        DESCENT(rate=0.2, checkpoint=Checkpoint(path, resume=False))
    assert path.read_bytes() == before
    DESCENT(rate=0.2, checkpoint=Checkpoint(path, resume=False))
    DESCENT(rate=0.2, checkpoint=path)
    with pytest.raises(AnotherRun):
        DESCENT(checkpoint=path)


def test_a_file_that_is_no_checkpoint_is_never_replaced(tmp_path):
    path = tmp_path / "thesis.txt"
    path.write_text("chapter one " * 50)
    for checkpoint in (path, Checkpoint(path, resume=False)):
        with pytest.raises(InvalidInput, match="is not a checkpoint"):
            DESCENT(checkpoint=checkpoint)
    assert path.read_text() == "chapter one " * 50


@pytest.mark.parametrize("another", ["text", "run"])
def test_what_comes_in_its_place_during_a_run_is_left_there(another, tmp_path, monkeypatch):
    path = tmp_path / "run.checkpoint"
    save = _checkpoint.Saves.save

    def late(self, state):
        monkeypatch.setattr(_checkpoint.Saves, "save", save)
        path.write_text("mine") if another == "text" else DESCENT(rate=0.2, checkpoint=path)
        save(self, state)

    monkeypatch.setattr(_checkpoint.Saves, "save", late)
    with pytest.warns(RuntimeWarning, match="another file has come in its place.*the run goes on"):
        DESCENT(checkpoint=path)
    if another == "text":
        assert path.read_text() == "mine"
    else:
        DESCENT(rate=0.2, checkpoint=path)


def test_a_folder_that_cannot_be_written_is_refused_first(tmp_path):
    for path in (tmp_path / "nowhere" / "a", tmp_path):
        with pytest.raises(InvalidInput, match="another path"):
            DESCENT(checkpoint=path)


CONTENTS = Contents(
    b"r" * 32,
    {"digests": {"rate": "ab"}, "texts": {}, "machine": {}},
    {
        "floats": np.array([[1.0, np.nan], [-0.0, np.inf]]),
        "scalar": np.array(3, dtype=np.int32),
        "empty": np.zeros((0, 4), bool),
        "half": jax.numpy.arange(3, dtype="bfloat16"),
        "complex": np.array([1 + 2j]),
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "nested": [{"a": None, "b": 1.5, "c": "text"}, [np.arange(3, dtype=">i4")], True, -7],
    },
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(pack(CONTENTS))
    return path


def test_what_is_read_is_what_was_written(file):
    run, about, state = unpack(file)
    assert (run, about) == CONTENTS[:2]
    for name in ("floats", "scalar", "empty", "half", "complex", "transposed"):
        expected = np.asarray(CONTENTS.state[name])
        assert state[name].dtype == expected.dtype and state[name].shape == expected.shape
        assert state[name].tobytes() == expected.tobytes()
    assert state["nested"][0] == CONTENTS.state["nested"][0] and state["nested"][2:] == [True, -7]
    np.testing.assert_array_equal(state["nested"][1][0], [0, 1, 2])


def _refused(path: Path) -> str:
    with pytest.raises(InvalidInput) as refusal:
        unpack(path)
    message = str(refusal.value)
    assert message.startswith(str(path)) and "remove the file" in message and "\n" not in message
    return message


def test_flipped_bits_are_noticed(file):
    sound = file.read_bytes()
    for place in range(0, len(sound), 2):
        damaged = bytearray(sound)
        damaged[place] ^= 1 << place // 2 % 8
        file.write_bytes(damaged)
        _refused(file)


def test_so_are_missing_and_further_bytes(file):
    sound = file.read_bytes()
    for length in range(0, len(sound), 3):
        file.write_bytes(sound[:length])
        _refused(file)
    file.write_bytes(sound + b"\0")
    _refused(file)


def _forged(body: bytes) -> bytes:
    """A file with a checksum that fits."""
    run = b"r" * 32
    return b"stepwell-check3\n" + run + hashlib.sha256(run + body).digest() + body


def _array(name: str, shape: Any, place: Any = 0) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(1, msgspec.msgpack.encode([name, shape, place]))


@pytest.mark.parametrize(
    "held",
    [
        [{}, _array("object", [1])],
        [{}, _array("float64", [2])],
        [{}, _array("float64", [-2])],
        [{}, _array("float64", [1152921504606846976, 16])],
        [{}, _array("U8", [1])],
        [{}, _array("no type", [1])],
        [{}, _array("float64", [1], 8)],
        [{}, _array("float64", [1], "a")],
        [{}, msgspec.msgpack.Ext(1, b"not an array")],
        [5, {}],
        [{}],
        {"state": {}},
        None,
    ],
)
def test_what_a_forged_file_describes_is_refused(held, file):
    text = msgspec.msgpack.encode(held)
    file.write_bytes(_forged(struct.pack("<Q", len(text)) + text + bytes(8)))
    assert "does not hold what a checkpoint should" in _refused(file)


@pytest.mark.parametrize("body", [b"", struct.pack("<Q", 100_000) + b"\x91" * 100_000, b"not MessagePack"])
def test_what_is_no_messagepack_is_refused(body, file):
    file.write_bytes(_forged(body))
    assert "does not hold what a checkpoint should" in _refused(file)


def test_a_damaged_checkpoint_is_refused_by_a_run(tmp_path):
    path = tmp_path / "a"
    DESCENT(checkpoint=path)
    sound = path.read_bytes()
    for place in random.Random(0).sample(range(len(sound)), 10):
        damaged = bytearray(sound)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(InvalidInput):
            DESCENT(checkpoint=path)
        assert path.read_bytes() == damaged


@contextlib.contextmanager
def full_disk():
    """No file can grow beyond a hundred bytes; not a fixture, as pytest's own report may be a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("run", [DESCENT, FLOW])
def test_a_run_that_cannot_save_warns_once_and_ends_well(run, tmp_path, monkeypatch):
    monkeypatch.setattr(_checkpoint, "_EVERY", 0.0)
    monkeypatch.setattr(_checkpoint, "_SHARE", 0.0)
    path = tmp_path / "run.checkpoint"
    with warnings.catch_warnings(record=True) as caught, full_disk():
        warnings.simplefilter("always")
        found = run(checkpoint=path)
    (warning,) = caught
    assert "cannot be saved (File too large); the run goes on" in str(warning.message)
    assert found.identical(run()) and list(tmp_path.iterdir()) == []


def test_it_saves_again_once_there_is_space(tmp_path, monkeypatch):
    monkeypatch.setattr(_checkpoint, "_EVERY", 0.0)
    monkeypatch.setattr(_checkpoint, "_SHARE", 0.0)
    write, calls = _checkpoint.write_bytes, []

    def at_first_full(path, data):
        calls.append(1)
        if len(calls) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(_checkpoint, "write_bytes", at_first_full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        found = DESCENT(checkpoint=tmp_path / "a")
    monkeypatch.setattr(_checkpoint, "write_bytes", None)
    assert len(calls) > 2 and DESCENT(checkpoint=tmp_path / "a").identical(found)


def test_a_state_that_does_not_fit_in_memory_is_not_saved(tmp_path, monkeypatch):
    from stepwell._util import memory

    def none_left(*_, **__):
        raise memory.WouldNotFit("a checkpoint needs about 9 GiB")

    monkeypatch.setattr("stepwell.dynamics._checkpoint_format.require_memory", none_left)
    with pytest.warns(RuntimeWarning, match="9 GiB.*the run goes on"):
        DESCENT(checkpoint=tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # In seconds: 30, then as long again, then 200 after one that took 2.
        ([0, 0, 0], [30.0, 60.1, 262.1]),
        # A state of 200 MB is taken to need 2 s, and then what it has needed; as large as it is, it is not asked twice.
        ([25_000_000, 25_000_000, 0], [200.0, 230.1, 432.1]),
    ],
)
def test_saves_wait_for_half_a_minute_and_a_hundred_times_as_long_as_they_take(sizes, expected, tmp_path, monkeypatch):
    now, took, times, asked = [0.0], iter((0.1, 2.0, 0.1)), [], []
    monkeypatch.setattr(_checkpoint.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(_checkpoint, "pack", lambda contents: bytes(contents.state["numbers"].nbytes))

    def write(path, data):
        times.append(now[0])
        now[0] += next(took)

    monkeypatch.setattr(_checkpoint, "write_bytes", write)
    saves = _checkpoint.open_saves(tmp_path / "a", {})

    def state():
        asked.append(1)
        return {"numbers": np.broadcast_to(np.zeros(()), sizes[min(len(times), 2)])}

    while len(times) < 3:
        saves.save_if_due(state)
        now[0] += 0.5
    np.testing.assert_allclose(times, expected, atol=1.6)
    assert len(asked) <= 4
