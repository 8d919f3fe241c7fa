r"""The forms of models: the one place that decides for which classes a fast path may replace the model's `__call__`.

All that is known of a model is its `__call__`. A *form* says that its predictions are those of a formula, so that a
loss can be computed from its matrices without calling it:

- "linear": it reads tokens, and predicts $\hat y_o = \sum_p \beta_p^\top A_{op} x_q$ with $A$ its `effective_map()` and
  $\beta_p = \frac1N \sum_n y_{n,p} x_n$. For an `AbstractModel` that is not an `AbstractCubicModel`.
- "cubic": it reads cubic features z, and predicts $\hat y_o = \sum_p \langle A_{op}, z_p \rangle$ with $A$ its
  `effective_map()`. For an `AbstractCubicModel` that is not an attention.
- "attention": it reads tokens, and predicts by the formula of `AbstractAttention` with its own `bilinear()` and
  `readout()`.
- "separate": moreover these are made of its weights `value`, `key` and `query` as in `SeparateAttention`.
- "spectral": moreover these are made of its `omega()` and `mu()` as in `SpectralAttention`.
- "polynomial": it reads an input x, and its predictions are sums of `polynomial_features` of x with its
  `coefficients()`. For a subclass of `PolynomialUnits`.

A class has a form if it declares it, in its own body,

    declared_form: ClassVar[Form] = "attention"

The declarations of this package are proved by its tests (tests/models/test_forms.py); any other class is compared with
its own `__call__` when training starts (`check_form`). A declaration is not inherited: a subclass may change the
predictions, and would inherit a promise that it does not keep.
"""

from typing import TypeGuard, get_args

import jax
import jax.numpy as jnp
import numpy as np

from stepwell._util import checks, text
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from ._attention import AbstractAttention
from ._model import AbstractCubicModel, AbstractModel, Form, Theory, declared_map
from ._separate import SeparateAttention
from ._spectral_attention import SpectralAttention
from ._units import AbstractUnits, PolynomialUnits

_BASES: dict[Form, type[AbstractModel]] = {
    "separate": SeparateAttention,
    "spectral": SpectralAttention,
    "polynomial": PolynomialUnits,
    "attention": AbstractAttention,
    "cubic": AbstractCubicModel,
    "linear": AbstractModel,
}
"""The class whose subclasses may declare a form, the most special first."""
_DRAWS = 3
"""Random weights at which the rank of a map is computed."""


@checked
def form_of(model: AbstractModel) -> Form | None:
    """Return the form of a model's class, proved or declared: the formula that gives its predictions.

    **Arguments:**

    - `model`: any model.

    **Returns:** "linear", "cubic", "attention", "separate", "spectral" or "polynomial"; None if nothing is known of the
    model but its `__call__`. A form that the class may not declare raises `InvalidInput`.

    **Example:**

    A declaration is not inherited:

    >>> class Own(sw.models.SeparateAttention): pass
    >>> sizes = dict(dim=2, heads=1, scale=0.1, key=jax.random.key(0))
    >>> sw.models.form_of(sw.models.SeparateAttention.random(**sizes)), sw.models.form_of(Own.random(**sizes))
    ('separate', None)
    """
    kind = type(model)
    declared = vars(kind).get("declared_form")
    if declared is None:
        return None
    form = checks.one_of(f"declared_form of {kind.__name__}", declared, get_args(Form))
    if form not in _allowed(kind):
        allowed = ", ".join(map(repr, _allowed(kind)))
        raise InvalidInput(
            f"{kind.__name__} has declared_form = {form!r}, which is for subclasses of {_BASES[form].__name__}; "
            f"what it may declare is {allowed}"
        )
    return form


def is_proved(model: AbstractModel) -> bool:
    """Return whether the model's class is one of this package and has a form, which tests prove and no run compares.

    **Arguments:**

    - `model`: any model.

    **Returns:** True for the classes of `stepwell.models` that declare a form, and for no others. Of a class without a
    form nothing is known but its `__call__`, wherever it is defined.

    **Example:**

    >>> sw.models.is_proved(sw.SeparateAttention.aligned(jnp.eye(2), heads=1, scale=0.1))
    True
    """
    return type(model).__module__.startswith(f"{__package__}.") and form_of(model) is not None


def is_attention(model: AbstractModel) -> TypeGuard[AbstractAttention]:
    """Return whether `bilinear()` and `readout()` may be used in the model's place.

    **Arguments:**

    - `model`: any model.

    **Returns:** True if the form of the model is "attention", "separate" or "spectral".

    **Example:**

    >>> sw.models.is_attention(sw.MergedAttention.aligned(jnp.eye(2), heads=1, scale=0.1))
    True
    """
    return form_of(model) in ("attention", "separate", "spectral")


def is_separate(model: AbstractModel) -> TypeGuard[SeparateAttention]:
    """Return whether the weights `value`, `key` and `query` may be used in the model's place.

    **Arguments:**

    - `model`: any model.

    **Returns:** True if the form of the model is "separate".

    **Example:**

    >>> sw.models.is_separate(sw.SeparateAttention.aligned(jnp.eye(2), heads=1, scale=0.1))
    True
    """
    return form_of(model) == "separate"


def is_spectral(model: AbstractModel) -> TypeGuard[SpectralAttention]:
    """Return whether `omega()` and `mu()` may be used in the model's place.

    **Arguments:**

    - `model`: any model.

    **Returns:** True if the form of the model is "spectral".

    **Example:**

    >>> sw.models.is_spectral(sw.SeparateAttention.aligned(jnp.eye(2), heads=1, scale=0.1))
    False
    """
    return form_of(model) == "spectral"


