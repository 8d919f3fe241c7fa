"""The folder of compiled programs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell import _cache

PROGRAM = """
import stepwell, jax, numpy as np
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.dynamics import flow
from stepwell.tasks import InContextRegression
model = SeparateAttention.random(dim=2, heads=2, scale=0.1, key=jax.random.key(0))
run = flow(model, Population(InContextRegression(np.diag([0.7, 0.3]), 10)), until=20.0, save=5, progress=False)
print(run["loss"].values.tolist())
"""


def start(folder: Path | str) -> subprocess.Popen:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"STEPWELL_CACHE": str(folder)}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(run: subprocess.Popen) -> str:
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0 and err == "", err
    return out


def test_shared_filled_damaged_and_off(tmp_path: Path):
    """Two processes fill one folder at once; later ones read it, even where programs in it are cut short."""
    together = [start(tmp_path), start(tmp_path)]
    first, second = map(finish, together)
    assert first == second
    (folder,) = tmp_path.iterdir()
    programs = sorted(path for path in folder.iterdir() if path.name.endswith("-cache"))
    assert len(programs) > 5
    sizes = {path: path.stat().st_size for path in programs}
    for path in programs[::2]:
        path.write_bytes(path.read_bytes()[: sizes[path] // 2])
    assert finish(start(tmp_path)) == first
    assert finish(start("off")) == first
    assert not Path("off").exists()


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "mine"))
    found = _cache.compiled_programs()
    assert found is not None and Path(found).parent == tmp_path / "mine"
    monkeypatch.setenv("STEPWELL_CACHE", "off")
    assert _cache.compiled_programs() is None
    monkeypatch.delenv("STEPWELL_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = _cache.compiled_programs()
    assert found is not None and Path(found).parent == tmp_path / "cache" / "stepwell"


def test_a_folder_that_cannot_be_made_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "file"))
    assert _cache.compiled_programs() is None


def test_the_oldest_half_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
    monkeypatch.setattr(_cache, "_MOST", 5)
    folder = Path(str(_cache.compiled_programs()))
    for number in range(6):
        (folder / f"{number}-cache").write_text("")
        os.utime(folder / f"{number}-cache", (1000 + number, 1000 + number))
    _cache.compiled_programs()
    assert sorted(path.name for path in folder.iterdir()) == ["3-cache", "4-cache", "5-cache"]


def test_no_home_is_no_trouble(monkeypatch: pytest.MonkeyPatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("STEPWELL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(_cache.Path, "home", homeless)
    assert _cache.compiled_programs() is None
