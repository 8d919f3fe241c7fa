"""Which head serves which task."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput


class Allocation(NamedTuple):
    """Of each task: the `head` that serves it, counting from 0, or -1; and that head's `share` of the answer.

    `heads_used` is how many heads serve a task, and `one_to_one` whether each task is served by a head of its own.
    """

    head: Int[np.ndarray, "*lead task"]
    share: Float[np.ndarray, "*lead task"]
    heads_used: Int[np.ndarray, "*lead"]
    one_to_one: Bool[np.ndarray, "*lead"]


@checked
def head_task_allocation(
    omega: Float[np.ndarray, "..."], mu: Float[np.ndarray, "..."], *, least: float = 0.1
) -> Allocation:
    r"""Which head serves which task, from the eigenvalues of attention, at one point or along runs.

    Of the answer to task i head h gives $\mu_i^h\omega_i^h$; all together they give $c_i$, which is 1 for the right
    answer. A task is served by the head that gives most, once the heads give at least the part `least` of the answer;
    before, by none. The eigenvalues are those of `stepwell.models.SpectralAttention`, or of `decompose`.

    **Arguments:**

    - `omega`: $\omega_i^h$, of shape (…, head, task), with any leading axes, such as run and time.
    - `mu`: $\mu_i^h$, of the same shape.
    - `least`: the part of the answer, in absolute values added up over the heads, from which on a task is served; above
      0, up to 1.

    **Returns:** an `Allocation` of arrays with the same leading axes: of each task the `head` that serves it (-1 for
    none) and that head's `share` of the answer, both over (…, task); `heads_used`, how many heads serve a task; and
    `one_to_one`, whether each task is served by a head of its own.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> omega, mu = np.array([[0.5, 0.0], [0.1, 0.4]]), np.array([[1.8, 0.0], [0.5, 2.0]])
    >>> allocation = sw.analysis.head_task_allocation(omega, mu)
    >>> allocation.head.tolist(), allocation.share.round(2).tolist(), bool(allocation.one_to_one)
    ([0, 1], [0.95, 1.0], True)
    """
    least = checks.number("least", least, least=0.0, most=1.0, above=True)
    if omega.ndim < 2 or omega.shape != mu.shape:
        raise InvalidInput(f"omega has shape {omega.shape} and mu {mu.shape}; both must be (…, heads, tasks)")
    given = np.abs(omega * mu)
    total = given.sum(axis=-2)
    served = total >= least
    head = np.where(served, given.argmax(axis=-2), -1)
    share = np.where(served, given.max(axis=-2) / np.where(served, total, 1.0), 0.0)
    used = (head[..., None, :] == np.arange(omega.shape[-2])[:, None]).any(axis=-1).sum(axis=-1)
    return Allocation(head, share, used, served.all(axis=-1) & (used == omega.shape[-1]))
