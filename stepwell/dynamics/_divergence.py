"""Advice after a divergence: a smaller rate, tried before it is named."""

import bisect
import math
import time

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from stepwell._util.interrupt import Interruptible

from ._ensemble import Ensemble
from ._loop import ConstantRate, Fresh, TrainLoop, advance

_HALVINGS = 20
_HALVINGS_LONGER = 7
"""A trial takes more steps the smaller its rate, but no more than after so many halvings."""
_SMALL_RATE = 1e-6
"""The search goes on down to this rate: where that diverges too, the rate is not the cause."""
_SECONDS = 10.0
"""Time given to all trials together."""
_PIECE = 20
"""Steps after which a trial's loss is observed, twice."""
_NOISE = 10.0
"""On fresh data, by which factor a loss may exceed the first and still be taken for chance."""


def stable_rate(loop: TrainLoop, initial: Array, run: int, step: int) -> str:
    """Halve the rate until a run from these weights stays stable for four times the flow time of the divergence."""
    rule = loop.rule.member(run) if isinstance(loop.rule, Ensemble) else loop.rule
    if not isinstance(rule, ConstantRate):
        return "lower the optimizer's learning rate"
    source = loop.source.member(run) if isinstance(loop.source, Ensemble) else loop.source
    weights = initial if loop.runs is None else initial[run]
    deadline = time.monotonic() + _SECONDS
    halvings = max(_HALVINGS, math.ceil(math.log2(rule.rate) - math.log2(_SMALL_RATE)))

    def rate(halving: int) -> float:
        return math.ldexp(float(rule.rate), -halving)

    def stable(halving: int, wanted: int) -> int | None:
        trial = TrainLoop(loop.skeleton, source, ConstantRate(jnp.asarray(rate(halving))), {}, None)
        return _stable_steps(trial, weights, wanted, deadline, ctrl_c)

    try:
        with Interruptible() as ctrl_c:
            # The largest rate that survives a moment; a rate far too large would take hundreds of trials one by one.
            likely = range(1, halvings + 1)
            first = 1 + bisect.bisect_left(likely, True, key=lambda halving: stable(halving, 2 * _PIECE) is not None)
            for halving in likely[first - 1 :]:
                wanted = 4 * (step + 50) * 2 ** min(halving, _HALVINGS_LONGER)
                taken = stable(halving, wanted)
                if taken is not None and taken >= wanted:
                    return f"a rate of {rate(halving):.3g} stayed stable for {taken} steps from the same weights"
                if taken is not None:
                    return (
                        f"lower the rate: {rate(halving):.3g} was stable for the {taken} steps that there was time "
                        "to try"
                    )
    except KeyboardInterrupt:
        return "lower the rate (the search for a stable one was interrupted)"
    return f"no rate down to {rate(halvings):.3g} is stable here; make the initial weights smaller, or the inputs"


def _stable_steps(trial: TrainLoop, weights: Array, wanted: int, deadline: float, ctrl_c: Interruptible) -> int | None:
    """How many steps were tried, all with a falling loss, on fresh data one not far above the first; else None.

    At too large a rate the loss may also stay finite and jump between two values for ever. So it is observed at two
    steps in succession.
    """
    at, gaps, path = jnp.asarray(0), jnp.array([_PIECE - 1, 1]), np.zeros(0)
    first = None
    while not ctrl_c.pressed:
        weights, _, at, losses, _ = advance(trial, weights, (), at, gaps, jnp.asarray(2), steps=_PIECE)
        path = np.concatenate([path[-1:], losses])
        first = path[0] if first is None else first
        allowed = _NOISE * first if isinstance(trial.source, Fresh) else path[:-1] + 1e-9 * first
        if not np.all(np.isfinite(path)) or np.any(path[1:] > allowed):
            return None
        if int(at) >= wanted or (time.monotonic() > deadline and int(at) >= 2 * _PIECE):
            return int(at)
    raise KeyboardInterrupt
