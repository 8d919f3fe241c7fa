"""Theory beside a run of linear attention, for a page: the table of `analysis.compare`, and the scalar equations."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from stepwell._util.errors import InvalidInput
from stepwell.analysis import compare
from stepwell.experiments import Experiment, sample_of, theory_name, theory_task, theory_weights
from stepwell.theory import IntegrationFailed, linear

_GROWN = (1 - 0.5**0.5) ** (1 / 3)
"""Of its end, the value of a head when the loss has fallen by half of its drop: 1 - (1 - x³)² is a half."""
_EARLY = 0.02
"""Of its end, the value from which on the scalar equation of a head is drawn: before, the head is still turning."""
_COLUMNS = {
    "drop": "drop",
    "component": "component",
    "measured_component": "measured component",
    "head": "head",
    "measured_head": "measured head",
    "predicted": "t/τ",
    "measured": "measured t/τ",
    "predicted_step": "step",
    "measured_step": "measured step",
    "level": "level",
    "measured_level": "measured level",
    "in_order": "in order",
    "status": "status",
}
"""Columns of `analysis.compare`, and what the page calls them."""


class Theory(NamedTuple):
    """What theory says of a run."""

    task: Any
    """The task that it is for: where a finite sample is trained on, the one nearest to it."""
    kind: str
    levels: np.ndarray
    """Losses of the plateaus that the model can visit."""
    learned: list[int]
    """Components that are learned on each."""
    start: dict[str, np.ndarray]
    """Initial weights, for attention divided by N."""
    remark: str


def theory_of(experiment: Experiment, task: Any, model: Any) -> Theory:
    """The levels of an experiment that theory describes."""
    described, remark = theory_task(experiment, task)
    kind, start = str(theory_name(experiment)), theory_weights(experiment, model)
    pairs = start["keys"].shape[-2] if "keys" in start else 1
    losses = linear.levels(described)
    learned = linear.PREDICTORS[kind].plateaus(int(np.sum(np.diff(losses) < 0)), len(start["values"]) * pairs)
    return Theory(described, kind, losses[learned], learned, start, remark)


def drops_of(experiment: Experiment, task: Any, run: xr.Dataset) -> tuple[pd.DataFrame | None, str]:
    """The table of `analysis.compare` for a run, and its remarks; None and the reason where there is none."""
    try:
        table = compare(run, task, sample=sample_of(experiment))
    except InvalidInput as error:
        return None, str(error)
    return table, "; ".join(line.partition(": ")[2] or line for line in table.attrs["remarks"])


def table_of(drops: pd.DataFrame) -> dict[str, Any]:
    """The table as the page shows it: without steps where there are none."""
    stepped = np.isfinite(drops[["predicted_step", "measured_step"]].to_numpy(float)).any()
    names = [name for name in _COLUMNS if stepped or not name.endswith("_step")]
    rows = [[_plain(row[name]) for name in names] for _, row in drops.iterrows()]
    return {"columns": [_COLUMNS[name] for name in names], "rows": rows}


def _plain(value: Any) -> Any:
    if value is None or value is pd.NA or (isinstance(value, float) and not np.isfinite(value)):
        return None
    return value.item() if isinstance(value, np.generic) else value


def theory_values(theory: Theory, drops: pd.DataFrame | None, time: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The value of each head by the scalar equations, (point, head); nan where they say nothing.

    `end` are the measured values in the end: of them the sign is taken, which the loss does not know.
    """
    made = np.full((time.size, end.size), np.nan)
    try:
        if theory.kind == "merged":
            v, u = linear.merged_start(theory.task, **theory.start)
            if v > 0:
                modes = linear.modes(theory.task)
                unit = modes.driving / np.linalg.norm(modes.driving)
                course = linear.merged_course(theory.task, time, v, u)
                along = np.einsum("hij,id,jd->hd", theory.start["key_queries"], modes.directions, modes.directions)
                share = (theory.start["values"] + along @ unit) / 2
                made[:] = course.value[:, None] * share / np.linalg.norm(share)
        elif drops is not None:
            _separate_values(theory, drops, time, np.sign(end), made)
    except (IntegrationFailed, InvalidInput):
        pass
    return made


def _separate_values(
    theory: Theory, drops: pd.DataFrame, time: np.ndarray, signs: np.ndarray, made: np.ndarray
) -> None:
    """Of the first component that each head learns, up to its second."""
    predicted = drops.dropna(subset=["head", "component", "predicted"])
    for head, own in predicted.groupby("head", sort=False):
        place, component = int(head) - 1, int(own["component"].iloc[0]) - 1  # pyright: ignore[reportArgumentType]
        final = linear.aligned_end(theory.task, component)
        if not final > 0:
            continue
        first = _EARLY * final
        half = float(linear.aligned_time(theory.task, component, first, np.array([_GROWN * final]))[0])
        since = time - (float(own["predicted"].iloc[0]) - half)
        shown = (since >= 0) & (time < (own["predicted"].iloc[1] if len(own) > 1 else np.inf))
        made[shown, place] = signs[place] * linear.aligned_value(theory.task, component, first, since[shown])
