"""The documents that are part of a report."""

import re
import tomllib
from pathlib import Path

import pytest

from stepwell.figures._documents import NAMES, documents


def test_every_document_is_there():
    assert [path.removesuffix(".html") for path in documents()] == [
        f"documents/{name.removesuffix('.md')}" for name in NAMES
    ]


def test_a_wheel_has_every_document():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for name in NAMES:
        assert included.get(f"docs/{name}", included.get("docs/theory", "") + name.removeprefix("theory")).endswith(
            name
        )


@pytest.mark.parametrize("path", documents())
def test_a_document_is_read_to_the_end(path: str):
    """No formula is left as it was written, and nothing that the site alone reads."""
    title, body = documents()[path]
    assert title and f">{title}</h1>" in body
    text = re.sub(r"<pre>.*?</pre>|<code>.*?</code>", "", body, flags=re.DOTALL)
    assert not re.search(r"\\[a-zA-Z]|\$|\{(py|ref)|\]\(|toctree|\.md[#\"]", text)


def test_formulas_are_drawn_by_the_browser():
    body = documents()["documents/theory/linear.html"].body
    assert body.count("<math") > 100 and 'display="block"' in body
