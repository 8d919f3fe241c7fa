"""Which fast form serves an objective; the only place that dynamics ask.

A fast form is another objective that computes the same loss, for models that were proved to be of a form it knows
(`is_attention`, `is_separate` and their like, never `isinstance`). It is registered for the type of the objective in
its own file; without one the objective serves itself:

    @gradient_form.register
    def _(objective: Sampled, model: AbstractModel) -> AbstractObjective:
        return FusedSampled.of(objective, model) or objective

A registration serves subclasses too, and those may compute something else: `of` refuses them.
"""

import abc
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from stepwell._util.types import Loss
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective, AbstractQuadraticObjective


@functools.singledispatch
def gradient_form(objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
    """Return the loss of models like this one as the objective whose first gradient is fastest; it may have no second.

    **Arguments:**

    - `objective`: the loss.
    - `model`: a model of the class and shape that is trained; its weights do not matter.

    **Returns:** an objective that computes the same loss, or `objective` itself where there is none faster.

    **Example:**

    >>> task = sw.InContextRegression(sw.covariance([1.0, 0.5]), 8)
    >>> model = sw.SeparateAttention.random(dim=2, heads=2, scale=0.1, activation="softmax", key=jax.random.key(0))
    >>> loss = sw.Sampled(task.sample(16, key=jax.random.key(1)))
    >>> abs(float(sw.dynamics.fast.gradient_form(loss, model)(model)) - float(loss(model))) < 1e-12
    True
    """
    return objective


@functools.singledispatch
def multi_step_form(objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
    """Return the same loss as the objective that descends fastest: an `AbstractMultiStep` where there is one.

    **Arguments:**

    - `objective`: the loss.
    - `model`: a model of the class and shape that is trained; its weights do not matter.

    **Returns:** an objective that computes the same loss; where there is no `AbstractMultiStep`, that of
    `gradient_form`.

    **Example:**

    >>> loss = sw.Population(sw.InContextRegression(sw.covariance([1.0, 0.5]), 31))
    >>> model = sw.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=1.0)
    >>> abs(float(sw.dynamics.fast.multi_step_form(loss, model)(model)) - float(loss(model))) < 1e-12
    True
    """
    return gradient_form(objective, model)


@functools.singledispatch
def stiff_form(objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
    """Return the same loss as the objective whose stiff steps are fastest: an `AbstractRosenbrock` or an
    `AbstractResolvent` where there is one.

    **Arguments:**

    - `objective`: the loss.
    - `model`: a model of the class and shape that is trained; its weights do not matter.

    **Returns:** an objective that computes the same loss, or `objective` itself where there is none faster.

    **Example:**

    >>> loss = sw.Population(sw.InContextRegression(sw.covariance([1.0, 0.5]), 31))
    >>> model = sw.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=1.0)
    >>> abs(float(sw.dynamics.fast.stiff_form(loss, model)(model)) - float(loss(model))) < 1e-12
    True
    """
    return objective


class AbstractMultiStep(AbstractObjective):
    """A loss that takes many steps of plain gradient descent in one call, faster than a loop of them."""

    @abc.abstractmethod
    def multi_step(
        self, model: AbstractModel, rate: Float[Array, ""], steps: Int[Array, ""]
    ) -> tuple[Loss, AbstractModel]:
        """Return the loss of the model, and the model after so many steps."""


class Tableau(NamedTuple):
    r"""A Rosenbrock method, whose equation `dynamics._rosenbrock` has, with the coefficients $\gamma, a_{ij}, c_{ij}$.

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
        """Return the loss, and the weights after a step, the estimated error and the dense-output coefficients."""


class AbstractResolvent(AbstractQuadraticObjective):
    """A loss that solves linear systems with the Jacobian of its flow."""

    @abc.abstractmethod
    def resolvent(
        self, weights: Float[Array, "head weights"], shift: Float[Array, ""]
    ) -> Callable[[Float[Array, "head weights"]], Float[Array, "head weights"]]:
        r"""Return the function $r \mapsto (\sigma - J)^{-1} r$, with J the Jacobian of the flow at these weights."""
