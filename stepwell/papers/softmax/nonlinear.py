r"""Nonlinear targets: what a head trained on linear regression makes of $y = f(u\cdot x)$.

The head keeps $\omega = d^{-1/2}$ and $\mu = \sqrt d/(1+\rho)$. It sees f through $\tilde f(w) = \mathbb Ef(x+w)$, in
which degree k of Hermite's polynomials has the factor $\omega^k$: linear parts are learned, higher ones are noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial
from typing import Any, NamedTuple

import matplotlib.figure
import numpy as np
import xarray as xr
from numpy.polynomial.hermite_e import herme2poly, hermegauss

from stepwell.analysis.style import BLACK, GRAY, PALETTE, new_figure, styled
from stepwell.figures import Claim, Data, Figure, Origin
from stepwell.theory import softmax as theory

from ._common import DEVIATIONS, finish, named_settings, over, worst

CAPTION = (
    "Ours. Loss of softmax attention itself, one head, on targets f(s), s = u·x, that are not linear. Its weights are "
    "not trained here: they are the closed form of where gradient flow on the spectral surrogate ends for linear "
    "regression (L = 1000, label noise 0.1). he_k are normalized Hermite polynomials; all targets but tanh and sin "
    "have power 1. (a) d = 50. Above the dashed line predicting zero would be better: above all for a constant, which "
    "the head multiplies by μ, about √d. (b) The sampled loss over that predicted to first order in 1/L, with two "
    "standard errors. (c) How much of the prediction is along the target, over c = 1/(1+ρ): degree k enters as "
    "d^(-(k-1)/2)."
)

SLOPE_DIMS = (10, 20, 40, 80)
DEGREES = (1, 2, 3)
OTHER_SEED = 1000
"""Of contexts from which the standard errors of all seeds are."""
OTHER_CONTEXTS = 4000
"""Of these for losses, which are skewed: of a thousand the scatter itself is off by a third."""
_AT_ONCE = 250
"""Contexts drawn at a time."""


class Target(NamedTuple):
    """A function of s, by Hermite coefficients where it has few."""

    function: Callable[[np.ndarray], np.ndarray]
    coefficients: tuple[float, ...] | None = None


def hermite(*coefficients: float) -> Target:
    return Target(theory.hermite_target(np.array(coefficients, dtype=float)), coefficients)


TARGETS = {
    "he₁": hermite(0, 1),
    "he₂": hermite(0, 0, 1),
    "he₃": hermite(0, 0, 0, 1),
    ".8 he₁ + .6 he₃": hermite(0, 0.8, 0, 0.6),
    "(he₁ + he₂)/√2": hermite(0, 2**-0.5, 2**-0.5),
    "tanh 2s": Target(lambda s: np.tanh(2 * s)),
    "sin 2s": Target(lambda s: np.sin(2 * s)),
    "1": hermite(1),
}


@dataclass(frozen=True)
class Settings:
    context: int = 1000
    noise: float = 0.1
    dims: tuple[int, ...] = (20, 50, 100)
    seeds: tuple[int, ...] = (0, 1, 2)
    contexts: int = 3000
    slope_contexts: int = 4000


def describe(settings: Settings) -> dict[str, Any]:
    return {**named_settings(settings), "dimensions for the slopes": list(SLOPE_DIMS), "targets": list(TARGETS)}


def simulate(settings: Settings) -> Data:
    return {"losses": losses(settings), "overlaps": overlaps(settings)}


class Predictions(NamedTuple):
    """Of each drawn context: s = u·q, the predictions (target, context), and the variance of their noise."""

    index: np.ndarray
    values: np.ndarray
    noise: np.ndarray


def drawn(
    settings: Settings, dim: int, count: int, targets: dict[str, Target], rng: np.random.Generator
) -> Predictions:
    """The head's predictions. Of a token only its parts along q and u matter, and the noise is integrated out."""
    omega, mu = theory.linear_head(dim, settings.context, settings.noise)
    parts = []
    for begun in range(0, count, _AT_ONCE):
        size = min(_AT_ONCE, count - begun)
        s, rest = rng.standard_normal(size), np.sqrt(rng.chisquare(dim - 1, size))
        length = np.hypot(s, rest)
        along, across = rng.standard_normal((2, size, settings.context))
        p = np.exp(omega * length[:, None] * along)
        p /= p.sum(axis=1, keepdims=True)
        t = (s / length)[:, None] * along + (rest / length)[:, None] * across
        square = t * t
        # Polynomials of degree 3 need three sums, whatever their number.
        moments = [np.ones(size), *(np.einsum("sn,sn->s", p, power) for power in (t, square, square * t))]
        values = [_prediction(one, p, t, moments) for one in targets.values()]
        parts.append((s, mu * np.array(values), mu**2 * settings.noise * np.einsum("sn,sn->s", p, p)))
    return Predictions(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))


