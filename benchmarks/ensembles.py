"""A thousand runs as one vectorized program, against one run after another.

Gradient descent of separate rank-one attention at infinitely many sequences, D = 4, H = 4, 10,000 steps, from a hundred
seeds at ten initial scales. Both sides call `descend` and keep the loss at the ends only. Of the runs one by one a few
are timed, compiled already, and the time of all is their mean times the number of runs. Most of a run alone is the
call, so the steps by themselves are compared too.
"""

import itertools
from collections.abc import Iterator

import jax
import numpy as np
import xarray as xr

from stepwell.dynamics import Ensemble, Record, descend
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance

from ._row import Row, quantity
from ._timing import interleaved

RATE = 0.05
SCALES = np.geomspace(1e-3, 0.3, 10)


def run(quick: bool) -> Iterator[Row]:
    seeds, steps, alone, rounds = (2, 100, 2, 1) if quick else (100, 10_000, 10, 3)
    objective = Population(InContextRegression(covariance([0.4, 0.3, 0.2, 0.1]), 31))
    models = [
        SeparateAttention.random(dim=4, heads=4, scale=float(scale), key=jax.random.key(seed))
        for seed, scale in itertools.product(range(seeds), SCALES)
    ]
    together = Ensemble.of(models)
    chosen = np.linspace(0, len(models) - 1, alone).astype(int)

    def descent(model: SeparateAttention | Ensemble, steps: int, record: int) -> xr.Dataset:
        return descend(
            model, objective, rate=RATE, steps=steps, record=Record(every=record, snapshots=2), progress=False
        )

    times = interleaved(
        {
            "together": lambda: descent(together, steps, steps)["loss"].values,
            "alone": lambda: [descent(models[number], steps, steps)["loss"].values for number in chosen],
            "begin together": lambda: descent(together, 1, 1)["loss"].values,
            "begin alone": lambda: descent(models[0], 1, 1)["loss"].values,
        },
        rounds=rounds,
    )
    single = times["alone"] / alone
    name = f"{len(models):,} runs of {steps:,} steps, attnS rank 1, D = 4, H = 4"
    yield Row(
        f"{name}: as one program, against one by one",
        times["together"],
        "s",
        single * len(models),
        least_ratio=50,
        note=f"{len(models) * steps / times['together']:,.0f} steps a second together; a run alone takes "
        f"{quantity(single, 's')}, the mean of {alone}",
    )
    if not quick:  # a few steps are lost in the noise of the calls
        yield Row(
            f"{name}: the steps without the calls, a step of a run",
            (times["together"] - times["begin together"]) / (len(models) * (steps - 1)),
            "s",
            (single - times["begin alone"]) / (steps - 1),
            note="together, as many runs as a vector holds share an instruction, and the cores share the runs",
        )
    losses = descent(together, steps, steps)["loss"].values[chosen]
    apart = np.concatenate([descent(models[number], steps, steps)["loss"].values for number in chosen])
    yield Row(
        f"losses together and alone differ by, {alone} runs",
        float(np.max(np.abs(losses - apart) / apart)),
        "",
        most=1e-9,
        check=True,
        note=f"relative, at the start and after {steps:,} steps",
    )
    kept = descent(together, steps, max(steps // 100, 1))
    yield Row(
        f"{name}: what is kept of them at 100 losses each",
        float(kept.nbytes),
        "bytes",
        note=f"two snapshots of {sum(leaf.size for leaf in jax.tree.leaves(models[0]))} weights each, and the losses",
    )
