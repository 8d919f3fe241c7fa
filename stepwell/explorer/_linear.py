"""One regression, learned by attention: the run, and what the theory says of it."""

from typing import Any

import numpy as np

from stepwell.dynamics import descend, flow, time_factor, weight_factor
from stepwell.models import class_of
from stepwell.probes import compare
from stepwell.published import run_in
from stepwell.published.training import Setup, objective, set_up
from stepwell.theory import linear

from ._state import State

POINTS = 160
"""Recorded points of a view."""


def set_up_state(state: State) -> Setup:
    run = run_in(state.run_fields())
    return set_up(run.flags, run.engine, run.beyond)


def linear_view(state: State, report: Any, stop: Any) -> dict[str, Any]:
    setup = set_up_state(state)
    unit = time_factor(setup.normalisation, "1/N", length=setup.flags.context, factors=setup.model.factors)  # pyright: ignore
    if state.flows:
        until = state["until"] / unit or "converged"
        run = flow(setup.model, objective(setup), until=until, save=POINTS, spacing="steps", progress=False)
        time = run["time"].values
    else:
        run = descend(
            setup.model, objective(setup), rate=state["lr"], steps=state["epoch"], snapshots=POINTS, progress=False
        )
        run = run.isel(step=run["snapshot"].values)
        time = run["time"].values
    task: Any = setup.task
    weights = class_of(setup.flags.kind).theory_weights({name: run[name].values[0] for name in setup.model.weight_dims})
    modes = linear.modes(task)
    basis = modes.directions
    made: dict[str, Any] = {"time": unit * time, "loss": run["loss"].values[0], "values": weights["values"]}
    if "keys" in weights:
        made |= {"keys": weights["keys"] @ basis, "queries": weights["queries"] @ basis}
        maps = np.einsum("th,thri,thrj->tij", made["values"], made["keys"], made["queries"], optimize=True)
    else:
        made["merged"] = np.einsum("da,thde,eb->thab", basis, weights["key_queries"], basis, optimize=True)
        maps = np.einsum("th,thij->tij", made["values"], made["merged"])
    factor = weight_factor(setup.normalisation, "1/N", length=setup.flags.context, factors=setup.model.factors)  # pyright: ignore
    made["map"] = maps
    made["target"] = np.diag(modes.ends) / factor**setup.model.factors  # pyright: ignore
    levels = linear.levels(task)
    table = compare(run, task)
    scale = unit if state.flows else unit * 2 * state["lr"]
    made["levels"] = levels
    made["level_names"] = [f"{number} learned" for number in range(levels.size)]
    made["drop_times"] = np.asarray(table["predicted"], float) * scale
    made["drop_names"] = [f"component {c}, head {h}" for c, h in zip(table["component"], table["head"], strict=True)]
    made["table"] = {"columns": [], "rows": []}
    made["outcome"], made["message"] = run.attrs["outcome"], run.attrs["message"]
    made["problems"] = {}
    made["mode"] = "linear"
    return made