def losses(settings: Settings, *, theory_context: int | None = None) -> xr.Dataset:
    """Losses over drawn contexts, with f(q)² and the loss of infinite contexts as control variates; and by theory.

    `theory_context` is the L that theory is given, that of the draws.
    """
    length, noise = theory_context or settings.context, settings.noise
    shape = (len(settings.dims), len(TARGETS))
    mean, error = np.empty((2, len(settings.seeds), *shape))
    first, leading, second = np.empty((3, *shape))
    for row, dim in enumerate(settings.dims):
        head = theory.linear_head(dim, settings.context, settings.noise)
        # Means of e^{3a²} and e^{a²} over the query.
        growth, never = ((1 - 6 / dim) / (1 - 2 / dim)) ** (-dim / 2) if dim > 6 else np.nan, []
        for column, target in enumerate(TARGETS.values()):
            f = target.function
            first[row, column] = theory.nonlinear_loss(f, dim, length, head, noise=noise)
            coefficients = theory.hermite_coefficients(f, 30)
            leading[row, column] = theory.nonlinear_leading_loss(coefficients, dim, length, head, noise=noise)
            never.append(theory.nonlinear_loss(f, dim, 10**12, head, noise=noise))
            second[row, column] = 3 * growth / length * abs(first[row, column] - never[-1])
        for run, seed in enumerate((*settings.seeds, OTHER_SEED)):
            count = OTHER_CONTEXTS if seed == OTHER_SEED else settings.contexts
            contexts = drawn(settings, dim, count, TARGETS, np.random.default_rng([seed, dim]))
            for column, target in enumerate(TARGETS.values()):
                truth = target.function(contexts.index)
                values = (truth - contexts.values[column]) ** 2 + contexts.noise
                for_ever = (truth - head.mu * _smoothed(target, head.omega * contexts.index)) ** 2
                controls = np.stack([truth**2 - _power(target), for_ever - never[column]])
                estimate, scatter = _controlled(values, controls)
                if seed == OTHER_SEED:
                    error[:, row, column] = scatter * (count / settings.contexts) ** 0.5
                else:
                    mean[run, row, column] = estimate
    return xr.Dataset(
        over("run dim target", mean=mean, error=error)
        | over("dim target", first_order=first, leading=leading, second_order=second)
        | over("target", power=[_power(target) for target in TARGETS.values()]),
        coords={"run": list(settings.seeds), "dim": list(settings.dims), "target": list(TARGETS)},
    )


def overlaps(settings: Settings) -> xr.Dataset:
    r"""$\mathbb E[\mathrm{he}_k(u\cdot q)\,\hat y]/c$ for single degrees: $d^{-(k-1)/2}$ but for terms of order 1/L.

    Softmax weights know only the parts z of the tokens along q. Over all else the mean is taken exactly: with
    $\rho = u\cdot q/|q|$, $\mathbb E[\mathrm{he}_k(u\cdot x)|z] = \rho^k\mathrm{he}_k(z)$ (Mehler), and ρ is that of a
    random direction, whatever |q| is.
    """
    shape = (len(settings.seeds), len(DEGREES), len(SLOPE_DIMS))
    mean, error, short, other = np.empty(shape), np.empty(shape), np.empty(shape[1:]), np.empty(shape[1:])
    for column, dim in enumerate(SLOPE_DIMS):
        omega, mu = theory.linear_head(dim, settings.context, settings.noise)
        short[:, column] = [_shortfall(k, dim, omega, settings.context) for k in DEGREES]
        for run, seed in enumerate((*settings.seeds, OTHER_SEED)):
            rng = np.random.default_rng([seed, dim, 1])
            parts = []
            for begun in range(0, settings.slope_contexts, _AT_ONCE):
                size = min(_AT_ONCE, settings.slope_contexts - begun)
                length, z = np.sqrt(rng.chisquare(dim, size)), rng.standard_normal((size, settings.context))
                p = np.exp(omega * length[:, None] * z)
                p /= p.sum(axis=1, keepdims=True)
                averages = [np.einsum("sn,sn->s", p, theory.hermite_target(np.eye(k + 1)[k])(z)) for k in DEGREES]
                parts.append([_along(k, length, dim) * one for k, one in zip(DEGREES, averages, strict=True)])
            values = np.concatenate(parts, axis=1) / omega
            if seed == OTHER_SEED:
                other[:, column] = values.mean(axis=1)
                error[:, :, column] = values.std(axis=1, ddof=1) / values.shape[1] ** 0.5
            else:
                mean[run, :, column] = values.mean(axis=1)
    slope, spread = _slopes(mean, error / other)
    bent = 2 * np.abs(short[:, 0] - short[:, -1]) / np.log(SLOPE_DIMS[-1] / SLOPE_DIMS[0])
    return xr.Dataset(
        over("run degree dim", mean=mean, error=error)
        | over("run degree", slope=slope, slope_error=spread)
        | over("degree", bent=bent),
        coords={"run": list(settings.seeds), "degree": list(DEGREES), "dim": list(SLOPE_DIMS)},
    )


