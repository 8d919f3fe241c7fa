r"""The runs of Fig 2: linear networks and linear attention, from initial weights that differ in one respect.

A linear network of any width moves as one of `outputs + dim` units: hidden space can be rotated, $\Theta = OR$ with as
many rows of R as a unit has weights, and the flow takes R wherever it takes $\Theta$.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.integrate
import xarray as xr
from jaxtyping import Float

from stepwell.dynamics import Ensemble, Record, flow
from stepwell.models import PolynomialUnits, SeparateAttention
from stepwell.objectives import FeatureMoments, Population
from stepwell.tasks import GaussianTeacher, InContextRegression
from stepwell.theory.linear import drop_schedule, levels
from stepwell.theory.units import blow_up_time, direction_times, riccati_course

from ._common import linear_levels

Weights = Float[np.ndarray, "unit weight"]
PASSES = ("before", "start", "half", "end")
"""Of a drop: 10 %, 50 % and 90 % of it; and before it, 90 % of the drop before, or 10 % above the first plateau."""
RTOL = 1e-7
_RECORDED = 2000
_LONG = 80.0
"""Over the largest strength: by then a network of few units of size one is at rest."""
_NEAR, _REST = 0.1, 1e-3
"""Of the loss of zero weights: so close is it to its plateau by half of the time until the next drop, and then."""


class Start(NamedTuple):
    """One run: a linear network, or attention; the exponent of its spectrum; and its weights, a unit or head a row."""

    attention: bool
    kappa: float
    weights: Weights


def strengths(kappa: float, modes: int) -> Float[np.ndarray, " mode"]:
    r"""$s_n = n^{-\kappa}$, divided by their sum."""
    raw = np.arange(1.0, modes + 1) ** -kappa
    return raw / raw.sum()


def teacher(kappa: float, modes: int) -> GaussianTeacher:
    return GaussianTeacher(strengths(kappa, modes), np.ones(modes), separate=True)


def regression(kappa: float, modes: int, context: int) -> InContextRegression:
    r"""The features $\beta x_q^\top$ have the correlation $\Lambda^2$ with the label: made symmetric, with half of its
    eigenvalues and their negatives."""
    return InContextRegression(np.diag(np.sqrt(2 * strengths(kappa, modes))), context)


def plateaus(kappa: float, modes: int, attention: bool, context: int) -> Float[np.ndarray, " level"]:
    """The loss at each plateau, and at the end."""
    if attention:
        return levels(regression(kappa, modes, context))
    return linear_levels(strengths(kappa, modes))


def gaussian(units: int, modes: int, attention: bool, seed: int) -> Weights:
    """Initial weights of size one: outer and inner ones of a linear network; value, key and query of attention."""
    return np.random.default_rng([seed, units]).normal(size=(units, 2 * modes + attention))


def near_manifold(rank: int, scale: float, units: int, modes: int, attention: bool, seed: int) -> Weights:
    """Weights of `scale` beside some of size one: a matrix of this rank, or as many heads."""
    rng = np.random.default_rng([seed, units, rank])
    large = rng.normal(size=(rank, 2 * modes + attention))
    large /= np.linalg.norm(large, axis=1, keepdims=True)
    placed = np.eye(units)[:, :rank] if attention else np.linalg.qr(rng.normal(size=(units, rank)))[0]
    return placed @ large + scale * gaussian(units, modes, attention, seed)


def train(starts: Sequence[Start], modes: int, until: float, context: int) -> xr.Dataset:
    """Gradient flow of runs of one architecture together: losses, and when each drop starts, is midway, and ends."""
    attention = starts[0].attention
    width = max(len(start.weights) for start in starts) if attention else 2 * modes
    models = [
        _attention(start.weights, width, modes) if attention else _linear(start.weights, modes) for start in starts
    ]
    losses: dict[float, Any] = {
        kappa: Population(regression(kappa, modes, context))
        if attention
        else FeatureMoments(teacher(kappa, modes).moments())
        for kappa in {start.kappa for start in starts}
    }
    record = Record(points=_RECORDED, spacing="steps", snapshots=2)
    objective = Ensemble.of([losses[start.kappa] for start in starts])
    run = flow(Ensemble.of(models), objective, until=until, rtol=RTOL, record=record, progress=False)
    steps = [plateaus(start.kappa, modes, attention, context) for start in starts]
    times, loss = run["time"].values, run["loss"].values
    return xr.Dataset(
        {
            "loss": (("run", "time"), loss),
            "passed": (("run", "mode", "part"), [passages(times, *each) for each in zip(loss, steps, strict=True)]),
            "plateau": (("run", "level"), steps),
        },
        {"time": times, "mode": range(1, modes + 1), "part": list(PASSES)},
    )


def _linear(weights: Weights, modes: int) -> PolynomialUnits:
    reduced = np.linalg.qr(weights, mode="r")
    reduced = np.vstack([reduced, np.zeros((2 * modes - len(reduced), 2 * modes))])
    return PolynomialUnits(jnp.asarray(reduced[:, :modes, None]), jnp.asarray(reduced[:, modes:]))


def _attention(weights: Weights, width: int, modes: int) -> SeparateAttention:
    """Heads of rank one; those that are added are zero, and stay so."""
    padded = jnp.pad(weights, ((0, width - len(weights)), (0, 0)))
    value = jnp.pad(padded[:, None, :1], ((0, 0), (0, 0), (modes, 0)))
    key = jnp.pad(padded[:, None, 1 : modes + 1], ((0, 0), (0, 0), (0, 1)))
    return SeparateAttention(value, key, padded[:, None, modes + 1 :])


def passages(
    times: Float[np.ndarray, " time"], loss: Float[np.ndarray, " time"], steps: Float[np.ndarray, " level"]
) -> Float[np.ndarray, "drop part"]:
    """When the loss first passes the levels of `PASSES`: 0 if at once, nan if never."""
    falls = np.diff(steps)[:, None]
    wanted = steps[:-1, None] + falls * [-0.1, 0.1, 0.5, 0.9]
    wanted[1:, 0] = wanted[:-1, 3]
    made = np.interp(-wanted, -np.minimum.accumulate(loss), times, right=np.nan)
    return np.where(wanted >= loss[0], 0.0, made)


def plateau_lengths(passed: xr.DataArray) -> xr.DataArray:
    """Of each drop: how long the loss stays on the plateau before it; infinite if it never leaves."""
    return (passed.sel(part="start", drop=True) - passed.sel(part="before", drop=True)).fillna(np.inf)


def plateau_count(passed: xr.DataArray) -> xr.DataArray:
    """How many plateaus are longer than the drops, from 10 % to 90 %, that end them."""
    lasted = passed.sel(part="end", drop=True) - passed.sel(part="start", drop=True)
    return (plateau_lengths(passed) > lasted.fillna(0.0)).sum("mode")


def expected_drops(starts: Sequence[Start], rank: int, modes: int, context: int) -> Float[np.ndarray, "run mode two"]:
    """When modes are learned, by the theory, from starts of one spectrum with this number of units of size one.

    Beside each time is what the next order makes of it, where it is used: nan elsewhere.
    """
    kappa, weights = starts[0].kappa, np.array([start.weights for start in starts])
    if rank >= modes:
        return np.full((len(starts), modes, 2), np.nan)
    if rank and starts[0].attention:
        times = [_next_head(one, rank, kappa, modes) for one in weights]
    elif rank:
        return np.array([_next_mode(one, rank, kappa, modes) for one in weights])
    elif starts[0].attention:
        value, key, query = weights[..., 0], weights[..., 1 : modes + 1], weights[..., modes + 1 :]
        times = drop_schedule(regression(kappa, modes, context), value, key, query, trials=0).times
    else:
        cross = np.diag(strengths(kappa, modes))
        times = [direction_times(cross, one[:, :modes], one[:, modes:]) for one in weights]
    return np.stack([times, np.full_like(times, np.nan)], axis=-1)


def curve_error(start: Start, modes: int, times: Float[np.ndarray, " time"], loss: Float[np.ndarray, " time"]) -> float:
    """The largest difference of the loss of a linear network from that of the Riccati equation, over its beginning."""
    cross, weights = np.diag(strengths(start.kappa, modes)), start.weights
    predicted = riccati_course(cross, weights[:, :modes], weights[:, modes:], times).loss
    return float(np.abs(predicted - loss).max() / loss[0])


def _next_mode(weights: Weights, rank: int, kappa: float, modes: int) -> Float[np.ndarray, "mode two"]:
    r"""When the mode beyond the rank of a linear network is learned: nan for others, and if the units of size one are
    not nearly at rest by half of the time, and at rest by then.

    Weights $\Theta = CB + \delta$, with C of `rank` orthonormal columns. B moves by itself, as a network.
    The part of $\delta$ at right angles to C follows $\dot v = Ru$, $\dot u = R^\top v$ in the error
    $R = S - \sum_i v_iu_i^\top$ that B leaves. The next order: to the loss halfway down, which falls by
    $(2 - \sqrt2)\,s_k^3$ in unit time, B adds what it still has above its end, and the mode after takes
    $2s_{k+1}|m_{k+1}|^2$ off.
    """
    s, size = strengths(kappa, modes), 2 * modes
    left, sizes, right = np.linalg.svd(weights, full_matrices=False)
    frame, large = left[:, :rank], sizes[:rank, None] * right[:rank]

    def error(units: Weights) -> Float[np.ndarray, "output input"]:
        return np.diag(s) - units[:, :modes].T @ units[:, modes:]

    def velocity(_, state: np.ndarray) -> np.ndarray:
        units, moved = state[: rank * size].reshape(rank, size), state[rank * size :].reshape(size, size)
        off = np.zeros((modes, modes))
        field = np.block([[off, error(units)], [error(units).T, off]])
        return np.concatenate([(units @ field).ravel(), (field @ moved).ravel()])

    end = _LONG / s[0]
    begin = np.concatenate([large.ravel(), np.eye(size).ravel()])
    options: dict[str, Any] = {"method": "DOP853", "rtol": 1e-8, "atol": 1e-8, "dense_output": True}
    solved: Any = scipy.integrate.solve_ivp(velocity, (0.0, end), begin, **options)
    others = (weights - frame @ (frame.T @ weights)) @ solved.y[rank * size :, -1].reshape(size, size).T
    rest = np.where(np.arange(modes) < rank, 0.0, s)
    times = end + direction_times(np.diag(rest), others[:, :modes], others[:, modes:])[: modes - rank]
    states = solved.sol(np.clip([times[0] / 2, times[0]], 0.0, end))[: rank * size].T.reshape(2, rank, size)
    half, above = (np.sum(error(units) ** 2) - np.sum(rest**2) for units in states)
    made = np.full((modes, 2), np.nan)
    if half < _NEAR * np.sum(s**2) and above < _REST * np.sum(s**2):
        # At its own time the next mode has (√2 − 1) s, and at this one less by its growth.
        later = s[rank + 1 :][:1]
        taken = np.sum(2 * later**2 * (np.sqrt(2) - 1) * np.exp(2 * later * (times[0] - times[1:2])))
        made[rank] = times[0], (above + taken) / ((2 - np.sqrt(2)) * s[rank] ** 3)
    return made


def _next_head(weights: Weights, rank: int, kappa: float, modes: int) -> Float[np.ndarray, " mode"]:
    """When the first of the small heads, alone in the field that the large ones leave, is infinite; nan for others."""
    s = np.where(np.arange(modes) < rank, 0.0, strengths(kappa, modes))
    value, key, query = weights[rank:, 0], weights[rank:, 1 : modes + 1], weights[rank:, modes + 1 :]
    # In u = (k + q, k - q)/√2 the field is diagonal.
    inner = np.concatenate([key + query, key - query], axis=1) / np.sqrt(2)
    times = np.full(modes + 1, np.nan)
    times[rank] = blow_up_time(np.concatenate([s, -s]), value, inner).min(initial=np.inf)
    return times[:modes]
