"""Compiled programs are freed before they take all memory maps of the process, in sweeps and on the page."""

import gc
import os
import platform
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import stepwell as sw
from stepwell._util import memory
from stepwell.explorer import _engine
from stepwell.explorer._state import State

MAPS = Path("/proc/self/maps")
pytestmark = [
    pytest.mark.optional,
    pytest.mark.skipif(not MAPS.exists(), reason="memory maps are counted on Linux alone"),
]


@pytest.fixture
def frees(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Hardly a map more than now is allowed, and each count is made; the maps before each time that programs go."""
    allowed, made, free = tmp_path / "max_map_count", [], memory.free_programs
    allowed.write_text(f"{2 * (_maps() + 20)}\n")
    monkeypatch.setattr(memory, "_ALLOWED", allowed)
    monkeypatch.setattr(memory, "_EVERY", 0.0)
    monkeypatch.setattr(memory, "_next_count", 0.0)
    monkeypatch.setattr(memory, "free_programs", lambda: (made.append(_maps()), free()))
    return made


def _maps() -> int:
    return MAPS.read_bytes().count(b"\n")


def test_programs_take_maps_and_give_them_back():
    before = _maps()
    programs = [jax.jit(lambda x, n=n: jnp.sin(x) * n) for n in range(30)]
    for size, program in enumerate(programs, start=1):
        program(jnp.ones(size))
    assert _maps() > before + 30
    many = _maps()
    frozen = gc.get_freeze_count() > 0
    memory.free_programs()
    assert _maps() < many - 30
    assert (gc.get_freeze_count() > 0) == frozen


def test_a_sweep_over_many_structures_frees_programs(frees: list[int], tmp_path: Path):
    experiment = sw.Experiment(
        model={"kind": "merged"},
        objective={"kind": "moments", "sequences": 20},
        training={"kind": "descent", "steps": 3},
    )
    result = sw.sweep(experiment, {"dim": [1, 2, 3]}, store=tmp_path / "store", progress=False)
    assert frees
    assert not result.final_loss.isnull().any()


def test_a_page_frees_programs_and_knows_it(frees: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_engine, "_WARM", set())
    states = [State.read({"task.dim": "1", "model.heads": str(heads)})[0] for heads in (1, 2, 3)]
    frozen = gc.get_freeze_count() > 0
    for state in states:
        _engine.warm(state)
    if not frozen:
        gc.unfreeze()
    assert frees
    assert not all(map(_engine.is_warm, states))


@pytest.mark.parametrize("text", [None, "unlimited"])
def test_where_maps_are_not_counted_nothing_is_freed(frees: list[int], tmp_path: Path, text: str | None):
    allowed = tmp_path / "max_map_count"
    allowed.unlink() if text is None else allowed.write_text(text)
    assert not memory.free_programs_if_many()
    assert not frees


def test_maps_are_not_counted_all_the_time(frees: list[int], monkeypatch: pytest.MonkeyPatch):
    memory._ALLOWED.write_text("2")
    assert memory.free_programs_if_many() and len(frees) == 1
    monkeypatch.setattr(memory, "_EVERY", 60.0)
    assert memory.free_programs_if_many()
    assert not memory.free_programs_if_many()


def _resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries give memory back by themselves")
def test_freed_memory_goes_back_to_the_system():
    """Compiled programs are many small pieces, which the C library keeps for itself once they are freed."""
    pieces = [bytes(2000) for _ in range(100_000)]
    above = [bytes(2000) for _ in range(100)]  # what is still used at the end of the heap keeps all before it
    del pieces
    before = _resident()
    memory.free_programs()
    assert above and _resident() < before - 100 * 2**20
