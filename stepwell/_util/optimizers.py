"""Names of optimizers and schedules, with parameters, as texts: "adam:b1=0.9". Nothing here imports optax or JAX."""

import math
import re
from typing import Any

from .errors import InvalidInput
from .text import nearest, shown

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {"momentum": ("sgd", {"momentum": 0.9})}
"""Names that optax does not have: its function, and parameters that are not its defaults."""
OPTIMIZERS = frozenset(
    "acprop adabelief adadelta adafactor adagrad adam adamax adamaxw adamw adan ademamix adopt amsgrad cocob "
    "dadapt_adamw dog dowg dpsgd fromage galore lamb lars lbfgs lion madgrad momo momo_adam muon novograd "
    "optimistic_adam optimistic_adam_v2 optimistic_gradient_descent prodigy radam rmsprop rprop schedule_free "
    "schedule_free_adamw schedule_free_sgd sgd sign_sgd signum simplified_ademamix sm3 sophia yogi".split()
)
"""The optimizers of optax 0.2.8, its `contrib` included; a test compares them with the optax that is installed."""
SHORT_SCHEDULES = {
    "constant": "constant_schedule",
    "cosine": "cosine_decay_schedule",
    "exponential": "exponential_decay",
    "linear": "linear_schedule",
    "onecycle": "cosine_onecycle_schedule",
    "polynomial": "polynomial_schedule",
    "warmup": "warmup_constant_schedule",
    "warmup_cosine": "warmup_cosine_decay_schedule",
    "warmup_exponential": "warmup_exponential_decay_schedule",
}
"""What schedules of optax are called here, too."""
SCHEDULES = frozenset(SHORT_SCHEDULES.values()) | {
    "linear_onecycle_schedule",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
    "sgdr_schedule",
}
"""The schedules of optax 0.2.8, compared in the same way."""


def parsed(kind: str, text: str) -> tuple[str, dict[str, Any]]:
    """ "adam:b1=0.9,nesterov=true" as a name and parameters."""
    name, _, rest = text.strip().partition(":")
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        parameter, equals, value = part.partition("=")
        if not equals or parameter.strip() in given:
            raise InvalidInput(
                f"{kind} {shown(text)} has the parameter {shown(part)}; write each once, as in adam:b1=0.9,b2=0.99"
            )
        given[parameter.strip()] = _value(kind, text, value.strip())
    return name.strip(), given


def _value(kind: str, text: str, written: str) -> Any:
    if written.lower() in ("true", "false"):
        return written.lower() == "true"
    if re.fullmatch(r"[+-]?\d+", written):
        return int(written)
    try:
        value = float(written)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput(
            f"{kind} {shown(text)} has the value {shown(written)}; it must be a finite number, true or false"
        )
    return value


def canonical_optimizer(text: str) -> str:
    """One way of writing an optimizer, by the name of a preset if it is one; a name that does not exist is refused."""
    name, given = parsed("optimizer", text)
    name, preset = PRESETS.get(name, (name, {}))
    if name not in OPTIMIZERS:
        raise InvalidInput(f"there is no optimizer {shown(name)}; {nearest(name, [*sorted(OPTIMIZERS), *PRESETS])}")
    given = {**preset, **given}
    for short, (function, values) in PRESETS.items():
        if name == function and values.items() <= given.items():
            name, given = short, {key: value for key, value in given.items() if key not in values}
    return _written(name, given)


def canonical_schedule(text: str) -> str:
    """One way of writing a schedule, by its short name if it has one; a name that does not exist is refused."""
    name, given = parsed("schedule", text)
    short = {long: word for word, long in SHORT_SCHEDULES.items()}
    if name not in (known := [*SHORT_SCHEDULES, *sorted(SCHEDULES)]):
        raise InvalidInput(f"there is no schedule {shown(name)}; {nearest(name, known)}")
    return _written(short.get(name, name), given)


def _written(name: str, given: dict[str, Any]) -> str:
    values = {key: str(value).lower() if isinstance(value, bool) else repr(value) for key, value in given.items()}
    return name + (":" if values else "") + ",".join(f"{key}={values[key]}" for key in sorted(values))
