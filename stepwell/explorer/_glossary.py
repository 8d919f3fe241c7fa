"""The glossary, for tooltips: docs/glossary.md, which a wheel has inside."""

import functools
import re
from pathlib import Path

_PLACES = (Path(__file__).parent / "page" / "glossary.md", Path(__file__).parents[2] / "docs" / "glossary.md")
"""In a wheel, and in the source tree."""
_ENTRY = re.compile(r"^- \*\*(.+?)\.\*\* (.+?)(?=^- |^#|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


@functools.cache
def glossary() -> dict[str, str]:
    """Each word, and its explanation as plain text of one paragraph."""
    path = next((place for place in _PLACES if place.is_file()), None)
    if path is None:
        return {}
    entries = _ENTRY.findall(path.read_text(encoding="utf-8"))
    return {word: " ".join(_LINK.sub(r"\1", text).replace("`", "").split()) for word, text in entries}
