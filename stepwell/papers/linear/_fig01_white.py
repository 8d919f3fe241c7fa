r"""Fig 1: merged attention on white inputs, against the analytical time course of the paper's eq. 10.

$\sigma(t) = e^{2\sqrt D t/\tau}/[(1 + (1 + D)/N)(e^{2\sqrt D t/\tau} - 1) + \sqrt D/w_{init}^2]$ in $\hat y =
\sigma(t)\,\beta^\top x_q$, for $\Lambda = I$. It is for heads that start aligned; of random ones the part that grows is
aligned, and $w_{init} = \|\mu\|$ is its size (`theory.linear.merged_start`). What does not grow enters σ, the mean of
the diagonal of the map, by its square.
"""

from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.dynamics import Ensemble, Record, flow
from stepwell.models import MergedAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._fig01_settings import DIM, Settings

_AFTER = 4.0
"""A run ends so long after its predicted half drop, in units of τ: twenty e-foldings of the approach."""
_POINTS = 301


def white_runs(settings: Settings) -> xr.Dataset:
    """σ(t) by gradient flow on infinitely many sequences and by eq. 10, from random weights of several sizes.

    `neglected` is the sum of the squares of all initial weights, relative to $\\sigma(\\infty)\\sqrt D$, the square of
    the weights in the end.
    """
    context = settings.context
    task = InContextRegression(np.eye(DIM), context)
    end = 1 / (1 + (1 + DIM) / context)
    rows = []
    for size in settings.white_sizes:
        models = [
            MergedAttention.random(dim=DIM, heads=settings.heads, scale=size, key=jax.random.key(seed))
            for seed in settings.seeds[: settings.white_runs]
        ]
        starts = [theory.merged_start(task, *_blocks(model))[0] for model in models]
        times = np.linspace(0.0, max(theory.white_half_drop_time(task, w) for w in starts) + _AFTER, _POINTS)
        options: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-11 * size, "progress": False}
        run = flow(
            Ensemble.of(models), Population(task), until=float(times[-1]), record=Record(points=times), **options
        )
        value, key_query = run["value"].values[..., 0, DIM], run["key_query"].values[..., :DIM, :]
        measured = np.einsum("rth,rthaa->rt", value, key_query) / DIM
        squares = [sum(float(np.sum(np.square(w))) for w in model.weights().values()) for model in models]
        rows.append(
            xr.Dataset(
                {
                    "clock": ("time", times, {"units": TIME_UNIT}),
                    "measured": (("run", "time"), measured),
                    "predicted": (("run", "time"), np.stack([equation_ten(times, w, context) for w in starts])),
                    "neglected": ("run", np.array(squares) / (end * DIM**0.5)),
                },
                {"run": list(settings.seeds[: settings.white_runs])},
            )
        )
    together = xr.concat(rows, dim="size").assign_coords(size=list(settings.white_sizes))
    return together.assign(end=end)


def equation_ten(times: Float[np.ndarray, " time"], initial_weight: float, context: int) -> Float[np.ndarray, " time"]:
    """σ(t) as the paper has it."""
    grown = np.exp(2 * DIM**0.5 * times)
    return grown / ((1 + (1 + DIM) / context) * (grown - 1) + DIM**0.5 / initial_weight**2)


def _blocks(model: MergedAttention) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(model.value[:, 0, DIM]), np.asarray(model.key_query[:, :DIM])
