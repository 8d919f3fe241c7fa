r"""Label blocks: the weights $\mathbf v_h$ that read inputs as if they were labels, and $u_h$ that score labels.

Under $w \to -w$ the features $S_{xx} x_q$ and $S_{yy} x_q$ keep their sign while $y_q$ and $S_{xy}$ change it. So in
population their moments with $y_q$ and with $S_{xy} x_q$ vanish: blocks that are zero get no gradient, and the features
that only blocks reach are of no use. On P sequences the gradient is a mean of P terms of mean zero.

Blocks that are small but not zero are driven by what has yet to be learned, as U is, and stop growing when nothing is
left. Of all heads only one combination carries the prediction: what the blocks have along it is unlearned, the rest
stays.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis.style import BLACK, BLUE, GRAY, PALETTE, new_figure, scientific, styled
from stepwell.dynamics import Record, flow
from stepwell.figures import Claim, Data, Figure, Origin, Seeds
from stepwell.models import MergedAttention
from stepwell.objectives import Moments, Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import model_at

from ._drawing import only_ticks
from ._fig14_theory import exact_moments
from ._runs import along, described, labeled

EARLY = np.linspace(0, 100, 201)  # save times until after the drop
STANDARD_ERRORS = 3.0
SMALL = 0.01
"""The size that blocks keep is claimed where its square, by prediction, is below this part of the grown weights'."""


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    eigenvalues: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)
    context: int = 31
    heads: int = 5
    init: float = 1e-3
    block_sizes: tuple[float, ...] = (0.0, 1e-4, 1e-3, 1e-2)
    """Standard deviations of the blocks at initialization; the other weights have `init`."""
    sizes: tuple[int, ...] = (250, 500, 1000, 2000, 4000, 8000)
    sets: int = 16
    duration: float = 1e5
    seeds: tuple[int, ...] = (73, 74, 75)

    @property
    def dim(self) -> int:
        return len(self.eigenvalues)

    @cached_property
    def task(self) -> InContextRegression:
        return InContextRegression(covariance(self.eigenvalues), self.context)

    @cached_property
    def early(self) -> np.ndarray:
        return EARLY[EARLY < self.duration]

    def initial_model(self, seed: int, blocks: float) -> MergedAttention:
        """The same weights for every size of the blocks."""
        dim, init = self.dim, self.init
        options: dict[str, Any] = {"dim": dim, "heads": self.heads, "scale": 1.0, "label_blocks": "random"}
        model = MergedAttention.random(**options, key=jax.random.key(seed))
        value = init * model.value.at[:, :, :dim].multiply(blocks / init)
        return MergedAttention(value, init * model.key_query.at[:, dim:].multiply(blocks / init))


def simulate(settings: Settings) -> Data:
    halfway = at_half_drop(settings)
    return {"gradients": gradients(halfway, settings), "flows": flows(settings), "theory": predict(halfway, settings)}


def at_half_drop(settings: Settings) -> MergedAttention:
    """Weights halfway down the drop at infinitely many sequences, blocks at zero. For one run LSODA is compiled
    faster."""
    model = settings.initial_model(settings.seeds[0], 0.0)
    options: dict[str, Any] = {"solver": "lsoda", "rtol": 1e-8, "progress": False}
    trajectory = flow(model, Population(settings.task), until=1000.0, record=Record(points=2001), **options)
    loss = trajectory["loss"].values[0]
    half = int(np.argmin(abs(loss - (loss[0] + loss[-1]) / 2)))
    return model_at(trajectory, model, at=trajectory["time"].values[half])


def gradients(model: MergedAttention, settings: Settings) -> xr.Dataset:
    """The gradient of the loss by the label blocks, on independent data sets of each size."""

    @eqx.filter_jit
    def by_blocks(objective: Moments):
        return block_size(eqx.filter_grad(lambda m: objective(m))(model), settings.dim)

    sizes = np.zeros((len(settings.sizes), settings.sets))
    for row, count in enumerate(settings.sizes):
        for column, key in enumerate(jax.random.split(jax.random.key(1000 + row), settings.sets)):
            sizes[row, column] = by_blocks(Moments.of_task(settings.task, count, progress=False, key=key))
    return xr.Dataset({"gradient": (("sequences", "set"), sizes)}, {"sequences": list(settings.sizes)})


def block_size(model: MergedAttention, dim: int):
    return jnp.sqrt(jnp.sum(model.value[:, :, :dim] ** 2) + jnp.sum(model.key_query[:, dim:] ** 2))


