r"""Training on contexts of varying length: one map for all lengths, the minimiser of the averaged moments.

With attention divided by each context's own n, the length enters the moments of $\beta$ through 1/n only, so that a
mixture of lengths is learned as one context of length $1/\langle 1/n\rangle$.
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
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population
from stepwell.papers._claim import Claim
from stepwell.papers._completed import completed
from stepwell.papers._style import BLACK, BLUE, GREEN, GREY, VERMILION, new_figure, styled
from stepwell.probes import staircase
from stepwell.tasks import ContextLengths, InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import model_at, provenance

NAME = "linear/varying-lengths"
TITLE = "Contexts of varying length are learned as one length, the harmonic mean"
CAPTION = (
    "Linear attention trained on context lengths 1 to 31, equally likely, each sum divided by its own length. (a) With "
    "separate key and query, gradient flow on infinite data goes down the levels predicted for the averaged moments "
    "(dashed; dotted, those of the fixed length 31). (b) The loss at each single length. Lines: theory, for the "
    "minimiser of the averaged moments and for that of length 31. Dots: merged attention trained on infinite data, "
    "tested on fresh sequences. Crosses: trained on a finite sample, its loss at that length in closed form. A model "
    "trained at one long length gives answers that are too large where the context is short."
)

EIGENVALUES = (0.4, 0.3, 0.2, 0.1)
DIM, LONGEST = 4, 31
MERGED_HEADS, SEPARATE_HEADS = 8, 4
INIT = 1e-3
GAP = 1e-10
"""Runs end when the loss has closed all but this fraction of its way to the least."""
PLATEAU_TOLERANCE = 0.02
"""As for the fixed length: a plateau lies within 2 % of its level."""
STANDARD_ERRORS = 3.0
TESTED = (1, 2, 4, 8, 16, 31)


@dataclass(frozen=True)
class Settings:
    """What a quick run has less of."""

    sequences: int = 5000
    test_sequences: int = 20000
    seed: int = 0


PUBLISHED = Settings()
QUICK = Settings(sequences=2000, test_sequences=5000)


def settings(quick: bool) -> dict[str, Any]:
    return {
        "dimension D": DIM,
        "context lengths": f"1 to {LONGEST}, equally likely",
        "eigenvalues of the covariance": list(EIGENVALUES),
        "heads": f"{MERGED_HEADS} merged; {SEPARATE_HEADS} separate, of rank one",
        "initial weights": f"Gaussian, standard deviation {INIT:g}, label blocks zero",
        "tested lengths": list(TESTED),
        **asdict(QUICK if quick else PUBLISHED),
    }


def task_of(lengths: int | ContextLengths) -> InContextRegression:
    return InContextRegression(covariance(EIGENVALUES), lengths)


VARIED = ContextLengths.uniform(LONGEST)


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else PUBLISHED
    keys = jax.random.split(jax.random.key(chosen.seed), 4)
    merged = MergedAttention.random(dim=DIM, heads=MERGED_HEADS, scale=INIT, key=keys[0])
    separate = SeparateAttention.random(dim=DIM, heads=SEPARATE_HEADS, scale=INIT, key=keys[1])
    sample = Moments.of_task(task_of(VARIED), chosen.sequences, features="cubic", progress=False, key=keys[2])
    runs = {
        "varied": _run(merged, Population(task_of(VARIED)), 401),
        "fixed": _run(merged, Population(task_of(LONGEST)), 401),
        "sampled": _run(merged, sample, 401),
        "separate": _run(separate, Population(task_of(VARIED)), 8001),
    }
    tests = test_losses({name: model_at(runs[name], merged) for name in ("varied", "fixed")}, chosen, keys[3])
    return {**runs, "tests": tests, "theory": predict(sample, chosen)}


def _run(model: Any, objective: Any, save: int) -> xr.Dataset:
    """A flow to convergence. Nearly each has a program of its own, which is compiled faster for LSODA."""
    trajectory = completed(
        flow(
            model,
            objective,
            solver="lsoda",
            save=save,
            gap=GAP,
            rtol=1e-8,
            progress=False,
            configuration={"figure": NAME},
        )
    )
    maps = eqx.filter_jit(lambda m: m.effective_map()[0, 0])
    return trajectory.assign(final_map=(("row", "column"), np.asarray(maps(model_at(trajectory, model)))))


def test_losses(models: dict[str, MergedAttention], chosen: Settings, key) -> xr.Dataset:
    """Losses of trained models on fresh sequences, of which they see n tokens and the next one's input."""
    errors = eqx.filter_jit(
        lambda model, batch, n: jax.vmap(lambda tokens: model(tokens, n))(batch.tokens)[:, 0] - batch.labels[:, n, 0]
    )
    rows = {name: [] for name in models}
    for n, each in zip(TESTED, jax.random.split(key, len(TESTED)), strict=True):
        batch = task_of(LONGEST).sample(chosen.test_sequences, key=each)
        for name, model in models.items():
            squares = np.asarray(errors(model, batch, jnp.asarray(n))) ** 2
            rows[name].append(squares.mean())
    variables = {name: ("length", row) for name, row in rows.items()}
    return xr.Dataset(variables, {"length": list(TESTED)}, attrs=provenance({"figure": NAME, **asdict(chosen)}))


