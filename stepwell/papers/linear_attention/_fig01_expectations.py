"""Fig 1: what the theory expects of its runs, and by how much a finite data set may depart from it.

No loss that was trained enters here.
"""

from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr

from stepwell.dynamics import renormalised
from stepwell.models import MergedAttention
from stepwell.tasks import InContextRegression, published_covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT, provenance

from ._fig01_settings import CONTEXT, DIM, NAME, POPULATION_TIME, RATE, SEQUENCES
from ._onset import Growth
from ._runs import Run

_INDEPENDENT = 20_000
"""Sequences from which the sampling error is estimated; no run is trained on them."""


def predict(runs: Sequence[Run], *, context: int = CONTEXT) -> xr.Dataset:
    r"""The D+1 equations from the initial weights, for infinitely many sequences, with what they leave out.

    - `leftover`: near zero only one direction g of $\sum_h v_h U_h$ grows. The others keep their start, and add
      $A_\perp = v_\infty \sum_h \hat\mu_h U_{h\perp}$ to the map in the end, $\hat\mu$ the unit vector over the
      growing heads. The loss changes by $2\langle A_\perp, M\Lambda - CA\Lambda\rangle$, at most
      $2\|A_\perp\|\|M\Lambda\|$, since the second factor shrinks as the map grows.
    - `rest`: the fall still to come at the end. Near the minimum
      $\dot a = -(v^2 + uu^\top)\,\mathrm{diag}(\lambda_d c_d)\,\delta a$, so the loss decays at least as fast as
      $e^{-2 v^2 \min(\lambda_d c_d) t}$, with $v^2 = \|a\|$.
    """
    tasks = [InContextRegression(_regression(run).covariance, context) for run in runs]
    begun, drop_times = [], []
    for task, run in zip(tasks, runs, strict=True):
        begun.append(theory.merged_start(task, *_blocks(run.model)))
        drop_times.append(theory.half_drop_time(task, *begun[-1]))
    # Fine around the drops, where halfway is read off.
    near = [np.arange(-1.0, 1.0, 0.01) + t for t in drop_times]
    times = np.unique(np.concatenate([np.linspace(0.0, POPULATION_TIME, 4001), *near]).round(6))
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
                "leftover": 2 * end**0.5 * _unspent(task, run.model) * rate,
                "rest": fall * np.exp(-slowest * (times[-1] - drop)),
                "slowest_rate": slowest,
            }
        )
    predictions = xr.concat([xr.Dataset(row, {"time": times}) for row in rows], dim="run")
    predictions["time"].attrs["units"] = TIME_UNIT
    return predictions.assign_attrs(provenance({"figure": NAME, "context": context}))


def onsets(runs: Sequence[Run], *, held: bool = False) -> xr.Dataset:
    """When each run's fall begins, by the modes of its own sequences and its initial weights; see `_onset`.

    `infinite_drop`: t/τ of half the drop for infinitely many sequences, by the D+1 equations.
    """
    modes = [Growth.of(run.objective, held=held) for run in runs]
    rows = {
        "step": [growth.onset(_merged(run.model), RATE) for growth, run in zip(modes, runs, strict=True)],
        "uncertainty": [growth.uncertainty(RATE) for growth in modes],
        "fall": [growth.fall for growth in modes],
        "infinite_drop": [_half_drop(run) for run in runs],
    }
    return xr.Dataset({name: ("run", np.array(row)) for name, row in rows.items()}).assign_attrs(
        provenance({"figure": NAME, "label blocks": "held at zero" if held else "free"})
    )


def _half_drop(run: Run) -> float:
    task = InContextRegression(_regression(run).covariance, CONTEXT)
    return theory.half_drop_time(task, *theory.merged_start(task, *_blocks(run.model)))


def loss_error(sequences: int = SEQUENCES) -> float:
    """Standard error of a mean square over P sequences at the predicted map, from others than any run is trained on."""
    # Losses do not depend on the directions of the eigenvectors.
    covariance = published_covariance(DIM, key=jax.random.key(0))
    task = InContextRegression(covariance, CONTEXT, centred=True, whitened=True)
    batch = task.sample(_INDEPENDENT, key=jax.random.key(1))
    tokens, labels = np.asarray(batch.tokens), np.asarray(batch.labels)[:, -1, 0]
    beta = np.einsum("sn,snd->sd", tokens[:, :-1, DIM], tokens[:, :-1, :DIM]) / CONTEXT
    answers = np.einsum("sa,ab,sb->s", beta, theory.minimiser(task), tokens[:, -1, :DIM])
    return float(((labels - answers) ** 2).std(ddof=1) / sequences**0.5)


def in_paper_weights(model: MergedAttention) -> MergedAttention:
    return renormalised(model, "1/N", length=CONTEXT)


def _regression(run: Run) -> InContextRegression:
    assert isinstance(run.task, InContextRegression)
    return run.task


def _merged(model) -> MergedAttention:
    assert isinstance(model, MergedAttention)
    return model


def _blocks(model) -> tuple[np.ndarray, np.ndarray]:
    """$v_h$ and $U_h$ in the paper's convention."""
    converted = in_paper_weights(_merged(model))
    return np.asarray(converted.value[:, 0, DIM]), np.asarray(converted.key_query[:, :DIM])


def _unspent(task: InContextRegression, model) -> float:
    r"""$\|\sum_h \hat\mu_h U_{h\perp}\|$, see `predict`."""
    values, key_queries = _blocks(model)
    driving = theory.cross_moment(task) @ task.covariance
    unit = driving / np.linalg.norm(driving)
    along = np.einsum("hab,ab->h", key_queries, unit)
    growing = (values + along) / 2
    across = key_queries - along[:, None, None] * unit
    return float(np.linalg.norm(np.einsum("h,hab->ab", growing / np.linalg.norm(growing), across)))
