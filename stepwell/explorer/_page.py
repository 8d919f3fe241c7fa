"""The page as HTML: its controls are made from `CONTROLS`, and its pictures are Bokeh's figures without data."""

import base64
import dataclasses
import functools
import hashlib
import json
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from bokeh.embed import components
from jinja2 import Environment, FileSystemLoader

from ._controls import MODES, Control, Mode, controls
from ._figures import pictures
from ._glossary import glossary

FOLDER = Path(__file__).parent / "page"
"""The template, the style and the script: all that the page loads, beside Bokeh's own."""
TITLES = {"linear": "Linear attention", "softmax": "Softmax attention", "stored": "Runs and figures"}

_environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)


class Page(NamedTuple):
    html: str
    script: str
    """The one script inside the page, by its hash, as a Content-Security-Policy names it."""


@functools.cache
def page(mode: Mode, token: str) -> Page:
    """The page of a mode, the same for every reader.

    **Arguments:**

    - `mode`: which controls and pictures it has.
    - `token`: the word without which nothing is stored; another start of the server has another one.
    """
    script, places = components(pictures(mode), wrap_script=False)
    script = script.replace("</", "<\\/")
    html = _environment.get_template("index.html").render(
        mode=mode,
        title=f"{TITLES[mode]} · Stepwell",
        modes=[(one, TITLES[one]) for one in MODES],
        groups=[(name, list(of)) for name, of in groupby(controls(mode).values(), lambda one: one.group)],
        hint=hint,
        places=places,
        script=script,
        settings=_script_json(
            {"mode": mode, "token": token, "controls": [dataclasses.asdict(one) for one in controls(mode).values()]}
        ),
    )
    return Page(html, f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'")


def hint(control: Control) -> str:
    """The tooltip of a control: its help, and what the glossary says."""
    return " ".join(filter(None, (control.help, glossary().get(control.glossary, ""))))


def _script_json(value: Any) -> str:
    """JSON that may stand in a script element."""
    return json.dumps(value).replace("<", "\\u003c")
