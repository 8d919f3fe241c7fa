"""Softmax attention from random weights of either sign: whole matrices, and eigenvalues alone.

That positive and negative heads emerge, with diagonal and homogeneous key-query weights and output-value weights that
read the label alone and add up to zero, is reported by He, Pan, Chen and Yang (arXiv 2503.12734).
"""

import jax
import numpy as np
import xarray as xr

from stepwell.dynamics import Ensemble, Record, descend, online
from stepwell.models import MultiHeadAttention, SpectralAttention
from stepwell.objectives import ReducedSampled
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._sign_pairs_settings import RANDOM_SCALE, WHOLE, Settings
from ._softmax_search import Weights, softmax_losses


def whole_matrices(settings: Settings) -> xr.Dataset:
    """Two heads, every weight Gaussian at the start, on fresh sequences; W and U at the end, and the loss's course.

    `keys` is what of W_X and W_Y is not ±ω I, with one ω for both heads, relative to ω I. `inputs` is U_X, and
    `added` the sum of the two μ, both relative to μ.
    """
    task = MultiTaskRegression((WHOLE.dim,), 1.0, WHOLE.context, noise_variance=WHOLE.noise)
    models = [
        MultiHeadAttention.random(dim=WHOLE.dim, outputs=1, heads=2, scale=RANDOM_SCALE, key=jax.random.key(seed))
        for seed in settings.whole_seeds
    ]
    run = online(
        Ensemble.of(models),
        task,
        batch_size=WHOLE.batch,
        reduce="sum",
        rate=WHOLE.rate,
        steps=settings.whole_steps,
        record=Record(every=20, snapshots=2),
        progress=False,
        key=jax.random.key(settings.whole_seeds[0]),
    )
    q, k, v, o = (run[name].values[:, -1] for name in ("query", "key", "value", "output"))
    scores, readout = k.swapaxes(-1, -2) @ q * models[0].score_scale, (o @ v)[:, :, 0]
    d, eye = WHOLE.dim, np.eye(WHOLE.dim + 1, WHOLE.dim)
    omega, mu = np.trace(scores[:, :, :d], axis1=2, axis2=3) / d, readout[:, :, d]
    common = np.abs(omega).mean(axis=1)[:, None]
    plain = (np.sign(omega) * common)[..., None, None] * eye
    off = np.linalg.norm(scores - plain, axis=(2, 3)) / (common * d**0.5)
    size = np.abs(mu).mean(axis=1)
    return xr.Dataset(
        {
            "loss": (("run", "time"), run["loss"].values / WHOLE.dim),
            "scores": (("run", "head", "token", "input"), scores),
            "readout": (("run", "head", "token"), readout),
            "omega": (("run", "head"), omega),
            "mu": (("run", "head"), mu),
            "keys": ("run", off.max(axis=1)),
            "inputs": ("run", np.linalg.norm(readout[:, :, :d], axis=2).max(axis=1) / size),
            "added": ("run", np.abs(mu.sum(axis=1)) / size),
            "linear": _centered(task) / WHOLE.dim,
            "one_head": theory.exact_optimum(task).loss[0] / WHOLE.dim,
        },
        {"run": list(settings.whole_seeds), "time": WHOLE.rate * run["step"].values},
    )


def random_eigenvalues(settings: Settings) -> xr.Dataset:
    """Several heads from Gaussian weights, on stored sequences; `tested` is the loss over fresh ones."""
    task, root, signal = settings.task, settings.dim**0.5, settings.signal
    rows, steps = [], np.unique(np.linspace(0, settings.random_steps, 121).astype(int))
    for heads in settings.random_heads:
        models = []
        for seed in settings.seeds:
            drawn = np.random.default_rng([seed, heads]).normal(0, RANDOM_SCALE, (4, heads, 1))
            # The root of d eigenvalues moves with each weight of a score: they start as large as those of a readout.
            k, q, v, o = (jax.device_put(w) for w in (drawn[0] * root, drawn[1] * root, drawn[2], drawn[3]))
            models.append(SpectralAttention(k, q, v, o, dims=task.dims))
        key = jax.random.key(settings.seeds[0] + heads)
        run = descend(
            Ensemble.of(models),
            ReducedSampled(task, settings.random_sequences, precision="float32", key=key),
            rate=settings.rate / 2,
            steps=settings.random_steps,
            record=Record(points=steps, snapshots=2),
            progress=False,
        )
        k, q, v, o = (run[name].values[:, -1] for name in ("key", "query", "value", "output"))
        omega, mu = k * q * models[0].score_scale / settings.dim, v * o
        weights = [Weights(*each) for each in zip(omega, mu, strict=True)]
        tested = np.array(softmax_losses(task, weights, settings.random_sequences, key=jax.random.fold_in(key, 1)))
        unused = [(0, 0), (0, max(settings.random_heads) - heads)]
        kept = [np.pad(each[..., 0], unused, constant_values=np.nan) for each in (omega, mu)]
        added = np.abs(mu.sum(axis=(1, 2))) / np.abs(mu).sum(axis=(1, 2))
        rows.append((run["loss"].values / signal, *(tested / signal).T, *kept, added))
    loss, mean, error, omega, mu, added = (np.array(column) for column in zip(*rows, strict=True))
    each = ("heads", "run")
    return xr.Dataset(
        {
            "loss": ((*each, "time"), loss),
            "tested": (each, mean),
            "tested_error": (each, error),
            "omega": ((*each, "head"), omega),
            "mu": ((*each, "head"), mu),
            "added": (each, added),
            "linear": _centered(task) / signal,
        },
        {"heads": list(settings.random_heads), "run": list(settings.seeds), "time": settings.rate / 2 * steps},
        {"sequences": settings.random_sequences},
    )


def _centered(task: MultiTaskRegression) -> float:
    """The loss of linear attention with the labels centered, which leaves L - 1 pairs."""
    fewer = MultiTaskRegression(task.dims, task.strengths, task.context.longest - 1, noise_variance=task.noise_variance)
    return float(theory.linear_attention_loss(fewer)[0])
