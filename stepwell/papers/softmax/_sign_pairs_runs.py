"""The simulations of `sign_pairs`."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from stepwell.analysis import passage_time
from stepwell.dynamics import Ensemble, Record, flow, online
from stepwell.figures import Data
from stepwell.models import MultiHeadAttention, SpectralAttention
from stepwell.objectives import ReducedSampled, Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._common import over, sparser_steps
from ._eigenvalues import (
    FLATTEST,
    best_readout_loss,
    descent,
    least_positive,
    least_signed,
    linear_loss,
    off_balance,
    sampled_loss,
    softmax,
    softmax_losses,
)

SIZES = (0.02, 0.1, 0.5, 1.0)
"""Variances a at which softmax itself is sampled."""
OFF_BALANCE = (1e-3, 1e-5, 1e-7)
EXACT_OFF_BALANCE = 0.1
SPACING = 0.1
"""Of the saved times, in which a passage is interpolated."""
RANDOM_SCALE = 0.3
"""Standard deviation of random weights."""


class _Whole(NamedTuple):
    dim: int = 5
    context: int = 40
    noise: float = 0.1
    batch: int = 256
    rate: float = 0.05


WHOLE = _Whole()
"""Of whole matrices."""


@dataclass(frozen=True)
class Settings:
    dim: int = 10
    context: int = 100
    noise: float = 1.0
    until: float = 300.0
    """Where runs off balance, in v and o alone, end."""
    signed_until: float = 2000.0
    seeds: tuple[int, ...] = (120, 121, 122)
    sequences: int = 8000
    rate: float = 0.02
    steps: int = 20_000
    exact_steps: int = 3000
    exact_sequences: int = 500
    searches: int = 3
    whole_seeds: tuple[int, ...] = tuple(range(200, 260))
    whole_steps: int = 2000
    random_heads: tuple[int, ...] = (2, 4)
    random_sequences: int = 1000
    random_steps: int = 6000

    @property
    def signal(self) -> float:
        return float(self.dim)

    @cached_property
    def task(self) -> MultiTaskRegression:
        return MultiTaskRegression((self.dim,), 1.0, self.context, noise_variance=self.noise)


def whole_matrices(settings: Settings) -> xr.Dataset:
    """Two heads from Gaussian weights, on fresh sequences; W and U at the end, and the loss's course.

    `keys` is what of W_X and W_Y is not ±ω I, with one ω for both heads, relative to ω I. `inputs` is U_X, and
    `added` the sum of the two μ, both relative to μ.
    """
    task = MultiTaskRegression((WHOLE.dim,), 1.0, WHOLE.context, noise_variance=WHOLE.noise)
    models = [
        MultiHeadAttention.random(dim=WHOLE.dim, outputs=1, heads=2, scale=RANDOM_SCALE, key=jax.random.key(seed))
        for seed in settings.whole_seeds
    ]
    options: dict[str, Any] = {"record": Record(every=20, snapshots=2), "progress": False, "reduce": "sum"}
    options |= {"batch_size": WHOLE.batch, "rate": WHOLE.rate, "steps": settings.whole_steps}
    run = online(Ensemble.of(models), task, key=jax.random.key(settings.whole_seeds[0]), **options)
    q, k, v, o = (run[name].values[:, -1] for name in ("query", "key", "value", "output"))
    scores, readout = k.swapaxes(-1, -2) @ q * models[0].score_scale, (o @ v)[:, :, 0]
    d, eye = WHOLE.dim, np.eye(WHOLE.dim + 1, WHOLE.dim)
    omega, mu = np.trace(scores[:, :, :d], axis1=2, axis2=3) / d, readout[:, :, d]
    common = np.abs(omega).mean(axis=1)[:, None]
    plain = (np.sign(omega) * common)[..., None, None] * eye
    off = np.linalg.norm(scores - plain, axis=(2, 3)) / (common * d**0.5)
    best = theory.exact_optimum(task)
    inputs, size = np.linalg.norm(readout[:, :, :d], axis=2), np.abs(mu).mean(axis=1)
    return xr.Dataset(
        over("run time", loss=run["loss"].values / WHOLE.dim)
        | over("run head token input", scores=scores)
        | over("run head token", readout=readout)
        | over("run head", omega=omega, mu=mu)
        | over("run", keys=off.max(axis=1), inputs=inputs.max(axis=1) / size, added=np.abs(mu.sum(axis=1)) / size)
        | over("", linear=linear_loss(task) / WHOLE.dim, one_head=best.loss[0] / WHOLE.dim, one_omega=best.omega[0]),
        {"run": list(settings.whole_seeds), "time": WHOLE.rate * run["step"].values},
    )


def random_eigenvalues(settings: Settings) -> xr.Dataset:
    """Several heads from Gaussian weights, on stored sequences; `tested` is the loss over fresh ones."""
    task, root, signal = settings.task, settings.dim**0.5, settings.signal
    rows, steps = [], np.unique(np.linspace(0, settings.random_steps, 121).astype(int))
    for heads in settings.random_heads:
        models = []
        for seed in settings.seeds:
            drawn = np.random.default_rng([seed, heads]).normal(0, RANDOM_SCALE, (4, heads, 1))
            # The root of d eigenvalues moves with each weight of a score: they start as large as those of a readout.
            k, q, v, o = (jax.device_put(w) for w in (drawn[0] * root, drawn[1] * root, drawn[2], drawn[3]))
            models.append(SpectralAttention(k, q, v, o, dims=task.dims))
        key = jax.random.key(settings.seeds[0] + heads)
        objective = ReducedSampled(task, settings.random_sequences, precision="float32", key=key)
        run = descent(models, objective, rate=settings.rate / 2, steps=settings.random_steps, points=steps)
        omega, mu = run.omega[:, -1], run.mu[:, -1]
        tested = softmax_losses(task, omega, mu, settings.random_sequences, key=jax.random.fold_in(key, 1))
        unused = [(0, 0), (0, max(settings.random_heads) - heads)]
        kept = [np.pad(each[..., 0], unused, constant_values=np.nan) for each in (omega, mu)]
        added = np.abs(mu.sum(axis=(1, 2))) / np.abs(mu).sum(axis=(1, 2))
        rows.append((run.loss / signal, *(np.array(tested) / signal), *kept, added))
    loss, mean, error, omega, mu, added = (np.array(column) for column in zip(*rows, strict=True))
    return xr.Dataset(
        over("heads run time", loss=loss)
        | over("heads run", tested=mean, tested_error=error, added=added)
        | over("heads run head", omega=omega, mu=mu)
        | over("", linear=linear_loss(task) / signal),
        {"heads": list(settings.random_heads), "run": list(settings.seeds), "time": settings.rate / 2 * steps},
        {"sequences": settings.random_sequences},
    )


def _positive(dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ of two heads, of which the first is well ahead."""
    drawn = np.random.default_rng(seed).uniform(0.5, 1.0, (2, 2, 1)) * np.array([[0.4], [0.15]])
    return drawn[0] * dim**-0.5, drawn[1] * dim**0.5


