"""The runner and its report, on figures made for the purpose."""

import errno
import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

from stepwell._util.errors import InvalidInput
from stepwell.figures import Known, Origin, Reproduction, Seeds, add_figure, number, reproduce
from stepwell.figures._documents import documents


def read(folder: Path) -> dict:
    return json.loads((folder / "claims.json").read_text())


def _html(done: Reproduction, name: str = "linear-fig1.html") -> str:
    """A page of the report: that of a figure, if no other is named."""
    assert done.page is not None
    return (done.page.parent / name).read_text(encoding="utf-8")


def test_the_files_of_a_figure(register, tmp_path: Path):
    register("linear/fig1")
    done = reproduce(["linear/fig1"], out=tmp_path)
    assert done.passed and not done.interrupted and done.problem is None
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    figures = {f"figures/linear-fig1.{ending}" for ending in ("svg", "pdf", "png")}
    pages = {"linear-fig1.html", "coverage.html", "index.html", *documents()}
    assert made == figures | pages | {"data/linear-fig1-curve.nc", "claims.json"}
    assert read(tmp_path) == done.document
    assert set(done.document) == {"claims", "figures", "seconds", "versions", "made"}
    claim = done.document["claims"][0]
    assert {"id", "paper", "figure", "statement", "predicted", "measured", "tolerance", "passed"} <= set(claim)
    assert (claim["id"], claim["paper"], claim["figure"]) == ("linear/fig1/one", "linear", "fig1") and claim["passed"]
    assert xr.load_dataset(tmp_path / "data/linear-fig1-curve.nc", engine="h5netcdf")["loss"].values.tolist() == [
        1,
        0.5,
    ]


def test_further_files_go_beside_the_figure_and_a_film_into_the_page(register, tmp_path: Path):
    seen = []

    def extras(data, settings):
        seen.append(list(data))
        return {"gif": lambda path: Path(path).write_bytes(b"film"), "txt": lambda path: Path(path).write_text("words")}

    register("linear/fig1", extras=extras)
    done = reproduce(["linear/fig1"], out=tmp_path)
    assert done.passed and seen == [["curve"]]
    assert (tmp_path / "figures/linear-fig1.gif").read_bytes() == b"film"
    assert (tmp_path / "figures/linear-fig1.txt").read_text() == "words"
    assert list(done.document["figures"][0]["files"]) == ["svg", "pdf", "png", "gif", "txt"]
    html = _html(done)
    assert 'src="figures/linear-fig1.gif"' in html and 'href="figures/linear-fig1.txt"' in html


def test_a_further_file_that_cannot_be_made_is_an_error_of_the_figure(register, tmp_path: Path):
    def broken(path):
        raise RuntimeError("no film")

    register("linear/fig1", extras=lambda data, settings: {"gif": broken})
    done = reproduce(["linear/fig1"], out=tmp_path)
    assert not done.passed and "no film" in done.document["figures"][0]["error"]
    assert not (tmp_path / "figures/linear-fig1.gif").exists()


class _Links(HTMLParser):
    """The links and the identifiers of a page, and its elements that are not closed."""

    void = {"meta", "img", "br", "hr", "link", "rect", "line"}

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.links += [value or "" for key, value in attrs if key in ("href", "src")]
        self.names |= {value or "" for key, value in attrs if key == "id"}
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.void:
            assert self.open.pop() == tag


def test_the_pages_need_nothing_else(register, tmp_path: Path):
    """Every page is well formed, and every link of one is to a file of the report, or to a place in it."""
    register("linear/fig1", known=Known("The data are few.", "softmax-attention-from-a-very-small-initialization"))
    register("linear/fig2", measured=2.0)
    reproduce(["linear/fig1", "linear/fig2"], out=tmp_path)
    pages = {path: _Links(path.read_text(encoding="utf-8")) for path in tmp_path.rglob("*.html")}
    assert len(pages) == 4 + len(documents()) and all(page.open == [] for page in pages.values())
    for path, page in pages.items():
        assert page.links and "<script" not in path.read_text(encoding="utf-8")
        for file, _, place in (link.partition("#") for link in page.links if not link.startswith("data:image/")):
            target = (path.parent / file).resolve() if file else path
            assert target.is_file() and (not place or place in pages[target].names), (path.name, file, place)
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "papers: 1 of 2 hold" in text and "linear-fig1.html#one" in text
    text = (tmp_path / "linear-fig1.html").read_text(encoding="utf-8")
    assert "Title &lt;of&gt; linear/fig1" in text and "is one &amp; only" in text


