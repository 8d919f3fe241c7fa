"""Figures that are done are kept in the store, for reports in other folders."""

import json
import os
import shutil
import time
import zipfile

import pytest

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
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == [
        "claims.json",
        "data",
        "figures",
        "index.html",
    ]


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


def with_member(name, content=b""):
    def damage(path):
        with zipfile.ZipFile(path, "a") as opened:
            opened.writestr(name, content)

    return damage


def of_another(path):
    """The claims say something else than was asked for."""
    with zipfile.ZipFile(path) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    members["claims.json"] = members["claims.json"].replace(b'"quick": true', b'"quick": false')
    with zipfile.ZipFile(path, "w") as opened:
        for name, content in members.items():
            opened.writestr(name, content)


def a_link(path):
    path.unlink()
    path.symlink_to(path.parents[2] / "outside")


def a_pipe(path):
    """Who opens it waits for a writer."""
    path.unlink()
    os.mkfifo(path)


def a_name_that_is_none(path):
    """A name that says that it is UTF-8, and is not; both copies of it."""
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr("figures/ä", b"")
    path.write_bytes(path.read_bytes().replace("ä".encode(), b"\xc3\xc3"))


def compressed(path):
    """What can be made to take all memory."""
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr("figures/a", b"", zipfile.ZIP_LZMA)


DAMAGES = [flipped, cut, with_member("../outside"), with_member("/tmp/outside"), with_member("figures/a/b")]
DAMAGES += [a_link, a_pipe, a_name_that_is_none, compressed]


@pytest.mark.parametrize("damage", [*DAMAGES, of_another])
def test_what_is_damaged_is_named_and_made_again(tmp_path, store, damage):
    path = archive(store)
    assert damaged_figures(store) == []
    damage(path)
    assert [one for one, _ in damaged_figures(store)] == ([] if damage is of_another else [path])
    _, taken, warnings = again(tmp_path, store)
    assert not taken and len(warnings) == 1 and str(path) in warnings[0] and "computed again" in warnings[0]
    assert not (tmp_path / "outside").exists()
    assert damaged_figures(store) == []  # the new one has taken its place


def test_a_folder_that_is_a_link_is_named_and_nothing_in_it_is_touched(tmp_path, store):
    path = archive(store)
    path = path.rename(path.with_name("0" * 12 + path.name[12:]))
    outside = (store / "figures").rename(tmp_path / "outside")
    (store / "figures").symlink_to(outside)
    assert [one for one, _ in damaged_figures(store)] == [store / "figures"]
    _, taken, warnings = again(tmp_path, store)
    assert not taken and len(warnings) == 1 and "is a link" in warnings[0]
    assert remove_old_figures(store) == [] and [one.name for one in outside.iterdir()] == [path.name]


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
