"""The contract of every way to a loss."""

import abc
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import Remembering
from stepwell._util.types import Loss
from stepwell.models import AbstractModel


class Stairs(NamedTuple):
    """The loss of zero weights, and by how much it falls from plateau to plateau, as far as the loss can show it."""

    top: float
    drops: Float[np.ndarray, " drop"]


class AbstractObjective(Remembering):
    """A loss as a function of the model: the squared error without a factor ½, averaged over sequences.

    Over outputs it is averaged too, but for losses of the eigenvalues of attention (and `Sampled` where asked for),
    which are sums over tasks.
    """

    forms_stack: ClassVar[bool] = False
    """Whether a fast form (`dynamics.fast`) of many such losses, stacked along a first axis of their arrays, is made at
    once by the same function as that of one."""

    stairs: ClassVar[Callable[..., Stairs | None] | None] = None
    """Optional: a method `stairs(model)` of classes that know the plateaus of the loss."""

    @abc.abstractmethod
    def __call__(self, model: AbstractModel) -> Loss:
        """The loss of the model, a scalar that JAX can differentiate."""

    @abc.abstractmethod
    def check(self, model: AbstractModel) -> None:
        """Raise `InvalidInput` if the loss of this model is not what this objective computes."""

    @abc.abstractmethod
    def floor(self, model: AbstractModel) -> float | None:
        """Return the lowest loss that weights of this model's shape can reach, or None where it is not known.

        Of a class outside of this package it is the lowest for the rank of its map, which is a lower bound.
        """

    @checked
    def last_drop(self, model: AbstractModel) -> float | None:
        """Return by how much the loss of the last plateau exceeds the lowest, or None where it is not known.

        Drops that are lost in the rounding of the loss do not count.
        """
        stairs = None if self.stairs is None else self.stairs(model)
        return None if stairs is None or not stairs.drops.size else float(stairs.drops.min())

    @checked
    def plateaus(self, model: AbstractModel) -> Float[np.ndarray, " level"] | None:
        """Return the losses of the plateaus from small weights to the lowest loss, or None where they are not known.

        Drops that are lost in the rounding of the loss do not count.
        """
        stairs = None if self.stairs is None else self.stairs(model)
        return None if stairs is None else stairs.top - np.concatenate([[0.0], np.cumsum(stairs.drops)])


class AbstractQuadraticObjective(AbstractObjective):
    """A loss that is quadratic in coefficients of the model; how they depend on the weights is the model's affair.

    The coefficients of a model with heads are sums over its heads.
    """

    shortcut: ClassVar[Callable[..., Loss | None] | None] = None
    """Optional: a method `shortcut(model)` that returns the same loss by less work, or None where it cannot."""

    @abc.abstractmethod
    def coefficients(self, model: AbstractModel) -> Float[Array, "..."]:
        """Return the coefficients of the model that the loss is quadratic in."""

    @abc.abstractmethod
    def quadratic(self, coefficients: Float[Array, "..."]) -> Loss:
        """Return the loss, from the coefficients."""

    @checked
    def __call__(self, model: AbstractModel) -> Loss:
        loss = None if self.shortcut is None else self.shortcut(model)
        return self.quadratic(self.coefficients(model)) if loss is None else loss


def require(condition: bool, message: str) -> None:
    """Raise `InvalidInput` unless `condition`."""
    if not condition:
        raise InvalidInput(message)
