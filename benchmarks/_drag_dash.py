"""`python -m benchmarks._drag_dash PORT`: one slider and one loss curve, by Dash."""

import sys

from dash import ClientsideFunction, Dash, Input, Output, dcc, html  # pyright: ignore[reportMissingImports]

from ._drag_curve import LEAST, MOST, STEP, TIME, curve

app = Dash(__name__, serve_locally=True, update_title="")


def figure(value: float) -> dict:
    line = {"type": "scatter", "mode": "lines", "x": TIME.tolist(), "y": curve(value).tolist()}
    return {"data": [line], "layout": {"width": 600, "height": 350, "meta": value, "uirevision": "same"}}


app.layout = html.Div(
    [
        html.Div(
            dcc.Slider(LEAST, MOST, STEP, value=5.0, id="slider", updatemode="drag", marks=None), style={"width": 600}
        ),
        dcc.Graph(id="plot", figure=figure(5.0), config={"displayModeBar": False}),
        html.Div(id="none"),
    ]
)
app.callback(Output("plot", "figure"), Input("slider", "value"))(figure)
app.clientside_callback(
    ClientsideFunction("drag", "moved"), Output("none", "children"), Input("slider", "value"), prevent_initial_call=True
)

if __name__ == "__main__":
    app.run(host="127.0.0.1", port=sys.argv[1], debug=False)
