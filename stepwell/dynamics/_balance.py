r"""Balanced weights of spectral attention: their flow is followed as one number for each product of two weights.

A loss reads of a key and its query, and of a value and its output, only the product $p = ab$: the flow conserves
$a^2 - b^2$. Where that is zero, $\dot p = -|p|\, \partial L/\partial p$, and p keeps its sign. Followed as two numbers,
a and b differ by the solver's error, which is an imbalance and grows wherever a head has no task, until the loss leaves
the limit of the flow. Followed as $\log|p|$, they stay balanced whatever the error.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util.errors import InvalidInput
from stepwell.models import AbstractModel, is_proved, is_spectral

from ._ensemble import Ensemble

_ROUNDING = 8 * float(np.finfo(float).eps)
"""Relative difference up to which two factors are balanced: rounding of a root and of a quotient by it."""


class Tied(eqx.Module):
    r"""Which products of a run are balanced. Its state is $\log|p|$ of these, and then both factors of the others."""

    places: tuple[bool, ...] = eqx.field(static=True)
    """Of every product, first those of keys: whether it is balanced."""
    signs: Float[Array, "*run tied"]
    """Of the balanced products; 0 where the product is."""

    def weights(self, state: Float[Array, " state"]) -> Float[Array, " weights"]:
        """Weights with the products of the state; where these are balanced, $|p|$ and the sign as factors."""
        tied, count = np.array(self.places), sum(self.places)
        factors = jnp.zeros((2, tied.size), state.dtype)
        factors = factors.at[:, tied].set(jnp.stack([jnp.exp(state[:count]), self.signs]))
        return _as_weights(factors.at[:, ~tied].set(state[count:].reshape(2, -1)))

    def velocity(self, velocity: Float[Array, " weights"]) -> Float[Array, " state"]:
        r"""The velocity of the state from that of `weights`: $\frac{d}{dt}\log|p|$ is twice that of the factor $|p|$.

        With the factors $|p|$ and $\pm1$ the latter is $\mp\frac12\, \partial L/\partial p$.
        """
        tied, factors = np.array(self.places), _as_factors(velocity)
        return jnp.concatenate([2 * factors[0, tied], factors[:, ~tied].reshape(-1)])


class Tie(NamedTuple):
    """The fields of runs on states in which balanced weights are tied, the initial states, and the way back."""

    fields: Any
    initial: Float[Array, "run state"]
    weights: Callable[[Float[np.ndarray, "run time state"]], Float[np.ndarray, "run time weights"]]


def tie(fields: Any, template: AbstractModel, initial: Float[Array | np.ndarray, "run weights"]) -> Tie | None:
    """The flow on the manifold of balanced weights; None where no weights are balanced, or may be.

    The losses of this package read products alone; of another objective, which may penalize weights, that is not known.
    """
    objective = (fields.stacked if isinstance(fields, Ensemble) else fields).objective
    ours = type(objective).__module__.startswith("stepwell.")
    if not (is_spectral(template) and is_proved(template) and ours):
        return None
    given = _as_factors(np.asarray(initial, dtype=float))
    sizes = np.abs(given)
    balanced = np.abs(sizes[:, 0] - sizes[:, 1]) <= _ROUNDING * sizes[:, 0]
    zero = sizes.max(axis=1) == 0  # they stay so in either form
    tied = np.any(balanced & ~zero, axis=0) | np.all(zero, axis=0)
    if np.any((balanced != tied) & ~zero):
        raise InvalidInput(
            f"some of the {len(balanced)} models have balanced weights, |key| = |query| and |value| = |output|, where "
            "others have not, and the two follow different equations; train them as separate ensembles"
        )
    if not tied.any():
        return None
    pairs = given[..., tied]
    signs = np.sign(pairs[:, 0]) * np.sign(pairs[:, 1])
    logs = np.log(np.where(signs[:, None] == 0, 1.0, np.abs(pairs))).sum(axis=1)
    states = np.concatenate([logs, given[..., ~tied].reshape(len(logs), -1)], axis=1)

    def weights(states: np.ndarray) -> np.ndarray:
        factors = np.empty((*states.shape[:2], *given.shape[1:]))
        grown = np.exp((states[..., : logs.shape[1]] - logs[:, None]) / 2)
        factors[..., tied] = grown[:, :, None] * pairs[:, None]
        factors[..., ~tied] = states[..., logs.shape[1] :].reshape(*states.shape[:2], 2, -1)
        return _as_weights(factors)

    return Tie(_tied(fields, tuple(tied.tolist()), signs), jax.device_put(states), weights)


def _tied(fields: Any, places: tuple[bool, ...], signs: Float[np.ndarray, "run tied"]) -> Any:
    """The fields, on states; one for all runs where signs are the same in all."""
    if not isinstance(fields, Ensemble):
        if np.all(signs == signs[0]):
            return dataclasses.replace(fields, tied=Tied(places, jax.device_put(signs[0])))
        runs = len(signs)
        repeated = jax.tree.map(lambda x: jnp.broadcast_to(x, (runs, *x.shape)) if eqx.is_array(x) else x, fields)
        fields = Ensemble(repeated, runs)
    return Ensemble(dataclasses.replace(fields.stacked, tied=Tied(places, jax.device_put(signs))), fields.size)


def _as_factors(weights: Any) -> Any:
    """Both factors (…, 2, product), of weights that are keys, queries, values and outputs."""
    lead = weights.shape[:-1]
    return weights.reshape(*lead, 2, 2, -1).swapaxes(-3, -2).reshape(*lead, 2, -1)


def _as_weights(factors: Any) -> Any:
    lead = factors.shape[:-2]
    return factors.reshape(*lead, 2, 2, -1).swapaxes(-3, -2).reshape(*lead, -1)
