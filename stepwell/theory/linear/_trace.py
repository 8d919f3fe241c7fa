"""The path of one run between and through its drops, written down while its drops are predicted."""

import numpy as np
from jaxtyping import Float

from .._runge_kutta import Attempt, DenseOutput, Field
from ._heads import Weights, sides
from ._narrow import Narrow

_POINTS = 16
"""Points within a step."""


class Trace:
    """Times, excess losses, values and maps along the path of one run, in the order of time."""

    def __init__(self, ends: Float[np.ndarray, " component"]):
        """`ends` are what of the map each component has when it is learned."""
        self.ends = ends
        self._rows: list[tuple[float, float, np.ndarray, np.ndarray]] = []

    @property
    def known(self) -> bool:
        """Whether there is a path at all."""
        return bool(self._rows)

    def begin(self, narrow: Narrow, weights: Weights, where: tuple, directions: tuple[np.ndarray, np.ndarray]) -> None:
        """What follows is of the heads at `where`, among all `weights`, which all count for the loss."""
        self._all = Narrow(narrow.plateau, np.ones(narrow.members.shape))
        self._weights, self._where, self._directions = weights.copy(), where, directions

    def add(self, time: float, weights: Weights) -> None:
        """Write down a point; a nan in the weights is a path that is not known."""
        self._weights[self._where] = weights
        excess = float(self._all.excess(self._all.residual(weights))[0])
        # What is learned follows at once: its part is that of the plateau, in coordinates along unit vectors.
        a, b = (side[:, 0] > 0 for side in self._all.plateau.curvatures)
        x, y = sides(weights, len(a))[..., 0]
        maps, first = np.diag(self.ends), self.ends.size - a.size
        maps[first:, first:] = np.where(
            a[:, None] & b, np.einsum("rdh,h,reh->de", x, weights[0, :, 0], y), maps[first:, first:]
        )
        units = [side / np.linalg.norm(side, axis=0) for side in self._directions]
        effective = np.linalg.solve(units[0].T, np.linalg.solve(units[1].T, maps.T).T)
        self._rows.append((time, excess, self._weights[0, :, 0].copy(), effective))

    def step(
        self, field: Field, states: np.ndarray, tried: Attempt, slopes: np.ndarray, step: np.ndarray, since: float = 0.0
    ) -> None:
        """Write down a step, if it is accepted; its time counts from `since`."""
        if not tried.accepted[0]:
            return
        path = DenseOutput(field, states, tried.states, slopes, step)
        for part in np.linspace(0, 1, _POINTS + 1)[1:]:
            state = path(np.full(step.size, part))
            self.add(since + float(state[-1, 0]), state[:-1].reshape(len(self._where[0]), len(self._where[1]), -1))

    def at(self, times: Float[np.ndarray, " time"]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Times, those asked for and those of the path between them, with the excess, values and maps there."""
        known = np.maximum.accumulate([time for time, *_ in self._rows])
        times = np.union1d(times, known[(known > times[0]) & (known < times[-1])])

        def along(number: int) -> np.ndarray:
            row = np.array([each[number] for each in self._rows])
            columns = row.reshape(len(known), -1).T
            return np.stack([np.interp(times, known, column) for column in columns], axis=1).reshape(-1, *row.shape[1:])

        return times, along(1), along(2), along(3)
