"""Fig 1: what the theory expects of its runs, and by how much a finite data set may depart from it.

No loss that was trained enters here.
"""

from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr

from stepwell.dynamics import renormalized
from stepwell.models import MergedAttention
from stepwell.tasks import InContextRegression, published_covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._fig01_settings import DIM, Settings
from ._onset import Growth
from ._runs import Run

_INDEPENDENT = 20_000
"""Sequences from which the sampling error is estimated; no run is trained on them."""


def predict(runs: Sequence[Run], settings: Settings) -> xr.Dataset:
    r"""The D+1 equations from the initial weights, for infinitely many sequences, with what they leave out.

    - `leftover`: near zero only one direction g of $\sum_h v_h U_h$ grows. The others keep their start, and add
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
    answers = np.einsum("sa,ab,sb->s", beta, theory.minimizer(task), tokens[:, -1, :DIM])
    return float(((labels - answers) ** 2).std(ddof=1) / settings.sequences**0.5)


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
    converted = in_paper_weights(_merged(model), settings.context)
    return np.asarray(converted.value[:, 0, DIM]), np.asarray(converted.key_query[:, :DIM])


def _unspent(task: InContextRegression, model, settings: Settings) -> float:
    r"""$\|\sum_h \hat\mu_h U_{h\perp}\|$, see `predict`."""
    values, key_queries = _blocks(model, settings)
    driving = theory.cross_moment(task) @ task.covariance
    unit = driving / np.linalg.norm(driving)
    along = np.einsum("hab,ab->h", key_queries, unit)
    growing = (values + along) / 2
    across = key_queries - along[:, None, None] * unit
    return float(np.linalg.norm(np.einsum("h,hab->ab", growing / np.linalg.norm(growing), across)))
