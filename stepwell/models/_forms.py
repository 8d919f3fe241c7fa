r"""The forms of models: the one place that decides for which classes a fast path may replace the model's `__call__`.

All that is known of a model is its `__call__`. A *form* says that its answers are those of a formula, so that a loss
can be computed from its matrices without calling it:

- "cubic": it reads cubic features z, and answers $\hat y_o = \sum_p \langle A_{op}, z_p \rangle$ with $A$ its
  `effective_map()`. For an `AbstractCubicModel` that is not an attention.
- "attention": it reads tokens, and answers by the formula of `AbstractAttention` with its own `bilinear()` and
  `readout()`.
- "separate": moreover these are made of its weights `value`, `key` and `query` as in `SeparateAttention`.
- "spectral": moreover these are made of its `omega()` and `mu()` as in `SpectralAttention`.

A class has a form if it declares it, in its own body,

    declared_form: ClassVar[Form] = "attention"

The declarations of this package are proved by its tests (tests/models/test_forms.py); any other class is compared with
its own `__call__` when training starts (`check_form`). A declaration is not inherited: a subclass may change the
answers, and would inherit a promise that it does not keep.
"""

from typing import TypeGuard, get_args

import jax.numpy as jnp

from stepwell import _check
from stepwell._errors import InvalidInput

from ._attention import AbstractAttention
from ._model import AbstractCubicModel, AbstractModel, Form
from ._separate import SeparateAttention
from ._spectral import SpectralAttention

_BASES: dict[Form, type[AbstractModel]] = {
    "separate": SeparateAttention,
    "spectral": SpectralAttention,
    "attention": AbstractAttention,
    "cubic": AbstractCubicModel,
}
"""The class whose subclasses may declare a form, the most special first."""


def form_of(model: AbstractModel) -> Form | None:
    """The form of a model's class, proved or declared; None if nothing is known of it but its `__call__`."""
    kind = type(model)
    declared = vars(kind).get("declared_form")
    if declared is None:
        return None
    form = _check.one_of(f"declared_form of {kind.__name__}", declared, get_args(Form))
    if form not in _allowed(kind):
        allowed = ", ".join(map(repr, _allowed(kind))) or "none"
        raise InvalidInput(
            f"{kind.__name__} has declared_form = {form!r}, which is for subclasses of {_BASES[form].__name__}; "
            f"what it may declare is {allowed}"
        )
    return form


def is_proved(model: AbstractModel) -> bool:
    """Whether the model's class is one of this package, whose form is proved by tests and not compared at the start."""
    return type(model).__module__.startswith(f"{__package__}.")


def is_cubic(model: AbstractModel) -> TypeGuard[AbstractCubicModel]:
    """Whether the model has an effective map that may be used in its place: it is of any form."""
    return form_of(model) is not None


def is_attention(model: AbstractModel) -> TypeGuard[AbstractAttention]:
    """Whether `bilinear()` and `readout()` may be used in the model's place."""
    return form_of(model) in ("attention", "separate", "spectral")


def is_separate(model: AbstractModel) -> TypeGuard[SeparateAttention]:
    """Whether the weights `value`, `key` and `query` may be used in the model's place."""
    return form_of(model) == "separate"


def as_separate(model: SeparateAttention) -> SeparateAttention:
    """The class of this package that a model of the form "separate" is equal to, at zero weights of its shapes."""
    weights = (jnp.zeros(part.shape, part.dtype) for part in (model.value, model.key, model.query))
    options = {name: getattr(model, name) for name in ("activation", "normalisation", "attends_query")}
    return SeparateAttention(*weights, **options)


def map_rank(model: AbstractModel) -> int | None:
    """The model's `map_rank()`, where it is that of a class of this package: other classes may tie their weights."""
    if is_separate(model):
        return SeparateAttention.map_rank(model)
    return model.map_rank() if is_proved(model) and is_cubic(model) else None


def is_spectral(model: AbstractModel) -> TypeGuard[SpectralAttention]:
    """Whether `omega()` and `mu()` may be used in the model's place."""
    return form_of(model) == "spectral"


def form_advice(model: AbstractModel) -> str:
    """What to do about a model without a form where one is needed: part of a message."""
    use = "use Sampled or online, which call the model itself"
    allowed = _allowed(type(model))
    if not allowed:
        return use
    return (
        f"{use}; or, if its answers are by a known formula, declare that in the class: declared_form = {allowed[0]!r}"
    )


def _allowed(kind: type[AbstractModel]) -> list[Form]:
    """The forms that a class may declare, the most special first. What reads tokens does not read cubic features."""
    forms: list[Form] = [form for form, base in _BASES.items() if issubclass(kind, base)]
    return [form for form in forms if form != "cubic" or not issubclass(kind, AbstractAttention)]
