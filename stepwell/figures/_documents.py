"""The documents that a report refers to, as pages beside it: links in it then work without a network."""

import functools
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = "documents"
NAMES = (
    "differences.md",
    "conventions.md",
    "glossary.md",
    "theory/index.md",
    "theory/linear.md",
    "theory/softmax.md",
)
"""Documents of docs/ that are part of every report."""
_PLACES = (Path(__file__).parent / FOLDER, Path(__file__).parents[2] / "docs")
"""Where they are: in a wheel, and in the source tree."""
_OF_THE_SITE = re.compile(r"```\{toctree\}.*?```|\{[\w:]+\}(?=`)", re.DOTALL)
"""What the site alone reads: tables of contents, and before names the kind of thing that they are."""

_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


class Document(NamedTuple):
    """A document: its title, and its text as HTML with the identifiers of headings as GitHub makes them.

    Links to documents that are not in a report are plain words.
    """

    title: str
    body: str


@functools.cache
def documents() -> dict[str, Document]:
    """The documents, by their paths in a report; those that are not there are left out."""
    place = next((place for place in _PLACES if place.exists()), _PLACES[0])
    there = {name: place / name for name in NAMES if (place / name).exists()}
    return {
        f"{FOLDER}/{name.removesuffix('.md')}.html": _document(name, path.read_text(encoding="utf-8"))
        for name, path in there.items()
    }


def _document(name: str, text: str) -> Document:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.anchors import anchors_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def link(found: re.Match) -> str:
        words, path, heading = found[1], found[2], found[3] or ""
        inside = os.path.normpath(os.path.join(os.path.dirname(name), path)) in NAMES
        return f"[{words}]({path.removesuffix('.md')}.html{heading})" if inside else words

    reader = MarkdownIt("commonmark").enable("table").use(anchors_plugin, max_level=4)
    reader.use(dollarmath_plugin, renderer=_mathml, label_renderer=lambda label: "", allow_space=False)
    body = reader.render(_LINK.sub(link, _OF_THE_SITE.sub("", text)))
    return Document(text.partition("\n")[0].lstrip("# "), body)


def _mathml(formula: str, how: dict[str, Any]) -> str:
    """A formula as MathML, which browsers draw themselves."""
    from latex2mathml.converter import convert

    return convert(formula, display="block" if how["display_mode"] else "inline")
