r"""The paper's first setting, with whole matrices: three tasks, three heads, fresh sequences at every step.

Times here are those of the flow dW/dt = -∂L/∂W, rate times step: half of the t/τ of a trajectory.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from stepwell.dynamics import Record, online
from stepwell.models import MultiHeadAttention, SpectralAttention, decomposable, decompose
from stepwell.tasks import MultiTaskRegression
from stepwell.trajectory import model_at

from ._common import over

UNIT = "t, with dW/dt = -dL/dW (rate times step)"
BLOCKS = ("score_inputs", "score_labels", "readout_inputs", "readout_labels")
"""What is left of W_X, W_Y, U_X and U_Y without their decomposable part."""


@dataclass(frozen=True)
class FirstSetting:
    """Tasks, sizes and initial weights, to which a figure adds settings of its own."""

    dims: tuple[int, ...] = (10, 10, 10)
    embedding: int = 30
    context: int = 100
    omega: float = 0.004
    advantage: float = 0.004
    mu: float = 0.3

    @property
    def tasks(self) -> int:
        """As many as there are heads."""
        return len(self.dims)

    @cached_property
    def task(self) -> MultiTaskRegression:
        return MultiTaskRegression(self.dims, 1.0, self.context)

    def described(self) -> dict[str, Any]:
        return {
            "tasks, heads": f"{self.tasks}, {self.tasks}",
            "dimensions of the tasks": list(self.dims),
            "context length L": self.context,
            "strength λ, noise σ": "1 in each coordinate, 0",
            "width of a head d_e": self.embedding,
            "scores divided by": "√d_e",
            "initial weights": f"ω = {self.omega:g} + {self.advantage:g} where head and task have one number, "
            f"μ = {self.mu:g}",
        }

    def added(self) -> dict[str, Any]:
        """The settings that a figure has beside these, by name."""
        common = {field.name for field in fields(FirstSetting)}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in common}

    def initial_weights(self, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """ω and μ, times `scale`."""
        omega = self.omega + self.advantage * np.eye(self.tasks)
        return scale * omega, scale * np.full((self.tasks, self.tasks), self.mu)

    def spectral_model(self, scale: float = 1.0) -> SpectralAttention:
        """The initial weights, as eigenvalues alone."""
        return self.with_eigenvalues(*self.initial_weights(scale))

    def with_eigenvalues(self, omega: np.ndarray, mu: np.ndarray) -> SpectralAttention:
        return SpectralAttention.balanced(omega, mu, self.dims, embedding=self.embedding)


def whole_model(
    setting: FirstSetting, seed: int, spectral: SpectralAttention | None = None
) -> tuple[MultiTaskRegression, MultiHeadAttention]:
    """A task with random bases Φ and Ψ, and whole matrices with given eigenvalues in them, by default the initial."""
    key = jax.random.key(seed)
    bases: dict[str, Any] = {"inputs_rotation": "random", "outputs_rotation": "random"}
    task = MultiTaskRegression(setting.dims, 1.0, setting.context, key=key, **bases)
    given = setting.spectral_model() if spectral is None else spectral
    return task, decomposable(given, task, embedding=setting.embedding, key=jax.random.fold_in(key, 2))


def train(
    setting: FirstSetting, seed: int, *, batch: int, rate: float, steps: int, spectral: SpectralAttention | None = None
) -> xr.Dataset:
    """Gradient descent on `batch` fresh sequences a step, from the eigenvalues `spectral`, by default the initial ones.

    Over `time`: `loss`, that of the step's batch; `omega`, `mu` over (head, task); `off` over `block`, Frobenius norms
    over all heads of what is not decomposable. `scores` and `readout` are the last W and U, in the bases of the task.
    """
    task, model = whole_model(setting, seed, spectral)
    observe: dict[str, Any] = {part: _Part(task, part) for part in ("omega", "mu", "off")}
    options: dict[str, Any] = {"record": Record(snapshots=2, observe=observe), "progress": False}
    key = jax.random.fold_in(jax.random.key(seed), 3)
    run = online(model, task, batch_size=batch, reduce="sum", rate=rate, steps=steps, key=key, **options)
    last = model_at(run, model)
    scores, readout = map(np.asarray, in_the_bases(last.bilinear(), last.readout(), task))
    return xr.Dataset(
        over("time", loss=run["loss"].values[0])
        | over("time head task", omega=run["omega"].values[0], mu=run["mu"].values[0])
        | over("time block", off=run["off"].values[0])
        | over("head token input", scores=scores)
        | over("head output token", readout=readout),
        {"time": ("time", rate * run["step"].values, {"units": UNIT}), "block": list(BLOCKS)},
    )


def in_the_bases(scores: Array, readout: Array, task: MultiTaskRegression) -> tuple[Array, Array]:
    r"""W and U in the bases Φ of inputs and Ψ of labels: $\Phi^\top W_X\Phi$, and so on."""
    phi, psi = task.inputs_rotation, task.outputs_rotation
    both = jax.scipy.linalg.block_diag(phi, psi)
    return both.T @ scores @ phi, psi.T @ readout @ both


class _Part(eqx.Module):
    """One part of `decompose`. A module and not a function, so that one compiled program serves every task."""

    task: MultiTaskRegression
    part: Literal["omega", "mu", "off"] = eqx.field(static=True)

    def __call__(self, model: MultiHeadAttention) -> Float[Array, "..."]:
        parts = decompose(model, self.task)
        if self.part != "off":
            return getattr(parts, self.part)
        return jnp.sqrt(jnp.stack([jnp.sum(getattr(parts, block) ** 2) for block in BLOCKS]))
