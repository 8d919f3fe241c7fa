"""Fig 1: what the theory expects of its runs, and by how much a finite data set may depart from it.

Nothing that was trained enters here; the data do, to say how large their sampling errors are.
"""

from dataclasses import asdict

import numpy as np
import xarray as xr

from stepwell.dynamics import flow_time, renormalised, time_factor
from stepwell.models import MergedAttention
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT, provenance

from ._fig01_settings import CONTEXT, DIM, NAME, POPULATION_TIME, Settings, Start


def predict(starts: list[Start], *, context: int = CONTEXT) -> xr.Dataset:
    r"""The D+1 equations from the initial weights, for infinitely many sequences, with what they leave out.

    - `leftover`: near zero only one direction g of $\sum_h v_h U_h$ grows. The others keep their start, and add
      $A_\perp = v_\infty \sum_h \hat\mu_h U_{h\perp}$ to the map in the end, $\hat\mu$ the unit vector over the
      growing heads. The loss changes by $2\langle A_\perp, M\Lambda - CA\Lambda\rangle$, at most
      $2\|A_\perp\|\|M\Lambda\|$, since the second factor shrinks as the map grows.
    - `rest`: the fall still to come at the end. Near the minimum
      $\dot a = -(v^2 + uu^\top)\,\mathrm{diag}(\lambda_d c_d)\,\delta a$, so the loss decays at least as fast as
      $e^{-2 v^2 \min(\lambda_d c_d) t}$, with $v^2 = \|a\|$.
    """
    tasks = [InContextRegression(start.task.covariance, context) for start in starts]
    begun, drop_times = [], []
    for task, start in zip(tasks, starts, strict=True):
        begun.append(theory.merged_start(task, *_blocks(start.model)))
        drop_times.append(theory.half_drop_time(task, *begun[-1]))
    # Fine around the drops, where halfway is read off.
    near = [np.arange(-1.0, 1.0, 0.01) + t for t in drop_times]
    times = np.unique(np.concatenate([np.linspace(0.0, POPULATION_TIME, 4001), *near]).round(6))
    rows = []
    for task, start, (value, key_query), drop in zip(tasks, starts, begun, drop_times, strict=True):
        loss = theory.merged_course(task, times, value, key_query).loss
        levels, modes, rate = theory.levels(task), theory.modes(task), theory.merged_escape_rate(task)
        end = float(np.linalg.norm(modes.ends))
        slowest = 2 * end * float(modes.curvature.min())
        fall = float(levels[0] - levels[-1])
        rows.append(
            {
                "loss": ("time", loss),
                "first_level": levels[0],
                "last_level": levels[-1],
                "drop_time": drop,
                "escape_rate": rate,
                "slope": float(np.max(-np.gradient(loss, times))),
                "slope_at_drop": float(np.interp(drop, times, -np.gradient(loss, times))),
                "leftover": 2 * end**0.5 * _unspent(task, start.model) * rate,
                "rest": fall * np.exp(-slowest * (times[-1] - drop)),
            }
        )
    predictions = xr.concat([xr.Dataset(row, {"time": times}) for row in rows], dim="run")
    predictions["time"].attrs["units"] = TIME_UNIT
    return predictions.assign_attrs(provenance({"figure": NAME, "context": context}))


