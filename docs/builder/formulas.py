"""What docutils makes of a formula, where browsers would draw something else than TeX."""

import html
import re
import xml.etree.ElementTree as ET

_SPACE = "{http://www.w3.org/1998/Math/MathML}"
ET.register_namespace("", _SPACE[1:-1])
_ENTITY = re.compile("&(?!lt;|gt;|amp;|quot;|apos;)[A-Za-z]+;")
"""Names of HTML, which XML does not know."""


def mended(formula: str) -> str:
    """The formula with indices of accented letters beside them, not below, and norms and angles as high as letters."""
    root = ET.fromstring(_ENTITY.sub(lambda match: html.unescape(match[0]), formula))
    for element in root.iter():
        if element.tag == f"{_SPACE}munderover":
            letter, index, accent = element
            if letter.tag != f"{_SPACE}mo" and accent.tag == f"{_SPACE}mo" and accent.get("stretchy") == "false":
                accented = ET.Element(f"{_SPACE}mover", accent="true")
                accented.extend([letter, accent])
                element.tag = f"{_SPACE}msub"
                element[:] = [accented, index]
        elif element.tag == f"{_SPACE}mo" and element.text in ("‖", "⟨", "⟩"):
            element.set("stretchy", "false")
    return ET.tostring(root, encoding="unicode")