def balanced(settings: Settings) -> xr.Dataset:
    """Descent from positive balanced weights, which it keeps balanced to the last bit."""
    task = settings.task
    models = [SpectralAttention.balanced(*_positive(settings.dim, seed), task.dims) for seed in settings.seeds]
    steps = sparser_steps(settings.steps, 120)
    run = descent(models, Spectral(task), rate=settings.rate, steps=settings.steps, points=steps)
    coords = {"run": list(settings.seeds), "time": run.time}
    return xr.Dataset(over("run time", loss=run.loss / settings.signal), coords)


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
    return xr.Dataset(
        {"loss": (("run", "delta", "time"), loss), "passage": (("run", "delta"), passed), "rate": ("run", rate)},
        {"run": list(settings.seeds), "delta": list(OFF_BALANCE), "time": times},
    )


def _flow(model: SpectralAttention, delta: float, objective: Spectral, times: np.ndarray) -> xr.Dataset:
    # Tolerances far below the imbalance, or the solver's errors would add to it.
    options: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-14, "progress": False}
    return flow(off_balance(model, delta), objective, until=2 * times[-1], record=Record(points=2 * times), **options)


def signed(settings: Settings) -> xr.Dataset:
    """Flow from weights of which the second head's are negative."""
    task = settings.task
    times = np.concatenate([[0.0], np.geomspace(0.02, settings.signed_until, 120)])
    objective, sign, loss = Spectral(task), np.array([[1.0], [-1.0]]), []
    for seed in settings.seeds:
        omega, mu = _positive(settings.dim, seed)
        model = SpectralAttention.balanced(sign * omega, sign * mu, task.dims)
        loss.append(_flow(model, 0.0, objective, times)["loss"].values[0] / settings.signal)
    return xr.Dataset({"loss": (("run", "time"), loss)}, {"run": list(settings.seeds), "time": times})


