"""A regression that drives small weights as a finite sample does."""

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.spectrum import spectrum_of
from stepwell.objectives import Moments, Sampled
from stepwell.tasks import Batch, attention_scale
from stepwell.theory import LinearTask, Regression, RegressionTask, linear


@checked
def sample_task(task: LinearTask, sample: Moments | Sampled | Batch, *, commuting: bool = False) -> Regression:
    r"""Return the regression whose closed form has the driving of a finite sample.

    From small weights, heads grow by the *driving* $R = \langle y_q\, \beta x_q^\top\rangle$ alone, which is
    $\Lambda\Omega\Lambda$ for infinitely many sequences. In a sample of P sequences its entries are off by a few parts
    in $\sqrt P$: by several per cent for thousands, most where eigenvalues are small, and escape times with it. Here
    $\Omega$ is replaced by $\Lambda^{-1} \tfrac12(\hat R + \hat R^\top) \Lambda^{-1}$, so that the theory has the
    sample's $\hat R$. Second moments of the features remain those of the closed form.

    **Arguments:**

    - `task`: the regression that the sample was drawn from, of one output.
    - `sample`: the sequences, or the loss over them.
    - `commuting`: whether to leave out what mixes the eigenvectors of $\Lambda$, so that $\Omega$ has the same: the
      scalar equations of merged attention need that.

    **Returns:** a `theory.Regression`, for any function of the theory of linear attention.

    **Example:**

    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 31)
    >>> own = sw.analysis.sample_task(task, task.sample(1000, key=jax.random.key(0)))
    >>> sw.theory.linear.escape_rates(task).round(3).tolist(), sw.theory.linear.escape_rates(own).round(2).tolist()
    ([0.36, 0.16], [0.36, 0.16])
    """
    if not isinstance(task, RegressionTask) or not _is_gaussian(task):
        raise InvalidInput(
            f"{type(task).__name__} is not described by covariance, task_covariance and noise_variance of Gaussian "
            "inputs, in which the driving of a sample is expressed"
        )
    if task.outputs != 1:
        raise InvalidInput(f"the task has {task.outputs} outputs; the theory is for one, so build it with outputs=1")
    driving = _driving(task, sample)
    if driving.shape != task.covariance.shape:
        raise InvalidInput(f"the sample has inputs of dimension {len(driving)}, the task of {len(task.covariance)}")
    inverse = np.linalg.inv(task.covariance)
    omega = inverse @ (driving + driving.T) @ inverse / 2
    omega = (omega + omega.T) / 2
    if commuting:
        vectors = spectrum_of(task.covariance).vectors
        omega = (vectors * np.einsum("id,ij,jd->d", vectors, omega, vectors)) @ vectors.T
    if not np.all(np.isfinite(omega)) or np.linalg.eigvalsh(omega)[0] <= 0:
        raise InvalidInput(
            "in this sample some directions are not driven towards being learned, since it is small or noisy; use the "
            "task itself, or more sequences"
        )
    return Regression(np.asarray(task.covariance), omega, task.noise_variance, task.context)


def _is_gaussian(task: RegressionTask) -> bool:
    """Whether the theory computes the moments of a task from its covariances, and not from a method of its own."""
    described = Regression(np.asarray(task.covariance), task.task_covariance, task.noise_variance, task.context)
    if task.outputs != 1:
        return True
    pairs = zip(linear.moments(task), linear.moments(described), strict=True)
    return all(np.allclose(own, known, rtol=0.0, atol=1e-9 * np.abs(own).max()) for own, known in pairs)


def _driving(task: RegressionTask, sample: Moments | Sampled | Batch) -> Float[np.ndarray, "dim dim"]:
    r"""$\hat R$, with attention divided by N."""
    data = sample.batch if isinstance(sample, Sampled) else sample
    if isinstance(data, Batch):
        data = Moments.of_batch(data, features="cubic", normalization="1/N")
    if not isinstance(data, Moments) or data.normalization is None or data.outputs != 1:
        raise InvalidInput("the sample must be of tokens with one label each; give the Batch that it was made from")
    counts = task.context.counts
    if data.normalization != "1/N" and len(counts) > 1:
        raise InvalidInput(f"the sample is divided by {data.normalization} at several lengths; gather it with '1/N'")
    longest = max(counts)
    scale = 1.0 if data.normalization == "1/N" else float(attention_scale(data.normalization, longest)) * longest
    cross = np.asarray(data.cross)[0] / scale
    if data.features == "cubic":
        return cross.reshape(data.dim, data.dim)
    rows, columns = np.triu_indices(data.dim + 1)
    return cross.reshape(rows.size, data.dim)[(columns == data.dim) & (rows < data.dim)]
