r"""On plateau m the model performs in-context PCR with m components, shrunk for short contexts.

The model is trained by gradient flow at infinitely many sequences and tested on fresh sequences. With contexts of 31
tokens its plateaus are detected in the loss curve, and its predictions compared with regression solved by least squares
within each context. From 10 to 10⁵ tokens its map is compared with the paper's, and the difference from plain
regression with 1/N; so is that of merged attention when it has converged, with least squares.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import matplotlib.figure
import numpy as np
import scipy
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from stepwell.analysis import effective_map, pcr_test, staircase
from stepwell.analysis.style import BLACK, GRAY, PALETTE, new_figure, styled
from stepwell.figures import Claim, Data, Figure, Origin, Seeds
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import Batch, InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT, model_at

from . import _runs
from ._drawing import lines
from ._runs import DIM, EIGENVALUES, HEADS

STANDARD_ERRORS = 3.0
RTOL = 1e-8
LAW_FROM = 100  # the power of N is fitted to contexts of at least so many tokens
FACTORS = 5.5**2  # Two Gaussian factors, each within 5.5 standard deviations: one in 10⁷ is not.
CHUNK = 500_000  # tokens held at a time


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    context: int = 31
    seeds: tuple[int, ...] = (30, 31, 32, 33, 34, 35)
    init: float = 1e-4
    held_out: int = 4000  # fresh sequences for each seed
    points: int = 600
    lengths: tuple[int, ...] = (10, 31, 100, 1000, 10_000, 100_000)
    length_seeds: int = 2  # at each length, the first so many seeds
    contexts: int = 2000  # at each length, at the most
    tokens: int = 10_000_000  # at each length, at the most


def simulate(settings: Settings) -> Data:
    task, vectors = prepare(settings.context)
    flows = train(task, settings)
    tests = examine(task, vectors, flows, settings)
    return {"flows": flows[["loss"]], "tests": tests, "lengths": examine_lengths(settings)}


def prepare(context: int) -> tuple[InContextRegression, Float[np.ndarray, "dim component"]]:
    """The task and the eigenvectors of its covariance, in falling order of eigenvalue."""
    task = InContextRegression(covariance(EIGENVALUES, key=jax.random.key(0)), context)
    return task, np.linalg.eigh(task.covariance)[1][:, ::-1]


def train(task: InContextRegression, settings: Settings) -> xr.Dataset:
    """The flow of each seed, saved at common times: even in log time, and finer where drops are to be expected."""
    models = _runs.initial_models(settings.seeds, settings.init)
    drops = _runs.schedules(task, models).times
    even, near = np.geomspace(drops.min() / 5, 2 * drops.max(), settings.points), np.linspace(0.98, 1.02, 21)
    flows = _flows(task, models, np.union1d(even, np.outer(drops, near)), settings)
    lasting = _runs.expected_plateaus(task, drops, init=settings.init, heads=HEADS).lasting
    return flows.assign(lasting=(("run", "plateau"), lasting))


def _flows(task: InContextRegression, models: list[SeparateAttention], times: np.ndarray, settings: Settings):
    flows = _runs.flow_at(models, Population(task), times, rtol=RTOL, atol=1e-4 * settings.init)
    return flows.assign_coords(run=list(settings.seeds[: len(models)]))


def examine(
    task: InContextRegression,
    vectors: Float[np.ndarray, "dim component"],
    flows: xr.Dataset,
    settings: Settings,
    *,
    fresh_from: InContextRegression | None = None,
) -> xr.Dataset:
    """The test in the middle of each plateau, in order of time; nan where a run has not D + 1 of them."""
    seeds, levels, time = settings.seeds, theory.levels(task), flows["time"].values
    dims, names = ("run", "plateau"), ("closest", "margin", "held_out", "recorded")
    times, *table = np.full((1 + len(names), len(seeds), levels.size), np.nan)
    difference = np.full((len(seeds), levels.size, DIM + 1), np.nan)
    plateaus = [staircase(time, loss).plateaus for loss in flows["loss"].values]
    for run, (seed, found) in enumerate(zip(seeds, plateaus, strict=True)):
        batch = (fresh_from or task).sample(settings.held_out, key=jax.random.key(1000 + seed))
        for m, plateau in enumerate(found if len(found) == DIM + 1 else ()):
            place = int(np.argmin(abs(time - (plateau.start + plateau.end) / 2)))
            model = model_at(flows, _template(), run=run, at=time[place])
            test = pcr_test(model, batch, vectors)
            times[run, m], difference[run, m] = time[place], test["difference"]
            squares = (np.asarray(_predictions(model, batch)) - np.asarray(batch.labels)[:, -1, 0]) ** 2
            values = (test["closest"], test["margin"], squares.mean(), flows["loss"][run, place])
            for column, value in zip(table, values, strict=True):
                column[run, m] = value
    return xr.Dataset(
        {
            "time": (dims, times, {"units": TIME_UNIT}),
            **{name: (dims, values) for name, values in zip(names, table, strict=True)},
            "plateaus": ("run", [len(found) for found in plateaus]),
            "difference": ((*dims, "components"), difference),
            "predicted_level": ("plateau", levels),
            "standard_error": ("plateau", _squared_error_spread(task) / settings.held_out**0.5),
            "lasting": flows["lasting"].variable,
        },
        {"run": list(seeds), "plateau": np.arange(levels.size), "components": np.arange(DIM + 1)},
    )


def _template() -> SeparateAttention:
    return SeparateAttention.random(dim=DIM, heads=HEADS, scale=1.0, key=jax.random.key(0))


@eqx.filter_jit
def _predictions(model: SeparateAttention, batch: Batch):
    return jax.vmap(model)(batch.tokens)[:, 0]


def papers_map(task: InContextRegression, m: int) -> Float[np.ndarray, "dim dim"]:
    """Equation (22) of the paper: the map of regression on m components, shrunk for contexts of N tokens."""
    rising, vectors = np.linalg.eigh(task.covariance)
    lam, kept = rising[::-1][:m], vectors[:, ::-1][:, :m]
    return (kept / (lam * (1 + (1 + rising.sum() / lam) / task.context.longest))) @ kept.T


def _squared_error_spread(task: InContextRegression) -> Float[np.ndarray, " plateau"]:
    """Standard deviation of the squared error of equation (22) on each plateau, from sequences of their own."""
    maps = [papers_map(task, m) for m in range(DIM + 1)]
    return _runs.squared_errors(task, maps, 40000, key=jax.random.key(7)).std(axis=1)


def examine_lengths(settings: Settings, *, shrunk: bool = True) -> xr.Dataset:
    """Training at each length, over (length, run, plateau), and the first run's predictions in fresh contexts.

    - `distance` from the map of equation (22), as root mean square difference of predictions; `tolerance`, `lasting`.
    - `answer`: the largest difference of a prediction for a fresh sequence from that of the equation.
    - `from_regression`: mean squared difference from regression within the context, `from_limit`: from that with an
      endless context; both are averaged over task vectors and queries exactly. With `…_predicted` and the relative
      standard error `…_error`.
    - `merged_from_regression`: that of converged merged attention from least squares, m = D.
    - `kept`: the factor of each component at the end of training, and `kept_predicted`.

    Without the shrinkage, `shrunk=False`, the prediction is the limit of long contexts.
    """
    lengths = settings.lengths
    return _runs.along((_examine_length(prepare(length)[0], settings, shrunk) for length in lengths), length=lengths)


def converged_merged(task: InContextRegression, settings: Settings) -> Float[np.ndarray, "dim dim"]:
    """The map of merged attention trained until less than `RTOL` of it is to come, at the slowest rate v² λ_d c_d."""
    options: dict[str, Any] = {"dim": DIM, "heads": HEADS, "scale": settings.init}
    model = MergedAttention.random(**options, key=jax.random.key(1 + settings.seeds[0]))
    modes, start = theory.modes(task), theory.merged_initial(task, *_runs.weights_of(model))
    slowest = float(np.linalg.norm(modes.ends) * modes.curvature.min())
    times = np.array([0.0, theory.half_drop_time(task, *start) - np.log(RTOL) / slowest])
    run = _runs.flow_at(model, Population(task), times, solver="lsoda", rtol=RTOL, atol=1e-4 * settings.init)
    return effective_map(run).values[0, -1]


def _examine_length(task: InContextRegression, settings: Settings, shrunk: bool) -> xr.Dataset:
    length, (_, vectors) = task.context.longest, prepare(task.context.longest)
    gains = theory.components(task).gains
    predicted = {
        "from_regression": [theory.regression_difference(task, m) for m in range(DIM + 1)],
        "from_limit": np.cumsum(np.append(0.0, np.array(EIGENVALUES) - gains)),
    }
    models = _runs.initial_models(settings.seeds[: settings.length_seeds], settings.init)
    expected = _runs.expected_plateaus(task, _runs.schedules(task, models).times, init=settings.init, heads=HEADS)
    times = np.unique(expected.middle)
    flows = _flows(task, models, times, settings)
    place = np.searchsorted(times, expected.middle)
    trained = np.take_along_axis(effective_map(flows).values, place[..., None, None], axis=1)
    wanted = [
        papers_map(task, m) if shrunk else theory.principal_component_regression_map(task, m, endless=True)
        for m in range(DIM + 1)
    ]
    distance = [[theory.prediction_distance(task, a, b) for a, b in zip(row, wanted, strict=True)] for row in trained]

    count = min(settings.contexts, max(2, settings.tokens // length))
    covariances, predictions = [], np.zeros(DIM + 1)
    draw_batch = eqx.filter_jit(task.draw)
    size = min(count, max(1, CHUNK // length))
    for number in range(-(-count // size)):
        batch = draw_batch(size, key=jax.random.fold_in(jax.random.key(2000 + length), number))
        tokens = np.asarray(batch.tokens)
        x, y, query = tokens[:, :length, :DIM], tokens[:, :length, DIM], tokens[:, length, :DIM]
        covariances.append(np.swapaxes(x, 1, 2) @ x / length)
        if number == 0:
            beta = np.einsum("sn,snd->sd", y, x) / length
            for m in range(DIM + 1):
                model = model_at(flows, _template(), run=0, at=flows["time"].values[int(place[0, m])])
                apart = np.asarray(_predictions(model, batch)) - np.sum(beta @ wanted[m] * query, axis=1)
                predictions[m] = np.abs(apart).max()
    measured = context_differences(np.concatenate(covariances), trained[0], vectors)
    with_merged = np.array([*trained[0][:-1], converged_merged(task, settings)])
    merged = context_differences(np.concatenate(covariances), with_merged, vectors)["from_regression"][:, -1]
    # Errors from contexts of their own, drawn by their covariance.
    other = scipy.stats.wishart(length, task.covariance / length).rvs(
        settings.contexts, random_state=np.random.default_rng(length)
    )
    others = context_differences(other.reshape(-1, DIM, DIM), np.array(wanted), vectors)
    dims, runs = ("run", "plateau"), list(settings.seeds[: settings.length_seeds])
    kept, wanted_kept = (EIGENVALUES * np.diag(vectors.T @ each @ vectors) for each in (trained[0, -1], wanted[-1]))
    columns: dict[str, Any] = {
        "distance": (dims, distance),
        "tolerance": (dims, expected.size**2 + 10 * RTOL),
        "lasting": (dims, expected.lasting),
        "answer": ("plateau", predictions),
        "merged_from_regression": merged.mean(),
        "kept": ("component", kept),
        "kept_predicted": ("component", wanted_kept),
    }
    for name, values in measured.items():
        spread = others[name].std(axis=0) / np.where(np.arange(DIM + 1) > 0, others[name].mean(axis=0), 1.0)
        columns[name] = ("plateau", values.mean(axis=0))
        columns[f"{name}_predicted"] = ("plateau", np.asarray(predicted[name]))
        columns[f"{name}_error"] = ("plateau", spread / len(values) ** 0.5)
    return xr.Dataset(columns, {"run": runs})


def context_differences(
    covariances: Float[np.ndarray, "context dim dim"],
    maps: Float[np.ndarray, "plateau dim dim"],
    vectors: Float[np.ndarray, "dim component"],
) -> dict[str, Float[np.ndarray, "context plateau"]]:
    r"""Mean squared differences of predictions in contexts with the given covariances $\hat\Lambda$, for each plateau
    m.

    The prediction of attention is $w^\top\hat\Lambda A x_q$, that of least squares on the first m components
    $w^\top\hat\Lambda E_m(E_m^\top\hat\Lambda E_m)^{-1}E_m^\top x_q$, and $w^\top E_m E_m^\top x_q$ if the context is
    endless. Over task vectors and queries, the mean square of $w^\top B x_q$ is $\mathrm{tr}(B^\top B\Lambda)$.
    """
    lam = np.array(EIGENVALUES)
    from_regression, from_limit = [], []
    for m, own in enumerate(maps):
        kept = vectors[:, :m]
        attention = covariances @ own
        limit = kept @ kept.T
        regression = np.zeros_like(attention)
        if m:
            regression = covariances @ kept @ np.linalg.solve(kept.T @ covariances @ kept, kept.T)
        for others, differences in ((regression, from_regression), (limit, from_limit)):
            differences.append(np.sum(((attention - others) @ vectors) ** 2 * lam, axis=(1, 2)))
    return {"from_regression": np.stack(from_regression, axis=1), "from_limit": np.stack(from_limit, axis=1)}


def claims(data: Data, settings: Settings) -> list[Claim]:
    return _claims_at_one_length(data["tests"]) + _claims_over_lengths(data["lengths"], settings.contexts > 1)


def _claims_at_one_length(tests: xr.Dataset) -> list[Claim]:
    clear = tests["lasting"].values.astype(bool).all(axis=1)
    tests = tests.isel(run=np.flatnonzero(clear))
    which = f"In the {clear.sum()} of {clear.size} seeds whose plateaus are all predicted to last"
    deviation = (tests["held_out"] - tests["predicted_level"]) / tests["standard_error"]
    tested = deviation.size
    fresh = Origin("paper", "Section 4.4, equation (22)", explored=True)
    return [
        Origin("paper", "Section 4.3", explored=True).close(
            "plateaus",
            f"{which}, the loss curve has D + 1 plateaus",
            predicted=DIM + 1,
            measured=tests["plateaus"].rename(run="seed"),
            basis="a count; a plateau is 4 times slower than the falls beside it",
        ),
        fresh.close(
            "closest",
            "On plateau m the model predicts most like regression with m components within the context, of 0 to D: "
            "number of components of the closest",
            predicted=np.broadcast_to(tests["plateau"].values, tests["closest"].shape).ravel(),
            measured=tests["closest"].rename(run="seed"),
            basis="a count; a plateau that is missing fails",
            counted="plateaus",
        ),
        Origin("check", "stepwell.analysis.pcr_test").at_least(
            "margin",
            "The fresh sequences are enough to tell: how much closer the closest regression is than the second, in "
            "standard errors",
            predicted=STANDARD_ERRORS,
            measured=tests["margin"].rename(run="seed"),
            basis="3 standard errors",
            counted="plateaus",
        ),
        Origin("paper", "Section 4.3, equation (19)", explored=True).close(
            "held-out",
            "On fresh sequences the error on plateau m is L(M_m): deviation in standard errors",
            measured=deviation.rename(run="seed"),
            tolerance=_runs.largest_of(tested),
            basis=f"3 standard errors, for the largest of {tested}; the errors from sequences of their own",
            counted="plateaus",
        ),
    ]


def _claims_over_lengths(tests: xr.Dataset, several: bool) -> list[Claim]:
    """`several`: whether there are several contexts, so that their spread is known."""
    lengths, lasting = tests["length"].values, tests["lasting"].values.astype(bool)
    span = f"N = {lengths.min()} to {lengths.max()}"
    learned = tests.isel(plateau=slice(1, None))
    of_first = tests["lasting"].isel(run=0, plateau=slice(1, None)).values.astype(bool)
    paper = Origin("paper", "Section 4.4, equation (22)", explored=True)
    all_claims = [
        paper.close(
            "shrinkage",
            f"{span}: on plateau m the model's map is that of regression with m components, shrunk as equation (22) "
            f"says: root mean square difference of predictions ({lasting.sum()} of {lasting.size} plateaus are "
            "predicted to last)",
            measured=_runs.labeled(
                tests["distance"], lasting, length=lengths, seed=tests["run"].values, plateau=range(DIM + 1)
            ),
            tolerance=tests["tolerance"].values[lasting],
            basis="square of the size that the next head is predicted to have; its map is the cube; solver",
            counted="plateaus",
        ),
        paper.close(
            "predictions",
            f"{span}: on plateau m the model's predictions on fresh sequences are those of equation (22): largest "
            "difference, labels having unit variance",
            measured=_runs.labeled(learned["answer"], of_first, length=lengths, plateau=range(1, DIM + 1)),
            tolerance=FACTORS * learned["tolerance"].isel(run=0).values[of_first],
            basis="as for the map, times what two Gaussian factors, context and query, come to at most",
            counted="plateaus",
        ),
    ]
    far = lengths >= LAW_FROM
    fitted = several and np.unique(lengths[far]).size > 1
    away = np.log(lengths[far]) - np.log(lengths[far]).mean() if fitted else np.ones(far.sum())
    weights = away / (away @ away)
    within = "regression with m components within the context"
    endless = "regression with m components in an endless context, wᵀ(e_1e_1ᵀ + … + e_me_mᵀ)x_q"
    from_limit = "mean square of the difference of equation (22) from its limit, Σ_{d≤m}(λ_d − γ_d)"
    for name, words, source in (
        ("from_regression", within, "stepwell.theory.linear.regression_difference"),
        ("from_limit", endless, from_limit),
    ):
        # Without label noise the regression with all components is its limit: at m = D the two are one number.
        own = learned.isel(plateau=slice(None, -1)) if name == "from_limit" else learned
        plateaus = range(1, own.sizes["plateau"] + 1)
        ratio = (own[name] / own[f"{name}_predicted"]).values
        error = own[f"{name}_error"].values
        tolerance = _runs.largest_of(ratio.size) * error
        exact = weights @ np.log(own[f"{name}_predicted"].values[far])
        slug = name.replace("_", "-")
        all_claims += [
            Origin("theory", source).close(
                slug,
                f"{span}: mean squared difference from {words}, over the predicted: one ratio for each length and "
                f"m{' < D' if name == 'from_limit' else ''}",
                predicted=1.0,
                measured=_runs.labeled(ratio, length=lengths, plateau=plateaus) if several else [],
                tolerance=tolerance.ravel(),
                basis=f"3 standard errors, for the largest of {ratio.size}; the errors from contexts of their own",
                counted="plateaus",
            ),
            Origin("paper", "Section 4.4, limit of equation (22) for large N", explored=True).close(
                f"{slug}-exponent",
                f"The model tends to {words}: exponent of N in the mean squared difference, from N = {LAW_FROM} on, "
                f"for each m{' (m = D is least squares)' if name == 'from_regression' else ' < D'}",
                predicted=-1.0,
                measured=weights @ np.log(own[name].values[far]) if fitted else [],
                labels=[f"m = {m}" for m in plateaus],
                tolerance=STANDARD_ERRORS * np.sqrt(weights**2 @ error[far] ** 2) + np.abs(exact + 1),
                basis="3 standard errors from contexts of their own; next order in 1/N",
                counted="numbers of components",
            ),
        ]
    expected, error = (learned[f"from_regression_{each}"].isel(plateau=-1).values for each in ("predicted", "error"))
    square = learned["merged_from_regression"].values
    merged = "converged merged attention from least squares within the context"
    return [
        *all_claims,
        Origin("theory", "stepwell.theory.linear.regression_difference", explored=True).close(
            "merged-from-least-squares",
            f"{span}: mean squared difference of {merged}, over the predicted, for each length",
            predicted=1.0,
            measured=_runs.labeled(square / expected, length=lengths) if several else [],
            tolerance=_runs.largest_of(lengths.size) * error,
            basis=f"3 standard errors, for the largest of {lengths.size}; the errors from contexts of their own",
            counted="lengths",
        ),
        Origin("paper", "Sections 1 and 3.4, limit of equation (11) for large N", explored=True).close(
            "merged-least-squares-exponent",
            "Converged merged attention does least squares in context, for long contexts: exponent of N in the mean "
            f"squared difference of {merged}, from N = {LAW_FROM} on",
            predicted=-1.0,
            measured=float(weights @ np.log(square[far])) if fitted else np.nan,
            tolerance=float(
                STANDARD_ERRORS * np.sqrt(weights**2 @ error[far] ** 2) + abs(weights @ np.log(expected[far]) + 1)
            ),
            basis="3 standard errors from contexts of their own; next order in 1/N",
            unless="" if fitted else "an exponent needs two lengths, and several contexts",
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    colors = (BLACK, *PALETTE)
    with styled():
        figure = new_figure(10.4, 8.2)
        (loss, test), (kept, far) = figure.subplots(2, 2)
        _draw_losses(loss, data["flows"], data["tests"], colors)
        loss.set_title(f"(a) Where the model is tested, N = {settings.context}")
        _draw_tests(test, data["tests"], colors)
        test.set_title(f"(b) Which regression it is closest to, N = {settings.context}")
        _draw_lengths(kept, far, data["lengths"], colors)
    return figure


def _draw_losses(axes: Axes, flows: xr.Dataset, tests: xr.Dataset, colors: tuple[str, ...]) -> None:
    lines(axes, flows["time"], flows["loss"].values, color=GRAY, linewidth=0.8, zorder=1)
    for m in range(tests.sizes["plateau"]):
        axes.plot(tests["time"][:, m], tests["recorded"][:, m], "o", color=colors[m], markersize=5)
        level = float(tests["predicted_level"][m])
        axes.axhline(level, color=colors[m], linestyle=":", linewidth=1, zorder=0)
        _runs.name_level(axes, f"m = {m}", level, (4, 0), color=colors[m])
    axes.set(xscale="log", xlabel="training time $t/\\tau$", ylabel="loss", ylim=(0, 1.1))


def _draw_tests(axes: Axes, tests: xr.Dataset, colors: tuple[str, ...]) -> None:
    for m in range(tests.sizes["plateau"]):
        curves, style = tests["difference"].values[:, m], {"color": colors[m], "linewidth": 1, "markersize": 3}
        lines(axes, tests["components"], curves, "o-", label=f"plateau {m}", **style)
        curves = curves[np.isfinite(curves).all(axis=1)]
        ring: Any = {"color": colors[m], "markersize": 10, "markerfacecolor": "none", "markeredgewidth": 1.2}
        axes.plot(curves.argmin(axis=1), curves.min(axis=1, initial=np.inf), "o", **ring)
    axes.set_xticks(range(DIM + 1))
    axes.set(xlabel="components m of the regression", ylabel="mean squared difference of predictions", ylim=(0, 1.25))
    axes.legend(loc="upper center", ncols=3, fontsize=8)


def _draw_lengths(kept: Axes, far: Axes, tests: xr.Dataset, colors: tuple[str, ...]) -> None:
    lengths = tests["length"].values
    fine = np.geomspace(lengths.min(), lengths.max(), 200)
    lam = np.array(EIGENVALUES)
    for d in range(DIM):
        kept.plot(fine, 1 / (1 + (1 + lam.sum() / lam[d]) / fine), color=colors[d + 1], linewidth=1.2)
        label = f"component {d + 1}, λ = {lam[d]:g}"
        kept.plot(lengths, tests["kept"][:, d], "o", color=colors[d + 1], markersize=5, label=label)
    kept.plot([], [], color=GRAY, linewidth=1.2, label="equation (22)")
    kept.axhline(1.0, color=BLACK, linestyle=":", linewidth=1.0)
    kept.set(xscale="log", xlabel="context length N, tokens", ylabel="factor of the component after training")
    kept.set(ylim=(0.4, 1.04), title="(c) Shrinkage in short contexts")
    kept.legend(loc="lower right", fontsize=8)
    for m in range(1, DIM + 1):
        predicted = tests["from_regression_predicted"][:, m]
        far.loglog(lengths, predicted, color=colors[m], linewidth=1.2)
        bars = STANDARD_ERRORS * predicted * tests["from_regression_error"][:, m]
        values = tests["from_regression"][:, m]
        label = f"plateau {m}" if m < DIM else f"plateau {m}: least squares"
        far.errorbar(lengths, values, bars, fmt="o", color=colors[m], markersize=5, label=label)
    square = tests["merged_from_regression"]
    far.plot(lengths, square, "x", color=BLACK, markersize=8, label="merged attention: least squares")
    far.plot([], [], color=GRAY, linewidth=1.2, label="our formula")
    far.set(xlabel="context length N, tokens", ylabel="mean squared difference of predictions")
    far.set_title("(d) Difference from regression in the context: 1/N")
    far.legend(loc="lower left", fontsize=8)


FIGURE = Figure(
    title="On plateau m, attention performs in-context principal component regression (PCR) with m components",
    caption=(
        "Linear attention with separate keys and queries of rank one, trained by gradient flow at infinitely many "
        "sequences. (a) Loss of each seed with contexts of 31 tokens; the points, in the middle of the plateaus "
        "detected in the curve, are where the model is tested. (b) At each of them, the mean squared difference "
        "between the model's predictions on fresh sequences and principal component regression with m components: "
        "least squares within the same context on the first m true principal components of the inputs. One line a "
        "plateau, all seeds; the ring is the smallest. (c) Models trained with contexts of 10 to 10⁵ tokens: the "
        "factor by which the model, at the end of training, has multiplied each component, beside the paper's equation "
        "(22); 1 is plain regression. (d) On plateau m of these runs, the mean squared difference from regression with "
        "m components within each of many fresh contexts, and our formula for it, which goes as (m + 1)(λ_1 + … + "
        "λ_m)/N; m = 4 is least squares, from which merged attention differs by as much when it has converged "
        "(crosses). What remains is what a short context cannot tell: attention uses the covariance of all inputs, the "
        "regression that of its own context."
    ),
    source="Section 4.4",
    settings=Settings(),
    quick=Settings(
        seeds=(30,), held_out=2000, points=200, lengths=(10, 100, 1000), length_seeds=1, contexts=1000, tokens=1_000_000
    ),
    described=partial(
        _runs.described,
        heads=HEADS,
        rank=1,
        eigenvalues=EIGENVALUES,
        training="gradient flow at infinitely many sequences",
        initial="Gaussian",
    ),
    seeds=Seeds(explored="0 to 5"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
