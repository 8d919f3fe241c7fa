r"""Fig 3: one head on one task: two equations, and the one that is left where μ is fast.

$\dot\omega = 2c_\ell s\lambda\,\omega\mu[(1-\mu\omega) - d\mu\omega r]$ and
$\dot\mu = 2c_\ell\lambda d\,\mu[\omega-\mu(\omega^2+r)]$, $r = \phi e^{d\omega^2}/L$, become one with μ on its
nullcline $\mu^\star = \omega/(\omega^2+r)$. How good that is depends on $\kappa = Ls/(\phi d)$, not small here.

The two equations are those of the spectral loss, which is softmax attention to leading order in 1/d and 1/L. Softmax
attention itself is trained on its exact loss (`Exact`, quadrature at finite d and L). With d/L and the scale s of the
scores fixed, the equations for $x = \omega\sqrt d$ and $y = \mu/\sqrt d$ in the time $\sqrt d\,t$ do not depend on d:
what training differs from them by is the finite size alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, ORANGE, VERMILION, styled
from stepwell.dynamics import Record, flow
from stepwell.figures import Claim, Data, Figure, Known, Origin, Seeds
from stepwell.models import SpectralAttention
from stepwell.objectives import Exact, Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._common import EXACT_ROUTES, compared, finish, named_settings, note, only_ticks, over, two_rows
from ._eigenvalues import eigenvalues
from ._whole_matrices import UNIT, FirstSetting

HALF = 0.5
"""Of the limit of ω."""
SHIFT = 4.0
"""Times are drawn later by this, as in the paper."""
RTOL = 1e-9
EXACT_RTOL = 1e-7
"""On the exact loss, which is tabled to 1e-6."""
CAPTION = (
    "One head on one task (d = 10, L = 100, d_e = 30), from ω = 0.01 and μ = 1. (a), (b) Dots: softmax attention "
    "itself, trained on its exact loss. Solid: the two equations of theory, the flow of the spectral loss that stands "
    "for it at large d and L. Dashed: the reduced equation, in which μ follows ω without delay. Times are drawn from 4 "
    "on, as in the paper: so much later the three heads of Fig 1 (dotted, at their own times) emerge from the initial "
    "weights that we chose for them. From the same weights the reduced equation is early, and its μ rises sooner and "
    "higher than that of Fig 1: with the figure's numbers μ lags behind its nullcline, (d). (c) The reduced equation's "
    "speed: slow, fast, slow are the three phases. (d) The plane of both weights, with the nullcline of μ: the way to "
    "the fixed point leaves it, since with these numbers κ = L/(φ d √d_e) is 1.8 and not small. Below, ours: (e) for "
    "wider heads κ falls, and the reduced equation becomes right in proportion, in its time from the same weights, and "
    "beside the heads of Fig 1 if both are at half of ω together; (f) for larger d with the same d/L, softmax "
    "attention follows the two equations, with a difference that falls as 1/d. Inferred of the paper, whose text could "
    "not be consulted: that the shift of time by 4 stands for the longer warm-up of Fig 1, and that time is that of "
    "the plain squared loss."
)
PAPER_SETTINGS: dict[str, Any] = {
    "dimension d": 10,
    "context length L": 100,
    "width of a head d_e": 30,
    "strength λ, noise factor φ": "1, 1",
    "initial weights": "ω = 0.01, μ = 1",
}


SCALES = (0.35, 0.7, 1.4)
"""Of the initial weights of Fig 1, whose heads are compared: those of the paper are not known; 1 are ours."""
ALIKE = 0.1
"""What two courses that agree may differ by, over their limit; set on scales 0.25, 0.5, 1, 2 and 4."""
LAGGING = Known(
    "κ = L/(φ d √d_e) is 1.8 at the figure's constants and not small, so that μ lags behind its nullcline: the reduced "
    "equation is early by about a third, and its μ rises sooner and higher; these errors fall in proportion to κ "
    "(softmax/fig3/exponent, fig1-exponent)",
    "the-reduced-equation-at-the-constants-of-fig-3",
)


@dataclass(frozen=True)
class Settings:
    """One task and one head; `dims` are those at which softmax attention is trained, with the same d/L."""

    dim: int = 10
    context: int = 100
    embedding: int = 30
    omega: float = 0.01
    mu: float = 1.0
    until: float = 12.0
    """The times drawn end here."""
    steps: int = 500
    """Steps of the solver, about."""
    dims: tuple[int, ...] = (10, 40, 160)
    """The first is drawn."""

    @property
    def long(self) -> float:
        """Softmax attention is trained until then, for its limit."""
        return 2 * self.until

    @property
    def times(self) -> np.ndarray:
        return np.linspace(0, self.until, 601)

    @property
    def widths(self) -> np.ndarray:
        """Widths of a head in the sweep: κ falls as one over the root."""
        return 4.0 ** np.arange(8) * self.embedding

    @property
    def initial(self) -> tuple[np.ndarray, np.ndarray]:
        """ω and μ."""
        return np.array([self.omega]), np.array([self.mu])

    @cached_property
    def task(self) -> MultiTaskRegression:
        return MultiTaskRegression((self.dim,), 1.0, self.context)


def describe(settings: Settings) -> dict[str, Any]:
    return {
        **named_settings(settings),
        "strength λ, noise factor φ": "1, 1",
        "initial weights": f"ω = {settings.omega:g}, μ = {settings.mu:g}; in the sweep μ on its nullcline",
        "widths of a head in the sweep": f"{settings.widths[0]:g} to {settings.widths[-1]:g}",
        "until": f"t = {settings.until:g}, drawn at t + {SHIFT:g}",
    }


def simulate(settings: Settings) -> Data:
    return {
        "course": course(settings),
        "softmax": softmax_courses(settings),
        "speed": speed(settings),
        "sweep": sweep(settings),
        "theory": predict(settings),
        "fig1": first_figure(settings),
        "apart": apart(settings),
    }


def course(settings: Settings) -> xr.Dataset:
    """The spectral loss descended by the flow of its factors, and both systems of theory, at the same times."""
    task, times, model = settings.task, settings.times, initial_model(settings, settings.dim)
    omega, mu = _flow(model, Spectral(task), times, RTOL)
    full = theory.single_head_course(task, *settings.initial, times, embedding=settings.embedding)
    reduced = theory.reduced_course(task, settings.initial[0], times, embedding=settings.embedding)[:, 0]
    return xr.Dataset(
        over("time", omega=omega, mu=mu, full_omega=full.omega[:, 0], full_mu=full.mu[:, 0])
        | over("time", reduced_omega=reduced, reduced_mu=theory.nullcline(task, reduced[:, None])[:, 0]),
        {"time": ("time", times, {"units": UNIT})},
    )


def softmax_courses(settings: Settings) -> xr.Dataset:
    """Softmax attention on its exact loss from the same x and y, over √(d/10)·t: `x` = ω√d and `y` = μ/√d.

    `full_x` and `full_y` are those of the two equations; `last` are the weights at `long`, over their best values.
    """
    times, root, rows, last = settings.times, settings.dim**0.5, [], []
    for dim in settings.dims:
        task = MultiTaskRegression((dim,), 1.0, settings.context * dim // settings.dim)
        model, best = initial_model(settings, dim), theory.exact_optimum(task)
        until = np.append(times, settings.long) / (dim / settings.dim) ** 0.5
        omega, mu = _flow(model, Exact(task, reach=10.0), until, EXACT_RTOL)
        rows.append((omega[:-1] * dim**0.5, mu[:-1] / dim**0.5))
        last.append((omega[-1] / best.omega[0], mu[-1] / best.mu[0]))
    full = theory.single_head_course(settings.task, *settings.initial, times, embedding=settings.embedding)
    x, y = np.array(rows).swapaxes(0, 1)
    return xr.Dataset(
        over("dim time", x=x, y=y)
        | over("time", full_x=full.omega[:, 0] * root, full_y=full.mu[:, 0] / root)
        | over("dim weight", last=np.array(last)),
        {"time": ("time", times, {"units": f"{UNIT}, times √(d/{settings.dim})"}), "dim": list(settings.dims)},
        {"pairs_by_dim": settings.context / settings.dim},
    )


def _flow(model: SpectralAttention, objective: Any, times: np.ndarray, rtol: float) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ at given times, half of those of a trajectory."""
    run = flow(model, objective, until=2 * times[-1], record=Record(points=2 * times), rtol=rtol, progress=False)
    omega, mu = eigenvalues(run, model)
    return omega[0, :, 0, 0], mu[0, :, 0, 0]