def predict(sample: Moments, chosen: Settings, *, lengths: ContextLengths = VARIED) -> xr.Dataset:
    r"""Levels, minimisers and losses at each length.

    `map_error`: a loss that is $\epsilon$ above the least has a map within $(\epsilon/\min\text{eig}(C)\min
    \text{eig}(\Lambda))^{1/2}$ of the minimiser. `excess`, `excess_error`: mean and standard deviation of
    $L(\hat A) - L(A^*)$, $\hat A$ the least squares of P sequences. To first order $\delta = H^{-1}\langle e\phi
    \rangle$, $H = C\otimes\Lambda$; the excess $\delta^\top H\delta$ has mean $\mathrm{tr}\,T$ and variance
    $2\,\mathrm{tr}\,T^2$, $T = H^{-1}\mathrm{cov}(e\phi)/P$, on data of its own.
    """
    varied, fixed = task_of(lengths), task_of(LONGEST)
    best, long = theory.minimiser(varied), theory.minimiser(fixed)
    every = np.arange(1, LONGEST + 1)
    levels = theory.levels(varied)
    least = float(np.linalg.eigvalsh(theory.second_moment(varied)).min() * min(EIGENVALUES))
    spread = _score_covariance(varied, best) / chosen.sequences
    ratio = np.linalg.solve(np.kron(theory.second_moment(varied), varied.covariance), spread)
    return xr.Dataset(
        {
            "levels": ("level", levels),
            "fixed_levels": ("level", theory.levels(fixed)),
            "minimiser": (("row", "column"), best),
            "fixed_minimiser": (("row", "column"), long),
            "map_error": (GAP * (levels[0] - levels[-1]) / least) ** 0.5,
            "loss_at_length": ("every", [theory.loss_at(task_of(int(n)), best) for n in every]),
            "fixed_loss_at_length": ("every", [theory.loss_at(task_of(int(n)), long) for n in every]),
            "least_at_length": ("every", [theory.minimal_loss(task_of(int(n))) for n in every]),
            "test_error": ("length", _test_errors(best, chosen)),
            "fixed_test_error": ("length", _test_errors(long, chosen)),
            "mean_inverse_length": theory.mean_inverse_length(varied),
            "excess": np.trace(ratio),
            "excess_error": (2 * np.trace(ratio @ ratio)) ** 0.5,
        },
        {"every": every, "length": list(TESTED)},
        attrs=provenance({"figure": NAME, **asdict(chosen)}),
    )


def _score_covariance(task: InContextRegression, best: np.ndarray) -> np.ndarray:
    r"""Covariance over sequences of $\sum_n \pi_n e_n \phi_n$, on 4000 sequences that nothing is trained on."""
    cubic = task.sample(4000, key=jax.random.key(99)).cubic_features("1/N")
    features, labels = np.asarray(cubic.features), np.asarray(cubic.labels)[:, 0]
    scores = (labels - features @ best.ravel())[:, None] * features
    chances = np.array(task.lengths.probabilities)
    each = np.einsum("snf,n->sf", scores.reshape(-1, chances.size, features.shape[1]), chances)
    return each.T @ each / len(each)


