"""Standard errors of test losses, from sequences of their own: a skewed mean that comes out low by chance comes with a
standard error that is low too."""

import jax
import numpy as np
from jaxtyping import Float

from stepwell.tasks import InContextRegression

_SEQUENCES = 40000


def squared_error_spread(
    task: InContextRegression, maps: Float[np.ndarray, "map dim dim"], *, length: int, seed: int
) -> Float[np.ndarray, " map"]:
    r"""Standard deviation over sequences of $(y_q - \beta^\top A x_q)^2$ for each map A.

    The context is the first `length` pairs, the query the token after them.
    """
    batch = task.sample(_SEQUENCES, key=jax.random.key(seed))
    tokens, labels = np.asarray(batch.tokens), np.asarray(batch.labels)[:, length, 0]
    x, y, query = tokens[:, :length, : task.dim], tokens[:, :length, task.dim], tokens[:, length, : task.dim]
    beta = np.einsum("sn,snd->sd", y, x) / length
    return np.array([np.std((labels - np.sum(beta @ each * query, axis=1)) ** 2) for each in maps])
