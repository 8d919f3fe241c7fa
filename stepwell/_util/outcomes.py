"""How a training or a sweep ended: an attribute of its data set, or an exception that carries the data set."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr

DONE = ("finished", "converged")
"""Outcomes of a run that came to its end."""


class _WithTrajectory(BaseException):
    def __init__(self, message: str, trajectory: "xr.Dataset"):
        super().__init__(message)
        self.trajectory = trajectory

    def __reduce__(self):
        return type(self), (*self.args, self.trajectory)


class RunFailed(_WithTrajectory, RuntimeError):
    """A training did not come to its end: it diverged, the solver failed, or it is stuck at another fixed point.

    Or a sweep came to its limit of time.

    **Arguments:**

    - `message`: how and why it ended, and what to try.
    - `trajectory`: what was recorded up to there; of a sweep, what it would have returned, as far as it is computed.

    **Example:**

    >>> task = sw.InContextRegression(sw.covariance([1.0, 0.5]), 31)
    >>> model = sw.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=1.0)
    >>> try:
    ...     sw.descend(model, sw.Population(task), rate=50.0, steps=100, progress=False)
    ... except sw.RunFailed as failed:
    ...     failed.trajectory.attrs["outcome"]
    'diverged'
    """


class Interrupted(_WithTrajectory, KeyboardInterrupt):
    """A training or a sweep was interrupted by Ctrl-C, SIGTERM or SIGHUP.

    **Arguments:**

    - `message`: how it was interrupted.
    - `trajectory`: what was recorded up to there; of a sweep, what it would have returned, as far as it is computed.

    **Example:**

    >>> issubclass(sw.Interrupted, KeyboardInterrupt)
    True
    """


def return_or_raise(trajectory: "xr.Dataset", throw: bool) -> "xr.Dataset":
    """Return the trajectory, or the result of a sweep; or raise `Interrupted` or `RunFailed` if it did not come to its
    end and shall `throw`."""
    outcome, message = trajectory.attrs.get("outcome", DONE[0]), trajectory.attrs.get("message", "")
    if not throw or outcome in DONE:
        return trajectory
    if outcome == "interrupted":
        raise Interrupted(message, trajectory)
    raise RunFailed(f"{outcome}: {message} (throw=False returns what there is)", trajectory)
