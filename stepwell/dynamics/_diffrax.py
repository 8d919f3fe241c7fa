"""Flows by solvers of Diffrax, all runs as one vectorized program. Importing Diffrax takes a second: only here."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util.errors import InvalidInput
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective

from ._checkpoint import arrays_of, with_arrays
from ._field import Field, over_runs
from ._plan import MOST_STEPS, AbstractFlowSolver, Goals, Plan, Reached, Solution, follow
from .fast import gradient_form

_STEPS = 64
"""Attempted steps in one segment, after which progress shows and a run can be interrupted or saved."""
_FIRST = 1e-6
"""Length of the first step; the following ones grow fast."""
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
        """Return the plain form of the loss: implicit solvers differentiate the gradient itself."""
        return gradient_form(objective, model) if self._explicit else objective

    def numbers_held(self, weights: int, plan: Plan) -> int:
        return (0 if self._explicit else 4 * weights**2) + (_DENSE * weights if plan.until is None else 0)

    def solve(self, fields: Any, initial: Float[Array, "run weights"], plan: Plan) -> Solution:
        """Integrate every run, each in steps of its own, to a time or until an event: its loss is at its target.

        Where the end is open, so are the save times: then the dense output of all steps is kept, and read off at the
        end.
        """
        runs, start = initial.shape[0], np.asarray(initial)
        state, loss, work = _State(np.zeros(runs), start, np.full(runs, _FIRST)), np.full(runs, np.inf), 0
        goals = Goals(plan, runs)
        path = _Path(start, None if plan.until is None or plan.record.spacing == "steps" else plan.times(plan.until))
        tolerances = jnp.asarray([plan.rtol, plan.atol])  # an array, or each would be compiled anew
        if plan.checkpoint.state is not None:
            before = plan.checkpoint.state
            work, path.weights, path.segments = before["work"], *before["path"]
            state, loss, goals.ends, goals.targets = with_arrays((state, loss, *goals), before["now"])

        def saved() -> dict[str, Any]:
            return {"now": arrays_of((state, loss, *goals)), "work": work, "path": [path.weights, path.segments]}

        def arrived() -> Any:
            return (state.time >= goals.ends) | (loss <= goals.targets)

        def advance() -> Reached:
            nonlocal state, loss, work
            targets, begun = None if plan.targets is None else goals.targets, state.time
            moved, ahead = _advance(fields, state, goals.ends, targets, arrived(), tolerances, self.solver)
            state, loss = _State(*(np.asarray(part) for part in moved)), np.asarray(ahead.loss)
            path.add(begun, state.time, ahead.dense)
            work += int(np.sum(ahead.steps))
            return Reached(state.time, loss, arrived(), np.asarray(ahead.failed), work // runs)

        outcome, message = follow(plan, goals, advance, saved, MOST_STEPS)
        times, weights = path.upto(float(state.time.min()), plan)
        return Solution(times, weights, outcome, message, {"steps": work})


class _State(NamedTuple):
    """Where a run is, or with a first axis `run` where all are."""

    time: Any
    weights: Any
    length: Any
    """Length of the run's last step."""


class _Ahead(NamedTuple):
    """What a segment of a run returned beside its new state."""

    loss: Any
    steps: Any
    """How many steps were attempted."""
    failed: Any
    dense: Any
    """The path, as Diffrax's `DenseInterpolation`."""


@eqx.filter_jit
def _advance(
    fields: Any, state: _State, ends: Any, targets: Any, arrived: Any, tolerances: Float[Array, "2"], solver: Any
) -> tuple[_State, _Ahead]:
    """Up to `_STEPS` attempted steps of every run; nothing moves once it has arrived."""
    import diffrax

    def single(field: Field, given: tuple[_State, Array, Array | None, Array]) -> tuple[_State, _Ahead]:
        state, end, target, arrived = given

        def there(t: Any, weights: Array, args: Any, **kwargs: Any) -> Array:
            return arrived if target is None else arrived | (field.loss(weights) <= target)

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, w, args: field(w)),
            solver,
            state.time,
            jnp.where(arrived, 2 * state.time + 1.0, end),  # there is no dense output without any time to pass
            state.length,
            state.weights,
            saveat=diffrax.SaveAt(t1=True, dense=True),
            stepsize_controller=diffrax.PIDController(rtol=tolerances[0], atol=tolerances[1]),
            event=diffrax.Event(there),
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
        moved = _State(solution.ts[-1], solution.ys[-1], jnp.where(accepted > 0, last, state.length))
        moved = jax.tree.map(lambda old, new: jnp.where(arrived, old, new), state, moved)
        loss = field.loss(moved.weights)
        failed = ~arrived & ~(fine & jnp.isfinite(loss))
        return moved, _Ahead(loss, jnp.where(arrived, 0, solution.stats["num_steps"]), failed, dense)

    return over_runs(fields, single, (state, ends, targets, arrived))


class _Path:
    """The weights at the save times, read off the dense output of segments: at once, or at the end if times are not
    known before."""

    def __init__(self, start: Float[np.ndarray, "run weights"], times: Float[np.ndarray, " time"] | None):
        self._start = start
        self._times = times
        self._dense: Any = None
        """A dense output, for all that is the same in every segment."""
        self.segments: list[tuple[np.ndarray, np.ndarray, list[np.ndarray]]] = []
        """Starts, ends and the arrays of the dense output, where times are not known."""
        self.weights = None if times is None else np.repeat(start[:, None], times.size, axis=1)

    def add(self, start: Float[np.ndarray, " run"], end: Float[np.ndarray, " run"], dense: Any) -> None:
        if self._times is None:
            self.segments.append((start, end, arrays_of(dense)))
            self._dense = dense
        else:
            self.weights = _read(self.weights, self._times, start, end, dense)

    def upto(self, end: float, plan: Plan) -> tuple[Float[np.ndarray, " time"], Float[np.ndarray, "run time weights"]]:
        """The save times of a run that came to this time, and the weights there."""
        if self._times is not None and self.weights is not None:
            kept = self._times <= end
            return self._times[kept], self.weights[:, kept]
        steps = [np.ravel(with_arrays(self._dense, arrays).ts) for _, _, arrays in self.segments]
        times = plan.times(end, np.concatenate(steps) if steps else None)
        weights = np.repeat(self._start[:, None], times.size, axis=1)
        for start, last, arrays in self.segments:
            weights = _read(weights, times, start, last, with_arrays(self._dense, arrays))
        return times, weights


def _read(
    weights: Any,
    times: Float[np.ndarray, " time"],
    start: Float[np.ndarray, " run"],
    end: Float[np.ndarray, " run"],
    dense: Any,
) -> Float[np.ndarray, "run time weights"]:
    """The weights at the times, with those that are in a segment from its dense output."""
    inside = (times > start[:, None]) & (times <= end[:, None])
    if not inside.any():
        return weights
    return np.where(inside[..., None], np.asarray(_evaluate(dense, np.where(inside, times, end[:, None]))), weights)


@eqx.filter_jit
def _evaluate(dense: Any, times: Any) -> Float[Array, "run time weights"]:
    return eqx.filter_vmap(lambda dense, times: jax.vmap(dense.evaluate)(times))(dense, jnp.asarray(times))