def is_polynomial(model: AbstractModel) -> TypeGuard[PolynomialUnits]:
    """Return whether `coefficients()` may be used in the model's place.

    **Arguments:**

    - `model`: any model.

    **Returns:** True if the form of the model is "polynomial".

    **Example:**

    >>> sw.models.is_polynomial(sw.models.ActivationUnits(jnp.ones((1, 1, 1)), jnp.ones((1, 2)), "tanh"))
    False
    """
    return form_of(model) == "polynomial"


@checked
def map_rank(model: AbstractModel) -> int | None:
    """Return the highest rank that the effective map of the model can have.

    It is the model's `map_rank()` for classes of this package, which can have every map of that rank. Of any other
    class with a form it is the rank at random weights, which is the highest unless these are special. Such a class may
    tie its weights and lack some maps of that rank: the lowest loss over all of them is then a lower bound.

    **Arguments:**

    - `model`: any model.

    **Returns:** the rank, or None where it is not known, or where not even rank one is possible.

    **Example:**

    >>> sw.models.map_rank(sw.SeparateAttention.aligned(jnp.eye(5), heads=3, scale=0.1))
    3
    """
    if is_separate(model):
        return SeparateAttention.map_rank(model)
    if form_of(model) in (None, "polynomial"):
        return None
    return model.map_rank() if isinstance(model, AbstractCubicModel) and is_proved(model) else _rank_at_random(model)


def _rank_at_random(model: AbstractModel) -> int | None:
    """The largest rank of the map from labels of an output to itself, at random weights of order one."""
    rng, ranks = np.random.default_rng(0), []
    for _ in range(_DRAWS):
        weights = {name: rng.standard_normal(weight.shape) for name, weight in model.weights().items()}
        maps = np.asarray(declared_map(model.with_weights(weights)))
        ranks += [int(np.linalg.matrix_rank(each)) for each in np.einsum("ooij->oij", maps) if np.isfinite(each).all()]
    return max(ranks, default=0) or None


@checked
def map_shape(model: AbstractModel) -> tuple[int, int]:
    """Return the number of outputs and the dimension of a model, as its effective map has them.

    **Arguments:**

    - `model`: a model of any form.

    **Returns:** (outputs, dim).

    **Example:**

    >>> sw.models.map_shape(sw.SeparateAttention.aligned(jnp.eye(5), heads=3, scale=0.1))
    (1, 5)
    """
    if isinstance(model, AbstractCubicModel):
        return model.shape
    name = type(model).__name__
    try:
        shape = jnp.shape(jax.eval_shape(lambda: declared_map(model)))
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(f"effective_map() of {name} cannot be computed ({text.error_line(error)})") from error
    if len(shape) != 4 or shape[0] != shape[1] or shape[2] != shape[3]:
        raise InvalidInput(
            f"effective_map() of {name} has shape {shape}; it must be (outputs, outputs, dim, dim), so for one output "
            "return the matrix A as A[None, None]"
        )
    return shape[0], shape[-1]


@checked
def form_advice(model: AbstractModel) -> str:
    """Return what to do about a model without a form where one is needed, as part of a message.

    **Arguments:**

    - `model`: the model; the form that its class may declare depends on its base class.

    **Returns:** the advice, without a full stop.

    **Example:**

    >>> print(sw.models.form_advice(sw.SeparateAttention.aligned(jnp.eye(2), heads=1, scale=0.1)))
    use Sampled or online, which call the model itself; or, if a known formula gives its predictions, declare that in
    the class: declared_form = 'separate'
    """
    use = "use Sampled or online, which call the model itself"
    allowed = _allowed(type(model))
    if not allowed:
        return use
    formula = "its effective_map()" if allowed[0] == "linear" else "a known formula"
    return f"{use}; or, if {formula} gives its predictions, declare that in the class: declared_form = {allowed[0]!r}"


def _allowed(kind: type[AbstractModel]) -> list[Form]:
    """The forms that a class may declare, the most special first; a model reads tokens, cubic features or inputs."""
    forms: list[Form] = [form for form, base in _BASES.items() if issubclass(kind, base)]
    unfit = {"cubic": AbstractAttention, "linear": (AbstractCubicModel, AbstractUnits)}
    return [form for form in forms if form not in unfit or not issubclass(kind, unfit[form])]


def theory_of(model_class: type) -> Theory | None:
    """Return the equations that models of a class follow: of `theory.linear`, or "units", of `theory.units`.

    **Arguments:**

    - `model_class`: the class of a model.

    **Returns:** "separate" or "merged", a name in `theory.linear.PREDICTORS`, where the class declares `theory`, or the
    form "separate", in its own body; the static method `theory_weights` of the class has what these equations read.
    "units" of networks of units, whose weights are read as they are. None where it does not: a subclass may change the
    dynamics, and inherits no declaration.

    **Example:**

    >>> class Own(sw.SeparateAttention): pass
    >>> [sw.models.theory_of(each) for each in (sw.SeparateAttention, sw.models.CubicMLP, Own)]
    ['separate', 'merged', None]
    """
    if not issubclass(model_class, AbstractModel):
        return None
    own = vars(model_class)
    return own.get("theory") or ("separate" if own.get("declared_form") == "separate" else None)
