"""An ensemble of runs by Diffrax, as one vectorised program."""

from typing import Any

import diffrax
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._interrupt import Interruptible
from stepwell._progress import Meter

from ._flow import Field, Plan, Solution, losses, over_runs

_SOLVERS = {"kvaerno5": diffrax.Kvaerno5, "tsit5": diffrax.Tsit5}
_SEGMENTS = 32
"""Parts in which a run to a given time is made, so that progress shows and it can be interrupted."""
_MAX_STEPS = 100_000
"""Solver steps in one segment at the most."""


def solve(fields: Any, initial: Float[Array, "run weights"], plan: Plan, solver: str) -> Solution:
    """Integrate all runs side by side, segment by segment.

    To a given time the segments are those between save times. To convergence their length doubles until every run is
    there; then the whole is integrated again with the save times that the end decides.
    """
    if plan.until is not None:
        return _integrate(fields, initial, plan, solver, plan.times(plan.until))
    end, outcome, message = _find_end(fields, initial, plan, solver)
    saved = _integrate(fields, initial, plan, solver, plan.times(end))
    return saved._replace(outcome=outcome, message=message) if saved.outcome == "finished" else saved


def _width(times: int) -> int:
    """Save times in a segment, its start included: as many in every one, so that one compiled program serves all."""
    return 1 + -(-times // _SEGMENTS)


def _find_end(fields: Any, initial: Array, plan: Plan, solver: str) -> tuple[float, str, str]:
    """(time at which every run has converged, outcome, message); the time may be an earlier end."""
    assert plan.targets is not None
    state, start, length = initial, 0.0, 1.0
    width = _width((plan.saves if isinstance(plan.saves, int) else plan.saves.size) - 1)
    with Meter("flow, to its end", 1.0, shown=plan.progress) as meter, Interruptible() as ctrl_c:
        while not ctrl_c.pressed:
            times = jnp.linspace(start, start + length, width)
            state, _, ok = _segment(fields, state, times, plan.rtol, plan.atol, solver)
            found = np.asarray(losses(fields, state))
            if not bool(np.all(np.asarray(ok))) or not np.all(np.isfinite(found)):
                return start, "solver failed", f"the solver needs over {_MAX_STEPS} steps after time {start:.4g}"
            start += length
            length = start
            if np.all(found <= plan.targets):
                return start, "converged", ""
            if start > plan.patience:
                return start, "stuck", plan.stuck(float(found.max()), start)
            meter.update(plan.nearness(float(found.max())), f"loss {found.mean():.4g}, time {start:.3g}")
    return start, "interrupted", f"interrupted at time {start:.6g}; what came before is kept"


def _integrate(fields: Any, initial: Array, plan: Plan, solver: str, times: np.ndarray) -> Solution:
    outcome, message, work = "finished", "", 0
    pieces = [np.asarray(initial)[:, None, :][:, : int(times[0] == 0.0)]]
    state, start = initial, 0.0
    rest = times[times > 0.0]
    with Meter("flow", rest.size, shown=plan.progress) as meter, Interruptible() as ctrl_c:
        try:
            for part in np.array_split(rest, min(_SEGMENTS, rest.size)):
                if ctrl_c.pressed:
                    raise KeyboardInterrupt
                padding = np.repeat(part[-1:], _width(rest.size) - 1 - part.size)
                padded = np.concatenate([[start], part, padding])
                state, saved, ok = _segment(fields, state, jnp.asarray(padded), plan.rtol, plan.atol, solver)
                if not bool(np.all(np.asarray(ok))):
                    outcome = "solver failed"
                    message = f"the solver needs over {_MAX_STEPS} steps after time {start:.4g}; try a larger rtol"
                    break
                pieces.append(np.asarray(saved)[:, 1 : 1 + part.size])
                start, work = float(part[-1]), work + 1
                meter.update(int(np.searchsorted(rest, start)), f"time {start:.3g}")
        except KeyboardInterrupt:
            outcome, message = "interrupted", f"interrupted at time {start:.6g}; what came before is kept"
    weights = np.concatenate(pieces, axis=1)
    return Solution(times[: weights.shape[1]], weights, outcome, message, {"segments": work})


@eqx.filter_jit
def _segment(fields: Any, state: Array, times: Float[Array, " save"], rtol: float, atol: float, solver: str):
    """(states at the last time, states at all times, whether each run got there)."""

    def single(field: Field, weights: Array):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, w, args: field(w)),
            _SOLVERS[solver](),
            times[0],
            times[-1],
            None,
            weights,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
            max_steps=_MAX_STEPS,
            throw=False,
        )
        assert solution.ys is not None
        return solution.ys[-1], solution.ys, solution.result == diffrax.RESULTS.successful

    return over_runs(fields, single, state)
