r"""The paper's equations against autodiff, samples and trained weights, one by one.

The gradient flow is $\tau\dot W = -\tfrac12\,\partial L/\partial W$. As written (equations 8 and 14) it has moments of
β and of the query: on given sequences these are means, and the gradient is that of the loss through all tokens; at
infinitely many they follow from equation 15, and the gradient is that of a quadrature which knows no moment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.analysis import staircase
from stepwell.figures import Claim, Data, Figure, Origin, Seeds
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import Batch, InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from . import _equations_drawing
from ._equations_drawing import PARTS
from ._equations_written import (
    Means,
    equation_eight,
    equation_fifteen,
    equation_fourteen,
    equation_ten,
    equation_twenty,
    features_of,
    means_at_infinity,
    means_of,
    regress,
)
from ._quadrature import losses_at, quadrature_loss
from ._runs import (
    DIM,
    EIGENVALUES,
    HEADS,
    along,
    described,
    expected_plateaus,
    flow_at,
    initial_models,
    labeled,
    largest_of,
    schedules,
    slope,
    weights_of,
)

EPSILON = float(np.finfo(float).eps)
SUMS = 100 * EPSILON  # a prediction is some hundred multiplications and additions
NODES = (2 * (DIM + 1) ** 2 + 1) * (DIM + 1) * DIM  # what the quadrature adds up
SOLVER = 1e-9
SPARE = 1e-3  # up to this initial size, the heads that learn nothing are followed to zero
LARGEST = 0.05  # no exponent of theirs may be further off, however large they are
MOMENTS = (((0.25, 0.25, 0.25, 0.25), 31), (EIGENVALUES, 5), ((0.7, 0.15, 0.1, 0.05), 2))
"""Spectra and context lengths at which equation 15 is sampled."""
KINDS: tuple[str, ...] = ("merged", "separate")
TASK_KEY, DATA_KEY, OTHER_KEY = 1, 2, 3

Attention = MergedAttention | SeparateAttention


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    context: int = 31
    heads: int = 6
    seeds: tuple[int, ...] = (60, 61, 62, 63, 64)
    sequences: int = 200  # of which the loss is differentiated, and on which attention is trained
    samples: int = 20_000  # contexts for equation 15
    ranks: tuple[int, ...] = (2, 3)
    init: float = 0.1  # of training on sequences
    trained: int = 3  # of the seeds, the first so many are trained on sequences and on white inputs
    sizes: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5)  # initialization scales for equation 20
    white_sizes: tuple[float, ...] = (1e-2, 1e-3, 1e-4)
    lengths: tuple[int, ...] = (100, 300, 1000, 3000)
    length_init: float = 1e-5
    length_seeds: int = 2

    @property
    def task(self) -> InContextRegression:
        return InContextRegression(covariance(EIGENVALUES, key=jax.random.key(0)), self.context)

    def until(self, size: float) -> float:
        """A time by which all has been learned from weights of this size: twenty times that of the weakest component
        from there, after which it approaches its end at least as fast."""
        return 20 / (min(EIGENVALUES) ** 2 * size)


def simulate(settings: Settings) -> Data:
    return {
        "gradients": gradients(settings),
        "moments": second_moments(settings),
        "pairs": compare_pairs(settings),
        "maps": express_maps(settings),
        "trained": train_on_sequences(settings),
        "heads": final_heads(settings),
        "white": white_losses(settings),
        "lengths": drops_at_lengths(settings),
    }


def sequences_of(settings: Settings, seed: int) -> Batch:
    return settings.task.sample(settings.sequences, key=jax.random.key(1000 * DATA_KEY + seed))


def model_of(kind: str, settings: Settings, seed: int, scale: float) -> Attention:
    made = MergedAttention if kind == "merged" else SeparateAttention
    return made.random(dim=DIM, heads=settings.heads, scale=scale, key=jax.random.key(seed))


WRITTEN: dict[str, Callable[[Any, Means], np.ndarray]] = {"merged": equation_eight, "separate": equation_fourteen}


@eqx.filter_jit
def differentiate(loss: Callable[[Attention], Any], model: Attention) -> Attention:
    return cast(Attention, eqx.filter_grad(loss)(model))


def half_gradient(loss: Callable[[Attention], Any], model: Attention) -> np.ndarray:
    """−½ ∂L/∂W by autodiff, in the order of the written equations; label blocks left out."""
    return np.concatenate([-part.ravel() / 2 for part in weights_of(differentiate(loss, model))])


def gradients(settings: Settings) -> xr.Dataset:
    """Written and by autodiff, over (data, seed, weight), at weights of order one: on given sequences, and at
    infinitely many."""
    exact, task = partial(quadrature_loss, settings.task), settings.task
    columns: dict[str, Any] = {}
    for kind, written in WRITTEN.items():
        rows = []
        for seed in settings.seeds:
            model, batch = model_of(kind, settings, seed, 1.0), sequences_of(settings, seed)
            by_hand = [written(model, means_of(batch)), written(model, means_at_infinity(task))]
            rows.append([by_hand, [half_gradient(Sampled(batch), model), half_gradient(exact, model)]])
        table = np.moveaxis(np.array(rows), 0, 2)
        dims = ("data", "seed", f"{kind}_weight")
        columns |= {f"{kind}_written": (dims, table[0]), f"{kind}_autodiff": (dims, table[1])}
    return xr.Dataset(columns, {"data": ["sequences", "infinite"], "seed": list(settings.seeds)})


def second_moments(settings: Settings) -> xr.Dataset:
    """Entries of E[Λ̂²] on and above the diagonal, by contexts and by equation 15; errors from other contexts."""
    rows, columns = np.triu_indices(DIM)
    measured, predicted, errors = np.empty((3, len(MOMENTS), rows.size))
    for place, (spectrum, length) in enumerate(MOMENTS):
        lam = covariance(spectrum, key=jax.random.key(place))
        task = InContextRegression(lam, length)
        own, others = (_squares(task, settings.samples, 1000 * key + place) for key in (DATA_KEY, OTHER_KEY))
        measured[place] = own[:, rows, columns].mean(axis=0)
        errors[place] = others[:, rows, columns].std(axis=0) / len(others) ** 0.5
        predicted[place] = equation_fifteen(lam, length)[rows, columns]
    entries = [f"({row + 1}, {column + 1})" for row, column in zip(rows, columns, strict=True)]
    dims = ("length", "entry")
    return xr.Dataset(
        {"measured": (dims, measured), "predicted": (dims, predicted), "error": (dims, errors)},
        {"length": [length for _, length in MOMENTS], "entry": entries},
    )


def _squares(task: InContextRegression, samples: int, seed: int) -> Float[np.ndarray, "context dim dim"]:
    inputs = np.asarray(task.sample(samples, key=jax.random.key(seed)).tokens)[:, :-1, :DIM]
    covariances = np.einsum("sna,snb->sab", inputs, inputs) / inputs.shape[1]
    return covariances @ covariances


@eqx.filter_jit
def _predict(model: Attention, tokens: Any) -> Any:
    return jax.vmap(model)(tokens)[:, 0]


def predictions(model: Attention, batch: Batch) -> Float[np.ndarray, " sequence"]:
    return np.asarray(_predict(model, batch.tokens))


def as_rank_one(model: SeparateAttention) -> SeparateAttention:
    """Every pair of a head as a head of its own, with the head's value."""
    rank = model.key.shape[1]
    keys, queries = (part.reshape(-1, 1, part.shape[-1]) for part in (model.key, model.query))
    return SeparateAttention(jnp.repeat(model.value, rank, axis=0), keys, queries)


