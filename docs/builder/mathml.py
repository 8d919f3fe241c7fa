"""Mathematics as MathML, which browsers draw themselves: no script, and nothing from a network."""

import re
from typing import Any

from docutils import nodes  # pyright: ignore[reportMissingModuleSource]
from docutils.utils.math.latex2mathml import tex2mathml  # pyright: ignore[reportMissingModuleSource]
from sphinx.util import logging  # pyright: ignore[reportMissingImports]

from .formulas import mended

_LOGGER = logging.getLogger(__name__)
_OTHERWISE = {r"\dots": r"\ldots ", "…": r"\ldots ", r"\tfrac": r"\frac", r"\big": "", r"\Big": ""}
"""What docutils does not know, and what is as good."""
_UNKNOWN = re.compile("|".join(re.escape(each) + r"(?![A-Za-z])" for each in _OTHERWISE))


def _mathml(node: nodes.Element, *, block: bool) -> str:
    source = node.astext()
    source = re.sub(r"\\t?frac(\d)(\d)", r"\\frac{\1}{\2}", source)  # it takes the two digits for one number
    source = _UNKNOWN.sub(lambda match: _OTHERWISE[match[0]], source)
    try:
        return mended(tex2mathml(source, as_block=block))
    except Exception as error:  # it has its own, and stumbles over some formulas with others
        _LOGGER.warning("cannot typeset %s: %s", source, error, location=node)
        return ""


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
