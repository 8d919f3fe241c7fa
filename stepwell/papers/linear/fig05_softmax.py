r"""Fig 5: softmax attention on the data and from the initial weights of Figs 1 and 3.

By its caption the figure has the setup of Figs 1 and 3, with softmax added: merged key and query, 8 heads, init
10⁻⁶, 5,000 sequences; separate ones of rank one, 5 heads, init 0.01, 80,000 sequences, of which fewer are taken here
for time. Rates and numbers of steps cannot be the same: softmax divides by the number of tokens where the published
linear attention does not, so that a step covers N times less of t/τ (merged), or N^(2/3) times less (separate), and at
the end of the published command, 6,000 steps at 0.001, merged attention has not begun to fall. Runs here go on to the
end. Of the first seed, merged attention has the flow too, and separate attention, of which the flow is drawn, descent.

The linear theory does not cover softmax: its levels are drawn for comparison, and no claim is made of them. A drop
counts if it is `COUNTED` of the whole fall. Drops and plateaus are separated by the default of `analysis.staircase`,
four times the speed. A fall is abrupt, from a plateau, if it takes less time, from 5 to 95 % of it, than goes by until
5 % of it: of growth at a rate g from weights w it takes about 3/g, after ln(1/w)/g.

**What chance adds.** With weights near zero softmax averages the tokens, $\hat y = \sum_h V_h\,\bar z$, where $V_h$ is
the row of the value that is read out and $z_t = (x_t, y_t)$. On P sequences $\langle y_q\bar z\rangle$ is not zero, so
that all $V_h$ grow alike, in a few units of time, to $\sum_h V_h = \langle\bar z\bar z^\top\rangle^{-1}\langle
y_q\bar z\rangle$: more than weights of $10^{-6}$. Two things follow.

- *Locked heads.* All heads are copies of each other, which do no more than one head can. Differences between heads grow
  no faster than at the rate g, the largest singular value of $C_{c,ab} = \langle y_q\,\frac1T\sum_t z_{tc}\,
  (z_t - \bar z)_a\,x_{q,b}\rangle$ as a matrix from (a, b) to c; g = ‖Λ²‖ with long contexts.
- *Label blocks.* Inputs in the value and labels in the key are a second way to predict, $V_x^\top \sum_t x_t y_t
  (u\cdot x_q)$, which grows at the rate λ₁², almost g, and of which all heads alike learn rank one.

**Mirror images.** Of every sequence take also those with $(x_q, y_q)$ reversed, with all labels reversed, and both.
Then $\langle y_q\bar z\rangle = 0$ exactly, and so are the gradients of label blocks that are zero: as at infinitely
many sequences, zero is a fixed point, left by the initial weights alone, which differ between heads.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.analysis import Drop, passage_time, staircase
from stepwell.analysis.style import BLACK, GRAY, PALETTE, new_figure, scientific, styled
from stepwell.dynamics import Ensemble, Record, descend, flow, flow_time
from stepwell.figures import Claim, Data, Figure, Known, Origin, Seeds
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Sampled
from stepwell.tasks import Batch, InContextRegression, covariance
from stepwell.theory import linear as theory

from ._drawing import lines, note
from ._runs import along, described, labeled, name_level

Image = Literal["query", "labels"]

COUNTED = 0.05  # a drop counts if it is at least this part of the whole fall
EDGES = 0.05, 0.95  # parts of the whole fall between which it is timed
FALLEN = 0.1  # heads are compared when the loss has fallen by this part
PUBLISHED_TIME = {"merged": flow_time(6000, 0.001), "separate": flow_time(10_000, 0.02)}
"""When the published commands of Figs 1 and 3 end, with softmax."""
PAPER_SETTINGS = {
    "dimension D": 4,
    "context length N": 31,
    "eigenvalues of the covariance": [0.4, 0.3, 0.2, 0.1],
    "merged_heads": 8,
    "merged_init": 1e-6,
    "merged_sequences": 5000,
    "separate_heads": "5 (Fig 3: four by its caption, five by its command)",
    "separate_init": 0.01,
    "separate_sequences": 80_000,
    "training": "descent; rate and number of steps are not known, those of Figs 1 and 3 end before the loss falls",
}


@dataclass(frozen=True)
class Settings:
    """What can be changed. Times are t/τ."""

    eigenvalues: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)
    context: int = 31
    merged_heads: int = 8
    merged_init: float = 1e-6
    merged_sequences: int = 5000
    separate_heads: int = 5
    separate_init: float = 1e-2
    separate_sequences: int = 5000
    seeds: tuple[int, ...] = (310, 311, 312, 313, 314, 315)
    rate: float = 0.1  # of descent; twice as much is unstable late in training
    merged_steps: int = 5000
    images: tuple[Image, ...] = ("query", "labels")  # what the mirror images of the control reverse
    image_steps: int = 1500
    separate_until: float = 4000.0
    compared_rate: float = 0.2  # of descent of separate attention, of the first seed
    precision: Literal["float64", "float32"] = "float32"
    """Of the pass over a sequence; sums over sequences are in float64."""

    @property
    def dim(self) -> int:
        return len(self.eigenvalues)

    @property
    def several(self) -> int:
        """At least so many drops are several: one for each component but the last, whose fall is small and slow."""
        return max(self.dim - 1, 1)


def simulate(settings: Settings) -> Data:
    batches = prepare(settings, settings.merged_sequences)
    images = [mirrored(batch, settings.images) for batch in batches]
    many = prepare(settings, settings.separate_sequences)
    merged = train_merged(batches, settings, steps=settings.merged_steps, snapshots=401)
    return {
        "merged": with_distance(merged, batches),
        "merged_flow": flow_merged(batches[:1], settings),
        "separate_descent": descend_separate(many[:1], settings),
        "images": train_merged(images, settings, steps=settings.image_steps)[["loss"]],
        "separate": train_separate(many, settings),
        "theory": predict(settings),
    }


def prepare(settings: Settings, sequences: int) -> list[Batch]:
    """Sequences of each seed, with eigenvectors of its own."""
    batches = []
    for seed in settings.seeds:
        rotation, data, _ = _keys(seed)
        rotated = covariance(settings.eigenvalues, key=rotation)
        task = InContextRegression(rotated, settings.context, centered=True, whitened=True)
        batches.append(task.sample(sequences, key=data))
    return batches


def _keys(seed: int):
    """Of the eigenvectors, the data and the initial weights."""
    return jax.random.split(jax.random.key(seed), 3)


def mirrored(batch: Batch, images: tuple[Image, ...]) -> Batch:
    """As many sequences: the first of them, and their images with the query, the labels, or both reversed."""
    kept, dim = batch.size // 2 ** len(images), batch.dim
    tokens, labels = batch.tokens[:kept], batch.labels[:kept]
    if "query" in images:
        tokens = jnp.concatenate([tokens, tokens.at[:, -1].multiply(-1)])
        labels = jnp.concatenate([labels, labels.at[:, -1].multiply(-1)])
    if "labels" in images:
        tokens = jnp.concatenate([tokens, tokens.at[:, :, dim:].multiply(-1)])
        labels = jnp.concatenate([labels, -labels])
    return eqx.tree_at(lambda b: (b.tokens, b.labels), batch, (tokens, labels))


def train_merged(batches: list[Batch], settings: Settings, *, steps: int, snapshots: int = 2) -> xr.Dataset:
    """Full-batch descent of all seeds as one program, every token passed through the model at every step."""
    models = [_merged_model(seed, settings) for seed in settings.seeds]
    options: Any = {"rate": settings.rate, "steps": steps, "record": Record(snapshots=snapshots), "progress": False}
    return descend(Ensemble.of(models), Ensemble.of(_objectives(batches, settings)), **options)


def flow_merged(batches: list[Batch], settings: Settings) -> xr.Dataset:
    """Gradient flow of the first seed for as long as descent. Losses only."""
    until = flow_time(settings.merged_steps, settings.rate)
    scale = settings.merged_init
    models = [_merged_model(seed, settings) for seed in settings.seeds[: len(batches)]]
    return _flows(models, batches, settings, until=until, rtol=1e-4, atol=min(1e-8, scale))


def train_separate(batches: list[Batch], settings: Settings) -> xr.Dataset:
    """Gradient flow of each seed, which needs half of the gradients of a descent that is as long. Losses only."""
    models = [_separate_model(seed, settings) for seed in settings.seeds[: len(batches)]]
    return _flows(models, batches, settings, until=settings.separate_until, rtol=1e-5)


def descend_separate(batches: list[Batch], settings: Settings) -> xr.Dataset:
    """Descent of the first seed for as long. Losses only."""
    models = [_separate_model(seed, settings) for seed in settings.seeds[: len(batches)]]
    steps = max(round(settings.separate_until / flow_time(1, settings.compared_rate)), 1)
    options: Any = {"rate": settings.compared_rate, "steps": steps, "record": Record(snapshots=2), "progress": False}
    return descend(Ensemble.of(models), Ensemble.of(_objectives(batches, settings)), **options)[["loss"]]


def _merged_model(seed: int, settings: Settings) -> MergedAttention:
    shape: dict[str, Any] = {"dim": settings.dim, "heads": settings.merged_heads, "activation": "softmax"}
    return MergedAttention.random(**shape, scale=settings.merged_init, key=_keys(seed)[2])


def _separate_model(seed: int, settings: Settings) -> SeparateAttention:
    shape: dict[str, Any] = {"dim": settings.dim, "heads": settings.separate_heads, "rank": 1, "activation": "softmax"}
    return SeparateAttention.random(**shape, scale=settings.separate_init, key=_keys(seed)[2])


def _objectives(batches: list[Batch], settings: Settings) -> list[Sampled]:
    return [Sampled(batch, precision=settings.precision) for batch in batches]


def _flows(models: Sequence[Any], batches: list[Batch], settings: Settings, **options: Any) -> xr.Dataset:
    options |= {"solver": "lsoda", "record": Record(points=2001), "progress": False}
    pairs = zip(models, _objectives(batches, settings), strict=True)
    runs = [flow(model, objective, **options)[["loss"]] for model, objective in pairs]
    return along(runs, run=range(len(runs)))


def with_distance(trajectory: xr.Dataset, batches: list[Batch]) -> xr.Dataset:
    """The losses; at snapshots the largest `distance` of a head from the mean of all; the rate `growth` on these
    sequences, g."""
    parts = (trajectory[name].values for name in ("value", "key_query"))
    weights = np.concatenate([part.reshape(*part.shape[:3], -1) for part in parts], axis=3)
    distance = np.linalg.norm(weights - weights.mean(axis=2, keepdims=True), axis=3).max(axis=2)
    rates = [growth(batch) for batch in batches]
    return trajectory[["loss", "snapshot"]].assign(distance=(("run", "snapshot"), distance), growth=("run", rates))


def growth(batch: Batch) -> float:
    """g of the docstring."""
    tokens, targets = np.asarray(batch.tokens), np.asarray(batch.labels)[:, -1, 0]
    away = tokens - tokens.mean(axis=1, keepdims=True)
    moments = np.einsum("ptc,pta->pca", tokens, away) / tokens.shape[1]
    queries = tokens[:, -1, : batch.dim] * targets[:, None]
    tensor = np.einsum("pca,pb->cab", moments, queries) / batch.size
    return float(np.linalg.norm(tensor.reshape(len(tensor), -1), ord=2))


def predict(settings: Settings) -> xr.Dataset:
    """The levels of linear attention."""
    task = InContextRegression(np.diag(settings.eigenvalues), settings.context)
    return xr.Dataset({"linear_levels": ("level", theory.levels(task))})


def claims(data: Data, settings: Settings) -> list[Claim]:
    merged, images, separate = data["merged"], data["images"], data["separate"]
    several, seeds, init = settings.several, settings.seeds, scientific(settings.merged_init)
    counts, once, more = ([len(drops(r, i)) for i in range(r.sizes["run"])] for r in (merged, images, separate))
    criterion = f"a count; a drop is at least {COUNTED:.0%} of the whole fall, a plateau 4 times slower"
    paper = Origin("paper", "Section 1, list of findings, and Fig 5", explored=True)
    derived = Origin("theory", "docstring of papers/linear/fig05_softmax.py", explored=True)
    end, ratios = PUBLISHED_TIME["merged"], locked(merged)
    time, losses = merged["time"].values, merged["loss"].values
    fallen = np.array([1 - np.interp(end, time, loss) / loss[0] for loss in losses])
    width = f"time from {EDGES[0]:.0%} to {EDGES[1]:.0%} of the fall, over the time until {EDGES[0]:.0%}"
    brief = "the fall is shorter than the plateau before it"
    setting = (
        f"Softmax attention with merged key and query, on the data and from the initialization of Fig 1, init {init}"
    )
    chance = "chance correlations of a finite set of sequences make all heads alike"
    where = "softmax-attention-from-a-very-small-initialization"
    return [
        paper.close(
            "merged-drops-once",
            f"{setting}: its loss drops once: number of drops",
            predicted=1,
            measured=labeled(counts, seed=seeds),
            basis=criterion,
            known=Known(
                f"{chance}; in about half of the seeds the loss then comes to a plateau before they diverge",
                where,
                quick=False,
            ),
        ),
        paper.at_most(
            "merged-abrupt",
            f"{setting}: its loss falls abruptly, after a plateau: {width}",
            predicted=1.0,
            measured=labeled([widths(merged, run) for run in range(len(seeds))], seed=seeds),
            basis=brief,
            known=Known(
                f"{chance}, so that the fall begins early and takes as long as heads that are copies need to diverge, "
                "in every seed, also where it counts as one drop",
                where,
            ),
        ),
        derived.close(
            "once-without-chance",
            "Merged, the same on as many sequences among which each has its mirror images (query reversed, labels "
            "reversed, both), so that chance correlations are zero: its loss drops once: number of drops",
            predicted=1,
            measured=labeled(once, seed=seeds),
            basis=criterion,
        ),
        derived.at_most(
            "abrupt-without-chance",
            f"Merged, on these sequences: its loss falls abruptly, after a plateau: {width}",
            predicted=1.0,
            measured=labeled([widths(images, run) for run in range(len(seeds))], seed=seeds),
            basis=brief,
        ),
        derived.at_most(
            "locked-heads",
            "Merged, on the data of Fig 1: heads are as alike as their initial weights and linear growth let them be "
            f"when the loss has fallen by {FALLEN:.0%}: largest distance of a head from their mean, over what it was "
            "initially times e^(gt)",
            predicted=1.0,
            measured=labeled(ratios, np.isfinite(ratios), seed=seeds),
            basis="g is the largest rate at zero weights, and rates fall as the loss does",
        ),
        derived.at_most(
            "as-published",
            f"Merged, in these runs (descent at {settings.rate:g}) by the time of the 6,000 steps at 0.001 of Fig 1, "
            f"t/τ = {end:g} with softmax: fraction by which the loss has fallen",
            measured=labeled(fallen, seed=seeds),
            tolerance=COUNTED,
            basis="less than what counts as a drop",
            unless="" if time[-1] >= end else "runs end before",
        ),
        paper.at_least(
            "separate-drops",
            f"Softmax attention with separate key and query, from the initialization of Fig 3: its loss drops at least "
            f"{several} times: number of drops",
            predicted=several,
            measured=labeled(more, seed=seeds),
            basis=criterion,
        ),
        *_beside_claims(data, settings),
        Origin("check", "that no later drop is missed").at_most(
            "come-to-rest",
            "Runs have come to rest: what the loss falls in the last third of the time, over the whole fall, one for "
            "each model and seed",
            measured=labeled(
                [late_fall(each) for each in (merged, images, separate)],
                model=["merged", "mirror images", "separate"],
                seed=seeds,
            ),
            tolerance=COUNTED / 2,
            basis="half of what would count as a drop",
            counted="runs",
        ),
    ]


def _beside_claims(data: Data, settings: Settings) -> list[Claim]:
    """Of the seed that has both: drops by descent and by the flow."""
    found = []
    for name, words, rate, pair in (
        ("merged", "Merged", settings.rate, ("merged", "merged_flow")),
        ("separate", "Separate", settings.compared_rate, ("separate_descent", "separate")),
    ):
        times = [[drop.time for drop in drops(data[each], 0)] for each in pair]
        ratios = np.array([one / other for one, other in itertools.zip_longest(*times, fillvalue=np.nan)])
        fastest = max(data["merged"]["growth"].values.tolist())
        found.append(
            Origin("theory", "descent at rate η is the flow to first order in η", explored=True).close(
                f"{name}-beside-flow",
                f"{words}, descent at {rate:g} has the drops of the flow: time of each drop over that in the flow, "
                f"seed {settings.seeds[0]}",
                predicted=1.0,
                measured=labeled(ratios, drop=range(1, ratios.size + 1)),
                tolerance=flow_time(1, rate) * fastest,
                basis="a step of time 2η against the fastest growth from zero weights, g",
                counted="drops",
                unless="" if ratios.size else "the loss does not drop",
            )
        )
    return found


def widths(trajectory: xr.Dataset, run: int) -> float:
    """The time that the fall takes, over that until it begins, both by `EDGES`."""
    time, loss = trajectory["time"].values, trajectory["loss"].values[run]
    begin, end = (passage_time(time, loss, loss[0] - part * (loss[0] - loss.min())) for part in EDGES)
    return (end - begin) / begin if begin > 0 else np.inf


def drops(trajectory: xr.Dataset, run: int) -> list[Drop]:
    """Drops that count. One that does not is joined to none: what it falls is part of no drop."""
    loss = trajectory["loss"].values[run]
    every = staircase(trajectory["time"].values, loss).drops
    return [drop for drop in every if drop.before - drop.after >= COUNTED * (loss[0] - loss.min())]


def late_fall(trajectory: xr.Dataset) -> Float[np.ndarray, " run"]:
    """What the loss falls in the last third of the time, over the whole fall; nan if it does not fall."""
    time, losses = trajectory["time"].values, trajectory["loss"].values
    then = np.array([np.interp(2 / 3 * time[-1], time, loss) for loss in losses])
    fall = losses[:, 0] - losses[:, -1]
    return (then - losses[:, -1]) / np.where(fall > 0, fall, np.nan)


def locked(merged: xr.Dataset) -> Float[np.ndarray, " run"]:
    """The distance of heads when the loss has fallen by `FALLEN`, over what linear growth allows; nan if it has not, or
    there is one head."""
    made, steps = np.full(merged.sizes["run"], np.nan), merged["step"].values.astype(float)
    for run, loss in enumerate(merged["loss"].values):
        one = merged.isel(run=run)
        step = passage_time(steps, loss, (1 - FALLEN) * float(loss[0]))
        if np.isfinite(step) and float(one["distance"][0]) > 0:
            distance = np.interp(step, one["snapshot"].values, one["distance"].values)
            linear = np.exp(float(one["growth"]) * np.interp(step, steps, merged["time"].values))
            made[run] = distance / (float(one["distance"][0]) * linear)
    return made


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    titles = {"merged": "(a) Merged, as in Fig 1", "images": "(b) The same, without chance correlations"}
    titles["separate"] = "(c) Separate, as in Fig 3"
    levels = data["theory"]["linear_levels"].values
    beside = {"merged": "merged_flow", "separate": "separate_descent"}
    dotted: Any = {"color": BLACK, "linewidth": 1.1, "zorder": 3}
    ends = {name: float(data[name]["time"][-1]) for name in titles}
    with styled():
        figure = new_figure(12.6, 4.8)
        every = figure.subplots(1, 3, sharex=True, sharey=True)
        for axes, (name, title) in zip(every, titles.items(), strict=True):
            for m, level in enumerate(levels):
                axes.axhline(level / levels[0], color=GRAY, linestyle="--", linewidth=0.9, zorder=0)
                if axes is every[-1]:
                    name_level(axes, f"$L(M_{m})$", level / levels[0], (3, 0))
            dots: Any = {"markersize": 5, "markeredgecolor": BLACK}
            counted = [drops(data[name], run) for run in range(data[name].sizes["run"])]
            for listed, loss, color in zip(counted, data[name]["loss"].values, itertools.cycle(PALETTE), strict=False):
                axes.plot(data[name]["time"], loss / loss[0], color=color, linewidth=1.6)
                heights = [(drop.before + drop.after) / 2 / loss[0] for drop in listed]
                axes.plot([drop.time for drop in listed], heights, "o", color=color, **dots)
            if name in beside:
                other = data[beside[name]]
                lines(axes, other["time"], other["loss"].values / other["loss"].values[:, :1], ":", **dotted)
            if name in PUBLISHED_TIME:
                axes.axvline(PUBLISHED_TIME[name], color=GRAY, linestyle="-.", linewidth=1.2, zorder=0)
                words = "6,000 steps\nat 0.001" if name == "merged" else "10,000 steps\nat 0.02"
                note(axes, words, (PUBLISHED_TIME[name], 0.02), (4, 4), fontsize=8.5)
            axes.set_title(f"{title}: {_number([len(listed) for listed in counted])}")
            axes.set(xscale="log", xlim=(5, max(ends.values())), ylim=(0, 1.05), xlabel="training time $t/\\tau$")
        dots["color"] = "white"
        every[1].plot([], [], "o", label="middle of a drop", **dots)
        every[1].plot([], [], "--", color=GRAY, linewidth=0.9, label="levels of linear attention")
        every[1].plot([], [], "-.", color=GRAY, linewidth=1.2, label="end of the published command")
        every[1].plot([], [], ":", label="the same, by flow (a) or descent (c)", **dotted)
        figure.legend(*every[1].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        every[0].set(ylabel="training loss / initial loss")
    return figure


def _number(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    number = f"{low}" if low == high else f"{low} {'or' if high - low == 1 else 'to'} {high}"
    return f"{number} drop" + ("s" if high > 1 else "")


FIGURE = Figure(
    title="Softmax attention: several drops with separate key and query; with merged ones, one or two slow ones",
    caption=(
        "Training loss of softmax attention itself, over every token; a color for each seed, with its own sequences "
        "and initial weights. Time is logarithmic, dots are the middles of the drops that are detected in the curves, "
        "and dashes the levels L(M_m) of linear attention, for comparison only. (a) Merged key and query, as in Fig 1: "
        "8 heads, 5,000 sequences, initialization scale 10⁻⁶. One abrupt drop after a plateau is in none of these six "
        "seeds: the loss drops twice in some, and once in others, but takes several times as long to fall as it waited "
        "before. (b) Ours, why: the same, on a quarter of the sequences together with their mirror images (query "
        "reversed, all labels reversed, both), which leave no chance correlation between the mean token and the "
        "query's label. Now the loss drops once, abruptly, from a longer plateau. In (a) these correlations make all "
        "heads grow alike, and heads that are copies do no more than one head can, until they diverge. (c) Separate "
        "key and query of rank one, as in Fig 3 (5 heads, initialization scale 0.01), but on 5,000 sequences for time: "
        "several drops. On the 80,000 of Fig 3, run once for docs/differences.md, each of these six seeds has four, "
        "the first at t/τ = 514 to 859 and the last at 1,726 to 2,218. (a) and (b) are descent at rate 0.1, (c) is "
        "gradient flow; black dots, which lie on the curve of one seed, are its flow in (a) and its descent in (c). "
        "Dash-dotted, where the published commands of Figs 1 and 3 would end: softmax needs more steps than linear "
        "attention, which they do not divide by N."
    ),
    source="Fig 5",
    settings=Settings(),
    quick=Settings(seeds=(310,), merged_sequences=1000, separate_sequences=600),
    described=partial(
        described,
        initial="Gaussian, label blocks zero",
        training="merged: descent; separate: gradient flow, rank one",
        **{"a drop counts from": f"{COUNTED:g} of the whole fall"},
    ),
    paper_settings=PAPER_SETTINGS,
    seeds=Seeds(
        explored="300 to 305 and 1000 to 1007; how fast they fall was seen of 310 and 313",
        fixed="on the exploratory seeds",
    ),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