def compare_pairs(
    settings: Settings, split: Callable[[SeparateAttention], SeparateAttention] = as_rank_one
) -> xr.Dataset:
    """The difference that it makes whether pairs share a head, over the largest prediction; label blocks random."""
    ranks, batch = settings.ranks, sequences_of(settings, TASK_KEY)
    apart = np.empty((len(ranks), len(settings.seeds)))
    for place, rank in enumerate(ranks):
        for run, seed in enumerate(settings.seeds):
            options: Any = {"dim": DIM, "heads": settings.heads, "rank": rank, "scale": 1.0}
            model = SeparateAttention.random(**options, label_blocks="random", key=jax.random.key(seed))
            apart[place, run] = _apart(predictions(model, batch), predictions(split(model), batch))
    return xr.Dataset({"apart": (("rank", "seed"), apart)}, {"rank": list(ranks), "seed": list(settings.seeds)})


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(abs(one - other).max() / abs(one).max())


def with_map(matrix: Float[np.ndarray, "dim dim"], heads: int) -> SeparateAttention:
    """Heads of rank one, each with a singular value of the matrix and its vectors, the largest first. There are D + 1
    heads, of which all but so many are zero."""
    left, values, right = np.linalg.svd(matrix)
    used, sizes = min(heads, DIM), np.cbrt(values)[:, None]
    value, key, query = (np.zeros((DIM + 1, 1, width)) for width in (DIM + 1, DIM + 1, DIM))
    value[:used, 0, DIM:] = sizes[:used]
    key[:used, 0, :DIM], query[:used, 0] = (sizes * left.T)[:used], (sizes * right)[:used]
    return SeparateAttention(jnp.asarray(value), jnp.asarray(key), jnp.asarray(query))


