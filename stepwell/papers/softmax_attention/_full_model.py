r"""The paper's first setting, with whole matrices: three tasks, three heads, fresh sequences at every step.

Times here are those of the flow dW/dt = -∂L/∂W, rate times step: half of the t/τ of a trajectory.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from stepwell.dynamics import online
from stepwell.models import MultiHeadAttention, SpectralAttention, decomposable, decompose
from stepwell.papers._completed import completed
from stepwell.papers._settings import setting
from stepwell.tasks import MultiTaskRegression
from stepwell.trajectory import model_at

DIMS = setting("dims", (10, 10, 10))
TASKS = HEADS = len(DIMS)
DIM = sum(DIMS)
EMBEDDING = setting("embedding", 30)
CONTEXT = setting("context", 100)
OMEGA = setting("omega", 0.004)
ADVANTAGE = setting("advantage", 0.004)
MU = setting("mu", 0.3)
UNIT = "t, with dW/dt = -dL/dW (rate times step)"
SETTING: dict[str, Any] = {
    "tasks, heads": f"{TASKS}, {HEADS}",
    "dimensions of the tasks": list(DIMS),
    "context length L": CONTEXT,
    "strength λ, noise σ": "1 in each coordinate, 0",
    "width of a head d_e": EMBEDDING,
    "scores divided by": "√d_e",
    "initial weights": f"ω = {OMEGA:g} + {ADVANTAGE:g} where head and task have one number, μ = {MU:g}",
}
BLOCKS = ("score_inputs", "score_labels", "readout_inputs", "readout_labels")
"""What is left of W_X, W_Y, U_X and U_Y without their decomposable part."""


def start(scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ at the start, times `scale`."""
    return scale * (OMEGA + ADVANTAGE * np.eye(HEADS)), scale * np.full((HEADS, TASKS), MU)


def spectral_model(scale: float = 1.0) -> SpectralAttention:
    """The start, as eigenvalues alone."""
    return SpectralAttention.balanced(*start(scale), DIMS, embedding=EMBEDDING)


def whole_model(
    seed: int, spectral: SpectralAttention | None = None, *, context: int = CONTEXT
) -> tuple[MultiTaskRegression, MultiHeadAttention]:
    """A task with random bases Φ and Ψ, and whole matrices with given eigenvalues in them, by default the start's."""
    key = jax.random.key(seed)
    task = MultiTaskRegression(DIMS, 1.0, context, inputs_rotation="random", outputs_rotation="random", key=key)
    given = spectral_model() if spectral is None else spectral
    return task, decomposable(given, task, embedding=EMBEDDING, key=jax.random.fold_in(key, 2))


def train(
    seed: int,
    *,
    batch: int,
    rate: float,
    steps: int,
    spectral: SpectralAttention | None = None,
    configuration: dict[str, Any],
) -> xr.Dataset:
    """Gradient descent on `batch` fresh sequences a step, from the eigenvalues `spectral`, by default the start's.

    Over `time`: `loss`, that of the step's batch; `omega`, `mu` over (head, task); `off` over `block`, Frobenius norms
    over all heads of what is not decomposable. `scores` and `readout` are the last W and U, in the bases of the task.
    """
    task, model = whole_model(seed, spectral)
    observe: dict[str, Any] = {"omega": _Part(task, "omega"), "mu": _Part(task, "mu"), "off": _Part(task, "off")}
    run = completed(
        online(
            model,
            task,
            batch=batch,
            reduce="sum",
            rate=rate,
            steps=steps,
            snapshots=2,
            observe=observe,
            progress=False,
            key=jax.random.fold_in(jax.random.key(seed), 3),
            configuration=configuration,
        )
    )
    scores, readout = in_the_bases(model_at(run, model), task)
    return xr.Dataset(
        {
            "loss": ("time", run["loss"].values[0]),
            "omega": (("time", "head", "task"), run["omega"].values[0]),
            "mu": (("time", "head", "task"), run["mu"].values[0]),
            "off": (("time", "block"), run["off"].values[0]),
            "scores": (("head", "token", "input"), scores),
            "readout": (("head", "output", "token"), readout),
        },
        {"time": ("time", rate * run["step"].values, {"units": UNIT}), "block": list(BLOCKS)},
        {**run.attrs, "batch": batch, "seed": seed},
    )


def in_the_bases(
    model: MultiHeadAttention, task: MultiTaskRegression
) -> tuple[Float[np.ndarray, "head token input"], Float[np.ndarray, "head output token"]]:
    r"""W and U of a model in the bases Φ of inputs and Ψ of labels: $\Phi^\top W_X\Phi$, and so on."""
    q, k, v, o = (np.asarray(weight) for weight in model.weights().values())
    phi, psi = task.inputs_rotation, task.outputs_rotation
    both = np.block([[phi, np.zeros((DIM, TASKS))], [np.zeros((TASKS, DIM)), psi]])
    return (
        both.T @ (k.swapaxes(1, 2) @ q * model.score_scale) @ phi,
        psi.T @ (o @ v) @ both,
    )


class _Part(eqx.Module):
    """One part of `decompose`. A module and not a function, so that one compiled program serves every task."""

    task: MultiTaskRegression
    part: Literal["omega", "mu", "off"] = eqx.field(static=True)

    def __call__(self, model: MultiHeadAttention) -> Float[Array, "..."]:
        parts = decompose(model, self.task)
        if self.part == "omega":
            return parts.omega
        if self.part == "mu":
            return parts.mu
        norms = (parts.score_inputs, parts.score_labels, parts.readout_inputs, parts.readout_labels)
        return jnp.sqrt(jnp.stack([jnp.sum(norm**2) for norm in norms]))
