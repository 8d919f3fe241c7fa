r"""Training on contexts of varying length: they are learned as one length, the harmonic mean.

With attention divided by each context's own n, the length enters the moments of $\beta$ through 1/n only, so that a
mixture of lengths is learned as contexts of one length $N_h = 1/\langle 1/n\rangle$: the paper's map (11) and levels
(19) hold with $N_h$ in place of N.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import scipy
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from stepwell.analysis import staircase
from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, VERMILION, new_figure, styled
from stepwell.dynamics import Record, flow
from stepwell.figures import Claim, Data, Figure, Origin, Seeds
from stepwell.models import AbstractAttention, MergedAttention, SeparateAttention
from stepwell.objectives import AbstractObjective, Moments, Population
from stepwell.tasks import ContextLengths, InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import model_at

from ._drawing import lines, note, only_ticks
from ._quadrature import losses_at
from ._runs import described, expected_plateaus, flow_at, labeled, name_level, schedules

GAP = 1e-10  # runs of merged attention end when the loss has closed all but this fraction of its way to the least
RTOL = 1e-8
STANDARD_ERRORS = 3.0


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    eigenvalues: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)
    longest: int = 31
    merged_heads: int = 8
    separate_heads: int = 4
    merged_init: float = 1e-3
    separate_init: float = 1e-4
    seeds: tuple[int, ...] = (60, 61, 62, 63)
    """Of separate attention; the first of them also gives the samples and the initialization of merged attention."""
    samples: int = 12
    sequences: int = 5000
    test_contexts: int = 2000

    @property
    def dim(self) -> int:
        return len(self.eigenvalues)

    @property
    def tested(self) -> tuple[int, ...]:
        """Lengths of test contexts: powers of two, and the longest."""
        return (*(n for n in (2**k for k in range(30)) if n < self.longest), self.longest)

    @cached_property
    def varied(self) -> ContextLengths:
        return ContextLengths.uniform(self.longest)

    def task(self, lengths: int | ContextLengths | None = None) -> InContextRegression:
        """With contexts of all lengths, or of these."""
        return InContextRegression(covariance(self.eigenvalues), self.varied if lengths is None else lengths)


def describe(settings: Settings) -> dict[str, Any]:
    lengths = {"context lengths": f"1 to {settings.longest}, equally likely", "tested lengths": settings.tested}
    return described(settings, initial="Gaussian", **lengths)


def harmonic_mean(lengths: ContextLengths) -> float:
    return 1 / sum(chance / n for n, chance in zip(lengths.counts, lengths.probabilities, strict=True))


def map_at(length: float, eigenvalues: Sequence[float]) -> Float[np.ndarray, "dim dim"]:
    """Equation (11) of the paper, for a length that need not be whole."""
    lam = np.array(eigenvalues)
    return np.diag(1 / (lam + (lam + lam.sum()) / length))


def levels_at(length: float, eigenvalues: Sequence[float]) -> Float[np.ndarray, " level"]:
    """Equation (19) of the paper, for a length that need not be whole."""
    lam = np.sort(eigenvalues)[::-1]
    return lam.sum() - np.cumsum(np.append(0.0, lam / (1 + (1 + lam.sum() / lam) / length)))


def simulate(settings: Settings) -> Data:
    first = settings.seeds[0]
    keys = jax.random.split(jax.random.key(first), 2)
    sizes: dict[str, Any] = {"dim": settings.dim, "heads": settings.merged_heads, "scale": settings.merged_init}
    merged = MergedAttention.random(**sizes, key=keys[0])
    tasks = {"varied": settings.task(), "fixed": settings.task(settings.longest)}
    runs = {name: _run(merged, Population(task)) for name, task in tasks.items()}
    tests = test_losses({name: model_at(run, merged) for name, run in runs.items()}, settings, seed=first)
    return {
        **runs,
        "samples": train_on_samples(merged, settings, keys[1]),
        "separate": train_separate(settings),
        "tests": tests,
        "theory": predict(settings),
    }


def _run(model: AbstractAttention, objective: AbstractObjective) -> xr.Dataset:
    """A flow to convergence. Nearly each has a program of its own, which is compiled faster for LSODA."""
    options: dict[str, Any] = {"gap": GAP, "rtol": RTOL, "progress": False}
    trajectory = flow(model, objective, solver="lsoda", record=Record(points=101), **options)
    maps = eqx.filter_jit(lambda m: m.effective_map()[0, 0])
    return trajectory.assign(final_map=(("row", "column"), np.asarray(maps(model_at(trajectory, model)))))


def train_on_samples(
    merged: MergedAttention, settings: Settings, key, *, lengths: int | ContextLengths | None = None
) -> xr.Dataset:
    """`final_map` of merged attention trained on each of several samples, all lengths of every sequence."""
    maps = []
    options: dict[str, Any] = {"features": "cubic", "progress": False}
    for each in jax.random.split(key, settings.samples):
        sample = Moments.of_task(settings.task(lengths), settings.sequences, **options, key=each)
        maps.append(_run(merged, sample)["final_map"].values)
    return xr.Dataset({"final_map": (("sample", "row", "column"), np.array(maps))})


def train_separate(settings: Settings, *, lengths: int | ContextLengths | None = None) -> xr.Dataset:
    """The flow of each seed at infinitely many sequences: loss, number of drops, and the loss halfway through each
    plateau, where `expected_plateaus` has it."""
    task, dim, heads, init = settings.task(lengths), settings.dim, settings.separate_heads, settings.separate_init
    options: dict[str, Any] = {"dim": dim, "heads": heads, "scale": init}
    models = [SeparateAttention.random(**options, key=jax.random.key(seed)) for seed in settings.seeds]
    drops = schedules(task, models).times
    expected = expected_plateaus(task, drops, init=init, heads=heads)
    near, even = np.outer(drops, np.linspace(0.98, 1.02, 41)), np.geomspace(drops.min() / 5, expected.middle.max(), 400)
    times = np.union1d(even, np.append(near, expected.middle))
    runs = flow_at(models, Population(task), times, rtol=RTOL, atol=1e-4 * init)
    places, dims = np.searchsorted(times, expected.middle), ("run", "plateau")
    return runs[["loss"]].assign(
        drops=("run", [len(staircase(times, each).drops) for each in runs["loss"].values]),
        middle=(dims, expected.middle),
        middle_loss=(dims, losses_at(task, runs, models[0], places)),
        tolerance=(dims, expected.size**2 + 10 * RTOL),
        lasting=(dims, expected.lasting),
    )


def test_losses(models: dict[str, MergedAttention], settings: Settings, *, seed: int) -> xr.Dataset:
    """Losses of trained models in fresh contexts, of which they see n tokens and the next one's input.

    Predictions are linear in the task vector and in the query, so that in each context the average over both is exact
    from the unit vectors: D² sequences. Single ones would have such heavy tails at short lengths that 20,000 of them do
    not tell their standard error.
    """
    errors = eqx.filter_jit(
        lambda model, tokens, labels, n: jax.vmap(lambda each: model(each, n))(tokens)[:, 0] - labels
    )
    rows, dim = {name: [] for name in models}, settings.dim
    for n in settings.tested:
        contexts = _contexts(n, settings.test_contexts, settings.eigenvalues, seed=seed)
        queries = np.diag(np.sqrt(settings.eigenvalues))
        tokens = np.zeros((len(contexts), dim, dim, settings.longest + 1, dim + 1))
        tokens[..., :n, :dim] = contexts[:, None, None]
        tokens[..., :n, dim] = np.swapaxes(contexts, 1, 2)[:, :, None]
        tokens[..., n, :dim] = queries
        labels = np.broadcast_to(queries, tokens.shape[:3]).reshape(-1)
        flat = jnp.asarray(tokens.reshape(-1, *tokens.shape[3:]))
        for name, model in models.items():
            squares = np.asarray(errors(model, flat, jnp.asarray(labels), jnp.asarray(n))) ** 2
            rows[name].append(squares.sum() / len(contexts))
    return xr.Dataset({name: ("length", row) for name, row in rows.items()}, {"length": list(settings.tested)})


def _contexts(n: int, count: int, eigenvalues: Sequence[float], *, seed: int) -> Float[np.ndarray, "context token dim"]:
    return np.random.default_rng((seed, n)).normal(size=(count, n, len(eigenvalues))) * np.sqrt(eigenvalues)


def _test_errors(maps: Float[np.ndarray, "map dim dim"], settings: Settings) -> Float[np.ndarray, "map length"]:
    r"""Standard errors of `test_losses` for each map and length, from contexts of their own.

    In a context of covariance $\hat\Lambda$ the loss is $\mathrm{tr}(B^\top B\Lambda)$, $B = \hat\Lambda A - I$.
    """
    spreads = []
    for n in settings.tested:
        x = _contexts(n, 20000, settings.eigenvalues, seed=98)
        apart = (np.swapaxes(x, 1, 2) @ x / n) @ maps[:, None] - np.eye(settings.dim)
        spreads.append(np.sum(apart**2 * np.array(settings.eigenvalues), axis=(2, 3)).std(axis=1))
    return np.stack(spreads, axis=1) / settings.test_contexts**0.5


def predict(settings: Settings, *, length: float | None = None) -> xr.Dataset:
    r"""Levels, maps and losses at each length, for training as if at one length; by default the harmonic mean.

    - `map_error`: a loss that is $\epsilon$ above the least has a map within $(\epsilon/\min\text{eig}(C)\min
      \text{eig}(\Lambda))^{1/2}$ of the minimizer.
    - A sample of P sequences moves the minimizer by $\delta = H^{-1}\langle e\phi\rangle$, $H = C\otimes\Lambda$, and
      the length that fits it best by $a^\top H\delta/a^\top Ha$, a the derivative of the map in the length.
      `length_error` is the standard deviation of that, by the covariance of $e\phi$ over sequences of their own.
    """
    spectrum, longest = settings.eigenvalues, settings.longest
    length = harmonic_mean(settings.varied) if length is None else length
    best, long = map_at(length, spectrum), map_at(longest, spectrum)
    every = np.arange(1, longest + 1)
    single = [settings.task(int(n)) for n in every]
    metric = np.kron(theory.moments(settings.task()).second, settings.task().covariance)
    spread = _score_covariance(best, settings) / settings.sequences
    lam = np.array(spectrum)
    slope = (best**2 * np.diag(lam + lam.sum()) / length**2).ravel()  # of the map, in the length
    levels = levels_at(length, spectrum)
    least = float(np.linalg.eigvalsh(metric).min())
    errors = _test_errors(np.array([best, long]), settings)
    return xr.Dataset(
        {
            "effective_length": length,
            "levels": ("level", levels),
            "fixed_levels": ("level", levels_at(longest, spectrum)),
            "minimizer": (("row", "column"), best),
            "fixed_minimizer": (("row", "column"), long),
            "map_error": (GAP * (levels[0] - levels[-1]) / least) ** 0.5,
            "loss_at_length": ("every", [theory.loss_at(task, best) for task in single]),
            "fixed_loss_at_length": ("every", [theory.loss_at(task, long) for task in single]),
            "least_at_length": ("every", [theory.minimal_loss(task) for task in single]),
            "test_error": ("length", errors[0]),
            "fixed_test_error": ("length", errors[1]),
            "length_error": (slope @ spread @ slope) ** 0.5 / (slope @ metric @ slope),
        },
        {"every": every, "length": list(settings.tested)},
    )


def fitted_length(trained: Float[np.ndarray, "dim dim"], settings: Settings) -> float:
    """The one length whose map predicts most like a trained one, over contexts of all lengths."""
    varied = settings.task()
    best = scipy.optimize.minimize_scalar(
        lambda log: theory.prediction_distance(varied, map_at(np.exp(log), settings.eigenvalues), trained) ** 2,
        bounds=(np.log(0.5), np.log(200.0)),
        method="bounded",
    )
    return float(np.exp(best.x))


def _score_covariance(best: np.ndarray, settings: Settings) -> np.ndarray:
    r"""Covariance over sequences of $\langle e_n \beta_n x_n^\top\rangle_n$, on sequences that nothing is trained on.

    Contexts of length 1 give it heavy tails, so there are many.
    """
    longest, dim = settings.longest, settings.dim
    batch = settings.task().sample(40000, key=jax.random.key(99))
    tokens, labels = np.asarray(batch.tokens), np.asarray(batch.labels)[:, 1:, 0]
    x, y, query = tokens[:, :longest, :dim], tokens[:, :longest, dim], tokens[:, 1:, :dim]
    beta = np.cumsum(y[..., None] * x, axis=1) / np.arange(1, longest + 1)[:, None]
    errors = labels - np.sum(beta @ best * query, axis=2)
    scores = (np.swapaxes(beta, 1, 2) @ (errors[..., None] * query) / longest).reshape(len(tokens), -1)
    return scores.T @ scores / len(scores)


def claims(data: Data, settings: Settings) -> list[Claim]:
    predicted, tests, separate = data["theory"], data["tests"], data["separate"]
    lasting = separate["lasting"].values.astype(bool)
    levels = predicted["levels"].values[: lasting.shape[1]]
    harmonic, geometric, arithmetic = _means(settings).values()
    clear, trained = lasting.all(axis=1), data["samples"]["final_map"].values
    source = "stepwell.theory.linear.mean_inverse_length"
    explored, places = Origin("theory", source, explored=True), np.array(settings.tested) - 1
    losses = (("varied", "varying lengths", ""), ("fixed", f"length {settings.longest}", "fixed_"))
    return [
        Origin("check", source).at_most(
            "map",
            "At infinitely many sequences, merged attention ends at the map (11) for one length, the harmonic mean: "
            "distance of the maps (both by the moments (15); trained on samples: harmonic-mean)",
            measured=np.linalg.norm(data["varied"]["final_map"].values - predicted["minimizer"].values),
            tolerance=float(predicted["map_error"]),
            basis="where the run is ended, over the least curvature",
        ),
        explored.close(
            "harmonic-mean",
            "Trained on samples of sequences of all lengths, merged attention learns the map (11) for one length, the "
            f"harmonic mean {harmonic:.2f} (the geometric mean is {geometric:.1f}, the mean {arithmetic:g}): length "
            "that fits the map best, for each sample",
            predicted=float(predicted["effective_length"]),
            measured=labeled([fitted_length(each, settings) for each in trained], sample=range(1, len(trained) + 1)),
            tolerance=STANDARD_ERRORS * float(predicted["length_error"]),
            basis="3 standard errors of the length, the covariance of scores from sequences of their own",
            counted="samples",
        ),
        explored.close(
            "drops",
            "At infinitely many sequences, the loss of separate attention drops D times: number of drops in each of "
            f"the {clear.sum()} of {clear.size} seeds whose plateaus are all predicted to last",
            predicted=min(settings.dim, settings.separate_heads),
            measured=labeled(separate["drops"], clear, seed=settings.seeds),
            basis="a count; a plateau is 4 times slower than the falls beside it",
        ),
        explored.close(
            "levels",
            "At infinitely many sequences, plateau m of separate attention is at the level (19) of one length, the "
            f"harmonic mean: loss halfway through each plateau ({lasting.sum()} of {lasting.size} are predicted to "
            f"last)",
            predicted=np.broadcast_to(levels, lasting.shape)[lasting],
            measured=labeled(separate["middle_loss"], lasting, seed=settings.seeds, plateau=range(lasting.shape[1])),
            tolerance=separate["tolerance"].values[lasting],
            basis="square of the size that the next head is predicted to have; its map is the cube; solver",
            counted="plateaus",
        ),
        *(
            Origin("theory", "stepwell.theory.linear.loss_at").close(
                f"{name}-at-length",
                f"Trained on {words}, the loss in fresh contexts of a single length is the theory's: loss, one for "
                f"each of the lengths {settings.tested}",
                predicted=predicted[f"{prefix}loss_at_length"].values[places],
                measured=tests[name],
                tolerance=STANDARD_ERRORS * predicted[f"{prefix}test_error"].values,
                basis="3 standard errors, the errors from contexts of their own",
                counted="lengths",
            )
            for name, words, prefix in losses
        ),
    ]


def _means(settings: Settings) -> dict[str, float]:
    every = np.arange(1, settings.longest + 1)
    return {
        "harmonic mean": harmonic_mean(settings.varied),
        "geometric mean": float(np.exp(np.log(every).mean())),
        "mean": float(every.mean()),
    }


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(13.2, 4.5)
        course, fitted, lengths = figure.subplots(1, 3, width_ratios=(5, 3, 5))
        _draw_course(course, data["separate"], data["theory"], settings)
        _draw_fitted(fitted, data["samples"], data["theory"], settings)
        _draw_lengths(lengths, data, settings)
    return figure


def _draw_course(axes: Axes, separate: xr.Dataset, predicted: xr.Dataset, settings: Settings) -> None:
    labels = [
        f"level of length {settings.longest}",
        f"level of the harmonic mean, {harmonic_mean(settings.varied):.1f}",
    ]
    for level, other in zip(predicted["levels"].values, predicted["fixed_levels"].values, strict=True):
        axes.axhline(other, color=GRAY, linestyle=":", linewidth=1.2, label=labels[0])
        axes.axhline(level, color=BLACK, linestyle="--", linewidth=1.0, label=labels[1])
        name_level(axes, f"{level:.3f}", level, (4, 0))
        labels = [None, None]
    style: Any = {"color": BLUE, "linewidth": 1.2, "label": "separate attention, one line a seed"}
    lines(axes, separate["time"], separate["loss"].values, **style)
    axes.set(xscale="log", ylim=(0, 1.32 * float(predicted["levels"][0])), xlabel="training time $t/\\tau$")
    axes.set(ylabel="loss averaged over lengths", title="(a) Down the levels of one length")
    axes.legend(loc="upper right", fontsize=8)


def _draw_fitted(axes: Axes, samples: xr.Dataset, predicted: xr.Dataset, settings: Settings) -> None:
    fitted = [fitted_length(each, settings) for each in samples["final_map"].values]
    error = STANDARD_ERRORS * float(predicted["length_error"])
    axes.errorbar(np.arange(1, len(fitted) + 1), fitted, error, fmt="o", color=BLUE, markersize=4, linewidth=1)
    for name, value in _means(settings).items():
        axes.axhline(value, color=BLACK, linestyle="--", linewidth=1.0)
        # Clear of the error bars.
        above = 1.4 * error if abs(value - np.mean(fitted)) < error else 0.0
        note(axes, f"{name}, {value:.1f}", (0.4, value + above), (0, 4), fontsize=8.5)
    axes.set(xlim=(0, len(fitted) + 1), xticks=range(1, len(fitted) + 1, 1 if len(fitted) < 5 else 3))
    axes.set(ylim=(0, settings.longest / 2 + 2.5), xlabel="sample", ylabel="length that fits the trained map")
    axes.set(title="(b) Which length is learned")


def _draw_lengths(axes: Axes, data: Data, settings: Settings) -> None:
    predicted, tests = data["theory"], data["tests"]
    every, longest, tested = predicted["every"].values, settings.longest, settings.tested
    trained = data["samples"]["final_map"].values[0]
    at_length = [theory.loss_at(settings.task(n), trained) for n in tested]
    axes.plot(every, predicted["fixed_loss_at_length"], color=VERMILION, label=f"trained at length {longest}, theory")
    axes.plot(every, predicted["loss_at_length"], color=BLUE, label=f"trained on lengths 1 to {longest}, theory")
    axes.plot(every, predicted["least_at_length"], ":", color=GRAY, label="trained at that length, theory")
    for name, prefix, color in (("fixed", "fixed_", VERMILION), ("varied", "", BLUE)):
        label = "trained, in fresh contexts (3 s.e.)" if name == "varied" else None
        error = STANDARD_ERRORS * predicted[f"{prefix}test_error"]
        axes.errorbar(tests["length"], tests[name], error, fmt="o", color=color, markersize=4.5, label=label)
    axes.plot(tested, at_length, "x", color=GREEN, markersize=8, label="trained on a sample")
    axes.set(xscale="log", ylim=(0, None), title="(c) One map, tested at each length")
    only_ticks(axes, tested)
    axes.set(xlabel="context length at test, tokens", ylabel="loss (mean squared error)")
    axes.legend(loc="upper right", fontsize=8)


FIGURE = Figure(
    title="Contexts of varying length are learned as one length, the harmonic mean",
    caption=(
        "Linear attention trained on context lengths 1 to 31, equally likely, each sum divided by its own length. The "
        "theory is ours: the paper's, with one length, the harmonic mean 7.7. (a) With separate key and query, "
        "gradient flow at infinitely many sequences (a line for each seed) goes down the levels of that one length "
        "(dashed; dotted, those of length 31). (b) Merged attention trained on samples of sequences: the one length "
        "that fits the trained map best, a point for each sample, with three standard errors, and three means of the "
        "lengths. (c) The loss at each single length. Lines: theory, for the map of the harmonic mean and for that of "
        "length 31. Dots: merged attention trained at infinitely many sequences, tested in fresh contexts. Crosses: "
        "trained on a sample, its loss at that length in closed form. A model trained at one long length gives "
        "predictions that are too large where the context is short."
    ),
    settings=Settings(),
    quick=Settings(seeds=(60,), samples=4, sequences=2000, test_contexts=500),
    described=describe,
    seeds=Seeds(explored="0 to 3"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
