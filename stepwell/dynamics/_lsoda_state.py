"""What SciPy's LSODA knows and has done, as arrays and numbers, so that it continues with the same digits once saved.

Since SciPy 1.17 its state is in arrays that belong to the integrator. Before, a part of it is in variables of compiled
code, which cannot be read.
"""

from typing import Any, NamedTuple

import numpy as np

from stepwell._util.errors import InvalidInput

_WORK = ("rwork", "iwork", "state_doubles", "state_ints")
_CONTINUED = 2
"""LSODA's `istate` after its first step."""


def state_of(stepper: Any) -> dict[str, Any]:
    """The state between two steps."""
    work = [getattr(stepper._lsoda_solver._integrator, name, None) for name in _WORK]
    if any(part is None for part in work):
        raise InvalidInput("the state of LSODA can be read since SciPy 1.17, and this one is older")
    return {
        "work": work,
        "weights": stepper.y,
        "times": np.array([stepper.t_old, stepper.t]),
        "counts": [int(stepper.nfev), int(stepper.njev), int(stepper.nlu)],
    }


def restore(stepper: Any, state: dict[str, Any]) -> None:
    """Put a new stepper into a state."""
    solver, weights, (t_old, t) = stepper._lsoda_solver, state["weights"], state["times"].tolist()
    for name, values in zip(_WORK, state["work"], strict=True):
        getattr(solver._integrator, name)[:] = values
    solver._integrator.call_args[3] = _CONTINUED
    solver._y, solver.t = weights.copy(), t
    stepper.y, stepper.t, stepper.t_old = weights.copy(), t, t_old
    stepper.nfev, stepper.njev, stepper.nlu = state["counts"]


class Piece(NamedTuple):
    r"""The path within a step that ended at time t: $w(s) = \sum_p y_p \left(\frac{s - t}{h}\right)^p$."""

    t: float
    h: float
    y: np.ndarray
    """Nordsieck's array (weights, power)."""

    @classmethod
    def last(cls, stepper: Any) -> "Piece":
        """That of the stepper's last step."""
        dense = stepper.dense_output()
        return cls(float(dense.t), float(dense.h), dense.yh)

    def at(self, time: float) -> np.ndarray:
        return self.y @ ((time - self.t) / self.h) ** np.arange(self.y.shape[1])


def packed(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """All pieces as a few arrays."""
    return {
        "t": np.array([piece.t for piece in pieces]),
        "h": np.array([piece.h for piece in pieces]),
        "powers": np.array([piece.y.shape[1] for piece in pieces]),
        "y": np.concatenate([piece.y for piece in pieces], axis=1),
    }


def unpacked(arrays: dict[str, np.ndarray]) -> list[Piece]:
    parts = np.split(arrays["y"], np.cumsum(arrays["powers"])[:-1], axis=1)
    times, lengths = arrays["t"].tolist(), arrays["h"].tolist()
    return [Piece(t, h, np.ascontiguousarray(y)) for t, h, y in zip(times, lengths, parts, strict=True)]
