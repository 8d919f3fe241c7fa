"""What `make test-fast` leaves out is there."""

from pathlib import Path

import pytest
from slow_tests import SLOW

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", SLOW)
def test_a_slow_test_is_one_that_there_is(name: str):
    """Else a test that was renamed would be run by `make test-fast`, unnoticed."""
    file, *parts = name.split("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert all(f"def {part}(" in text or f"class {part}:" in text for part in parts)
