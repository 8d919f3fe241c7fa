"""Reports that are in the folder already, ours or anybody's."""

import copy
import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from stepwell.figures import reproduce
from stepwell.figures._documents import documents


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "claims.json").read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("made") / "report"


@pytest.fixture
def report(register, made: Path, tmp_path: Path) -> Path:
    """A folder with the report of one of two figures."""
    register("linear/fig1")
    register("linear/fig2")
    if not made.exists():
        reproduce(["linear/fig1"], out=made)
    return Path(shutil.copytree(made, tmp_path / "report"))


def run(folder: Path) -> tuple[list[str], list[str]]:
    """The figures that the report has after the second is made, and the messages."""
    messages: list[str] = []
    done = reproduce(["linear/fig2"], out=folder, warn=messages.append)
    assert done.passed and done.document == read(folder)
    return [entry["name"] for entry in done.document["figures"]], messages


def test_an_earlier_report_is_kept_as_it_is(report: Path):
    before = read(report)
    assert run(report) == (["linear/fig1", "linear/fig2"], [])
    after = read(report)
    assert after["figures"][0] == before["figures"][0] and after["claims"][0] == before["claims"][0]
    assert list(after["figures"][0]) == list(before["figures"][0])
    assert list(after["claims"][0]) == list(before["claims"][0])
    pages = {"coverage.html", "documents", "index.html", "linear-fig1.html", "linear-fig2.html"}
    assert {path.name for path in report.iterdir()} == pages | {"claims.json", "data", "figures"}


def test_a_figure_whose_files_were_removed_is_left_out(report: Path):
    (report / "figures/linear-fig1.svg").unlink()
    assert run(report) == (["linear/fig2"], [])


def test_data_that_were_removed_are_no_longer_listed(report: Path):
    (report / "data/linear-fig1-curve.nc").unlink()
    assert run(report) == (["linear/fig1", "linear/fig2"], [])
    assert read(report)["figures"][0]["data"] == []


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"figures": 3, "claims": []}',
        b'{"figures": [3], "claims": []}',
        b'{"figures": [{"name": "linear/fig2"}], "claims": []}',
        b'{"figures": [], "claims": [], "seconds": NaN}',
        b"[" * 100_000,
    ],
)
def test_what_is_not_a_report_is_kept_under_another_name(register, tmp_path: Path, text: bytes):
    register("linear/fig2")
    for name in ("claims.json.unreadable", "claims.json.unreadable-2"):
        (tmp_path / "claims.json").write_bytes(text)
        messages: list[str] = []
        reproduce([], out=tmp_path, warn=messages.append)
        (message,) = messages
        assert message.endswith(f"The file is kept as {name}") and read(tmp_path)["figures"] == []
        assert "\n" not in message and len(message) < 500
        assert (tmp_path / name).read_bytes() == text


@pytest.mark.parametrize("kind", ["folder", "pipe", "dangling link"])
def test_what_is_not_even_a_file(register, tmp_path: Path, kind: str):
    register("linear/fig2")
    path = tmp_path / "claims.json"
    {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "dangling link": lambda: path.symlink_to("nothing")}[kind]()
    figures, (message,) = run(tmp_path)
    assert figures == ["linear/fig2"] and "kept as claims.json.unreadable" in message


HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'


