"""The contract of every way to a loss."""

import abc

import equinox as eqx

from stepwell._errors import InvalidInput
from stepwell._types import Loss
from stepwell.models import AbstractModel


class AbstractObjective(eqx.Module):
    """A loss as a function of the model: mean squared error, over sequences and outputs, without a factor ½."""

    @abc.abstractmethod
    def __call__(self, model: AbstractModel) -> Loss:
        """The loss."""

    @abc.abstractmethod
    def check(self, model: AbstractModel) -> None:
        """Raise `InvalidInput` if the loss of this model is not what this objective computes."""

    @abc.abstractmethod
    def floor(self, model: AbstractModel) -> float | None:
        """The lowest loss that weights of this model's shape can reach, or None where it is not known."""


def require(condition: bool, message: str) -> None:
    """Raise `InvalidInput` unless `condition`."""
    if not condition:
        raise InvalidInput(message)
