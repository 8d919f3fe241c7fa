"""Figures simulated once for all tests, and their claims by identifier.

A module of tests names its figure, `FIGURE = "linear/fig5"`, and gets `data`, what the figure simulates with `--quick`,
and `failing`, which names the claims that fail on given data.
"""

import functools
import pickle
from collections.abc import Callable

import pytest
import xarray as xr
from failing_claims import failing_claims
from filelock import FileLock

from stepwell.papers import figure

Data = dict[str, xr.Dataset]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that have a figure simulated are slow."""
    for item in items:
        if isinstance(item, pytest.Function) and "simulated" in item.fixturenames:
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
            datasets = figure(name).simulate(quick=True)
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
    claims = figure(request.module.FIGURE).claims
    return lambda data: failing_claims(claims(data))
