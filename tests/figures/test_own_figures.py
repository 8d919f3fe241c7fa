"""Figures that are not ours: in files, and offered by packages."""

import importlib.metadata
import json
import re
from pathlib import Path

import pytest

from stepwell._util.errors import InvalidInput
from stepwell.cli import main
from stepwell.figures import (
    FIGURES,
    GROUP,
    PAPERS,
    Figure,
    _registry,
    add_figure,
    add_offered,
    figure,
    reproduce,
    select,
)
from stepwell.trajectory import load

FIGURE = """
import numpy as np, xarray as xr
from helper import STEPS
from dataclasses import dataclass
from stepwell.figures import Figure, Origin
from stepwell.analysis.style import new_figure, styled
@dataclass(frozen=True)
class Settings:
    end: float = MEASURED
def simulate(settings):
    return {"curve": xr.Dataset({"loss": ("step", np.linspace(1.0, settings.end, STEPS))})}
def claims(data, settings):
    end = float(data["curve"]["loss"][-1])
    counting = Origin("check", "counting")
    return [counting.close("end", "ends at 0", predicted=0, measured=end, tolerance=1e-9, basis="rounding")]
def draw(data, settings):
    with styled():
        drawn = new_figure(3, 2)
        drawn.subplots().plot(data["curve"]["loss"])
    return drawn
FIGURE = Figure(
    name="NAME OF IT",
    title="A figure",
    caption="Of one's own.",
    settings=Settings(),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
"""


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch):
    """What a test adds is gone after it."""
    before, papers = dict(FIGURES), dict(PAPERS)
    yield
    for current, kept in ((FIGURES, before), (PAPERS, papers)):
        current.clear()
        current.update(kept)


def written(folder: Path, name: str = "own/first", file: str = "my_first.py", measured: float = 0.0) -> Path:
    (folder / "helper.py").write_text("STEPS = 4")
    path = folder / file
    path.write_text(FIGURE.replace("NAME OF IT", name).replace("MEASURED", str(measured)))
    return path


def test_a_file_is_reported_as_those_of_the_papers_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, out = written(tmp_path), tmp_path / "report"
    assert main(["reproduce", str(path), "--quick", "--out", str(out)]) == 0
    assert "own/first" in capsys.readouterr().out
    document = json.loads((out / "claims.json").read_text())
    (entry,), (claim,) = document["figures"], document["claims"]
    assert (
        claim["id"] == "own/first/end"
        and claim["passed"]
        and entry["settings"] == {"end": 0.0}
        and not entry["paper_settings"]
    )
    assert all((out / file).is_file() for file in (*entry["files"].values(), *entry["data"]))
    assert "Figures of your own" in (out / "index.html").read_text()
    page = (out / "own-first.html").read_text()
    assert "A figure" in page and "ends at 0" in page


def test_a_claim_that_fails_is_status_one(tmp_path: Path):
    path = written(tmp_path, name="own/wrong", file="wrong.py", measured=0.5)
    assert main(["reproduce", str(path), "--out", str(tmp_path / "report")]) == 1


def test_two_files_in_processes_of_their_own(tmp_path: Path):
    names = [add_figure(written(tmp_path, f"mine/{n}", f"{n}.py")) for n in ("one", "two")]
    assert names == ["mine/one", "mine/two"] == select(["mine"])
    done = reproduce(names, quick=True, out=tmp_path / "report", jobs=2)
    assert done.passed and [entry["name"] for entry in done.document["figures"]] == names


def steps_in(out: Path, name: str = "own-first") -> int:
    return load(out / "data" / f"{name}-curve.nc").sizes["step"]


def test_files_that_it_imports_from_beside_belong_to_it(tmp_path: Path):
    name = add_figure(written(tmp_path))
    (tmp_path / "inside").mkdir()
    contents = {"helper.py": "from deeper import STEPS", "deeper.py": "from inside.values import *", "unused.py": ""}
    contents |= {"inside/__init__.py": "", "inside/values.py": "STEPS = 4"}
    for file, content in contents.items():
        (tmp_path / file).write_text(content)
    before = _registry.program(name)
    for file, content in contents.items():
        (tmp_path / file).write_text(f"{content}\n")
        assert (_registry.program(name) == before) == (file == "unused.py")
        (tmp_path / file).write_text(content)
    (tmp_path / "inside" / "values.py").write_text("this is not Python")
    assert _registry.program(name) != before


