r"""How many tokens softmax attends to: exponential growth of the concentration, saturation, hardmax.

$p = \mathrm{softmax}(az)$ over L standard normals has $R = \mathbb E\sum_lp_l^2$. The theory of the flow takes it as
$e^{a^2}/L$, which holds until a single token can rival all others, at $a^2 = \tfrac23\ln L$.
"""

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import matplotlib.figure
import numpy as np
import scipy
import xarray as xr
from numpy.polynomial.hermite_e import hermegauss

from stepwell.analysis.style import BLACK, GRAY, PALETTE, new_figure, styled
from stepwell.dynamics import Record, flow
from stepwell.figures import Claim, Data, Figure, Known, Origin, Seeds
from stepwell.objectives import Exact
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._common import compared, named_settings, note, over, stacked, worst
from ._eigenvalues import eigenvalues, uniform_head

CAPTION = (
    "Ours; a model is trained in (d) alone. Concentration R, the mean of Σp² over softmax weights p of L tokens whose "
    "scores are Gaussian of variance a²: one over R is the number of tokens attended to. The paper's theory, and the "
    "spectral surrogate of softmax attention, take R = e^(a²)/L. (a) R of softmax itself, by quadrature (lines) and by "
    "sampling (points), that law, and the law for large a, 1 - E[max z]/a. (b) R over e^(a²)/L against a² in units of "
    "(2/3) ln L; dashed, if one token rivals the mean of all others. (c) a² at which R has fallen to 0.95, 0.9 and 0.5 "
    "of e^(a²)/L. Gradient flow on the surrogate ends at a² = 1, where the exponential law is 6 % high at L = 100 and "
    "1 % at L = 1000. Most contexts leave it at (1/2) ln L, their mean R later. (d) Softmax attention trained on its "
    "exact loss with noise in the labels, one head on one task (d = 10, L = 100): noise shrinks the readout μ and does "
    "not spread attention, of which the scores ω are the sharpness: they rise by 1 to 3 %. Dashed, the limit of the "
    "surrogate. Triangles: with the readout held where it is best without noise, the best scores do fall with noise."
)

LENGTHS = (20, 50, 100, 300, 1000, 10_000, 100_000, 1_000_000)
RATIOS = (0.95, 0.9, 0.5)
SQUARES = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0, 16.0, 36.0, 100.0, 400.0)
HARD = (60.0, 120.0, 240.0)
"""Sharpness a at which the law of the hardmax is compared."""
NOISES = (0.0, 1.0, 4.0, 16.0)
"""Variances of the label noise, over the signal, with which softmax attention is trained."""
TRAINED = (10, 100)
"""Dimension and context of what is trained with noise."""
SPREADING = Known(
    "the readout μ takes all of the shrinking: to leading order the best ω is d^(-1/2) at any noise, and at finite "
    "size it rises a little with noise; only with the readout held does attention spread (softmax/regimes/noise-held)",
    "noise-and-the-spread-of-attention",
)
UNTIL = 10_000.0
LONG = 1000
"""From this L on the neglected part of the law of one rival token is below a fifth."""
DEVIATIONS = 4.5
"""Standard errors allowed, for the worst of 44 points: outside by chance for one seed in 3,000."""
OTHER_SEED = 1000
"""Of contexts from which the standard errors of all seeds are."""


@dataclass(frozen=True)
class Settings:
    contexts: tuple[int, ...] = (20, 100, 1000, 10_000)
    seeds: tuple[int, ...] = (0, 1, 2)
    tokens: int = 2_000_000
    """Drawn for each L, in as many contexts as that makes, but not more than 20,000."""
    points: int = 160

    @property
    def lengths(self) -> list[int]:
        """Of which it is known where the exponential law ends: the contexts too."""
        return sorted({*LENGTHS, *self.contexts})


def describe(settings: Settings) -> dict[str, Any]:
    return {
        **named_settings(settings),
        "sampled a²": list(SQUARES),
        "trained": f"d = {TRAINED[0]}, L = {TRAINED[1]}",
        "noise over signal": list(NOISES),
    }


