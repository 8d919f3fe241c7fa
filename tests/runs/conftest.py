"""A store to test with."""

from pathlib import Path

import pytest

from stepwell.runs import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")