def express_maps(settings: Settings) -> xr.Dataset:
    """How far heads of rank one, and a merged head, stay from a random linear map of z, over the largest prediction."""
    batch, counts = sequences_of(settings, TASK_KEY), range(1, DIM + 2)
    beta, query, _ = features_of(batch)
    separate, merged = np.empty((len(counts), len(settings.seeds))), np.empty(len(settings.seeds))
    for run, seed in enumerate(settings.seeds):
        matrix = np.random.default_rng(seed).normal(size=(DIM, DIM))
        wanted = np.einsum("sa,ab,sb->s", beta, matrix, query)
        for place, heads in enumerate(counts):
            separate[place, run] = _apart(wanted, predictions(with_map(matrix, heads), batch))
        value, key_query = np.eye(DIM + 1)[None, DIM:], np.pad(matrix, ((0, 1), (0, 0)))[None]
        merged[run] = _apart(wanted, predictions(MergedAttention(jnp.asarray(value), jnp.asarray(key_query)), batch))
    return xr.Dataset(
        {"separate": (("heads", "seed"), separate), "merged": ("seed", merged)},
        {"heads": list(counts), "seed": list(settings.seeds)},
    )


def train_on_sequences(settings: Settings) -> xr.Dataset:
    """Maps at the end of the flow on given sequences, label blocks held at zero, and that of regression on z."""
    seeds, times = settings.seeds[: settings.trained], np.array([0.0, settings.until(settings.init)])
    maps = []
    for seed in seeds:
        batch = sequences_of(settings, seed)
        objective, ends = Moments.of_batch(batch, features="cubic"), [regress(batch)]
        for kind in KINDS:
            model = model_of(kind, settings, seed, settings.init)
            run = flow_at(model, objective, times, solver="lsoda", rtol=SOLVER, atol=SOLVER * settings.init)
            ends.append(np.asarray(_model_at(model, run, 0).effective_map())[0, 0])
        maps.append(ends)
    dims = ("seed", "kind", "row", "column")
    return xr.Dataset({"map": (dims, np.array(maps))}, {"kind": ["regression", *KINDS], "seed": list(seeds)})


def _model_at(model: Attention, run: xr.Dataset, place: int) -> Attention:
    return model.with_weights({name: run[name].values[place, -1] for name in model.weight_dims})


