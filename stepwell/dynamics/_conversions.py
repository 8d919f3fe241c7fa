"""Conversions between steps, rates and flow time, and between attention normalizations.

The paper's flow is $\\tau\\, dW/dt = -\\tfrac12\\, \\partial L/\\partial W$. Time here is $t/\\tau$.
"""

import dataclasses
from typing import TypeVar, get_args

import numpy as np

from stepwell._util import checks, paper_time
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.types import Normalization
from stepwell.models import AbstractAttention, is_attention

Attention = TypeVar("Attention", bound=AbstractAttention)


@checked
def flow_time(steps, rate: float):
    r"""Return the flow time that a number of gradient steps covers, $t/\tau = 2\eta \cdot \text{steps}$.

    Gradient descent of rate $\eta$ on the mean squared error is Euler's method for the flow with time step $2\eta$.

    **Arguments:**

    - `steps`: the number of steps; a number, or an array of them.
    - `rate`: the learning rate $\eta$.

    **Returns:** the time $t/\tau$, of the shape of `steps`.

    **Example:**

    >>> sw.dynamics.flow_time(6000, rate=0.001)
    12.0
    """
    steps = checks.number_or_array("steps", steps)
    with np.errstate(over="ignore"):
        return paper_time.flow_time(steps, rate)


@checked
def steps_for(time, rate: float):
    r"""Return the number of gradient steps in a flow time, $t/(2\eta\tau)$: the inverse of `flow_time`.

    **Arguments:**

    - `time`: the time $t/\tau$; a number, or an array of them.
    - `rate`: the learning rate $\eta$.

    **Returns:** the number of steps as a float, not rounded, of the shape of `time`.

    **Example:**

    >>> sw.dynamics.steps_for(12.0, rate=0.001)
    6000.0
    """
    return checks.number_or_array("time", time) / (2.0 * checks.number("rate", rate, least=0.0, above=True))


@checked
def rate_for(time: float, steps: int) -> float:
    r"""Return the learning rate at which so many steps cover a flow time, $\eta = t/(2\tau \cdot \text{steps})$.

    **Arguments:**

    - `time`: the time $t/\tau$.
    - `steps`: the number of gradient steps.

    **Returns:** the learning rate $\eta$.

    **Example:**

    >>> sw.dynamics.rate_for(12.0, steps=6000)
    0.001
    """
    return time / (2.0 * checks.whole("steps", steps))


@checked
def weight_factor(given: Normalization, wanted: Normalization, *, length: int, factors: int) -> float:
    r"""Return the factor of every weight with which linear attention predicts the same, normalized otherwise.

    With a product of m weights and a scale $s$, the prediction is kept if each weight gets
    $(s_\text{given}/s_\text{wanted})^{1/m}$. From none to 1/N: $N^{1/2}$ merged, $N^{1/3}$ separate.

    **Arguments:**

    - `given`: what attention is divided by now: "1/N" (the context length), "none" or "1/tokens" (N + 1).
    - `wanted`: what it is to be divided by, one of the same three.
    - `length`: the context length N.
    - `factors`: m, the number of weights whose product makes a prediction: 2 for merged attention, 3 for separate
      (`model.factors`).

    **Returns:** the factor, a float.

    **Example:**

    >>> print(f"{sw.dynamics.weight_factor('none', '1/N', length=64, factors=2):.3f}")
    8.000
    """
    checks.one_of("normalization", given, get_args(Normalization))
    checks.one_of("normalization", wanted, get_args(Normalization))
    length, factors = checks.whole("length", length), checks.whole("factors", factors)
    return float(paper_time.weight_factor(given, wanted, length=length, factors=factors))


@checked
def time_factor(given: Normalization, wanted: Normalization, *, length: int, factors: int) -> float:
    r"""Return the factor of time (or the rate) with which training is the same under another normalization.

    Weights $W' = fW$ have gradients $\partial L/\partial W' = f^{-1} \partial L/\partial W$, so the same path is run
    with $t' = f^2 t$, $\eta' = f^2\eta$. From none to 1/N: N merged, $N^{2/3}$ separate.

    **Arguments:**

    - `given`, `wanted`, `length`, `factors`: as in `weight_factor`.

    **Returns:** $f^2$, the square of `weight_factor`.

    **Example:**

    >>> print(f"{sw.dynamics.time_factor('none', '1/N', length=64, factors=3):.3f}")
    16.000
    """
    return weight_factor(given, wanted, length=length, factors=factors) ** 2


@checked
def renormalized(model: Attention, normalization: Normalization, *, length: int) -> Attention:
    """Return the linear attention that predicts the same with another normalization.

    Every weight is multiplied by `weight_factor`. Softmax attention cannot be rescaled so, and is refused with
    `InvalidInput`.

    **Arguments:**

    - `model`: an attention of this package, or one that declares its form.
    - `normalization`: what the new model divides attention by: "1/N", "none" or "1/tokens".
    - `length`: the context length N at which the predictions are the same.

    **Returns:** a model of the same class, with rescaled weights and the new normalization.

    **Example:**

    With N = 8, each of the three weights is multiplied by $8^{-1/3}$.

    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=1.0)
    >>> sw.dynamics.renormalized(model, "none", length=8).query[:, 0].round(3).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    if not is_attention(model):
        raise InvalidInput(
            f"{type(model).__name__} is not known to predict by the formula of attention; build it with the "
            "normalization wanted, or declare its form in the class (declared_form)"
        )
    if model.activation == "softmax":
        raise InvalidInput("softmax attention is not rescaled by its weights; build it with the normalization wanted")
    factor = weight_factor(model.normalization, normalization, length=length, factors=model.factors)
    return dataclasses.replace(model.scaled(factor), normalization=normalization)
