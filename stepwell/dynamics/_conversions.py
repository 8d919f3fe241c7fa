"""Conversions between steps, rates and flow time, and between attention normalisations.

The paper's flow is $\\tau\\, dW/dt = -\\tfrac12\\, \\partial L/\\partial W$. Time here is $t/\\tau$.
"""

import dataclasses
from typing import TypeVar, get_args

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell._types import Normalisation
from stepwell.models import AbstractAttention, is_attention
from stepwell.tasks import attention_scale

Attention = TypeVar("Attention", bound=AbstractAttention)


def flow_time(steps, rate: float):
    r"""$t/\tau = 2\eta \cdot \text{steps}$: gradient descent of rate $\eta$ on the mean squared error is Euler's method
    for the flow with time step $2\eta$."""
    return 2.0 * rate * steps


def steps_for(time, rate: float):
    r"""The number of steps of rate $\eta$ in a flow `time` $t/\tau$: $t/(2\eta\tau)$, a float that is not rounded."""
    return time / (2.0 * rate)


def rate_for(time: float, steps: int) -> float:
    r"""The rate at which so many steps take so much flow time, $\eta = t/(2\tau \cdot \text{steps})$."""
    return time / (2.0 * steps)


def weight_factor(given: Normalisation, wanted: Normalisation, *, length: int, factors: int) -> float:
    r"""What every weight is multiplied by so that linear attention predicts the same under another normalisation.

    With a product of m weights and a scale $s$, the prediction is kept if each weight gets
    $(s_\text{given}/s_\text{wanted})^{1/m}$. From none to 1/N: $N^{1/2}$ merged, $N^{1/3}$ separate.
    """
    _check.one_of("normalisation", given, get_args(Normalisation))
    _check.one_of("normalisation", wanted, get_args(Normalisation))
    return (attention_scale(given, length) / attention_scale(wanted, length)) ** (1.0 / factors)


def time_factor(given: Normalisation, wanted: Normalisation, *, length: int, factors: int) -> float:
    r"""What time (or the rate) is multiplied by so that training is the same under another normalisation.

    Weights $W' = fW$ have gradients $\partial L/\partial W' = f^{-1} \partial L/\partial W$, so the same path is run
    with $t' = f^2 t$, $\eta' = f^2\eta$. From none to 1/N: N merged, $N^{2/3}$ separate.
    """
    return weight_factor(given, wanted, length=length, factors=factors) ** 2


def renormalised(model: Attention, normalisation: Normalisation, *, length: int) -> Attention:
    """The attention that predicts the same with another normalisation, at context length `length`; not for softmax."""
    if not is_attention(model):
        raise InvalidInput(
            f"{type(model).__name__} is not known to answer by the formula of attention; build it with the "
            "normalisation wanted, or declare its form in the class (declared_form)"
        )
    if model.activation == "softmax":
        raise InvalidInput("softmax attention is not rescaled by its weights; build it with the normalisation wanted")
    factor = weight_factor(model.normalisation, normalisation, length=length, factors=model.factors)
    return dataclasses.replace(model.scaled(factor), normalisation=normalisation)
