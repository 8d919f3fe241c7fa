"""What a fast form of an objective can do beyond its loss and gradient."""

import abc
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from stepwell._util.types import Loss
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective, AbstractQuadraticObjective


class AbstractMultiStep(AbstractObjective):
    """A loss that takes many steps of plain gradient descent in one call, faster than a loop of them."""

    @abc.abstractmethod
    def multi_step(
        self, model: AbstractModel, rate: Float[Array, ""], steps: Int[Array, ""]
    ) -> tuple[Loss, AbstractModel]:
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
    d: Float[np.ndarray, "coefficient stage"]
    """The dense-output coefficients, which give the weights within a step, are these sums of stages."""


class AbstractRosenbrock(AbstractQuadraticObjective):
    """A loss that takes a step of a Rosenbrock method along its flow in one call."""

    @abc.abstractmethod
    def rosenbrock_step(
        self, weights: Float[Array, "head weights"], length: Float[Array, ""], tableau: Tableau
    ) -> tuple[Loss, Float[Array, "results head weights"]]:
        """The loss of the weights that it reads; and the weights after the step, the estimated error, the dense-output
        coefficients."""


class AbstractResolvent(AbstractQuadraticObjective):
    """A loss that solves linear systems with the Jacobian of its flow."""

    @abc.abstractmethod
    def resolvent(
        self, weights: Float[Array, "head weights"], shift: Float[Array, ""]
    ) -> Callable[[Float[Array, "head weights"]], Float[Array, "head weights"]]:
        r"""$r \mapsto (\sigma - J)^{-1} r$ for a shift σ; J is the Jacobian of the flow at these weights."""
