"""Gradient flow, and the choice of its solver."""

import sys
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.interrupt import interruptible
from stepwell._util.memory import require_memory
from stepwell._util.outcomes import return_or_raise
from stepwell._util.threads import one_blas_thread
from stepwell.models import AbstractModel, AbstractUnits
from stepwell.objectives import AbstractObjective, AbstractQuadraticObjective
from stepwell.trajectory import build

from ._balance import tie
from ._checkpoint import CheckpointPath, open_saves
from ._descend import check_fit
from ._diffrax import Diffrax
from ._ensemble import Ensemble, as_ensemble, flatten, skeleton_of, unflatten
from ._field import curves, losses, losses_and_rates, make_fields
from ._lsoda import LSODA
from ._plan import AbstractFlowSolver, Plan, Solution, Start, make_plan
from ._record import Record
from ._rodas import FEW_COEFFICIENTS, Rodas5P
from .fast import AbstractResolvent

SolverName = Literal["auto", "rodas5p", "lsoda", "kvaerno5", "tsit5"]
Solver = SolverName | AbstractFlowSolver | eqx.Module
"""A name, a solver of this package, or one of Diffrax, all of which are modules."""


def choose_solver(
    solver: Solver, model: AbstractModel | Ensemble, objective: AbstractObjective | Ensemble
) -> AbstractFlowSolver:
    """The solver object for what `flow` was given as `solver`; "auto" chooses by model and objective."""
    if isinstance(solver, AbstractFlowSolver):
        return solver
    if isinstance(solver, str):
        checks.one_of("solver", solver, get_args(SolverName))
        return _automatic(model, objective) if solver == "auto" else _named(solver)
    diffrax: Any = sys.modules.get("diffrax")  # who has a solver of Diffrax has imported it
    if diffrax is not None and isinstance(solver, diffrax.AbstractSolver):
        return Diffrax(solver)
    given = f"the class {solver.__name__}" if isinstance(solver, type) else f"a {type(solver).__name__}"
    raise InvalidInput(
        f"solver is {given}; give one of {', '.join(map(repr, get_args(SolverName)))}, Rodas5P(), LSODA(), or a solver "
        "of Diffrax such as diffrax.Kvaerno5()"
    )


def _named(name: str) -> AbstractFlowSolver:
    if name in ("rodas5p", "lsoda"):
        return Rodas5P() if name == "rodas5p" else LSODA()
    import diffrax

    return Diffrax({"kvaerno5": diffrax.Kvaerno5, "tsit5": diffrax.Tsit5}[name]())


def _automatic(model: AbstractModel | Ensemble, objective: AbstractObjective | Ensemble) -> AbstractFlowSolver:
    """Rodas5P where the Hessian is cheap: losses quadratic in few coefficients, or with a resolvent of their own.

    An explicit solver where units have kinks: an implicit one takes a Hessian that is wrong across each of them.
    """
    kind = objective.stacked if isinstance(objective, Ensemble) else objective
    template = model.member(0) if isinstance(model, Ensemble) else model
    if isinstance(template, AbstractUnits) and not template.smooth:
        return _named("tsit5")
    if isinstance(kind, AbstractQuadraticObjective):
        single = objective.member(0) if isinstance(objective, Ensemble) else objective
        assert isinstance(single, AbstractQuadraticObjective)
        rodas = Rodas5P()
        few = jax.eval_shape(single.coefficients, template).size <= FEW_COEFFICIENTS
        if few or isinstance(rodas.form(single, template), AbstractResolvent):
            return rodas
    return _named("kvaerno5" if isinstance(model, Ensemble) else "lsoda")


