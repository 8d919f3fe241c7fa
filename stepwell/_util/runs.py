"""The dimension `run` of a trajectory."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr


def with_runs(trajectory: "xr.Dataset") -> "xr.Dataset":
    """The trajectory with its dimension `run`, of which `isel(run=0)` and `sel(run=5)` leave a scalar coordinate."""
    return trajectory.expand_dims("run") if "run" in trajectory.coords and not trajectory["run"].dims else trajectory
