"""The folder of compiled programs."""

import hashlib
import os
import subprocess
import sys
import zlib
from pathlib import Path

import platformdirs
import pytest

from stepwell._util import cache

PROGRAM = """
import stepwell, jax, numpy as np
from stepwell.tasks import InContextRegression
for dim in range(1, 5):
    print(InContextRegression(np.eye(dim), 10).sample(5, key=jax.random.key(0)).labels.ravel().tolist())
"""


def start(folder: Path | str) -> subprocess.Popen:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"STEPWELL_CACHE": str(folder), "STEPWELL_NATIVE": "off"}  # of kernels other tests take care
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(run: subprocess.Popen) -> str:
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0 and err == "", err
    return out


def test_shared_filled_damaged_and_off(tmp_path: Path):
    """Two processes fill one folder at once; later ones read it, and compile anew what was cut short or changed.

    With the mask 002, as many systems have it, programs could be written to by others and were compiled every time.
    """
    before = os.umask(0o002)
    try:
        together = [start(tmp_path), start(tmp_path)]
        first, second = map(finish, together)
        assert first == second
        (folder,) = tmp_path.iterdir()
        assert all(cache.untrusted(path) is None for path in folder.iterdir())
        programs = sorted(path for path in folder.iterdir() if path.name.endswith("-cache"))
        damaged, whole = programs[:3], {path: path.stat().st_mtime_ns for path in programs[3:]}
        assert len(whole) > 2
        for number, path in enumerate(damaged):
            content, middle = path.read_bytes(), path.stat().st_size // 2
            flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
            path.write_bytes((content[:middle], flipped, b"")[number])
        assert finish(start(tmp_path)) == first
    finally:
        os.umask(before)
    for path in programs:  # what was damaged has been replaced
        body, digest = path.read_bytes()[:-32], path.read_bytes()[-32:]
        assert hashlib.sha256(body).digest() == digest
    assert whole == {path: path.stat().st_mtime_ns for path in whole}  # and the rest was read
    assert sorted(folder.glob("*-cache")) == programs
    assert finish(start("off")) == first
    assert not Path("off").exists()