@checked
@interruptible
def flow(
    model: AbstractModel | Ensemble,
    objective: AbstractObjective | Ensemble,
    *,
    until: float | Literal["converged"] = "converged",
    solver: Solver = "auto",
    rtol: float = 1e-6,
    atol: float | None = None,
    gap: float = 1e-8,
    time_factor: float = 1.0,
    record: Record | None = None,
    progress: bool = True,
    configuration: dict[str, Any] | None = None,
    checkpoint: CheckpointPath = None,
    throw: bool = True,
) -> xr.Dataset:
    r"""Train by gradient flow, $\tau\, dW/dt = -\tfrac12\, \partial L/\partial W$: one model, or an ensemble of them.

    It is integrated with adaptive steps, by a stiff solver unless another is asked for. Time is $t/\tau$.

    Solvers are objects or names. `Rodas5P()` (a Rosenbrock method in one compiled program) and any adaptive solver of
    Diffrax, such as `diffrax.Kvaerno5()`, take one run or an ensemble, `LSODA()` (SciPy's, with compiled gradient and
    Hessian) one run. Or give a name: "rodas5p", "lsoda", "kvaerno5" or "tsit5" (Diffrax's, implicit and explicit).
    "auto" is rodas5p for losses quadratic in few numbers, which the heads make together: their Hessian is cheap; and
    for separate attention with many heads on `Population`; tsit5 for networks of units with kinks (ReLU), which stop a
    stiff solver; else lsoda for one run, kvaerno5 for several. Separate
    attention on `Population` takes the steps of rodas5p in a native pass up to D = 8, and from D = 9 on it solves
    systems of D² equations; elsewhere lsoda compiles in half the time of rodas5p: good for one run. Over softmax
    sequences lsoda and explicit solvers take the native pass, and lsoda makes its Hessian of differences of that.

    Of `SpectralAttention` the flow conserves the differences of squares of key and query, and of value and output, in
    every entry. Entries whose two factors are balanced, equal in size, are followed as the logarithm of their product:
    they stay balanced, and keep their sign, whatever the error of the solver, and tolerances are those of the
    logarithm. All members of an ensemble must be balanced in the same entries. Others are followed as they are: an
    imbalance, however small, grows where a head has no task, and such a run ends at a lower loss.

    **Arguments:**

    - `model`: the model at its initial weights; or an `Ensemble` of models, which are trained side by side, or a model
      stacked by `eqx.filter_vmap`, whose class says how many axes its weights have.
    - `objective`: the loss; one for all runs, or an `Ensemble` with one for each.
    - `until`: a time, or "converged": until the loss has closed all but the fraction `gap` of its distance to the
      lowest loss the model can reach (`objective.floor`), from the initial loss or from that of zero
      weights, whichever is lower; and exceeds it by no more than a thousandth of it and of the last drop
      (`objective.last_drop`), as far as rounding lets them be seen. A small gradient is no sign of convergence:
      plateaus have one too.
    - `record`: what is kept, and at which times; a `Record`. By default losses and weights at 401 times.
    - `solver`: "auto", another name, or an object, as above.
    - `rtol`: the relative tolerance of the solver.
    - `atol`: its absolute tolerance; by default 10⁻⁵ times the root mean square of the initial weights, and not above
      `rtol`: it must lie far below their scale, or the way off a saddle is lost.
    - `gap`: see `until`; not used if that is a time.
    - `time_factor`: what times are multiplied by in messages and on the progress bar, where the caller reports them in
      another unit. The times of the data set, `until` and `record` are $t/\tau$.
    - `progress`: whether to show a progress bar.
    - `configuration`: what else the trajectory should remember, such as the task and the keys. By default nothing.
    - `checkpoint`: the path of a file where the state of the run is saved about every half minute, or a `Checkpoint`,
      which says more. The same call with the same path continues a run that was killed or interrupted, and returns the
      trajectory that it would have had otherwise, bit for bit. By default nothing is saved.
      A solver of your own is saved at its end, and before that if it calls `plan.checkpoint`.
    - `throw`: whether a run that does not come to its end raises `RunFailed`, or `Interrupted`, which have its
      trajectory so far. If not, that is returned, and its attribute `outcome` says how it ended.

    **Returns:** a data set with `loss` and the observed curves over (run, time), and every weight over (run, time, …),
    or over (run, snapshot, …) where fewer snapshots than points are asked for. The attribute `outcome` is "finished" or
    "converged". Otherwise `RunFailed` or `Interrupted` is raised, and the outcome of its trajectory is "stuck", at a
    fixed point above the lowest loss; "solver failed", among others where 100,000 steps did not lead to the end; or
    "interrupted", as for `descend`.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> run = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> run.attrs["outcome"], round(float(run["loss"][0, -1]), 3)
    ('converged', 0.132)
    """
    record, observe = record or Record(), (record or Record()).observe
    model = as_ensemble(model)
    check_fit(model, objective)
    template = model.member(0) if isinstance(model, Ensemble) else model
    chosen = choose_solver(solver, model, objective)
    initial = jax.device_put(np.atleast_2d(flatten(model)))
    arguments = {"dynamics": "flow", "model": model, "objective": objective, "until": until, "points": record.points}
    arguments |= {"spacing": record.spacing, "solver": chosen, "rtol": rtol, "atol": atol, "gap": gap}
    saves = open_saves(checkpoint, arguments)
    fields = make_fields(objective, template, chosen.form)
    tied = tie(fields, template, initial)
    start = _start(fields, initial) if until == "converged" else None
    tolerances = rtol, atol, gap
    plan = make_plan(template, objective, initial, start, until, record, tolerances, progress, saves, time_factor)
    _require_memory(initial, plan, chosen)
    if tied is None:
        solution = _solution(chosen, fields, initial, plan)
    else:
        solution = _solution(chosen, tied.fields, tied.initial, plan)
        solution = solution._replace(weights=tied.weights(solution.weights))
    if solution.losses is not None and not observe:
        models = unflatten(solution.weights, skeleton_of(template))
        along, weights = {"loss": solution.losses}, models.weights()
    else:
        along, weights = curves(fields, observe or {}, jax.device_put(solution.weights))
    settings = {
        "dynamics": "flow",
        "model": model,
        "objective": objective,
        "until": until,
        "solver": chosen.name,
        "rtol": plan.rtol,
        "atol": plan.atol,
        "record": record.described(),
        "gap": gap,
        "observed": sorted(observe or ()),
        "work": solution.work,
        **(configuration or {}),
    }
    places = record.places(solution.times)
    every = places.size == solution.times.size
    kept = slice(None) if every else places
    trajectory = build(
        axis="time",
        points=solution.times,
        curves={name: np.asarray(values) for name, values in along.items()},
        weight_axis="time" if every else "snapshot",
        weight_points=solution.times[places],
        weights={name: np.asarray(values)[:, kept] for name, values in weights.items()},
        model=template,
        configuration=settings,
        outcome=solution.outcome,
        message=solution.message,
    )
    return return_or_raise(trajectory, throw)


def _solution(solver: AbstractFlowSolver, fields: Any, initial: Array, plan: Plan) -> Solution:
    """What the solver returns; if it was saved, that. A checkpoint has the state of the solver until then."""
    saves = plan.checkpoint
    if saves.state is not None and "solution" in saves.state:
        return Solution(**saves.state["solution"])
    with one_blas_thread():
        solution = solver.solve(fields, initial, plan)
    if solution.outcome != "interrupted":
        saves.save(lambda: {"solution": solution._asdict()})
    return solution


def _start(fields: Any, initial: Array) -> Start:
    (loss, rate), zeros = losses_and_rates(fields, initial), losses(fields, jnp.zeros_like(initial))
    return Start(np.asarray(loss), np.asarray(zeros), np.asarray(rate))


def _require_memory(initial: Array, plan: Plan, solver: AbstractFlowSolver) -> None:
    (runs, weights), saves = initial.shape, plan.points
    require_memory(
        8 * runs * (2 * saves * weights + solver.numbers_held(weights, plan)),
        what=f"a flow of {runs} runs of {weights} weights with a Jacobian, saved at {saves} times",
        instead="record fewer times (Record(points=…)), take fewer heads, or use descend",
    )
