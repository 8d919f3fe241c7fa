"""Axes of what falls as batches grow."""

import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes

from stepwell.analysis.style import GRAY


def against_batches(axes: Axes, sizes: Int[np.ndarray, " batch"]) -> None:
    """Both logarithmic, with a tick for each size, and dashed lines named as the law 1/batch."""
    axes.plot([], [], "--", color=GRAY, linewidth=1.0, label="1/batch")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(one) for one in sizes])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("sequences in a batch")
