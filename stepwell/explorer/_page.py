"""The page as HTML: its controls are made from `CONTROLS`, and its pictures are roots of a Bokeh document."""

import dataclasses
import json
from itertools import groupby
from pathlib import Path
from typing import Any

from bokeh.document import Document
from jinja2 import Environment, FileSystemLoader

from ._controls import MODES, Control, controls
from ._engine import Engine
from ._figures import pictures
from ._glossary import glossary
from ._session import Session

FOLDER = Path(__file__).parent / "page"
"""The template, the style and the script: all that the page loads, beside Bokeh's own."""
TITLES = {"linear": "Linear attention", "softmax": "Softmax attention", "stored": "Runs and figures"}

_environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)


def make_page(document: Document, engine: Engine, token: str, boot: str) -> None:
    """Make the document of one page, in the mode that its address names.

    **Arguments:**

    - `document`: a new Bokeh document.
    - `engine`: what computes.
    - `token`: the word without which nothing is stored.
    - `boot`: names this start of the server, so that a page notices another one.
    """
    context: Any = document.session_context
    given = {} if context is None else context.request.arguments
    words = [_decoded(word) for word in given.get("mode", [])]
    mode = words[-1] if words and words[-1] in MODES else MODES[0]
    session = Session(document, engine)
    made = pictures(mode)
    made["loss"].tags = [*made["loss"].tags, session.request, session.answer]
    with document.models.freeze():  # or Bokeh would look for all models after each
        for plot in made.values():
            document.add_root(plot)
    document.title = f"{TITLES[mode]} · Stepwell"
    document.config.notify_connection_status = False  # the page says it itself
    document.config.reconnect_session = False
    document.template = _environment.get_template("index.html")
    document.template_variables.update(
        {
            "mode": mode,
            "modes": [(one, TITLES[one]) for one in MODES],
            "groups": [(name, list(of)) for name, of in groupby(controls(mode).values(), lambda one: one.group)],
            "glossary": glossary(),
            "hint": hint,
            "settings": _script_json(
                {
                    "mode": mode,
                    "boot": boot,
                    "token": token,
                    "controls": [dataclasses.asdict(one) for one in controls(mode).values()],
                }
            ),
        }
    )


def hint(control: Control) -> str:
    """The tooltip of a control: its help, and what the glossary says."""
    return " ".join(filter(None, (control.help, glossary().get(control.glossary, ""))))


def _decoded(word: Any) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)


def _script_json(value: Any) -> str:
    """JSON that may stand in a script element."""
    return json.dumps(value).replace("<", "\\u003c")