def _along(k: int, length: np.ndarray, dim: int) -> np.ndarray:
    r"""$\mathbb E[\mathrm{he}_k(|q|\rho)\rho^k]$ over a random direction: $\mathbb E\rho^{2j} = (2j-1)!!/(d(d+2)…)$."""
    plain = herme2poly(np.eye(k + 1)[k]) / factorial(k) ** 0.5
    total = np.zeros_like(length)
    for power in range(k % 2, k + 1, 2):
        halves = np.arange((power + k) // 2)
        total += plain[power] * length**power * np.prod((2 * halves + 1) / (dim + 2 * halves))
    return total


def _shortfall(k: int, dim: int, omega: float, context: int) -> float:
    r"""What $\hat y$ lacks of its overlap to order 1/L: $(2^k-1)\,\mathbb E[e^{a^2}s^k\mathrm{He}_k(s)]/(k!\,L)$.

    $e^{a^2}$ makes s wider, of variance $v = 1/(1-2\omega^2)$, and has the mean $v^{d/2}$.
    """
    v = 1 / (1 - 2 * omega**2)
    means = {1: v, 2: (3 * v**2 - v) / 2, 3: (15 * v**3 - 9 * v**2) / 6}
    return (2**k - 1) / context * v ** (dim / 2) * means[k]


def _prediction(target: Target, p: np.ndarray, t: np.ndarray, moments: list[np.ndarray]) -> np.ndarray:
    """Σ p f(t) of each context, from the moments where f is a polynomial."""
    if target.coefficients is None:
        return np.einsum("sn,sn->s", p, target.function(t))
    plain = herme2poly([c / factorial(k) ** 0.5 for k, c in enumerate(target.coefficients)])
    return np.sum([c * moment for c, moment in zip(plain, moments, strict=False)], axis=0)


def _power(target: Target) -> float:
    r"""$\mathbb Ef^2$, by quadrature."""
    return float(theory.hermite_coefficients(lambda s: target.function(s) ** 2, 0)[0])


def _smoothed(target: Target, shift: np.ndarray) -> np.ndarray:
    r"""$\tilde f(w) = \mathbb Ef(x+w)$, by quadrature."""
    nodes, weights = hermegauss(120)
    return target.function(shift[:, None] + nodes) @ weights / weights.sum()


def _controlled(values: np.ndarray, controls: np.ndarray) -> tuple[float, float]:
    """A mean with its standard error, by regression on what has mean zero."""
    moving = controls[np.ptp(controls, axis=1) > 1e-9]
    design = np.column_stack([np.ones(values.size), *moving])
    fitted = np.linalg.lstsq(design, values, rcond=None)[0]
    left = values - design @ fitted
    return float(fitted[0]), float(left.std(ddof=design.shape[1]) / values.size**0.5)


def _slopes(mean: np.ndarray, relative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of log |mean| against log d, by least squares weighted by the relative errors, with the standard error."""
    weights = relative**-2
    x = np.log(SLOPE_DIMS) - (weights * np.log(SLOPE_DIMS)).sum(-1, keepdims=True) / weights.sum(-1, keepdims=True)
    bottom = (weights * x**2).sum(-1)
    return (weights * x * np.log(np.abs(mean))).sum(-1) / bottom, bottom**-0.5


def claims(data: Data, settings: Settings) -> list[Claim]:
    others = data["losses"].sel(target=[name for name in TARGETS if name != "1"])
    of_losses = [
        Origin("theory", "theory.softmax.nonlinear_loss").close(
            f"first-order-dim-{dim}",
            f"d = {dim}: the loss over sampled contexts is that to first order in 1/L, for targets other than a "
            "constant: at the target furthest off",
            **worst(one["mean"], one["first_order"], DEVIATIONS * one["error"] + one["second_order"]),
            unless="" if dim > 6 else "⟨e^(3a²)⟩ is finite from d = 7 on",
            basis=f"{DEVIATIONS:g} standard errors, from other contexts; second order, 3⟨e^(3a²)⟩/(L⟨e^(a²)⟩) of the "
            "part of first order",
        )
        for dim in settings.dims
        for one in [others.sel(dim=dim)]
    ]
    return of_losses + [
        Origin("theory", "theory.softmax.nonlinear_leading_loss, the degrees it neglects").close(
            f"degree-{k}",
            f"Degree {k} enters as d to the power {(1 - k) / 2:g}: slope of the overlap of prediction and target, in "
            "logarithms, from d = 10 to 80",
            **worst(one["slope"], -(k - 1) / 2, DEVIATIONS * one["slope_error"] + one["bent"]),
            basis=f"{DEVIATIONS:g} standard errors, from other contexts; corrections of order 1/L over the range of d",
        )
        for k in DEGREES
        for one in [data["overlaps"].sel(degree=k)]
    ]


def draw(data: Data, settings: Any) -> matplotlib.figure.Figure:
    losses, along = data["losses"], data["overlaps"]
    names = losses["target"].values.tolist()  # the last is the constant, whose loss hardly depends on the sample
    with styled():
        figure = new_figure(13.6, 4.8)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.1, 1.1, 0.9))
        shown = int(losses["dim"][losses.sizes["dim"] // 2])
        one = losses.sel(dim=shown)
        places = np.arange(len(names))
        for name, label, look in (
            ("leading", "leading order in d", {"marker": "_", "color": PALETTE[0], "markersize": 20}),
            ("first_order", "first order in 1/L", {"marker": "x", "color": BLACK, "markersize": 9}),
            ("mean", "sampled contexts", {"marker": "o", "color": PALETTE[1], "markersize": 4.5}),
        ):
            values = one[name].mean("run") if name == "mean" else one[name]
            left.plot(places, values / one["power"], linestyle="", label=label, **look)
        left.axhline(1, color=GRAY, linestyle="--", linewidth=1.0)
        left.text(4, 1.08, "predicting zero", ha="center", color="#555555", fontsize=9)
        left.set(yscale="log", ylim=(0.07, 90), ylabel="loss / power of the target", title=f"(a) Losses, d = {shown}")
        left.legend(loc="upper left")

        for number, dim in enumerate(losses["dim"].values):
            at = losses.sel(dim=dim)
            ratio = at["mean"].mean("run") / at["first_order"]
            error = 2 * np.sqrt((at["error"] ** 2).mean("run") / at.sizes["run"]) / at["first_order"]
            color = PALETTE[number % len(PALETTE)]
            style: dict[str, Any] = {"fmt": "o", "color": color, "markersize": 4.5, "label": f"d = {dim}"}
            middle.errorbar(places[:-1] + 0.2 * (number - 1), ratio[:-1], error[:-1], **style)
        middle.axhline(1, color=GRAY, linewidth=1.0)
        middle.set(ylabel="sampled / first order, ± 2 standard errors", title="(b) Sampled over predicted")
        middle.legend(loc="best")
        left.set_xticks(places, names, rotation=35, ha="right")
        middle.set_xticks(places[:-1], names[:-1], rotation=35, ha="right")

        dims = along["dim"].values
        for k, color in zip(along["degree"].values, PALETTE, strict=False):
            row = along.sel(degree=k)
            error = 2 * np.sqrt((row["error"] ** 2).mean("run") / row.sizes["run"])
            right.errorbar(dims, row["mean"].mean("run"), error, fmt="o", color=color, markersize=5)
            label = f"degree {k}: " + ("1" if k == 1 else f"$d^{{-{(k - 1) / 2:g}}}$")
            right.plot(dims, dims ** (-(k - 1) / 2), color=color, linewidth=1.2, label=label)
        right.set(xscale="log", yscale="log")
        right.set_xticks(dims, [str(d) for d in dims])
        right.minorticks_off()
        finish(right, "(c) How each degree enters", "dimension d", "overlap of prediction and target / c")
        right.legend(loc="lower left")
    return figure


FIGURE = Figure(
    title="Nonlinear targets: the head for linear regression learns the linear part, and is misled by a mean",
    caption=CAPTION,
    settings=Settings(),
    quick=Settings(seeds=(0,), contexts=750, slope_contexts=3000),
    described=describe,
    simulate=simulate,
    claims=claims,
    draw=draw,
)
