"""What the heads of multi-head attention have become: their signs, how alike they are, and what they add up to."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell.models import AbstractModel, is_attention

from ._recorded import recorded

_DIMS = {
    "omega": ("head",),
    "mu": ("head", "output"),
    "diagonality": ("head",),
    "label_share": ("head", "output"),
    "sign": ("head",),
    "spread": (),
    "imbalance": ("output",),
    "preconditioner": ("output", "row", "column"),
}


class HeadStructure(NamedTuple):
    r"""The structure of heads with scores $z^\top W_h x_q$ and readouts $U_h$; `of` makes one, and `head_structure` one
    of every point of a run.

    $W_h$ has a square block $W_h^X$ for the inputs of a token, and $U_{h,o}$ for output o the entry $\mu_h^o$ for the
    label of that output. Ratios are nan where they are of zero.

    **Arguments:**

    - `omega`: $\omega_h = \mathrm{tr}(W_h^X)/d$, the mean of the diagonal.
    - `mu`: $\mu_h^o$.
    - `diagonality`: the norm of the diagonal of $W_h^X$ over that of the block, $|\mathrm{diag}|/\|W_h^X\|$; 1 if the
      block is diagonal.
    - `label_share`: $|\mu_h^o|/|U_{h,o}|$; 1 if the head gives to output o nothing but its label.
    - `sign`: that of $\omega_h$, 1 or -1; 0 for a dummy, a head whose part of the effective map is small.
    - `spread`: the standard deviation of $|\omega_h|$ over its mean, over heads that are no dummies; 0 if they are
      homogeneous.
    - `imbalance`: $|\sum_h \mu_h^o|/\sum_h|\mu_h^o|$; 0 if readouts add up to zero.
    - `preconditioner`: $\Gamma_o = \sum_h \mu_h^o W_h^X$. Where scores are small and readouts add up to zero, softmax
      attention predicts by a step of gradient descent on centered inputs with this preconditioner,
      $\hat y_o = \frac1L\sum_l y_{l,o} (x_l - \bar x)^\top \Gamma_o x_q$; linear attention does so without $\bar x$.

    **Example:** two heads of opposite signs, and a third that does nothing.

    >>> scores = jnp.array([0.1, -0.1, 0.0])[:, None, None] * jnp.eye(3, 2)
    >>> readout = jnp.array([4.0, -4.0, 0.0])[:, None, None] * jnp.array([[0.0, 0.0, 1.0]])
    >>> whole = jnp.broadcast_to(jnp.eye(3), (3, 3, 3))
    >>> heads = sw.analysis.HeadStructure.of(sw.MultiHeadAttention(scores, whole, whole, readout, score_scale=1.0))
    >>> heads.sign.tolist(), float(heads.imbalance[0]), heads.preconditioner[0].round(3).tolist()
    ([1, -1, 0], 0.0, [[0.8, 0.0], [0.0, 0.8]])
    """

    omega: Float[Array, " head"]
    mu: Float[Array, "head outputs"]
    diagonality: Float[Array, " head"]
    label_share: Float[Array, "head outputs"]
    sign: Int[Array, " head"]
    spread: Float[Array, ""]
    imbalance: Float[Array, " outputs"]
    preconditioner: Float[Array, "outputs dim dim"]

    @classmethod
    @checked
    def of(
        cls, model: AbstractModel, *, basis: Float[np.ndarray, "dim dim"] | None = None, least: float = 0.1
    ) -> "HeadStructure":
        r"""Return the structure of the heads of a model; JAX can trace it, for `Record(observe=…)`.

        **Arguments:**

        - `model`: an attention, or a model of your own that declares the form "attention".
        - `basis`: orthonormal columns, in which $W_h^X$ is taken; by default the entries of an input.
        - `least`: the fraction of the largest part $\|\mu_h\|\,\|W_h^X\|$ of the effective map below which a head is a
          dummy; above 0, up to 1.
        """
        least = checks.number("least", least, least=0.0, most=1.0, above=True)
        if not is_attention(model):
            raise InvalidInput(
                f"{type(model).__name__} is not an attention whose scores and readout are known; if they are its "
                "bilinear() and readout(), derive it from AbstractAttention and write declared_form = 'attention' in it"
            )
        dim, scores, readout = model.dim, model.bilinear(), model.readout()
        block = scores[:, :dim]
        if basis is not None:
            gap = np.abs(basis.T @ basis - np.eye(len(basis))).max()
            if len(basis) != dim or gap > 1e-8:
                raise InvalidInput(
                    f"basis must have {dim} orthonormal columns of length {dim}; take numpy.linalg.eigh's"
                )
            block = basis.T @ block @ basis
        diagonal = jnp.diagonal(block, axis1=1, axis2=2)
        mu = jnp.diagonal(readout[..., dim:], axis1=1, axis2=2)
        omega, norms = diagonal.mean(axis=1), jnp.linalg.norm(block, axis=(1, 2))
        size = jnp.linalg.norm(readout[..., dim:], axis=(1, 2)) * norms
        active = (size >= least * size.max()) & (size > 0)
        number = active.sum()
        mean = _ratio(jnp.sum(active * jnp.abs(omega)), number)
        deviation = jnp.sqrt(_ratio(jnp.sum(active * (jnp.abs(omega) - mean) ** 2), number))
        return cls(
            omega=omega,
            mu=mu,
            diagonality=_ratio(jnp.linalg.norm(diagonal, axis=1), norms),
            label_share=_ratio(jnp.abs(mu), jnp.linalg.norm(readout, axis=2)),
            sign=jnp.where(active, jnp.sign(omega), 0).astype(int),
            spread=_ratio(deviation, mean),
            imbalance=_ratio(jnp.abs(mu.sum(axis=0)), jnp.abs(mu).sum(axis=0)),
            preconditioner=jnp.einsum("ho,hij->oij", mu, block),
        )


def _ratio(part: Array, whole: Array) -> Array:
    """nan where the whole is zero."""
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1), jnp.nan)


@checked
def head_structure(
    trajectory: xr.Dataset,
    model: AbstractModel | None = None,
    *,
    basis: Float[np.ndarray, "dim dim"] | None = None,
    least: float = 0.1,
) -> xr.Dataset:
    r"""Return the structure of the heads at every recorded point: signs, homogeneity, zero sum, preconditioner.

    **Arguments:**

    - `trajectory`: a run of attention, or of a model of your own that declares the form "attention".
    - `model`: a model of the class and shape that was trained; by default one of the class that the trajectory names,
      which is to be imported before if it is your own.
    - `basis`: orthonormal columns, in which scores are taken; by default the entries of an input.
    - `least`: the fraction of the largest part of the effective map below which a head is a dummy.

    **Returns:** a data set with the values of `HeadStructure` by their names, over (run, snapshot or time) and, as each
    has them, head, output, row and column.

    **Example:** heads of opposite scores stay so, and readouts take their signs.

    >>> experiment = sw.Experiment(
    ...     task={"spectrum": "white", "dim": 2, "context": 16},
    ...     model={"kind": "multihead", "heads": 2, "scheme": "opposite", "scale": 0.3},
    ...     objective="online",
    ...     training={"rate": 0.01, "steps": 500, "optimizer": "adam"},
    ...     record={"snapshots": 2},
    ... )
    >>> heads = sw.analysis.head_structure(experiment.run(progress=False))
    >>> heads["sign"].values[0, -1].tolist(), np.sign(heads["mu"].values[0, -1, :, 0]).tolist()
    ([1, -1], [1.0, -1.0])
    """
    along = recorded(trajectory, model)
    found = along.over(functools.partial(HeadStructure.of, basis=basis, least=least))
    lead = ("run", along.axis)
    return xr.Dataset(
        {name: ((*lead, *_DIMS[name]), value) for name, value in found._asdict().items()}, along.coordinates
    )
