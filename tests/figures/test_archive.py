"""Figures that are done are kept in the store, for reports in other folders."""

import errno
import json
import os
import shutil
import time
import zipfile
from pathlib import Path

import pytest

from stepwell._util.errors import InvalidInput
from stepwell.figures import damaged_figures, remove_old_figures, reproduce

NAME = "linear/fig2"


@pytest.fixture
def first(register, tmp_path):
    """A report of one figure, and the store that has it."""
    register(NAME)
    done = reproduce([NAME], quick=True, out=tmp_path / "report", store=tmp_path / "store")
    assert done.passed
    return tmp_path


@pytest.fixture
def store(first):
    return first / "store"


def again(folder, store, **options):
    """A report of the figure in an empty folder, whether it was taken from the store, and the warnings."""
    skipped, warnings = [], []
    options = {"quick": True, "fresh": False, **options}
    done = reproduce([NAME], out=folder / "other", store=store, skip=skipped.append, warn=warnings.append, **options)
    assert done.passed
    return done, skipped == [NAME], warnings


def test_another_folder_takes_the_figure_from_the_store(first, tmp_path, store):
    done, taken, warnings = again(tmp_path, store)
    assert taken and not warnings
    before = json.loads((first / "report" / "claims.json").read_text())
    assert done.document["claims"] == before["claims"] and done.document["figures"] == before["figures"]
    for folder in ("figures", "data"):
        files = sorted((first / "report" / folder).iterdir())
        assert files
        for file in files:
            assert (tmp_path / "other" / folder / file.name).read_bytes() == file.read_bytes()
    names = ["claims.json", "coverage.html", "data", "documents", "figures", "index.html", "linear-fig2.html"]
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == names


def test_other_settings_and_fresh_make_it(tmp_path, store):
    assert not again(tmp_path, store, quick=False)[1]
    shutil.rmtree(tmp_path / "other")
    assert not again(tmp_path, store, fresh=True)[1]


def archive(store):
    (path,) = (store / "figures").iterdir()
    return path


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def of_another(path):
    """The claims say something else than was asked for."""
    with zipfile.ZipFile(path) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    members["claims.json"] = members["claims.json"].replace(b'"quick": true', b'"quick": false')
    with zipfile.ZipFile(path, "w") as opened:
        for name, content in members.items():
            opened.writestr(name, content)


def with_a_file_elsewhere(path):
    """What would be written outside of the report's folder."""
    with zipfile.ZipFile(path) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    entry = json.loads(members["claims.json"])
    entry["figures"][0]["data"] = ["data/../../outside"]
    members |= {"claims.json": json.dumps(entry).encode(), "data/../../outside": b"x"}
    with zipfile.ZipFile(path, "w") as opened:
        for name, content in members.items():
            opened.writestr(name, content)


def a_name_that_is_none(path):
    """A name that says that it is UTF-8, and is not; both copies of it."""
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr("figures/ä", b"")
    path.write_bytes(path.read_bytes().replace("ä".encode(), b"\xc3\xc3"))


@pytest.mark.parametrize("damage", [flipped, cut, a_name_that_is_none, of_another, with_a_file_elsewhere])
def test_what_is_damaged_is_named_and_made_again(tmp_path, store, damage):
    path = archive(store)
    assert damaged_figures(store) == []
    damage(path)
    assert [one for one, _ in damaged_figures(store)] == (
        [] if damage in (of_another, with_a_file_elsewhere) else [path]
    )
    _, taken, warnings = again(tmp_path, store)
    assert not taken and len(warnings) == 1 and str(path) in warnings[0] and "computed again" in warnings[0]
    assert not (tmp_path / "outside").exists()
    assert damaged_figures(store) == []  # the new one has taken its place


def test_a_file_that_is_being_written_is_no_damage(store):
    (store / "figures" / ".stepwell-01234567-1-01234567.part.zip").write_text("half of it")
    assert damaged_figures(store) == []


def test_a_clock_of_another_time_changes_nothing(register, tmp_path, monkeypatch):
    """An archive has times from 1980 on; a clock that was never set may stand at 1970."""
    register(NAME)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    reproduce([NAME], quick=True, out=tmp_path / "report", store=tmp_path / "store")
    assert again(tmp_path, tmp_path / "store")[1]


def test_figures_of_other_programs_can_be_removed(store):
    kept = archive(store)
    other = kept.with_name("0" * 12 + kept.name[12:])
    shutil.copy(kept, other)
    assert remove_old_figures(store) == [other] and kept.exists()


def test_a_store_that_cannot_be_written_costs_a_warning(register, tmp_path):
    register(NAME)
    (tmp_path / "store").write_text("a file")
    _, taken, warnings = again(tmp_path, tmp_path / "store")
    assert not taken and len(warnings) == 1 and "not in the store" in warnings[0]


def test_a_store_that_is_off_is_none(register, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    register("linear/fig1")
    assert reproduce(["linear/fig1"], out="report", store="off").passed and not Path("off").exists()
    with pytest.raises(InvalidInput, match="name a folder"):
        reproduce([], out="report", store="")


def test_a_full_disk_ends_the_run(tmp_path, store, monkeypatch):
    """The file is one that the store has."""

    def full(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    done = reproduce([NAME], quick=True, out=tmp_path / "other", store=store, fresh=False)
    assert done.problem is not None and "No space left on device" in done.problem
    assert done.page is None and not done.passed and done.document["figures"] == []
