"""Few commands in a row and at once; `python tests/fuzz/load.py` takes a thousand."""

from pathlib import Path

from load import at_once, left_behind, one_after_another


def test_runs_at_once_are_as_one_alone_and_leave_nothing(tmp_path: Path):
    sizes, alone = one_after_another(tmp_path, 2)
    assert sizes[0] == sizes[1] > 0
    assert at_once(tmp_path, 2) == [alone] * 2
    assert left_behind(tmp_path) == []
