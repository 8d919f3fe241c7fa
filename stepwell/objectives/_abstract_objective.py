"""The contract of every way to a loss."""

import abc
from typing import ClassVar

import numpy as np
from jaxtyping import Array, Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import Remembering
from stepwell._util.types import Loss
from stepwell.models import AbstractModel


class AbstractObjective(Remembering):
    """A loss as a function of the model: the squared error without a factor ½, averaged over sequences.

    Over outputs it is averaged too, but for losses of the eigenvalues of attention (and `Sampled` where asked for),
    which are sums over tasks.
    """

    forms_stack: ClassVar[bool] = False
    """Whether a fast form (`dynamics.fast`) of many such losses, stacked along a first axis of their arrays, is made at
    once by the same function as that of one."""

    @abc.abstractmethod
    def __call__(self, model: AbstractModel) -> Loss:
        """The loss of the model, a scalar that JAX can differentiate."""

    @abc.abstractmethod
    def check(self, model: AbstractModel) -> None:
        """Raise `InvalidInput` if the loss of this model is not what this objective computes."""

    @abc.abstractmethod
    def floor(self, model: AbstractModel) -> float | None:
        """The lowest loss that weights of this model's shape can reach, or None where it is not known.

        Of a class outside of this package it is the lowest for the rank of its map, which is a lower bound.
        """

    @checked
    def last_drop(self, model: AbstractModel) -> float | None:
        """By how much the loss of the last plateau exceeds the lowest, or None where it is not known.

        Drops that are lost in the rounding of the loss do not count.
        """
        return None

    @checked
    def plateaus(self, model: AbstractModel) -> Float[np.ndarray, " level"] | None:
        """The losses of the plateaus from small weights to the lowest loss, falling, or None where they are not known.

        Drops that are lost in the rounding of the loss do not count.
        """
        return None


class AbstractQuadraticObjective(AbstractObjective):
    """A loss that is quadratic in coefficients of the model; how they depend on the weights is the model's affair.

    The coefficients of a model with heads are sums over its heads.
    """

    @abc.abstractmethod
    def coefficients(self, model: AbstractModel) -> Float[Array, "..."]:
        """The coefficients of the model that the loss is quadratic in."""

    @abc.abstractmethod
    def quadratic(self, coefficients: Float[Array, "..."]) -> Loss:
        """The loss, from the coefficients."""

    @checked
    def __call__(self, model: AbstractModel) -> Loss:
        return self.quadratic(self.coefficients(model))


def require(condition: bool, message: str) -> None:
    """Raise `InvalidInput` unless `condition`."""
    if not condition:
        raise InvalidInput(message)
