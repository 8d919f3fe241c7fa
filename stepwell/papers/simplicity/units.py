r"""Units of unequal growth, Proposition 5: of quadratic units one grows while the others stay small.

While weights are small a unit follows $\dot v = u^\top S u$, $\dot u = 2 v S u$ in the constant field S, and becomes
infinite in a finite time. When the first of them has the size one, the others have the size ε of the initial weights,
times a constant.
"""

from dataclasses import dataclass
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.analysis.style import BLACK, BLUE, GREEN, ORANGE, VERMILION, new_figure, styled
from stepwell.figures import Claim, Data, Figure, InvalidInput, Origin
from stepwell.theory.units import blow_up_time

from ._quadratic_units import dead_fraction, tail

STEP = 0.02
"""Of the time in which a unit of the size of the largest grows by a factor of e, about."""
STEPS = 3000
LARGEST = 1e6  # A unit of this size, from one of order one, is as good as infinite.
DEVIATIONS = 4.0
EXPONENT = 0.02
Units = Float[np.ndarray, "network unit entry"]


@dataclass(frozen=True)
class Settings:
    """What can be changed. Settings were chosen on seeds 0 to 11, and seed 500 was seen."""

    rates: tuple[float, ...] = (1.0, 0.6, -0.4)  # eigenvalues of S
    units: int = 6
    networks: int = 400
    scales: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4)
    dims: tuple[int, ...] = (2, 3, 5)  # for positive definite S
    dead: int = 4000
    draws: int = 400_000
    distance: float = 100.0  # in the tail
    seed: int = 501

    def __post_init__(self):
        if max(self.rates) <= 0 or min(self.rates) >= 0:
            raise InvalidInput(f"rates are {self.rates}; give some of either sign, or some units never grow")
        if self.units < 2:
            raise InvalidInput(f"units is {self.units}; give at least 2")


def course(
    rates: Any, units: Units, steps: int
) -> tuple[Units, Float[np.ndarray, " network"], Float[np.ndarray, "step two network"]]:
    """Units of several networks in a constant field (v first), in steps of time over the size of a network's largest
    unit by the Runge-Kutta method: the weights, the time, and at each step the largest size and the next.

    A network whose largest unit has the size `LARGEST` stays as it is.
    """
    rates = np.asarray(rates)
    state, time = units.copy(), np.zeros(len(units))
    sizes = np.empty((steps, 2, len(units)))
    unit = STEP / np.abs(rates).max()

    def velocity(state: Units) -> Units:
        v, u = state[..., :1], state[..., 1:]
        return np.concatenate([np.sum(rates * u**2, axis=-1, keepdims=True), 2 * v * rates * u], axis=-1)

    for step in range(steps):
        norm = np.sort(np.linalg.norm(state, axis=-1), axis=-1)
        sizes[step] = norm[:, -1], norm[:, -2:][:, 0]
        h = np.where(norm[:, -1] < LARGEST, unit / norm[:, -1], 0.0)
        if not h.any():
            return state, time, sizes[: step + 1]
        wide = h[:, None, None]
        a = velocity(state)
        b = velocity(state + wide / 2 * a)
        c = velocity(state + wide / 2 * b)
        d = velocity(state + wide * c)
        state = state + wide / 6 * (a + 2 * b + 2 * c + d)
        time += h
    return state, time, sizes


def simulate(settings: Settings) -> Data:
    rng = np.random.default_rng(settings.seed)
    parts = {"race": race, "alone": alone, "dead": dead, "tail": far}
    return {name: part(settings, rng) for name, part in parts.items()}


def race(settings: Settings, rng: np.random.Generator) -> xr.Dataset:
    """The largest other unit when the first has size one, from each scale.

    The flow from weights of scale ε is ε times that from scale one, slower by 1/ε: the first has the size 1/ε there.
    """
    start = rng.normal(size=(settings.networks, settings.units, 1 + len(settings.rates)))
    sizes = course(settings.rates, start, STEPS)[2]
    scales = np.array(settings.scales)
    others = []
    for largest, other in np.log(sizes).transpose(2, 1, 0):
        rising = np.maximum.accumulate(largest)
        at = np.interp(-np.log(scales), rising, other, right=np.nan)
        others.append(np.where(-np.log(scales) >= rising[0], scales * np.exp(at), np.nan))
    return xr.Dataset({"other": (("network", "scale"), others)}, {"scale": scales})