def entry_with(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["figures"][0].update(fields)


def claim_with(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["claims"][0].update(fields)


@pytest.mark.parametrize(
    "change",
    [
        entry_with(files={"svg": "../secret.svg"}),
        entry_with(files={"svg": "figures/../../secret.svg"}),
        entry_with(files={"svg": "/etc/passwd"}),
        entry_with(files=["figures/linear-fig1.svg"]),
        entry_with(data=["data/linear-fig1-../../secret.nc"]),
        entry_with(data=[3]),
        entry_with(name="linear/fig99"),
        entry_with(title=3),
        entry_with(status="perhaps"),
        entry_with(quick="yes"),
        entry_with(seconds=-1),
        entry_with(settings=[]),
        claim_with(new=1),
        lambda document: document["claims"][0].pop("basis"),
    ],
)
def test_a_field_that_is_not_as_it_should_be(report: Path, change: Callable[[dict[str, Any]], None]):
    document = copy.deepcopy(read(report))
    change(document)
    (report / "claims.json").write_text(json.dumps(document))
    messages: list[str] = []
    reproduce([], out=report, warn=messages.append)
    (message,) = messages
    assert read(report)["figures"] == read(report)["claims"] == []
    assert "is left out" in message and "kept as claims.json.unreadable" in message
    assert message.isprintable() and len(message) < 500
    assert json.loads((report / "claims.json.unreadable").read_text()) == document
    assert "linear/fig1" not in (report / "index.html").read_text()


def test_a_small_picture_that_is_damaged_costs_nothing_else(report: Path):
    (report / "figures/linear-fig1.png").write_bytes(b"")
    assert run(report) == (["linear/fig1", "linear/fig2"], [])


def test_one_bad_figure_does_not_cost_the_others(register, report: Path):
    register("linear/fig3")
    run(report)
    document = read(report)
    document["figures"][0]["title"] = 3
    (report / "claims.json").write_text(json.dumps(document))
    messages: list[str] = []
    done = reproduce(["linear/fig3"], out=report, warn=messages.append)
    assert [entry["name"] for entry in done.document["figures"]] == ["linear/fig2", "linear/fig3"]
    assert len(messages) == 1 and "'linear/fig1' is left out (Expected `str`, got `int` - at `$.title`)" in messages[0]


class _Elements(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def test_whatever_a_text_says_it_is_text_in_the_page(report: Path):
    """Every field that may hold any text holds markup here."""
    document = read(report)
    document["figures"][0].update(
        title=HOSTILE, caption=HOSTILE, settings={HOSTILE: HOSTILE, "list": [HOSTILE, {HOSTILE: 1}]}
    )
    document["claims"][0].update(statement=HOSTILE, basis=HOSTILE)
    document["versions"] = {HOSTILE: HOSTILE}
    document["seconds"] = HOSTILE
    (report / "claims.json").write_text(json.dumps(document))
    names, count = ("index.html", "linear-fig1.html"), 0
    plain = {name: _Elements((report / name).read_text()) for name in names}
    assert run(report)[0] == ["linear/fig1", "linear/fig2"]
    for name in names:
        text = (report / name).read_text()
        page, count = _Elements(text), count + text.count("&lt;script&gt;")
        assert page.tags == plain[name].tags and not re.search("<script", text)
        assert {key for key, _ in page.attributes} == {key for key, _ in plain[name].attributes}
        for value in (value for key, value in page.attributes if key in ("href", "src")):
            assert re.match(r"data:image/|(figures|data|documents)/|[\w.-]+\.(html|json)(#|$)|#", value)
    assert count >= 9


def test_two_runs_into_one_folder_do_not_lose_each_others_figures(register, tmp_path: Path):
    """The second run begins and ends while the first is at work."""
    register("linear/fig1", simulate=lambda: reproduce(["linear/fig2"], out=tmp_path))
    register("linear/fig2")
    done = reproduce(["linear/fig1"], out=tmp_path)
    assert [entry["name"] for entry in done.document["figures"]] == ["linear/fig1", "linear/fig2"]
    assert done.document == read(tmp_path)


def test_no_two_runs_rewrite_a_report_at_once(register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Or one would lose what the other wrote after it had been read."""
    tried = []

    def attempt(folder: Path, *arguments: Any) -> Any:
        handle = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
        tried.append(folder)
        return {}

    for step in ("earlier", "write_text"):
        monkeypatch.setattr(f"stepwell.figures._reproduce.{step}", attempt)
    reproduce([], out=tmp_path)
    assert [path.name for path in tried[1:]] == [
        "claims.json",
        *(Path(name).name for name in documents()),
        "coverage.html",
        "index.html",
    ]