def test_a_page_of_a_figure_has_what_is_known_of_the_published_picture(register, tmp_path: Path):
    def claims(data, settings):
        return [Origin("paper", "Fig 2", only_published=True).close("curve", "is theirs", measured=0.0, basis="b")]

    register("linear/fig1")
    register("linear/fig2", claims=claims)
    register("linear/fig3", picture="Its curve is dashed.")
    register("linear/other", source="Section 2")
    done = reproduce(["linear/fig1", "linear/fig2", "linear/fig3", "linear/other"], out=tmp_path)
    words = ("no picture seen", "compared with ours in", "Its curve is dashed.")
    shown = [
        [word in _html(done, f"linear-{name}.html") for word in words] for name in ("fig1", "fig2", "fig3", "other")
    ]
    assert shown == [[True, False, False], [False, True, False], [False, False, True], [False, False, False]]


def test_a_claim_says_when_its_thresholds_were_fixed(register, tmp_path: Path):
    def claims(data, settings):
        each = {"measured": [0.0, 0.5], "tolerance": 1.0, "basis": "b"}
        return [
            Origin("paper", "Fig 1", explored=one).close(f"one-{one}".lower(), "is one", **each)
            for one in (True, False)
        ]

    register("linear/fig1", claims=claims)
    done = reproduce(["linear/fig1"], out=tmp_path)
    html = _html(done)
    assert html.count("<b>Explored:</b>") == html.count("<b>Fixed</b>") == 1
    assert "Of 1 claims settings and tolerance were fixed" in _html(done, "index.html")
    assert html.count("2 of 2 seeds") == html.count("<svg") == 2 and "median 0.25, from 0 to 0.5" in html


def test_a_failing_claim_fails_the_run(register, tmp_path: Path):
    register("linear/fig1", measured=2.0)
    done = reproduce(["linear/fig1"], out=tmp_path)
    assert not done.passed and done.problem is None and done.document["claims"][0]["measured"] == 2.0


@pytest.mark.parametrize(("measured", "passed"), [(2.0, True), (1.0, False)])
def test_a_known_failure_is_no_finding_and_one_that_holds_is(register, tmp_path: Path, measured: float, passed: bool):
    register("linear/fig1", measured=measured, known=Known("The <data> are few.", "fig-1"))
    done = reproduce(["linear/fig1"], out=tmp_path)
    assert done.passed == passed and done.document["claims"][0]["unexpected"] != passed
    html = _html(done, "index.html")
    assert "The &lt;data&gt; are few." in html and "documents/differences.html#fig-1" in html
    assert (">unexpected<" in html) != passed and (">known<" in html) == passed


@pytest.mark.parametrize("reason, words", [("the data are few", "The data"), ("κ is not small", "κ is")])
def test_a_reason_begins_with_a_capital_and_symbols_stay(reason: str, words: str, register, tmp_path: Path):
    register("linear/fig1", measured=2.0, known=Known(reason, "fig-1"))
    assert f">{words}" in _html(reproduce(["linear/fig1"], out=tmp_path), "index.html")


def test_a_page_says_on_which_seeds_thresholds_were_chosen_and_judged(register, tmp_path: Path):
    told: Any = {"described": lambda settings: {"seeds": [20, 21, 22, 23], "flow_seeds": 7, "heads": 5}}
    register("linear/fig1", seeds=Seeds(explored="0 to 9", fixed="on these"), **told)
    register("linear/fig2", seeds=Seeds(judged="none"))
    reproduce(["linear/fig1", "linear/fig2"], out=tmp_path)
    rows = [
        re.findall(r"<tr><th>([^<]*)</th><td>([^<]*)</td></tr>", (tmp_path / f"linear-{name}.html").read_text())
        for name in ("fig1", "fig2")
    ]
    assert [each for _, each in rows[0]] == ["0 to 9", "on these", "20 to 23; flow_seeds: 7"]
    assert [each for _, each in rows[1]] == ["not recorded", "not recorded", "none"]


def test_a_failure_of_full_runs_is_no_failure_of_a_quick_one(register, tmp_path: Path):
    register("linear/fig1", known=Known("It is rare.", "fig-1", quick=False))
    done = reproduce(["linear/fig1"], out=tmp_path, quick=True)
    assert done.passed and "Known to fail in full runs:" in _html(done)


def test_the_papers_settings_stand_beside_ours(register, tmp_path: Path):
    register("linear/fig1")
    html = _html(reproduce(["linear/fig1"], out=tmp_path))
    rows = re.findall(r"<tr><th>(\w+)</th><td [^>]*>([^<]*)</td><td [^>]*>([^<]*)</td></tr>", html)
    assert rows == [("sequences", "100", "80"), ("list", "0.4, 0.3", ""), ("heads", "", "5")]