def test_a_change_of_a_file_that_it_imports_makes_it_again(tmp_path: Path):
    """Also within one process, where the module was imported before, and not with the store's."""
    path, out = written(tmp_path), tmp_path / "report"
    for steps in (4, 7):
        (tmp_path / "helper.py").write_text(f"STEPS = {steps}")
        assert main(["reproduce", str(path), "--out", str(out), "--store", str(tmp_path / "store")]) == 0
        assert steps_in(out) == steps


def test_files_beside_two_figures_may_be_called_the_same(tmp_path: Path):
    for name, steps in (("a", 4), ("b", 6)):
        (tmp_path / name).mkdir()
        add_figure(written(tmp_path / name, f"own/{name}"))
        (tmp_path / name / "helper.py").write_text(f"STEPS = {steps}")
    assert reproduce(["own/a", "own/b"], out=tmp_path / "report").passed
    assert steps_in(tmp_path / "report", "own-a") == 4 and steps_in(tmp_path / "report", "own-b") == 6


def test_a_file_that_changes_while_its_figure_runs_does_not_count_as_run(tmp_path: Path):
    path = written(tmp_path)
    edit = f"__import__('pathlib').Path({str(tmp_path / 'helper.py')!r}).write_text('STEPS = 9')"
    path.write_text(path.read_text().replace("def simulate(settings):", f"def simulate(settings):\n    {edit}"))
    for steps in (4, 9):
        assert main(["reproduce", str(path), "--out", str(tmp_path), "--store", str(tmp_path / "store")]) == 0
        assert steps_in(tmp_path) == steps


def test_a_change_of_a_package_that_offers_it_makes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "offering_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "values.py").write_text("STEPS = 4")
    FIGURES["theirs/fig1"] = "offering_package.fig1"
    monkeypatch.syspath_prepend(str(tmp_path))
    before = _registry.program("theirs/fig1")
    (package / "values.py").write_text("STEPS = 5")
    assert _registry.program("theirs/fig1") != before


def test_it_stays_in_the_report_of_a_run_without_it(tmp_path: Path):
    name = add_figure(written(tmp_path))
    reproduce([name], out=tmp_path / "report")
    del FIGURES[name]
    other, messages = add_figure(written(tmp_path, "own/other", "other.py")), []
    done = reproduce([other], out=tmp_path / "report", warn=messages.append)
    assert [entry["name"] for entry in done.document["figures"]] == [other, name] and not messages


def test_a_figure_of_ours_that_is_gone_does_not_stay(tmp_path: Path):
    name = add_figure(written(tmp_path, "linear/gone", "gone.py"))
    reproduce([name], out=tmp_path / "report")
    del FIGURES[name]
    messages = []
    done = reproduce([], out=tmp_path / "report", warn=messages.append)
    assert done.document["figures"] == [] and "linear/gone" in messages[0]


def test_without_a_name_it_is_called_after_its_file(tmp_path: Path):
    path = tmp_path / "My_Best Figure.py"
    path.write_text("FIGURE = None")
    assert add_figure(path) == "own/my-best-figure" == add_figure(path)


def test_a_file_of_the_papers_is_the_figure_that_is_listed():
    """Where its imports from the files beside it work."""
    before = dict(FIGURES)
    assert add_figure(Path(_registry.__file__).parents[1] / "papers" / "linear" / "fig03_staircase.py") == "linear/fig3"
    assert before == FIGURES


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("FIGURE = Figure(name='Own/Figure')", "PAPER/FIGURE"),
        ("FIGURE = Figure(name='own/../../etc')", "PAPER/FIGURE"),
        ("FIGURE = Figure(name='a' + 'b')", "PAPER/FIGURE"),
        ("FIGURE = Figure(name='linear/fig1')", "another figure"),
        ("def broken(", "not a Python file"),
        (None, "cannot read"),
    ],
)
def test_a_file_that_cannot_be_listed_is_refused_in_one_line(tmp_path: Path, content: str | None, words: str, capsys):
    path = tmp_path / "figure.py"
    if content is not None:
        path.write_text(content)
    assert main(["reproduce", str(path), "--out", str(tmp_path / "report")]) == 2
    message = capsys.readouterr().err
    assert words in message and message.count("\n") == 1


def test_a_file_without_a_figure_is_said(tmp_path: Path):
    lacking = tmp_path / "lacking.py"
    lacking.write_text("TITLE, simulate = 'one', None")
    with pytest.raises(InvalidInput, match="has no FIGURE = Figure.*stepwell new figure"):
        figure(add_figure(lacking))


