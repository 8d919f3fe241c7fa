"""Which programs are compiled: values are traced, so that one program serves every state of the same shapes."""

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

from ._controls import controls
from ._state import State
from ._view import view

_WARM: set[tuple[Any, ...]] = set()
_LOCK = threading.Lock()
MOST_SHAPES = 200
"""Shapes whose programs are kept: those of one take some 8 MB."""
_SHAPES = {
    "linear": ("model", "dynamics", "dim", "heads", "rank"),
    "softmax": ("loss", "dynamics", "heads"),
    "stored": (),
}
"""Controls that a program is compiled for."""
_NEAR = {"linear": ("heads", "rank", "dim", "dynamics", "model"), "softmax": ("heads", "dynamics"), "stored": ()}
"""Of these, what is tried next, most likely first."""


def shapes_of(state: State) -> tuple[Any, ...]:
    """What the programs of a state are compiled for."""
    shapes: list[Any] = [state.mode, *(state[name] if state.shows(name) else None for name in _SHAPES[state.mode])]
    if state.mode == "softmax":
        shapes.append(len(state["dims"]))
    if state.on_sequences:
        shapes += [state["sequences"], state["context"]]
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
            import jax

            gc.unfreeze()
            jax.clear_caches()
            _WARM.clear()
        _WARM.add(shapes)
        gc.collect()
        gc.freeze()


def warm(state: State) -> None:
    """Compile the programs of a state, by computing its view."""
    if not is_warm(state):
        view(state)
        mark_warm(state)


def neighbours(state: State) -> list[State]:
    """States of other shapes that one move of a control leads to, and whose programs are not compiled yet.

    Those on sequences are left out: they take longer than a moment, compiled or not.
    """
    known, near = controls(state.mode), []
    for name in _NEAR[state.mode]:
        control, value = known[name], state[name]
        if control.kind == "choice":
            others = [choice for choice, _ in control.choices if choice != value]
        else:
            others = [value + 1, value - 1]
        for other in others:
            words = state.query() | {name: str(other)}
            made, problems = State.read(words)
            if not problems and not made.on_sequences and not is_warm(made) and made not in near:
                near.append(made)
    return near


@contextlib.contextmanager
def counted_compilations() -> Iterator[list[str]]:
    """A list that grows by the name of every program that JAX compiles in this context."""
    from jax import monitoring

    names: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(event)

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        monitoring.unregister_event_duration_listener(listen)
