"""Plots of training runs are written with nothing on them, which takes no time, unless a test has `drawn_plots`."""

import pytest


@pytest.fixture
def drawn_plots() -> None:
    """Plots are drawn in this test."""


@pytest.fixture(autouse=True)
def empty_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    if "drawn_plots" not in request.fixturenames:
        monkeypatch.setattr("stepwell.cli._training_files.draw", lambda *_: None)
