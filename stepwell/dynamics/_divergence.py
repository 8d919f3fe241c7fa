"""Advice after a divergence: a smaller rate, tried before it is named."""

import time

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from stepwell._interrupt import Interruptible

from ._ensemble import Ensemble
from ._loop import ConstantRate, Fresh, TrainLoop, advance

_HALVINGS = 20
_SECONDS = 10.0
"""Time given to all trials together."""
_PIECE = 20
"""Steps after which a trial's loss is observed."""
_NOISE = 10.0
"""On fresh data, by which factor a loss may exceed the first and still be taken for chance."""


def stable_rate(loop: TrainLoop, initial: Array, run: int, step: int) -> str:
    """Halve the rate until a run from the same start stays stable for four times the flow time of the divergence."""
    rule = loop.rule.member(run) if isinstance(loop.rule, Ensemble) else loop.rule
    if not isinstance(rule, ConstantRate):
        return "lower the optimiser's learning rate"
    source = loop.source.member(run) if isinstance(loop.source, Ensemble) else loop.source
    weights = initial if loop.runs is None else initial[run]
    deadline = time.monotonic() + _SECONDS
    rate = float(rule.rate)
    for halving in range(1, _HALVINGS + 1):
        rate = float(rule.rate) / 2**halving
        trial = TrainLoop(loop.skeleton, source, ConstantRate(jnp.asarray(rate)), {}, None)
        wanted = 4 * (step + 50) * 2**halving
        try:
            with Interruptible() as ctrl_c:
                taken = _stable_steps(trial, weights, wanted, deadline, ctrl_c)
        except KeyboardInterrupt:
            return "lower the rate (the search for a stable one was interrupted)"
        if taken is not None and taken >= wanted:
            return f"a rate of {rate:.3g} stayed stable for {taken} steps from the same start"
        if taken is not None:
            return f"lower the rate: {rate:.3g} was stable for the {taken} steps that there was time to try"
    return f"no rate down to {rate:.3g} is stable from this start; make the initial weights smaller"


def _stable_steps(trial: TrainLoop, weights: Array, wanted: int, deadline: float, ctrl_c: Interruptible) -> int | None:
    """How many steps were tried, all with a finite loss not above the first; None if it went wrong."""
    allowed = _NOISE if isinstance(trial.source, Fresh) else 1 + 1e-9
    at, gaps, first = jnp.asarray(0), jnp.array([_PIECE]), None
    while not ctrl_c.pressed:
        weights, _, at, losses, _ = advance(trial, weights, (), at, gaps, jnp.asarray(1), steps=_PIECE)
        loss = float(losses[0])
        first = loss if first is None else first
        if not np.isfinite(loss) or loss > first * allowed:
            return None
        if int(at) >= wanted or time.monotonic() > deadline:
            return int(at)
    raise KeyboardInterrupt
