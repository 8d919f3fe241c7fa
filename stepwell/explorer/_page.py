"""The page as HTML: controls are made from the declarations of kinds, figures are Bokeh's without data, and tooltips
come from the glossary."""

import base64
import dataclasses
import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from bokeh.embed import components
from bokeh.models import BasicTicker, ColumnDataSource, FixedTicker, HoverTool, LinearColorMapper, Range1d, Span
from bokeh.plotting import figure
from jinja2 import Environment, FileSystemLoader

from stepwell._util.documents import document
from stepwell.experiments import SECTIONS, kinds, registrations

from ._controls import HINTS, PRESETS, Control, Hint, controls, seed_control
from ._state import State

FOLDER = Path(__file__).parent / "page"
"""The template, the style and the script: all that the page loads, beside Bokeh's own."""
STORED = "Runs and figures"
Start = Literal["linear", "softmax", "stored"]  # what a page begins with: a preset, or what was computed before

_environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)
_ENTRY = re.compile(r"^- \*\*(.+?)\.\*\* (.+?)(?=^- |^#|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


class Page(NamedTuple):
    html: str
    script: str  # the one script inside the page, by its hash, as a Content-Security-Policy names it


def page(start: Start, token: str) -> Page:
    """The page, the same for every reader.

    **Arguments:**

    - `start`: which title and introduction it has until its address is read.
    - `token`: the word without which nothing is stored; another start of the server has another one.
    """
    return _page(start, token, registrations())


@functools.lru_cache(maxsize=16)
def _page(start: Start, token: str, registered: int) -> Page:
    script, places = components(_figures(), wrap_script=False)
    script = script.replace("</", "<\\/")
    settings = {"mode": "stored" if start == "stored" else "explore", "token": token, **_declared(start)}
    presets = [(name, f"?{urlencode(preset.words)}", preset.title) for name, preset in PRESETS.items()]
    html = _environment.get_template("index.html").render(
        start=start,
        title=f"{STORED if start == 'stored' else PRESETS[start].title} · Stepwell",
        presets=[*presets, ("stored", "?mode=stored", STORED)],
        places=places,
        script=script,
        settings=json.dumps(settings).replace("<", "\\u003c"),  # so that it may stand in a script element
    )
    return Page(html, f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'")


def _declared(start: Start) -> dict[str, Any]:
    if start == "stored":
        return {}
    begun, _ = State.read(PRESETS[start].words)
    chosen = [(section, kinds(section, installed=True)) for section in SECTIONS if section != "record"]
    return {
        "sections": {
            section: {
                kind: [_plain(one) for one in controls(section, kind).values()]
                for kind in kinds(section, installed=True)
            }
            for section in SECTIONS
        },
        "kinds": {section: {kind.name: kind.help for kind in of.values()} for section, of in chosen},
        "hints": {section: glossary().get(HINTS.get(f"{section}.kind", Hint()).glossary, "") for section, _ in chosen},
        "seed": _plain(seed_control()),
        "values": begun.values(),
        "fitting": begun.kinds(),
        "presets": {name: {"title": preset.title, "words": preset.words} for name, preset in PRESETS.items()},
    }


def _plain(control: Control) -> dict[str, Any]:
    """A control; its tooltip is its help, and what the glossary says."""
    tooltip = f"{control.help} {glossary().get(control.glossary, '')}".strip()
    return dataclasses.asdict(control) | {"help": tooltip}


@functools.cache
def glossary() -> dict[str, str]:
    """Each word, and its explanation as plain text of one paragraph."""
    entries = _ENTRY.findall(document("glossary.md") or "")
    return {word: " ".join(_LINK.sub(r"\1", text).replace("`", "").split()) for word, text in entries}


def _figures() -> dict[str, Any]:
    """All figures by name, each a root of the page, which shows those that a run has."""
    time = Range1d(start=0, end=1, name="time")
    made = {"loss": _curves("loss", time, height=300)}
    made |= {name: _curves(name, time) for name in ("values", "omega", "mu")}
    return made | {name: _matrices(name) for name in ("map", "keys", "queries", "allocation")}


def _source(name: str, *columns: str) -> ColumnDataSource:
    return ColumnDataSource({column: [] for column in columns}, name=name)


def _figure(name: str, **options: Any) -> Any:
    return figure(
        name=name,
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border=4,
        **options,
    )


def _curves(name: str, time: Range1d, height: int = 240) -> Any:
    """Curves against time, with levels, drops, phases, the time chosen, and a dot on each curve at that time."""
    heights = Range1d(start=0, end=1, name=f"{name}.heights")
    plot = _figure(name, height=height, x_range=time, y_range=heights)
    strips = _source(f"{name}.strips", "x0", "x1", "color")
    plot.vstrip("x0", "x1", source=strips, fill_color="color", fill_alpha=0.12, line_color=None)
    levels = _source(f"{name}.levels", "y", "text", "x")
    plot.hspan("y", source=levels, line_color="gray", line_dash="dotted", line_width=1)
    words = plot.text(
        "x", "y", "text", source=levels, text_font_size="11px", text_align="right", text_baseline="bottom", x_offset=-4
    )
    words.name = f"{name}.level_names"
    drops = _source(f"{name}.drops", "x", "color")
    plot.vspan("x", source=drops, line_color="color", line_dash="dashed", line_width=1, line_alpha=0.8)
    lines = _source(f"{name}.lines", "xs", "ys", "color", "dash", "width", "name")
    drawn = plot.multi_line(
        "xs", "ys", source=lines, line_color="color", line_dash="dash", line_width="width", line_join="round"
    )
    dots = _source(f"{name}.dots", "x", "y", "color")
    plot.scatter("x", "y", source=dots, color="color", size=7)
    plot.add_layout(Span(name=f"{name}.cursor", dimension="height", location=0, line_width=1.5))
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=[("", "@name"), ("", "$snap_y{0.0000}")]))
    plot.xaxis.ticker = BasicTicker(desired_num_ticks=6)
    plot.xaxis.axis_label = "time t/τ"
    plot.xaxis.name, plot.yaxis.name = f"{name}.time_axis", f"{name}.axis"
    plot.grid.grid_line_alpha = 0.4
    plot.tags = [FixedTicker(ticks=[], name=f"{name}.decades")]
    return plot


def _matrices(name: str) -> Any:
    """Matrices as colored squares, with a title over each."""
    across, down = (Range1d(start=0, end=1, name=f"{name}.{way}") for way in ("across", "down"))
    plot = _figure(name, height=220, x_range=across, y_range=down)
    cells = _source(f"{name}.cells", "x", "y", "value", "what")
    mapper = LinearColorMapper(palette="Greys3", low=-1, high=1, name=f"{name}.colors")
    squares = plot.rect(
        "x", "y", 0.96, 0.96, source=cells, fill_color={"field": "value", "transform": mapper}, line_color=None
    )
    titles = _source(f"{name}.titles", "x", "y", "text")
    words = plot.text(
        "x", "y", "text", source=titles, text_font_size="11px", text_align="center", text_baseline="bottom"
    )
    words.name = f"{name}.title_words"
    plot.add_tools(HoverTool(renderers=[squares], tooltips=[("", "@what"), ("", "@value{0.0000}")]))
    plot.axis.visible = False
    plot.grid.visible = False
    return plot
