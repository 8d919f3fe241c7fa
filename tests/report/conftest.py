"""Figures made for the purpose, in the place of the papers'."""

import sys
from types import ModuleType

import numpy as np
import pytest
import xarray as xr

from stepwell.papers import Claim, Known, _registry
from stepwell.papers._style import new_figure, styled


def make(name: str, *, measured: float = 1.0, simulate=None, known: Known | None = None) -> ModuleType:
    module = ModuleType(f"made_{name.replace('/', '_')}")
    calls: list[bool] = []

    def run(quick: bool):
        calls.append(quick)
        if simulate is not None:
            simulate()
        return {"curve": xr.Dataset({"loss": ("step", np.array([measured, 0.5]))})}

    def draw(data):
        with styled():
            drawn = new_figure(3, 2)
            drawn.subplots().plot(data["curve"]["loss"])
        return drawn

    contents = {
        "TITLE": f"Title <of> {name}",
        "CAPTION": "A caption.",
        "calls": calls,
        "PAPER_SETTINGS": {"sequences": 80, "heads": 5},
        "settings": lambda quick: {"sequences": 10 if quick else 100, "list": [0.4, 0.3]},
        "simulate": run,
        "claims": lambda data: [
            Claim.close(
                f"{name}/one",
                "is one & only",
                predicted=1,
                measured=float(data["curve"]["loss"][0]),
                tolerance=0.1,
                basis="b",
                kind="paper",
                source="Fig 1",
                known=known,
            )
        ],
        "draw": draw,
    }
    module.__dict__.update(contents)
    return module


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch):
    """A register of made figures, by name."""
    listed: dict[str, str] = {}
    monkeypatch.setattr(_registry, "FIGURES", listed)
    for user in (
        "stepwell.report._archive",
        "stepwell.report._earlier",
        "stepwell.report._program",
        "stepwell.report._reproduce",
        "stepwell.report._workers",
        "stepwell.papers",
    ):
        monkeypatch.setattr(sys.modules[user], "FIGURES", listed)

    def add(name: str, **options) -> ModuleType:
        module = make(name, **options)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        listed[name] = module.__name__
        return module

    return add
