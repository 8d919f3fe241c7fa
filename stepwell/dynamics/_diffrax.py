"""Flows by solvers of Diffrax, all runs as one vectorised program. Importing Diffrax takes a second: only here."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._errors import InvalidInput
from stepwell._interrupt import Interruptible, interrupted
from stepwell._progress import Meter
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective

from ._field import Field, over_runs
from ._plan import Plan, Solution
from ._solver import AbstractFlowSolver
from .fast import gradient_form

_SEGMENTS = 32
"""Parts in which a run to a given time is made, so that progress shows and it can be interrupted."""
_MAX_STEPS = 100_000
"""Attempted steps at the most, in one segment to a given time or in a run to convergence."""
_STEPS = 256
"""Attempted steps in one segment of a run to convergence. Their dense output is kept."""
_FIRST = 1e-6
"""Length of the first step of a run to convergence; the following ones grow fast."""
_DENSE = 45_000
"""Numbers of dense output for each weight: those of nine vectors a step, in the 5,000 steps that a long run takes."""


@dataclasses.dataclass(frozen=True)
class Diffrax(AbstractFlowSolver):
    """Any adaptive solver of Diffrax, for one run or an ensemble.

    `flow` takes the solver of Diffrax as it is, and wraps it in this class.

    **Arguments:**

    - `solver`: an adaptive solver of Diffrax for equations of one term, such as `diffrax.Kvaerno5()` (implicit) or
      `diffrax.Tsit5()` (explicit).

    **Example:**

    >>> import diffrax
    >>> import stepwell as sw
    >>> sw.dynamics.Diffrax(diffrax.Kvaerno5()).name
    'kvaerno5'
    """

    solver: Any

    def __post_init__(self) -> None:
        import diffrax

        if not isinstance(self.solver, diffrax.AbstractAdaptiveSolver):
            raise InvalidInput(
                f"{type(self.solver).__name__} does not estimate its error, by which steps are chosen; give a solver "
                "that does, such as diffrax.Tsit5() or diffrax.Kvaerno5(), or wrap it in diffrax.HalfSolver"
            )
        if self.solver.term_structure is not diffrax.AbstractTerm:
            raise InvalidInput(
                f"{type(self.solver).__name__} is for equations of several terms, and a gradient flow has one term; "
                "give a solver such as diffrax.Tsit5() or diffrax.Kvaerno5()"
            )

    @property
    def name(self) -> str:
        return type(self.solver).__name__.lower()

    @property
    def _explicit(self) -> bool:
        import diffrax

        return isinstance(self.solver, diffrax.AbstractERK)

    def form(self, objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
        """Implicit solvers differentiate the gradient itself, which may be possible in the plain form only."""
        return gradient_form(objective, model) if self._explicit else objective

    def numbers_held(self, weights: int, plan: Plan) -> int:
        return (0 if self._explicit else 4 * weights**2) + (_DENSE * weights if plan.until is None else 0)

    def solve(self, fields: Any, initial: Float[Array, "run weights"], plan: Plan) -> Solution:
        if plan.until is None:
            return _to_convergence(fields, initial, plan, self.solver)
        return _to_time(fields, initial, plan, self.solver, plan.times(plan.until))


def _to_time(fields: Any, initial: Array, plan: Plan, solver: Any, times: np.ndarray) -> Solution:
    """Integrate all runs side by side in segments between save times."""
    outcome, message, work = "finished", "", 0
    pieces = [np.asarray(initial)[:, None, :][:, : int(times[0] == 0.0)]]
    state, start = initial, 0.0
    rest = times[times > 0.0]
    width = -(-rest.size // _SEGMENTS)  # as many times in every segment, so that one compiled program serves all
    with Meter("flow", rest.size, shown=plan.progress) as meter, Interruptible() as ctrl_c:
        try:
            for part in np.array_split(rest, min(_SEGMENTS, rest.size)):
                if ctrl_c.pressed:
                    raise KeyboardInterrupt
                padded = np.concatenate([[start], part, np.repeat(part[-1:], width - part.size)])
                state, saved, steps, ok = _segment(fields, state, jnp.asarray(padded), _tolerances(plan), solver)
                if not np.all(np.asarray(ok)):
                    outcome, message = "solver failed", _too_many(start)
                    break
                pieces.append(np.asarray(saved)[:, 1 : 1 + part.size])
                start, work = float(part[-1]), work + int(np.sum(steps))
                meter.update(int(np.searchsorted(rest, start)), f"time {start:.3g}")
        except KeyboardInterrupt:
            outcome, message = "interrupted", f"{interrupted()} at time {start:.6g}; what came before is kept"
    weights = np.concatenate(pieces, axis=1)
    return Solution(times[: weights.shape[1]], weights, outcome, message, {"steps": work})


@eqx.filter_jit
def _segment(fields: Any, state: Array, times: Float[Array, " save"], tolerances: Float[Array, "2"], solver: Any):
    """(states at the last time, states at all times, attempted steps, whether each run got there)."""
    import diffrax

    def single(field: Field, weights: Array):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, w, args: field(w)),
            solver,
            times[0],
            times[-1],
            None,
            weights,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=tolerances[0], atol=tolerances[1]),
            max_steps=_MAX_STEPS,
            throw=False,
        )
        assert solution.ys is not None
        succeeded = solution.result == diffrax.RESULTS.successful
        return solution.ys[-1], solution.ys, solution.stats["num_steps"], succeeded

    return over_runs(fields, single, state)


class _State(NamedTuple):
    """Where a run is, or with a first axis `run` where all are."""

    time: Any
    weights: Any
    length: Any
    """Length of the run's last step."""


