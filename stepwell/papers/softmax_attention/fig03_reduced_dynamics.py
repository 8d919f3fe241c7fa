r"""Fig 3: one head on one task: two equations, and the one that is left where μ is fast.

$\dot\omega = 2c_\ell s\lambda\,\omega\mu[(1-\mu\omega) - d\mu\omega r]$ and
$\dot\mu = 2c_\ell\lambda d\,\mu[\omega-\mu(\omega^2+r)]$, $r = \phi e^{d\omega^2}/L$, become one with μ on its
nullcline $\mu^\star = \omega/(\omega^2+r)$. How good that is depends on $\kappa = Ls/(\phi d)$, not small here.
"""

from typing import Any

import numpy as np
import xarray as xr

from stepwell.dynamics import flow
from stepwell.models import SpectralAttention
from stepwell.objectives import Spectral
from stepwell.papers._claim import Claim
from stepwell.papers._completed import completed
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory
from stepwell.trajectory import provenance

from ._fig03_drawing import SHIFT
from ._fig03_drawing import draw as draw
from ._full_model import UNIT

NAME = "softmax/fig3"
DIM, CONTEXT, EMBEDDING = 10, 100, 30
OMEGA, MU = 0.01, 1.0
UNTIL = 12.0
WIDTHS = 4.0 ** np.arange(8) * EMBEDDING
"""Widths of a head in the sweep: κ falls as one over the root."""
HALF = 0.5 * DIM**-0.5
LATE = (6.0, 10.0)
"""The rate of convergence is measured between these times."""
RTOL = 1e-9
REFERENCE = {"half": 2.6923, "reduced_half": 1.9602, "overshoot": 4.2170, "fastest": 0.16458, "where": 0.09395}
"""Worked out apart from this program, by the Runge-Kutta rule with a step of 2e-5 and by quadrature."""

TITLE = "One head: two equations, and the single one that holds where the readout is fast"
CAPTION = (
    "One head on one task (d = 10, L = 100, d_e = 30), from ω = 0.01 and μ = 1. (a), (b) Training of the model, by "
    "automatic differentiation of the spectral loss (dots); the two equations of theory (solid); and the reduced "
    "equation, in which μ follows ω without delay (dashed), drawn from time 4 on. (c) The reduced equation's speed: "
    "slow, fast, slow are the three phases. (d) The plane of both weights, with the nullcline of μ: the way to the "
    "fixed point leaves it, since with these numbers κ = L/(φ d √d_e) is 1.8 and not small. (e) For wider heads κ "
    "falls, and the reduced equation becomes right in proportion. Inferred of the paper, whose text could not be "
    "consulted: what its panels are, the shift of time by 4, and that time is that of the plain squared loss."
)


