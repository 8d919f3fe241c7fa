"""Changed settings, progress, and figures that are there already, in a report."""

import json
import sys
from pathlib import Path

import pytest

from stepwell.cli import main
from stepwell.figures import Progress, _registry, reproduce


def test_the_same_figure_is_not_made_twice(register, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made = [register("linear/fig1"), register("linear/fig2")]
    assert main(["reproduce", "linear/fig1", "--out", str(tmp_path), "--jobs", "1"]) == 0
    capsys.readouterr()
    assert main(["reproduce", "--out", str(tmp_path), "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert [module.calls for module in made] == [[False], [False]]
    assert "kept: linear/fig1" in printed and "--fresh" in printed and "kept: linear/fig2" not in printed
    assert "papers: 2 of 2 hold" in printed
    assert main(["reproduce", "--out", str(tmp_path), "--jobs", "1", "--fresh"]) == 0
    assert [module.calls for module in made] == [[False] * 2] * 2


CHANGED = ("quick", "program", "files", "library")


@pytest.mark.parametrize("what", CHANGED)
def test_another_figure_is_made(what: str, register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = register("linear/fig1")
    reproduce(["linear/fig1"], out=tmp_path)
    if what == "program":
        monkeypatch.setattr(_registry, "_package", lambda: "another")
    if what == "files":
        (tmp_path / "figures" / "linear-fig1.svg").unlink()
    done = reproduce(["linear/fig1"], out=tmp_path, quick=what == "quick", fresh=what == "library")
    assert len(module.calls) == 2 and done.passed


def test_after_an_interruption_the_rest_is_made(register, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pressed = []

    def press():
        if not pressed:
            pressed.append(True)
            raise KeyboardInterrupt

    first, second = register("linear/fig1"), register("linear/fig2", simulate=press)
    words = ["reproduce", "--out", str(tmp_path), "--jobs", "1"]
    assert main(words) == 130
    assert "the same command runs the others" in capsys.readouterr().err
    assert main(words) == 0
    assert (len(first.calls), len(second.calls)) == (1, 2)


def test_a_failure_that_was_kept_still_fails(register, tmp_path: Path):
    register("linear/fig1", measured=3.0)
    words = ["reproduce", "--out", str(tmp_path)]
    assert [main(words), main(words)] == [1, 1]


FIGURE = """
from pathlib import Path
import numpy as np, xarray as xr
from dataclasses import dataclass
import matplotlib.figure
from stepwell.figures import Figure, Origin


@dataclass(frozen=True)
class Settings:
    size: int = 1


def simulate(settings):
    with open(Path(__file__).with_name("calls"), "a") as calls:
        calls.write("x")
    return {"curve": xr.Dataset({"loss": ("step", np.ones(settings.size))})}


def claims(data, settings):
    common = {"predicted": 1, "basis": "b"}
    return [
        Origin("paper", "s").close("size", "is one", measured=settings.size, **common),
        Origin("paper", "s", only_published=True).close("data", "is theirs", measured=settings.size, **common),
        Origin("paper", "s").close("long", "is long", measured=[1] * (3 - settings.size), counted="plateaus", **common),
    ]


FIGURE = Figure(
    title="A title",
    caption="A caption.",
    settings=Settings(),
    simulate=simulate,
    claims=claims,
    draw=lambda data, settings: matplotlib.figure.Figure(),
)
"""


@pytest.fixture
def calls(register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """How often a figure was made whose setting `size` is 1, and which has a claim about published data."""
    package = tmp_path / "made_paper"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "fig.py").write_text(FIGURE)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("made_paper", "made_paper.fig"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    _registry.FIGURES["linear/fig1"] = "made_paper.fig"
    yield lambda: len((package / "calls").read_text()) if (package / "calls").exists() else 0
    for name in ("made_paper", "made_paper.fig"):
        sys.modules.pop(name, None)


def test_changed_settings_are_reported(calls, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["reproduce", "fig1", "--out", str(tmp_path)]
    assert main([*words, "--set", "size=2"]) == 1
    printed = capsys.readouterr().out
    assert "settings changed: size = 2" in printed and "1 of 2 claims hold" in printed
    assert (
        "not judged at these settings: it compares with the paper's own data" in printed
        and "unexpected: linear/fig1/size does not hold" in printed
    )
    page, document = (tmp_path / "linear-fig1.html").read_text(), json.loads((tmp_path / "claims.json").read_text())
    assert "Changed settings: size = 2" in page and "Not judged at these settings: it compares" in page
    assert document["figures"][0]["changed"] == {"size": 2}
    assert [claim["judged"] for claim in document["claims"]] == [True, False, True]
    made = calls()
    assert main([*words, "--set", "size=2"]) == 1 and calls() == made
    assert main([*words, "--set", "size=3"]) == 1 and calls() == made + 1
    assert "not judged at these settings: there are no plateaus to judge" in capsys.readouterr().out
    assert main(words) == 0 and calls() == made + 2
    assert "Changed settings" not in (tmp_path / "linear-fig1.html").read_text()


WRONG = {
    "unknown": (["--set", "sise=2"], "its settings are size (1)"),
    "text": (["--set", "size=big"], "an integer"),
    "no seeds": (["--seeds", "20:40"], "no setting seeds"),
    "no value": (["--set", "size"], "NAME=VALUE"),
    "twice": (["--set", "seeds=1", "--seeds", "3"], "give one of them"),
}


@pytest.mark.parametrize("words, message", WRONG.values(), ids=WRONG)
def test_settings_that_cannot_be_are_refused_before_anything_is_made(
    words: list[str], message: str, calls, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["reproduce", "fig1", "--out", str(tmp_path / "new"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert calls() == 0 and not (tmp_path / "new").exists()


def test_progress_is_reported(register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from stepwell._util.progress import Meter

    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr("stepwell.figures._run.time.monotonic", lambda: float(next(clock)))

    def simulate():
        with Meter("training", 4, shown=False) as meter:
            for step in range(5):
                meter.update(step)

    register("linear/fig1", simulate=simulate)
    seen: list[Progress] = []
    reproduce(["linear/fig1"], out=tmp_path, progress=seen.append)
    assert [(one.name, one.what, one.part) for one in seen] == [
        ("linear/fig1", "training", part / 4) for part in range(5)
    ]
    assert seen[0].left is None and seen[-1].left == 0
    assert seen[2].left == pytest.approx(seen[2].seconds) and seen[2].seconds > 0


def test_progress_comes_from_another_process(tmp_path: Path):
    """Two quick figures side by side: one trains for more than half a second, and need not end."""
    seen: list[Progress] = []

    def stop_at(one: Progress) -> None:
        seen.append(one)
        raise KeyboardInterrupt

    done = reproduce(["linear/fig2", "linear/conservation"], quick=True, out=tmp_path, jobs=2, progress=stop_at)
    assert done.interrupted and {one.what for one in seen} <= {"training", "flow", "gathering moments"}


def test_a_status_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from stepwell.cli._reproduce import Status

    monkeypatch.setenv("COLUMNS", "200")
    status = Status()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    status.show(Progress("linear/fig1", "training", 0.25, 30.0))
    status.show(Progress("linear/fig3", "flow", 0.5, 300.0))
    status.remove("linear/fig1")
    written = capsys.readouterr().err
    assert "linear/fig1: training, 25 %, 90 s left of it | linear/fig3: flow, 50 %, 5 min left" in written
    assert written.endswith("\r\x1b[2K")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    status.show(Progress("linear/fig3", "flow", 0.6, 300.0))
    assert capsys.readouterr().err == ""
    status._last -= 20
    status.show(Progress("linear/fig3", "flow", 0.6, 300.0))
    assert capsys.readouterr().err == "linear/fig3: flow, 60 %, 3 min left of it\n"
