"""A wheel has its kernels inside, and is as fast where there is no compiler."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from stepwell.native import KERNELS

ROOT = Path(__file__).parents[2]

PROGRAM = """
import jax, numpy as np, stepwell
from stepwell import native
assert "site" in stepwell.__file__, stepwell.__file__
for name, element, state in native.states():
    print(name, element, state.kernel is not None, state.reason)
from stepwell.models import MergedAttention
from stepwell.objectives import Sampled
from stepwell.dynamics.fast import FusedSampled, gradient_form
from stepwell.dynamics import descend
from stepwell.tasks import InContextRegression
objective = Sampled(InContextRegression(np.eye(2), 5).sample(10, key=jax.random.key(0)))
model = MergedAttention.random(dim=2, heads=2, scale=.1, activation="softmax", key=jax.random.key(1))
assert isinstance(gradient_form(objective, model), FusedSampled)
fast = descend(model, objective, rate=.1, steps=20, progress=False).loss.values[0]
plain = jax.jit(jax.value_and_grad(lambda w: objective(model.with_weights(w))))
weights = model.weights()
for step in range(20):
    loss, slope = plain(weights)
    assert abs(float(loss) - fast[step]) < 1e-12, (step, float(loss), fast[step])
    weights = {name: weights[name] - .1 * slope[name] for name in weights}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built for the least level alone, which every processor has: the others are compiled in the same way."""
    folder = tmp_path_factory.mktemp("dist")
    environment = {**os.environ, "STEPWELL_SHIP_KERNELS": "1", "STEPWELL_SHIP_LEVELS": "baseline"}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_what_is_inside(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {Path(name).name for name in names if name.endswith(".so")}
    assert shipped == {f"{name}-{element}-baseline.so" for name, each in KERNELS.items() for element in each}
    assert "any" not in wheel.name.split("-")[-1]  # it is for one platform
    assert {"stepwell/native/src/normals.c", "stepwell/native/README.md"} <= set(names)


def test_it_needs_no_compiler(wheel: Path, tmp_path: Path):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_") and key != "CC"}
    empty = tmp_path / "bin"  # a path on which there is no program at all
    empty.mkdir()
    environment |= {"PYTHONPATH": str(site), "PATH": str(empty), "STEPWELL_CACHE": str(tmp_path / "cache")}
    environment |= {"STEPWELL_NATIVE": "baseline"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == sum(map(len, KERNELS.values()))
    assert all(line.endswith("True shipped, for baseline") for line in lines), lines


def test_one_that_does_not_fit_is_not_used(wheel: Path, tmp_path: Path):
    """Such as one made for another version of XLA's interface, or damaged: it is built from source where it can be."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    for path in (site / "stepwell" / "native" / "built").iterdir():
        path.write_bytes(b"not a library")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_") and key != "CC"}
    environment |= {"PYTHONPATH": str(site), "PATH": "", "STEPWELL_CACHE": "off", "STEPWELL_NATIVE": "baseline"}
    text = "from stepwell.native import state; print(state('normals', 'double'))"
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "kernel=None" in done.stdout and "the one shipped does not fit" in done.stdout
    assert "no C compiler" in done.stdout