class _Ahead(NamedTuple):
    """What a segment of a run to convergence returned beside its new state."""

    loss: Any
    steps: Any
    """How many steps were attempted."""
    failed: Any
    dense: Any
    """The path, as Diffrax's `DenseInterpolation`."""


def _to_convergence(fields: Any, initial: Array, plan: Plan, solver: Any) -> Solution:
    """Integrate every run, each in steps of its own, until an event: its loss is at its target.

    Save times depend on the end. So the dense output of all steps is kept, and read off at the end. Runs that converge
    before the last one go on to its time: all have the same save times.
    """
    assert plan.targets is not None
    runs = initial.shape[0]
    state = _State(np.zeros(runs), np.asarray(initial), np.full(runs, _FIRST))
    ends, targets, arrived = np.full(runs, plan.patience), plan.targets, np.zeros(runs, bool)
    path: list[tuple[np.ndarray, np.ndarray, Any]] = []
    outcome, message, work = "", "", 0
    with Meter("flow", 1.0, shown=plan.progress) as meter, Interruptible() as ctrl_c:
        while True:
            moved, ahead = _advance(fields, state, ends, targets, arrived, _tolerances(plan), solver)
            before, state = state, _State(*(np.asarray(part) for part in moved))
            path.append((before.time, state.time, ahead.dense))
            loss, work = np.asarray(ahead.loss), work + int(np.sum(ahead.steps))
            if np.any(ahead.failed) or work > _MAX_STEPS * runs:
                outcome, message = "solver failed", _too_many(float(state.time.min()))
                break
            arrived = (loss <= targets) | (state.time >= ends)
            end = float(state.time.max())
            if np.all(arrived) and np.all(state.time == end):
                outcome, message = plan.verdict(loss, end)
                break
            if np.all(arrived):
                ends, targets = np.full(runs, end), np.full(runs, -np.inf)
                arrived = state.time >= ends
            elif ctrl_c.pressed:
                time = float(state.time.min())
                outcome, message = "interrupted", f"{interrupted()} at time {time:.6g}; what came before is kept"
                break
            meter.update(plan.nearness(float(loss.max())), f"loss {loss.mean():.4g}, time {state.time.min():.3g}")
    times = plan.times(float(state.time.min()))
    return Solution(times, _read(path, times, np.asarray(initial)), outcome, message, {"steps": work})


def _tolerances(plan: Plan) -> Float[Array, "2"]:
    """Relative and absolute; an array, or each would be compiled anew."""
    return jnp.asarray([plan.rtol, plan.atol])


def _too_many(time: float) -> str:
    return f"the solver needs over {_MAX_STEPS} steps, or none is accurate, after time {time:.4g}; try a larger rtol"


@eqx.filter_jit
def _advance(
    fields: Any, state: _State, ends: Any, targets: Any, arrived: Any, tolerances: Float[Array, "2"], solver: Any
) -> tuple[_State, _Ahead]:
    """Up to `_STEPS` attempted steps of every run; nothing moves once it has arrived."""
    import diffrax

    def single(field: Field, given: tuple[_State, Array, Array, Array]) -> tuple[_State, _Ahead]:
        state, end, target, arrived = given
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, w, args: field(w)),
            solver,
            state.time,
            jnp.where(arrived, state.time + 1.0, end),  # there is no dense output without any time to pass
            state.length,
            state.weights,
            saveat=diffrax.SaveAt(t1=True, dense=True),
            stepsize_controller=diffrax.PIDController(rtol=tolerances[0], atol=tolerances[1]),
            event=diffrax.Event(lambda t, w, args, **kwargs: arrived | (field.loss(w) <= target)),
            max_steps=_STEPS,
            throw=False,
        )
        dense = solution.interpolation
        assert solution.ts is not None and solution.ys is not None and dense is not None
        results = diffrax.RESULTS
        fine = (solution.result == results.successful) | (solution.result == results.event_occurred)
        accepted = solution.stats["num_accepted_steps"]
        fine |= (solution.result == results.max_steps_reached) & (accepted > 0)
        last = dense.ts[accepted] - dense.ts[jnp.maximum(accepted - 1, 0)]
        there = _State(solution.ts[-1], solution.ys[-1], jnp.where(accepted > 0, last, state.length))
        there = jax.tree.map(lambda old, new: jnp.where(arrived, old, new), state, there)
        loss = field.loss(there.weights)
        failed = ~arrived & ~(fine & jnp.isfinite(loss))
        return there, _Ahead(loss, jnp.where(arrived, 0, solution.stats["num_steps"]), failed, dense)

    return over_runs(fields, single, (state, ends, targets, arrived))


def _read(
    path: list[tuple[np.ndarray, np.ndarray, Any]], times: Float[np.ndarray, " time"], initial: np.ndarray
) -> Float[np.ndarray, "run time weights"]:
    """The weights at these times, from the dense output of the segments in which they are."""
    weights = np.repeat(initial[:, None], times.size, axis=1)
    for start, end, dense in path:
        inside = (times > start[:, None]) & (times <= end[:, None])
        if inside.any():
            places = np.where(inside, times, end[:, None])
            weights = np.where(inside[..., None], np.asarray(_evaluate(dense, places)), weights)
    return weights


@eqx.filter_jit
def _evaluate(dense: Any, times: Any) -> Float[Array, "run time weights"]:
    return eqx.filter_vmap(lambda dense, times: jax.vmap(dense.evaluate)(times))(dense, jnp.asarray(times))
