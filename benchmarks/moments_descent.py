"""Gradient descent of merged linear attention: moments of the data against PyTorch running attention over every token.

The published settings: 8 heads, D = 4, 5000 sequences of 32 tokens, full batch. The baseline is written from
$X + \\sum_h W^V_h X X^\\top W^{KQ}_h X$: in every head every token attends to every token, autograd goes back through
it all, and SGD takes the step. It is the plain way of writing it, not the best: only the query's row is needed.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from stepwell.dynamics import Record, descend
from stepwell.models import MergedAttention
from stepwell.objectives import Moments
from stepwell.tasks import Batch, InContextRegression, published_covariance

from ._pytorch import Training, compare, pytorch
from ._row import Row

RATE = 1e-3
SCALE = 0.05
"""Of the initial weights: the loss falls within the hundred steps that are compared."""


def run(quick: bool) -> Iterator[Row]:
    pytorch()
    dim, heads, sequences = 4, 8, 200 if quick else 5000
    covariance_key, data_key, start_key = jax.random.split(jax.random.key(10), 3)
    task = InContextRegression(published_covariance(dim, key=covariance_key), 31, centered=True, whitened=True)
    batch = task.sample(sequences, key=data_key)
    model = MergedAttention.random(dim=dim, heads=heads, scale=SCALE, normalization="none", key=start_key)
    moments = Moments.of_batch(batch, features="full", normalization="none")

    def ours(steps: int, record: int) -> Any:
        return descend(model, moments, rate=RATE, steps=steps, record=Record(every=record, snapshots=2), progress=False)

    yield from compare(
        f"attnM, {heads} heads, D = {dim}, P = {sequences}: a step",
        ours,
        lambda: attention(batch, model),
        steps=1000 if quick else 200_000,
        baseline_steps=1 if quick else 3,
        rounds=1 if quick else 7,
        least_ratio=20_000,
    )


def attention(batch: Batch, model: MergedAttention) -> Training:
    """PyTorch at the start of the given model, its whole matrices filled up with zeros."""
    torch = pytorch()
    heads, width, dim = model.key_query.shape
    value, key_query = np.zeros((heads, width, width)), np.zeros((heads, width, width))
    value[:, dim:] = model.value
    key_query[:, :, :dim] = model.key_query
    value, key_query = (torch.tensor(w, dtype=torch.float32, requires_grad=True) for w in (value, key_query))
    tokens = torch.tensor(np.asarray(batch.tokens), dtype=torch.float32)
    targets = torch.tensor(np.asarray(batch.labels[:, -1, 0]), dtype=torch.float32)

    def predict() -> Any:
        output = tokens
        # Head by head: on this many tokens faster than one product over all heads, and less memory.
        for head in range(heads):
            scores = tokens @ key_query[head] @ tokens.transpose(1, 2)
            output = output + scores.transpose(1, 2) @ (tokens @ value[head].T)
        return output[:, -1, -1]

    return Training(predict, targets, [value, key_query], RATE)
