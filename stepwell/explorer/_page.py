"""The page as HTML: its controls are made from the declarations of kinds, its pictures are Bokeh's without data."""

import base64
import dataclasses
import functools
import hashlib
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from bokeh.embed import components
from jinja2 import Environment, FileSystemLoader

from stepwell.experiments import SECTIONS, kinds, registrations

from ._controls import HINTS, PRESETS, Control, all_controls, seed_control
from ._figures import pictures
from ._glossary import glossary
from ._state import State

FOLDER = Path(__file__).parent / "page"
"""The template, the style and the script: all that the page loads, beside Bokeh's own."""
STORED = "Runs and figures"
Start = Literal["linear", "softmax", "stored"]
"""What a page begins with: a preset, or what was computed before."""

_environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)


class Page(NamedTuple):
    html: str
    script: str
    """The one script inside the page, by its hash, as a Content-Security-Policy names it."""


def page(start: Start, token: str) -> Page:
    """The page, the same for every reader.

    **Arguments:**

    - `start`: which title and introduction it has until its address is read.
    - `token`: the word without which nothing is stored; another start of the server has another one.
    """
    return _page(start, token, registrations())


@functools.lru_cache(maxsize=16)
def _page(start: Start, token: str, registered: int) -> Page:
    """The page with the controls of the kinds that are registered by now."""
    script, places = components(pictures(), wrap_script=False)
    script = script.replace("</", "<\\/")
    presets = [(name, f"?{urlencode(preset.words)}", preset.title) for name, preset in PRESETS.items()]
    html = _environment.get_template("index.html").render(
        start=start,
        title=f"{STORED if start == 'stored' else PRESETS[start].title} · Stepwell",
        presets=[*presets, ("stored", "?mode=stored", STORED)],
        places=places,
        script=script,
        settings=_script_json(
            {"mode": "stored" if start == "stored" else "explore", "token": token, **_declared(start)}
        ),
    )
    return Page(html, f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'")


def _declared(start: Start) -> dict[str, Any]:
    """The controls of every kind, and what they are set to at first."""
    if start == "stored":
        return {}
    begun, _ = State.read(PRESETS[start].words)
    chosen = [(section, kinds(section, installed=True)) for section in SECTIONS if section != "record"]
    return {
        "sections": {
            section: {kind: [_plain(one) for one in of] for kind, of in by_kind.items()}
            for section, by_kind in all_controls().items()
        },
        "kinds": {section: {kind.name: kind.help for kind in of.values()} for section, of in chosen},
        "hints": {section: glossary().get(_word(f"{section}.kind"), "") for section, _ in chosen},
        "seed": _plain(seed_control()),
        "values": begun.values(),
        "fitting": begun.kinds(),
        "presets": {name: {"title": preset.title, "words": preset.words} for name, preset in PRESETS.items()},
    }


def _plain(control: Control) -> dict[str, Any]:
    return dataclasses.asdict(control) | {"help": hint(control)}


def hint(control: Control) -> str:
    """The tooltip of a control: its help, and what the glossary says."""
    return " ".join(filter(None, (control.help, glossary().get(control.glossary, ""))))


def _word(name: str) -> str:
    return HINTS[name].glossary if name in HINTS else ""


def _script_json(value: Any) -> str:
    """JSON that may stand in a script element."""
    return json.dumps(value).replace("<", "\\u003c")