def final_heads(settings: Settings) -> xr.Dataset:
    """Norms and directions of heads at the end of the flow at infinitely many sequences, for each initial size.

    Learned are the D heads with the largest maps, over `component`: of these the one whose key is closest to e_d, nan
    if there is none. `spare` is the norm of all weights of every other head, in the order of heads. `imbalance` is the
    largest difference of v², |k|² and |q|² in a head initially; `lasting` is whether all plateaus of the run are
    predicted to last. Where drops nearly coincide, heads exchange components.
    """
    task, spare = settings.task, max(settings.heads - DIM, 0)
    directions = theory.modes(task).directions
    sizes, seeds = settings.sizes, settings.seeds
    columns = {name: np.full((len(sizes), len(seeds), DIM), np.nan) for name in (*PARTS, *COSINES)}
    left, imbalance = np.full((len(sizes), len(seeds), spare), np.nan), np.empty((len(sizes), len(seeds)))
    lasting = np.zeros((len(sizes), len(seeds)), bool)
    for place, size in enumerate(sizes):
        models = [cast(SeparateAttention, model_of("separate", settings, seed, size)) for seed in seeds]
        times = np.array([0.0, settings.until(size)])
        if settings.heads >= DIM:
            drops = schedules(task, models).times
            expected = expected_plateaus(task, drops, init=size, heads=settings.heads)
            lasting[place] = expected.lasting.all(axis=1)
        end = flow_at(models, Population(task), times, rtol=SOLVER, atol=SOLVER * size)
        for run, model in enumerate(models):
            squares = [np.sum(weight.reshape(settings.heads, -1) ** 2, axis=1) for weight in weights_of(model)]
            imbalance[place, run] = np.ptp(squares, axis=0).max()
            values, keys, queries = weights_of(_model_at(model, end, run))
            table = read_heads(values, keys[:, 0], queries[:, 0], directions)
            for name, column in columns.items():
                column[place, run] = table[name]
            left[place, run] = table["spare"]
    dims = ("size", "seed", "component")
    variables: dict[str, Any] = {name: (dims, column) for name, column in columns.items()}
    variables |= {name: (dims[:2], each) for name, each in {"imbalance": imbalance, "lasting": lasting}.items()}
    variables["spare"] = (("size", "seed", "head"), left)
    return xr.Dataset(variables, {"size": list(sizes), "seed": list(seeds), "component": range(1, DIM + 1)})


COSINES = {"key_cosine": "k and e_m", "query_cosine": "q and e_m", "cosine": "k and q"}


def read_heads(
    values: Float[np.ndarray, " head"],
    keys: Float[np.ndarray, "head dim"],
    queries: Float[np.ndarray, "head dim"],
    directions: Float[np.ndarray, "dim component"],
) -> dict[str, np.ndarray]:
    """Of one model, what `final_heads` has."""
    key_sizes, query_sizes = np.linalg.norm(keys, axis=1), np.linalg.norm(queries, axis=1)
    learned = np.argsort(-abs(values) * key_sizes * query_sizes)[:DIM]
    closeness = abs(keys @ directions) / key_sizes[:, None]
    found = {name: np.full(DIM, np.nan) for name in (*PARTS, *COSINES)}
    for head in learned:
        component = int(closeness[head].argmax())
        query_closeness = abs(queries[head] @ directions[:, component]) / query_sizes[head]
        between = abs(keys[head] @ queries[head]) / (key_sizes[head] * query_sizes[head])
        numbers = (abs(values[head]), key_sizes[head], query_sizes[head])
        numbers = (*numbers, closeness[head, component], query_closeness, between)
        for column, number in zip(found.values(), numbers, strict=True):
            column[component] = number
    spare = np.setdiff1d(np.arange(len(values)), learned)
    return found | {"spare": np.sqrt(values**2 + key_sizes**2 + query_sizes**2)[spare]}


def white_losses(settings: Settings) -> xr.Dataset:
    r"""The loss of merged attention on white inputs, $\Lambda = I$, over its initial value: flow, and with σ of
    equation 10, $1 - 2\sigma + (1 + (1 + D)/N)\sigma^2$.

    `neglected` is the square of all initial weights over that of the weights in the end.
    """
    task = InContextRegression(np.eye(DIM), settings.context)
    seeds, shrinkage = settings.seeds[: settings.trained], 1 + (1 + DIM) / settings.context
    rows = []
    for size in settings.white_sizes:
        models = [model_of("merged", settings, seed, size) for seed in seeds]
        starts = np.array([theory.merged_initial(task, *weights_of(model))[0] for model in models])
        latest = max(theory.white_half_drop_time(task, float(start)) for start in starts)
        times = np.linspace(0.0, latest + 4.0, 301)
        run = flow_at(models, Population(task), times, rtol=SOLVER, atol=SOLVER * size)
        sigma = equation_ten(times, starts[:, None], settings.context)
        squares = [sum(float(np.sum(weight**2)) for weight in weights_of(model)) for model in models]
        columns: Any = {
            "measured": (("seed", "time"), run["loss"].values / DIM),
            "predicted": (("seed", "time"), 1 - 2 * sigma + shrinkage * sigma**2),
            "neglected": ("seed", np.array(squares) * shrinkage / DIM**0.5),
            "clock": ("time", times, {"units": TIME_UNIT}),
        }
        rows.append(xr.Dataset(columns, {"seed": list(seeds)}))
    return along(rows, size=settings.white_sizes)


