"""How many steps a compiled call takes: as many as take a moment, so that progress shows and a run can be stopped."""

_SECONDS = 0.4
"""How long a call should take."""


class ChunkSize:
    """`size.steps` is how many steps the next call takes at the most. The first call compiles, and is not measured."""

    def __init__(self, steps: int, most: int | None = None):
        self.steps = steps
        self._most = most
        self._compiled = False

    def measured(self, seconds: float, steps: int) -> None:
        """A call of so many steps took so long."""
        if self._compiled and seconds > 2 * _SECONDS:
            self.steps = max(1, self.steps // 2)
        elif self._compiled and seconds < _SECONDS / 2 and 2 * steps > self.steps:
            self.steps = 2 * self.steps if self._most is None else min(2 * self.steps, self._most)
        self._compiled = True
