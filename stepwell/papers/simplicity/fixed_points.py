r"""Fixed points of wide networks that are those of narrower ones, Theorem 1.

The errors e are the same where the map is. $\partial L/\partial v_i = -2 E[\phi(u_i) e]$ and
$\partial L/\partial u_i = -2 E[v_i^\top e\, \partial\phi(u_i)]$ of a new unit are therefore multiples of those of the
units that it is made of, which vanish.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.analysis.style import BLUE, VERMILION, new_figure, styled
from stepwell.figures import Claim, Data, Figure, Known, Origin

from ._common import chosen, draw_table
from ._networks import NETWORKS, STATIONARY, Landscape, Network

FIXED = 10 * STATIONARY
"""Coefficients are up to 1.5, so that the multiples are below ten."""
MOVING = 1e4 * FIXED
REQUIRED = 0.95
"""Of the controls. ReLU units that are active on the same examples are linear there; that happened in 2 of 468."""
STEP = 1e-3
DIRECTIONS = 64
ROUNDING = 1e-15 / STEP  # of a slope, relative to the loss
ZERO_INNER = "ReLU units with zero inner weights"
Weights = Float[np.ndarray, "unit size"]
Wide = Float[np.ndarray, "wide size"]
Add = Callable[[Network, Weights, np.random.Generator], Wide]


class Construction(NamedTuple):
    """A unit added to a network with the same map, the conditions for it, and whether the paper lists it."""

    words: str
    applies: Callable[[Network], bool]
    listed: bool
    add: Add


def _split(network: Network, weights: Weights, inner: Float[np.ndarray, " inner"], factor: float, left: float):
    """The third unit has the inner weights and the outer ones of the first, times a factor; these are left times 1 −
    `left`."""
    first, wide = weights[0], np.vstack([weights, np.zeros(network.size)])
    wide[2] = np.concatenate([factor * first[: network.outer], inner])
    wide[0, : network.outer] *= 1 - left
    return wide


def _coefficients(rng: np.random.Generator, count: int) -> list[float]:
    """Between 0.5 and 1.5."""
    return rng.uniform(0.5, 1.5, count).tolist()


def _scaled(power: int, sign: float = 1.0) -> Add:
    def add(network: Network, weights: Weights, rng: np.random.Generator) -> Wide:
        a, b = _coefficients(rng, 2)
        return _split(network, weights, sign * a * weights[0, network.outer :], b, (sign * a) ** power * b)

    return add


def _image(inner: float, outer: float) -> Add:
    def add(network: Network, weights: Weights, rng: np.random.Generator) -> Wide:
        (g,) = _coefficients(rng, 1)
        return _split(network, weights, inner * weights[0, network.outer :], outer * g, g)

    return add


def _zero(network: Network, weights: Weights, rng: np.random.Generator) -> Wide:
    return np.vstack([weights, np.zeros(network.size)])


def _combined(network: Network, weights: Weights, rng: np.random.Generator) -> Wide:
    a, b = np.array(_coefficients(rng, 2)), np.array(_coefficients(rng, 2))
    outer, inner = weights[:, : network.outer], weights[:, network.outer :]
    wide = np.vstack([weights, np.concatenate([b @ outer, a @ inner])])
    wide[:2, : network.outer] -= np.outer(a, b @ outer)
    return wide


CONSTRUCTIONS = {
    "copy": Construction("(i) a unit split in two", lambda network: True, True, _image(1, 1)),
    "zero": Construction("(ii) a zero unit", lambda network: network.order > 0, True, _zero),
    "scaled": Construction("(iii) (bv, au), a > 0", lambda network: network.degree == 1, True, _scaled(1)),
    "negative": Construction("(iii) (bv, au), a < 0", lambda network: network.linear, True, _scaled(1, -1.0)),
    "combined": Construction("(iv) combination of units", lambda network: network.linear, True, _combined),
    "square": Construction("(bv, au), v → (1 − a²b)v", lambda network: network.degree == 2, False, _scaled(2)),
    "cube": Construction("(bv, au), v → (1 − a³b)v", lambda network: network.degree == 3, False, _scaled(3)),
    "odd": Construction("(−gv, −u), v → (1 − g)v", lambda network: network.parity == -1, False, _image(-1, -1)),
    "even": Construction("(gv, −u), v → (1 − g)v", lambda network: network.parity == 1, False, _image(-1, 1)),
}


@dataclass(frozen=True)
class Settings:
    """What can be changed. Settings were chosen on seeds 0 to 11 and 100 to 105."""

    networks: tuple[str, ...] = tuple(NETWORKS)
    seeds: tuple[int, ...] = tuple(range(200, 204))


def simulate(settings: Settings) -> Data:
    names, seeds = list(settings.networks), list(settings.seeds)
    coords = {"seed": seeds, "network": names, "construction": list(CONSTRUCTIONS)}
    gradient = xr.DataArray(np.full([len(each) for each in coords.values()], np.nan), coords)
    change = gradient.copy()
    found = xr.DataArray(np.zeros([len(seeds), len(names)], bool), {"seed": seeds, "network": names})
    ways: dict[int, xr.Dataset] = {}
    for name in names:
        for seed in seeds:
            # The numbers of each kind of network are its own, whichever others there are.
            rng = np.random.default_rng([seed, list(NETWORKS).index(name)])
            landscape = Landscape(name, rng)
            narrow = landscape.narrow_point(rng)
            if narrow is None:
                continue
            wide = np.array([each.add(landscape.network, narrow, rng) for each in CONSTRUCTIONS.values()])
            losses, gradients = landscape(wide)
            before = landscape(narrow[None])[0][0]
            place = {"seed": seed, "network": name}
            found.loc[place] = True
            gradient.loc[place] = np.abs(gradients).max(axis=(1, 2))
            change.loc[place] = np.abs(losses - before) / (1 + before)
            if name == "ReLU":
                ways[seed] = leave(landscape, narrow, rng)
    applies = [[each.applies(NETWORKS[name]) for name in names] for each in CONSTRUCTIONS.values()]
    points = xr.Dataset({"gradient": gradient, "change": change, "found": found})
    points["applies"] = ("construction", "network"), applies
    points["listed"] = "construction", [each.listed for each in CONSTRUCTIONS.values()]
    made = {"points": points}
    return {**made, "zero-inner": xr.concat(list(ways.values()), dim=xr.Variable("seed", list(ways)))} if ways else made


def leave(landscape: Landscape, narrow: Weights, rng: np.random.Generator) -> xr.Dataset:
    r"""A ReLU unit with u = 0 and v ≠ 0: slope of the loss along random directions d of u, and as predicted.

    $\phi(x; td) = t \max(d^\top x, 0)$ for t > 0, so that $L(t) = L(0) - 2t E[v^\top e \max(d^\top x, 0)] +
    t^2 E[|v|^2 \max(d^\top x, 0)^2]$.
    """
    network, (x, y) = landscape.network, landscape.examples
    ways = rng.normal(size=(DIRECTIONS, network.inner))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    error = np.asarray(y) - np.asarray(jax.vmap(network.model(jnp.asarray(narrow)))(x))
    ahead = np.maximum(np.asarray(x) @ ways.T, 0)
    outer = _coefficients(rng, 1)[0] * narrow[0, : network.outer]
    predicted = -2 * np.mean((error @ outer)[:, None] * ahead, axis=0)
    sign = np.sign(predicted[np.argmax(np.abs(predicted))])  # -v has the slopes of v with the other sign
    predicted *= -sign
    wide = np.vstack([narrow, np.zeros(network.size)])
    wide[2, : network.outer] = -sign * outer
    loss, gradient = landscape(wide[None])
    steps = STEP * np.array([1.0, 2.0])
    moved = np.tile(wide, (len(steps), DIRECTIONS, 1, 1))
    moved[:, :, 2, network.outer :] = steps[:, None, None] * ways
    near, far = landscape(moved.reshape(-1, *wide.shape))[0].reshape(2, -1) - loss[0]
    lowest = np.argmin(predicted)
    distances = np.geomspace(1e-3, 1.0, 25)
    path = np.tile(wide, (distances.size, 1, 1))
    path[:, 2, network.outer :] = distances[:, None] * ways[lowest]
    return xr.Dataset(
        {
            "slope": ("direction", (4 * near - far) / (2 * STEP)),
            "predicted": ("direction", predicted),
            "gradient": np.abs(gradient).max(),
            "loss": loss[0],
            "fall": ("distance", loss[0] - landscape(path)[0]),
        },
        {"distance": distances},
    )


def claims(data: Data, settings: Settings) -> list[Claim]:
    points = data["points"]
    applies, listed, gradient, found = (points[name] for name in ("applies", "listed", "gradient", "found"))
    theorem = Origin("paper", "Theorem 1")
    ours = Origin("theory", "docs/differences.md: fixed points of units that the paper does not list")
    stationary: Any = {
        "tolerance": FIXED,
        "basis": f"the narrow point's own, at most {STATIONARY:g}, times coefficients below ten",
        "counted": "networks",
    }
    searched = f"{int((~found).sum())} of {found.size} searches for points of two units found none"
    powers, images = (gradient["construction"].isin(names) & applies for names in (["square", "cube"], ["odd", "even"]))
    all_claims = [
        theorem.at_most(
            "listed",
            "Fixed points of two units give fixed points of three, by each construction of the paper (i–iv) whose "
            f"condition the network meets ({searched}): largest entry of the gradient",
            measured=chosen(gradient, applies & listed & found),
            **stationary,
        ),
        theorem.close(
            "same-map",
            "By each construction whose condition the network meets the loss stays the same: change relative to 1 + L "
            f"({searched})",
            measured=chosen(points["change"], applies & found),
            tolerance=1e-12,
            basis="rounding of the predictions",
            counted="networks",
        ),
        Origin("theory", "the condition of each construction", explored=True).at_least(
            "conditions",
            "Where the network does not meet the condition the same construction gives no fixed point: largest entry "
            f"of the gradient ({searched})",
            predicted=MOVING,
            measured=chosen(gradient, ~applies & found),
            required=REQUIRED,
            basis="10,000 times what counts as zero; ReLU units active on the same examples are linear there",
            counted="networks",
        ),
        ours.at_most(
            "degrees",
            "A unit of degree p in u gives fixed points (bv, au) too, with v → (1 − a^p b)v: largest entry of the "
            f"gradient ({searched})",
            measured=chosen(gradient, powers & found),
            **stationary,
        ),
        ours.at_most(
            "images",
            "So do images of a unit: (−gv, −u) if φ is odd in u, (gv, −u) if it is even, v → (1 − g)v: largest entry "
            f"of the gradient ({searched})",
            measured=chosen(gradient, images & found),
            **stationary,
        ),
    ]
    return [*all_claims, *_slope_claims(data.get("zero-inner"))]


def _slope_claims(ways: xr.Dataset | None) -> list[Claim]:
    missing: Any = {"unless": "" if ways is not None else "no fixed point of a ReLU network"}
    lowest = [] if ways is None else ways["slope"].min("direction", skipna=False)
    return [
        Origin("paper", "Theorem 1 (iii)", explored=True).at_least(
            "zero-inner",
            "A ReLU unit (bv, au) with a = 0 is a fixed point, too: the loss falls in no direction of its u at first "
            "order: lowest one-sided slope of 64 directions",
            predicted=0.0,
            measured=lowest,
            tolerance=FIXED,
            basis="what counts as zero",
            known=Known(
                "ReLU has no derivative at u = 0: unless v = 0 the loss falls at first order along some directions",
                "relu-units-with-zero-inner-weights",
            ),
            **missing,
        ),
        Origin("theory", f"docs/differences.md: {ZERO_INNER}").at_most(
            "zero-inner-slope",
            "The slope of the loss along the direction d of such a unit's u is −2E[v·e max(d·x, 0)], with e the error: "
            "largest difference over 64 directions, relative to 1 + L",
            measured=[]
            if ways is None
            else abs(ways["slope"] - ways["predicted"]).max("direction", skipna=False) / (1 + ways["loss"]),
            tolerance=10 * ROUNDING,
            basis="rounding of the loss over the step; the loss is quadratic along d",
            **missing,
        ),
        Origin("check", "max(s, 0) has the derivative 0 at s = 0 in automatic differentiation").at_most(
            "zero-inner-gradient",
            "Automatic differentiation takes these points for fixed: largest entry of the gradient",
            measured=[] if ways is None else ways["gradient"],
            tolerance=FIXED,
            basis="the narrow point's own, times coefficients below ten",
            **missing,
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    points = data["points"]
    with styled():
        figure = new_figure(11.0, 4.6)
        table, leaving = figure.subplots(1, 2, width_ratios=(1.75, 1))
        sizes = points["gradient"].median("seed").transpose("construction", "network")
        rows = [each.words for each in CONSTRUCTIONS.values()]
        image = draw_table(table, sizes, points["applies"], rows=rows, floor=1e-16)
        bar = figure.colorbar(image, ax=table, ticks=range(-16, 2, 4), pad=0.02)
        bar.set_label("largest entry of the gradient, log$_{10}$")
        table.set_title("(a) A unit is added to a fixed point of two")
        table.set(xlabel="network", ylabel="construction")
        _draw_leaving(leaving, data.get("zero-inner"))
    return figure


def _draw_leaving(axes: Any, ways: xr.Dataset | None) -> None:
    axes.set(xlabel="distance |u| from the point", ylabel="fall of the loss", title="(b) ReLU, u = 0 and v ≠ 0")
    if ways is None:
        return
    distances = ways["distance"].values
    for row, seed in enumerate(ways["seed"].values):
        one = ways.sel(seed=seed)
        first = {} if row else {"label": "loss"}
        axes.loglog(distances, np.where(one["fall"] > 0, one["fall"], np.nan), "o", color=BLUE, markersize=3, **first)
        first = {} if row else {"label": "first order"}
        axes.loglog(distances, -float(one["predicted"].min()) * distances, color=VERMILION, linewidth=1.0, **first)
    axes.legend(loc="upper left")


QUICK = ("ReLU", "tanh", "quadratic")
FIGURE = Figure(
    title="Fixed points of a wide network that are those of a narrower one",
    caption=(
        "(a) From a fixed point of two units, found by Newton's method on random data, a third unit is made in each of "
        "the ways on the left: the largest entry of the gradient there (median over "
        "seeds). White boxes are where the network meets the condition: φ = 0 at u = 0 for (ii), homogeneous of degree "
        "one for (iii), linear in u for (iv); below them what the paper does not list, for φ of degree two or three, "
        "odd, or even in u. A dash is where no fixed point was found. (b) A ReLU unit with u = 0 and v ≠ 0, which "
        "(iii) with a = 0 would allow: the loss falls at first order along some directions of u (steepest of 64, "
        "points), as predicted (lines, one for each seed). It is no fixed point, though automatic differentiation "
        "gives zero."
    ),
    source="Theorem 1",
    settings=Settings(),
    quick=Settings(networks=QUICK, seeds=(200, 201)),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
