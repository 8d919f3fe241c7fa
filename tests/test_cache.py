"""The folder of compiled programs."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import platformdirs
import pytest

from stepwell._util import cache, process

PROGRAM = """
import stepwell
stepwell.configure()
import jax, numpy as np
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
    """Two processes fill one folder at once; later ones read it, and compile anew what was cut short."""
    together = [start(tmp_path), start(tmp_path)]
    first, second = map(finish, together)
    assert first == second
    (folder,) = tmp_path.iterdir()
    programs = sorted(folder.glob("*-cache"))
    assert len(programs) > 5
    made = {path: path.stat().st_mtime_ns for path in programs}
    for path, kept in zip(programs[:2], (path.stat().st_size // 2 for path in programs), strict=False):
        path.write_bytes(path.read_bytes()[:kept])
    assert finish(start(tmp_path)) == first
    assert sorted(folder.glob("*-cache")) == programs  # and the others were read
    assert all(path.stat().st_mtime_ns == made[path] for path in programs[2:])
    assert finish(start("off")) == first
    assert not Path("off").exists()


def test_a_folder_of_the_users_own_is_left_to_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_set", lambda name, value: pytest.fail(f"{name} is set"))
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "ours"))
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", "theirs")
    process._set_cache(True)
    process._set_cache(False)
    assert jax.config.values["jax_compilation_cache_dir"] == "theirs"
    jax.config.update("jax_compilation_cache_dir", before)


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
        assert cache.cache().folder == str(folder)
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
        assert cache.cache().folder is not None
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        found = cache.cache()
        assert found.folder is None and found.unsafe and "another user" in found.reason

    def test_a_link_is_followed_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """And its end is what is used: the link may be set anew after the check."""
        (tmp_path / "link").symlink_to("real")
        monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "link" / "cache"))
        assert cache.cache().folder == str(tmp_path / "real" / "cache" / cache.folder_name())

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


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "mine"))
    found = cache.cache().folder
    assert found is not None and Path(found).parent == tmp_path / "mine"
    monkeypatch.setenv("STEPWELL_CACHE", "off")
    assert cache.cache().folder is None
    monkeypatch.delenv("STEPWELL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = cache.cache().folder
    assert found is not None and Path(found).parent == tmp_path / "cache" / "stepwell"


def test_a_folder_that_cannot_be_made_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "file"))
    assert cache.cache().folder is None


def test_a_name_that_jax_cannot_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It would fail at the first compiled program, with an error of its own."""
    monkeypatch.setenv("STEPWELL_CACHE", os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    assert cache.cache().folder is None and "not UTF-8" in cache.cache().reason


def test_the_oldest_half_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_MOST", 5)
    folder = Path(str(cache.cache().folder))
    for number in range(6):
        (folder / f"{number}-cache").write_text("")
        os.utime(folder / f"{number}-cache", (1000 + number, 1000 + number))
    cache.cache()
    assert sorted(path.name for path in folder.iterdir()) == ["3-cache", "4-cache", "5-cache"]


def test_no_home_is_no_trouble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """And no folder called `~` is made."""
    monkeypatch.delenv("STEPWELL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    assert cache.cache().folder is None
    assert list(tmp_path.iterdir()) == []


def test_an_older_platformdirs_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("STEPWELL_CACHE", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: Path("~/.cache/stepwell"))
    monkeypatch.chdir(tmp_path)
    assert cache.cache().folder is None
    assert list(tmp_path.iterdir()) == []
