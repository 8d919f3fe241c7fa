"""The trainings of `sign_pairs`: two heads on one task."""

from typing import Any

import jax
import numpy as np
import xarray as xr

from stepwell.dynamics import Ensemble, descend, flow
from stepwell.models import SpectralAttention
from stepwell.objectives import ReducedSampled, Spectral
from stepwell.papers._completed import completed
from stepwell.probes import passage_time
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._sign_pairs_settings import (
    CONTEXT,
    DIM,
    EXACT_OFF_BALANCE,
    NOISE,
    OFF_BALANCE,
    SIGNAL,
    SIGNED_UNTIL,
    SPACING,
    UNTIL,
    Settings,
)
from ._tokens import sampled_loss, softmax


def _positive(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two heads, of which the first is well ahead."""
    drawn = np.random.default_rng(seed).uniform(0.5, 1.0, (2, 2, 1)) * np.array([[0.4], [0.15]])
    return drawn[0] * DIM**-0.5, drawn[1] * DIM**0.5


def balanced(task: MultiTaskRegression, chosen: Settings) -> xr.Dataset:
    """Descent from positive balanced weights, which it keeps balanced to the last bit."""
    models = [SpectralAttention.balanced(*_positive(seed), task.dims) for seed in chosen.seeds]
    steps = np.unique(np.concatenate([[0], np.geomspace(1, chosen.steps, 120).astype(int)]))
    run = descend(
        Ensemble.of(models),
        Spectral(task),
        rate=chosen.rate,
        steps=chosen.steps,
        record=steps,
        snapshots=2,
        progress=False,
    )
    time = chosen.rate * completed(run)["step"].values
    return xr.Dataset(
        {"loss": (("run", "time"), run["loss"].values / SIGNAL)}, coords={"run": list(chosen.seeds), "time": time}
    )


def unbalanced(task: MultiTaskRegression, chosen: Settings) -> xr.Dataset:
    r"""Flow from positive weights off balance, $v \to (1+\delta)v$, $o \to o/(1+\delta)$; when the plateau is left.

    A head that has lost has $\dot v = -\kappa o$, $\dot o = -\kappa v$, so that v + o dies and v - o grows, both at the
    rate κ that is half of `losing_head_rate`: the plateau is left after $\ln(1/\delta)/\kappa$ and a constant.
    """
    # Saved evenly, for the passages, and then ever more sparsely. The flow's own time t/τ is twice that of the paper.
    times = np.concatenate([np.arange(0.0, 100.0, SPACING), np.geomspace(100.0, UNTIL, 20)])
    middle = (theory.limits.flow_limit_loss(task)[0] + theory.bounds.lower_bound(task, 2)[0]) / 2
    shape = (len(chosen.seeds), len(OFF_BALANCE))
    loss, passed, rate = np.empty((*shape, times.size)), np.empty(shape), []
    objective = Spectral(task)
    for row, seed in enumerate(chosen.seeds):
        start = _positive(seed)
        end = theory.flow.spectral_flow(task, *start, np.array([0.0, UNTIL])).omega[-1, :, 0]
        rate.append(-theory.flow.losing_head_rate(task, np.array([end.min() / end.max()]))[0] / 2)
        for column, delta in enumerate(OFF_BALANCE):
            run = _flow(SpectralAttention.balanced(*start, task.dims), delta, objective, times)
            loss[row, column] = run["loss"].values[0] / SIGNAL
            passed[row, column] = passage_time(times, run["loss"].values[0], middle)
    dims = ("run", "delta")
    return xr.Dataset(
        {
            "loss": ((*dims, "time"), loss),
            "passage": (dims, passed),
            "rate": ("run", rate),
        },
        coords={"run": list(chosen.seeds), "delta": list(OFF_BALANCE), "time": times},
    )


def _flow(model: SpectralAttention, delta: float, objective: Spectral, times: np.ndarray) -> xr.Dataset:
    # Tolerances far below the imbalance, or the solver's errors would be one.
    options: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-14, "progress": False}
    return completed(flow(_moved(model, delta), objective, until=2 * times[-1], save=2 * times, **options))


def _moved(model: SpectralAttention, delta: float) -> SpectralAttention:
    """Off balance: v becomes (1+δ)v and o becomes o/(1+δ), which leaves μ."""
    value, output = (np.asarray(weight) for weight in (model.value, model.output))
    return SpectralAttention(
        model.key,
        model.query,
        jax.device_put(value * (1 + delta)),
        jax.device_put(output / (1 + delta)),
        dims=model.dims,
        score_scale=model.score_scale,
    )


def signed(task: MultiTaskRegression, chosen: Settings) -> xr.Dataset:
    """Flow from weights of which the second head's are negative."""
    times = np.concatenate([[0.0], np.geomspace(0.02, SIGNED_UNTIL, 120)])
    objective, sign = Spectral(task), np.array([[1.0], [-1.0]])
    runs = []
    for seed in chosen.seeds:
        omega, mu = _positive(seed)
        model = SpectralAttention.balanced(sign * omega, sign * mu, task.dims)
        runs.append(_flow(model, 0.0, objective, times))
    return xr.Dataset(
        {"loss": (("run", "time"), [run["loss"].values[0] / SIGNAL for run in runs])},
        coords={"run": list(chosen.seeds), "time": times},
    )


def exact_softmax(task: MultiTaskRegression, chosen: Settings) -> xr.Dataset:
    """Descent on softmax itself, over stored sequences, from positive weights off balance; tested on others."""
    starts = [SpectralAttention.balanced(*_positive(seed), task.dims) for seed in chosen.seeds]
    models = [_moved(start, EXACT_OFF_BALANCE) for start in starts]
    objective = ReducedSampled(task, chosen.exact_sequences, key=jax.random.key(chosen.seeds[0]))
    steps = np.unique(np.concatenate([[0], np.geomspace(1, chosen.exact_steps, 80).astype(int)]))
    options: dict[str, Any] = {"record": steps, "snapshots": 2, "progress": False}
    run = completed(descend(Ensemble.of(models), objective, rate=chosen.rate, steps=chosen.exact_steps, **options))
    last = {name: run[name].values[:, -1, :, 0] for name in ("key", "query", "value", "output")}
    omega, mu = last["key"] * last["query"] * DIM**-1.5, last["value"] * last["output"]
    tested = [
        sampled_loss(
            np.eye(DIM),
            lambda s, heads=heads: np.sum([m * softmax(w * s) for w, m in zip(*heads, strict=True)], axis=0),
            CONTEXT,
            chosen.sequences,
            noise=NOISE,
            rng=np.random.default_rng([seed, 1]),
        )
        for seed, heads in zip(chosen.seeds, zip(omega, mu, strict=True), strict=True)
    ]
    return xr.Dataset(
        {
            "loss": (("run", "time"), run["loss"].values / SIGNAL),
            "tested": ("run", [each.mean for each in tested]),
            "tested_error": ("run", [each.error for each in tested]),
            "omega": (("run", "head"), omega),
            "mu": (("run", "head"), mu),
        },
        coords={"run": list(chosen.seeds), "time": chosen.rate * run["step"].values},
    )