def test_what_moved_since_an_earlier_report(register, tmp_path: Path):
    for name, measured in (("linear/fig1", 1.0), ("linear/fig2", 1.0), ("linear/fig3", 1.0)):
        register(name, measured=measured)
    names = ["linear/fig1", "linear/fig2", "linear/fig3"]
    reproduce(names, out=tmp_path / "before")
    kept = {path: path.read_bytes() for path in (tmp_path / "before").rglob("*") if path.is_file()}
    register("linear/fig1", measured=2.0)
    register("linear/fig2", measured=1.0001)
    done = reproduce(names, out=tmp_path / "after", against=tmp_path / "before")
    found = {(one["what"], one["name"], one["after"]) for one in done.document["against"]["movements"]}
    assert found == {("fails now", "linear/fig1/one", "2"), ("measured", "linear/fig2/one", "1.0001")}
    assert "Changes since" in _html(done, "index.html")
    assert kept == {path: path.read_bytes() for path in (tmp_path / "before").rglob("*") if path.is_file()}
    quick = reproduce(["linear/fig3"], out=tmp_path / "quick", quick=True, against=tmp_path / "before")
    moved = quick.document["against"]["movements"]
    assert moved == [{"what": "settings", "name": "linear/fig3", "before": "sequences: 100", "after": "sequences: 10"}]
    with pytest.raises(InvalidInput, match="no report in"):
        reproduce(["linear/fig3"], out=tmp_path / "quick", against=tmp_path / "nowhere")


def test_an_error_is_reported_and_the_others_go_on(register, tmp_path: Path):
    def trip():
        raise ZeroDivisionError("by\nnothing")

    register("linear/fig1", simulate=trip)
    register("linear/fig2")
    told = []
    done = reproduce(
        ["linear/fig1", "linear/fig2"], out=tmp_path, tell=lambda entry, claims: told.append(entry["status"])
    )
    assert told == ["error", "done"] and not done.passed
    assert done.problem == "1 of 2 figures ended in an error (linear/fig1)"
    entry = done.document["figures"][0]
    assert entry["error"].startswith("ZeroDivisionError: by nothing (conftest.py, line ")
    assert "ZeroDivisionError" in (tmp_path / "index.html").read_text()
    assert [c["figure"] for c in done.document["claims"]] == ["fig2"]


def test_the_place_of_an_error_is_in_the_figures_own_file(register, tmp_path: Path):
    """Not in the library that the figure called."""
    path = tmp_path / "mine.py"
    path.write_text(
        "import json\n"
        "from dataclasses import dataclass\n"
        "def simulate(settings):\n    return json.loads('{')\n"
        "from stepwell.figures import Figure\n"
        "@dataclass(frozen=True)\nclass Settings: pass\n"
        "rest = {'claims': lambda data, settings: [], 'draw': lambda data, settings: None, 'settings': Settings()}\n"
        "FIGURE = Figure(name='own/mine', title='T', caption='C', simulate=simulate, **rest)\n"
    )
    done = reproduce([add_figure(path)], out=tmp_path / "report")
    assert done.document["figures"][0]["error"].endswith("(mine.py, line 4)")


def test_settings_that_json_cannot_hold_are_an_error_of_their_figure_alone(register, tmp_path: Path):
    register("linear/fig1", described=lambda settings: {"rate": float("nan")})
    register("linear/fig2")
    done = reproduce(["linear/fig1", "linear/fig2"], out=tmp_path)
    assert [entry["status"] for entry in read(tmp_path)["figures"]] == ["error", "done"]
    assert done.problem is not None and done.problem == "1 of 2 figures ended in an error (linear/fig1)"


def test_an_error_can_say_anything(register, tmp_path: Path):
    def trip():
        raise OSError("\ud800<script>" + "x" * 10_000)

    register("linear/fig1", simulate=trip)
    entry = reproduce(["linear/fig1"], out=tmp_path).document["figures"][0]
    assert len(entry["error"]) < 1200 and "OSError: ?<script>xxx" in entry["error"]
    assert "?&lt;script&gt;xxx" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize("name", ["begin", "tell"])
def test_an_error_of_the_caller_is_not_one_of_the_figure(register, tmp_path: Path, name: str):
    def trip(*arguments):
        raise BrokenPipeError

    register("linear/fig1")
    callbacks: dict[str, Any] = {name: trip}
    with pytest.raises(BrokenPipeError):
        reproduce(["linear/fig1"], out=tmp_path, **callbacks)
    assert [entry["status"] for entry in read(tmp_path)["figures"]] == ([] if name == "begin" else ["done"])