def infinite_data(settings: Settings) -> Moments:
    """Exact moments of all features, in the paper's convention."""
    exact = exact_moments(settings.task.covariance, np.zeros(settings.dim), 1.0, settings.context)
    return exact.objective(settings.context)


def flows(settings: Settings) -> xr.Dataset:
    """Gradient flow at infinitely many sequences from each initialization: loss, size of the blocks, and the root mean
    square of what they add to the prediction."""
    objective, alike = infinite_data(settings), _alike(settings.dim)
    power = jnp.asarray(np.asarray(objective.gram)[np.ix_(alike, alike)])

    def added(model: MergedAttention):
        extra = objective.coefficients(model)[0][alike]
        return jnp.sqrt(extra @ power @ extra)

    until = settings.duration
    times = np.unique(np.concatenate([settings.early, np.geomspace(min(101, until), until, 200)]))
    observed = {"blocks": lambda model: block_size(model, settings.dim), "added": added}
    options: dict[str, Any] = {"record": Record(points=times, observe=observed), "progress": False}
    options |= {"solver": "lsoda", "rtol": 1e-8, "atol": 1e-12}

    def run(seed: int, blocks: float) -> xr.Dataset:
        trajectory = flow(settings.initial_model(seed, blocks), objective, until=until, **options)
        return trajectory[["loss", "blocks", "added"]].isel(run=0, drop=True)

    sizes, seeds = settings.block_sizes, settings.seeds
    return along((along((run(seed, size) for size in sizes), block=sizes) for seed in seeds), seed=seeds)


def predict(model: MergedAttention, settings: Settings) -> xr.Dataset:
    r"""For the gradients, for growth near zero, and for the end.

    - A gradient by the blocks is a mean over sequences of $g = -2e\,\partial\hat y/\partial(\mathbf v, u)$, of mean
      zero and covariance $\Sigma$: its mean square is $\mathrm{tr}\Sigma/P$, with relative variance
      $2\,\mathrm{tr}\Sigma^2/(\mathrm{tr}\Sigma)^2$ a data set. $\Sigma$ is taken from sequences of its own.
    - `growth`: near zero $\tau\dot{\mathbf v}_h = M\Lambda u_h$, $\tau\dot u_h = \Lambda M^\top\mathbf v_h$: the blocks
      grow at rates $\lambda_d^2$, each below the rate $\|\Lambda^2\|_F$ of the drop.
    - `kept`: their size in the end (`_sizes_after_drop`).
    - `unlearned`: once U and the values have come to rest, blocks b add $Jb$ to the coefficients of useless features,
      whose Gram matrix is G, and $\tau\dot b = -J^\top G J b$. So what they add has a mean square of at most
      $\max_x x e^{-2xt}|b|^2 = |b|^2/2et$, where b are the blocks as the drop leaves them.
    - `rest`: along gradient flow $\tau\dot W = -\tfrac12\nabla L$ in a convex valley the loss is above its minimum by
      less than $|W - W_*|^2/t$, and weights move by no more than their size at the end, $2\|A^*\|$ squared.
    """
    task, dim = settings.task, settings.dim
    batch = task.sample(20000, key=jax.random.key(7))

    @eqx.filter_jit
    def each(tokens, label):
        gradient = eqx.filter_grad(lambda m: (m(tokens)[0] - label) ** 2)(model)
        return jnp.concatenate([gradient.value[:, :, :dim].reshape(-1), gradient.key_query[:, dim:].reshape(-1)])

    scores = np.asarray(eqx.filter_jit(jax.vmap(each))(batch.tokens, batch.labels[:, -1, 0]))
    spread = scores.T @ scores / len(scores)
    levels, driving = theory.levels(task), theory.moments(task).cross @ task.covariance
    grown = float(np.linalg.norm(theory.modes(task).ends))
    gram = np.linalg.eigvalsh(infinite_data(settings).gram)
    models = [[settings.initial_model(seed, size) for size in settings.block_sizes] for seed in settings.seeds]
    kept, left = zip(*(_sizes_after_drop(seed, settings) for seed in settings.seeds), strict=True)
    growth = [[_linear_growth(each, driving, settings.early) for each in row] for row in models]
    return xr.Dataset(
        {
            "mean_square": np.trace(spread),
            "relative_variance": 2 * np.trace(spread @ spread) / np.trace(spread) ** 2,
            "growth": (("seed", "block", "time"), growth),
            "kept": (("seed", "block"), np.outer(kept, settings.block_sizes)),
            "unlearned": (
                ("seed", "block"),
                np.outer(left, settings.block_sizes) / (2 * np.e * settings.duration) ** 0.5,
            ),
            "grown": grown**0.5,
            "initial": settings.init * (settings.heads * (dim**2 + 1)) ** 0.5,
            "first_level": levels[0],
            "last_level": levels[-1],
            "rate": np.linalg.norm(driving, ord=2),
            "drop": theory.merged_escape_time(task, settings.init),
            "curvature": gram.max(),
            "rest": 2 * grown / settings.duration,
        },
        {"block": list(settings.block_sizes), "time": settings.early, "seed": list(settings.seeds)},
    )