def alone(settings: Settings, rng: np.random.Generator) -> xr.Dataset:
    """When units become infinite: integrated, and by quadrature."""
    rates = np.array(settings.rates)
    start = rng.normal(size=(settings.networks, 1, 1 + rates.size))
    end, time, sizes = course(rates, start, STEPS)
    v = end[:, 0, 0]
    # From here on it is as of one mode: dv/dt = 2σv².
    time = time + 1 / np.abs(2 * np.where(v > 0, rates.max(), rates.min()) * v)
    time = np.where(sizes[-1, 0] >= LARGEST, time, np.nan)
    predicted = blow_up_time(rates, start[:, 0, 0], start[:, 0, 1:])
    return xr.Dataset({"time": ("unit", time), "predicted": ("unit", predicted)})


def dead(settings: Settings, rng: np.random.Generator) -> xr.Dataset:
    """In a positive definite field: the fraction of units whose v is still negative at the end."""
    fractions = []
    for dim in settings.dims:
        start = rng.normal(size=(settings.dead, 1, 1 + dim))
        end = course(np.linspace(1.0, 0.5, dim), start, STEPS // 3)[0]
        fractions.append(np.mean(end[:, 0, 0] < 0))
    return xr.Dataset(
        {"fraction": ("dim", fractions), "predicted": ("dim", [dead_fraction(dim) for dim in settings.dims])},
        {"dim": list(settings.dims)},
    )


def far(settings: Settings, rng: np.random.Generator) -> xr.Dataset:
    """Units with dv/dt = v², v = g/(1/ε - gt): when the first has size one, the next has ε g_1 g_2/(g_1 - g_2)."""
    ahead = np.sort(rng.normal(size=(settings.draws, settings.units)), axis=1)[:, -2:]
    constant = np.where(ahead[:, 0] > 0, np.prod(ahead, axis=1) / (ahead[:, 1] - ahead[:, 0]), 0.0)
    distances = np.geomspace(1.0, 10 * settings.distance, 31)
    survival = np.mean(constant[:, None] > distances, axis=0)
    return xr.Dataset(
        {
            "survival": ("distance", survival),
            "far": np.mean(constant > settings.distance),
            "predicted": tail(settings.units) / settings.distance,
            "half": np.median(constant),
        },
        {"distance": distances},
    )


def claims(data: Data, settings: Settings) -> list[Claim]:
    race, alone, dead, far = (data[name] for name in ("race", "alone", "dead", "tail"))
    scales = np.log(race["scale"].values)
    ours = Origin("theory", "docs/theory/units.md: quadratic units", explored=True)
    middle = race["other"].median("network", skipna=False)
    known = np.isfinite(middle.values).all() and scales.size > 1
    slope = float(np.polyfit(scales[-2:], np.log(middle.values[-2:]), 1)[0]) if known else np.nan
    predicted = dead["predicted"].values
    error = np.sqrt(predicted * (1 - predicted) / settings.dead)
    rare = float(far["predicted"])
    return [
        Origin("paper", "Proposition 5", explored=True).close(
            "exponent",
            "When the first unit of a network has size one the others have the size ε of the initial weights: exponent "
            "of the largest other unit, median over networks, over the last two scales",
            predicted=1.0,
            measured=slope,
            tolerance=EXPONENT,
            basis="the order of the smaller scale, of which the constant of the median is part",
            unless="" if known else "no two scales at which half of the units have the size one",
        ),
        ours.close(
            "blow-up",
            "A unit becomes infinite after ∫ds/√Q(s), with Q = v² + ½Σu_d²(e^(4σ_d s) − 1), after a turning point if Q "
            "has a root: ratio of the time integrated to this",
            predicted=1.0,
            measured=alone["time"] / alone["predicted"],
            tolerance=10 * STEP**4,
            basis="ten times a fiftieth of the time of growth, the step, to the fourth power",
            counted="units",
        ),
        ours.close(
            "dead",
            "Both signs among the eigenvalues of S are needed: where all are positive, units with v < 0 and 2v² > |u|² "
            "never grow: fraction of units, for each dimension of u",
            predicted=predicted,
            measured=dead["fraction"],
            tolerance=DEVIATIONS * error,
            basis=f"{DEVIATIONS:g} binomial standard errors",
            counted="dimensions",
        ),
        ours.close(
            "tail",
            "The constant has an infinite mean: of units with dv/dt = v² the next has more than xε when the first "
            "has size one with probability H(H − 1)∫g²φ²Φ^(H−2)dg/x for large x: fraction beyond "
            f"x = {settings.distance:g}",
            predicted=rare,
            measured=float(far["far"]),
            tolerance=DEVIATIONS * np.sqrt(rare / settings.draws) + 2 * rare / settings.distance,
            basis=f"{DEVIATIONS:g} binomial standard errors, and the next order in 1/x",
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    race, alone, dead, far = (data[name] for name in ("race", "alone", "dead", "tail"))
    with styled():
        figure = new_figure(11.5, 4.0)
        sizes, times, tails = figure.subplots(1, 3)
        scale = race["scale"].values
        for level, color in ((0.5, BLUE), (0.95, VERMILION)):
            name = "median" if level == 0.5 else "95 % quantile"
            other = race["other"].quantile(level, "network").values
            sizes.loglog(scale, other, "o", color=color, markersize=6, label=name)
            sizes.loglog(scale, other[-1] * scale / scale[-1], color=color, linewidth=1.0)
        sizes.plot([], [], color=BLACK, linewidth=1.0, label="slope 1")
        sizes.set(xlabel="initial scale ε", ylabel="size of the largest other unit")
        sizes.legend(loc="lower right")
        sizes.set_title("(a) When the first unit has size 1")
        times.plot(alone["predicted"], alone["time"], "o", color=GREEN, markersize=4, fillstyle="none")
        ends = [float(alone["predicted"].min()), float(alone["predicted"].max())]
        times.plot(ends, ends, color=BLACK, linewidth=1.0)
        times.set(
            xlabel="by quadrature, times ε", ylabel="integrated, times ε", title="(b) Time until a unit is infinite"
        )
        distance = far["distance"].values
        tails.loglog(distance, far["survival"], color=BLUE, linewidth=1.6, label="dv/dt = v²")
        tails.loglog(
            distance, float(far["predicted"]) * settings.distance / distance, "--", color=BLACK, label="limit, 1/x"
        )
        least = np.sort(race["other"].values[:, -1] / scale[-1])
        above = 1 - np.arange(1, least.size + 1) / (least.size + 1)
        tails.loglog(least, above, ".", color=ORANGE, markersize=4, label="quadratic units")
        tails.set(xlim=(0.5, distance[-1]), ylim=(3e-4, 1.2), xlabel="x", ylabel="fraction of networks above x ε")
        tails.legend(loc="lower left")
        tails.set_title("(c) The largest other unit over ε")
    return figure


FIGURE = Figure(
    title="Units grow at different times: of quadratic units one grows while the others stay small",
    caption=(
        "Quadratic units with small weights in the constant field of the data, whose eigenvalues have both signs. (a) "
        "Of six units, the largest but one when the largest has the size 1, against the initial scale ε (points: "
        "quantiles of networks), and lines of slope one through the last point. (b) The time in which a single unit "
        "becomes infinite, from weights of scale 1: integrated, and by quadrature of our closed form; the line is "
        "equality. (c) The fraction of networks in which the next unit is above xε: it falls as 1/x only, so that the "
        "mean of the constant is infinite; units with dv/dt = v², their limit (dashed), and the networks of (a)."
    ),
    source="Proposition 5",
    settings=Settings(),
    quick=Settings(networks=100, dead=2000, draws=100_000),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
