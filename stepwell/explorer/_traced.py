"""The closed form of several regressions with every number traced, so that no slider compiles a program."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util.types import Loss
from stepwell.dynamics import prepare_lsoda
from stepwell.experiments import Built
from stepwell.models import AbstractModel, SpectralAttention
from stepwell.objectives import AbstractObjective
from stepwell.tasks import MultiTaskRegression


class TracedSpectral(AbstractObjective):
    """What `objectives.Spectral` computes, of models that `traced` returns; dimensions and scale are arrays here."""

    dims: Float[Array, " task"]
    signals: Float[Array, " task"]
    noise: Float[Array, ""]
    inverse_length: Float[Array, ""]
    score_scale: Float[Array, ""]

    def __call__(self, model: AbstractModel) -> Loss:
        assert isinstance(model, SpectralAttention)
        omega, mu = model.key * model.query * (self.score_scale / self.dims), model.value * model.output
        overlaps = jnp.exp((omega * self.dims) @ omega.T)
        reached, spread = jnp.sum(mu * omega, axis=0), jnp.sum(mu * (overlaps @ mu), axis=0)
        losses = self.signals * (1 - reached) ** 2 + (self.signals + self.noise) * self.inverse_length * spread
        return jnp.sum(losses)

    def check(self, model: AbstractModel) -> None:
        pass

    def floor(self, model: AbstractModel) -> float | None:
        return None


def traced(built: Built) -> tuple[SpectralAttention, TracedSpectral]:
    """The initial model and the loss of a run: the dimensions of the tasks are in the loss, and not in the model."""
    task, model, _ = built
    assert isinstance(task, MultiTaskRegression) and isinstance(model, SpectralAttention)
    numbers = [np.array(task.dims, float), task.signals, task.noise_variance, 1 / task.context.counts[0]]
    loss = TracedSpectral(*(jax.device_put(np.asarray(number, float)) for number in (*numbers, model.score_scale)))
    ones = (1,) * len(task.dims)
    return SpectralAttention(model.key, model.query, model.value, model.output, dims=ones, score_scale=1.0), loss


_STIFF: set[tuple[int, ...]] = set()


def compile_jacobian(model: SpectralAttention, loss: TracedSpectral) -> None:
    """Compile what LSODA needs once a run turns stiff, so that no slider has to."""
    if model.key.shape not in _STIFF:
        prepare_lsoda(model, loss)
        _STIFF.add(model.key.shape)
