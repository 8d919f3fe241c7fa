r"""Label blocks: the weights $\mathbf v_h$ that read inputs as if they were labels, and $u_h$ that score labels.

Under $w \to -w$ the features $S_{xx} x_q$ and $S_{yy} x_q$ keep their sign while $y_q$ and $S_{xy}$ change it. So in
population their moments with $y_q$ and with $S_{xy} x_q$ vanish: blocks that are zero get no gradient, and the features
that only blocks reach are of no use. On P sequences the gradient is a mean of P terms of mean zero.

Blocks that are small but not zero are driven by what has yet to be learned, as U is, and stop growing when nothing is
left. Of all heads only one combination carries the answer: what the blocks have along it is unlearned, the rest stays.
"""

from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell._text import superscript
from stepwell.dynamics import flow
from stepwell.models import MergedAttention
from stepwell.objectives import Moments, Population
from stepwell.papers._claim import Claim
from stepwell.papers._completed import completed
from stepwell.papers._settings import changeable, setting
from stepwell.papers._style import BLACK, BLUE, GREY, PALETTE, new_figure, styled
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import model_at, provenance

from ._described import described
from ._fig14_expectations import exact_moments

NAME = "linear/label-blocks"
TITLE = "Label blocks that start at zero stay there, up to sampling error; others grow, then cease to contribute"
CAPTION = (
    "Label blocks of merged attention: the weights that let inputs pass for labels and labels for inputs. The paper "
    "starts them at zero and says that they stay there; what happens otherwise is ours. (a) Halfway down the drop, "
    "with blocks at zero: the size of their gradient on P sequences, and that expected of a mean of P terms of "
    "expectation zero. (b) Gradient flow on infinitely many sequences, by exact moments, from blocks of standard "
    "deviation zero or not: the loss ends at the same value from every start. (c) The same runs in the same colours: "
    "the size of the blocks (lines), with the growth that linear theory predicts up to the drop and the size that "
    "they are predicted to keep (both dashed; the largest start is too large for the latter), and the root "
    "mean square of what they add to the answer (dotted). That shrinks after the drop, while the blocks remain."
)
PAPER_SETTINGS: dict[str, Any] = {}

EIGENVALUES = setting("eigenvalues", (0.4, 0.3, 0.2, 0.1))
DIM = len(EIGENVALUES)
CONTEXT = setting("context", 31)
HEADS = setting("heads", 5)
INIT = setting("init", 1e-3)
BLOCK_STARTS = setting("block_starts", (0.0, 1e-4, 1e-3, 1e-2))
"""Standard deviations of the blocks at the start; the other weights have `INIT`."""
EARLY = np.linspace(0, 100, 201)
"""Save times until after the drop."""
STANDARD_ERRORS = 3.0
SMALL = 0.01
"""The size that blocks keep is claimed where its square, by prediction, is below this part of the grown weights'."""


CONTRIBUTION = 2e-5
"""What blocks may add to the answer in the end. It goes on falling slowly: on seeds 0 to 3 and 70 to 72 it is 3.7e-6 to
7.3e-6."""


@changeable
@dataclass(frozen=True)
class Settings:
    """What a quick run has less of."""

    sizes: tuple[int, ...] = (250, 500, 1000, 2000, 4000, 8000)
    sets: int = 16
    duration: float = 1e5
    seeds: tuple[int, ...] = (73, 74, 75)


FULL = Settings()
QUICK = Settings(sizes=(250, 1000, 4000), sets=10, seeds=(73,))


def settings(quick: bool) -> dict[str, Any]:
    return {
        **described(dim=DIM, context=CONTEXT, heads=HEADS, eigenvalues=EIGENVALUES),
        "initial weights": f"Gaussian, standard deviation {INIT:g}",
        "initial label blocks": list(BLOCK_STARTS),
        "settings were chosen on": "seeds 0 to 3 and 70 to 72",
        **asdict(QUICK if quick else FULL),
    }


TASK = InContextRegression(covariance(EIGENVALUES), CONTEXT)


def start(seed: int, blocks: float) -> MergedAttention:
    """The same weights for every size of the blocks."""
    model = MergedAttention.random(dim=DIM, heads=HEADS, scale=1.0, label_blocks="random", key=jax.random.key(seed))
    value = INIT * model.value.at[:, :, :DIM].multiply(blocks / INIT)
    return MergedAttention(value, INIT * model.key_query.at[:, DIM:].multiply(blocks / INIT))


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    halfway = at_half_drop(chosen)
    return {
        "gradients": gradients(halfway, chosen),
        "flows": flows(chosen),
        "theory": predict(halfway, chosen),
    }


