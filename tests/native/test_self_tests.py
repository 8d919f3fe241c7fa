"""Every kernel's own test in C, for every level of the processor: no JAX computes, and many sizes take no time.

The tests in `tests/native/c` load a library and compare it with plain loops; the same are run by hand on other
processors (see `stepwell/native/README.md`).
"""

import ctypes
import shutil
import subprocess
from pathlib import Path

import jax
import pytest
from native_code import LEVELS

from stepwell.native import _processor
from stepwell.native._compile import compiler, library
from stepwell.native._kernels import KERNELS, SOURCES
from stepwell.native._processor import is_x86

TESTS = Path(__file__).parent / "c"
SHIPPED = tuple(_processor.LEVELS) if is_x86() else ("baseline",)
VECTORS = {"avx512": 64, "avx2": 32, "baseline": 16}
KINDS = [(name, element) for name, elements in KERNELS.items() for element in elements]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory):
    """The compiled test of a kernel, which takes the path of a library."""
    folder, built = tmp_path_factory.mktemp("self_tests"), {}

    def find(name: str, element: str) -> Path:
        if (name, element) not in built:
            path = folder / f"{name}-{element}"
            line = [*compiler(), "-O1", "-std=gnu11", f"-DREAL={element}", "-isystem", jax.ffi.include_dir()]
            subprocess.run([*line, "-o", str(path), str(TESTS / f"{name}.c"), "-ldl", "-lm"], check=True)
            built[name, element] = path
        return built[name, element]

    return find


def run(program: Path, name: str, element: str, level: str) -> None:
    with library(SOURCES / f"{name}.c", element, level) as path:
        done = subprocess.run([program, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("passed\n")


def test_every_kernel_has_one():
    assert {path.stem for path in TESTS.glob("*.c")} == set(KERNELS), "KERNELS and tests/native/c/NAME.c go together"


@pytest.mark.parametrize(("name", "element"), KINDS)
@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_right_at_every_level(name: str, element: str, level: str, program):
    run(program(name, element), name, element, level)


@pytest.mark.parametrize(("name", "element"), KINDS)
def test_every_level_of_a_wheel_is_built(name: str, element: str):
    """Also those that this processor lacks: they are loaded here, and none of their code runs."""
    for level in SHIPPED:
        with library(SOURCES / f"{name}.c", element, level) as path:
            width = ctypes.c_int.in_dll(ctypes.CDLL(str(path)), "vector_bytes").value
        assert width == (VECTORS[level] if is_x86() else 16)


@pytest.mark.optional(installed_by_ci=True)
@pytest.mark.parametrize(("name", "element"), KINDS)
@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_right_with_clang(name: str, element: str, level: str, program, monkeypatch: pytest.MonkeyPatch):
    """Optional, since most machines have one compiler only: Linux GCC, macOS clang."""
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    its_test = program(name, element)
    monkeypatch.setenv("CC", "clang")
    run(its_test, name, element, level)


@pytest.mark.parametrize("text", ["no library", None])
def test_what_is_no_kernel_fails(text: str | None, program, tmp_path: Path):
    """Else a test that loads nothing would pass."""
    path = tmp_path / "library.so"
    if text is not None:
        path.write_text(text)
    done = subprocess.run([program("normals", "double"), path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "usage" in done.stderr
