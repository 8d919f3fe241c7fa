"""Kinds of tasks: regression in context, mixed with one in weights, or several at once; and tasks without context."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from stepwell._util.errors import InvalidInput

from .._field import Field
from .._kind import Values, register

LARGEST = 1e50
"""The largest eigenvalue or variance allowed, and one over the least: their fifth powers are still numbers."""
_MOST_DIM = 10**6
_BY_NAME = ("published", "white", "power", "spiked")

Spectrum = Annotated[
    Literal["published", "white", "power", "spiked", "custom"] | None,
    Field(
        "eigenvalues of the input covariance by name, of sum 1: published, in proportion D, …, 2, 1; white, all equal; "
        "power, λ_d ∝ d^-exponent; spiked, the first few are larger; custom, as listed by eigenvalues"
    ),
]
Dim = Annotated[
    int | None,
    Field("dimension of an input", symbol="D", least=1, most=_MOST_DIM, slider=(1, 8), when={"spectrum": _BY_NAME}),
]
Exponent = Annotated[
    float, Field("exponent of the power law", least=0.0, most=8.0, slider=(0.0, 4.0), when={"spectrum": ("power",)})
]
Ratio = Annotated[
    float,
    Field(
        "how many times as large the first eigenvalues are as the others",
        least=1.0,
        most=1e12,
        slider=(1.0, 100.0),
        log=True,
        when={"spectrum": ("spiked",)},
    ),
]
Spikes = Annotated[int, Field("number of large eigenvalues", least=1, slider=(1, 7), when={"spectrum": ("spiked",)})]
Eigenvalues = Annotated[
    tuple[float, ...] | None,
    Field(
        "eigenvalues of the input covariance",
        symbol="λ",
        least=1 / LARGEST,
        most=LARGEST,
        slider=(0.01, 2.0),
        when={"spectrum": ("custom",)},
    ),
]
TaskEigenvalues = Annotated[
    tuple[float, ...] | None,
    Field(
        "eigenvalues of the covariance of the task vectors, in the order of those of the inputs; by default all 1",
        symbol="ω",
        least=0.0,
        most=LARGEST,
        slider=(0.0, 4.0),
    ),
]
Directions = Annotated[
    Literal["random", "axes"] | None,
    Field("eigenvectors of the covariances: drawn from the seed, or the axes; by default random unless all are equal"),
]
Context = Annotated[
    int | tuple[int, ...],
    Field(
        "context pairs before the query; several values: a uniform mixture of lengths",
        symbol="N",
        least=1,
        most=10**9,
        slider=(1, 1000),
        log=True,
    ),
]
_NOISE = "variance of the label noise; the target of the query has none, unless target_noise is true"
Noise = Annotated[float, Field(_NOISE, symbol="σ²", least=0.0, most=LARGEST, slider=(0.0, 2.0), free=True)]
TargetNoise = Annotated[
    bool, Field("whether the target has the noise of a label, too, which adds the variance σ² to every loss")
]
Outputs = Annotated[int, Field("labels of a token, with independent task vectors", least=1, most=10**6)]
Centered = Annotated[
    bool, Field("whether inputs of a finite sample have mean zero exactly, as in the published script")
]
Whitened = Annotated[
    bool, Field("whether task vectors of a finite sample are white exactly, as in the published script")
]

_NAMING = ("spectrum", "dim", "exponent", "ratio", "spikes")
_OF_A_SPECTRUM: dict[str, Any] = {
    "fill": lambda values, sections: _fill_spectrum(values),
    "canonical": lambda values, sections: _canonical_spectrum(values),
    "follows": "separate",
    "replaces": {"eigenvalues": _NAMING, "spectrum": ("eigenvalues", "exponent", "ratio", "spikes")},
}
"""What tasks with a spectrum are registered with."""


def eigenvalues_by_name(
    spectrum: str, dim: int, exponent: float = 1.0, ratio: float = 4.0, spikes: int = 1
) -> tuple[float, ...]:
    r"""Eigenvalues of sum 1 by name, falling.

    white: $1/D$; power: $\lambda_d \propto d^{-a}$; spiked: the first k are r times the others; published:
    $\lambda_d \propto D + 1 - d$. D is `dim`, a the `exponent`, r the `ratio`, k the `spikes`.
    """
    if spectrum == "spiked" and spikes >= dim:
        raise InvalidInput(f"spikes is {spikes}; in dimension {dim} it must be below {dim}")
    values = {
        "white": [1.0] * dim,
        "published": [float(dim - d) for d in range(dim)],
        "power": [(d + 1.0) ** -exponent for d in range(dim)],
        "spiked": [ratio] * spikes + [1.0] * (dim - spikes),
    }[spectrum]
    total = sum(values)
    return tuple(value / total for value in values)


def _fill_spectrum(values: Values) -> Values:
    """The spectrum, whichever way it was said, as eigenvalues."""
    made = dict(values)
    if made["spectrum"] is None:
        made["spectrum"] = "published" if made["eigenvalues"] is None else "custom"
    if made["spectrum"] == "custom":
        if made["eigenvalues"] is None:
            raise InvalidInput("spectrum is custom; give the eigenvalues, for instance 0.4 0.3 0.2 0.1")
    elif made["eigenvalues"] is None:
        if made["dim"] is None:
            made["dim"] = 4 if made["spectrum"] != "spiked" else max(4, made["spikes"] + 1)
        made["eigenvalues"] = eigenvalues_by_name(**{name: made[name] for name in _NAMING})
    omega = made.get("task_eigenvalues")
    if omega is not None:
        if len(omega) != len(made["eigenvalues"]):
            raise InvalidInput(
                f"there are {len(made['eigenvalues'])} eigenvalues and {len(omega)} task_eigenvalues; give the same "
                "number of both"
            )
        if not any(omega):
            raise InvalidInput("task_eigenvalues are all 0, so there is nothing to learn; give one above 0")
    context = made["context"]
    if isinstance(context, tuple):
        if len(set(context)) < len(context):
            raise InvalidInput(f"context is {list(context)}, with one length twice; give each length once")
        made["context"] = context[0] if len(context) == 1 else tuple(sorted(context))
    if made["directions"] is None:
        equal = len(set(made["eigenvalues"])) == 1 and (omega is None or len(set(omega)) == 1)
        made["directions"] = "axes" if equal else "random"
    return made


def _canonical_noise(values: Values) -> Values:
    """A noisy target is named where there is one, so that other runs have the names that they had before."""
    noisy = values.get("target_noise") and values["noise"] > 0
    return values if noisy else {name: value for name, value in values.items() if name != "target_noise"}


def _canonical_spectrum(values: Values) -> Values:
    """Eigenvalues stand for all ways to name them."""
    made = {name: value for name, value in _canonical_noise(values).items() if name not in _NAMING}
    omega = made.get("task_eigenvalues")
    if omega is not None and all(value == 1.0 for value in omega):
        made["task_eigenvalues"] = None
    return made


def _covariances(key: Any, eigenvalues: Any, task_eigenvalues: Any, directions: str) -> tuple[Any, Any]:
    """Of inputs, and of task vectors (None is the identity), with the same eigenvectors."""
    import numpy as np

    from stepwell.tasks import covariance, random_rotation

    dim = len(eigenvalues)
    vectors = np.eye(dim) if directions == "axes" else random_rotation(dim, key=key)
    return covariance(eigenvalues, vectors), None if task_eigenvalues is None else covariance(task_eigenvalues, vectors)


@register("task", "regression", **_OF_A_SPECTRUM, closed_form=True, rotates="directions")
def regression(
    key: Any,
    *,
    spectrum: Spectrum = None,
    dim: Dim = None,
    exponent: Exponent = 1.0,
    ratio: Ratio = 4.0,
    spikes: Spikes = 1,
    eigenvalues: Eigenvalues = None,
    task_eigenvalues: TaskEigenvalues = None,
    directions: Directions = None,
    context: Context = 31,
    noise: Noise = 0.0,
    target_noise: TargetNoise = False,
    outputs: Outputs = 1,
    centered: Centered = False,
    whitened: Whitened = False,
) -> Any:
    """In-context linear regression: a task vector that is new in every sequence."""
    from stepwell.tasks import ContextLengths, InContextRegression

    inputs, tasks = _covariances(key, eigenvalues, task_eigenvalues, str(directions))
    options: Any = {"outputs": outputs, "centered": centered, "whitened": whitened, "target_noise": target_noise}
    return InContextRegression(inputs, ContextLengths(context), task_covariance=tasks, noise_variance=noise, **options)


@register("task", "mixture", **_OF_A_SPECTRUM)
def mixture(
    keys: Any,
    *,
    spectrum: Spectrum = None,
    dim: Dim = None,
    exponent: Exponent = 1.0,
    ratio: Ratio = 4.0,
    spikes: Spikes = 1,
    eigenvalues: Eigenvalues = None,
    directions: Directions = None,
    context: Context = 31,
    in_context: Annotated[
        float, Field("fraction of sequences with a task vector of their own", least=0.0, most=1.0)
    ] = 0.5,
    outputs: Outputs = 1,
    centered: Centered = False,
) -> Any:
    """In-context and in-weight learning: in a fraction of the sequences the task vector is new, in the rest fixed."""
    from stepwell.tasks import ContextLengths, InContextInWeightMixture

    inputs, _ = _covariances(keys.task, eigenvalues, None, str(directions))
    return InContextInWeightMixture.random(
        inputs, in_context, ContextLengths(context), outputs=outputs, centered=centered, key=keys.fixed_task
    )


Strengths = Annotated[
    tuple[float, ...],
    Field(
        "variance of a coordinate of the task vectors, one for all regressions or one for each",
        symbol="λ",
        least=1 / LARGEST,
        most=LARGEST,
        slider=(0.01, 10.0),
        log=True,
    ),
]
Pairs = Annotated[
    int, Field("context pairs before the query", symbol="L", least=1, most=10**9, slider=(5, 500), log=True)
]
SeveralNoise = Annotated[float, Field(_NOISE, symbol="σ²", least=0.0, most=LARGEST, slider=(0.0, 5.0), free=True)]


def _fill_multitask(values: Values, sections: Mapping[str, Any]) -> Values:
    made = dict(values)
    tasks, strengths = len(made["dims"]), made["strengths"]
    if len(strengths) not in (1, tasks):
        raise InvalidInput(
            f"there are {tasks} dims and {len(strengths)} strengths; give one for all tasks, or one for each"
        )
    made["strengths"] = strengths * tasks if len(strengths) == 1 else strengths
    return made


@register(
    "task",
    "multitask",
    fill=_fill_multitask,
    canonical=lambda values, sections: _canonical_noise(values),
    follows="spectral",
)
def multitask(
    *,
    dims: Annotated[
        tuple[int, ...], Field("dimension of each regression", symbol="d", least=1, most=10**4, slider=(1, 60))
    ] = (10, 10, 10),
    strengths: Strengths = (1.0,),
    context: Pairs = 100,
    noise: SeveralNoise = 0.0,
    target_noise: TargetNoise = False,
) -> Any:
    """Several linear regressions at once, each on a block of the input and answered in an output of its own."""
    import numpy as np

    from stepwell.tasks import MultiTaskRegression

    return MultiTaskRegression(dims, np.array(strengths), context, noise_variance=noise, target_noise=target_noise)


def _fill_overlapping(values: Values, sections: Mapping[str, Any]) -> Values:
    made = _fill_multitask(values, sections)
    sizes, first = made["dims"], made["first"]
    if first is None:
        first = made["first"] = tuple(1 + sum(sizes[:task]) for task in range(len(sizes)))
    if len(first) != len(sizes):
        raise InvalidInput(f"there are {len(sizes)} dims and {len(first)} of first; give one of both for a regression")
    last = max(one + size - 1 for one, size in zip(first, sizes, strict=True))
    if made["eigenvalues"] is None:
        made["eigenvalues"] = (1.0,) * last
    if len(made["eigenvalues"]) < last:
        raise InvalidInput(
            f"there are {len(made['eigenvalues'])} eigenvalues, and the regressions read inputs up to number {last}; "
            "give one for each input"
        )
    if made["directions"] is None:
        made["directions"] = "axes" if len(set(made["eigenvalues"])) == 1 else "random"
    return made


@register(
    "task",
    "overlapping",
    fill=_fill_overlapping,
    canonical=lambda values, sections: _canonical_noise(values),
    follows="multihead",
)
def overlapping(
    key: Any,
    *,
    dims: Annotated[
        tuple[int, ...], Field("how many inputs each regression reads", symbol="d", least=1, most=10**4, slider=(1, 60))
    ] = (4, 4),
    first: Annotated[
        tuple[int, ...] | None,
        Field(
            "the first input that each regression reads, counted from 1; by default the one after those of the "
            "regression before, so that none is shared",
            least=1,
            most=10**4,
            slider=(1, 60),
        ),
    ] = None,
    strengths: Strengths = (1.0,),
    eigenvalues: Annotated[
        tuple[float, ...] | None,
        Field(
            "eigenvalues of the input covariance; by default all 1",
            symbol="λ",
            least=1 / LARGEST,
            most=LARGEST,
            slider=(0.05, 2.0),
        ),
    ] = None,
    directions: Directions = None,
    context: Pairs = 48,
    noise: SeveralNoise = 0.0,
    target_noise: TargetNoise = False,
) -> Any:
    """Several linear regressions at once, on inputs that they may share and that may be correlated."""
    import numpy as np

    from stepwell.tasks import OverlappingRegression

    supports = [range(one - 1, one - 1 + size) for one, size in zip(first or (), dims, strict=True)]
    inputs, _ = _covariances(key, eigenvalues, None, str(directions))
    options: Any = {"noise_variance": noise, "target_noise": target_noise}
    return OverlappingRegression(supports, np.array(strengths), context, covariance=inputs, **options)


def _fill_teacher(values: Values, sections: Mapping[str, Any]) -> Values:
    made = dict(values)
    count, patches = len(made["strengths"]), made["patches"]
    if made["eigenvalues"] is None:
        made["eigenvalues"] = (1.0,) * count
    if count > len(made["eigenvalues"]) or 1 < patches < count:
        raise InvalidInput(
            f"there are {count} strengths, and {patches} patches of {len(made['eigenvalues'])} entries; give at most "
            "as many strengths as eigenvalues and, with several patches, as patches"
        )
    return made


@register("task", "teacher", fill=_fill_teacher, follows="polynomial", supervised="drawn")
def teacher(
    *,
    strengths: Annotated[
        tuple[float, ...],
        Field(
            "strength of each direction of the teacher", symbol="s", least=-LARGEST, most=LARGEST, slider=(0.05, 2.0)
        ),
    ] = (1.0, 0.5),
    eigenvalues: Annotated[
        tuple[float, ...] | None,
        Field(
            "variances of the entries of an input, or of each of its patches; by default one of 1 for each direction",
            symbol="λ",
            least=1 / LARGEST,
            most=LARGEST,
            slider=(0.05, 2.0),
        ),
    ] = None,
    degree: Annotated[int, Field("power that the teacher takes of a direction", least=1, most=3, slider=(1, 3))] = 1,
    patches: Annotated[
        int, Field("patches of an input; direction k is entry k of patch k", least=1, most=10**4, slider=(1, 4))
    ] = 1,
) -> Any:
    """Gaussian inputs, labeled by powers of single entries: an output for each if they are linear, else their sum."""
    from stepwell.tasks import GaussianTeacher

    separate = degree == 1 and patches == 1
    return GaussianTeacher(strengths, (eigenvalues or ()) * patches, degree=degree, patches=patches, separate=separate)


def _check_points(values: Values, sections: Mapping[str, Any]) -> Values:
    if len(values["labels"]) != len(values["norms"]):
        raise InvalidInput(
            f"there are {len(values['norms'])} norms and {len(values['labels'])} labels; give one of both for a point"
        )
    return values


@register("task", "points", fill=_check_points, follows="nonlinear", supervised="data")
def points(
    *,
    norms: Annotated[
        tuple[float, ...],
        Field("norm of each input", symbol="|x|", least=1 / LARGEST, most=LARGEST, slider=(0.1, 3.0)),
    ] = (2.0, 1.0),
    labels: Annotated[
        tuple[float, ...], Field("label of each input", symbol="y", least=-LARGEST, most=LARGEST, slider=(-2.0, 2.0))
    ] = (1.0, -1.0),
) -> Any:
    """A few inputs that are orthogonal to each other, with a label each: the whole data set."""
    import jax.numpy as jnp
    import numpy as np

    from stepwell.tasks import FeatureBatch, GivenExamples

    return GivenExamples(FeatureBatch(jnp.diag(np.array(norms)), jnp.array(labels)[:, None]))