def initial_model(settings: Settings, dim: int) -> SpectralAttention:
    scale = (dim / settings.dim) ** 0.5
    weights = np.array([[settings.omega / scale]]), np.array([[settings.mu * scale]])
    return SpectralAttention.balanced(*weights, (dim,), embedding=settings.embedding)


def first_figure(settings: Settings) -> xr.Dataset:
    """The flow of the spectral loss from the weights of Fig 1, three heads on three tasks: a head on its own task."""
    first, times = FirstSetting(), settings.times + SHIFT
    course = theory.spectral_flow(first.task, *first.initial_weights(), times, embedding=first.embedding)
    return xr.Dataset(
        over("time", omega=course.omega[:, 0, 0], mu=course.mu[:, 0, 0]), {"time": ("time", times, {"units": UNIT})}
    )


def apart(settings: Settings) -> xr.Dataset:
    """The largest difference over its limit, of ω and of μ, of the reduced equation and the heads of Fig 1, from the
    beginning of the former on, where both are moved in time so as to be at half of ω together.

    For initial weights of Fig 1 in several `scale`s, and from those of scale 1 with wider heads, by κ.
    """
    widths = settings.widths[:7:2]
    by_kappa = [_apart(settings, 1.0, int(width)) for width in widths]
    kappa = [float(theory.mu_lag(settings.task, embedding=width)[0]) for width in widths]
    return xr.Dataset(
        over("scale weight", away=[_apart(settings, scale, settings.embedding) for scale in SCALES])
        | over("kappa weight", wider=by_kappa),
        {"scale": list(SCALES), "kappa": kappa, "weight": ["ω", "μ"]},
    )