def exact_softmax(settings: Settings) -> xr.Dataset:
    """Descent on softmax itself, over stored sequences, from positive weights off balance; tested on others."""
    task, dim = settings.task, settings.dim
    models = [
        off_balance(SpectralAttention.balanced(*_positive(dim, seed), task.dims), EXACT_OFF_BALANCE)
        for seed in settings.seeds
    ]
    objective = ReducedSampled(task, settings.exact_sequences, key=jax.random.key(settings.seeds[0]))
    steps = sparser_steps(settings.exact_steps, 80)
    run = descent(models, objective, rate=settings.rate, steps=settings.exact_steps, points=steps)
    omega, mu = run.omega[:, -1, :, 0], run.mu[:, -1, :, 0]
    tested, drawn = [], (settings.context, settings.sequences)
    for seed, *heads in zip(settings.seeds, omega, mu, strict=True):
        rng = np.random.default_rng([seed, 1])
        tested.append(sampled_loss(np.eye(dim), partial(_attend, *heads), *drawn, noise=settings.noise, rng=rng))
    mean, error = np.array(tested).T
    return xr.Dataset(
        over("run time", loss=run.loss / settings.signal)
        | over("run", tested=mean, tested_error=error)
        | over("run head", omega=omega, mu=mu),
        {"run": list(settings.seeds), "time": run.time},
    )


