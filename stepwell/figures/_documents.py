"""The documents that a report refers to, as pages beside it: links in it then work without a network."""

import functools
import os
import re
from typing import Any, NamedTuple

from stepwell._util.documents import document

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
    texts = {name: document(name) for name in NAMES}
    return {f"{FOLDER}/{name.removesuffix('.md')}.html": _read(name, text) for name, text in texts.items() if text}


def _read(name: str, text: str) -> Document:
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
