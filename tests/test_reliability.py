"""Every promise of docs/reliability.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_tests_named_exist():
    rows = [line for line in (ROOT / "docs" / "reliability.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 15
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", row)
        assert named, row
        for file, name in named:
            for part in name.split("::"):
                assert re.search(rf"(def|class) {part}\b", (ROOT / file).read_text()), (file, part)
