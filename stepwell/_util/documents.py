"""Documents of docs/ that the package shows. Wheels have those that `force-include` of pyproject.toml lists."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def document(name: str) -> str | None:
    """The text of a document, such as "theory/linear.md"; None if it was not installed."""
    places = (_PACKAGE / "documents" / name, _PACKAGE.parent / "docs" / name)
    return next((place.read_text(encoding="utf-8") for place in places if place.is_file()), None)
