"""Gradient flow by a stiff solver."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell._memory import require_memory
from stepwell._threads import one_blas_thread
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective, AbstractQuadraticObjective
from stepwell.trajectory import build

from ._descend import check_fit
from ._ensemble import Ensemble, flatten, map_members, skeleton_of, unflatten
from ._options import Observable
from .fast import AbstractResolvent, gradient_form, stiff_form

Solver = Literal["auto", "rodas5p", "lsoda", "kvaerno5", "tsit5"]
Spacing = Literal["linear", "log"]

_PATIENCE = 1e12
"""A run to convergence may take this over the scale of its initial weights: plateaus last as long as 1/(λ² scale)."""
_COEFFICIENTS = 256
"""Up to so many coefficients of a quadratic loss its Hessian is cheaper by way of them."""
_FIRST_LOG_TIME = 1e-4
"""Log-spaced save times begin at this fraction of the last."""


class Plan(NamedTuple):
    """What a solver is asked to do."""

    until: float | None
    """Stop at this time, or None: at convergence."""
    targets: Float[np.ndarray, " run"] | None
    """Losses at which a run counts as converged."""
    starts: Float[np.ndarray, " run"] | None
    """Their losses at the start."""
    saves: int | Float[np.ndarray, " time"]
    """Save times, or how many over the whole run."""
    spacing: Spacing
    rtol: float
    atol: float
    patience: float
    """A run to convergence is given up at this time."""
    progress: bool

    def nearness(self, loss: float) -> float:
        """How far a run to convergence has come, from 0 to 1, by the loss it has shed."""
        assert self.targets is not None and self.starts is not None
        return float(np.clip((self.starts.max() - loss) / (self.starts.max() - self.targets.min()), 0.0, 1.0))

    def stuck(self, loss: float, time: float) -> str:
        """What is said of a run that rests above the lowest loss."""
        assert self.targets is not None
        return (
            f"at time {time:.3g} the loss rests at {loss:.6g}, above the lowest, {self.targets.min():.6g}: this start "
            "leads to another fixed point; give until= a time, or start elsewhere"
        )

    def times(self, end: float) -> Float[np.ndarray, " time"]:
        """The save times of a run that ended at `end`."""
        if not isinstance(self.saves, int):
            return self.saves[self.saves <= end]
        if end == 0.0:
            return np.zeros(1)
        if self.spacing == "linear":
            return np.linspace(0.0, end, self.saves)
        return np.concatenate([[0.0], np.geomspace(_FIRST_LOG_TIME * end, end, self.saves - 1)])


class Solution(NamedTuple):
    """What a solver brought back."""

    times: Float[np.ndarray, " time"]
    weights: Float[np.ndarray, "run time weights"]
    outcome: str
    message: str
    work: dict[str, int]
    losses: Float[np.ndarray, "run time"] | None = None
    """At those times, if the solver has a function for them; otherwise one has to be compiled."""


class Field(eqx.Module):
    r"""$F(W) = -\tfrac12\, \partial L/\partial W$ of one run, on the vector of its weights."""

    objective: AbstractObjective
    skeleton: AbstractModel
    twice: bool = eqx.field(static=True, default=True)
    """Whether the objective has a second gradient."""

    def loss(self, weights: Float[Array, " weights"]) -> Array:
        return self.objective(unflatten(weights, self.skeleton))

    def __call__(self, weights: Float[Array, " weights"]) -> Float[Array, " weights"]:
        return -0.5 * jax.grad(self.loss)(weights)

    def jacobian(self, weights: Float[Array, " weights"]) -> Float[Array, "weights weights"]:
        r"""$-\tfrac12$ of the Hessian; without second gradients by differences, as good as half of the digits."""
        if self.twice:
            return -0.5 * jax.hessian(self.loss)(weights)
        kinds = [leaf.dtype for leaf in jax.tree.leaves(self.objective) if eqx.is_inexact_array(leaf)]
        kinds += [leaf.dtype for leaf in jax.tree.leaves(self.skeleton) if isinstance(leaf, jax.ShapeDtypeStruct)]
        steps = max(float(jnp.finfo(kind).eps) for kind in kinds) ** 0.5 * (1 + jnp.abs(weights))
        return (jax.vmap(self)(weights + jnp.diag(steps)) - self(weights)).T / steps


def flow(
    model: AbstractModel | Ensemble,
    objective: AbstractObjective | Ensemble,
    *,
    until: float | Literal["converged"] = "converged",
    save: int | Float[np.ndarray, " time"] = 401,
    spacing: Spacing = "linear",
    solver: Solver = "auto",
    rtol: float = 1e-6,
    atol: float | None = None,
    gap: float = 1e-8,
    observe: dict[str, Observable] | None = None,
    progress: bool = True,
    configuration: dict[str, Any] | None = None,
) -> xr.Dataset:
    r"""$\tau\, dW/dt = -\tfrac12\, \partial L/\partial W$, for a model or an ensemble; time is $t/\tau$.

    - `until`: a time, or "converged": until the loss has closed all but the fraction `gap` of its distance to the
      lowest loss the model can reach (`objective.floor`). A small gradient is no sign of that: plateaus have one too.
    - `save`: how many times to save at, `spacing` "linear" or "log"; or the times themselves.
    - `solver`: "rodas5p" (a Rosenbrock method in one compiled program) and "kvaerno5" or "tsit5" (Diffrax's, implicit
      and explicit) take one run or an ensemble, "lsoda" (SciPy's, with compiled gradient and Hessian) one run. "auto"
      is rodas5p for losses quadratic in few numbers, which the heads make together: their Hessian is cheap; and for
      separate attention in population with many heads; else lsoda for one run, kvaerno5 for several. Separate attention
      in population takes the steps of rodas5p in a native pass up to D = 8, and from D = 9 on it solves systems of D²
      equations; elsewhere lsoda compiles in half the time of rodas5p: good for one run.
      Over softmax sequences lsoda and tsit5 take the native pass, and lsoda makes its Hessian of differences of that.
    - `rtol`, `atol`: tolerances of the solver. `atol` is by default 10⁻⁵ times the root mean square of the initial
      weights, and not above `rtol`: it must lie far below their scale, or the way off a saddle is lost.

    The result has `loss` and the observed curves over (run, time), and every weight over (run, time, …). Its `outcome`
    is "finished" or "converged"; or "stuck", at a fixed point above the lowest loss; "solver failed"; "interrupted".
    """
    check_fit(model, objective)
    template = model.member(0) if isinstance(model, Ensemble) else model
    _check.one_of("solver", solver, get_args(Solver))
    _check.one_of("spacing", spacing, ("linear", "log"))
    chosen = _automatic(model, objective) if solver == "auto" else solver

    skeleton = skeleton_of(template)
    initial = jax.device_put(np.atleast_2d(flatten(model)))
    followed = map_members(lambda each: _form(each, template, chosen), objective)
    if isinstance(followed, Ensemble):
        fields: Any = Ensemble(Field(followed.stacked, skeleton), followed.size)
    else:
        fields = Field(followed, skeleton, twice=chosen == "rodas5p" or followed is objective)
    starts = np.asarray(losses(fields, initial)) if until == "converged" else None
    if starts is not None and not np.all(np.isfinite(starts)):
        raise InvalidInput("the loss of the initial weights is not finite; start from smaller ones")
    plan = Plan(
        until=None if until == "converged" else _check.number("until", until, least=0.0, above=True),
        targets=None if starts is None else _targets(template, objective, starts, gap),
        starts=starts,
        saves=_saves(save, until),
        spacing=spacing,
        rtol=_check.number("rtol", rtol, least=0.0, above=True),
        atol=_tolerance(atol, rtol, initial),
        patience=_PATIENCE / _scale(initial),
        progress=progress,
    )
    _require_room(initial, plan, chosen)
    if chosen == "rodas5p":
        from ._rodas import solve
    elif chosen == "lsoda":
        from ._lsoda import solve
    else:
        from ._diffrax import solve
    with one_blas_thread():
        solution = solve(fields, initial, plan, chosen)
    if solution.losses is not None and not observe:
        models = unflatten(solution.weights, skeleton)
        curves, weights = {"loss": solution.losses}, {name: getattr(models, name) for name in skeleton.weight_dims}
    else:
        curves, weights = _curves(fields, observe or {}, jax.device_put(solution.weights))
    settings = {
        "dynamics": "flow",
        "model": model,
        "objective": objective,
        "until": until,
        "solver": chosen,
        "rtol": plan.rtol,
        "atol": plan.atol,
        "work": solution.work,
        **(configuration or {}),
    }
    return build(
        axis="time",
        points=solution.times,
        curves={name: np.asarray(values) for name, values in curves.items()},
        weight_axis="time",
        weight_points=solution.times,
        weights={name: np.asarray(values) for name, values in weights.items()},
        model=template,
        configuration=settings,
        outcome=solution.outcome,
        message=solution.message,
    )


def _form(objective: AbstractObjective, model: AbstractModel, solver: Solver) -> AbstractObjective:
    """That which a solver follows fastest."""
    if solver == "rodas5p":
        return stiff_form(objective, model)
    # kvaerno5 differentiates the gradient itself, which may be possible in the plain form only.
    return objective if solver == "kvaerno5" else gradient_form(objective, model)


def _automatic(model: AbstractModel | Ensemble, objective: AbstractObjective | Ensemble) -> Solver:
    kind = objective.stacked if isinstance(objective, Ensemble) else objective
    if isinstance(kind, AbstractQuadraticObjective):
        single = objective.member(0) if isinstance(objective, Ensemble) else objective
        template = model.member(0) if isinstance(model, Ensemble) else model
        assert isinstance(single, AbstractQuadraticObjective)
        few = jax.eval_shape(single.coefficients, template).size <= _COEFFICIENTS
        if few or isinstance(stiff_form(single, template), AbstractResolvent):
            return "rodas5p"
    return "kvaerno5" if isinstance(model, Ensemble) else "lsoda"


def _saves(save: int | np.ndarray, until) -> int | np.ndarray:
    if isinstance(save, int | np.integer):
        return _check.whole("save", save, least=2)
    times = np.asarray(save, dtype=np.float64)
    if times.ndim != 1 or times.size == 0 or np.any(np.diff(times) <= 0) or times[0] < 0:
        raise InvalidInput("save times must be a rising list of times from 0 on; or give a number of them")
    if until != "converged" and times[-1] > until:
        raise InvalidInput(
            f"the last save time, {times[-1]:g}, is after the end, {until:g}; save earlier or go on longer"
        )
    return times


def _tolerance(atol: float | None, rtol: float, initial: Array) -> float:
    if atol is not None:
        return _check.number("atol", atol, least=0.0, above=True)
    return min(1e-5 * _scale(initial), rtol)


def _scale(initial: Array) -> float:
    """Root mean square of the initial weights."""
    largest = float(np.abs(np.asarray(initial)).max())
    if largest == 0.0:
        raise InvalidInput("all initial weights are zero, which is a fixed point; start from small random weights")
    if not np.isfinite(largest):
        raise InvalidInput("some initial weights are not finite; start from finite ones")
    return largest * float(np.sqrt(np.mean((np.asarray(initial) / largest) ** 2)))


_WORKING: dict[str, Callable[[int], int]] = {
    "tsit5": lambda weights: 0,
    "lsoda": lambda weights: 4 * weights**2,
    "kvaerno5": lambda weights: 4 * weights**2,
    "rodas5p": lambda weights: (4 * weights + 2 * _COEFFICIENTS + 5_000) * weights,  # and its record of steps
}
"""Numbers that a solver holds for a run."""


def _require_room(initial: Array, plan: Plan, solver: str) -> None:
    runs, weights = initial.shape
    saves = plan.saves if isinstance(plan.saves, int) else plan.saves.size
    require_memory(
        8 * runs * (2 * saves * weights + _WORKING[solver](weights)),
        what=f"a flow of {runs} runs of {weights} weights with a Jacobian, saved at {saves} times",
        instead="save fewer times (save=), take fewer heads, or use descend",
    )


def _targets(template: AbstractModel, objective: Any, starts: np.ndarray, gap: float) -> np.ndarray:
    """The loss at which each run counts as converged."""
    gap = _check.number("gap", gap, least=0.0, most=1.0, above=True)
    objectives = (
        [objective.member(i) for i in range(objective.size)] if isinstance(objective, Ensemble) else [objective]
    )
    floors = [each.floor(template) for each in objectives]
    if any(floor is None for floor in floors):
        raise InvalidInput(
            f"the lowest loss of {type(template).__name__} under {type(objectives[0]).__name__} is not known, so "
            "convergence cannot be told from a plateau; give until= a time"
        )
    low = np.broadcast_to(np.array(floors, dtype=float), starts.shape)
    return low + gap * np.abs(starts - low)


def over_runs(fields: Any, function: Any, given: Any) -> Any:
    """`function(field, given)` for every run, vectorised; `fields` is one for all, or an ensemble."""
    if isinstance(fields, Ensemble):
        return eqx.filter_vmap(function)(fields.stacked, given)
    if jax.tree.leaves(given)[0].shape[0] == 1:  # products of matrices are faster than batches of one product
        alone = function(fields, jax.tree.map(lambda leaf: leaf[0], given))
        return jax.tree.map(lambda leaf: leaf[None], alone)
    return eqx.filter_vmap(function, in_axes=(None, 0))(fields, given)


@eqx.filter_jit
def losses(fields: Any, weights: Float[Array, "run weights"]) -> Float[Array, " run"]:
    return over_runs(fields, Field.loss, weights)


@eqx.filter_jit
def _curves(fields: Any, observe: dict[str, Any], weights: Float[Array, "run time weights"]):
    """Loss and observables (run, time, …) and named weights (run, time, …)."""

    def along(field: Field, path: Array):
        def at(w: Array):
            model = unflatten(w, field.skeleton)
            return {"loss": field.loss(w), **{name: f(model) for name, f in observe.items()}}, model.weights()

        return jax.lax.map(at, path)

    return over_runs(fields, along, weights)
