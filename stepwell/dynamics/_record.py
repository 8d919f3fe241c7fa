"""What is kept of a training, and at which points."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Array

from stepwell._util import checks
from stepwell._util.arguments import check_fields
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory

Spacing = Literal["linear", "log", "steps"]
Observable = Callable[[Any], Array]

FLOW_POINTS = 401
"""Recorded points of a flow, by default."""
SNAPSHOTS = 101
"""Snapshots of the weights of a descent, by default."""
_FIRST_LOG_TIME = 1e-4
"""Log-spaced times begin at this fraction of the last."""


@dataclasses.dataclass(frozen=True)
class Record:
    """What `descend`, `online` and `flow` keep of a training, given to them as `record=`.

    **Arguments:**

    - `points`: at how many points losses and curves are recorded, the first and the last among them; or the steps or
      times themselves, rising (a descent adds its first step and its last). By default every step of a descent, and 401
      times of a flow.
    - `every`: record every so many steps of a descent, and the last; in place of `points`.
    - `spacing`: of the points, where they are a number: "linear", the default; "log": from step 1, or from 10⁻⁴ of the
      last time, and 0; or, of a flow, "steps": dense where the solver takes small steps, so that early and late drops
      are resolved alike.
    - `snapshots`: at how many of the points all weights are kept, evenly spread over them; or a list of steps or times,
      for each of which the next point is taken. The first and the last are always kept. By default 101 of a descent,
      and all of a flow.
    - `observe`: further curves by name: functions of the model (an objective on test data is one), which return a
      number or an array. By default none.

    **Example:**

    >>> sw.Record(every=250).steps(600).tolist()
    [0, 250, 500, 600]
    >>> sw.Record(points=4, spacing="log").steps(1000).tolist()
    [0, 1, 32, 1000]
    >>> sw.Record(points=5).times(2.0).tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """

    points: int | Sequence[float] | np.ndarray | None = None
    every: int | None = None
    spacing: Spacing | None = None
    snapshots: int | Sequence[float] | np.ndarray | None = None
    observe: dict[str, Observable] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("points", "snapshots"):
            value = getattr(self, name)
            if isinstance(value, int | np.integer):
                object.__setattr__(self, name, checks.whole(name, value, least=2))
            elif value is not None:
                object.__setattr__(self, name, _listed(name, value))
        if self.every is not None:
            checks.whole("every", self.every)
            if self.points is not None or self.spacing is not None:
                raise InvalidInput("every is given beside points or spacing; give either")
        if isinstance(self.points, tuple) and self.spacing is not None:
            raise InvalidInput("spacing is given beside a list of points; give a number of points, or no spacing")

    def steps(self, last: int) -> np.ndarray:
        """Return the recorded steps of a descent of `last` steps, the first and the last among them."""
        if self.spacing == "steps":
            raise InvalidInput('spacing is "steps", those of the solver of a flow; a descent records "linear" or "log"')
        if isinstance(self.points, tuple):
            listed = np.array([checks.whole("recorded step", step, least=0) for step in self.points], dtype=np.int64)
            if listed[-1] > last:
                raise InvalidInput(f"points are steps from {listed[0]} to {listed[-1]}; give steps from 0 to {last}")
            return np.union1d(listed, [0, last])
        every = 1 if self.every is None else self.every
        count = min(last // every + 1 if self.points is None else self.points, last + 1)  # pyright: ignore
        require_memory(
            32 * count,
            what=f"recording {count} of {last} steps",
            instead="record fewer of them (Record(points=…), Record(every=…)), or take larger steps",
        )
        if self.spacing == "log":
            between = np.geomspace(1, last, count - 1)[:-1] if count > 2 else []
            return np.unique(np.concatenate([[0], np.round(between), [last]]).astype(np.int64))
        if self.points is None or count == last + 1:
            return np.union1d(np.arange(0, last, every), [0, last])
        return np.unique(np.linspace(0, last, count).round().astype(np.int64))

    def times(self, end: float) -> np.ndarray:
        """Return the recorded times of a flow that ends at `end`; spaced by steps they are known after it alone."""
        if isinstance(self.points, tuple):
            times = np.array(self.points, dtype=np.float64)
            return times[times <= end]
        count = FLOW_POINTS if self.points is None else int(self.points)  # pyright: ignore
        if end == 0.0:
            return np.zeros(1)
        if self.spacing != "log":
            return np.linspace(0.0, end, count)
        return np.concatenate([[0.0], np.geomspace(_FIRST_LOG_TIME * end, end, count - 1)[:-1], [end]])

    def places(self, points: np.ndarray) -> np.ndarray:
        """Return the places among the recorded points at which all weights are kept."""
        last = len(points) - 1
        if self.snapshots is None or last < 0:
            return np.arange(last + 1)
        if isinstance(self.snapshots, tuple):
            places = np.searchsorted(points, np.array(self.snapshots)).clip(0, last)
        else:
            places = np.linspace(0, last, min(int(self.snapshots), last + 1)).round().astype(int)  # pyright: ignore
        return np.union1d(places, [0, last])

    def described(self) -> dict[str, Any]:
        """Return what is given but the curves, for provenance."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "observe"}
        arrays = {name: np.array(value) if isinstance(value, tuple) else value for name, value in given.items()}
        return {name: value for name, value in arrays.items() if value is not None}


def _listed(name: str, values: Any) -> tuple[float, ...]:
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or np.any(np.diff(array) <= 0) or not array[0] >= 0:
        raise InvalidInput(f"{name} must be a rising list of steps or times from 0 on; or give a number of them")
    return tuple(array.tolist())
