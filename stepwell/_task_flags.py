"""How a command line describes a task: its flags, declared once for `stepwell train` and `stepwell predict`.

No more than the standard library is imported here, as for all that help needs.
"""

import argparse
import dataclasses
from typing import Any

SPECTRA = "white, power:EXPONENT, spiked:RATIO[,COUNT] or published"
CONVENTIONS = ("per-coordinate", "total")


@dataclasses.dataclass(frozen=True)
class Description:
    """A task as the flags describe it; None is what was not said.

    `eigenvalues` and `task_eigenvalues` are those of the covariances of inputs and task vectors, `noise` the variance
    of the labels' noise, `context` numbers of context pairs, equally likely. `dims` are the dimensions of several
    regressions, and `strengths` the variance of a coordinate of each one's task vector.
    """

    eigenvalues: tuple[float, ...] | None = None
    task_eigenvalues: tuple[float, ...] | None = None
    noise: float = 0.0
    context: tuple[int, ...] | None = None
    dims: tuple[int, ...] | None = None
    strengths: tuple[float, ...] | None = None


def add_task_flags(group: argparse._ArgumentGroup, *, one: str, several: str) -> None:
    """Declare the flags of a task. `one` and `several` say what is meant for one regression, and for several."""
    absent: Any = {"default": argparse.SUPPRESS}
    form = group.add_mutually_exclusive_group()
    form.add_argument(
        "--eigenvalues",
        type=float,
        nargs="+",
        metavar="VALUE",
        **absent,
        help=f"{one}: of the covariance of the inputs",
    )
    form.add_argument(
        "--spectrum",
        metavar="NAME",
        **absent,
        help=f"{one}: eigenvalues by name, of sum 1 in dimension --dim: {SPECTRA}",
    )
    form.add_argument(
        "--dims", type=int, nargs="+", metavar="DIM", **absent, help=f"{several}: the dimension of each regression"
    )
    group.add_argument("--dim", type=int, metavar="D", **absent, help="dimension of an input, for --spectrum")
    group.add_argument(
        "--context",
        type=int,
        nargs="+",
        metavar="N",
        **absent,
        help="context pairs; several values: a uniform mixture of lengths, for one regression (default: 31; 100 with "
        "--dims)",
    )
    group.add_argument(
        "--task-eigenvalues",
        type=float,
        nargs="+",
        metavar="VALUE",
        **absent,
        help="of the covariance of the task vectors, in the order of the inputs' eigenvalues (default: all 1)",
    )
    group.add_argument(
        "--strengths",
        type=float,
        nargs="+",
        metavar="VALUE",
        **absent,
        help="variance of the task vectors, one for all --dims or one for each (default: 1)",
    )
    group.add_argument(
        "--convention",
        choices=CONVENTIONS,
        **absent,
        help="whether a strength is that of a coordinate, or of the whole label (default: per-coordinate)",
    )
    group.add_argument("--noise", type=float, metavar="VARIANCE", **absent, help="variance of label noise (default: 0)")
