"""The pictures of the page as Bokeh figures without data, which the page fills."""

from typing import Any

from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    LinearColorMapper,
    Range1d,
    Span,
)
from bokeh.plotting import figure

Pictures = dict[str, Any]


CURVES, MATRICES = ("values", "omega", "mu"), ("map", "keys", "queries", "allocation")


def pictures() -> Pictures:
    """All figures by name, each a root of the page, which shows those that a run has."""
    time = Range1d(start=0, end=1, name="time")
    made = {"loss": _curves("loss", time, height=300)}
    made |= {name: _curves(name, time) for name in CURVES}
    return made | {name: _matrices(name) for name in MATRICES}


def _source(name: str, *columns: str) -> ColumnDataSource:
    return ColumnDataSource({column: [] for column in columns}, name=name)


def _figure(name: str, **options: Any) -> Any:
    plot = figure(
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
    return plot


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
