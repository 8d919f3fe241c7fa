"""A figure uses whole runs only."""

from typing import TYPE_CHECKING

from stepwell._util.errors import InvalidInput
from stepwell._util.text import shown

if TYPE_CHECKING:
    import xarray as xr


class RunFailed(RuntimeError):
    """A run of a figure did not end as it should."""


def completed(trajectory: "xr.Dataset") -> "xr.Dataset":
    """The trajectory, if it ran to its end. Trainers keep what they have on Ctrl-C; a figure cannot use half a run.

    **Arguments:**

    - `trajectory`: what `descend`, `online` or `flow` returned.

    **Returns:** the same. An interrupted run raises `KeyboardInterrupt`, one that failed otherwise `RunFailed`.

    **Example:**

    >>> import xarray as xr
    >>> from stepwell.figures import completed
    >>> completed(xr.Dataset(attrs={"outcome": "finished", "message": ""})).attrs["outcome"]
    'finished'
    """
    attributes = getattr(trajectory, "attrs", None)
    if not isinstance(attributes, dict) or not {"outcome", "message"} <= set(attributes):
        raise InvalidInput(f"trajectory is {shown(trajectory)}; it must be what descend, online or flow returned")
    outcome = attributes["outcome"]
    if outcome == "interrupted":
        raise KeyboardInterrupt
    if outcome not in ("finished", "converged"):
        raise RunFailed(f"a run ended as {outcome}: {attributes['message']}")
    return trajectory
