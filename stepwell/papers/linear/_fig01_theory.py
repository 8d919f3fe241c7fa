r"""Fig 1: its settings, what the theory expects of its runs, and white inputs against the paper's eq. 10.

No loss that was trained enters the expectations. On white inputs, $\Lambda = I$, eq. 10 has
$\sigma(t) = e^{2\sqrt D t/\tau}/[(1 + (1 + D)/N)(e^{2\sqrt D t/\tau} - 1) + \sqrt D/w_{init}^2]$ in $\hat y =
\sigma(t)\,\beta^\top x_q$. It is for heads that are aligned initially; of random ones the part that grows is
aligned, and $w_{init} = \|\mu\|$ is its size (`theory.linear.merged_start`). What does not grow enters σ, the mean of
the diagonal of the map, by its square.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.dynamics import renormalized
from stepwell.experiments import Experiment
from stepwell.models import MergedAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, published_covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._onset import Growth
from ._runs import Run, flow_at

DIM = 4
STANDARD_ERRORS = 3.0
"""Deviations due to sampling may be so many standard errors."""
ROUNDING = 1e-10
"""Two routes to one number in float64, after thousands of steps."""
WHITE_SOLVER = 1e-8
"""Error of the flow that eq. 10 is compared with: its relative tolerance, 1e-10, at each of up to a hundred steps."""


@dataclass(frozen=True)
class Settings:
    """What can be changed. Seeds 0 to 23 were used while the figure was made; those here judge it."""

    context: int = 31
    heads: int = 8
    init: float = 1e-6
    """Standard deviation of the initial weights in the published convention (no 1/N)."""
    steps: int = 6000
    rate: float = 1e-3
    sequences: int = 5000
    population_time: float = 1000.0
    """Flow time of the run at infinitely many sequences: long enough for the slowest direction to come to rest (see
    `predict`)."""
    seeds: tuple[int, ...] = tuple(range(100, 124))
    record: int = 10
    held_runs: int = 3
    """Of so many seeds a run with label blocks held at zero is made as well."""
    population_runs: int = 3
    """For so many seeds there is a run at infinitely many sequences too: there the seed sets nothing but the
    initialization."""
    white_sizes: tuple[float, ...] = (1e-2, 1e-3, 1e-4)
    """Standard deviations of the initial weights, with 1/N, in the comparison with eq. 10."""
    white_runs: int = 8

    @property
    def experiment(self) -> Experiment:
        """What the command of the published README trains: `python train.py --model attnM --head 8 --init 1e-6`."""
        return Experiment(
            task={"dim": DIM, "context": self.context, "centered": True, "whitened": True},
            model={"kind": "merged", "heads": self.heads, "scale": self.init, "normalization": "none"},
            objective={"kind": "moments", "sequences": self.sequences},
            training={"kind": "descent", "rate": self.rate, "steps": self.steps},
        )


_INDEPENDENT = 20_000
"""Sequences from which the sampling error is estimated; no run is trained on them."""


def predict(runs: Sequence[Run], settings: Settings) -> xr.Dataset:
    r"""The D+1 equations from the initial weights, for infinitely many sequences, with what they leave out.

    - `leftover`: near zero only one direction g of $\sum_h v_h U_h$ grows. The others stay as they are, and add
      $A_\perp = v_\infty \sum_h \hat\mu_h U_{h\perp}$ to the map in the end, $\hat\mu$ the unit vector over the
      growing heads. The loss changes by $2\langle A_\perp, M\Lambda - CA\Lambda\rangle$, at most
      $2\|A_\perp\|\|M\Lambda\|$, since the second factor shrinks as the map grows.
    - `rest`: the fall still to come at the end. Near the minimum
      $\dot a = -(v^2 + uu^\top)\,\mathrm{diag}(\lambda_d c_d)\,\delta a$, so the loss decays at least as fast as
      $e^{-2 v^2 \min(\lambda_d c_d) t}$, with $v^2 = \|a\|$.
    """
    tasks = [_theory_task(run, settings) for run in runs]
    begun, drop_times = [], []
    for task, run in zip(tasks, runs, strict=True):
        begun.append(theory.merged_start(task, *_blocks(run.model, settings)))
        drop_times.append(theory.half_drop_time(task, *begun[-1]))
    # Fine around the drops, where halfway is read off.
    near = [np.arange(-1.0, 1.0, 0.01) + t for t in drop_times]
    times = np.unique(np.concatenate([np.linspace(0.0, settings.population_time, 4001), *near]).round(6))
    times = times[times >= 0]
    rows = []
    for task, run, (value, key_query), drop in zip(tasks, runs, begun, drop_times, strict=True):
        loss = theory.merged_course(task, times, value, key_query).loss
        levels, modes, rate = theory.levels(task), theory.modes(task), theory.merged_escape_rate(task)
        end = float(np.linalg.norm(modes.ends))
        slowest = 2 * end * float(modes.curvature.min())
        fall = float(levels[0] - levels[-1])
        rows.append(
            {
                "loss": ("time", loss),
                "first_level": levels[0],
                "last_level": levels[-1],
                "drop_time": drop,
                "escape_rate": rate,
                "slope_at_drop": float(np.interp(drop, times, -np.gradient(loss, times))),
                "leftover": 2 * end**0.5 * _unspent(task, run.model, settings) * rate,
                "rest": fall * np.exp(-slowest * (times[-1] - drop)),
                "slowest_rate": slowest,
            }
        )
    predictions = xr.concat([xr.Dataset(row, {"time": times}) for row in rows], dim="run")
    predictions["time"].attrs["units"] = TIME_UNIT
    return predictions


def onsets(runs: Sequence[Run], settings: Settings, *, held: bool = False) -> xr.Dataset:
    """When each run's fall begins, by the modes of its own sequences and its initial weights; see `_onset`.

    `infinite_drop`: t/τ of half the drop for infinitely many sequences, by the D+1 equations.
    """
    modes = [Growth.of(run.objective, held=held) for run in runs]
    rows = {
        "step": [growth.onset(_merged(run.model), settings.rate) for growth, run in zip(modes, runs, strict=True)],
        "uncertainty": [growth.uncertainty(settings.rate) for growth in modes],
        "fall": [growth.fall for growth in modes],
        "infinite_drop": [_half_drop(run, settings) for run in runs],
    }
    return xr.Dataset({name: ("run", np.array(row)) for name, row in rows.items()})


def _half_drop(run: Run, settings: Settings) -> float:
    task = _theory_task(run, settings)
    return theory.half_drop_time(task, *theory.merged_start(task, *_blocks(run.model, settings)))


def loss_error(settings: Settings) -> float:
    """Standard error of a mean square over P sequences at the predicted map, from others than any run is trained on."""
    # Losses do not depend on the directions of the eigenvectors.
    covariance = published_covariance(DIM, key=jax.random.key(0))
    task = InContextRegression(covariance, settings.context, centered=True, whitened=True)
    batch = task.sample(_INDEPENDENT, key=jax.random.key(1))
    tokens, labels = np.asarray(batch.tokens), np.asarray(batch.labels)[:, -1, 0]
    beta = np.einsum("sn,snd->sd", tokens[:, :-1, DIM], tokens[:, :-1, :DIM]) / settings.context
    predictions = np.einsum("sa,ab,sb->s", beta, theory.minimizer(task), tokens[:, -1, :DIM])
    return float(((labels - predictions) ** 2).std(ddof=1) / settings.sequences**0.5)


def in_paper_weights(model: MergedAttention, context: int) -> MergedAttention:
    return renormalized(model, "1/N", length=context)


def _theory_task(run: Run, settings: Settings) -> InContextRegression:
    """Without the centering and whitening of each context."""
    assert isinstance(run.task, InContextRegression)
    return InContextRegression(run.task.covariance, settings.context)


def _merged(model) -> MergedAttention:
    assert isinstance(model, MergedAttention)
    return model


def _blocks(model, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """$v_h$ and $U_h$ in the paper's convention."""
    return _paper_blocks(in_paper_weights(_merged(model), settings.context))


def _unspent(task: InContextRegression, model, settings: Settings) -> float:
    r"""$\|\sum_h \hat\mu_h U_{h\perp}\|$, see `predict`."""
    values, key_queries = _blocks(model, settings)
    driving = theory.cross_moment(task) @ task.covariance
    unit = driving / np.linalg.norm(driving)
    along = np.einsum("hab,ab->h", key_queries, unit)
    growing = (values + along) / 2
    across = key_queries - along[:, None, None] * unit
    return float(np.linalg.norm(np.einsum("h,hab->ab", growing / np.linalg.norm(growing), across)))


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
        starts = [theory.merged_start(task, *_paper_blocks(model))[0] for model in models]
        times = np.linspace(0.0, max(theory.white_half_drop_time(task, w) for w in starts) + _AFTER, _POINTS)
        run = flow_at(models, Population(task), times, rtol=1e-10, atol=1e-11 * size)
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


def _paper_blocks(model: MergedAttention) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(model.value[:, 0, DIM]), np.asarray(model.key_query[:, :DIM])
