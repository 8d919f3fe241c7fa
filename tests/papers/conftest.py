"""Figures simulated once for all tests, and their claims by identifier.

A module of tests names its figure, `FIGURE = "linear/fig5"`, and gets `data`, what the figure simulates with `--quick`,
`failing`, which names the claims that fail on given data, and `survives`, which runs it with changed settings.
"""

import functools
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import xarray as xr
from failing_claims import failing_claims
from filelock import FileLock

from stepwell.figures import Claim, figure

Data = dict[str, xr.Dataset]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that have a figure simulated are slow."""
    for item in items:
        if isinstance(item, pytest.Function) and {"simulated", "survives"} & set(item.fixturenames):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[[str], Data]:
    """What a figure, by name, simulates with `--quick`: once, though several processes share the tests."""
    base = tmp_path_factory.getbasetemp()
    folder = base if worker_id == "master" else base.parent

    @functools.cache
    def simulate(name: str) -> Data:
        kept = folder / f"{name.replace('/', '-')}.pickle"
        with FileLock(f"{kept}.lock"):
            if kept.exists():
                return pickle.loads(kept.read_bytes())
            chosen = figure(name)
            datasets = chosen.simulated(chosen.at(quick=True))
            kept.write_bytes(pickle.dumps(datasets))
            return datasets

    return simulate


@pytest.fixture(scope="module")
def data(request: pytest.FixtureRequest, simulated) -> Data:
    """The quick data of the figure that the module of tests names."""
    return simulated(request.module.FIGURE)


@pytest.fixture(scope="module")
def failing(request: pytest.FixtureRequest) -> Callable[[Data], set[str]]:
    """The claims that fail on given data, of the figure that the module of tests names."""
    chosen = figure(request.module.FIGURE)
    return lambda data: failing_claims(chosen.judged(data, chosen.at(quick=True)))


@pytest.fixture
def survives(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], dict[str, Claim]]:
    """Run the figure that the module of tests names with settings changed, and draw it: its claims by identifier.

    Whatever the settings, a claim holds, fails, or says why it cannot be judged.
    """

    def run(changes: dict[str, Any]) -> dict[str, Claim]:
        changed = figure(request.module.FIGURE).with_changes(changes)
        settings = changed.at(quick=True)
        data = changed.simulated(settings)
        claims = changed.judged(data, settings)
        changed.draw(data, settings).draw_without_rendering()
        assert json.dumps(changed.described(settings), allow_nan=False)
        return {claim.id.rpartition("/")[2]: claim for claim in claims}

    return run