def at_half_drop(chosen: Settings) -> MergedAttention:
    """Weights halfway down the drop on the population, blocks at zero. For one run LSODA is compiled faster."""
    model = start(chosen.seeds[0], 0.0)
    options: dict[str, Any] = {"solver": "lsoda", "rtol": 1e-8, "progress": False}
    trajectory = completed(flow(model, Population(TASK), until=1000.0, save=2001, **options))
    loss = trajectory["loss"].values[0]
    return model_at(trajectory, model, index=int(np.argmin(abs(loss - (loss[0] + loss[-1]) / 2))))


def gradients(model: MergedAttention, chosen: Settings) -> xr.Dataset:
    """The gradient of the loss by the label blocks, on independent data sets of each size."""

    @eqx.filter_jit
    def by_blocks(objective: Moments):
        gradient = eqx.filter_grad(lambda m: objective(m))(model)
        return jnp.sqrt(jnp.sum(gradient.value[:, :, :DIM] ** 2) + jnp.sum(gradient.key_query[:, DIM:] ** 2))

    sizes = np.zeros((len(chosen.sizes), chosen.sets))
    for row, count in enumerate(chosen.sizes):
        keys = jax.random.split(jax.random.key(1000 + row), chosen.sets)
        for column, key in enumerate(keys):
            sizes[row, column] = by_blocks(Moments.of_task(TASK, count, progress=False, key=key))
    variables = {"gradient": (("sequences", "set"), sizes)}
    return xr.Dataset(
        variables, {"sequences": list(chosen.sizes)}, attrs=provenance({"figure": NAME, **asdict(chosen)})
    )


def infinite_data() -> Moments:
    """Exact moments of all features, in the paper's convention."""
    exact = exact_moments(TASK.covariance, np.zeros(DIM), 1.0, CONTEXT)
    gram, cross = jnp.asarray(exact.gram) / CONTEXT**2, jnp.asarray(exact.cross)[None] / CONTEXT
    return Moments(gram, cross, jnp.asarray(exact.power), DIM, 1, "full", "1/N", True)


def flows(chosen: Settings, objective: Moments | None = None) -> xr.Dataset:
    """Gradient flow on infinite data from each start: loss, size of the blocks, and of what they add to the answer.

    The latter is a root mean square. By LSODA: for a few runs of this model that is faster than to compile an
    ensemble's program.
    """
    objective = infinite_data() if objective is None else objective
    alike = _alike()
    power = jnp.asarray(np.asarray(objective.gram)[np.ix_(alike, alike)])

    def added(model: MergedAttention):
        extra = objective.coefficients(model)[0][alike]
        return jnp.sqrt(extra @ power @ extra)

    def blocks(model: MergedAttention):
        return jnp.sqrt(jnp.sum(model.value[:, :, :DIM] ** 2) + jnp.sum(model.key_query[:, DIM:] ** 2))

    options: dict[str, Any] = {
        "solver": "lsoda",
        "save": np.concatenate([EARLY, np.geomspace(101, chosen.duration, 200)]),
        "rtol": 1e-8,
        "atol": 1e-12,
        "observe": {"blocks": blocks, "added": added},
        "progress": False,
        "configuration": {"figure": NAME, **asdict(chosen)},
    }
    by_seed = []
    for seed in chosen.seeds:
        runs = [flow(start(seed, size), objective, until=chosen.duration, **options) for size in BLOCK_STARTS]
        runs = [completed(run)[["loss", "blocks", "added"]].isel(run=0, drop=True) for run in runs]
        by_seed.append(xr.concat(runs, dim="start", combine_attrs="drop_conflicts"))
    together = xr.concat(by_seed, dim="seed", combine_attrs="drop_conflicts")
    return together.assign_coords(start=list(BLOCK_STARTS), seed=list(chosen.seeds))


