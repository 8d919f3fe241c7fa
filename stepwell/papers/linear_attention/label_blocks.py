r"""Label blocks: the weights $\mathbf v_h$ that read inputs as if they were labels, and $u_h$ that score labels.

Under $w \to -w$ the features $S_{xx} x_q$ and $S_{yy} x_q$ keep their sign while $y_q$ and $S_{xy}$ change it. So in
population their moments with $y_q$ and with $S_{xy} x_q$ vanish: blocks that are zero get no gradient, and the features
that only blocks reach are of no use. On P sequences the gradient is a mean of P terms of mean zero.
"""

from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell.dynamics import flow
from stepwell.models import MergedAttention
from stepwell.objectives import Moments, Population
from stepwell.papers._claim import Claim
from stepwell.papers._completed import completed
from stepwell.papers._style import BLACK, BLUE, GREY, PALETTE, new_figure, styled
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import model_at, provenance

from ._described import described
from ._fig14_expectations import exact_moments

NAME = "linear/label-blocks"
TITLE = "Label blocks that start at zero stay there, up to sampling error; others grow, then cease to contribute"
CAPTION = (
    "Label blocks of merged attention: the weights that let inputs pass for labels and labels for inputs. (a) Halfway "
    "down the drop, with blocks at zero: the size of their gradient on P sequences, and that expected of a mean of P "
    "terms of expectation zero. (b) Gradient flow on infinitely many sequences, by exact moments, from blocks that are "
    "zero or not: the loss ends at the same value from every start. (c) The same runs in the same colours: the size "
    "of the blocks, with the growth that linear theory predicts up to the drop, and what they add to the answer (the "
    "coefficients of S_xx x_q and S_yy x_q). That contribution shrinks after the drop, while the blocks themselves "
    "remain."
)

EIGENVALUES = (0.4, 0.3, 0.2, 0.1)
DIM, CONTEXT, HEADS, INIT = 4, 31, 5, 1e-3
BLOCK_STARTS = (0.0, 1e-4, 1e-3, 1e-2)
"""Standard deviations of the blocks at the start; the other weights have `INIT`."""
STANDARD_ERRORS = 3.0


@dataclass(frozen=True)
class Settings:
    """What a quick run has less of."""

    sizes: tuple[int, ...] = (250, 500, 1000, 2000, 4000, 8000)
    sets: int = 12
    duration: float = 1000.0
    seed: int = 0


PUBLISHED = Settings()
QUICK = Settings(sizes=(250, 1000, 4000), sets=6)


def settings(quick: bool) -> dict[str, Any]:
    return {
        **described(dim=DIM, context=CONTEXT, heads=HEADS, eigenvalues=EIGENVALUES),
        "initial weights": f"Gaussian, standard deviation {INIT:g}",
        "initial label blocks": list(BLOCK_STARTS),
        **asdict(QUICK if quick else PUBLISHED),
    }


TASK = InContextRegression(covariance(EIGENVALUES), CONTEXT)


def start(seed: int, blocks: float) -> MergedAttention:
    """The same weights for every size of the blocks."""
    model = MergedAttention.random(dim=DIM, heads=HEADS, scale=1.0, label_blocks="random", key=jax.random.key(seed))
    value = INIT * model.value.at[:, :, :DIM].multiply(blocks / INIT)
    return MergedAttention(value, INIT * model.key_query.at[:, DIM:].multiply(blocks / INIT))


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else PUBLISHED
    halfway = at_half_drop(chosen)
    return {
        "gradients": gradients(halfway, chosen),
        "flows": flows(chosen),
        "theory": predict(halfway, chosen),
    }