def test_a_folder_of_the_users_own_is_left_to_jax(tmp_path: Path):
    """Other programs may share it, and know nothing of our digests."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    environment["STEPWELL_NATIVE"] = "off"
    text = PROGRAM.replace("import stepwell, jax", "import jax, stepwell")
    subprocess.run([sys.executable, "-c", text], env=environment, check=True, capture_output=True, timeout=120)
    entries = list(tmp_path.glob("*-cache"))
    assert entries
    for entry in entries:
        rest = zlib.decompressobj()
        rest.decompress(entry.read_bytes())
        assert rest.eof and rest.unused_data == b""


class TestWhoseItIs:
    """What lies in the folder is run, so nobody else may have put it there."""

    def test_made_for_the_owner_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "mine"))
        before = os.umask(0)
        try:
            found = cache.cache()
        finally:
            os.umask(before)
        assert found.folder is not None and not found.unsafe
        for path in (Path(found.folder), tmp_path / "mine"):
            assert path.stat().st_mode & 0o777 == 0o700

    def test_an_older_folder_that_others_can_read_is_closed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
        folder = tmp_path / cache.folder_name()
        folder.mkdir(mode=0o755)
        assert cache.compiled_programs() == str(folder)
        assert folder.stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
    def test_writable_by_others(self, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
        folder = tmp_path / cache.folder_name()
        folder.mkdir()
        folder.chmod(mode)
        found = cache.cache()
        assert found.folder is None and found.unsafe
        assert str(folder) in found.reason and "by others" in found.reason and "STEPWELL_CACHE" in found.reason

    def test_somebody_elses(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
        assert cache.compiled_programs() is not None
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        found = cache.cache()
        assert found.folder is None and found.unsafe and "another user" in found.reason

    def test_a_parent_in_which_others_could_exchange_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """Unless the sticky bit keeps them from it, as in the system's temporary folder."""
        parent = tmp_path / "shared"
        parent.mkdir()
        monkeypatch.setenv("STEPWELL_CACHE", str(parent))
        parent.chmod(0o777)
        assert cache.cache().unsafe
        parent.chmod(0o1777)
        assert cache.compiled_programs() is not None

    def test_a_folder_further_up_in_which_others_could_exchange_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        shared = tmp_path / "shared"
        shared.mkdir()
        monkeypatch.setenv("STEPWELL_CACHE", str(shared / "mine" / "cache"))
        shared.chmod(0o777)
        status = cache.cache()
        assert status.unsafe and f"{shared} can be written to by others" in status.reason
        shared.chmod(0o1777)
        assert cache.compiled_programs() is not None

    def test_a_link_is_followed_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """And its end is what is used: else it could be set anew after the check."""
        (tmp_path / "link").symlink_to("real")
        monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "link" / "cache"))
        assert cache.compiled_programs() == str(tmp_path / "real" / "cache" / cache.folder_name())

    def test_it_is_said_once_and_the_run_goes_on(self, tmp_path: Path):
        folder = tmp_path / cache.folder_name()
        folder.mkdir()
        folder.chmod(0o777)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
        environment |= {"STEPWELL_CACHE": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0 and done.stdout.startswith("[")
        assert done.stderr.count("the cache folder is not used") == 1
        assert list(folder.iterdir()) == []


@pytest.mark.optional
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
class TestAnotherUser:
    """What a real other user leaves in a folder that two share."""

    OTHER = 12345

    def leave(self, path: Path) -> None:
        os.chown(path, self.OTHER, self.OTHER, follow_symlinks=False)

    def test_a_folder_made_beforehand(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """In a sticky folder, as the system's temporary one, they can be first."""
        tmp_path.chmod(0o1777)
        monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
        folder = tmp_path / cache.folder_name()
        folder.mkdir(mode=0o700)
        self.leave(folder)
        status = cache.cache()
        assert status.folder is None and status.unsafe and f"another user (number {self.OTHER})" in status.reason
        assert folder.stat().st_mode & 0o777 == 0o700 and list(folder.iterdir()) == []

    def test_a_link_to_a_folder_of_the_owners(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """Else the modes of that folder would be changed, and its oldest files removed if there are many."""
        tmp_path.chmod(0o1777)
        monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
        mine = tmp_path / "mine"
        mine.mkdir(mode=0o755)
        link = tmp_path / cache.folder_name()
        link.symlink_to(mine)
        self.leave(link)
        status = cache.cache()
        assert status.folder is None and status.unsafe and "another user" in status.reason
        assert mine.stat().st_mode & 0o777 == 0o755

    def test_a_parent_of_theirs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        for mode in (0o755, 0o1777):  # its owner can rename what is in a sticky folder
            parent = tmp_path / f"theirs-{mode:o}"
            parent.mkdir()
            parent.chmod(mode)
            self.leave(parent)
            monkeypatch.setenv("STEPWELL_CACHE", str(parent))
            assert cache.cache().unsafe

    def test_a_program(self, tmp_path: Path):
        """It would be run. It is replaced, and so is one that others can write to."""
        assert finish(start(tmp_path)) == finish(start(tmp_path))
        (folder,) = tmp_path.iterdir()
        programs = sorted(folder.glob("*-cache"))
        made = {path: path.stat().st_mtime_ns for path in programs}
        self.leave(programs[0])
        programs[1].chmod(0o666)
        finish(start(tmp_path))
        for number, path in enumerate(programs):
            assert path.stat().st_uid == os.geteuid() and path.stat().st_mode & 0o777 == 0o600
            assert (path.stat().st_mtime_ns == made[path]) == (number > 1)


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "mine"))
    found = cache.compiled_programs()
    assert found is not None and Path(found).parent == tmp_path / "mine"
    monkeypatch.setenv("STEPWELL_CACHE", "off")
    assert cache.compiled_programs() is None
    monkeypatch.delenv("STEPWELL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = cache.compiled_programs()
    assert found is not None and Path(found).parent == tmp_path / "cache" / "stepwell"


def test_a_folder_that_cannot_be_made_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "file"))
    assert cache.compiled_programs() is None


def test_a_name_that_jax_cannot_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It would fail at the first compiled program, with an error of its own."""
    monkeypatch.setenv("STEPWELL_CACHE", os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    assert cache.compiled_programs() is None and "not UTF-8" in cache.cache().reason


def test_the_oldest_half_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_MOST", 5)
    folder = Path(str(cache.compiled_programs()))
    for number in range(6):
        (folder / f"{number}-cache").write_text("")
        os.utime(folder / f"{number}-cache", (1000 + number, 1000 + number))
    cache.compiled_programs()
    assert sorted(path.name for path in folder.iterdir()) == ["3-cache", "4-cache", "5-cache"]


def test_no_home_is_no_trouble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """And no folder called `~` is made."""
    monkeypatch.delenv("STEPWELL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    assert cache.compiled_programs() is None
    assert list(tmp_path.iterdir()) == []


def test_an_older_platformdirs_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("STEPWELL_CACHE", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: Path("~/.cache/stepwell"))
    monkeypatch.chdir(tmp_path)
    assert cache.compiled_programs() is None
    assert list(tmp_path.iterdir()) == []
