"""Kinds of objectives: how the loss is computed."""

from collections.abc import Mapping
from typing import Annotated, Any

from stepwell._util.errors import InvalidInput

from .._field import Field
from .._kind import Values, find_kind, note_of, register
from ._models import dimension, supervised

Sequences = Annotated[int, Field("training sequences", symbol="P", least=1, most=10**9, slider=(32, 4000), log=True)]


def _refuse_supervised(name: str, sections: Mapping[str, Any]) -> None:
    if supervised(sections):
        raise InvalidInput(
            f"the objective {name} is over sequences, and the task {sections['task'].kind} gives inputs without a "
            "context; take features or examples"
        )


def _fill_linear(name: str, instead: str) -> Any:
    """The check of objectives that are for linear attention on one regression."""

    def fill(values: Values, sections: Mapping[str, Any]) -> Values:
        _refuse_supervised(name, sections)
        task, model = sections["task"], sections["model"]
        if model.get("activation", note_of(model.kind, "activation", "linear")) != "linear":
            raise InvalidInput(f"the objective {name} is for linear attention; with softmax attention take sampled")
        if task.kind == "multitask":
            raise InvalidInput(f"the objective {name} is for one regression; with multitask take spectral or sampled")
        kind = find_kind("task", task.kind)
        if task.kind == "overlapping" and name == "population":
            raise InvalidInput("the objective population is for one regression; with overlapping take moments")
        if name == "population" and kind.is_own and not kind.notes.get("closed_form"):
            raise InvalidInput(f"the objective population has no closed form for the task {task.kind}; take {instead}")
        return values

    return fill


@register("objective", "population", fill=_fill_linear("population", "moments"), follows="flow", rotates=True)
def population(task: Any, normalization: str) -> Any:
    """The loss over infinitely many sequences, in closed form."""
    from stepwell.objectives import Population

    return Population(task, normalization)  # pyright: ignore[reportArgumentType]


def _check_whitening(values: Values, sections: Mapping[str, Any]) -> Values:
    dim = dimension(sections)
    if sections["task"].get("whitened") is True and dim is not None and values["sequences"] <= dim:
        raise InvalidInput(
            f"sequences is {values['sequences']}; to whiten task vectors of dimension {dim} it must be at least "
            f"{dim + 1}"
        )
    return values


def _fill_moments(values: Values, sections: Mapping[str, Any]) -> Values:
    return _check_whitening(_fill_linear("moments", "sampled")(values, sections), sections)


@register("objective", "moments", fill=_fill_moments, follows="descent", holds="moments")
def moments(task: Any, model: Any, normalization: str, key: Any, *, sequences: Sequences = 5000) -> Any:
    """The loss over random sequences, exactly, from their moments; for linear attention."""
    from stepwell.models import form_of
    from stepwell.objectives import Moments

    options: Any = {"features": "cubic" if form_of(model) == "cubic" else "full", "normalization": normalization}
    return Moments.of_task(task, sequences, **options, progress=False, key=key)


def _fill_sampled(values: Values, sections: Mapping[str, Any]) -> Values:
    _refuse_supervised("sampled", sections)
    model = sections["model"].kind
    if note_of(model, "reads") == "spectra":
        raise InvalidInput(f"the objective sampled is for models that read tokens; with {model} take reduced")
    return _check_whitening(values, sections)


@register("objective", "sampled", fill=_fill_sampled, follows="descent")
def sampled(task: Any, model: Any, normalization: str, key: Any, *, sequences: Sequences = 5000) -> Any:
    """The loss over random sequences, through every token of each; for any model."""
    from stepwell.models import form_of
    from stepwell.objectives import Sampled

    batch = task.sample(sequences, key=key)
    return Sampled(batch.cubic_features(normalization) if form_of(model) == "cubic" else batch)


def _fill_online(values: Values, sections: Mapping[str, Any]) -> Values:
    _refuse_supervised("online", sections)
    model = sections["model"].kind
    if note_of(model, "reads", "tokens") != "tokens":
        raise InvalidInput(f"the objective online is for models that read tokens, and not for {model}")
    return values


@register("objective", "online", fill=_fill_online, follows="descent")
def online(
    task: Any,
    key: Any,
    *,
    batch_size: Annotated[
        int, Field("sequences of a step", symbol="B", least=1, most=10**7, slider=(1, 1000), log=True)
    ] = 64,
) -> Any:
    """The loss over sequences that are new at every step."""
    from .._training import Online

    return Online(task, batch_size, key)


