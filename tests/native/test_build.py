"""Libraries of kernels: what one is named after, what is built anew, what is refused, what is said."""

import ctypes
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from stepwell._util.cache import folder_name
from stepwell._util.errors import InvalidInput
from stepwell.native import KERNELS, _kernels, kernel
from stepwell.native._compile import BuildFailed, library, texts

TEXT = "const int vector_bytes = 64; int answer(void) { return 42; }\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "answer.c"
    path.write_text(TEXT)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / folder_name()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch):
    """No kernel is known yet, and none of what this test finds is remembered."""
    monkeypatch.delenv("STEPWELL_NATIVE_REPORTED", raising=False)
    _kernels.state.cache_clear()
    yield
    _kernels.state.cache_clear()
    os.environ.pop("STEPWELL_NATIVE_REPORTED", None)


def answer(source: Path) -> int:
    with library(source, "double", "baseline") as path:
        return ctypes.CDLL(str(path)).answer()


def test_a_library_is_named_after_all_that_it_includes(tmp_path: Path):
    """Else a change in a header of a header would go unnoticed, and the old library would be taken."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "deep.h").write_text("deep")
    (tmp_path / "one.h").write_text('#include "inner/deep.h"\n#include "of/another/library.h"\n#include <math.h>\none')
    (tmp_path / "unused.h").write_text("unused")
    source = tmp_path / "a.c"
    source.write_text('#include "one.h"\n')
    assert [text.splitlines()[-1] for text in texts(source)] == ['#include "one.h"', "one", "deep"]


def test_built_once_then_kept(source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    assert answer(source) == 42
    kept = sorted(path.suffix for path in folder.iterdir())
    assert kept == [".sha256", ".so"] and all(path.stat().st_mode & 0o077 == 0 for path in folder.glob("*.so"))
    monkeypatch.setattr("stepwell.native._compile.compile_library", lambda *arguments: pytest.fail("compiled again"))
    assert answer(source) == 42


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "no checksum", "another checksum"])
def test_a_damaged_library_is_built_anew_and_never_loaded(damage: str, source: Path, folder: Path):
    """Half a library kills whatever loads it, so each is loaded here only after it was replaced."""
    with library(source, "double", "baseline") as path:
        whole, checksum = path.read_bytes(), path.with_suffix(".sha256")
    place = len(whole) // 2
    damaged = {
        "cut": whole[:place],
        "empty": b"",
        "flipped": whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :],
    }
    if damage in damaged:
        path.write_bytes(damaged[damage])
    elif damage == "no checksum":
        checksum.unlink()
    else:
        checksum.write_text("0" * 64)
    with library(source, "double", "baseline") as again:
        assert again.read_bytes() == whole
    assert answer(source) == 42


def test_what_others_can_write_or_own_is_refused(source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    with library(source, "double", "baseline") as path:
        pass
    path.chmod(0o777)
    with pytest.raises(BuildFailed, match="can be written to by others"):
        answer(source)
    path.chmod(0o700)
    assert answer(source) == 42
    stat = os.stat

    def planted(file, *arguments, **options):
        found = stat(file, *arguments, **options)
        if Path(file) != path:
            return found
        return os.stat_result([*found[:4], found.st_uid + 1, *found[5:]])

    monkeypatch.setattr(os, "stat", planted)
    with pytest.raises(BuildFailed, match="belongs to another user"):
        answer(source)


@pytest.mark.optional
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
@pytest.mark.parametrize("planted", ["library", "checksum", "link to a library"])
def test_what_another_user_planted_is_never_loaded(planted: str, source: Path, folder: Path, tmp_path: Path):
    """Each fits its checksum: whoever can plant one can plant the other."""
    with library(source, "double", "baseline") as path:
        pass
    target = path.with_suffix(".sha256") if planted == "checksum" else path
    if planted == "link to a library":
        elsewhere = path.rename(tmp_path / "elsewhere.so")
        path.symlink_to(elsewhere)
    os.chown(target, 12345, 12345, follow_symlinks=False)
    with pytest.raises(BuildFailed, match="belongs to another user .number 12345.; remove it"):
        answer(source)
    target.unlink()
    assert answer(source) == 42


def test_a_library_is_used_again_where_files_are_made_for_a_group(source: Path, folder: Path):
    """With the mask 002, as many systems have it, its checksum could be written to by others, and it was refused."""
    before = os.umask(0o002)
    try:
        assert answer(source) == answer(source) == 42
    finally:
        os.umask(before)


def test_without_a_cache_what_a_killed_build_left_is_swept(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """But nothing else, whatever its name."""
    monkeypatch.setenv("STEPWELL_CACHE", "off")
    temporary = tmp_path / "temporary"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    ages = {"stepwell-kernel-old": 10_000, "stepwell-kernel-new": 0, "stepwell-kernel-notes": 10_000}
    for name, age in ages.items():
        (temporary / name).mkdir(parents=True)
        (temporary / name / ("notes.txt" if name.endswith("notes") else "answer.so")).write_text("half")
        os.utime(temporary / name, (time.time() - age, time.time() - age))
    assert answer(source) == 42
    assert sorted(path.name for path in temporary.iterdir()) == ["stepwell-kernel-new", "stepwell-kernel-notes"]
    assert (temporary / "stepwell-kernel-notes" / "notes.txt").exists()


def test_without_a_cache_nothing_is_left_behind(source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("STEPWELL_CACHE", "off")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert answer(source) == 42
    assert list(temporary.iterdir()) == []


def test_a_failed_build_is_reported_once_with_the_compilers_words(source: Path, folder: Path, fresh):
    source.write_text("int answer(void) { return forty_two; }\n")
    with pytest.warns(RuntimeWarning, match="(?s)kernel .*answer.c cannot be used.*forty_two.*stepwell doctor"):
        assert kernel(source, "double") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel(source, "float") is None  # also in a process that this one starts: the environment remembers
    assert os.environ["STEPWELL_NATIVE_REPORTED"] == "1"
    assert "forty_two" in _kernels.state(source, "double").reason


def test_no_compiler_at_all_is_no_failure(source: Path, folder: Path, fresh, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    assert kernel(source, "double") is None
    assert "no C compiler" in _kernels.state(source, "double").reason


def test_what_the_variable_may_say(source: Path, folder: Path, fresh, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STEPWELL_NATIVE", "avx3")
    with pytest.raises(InvalidInput, match="'avx3'; it must be on, off or one of avx512, avx2, baseline"):
        kernel("normals", "double")
    monkeypatch.setenv("STEPWELL_NATIVE", "off")
    assert kernel("normals", "double") is None
    _kernels.state.cache_clear()
    monkeypatch.setattr(_kernels, "levels", lambda: ("baseline",))
    monkeypatch.setenv("STEPWELL_NATIVE", "avx512")
    assert kernel("normals", "double") is None
    assert "does not have" in _kernels.state("normals", "double").reason


def test_all_are_built_ahead(tmp_path: Path):
    """And where they cannot be, that is said with the compiler's words, and is no error."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    environment |= {"STEPWELL_CACHE": str(tmp_path), "CC": f"{sys.executable} {tmp_path / 'compiler.py'}"}
    command = [sys.executable, "-m", "stepwell.native"]

    def build() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    (tmp_path / "compiler.py").write_text("import sys; sys.exit('no such vector')")
    done = build()
    assert done.returncode == 0 and done.stderr == ""
    wanted = sum(map(len, KERNELS.values()))
    assert f"{wanted} of {wanted} kernels cannot be built" in done.stdout and "no such vector" in done.stdout
    copy = "import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write('library')"
    (tmp_path / "compiler.py").write_text(copy)
    done = build()
    assert done.returncode == 0 and done.stdout == done.stderr == ""
    built = {path.name.split("-")[0] for path in (tmp_path / folder_name()).glob("*.so")}
    assert built == set(KERNELS) and len(list((tmp_path / folder_name()).glob("*.so"))) == wanted


def test_what_a_killed_build_left_is_swept(source: Path, folder: Path):
    answer(source)
    for name, age in ((".build-old", 10_000), (".build-new", 0)):
        (folder / name).mkdir()
        (folder / name / "half.so").write_text("half")
        os.utime(folder / name, (time.time() - age, time.time() - age))
    source.write_text(TEXT + "/* anew */\n")
    answer(source)
    assert sorted(path.name for path in folder.glob(".build-*")) == [".build-new"]
