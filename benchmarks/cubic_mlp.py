"""Gradient descent of the two-layer linear network on cubic features: moments against PyTorch.

Both sides get the same precomputed features, 16 for D = 4. The baseline is two `nn.Linear` without bias and SGD on the
full batch of 5000, and has no attention left to compute.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from stepwell.dynamics import Record, descend
from stepwell.models import CubicMLP
from stepwell.objectives import Moments
from stepwell.tasks import FeatureBatch, InContextRegression, published_covariance

from ._pytorch import Training, compare, pytorch
from ._row import Row

RATE = 0.03
SCALE = 0.3
"""Of the initial weights: the loss falls within the hundred steps that are compared."""


def run(quick: bool) -> Iterator[Row]:
    pytorch()
    dim, heads, sequences = 4, 8, 200 if quick else 5000
    covariance_key, data_key, start_key = jax.random.split(jax.random.key(10), 3)
    task = InContextRegression(published_covariance(dim, key=covariance_key), 31, centered=True, whitened=True)
    batch = task.sample(sequences, key=data_key)
    model = CubicMLP.random(dim=dim, heads=heads, scale=SCALE, key=start_key)
    moments = Moments.of_batch(batch, features="cubic")

    def ours(steps: int, record: int) -> Any:
        return descend(model, moments, rate=RATE, steps=steps, record=Record(every=record, snapshots=2), progress=False)

    yield from compare(
        f"MLP(z), {heads} hidden units, D = {dim}, P = {sequences}: a step",
        ours,
        lambda: network(batch.cubic_features(), model),
        steps=1000 if quick else 200_000,
        baseline_steps=10 if quick else 500,
        rounds=1 if quick else 7,
        least_ratio=100,
    )


def network(batch: FeatureBatch, model: CubicMLP) -> Training:
    """PyTorch at the start of the given network."""
    torch = pytorch()
    layers = [torch.nn.Linear(*reversed(w.shape), bias=False) for w in (model.hidden, model.readout)]
    with torch.no_grad():
        for layer, weight in zip(layers, (model.hidden, model.readout), strict=True):
            layer.weight.copy_(torch.tensor(np.asarray(weight)))
    net = torch.nn.Sequential(*layers)
    features = torch.tensor(np.asarray(batch.features), dtype=torch.float32)
    labels = torch.tensor(np.asarray(batch.labels), dtype=torch.float32)
    return Training(lambda: net(features), labels, list(net.parameters()), RATE)