def _apart(settings: Settings, scale: float, width: int) -> np.ndarray:
    first, task, limit = FirstSetting(), settings.task, theory.flow_limit(settings.task)
    until, weights = settings.until * (width / settings.embedding) ** 0.5, first.initial_weights(scale)
    omega, mu = (np.diag(each) for each in weights)
    late = theory.emergence_bracket(first.task, omega, mu, heads=first.tasks, embedding=width).late[0]
    times = np.linspace(0, until, 4001), np.linspace(0, float(late) + until, 4001)
    reduced = theory.reduced_course(task, settings.initial[0], times[0], embedding=width)
    heads = theory.spectral_flow(first.task, *weights, times[1], embedding=width)
    scores = reduced[:, 0], heads.omega[:, 0, 0]
    readouts = theory.nullcline(task, reduced)[:, 0], heads.mu[:, 0, 0]
    ours, fig1 = (t - passage(t, settings.dim**0.5 * omega) for t, omega in zip(times, scores, strict=True))
    if not np.isfinite(ours[0] + fig1[0]):
        return np.full(2, np.nan)
    shared = np.linspace(max(ours[0], fig1[0]), min(ours[-1], fig1[-1]), 4001)
    return np.array(
        [
            abs(np.interp(shared, ours, one) - np.interp(shared, fig1, other)).max() / best[0]
            for (one, other), best in ((scores, limit.omega), (readouts, limit.mu))
        ]
    )


