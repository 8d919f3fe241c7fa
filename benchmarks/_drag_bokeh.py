"""`python -m benchmarks._drag_bokeh PORT [--no-delay]`: one slider and one loss curve, by Bokeh's server.

`--no-delay` sets TCP_NODELAY. Bokeh writes a message in several pieces; without it the later ones may wait for the
browser's acknowledgement of the first, up to 40 ms.
"""

import sys

from bokeh.layouts import column
from bokeh.models import ColumnDataSource, CustomJS, Slider
from bokeh.plotting import figure
from bokeh.server.server import Server
from bokeh.server.views.ws import WSHandler

from ._drag_curve import LEAST, MOST, STEP, TIME, curve


def page(document) -> None:
    source = ColumnDataSource({"time": TIME, "loss": curve(5.0)})
    plot = figure(width=600, height=350, toolbar_location=None)
    plot.line("time", "loss", source=source)
    slider = Slider(start=LEAST, end=MOST, step=STEP, value=5.0, width=600)
    slider.js_on_change("value", CustomJS(code="window.drag.moved(cb_obj.value)"))
    source.js_on_change("data", CustomJS(code="window.drag.shown(cb_obj.tags[0])"))

    def update(_attribute: str, _old: float, value: float) -> None:
        source.tags = [value]
        source.data = {"time": TIME, "loss": curve(value)}

    slider.on_change("value", update)
    document.add_root(column(slider, plot))


def send_at_once(connection: WSHandler, open_plain=WSHandler.open) -> None:
    """Open a web socket without Nagle's algorithm."""
    connection.set_nodelay(True)
    return open_plain(connection)


if __name__ == "__main__":
    if "--no-delay" in sys.argv:
        WSHandler.open = send_at_once
    server = Server({"/": page}, port=int(sys.argv[1]), address="127.0.0.1")
    server.run_until_shutdown()