def drops_at_lengths(settings: Settings) -> xr.Dataset:
    """By how much the loss falls at each drop of trained runs, with contexts of several lengths.

    Plateaus are detected in the loss curve; the loss in the middle of each is that of a quadrature. `lasting`: whether
    all plateaus of the seed are expected to settle, at every length.
    """
    seeds = settings.seeds[: settings.length_seeds]
    models = initial_models(seeds, settings.length_init)
    drops = np.full((len(settings.lengths), len(seeds), DIM), np.nan)
    lasting = np.ones(len(seeds), bool)
    for place, length in enumerate(settings.lengths):
        task = InContextRegression(covariance(EIGENVALUES, key=jax.random.key(0)), length)
        expected = schedules(task, models).times
        steady = expected_plateaus(task, expected, init=settings.length_init, heads=HEADS)
        lasting &= steady.lasting.all(axis=1)
        even = np.geomspace(expected.min() / 5, 2 * expected.max(), 600)
        times = np.union1d(even, np.outer(expected, np.linspace(0.98, 1.02, 21)))
        run = flow_at(models, Population(task), times, rtol=SOLVER, atol=1e-4 * settings.length_init)
        time = run["time"].values
        for number, loss in enumerate(run["loss"].values):
            middles = [(each.start + each.end) / 2 for each in staircase(time, loss).plateaus]
            if len(middles) == DIM + 1:
                places = np.array([[int(abs(time - middle).argmin()) for middle in middles]])
                drops[place, number] = -np.diff(losses_at(task, run.isel(run=[number]), models[number], places)[0])
    return xr.Dataset(
        {"fall": (("length", "seed", "component"), drops), "lasting": ("seed", lasting)},
        {"length": list(settings.lengths), "seed": list(seeds), "component": range(1, DIM + 1)},
    )


def claims(data: Data, settings: Settings) -> list[Claim]:
    return [
        *_gradient_claims(data["gradients"], settings),
        _moment_claim(data["moments"]),
        *_form_claims(data["pairs"], data["maps"]),
        *_training_claims(data["trained"], settings),
        *_head_claims(data["heads"], settings),
        _white_claim(data["white"]),
        *_drop_claims(data["lengths"]),
    ]


def _gradient_claims(each: xr.Dataset, settings: Settings) -> list[Claim]:
    sides = {
        "sequences": (
            "the loss through all tokens of given sequences, with the moments of these",
            settings.context + settings.sequences,
            "rounding, once for each token and each sequence that is added up",
        ),
        "infinite": (
            "the loss at infinitely many sequences, by quadrature, with the moments of equation 15",
            NODES,
            "rounding, once for each node of the quadrature",
        ),
    }
    found = []
    for kind, source in (("merged", "Section 3.1, equation 8"), ("separate", "Section 4.2, equation 14")):
        written, by_autodiff = (each[f"{kind}_{name}"] for name in ("written", "autodiff"))
        weight = f"{kind}_weight"
        apart = abs(written - by_autodiff).max(weight) / abs(by_autodiff).max(weight)
        found += [
            Origin("paper", source).at_most(
                f"{kind}-{side}",
                f"The gradient flow of {kind} attention as it is written, {source.partition(', ')[2]}, is −½ of the "
                f"gradient by automatic differentiation of {words}: largest difference over the largest entry, at "
                "random weights",
                measured=apart.sel(data=side, drop=True),
                tolerance=terms * EPSILON,
                basis=basis,
            )
            for side, (words, terms, basis) in sides.items()
        ]
    return found