def test_a_folder_removed_in_mid_run_ends_it(register, tmp_path: Path):
    folder = tmp_path / "out"
    register("linear/fig1")
    register("linear/fig2", simulate=lambda: shutil.rmtree(folder))
    last = register("linear/fig3")
    done = reproduce(["linear/fig1", "linear/fig2", "linear/fig3"], out=folder)
    assert not done.passed and not done.interrupted and last.calls == []
    assert done.problem is not None and "\n" not in done.problem
    assert done.problem == f"cannot write to {folder} (No such file or directory); 1 of 3 figures were done before"
    assert [entry["name"] for entry in done.document["figures"]] == ["linear/fig1"]


@pytest.mark.parametrize("ending", ["png", "nc", "json", "html"])
def test_a_full_disk_ends_the_run_and_keeps_what_was_done(
    register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
):
    """The disk is full when the second figure's file of this kind is written."""
    register("linear/fig1")
    register("linear/fig2")
    full = []
    last = register("linear/fig3")
    reproduce(["linear/fig1"], out=tmp_path)
    replace = os.replace

    def rename(source, target):
        if str(target).endswith(ending) and full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", rename)
    done = reproduce(["linear/fig2", "linear/fig3"], out=tmp_path, begin=lambda name, title: full.append(name))
    assert done.problem is not None and "No space left on device" in done.problem and last.calls == []
    names = [entry["name"] for entry in read(tmp_path)["figures"]]
    assert names == (["linear/fig1", "linear/fig2"] if ending == "html" else ["linear/fig1"])
    assert "linear/fig1" in (tmp_path / "index.html").read_text()
    assert [path for path in tmp_path.rglob(".*")] == []


def test_a_name_that_is_not_that_of_a_figure(register, tmp_path: Path):
    register("linear/fig1")
    for names in ("linear/fig1", ["linear/fig9"]):
        with pytest.raises(InvalidInput, match="figure|list of strings"):
            reproduce(names, out=tmp_path)


def test_a_figure_asked_for_twice_is_made_once(register, tmp_path: Path):
    module = register("linear/fig1")
    assert reproduce(["linear/fig1", "linear/fig1"], out=tmp_path).passed
    assert module.calls == [False]


def test_an_interruption_keeps_what_is_done(register, tmp_path: Path):
    def stop():
        raise KeyboardInterrupt

    register("linear/fig1")
    register("linear/fig2", simulate=stop)
    last = register("linear/fig3")
    done = reproduce(["linear/fig1", "linear/fig2", "linear/fig3"], out=tmp_path)
    assert done.interrupted and not done.passed and last.calls == []
    assert [entry["name"] for entry in read(tmp_path)["figures"]] == ["linear/fig1"]
    assert (tmp_path / "figures/linear-fig1.png").is_file()


def test_a_later_run_redoes_only_what_is_asked(register, tmp_path: Path):
    first, second = register("linear/fig1", measured=2.0), register("linear/fig2")
    reproduce(["linear/fig1"], out=tmp_path)
    done = reproduce(["linear/fig2"], out=tmp_path, quick=True)
    assert (first.calls, second.calls) == ([False], [True])
    assert [entry["name"] for entry in done.document["figures"]] == ["linear/fig1", "linear/fig2"]
    assert len(done.document["claims"]) == 2
    assert done.passed  # of what was asked for; the other claim still shows as failing
    assert [claim["passed"] for claim in done.document["claims"]] == [False, True]


def test_a_figure_whose_data_were_removed_is_made_again(register, tmp_path: Path):
    module = register("linear/fig1")
    for calls in (1, 1):
        reproduce(["linear/fig1"], out=tmp_path, fresh=False)
        assert len(module.calls) == calls
    (tmp_path / "data/linear-fig1-curve.nc").unlink()
    done = reproduce(["linear/fig1"], out=tmp_path, fresh=False)
    assert len(module.calls) == 2 and done.document["figures"][0]["data"] == ["data/linear-fig1-curve.nc"]


def test_a_folder_that_cannot_be_written_is_refused_before_computing(register, tmp_path: Path):
    module = register("linear/fig1")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="--out"):
        reproduce(["linear/fig1"], out=tmp_path / "file")
    assert module.calls == []


def test_the_same_twice(register, tmp_path: Path):
    register("linear/fig1")
    documents = [reproduce(["linear/fig1"], out=tmp_path / name).document for name in "ab"]
    assert documents[0]["claims"] == documents[1]["claims"]
    for path in ("figures/linear-fig1.svg", "figures/linear-fig1.pdf", "figures/linear-fig1.png"):
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1e-10, "10⁻¹⁰"),
        (-2.5e-7, "−2.5·10⁻⁷"),
        (0.13599507, "0.135995"),
        (3e7, "3·10⁷"),
        (None, "not a number"),
    ],
)
def test_numbers_for_readers(value, text):
    assert number(value) == text