def simulate(settings: Settings) -> Data:
    return {
        "curves": curves(settings),
        "sampled": sampled(settings),
        "points": saturation(settings),
        "hard": hardmax(settings.contexts),
        "noisy": trained_with_noise(),
    }


def curves(settings: Settings) -> xr.Dataset:
    """R by quadrature, and the laws of one rival token and of the hardmax."""
    squares, contexts = np.geomspace(0.1, 400, settings.points), settings.contexts
    root = np.sqrt(squares)
    rows = [
        (theory.softmax_moments(root, n).concentration, one_rival(squares, n), theory.hardmax_concentration(root, n))
        for n in contexts
    ]
    exact, rival, hard = np.array(rows).swapaxes(0, 1)
    dims = ("context", "square")
    return xr.Dataset(
        {"exact": (dims, exact), "rival": (dims, rival), "hardmax": (dims, hard)},
        coords={"context": list(contexts), "square": ("square", squares, {"long_name": "variance of the scores"})},
    )


def one_rival(squares: np.ndarray, context: int) -> np.ndarray:
    r"""R over $e^{a^2}/L$ if all tokens but one are replaced by their mean: $\mathbb E(1+e^{ax+\delta})^{-2}$.

    $R = L\,\mathbb E\,e^{2az_1}/Z^2$; the factor $e^{2az_1}$ shifts $z_1$ to 2a + x, x standard normal, where the token
    has $e^{az_1}$ against $Le^{a^2/2}$ of all: $\delta = \tfrac32a^2 - \ln L$. For large a it is
    $\Phi(-(1+\delta)/a)$, so R is halved at $a^2 = \tfrac23(\ln L - 1)$ and, with the rest, a little later.
    """
    nodes, weights = hermegauss(100)
    exponent = np.sqrt(squares)[:, None] * nodes + (1.5 * squares - np.log(context))[:, None]
    return np.exp(-2 * np.logaddexp(0.0, exponent)) @ weights / weights.sum()


def sampled(settings: Settings) -> xr.Dataset:
    r"""R and $m = \mathbb E\sum_lp_lz_l$ over drawn contexts.

    $R = L\,\mathbb E[p_1^2]$ is sampled with $z_1\sim\mathcal N(b, 1)$, weighted by $e^{-bz_1+b^2/2}$, where
    $b = \min(2a, \sqrt{2\ln L})$ is where the tokens are that R is made of. A plain mean would rest on few of them.
    """
    estimates = _over_contexts(settings, {n: np.array(SQUARES) for n in settings.contexts}, stream=0)
    exact = np.array([theory.softmax_moments(np.sqrt(SQUARES), n).concentration for n in settings.contexts])
    return xr.Dataset(
        {k: (("run", "context", "square"), v) for k, v in estimates.items()} | over("context square", exact=exact),
        coords={"run": list(settings.seeds), "context": list(settings.contexts), "square": list(SQUARES)},
    )


