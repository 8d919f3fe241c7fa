"""What tests of the native passes share."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from stepwell import _native

Found = TypeVar("Found")


@pytest.fixture
def with_and_without(monkeypatch: pytest.MonkeyPatch):
    """Call a function with the native passes and without them: both results."""

    def both(run: Callable[[], Found]) -> tuple[Found, Found]:
        found = []
        for switch in ("on", "off"):
            monkeypatch.setenv("STEPWELL_NATIVE", switch)
            _native.available.cache_clear()
            found.append(run())
        _native.available.cache_clear()
        return found[0], found[1]

    return both
