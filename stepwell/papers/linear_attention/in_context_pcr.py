r"""On plateau m the model does principal component regression with m components, in context.

The model is trained by gradient flow on infinite data and then tested on fresh sequences. Plateaus are detected in the
loss curve; the regression is solved by least squares within each context, with the true eigenvectors.
"""

from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure

from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.papers._claim import Claim
from stepwell.papers._style import BLACK, GREY, PALETTE, new_figure, styled
from stepwell.probes import pcr_test, staircase
from stepwell.tasks import Batch, InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT, model_at

from ._described import described
from ._rank_one import CONTEXT, DIM, EIGENVALUES, HEADS, run_flows, schedules, starts

NAME = "linear/in-context-pcr"
STANDARD_ERRORS = 3.0


@dataclass(frozen=True)
class Settings:
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    init: float = 1e-3
    held_out: int = 4000
    """Fresh sequences for each seed."""
    points: int = 600


FULL = Settings()
QUICK = Settings(seeds=(0,), held_out=2000, points=200)

TITLE = "On plateau m, attention does principal component regression with m components in context"
CAPTION = (
    "Linear attention with separate keys and queries of rank one, trained by gradient flow on infinite data. (a) Loss "
    "of each seed; the points, in the middle of the plateaus detected in the curve, are where the model is tested. "
    "(b) At each of them, the mean squared difference between the model's predictions on fresh sequences and "
    "principal component regression with m components: least squares within the same context on the first m true "
    "principal components of the inputs. One line a plateau, all seeds; the ring is the smallest. Between the model "
    "and the regression that is closest there remains what a context of 31 tokens cannot tell: attention uses the "
    "covariance of all inputs, least squares that of its own context."
)