def _over_contexts(settings: Settings, squares: dict[int, np.ndarray], *, stream: int) -> dict[str, np.ndarray]:
    """Means (seed, L, a²) for each L at its own a², and their standard errors, from contexts of no seed's."""
    shape = (len(settings.seeds), len(squares), len(next(iter(squares.values()))))
    estimates = {name: np.empty(shape) for name in ("concentration", "concentration_error", "mean", "mean_error")}
    for column, (n, own) in enumerate(squares.items()):
        count = min(20_000, settings.tokens // n)
        for row, seed in enumerate((*settings.seeds, OTHER_SEED)):
            z = np.random.default_rng([seed, n, stream]).standard_normal((count, n))
            for place, square in enumerate(own):
                values = _values(z, float(square) ** 0.5)
                for name, value in zip(("concentration", "mean"), values, strict=True):
                    if seed == OTHER_SEED:
                        estimates[f"{name}_error"][:, column, place] = value.std(ddof=1) / count**0.5
                    else:
                        estimates[name][row, column, place] = value.mean()
    return estimates


def _values(z: np.ndarray, a: float) -> tuple[np.ndarray, np.ndarray]:
    """Of each context, what R and m are the means of."""
    n = z.shape[1]
    top = z.max(axis=1)
    raised = np.exp(a * (z - top[:, None]))
    total = raised.sum(axis=1)
    mean = np.einsum("sn,sn->s", raised, z) / total
    shift = min(2 * a, float(np.sqrt(2 * np.log(n))))
    first = z[:, 0] + shift
    # log of the sum of the other tokens; where the first is nearly all of it, that is the sum without it
    second = z[:, 1:].max(axis=1)
    others = np.log(np.maximum(total - raised[:, 0], np.exp(a * (second - top)))) + a * top
    own = -np.logaddexp(0.0, others - a * first)
    return n * np.exp(2 * own - shift * first + shift**2 / 2), mean


def saturation(settings: Settings) -> xr.Dataset:
    """a² at which R has fallen to a part of e^{a²}/L, and that part as sampled there."""
    lengths = settings.lengths
    squares = {n: np.array([theory.saturation_point(n, ratio) for ratio in RATIOS]) for n in lengths}
    drawn = _over_contexts(settings, {n: squares[n] for n in settings.contexts}, stream=1)
    sampled_ratio, error = np.full((2, len(settings.seeds), len(lengths), len(RATIOS)), np.nan)
    for column, n in enumerate(settings.contexts):
        growth, place = n * np.exp(-squares[n]), lengths.index(n)
        sampled_ratio[:, place] = drawn["concentration"][:, column] * growth
        error[:, place] = drawn["concentration_error"][:, column] * growth
    return xr.Dataset(
        {
            "square": (("context", "ratio"), np.array(list(squares.values()))),
            "sampled": (("run", "context", "ratio"), sampled_ratio),
            "error": (("run", "context", "ratio"), error),
            "annealed": ("context", [theory.thresholds(n).annealed for n in lengths]),
            "typical": ("context", [theory.thresholds(n).typical for n in lengths]),
            "rival": ("context", [one_rival(own[-1:], n)[0] for n, own in squares.items()]),
        },
        coords={"context": lengths, "ratio": list(RATIOS), "run": list(settings.seeds)},
    )


def trained_with_noise() -> xr.Dataset:
    r"""ω√d and μ/√d at the end of the flow of the exact loss from one initialization, for each noise.

    `held` is the ω√d of least exact loss with μ held at what is best without noise, and `held_limit` that of the
    spectral loss, where $(\mu\omega)^{-1} = 1 + \rho e^{d\omega^2-1}$, $\rho = e\phi d/L$: by the derivative in ω.
    """
    dim, context = TRAINED
    rows, readout = [], theory.exact_optimum(_noisy(0.0)).mu[0]
    for noise in NOISES:
        task = _noisy(noise)
        model, limit = uniform_head(task, 0, score_scale=1.0), theory.flow_limit(task)
        run = flow(model, Exact(task, reach=10.0), until=UNTIL, record=Record(points=2), progress=False)
        omega, mu = (float(each[0, -1, 0, 0]) for each in eigenvalues(run, model))
        held, held_limit = _held(task, readout)
        scores, readouts = {"x": omega, "held": held, "held_limit": held_limit}, {"y": mu, "limit": limit.mu[0]}
        scaled = {name: each * dim**0.5 for name, each in scores.items()}
        rows.append(over("", **scaled, **{name: each * dim**-0.5 for name, each in readouts.items()}))
    return stacked(rows, noise=NOISES)


def _noisy(noise: float) -> MultiTaskRegression:
    dim, context = TRAINED
    return MultiTaskRegression((dim,), 1.0, context, noise_variance=noise, convention="total")


def _held(task: MultiTaskRegression, readout: float) -> tuple[float, float]:
    """ω of least exact loss with this μ, and of the least spectral loss."""
    (dim,), rho = task.dims, np.e * float(task.noise_factors[0]) * task.dims[0] / task.context.longest
    mu, most = np.array([[readout]]), 1.5 * dim**-0.5
    best = scipy.optimize.minimize_scalar(
        lambda omega: theory.exact_loss(task, np.array([[omega]]), mu).sum(), bounds=(0.0, most), method="bounded"
    )
    law = scipy.optimize.brentq(lambda omega: readout * omega * (1 + rho * np.exp(dim * omega**2 - 1)) - 1, 0.0, most)
    return float(best.x), float(law)


def hardmax(contexts: tuple[int, ...]) -> xr.Dataset:
    """R for very sharp scores, and the law."""
    sharp = np.array(HARD)
    exact = [theory.softmax_moments(sharp, n).concentration for n in contexts]
    law = [theory.hardmax_concentration(sharp, n) for n in contexts]
    largest = [theory.expected_maximum(n) for n in contexts]
    return xr.Dataset(
        {"exact": (("context", "a"), exact), "law": (("context", "a"), law), "largest": ("context", largest)},
        coords={"context": list(contexts), "a": sharp},
    )


def claims(data: Data, settings: Settings) -> list[Claim]:
    estimates, points, hard = data["sampled"], data["points"], data["hard"]
    root = estimates["square"] ** 0.5
    ends, points = points.sel(context=list(settings.contexts)), points.sel(context=list(LENGTHS))
    ends = ends.rename(ratio="R/(e^(a²)/L) =")  # as labels say it
    half, rival = points["square"].sel(ratio=0.5), points.sel(context=points["context"] >= LONG)
    above = (hard["exact"] - hard["law"]) / (hard["largest"] * np.pi**2 / (12 * hard["a"] ** 3))
    noisy, (dim, context) = data["noisy"], TRAINED
    with np.errstate(invalid="ignore"):  # not a number where it is not above 1
        beyond = np.log(above - 1)
    falls = (beyond.isel(a=-1) - beyond.isel(a=-2)) / np.log(HARD[-1] / HARD[-2])
    first, last = (f"{end(settings.contexts):.4g}".replace("e+0", "e") for end in (min, max))
    return [
        Origin("check", "theory.softmax.softmax_moments (quadrature), against sampling").close(
            "sampled",
            "R sampled agrees with quadrature: R at the point furthest off",
            **worst(estimates["concentration"], estimates["exact"], DEVIATIONS * estimates["concentration_error"]),
            basis=f"{DEVIATIONS:g} standard errors, from other contexts",
        ),
        Origin("theory", "Stein's lemma; R by theory.softmax.softmax_moments").close(
            "stein",
            "The mean of z that is attended to is a(1 - R) (Stein's lemma): at the point furthest off",
            **worst(estimates["mean"], root * (1 - estimates["exact"]), DEVIATIONS * estimates["mean_error"]),
            basis=f"{DEVIATIONS:g} standard errors, from other contexts",
        ),
        Origin("check", "theory.softmax.softmax_moments (quadrature), against sampling").close(
            "points",
            "R has fallen to 0.95, 0.9 and 0.5 of e^(a²)/L where quadrature says: R sampled, at the one furthest off",
            **worst(ends["sampled"], ends["R/(e^(a²)/L) ="], DEVIATIONS * ends["error"]),
            basis=f"{DEVIATIONS:g} standard errors, from other contexts",
        ),
        Origin("theory", "theory.softmax.thresholds").at_most(
            "halved-before",
            "R falls to half of e^(a²)/L before a² = (2/3) ln L, for L from 20 to 1e6: a² where it does",
            **compared(half, points["annealed"]),
            basis="strict",
            counted="lengths",
        ),
        Origin("theory", "docstring of one_rival in papers/softmax/regimes.py").at_least(
            "halved-after",
            "R falls to half of e^(a²)/L after a² = (2/3)(ln L - 1), for L from 20 to 1e6: a² where it does",
            **compared(half, 2 / 3 * (np.log(points["context"].values) - 1)),
            basis="strict; the other tokens' fluctuations add to R",
            counted="lengths",
        ),
        Origin("theory", "docstring of one_rival in papers/softmax/regimes.py").close(
            "rival",
            "Where R is half of e^(a²)/L by quadrature, the law of one rival token gives half too, for L from 1e3 to "
            "1e6: its R over e^(a²)/L",
            **compared(rival["rival"], 0.5, 1.5 * np.expm1(rival["square"].sel(ratio=0.5).values) / rival["context"]),
            basis="neglected: fluctuations of the other tokens, 3(e^(a²)-1)/L of R",
            counted="lengths",
        ),
        Origin("theory", "theory.softmax.hardmax_concentration; Stein's lemma", explored=True).close(
            "hard",
            "Sharp scores attend to the largest: what R has above 1 - E[max z]/a, over E[max z]π²/(12a³), for L from "
            f"{first} to {last} and a = {', '.join(f'{a:g}' for a in HARD)}",
            **compared(above, 1.0, (2 * hard["largest"] / hard["a"])),
            basis="twice E[max z]/a, the next order; E[max z] is also the density of the gap to the second token at 0",
            counted="points",
        ),
        Origin("theory", "theory.softmax.hardmax_concentration, its next order", explored=True).close(
            "hard-next",
            f"What the same ratio differs from 1 by falls as 1/a: exponent from a = {HARD[-2]:g} to {HARD[-1]:g}, for "
            "each L",
            **compared(falls, -1.0, hard["largest"] / HARD[-2]),
            basis="next order in E[max z]/a",
            counted="lengths",
        ),
        Origin("paper", "remark on noise, known from summaries", explored=True).at_most(
            "noise-spread",
            "Softmax attention trained with label noise ends the more spread the more noise there is: ω over that with "
            "the next lower noise, for each noise over the signal",
            **compared(noisy["x"].isel(noise=slice(1, None)) / noisy["x"].values[:-1], 1.0),
            basis="a sign; training goes on until less than 1e-6 is left",
            counted="noises",
            known=SPREADING,
        ),
        Origin("theory", "the derivative of spectral_loss in ω, 1/(μω) = 1 + ρ e^(dω²−1)", explored=True).close(
            "noise-held",
            "With the readout μ held at what is best without noise, the best attention is more spread the more label "
            "noise there is: ω√d of the least exact loss over that of the spectral loss, which falls from "
            f"{noisy['held_limit'].values[0]:.2f} to {noisy['held_limit'].values[-1]:.2f}, for each noise over the "
            "signal",
            **compared(noisy["held"] / noisy["held_limit"], 1.0, 2 / dim + np.e**2 / context),
            basis="next order: the spread of |q|², 2/d, and self-normalization, e²/L",
            counted="noises",
        ),
        Origin("theory", "theory.softmax.flow_limit: noise shrinks μ", explored=True).close(
            "noise-readout",
            "Softmax attention trained with label noise: noise shrinks the readout as 1/(1 + ρ), ρ = eφd/L: μ over "
            "the closed form, for each noise over the signal",
            **compared(noisy["y"] / noisy["limit"], 1.0, 2 / dim + np.e**2 / context),
            basis="next order: the spread of |q|², 2/d, and self-normalization, e²/L",
            counted="noises",
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    curve, estimates, points = data["curves"], data["sampled"], data["points"]
    square, lengths = curve["square"].values, points["context"]
    with styled():
        figure = new_figure(15.6, 4.5)
        left, middle, right, trained = figure.subplots(1, 4)
        for n, color in zip(settings.contexts, cycle(PALETTE), strict=False):
            one, drawn = curve.sel(context=n), estimates.sel(context=n)
            left.plot(square, one["exact"], color=color, label=f"L = {n:,}".replace(",", " "))
            early = np.exp(square) / n < 1.0
            left.plot(square[early], np.exp(square[early]) / n, "--", color=color, linewidth=1.1)
            late = square > 2 * np.log(n)
            left.plot(square[late], one["hardmax"].values[late], ":", color=BLACK, linewidth=1.4)
            left.plot(drawn["square"], drawn["concentration"].mean("run"), "o", color=color, markersize=4)
            unit = theory.thresholds(n).annealed
            middle.plot(square / unit, one["exact"] * n * np.exp(-square), color=color)
            middle.plot(square / unit, one["rival"], "--", color=color, linewidth=1.1)
            ratio = drawn["concentration"].mean("run") * n * np.exp(-drawn["square"])
            middle.plot(drawn["square"] / unit, ratio, "o", color=color, markersize=4)
        for label, style in (("$e^{a^2}/L$", "--"), ("hardmax, $1-E[\\max z]/a$", ":")):
            left.plot([], [], style, color=BLACK, linewidth=1.2, label=label)
        left.plot([], [], "o", color=GRAY, markersize=4, label="sampled")
        left.set(xscale="log", yscale="log", xlim=(0.1, 400), ylim=(8e-5, 1.4), title="(a) From all tokens to one")
        left.set(xlabel="variance of the scores, a²", ylabel="concentration R = E Σp²")
        left.legend(loc="lower right", fontsize=8.5)

        middle.axhline(0.5, color=GRAY, linestyle=":", linewidth=1.0)
        middle.axvline(1.0, color=GRAY, linestyle=":", linewidth=1.0)
        middle.plot([], [], color=BLACK, label="exact; colors as in (a)")
        middle.plot([], [], "--", color=BLACK, linewidth=1.1, label="law of one rival token")
        middle.plot([], [], "o", color=GRAY, markersize=4, label="sampled")
        middle.set(xlim=(0, 2), ylim=(0, 1.05), title="(b) Departure from the exponential law")
        middle.set(xlabel="variance of the scores, a² / ((2/3) ln L)", ylabel="R / ($e^{a^2}/L$)")
        middle.legend(loc="upper right")

        for ratio, marker in zip(RATIOS, "^so", strict=True):
            square, label = points["square"].sel(ratio=ratio), f"R = {ratio:g} of $e^{{a^2}}/L$"
            right.plot(lengths, square, marker, color=BLACK, markersize=5, label=label)
        right.plot(lengths, points["annealed"], color=PALETTE[1], label="(2/3) ln L")
        right.plot(lengths, 2 / 3 * (np.log(lengths) - 1), "--", color=PALETTE[1], label="(2/3)(ln L − 1)")
        right.plot(lengths, points["typical"], ":", color=PALETTE[0], label="(1/2) ln L, most contexts")
        right.axhline(1, color=GRAY, linewidth=1.0)
        note(right, "limit of the flow, a² = 1", (1e6, 1), (0, -4), ha="right", va="top", color="#555555")
        right.set(xscale="log", ylim=(0, 10), title="(c) Where the exponential law ends")
        right.set(xlabel="context length L", ylabel="variance of the scores, a²")
        right.legend(loc="upper left", fontsize=8.5)

        noisy = data["noisy"]
        places = np.arange(noisy.sizes["noise"])
        trained.plot(places, noisy["x"], "o", color=PALETTE[0], label="scores, ω√d")
        trained.plot(places, noisy["y"], "s", color=PALETTE[1], label="readout, μ/√d")
        trained.plot(places, noisy["held"], "^", color=PALETTE[2], label="ω√d, readout held")
        trained.plot(places, noisy["held_limit"], "--", color=PALETTE[2], linewidth=1.1)
        trained.plot(places, np.ones(places.size), "--", color=PALETTE[0], linewidth=1.1)
        trained.plot(places, noisy["limit"], "--", color=PALETTE[1], linewidth=1.1)
        trained.plot([], [], "--", color=BLACK, linewidth=1.1, label="surrogate, the spectral loss")
        trained.set_xticks(places, [f"{noise:g}" for noise in noisy["noise"].values])
        trained.set(ylim=(0, 1.6), title="(d) Trained with noise")
        trained.set(xlabel="variance of the label noise / signal", ylabel="eigenvalue at the end of training")
        trained.legend(loc="upper right", fontsize=8.5)
    return figure


FIGURE = Figure(
    title="The exponential regime of softmax attention, and where it ends",
    caption=CAPTION,
    settings=Settings(),
    quick=Settings(seeds=(0,), tokens=500_000, points=100),
    described=describe,
    seeds=Seeds(explored="other sharpnesses and lengths, for the orders of the hardmax; the same runs with noise"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
