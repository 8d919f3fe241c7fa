"""Which solver `flow` uses: by name, by object, or of its own choice."""

import sys
from typing import Any, Literal, get_args

import equinox as eqx
import jax

from stepwell._util import checks
from stepwell._util.errors import InvalidInput
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective, AbstractQuadraticObjective

from ._diffrax import Diffrax
from ._ensemble import Ensemble
from ._lsoda import LSODA
from ._rodas import FEW_COEFFICIENTS, Rodas5P
from ._solver import AbstractFlowSolver
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
    if name == "rodas5p":
        return Rodas5P()
    if name == "lsoda":
        return LSODA()
    import diffrax

    return Diffrax({"kvaerno5": diffrax.Kvaerno5, "tsit5": diffrax.Tsit5}[name]())


def _automatic(model: AbstractModel | Ensemble, objective: AbstractObjective | Ensemble) -> AbstractFlowSolver:
    """Rodas5P where the Hessian is cheap: losses quadratic in few coefficients, or with a resolvent of their own."""
    kind = objective.stacked if isinstance(objective, Ensemble) else objective
    if isinstance(kind, AbstractQuadraticObjective):
        single = objective.member(0) if isinstance(objective, Ensemble) else objective
        template = model.member(0) if isinstance(model, Ensemble) else model
        assert isinstance(single, AbstractQuadraticObjective)
        rodas = Rodas5P()
        few = jax.eval_shape(single.coefficients, template).size <= FEW_COEFFICIENTS
        if few or isinstance(rodas.form(single, template), AbstractResolvent):
            return rodas
    return _named("kvaerno5" if isinstance(model, Ensemble) else "lsoda")