def speed(settings: Settings) -> xr.Dataset:
    """The speed of the reduced equation, and the nullcline of μ, from 0 to a little beyond the fixed point."""
    task, embedding, scale = settings.task, settings.embedding, (settings.dim / 10) ** 0.5
    omega = np.linspace(1e-4, 1.15 * settings.dim**-0.5, 4001)
    omegas, mus = np.linspace(0.02, 0.34, 13) / scale, np.linspace(0.35, 4.6, 11) * scale
    velocity = theory.reduced_velocity(task, omega[:, None], embedding=embedding)[:, 0]
    pairs = [(np.array([[w]]), np.array([[m]])) for w in omegas for m in mus]
    arrows = [np.ravel(theory.spectral_velocity(task, *pair, embedding=embedding)) for pair in pairs]
    return xr.Dataset(
        over("omega", speed=velocity, nullcline=theory.nullcline(task, omega[:, None])[:, 0])
        | over("grid_omega grid_mu part", field=np.reshape(arrows, (omegas.size, mus.size, -1))),
        {"omega": omega, "grid_omega": omegas, "grid_mu": mus},
    )


def sweep(settings: Settings) -> xr.Dataset:
    """Time to half of the limit by both systems, from the nullcline, for wider and wider heads."""
    task, omega, root = settings.task, settings.initial[0], settings.dim**0.5
    mu = theory.nullcline(task, omega)
    rows = []
    for width in settings.widths:
        times = np.linspace(0, settings.until * (width / settings.embedding) ** 0.5, 6001)
        full = theory.single_head_course(task, omega, mu, times, embedding=width)
        reduced = theory.reduced_course(task, omega, times, embedding=width)[:, 0]
        rows.append([passage(times, root * each) for each in (full.omega[:, 0], reduced)])
    kappa = [float(theory.mu_lag(task, embedding=width)[0]) for width in settings.widths]
    return xr.Dataset({"time": (("kappa", "system"), np.array(rows))}, {"kappa": kappa, "system": ["full", "reduced"]})


def predict(settings: Settings) -> xr.Dataset:
    task, times, training = settings.task, settings.times, {"embedding": settings.embedding}
    limit, slow = theory.flow_limit(task), theory.late_rates(task, **training).slow[0]
    full = theory.single_head_course(task, *settings.initial, times, **training)
    half, kappa = passage(times, settings.dim**0.5 * full.omega[:, 0]), theory.mu_lag(task, **training)[0]
    width = theory.loss_drop_width(task, **training)[0]
    return xr.Dataset(over("", half=half, kappa=kappa, slow=slow, width=width, omega=limit.omega[0], mu=limit.mu[0]))


def passage(times: np.ndarray, x: np.ndarray) -> float:
    """When x = ω√d is half of its limit, by a cubic through the points around; not a number if it never is."""
    place = int(np.argmax(x >= HALF))
    if not 2 <= place <= x.size - 2:
        return np.nan
    near, scale = slice(place - 2, place + 2), times[place] - times[place - 1]
    return float(times[place] + scale * np.polyfit(x[near] - HALF, (times[near] - times[place]) / scale, 3)[-1])


def claims(data: Data, settings: Settings) -> list[Claim]:
    by_theory = (*_surrogate(data, settings), *_softmax(data, settings), *_reduced(data["sweep"]))
    return [*by_theory, *_against_fig1(data, settings)]


def _no_half(times: Any) -> str:
    """Why there is no time to half of the limit, if one is not a number."""
    return "" if np.isfinite(times).all() else "ω does not pass half of its limit while it is followed"


