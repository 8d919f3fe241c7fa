r"""Fig 3: one head on one task: two equations, and the one that is left where μ is fast.

$\dot\omega = 2c_\ell s\lambda\,\omega\mu[(1-\mu\omega) - d\mu\omega r]$ and
$\dot\mu = 2c_\ell\lambda d\,\mu[\omega-\mu(\omega^2+r)]$, $r = \phi e^{d\omega^2}/L$, become one with μ on its
nullcline $\mu^\star = \omega/(\omega^2+r)$. How good that is depends on $\kappa = Ls/(\phi d)$, not small here.

The two equations are those of the spectral loss, which is softmax attention to leading order in 1/d and 1/L. Softmax
attention itself is trained on its exact loss (`Exact`, quadrature at finite d and L). With d/L and the scale s of the
scores fixed, the equations for $x = \omega\sqrt d$ and $y = \mu/\sqrt d$ in the time $\sqrt d\,t$ do not depend on d:
what training differs from them by is the finite size alone.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr

from stepwell.dynamics import flow
from stepwell.models import SpectralAttention
from stepwell.objectives import Exact, Spectral
from stepwell.papers._claim import Claim
from stepwell.papers._completed import completed
from stepwell.papers._settings import changeable, setting
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory
from stepwell.trajectory import provenance

from ._fig03_drawing import SHIFT, furthest
from ._fig03_drawing import draw as draw
from ._full_model import UNIT

NAME = "softmax/fig3"
DIM = setting("dim", 10)
CONTEXT = setting("context", 100)
EMBEDDING = setting("embedding", 30)
OMEGA = setting("omega", 0.01)
MU = setting("mu", 1.0)
UNTIL = setting("until", 12.0)
LONG = 24.0
"""The times drawn end with the first; softmax attention is trained on, to the second, for its limit."""
WIDTHS = 4.0 ** np.arange(8) * EMBEDDING
"""Widths of a head in the sweep: κ falls as one over the root."""
HALF = 0.5
"""Of the limit of ω."""
LATE = (9.0, 12.0)
"""The rate of convergence is measured between these times."""
RTOL = 1e-9
STEPS = setting("steps", 500)
"""Steps of the solver, about."""
EXACT_RTOL = 1e-7
"""On the exact loss, which is tabled to 1e-6."""


@changeable
@dataclass(frozen=True)
class Settings:
    """Dimensions of the task at which softmax attention is trained, with the same d/L; the first is drawn."""

    dims: tuple[int, ...] = (10, 40, 160)


FULL = Settings()
QUICK = Settings(dims=(10, 40))

TITLE = "One head: two equations, and the single one that holds where the readout is fast"
CAPTION = (
    "One head on one task (d = 10, L = 100, d_e = 30), from ω = 0.01 and μ = 1. (a), (b) Dots: softmax attention "
    "itself, trained on its exact loss. Solid: the two equations of theory, the flow of the spectral loss that stands "
    "for it at large d and L. Dashed: the reduced equation, in which μ follows ω without delay. Times are drawn from 4 "
    "on. (c) The reduced equation's speed: slow, fast, slow are the three phases. (d) The plane of both weights, with "
    "the nullcline of μ: the way to the fixed point leaves it, since with these numbers κ = L/(φ d √d_e) is 1.8 and "
    "not small. Below, ours: (e) for wider heads κ falls, and the reduced equation becomes right in proportion; (f) "
    "for larger d with the same d/L, softmax attention follows the two equations, with a difference that falls as 1/d. "
    "Inferred of the paper, whose text could not be consulted: what its panels are, the shift of time by 4, and that "
    "time is that of the plain squared loss."
)
PAPER_SETTINGS: dict[str, Any] = {
    "dimension d": DIM,
    "context length L": CONTEXT,
    "width of a head d_e": EMBEDDING,
    "strength λ, noise factor φ": "1, 1",
    "initial weights": "ω = 0.01, μ = 1",
}


def settings(quick: bool) -> dict[str, Any]:
    return {
        "tasks, heads": "1, 1",
        "dimension d": DIM,
        "context length L": CONTEXT,
        "strength λ, noise factor φ": "1, 1",
        "width of a head d_e": f"{EMBEDDING}; in the sweep {WIDTHS[0]:g} to {WIDTHS[-1]:g}",
        "initial weights": f"ω = {OMEGA:g}, μ = {MU:g}; in the sweep μ on its nullcline",
        "until": f"t = {UNTIL:g}, drawn at t + {SHIFT:g}",
        **asdict(QUICK if quick else FULL),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    return {
        "course": course(),
        "softmax": softmax_courses(chosen),
        "speed": speed(),
        "sweep": sweep(),
        "theory": predict(),
    }


def the_task(*, dim: int = DIM, context: int = CONTEXT) -> MultiTaskRegression:
    return MultiTaskRegression((dim,), 1.0, context)


def course(*, context: int = CONTEXT) -> xr.Dataset:
    """The spectral loss descended by the flow of its factors, and both systems of theory, at the same times."""
    theory_task, times = the_task(), np.linspace(0, UNTIL, 601)
    run = completed(
        flow(_start(), Spectral(the_task(context=context)), until=2 * UNTIL, save=2 * times, rtol=RTOL, progress=False)
    )
    omega, mu = _eigenvalues(run, _start())
    start = np.array([OMEGA]), np.array([MU])
    full = theory.flow.single_head_course(theory_task, *start, times, embedding=EMBEDDING)
    reduced = theory.flow.reduced_course(theory_task, start[0], times, embedding=EMBEDDING)[:, 0]
    return xr.Dataset(
        {
            "omega": ("time", omega),
            "mu": ("time", mu),
            "full_omega": ("time", full.omega[:, 0]),
            "full_mu": ("time", full.mu[:, 0]),
            "reduced_omega": ("time", reduced),
            "reduced_mu": ("time", theory.flow.nullcline(theory_task, reduced[:, None])[:, 0]),
        },
        {"time": ("time", times, {"units": UNIT})},
        {**provenance({"figure": NAME}), "outcome": run.attrs["outcome"]},
    )


def softmax_courses(chosen: Settings, *, context: int = CONTEXT) -> xr.Dataset:
    """Softmax attention on its exact loss from the same x and y, over √(d/10)·t: `x` = ω√d and `y` = μ/√d.

    `full_x` and `full_y` are those of the two equations; `last` are the weights at `LONG`, over their best values.
    """
    times, rows, last = np.linspace(0, UNTIL, 601), [], []
    for dim in chosen.dims:
        task, slower = the_task(dim=dim, context=context * dim // DIM), (dim / DIM) ** 0.5
        model, best = _start(dim), theory.losses.exact_optimum(task)
        until = np.append(times, LONG) / slower
        run = flow(model, Exact(task, reach=10.0), until=2 * until[-1], save=2 * until, rtol=EXACT_RTOL, progress=False)
        omega, mu = _eigenvalues(completed(run), model)
        rows.append((omega[:-1] * dim**0.5, mu[:-1] / dim**0.5))
        last.append((omega[-1] / best.omega[0], mu[-1] / best.mu[0]))
    full = theory.flow.single_head_course(the_task(), np.array([OMEGA]), np.array([MU]), times, embedding=EMBEDDING)
    x, y = np.array(rows).swapaxes(0, 1)
    return xr.Dataset(
        {
            "x": (("dim", "time"), x),
            "y": (("dim", "time"), y),
            "full_x": ("time", full.omega[:, 0] * DIM**0.5),
            "full_y": ("time", full.mu[:, 0] / DIM**0.5),
            "last": (("dim", "weight"), np.array(last)),
        },
        {"time": ("time", times, {"units": f"{UNIT}, times √(d/{DIM})"}), "dim": list(chosen.dims)},
    )


def _start(dim: int = DIM) -> SpectralAttention:
    scale = (dim / DIM) ** 0.5
    return SpectralAttention.balanced(
        np.array([[OMEGA / scale]]), np.array([[MU * scale]]), (dim,), embedding=EMBEDDING
    )


def _eigenvalues(run: xr.Dataset, model: SpectralAttention) -> tuple[np.ndarray, np.ndarray]:
    q, k, v, o = (run[name].values[0, :, 0, 0] for name in ("query", "key", "value", "output"))
    return q * k * model.score_scale / model.dim, v * o


def speed() -> xr.Dataset:
    """The speed of the reduced equation, and the nullcline of μ, from 0 to a little beyond the fixed point."""
    omega = np.linspace(1e-4, 1.15 * DIM**-0.5, 4001)
    velocity = theory.flow.reduced_velocity(the_task(), omega[:, None], embedding=EMBEDDING)[:, 0]
    field = np.array(
        [
            [
                np.concatenate(theory.flow.spectral_velocity(the_task(), *_one(w, m), embedding=EMBEDDING)).ravel()
                for m in _MUS
            ]
            for w in _OMEGAS
        ]
    )
    return xr.Dataset(
        {
            "speed": ("omega", velocity),
            "nullcline": ("omega", theory.flow.nullcline(the_task(), omega[:, None])[:, 0]),
            "field": (("grid_omega", "grid_mu", "part"), field),
        },
        {"omega": omega, "grid_omega": _OMEGAS, "grid_mu": _MUS},
    )


_OMEGAS, _MUS = np.linspace(0.02, 0.34, 13), np.linspace(0.35, 4.6, 11)


def _one(omega: float, mu: float) -> tuple[np.ndarray, np.ndarray]:
    return np.array([[omega]]), np.array([[mu]])


def sweep() -> xr.Dataset:
    """Time to half of the limit by both systems, from the nullcline, for wider and wider heads."""
    theory_task, start = the_task(), np.array([OMEGA])
    mu = theory.flow.nullcline(theory_task, start)
    rows = []
    for width in WIDTHS:
        times = np.linspace(0, UNTIL * (width / EMBEDDING) ** 0.5, 6001)
        full = theory.flow.single_head_course(theory_task, start, mu, times, embedding=width)
        reduced = theory.flow.reduced_course(theory_task, start, times, embedding=width)[:, 0]
        rows.append([passage(times, DIM**0.5 * each) for each in (full.omega[:, 0], reduced)])
    kappa = [float(theory.flow.mu_lag(theory_task, embedding=width)[0]) for width in WIDTHS]
    return xr.Dataset({"time": (("kappa", "system"), np.array(rows))}, {"kappa": kappa, "system": ["full", "reduced"]})


def predict(*, context: int = CONTEXT) -> xr.Dataset:
    theory_task = the_task(context=context)
    limit, times = theory.limits.flow_limit(theory_task), np.linspace(0, UNTIL, 601)
    full = theory.flow.single_head_course(theory_task, np.array([OMEGA]), np.array([MU]), times, embedding=EMBEDDING)
    return xr.Dataset(
        {
            "half": passage(times, DIM**0.5 * full.omega[:, 0]),
            "kappa": theory.flow.mu_lag(theory_task, embedding=EMBEDDING)[0],
            "slow": theory.flow.late_rates(theory_task, embedding=EMBEDDING).slow[0],
            "omega": limit.omega[0],
            "mu": limit.mu[0],
        }
    )


def passage(times: np.ndarray, x: np.ndarray) -> float:
    """When x = ω√d is half of its limit, by a cubic through the points around."""
    place = int(np.argmax(x >= HALF))
    near = slice(place - 2, place + 2)
    scale = times[place] - times[place - 1]
    return float(
        times[place] + scale * np.polyval(np.polyfit(x[near] - HALF, (times[near] - times[place]) / scale, 3), 0)
    )


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    return [*_surrogate(data), *_softmax(data), *_reduced(data["sweep"])]


def _surrogate(data: dict[str, xr.Dataset]) -> list[Claim]:
    run, predictions = data["course"], data["theory"]
    late = run.sel(time=slice(*LATE))
    rate = -np.polyfit(late["time"], np.log(np.abs(np.log(late["omega"] / predictions["omega"]))), 1)[0]
    largest = float(data["speed"]["nullcline"].max())
    ends = [
        Claim.close(
            f"{NAME}/{name}-end",
            f"The flow of the spectral loss ends at {word}: {symbol} over its limit",
            predicted=1.0,
            measured=run[name][-1] / predictions[name],
            tolerance=_left(predictions, UNTIL),
            basis="the slow mode of the linearised flow since ω was half of its limit",
            kind="paper",
            source="abstract (convergence of the flow); limit by theory.softmax.limits.flow_limit",
        )
        for name, symbol, word in (("omega", "ω", "ω√d = 1"), ("mu", "μ", "μ = √d/(1+ρ)"))
    ]
    return [
        Claim.at_most(
            f"{NAME}/same-course",
            "The two equations are the flow of the spectral loss, by automatic differentiation: largest difference of "
            "ω√d and μ",
            measured=max(
                float(np.abs(run["omega"] - run["full_omega"]).max()) * DIM**0.5,
                float(np.abs(run["mu"] - run["full_mu"]).max()),
            ),
            tolerance=STEPS * RTOL * largest,
            basis=f"the solver's tolerance at each of some {STEPS} steps, times the largest μ of the nullcline",
            kind="check",
            source="theory.softmax.flow.single_head_course",
        ),
        *ends,
        Claim.close(
            f"{NAME}/slow-rate",
            "The flow of the spectral loss settles at the slow rate of the linearised flow "
            f"(t = {LATE[0]:g} to {LATE[1]:g})",
            predicted=predictions["slow"],
            measured=rate,
            tolerance=float(predictions["slow"]) * _left(predictions, LATE[0]),
            basis="next order: what the slow mode has left of log ω at the first of these times",
            kind="theory",
            source="theory.softmax.flow.late_rates",
        ),
    ]


def _softmax(data: dict[str, xr.Dataset]) -> list[Claim]:
    runs, predictions = data["softmax"], data["theory"]
    time, dims = runs["time"].values, runs["dim"].values
    away = furthest(runs)
    half = np.array([passage(time, x) for x in runs["x"].values])
    late = half / float(predictions["half"]) - 1
    gap = np.log(dims[-1] / dims[-2])
    exponents = [np.log(each[-1] / each[-2]) / gap for each in (away, late)]
    speed = np.gradient(runs["x"].values, time, axis=1)
    peaks = [np.count_nonzero(np.diff(np.sign(np.diff(each))) < 0) for each in speed]
    slower = 1 - 2 / DIM - np.e**2 / CONTEXT
    return [
        Claim.over(
            f"{NAME}/softmax-course",
            f"Softmax attention follows the two equations as d and L grow, d = {dims[-2]} to {dims[-1]}: exponent in "
            "1/d of the largest difference of μω, and of the relative lag of the time to half of ω",
            predicted=1.0,
            measured=[-each for each in exponents],
            tolerance=1 / dims[-2],
            basis="next order in 1/d, at the smaller d",
            counted="quantities",
            kind="theory",
            source="theory.softmax.flow.single_head_course, leading order in 1/d and 1/L",
        ),
        Claim.over(
            f"{NAME}/three-phases",
            "Softmax attention: ω speeds up once and slows down once, slow, fast and slow: number of maxima of dω/dt, "
            "for each d",
            predicted=1,
            measured=peaks,
            tolerance=0,
            basis="a count",
            counted="dimensions",
            kind="paper",
            source="abstract (three phases) and Fig 3",
        ),
        Claim.over(
            f"{NAME}/softmax-end",
            f"Softmax attention ends at the least exact loss by quadrature: ω and μ at t = {LONG:g} over their best "
            "values, for each d",
            predicted=1.0,
            measured=runs["last"].values.ravel(),
            tolerance=float(np.exp(-slower * predictions["slow"] * (LONG - predictions["half"]))) + 2e-5,
            basis="the slow mode, whose rate is lower by up to 2/d + e²/L; the search for the least, to 1e-5 in log ω",
            counted="weights",
            kind="theory",
            source="theory.softmax.losses.exact_optimum",
        ),
    ]


def _reduced(by_kappa: xr.Dataset) -> list[Claim]:
    kappa = by_kappa["kappa"].values
    lag = (by_kappa["time"].sel(system="full") / by_kappa["time"].sel(system="reduced") - 1).values
    with np.errstate(invalid="ignore"):
        steps = np.diff(np.log(lag)) / np.diff(np.log(kappa))  # not a number where the equation is late
    return [
        Claim.close(
            f"{NAME}/exponent",
            "The reduced equation becomes right as κ → 0: exponent in κ of the relative error of the time to half, the "
            "two smallest κ",
            predicted=1.0,
            measured=steps[-1],
            tolerance=kappa[-2],
            basis="next order in κ",
            kind="theory",
            source="theory.softmax.flow.reduced_course, leading order in κ",
        ),
        Claim.at_least(
            f"{NAME}/early",
            "The reduced equation is early, and ever less so as κ falls: least exponent between neighbours",
            predicted=0.0,
            measured=steps.min(),
            basis="a sign: in truth μ lags behind its nullcline, and ω grows with it",
            kind="theory",
            source="theory.softmax.flow.reduced_course, leading order in κ",
        ),
    ]


def _left(predictions: xr.Dataset, time: float) -> float:
    """What is left of the slow mode since ω was half of its limit."""
    return float(np.exp(-predictions["slow"] * (time - predictions["half"])))
