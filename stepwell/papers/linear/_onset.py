r"""When the loss of merged attention begins to fall, from the moments of any data and from the initial weights.

Near zero the values $V_h$ and merged matrices $KQ_h$ of each head grow by
$\tau\dot V_h = B\,KQ_h$, $\tau\dot{KQ}_h = B^\top V_h$,
where $B_{a,(bc)} = \langle y_q S_{ab} x_{q,c}\rangle$ and $S = \sum_s z_s z_s^\top$. With the singular values
$\sigma_k$ and vectors $\ell_k$, $r_k$ of B,
$\mu_{hk} = \tfrac12(\ell_k\cdot V_h + \langle r_k, KQ_h\rangle)$
is multiplied by $1 + 2\eta\sigma_k$ in a step of descent at the rate η, and $\nu_{hk}$, with a minus in place of the
plus, by $1 - 2\eta\sigma_k$. The loss has then fallen by $2\sum_k\sigma_k s_k$,
$s_k = \sum_h(\mu_{hk}^2 - \nu_{hk}^2)$.
Where one mode leads, and its curvature $\kappa = \theta^\top G\,\theta$ is counted, it is $F\,(1 - (1 + y)^{-2})$ with
$y = \sum_k\sigma_k s_k/F$ and $F = \sigma_1^2/\kappa$.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import scipy
import xarray as xr
from jaxtyping import Float

from stepwell.analysis.style import scientific
from stepwell.figures import Claim, Origin
from stepwell.models import MergedAttention
from stepwell.objectives import Moments

from ._runs import labeled

PART = 0.01
"""The fall has begun when this part of F is reached: weights are still so small that modes grow independently."""
AMPLITUDE = (1 - PART) ** -0.5 - 1
"""y at that part. What is neglected, the interaction of modes, changes y by a fraction of the order y."""


@dataclass(frozen=True)
class Quadratic:
    r"""$L(\Theta) = c - 2 b^\top\Theta + \Theta^\top G\,\Theta$, the loss of attention that is not divided by N."""

    gram: Float[np.ndarray, "features features"]
    cross: Float[np.ndarray, " features"]
    power: float
    dim: int

    def loss(self, theta: Float[np.ndarray, " features"]) -> float:
        return float(self.power + theta @ (self.gram @ theta - 2 * self.cross))

    def minimizer(self) -> Float[np.ndarray, " features"]:
        return np.linalg.solve(self.gram, self.cross)

    def objective(self, context: int | None = None) -> Moments:
        """As an objective; of attention divided by the context, if one is given."""
        gram, cross = (jnp.asarray(self.gram), jnp.asarray(self.cross)[None])
        gram, cross = (gram, cross) if context is None else (gram / context**2, cross / context)
        normalization = "none" if context is None else "1/N"
        return Moments(gram, cross, jnp.asarray(self.power), self.dim, 1, "full", normalization, True)


@dataclass(frozen=True)
class Growth:
    r"""The modes in which small weights grow: B of the module's docstring, and the curvature κ of the first.

    Kept on that direction, $\Theta = s\,\mathrm{sym}(\ell\otimes r)$ with $\tau\dot s = 2s(\sigma - \kappa s)$, and the
    loss falls by $F = \sigma^2/\kappa$ in all.
    """

    rates: Float[np.ndarray, " mode"]
    left: Float[np.ndarray, "mode width"]
    right: Float[np.ndarray, "mode width dim"]
    curvature: float

    @classmethod
    def of(cls, moments: Moments | Quadratic, *, held: bool = False) -> "Growth":
        """The modes of given data. `held`: without the label blocks, weights from inputs to labels and back."""
        dim = moments.dim
        tensor = cross_tensor(np.ravel(moments.cross), dim)
        if held:
            tensor[:dim], tensor[dim, dim] = 0.0, 0.0
        left, rates, right = np.linalg.svd(tensor.reshape(dim + 1, -1), full_matrices=False)
        right = right.reshape(-1, dim + 1, dim)
        theta = symmetrized(left[:, 0], right[0])
        return cls(rates, left.T, right, float(theta @ np.asarray(moments.gram) @ theta))

    @property
    def fall(self) -> float:
        return float(self.rates[0] ** 2 / self.curvature)

    @property
    def theta(self) -> Float[np.ndarray, " features"]:
        """The coefficients after the fall of the first mode."""
        return self.rates[0] / self.curvature * symmetrized(self.left[0], self.right[0])

    def onset(self, model: MergedAttention, rate: float) -> float:
        """The number of steps of descent after which the loss has fallen by `PART` of F; nan for weights that are not
        small."""
        from_values = np.asarray(model.value[:, 0]) @ self.left.T
        from_pairs = np.einsum("hbc,kbc->hk", np.asarray(model.key_query), self.right)
        growing, shrinking = ((((from_values + sign * from_pairs) / 2) ** 2).sum(axis=0) for sign in (1, -1))
        up, down = 1 + 2 * rate * self.rates, 1 - 2 * rate * self.rates

        def missing(steps: float) -> float:
            modes = growing * up ** (2 * steps) - shrinking * down ** (2 * steps)
            return float(self.rates @ modes / self.fall - AMPLITUDE)

        if self.rates @ (growing + shrinking) >= AMPLITUDE * self.fall:
            return float("nan")
        # The first mode alone, without what shrinks, is there a little later; one more e-folding is enough.
        alone = np.log(AMPLITUDE * self.fall / (self.rates[0] * growing[0])) / (2 * np.log(up[0]))
        return float(scipy.optimize.brentq(missing, 0.0, alone + 1 / np.log(up[0]), xtol=1e-6))

    def uncertainty(self, rate: float) -> float:
        """Steps by which the onset may be off: y changes by the factor 1 + y, and grows by (1 + 2ησ₁)² a step."""
        return float(AMPLITUDE / (2 * np.log1p(2 * rate * self.rates[0])))


def measured_onset(steps: Float[np.ndarray, " step"], loss: Float[np.ndarray, " step"], fall: float) -> float:
    """When a recorded loss has fallen by `PART` of `fall`; between records the fall grows exponentially."""
    fallen = loss[0] - loss
    after = int(np.argmax(fallen >= PART * fall))
    if fallen[after] < PART * fall or fallen[after - 1] <= 0:
        return float("nan")
    logs = np.log(fallen[after - 1 : after + 1])
    return float(np.interp(np.log(PART * fall), logs, steps[after - 1 : after + 1]))


def measured_onsets(run: xr.Dataset, expected: xr.Dataset) -> Float[np.ndarray, "..."]:
    """`measured_onset` of every loss, in the shape of what is expected of them."""
    steps, falls = run["step"].values.astype(float), expected["fall"].values
    losses = run["loss"].values.reshape(falls.size, -1)
    found = [measured_onset(steps, loss, fall) for loss, fall in zip(losses, falls.ravel(), strict=True)]
    return np.reshape(found, falls.shape)


def off_by(ratios: Float[np.ndarray, "..."]) -> str:
    """The largest error of ratios that should be 1, in words; those that could not be measured are left out."""
    seen = ratios[np.isfinite(ratios)]
    return f"off by {scientific(float(np.max(np.abs(seen - 1))))} at most" if seen.size else "not seen"


def onset_claim(identifier: str, statement: str, run: xr.Dataset, expected: xr.Dataset, *, counted: str) -> Claim:
    """Each loss begins to fall when it is expected to. Of runs too short to see it, or recorded less often than once
    in an e-folding, nothing is said."""
    predicted, uncertainty, measured = (
        expected["step"].values,
        expected["uncertainty"].values,
        measured_onsets(run, expected),
    )
    steps = run["step"].values
    due = ((steps[1] < predicted) & (predicted < steps[-1])) | np.isfinite(measured)
    due &= np.isfinite(predicted) & (np.diff(steps).max() <= uncertainty / AMPLITUDE)
    names = {"run": "seed", "seed": "seed", "share": "icl"}
    axes = {names[str(dim)]: run[dim].values for dim in run["loss"].dims if dim != "step"}
    return Origin("theory", "papers.linear._onset").close(
        identifier,
        statement,
        predicted=1.0,
        measured=labeled(measured / predicted, due, **axes),
        tolerance=uncertainty[due] / predicted[due],
        basis="interaction of modes, of the order of their amplitude, in e-foldings of the wait",
        counted=counted,
    )


def cross_tensor(cross: Float[np.ndarray, " features"], dim: int) -> Float[np.ndarray, "width width dim"]:
    """B as a tensor, symmetric in its first two indices, from the moments of labels with features."""
    row, column = np.triu_indices(dim + 1)
    tensor = np.zeros((dim + 1, dim + 1, dim))
    tensor[row, column] = tensor[column, row] = cross.reshape(-1, dim)
    return tensor


def symmetrized(
    values: Float[np.ndarray, " width"], key_query: Float[np.ndarray, "width dim"]
) -> Float[np.ndarray, " features"]:
    r"""The coefficients Θ of one head, over upper(S) ⊗ x_q."""
    row, column = np.triu_indices(values.size)
    whole = values[:, None, None] * key_query
    both = (whole + whole.transpose(1, 0, 2))[row, column]
    return (both * np.where(row == column, 0.5, 1.0)[:, None]).reshape(-1)
