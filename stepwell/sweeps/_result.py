"""What a study came to: one data set with its axes as dimensions, and a table."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from stepwell.store import Column, Store

from ._plan import Block, names_of
from ._study import Study, short_name

if TYPE_CHECKING:
    import pandas as pd


def result_of(study: Study, blocks: list[Block], store: Store) -> xr.Dataset:
    """All scalars of the runs of a study that the store has, over the axes of the study."""
    names = names_of(blocks)
    known, columns = store.lookup(names)
    variables: dict[str, Any] = {}
    dims = tuple(axis.name for axis in study.axes)
    for name, column in columns.items():
        variables[name] = (dims, _placed(known, column).reshape(study.shape), _notes(name))
    variables["stored"] = (dims, known.reshape(study.shape), {"long_name": "whether the run is in the store"})
    made = xr.Dataset(variables)
    for axis in study.axes:
        for field, values in axis.fields.items():
            made = made.assign_coords({short_name(field): (axis.name, _labels(values))})
        if axis.name not in made.coords:
            made = made.assign_coords({axis.name: np.arange(len(axis))})
    made.attrs = {"runs": study.size, "stored": int(known.sum()), "store": str(store.path)}
    return made


def _placed(known: np.ndarray, column: Column) -> np.ndarray:
    """A column at the places of its runs; where there is none, not a number or an empty string."""
    values = column.decoded()
    if column.categories is not None:
        texts = np.array([_text(value) for value in values.tolist()] or [""])
        made = np.full(known.size, "", dtype=texts.dtype)
        made[known] = texts[: int(known.sum())]
        return made
    if known.all():
        return values
    made = np.full(known.size, np.nan)
    made[known] = values
    return made


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _labels(values: list[Any]) -> np.ndarray:
    """Values of an axis as a coordinate: numbers and strings as they are, lists as strings."""
    if any(isinstance(value, list | tuple) for value in values):
        return np.array([_text(value) for value in values])
    return np.array(values)


def _notes(name: str) -> dict[str, str]:
    if name.startswith(("drop_", "predicted_")):
        return {"units": "t/tau"}
    return {"long_name": "mean squared error"} if name.endswith("_loss") else {}


def table_of(result: xr.Dataset) -> "pd.DataFrame":
    """The same as a tidy table: a row for each run that is stored, the axes and what varies with them as columns."""
    whole = (result if result.sizes else result.expand_dims("run")).to_dataframe().reset_index()
    return whole.loc[whole["stored"].to_numpy(bool)].drop(columns="stored").reset_index(drop=True)