@pytest.mark.parametrize(
    ("claims", "message"),
    [("'all is well'", "must return a list of Claim"), ("2 * claims(data, settings)", "two claims .* 'end'; give")],
)
def test_claims_that_are_none_or_have_one_identifier_are_refused(tmp_path: Path, claims: str, message: str):
    path = written(tmp_path, "own/first", "stray.py")
    path.write_text(path.read_text().replace("claims=claims", f"claims=lambda data, settings: {claims}"))
    done = reproduce([add_figure(path)], out=tmp_path / "report")
    error = done.document["figures"][0]["error"]
    assert not done.passed and re.search(message, error) and ".py, line" not in error


@pytest.mark.parametrize(
    ("function", "returned", "message"),
    [
        ("simulate", "xr.Dataset({'loss': ('step', [1.0])})", "simulate of own/first must return data sets by name"),
        ("simulate", "{'curve': xr.DataArray([1.0])}", "simulate of own/first .* `.to_dataset"),
        ("draw", "None", "draw of own/first must return the matplotlib figure, not None"),
    ],
)
def test_what_a_function_must_return_is_said(tmp_path: Path, function: str, returned: str, message: str):
    path = written(tmp_path, "own/first", "other.py")
    path.write_text(path.read_text().replace(f"{function}={function}", f"{function}=lambda *given: {returned}"))
    done = reproduce([add_figure(path)], out=tmp_path / "report")
    assert not done.passed and re.search(message, done.document["figures"][0]["error"])


def test_an_error_of_a_file_that_is_imported_names_its_line(tmp_path: Path):
    path = written(tmp_path)
    path.write_text(path.read_text().replace("settings=Settings()", "settings={}"))
    done = reproduce([add_figure(path)], out=tmp_path / "report")
    error = done.document["figures"][0]["error"]
    assert "frozen data class" in error and "(my_first.py, line " in error


def test_settings_that_are_no_data_class_are_refused():
    with pytest.raises(InvalidInput, match="settings of the figure 'T' is .*frozen data class"):
        Figure(title="T", caption="", settings={}, simulate=dict, claims=lambda d, s: [], draw=lambda d, s: None)


class Point:
    """An entry point."""

    def __init__(self, name: str, value: str, package: str):
        self.name, self.value, self.dist = name, value, type("Distribution", (), {"name": package})()


def test_packages_offer_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written(tmp_path, "my-paper/fig1", "offered_figure.py")
    points = [
        Point("fig1", "offered_figure", "My_Paper"),
        Point("theirs/fig2", "offered_figure", "other"),
        Point("linear/fig1", "offered_figure", "impostor"),
        Point("no/such/name", "offered_figure", "other"),
    ]
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points if group == GROUP else [])
    assert select(["my-paper"]) == ["my-paper/fig1"] and "theirs/fig2" in select([])
    assert FIGURES["linear/fig1"].startswith("stepwell.") and "no/such/name" not in FIGURES
    assert PAPERS["my-paper"] == "Figures of my-paper"
    assert reproduce(["my-paper/fig1"], out=tmp_path / "report").passed


def test_an_installed_distribution_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By the metadata that an installer writes, without an installer."""
    folder = tmp_path / "mypaper-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mypaper\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\nfig1 = mypaper.fig1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    add_offered()
    assert _registry.FIGURES["mypaper/fig1"] == "mypaper.fig1"


def test_settings_of_an_own_figure_can_be_changed(tmp_path: Path):
    name = add_figure(written(tmp_path))
    changed = figure(name).with_changes({"end": "0.5"})
    assert changed.changes == {"end": 0.5} and changed.settings.end == changed.at(quick=True).end == 0.5
    assert figure(name).settings.end == 0.0 and not figure(name).changes
    (claim,) = changed.judged(changed.simulated(changed.settings), changed.settings)
    assert claim.id == "own/first/end" and not claim.passed
    with pytest.raises(InvalidInput, match="own/first has no setting ent; its settings are end"):
        figure(name).with_changes({"ent": "0.5"})


def test_data_say_of_which_figure_and_settings_they_are(tmp_path: Path):
    made = figure(add_figure(written(tmp_path))).with_changes({"end": 0.25})
    attributes = made.simulated(made.settings)["curve"].attrs
    assert attributes["figure"] == "own/first" and json.loads(attributes["settings"]) == {"end": 0.25}
    assert "stepwell" in json.loads(attributes["versions"])
