r"""Invariant manifolds on which a network is as one of fewer units, Theorem 3, and the ways off them at a zero unit.

The velocity is $\dot v_i = E[\phi(u_i) e]$, $\dot u_i = E[\partial\phi(u_i)^\top (v_i \cdot e)]$. Where weights are
$\theta_3 = A(\theta_1, \theta_2)$ with a linear map A under which both are equivariant, so are velocities.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, ORANGE, SKY, VERMILION, new_figure, styled, superscript
from stepwell.figures import Claim, Data, Figure, Origin

from ._common import chosen, draw_table
from ._networks import NETWORKS, UNITS, Landscape, Network, random_weights

TANGENT = 1e-13
TRANSVERSE = 1e-4
REQUIRED = 0.95
"""Of the controls."""
FLAT = 1e-7  # of the largest eigenvalue, below which one counts as zero
FALL = 1e-8  # about how far the loss falls where orders are measured
DIRECTIONS = 256
COLORS = dict(zip(NETWORKS, (BLUE, SKY, VERMILION, ORANGE, GREEN, GRAY, GREEN, BLUE, VERMILION, BLACK), strict=False))
LINES = {2: "-", 3: "--", 4: ":"}
Weights = Float[np.ndarray, "unit size"]
Unit = Float[np.ndarray, " size"]


class Relation(NamedTuple):
    """A manifold: the third unit, a linear function of the first two with coefficients c, and when it is invariant."""

    words: str
    applies: Callable[[Network], bool]
    listed: bool
    third: Callable[[Network, Weights, Float[np.ndarray, " two"]], Unit]


def _signs(network: Network, outer: float) -> Unit:
    return np.concatenate([np.full(network.outer, outer), np.full(network.inner, -1.0)])


RELATIONS = {
    "copy": Relation("(i) equal units", lambda network: True, True, lambda network, w, c: w[0]),
    "zero": Relation("(ii) a zero unit", lambda network: network.order > 0, True, lambda network, w, c: 0 * w[0]),
    "proportional": Relation(
        "(iii) θ₃ = cθ₁, c > 0", lambda network: network.degree == 1, True, lambda network, w, c: c[0] * w[0]
    ),
    "negative": Relation(
        "(iii) θ₃ = cθ₁, c < 0", lambda network: network.linear, True, lambda network, w, c: -c[0] * w[0]
    ),
    "combined": Relation("(iv) θ₃ = c₁θ₁ + c₂θ₂", lambda network: network.linear, True, lambda network, w, c: c @ w),
    "odd": Relation(
        "(−v, −u)", lambda network: network.parity == -1, False, lambda network, w, c: _signs(network, -1.0) * w[0]
    ),
    "even": Relation(
        "(v, −u)", lambda network: network.parity == 1, False, lambda network, w, c: _signs(network, 1.0) * w[0]
    ),
}


@dataclass(frozen=True)
class Settings:
    """What can be changed. Settings were chosen on seeds 0 to 11 and 100 to 105."""

    networks: tuple[str, ...] = tuple(NETWORKS)
    seeds: tuple[int, ...] = tuple(range(300, 304))


def simulate(settings: Settings) -> Data:
    names, seeds = list(settings.networks), list(settings.seeds)
    coords = {"seed": seeds, "network": names, "relation": list(RELATIONS)}
    off = xr.DataArray(np.zeros([len(each) for each in coords.values()]), coords)
    ways: list[xr.Dataset] = []
    for name in names:
        for seed in seeds:
            rng = np.random.default_rng([seed, list(NETWORKS).index(name)])
            landscape = Landscape(name, rng)
            off.loc[{"seed": seed, "network": name}] = transverse(landscape, rng)
            left = leave(landscape, rng) if landscape.network.order else None
            if left is not None:
                place = {"seed": ("point", [seed]), "network": ("point", [name])}
                ways.append(left.expand_dims("point").assign_coords(place))
    applies = [[each.applies(NETWORKS[name]) for name in names] for each in RELATIONS.values()]
    tangent = xr.Dataset({"off": off, "applies": (("relation", "network"), applies)})
    tangent["listed"] = "relation", [each.listed for each in RELATIONS.values()]
    made = {"tangent": tangent}
    return {**made, "zero": xr.concat(ways, dim="point", coords="minimal")} if ways else made


def transverse(landscape: Landscape, rng: np.random.Generator) -> Float[np.ndarray, " relation"]:
    """At a random point of each manifold, the part of the velocity off it, over the largest velocity."""
    network = landscape.network
    free, c = random_weights(network, UNITS - 1, rng), rng.uniform(0.5, 1.5, 2)
    points = np.array([np.vstack([free, each.third(network, free, c)]) for each in RELATIONS.values()])
    velocities = landscape(points)[1]
    parts = [v[2] - each.third(network, v[:2], c) for v, each in zip(velocities, RELATIONS.values(), strict=True)]
    return np.abs(parts).max(axis=1) / np.abs(velocities).max(axis=(1, 2))


def leave(landscape: Landscape, rng: np.random.Generator) -> xr.Dataset | None:
    """A zero unit beside a fixed point of two: negative directions of the Hessian that it adds, and how the loss falls
    along the steepest of random directions of its weights."""
    network, narrow = landscape.network, landscape.narrow_point(rng)
    if narrow is None:
        return None
    wide = np.vstack([narrow, np.zeros(network.size)])
    ways = rng.normal(size=(DIRECTIONS, network.size))
    for part in np.s_[: network.outer], np.s_[network.outer :]:
        ways[:, part] /= np.linalg.norm(ways[:, part], axis=1, keepdims=True)
    scale = FALL ** (1 / network.order)
    loss = landscape(wide[None])[0][0]
    falls = loss - landscape(_beside(wide, scale * ways))[0]
    best = ways[np.argmax(falls)]
    pair = loss - landscape(_beside(wide, scale * np.outer([1.0, 2.0], best)))[0]
    distance = np.geomspace(1e-2, 1.0, 25)
    return xr.Dataset(
        {
            "negative": _negative(landscape, wide) - _negative(landscape, narrow) if network.smooth else -1,
            "predicted_negative": negative_directions(network),
            "measured_order": np.log2(pair[1] / pair[0]) if np.all(pair > 0) else np.nan,
            "order": network.order,
            "fall": ("distance", loss - landscape(_beside(wide, distance[:, None] * best))[0]),
        },
        {"distance": distance},
    )


def _beside(wide: Weights, units: Float[np.ndarray, "way size"]) -> Float[np.ndarray, "way unit size"]:
    points = np.tile(wide, (len(units), 1, 1))
    points[:, 2] = units
    return points


def _negative(landscape: Landscape, weights: Weights) -> int:
    eigenvalues = np.linalg.eigvalsh(landscape.hessian(weights))
    return int(np.sum(eigenvalues < -FLAT * np.abs(eigenvalues).max()))


def negative_directions(network: Network) -> int:
    r"""Of the Hessian, that a zero unit adds beside two units at a fixed point.

    Its block is $-2\begin{pmatrix}0 & G\\ G^\top & 0\end{pmatrix}$ with $G = E[e\, \partial\phi(0)^\top]$: one for each
    singular value of G. G is zero where $\phi$ begins at second order or later. Where $\phi$ is linear both $u_i$ are
    in its kernel, as $E[e\,\phi(u_i)] = 0$.
    """
    if network.order > 2:
        return 0
    return network.inner - (UNITS - 1) if network.linear else min(network.outer, network.inner)


def claims(data: Data, settings: Settings) -> list[Claim]:
    tangent = data["tangent"]
    applies, listed, off = tangent["applies"], tangent["listed"], tangent["off"]
    within: Any = {"tolerance": TANGENT, "basis": "rounding of the sums over examples", "counted": "networks"}
    zero = data.get("zero")
    missing: Any = {"unless": "" if zero is not None else "no zero unit beside a fixed point", "counted": "points"}
    names = [] if zero is None else _names(zero)
    smooth = [] if zero is None else [NETWORKS[name].smooth for name in zero["network"].values]
    searches = len(settings.seeds) * sum(NETWORKS[name].order > 0 for name in settings.networks)
    searched = f"{searches - len(names)} of {searches} searches for points of two units found none"
    ours = Origin("theory", "docs/theory/units.md: the zero unit")
    return [
        Origin("paper", "Theorem 3").at_most(
            "tangent",
            "On the manifolds of the paper (i–iv), of networks that meet the condition, the velocity is along the "
            "manifold: part of it off the manifold, over its largest entry",
            measured=chosen(off, applies & listed),
            **within,
        ),
        Origin("theory", "docs/theory/units.md: fixed points of narrower networks").at_most(
            "images",
            "So it is where a unit is the image of another: (−v, −u) if φ is odd in u, (v, −u) if it is even: part off "
            "the manifold",
            measured=chosen(off, applies & ~listed),
            **within,
        ),
        Origin("theory", "the condition of each manifold", explored=True).at_least(
            "conditions",
            "Where the network does not meet the condition the velocity leaves the manifold; (iii) is for φ of degree "
            "one, not for quadratic and cubic units: part off the manifold",
            predicted=TRANSVERSE,
            measured=chosen(off, ~applies),
            required=REQUIRED,
            basis=f"{TRANSVERSE / TANGENT:.0e} times rounding",
            counted="networks",
        ),
        ours.close(
            "negative-directions",
            "A zero unit adds negative directions to the Hessian only where φ is linear in u for small u: one beside "
            "two linear or convolutional units, as many as outputs with tanh, none with x tanh x, quadratic and cubic "
            f"units and attention ({searched})",
            predicted=[] if zero is None else zero["predicted_negative"].values[smooth],
            measured=[] if zero is None else zero["negative"].values[smooth],
            labels=np.array(names)[smooth],
            basis="a count",
            **missing,
        ),
        ours.close(
            "order",
            "So two kinds of point are called saddles: along the weights of a zero unit the loss falls with the second "
            "power of their size where φ is linear for small u, and else with the third or fourth: exponent "
            f"({searched})",
            predicted=[] if zero is None else zero["order"].values,
            measured=[] if zero is None else zero["measured_order"].values,
            labels=names,
            tolerance=1e-3,
            basis="next order at a fall of 1e-8, and rounding",
            **missing,
        ),
    ]


def _names(zero: xr.Dataset) -> list[str]:
    return [f"seed {seed}, {name}" for seed, name in zip(zero["seed"].values, zero["network"].values, strict=True)]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    tangent = data["tangent"]
    with styled():
        figure = new_figure(11.0, 4.4)
        table, falls = figure.subplots(1, 2, width_ratios=(1.75, 1))
        sizes = tangent["off"].median("seed").transpose("relation", "network")
        image = draw_table(
            table, sizes, tangent["applies"], rows=[each.words for each in RELATIONS.values()], floor=1e-17
        )
        bar = figure.colorbar(image, ax=table, ticks=range(-16, 2, 4), pad=0.02)
        bar.set_label("part of the velocity off the manifold, log$_{10}$")
        table.set(xlabel="network", ylabel="manifold", title="(a) The velocity on manifolds of smaller width")
        _draw_falls(falls, data.get("zero"))
    return figure


def _draw_falls(axes: Any, zero: xr.Dataset | None) -> None:
    axes.set(xlabel="size s of v and of u", ylabel="fall of the loss", title="(b) Ways down at a zero unit")
    if zero is None:
        return
    for name in dict.fromkeys(zero["network"].values.tolist()):
        one = zero.isel(point=int(np.flatnonzero(zero["network"].values == name)[0]))
        fall = one["fall"].values
        style = {"color": COLORS[name], "linestyle": LINES[int(one["order"])], "linewidth": 1.4}
        label = f"{name}: s{superscript(int(one['order']))}"
        axes.loglog(one["distance"], np.where(fall > 0, fall, np.nan), label=label, **style)
    axes.set_ylim(1e-13, None)
    axes.legend(loc="lower right", fontsize=7.5)


QUICK = ("ReLU", "tanh", "quadratic")
FIGURE = Figure(
    title="Manifolds on which a network stays as one of fewer units",
    caption=(
        "(a) At a random point of three units, of which the third depends on the others as on the left: the part of "
        "the velocity of gradient flow that is off this manifold, relative to its largest entry (median over seeds). "
        "White boxes are where the network meets the condition of the paper (i–iv) or, in the last two rows, ours: φ "
        "odd or even in u. There, training never leaves the manifold, and each relation makes the network one unit "
        "narrower. (b) A zero unit beside a fixed point of two (one seed each): how far the loss falls when its outer "
        "and inner weights get the size s, along the steepest of 256 random directions. If φ is linear in u for small "
        "u that is of second order, a strict saddle, which is left exponentially; otherwise it is of third or fourth, "
        "with no negative direction of the Hessian, and is left more slowly."
    ),
    source="Theorem 3",
    settings=Settings(),
    quick=Settings(networks=QUICK, seeds=(300, 301)),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
