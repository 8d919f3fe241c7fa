"""Kinds of training: how weights move."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from stepwell._util import paper_time
from stepwell._util.errors import InvalidInput
from stepwell._util.optimizers import canonical_optimizer, canonical_schedule

from .._field import Field
from .._kind import Values, note_of, register
from .._training import TimeScale

_NO_LOWEST_LOSS = ("moments", "sampled", "spectral", "reduced", "exact", "examples")
"""Objectives whose lowest loss is not known before training."""


def _no_lowest_loss(sections: Mapping[str, Any]) -> bool:
    """Of features of the input it is known for linear networks."""
    objective, model = sections["objective"].kind, sections["model"]
    return objective in _NO_LOWEST_LOSS or (objective == "features" and model.get("degree", 1) > 1)


_MOST_STEPS = 10**9
_LATE = 1.5
"""A flow of several regressions goes on to so many times the last predicted emergence, and through what follows."""


def _fill_flow(values: Values, sections: Mapping[str, Any]) -> Values:
    if sections["objective"].kind == "online":
        raise InvalidInput("the objective online has other sequences at every step; train it by descent")
    if sections["model"].get("scale") == 0.0:
        raise InvalidInput("scale is 0, a fixed point of the flow; give a small number above 0")
    made = dict(values)
    if made["until"] is None:
        several = note_of(sections["model"].kind, "reads") == "spectra"
        made["until"] = _after_emergence(sections) if several else "converged"
    if made["until"] == "converged" and _no_lowest_loss(sections):
        raise InvalidInput(
            f"the lowest loss of the objective {sections['objective'].kind} is not known, so that a flow cannot tell "
            "convergence from a plateau; give until a time, to which drops are then predicted, too"
        )
    return made


def _after_emergence(sections: Mapping[str, Any]) -> float:
    """A time well after the last predicted emergence of several regressions, to three digits."""
    import numpy as np

    from stepwell.theory import MultiRegression, softmax

    task, model = sections["task"], sections["model"]
    described = MultiRegression(task["dims"], task["strengths"], task["noise"], task["context"])
    scales = np.full(len(task["dims"]), model["scale"])
    late = softmax.emergence_bracket(described, scales, heads=model["heads"], loss_factor=1.0).late.max()
    drop = softmax.loss_drop_width(described, loss_factor=1.0).max()
    climb = softmax.omega_climb_width(described, loss_factor=1.0).max()
    end = _LATE * float(late) + 3 * float(drop) + 2 * float(climb)
    return float(f"{end:.3g}")


@register("training", "flow", fill=_fill_flow)
def flow(
    *,
    until: Annotated[
        float | Literal["converged"] | None,
        Field(
            "stop time, or converged, the default; with spectral by default well after the last predicted emergence",
            unit=paper_time.TIME_NAME,
            above=0.0,
            slider=(1.0, 1e6),
            log=True,
        ),
    ] = None,
    tolerance: Annotated[float, Field("relative tolerance of the solver", above=0.0, most=1e-1)] = 1e-6,
) -> Any:
    """Gradient flow, the limit of small learning rates."""
    from .._training import Flow

    return Flow("converged" if until is None else until, tolerance)


def _fill_descent(values: Values, sections: Mapping[str, Any]) -> Values:
    made = dict(values)
    made["optimizer"] = canonical_optimizer(made["optimizer"])
    made["schedule"] = canonical_schedule(made["schedule"])
    if made["until"] is not None:
        if made["steps"] is not None:
            raise InvalidInput("steps and until are both given; give the number of steps, or the time at which to stop")
        if (made["optimizer"], made["schedule"]) != ("sgd", "constant"):
            raise InvalidInput("until is a flow time, which other optimizers than sgd do not have; give steps")
        each = TimeScale.of(sections["task"], sections["model"]).of_steps(1.0, made["rate"])
        steps = made["until"] / each
        if not steps <= _MOST_STEPS:
            raise InvalidInput(
                f"until is {made['until']:g}, which at the rate {made['rate']:g} is {steps:.3g} steps; there may be "
                f"{_MOST_STEPS}, so give an earlier time or a larger rate"
            )
        made["steps"] = max(1, math.ceil(steps * (1.0 - 1e-12)))
    elif made["steps"] is None:
        made["steps"] = 6000
    return made


@register(
    "training",
    "descent",
    fill=_fill_descent,
    canonical=lambda values, sections: {name: value for name, value in values.items() if name != "until"},
    replaces={"steps": ("until",), "until": ("steps",)},
)
def descent(
    *,
    rate: Annotated[
        # With a stop time the number of steps depends on it, monotonically: the ends of a range show that.
        float, Field("learning rate", symbol="η", above=0.0, most=1e50, slider=(1e-5, 1.0), log=True, free=True)
    ] = 0.01,
    steps: Annotated[
        int | None,
        Field("number of gradient steps; by default 6000", least=1, most=_MOST_STEPS, slider=(200, 10_000), log=True),
    ] = None,
    until: Annotated[float | None, Field("stop time, instead of steps", unit=paper_time.TIME_NAME, above=0.0)] = None,
    optimizer: Annotated[
        str, Field("sgd, momentum, adam, muon or another of optax, with parameters if need be: adam:b1=0.9,b2=0.99")
    ] = "sgd",
    schedule: Annotated[
        str,
        Field(
            "how the rate changes over all steps: constant, cosine, linear, exponential:decay_rate=0.1, "
            "warmup_cosine:warmup_steps=100 or another of optax"
        ),
    ] = "constant",
) -> Any:
    """Gradient descent, or another optimizer of optax."""
    from .._training import Descent

    return Descent(rate, int(steps or 1), optimizer, schedule)