def _alike(dim: int) -> np.ndarray:
    """Which features keep their sign under w → -w: S_xx x_q and S_yy x_q."""
    row, column = np.triu_indices(dim + 1)
    return np.repeat((column < dim) | (row == dim), dim)


def _linear_growth(model: MergedAttention, driving: np.ndarray, times: np.ndarray) -> np.ndarray:
    left, rates, right = np.linalg.svd(driving)
    inputs, labels = np.asarray(model.value)[:, 0, :-1] @ left, np.asarray(model.key_query)[:, -1] @ right.T
    return _grown_size(inputs, labels, rates * times[:, None])


def _sizes_after_drop(seed: int, settings: Settings) -> tuple[float, float]:
    r"""The sizes of the blocks in the end, and as the drop leaves them, over the initial one, to leading order in it.

    Small blocks are driven by $G = M\Lambda - CA\Lambda$ as U is: mode d grows by $\int r_d\,dt$, with
    $r_d = \lambda_d m_d - \lambda_d c_d v u_d$ of the D + 1 equations for the drop (`theory.merged_course`). In the end
    the heads are $v_h = v\mu_h$, $U_h = \mu_h U$, with $\mu$ of `theory.merged_initial`, so that the blocks reach the
    prediction by $\sum_h\mu_h\mathbf v_h$ and $\sum_h\mu_h u_h$ alone: these vanish, and what is at right angles to
    $\mu$ stays.
    """
    task, model = settings.task, settings.initial_model(seed, 1.0)
    values, key_queries = np.asarray(model.value)[:, 0], np.asarray(model.key_query)
    modes = theory.modes(task)
    driving = theory.moments(task).cross @ task.covariance
    unit = driving / np.linalg.norm(driving)
    carrying = values[:, -1] + np.einsum("hij,ij->h", key_queries[:, :-1], unit)
    carrying /= np.linalg.norm(carrying)
    times = np.linspace(0, 2000, 20001)
    course = theory.merged_course(task, times, *theory.merged_initial(task, values[:, -1], key_queries[:, :-1]))
    left_over = modes.driving - modes.curvature * course.value[:, None] * course.key_query
    exponents = np.trapezoid(left_over, times, axis=0)
    whole = np.eye(settings.heads)
    sizes = []
    for heads in (whole - np.outer(carrying, carrying), whole):
        inputs, labels = (heads @ part @ modes.directions for part in (values[:, :-1], key_queries[:, -1]))
        sizes.append(float(_grown_size(inputs, labels, exponents[None])[0]))
    return sizes[0], sizes[1]