def _fill_multitask(name: str) -> Any:
    def fill(values: Values, sections: Mapping[str, Any]) -> Values:
        _refuse_supervised(name, sections)
        model = sections["model"].kind
        if find_kind("model", model).is_own and note_of(model, "reads") != "spectra":
            raise InvalidInput(f"the objective {name} is for the model spectral; with {model} take sampled")
        if sections["task"].get("target_noise") and sections["task"]["noise"] > 0:
            raise InvalidInput(
                f"the objective {name} is the loss of a target without noise; leave out target_noise, and add the "
                "noise to the loss of each output, or take the model multihead and the objective sampled"
            )
        return values

    return fill


@register("objective", "spectral", fill=_fill_multitask("spectral"), follows="flow")
def spectral(task: Any) -> Any:
    """The loss of softmax attention on several regressions in closed form, to leading order in d and L."""
    from stepwell.objectives import Spectral

    return Spectral(task)


@register("objective", "reduced", fill=_fill_multitask("reduced"), follows="descent")
def reduced(
    task: Any,
    key: Any,
    *,
    sequences: Annotated[
        int, Field("training sequences", symbol="P", least=32, most=10**9, slider=(32, 4000), log=True)
    ] = 5000,
) -> Any:
    """The loss of spectral attention over random sequences, reduced to what it reads of them."""
    from stepwell.objectives import ReducedSampled

    return ReducedSampled(task, sequences, key=key)


def _fill_exact(values: Values, sections: Mapping[str, Any]) -> Values:
    made = _fill_multitask("exact")(values, sections)
    heads, dims = sections["model"].get("heads", 1), sections["task"].get("dims", ())
    if heads != 1 and len(dims) != 1:
        raise InvalidInput(
            f"the objective exact is for one head, or for several heads of one regression, and there are {heads} heads "
            "and several regressions; give heads 1, or take reduced"
        )
    return made


@register("objective", "exact", fill=_fill_exact, follows="descent")
def exact(
    task: Any, *, reach: Annotated[float, Field("largest sharpness a² that is tabled", least=10.0, most=240.0)] = 60.0
) -> Any:
    """The loss of spectral attention at finite d and L: of one head that serves all regressions, or several of one."""
    from stepwell.objectives import Exact

    return Exact(task, reach=reach)


_DRAWN = 1000
"""Examples that are drawn of a task that has infinitely many."""


def _check_supervised(name: str, values: Values, sections: Mapping[str, Any]) -> None:
    task = sections["task"].kind
    if not supervised(sections):
        raise InvalidInput(
            f"the objective {name} is for supervised tasks, and {task} gives sequences; take sampled or moments"
        )
    if supervised(sections) == "data" and values["examples"] is not None:
        raise InvalidInput(f"the task {task} is a data set, which is trained on as a whole; leave out examples")


def _fill_features(values: Values, sections: Mapping[str, Any]) -> Values:
    _check_supervised("features", values, sections)
    model = sections["model"].kind
    if find_kind("model", model).is_own and "degree" not in find_kind("model", model).fields:
        raise InvalidInput(f"the objective features is for networks that are polynomial; with {model} take examples")
    return values


@register("objective", "features", fill=_fill_features, follows="flow")
def features(
    task: Any,
    model: Any,
    key: Any,
    *,
    examples: Annotated[
        int | None,
        Field(
            "random examples; by default all there are, infinitely many in closed form", symbol="P", least=1, most=10**9
        ),
    ] = None,
) -> Any:
    """The loss of a polynomial network, summed over outputs, from moments of labels and features of the input."""
    from stepwell.objectives import FeatureMoments
    from stepwell.tasks import SupervisedMoments

    of: Any = {"degree": model.degree, "patches": model.patches}
    if examples is None:
        return FeatureMoments(task.moments(**of))
    return FeatureMoments(SupervisedMoments.of_examples(task.examples(examples, key=key), **of))


def _fill_examples(values: Values, sections: Mapping[str, Any]) -> Values:
    _check_supervised("examples", values, sections)
    drawn = values["examples"] is None and supervised(sections) == "drawn"
    return {**values, "examples": _DRAWN} if drawn else values


@register("objective", "examples", fill=_fill_examples, follows="descent")
def examples(
    task: Any,
    key: Any,
    *,
    examples: Annotated[
        int | None,
        Field(
            "random examples; by default 1000, or all of a data set",
            symbol="P",
            least=1,
            most=10**9,
            slider=(10, 4000),
            log=True,
        ),
    ] = None,
) -> Any:
    """The loss over examples of a supervised task, summed over outputs, through the model; for any model."""
    from stepwell.objectives import Sampled

    return Sampled(task.examples(examples, key=key), "sum")
