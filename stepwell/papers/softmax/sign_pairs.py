r"""Beyond the paper: heads of opposite sign, which positive weights cannot reach, do without the factor e of the flow.

From random weights of either sign they emerge in training, as arXiv 2503.12734 reports (`_sign_pairs_random`). Beyond
that paper are here the saddle that positive weights rest at and for how long, the laws by which the bound is neared,
and how many heads several tasks need.

In the spectral loss two heads (ω, -ω) with (μ, -μ) leave of the kernel $e^x$ only its odd part. As ω falls that is x,
and the loss is that of linear attention. Balanced flow keeps signs; any imbalance, however small, ends this.
"""

from dataclasses import asdict
from typing import Any

import numpy as np
import xarray as xr

from stepwell.figures import Data, Figure
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._search import FLATTEST, least_positive, least_signed
from ._sign_pairs_claims import claims
from ._sign_pairs_drawing import draw
from ._sign_pairs_random import random_eigenvalues, whole_matrices
from ._sign_pairs_settings import OFF_BALANCE, RANDOM_SCALE, SIZES, WHOLE, Settings
from ._sign_pairs_training import balanced, exact_softmax, signed, unbalanced
from ._tokens import sampled_loss, softmax

CAPTION = (
    "Above, softmax attention itself, from Gaussian weights of either sign, as in He, Pan, Chen and Yang "
    "(arXiv 2503.12734): a positive and a negative head emerge, key-query weights are diagonal and of one size, "
    "output-value weights read the label alone and add up to zero, and the loss is that of linear attention on "
    "centered labels (debiased gradient descent). (a) Whole matrices, two heads, d = 5, L = 40, fresh sequences, means "
    "over 100 steps; and eigenvalues alone, d = 10, L = 100. In one run of whole matrices both heads take the same "
    "sign, and it rests at the level of one head. (b) W and U of the first run whose heads have opposite signs, each "
    "in units of its largest entry. (c) Loss with the best readout against the variance a of the scores, for one head "
    "and for a sign pair; lines to leading order, points (softmax attention over sampled sequences) and dashed lines "
    "exact in d and L. Below, beyond that paper, on the surrogate, the spectral loss, unless stated; one task "
    "(d = 10, L = 100, noise of variance 1) but for (f). (d) Two heads. From positive balanced weights (k = q, o = v) "
    "signs are kept, and the flow ends a factor e in variance above the bound. That end is a saddle: from positive "
    "weights slightly off balance (in o and v) the loss rests there for a time that grows as the logarithm of the "
    "imbalance, and then nears the bound: the head that had decayed attends to all tokens alike and subtracts their "
    "mean label; dotted, softmax attention itself. (e) The bound is neared as a power of time, with exponents and "
    "factors known. (f) Least loss that a search finds for three tasks, by number of heads. Time is rate times steps, "
    "for the squared loss."
)


def describe(settings: Settings) -> dict[str, Any]:
    values = asdict(settings)
    dim, context, noise = (values.pop(name) for name in ("dim", "context", "noise"))
    del values["until"], values["signed_until"]
    return {
        "dimension d": dim,
        "context length L": context,
        "noise σ²": noise,
        "heads off balance, o/v = (1+δ)⁻²": list(OFF_BALANCE),
        "random weights": f"Gaussian of deviation {RANDOM_SCALE:g}; times √d for keys and queries of eigenvalues",
        "whole matrices": ", ".join(f"{name} {value:g}" for name, value in WHOLE._asdict().items()),
        **values,
    }


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
    single, pair = [], []
    for size in a:
        omega = np.array([[(size / dim) ** 0.5]])
        single.append(theory.profile_loss(task, omega).loss[0])
        pair.append(theory.sign_pair_loss(task, np.array([size]))[0, 0])
    variance = float(task.noise_factors[0]) * dim / settings.context
    flow_limit = theory.flow_limit(task)
    return xr.Dataset(
        {
            "single": ("a", np.array(single) / signal),
            "single_exact": ("a", np.array([_best_exact(task, size) for size in a]) / signal),
            "pair": ("a", np.array(pair) / signal),
            "linear": ("a", np.full(a.size, variance / (1 + variance))),
            "linear_exact": ("a", np.full(a.size, theory.linear_attention_loss(task)[0] / signal)),
            "flow": theory.flow_limit_loss(task)[0] / signal,
            "flow_exact": theory.exact_loss(task, *map(theory.as_heads, flow_limit))[0] / signal,
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


def _best_exact(task: MultiTaskRegression, size: float) -> float:
    """The exact loss of one head with the best μ: a parabola through three points."""
    omega = np.array([[(size / task.dims[0]) ** 0.5]])
    zero, one, two = (theory.exact_loss(task, omega, np.array([[mu]]))[0] for mu in (0.0, 1.0, 2.0))
    curvature = (two - 2 * one + zero) / 2
    return zero - (one - zero - curvature) ** 2 / (4 * curvature)


def sampled(settings: Settings) -> xr.Dataset:
    """Sign pairs of softmax heads, and linear attention, over drawn contexts."""
    task, dim, context, noise = settings.task, settings.dim, settings.context, settings.noise
    shape = (2, len(settings.seeds), len(SIZES))
    mean, error, limit = np.empty(shape), np.empty(shape), []
    c = 1 / (1 + (dim * float(task.noise_factors[0]) + 1) / context)
    for column, size in enumerate(SIZES):
        omega, mu = (weights[0, 0] for weights in _pair(task, size))
        limit.append(centered_linear_loss(task, 2 * mu * omega))
        kinds = (
            (omega, lambda s, mu=mu: mu * (softmax(s) - softmax(-s))),
            (1.0, lambda s: c / context * s),
        )
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
            free, kept = (search(task, h, settings.starts, rng=rng) for search in (least_signed, least_positive))
            rows[:, row, column] = free.loss / signal, kept.loss / signal
            rounding[row, column] = free.rounding / signal
    # Each task on a contrast of the heads that adds up to zero.
    contrasts = FLATTEST * settings.dim**-0.5 * (np.eye(count + 1)[:, :count] - 1 / (count + 1))
    contrast_loss = theory.spectral_loss(task, contrasts, theory.profile_loss(task, contrasts).mu).sum() / signal
    return xr.Dataset(
        {
            "signed": (("heads", "run"), rows[0]),
            "positive": (("heads", "run"), rows[1]),
            "rounding": (("heads", "run"), rounding),
            "bound": ("heads", [theory.lower_bound(task, h).sum() / signal for h in heads]),
            "partition": ("heads", [theory.best_partition(task, h).loss.sum() / signal for h in heads]),
            "contrast": contrast_loss,
        },
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


FIGURE = Figure(
    title="Beyond the paper: heads of opposite sign turn softmax attention into linear attention",
    caption=CAPTION,
    settings=Settings(),
    quick=Settings(
        seeds=(120,),
        sequences=3000,
        steps=5000,
        exact_steps=1500,
        exact_sequences=200,
        starts=2,
        whole_seeds=(130, 131),
        random_heads=(2,),
        random_sequences=500,
    ),
    described=describe,
    simulate=simulate,
    claims=claims,
    draw=draw,
)
