"""Which programs are compiled: values are traced, so that one program serves every state of the same shapes."""

import gc
import threading
from typing import Any

from stepwell._util.memory import free_programs, free_programs_if_many

from ._state import State
from ._view import view

_WARM: set[tuple[Any, ...]] = set()
_LOCK = threading.Lock()
MOST_SHAPES = 200
"""Shapes whose programs are kept: those of one take some 8 MB."""
_TRACED = ("task.context", "training.steps", "record.points", "record.snapshots", "seed", "numerics")
"""Integers that a program on a loss in closed form is not compiled for."""
_NEAR = ("model.heads", "model.rank", "task.dim", "training.kind", "model.kind")
"""What is tried next, most likely first."""


def shapes_of(state: State) -> tuple[Any, ...]:
    """What the programs of a state are compiled for: kinds, words and integers, and how many values there are."""
    if state.experiment is None:
        return ()
    shapes: list[Any] = []
    for name, value in state.experiment.canonical().items():
        if isinstance(value, list):
            shapes.append((name, len(value)))
        elif not isinstance(value, float) and (state.long and name != "seed" or name not in _TRACED):
            shapes.append((name, value))
    return tuple(shapes)


def is_warm(state: State) -> bool:
    """Whether the programs of a state are compiled, so that its view takes no longer than its run."""
    return state.mode == "stored" or shapes_of(state) in _WARM


def mark_warm(state: State) -> None:
    """A view of the state was computed. Where there are too many programs, all are given up, and compiled anew.

    Programs are no garbage: looking through them for some would hold up all pages for a tenth of a second or two.
    """
    with _LOCK:
        shapes = shapes_of(state)
        if shapes in _WARM:
            return
        if len(_WARM) >= MOST_SHAPES:
            free_programs()
            _WARM.clear()
        elif free_programs_if_many():
            _WARM.clear()
        _WARM.add(shapes)
        gc.collect()
        gc.freeze()


def warm(state: State) -> None:
    """Compile the programs of a state, by computing its view."""
    if not is_warm(state):
        view(state)
        mark_warm(state)


def neighbors(state: State) -> list[State]:
    """States of other shapes that one move of a control leads to, and whose programs are not compiled yet.

    Those that take longer than a moment are left out, compiled or not.
    """
    if state.mode == "stored":
        return []
    values, known, near = state.values(), state.kinds(), []
    for name in _NEAR:
        if name not in values:
            continue
        if name.endswith(".kind"):
            others = [kind for kind in known[name.partition(".")[0]] if kind != values[name]]
        else:
            others = [str(int(values[name]) + 1), str(int(values[name]) - 1)] if values[name] else []
        for other in others:
            made, problems = State.read({**state.words, name: other}, first=name)
            if not problems and not made.long and not is_warm(made) and made not in near:
                near.append(made)
    return near
