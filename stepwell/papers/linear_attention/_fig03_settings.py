"""Fig 3: its settings."""

from dataclasses import dataclass

from stepwell.experiments import Experiment
from stepwell.papers._settings import changeable, setting

from ._rank_one import CONTEXT, DIM

NAME = "linear/fig3"

HEADS = setting("heads", 5)
INIT = setting("init", 1e-2)
"""Scale of the initial weights in the published convention (no 1/N). With 1/N it is N^(1/3) times as large."""
STEPS = setting("steps", 10_000)
RATE = setting("rate", 0.02)
SEQUENCES = setting("sequences", 80_000)
"""Of the published runs."""
EXPERIMENT = Experiment(
    task={"dim": DIM, "context": CONTEXT, "centered": True, "whitened": True},
    model={"heads": HEADS, "scale": INIT, "normalization": "none"},
    objective={"kind": "moments", "sequences": SEQUENCES or 80_000},
    training={"kind": "descent", "rate": RATE, "steps": STEPS},
)
"""What the command of the published README trains, from the initialization that the figure was made with: `python
train.py --model attnS --head 5 --init 1e-2 --lr 0.02 --start paper`."""

NEAR_TIE = 10.0
"""Two drops of the schedule are a near tie if they are closer than this many time constants, 1/(λ²v_∞) of the later
drop. From 10 to 90 % a drop takes 2.2 of them."""
PLATEAU = 20.0
"""A level is read on plateaus of at least so many time constants: (2/20)³ of the next head's growth is then on it, 0.2
% of the next drop."""
AFTER = 0.9
"""Keys are read just after a drop: when so much of it is done."""
BEGUN = 0.1
"""A drop has begun when so much of it is done: x³ = 5 % of the curvature is felt then."""
STANDARD_ERRORS = 3.0
MOST = 0.95
"""What follows from a small start must hold for so many drops: by chance a head may begin so far off its eigenvector
(ratios of Gaussian numbers have heavy tails) that its start is not small enough."""


@changeable
@dataclass(frozen=True)
class Settings:
    """What a quick run has less of. Seeds 0 to 29, 100 to 129 and 200 to 211 were used while the figure was made, and
    its rules fixed; those here judge it."""

    seeds: tuple[int, ...] = tuple(range(300, 330))
    """Of the published command: covariance, sequences and initial weights."""
    sequences: int | None = SEQUENCES
    """None: infinitely many."""
    record: int = 10
    shown: int = 6
    """Of so many seeds the loss is drawn, as in the paper."""
    flow_seeds: tuple[int, ...] = tuple(range(400, 412))
    """Initial weights on infinitely many sequences, the same draw at every size."""
    inits: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5)
    turned: int = 6
    """Data sets of the published size on which the key of the first head is compared with that on infinitely many
    sequences."""
    turned_init: float = 1e-4
    frames: int = 90
    """Of the video."""


FULL = Settings()
QUICK = Settings(
    seeds=tuple(range(300, 320)),
    sequences=None,
    record=20,
    flow_seeds=tuple(range(400, 405)),
    inits=(1e-4, 1e-5),
    turned=2,
    frames=12,
)
