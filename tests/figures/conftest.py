"""Figures made for the purpose, in the place of the papers'."""

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import xarray as xr

from stepwell.analysis.style import new_figure, styled
from stepwell.figures import FIGURES, Figure, Known, Origin


@dataclass(frozen=True)
class Settings:
    sequences: int = 100


def make(name: str, *, measured: float = 1.0, simulate=None, known: Known | None = None, **parts: Any) -> ModuleType:
    """A module with a figure; `calls` has whether each of its runs was a quick one."""
    module: Any = ModuleType(f"made_{name.replace('/', '_')}")
    module.calls = []

    def run(settings: Settings):
        module.calls.append(settings.sequences == 10)
        if simulate is not None:
            simulate()
        return {"curve": xr.Dataset({"loss": ("step", np.array([measured, 0.5]))})}

    def claims(data, settings: Settings):
        options: dict[str, Any] = {"predicted": 1, "measured": float(data["curve"]["loss"][0]), "tolerance": 0.1}
        options |= {"basis": "b", "known": known}
        return [Origin("paper", "Fig 1").close("one", "is one & only", **options)]

    def draw(data, settings: Settings):
        with styled():
            drawn = new_figure(3, 2)
            drawn.subplots().plot(data["curve"]["loss"])
        return drawn

    whole: dict[str, Any] = {
        "title": f"Title <of> {name}",
        "caption": "A caption.",
        "source": "Fig <1>",
        "settings": Settings(),
        "quick": Settings(10),
        "described": lambda settings: {"sequences": settings.sequences, "list": [0.4, 0.3]},
        "paper_settings": {"sequences": 80, "heads": 5},
        "simulate": run,
        "claims": claims,
        "draw": draw,
    }
    module.FIGURE = Figure(**{**whole, **parts})
    return module


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch):
    """A function that lists a made figure under a name, in place of the figures of the papers."""
    before = dict(FIGURES)
    FIGURES.clear()

    def add(name: str, **options) -> ModuleType:
        module = make(name, **options)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        FIGURES[name] = module.__name__
        return module

    yield add
    FIGURES.clear()
    FIGURES.update(before)
