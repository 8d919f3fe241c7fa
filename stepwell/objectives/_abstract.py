"""The contract of every way to a loss."""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int

from stepwell._errors import InvalidInput
from stepwell._types import Loss
from stepwell.models import AbstractModel


class AbstractObjective(eqx.Module):
    """A loss as a function of the model: the squared error without a factor ½, averaged over sequences.

    Over outputs it is averaged too, but for losses of the eigenvalues of attention (and `Sampled` where asked for),
    which are sums over tasks.
    """

    @abc.abstractmethod
    def __call__(self, model: AbstractModel) -> Loss:
        """The loss."""

    @abc.abstractmethod
    def check(self, model: AbstractModel) -> None:
        """Raise `InvalidInput` if the loss of this model is not what this objective computes."""

    def for_descent(self, model: AbstractModel) -> "AbstractObjective":
        """The same loss of models like this one in the form whose first gradient is fastest; it may have no second."""
        return self

    def for_leaps(self, model: AbstractModel) -> "AbstractObjective":
        """The same loss in the form that descends fastest: an `AbstractLeaping` where there is one."""
        return self.for_descent(model)

    def for_steps(self, model: AbstractModel) -> "AbstractObjective":
        """The same loss in the form whose stiff steps are fastest: an `AbstractStepping` or an `AbstractResolvent`
        where there is one."""
        return self

    @abc.abstractmethod
    def floor(self, model: AbstractModel) -> float | None:
        """The lowest loss that weights of this model's shape can reach, or None where it is not known."""


class AbstractQuadraticObjective(AbstractObjective):
    """A loss that is quadratic in coefficients of the model; how they depend on the weights is the model's affair.

    The coefficients of a model with heads are sums over its heads.
    """

    @abc.abstractmethod
    def coefficients(self, model: AbstractModel) -> Float[Array, "..."]:
        """What the loss is quadratic in."""

    @abc.abstractmethod
    def quadratic(self, coefficients: Float[Array, "..."]) -> Loss:
        """The loss, from the coefficients."""

    def __call__(self, model: AbstractModel) -> Loss:
        return self.quadratic(self.coefficients(model))


class AbstractLeaping(AbstractObjective):
    """A loss that takes many steps of plain gradient descent in one call, faster than a loop of them."""

    @abc.abstractmethod
    def leap(self, model: AbstractModel, rate: Float[Array, ""], steps: Int[Array, ""]) -> tuple[Loss, AbstractModel]:
        """The loss of the model, and the model after so many steps."""


class Tableau(NamedTuple):
    r"""A Rosenbrock method: for $\dot w = F(w)$ with Jacobian $J$ at the start of a step of length h, stages solve

    $\left(\tfrac{1}{\gamma h} - J\right) k_i = F\left(w + \sum_{j<i} a_{ij} k_j\right)
    + \tfrac1h \sum_{j<i} c_{ij} k_j$

    The last stage is the estimate of the error, and added to its own place it gives the weights after the step.
    """

    gamma: float
    a: Float[np.ndarray, "stage stage"]
    c: Float[np.ndarray, "stage stage"]
    d: Float[np.ndarray, "bend stage"]
    """Sums of stages that bend the path within a step."""


class AbstractStepping(AbstractQuadraticObjective):
    """A loss that takes a step of a Rosenbrock method along its flow in one call."""

    @abc.abstractmethod
    def rosenbrock(
        self, weights: Float[Array, "head weights"], length: Float[Array, ""], tableau: Tableau
    ) -> tuple[Loss, Float[Array, "results head weights"]]:
        """The loss of the weights that it reads; and the weights after the step, the estimated error, the bends."""


class AbstractResolvent(AbstractQuadraticObjective):
    """A loss that solves linear systems with the Jacobian of its flow."""

    @abc.abstractmethod
    def resolvent(
        self, weights: Float[Array, "head weights"], shift: Float[Array, ""]
    ) -> Callable[[Float[Array, "head weights"]], Float[Array, "head weights"]]:
        r"""$r \mapsto (\sigma - J)^{-1} r$ for a shift σ; J is the Jacobian of the flow at these weights."""


def require(condition: bool, message: str) -> None:
    """Raise `InvalidInput` unless `condition`."""
    if not condition:
        raise InvalidInput(message)
