"""Fig 14: its settings."""

from dataclasses import dataclass

from stepwell.experiments import Experiment

DIM = 4
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
PUBLISHED_SEQUENCES = 5000
STANDARD_ERRORS = 3.0
ROUNDING = 1e-14
"""Of a loss."""
TESTS = ("in_context_test_loss", "in_weight_test_loss")


@dataclass(frozen=True)
class Settings:
    """What can be changed. Seeds 0 to 23 were used while the figure was made; those here judge it.

    A seed sets w*, training sequences, test sequences and initial weights, the same at every share but for the tasks.
    """

    context: int = 31
    heads: int = 8
    init: float = 1e-6
    steps: int = 5000
    """The published README has 4,000; the picture goes to 5,000."""
    rate: float = 5e-4
    seeds: tuple[int, ...] = tuple(range(100, 124))
    sequences: int = PUBLISHED_SEQUENCES
    """For training, and in each of the two test sets."""
    record: int = 10
    tested: int = 20
    """Test losses are recorded every so many steps."""
    infinite_runs: int = 3
    """Of so many seeds the descent is also made on infinitely many sequences."""

    @property
    def experiment(self) -> Experiment:
        """What the command of the published README trains, `python train.py --model attnM --head 8 --init 1e-6
        --white_cov --lr 5e-4 --icl 0`, for the steps of the picture; the share and the number of sequences vary."""
        return Experiment(
            task={
                "kind": "mixture",
                "spectrum": "white",
                "dim": DIM,
                "context": self.context,
                "in_context": 0.0,
                "centered": True,
            },
            model={"kind": "merged", "heads": self.heads, "scale": self.init, "normalization": "none"},
            objective={"kind": "moments", "sequences": PUBLISHED_SEQUENCES},
            training={"kind": "descent", "rate": self.rate, "steps": self.steps},
        )
