"""Fig 3: its settings."""

from dataclasses import dataclass

NAME = "linear/fig3"

SHOWN_INIT = 1e-2
"""Initial weights of the runs that are drawn: about the published script's `--init 1e-2`, in the paper's convention."""


@dataclass(frozen=True)
class Settings:
    """What a quick run has less of."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    sequences: int = 80_000
    inits: tuple[float, ...] = (1e-1, SHOWN_INIT, 1e-3, 1e-4)
    """Standard deviations of the initial weights on infinite data. The runs on P sequences start from `SHOWN_INIT`."""
    points: int = 1000
    """Times at which a run is saved, evenly spaced in log time, beside those near predicted drops."""
    frames: int = 90
    """Of the video."""


FULL = Settings()
QUICK = Settings(seeds=(0, 1), inits=(SHOWN_INIT, 1e-4), points=300, frames=12)