def _surrogate(data: Data, settings: Settings) -> Iterator[Claim]:
    run, predictions, error = data["course"], data["theory"], settings.steps * RTOL
    times = 0.75 * settings.until, settings.until  # between which the rate of convergence is measured
    late = run.sel(time=slice(*times))
    away = np.log(np.abs(np.log(late["omega"] / predictions["omega"])))
    # Of the slow mode, since ω was half of its limit.
    left = np.exp(-float(predictions["slow"]) * (np.array(times) - float(predictions["half"])))
    spent = "" if left[1] > error else "less than the solver's error is left of the slow mode"
    settled = _no_half(predictions["half"]) or spent
    yield Origin("check", "theory.softmax.single_head_course").at_most(
        "same-course",
        "The two equations are the flow of the spectral loss, by automatic differentiation: largest difference of "
        "ω√d and μ",
        measured=max(abs(run[n] - run[f"full_{n}"]).max() * u for n, u in (("omega", settings.dim**0.5), ("mu", 1))),
        tolerance=error * data["speed"]["nullcline"].max(),
        basis=f"the solver's tolerance at each of some {settings.steps} steps, times the largest μ of the nullcline",
    )
    for name, symbol, word in (("omega", "ω", "ω√d = 1"), ("mu", "μ", "μ = √d/(1+ρ)")):
        yield Origin("theory", "theory.softmax.flow_limit").close(
            f"{name}-end",
            f"The flow of the spectral loss ends at {word}: {symbol} over its limit",
            unless=settled,
            predicted=1.0,
            measured=run[name][-1] / predictions[name],
            tolerance=left[1],
            basis="the slow mode of the linearized flow since ω was half of its limit",
        )
    yield Origin("theory", "theory.softmax.late_rates").close(
        "slow-rate",
        "The flow of the spectral loss settles at the slow rate of the linearized flow "
        f"(t = {times[0]:g} to {times[1]:g})",
        unless=settled,
        predicted=predictions["slow"],
        measured=-np.polyfit(late["time"], away, 1)[0],
        tolerance=predictions["slow"] * left[0],
        basis="next order: what the slow mode has left of log ω at the first of these times",
    )


def _softmax(data: Data, settings: Settings) -> Iterator[Claim]:
    runs, predictions = data["softmax"], data["theory"]
    time, dims = runs["time"].values, runs["dim"].values
    late = np.array([passage(time, x) for x in runs["x"].values]) / float(predictions["half"]) - 1
    away, why = furthest(runs), _no_half(late)
    few = "an exponent needs two dimensions" if dims.size < 2 or dims[-1] == dims[-2] else ""
    with np.errstate(invalid="ignore"):  # not a number where training is ahead
        exponents = [] if few else [np.log(each[-1] / each[-2]) / np.log(dims[-1] / dims[-2]) for each in (away, late)]
    bends = np.diff(np.sign(np.diff(np.gradient(runs["x"].values, time, axis=1))))
    slower = 1 - 2 / settings.dim - np.e**2 / settings.context
    small = "" if slower > 0 else "d and L are too small for their next order"
    yield Origin("theory", "theory.softmax.single_head_course, leading order in 1/d and 1/L").close(
        "softmax-course",
        f"Softmax attention follows the two equations as d and L grow, d = {dims[-2:][0]} to {dims[-1]}: exponent "
        "in 1/d of the largest difference of μω, and of the relative lag of the time to half of ω",
        unless=few or why,
        predicted=1.0,
        measured=[-each for each in exponents],
        labels=["difference of μω", "lag of the time to half of ω"],
        tolerance=1 / dims[-2:][0],
        basis="next order in 1/d, at the smaller d",
        counted="quantities",
    )
    yield Origin("paper", "abstract (three phases) and Fig 3").close(
        "three-phases",
        "Softmax attention: ω speeds up once and slows down once, slow, fast and slow: number of maxima of dω/dt, "
        "for each d",
        unless=why,
        **compared(runs["dim"].copy(data=(bends < 0).sum(axis=1)), 1),
        basis="a count",
        counted="dimensions",
    )
    yield Origin("check", EXACT_ROUTES).close(
        "softmax-end",
        f"Softmax attention ends at the least exact loss by quadrature: ω and μ at t = {settings.long:g} over "
        "their best values, for each d",
        unless=why or small,
        **compared(
            runs["last"].assign_coords(weight=["ω", "μ"]),
            1.0,
            float(np.exp(-slower * predictions["slow"] * (settings.long - predictions["half"]))) + 2e-5,
        ),
        basis="the slow mode, whose rate is lower by up to 2/d + e²/L; the search for the least, to 1e-5 in log ω",
        counted="weights",
    )