def settings(quick: bool) -> dict[str, Any]:
    return {
        "tasks, heads": "1, 1",
        "dimension d": DIM,
        "context length L": CONTEXT,
        "width of a head d_e": f"{EMBEDDING}; in the sweep {WIDTHS[0]:g} to {WIDTHS[-1]:g}",
        "initial weights": f"ω = {OMEGA:g}, μ = {MU:g}; in the sweep μ on its nullcline",
        "until": f"t = {UNTIL:g}, drawn at t + {SHIFT:g}",
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    return {"course": course(), "speed": speed(), "sweep": sweep(), "theory": predict()}


def the_task(*, context: int = CONTEXT) -> MultiTaskRegression:
    return MultiTaskRegression((DIM,), 1.0, context)


def course(*, context: int = CONTEXT) -> xr.Dataset:
    """The model trained by the flow of its factors, and both systems of theory, at the same times."""
    theory_task, times = the_task(), np.linspace(0, UNTIL, 601)
    model = SpectralAttention.balanced(np.array([[OMEGA]]), np.array([[MU]]), (DIM,), embedding=EMBEDDING)
    run = completed(
        flow(model, Spectral(the_task(context=context)), until=2 * UNTIL, save=2 * times, rtol=RTOL, progress=False)
    )
    q, k, v, o = (run[name].values[0, :, 0, 0] for name in ("query", "key", "value", "output"))
    start = np.array([OMEGA]), np.array([MU])
    full = theory.flow.single_head_course(theory_task, *start, times, embedding=EMBEDDING)
    reduced = theory.flow.reduced_course(theory_task, start[0], times, embedding=EMBEDDING)[:, 0]
    omega = q * k * model.score_scale / DIM
    return xr.Dataset(
        {
            "omega": ("time", omega),
            "mu": ("time", v * o),
            "full_omega": ("time", full.omega[:, 0]),
            "full_mu": ("time", full.mu[:, 0]),
            "reduced_omega": ("time", reduced),
            "reduced_mu": ("time", theory.flow.nullcline(theory_task, reduced[:, None])[:, 0]),
        },
        {"time": ("time", times, {"units": UNIT})},
        {**provenance({"figure": NAME}), "outcome": run.attrs["outcome"]},
    )


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
        rows.append([passage(times, full.omega[:, 0]), passage(times, reduced)])
    kappa = [float(theory.flow.mu_lag(theory_task, embedding=width)[0]) for width in WIDTHS]
    return xr.Dataset({"time": (("kappa", "system"), np.array(rows))}, {"kappa": kappa, "system": ["full", "reduced"]})


def predict(*, context: int = CONTEXT) -> xr.Dataset:
    theory_task = the_task(context=context)
    limit = theory.limits.flow_limit(theory_task)
    return xr.Dataset(
        {
            "kappa": theory.flow.mu_lag(theory_task, embedding=EMBEDDING)[0],
            "slow": theory.flow.late_rates(theory_task, embedding=EMBEDDING).slow[0],
            "omega": limit.omega[0],
            "mu": limit.mu[0],
        }
    )


def passage(times: np.ndarray, omega: np.ndarray) -> float:
    """When ω is half of its limit, by a cubic through the points around."""
    place = int(np.argmax(omega >= HALF))
    near = slice(place - 2, place + 2)
    scale = times[place] - times[place - 1]
    return float(
        times[place] + scale * np.polyval(np.polyfit(omega[near] - HALF, (times[near] - times[place]) / scale, 3), 0)
    )


def _peak(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Where a curve is largest and how large, by a parabola through the three points there."""
    place = int(np.argmax(y))
    unit = x[place + 1] - x[place]
    curvature, slope, height = np.polyfit((x[place - 1 : place + 2] - x[place]) / unit, y[place - 1 : place + 2], 2)
    return float(x[place] - unit * slope / (2 * curvature)), float(height - slope**2 / (4 * curvature))


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    run, speeds, by_kappa, predictions = data["course"], data["speed"], data["sweep"], data["theory"]
    time = run["time"].values
    where, fastest = _peak(speeds["omega"].values, speeds["speed"].values)
    _, overshoot = _peak(time, run["mu"].values)
    late = run.sel(time=slice(*LATE))
    rate = -np.polyfit(late["time"], np.log(np.abs(np.log(late["omega"] / predictions["omega"]))), 1)[0]
    left = float(np.abs(np.log(late["omega"][0] / predictions["omega"])))
    kappa = by_kappa["kappa"].values
    lag = (by_kappa["time"].sel(system="full") / by_kappa["time"].sel(system="reduced") - 1).values
    steps = np.diff(np.log(lag)) / np.diff(np.log(kappa))

    def close(claim: str, statement: str, predicted: Any, measured: Any, tolerance: float, basis: str) -> Claim:
        numbers = {"predicted": predicted, "measured": measured, "tolerance": tolerance}
        return Claim.close(f"{NAME}/{claim}", statement, **numbers, basis=basis)

    digits = "the digits of the reference, worked out apart"
    return [
        close(
            "kappa",
            "κ = L/(φ d √d_e) with the numbers of the figure",
            100 / (10 * 30**0.5),
            predictions["kappa"],
            1e-12,
            "rounding",
        ),
        close(
            "half",
            "The trained model: ω is half of its limit at this time",
            REFERENCE["half"],
            passage(time, run["omega"].values),
            1e-4,
            digits,
        ),
        close(
            "reduced-half",
            "The reduced equation: ω is half of its limit at this time",
            REFERENCE["reduced_half"],
            passage(time, run["reduced_omega"].values),
            1e-4,
            digits,
        ),
        close(
            "overshoot",
            "The trained model: μ overshoots its limit: largest μ",
            REFERENCE["overshoot"],
            overshoot,
            1e-4,
            digits,
        ),
        close("fastest", "The reduced equation: largest speed", REFERENCE["fastest"], fastest, 1e-5, digits),
        close("where-fastest", "The reduced equation: ω where it is fastest", REFERENCE["where"], where, 1e-5, digits),
        Claim.at_most(
            f"{NAME}/same-course",
            "The trained model is the two equations: largest difference of ω√d and μ",
            measured=max(
                float(np.abs(run["omega"] - run["full_omega"]).max()) * DIM**0.5,
                float(np.abs(run["mu"] - run["full_mu"]).max()),
            ),
            tolerance=500 * RTOL * overshoot,
            basis="the solver's tolerance at each of some 500 steps, times the largest weight",
        ),
        close(
            "omega-end",
            "The trained model ends at ω√d = 1: ω over its limit",
            1.0,
            run["omega"][-1] / predictions["omega"],
            _rest(predictions, time),
            "slow mode",
        ),
        close(
            "mu-end",
            "The trained model ends at μ = √d/(1+ρ): μ over its limit",
            1.0,
            run["mu"][-1] / predictions["mu"],
            _rest(predictions, time),
            "slow mode",
        ),
        close(
            "slow-rate",
            f"The trained model settles at the slow rate of the linearised flow (t = {LATE[0]:g} to {LATE[1]:g})",
            predictions["slow"],
            rate,
            float(predictions["slow"]) * left,
            "next order: what is left of log ω at the first of these times",
        ),
        close(
            "exponent",
            "The reduced equation becomes right as κ → 0: exponent in κ of the relative error of the time to half, the "
            "two smallest κ",
            1.0,
            steps[-1],
            kappa[-2],
            "next order in κ",
        ),
        Claim.at_least(
            f"{NAME}/early",
            "The reduced equation is early, and ever less so as κ falls: least exponent between neighbours",
            predicted=0.0,
            measured=float(steps.min()) if np.all(lag > 0) else np.nan,
            basis="a sign",
        ),
    ]


def _rest(predictions: xr.Dataset, time: np.ndarray) -> float:
    """What is left of the slow mode since ω was half of its limit."""
    return float(np.exp(-predictions["slow"] * (time[-1] - REFERENCE["half"])))