def sampling_errors(starts: list[Start], chosen: Settings) -> xr.Dataset:
    r"""What a finite data set changes, from moments of the data at the theory's weights; nothing trained enters.

    - `rate_error`: relative standard error of the growth rate $\langle y_q \beta^\top g\, x_q\rangle$.
    - `level_error`: standard error of the loss at the predicted map $A^*$. Both errors are pooled over the data sets,
      which differ by a rotation: these are means of skewed quantities, and where one comes out low by chance, so does
      its own error.
    - `blocks_shift`: by how much the drop comes sooner when the label blocks $\mathbf v, u$ are free. The data couple
      them to the growing weights by $p = (\langle y_q S_{xx} g x_q\rangle, \langle y_q S_{yy} x_q\rangle)$, which is
      zero in the population and $O(1/\sqrt P)$ here, and to each other by $K = ((0, M\Lambda), (\Lambda M^\top, 0))$.
      The weights, growing as $e^{\sigma t}$, feed the blocks and are fed by them: their logarithm gains
      $\tfrac12\sum_k p_k^2\,[t/\gamma_k - (1 - e^{-\gamma_k t})/\gamma_k^2]$, $\gamma_k = \sigma - \kappa_k$, over
      eigenvectors of K. Carried on to the half of the drop, where growth is already slower, this is an upper estimate.
    """
    rows = []
    for task, batch, model in starts:
        tokens = np.asarray(batch.tokens)
        x, x_q, y_q = tokens[:, :-1, :DIM], tokens[:, -1, :DIM], np.asarray(batch.labels)[:, -1, 0]
        attended = np.einsum("sna,snb->sab", tokens, tokens) / CONTEXT
        beta = np.einsum("sn,snd->sd", tokens[:, :-1, DIM], x) / CONTEXT
        driving = theory.cross_moment(task) @ task.covariance
        rate = float(np.linalg.norm(driving))
        unit = driving / rate
        growth = y_q * np.einsum("sa,ab,sb->s", beta, unit, x_q)
        error = (y_q - np.einsum("sa,ab,sb->s", beta, theory.minimiser(task), x_q)) ** 2
        coupling = np.concatenate(
            [
                y_q[:, None] * np.einsum("sab,bc,sc->sa", attended[:, :DIM, :DIM], unit, x_q),
                y_q[:, None] * attended[:, DIM, DIM, None] * x_q,
            ],
            axis=1,
        ).mean(axis=0)
        drop = theory.half_drop_time(task, *theory.merged_start(task, *_blocks(model)))
        nothing = np.zeros_like(driving)
        own, vectors = np.linalg.eigh(np.block([[nothing, driving], [driving.T, nothing]]))
        gap = rate - own
        gain = 0.5 * (coupling @ vectors) ** 2 @ (drop / gap - (1 - np.exp(-gap * drop)) / gap**2)
        root = chosen.sequences**0.5
        rows.append(
            {
                "rate_error": growth.std(ddof=1) / root / rate,
                "level_error": error.std(ddof=1) / root,
                "blocks_shift": gain / rate,
            }
        )
    errors = xr.concat([xr.Dataset(row) for row in rows], dim="run")
    for name in ("rate_error", "level_error"):
        errors[name] = xr.full_like(errors[name], float((errors[name] ** 2).mean()) ** 0.5)
    width = DIM + 1
    errors = errors.assign(
        sequences=chosen.sequences,
        features_beyond=DIM * width * (width + 1) // 2 - DIM**2,
        time_step=flow_time(1, chosen.rate) * time_factor("none", "1/N", length=CONTEXT, factors=2),
    )
    return errors.assign_attrs(provenance({"figure": NAME, **asdict(chosen)}))


def in_paper_weights(model: MergedAttention) -> MergedAttention:
    return renormalised(model, "1/N", length=CONTEXT)


def _blocks(model: MergedAttention) -> tuple[np.ndarray, np.ndarray]:
    """$v_h$ and $U_h$ in the paper's convention."""
    converted = in_paper_weights(model)
    return np.asarray(converted.value[:, 0, DIM]), np.asarray(converted.key_query[:, :DIM])


def _unspent(task: InContextRegression, model: MergedAttention) -> float:
    r"""$\|\sum_h \hat\mu_h U_{h\perp}\|$, see `predict`."""
    values, key_queries = _blocks(model)
    driving = theory.cross_moment(task) @ task.covariance
    unit = driving / np.linalg.norm(driving)
    along = np.einsum("hab,ab->h", key_queries, unit)
    growing = (values + along) / 2
    across = key_queries - along[:, None, None] * unit
    return float(np.linalg.norm(np.einsum("h,hab->ab", growing / np.linalg.norm(growing), across)))
