"""The interface of a solver of the flow."""

import abc
from typing import Any

from jaxtyping import Array, Float

from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective

from ._plan import Plan, Solution


class AbstractFlowSolver(abc.ABC):
    """Integrates the flow of one run, or of several side by side."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the solver in the provenance of a trajectory."""

    @abc.abstractmethod
    def form(self, objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
        """The same loss in the form that this solver follows fastest, for models like this one."""

    @abc.abstractmethod
    def numbers_held(self, weights: int, plan: Plan) -> int:
        """How many numbers it holds in memory for a run of so many weights, beside what is saved."""

    @abc.abstractmethod
    def solve(self, fields: Any, initial: Float[Array, "run weights"], plan: Plan) -> Solution:
        """Integrate to the end that the plan names. `fields` is one `Field` for all runs, or an ensemble of them."""
