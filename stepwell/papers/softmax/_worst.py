"""A claim about many points at once: each seed is judged by its worst."""

from typing import Unpack

import numpy as np
import xarray as xr

from stepwell.figures import Claim, Origin


def worst_point(
    id: str,
    statement: str,
    *,
    measured: xr.DataArray,
    predicted: xr.DataArray | float,
    tolerance: xr.DataArray | float,
    basis: str,
    **origin: Unpack[Origin],
) -> Claim:
    """Equality at every point of every `run`; reported is the point furthest off in units of its tolerance."""
    arrays = xr.broadcast(measured, *(xr.DataArray(given) for given in (predicted, tolerance)))
    values, wanted, allowed = (array.transpose("run", ...).values.reshape(array.sizes["run"], -1) for array in arrays)
    # What is not a number is the worst of all.
    off = np.nan_to_num(np.abs(values - wanted) / allowed, nan=np.inf)
    rows, worst = np.arange(len(off)), off.argmax(axis=1)
    return Claim.over(
        id,
        statement,
        predicted=wanted[rows, worst],
        measured=values[rows, worst],
        tolerance=allowed[rows, worst],
        basis=basis,
        **origin,
    )
