"""Few commands in a row and at once; `python tests/fuzz/load.py` takes a thousand."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from load import at_once, left_behind, one_after_another  # noqa: E402


def test_runs_at_once_are_as_one_alone_and_leave_nothing(tmp_path: Path):
    losses, alone = at_once(tmp_path, 2)
    assert losses == [alone] * 2
    sizes = one_after_another(tmp_path, 2)
    assert sizes[0] == sizes[1] > 0
    assert left_behind(tmp_path) == []
