r"""Gradient descent of softmax attention over given sequences, against PyTorch; and over reduced ones.

Merged and separate attention have the published settings, D = 4 and 5000 sequences of 32 tokens, full batch. One
baseline is the published way: whole matrices, and in every head every token attends to every token. The other is the
careful way: only the query's row, $z_t^\top (W_h x_q)$, the heads together. Multi-head attention has the setting of
arXiv 2402.19442, Fig 1: d = 30, three outputs, 100 context tokens, three heads of width 30, and a batch of 2048; the
baseline projects every token to keys and values. There the loss over reduced sequences, for weights that stay
decomposable, stands beside ours.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

from stepwell.dynamics import Record, descend
from stepwell.models import (
    AbstractModel,
    MergedAttention,
    MultiHeadAttention,
    SeparateAttention,
    SpectralAttention,
    decomposable,
)
from stepwell.objectives import AbstractObjective, ReducedSampled, Sampled
from stepwell.tasks import Batch, InContextRegression, MultiTaskRegression, published_covariance

from ._limits import Limits, limits
from ._pytorch import Training, compare, pytorch
from ._row import Row
from ._timing import interleaved

RATE = 0.01
SCALE = 0.3
"""Of the initial weights: the loss falls within the hundred steps that are compared."""
PRECISIONS = ("float64", "float32")
"""Of a sequence on our side, and of everything on PyTorch's."""
CAREFUL = {"float64": 3, "float32": 5}
"""How many times faster than the careful way ours should be; the published way is its own precision's too."""
SURE = 5.0
"""Two averages over draws that differ by fewer standard errors are the same."""


def run(quick: bool) -> Iterator[Row]:
    pytorch()
    machine = limits(rounds=1 if quick else 20)
    yield Row("exponentials, float64, all cores", machine.exponentials, "a second")
    yield Row("memory read, all cores", machine.bytes / 1e9, "GB a second")
    yield from published(quick, machine)
    yield from multi_head(quick, machine)


def published(quick: bool, machine: Limits) -> Iterator[Row]:
    dim, sequences = 4, 200 if quick else 5000
    covariance_key, data_key, start_key = jax.random.split(jax.random.key(10), 3)
    task = InContextRegression(published_covariance(dim, key=covariance_key), 31, centered=True, whitened=True)
    batch = task.sample(sequences, key=data_key)
    models = {
        "attnM, 8 heads": MergedAttention.random(dim=dim, heads=8, scale=SCALE, activation="softmax", key=start_key),
        "attnS, 5 heads": SeparateAttention.random(dim=dim, heads=5, scale=1.0, activation="softmax", key=start_key),
    }
    for (name, model), precision in itertools.product(models.items(), PRECISIONS):
        what = f"softmax {name}, D = {dim}, P = {sequences}, {precision}: a step"
        made, read = sequences * batch.tokens.shape[1] * model.value.shape[0], np.asarray(batch.tokens).nbytes
        ways = (("all tokens attend", all_tokens, 100), ("the query attends", query_only, CAREFUL[precision]))
        for way, attend, least_ratio in ways:
            rows = compare(
                f"{what}, {way}",
                descent(model, Sampled(batch, precision=precision)),
                lambda attend=attend, model=model, precision=precision: attention(attend, batch, model, precision),
                steps=10 if quick else 1000,
                baseline_steps=1 if quick else 2 if attend is all_tokens else 20,
                rounds=1 if quick else 3,
                least_ratio=least_ratio,
                checked_steps=20 if attend is all_tokens else 100,  # a step of PyTorch takes most of a second
            )
            yield from with_limit(rows, machine, made, read) if precision == "float64" else rows


def multi_head(quick: bool, machine: Limits) -> Iterator[Row]:
    heads, width, sequences, steps = 3, 30, 64 if quick else 2048, 10 if quick else 500
    task = MultiTaskRegression((10,) * heads)
    batch = task.sample(sequences, key=jax.random.key(0))
    model = MultiHeadAttention.random(
        dim=task.dim, outputs=heads, heads=heads, embedding=width, scale=SCALE, key=jax.random.key(1)
    )
    what = f"softmax multi-head, d = {task.dim}, L = 100, H = {heads}, batch {sequences}: a step"
    rows = compare(
        f"{what}, every token projected",
        descent(model, Sampled(batch)),
        lambda: projecting(batch, model, "float64"),
        steps=steps,
        baseline_steps=1 if quick else 3,
        rounds=1 if quick else 3,
        least_ratio=10,
    )
    made = sequences * 100 * heads
    yield from with_limit(rows, machine, made, np.asarray(batch.tokens).nbytes)

    start = SpectralAttention.balanced(0.004 + 0.004 * np.eye(heads), np.full((heads, heads), 0.3), task.dims)
    whole = decomposable(start, task)
    by_precision = {name: ReducedSampled(task, sequences, precision=name, key=jax.random.key(2)) for name in PRECISIONS}
    sides: dict[str, Callable[[], Any]] = {"whole": lambda: descent(whole, Sampled(batch, "sum"))(steps, steps)}
    for name, objective in by_precision.items():
        sides[name] = lambda objective=objective: descent(start, objective)(5 * steps, 5 * steps)
    times = interleaved(sides, rounds=1 if quick else 3)
    for name, objective in by_precision.items():
        taken = times[name] / (5 * steps)
        reduced = f"reduced sequences, {name}, I = H = {heads}, L = 100, {sequences} sequences: a step"
        row = Row(f"{reduced}, whole sequences", taken, "s", times["whole"] / steps, least_ratio=10)
        yield machine.beside(row, exponentials=made, read=objective.normals.nbytes) if name == "float64" else row
    yield Row(
        "the loss of whole and of reduced sequences differ by, standard errors",
        difference(whole, batch, start, by_precision["float64"]),
        "",
        most=SURE,
        check=True,
    )


