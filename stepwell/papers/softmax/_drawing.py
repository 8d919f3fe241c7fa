"""What drawings of several figures have in common."""

from typing import Any

import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes

from stepwell.analysis.style import GRAY


def lines(axes: Axes, x: Any, rows: Any, label: str, **style: Any) -> None:
    """A line for each row, all under one label."""
    for number, row in enumerate(rows):
        axes.plot(x, row, label=None if number else label, **style)


def against_batches(axes: Axes, sizes: Int[np.ndarray, " batch"]) -> None:
    """Both logarithmic, with a tick for each size, and dashed lines named as the law 1/batch."""
    axes.plot([], [], "--", color=GRAY, linewidth=1.0, label="1/batch")
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(sizes, [str(one) for one in sizes])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("sequences in a batch")