def _moment_claim(moments: xr.Dataset) -> Claim:
    deviation = (moments["measured"] - moments["predicted"]) / moments["error"]
    spectra = ", ".join(f"{spectrum} (N = {length})" for spectrum, length in MOMENTS)
    return Origin("paper", "Equation 15").close(
        "second-moment",
        f"E[Λ̂²] over sampled contexts is Λ² + (Λ + tr Λ)Λ/N, for covariances with eigenvalues {spectra}: deviation of "
        "every entry in standard errors",
        measured=deviation.rename(length="N"),
        tolerance=largest_of(deviation.size),
        basis=f"3 standard errors, for the largest of {deviation.size}; the errors from contexts of their own",
        counted="entries",
    )


def _form_claims(pairs: xr.Dataset, maps: xr.Dataset) -> list[Claim]:
    rounding: Any = {"tolerance": SUMS, "basis": "rounding of some hundred multiplications and additions"}
    expressive = Origin("paper", "Section 4.1").at_most
    return [
        Origin("paper", "Section 2.4").at_most(
            "shared-values",
            "H heads of rank R predict as RH heads of rank one that share values: largest difference over the largest "
            "prediction, for each R and seed",
            measured=pairs["apart"],
            counted="models",
            **rounding,
        ),
        expressive(
            "every-map",
            "H ≥ D heads of rank one, made from the singular vectors of a random map of the cubic features, predict as "
            "that map: largest difference over the largest prediction, for each H and seed",
            measured=maps["separate"].sel(heads=maps["heads"] >= DIM),
            counted="models",
            **rounding,
        ),
        expressive(
            "every-map-merged",
            "One merged head predicts as a random map of the cubic features: largest difference over the largest "
            "prediction",
            measured=maps["merged"],
            **rounding,
        ),
    ]


def _training_claims(trained: xr.Dataset, settings: Settings) -> list[Claim]:
    maps, modes = trained["map"], theory.modes(settings.task)
    condition = float(modes.variances.max() * modes.second.max() / (modes.variances.min() * modes.second.min()))

    def apart(one: str, other: str) -> xr.DataArray:
        one_map, other_map = (maps.sel(kind=kind, drop=True) for kind in (one, other))
        return abs(one_map - other_map).max(("row", "column")) / abs(other_map).max(("row", "column"))

    how: Any = {
        "tolerance": SOLVER * condition,
        "basis": "the solver's tolerance, times the condition number of E[zzᵀ] at infinitely many sequences",
    }
    return [
        Origin("paper", "Section 3.4 and equation 11").at_most(
            "merged-regression",
            f"Merged attention trained on {settings.sequences} sequences, label blocks held at zero, ends with the map "
            "of linear regression on the cubic features of these, E[y_q z]E[zzᵀ]⁻¹: largest difference of an entry, "
            "over the largest entry",
            measured=apart("merged", "regression"),
            **how,
        ),
        Origin("paper", "Section 4.4").at_most(
            "one-end",
            "Separate attention with H ≥ D heads, trained on the same sequences, ends with the map of merged "
            "attention: largest difference of an entry, over the largest entry",
            measured=apart("separate", "merged"),
            unless=_too_few(settings),
            **how,
        ),
    ]


def _too_few(settings: Settings) -> str:
    return "" if settings.heads >= DIM else f"{settings.heads} heads of rank one cannot learn {DIM} components"