def with_limit(rows: Iterable[Row], machine: Limits, exponentials: int, read: int) -> Iterator[Row]:
    """The rows, those of a time beside the least that it can take."""
    for row in rows:
        yield machine.beside(row, exponentials=exponentials, read=read) if row.unit == "s" else row


def descent(model: AbstractModel, objective: AbstractObjective) -> Callable[[int, int], Any]:
    def ours(steps: int, record: int) -> Any:
        return descend(
            model, objective, rate=RATE, steps=steps, record=Record(every=record, snapshots=2), progress=False
        )

    return ours


def tensor(array: Any, precision: str, **options: Any) -> Any:
    return pytorch().tensor(np.asarray(array, precision), **options)


def weights_of(model: AbstractModel, precision: str) -> dict[str, Any]:
    return {name: tensor(value, precision, requires_grad=True) for name, value in model.weights().items()}


def whole_weights_of(model: AbstractModel, precision: str) -> dict[str, Any]:
    """As published: matrices as wide as a token, what the model leaves out filled up with zeros."""
    found = {}
    for name, value in model.weights().items():
        _, rows, columns = value.shape
        width = model.weights()["value"].shape[2]
        above = width - rows if name == "value" else 0
        padded = np.pad(value, ((0, 0), (above, 0), (0, width - columns)))
        found[name] = tensor(padded, precision, requires_grad=True)
    return found


def attention(attend: Callable[..., Any], batch: Batch, model: AbstractModel, precision: str) -> Training:
    """PyTorch at the start of the given model."""
    weights = (whole_weights_of if attend is all_tokens else weights_of)(model, precision)
    tokens, targets = tensor(batch.tokens, precision), tensor(batch.labels[:, -1, 0], precision)
    return Training(lambda: attend(tokens, weights), targets, list(weights.values()), RATE)


def all_tokens(tokens: Any, weights: dict[str, Any]) -> Any:
    """Every token's answer in each head, of which the last token's label is read."""
    torch = pytorch()
    output = tokens
    for head in range(weights["value"].shape[0]):
        if "key" in weights:
            queries, keys = (tokens @ weights[name][head].T for name in ("query", "key"))
            scores = queries @ keys.transpose(1, 2)
        else:
            scores = tokens @ weights["key_query"][head].T @ tokens.transpose(1, 2)
        output = output + torch.softmax(scores, dim=2) @ (tokens @ weights["value"][head].T)
    return output[:, -1, -1]


def query_only(tokens: Any, weights: dict[str, Any]) -> Any:
    """The query's answer: directions first, then scores and sums over tokens of all heads at once."""
    torch = pytorch()
    query = tokens[:, -1, : tokens.shape[2] - 1]
    if "key" in weights:
        projected = torch.einsum("pd,hrd->hpr", query, weights["query"])
        directions = (projected @ weights["key"]).transpose(0, 1)
    else:
        directions = torch.einsum("pd,hwd->phw", query, weights["key_query"])
    shares = torch.softmax(directions @ tokens.transpose(1, 2), dim=2)
    return torch.einsum("phw,hw->p", shares @ tokens, weights["value"][:, 0])


def projecting(batch: Batch, model: MultiHeadAttention, precision: str) -> Training:
    """Plain multi-head attention from the query: keys and values of every token in every head."""
    torch = pytorch()
    weights = weights_of(model, precision)
    context, query = (tensor(part, precision) for part in (batch.tokens[:, :-1], batch.tokens[:, -1, : batch.dim]))

    def split(projected: Any) -> Any:
        return projected.unflatten(-1, model.key.shape[:2]).transpose(1, 2)

    def predict() -> Any:
        whole = {name: weight.flatten(0, 1).T for name, weight in weights.items() if name != "output"}
        keys, values = split(context @ whole["key"]), split(context @ whole["value"])
        queries = split((query @ whole["query"])[:, None])
        shares = torch.softmax(queries @ keys.transpose(2, 3) * model.score_scale, dim=3)
        return (shares @ values).flatten(1) @ weights["output"].transpose(1, 2).flatten(0, 1)

    return Training(predict, tensor(batch.labels[:, -1], precision), list(weights.values()), RATE)


@eqx.filter_jit
def _errors(model: MultiHeadAttention, batch: Batch) -> jax.Array:
    return jax.numpy.sum((batch.labels[:, -1] - jax.vmap(model)(batch.tokens)) ** 2, axis=1)


def difference(whole: MultiHeadAttention, batch: Batch, start: SpectralAttention, objective: ReducedSampled) -> float:
    """Between the average losses of the same weights, in standard errors of both."""
    errors = np.asarray(_errors(whole, batch))
    reduced, error = eqx.filter_jit(lambda: (objective(start), objective.standard_error(start)))()
    return float(abs(errors.mean() - reduced) / np.hypot(errors.std() / errors.size**0.5, error))
