"""Optimizers and schedules of optax by name, with parameters, so that a text says which was used."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.optimizers import OPTIMIZERS, PRESETS, SCHEDULES, SHORT_SCHEDULES, parsed
from stepwell._util.text import nearest, shown
from stepwell.models import AbstractModel

from ._ensemble import Ensemble, as_ensemble, flatten, skeleton_of
from ._loop import Transformation

_RATES = ("peak_value", "init_value", "value")
"""What the rate is called by a schedule; the first of them that it has."""
_LENGTHS = ("decay_steps", "transition_steps")
_STARTS = {"init_value": 0.0, "end_value": 0.0}
"""Where a schedule that has a peak begins, and where others end."""
_BY_ENTRY = frozenset(
    "adabelief adadelta adagrad adam adamax adamaxw adamw adan amsgrad lion momentum nadam nadamw radam rmsprop rprop "
    "sgd sign_sgd signum yogi".split()
)
"""Optimizers that move every weight by its own gradients: for them one long vector is as good as matrices."""


class NamedOptimizer(NamedTuple):
    """What `named_optimizer` returns: the `optimizer` for `descend` or `online`, and its `specification`."""

    optimizer: Transformation
    specification: dict[str, Any]


@checked
def named_optimizer(
    optimizer: str,
    schedule: str = "constant",
    *,
    rate: float | Callable[[Any], Any],
    steps: int,
    model: AbstractModel | Ensemble,
) -> NamedOptimizer:
    """Return an optimizer of optax by name, for `descend` and `online`, and the whole specification of it.

    **Arguments:**

    - `optimizer`: a name of optax or `optax.contrib`, such as "adam", "sgd" or "muon", or "momentum", which is sgd with
      a momentum of 0.9. Parameters follow a colon: "adam:b1=0.9,b2=0.95". Optimizers that treat a matrix as one thing
      get the weights of a head as matrices, all others one vector. All are computed in float64, but for the decay of
      averages of "adafactor", which optax rounds to float32.
    - `schedule`: how the rate changes: "constant", "cosine", "linear", "exponential", "polynomial", "onecycle",
      "warmup", "warmup_cosine", "warmup_exponential" or another schedule of optax, with parameters as above. What is
      not given is taken from `rate`, `steps` and optax.
    - `rate`: the learning rate; the largest one where it changes; or a function of the step, without `schedule`.
    - `steps`: the number of steps, over which the rate changes.
    - `model`: the model that will be trained, or an `Ensemble`.

    **Returns:** the `NamedOptimizer`: the `optimizer`, and its `specification`, in which every parameter of optax's
    functions has its value.

    **Example:**

    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> adam = sw.dynamics.named_optimizer("adam:b1=0.8", "cosine", rate=0.01, steps=500, model=model)
    >>> adam.specification["optimizer"]["parameters"]["b1"]
    0.8
    >>> adam.specification["schedule"]["parameters"]["decay_steps"]
    500
    """
    import optax

    steps = checks.whole("steps", steps)
    if not callable(rate):
        rate = checks.number("rate", rate, least=0.0, above=True)
        changing, scheduled = _schedule(schedule, rate, steps)
    elif schedule == "constant":
        changing, scheduled = rate, {"name": "given as a function"}
    else:
        raise InvalidInput(f"rate is a function and schedule {shown(schedule)}; give a number, or leave out schedule")
    name, given = parsed("optimizer", optimizer)
    inner_name, preset = PRESETS.get(name, (name, {}))
    function = _function("optimizer", inner_name)
    parameters = {**preset, **given}
    if "learning_rate" in parameters:
        raise InvalidInput(f"optimizer {shown(optimizer)} has a learning_rate; give the rate itself")
    written = _bound("optimizer", optimizer, function, {"learning_rate": rate, **parameters})
    constant: dict[str, Any] = {"learning_rate": rate if scheduled["name"] == "constant" else changing}
    if inner_name == "muon":
        constant["muon_weight_dimension_numbers"] = _last_two_axes
    by_entry = inner_name in _BY_ENTRY
    model = as_ensemble(model)
    template = model.member(0) if isinstance(model, Ensemble) else model
    vector = flatten(template)

    def made_with(parameters: dict[str, Any]) -> Transformation:
        made = function(**constant, **parameters)
        return made if by_entry else _of_matrices(made, template)

    def program(parameters: dict[str, Any]) -> str:
        rule = made_with(parameters)
        return _program(lambda w: (rule.init(w), rule.update(w, rule.init(w), w)), vector)

    try:
        made = made_with(parameters)
        _require_effect("optimizer", optimizer, function, parameters, program)
    except InvalidInput:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidInput(
            f"optimizer {shown(optimizer)} cannot train this model ({reason}); it must work with the gradient alone"
        ) from None
    specification = {
        "optimizer": {"name": inner_name, "parameters": written, "acts on": "entries" if by_entry else "matrices"},
        "schedule": scheduled,
        "optax": optax.__version__,
    }
    return NamedOptimizer(made, specification)


def _schedule(text: str, rate: float, steps: int) -> tuple[Callable[[Any], Any], dict[str, Any]]:
    """The schedule as a function of the step, and its name with all parameters."""
    name, given = parsed("schedule", text)
    function = _function("schedule", SHORT_SCHEDULES.get(name, name))
    wanted = inspect.signature(function).parameters
    its_rate = next((n for n in _RATES if n in wanted), None)
    if its_rate in given:
        raise InvalidInput(f"schedule {shown(text)} has a value of {its_rate}, which is the rate; give the rate itself")
    required = {n for n, parameter in wanted.items() if parameter.default is parameter.empty}
    own: dict[str, Any] = {n: value for n, value in _STARTS.items() if n in required}
    own |= {n: steps for n in _LENGTHS if n in wanted}
    own |= {} if its_rate is None else {its_rate: rate}
    missing = [n for n in wanted if n in required and n not in own and n not in given]
    if missing:
        raise InvalidInput(
            f"schedule {shown(text)} needs {' and '.join(missing)}; write {name}:{missing[0]}=NUMBER"
            + "".join(f",{n}=NUMBER" for n in missing[1:])
        )
    values = {**own, **given}
    written = _bound("schedule", text, function, values)
    for n in wanted:  # optax would take other numbers for none, and say nothing
        if n.endswith("_steps"):
            checks.whole(f"{n} of the schedule {shown(text)}", values[n])
        elif n in ("decay_rate", "transition_begin") and n in values:
            checks.number(f"{n} of the schedule {shown(text)}", values[n], least=0.0, above=n == "decay_rate")
    try:
        _require_effect("schedule", text, function, values, lambda one: _program(function(**one), jnp.zeros(())))
        made = function(**values)
        rates = np.asarray(jax.vmap(lambda step: jnp.asarray(made(step), float))(np.linspace(0, steps - 1, 64).round()))
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(f"schedule {shown(text)} is refused by optax ({' '.join(str(error).split())})") from None
    if not np.all(rates >= 0.0):
        raise InvalidInput(
            f"schedule {shown(text)} has the rate {rates[~(rates >= 0.0)][0]:.3g}; it must be 0 or more at every step"
        )
    return made, {"name": name, "parameters": written}


def _function(kind: str, name: str) -> Callable[..., Any]:
    """The function of optax that makes an optimizer or a schedule of this name."""
    import optax

    function: Any = getattr(optax, name, None) or getattr(optax.contrib, name, None)
    known = inspect.isfunction(function) and not name.startswith(("_", "scale_by", "noisy"))
    if kind == "optimizer":
        known, listed = known and "learning_rate" in inspect.signature(function).parameters, [*OPTIMIZERS, *PRESETS]
    else:
        known, listed = known and name.endswith(("_schedule", "_decay")), [*SHORT_SCHEDULES, *SCHEDULES]
    if not known:
        raise InvalidInput(f"there is no {kind} {shown(name)}; {nearest(name, sorted(listed))}")
    return function


def _bound(kind: str, text: str, function: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """All parameters of a function with their values, defaults too."""
    wanted = inspect.signature(function).parameters
    unknown = [name for name in values if name not in wanted]
    if unknown:
        listed = ", ".join(name for name in wanted if name not in _RATES)
        raise InvalidInput(f"{kind} {shown(text)} has no parameter {unknown[0]}; it has {listed}")
    every = {name: values.get(name, parameter.default) for name, parameter in wanted.items()}
    return {name: value for name, value in every.items() if _is_plain(value)}


def _program(function: Callable[..., Any], argument: Any) -> str:
    """What JAX makes of a function, constants included: the same for two that compute the same in the same way."""
    traced = jax.make_jaxpr(function)(argument)
    return f"{traced} {[np.asarray(constant).tolist() for constant in traced.consts]}"


def _require_effect(
    kind: str, text: str, function: Callable[..., Any], values: dict[str, Any], program: Callable[[dict[str, Any]], str]
) -> None:
    """Refuse a parameter that is not its default, and without which `program` would be the same."""
    whole, wanted = program(values), inspect.signature(function).parameters
    for name, value in values.items():
        default = wanted[name].default
        if default is not inspect.Parameter.empty and value != default:
            if program({n: v for n, v in values.items() if n != name}) == whole:
                raise InvalidInput(f"{kind} {shown(text)} makes no use of {name}; leave it out, or give what it needs")


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _last_two_axes(weights: Any) -> Any:
    """For muon: the matrices are the last two axes of every weight, one for each head."""
    from optax.contrib import MuonDimensionNumbers

    axes = [np.ndim(weight) for weight in weights]  # of one that is masked 1: it is an empty tuple
    return [MuonDimensionNumbers(count - 2, count - 1) if count > 1 else None for count in axes]


def _of_matrices(inner: Any, model: AbstractModel) -> Transformation:
    """An optimizer of weights with their own shapes, for one vector of them all."""
    import optax

    leaves = [leaf for leaf in jax.tree.leaves(skeleton_of(model)) if isinstance(leaf, jax.ShapeDtypeStruct)]
    _, apart = ravel_pytree([np.zeros(leaf.shape) for leaf in leaves])

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        moved, state = inner.update(apart(updates), state, None if params is None else apart(params))
        return ravel_pytree(moved)[0], state

    return optax.GradientTransformation(lambda params: inner.init(apart(params)), update)