def _head_claims(heads: xr.Dataset, settings: Settings) -> list[Claim]:
    heads = heads.transpose("size", "seed", ...).sortby("size")
    grown = equation_twenty(settings.task)
    axes: Any = {"initial size": heads["size"].values, "seed": heads["seed"].values, "component": range(1, DIM + 1)}
    lasting = heads["lasting"].values
    each = np.broadcast_to(lasting[..., None], heads["value"].shape)
    order = heads["size"].values[:, None, None] * (2 * DIM + 1) ** 0.5 / grown * np.ones(each.shape)
    unbalanced = heads["imbalance"].values[..., None] / grown**2
    norms = np.stack([heads["key"], heads["query"]]) / heads["value"].values
    cosines = np.stack([heads[name] for name in COSINES])
    which = f"in the {lasting.sum()} of {lasting.size} runs whose plateaus are all predicted to last"
    twenty = Origin("paper", "Equation 20", explored=True).close
    how: Any = {"predicted": 1.0, "unless": _too_few(settings)}
    of_first_order = "initial weights of a head over its value in the end"
    return [
        twenty(
            "value",
            "The head that has learned eigenvector m ends with |v| = λ_m^(−1/3)(1 + (1 + tr Λ/λ_m)/N)^(−1/3), "
            f"{which}: ratio",
            measured=labeled(heads["value"] / grown, each, **axes),
            tolerance=order[each],
            basis=of_first_order,
            counted="heads",
            **how,
        ),
        twenty(
            "norms",
            f"Key, query and value of a head that has learned end with one norm, {which}: |k|/|v| and |q|/|v|",
            measured=labeled(norms, np.stack([each] * 2), of=PARTS[1:], **axes),
            tolerance=np.tile(unbalanced[each], 2) + 100 * SOLVER,
            basis="largest difference of squares in a head initially, which the flow conserves, over v² in the end; "
            "100 tolerances of the solver",
            counted="norms",
            **how,
        ),
        twenty(
            "directions",
            "Key and query of the head that has learned eigenvector m end along it, parallel or opposite, "
            f"{which}: sizes of the cosines",
            measured=labeled(cosines, np.stack([each] * len(COSINES)), of=COSINES.values(), **axes),
            tolerance=np.tile(order[each], len(COSINES)),
            basis=of_first_order,
            counted="cosines",
            **how,
        ),
        _spare_claim(heads.sel(size=heads["size"] <= SPARE), grown, how),
    ]


def _spare_claim(heads: xr.Dataset, grown: Float[np.ndarray, " component"], how: dict[str, Any]) -> Claim:
    sizes, spare = np.log(heads["size"].values), heads["spare"].transpose("seed", "head", "size").values
    lasting = np.all(heads["lasting"].values, axis=0, keepdims=True).T
    kept = np.broadcast_to(lasting, spare.shape[:2]).ravel()
    exponents = [slope(sizes[1:], np.log(row[1:])) for row in spare.reshape(-1, sizes.size)]
    fitted = sizes.size > 2 and kept.any()
    # A drop to v in the end changes the inverse of a spare head's size by 1/v.
    share = spare[..., 0].ravel()[kept] * np.exp(np.ptp(sizes)) * (1 / grown).sum() if fitted else np.zeros(0)
    axes: Any = {"seed": heads["seed"].values, "head": range(1, spare.shape[1] + 1)}
    return Origin("paper", "Equation 20", explored=True).close(
        "spare-exponent",
        "Heads beyond the D that have learned stay as small as they were initially, in runs whose plateaus are all "
        "predicted to last: exponent of the initial size in the norm of their weights",
        measured=labeled(exponents, kept, **axes) if fitted else [],
        tolerance=np.minimum(share / max(float(np.ptp(sizes[1:])), EPSILON), LARGEST) if fitted else 0.0,
        basis="what each drop adds to the inverse of their size, 1/v in the end, at the largest initial size; their "
        f"size from the smallest, which is not fitted; over the range of its logarithm; at most {LARGEST:g}",
        counted="heads",
        **how,
    )


def _white_claim(white: xr.Dataset) -> Claim:
    deviation = abs(white["measured"] - white["predicted"]).max("time").transpose("size", "seed")
    return Origin("paper", "Section 3.3, equation 10").at_most(
        "white-loss",
        "On white inputs the loss of merged attention is that of σ(t) times the identity, with the growing part of the "
        "initial weights as w_init: largest difference over the initial loss, for each initial size and seed",
        measured=deviation.rename(size="initial size"),
        tolerance=(2 * white["neglected"].transpose("size", "seed").values + 10 * SOLVER).ravel(),
        basis="twice the squares of all initial weights over that of the weights in the end; error of the solver",
        counted="runs",
    )


