"""Whether a model performs in-context principal component regression, judged by its predictions alone."""

import equinox as eqx
import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell.models import AbstractModel
from stepwell.tasks import Batch


@checked
def principal_component_regression(
    batch: Batch, eigenvectors: Float[np.ndarray, "dim component"]
) -> Float[np.ndarray, "components sequences"]:
    r"""Return predictions by least squares within each context, on the first m components, m = 0, …, D.

    $\hat y = \hat w_m^\top E_m^\top x_q$, where $\hat w_m$ minimizes $\sum_n (y_n - w^\top E_m^\top x_n)^2$ and $E_m$
    has the first m columns of `eigenvectors`. No theory of attention enters, nor the eigenvalues.

    **Arguments:**

    - `batch`: sequences with one output and one context length, which is at least the number of components.
    - `eigenvectors`: of the inputs' covariance, one a column, in falling order of eigenvalue: shape (dim, component).

    **Returns:** the predictions, of shape (components + 1, sequences): row m is that with m components.

    **Example:** without noise, the regression on all components is exact.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 8)
    >>> batch = task.sample(100, key=jax.random.key(0))
    >>> errors = sw.analysis.principal_component_regression(batch, np.eye(2)) - batch.labels[:, -1, 0]
    >>> (abs(errors).max(axis=1) < 1e-8).tolist()
    [False, False, True]
    """
    count = batch.context.longest
    if not batch.context.fixed or batch.outputs != 1 or count < eigenvectors.shape[1]:
        raise InvalidInput(
            f"the batch has context lengths {batch.context.counts} and {batch.outputs} outputs; the regression needs "
            f"one length, of at least {eigenvectors.shape[1]}, and one output"
        )
    tokens = np.asarray(batch.tokens)
    scores, labels = tokens[:, :, : batch.dim] @ eigenvectors, tokens[:, :count, batch.dim]
    made = [np.zeros(batch.size)]
    for m in range(1, eigenvectors.shape[1] + 1):
        context, query = scores[:, :count, :m], scores[:, count, :m]
        power, cross = np.swapaxes(context, 1, 2) @ context, np.einsum("snm,sn->sm", context, labels)
        made.append(np.einsum("sm,sm->s", np.linalg.solve(power, cross[..., None])[..., 0], query))
    return np.array(made)


@checked
def pcr_test(model: AbstractModel, batch: Batch, eigenvectors: Float[np.ndarray, "dim component"]) -> xr.Dataset:
    r"""Return how far a model's predictions are from principal component regression on m components, on sequences.

    Components that are shrunk, as a short context demands, count as learned while more than half of them is there.

    **Arguments:**

    - `model`: any model with one output.
    - `batch`: sequences with one output and one context length, which is at least the number of components.
    - `eigenvectors`: of the inputs' covariance, one a column, in falling order of eigenvalue: shape (dim, component).

    **Returns:** a data set over `components` m = 0, …, D: `difference`, the mean of $(\hat y - \hat y_m)^2$ over the
    sequences, and `standard_error`, its standard error. Further `closest`, the m of the smallest difference, and
    `margin`, how much larger the next is, in standard errors of the difference between the two.

    **Example:** a model whose effective map has the first component alone.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned([[1.0, 0.0], [0.0, 1.0]], heads=1, scale=1.0)
    >>> int(sw.analysis.pcr_test(model, task.sample(500, key=jax.random.key(0)), np.eye(2))["closest"])
    1
    """
    predicted = np.asarray(_predictions(model, batch))
    squares = (predicted - principal_component_regression(batch, eigenvectors)) ** 2
    mean = squares.mean(axis=1)
    first, second = np.argsort(mean)[:2]
    apart = squares[second] - squares[first]
    return xr.Dataset(
        {
            "difference": ("components", mean),
            "standard_error": ("components", squares.std(axis=1, ddof=1) / squares.shape[1] ** 0.5),
            "closest": int(first),
            "margin": float(apart.mean() * apart.size**0.5 / apart.std(ddof=1)),
        },
        {"components": np.arange(mean.size)},
    )


@eqx.filter_jit
def _predictions(model: AbstractModel, batch: Batch):
    return jax.vmap(lambda tokens: model(tokens)[0])(batch.tokens[:, : batch.context.longest + 1])
