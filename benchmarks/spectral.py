"""The spectral flow of softmax attention in the setting of arXiv 2402.19442, Fig 1: by theory, and by training.

Three tasks of dimension 10, three heads of width 30, 100 tokens, from ω = .004, .008 in a task's own head, and μ = .3,
to time 12 of the flow of the squared loss, saved at 401 times. Theory integrates the eigenvalues' equations, training
the gradient of `Spectral` in the factors of the eigenvalues. Both are called once before: compilation does not count.
"""

from collections.abc import Iterator

import numpy as np

from stepwell.dynamics import Record, flow
from stepwell.models import SpectralAttention
from stepwell.objectives import Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._row import Row
from ._timing import interleaved

UNTIL = 12.0
"""Training's time is twice that: it follows half the gradient."""
SAME = 1e-6
"""Loss curves of two solvers, training's with a tolerance of 1e-9 a step, which a steep front makes some hundred times
larger: a small error of time is one of the loss there."""


def run(quick: bool) -> Iterator[Row]:
    task = MultiTaskRegression((10, 10, 10))
    omega, mu = 0.004 + 0.004 * np.eye(3), np.full((3, 3), 0.3)
    start, objective = SpectralAttention.balanced(omega, mu, task.dims), Spectral(task)
    times = np.linspace(0, UNTIL, 41 if quick else 401)
    found = interleaved(
        {
            "theory": lambda: theory.spectral_flow(task, omega, mu, times),
            "training": lambda: flow(
                start, objective, until=2 * UNTIL, record=Record(points=2 * times), progress=False
            ),
        },
        rounds=1 if quick else 15,
    )
    predicted = theory.spectral_flow(task, omega, mu, times).loss.sum(axis=1)
    deviations = []
    for rtol, atol in ((1e-6, None), (1e-9, 1e-11)):
        trained = flow(
            start, objective, until=2 * UNTIL, record=Record(points=2 * times), rtol=rtol, atol=atol, progress=False
        )
        deviations.append(float(np.max(np.abs(trained["loss"].values[0] / predicted - 1))))
    yield Row("spectral flow, I = H = 3, L = 100, by theory", found["theory"], "s", most=0.05)
    yield Row("spectral flow, I = H = 3, L = 100, by training", found["training"], "s", most=0.05)
    yield Row(
        "the two loss curves of the spectral flow differ by",
        deviations[1],
        "",
        most=SAME,
        check=True,
        note=f"relative, training with rtol 1e-9; {deviations[0]:.2g} with the 1e-6 that was timed; the loss goes from "
        f"{predicted[0]:.4f} to {predicted[-1]:.4f}",
    )
