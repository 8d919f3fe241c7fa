"""What is kept of a run, and when."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from stepwell._util.errors import InvalidInput

from .._field import Field
from .._kind import Values, note_of, register

FLOW_POINTS = 401
"""Recorded points of a flow, by default."""
SNAPSHOTS = 101
"""Snapshots of the weights of a descent, by default."""
Measure = Literal["allocation", "drops", "map", "predicted", "regime"]


def _fill(values: Values, sections: Mapping[str, Any]) -> Values:
    made, training = dict(values), sections["training"]
    flowing = training.kind == "flow"
    steps = training.get("steps")
    if made["spacing"] is None:
        made["spacing"] = "steps" if flowing else "linear"
    if made["spacing"] == "steps" and not flowing:
        raise InvalidInput("spacing is steps, those of the solver of a flow; descent records linear or log")
    if made["points"] is None:
        made["points"] = FLOW_POINTS if steps is None else steps + 1
    if steps is not None:
        made["points"] = min(made["points"], steps + 1)
    if made["points"] == 2 and made["spacing"] == "log":
        made["spacing"] = "linear"  # the first and the last, in either case
    if made["snapshots"] is None:
        made["snapshots"] = made["points"] if flowing else min(SNAPSHOTS, made["points"])
    elif steps is not None:
        made["snapshots"] = min(made["snapshots"], made["points"])
    if made["snapshots"] > made["points"]:
        raise InvalidInput(f"snapshots is {made['snapshots']}, and there are {made['points']} points; give no more")
    made["measure"] = tuple(sorted(set(made["measure"])))
    _check_sample(made, sections)
    if made["test_sequences"]:
        _check_tests(made, sections)
    model = sections["model"].kind
    if made["value_weights"] and note_of(model, "theory") not in ("separate", "merged"):
        raise InvalidInput(f"value_weights are those of separate and merged attention, not of {model}")
    return made


def _check_sample(made: Values, sections: Mapping[str, Any]) -> None:
    """Refuse what is of finite samples where there is none; test sets are one, and are centered, too."""
    task, objective = sections["task"], sections["objective"].kind
    if task.kind not in ("regression", "mixture") or objective not in ("population", "online"):
        return
    for name in ("centered", "whitened"):
        if task.get(name) and not (name == "centered" and made["test_sequences"]):
            raise InvalidInput(
                f"{name} is of a finite sample, and has no effect on the objective {objective}; leave it out, or take "
                "the objective moments or sampled"
            )


def _check_tests(made: Values, sections: Mapping[str, Any]) -> None:
    task = sections["task"]
    if task.kind not in ("regression", "mixture"):
        raise InvalidInput(f"test_sequences are for the tasks regression and mixture, not for {task.kind}")
    if task.get("noise") or task.get("task_eigenvalues") is not None:
        raise InvalidInput(
            "test_sequences are for tasks without noise and task_eigenvalues; leave out one or the other"
        )
    if task.get("centered") and made["test_sequences"] <= len(task["eigenvalues"]):
        dim = len(task["eigenvalues"])
        raise InvalidInput(
            f"test_sequences is {made['test_sequences']}; to whiten task vectors of dimension {dim} it must be at "
            f"least {dim + 1}"
        )


@register("record", "record", fill=_fill)
def record(
    *,
    points: Annotated[
        int | None,
        Field(
            f"at how many times the loss is kept, the first and the last among them; by default every step of a "
            f"descent, and {FLOW_POINTS} of a flow",
            least=2,
            most=10**9 + 1,
        ),
    ] = None,
    spacing: Annotated[
        Literal["linear", "log", "steps"] | None,
        Field("of these times: linear, log, or dense where the solver of a flow takes small steps (steps)"),
    ] = None,
    snapshots: Annotated[
        int | None,
        Field(
            f"at how many of the points all weights are kept; by default {SNAPSHOTS} of a descent, and all of a flow",
            least=2,
            most=10**9 + 1,
        ),
    ] = None,
    measure: Annotated[
        tuple[Measure, ...],
        Field(
            "numbers measured of each run: drops (when the loss drops), predicted (the same from the initial weights), "
            "regime, map (of each component), allocation (of heads to regressions)"
        ),
    ] = (),
    test_sequences: Annotated[
        int, Field("sequences in each of two test sets, in-weight and in-context", least=0, most=10**9)
    ] = 0,
    value_weights: Annotated[bool, Field("whether the value weight of each head is kept at every point")] = False,
) -> Any:
    """What is kept of a run, and when."""
    return None
