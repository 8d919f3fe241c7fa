"""The mixture of in-context and in-weight learning."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_arrays
from stepwell._util.types import RandomKey

from ._abstract_task import assemble
from ._batch import Batch
from ._context_lengths import ContextLengths, as_lengths
from ._covariance import square_root
from ._gaussian import AbstractGaussianTask, Inputs, Labels, Places, TaskVectors, Total
from ._random import generator
from ._regression import InContextRegression


class InContextInWeightMixture(AbstractGaussianTask):
    r"""Some sequences have a task vector of their own, the others have one in common that can be memorized.

    Inputs are $\mathcal N(0, \Lambda)$ and labels $y = w^\top x$ without noise. Of P sequences the first
    $\lfloor p P \rfloor$ have $w \sim \mathcal N(0, I)$, the rest the same $w_*$. With p = 0 the context carries no
    information: its labels are $\mathcal N(0, 1)$, independent of everything else, and only $y_q = w_*^\top x_q$ can be
    learned.

    **Arguments:**

    - `covariance`: $\Lambda$, a matrix (dim, dim).
    - `fixed_task`: $w_*$, a vector (dim,), or (dim, outputs) for several outputs.
      `InContextInWeightMixture.random` draws one.
    - `in_context`: the fraction p, from 0 to 1.
    - `context`: the number N of context pairs, or a `ContextLengths` distribution.
    - `centered`: whether the inputs of a finite sample have mean zero exactly, at each position over the sequences.

    **Example:**

    Which of four sequences follow the fixed task vector:

    >>> task = sw.tasks.InContextInWeightMixture(np.eye(2), [1.0, -1.0], in_context=0.5, context=3)
    >>> batch = task.sample(4, key=jax.random.key(0))
    >>> predictions = batch.tokens[..., :2] @ task.fixed_task
    >>> np.isclose(predictions, batch.labels).all(axis=(1, 2)).tolist()
    [False, False, True, True]
    """

    covariance: Float[np.ndarray, "dim dim"]
    fixed_task: Float[np.ndarray, "dim outputs"]
    in_context: float = eqx.field(static=True)
    context: ContextLengths
    outputs: int = eqx.field(static=True)
    centered: bool = eqx.field(static=True)
    whitened: bool = eqx.field(static=True)
    _input_root: Float[np.ndarray, "dim dim"]

    @checked
    def __init__(
        self,
        covariance,
        fixed_task,
        in_context: float,
        context: int | ContextLengths = 31,
        *,
        centered: bool = False,
    ):
        self.covariance = checks.covariance_matrix("covariance", covariance)
        task = checks.numbers_in("fixed_task", fixed_task)
        self.fixed_task = task[:, None] if task.ndim == 1 else task
        if self.fixed_task.ndim != 2 or self.fixed_task.shape[0] != self.covariance.shape[0]:
            raise InvalidInput(
                f"fixed_task has shape {task.shape}; the covariance asks for ({self.covariance.shape[0]}, outputs)"
            )
        self.in_context = checks.number("in_context (icl)", in_context, least=0.0, most=1.0)
        self.context = as_lengths(context)
        self.outputs = self.fixed_task.shape[1]
        self.centered = bool(centered)
        self.whitened = False
        self._input_root = square_root(self.covariance)

    @classmethod
    @checked
    def random(
        cls,
        covariance,
        in_context: float,
        context: int | ContextLengths = 31,
        *,
        outputs: int = 1,
        centered: bool = False,
        key: RandomKey,
    ) -> "InContextInWeightMixture":
        r"""Return a mixture whose fixed task vector $w_*$ has a random direction and length $\|w_*\| = \sqrt D$.

        The other arguments are those of the constructor. With several `outputs`, labels of a token, $\sqrt D$ is the
        norm of all task vectors together.
        """
        dim = checks.covariance_matrix("covariance", covariance).shape[0]
        outputs = checks.whole("outputs", outputs)
        require_arrays((dim, outputs), what=f"{outputs} task vectors", instead="take fewer outputs")
        direction = generator(key).standard_normal((dim, outputs))
        fixed_task = direction * np.sqrt(dim) / np.linalg.norm(direction)
        return cls(covariance, fixed_task, in_context, context, centered=centered)

    @property
    def dim(self) -> int:
        return self.covariance.shape[0]

    def in_weight_test(self) -> "InContextInWeightMixture":
        r"""Return the task whose queries follow $w_*$ after unrelated contexts: it tests what was memorized."""
        return InContextInWeightMixture(self.covariance, self.fixed_task, 0.0, self.context, centered=self.centered)

    def in_context_test(self) -> InContextRegression:
        """Return the task with new task vectors only, which tests learning in context. Whitened if centered."""
        return InContextRegression(
            self.covariance, self.context, outputs=self.outputs, centered=self.centered, whitened=self.centered
        )

    @property
    def noisy(self) -> bool:
        return self.in_context == 0

    @checked
    def compose(self, inputs: Inputs, tasks: TaskVectors, noise: Labels, index: Places, total: Total) -> Batch:
        x = inputs @ self._input_root
        own = (index < jnp.floor(self.in_context * total))[:, None, None]
        truth = jnp.einsum("sni,sio->sno", x, jnp.where(own, tasks, self.fixed_task))
        return assemble(x, noise if self.noisy else truth, truth, self.context)