def _reduced(by_kappa: xr.Dataset) -> Iterator[Claim]:
    kappa = by_kappa["kappa"].values
    lag, why = lags(by_kappa), _no_half(by_kappa["time"])
    with np.errstate(invalid="ignore"):
        steps = np.diff(np.log(lag)) / np.diff(np.log(kappa))  # not a number where the equation is late
    yield Origin("theory", "theory.softmax.reduced_course, leading order in κ").close(
        "exponent",
        "The reduced equation becomes right as κ → 0: exponent in κ of the relative error of the time to half, the "
        "two smallest κ",
        unless=why,
        predicted=1.0,
        measured=steps[-1],
        tolerance=kappa[-2],
        basis="next order in κ",
    )
    yield Origin("theory", "theory.softmax.reduced_course, leading order in κ").at_least(
        "early",
        "The reduced equation is early, and ever less so as κ falls: least exponent between neighbors",
        unless=why,
        predicted=0.0,
        measured=steps.min(),
        basis="a sign: in truth μ lags behind its nullcline, and ω grows with it",
    )


def _against_fig1(data: Data, settings: Settings) -> Iterator[Claim]:
    root, predictions, between = settings.dim**0.5, data["theory"], data["apart"]
    course = data["course"]
    reduced, full = passage(course["time"].values, root * course["reduced_omega"].values), float(predictions["half"])
    first, kappa = FirstSetting(), between["kappa"].values
    same = (settings.dim, settings.context, settings.embedding) == (first.dims[0], first.context, first.embedding)
    unless = _no_half(between["away"] + between["wider"]) if same else "the constants of Fig 1 are others"
    said = Origin("paper", "Fig 3 (the approximated dynamics agree with those of Fig 1)", explored=True)
    for weight, word, known in (("ω", "omega", None), ("μ", "mu", LAGGING)):
        yield said.at_most(
            f"fig1-{word}",
            "The reduced equation and a head of Fig 1 (spectral flow), moved in time so as to be at half of ω "
            f"together, have the same {weight}: largest difference over its limit, for initial weights of Fig 1 of "
            "several sizes",
            unless=unless,
            **compared(between["away"].sel(weight=weight, drop=True), ALIKE, scale="initialization scale"),
            basis="a level, set on other sizes",
            counted="sizes",
            known=known if same else None,
        )
    exponents = np.log(between["wider"][-1] / between["wider"][-2]) / np.log(kappa[-1] / kappa[-2])
    yield Origin("theory", "theory.softmax.reduced_course, leading order in κ", explored=True).close(
        "fig1-exponent",
        "What ω and μ of the reduced equation differ from those of Fig 1 by vanishes as κ → 0, by wider heads: "
        "exponent in κ between the two smallest",
        unless=unless,
        **compared(exponents, 1.0, kappa[-2]),
        basis="next order in κ",
        counted="weights",
    )
    yield said.close(
        "same-time",
        "From the same weights the reduced equation passes half of ω when the two equations do: time",
        unless=_no_half([reduced, full]),
        predicted=full,
        measured=reduced,
        tolerance=predictions["width"] / 2,
        basis="half the width of the drop of the loss",
        known=LAGGING if same else None,
    )


_TIME = f"time t + {SHIFT:g}, dW/dt = −∂L/∂W"


def draw(data: Data, settings: object) -> matplotlib.figure.Figure:
    predictions = data["theory"]
    with styled():
        figure, (a, b, c, d, e, f) = two_rows(12.0, 7.4, (1, 1, 1), (1.25, 1, 1))
        _course(a, data, "mu", float(predictions["mu"]))
        _course(b, data, "omega", float(predictions["omega"]))
        _speed(c, data["speed"], float(predictions["omega"]))
        _plane(d, data)
        _sweep(e, data["sweep"], data["apart"])
        _sizes(f, data["softmax"])
    return figure