def _attend(omega: np.ndarray, mu: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """What heads multiply each token's label by, all together."""
    return np.sum([m * softmax(w * scores) for w, m in zip(omega, mu, strict=True)], axis=0)


def simulate(settings: Settings) -> Data:
    return {
        "curves": curves(settings),
        "sampled": sampled(settings),
        "balanced": balanced(settings),
        "unbalanced": unbalanced(settings),
        "signed": signed(settings),
        "exact": exact_softmax(settings),
        "heads": by_heads(settings),
        "laws": falling_laws(settings),
        "whole": whole_matrices(settings),
        "random": random_eigenvalues(settings),
    }


def curves(settings: Settings) -> xr.Dataset:
    """Losses over the signal, with the best μ, of one head, a sign pair and linear attention."""
    task, dim, signal = settings.task, settings.dim, settings.signal
    a = np.geomspace(0.015, 4, 60)
    omegas = (a / dim)[:, None, None] ** 0.5
    variance = float(task.noise_factors[0]) * dim / settings.context
    flow_limit = theory.flow_limit(task)
    return xr.Dataset(
        {
            "single": ("a", np.array([theory.profile_loss(task, omega).loss[0] for omega in omegas]) / signal),
            "single_exact": ("a", np.array([best_readout_loss(task, omega) for omega in omegas]) / signal),
            "pair": ("a", np.array([theory.sign_pair_loss(task, np.array([size]))[0, 0] for size in a]) / signal),
            "linear": ("a", np.full(a.size, variance / (1 + variance))),
            "linear_exact": ("a", np.full(a.size, theory.linear_attention_loss(task)[0] / signal)),
            "flow": theory.flow_limit_loss(task)[0] / signal,
            "flow_exact": theory.exact_loss(task, *map(np.diag, flow_limit))[0] / signal,
            "best_exact": theory.exact_optimum(task).loss[0] / signal,
            "bound": theory.lower_bound(task, 2)[0] / signal,
        },
        coords={"a": a},
    )


def _pair(task: MultiTaskRegression, size: float) -> tuple[np.ndarray, np.ndarray]:
    r"""ω, μ of a sign pair at $a = d\omega^2$; best is $2\mu\omega = 1/(1+\gamma\sinh(a)/a)$, $\gamma = \phi d/L$."""
    omega = (size / task.dims[0]) ** 0.5 * np.array([[1.0], [-1.0]])
    reached = 1 / (1 + float(task.noise_factors[0]) * task.dims[0] / task.context.longest * np.sinh(size) / size)
    return omega, reached / (2 * omega)


def sampled(settings: Settings) -> xr.Dataset:
    """Sign pairs of softmax heads, and linear attention, over drawn contexts."""
    task, dim, context, noise = settings.task, settings.dim, settings.context, settings.noise
    shape = (2, len(settings.seeds), len(SIZES))
    mean, error, limit = np.empty(shape), np.empty(shape), []
    c = 1 / (1 + (dim * float(task.noise_factors[0]) + 1) / context)
    for column, size in enumerate(SIZES):
        omega, mu = (weights[0, 0] for weights in _pair(task, size))
        limit.append(centered_linear_loss(task, 2 * mu * omega))
        kinds = ((omega, lambda s, mu=mu: mu * (softmax(s) - softmax(-s))), (1.0, lambda s: c / context * s))
        for row, seed in enumerate(settings.seeds):
            rng = np.random.default_rng([seed, column])
            for kind, (scale, attend) in enumerate(kinds):
                estimate = sampled_loss(scale * np.eye(dim), attend, context, settings.sequences, noise=noise, rng=rng)
                mean[kind, row, column], error[kind, row, column] = estimate
    dims = ("kind", "run", "a")
    return xr.Dataset(
        {"mean": (dims, mean), "error": (dims, error), "limit": ("a", limit)},
        coords={"kind": ["pair", "linear"], "run": list(settings.seeds), "a": list(SIZES)},
    )


def centered_linear_loss(task: MultiTaskRegression, reached: float) -> float:
    r"""The loss over the signal of a flat sign pair with $2\mu\omega = c$, exact in d and L.

    $\mu(p^+ - p^-) \to \tfrac{2\mu}L(s - \bar s)$: linear attention on centered scores, whose $\sum_l(x_l-\bar x)
    (x_l-\bar x)^\top$ is a Wishart matrix of L - 1 degrees: $(1-c')^2 + c'^2(d\phi+1)/(L-1)$, $c' = c(L-1)/L$.

    The next term of the softmax, $\tfrac16s^3 - \tfrac12s\,\overline{s^2}$ for centered scores of variance a, is on
    average at right angles to s: its square adds $a^2/6$ of the variance, and the finite context $-4a/L$, each times
    moments of $|q|^2/d$ that are less than 2 for the second and less than 6 for the first.
    """
    dim, context = task.dims[0], task.context.longest
    c = reached * (context - 1) / context
    return float((1 - c) ** 2 + c**2 * (dim * task.noise_factors[0] + 1) / (context - 1))


def by_heads(settings: Settings) -> xr.Dataset:
    """Least losses over the signal for three equal tasks, by number of heads; and a construction with I + 1."""
    count, heads = 3, (1, 2, 3, 4, 5)
    task = MultiTaskRegression((settings.dim,) * count, 1.0, settings.context, noise_variance=settings.noise)
    signal = float(task.signals.sum())
    rows = np.empty((2, len(heads), len(settings.seeds)))
    rounding = np.empty(rows.shape[1:])
    for row, h in enumerate(heads):
        for column, seed in enumerate(settings.seeds):
            rng = np.random.default_rng([seed, h])
            free = least_signed(task, h, settings.searches, rng=rng)
            rows[0, row, column], rounding[row, column] = np.array(free) / signal
            rows[1, row, column] = least_positive(task, h, settings.searches, rng=rng) / signal
    bound = [theory.lower_bound(task, h).sum() / signal for h in heads]
    partition = [theory.best_partition(task, h).loss.sum() / signal for h in heads]
    # Each task on a contrast of the heads that adds up to zero.
    contrasts = FLATTEST * settings.dim**-0.5 * (np.eye(count + 1)[:, :count] - 1 / (count + 1))
    contrast_loss = theory.spectral_loss(task, contrasts, theory.profile_loss(task, contrasts).mu).sum() / signal
    return xr.Dataset(
        over("heads run", signed=rows[0], positive=rows[1], rounding=rounding)
        | over("heads", bound=bound, partition=partition)
        | over("", contrast=contrast_loss),
        coords={"heads": list(heads), "run": list(settings.seeds)},
        attrs={"tasks": count},
    )


def falling_laws(settings: Settings) -> xr.Dataset:
    r"""How two heads near the bound once they are flat, $a = d\omega^2 \ll 1$: heads (ω, -ω), and (ω, 0) off balance.

    Readouts are then at their best, $c = 2\mu\omega$ of a pair and $\mu\omega$ of (ω, 0) with (μ, -μ), and move with
    ω. With γ = φd/L the loss over the signal is γg/(1+γg), g = sinh(a)/a = 1 + a²/6 or (e^a-1)/a = 1 + a/2 to leading
    order. Motion along this valley, with the mobilities of `theory.spectral_velocity`,
    $\dot\omega = -(2s/d)\,\omega\,\partial_\omega L$ and $\dot\mu = -2\mu\,\partial_\mu L$, is

    $\tfrac{d}{dt}\omega^{-5}\,(1 + 2a/(sc)) = \tfrac{20}3 S\gamma d^2/(1+\gamma)$ of a pair, and
    $\tfrac{d}{dt}\omega^{-3}\,(1 + a/(2sc)) = 3S\gamma d/(1+\gamma)$ of (ω, 0), with c = 1/(1+γ).

    So a falls as $t^{-2/5}$ and $t^{-2/3}$, and the loss nears the bound as $t^{-4/5}$ and $t^{-2/3}$. The second terms
    are what ω itself adds to the inertia of the readouts.
    """
    d, signal = settings.dim, settings.signal
    gamma = float(settings.task.noise_factors[0]) * d / settings.context
    scale = d**-0.5 / (1 + gamma)
    rows = {
        "order": (2, 1),
        "factor": (1 / 6, 1 / 2),
        "growth": (20 / 3 * signal * gamma * d**2 / (1 + gamma), 3 * signal * gamma * d / (1 + gamma)),
        "inertia": (2 * d / scale, d / (2 * scale)),
        "power": (2 / 5, 2 / 3),
        "next_order": (2, 1),
    }
    variables = {name: ("kind", np.array(values, float)) for name, values in rows.items()}
    return xr.Dataset({**variables, "gamma": gamma, "unit": float(d)}, {"kind": ["signed", "unbalanced"]})