def predict(model: MergedAttention, chosen: Settings) -> xr.Dataset:
    r"""For the gradients, for growth near zero, and for the end.

    - A gradient by the blocks is a mean over sequences of $g = -2e\,\partial\hat y/\partial(\mathbf v, u)$, of mean
      zero and covariance $\Sigma$: its mean square is $\mathrm{tr}\Sigma/P$, with relative variance
      $2\,\mathrm{tr}\Sigma^2/(\mathrm{tr}\Sigma)^2$ a data set. $\Sigma$ is taken from sequences of its own.
    - `growth`: near zero $\tau\dot{\mathbf v}_h = M\Lambda u_h$, $\tau\dot u_h = \Lambda M^\top\mathbf v_h$: the blocks
      grow at rates $\lambda_d^2$, each below the rate $\|\Lambda^2\|_F$ of the drop.
    - `kept`: their size in the end (`_kept_size`).
    - `rest`: along gradient flow $\tau\dot W = -\tfrac12\nabla L$ in a convex valley the loss is above its minimum by
      less than $|W - W_*|^2/t$, and weights move by no more than their size at the end, $2\|A^*\|$ squared.
    """
    batch = TASK.sample(20000, key=jax.random.key(7))

    @eqx.filter_jit
    def each(tokens, label):
        gradient = eqx.filter_grad(lambda m: (m(tokens)[0] - label) ** 2)(model)
        return jnp.concatenate([gradient.value[:, :, :DIM].reshape(-1), gradient.key_query[:, DIM:].reshape(-1)])

    scores = np.asarray(eqx.filter_jit(jax.vmap(each))(batch.tokens, batch.labels[:, -1, 0]))
    spread = scores.T @ scores / len(scores)
    levels, driving = theory.levels(TASK), theory.cross_moment(TASK) @ TASK.covariance
    grown = float(np.linalg.norm(theory.modes(TASK).ends))
    gram = np.linalg.eigvalsh(infinite_data().gram)
    starts = [[start(seed, size) for size in BLOCK_STARTS] for seed in chosen.seeds]
    return xr.Dataset(
        {
            "mean_square": np.trace(spread),
            "relative_variance": 2 * np.trace(spread @ spread) / np.trace(spread) ** 2,
            "growth": (("seed", "start", "time"), [[_linear_growth(m, driving) for m in row] for row in starts]),
            "kept": (
                ("seed", "start"),
                np.outer([_kept_size(seed) for seed in chosen.seeds], BLOCK_STARTS),
            ),
            "grown": grown**0.5,
            "initial": INIT * (HEADS * (DIM**2 + 1)) ** 0.5,
            "first_level": levels[0],
            "last_level": levels[-1],
            "rate": np.linalg.norm(driving, ord=2),
            "drop": theory.merged_escape_time(TASK, INIT),
            "curvature": gram.max(),
            "rest": 2 * grown / chosen.duration,
        },
        {"start": list(BLOCK_STARTS), "time": EARLY, "seed": list(chosen.seeds)},
        attrs=provenance({"figure": NAME, **asdict(chosen)}),
    )


def _alike() -> np.ndarray:
    """Which features keep their sign under w → -w: S_xx x_q and S_yy x_q."""
    row, column = np.triu_indices(DIM + 1)
    return np.repeat((column < DIM) | (row == DIM), DIM)


def _linear_growth(model: MergedAttention, driving: np.ndarray) -> np.ndarray:
    """The size of the blocks near zero, mode by mode."""
    left, rates, right = np.linalg.svd(driving)
    inputs = np.asarray(model.value)[:, 0, :DIM] @ left
    labels = np.asarray(model.key_query)[:, DIM] @ right.T
    return _grown_size(inputs, labels, rates * EARLY[:, None])


def _kept_size(seed: int) -> float:
    r"""The size of the blocks in the end over that at the start, to leading order in the latter.

    Small blocks are driven by $G = M\Lambda - CA\Lambda$ as U is: mode d grows by $\int r_d\,dt$, with
    $r_d = \lambda_d m_d - \lambda_d c_d v u_d$ of the D + 1 equations for the drop (`theory.merged_course`). In the end
    the heads are $v_h = v\mu_h$, $U_h = \mu_h U$, with $\mu$ of `theory.merged_start`, so that the blocks reach the
    answer by $\sum_h\mu_h\mathbf v_h$ and $\sum_h\mu_h u_h$ alone: these vanish, and what is at right angles to
    $\mu$ stays.
    """
    model = start(seed, 1.0)
    values, key_queries = np.asarray(model.value)[:, 0], np.asarray(model.key_query)
    modes = theory.modes(TASK)
    driving = theory.cross_moment(TASK) @ TASK.covariance
    unit = driving / np.linalg.norm(driving)
    carrying = values[:, DIM] + np.einsum("hij,ij->h", key_queries[:, :DIM], unit)
    carrying /= np.linalg.norm(carrying)
    times = np.linspace(0, 2000, 20001)
    course = theory.merged_course(TASK, times, *theory.merged_start(TASK, values[:, DIM], key_queries[:, :DIM]))
    left_over = modes.driving - modes.curvature * course.value[:, None] * course.key_query
    exponents = np.trapezoid(left_over, times, axis=0)
    aside = np.eye(HEADS) - np.outer(carrying, carrying)
    inputs, labels = (aside @ part @ modes.directions for part in (values[:, :DIM], key_queries[:, DIM]))
    return float(_grown_size(inputs, labels, exponents[None])[0])