def _course(axes: Any, data: Data, name: str, limit: float) -> None:
    course, first = data["course"], data["softmax"].isel(dim=0)
    root = float(first["dim"]) ** 0.5
    trained = first["x"] / root if name == "omega" else first["y"] * root
    time = course["time"].values + SHIFT
    axes.axhline(limit, color=ORANGE, linewidth=1.0, zorder=0)
    axes.plot(time, course[f"full_{name}"], color=BLUE, label="two equations")
    axes.plot(time[::20], trained[::20], "o", color=BLACK, markersize=3.5, fillstyle="none", label="softmax, trained")
    axes.plot(time, course[f"reduced_{name}"], "--", color=VERMILION, label="reduced equation")
    axes.plot(data["fig1"]["time"], data["fig1"][name], ":", color=GRAY, linewidth=1.8, label="heads of Fig 1, time t")
    axes.set(xlim=(SHIFT, time[-1]), xlabel=_TIME)
    if name == "omega":
        axes.set(title="(b) Score: ω", ylabel="ω")
        halves = [passage(course["time"].values, root * course[f"{one}_omega"].values) for one in ("reduced", "full")]
        words = "half of ω: t = {:.2f} reduced,\nt = {:.2f} two equations".format(*halves)
        note(axes, words, (time[-1], 0.5 * limit), (0, -14), ha="right", fontsize=9)
        note(axes, "$d^{-1/2}$", (SHIFT, limit), (3, 3), color="#8a5f00")
        axes.set_ylim(0, 1.15 * limit)
        axes.legend(loc="lower right")
    else:
        axes.set(title="(a) Readout: μ", ylabel="μ")
        note(axes, "$\\sqrt{d}/(1+\\rho)$", (time[-1], limit), (0, -16), ha="right", color="#8a5f00")


def _speed(axes: Any, speeds: xr.Dataset, limit: float) -> None:
    omega, speed = speeds["omega"].values, speeds["speed"].values
    axes.axhline(0, color=GRAY, linewidth=0.8)
    axes.plot(omega, speed, "--", color=VERMILION)
    place = int(np.argmax(speed))
    axes.plot(omega[place], speed[place], "o", color=VERMILION)
    text = f"fastest: dω/dt = {speed[place]:.3f}\nat ω = {omega[place]:.3f}"
    axes.text(0.98, 0.98, text, transform=axes.transAxes, ha="right", va="top", fontsize=9)
    axes.plot(limit, 0, "*", color=ORANGE, markersize=12, zorder=3)
    axes.set(xlabel="ω", ylabel="dω/dt of the reduced equation", title="(c) Slow, fast, slow")


def _plane(axes: Any, data: Data) -> None:
    course, speeds, predictions = data["course"], data["speed"], data["theory"]
    field = speeds["field"].values
    wide, high = np.ptp(speeds["grid_omega"].values), np.ptp(speeds["grid_mu"].values)
    arrows = field / np.array([wide, high])
    arrows = arrows / np.linalg.norm(arrows, axis=-1, keepdims=True) * np.array([wide, high]) * 0.05
    x, y = np.meshgrid(speeds["grid_omega"], speeds["grid_mu"], indexing="ij")
    style: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "color": "#bbbbbb", "width": 0.003}
    axes.quiver(x, y, arrows[..., 0], arrows[..., 1], **style)
    axes.plot(speeds["omega"], speeds["nullcline"], color=GREEN, label="nullcline of μ: the reduced equation")
    axes.plot(course["full_omega"], course["full_mu"], color=BLUE, label="two equations")
    axes.plot(course["omega"][0], course["mu"][0], "o", color=BLACK, markersize=5, label="initialization")
    axes.plot(predictions["omega"], predictions["mu"], "*", color=ORANGE, markersize=12, zorder=3, label="fixed point")
    axes.set(
        xlim=(0, 0.36 / 0.34 * float(speeds["grid_omega"][-1])), ylim=(0, 5.1 / 4.6 * float(speeds["grid_mu"][-1]))
    )
    finish(axes, f"(d) Directions of the flow, κ = {float(predictions['kappa']):.2f}", "ω", "μ")
    axes.legend(loc="lower right", fontsize=8.5, frameon=True, framealpha=0.9, edgecolor="none")