def _test_errors(effective_map: np.ndarray, chosen: Settings) -> np.ndarray:
    """Standard errors of the test losses, from sequences of their own: a skewed mean that comes out low by chance comes
    with a standard error that is low too."""
    batch = task_of(LONGEST).sample(40000, key=jax.random.key(98))
    tokens, labels = np.asarray(batch.tokens), np.asarray(batch.labels)[..., 0]
    errors = []
    for n in TESTED:
        x, y, query = tokens[:, :n, :DIM], tokens[:, :n, DIM], tokens[:, n, :DIM]
        answers = np.sum(np.einsum("sn,snd->sd", y, x) / n @ effective_map * query, axis=1)
        errors.append(np.std((labels[:, n] - answers) ** 2) / chosen.test_sequences**0.5)
    return np.array(errors)


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    predicted, tests, separate = data["theory"], data["tests"], data["separate"]
    levels = predicted["levels"].values
    stairs = staircase(separate["time"].values, separate["loss"].values[0])
    reached = [plateau.level for plateau in stairs.plateaus]
    nearest = [levels[np.argmin(abs(levels - level))] for level in reached]
    all_claims = [
        Claim.at_most(
            f"{NAME}/map",
            "On the population, merged attention ends at the minimiser of the averaged moments: distance of the maps",
            measured=np.linalg.norm(data["varied"]["final_map"].values - predicted["minimiser"].values),
            tolerance=float(predicted["map_error"]),
            basis="where the run is ended, over the least curvature",
        ),
        Claim.close(
            f"{NAME}/drops",
            "On the population, the loss of separate attention drops D times: number of drops",
            predicted=DIM,
            measured=len(stairs.drops),
            tolerance=0,
            basis="a count; a plateau is 4 times slower than the falls beside it",
        ),
        Claim.over(
            f"{NAME}/levels",
            "On the population, every plateau of separate attention is at a level of the averaged moments: loss, one "
            "for each plateau",
            predicted=nearest,
            measured=reached,
            tolerance=PLATEAU_TOLERANCE * np.array(nearest),
            basis="2 %, as for the fixed length",
        ),
    ]
    places = np.array(TESTED) - 1
    for name, words, prefix in (
        ("varied", "varying lengths", ""),
        ("fixed", f"length {LONGEST}", "fixed_"),
    ):
        all_claims.append(
            Claim.over(
                f"{NAME}/{name}-at-length",
                f"Trained on {words}, the loss on fresh sequences of a single length is the theory's: loss, one for "
                f"each of the lengths {TESTED}",
                predicted=predicted[f"{prefix}loss_at_length"].values[places],
                measured=tests[name].values,
                tolerance=STANDARD_ERRORS * predicted[f"{prefix}test_error"].values,
                basis="3 standard errors, the errors from sequences of their own",
            )
        )
    trained = data["sampled"]["final_map"].values
    above = theory.loss_at(task_of(VARIED), trained) - float(levels[-1])
    all_claims.append(
        Claim.close(
            f"{NAME}/excess",
            "Trained on P sequences of all their lengths, the loss on the population is above the least by what the "
            "sampling error of the moments costs",
            predicted=predicted["excess"],
            measured=above,
            tolerance=STANDARD_ERRORS * predicted["excess_error"],
            basis="3 standard deviations of a quadratic form of Gaussians, tr T ± (2 tr T²)^½",
        )
    )
    all_claims.append(
        Claim.close(
            f"{NAME}/difference",
            f"At length 1, training at length {LONGEST} costs more than training on all: difference over the theory's",
            predicted=1.0,
            measured=(tests["fixed"][0] - tests["varied"][0])
            / (predicted["fixed_loss_at_length"][0] - predicted["loss_at_length"][0]),
            tolerance=STANDARD_ERRORS
            * float(np.hypot(predicted["fixed_test_error"][0], predicted["test_error"][0]))
            / float(predicted["fixed_loss_at_length"][0] - predicted["loss_at_length"][0]),
            basis="3 standard errors, the errors from sequences of their own",
        )
    )
    return all_claims


def draw(data: dict[str, xr.Dataset]) -> Figure:
    predicted, tests, separate = data["theory"], data["tests"], data["separate"]
    every, small = predicted["every"].values, {"fontsize": 9, "textcoords": "offset points"}
    at_length = [theory.loss_at(task_of(n), data["sampled"]["final_map"].values) for n in TESTED]
    with styled():
        figure = new_figure(9.6, 4.6)
        course, lengths = figure.subplots(1, 2)
        end = float(separate["time"][-1])
        for m, (level, other) in enumerate(zip(predicted["levels"], predicted["fixed_levels"], strict=True)):
            course.axhline(
                float(level), color=BLACK, linestyle="--", linewidth=1.0, label="levels, averaged" if m == 0 else None
            )
            course.axhline(
                float(other),
                color=GREY,
                linestyle=":",
                linewidth=1.2,
                label=f"levels, length {LONGEST}" if m == 1 else None,
            )
            course.annotate(
                f"{float(level):.3f}", (1.1 * end, float(level)), xytext=(0, 3 if m < DIM else -12), ha="right", **small
            )
        course.plot(separate["time"], separate["loss"][0], color=BLUE, label="separate, lengths 1 to 31")
        course.set_xlim(0, 1.1 * end)
        course.set_ylim(0, 1.08)
        course.set_xlabel("training time $t/\\tau$ (the run ends after its last drop)")
        course.set_ylabel("loss averaged over lengths")
        course.set_title("(a) Down the levels of the averaged moments")
        course.legend(loc="upper right", bbox_to_anchor=(0.95, 0.9))

        lengths.plot(
            every, predicted["fixed_loss_at_length"], color=VERMILION, label=f"trained at length {LONGEST}, theory"
        )
        lengths.plot(every, predicted["loss_at_length"], color=BLUE, label="trained on lengths 1 to 31, theory")
        lengths.plot(every, predicted["least_at_length"], ":", color=GREY, label="trained at that length, theory")
        for name, prefix, colour in (("fixed", "fixed_", VERMILION), ("varied", "", BLUE)):
            lengths.errorbar(
                tests["length"], tests[name], 3 * predicted[f"{prefix}test_error"], fmt="o", color=colour,
                markersize=4.5, label="trained, on fresh sequences (3 s.e.)" if name == "varied" else None,
            )  # fmt: skip
        lengths.plot(TESTED, at_length, "x", color=GREEN, markersize=8, label="trained on a finite sample")
        lengths.set_xscale("log")
        lengths.set_xticks(TESTED, [str(n) for n in TESTED])
        lengths.minorticks_off()
        lengths.set_ylim(0, None)
        lengths.set_xlabel("context length at test")
        lengths.set_ylabel("loss (mean squared error)")
        lengths.set_title("(b) One map, tested at each length")
        lengths.legend(loc="upper right")
    return figure
