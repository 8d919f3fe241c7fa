"""What the minimal pages of `drag` draw: a staircase of 200 points whose place depends on the slider."""

import numpy as np

TIME = np.linspace(0.0, 10.0, 200)
LEAST, MOST, STEP = 0.5, 9.5, 0.01


def curve(value: float) -> np.ndarray:
    """Two drops, the first at time `value` / 2 and the second at `value`."""
    return 1 - 0.5 / (1 + np.exp(-8 * (TIME - value / 2))) - 0.4 / (1 + np.exp(-8 * (TIME - value)))
