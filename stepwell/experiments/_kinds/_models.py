"""Kinds of models: attention in its several structures, the networks it is equal to, and networks of units."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from stepwell._util.errors import InvalidInput

from .._field import Field
from .._kind import Values, find_kind, register


def _heads(words: str) -> Field:
    return Field(words, symbol="H", least=1, most=10**6, slider=(1, 8))


Heads = Annotated[int | None, _heads("attention heads; by default one for each eigenvalue")]
Activation = Annotated[
    Literal["linear", "softmax"], Field("what turns scores into attention weights: linear or softmax")
]
Normalization = Annotated[
    Literal["1/N", "none", "1/tokens"] | None,
    Field(
        "what attention is divided by: the context pairs, nothing, or the tokens; by default 1/N for linear attention "
        "and none for softmax"
    ),
]
Balanced = Annotated[bool, Field("whether weights are rescaled so that what the flow conserves is zero")]
Scale = Annotated[
    float,
    Field(
        "initialization scale: the standard deviation of a weight, or what the scheme makes of it",
        least=0.0,
        most=1e50,
        slider=(1e-5, 1.0),
        log=True,
        free=True,
    ),
]


def dimension(sections: Mapping[str, Any]) -> int | None:
    """The dimension of an input, where the task says it before it is built."""
    task = sections["task"]
    eigenvalues, dims, dim = (task.get(name) for name in ("eigenvalues", "dims", "dim"))
    if isinstance(eigenvalues := eigenvalues or task.get("norms"), tuple):
        return len(eigenvalues) * patches_of(sections)
    if isinstance(dims, tuple) and all(isinstance(one, int) for one in dims):
        return sum(dims)
    return dim if isinstance(dim, int) else None  # a user's task may call something else so


def patches_of(sections: Mapping[str, Any]) -> int:
    """How many patches an input of a supervised task has."""
    return sections["task"].get("patches", 1) if supervised(sections) else 1


def supervised(sections: Mapping[str, Any]) -> Any:
    """Whether the task gives inputs with labels, and no context: "data" or "drawn"; None if it does not."""
    return find_kind("task", sections["task"].kind).notes.get("supervised")


def _fill_heads(made: Values, sections: Mapping[str, Any]) -> Values:
    if supervised(sections):
        raise InvalidInput(
            f"the task {sections['task'].kind} gives inputs without a context, and attention reads sequences; take the "
            "model polynomial or nonlinear"
        )
    if made["heads"] is None:
        made["heads"] = dimension(sections) or 1
    return made


def _fill_attention(values: Values, sections: Mapping[str, Any]) -> Values:
    made = _fill_heads(dict(values), sections)
    if made["normalization"] is None:
        made["normalization"] = "1/N" if made.get("activation", "linear") == "linear" else "none"
    return made


def _linear_objective(values: Values, sections: Mapping[str, Any]) -> str:
    if values.get("activation", "linear") != "linear":
        return "sampled"
    return "population" if find_kind("task", sections["task"].kind).notes.get("closed_form") else "moments"


def _fill_separate(values: Values, sections: Mapping[str, Any]) -> Values:
    made = _fill_attention(values, sections)
    dim = dimension(sections)
    if made["balanced"] and dim is not None and made["rank"] > dim:
        raise InvalidInput(f"balanced needs a rank of at most the dimension, {dim}; the rank is {made['rank']}")
    return made


def _drawn(owner: Any, task: Any, key: Any, heads: int | None, **options: Any) -> Any:
    """Random initial weights of a class of models."""
    return owner.random(dim=task.dim, outputs=task.outputs, heads=int(heads or 1), key=key, **options)


def _separate_divisors(values: Mapping[str, Any], dim: int, outputs: int) -> tuple[float, ...] | None:
    """As the scheme says, of value, key and query."""
    heads, rank, width = values["heads"], values["rank"], dim + outputs
    if values["balanced"]:
        return None
    if values["scheme"] == "plain":
        return 1.0, 1.0, 1.0
    if values["scheme"] == "per-head":
        return 1.0, (rank * width) ** 0.5, (rank * width) ** 0.5
    thin = (heads * rank * width) ** 0.5
    return (heads * width * width) ** 0.5, thin, thin


def _plain_divisors(values: Mapping[str, Any], dim: int, outputs: int) -> tuple[float, ...] | None:
    """Of two arrays, whose standard deviation is the scale."""
    return None if values.get("balanced") else (1.0, 1.0)


@register(
    "model",
    "separate",
    fill=_fill_separate,
    follows=_linear_objective,
    theory="separate",
    weights=lambda values, dim, outputs: values["heads"] * (dim + outputs) * (outputs + 2 * values["rank"]),
    divisors=_separate_divisors,
)
def separate(
    task: Any,
    key: Any,
    *,
    heads: Heads = None,
    rank: Annotated[int, Field("pairs of key and query in a head", symbol="R", least=1, most=10**6, slider=(1, 8))] = 1,
    activation: Activation = "linear",
    normalization: Normalization = None,
    scheme: Annotated[
        Literal["plain", "per-head", "stacked"],
        Field(
            "initialization scheme: plain, the scale is the standard deviation of every weight; per-head, of keys and "
            "queries divided by the root of a head's entries; stacked, of all weights by that of all heads' entries"
        ),
    ] = "plain",
    scale: Scale = 0.01,
    balanced: Balanced = False,
) -> Any:
    """Attention with separate key and query matrices of rank R in each head."""
    import warnings

    from stepwell.models import SeparateAttention

    options: Any = {"scale": scale, "scheme": scheme, "activation": activation, "normalization": normalization}
    with warnings.catch_warnings(action="ignore"):  # of a rank above the dimension, of which `remarks` tells
        made = _drawn(SeparateAttention, task, key, heads, rank=rank, **options)
    return made.balanced() if balanced else made


@register(
    "model",
    "merged",
    fill=_fill_attention,
    follows=_linear_objective,
    theory="merged",
    weights=lambda values, dim, outputs: values["heads"] * (dim + outputs) ** 2,
    divisors=_plain_divisors,
)
def merged(
    task: Any,
    key: Any,
    *,
    heads: Heads = None,
    activation: Activation = "linear",
    normalization: Normalization = None,
    scale: Scale = 0.01,
    balanced: Balanced = False,
) -> Any:
    """Attention with one matrix for key and query together in each head."""
    from stepwell.models import MergedAttention

    options: Any = {"scale": scale, "activation": activation, "normalization": normalization}
    made = _drawn(MergedAttention, task, key, heads, **options)
    return made.balanced() if balanced else made


@register(
    "model",
    "mlp",
    fill=_fill_attention,
    follows=_linear_objective,
    theory="merged",
    reads="cubic",
    weights=lambda values, dim, outputs: values["heads"] * outputs * (dim**2 + 1),
    divisors=_plain_divisors,
)
def mlp(task: Any, key: Any, *, heads: Heads = None, normalization: Normalization = None, scale: Scale = 0.01) -> Any:
    """The two-layer network on cubic features that merged attention is equal to; heads are its hidden units."""
    from stepwell.models import CubicMLP

    return _drawn(CubicMLP, task, key, heads, scale=scale)


def _fill_spectral(values: Values, sections: Mapping[str, Any]) -> Values:
    made, task = dict(values), sections["task"]
    if task.kind != "multitask":
        raise InvalidInput(
            f"the model kind spectral is for the task multitask, and the task is {task.kind}; take separate or merged"
        )
    if made["heads"] is None:
        made["heads"] = len(task["dims"])
    return made


@register(
    "model",
    "spectral",
    fill=_fill_spectral,
    follows="spectral",
    activation="softmax",
    reads="spectra",
    weights=lambda values, dim, outputs: 4 * values["heads"] * outputs,
)
def spectral(
    task: Any,
    key: Any,
    *,
    heads: Annotated[int | None, _heads("softmax heads; by default one for each regression")] = None,
    scale: Annotated[
        float,
        Field(
            "initialization scale: ω of the strongest head of each regression; the others are random below it",
            least=1e-50,
            most=1e50,
            slider=(1e-5, 0.1),
            log=True,
            free=True,
        ),
    ] = 0.01,
) -> Any:
    r"""Softmax attention by its eigenvalues, on several regressions.

    $\omega_i^h$ is uniform between 0 and the scale, and for the strongest head of each regression the scale itself;
    $\mu = \rho^*\omega$ is on the ray of the warm-up.
    """
    import jax
    import numpy as np

    from stepwell.models import SpectralAttention
    from stepwell.theory import softmax

    drawn = np.asarray(jax.random.uniform(key, (int(heads or 1), len(task.dims)), minval=1e-3))
    omega = scale * drawn / drawn.max(axis=0)
    return SpectralAttention.balanced(omega, softmax.warm_up(task).ratio * omega, task.dims)


def _fill_multihead(values: Values, sections: Mapping[str, Any]) -> Values:
    made = _fill_heads(dict(values), sections)
    if made["scheme"] == "opposite" and made["heads"] % 2:
        raise InvalidInput(
            f"heads is {made['heads']}; the scheme opposite needs an even number, half of each sign of the scores"
        )
    return made


@register(
    "model",
    "multihead",
    fill=_fill_multihead,
    follows="sampled",
    activation="softmax",
    weights=lambda values, dim, outputs: 4 * values["heads"] * (dim + outputs) ** 2,
)
def multihead(
    task: Any,
    key: Any,
    *,
    heads: Annotated[int | None, _heads("softmax heads; by default one for each input dimension")] = None,
    scheme: Annotated[
        Literal["plain", "uniform", "identity", "identity-qk", "opposite"],
        Field(
            "initialization scheme: plain, Gaussian weights whose standard deviation is the scale; uniform, the scale "
            "times the default of PyTorch's linear layers, ±1/√fan_in; identity, queries, keys and values are the "
            "scale times the identity; identity-qk, queries and keys; opposite, as that, and half of the queries have "
            "the other sign; what is left is that default"
        ),
    ] = "plain",
    scale: Scale = 0.01,
) -> Any:
    """Multi-head softmax attention with whole query, key, value and output matrices."""
    from stepwell.models import MultiHeadAttention

    return _drawn(MultiHeadAttention, task, key, heads, scheme=scheme, scale=scale)


Units = Annotated[int, Field("units of the network", symbol="H", least=1, most=10**6, slider=(1, 50))]
Patches = Annotated[
    int | None,
    Field(
        "patches that the input is cut into, which units share; by default as the task has",
        least=1,
        most=10**6,
        slider=(1, 4),
    ),
]


def _fill_units(values: Values, sections: Mapping[str, Any]) -> Values:
    task, made = sections["task"], dict(values)
    if not supervised(sections):
        raise InvalidInput(
            f"networks of units read an input, and the task {task.kind} gives sequences; take a supervised task such "
            "as teacher, or mlp for a network on the features of a sequence"
        )
    if made["patches"] is None:
        made["patches"] = patches_of(sections)
    dim = dimension(sections)
    if dim is not None and dim % made["patches"]:
        raise InvalidInput(f"patches is {made['patches']}; it must divide the dimension of an input, {dim}")
    if made.get("degree", 1) is None:
        degree = task.get("degree", 1)
        made["degree"] = degree if isinstance(degree, int) else 1
    return made


def _unit_weights(values: Mapping[str, Any], dim: int, outputs: int) -> int:
    return values["units"] * (outputs * values["patches"] + dim // values["patches"])


@register(
    "model",
    "polynomial",
    fill=_fill_units,
    follows="features",
    theory="units",
    reads="inputs",
    weights=_unit_weights,
    divisors=_plain_divisors,
)
def polynomial(
    task: Any,
    key: Any,
    *,
    units: Units = 10,
    degree: Annotated[
        int | None,
        Field(
            "power that a unit takes: 1 linear, 2 quadratic; by default that of the teacher",
            least=1,
            most=8,
            slider=(1, 3),
        ),
    ] = None,
    patches: Patches = None,
    scale: Scale = 0.01,
) -> Any:
    """A network of units that are powers of a linear function of the input; with patches, convolutional."""
    from stepwell.models import PolynomialUnits

    sizes: Any = {"dim": task.dim, "outputs": task.outputs, "units": units, "degree": degree, "patches": patches}
    return PolynomialUnits.random(**sizes, scale=scale, key=key)


@register(
    "model",
    "nonlinear",
    fill=_fill_units,
    follows="examples",
    theory="units",
    reads="inputs",
    weights=_unit_weights,
    divisors=_plain_divisors,
)
def nonlinear(
    task: Any,
    key: Any,
    *,
    units: Units = 10,
    nonlinearity: Annotated[
        Literal["relu", "tanh", "x-tanh"], Field("of a unit: max(s, 0), tanh s or s tanh s")
    ] = "relu",
    patches: Patches = None,
    scale: Scale = 0.01,
) -> Any:
    """A network of units with a nonlinearity; with patches, convolutional."""
    from stepwell.models import ActivationUnits

    sizes: Any = {"dim": task.dim, "outputs": task.outputs, "units": units, "patches": patches}
    return ActivationUnits.random(**sizes, nonlinearity=nonlinearity, scale=scale, key=key)
