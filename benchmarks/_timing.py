"""Timing that is fair on a machine that also does other things."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


def interleaved(sides: Mapping[str, Callable[[], Any]], *, rounds: int, warm: bool = True) -> dict[str, float]:
    """The best time in seconds of each side.

    Each is called once beforehand, which compiles it, unless `warm` is off. Then every round calls each side in turn,
    so that a busy spell of the machine falls on all of them. A call ends when its result has been computed.
    """
    if warm:
        for call in sides.values():
            jax.block_until_ready(call())
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            begun = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(time.perf_counter() - begun)
    return {name: min(found) for name, found in times.items()}


def best(call: Callable[[], Any], *, rounds: int, warm: bool = True) -> float:
    """The best time of one call."""
    return interleaved({"": call}, rounds=rounds, warm=warm)[""]
