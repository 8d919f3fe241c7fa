"""Kinds of models: attention in its several structures, and the networks it is equal to."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from stepwell._util.errors import InvalidInput

from .._field import Field
from .._kind import Values, register

Heads = Annotated[
    int | None,
    Field("attention heads; by default one for each eigenvalue", symbol="H", least=1, most=10**6, slider=(1, 8)),
]
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
    eigenvalues, dims, dim = (sections["task"].get(name) for name in ("eigenvalues", "dims", "dim"))
    if isinstance(eigenvalues, tuple):
        return len(eigenvalues)
    if isinstance(dims, tuple) and all(isinstance(one, int) for one in dims):
        return sum(dims)
    return dim if isinstance(dim, int) else None  # a user's task may call something else so


def _fill_heads(made: Values, sections: Mapping[str, Any]) -> Values:
    if made["heads"] is None:
        made["heads"] = dimension(sections) or 1
    return made


def _fill_attention(values: Values, sections: Mapping[str, Any]) -> Values:
    made = _fill_heads(dict(values), sections)
    if made["normalization"] is None:
        made["normalization"] = "1/N" if made["activation"] == "linear" else "none"
    return made


def _fill_separate(values: Values, sections: Mapping[str, Any]) -> Values:
    made = _fill_attention(values, sections)
    dim = dimension(sections)
    if made["balanced"] and dim is not None and made["rank"] > dim:
        raise InvalidInput(f"balanced needs a rank of at most the dimension, {dim}; the rank is {made['rank']}")
    return made


def _attention_objective(values: Values, sections: Mapping[str, Any]) -> str:
    if values["activation"] != "linear":
        return "sampled"
    return "population" if sections["task"].kind == "regression" else "moments"


def _separate_weights(values: Mapping[str, Any], dim: int, outputs: int) -> int:
    width = dim + outputs
    return values["heads"] * (outputs * width + 2 * values["rank"] * width)


def _separate_divisors(values: Mapping[str, Any], dim: int, outputs: int) -> tuple[float, ...]:
    """As the scheme says, of value, key and query."""
    heads, rank, width = values["heads"], values["rank"], dim + outputs
    if values["scheme"] == "plain":
        return 1.0, 1.0, 1.0
    if values["scheme"] == "per-head":
        return 1.0, (rank * width) ** 0.5, (rank * width) ** 0.5
    thin = (heads * rank * width) ** 0.5
    return (heads * width * width) ** 0.5, thin, thin


def _plain_divisors(values: Mapping[str, Any], dim: int, outputs: int) -> tuple[float, ...]:
    """Of two arrays, whose standard deviation is the scale."""
    return 1.0, 1.0


@register(
    "model",
    "separate",
    fill=_fill_separate,
    follows=_attention_objective,
    factors=3,
    theory="separate",
    weights=_separate_weights,
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
    balanced: Annotated[bool, Field("whether weights are rescaled so that what the flow conserves is zero")] = False,
) -> Any:
    """Attention with separate key and query matrices of rank R in each head."""
    import warnings

    from stepwell.models import SeparateAttention

    with warnings.catch_warnings(action="ignore"):  # of a rank above the dimension, of which `remarks` tells
        made = SeparateAttention.random(
            dim=task.dim,
            heads=int(heads or 1),
            rank=rank,
            scale=scale,
            outputs=task.outputs,
            init=scheme,
            activation=activation,
            normalization=normalization,
            key=key,
        )
    return made.balanced() if balanced else made


def _merged_weights(values: Mapping[str, Any], dim: int, outputs: int) -> int:
    return values["heads"] * (outputs + dim) * (dim + outputs)


@register(
    "model",
    "merged",
    fill=_fill_attention,
    follows=_attention_objective,
    factors=2,
    theory="merged",
    weights=_merged_weights,
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
    balanced: Annotated[bool, Field("whether weights are rescaled so that what the flow conserves is zero")] = False,
) -> Any:
    """Attention with one matrix for key and query together in each head."""
    from stepwell.models import MergedAttention

    made = MergedAttention.random(
        dim=task.dim,
        heads=int(heads or 1),
        scale=scale,
        outputs=task.outputs,
        activation=activation,
        normalization=normalization,
        key=key,
    )
    return made.balanced() if balanced else made


def _fill_mlp(values: Values, sections: Mapping[str, Any]) -> Values:
    made = _fill_heads(dict(values), sections)
    return made | {"normalization": made["normalization"] or "1/N"}


def _mlp_objective(values: Values, sections: Mapping[str, Any]) -> str:
    return "population" if sections["task"].kind == "regression" else "moments"


def _mlp_weights(values: Mapping[str, Any], dim: int, outputs: int) -> int:
    return values["heads"] * (dim * dim * outputs + outputs)


@register(
    "model",
    "mlp",
    fill=_fill_mlp,
    follows=_mlp_objective,
    factors=2,
    theory="merged",
    reads="cubic",
    weights=_mlp_weights,
    divisors=_plain_divisors,
)
def mlp(task: Any, key: Any, *, heads: Heads = None, normalization: Normalization = None, scale: Scale = 0.01) -> Any:
    """The two-layer network on cubic features that merged attention is equal to; heads are its hidden units."""
    from stepwell.models import CubicMLP

    return CubicMLP.random(dim=task.dim, heads=int(heads or 1), scale=scale, outputs=task.outputs, key=key)


def _fill_spectral(values: Values, sections: Mapping[str, Any]) -> Values:
    made, task = dict(values), sections["task"]
    if task.kind != "multitask":
        raise InvalidInput(
            f"the model kind spectral is for the task multitask, and the task is {task.kind}; take separate or merged"
        )
    if made["heads"] is None:
        made["heads"] = len(task["dims"])
    return made


def _spectral_weights(values: Mapping[str, Any], dim: int, outputs: int) -> int:
    return 4 * values["heads"] * outputs


@register(
    "model",
    "spectral",
    fill=_fill_spectral,
    follows="spectral",
    activation="softmax",
    reads="spectra",
    weights=_spectral_weights,
)
def spectral(
    task: Any,
    key: Any,
    *,
    heads: Annotated[
        int | None,
        Field("softmax heads; by default one for each regression", symbol="H", least=1, most=10**6, slider=(1, 8)),
    ] = None,
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


def _multihead_weights(values: Mapping[str, Any], dim: int, outputs: int) -> int:
    return values["heads"] * 4 * (dim + outputs) ** 2


@register("model", "multihead", fill=_fill_heads, follows="sampled", activation="softmax", weights=_multihead_weights)
def multihead(
    task: Any,
    key: Any,
    *,
    heads: Annotated[
        int | None,
        Field("softmax heads; by default one for each input dimension", symbol="H", least=1, most=10**6, slider=(1, 8)),
    ] = None,
    scale: Scale = 0.01,
) -> Any:
    """Multi-head softmax attention with whole query, key, value and output matrices."""
    from stepwell.models import MultiHeadAttention

    return MultiHeadAttention.random(dim=task.dim, outputs=task.outputs, heads=int(heads or 1), scale=scale, key=key)
