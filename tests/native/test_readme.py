"""The example of the README works, and its table is that of the kernels."""

import re
import shutil
import subprocess
from pathlib import Path

import jax
import pytest

from stepwell.native import KERNELS, _kernels, levels
from stepwell.native._compile import compiler, library

README = (_kernels.SOURCES.parent / "README.md").read_text()
C_TESTS = Path(__file__).parent / "c"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The sources with the example among them, as long as the test lasts."""
    folder = tmp_path / "src"
    shutil.copytree(_kernels.SOURCES, folder)
    (folder / "sum_of_squares.c").write_text(blocks("c")[0])
    monkeypatch.setattr(_kernels, "SOURCES", folder)
    yield folder
    _kernels.state.cache_clear()


@pytest.mark.parametrize("element", ["double", "float"])
def test_its_kernel_passes_its_test_in_c(sources: Path, tmp_path: Path, element: str):
    (tmp_path / "test.c").write_text(blocks("c")[1])
    line = [*compiler(), "-O1", "-std=gnu11", f"-DREAL={element}", "-isystem", jax.ffi.include_dir(), f"-I{C_TESTS}"]
    subprocess.run([*line, "-o", tmp_path / "test", tmp_path / "test.c", "-ldl", "-lm"], check=True)
    with library(sources / "sum_of_squares.c", element, levels()[0]) as path:
        done = subprocess.run([tmp_path / "test", path], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("sum_of_squares") and done.stdout.endswith("passed\n"), done.stdout + done.stderr


def test_its_kernel_is_called_from_python(sources: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("STEPWELL_NATIVE", raising=False)
    _kernels.state.cache_clear()
    exec(compile(blocks("python")[0], "README.md", "exec"), {})
    assert _kernels.state("sum_of_squares", "double").kernel is not None


def test_its_table_lists_every_kernel():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", README, re.MULTILINE))
    wanted = {name: ", ".join(elements) for name, elements in KERNELS.items()}
    assert rows == wanted, "every kernel of KERNELS has a row in stepwell/native/README.md, with its element types"