def _drop_claims(lengths: xr.Dataset) -> list[Claim]:
    lasting = lengths["lasting"].values
    which = f"in the {lasting.sum()} of {lasting.size} seeds whose plateaus are all predicted to last"
    lengths = lengths.isel(seed=np.flatnonzero(lasting)).rename(length="N", component="drop")
    lam = xr.DataArray(np.sort(EIGENVALUES)[::-1], dims="drop")
    order = ((1 + lam.sum() / lam) / lengths["N"]).broadcast_like(lengths["fall"]).transpose("N", "seed", "drop")
    lacking = (lam - lengths["fall"]).transpose("seed", "drop", "N")
    tokens, rows = np.log(lengths["N"].values), lacking.values.reshape(-1, lengths.sizes["N"])
    exponents = [slope(tokens, np.log(np.where(row > 0, row, np.nan))) for row in rows]
    axes: Any = {"seed": lengths["seed"].values, "drop": lengths["drop"].values}
    paper = Origin("paper", "Section 4.3, limit of equation 19 for large N").close
    return [
        paper(
            "drops",
            f"With long contexts the loss falls by λ_m at drop m, {which}: drop over λ_m, for each length",
            predicted=1.0,
            measured=(lengths["fall"] / lam).transpose("N", "seed", "drop"),
            tolerance=order.values.ravel(),
            basis="next order, (1 + tr Λ/λ_m)/N",
            counted="drops",
        ),
        paper(
            "drops-exponent",
            f"What drop m lacks of λ_m vanishes as 1/N, {which}: exponent of N",
            predicted=-1.0,
            measured=labeled(exponents, **axes) if tokens.size > 1 and exponents else [],
            tolerance=order.max("N").transpose("seed", "drop").values.ravel(),
            basis="next order, (1 + tr Λ/λ_m)/N at the smallest N",
            counted="drops",
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    return _equations_drawing.draw(data, settings.task, SUMS)


FIGURE = Figure(
    title="The paper's equations against autodiff, samples and trained weights",
    caption=(
        "D = 4. (a), (b) Every entry of the gradient flow as the paper writes it, at random weights, against −½ of "
        "the gradient by automatic differentiation: of the loss through all tokens of given sequences, with their "
        "moments in the equations; and of the loss at infinitely many, by a quadrature that knows no moment, with "
        "those of equation 15 in the equations. (c) Entries of E[Λ̂²] over sampled contexts against equation 15, for "
        "three covariances and lengths. (d) Circles: H heads of rank one, made from singular vectors, against a "
        "random linear map of the cubic features z; below the dotted line the difference of predictions is rounding, "
        "from H = D on. Crosses: heads of rank R against as many heads of rank one that share values. (e) Entries of "
        "the map after training on given sequences, label blocks held at zero, against that of linear regression on z "
        "of these sequences. (f) Heads of separate attention after training, for several initial sizes: value "
        "(circles), key (+) and query (×) of the head that has learned eigenvector m, in the inset from the "
        "smallest, against equation 20 (lines); below, the norms of heads that have learned nothing, in proportion to "
        "their initial size (far above: one that nearly tied with the head that learned, which claims leave out). "
        "(g) Loss on white inputs, Λ = I, from weights of standard deviation w, against equation 10 put into the loss. "
        "(h) What drop m of trained runs lacks of λ_m, over λ_m; lines are its leading order, (1 + tr Λ/λ_m)/N."
    ),
    source="Equations 8, 10, 14, 15 and 20, Sections 2.4, 3.4, 4.1, 4.3 and 4.4",
    settings=Settings(),
    quick=Settings(
        seeds=(60, 61),
        trained=1,
        sizes=(1e-2, 1e-3, 1e-4, 1e-5),
        white_sizes=(1e-2, 1e-3),
        lengths=(100, 1000),
        length_seeds=1,
    ),
    described=partial(
        described,
        eigenvalues=EIGENVALUES,
        initial="Gaussian, label blocks zero",
    ),
    seeds=Seeds(explored="0 to 19"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