def _grown_size(inputs: np.ndarray, labels: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Of blocks, in the modes, of which sums have grown and differences shrunk by the exponents of each mode."""
    up, down = (inputs + labels) ** 2 / 2, (inputs - labels) ** 2 / 2
    growth = np.exp(2 * exponents)
    return np.sqrt(growth @ up.sum(axis=0) + (1 / growth) @ down.sum(axis=0))


def claims(data: Data, settings: Settings) -> list[Claim]:
    gradient_sizes, runs, predicted = data["gradients"], data["flows"], data["theory"]
    sizes, sets = gradient_sizes["sequences"].values, gradient_sizes.sizes["set"]
    square = (gradient_sizes["gradient"].values ** 2).mean(axis=1)
    error = (float(predicted["relative_variance"]) / sets) ** 0.5
    fall = float(predicted["first_level"] - predicted["last_level"])
    # Linear theory holds while little has fallen: a fall f needs coefficients up to f/2λ₁².
    early = 1e-3 * fall
    nonzero = runs.sel(block=runs["block"].values > 0)
    near = nonzero.sel(time=predicted["time"].values)
    expected = predicted.sel(block=nonzero["block"].values)
    linear = near["loss"] > predicted["first_level"] - early
    ratio = (near["blocks"] / expected["growth"]).where(linear, 1.0).transpose("seed", "block", "time").values
    places = {"seed": runs["seed"].values, "initial size": nonzero["block"].values}
    ends = runs.isel(time=-1)
    rate, rest = float(predicted["rate"]), float(predicted["rest"])
    second_order = ((expected["kept"] / predicted["grown"]) ** 2).transpose("seed", "block").values
    # One head carries the prediction alone, and keeps nothing.
    small = (second_order <= SMALL) & (settings.heads > 1)
    kept, aside = (part.transpose("seed", "block").values for part in (nonzero["blocks"][..., -1], expected["kept"]))
    over_predicted = np.divide(kept, aside, out=np.zeros_like(kept), where=small)
    moments = Origin("theory", "moments of S_xx x_q and S_yy x_q vanish under w → −w")
    useless = Origin("theory", "the useless features cost, and bring nothing", explored=True)
    away = np.log(sizes) - np.log(sizes).mean()
    spread = away @ away if np.ptp(sizes) else np.nan
    unlearned = predicted["unlearned"].transpose("seed", "block").values
    few = 2 * np.e * settings.duration * unlearned**2 <= SMALL * float(predicted["grown"]) ** 2
    zero = 1000 * np.finfo(float).eps * np.exp(rate * float(predicted["drop"]))
    errors = "3 standard errors, from the covariance of one sequence's gradient"
    return [
        Origin("paper", "Section 2.3").close(
            "zero-stays",
            "At infinitely many sequences, blocks that are zero initially stay zero: their largest size",
            measured=labeled(
                runs["blocks"].max("time").transpose("seed", "block"),
                np.tile(runs["block"] == 0, runs.sizes["seed"]),
                **{"seed": runs["seed"].values, "initial size": runs["block"].values},
            ),
            tolerance=zero,
            basis="rounding at each of a thousand steps, grown at the rate λ_1² until the drop",
        ),
        moments.close(
            "gradient-exponent",
            "On P sequences the gradient of blocks at zero falls as P^(-1/2): fitted exponent of its root mean square",
            unless="" if np.ptp(sizes) else "a slope needs two sizes",
            predicted=-0.5,
            measured=away @ np.log(square) / 2 / spread,
            tolerance=STANDARD_ERRORS * error / 2 / spread**0.5,
            basis=errors,
        ),
        moments.close(
            "gradient-size",
            "The gradient of blocks at zero is a sampling error and no more: mean square times P, over its expectation",
            predicted=1.0,
            measured=(square * sizes).mean() / float(predicted["mean_square"]),
            tolerance=STANDARD_ERRORS * error / sizes.size**0.5,
            basis=errors,
        ),
        Origin("theory", "linearized flow: dv_h/dt = MΛu_h, du_h/dt = ΛMᵀv_h", explored=True).close(
            "growth",
            "Blocks that are not zero initially grow as linear theory says, at rates λ_d², until the loss has fallen "
            "by 0.1 %: largest difference of the logarithms, for each seed and initial size of the blocks",
            measured=labeled(np.abs(np.log(ratio)).max(axis=-1), **places),
            tolerance=early / (2 * rate) * float(predicted["curvature"]) / (2 * rate),
            basis="the second order in the coefficients, while the loss has fallen by less than 0.1 %",
            counted="runs",
        ),
        Origin(
            "theory", "blocks driven by what is left to learn, along the D + 1 equations of the drop", explored=True
        ).close(
            "kept",
            "Small blocks are not unlearned: they keep the size that they reach at right angles to what the heads "
            "carry: size in the end over the predicted, for each seed and initial size whose square is below "
            f"{SMALL:g} of the grown weights'",
            predicted=1.0,
            measured=labeled(over_predicted, small, **places),
            tolerance=3 * second_order[small] + float(predicted["initial"] / predicted["grown"]),
            basis="first order in the other initial weights; 3 times the second order in the blocks",
            counted="runs",
        ),
        useless.close(
            "end",
            "From every initial size of the blocks the loss ends at L(M_D): final loss, for each seed and initial size",
            predicted=float(predicted["last_level"]),
            measured=ends["loss"].rename({"block": "initial size"}),
            tolerance=rest,
            basis="gradient flow in a convex valley: square of the distance over the time",
            counted="runs",
        ),
        useless.close(
            "no-contribution",
            "Small blocks in the end add nothing to the prediction: root mean square of what they add, labels having "
            "unit variance, for each seed and initial size from which the square of what the drop leaves is below "
            f"{SMALL:g} of the grown weights'",
            measured=labeled(
                ends["added"].transpose("seed", "block"),
                few,
                **{"seed": runs["seed"].values, "initial size": runs["block"].values},
            ),
            tolerance=(unlearned + zero)[few],
            basis="linear unlearning of the blocks that the drop leaves, |b|/(2et)^½; rounding where they are zero",
            counted="runs",
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    gradient_sizes, runs, predicted = data["gradients"], data["flows"], data["theory"]
    sizes = gradient_sizes["sequences"].values
    with styled():
        figure = new_figure(9.6, 5.6)
        grid = figure.add_gridspec(2, 2, width_ratios=(2, 3))
        left, above = figure.add_subplot(grid[:, 0]), figure.add_subplot(grid[0, 1])
        below = figure.add_subplot(grid[1, 1], sharex=above)

        each, style = np.repeat(sizes, gradient_sizes.sizes["set"]), {"color": "#A0C8E0", "markersize": 4}
        left.loglog(each, gradient_sizes["gradient"].values.ravel(), "o", label="a data set", **style)
        mean = np.sqrt((gradient_sizes["gradient"].values ** 2).mean(axis=1))
        left.loglog(sizes, mean, "s", color=BLUE, markersize=6, label="root mean square")
        expected = np.sqrt(float(predicted["mean_square"]) / sizes)
        left.loglog(sizes, expected, "--", color=BLACK, label="expected, $(\\mathrm{tr}\\,\\Sigma/P)^{1/2}$")
        only_ticks(left, sizes, [str(n) for n in sizes])
        left.set(xlabel="sequences P", ylabel="gradient by label blocks at zero", title="(a) A sampling error")
        left.legend(loc="lower left")

        shown, time, theory_style = runs.isel(seed=0), runs["time"].values, {"color": BLACK, "linewidth": 1.0}
        for k, (size, color) in enumerate(zip(runs["block"].values, itertools.cycle((GRAY, *PALETTE)), strict=False)):
            name = "initial blocks 0" if size == 0 else scientific(size, 2)
            above.semilogx(time[1:], shown["loss"][k, 1:], color=color, linewidth=1.6 if k else 4, label=name)
            if size == 0:
                continue
            below.loglog(time[1:], shown["blocks"][k, 1:], color=color)
            below.loglog(time[1:], shown["added"][k, 1:], ":", color=color)
            mine, early = predicted.isel(seed=0, block=k), settings.early
            growth, kept = mine["growth"].values, float(mine["kept"])
            rising = (growth < 2 * float(shown["blocks"][k].max())) & (early > 0)
            below.loglog(early[rising], growth[rising], "--", **theory_style)
            if size < settings.block_sizes[-1]:
                below.plot([300, time[-1]], [kept, kept], "--", **theory_style)
        above.axhline(float(predicted["last_level"]), color=BLACK, linestyle=":", linewidth=1.0)
        above.set(ylim=(0, 1.08), ylabel="loss")
        above.set_title("(b) $P \\to \\infty$: the loss ends at $L(M_D)$ from every initialization")
        above.legend(loc="upper right")
        below.plot([], [], color=GRAY, label="size of the blocks")
        below.plot([], [], "--", label="the same, theory", **theory_style)
        below.plot([], [], ":", color=GRAY, label="what they add to the prediction")
        below.legend(loc="lower right", ncols=1)
        below.set(xlim=(1, time[-1]), ylim=(1e-10, 10), xlabel="training time $t/\\tau$", ylabel="size")
        below.set_title("(c) Blocks grow until the drop, then cease to contribute")
    return figure


FIGURE = Figure(
    title="Label blocks that are zero initially stay so, up to sampling error; others grow, then cease to contribute",
    caption=(
        "Label blocks of merged attention: the weights that let inputs pass for labels and labels for inputs. The "
        "paper initializes them to zero and says that they stay so; what happens otherwise is ours. (a) Halfway down "
        "the drop, with blocks at zero: the size of their gradient on P sequences, and that expected of a mean of P "
        "terms of expectation zero. (b) Gradient flow on infinitely many sequences, by exact moments, from blocks of "
        "standard deviation zero or not: the loss ends at the same value from every initialization. (c) The same runs "
        "in the same colors: the size of the blocks (lines), with the growth that linear theory predicts up to the "
        "drop and the size that they are predicted to keep (both dashed; the largest initialization is too large for "
        "the latter), and the root mean square of what they add to the prediction (dotted). That shrinks after the "
        "drop, while the blocks remain."
    ),
    source="Section 2.3",
    settings=Settings(),
    quick=Settings(sizes=(250, 1000, 4000), sets=10, seeds=(73,)),
    described=partial(described, initial="Gaussian"),
    seeds=Seeds(
        explored="0 to 3 and 70 to 72",
        fixed="not recorded; what blocks may add in the end is a formula",
    ),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