def _grown_size(inputs: np.ndarray, labels: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Of blocks, in the modes, of which sums have grown and differences shrunk by the exponents of each mode."""
    up, down = (inputs + labels) ** 2 / 2, (inputs - labels) ** 2 / 2
    growth = np.exp(2 * exponents)
    return np.sqrt(growth @ up.sum(axis=0) + (1 / growth) @ down.sum(axis=0))


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    gradient_sizes, runs, predicted = data["gradients"], data["flows"], data["theory"]
    sizes, sets = gradient_sizes["sequences"].values, gradient_sizes.sizes["set"]
    square = (gradient_sizes["gradient"].values ** 2).mean(axis=1)
    away = np.log(sizes) - np.log(sizes).mean()
    slope = away @ np.log(square) / 2 / (away @ away)
    error = (float(predicted["relative_variance"]) / sets) ** 0.5
    fall = float(predicted["first_level"] - predicted["last_level"])
    # Linear theory holds while little has fallen: a fall f needs coefficients up to f/2λ₁².
    early = 1e-3 * fall
    nonzero = runs.sel(start=runs["start"].values > 0)
    near = nonzero.sel(time=predicted["time"].values)
    expected = predicted.sel(start=nonzero["start"].values)
    linear = near["loss"] > predicted["first_level"] - early
    ratio = (near["blocks"] / expected["growth"]).where(linear, 1.0).transpose(..., "time").values
    ends = runs.isel(time=-1)
    rate, rest = float(predicted["rate"]), float(predicted["rest"])
    second_order = ((expected["kept"] / predicted["grown"]) ** 2).transpose("seed", "start").values
    small = second_order <= SMALL
    kept = (ends["blocks"].sel(start=nonzero["start"].values) / expected["kept"]).transpose("seed", "start").values
    counted: Any = {"counted": "runs", "kind": "theory", "explored": True}
    moments = "moments of S_xx x_q and S_yy x_q vanish under w → −w"
    return [
        Claim.over(
            f"{NAME}/zero-stays",
            "On infinite data, blocks that start at zero stay there: their largest size, for each seed",
            predicted=0.0,
            measured=runs["blocks"].sel(start=0.0).max("time").values,
            tolerance=1000 * np.finfo(float).eps * np.exp(rate * float(predicted["drop"])),
            basis="rounding at each of a thousand steps, grown at the rate λ_1² until the drop",
            kind="paper",
            source="Section 2.3",
        ),
        Claim.close(
            f"{NAME}/gradient-exponent",
            "On P sequences the gradient of blocks at zero falls as P^(-1/2): fitted exponent of its root mean square",
            predicted=-0.5,
            measured=slope,
            tolerance=STANDARD_ERRORS * error / 2 / (away @ away) ** 0.5,
            basis="3 standard errors, from the covariance of one sequence's gradient",
            kind="theory",
            source=moments,
        ),
        Claim.close(
            f"{NAME}/gradient-size",
            "The gradient of blocks at zero is a sampling error and no more: mean square times P, over its expectation",
            predicted=1.0,
            measured=(square * sizes).mean() / float(predicted["mean_square"]),
            tolerance=STANDARD_ERRORS * error / sizes.size**0.5,
            basis="3 standard errors, from the covariance of one sequence's gradient",
            kind="theory",
            source=moments,
        ),
        Claim.over(
            f"{NAME}/growth",
            "Blocks that do not start at zero grow as linear theory says, at rates λ_d², until the loss has fallen by "
            "0.1 %: largest difference of the logarithms, for each seed and start of the blocks",
            predicted=0.0,
            measured=np.abs(np.log(ratio)).max(axis=-1).ravel(),
            tolerance=early / (2 * rate) * float(predicted["curvature"]) / (2 * rate),
            basis="the second order in the coefficients, while the loss has fallen by less than 0.1 %",
            source="linearised flow: dv_h/dt = MΛu_h, du_h/dt = ΛMᵀv_h",
            **counted,
        ),
        Claim.over(
            f"{NAME}/kept",
            "Small blocks are not unlearned: they keep the size that they reach at right angles to what the heads "
            "carry: size in the end over the predicted, for each seed and start whose square is below "
            f"{SMALL:g} of the grown weights'",
            predicted=1.0,
            measured=kept[small],
            tolerance=3 * second_order[small] + float(predicted["initial"] / predicted["grown"]),
            basis="first order in the other initial weights; 3 times the second order in the blocks",
            source="blocks driven by what is left to learn, along the D + 1 equations of the drop",
            **counted,
        ),
        Claim.over(
            f"{NAME}/end",
            "From every start of the blocks the loss ends at L(M_D): final loss, for each seed and start",
            predicted=float(predicted["last_level"]),
            measured=ends["loss"].values.ravel(),
            tolerance=rest,
            basis="gradient flow in a convex valley: square of the distance over the time",
            source="the useless features cost, and bring nothing",
            **counted,
        ),
        Claim.over(
            f"{NAME}/no-contribution",
            "In the end the blocks add nothing to the answer: root mean square of what they add, labels having unit "
            "variance, for each seed and start",
            predicted=0.0,
            measured=ends["added"].values.ravel(),
            tolerance=CONTRIBUTION,
            basis="a level, three times the largest of seven other seeds",
            source="the useless features cost, and bring nothing",
            **counted,
        ),
    ]


def draw(data: dict[str, xr.Dataset]) -> Figure:
    gradient_sizes, runs, predicted = data["gradients"], data["flows"], data["theory"]
    sizes = gradient_sizes["sequences"].values
    with styled():
        figure = new_figure(9.6, 5.6)
        grid = figure.add_gridspec(2, 2, width_ratios=(2, 3))
        left, above = figure.add_subplot(grid[:, 0]), figure.add_subplot(grid[0, 1])
        below = figure.add_subplot(grid[1, 1], sharex=above)

        each = np.repeat(sizes[:, None], gradient_sizes.sizes["set"], axis=1)
        left.loglog(
            each.ravel(),
            gradient_sizes["gradient"].values.ravel(),
            "o",
            color="#A0C8E0",
            markersize=4,
            label="a data set",
        )
        mean = np.sqrt((gradient_sizes["gradient"].values ** 2).mean(axis=1))
        left.loglog(sizes, mean, "s", color=BLUE, markersize=6, label="root mean square")
        expected = np.sqrt(float(predicted["mean_square"]) / sizes)
        left.loglog(sizes, expected, "--", color=BLACK, label="expected, $(\\mathrm{tr}\\,\\Sigma/P)^{1/2}$")
        left.set_xticks(sizes, [str(n) for n in sizes])
        left.minorticks_off()
        left.set_xlabel("sequences P")
        left.set_ylabel("gradient by label blocks at zero")
        left.set_title("(a) A sampling error")
        left.legend(loc="lower left")

        colours = (GREY, *PALETTE)
        shown = runs.isel(seed=0)
        for k, size in enumerate(runs["start"].values):
            colour = colours[k]
            name = "blocks start at 0" if size == 0 else f"at 10{superscript(round(np.log10(size)))}"
            width = 4 if k == 0 else 1.6
            above.semilogx(runs["time"][1:], shown["loss"][k, 1:], color=colour, linewidth=width, label=name)
            if size == 0:
                continue
            below.loglog(runs["time"][1:], shown["blocks"][k, 1:], color=colour)
            below.loglog(runs["time"][1:], shown["added"][k, 1:], ":", color=colour)
            mine = predicted.isel(seed=0, start=k)
            growth, kept = mine["growth"].values, float(mine["kept"])
            rising = (growth < 2 * float(shown["blocks"][k].max())) & (EARLY > 0)
            style: Any = {"color": BLACK, "linewidth": 1.0, "linestyle": "--"}
            below.loglog(EARLY[rising], growth[rising], **style)
            if size < BLOCK_STARTS[-1]:
                below.plot([300, float(runs["time"][-1])], [kept, kept], **style)
        above.axhline(float(predicted["last_level"]), color=BLACK, linestyle=":", linewidth=1.0)
        above.set_ylim(0, 1.08)
        above.set_ylabel("loss")
        above.set_title("(b) Infinite data: the loss ends at $L(M_D)$ from every start")
        above.legend(loc="upper right")
        below.plot([], [], color=GREY, label="size of the blocks")
        below.plot([], [], "--", color=BLACK, linewidth=1.0, label="the same, theory")
        below.plot([], [], ":", color=GREY, label="what they add to the answer")
        below.legend(loc="lower right", ncols=1)
        below.set_xlim(1, float(runs["time"][-1]))
        below.set_ylim(1e-10, 10)
        below.set_xlabel("training time $t/\\tau$")
        below.set_ylabel("size")
        below.set_title("(c) Blocks grow until the drop, then cease to contribute")
    return figure
