"""What the page shows of a state: flat arrays and short texts, ready to be sent."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stepwell._errors import InvalidInput

from ._cancelled import Cancelled as Cancelled
from ._state import State

if TYPE_CHECKING:
    from ._stored import Library

View = dict[str, Any]
"""Arrays, texts and lists of them by name; docs/explorer.md lists them."""
Report = Callable[[float, View], None]
"""Takes how far the work is, from 0 to 1, and what there is of the view."""
Stop = Callable[[], bool]
"""Says whether the work is to be given up."""


def view(
    state: State, *, report: Report | None = None, stop: Stop | None = None, library: "Library | None" = None
) -> View:
    """What the page shows of a state.

    **Arguments:**

    - `state`: what the controls are set to.
    - `report`: called now and then during longer work, with the part done and the view so far.
    - `stop`: asked now and then whether to give up.
    - `library`: where stored runs are; without one there are none.

    **Returns:** the view. Where nothing can be computed, it has `problems` by control (or "" for all of them) and no
    arrays. `Cancelled` is raised where `stop` says so.
    """
    # Imported here: controls and states need no JAX.
    from . import _linear, _softmax

    try:
        if state.mode == "stored":
            return {"mode": "stored", "problems": {}} if library is None else library.view(state)
        make = _linear.linear_view if state.mode == "linear" else _softmax.softmax_view
        return make(state, report or _ignore, stop or _never)
    except InvalidInput as error:
        return {"mode": state.mode, "problems": {"run" if state.mode == "stored" else "": str(error)}}


@functools.lru_cache(maxsize=8)
def kept_view(state: State) -> View:
    """The view of a state of which a file is made; `InvalidInput` is raised where there is none."""
    made = view(state)
    if "time" not in made:
        raise InvalidInput("; ".join(made["problems"].values()))
    return made


def _ignore(part: float, partial: View) -> None:
    pass


def _never() -> bool:
    return False