def at_half_drop(chosen: Settings) -> MergedAttention:
    """Weights halfway down the drop on the population, blocks at zero. For one run LSODA is compiled faster."""
    model = start(chosen.seed, 0.0)
    trajectory = completed(
        flow(model, Population(TASK), solver="lsoda", until=chosen.duration, save=2001, rtol=1e-8, progress=False)
    )
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

    By LSODA: for four runs of this model that is faster than to compile an ensemble's program.
    """
    objective = infinite_data() if objective is None else objective
    alike = _alike()

    def added(model: MergedAttention):
        return jnp.linalg.norm(objective.coefficients(model)[0] * alike)

    def blocks(model: MergedAttention):
        return jnp.sqrt(jnp.sum(model.value[:, :, :DIM] ** 2) + jnp.sum(model.key_query[:, DIM:] ** 2))

    runs = []
    for size in BLOCK_STARTS:
        trajectory = flow(
            start(chosen.seed, size),
            objective,
            solver="lsoda",
            until=chosen.duration,
            save=np.concatenate([np.linspace(0, 100, 201), np.geomspace(101, chosen.duration, 200)]),
            rtol=1e-7,
            atol=1e-12,
            observe={"blocks": blocks, "added": added},
            progress=False,
            configuration={"figure": NAME, **asdict(chosen)},
        )
        runs.append(completed(trajectory)[["loss", "blocks", "added"]].isel(run=0))
    return xr.concat(runs, dim="start", combine_attrs="drop_conflicts").assign_coords(start=list(BLOCK_STARTS))


def predict(model: MergedAttention, chosen: Settings) -> xr.Dataset:
    r"""For the gradients, and for growth near zero.

    - A gradient by the blocks is a mean over sequences of $g = -2e\,\partial\hat y/\partial(\mathbf v, u)$, of mean
      zero and covariance $\Sigma$: its mean square is $\mathrm{tr}\Sigma/P$, with relative variance
      $2\,\mathrm{tr}\Sigma^2/(\mathrm{tr}\Sigma)^2$ a data set. $\Sigma$ is taken from sequences of its own.
    - Near zero $\tau\dot{\mathbf v}_h = M\Lambda u_h$, $\tau\dot u_h = \Lambda M^\top\mathbf v_h$: the blocks grow
      at rates $\lambda_d^2$, each below the rate $\|\Lambda^2\|_F$ of the drop.
    """
    batch = TASK.sample(20000, key=jax.random.key(7))

    @eqx.filter_jit
    def each(tokens, label):
        gradient = eqx.filter_grad(lambda m: (m(tokens)[0] - label) ** 2)(model)
        return jnp.concatenate([gradient.value[:, :, :DIM].reshape(-1), gradient.key_query[:, DIM:].reshape(-1)])

    scores = np.asarray(eqx.filter_jit(jax.vmap(each))(batch.tokens, batch.labels[:, -1, 0]))
    spread = scores.T @ scores / len(scores)
    exact = exact_moments(TASK.covariance, np.zeros(DIM), 1.0, CONTEXT)
    time = np.linspace(0, 100, 201)
    levels, driving = theory.levels(TASK), theory.cross_moment(TASK) @ TASK.covariance
    return xr.Dataset(
        {
            "mean_square": np.trace(spread),
            "relative_variance": 2 * np.trace(spread @ spread) / np.trace(spread) ** 2,
            "growth": (("start", "time"), [_linear_growth(start(chosen.seed, b), driving, time) for b in BLOCK_STARTS]),
            "first_level": levels[0],
            "last_level": levels[-1],
            "rate": np.linalg.norm(driving, ord=2),
            "curvature": np.linalg.eigvalsh(exact.gram).max() / CONTEXT**2,
            "useless": np.linalg.norm(exact.minimiser()[_alike()]) / np.linalg.norm(exact.minimiser()),
            "slowest": 2 * float(np.linalg.norm(theory.modes(TASK).ends) * theory.modes(TASK).curvature.min()),
        },
        {"start": list(BLOCK_STARTS), "time": time},
        attrs=provenance({"figure": NAME, **asdict(chosen)}),
    )


def _alike() -> np.ndarray:
    """Which features keep their sign under w → -w: S_xx x_q and S_yy x_q."""
    row, column = np.triu_indices(DIM + 1)
    return np.repeat((column < DIM) | (row == DIM), DIM)


def _linear_growth(model: MergedAttention, driving: np.ndarray, time: np.ndarray) -> np.ndarray:
    """The size of the blocks near zero, mode by mode."""
    left, rates, right = np.linalg.svd(driving)
    inputs = np.asarray(model.value)[:, 0, :DIM] @ left
    labels = np.asarray(model.key_query)[:, DIM] @ right.T
    up, down = (inputs + labels) ** 2 / 2, (inputs - labels) ** 2 / 2
    growth = np.exp(2 * rates * time[:, None])
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
    near = runs.sel(time=predicted["time"].values)
    linear = near["loss"].values > float(predicted["first_level"]) - early
    apart = [
        np.max(abs(np.log(near["blocks"].values[k] / predicted["growth"].values[k]))[linear[k]])
        for k in range(1, len(BLOCK_STARTS))
    ]
    ends = runs.isel(time=-1)
    rest = fall * np.exp(-float(predicted["slowest"]) * float(runs["time"][-1]) / 2)
    return [
        Claim.at_most(
            f"{NAME}/zero-stays",
            "On infinite data, blocks that start at zero stay there: their largest size",
            measured=runs["blocks"].values[0].max(),
            tolerance=1e-10,
            basis="rounding",
        ),
        Claim.close(
            f"{NAME}/gradient-exponent",
            "On P sequences the gradient of blocks at zero falls as P^(-1/2): fitted exponent of its root mean square",
            predicted=-0.5,
            measured=slope,
            tolerance=STANDARD_ERRORS * error / 2 / (away @ away) ** 0.5,
            basis="3 standard errors, from the covariance of one sequence's gradient",
        ),
        Claim.close(
            f"{NAME}/gradient-size",
            "The gradient of blocks at zero is a sampling error and no more: mean square times P, over its expectation",
            predicted=1.0,
            measured=(square * sizes).mean() / float(predicted["mean_square"]),
            tolerance=STANDARD_ERRORS * error / sizes.size**0.5,
            basis="3 standard errors, from the covariance of one sequence's gradient",
        ),
        Claim.over(
            f"{NAME}/growth",
            "Blocks that do not start at zero grow as linear theory says, at rates λ_d², until the drop begins: "
            "largest difference of the logarithms, one for each start of the blocks",
            predicted=0.0,
            measured=apart,
            tolerance=early / (2 * predicted["rate"]) * predicted["curvature"] / (2 * predicted["rate"]),
            basis="the second order in the coefficients, while the loss has fallen by less than 0.1 %",
            relation="<=",
        ),
        Claim.at_most(
            f"{NAME}/useless",
            "On infinite data, S_xx x_q and S_yy x_q are of no use: their part of the least-squares coefficients",
            measured=predicted["useless"],
            tolerance=1e-10,
            basis="rounding",
        ),
        Claim.over(
            f"{NAME}/end",
            "From every start of the blocks the loss ends at L(M_D): final loss, one for each start",
            predicted=float(predicted["last_level"]),
            measured=ends["loss"].values,
            tolerance=ends["added"].values ** 2 * float(predicted["curvature"]) + rest,
            basis="what the coefficients still there cost at the most; the rest of the way at the slowest rate",
        ),
        Claim.over(
            f"{NAME}/not-unlearned",
            "Blocks that do not start at zero are not unlearned: size at the end over that at the start, one ratio for "
            "each start of the blocks",
            predicted=1.0,
            measured=ends["blocks"].values[1:] / runs["blocks"].values[1:, 0],
            tolerance=0,
            basis="no force acts on blocks of heads that carry no other weight",
            relation=">=",
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
        for k, size in enumerate(runs["start"].values):
            colour = colours[k]
            name = "blocks start at 0" if size == 0 else f"at {size:g}"
            above.semilogx(
                runs["time"][1:], runs["loss"][k, 1:], color=colour, linewidth=4 if k == 0 else 1.6, label=name
            )
            if size == 0:
                continue
            below.loglog(runs["time"][1:], runs["blocks"][k, 1:], color=colour)
            below.loglog(runs["time"][1:], runs["added"][k, 1:], ":", color=colour)
            growth = predicted["growth"].values[k]
            shown = (growth < 3 * float(runs["blocks"][k].max())) & (predicted["time"].values > 0)
            below.loglog(predicted["time"][shown], growth[shown], "--", color=BLACK, linewidth=1.0)
        above.axhline(float(predicted["last_level"]), color=BLACK, linestyle=":", linewidth=1.0)
        above.set_ylim(0, 1.08)
        above.set_ylabel("loss")
        above.set_title("(b) Infinite data: the loss ends at $L(M_D)$ from every start")
        above.legend(loc="lower left")
        below.plot([], [], color=GREY, label="size of the blocks")
        below.plot([], [], "--", color=BLACK, linewidth=1.0, label="the same, linear theory")
        below.plot([], [], ":", color=GREY, label="what they add to the answer")
        below.legend(loc="lower right", ncols=1)
        below.set_xlim(1, float(runs["time"][-1]))
        below.set_ylim(1e-6, 10)
        below.set_xlabel("training time $t/\\tau$")
        below.set_ylabel("size")
        below.set_title("(c) Blocks grow until the drop, then cease to contribute")
    return figure
