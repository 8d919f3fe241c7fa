r"""Time and scale: the one place that converts them.

The paper's flow is $\tau\, dW/dt = -\tfrac12\, \partial L/\partial W$ with attention divided by the context length N,
and its time is $t/\tau$. Gradient descent of rate $\eta$ on the mean squared error is Euler's method for it with time
step $2\eta$. Linear attention that is divided by something else has the same predictions if each of the m weights in a
product is multiplied by $f = (s_\text{given}/s_\text{wanted})^{1/m}$, and runs the same path in the time $t' = f^2 t$.

Nothing here imports JAX or NumPy.
"""

from typing import Any

TIME_NAME = "t/τ"
"""What a time is called on axes and in tables."""
TIME_UNIT = "t/tau, with tau dW/dt = -1/2 dL/dW"
"""Units of the time of a flow, as files have them, of the weights as they are trained."""
PAPER_UNIT = "t/tau, with tau dW/dt = -1/2 dL/dW and attention divided by N"
"""Units of the paper's time, as files have them."""


def flow_time(steps: Any, rate: Any) -> Any:
    """The flow time t/τ of a number of gradient steps."""
    return 2.0 * (rate * steps)


def attention_factor(normalization: str, length: Any) -> Any:
    """What attention over `length` context pairs is multiplied by."""
    if normalization == "none":
        return 1.0
    return 1.0 / (length if normalization == "1/N" else length + 1)


def weight_factor(given: str, wanted: str, *, length: Any, factors: int) -> Any:
    """What every weight is multiplied by under another normalization, so that predictions stay the same."""
    return (attention_factor(given, length) / attention_factor(wanted, length)) ** (1.0 / factors)


def time_factor(given: str, wanted: str, *, length: Any, factors: int) -> Any:
    """What time, or the rate, is multiplied by under another normalization, so that training stays the same."""
    return weight_factor(given, wanted, length=length, factors=factors) ** 2
