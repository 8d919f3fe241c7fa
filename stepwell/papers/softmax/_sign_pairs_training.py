"""The trainings of `sign_pairs`: two heads on one task."""

from typing import Any

import jax
import numpy as np
import xarray as xr

from stepwell.analysis import passage_time
from stepwell.dynamics import Ensemble, Record, descend, flow
from stepwell.models import SpectralAttention
from stepwell.objectives import ReducedSampled, Spectral
from stepwell.theory import softmax as theory

from ._sign_pairs_settings import EXACT_OFF_BALANCE, OFF_BALANCE, SPACING, Settings
from ._tokens import sampled_loss, softmax


def _positive(dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two heads, of which the first is well ahead."""
    drawn = np.random.default_rng(seed).uniform(0.5, 1.0, (2, 2, 1)) * np.array([[0.4], [0.15]])
    return drawn[0] * dim**-0.5, drawn[1] * dim**0.5


def balanced(settings: Settings) -> xr.Dataset:
    """Descent from positive balanced weights, which it keeps balanced to the last bit."""
    task = settings.task
    models = [SpectralAttention.balanced(*_positive(settings.dim, seed), task.dims) for seed in settings.seeds]
    steps = np.unique(np.concatenate([[0], np.geomspace(1, settings.steps, 120).astype(int)]))
    run = descend(
        Ensemble.of(models),
        Spectral(task),
        rate=settings.rate,
        steps=settings.steps,
        record=Record(points=steps, snapshots=2),
        progress=False,
    )
    time = settings.rate * run["step"].values
    return xr.Dataset(
        {"loss": (("run", "time"), run["loss"].values / settings.signal)},
        coords={"run": list(settings.seeds), "time": time},
    )


def unbalanced(settings: Settings) -> xr.Dataset:
    r"""Flow from positive weights off balance, $v \to (1+\delta)v$, $o \to o/(1+\delta)$; when the plateau is left.

    A head that has lost has $\dot v = -\kappa o$, $\dot o = -\kappa v$, so that v + o dies and v - o grows, both at the
    rate κ that is half of `losing_head_rate`: the plateau is left after $\ln(1/\delta)/\kappa$ and a constant.
    """
    # Saved evenly, for the passages, and then ever more sparsely. The flow's own time t/τ is twice that of the paper.
    until, task = settings.until, settings.task
    late = np.geomspace(100.0, until, 20) if until > 100 else np.array([until])
    times = np.concatenate([np.arange(0.0, late[0], SPACING), late])
    middle = (theory.flow_limit_loss(task)[0] + theory.lower_bound(task, 2)[0]) / 2
    shape = (len(settings.seeds), len(OFF_BALANCE))
    loss, passed, rate = np.empty((*shape, times.size)), np.empty(shape), []
    objective = Spectral(task)
    for row, seed in enumerate(settings.seeds):
        start = _positive(settings.dim, seed)
        end = theory.spectral_flow(task, *start, np.array([0.0, until])).omega[-1, :, 0]
        rate.append(-theory.losing_head_rate(task, np.array([end.min() / end.max()]))[0] / 2)
        for column, delta in enumerate(OFF_BALANCE):
            run = _flow(SpectralAttention.balanced(*start, task.dims), delta, objective, times)
            loss[row, column] = run["loss"].values[0] / settings.signal
            passed[row, column] = passage_time(times, run["loss"].values[0], middle)
    dims = ("run", "delta")
    return xr.Dataset(
        {
            "loss": ((*dims, "time"), loss),
            "passage": (dims, passed),
            "rate": ("run", rate),
        },
        coords={"run": list(settings.seeds), "delta": list(OFF_BALANCE), "time": times},
    )


def _flow(model: SpectralAttention, delta: float, objective: Spectral, times: np.ndarray) -> xr.Dataset:
    # Tolerances far below the imbalance, or the solver's errors would be one.
    options: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-14, "progress": False}
    return flow(_moved(model, delta), objective, until=2 * times[-1], record=Record(points=2 * times), **options)


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


def signed(settings: Settings) -> xr.Dataset:
    """Flow from weights of which the second head's are negative."""
    task = settings.task
    times = np.concatenate([[0.0], np.geomspace(0.02, settings.signed_until, 120)])
    objective, sign = Spectral(task), np.array([[1.0], [-1.0]])
    runs = []
    for seed in settings.seeds:
        omega, mu = _positive(settings.dim, seed)
        model = SpectralAttention.balanced(sign * omega, sign * mu, task.dims)
        runs.append(_flow(model, 0.0, objective, times))
    return xr.Dataset(
        {"loss": (("run", "time"), [run["loss"].values[0] / settings.signal for run in runs])},
        coords={"run": list(settings.seeds), "time": times},
    )


def exact_softmax(settings: Settings) -> xr.Dataset:
    """Descent on softmax itself, over stored sequences, from positive weights off balance; tested on others."""
    task, dim = settings.task, settings.dim
    starts = [SpectralAttention.balanced(*_positive(settings.dim, seed), task.dims) for seed in settings.seeds]
    models = [_moved(start, EXACT_OFF_BALANCE) for start in starts]
    objective = ReducedSampled(task, settings.exact_sequences, key=jax.random.key(settings.seeds[0]))
    steps = np.unique(np.concatenate([[0], np.geomspace(1, settings.exact_steps, 80).astype(int)]))
    options: dict[str, Any] = {"record": Record(points=steps, snapshots=2), "progress": False}
    run = descend(Ensemble.of(models), objective, rate=settings.rate, steps=settings.exact_steps, **options)
    last = {name: run[name].values[:, -1, :, 0] for name in ("key", "query", "value", "output")}
    omega, mu = last["key"] * last["query"] * dim**-1.5, last["value"] * last["output"]
    tested = [
        sampled_loss(
            np.eye(dim),
            lambda s, heads=heads: np.sum([m * softmax(w * s) for w, m in zip(*heads, strict=True)], axis=0),
            settings.context,
            settings.sequences,
            noise=settings.noise,
            rng=np.random.default_rng([seed, 1]),
        )
        for seed, heads in zip(settings.seeds, zip(omega, mu, strict=True), strict=True)
    ]
    return xr.Dataset(
        {
            "loss": (("run", "time"), run["loss"].values / settings.signal),
            "tested": ("run", [each.mean for each in tested]),
            "tested_error": ("run", [each.error for each in tested]),
            "omega": (("run", "head"), omega),
            "mu": (("run", "head"), mu),
        },
        coords={"run": list(settings.seeds), "time": settings.rate * run["step"].values},
    )