def settings(quick: bool) -> dict[str, Any]:
    return {
        **described(dim=DIM, context=CONTEXT, heads=HEADS, rank=1, eigenvalues=EIGENVALUES),
        "training": "gradient flow on infinite data",
        **asdict(QUICK if quick else FULL),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    task, vectors = prepare()
    flows = train(task, chosen)
    return {"flows": flows[["loss"]], "tests": examine(task, vectors, flows, chosen)}


def prepare() -> tuple[InContextRegression, Float[np.ndarray, "dim component"]]:
    """The task and the eigenvectors of its covariance, in falling order of eigenvalue."""
    task = InContextRegression(covariance(EIGENVALUES, key=jax.random.key(0)), CONTEXT)
    return task, np.linalg.eigh(task.covariance)[1][:, ::-1]


def train(task: InContextRegression, chosen: Settings) -> xr.Dataset:
    """The flow of each seed, saved at common times: even in log time, and finer where drops are to be expected."""
    models = starts(chosen.seeds, chosen.init)
    drops = np.array([drop.time for each in schedules(task, models) for drop in each])
    near = np.outer(drops, np.linspace(0.98, 1.02, 21)).ravel()
    times = np.unique(np.concatenate([np.geomspace(drops.min() / 5, 2 * drops.max(), chosen.points), near]))
    configuration = {"figure": NAME, **asdict(chosen)}
    tolerances = {"rtol": 1e-6, "atol": 1e-4 * chosen.init}
    return run_flows(models, Population(task), times, seeds=chosen.seeds, configuration=configuration, **tolerances)


def examine(
    task: InContextRegression,
    vectors: Float[np.ndarray, "dim component"],
    flows: xr.Dataset,
    chosen: Settings,
    *,
    fresh_from: InContextRegression | None = None,
) -> xr.Dataset:
    """The test in the middle of each plateau; nan where a run has none at a level. Levels tell which one it is."""
    levels = theory.levels(task)
    template = SeparateAttention.random(dim=DIM, heads=HEADS, scale=1.0, key=jax.random.key(0))
    shape = (len(chosen.seeds), levels.size)
    names = ("time", "level", "closest", "margin", "held_out", "held_out_error", "recorded")
    table = {name: np.full(shape, np.nan) for name in names}
    difference = np.full((*shape, DIM + 1), np.nan)
    counts = np.zeros(len(chosen.seeds), dtype=int)
    time = flows["time"].values
    for run, seed in enumerate(chosen.seeds):
        loss = flows["loss"].values[run]
        plateaus = staircase(time, loss).plateaus
        counts[run] = len(plateaus)
        batch = (fresh_from or task).sample(chosen.held_out, key=jax.random.key(1000 + seed))
        for plateau in plateaus:
            m = int(np.argmin(abs(levels - plateau.level)))
            place = int(np.argmin(abs(time - (plateau.start + plateau.end) / 2)))
            model = model_at(flows, template, run=run, index=place)
            test = pcr_test(model, batch, vectors)
            difference[run, m] = test["difference"]
            errors = _errors(model, batch)
            held_out_error = errors.std(ddof=1) / errors.size**0.5
            closest, margin = int(test["closest"]), float(test["margin"])
            values = (time[place], plateau.level, closest, margin, errors.mean(), held_out_error, loss[place])
            for name, value in zip(names, values, strict=True):
                table[name][run, m] = value
    dims = ("run", "plateau")
    examined = xr.Dataset(
        {name: (dims, values) for name, values in table.items()} | {"plateaus": ("run", counts)},
        {"run": list(chosen.seeds), "plateau": np.arange(levels.size), "components": np.arange(DIM + 1)},
    )
    examined["difference"] = ((*dims, "components"), difference)
    examined["predicted_level"] = ("plateau", levels)
    examined["time"].attrs["units"] = TIME_UNIT
    return examined


def _errors(model: SeparateAttention, batch: Batch) -> Float[np.ndarray, " sequences"]:
    """Squared errors of the predictions for the queries."""
    return np.asarray(_squared_errors(model, batch))


@eqx.filter_jit
def _squared_errors(model: SeparateAttention, batch: Batch):
    return (jax.vmap(model)(batch.tokens)[:, 0] - batch.labels[:, batch.lengths.longest, 0]) ** 2


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    tests = data["tests"]
    wrong = (tests["closest"] != tests["plateau"]).sum("plateau")
    deviation = abs(tests["held_out"] - tests["predicted_level"]) / tests["held_out_error"]
    tested = int(tests["closest"].notnull().sum())
    return [
        Claim.over(
            f"{NAME}/plateaus",
            "The loss curve has D + 1 plateaus",
            predicted=DIM + 1,
            measured=tests["plateaus"].values,
            tolerance=0,
            basis="a count; a plateau is 4 times slower than the falls beside it",
        ),
        Claim.over(
            f"{NAME}/closest",
            "On plateau m the model predicts most like regression with m components, of 0 to D: plateaus where it "
            "does not",
            predicted=0,
            measured=wrong.values,
            tolerance=0,
            basis="a count; a plateau that is missing counts",
            relation="<=",
        ),
        Claim.over(
            f"{NAME}/margin",
            "The fresh sequences are enough to tell: the least distance to the second closest, in standard errors",
            predicted=STANDARD_ERRORS,
            measured=tests["margin"].min("plateau").values,
            tolerance=0,
            basis="3 standard errors",
            relation=">=",
        ),
        Claim.over(
            f"{NAME}/held-out",
            f"On fresh sequences the error on plateau m is L(M_m): largest deviation of the {tested} plateaus, in "
            "standard errors",
            predicted=0.0,
            measured=deviation.max("plateau", skipna=True).values,
            # Of k Gaussians the largest exceeds this in as many cases as one exceeds 3.
            tolerance=_largest_of(tested),
            basis=f"3 standard errors, for the largest of {tested}",
            relation="<=",
        ),
    ]


def _largest_of(count: int) -> float:
    """What the largest of so many sizes of Gaussians exceeds as rarely as one exceeds 3."""
    from scipy.special import erfcinv

    return float(np.sqrt(2) * erfcinv(0.0026998 / max(count, 1)))


def draw(data: dict[str, xr.Dataset]) -> Figure:
    flows, tests = data["flows"], data["tests"]
    colours = (BLACK, *PALETTE)
    with styled():
        figure = new_figure(9.6, 4.2)
        loss, test = figure.subplots(1, 2)
        for run in range(flows.sizes["run"]):
            loss.plot(flows["time"], flows["loss"][run], color=GREY, linewidth=0.8, zorder=1)
        for m in range(tests.sizes["plateau"]):
            loss.plot(tests["time"][:, m], tests["recorded"][:, m], "o", color=colours[m], markersize=5)
            level = float(tests["predicted_level"][m])
            loss.axhline(level, color=colours[m], linestyle=":", linewidth=1, zorder=0)
            loss.annotate(
                f"m = {m}",
                (1.0, level),
                xycoords=("axes fraction", "data"),
                xytext=(-2, 4),
                textcoords="offset points",
                ha="right",
                fontsize=8.5,
                color=colours[m],
            )
            for run in range(tests.sizes["run"]):
                label = f"plateau {m}" if run == 0 else None
                curve = tests["difference"][run, m].values
                test.plot(tests["components"], curve, "o-", color=colours[m], linewidth=1, markersize=3, label=label)
                if np.isfinite(curve).all():
                    best = int(np.argmin(curve))
                    ring: Any = {"markersize": 10, "markerfacecolor": "none", "markeredgewidth": 1.2}
                    test.plot(best, curve[best], "o", color=colours[m], **ring)
        loss.set_xscale("log")
        loss.set_xlabel("time t/τ")
        loss.set_ylabel("loss")
        loss.set_ylim(0, 1.1)
        loss.set_title("(a) Where the model is tested")
        test.set_xticks(range(DIM + 1))
        test.set_xlabel("components m of the regression")
        test.set_ylabel("mean squared difference of predictions")
        test.set_ylim(bottom=0)
        test.set_title("(b) Which regression it is closest to")
        test.legend(loc="upper center", ncols=2)
    return figure
