"""What the benchmarks against PyTorch share. It is an extra: it is imported here, on use, and nowhere else."""

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ._row import Row, Unavailable, quantity
from ._timing import interleaved

SAME = 1e-5
"""Loss curves that differ by less, relatively, are the same in float32: 2⁻²³, grown by sums over thousands of terms."""


def pytorch() -> Any:
    """The module, typed loosely so that type checks do not need it installed."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise Unavailable("needs PyTorch; `make bench` installs it") from None


class Training:
    """Full-batch gradient descent in PyTorch, in the precision of what it is given: autograd and `torch.optim.SGD`."""

    def __init__(self, predict: Callable[[], Any], targets: Any, parameters: list[Any], rate: float):
        self._torch = pytorch()
        self._predict, self._targets = predict, targets
        self._optimizer = self._torch.optim.SGD(parameters, lr=rate)

    def descend(self, steps: int, threads: int | None = None) -> np.ndarray:
        """Take so many steps; the loss before each."""
        if threads is not None:
            self._torch.set_num_threads(threads)
        losses = []
        for _ in range(steps):
            self._optimizer.zero_grad()
            loss = self._torch.nn.functional.mse_loss(self._predict(), self._targets)
            loss.backward()
            self._optimizer.step()
            losses.append(loss.detach())
        return np.array([float(loss) for loss in losses])


def thread_counts() -> list[int]:
    """One thread, and one a core: whichever is faster counts."""
    return sorted({1, os.cpu_count() or 1})


def compare(
    what: str,
    ours: Callable[[int, int], Any],
    fresh: Callable[[], Training],
    *,
    steps: int,
    baseline_steps: int,
    rounds: int,
    least_ratio: float,
    checked_steps: int = 100,
) -> list[Row]:
    """Rows for the time of a step on both sides, and for how closely their loss curves agree.

    `ours(steps, record)` runs our descent from the start and returns its trajectory, with every `record`-th loss;
    `fresh()` is the baseline at the same start.
    """
    ours_curve = ours(checked_steps, 1)["loss"].values[0, :checked_steps]
    baseline_curve = fresh().descend(checked_steps)
    deviation = float(np.max(np.abs(ours_curve - baseline_curve) / ours_curve))

    training = fresh()
    sides: dict[str, Callable[[], Any]] = {
        "all": lambda: ours(steps, 1),
        "some": lambda: ours(steps, 100),
    }
    counts = {f"{count} thread{'s' * (count > 1)}": count for count in thread_counts()}
    for name, count in counts.items():
        sides[name] = lambda count=count: training.descend(baseline_steps, count)
    times = interleaved(sides, rounds=rounds)
    theirs = {name: times[name] / baseline_steps for name in counts}
    baseline = min(theirs.values())
    note = "PyTorch: " + ", ".join(f"{quantity(seconds, 's')} with {name}" for name, seconds in theirs.items())
    fall = f"the loss goes from {ours_curve[0]:.4f} to {ours_curve[-1]:.4f}"
    return [
        Row(f"{what}, every loss kept", times["all"] / steps, "s", baseline, least_ratio=least_ratio, note=note),
        Row(f"{what}, every 100th loss kept", times["some"] / steps, "s", baseline, least_ratio=least_ratio),
        Row(
            f"the two loss curves differ by, {checked_steps} steps",
            deviation,
            "",
            most=SAME,
            check=True,
            note=f"relative; {fall}",
        ),
    ]
