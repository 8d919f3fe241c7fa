"""The keywords of `descend` and `online`, as one object."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import recorded_rate
from stepwell._util.text import shown

from ._checkpoint import CheckpointPath
from ._record import Record


@runtime_checkable
class Transformation(Protocol):
    """The interface of an optax optimizer, so that optax, which takes a quarter of a second, need not be imported."""

    @property
    def init(self) -> Callable[..., Any]: ...

    @property
    def update(self) -> Callable[..., Any]: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The keywords of `descend`, which says what each means."""

    rate: Any
    steps: int
    optimizer: Transformation | str | None
    record: Record
    first_step: int
    progress: bool
    configuration: dict[str, Any] | None
    checkpoint: CheckpointPath
    advice: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, str | Transformation | None):
            raise InvalidInput(
                f"optimizer is {shown(self.optimizer)}; it must be an optimizer of optax, such as optax.adam(0.01)"
            )

    def provenance(self) -> dict[str, Any]:
        """The options that are kept in the provenance of a trajectory."""
        return {
            "rate": recorded_rate(self.rate, self.steps),
            "optimizer": self.optimizer
            if self.optimizer is None or isinstance(self.optimizer, str)
            else "given as an optax transformation",
            "steps": self.steps,
            "first_step": self.first_step,
            "record": self.record.described(),
            "observed": sorted(self.record.observe or ()),
            **(self.configuration or {}),
        }