def _sweep(axes: Any, by_kappa: xr.Dataset, between: xr.Dataset) -> None:
    kappa, lag = by_kappa["kappa"].values, lags(by_kappa)
    rows = (
        (kappa, lag, VERMILION, "o", "time to half of ω, same weights"),
        (between["kappa"], between["wider"].sel(weight="μ"), GREEN, "s", "μ, heads of Fig 1"),
        (between["kappa"], between["wider"].sel(weight="ω"), BLUE, "D", "ω, heads of Fig 1"),
    )
    for x, y, color, marker, label in rows:
        axes.plot(x, y, f"{marker}-", color=color, markersize=5, label=label)
        axes.plot(x, y[-1] * x / x[-1], ":", color=BLACK, linewidth=1.0)
    axes.plot([], [], ":", color=BLACK, linewidth=1.0, label="in proportion to κ")
    axes.axvline(kappa[0], color=GRAY, linewidth=0.8, zorder=0)
    if (lag > 0).any():
        axes.set(xscale="log", yscale="log")
        axes.set_ylim(top=30)
    note(axes, "(a) to (d)", (kappa[0], 0.0), (-4, 6), xycoords=("data", "axes fraction"), ha="right", color="#555555")
    axes.set(title="(e) The reduced equation: right as κ → 0")
    axes.set(xlabel="κ = L/(φ d √d_e), by wider heads", ylabel="relative error")
    axes.legend(loc="upper left", fontsize=8.5)


def lags(by_kappa: xr.Dataset) -> np.ndarray:
    """The relative error of the reduced equation's time to half, for each κ."""
    return (by_kappa["time"].sel(system="full") / by_kappa["time"].sel(system="reduced") - 1).values


def furthest(runs: xr.Dataset) -> np.ndarray:
    """The largest difference of μω from that of the two equations, for each dimension."""
    return np.abs((runs["x"] * runs["y"] - runs["full_x"] * runs["full_y"]).values).max(axis=1)


def _sizes(axes: Any, runs: xr.Dataset) -> None:
    dims, away = runs["dim"].values, furthest(runs)
    axes.plot(dims, away, "o-", color=BLUE, markersize=5, label="softmax, trained")
    axes.plot(dims, away[-1] * dims[-1] / dims, ":", color=BLACK, label="in proportion to 1/d")
    axes.plot(dims[0], away[0], "o", color=BLACK, markersize=10, fillstyle="none", label="(a) to (d)")
    axes.set(xscale="log", yscale="log")
    only_ticks(axes, dims)
    axes.set(xlabel=f"dimension d, with L = {runs.attrs['pairs_by_dim']:g} d")
    axes.set(title="(f) Softmax attention at finite size", ylabel="largest difference of μω\nfrom the two equations")
    axes.legend(loc="upper right", fontsize=8.5)


FIGURE = Figure(
    title="One head: two equations, and the single one that holds where the readout is fast",
    caption=CAPTION,
    source="Fig 3",
    settings=Settings(),
    quick=Settings(dims=(10, 40)),
    described=describe,
    paper_settings=PAPER_SETTINGS,
    seeds=Seeds(
        judged="none: nothing is drawn at random; initial weights of Fig 1 times 0.35, 0.7 and 1.4",
        explored="initial weights of Fig 1 times 0.25, 0.5, 1, 2 and 4",
    ),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
