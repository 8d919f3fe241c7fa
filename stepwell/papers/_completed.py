"""A figure uses whole runs only."""

import xarray as xr


class RunFailed(RuntimeError):
    """A run of a figure did not end as it should."""


def completed(trajectory: xr.Dataset) -> xr.Dataset:
    """The trajectory, if it ran to its end. Trainers keep what they have on Ctrl-C; a figure cannot use half a run."""
    outcome = trajectory.attrs["outcome"]
    if outcome == "interrupted":
        raise KeyboardInterrupt
    if outcome not in ("finished", "converged"):
        raise RunFailed(f"a run ended as {outcome}: {trajectory.attrs['message']}")
    return trajectory
