"""Mathematics as MathML, which browsers draw themselves: no script, and nothing from a network."""

from typing import Any

from docutils import nodes  # pyright: ignore[reportMissingModuleSource]
from latex2mathml.converter import convert
from sphinx.util import logging  # pyright: ignore[reportMissingImports]

_LOGGER = logging.getLogger(__name__)


def _mathml(node: nodes.Element, *, block: bool) -> str:
    formula = convert(node.astext(), display="block" if block else "inline")
    if "\\" in formula:  # it leaves what it does not know as it is
        _LOGGER.warning("cannot typeset %s", node.astext(), location=node)
    return formula


def _inline(writer: Any, node: nodes.Element) -> None:
    writer.body.append(_mathml(node, block=False))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.Element) -> None:
    identifiers = "".join(f'<span id="{each}"></span>' for each in node["ids"])
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    writer.body.append(f'<div class="math-block">{identifiers}{_mathml(node, block=True)}{number}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
