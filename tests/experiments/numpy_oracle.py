"""The oracle: losses, gradients, descent, flow, levels and risks from the mathematics, in NumPy and SciPy alone.

Nothing of the package is imported here: what `judge.py` compares with it is judged, and not repeated. A model is its
readouts U (heads, outputs, width) and scores W (heads, width, dim): for the query x it predicts Σ_h U_h Σ_s a_hs z_s,
a_h = c · activation_s(z_s · W_h x). A loss of U and W returns its value and both derivatives.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from by_hand import Weights, activate, back
from scipy.integrate import solve_ivp
from scipy.linalg import eigh
from scipy.optimize import minimize, root_scalar

EPS = float(np.finfo(float).eps)
Lengths = dict[int, float]
"""Context lengths and their probabilities."""
Rng = np.random.Generator
Loss = Callable[[Weights], tuple[float, Weights]]
"""The value and the gradient."""


def spectrum(task: dict[str, Any]) -> np.ndarray:
    """The eigenvalues that a description names."""
    if "eigenvalues" in task:
        return np.array(task["eigenvalues"])
    d = np.arange(1, task["dim"] + 1.0)
    sizes = {
        "published": d[::-1],
        "white": np.ones_like(d),
        "power": d ** -task.get("exponent", 1.0),
        "spiked": np.where(d <= task.get("spikes", 1), task.get("ratio", 4.0), 1.0),
    }[task["spectrum"]]
    return sizes / sizes.sum()


def divisor(normalization: str, length: int) -> float:
    """What attention over so many context pairs is multiplied by."""
    return {"none": 1.0, "1/N": 1.0 / length, "1/tokens": 1.0 / (length + 1)}[normalization]


def paper_time(normalization: str, lengths: Lengths, factors: int) -> float:
    """The paper's time for a unit of the time of the weights: with m factors W = (Nc)^(1/m) w is divided by N, and a
    flow of W goes (Nc)^(2/m) times as slowly. Where lengths vary there is no such factor."""
    if len(lengths) > 1:
        return 1.0
    (length,) = lengths
    return (length * divisor(normalization, length)) ** (2 / factors)


# ---- losses ----


class Moments(NamedTuple):
    """Of a regression: E[xxᵀ], E[βwᵀ], E[ββᵀ] and E[y²], for β = c Σ_n y_n x_n."""

    inputs: np.ndarray
    cross: np.ndarray
    second: np.ndarray
    power: float


def moments(inputs: np.ndarray, tasks: np.ndarray, noise: float, lengths: Lengths, normalization: str) -> Moments:
    """By Wick's theorem: the pairs of tokens in ββᵀ are N times the same token, and N(N−1) times two different ones."""
    pairs = np.einsum("ab,cd->abcd", inputs, inputs)
    four = pairs + pairs.transpose(0, 2, 1, 3) + pairs.transpose(0, 3, 2, 1)  # E[x_a x_b x_c x_d]
    same = np.einsum("abcd,bc->ad", four, tasks) + noise * inputs
    other = inputs @ tasks @ inputs
    cross, second = np.zeros_like(inputs), np.zeros_like(inputs)
    for n, probability in lengths.items():
        c = divisor(normalization, n)
        cross += probability * c * n * inputs @ tasks
        second += probability * c**2 * (n * same + n * (n - 1.0) * other)
    return Moments(inputs, cross, second, float(np.trace(tasks @ inputs)))


def population(m: Moments) -> Callable[..., Any]:
    """The loss over infinitely many sequences, label blocks zero: E|y − Σ_p βₚᵀ A_op x|², of each output the mean."""
    dim, drive = len(m.inputs), m.cross @ m.inputs

    def loss(readout: np.ndarray, scores: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        outputs = readout.shape[1]
        values, inner = readout[:, :, dim:], scores[:, :dim]
        maps = np.einsum("hop,hij->opij", values, inner)
        slope = m.second @ maps @ m.inputs
        by_map = slope - np.eye(outputs)[:, :, None, None] * drive
        value = m.power + float(np.sum(maps * (by_map + by_map - slope))) / outputs
        by_map = by_map * (2 / outputs)
        by_readout, by_scores = np.zeros_like(readout), np.zeros_like(scores)
        by_readout[:, :, dim:] = np.einsum("opij,hij->hop", by_map, inner)
        by_scores[:, :dim] = np.einsum("hop,opij->hij", values, by_map)
        return value, by_readout, by_scores

    return loss


def sequences(
    tokens: np.ndarray, labels: np.ndarray, lengths: Lengths, activation: str, normalization: str, with_query: bool
) -> Callable[..., Any]:
    """The mean loss over given sequences, through every token."""
    dim = tokens.shape[2] - labels.shape[2]

    def loss(readout: np.ndarray, scores: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        value, by_readout, by_scores = 0.0, np.zeros_like(readout), np.zeros_like(scores)
        for n, probability in lengths.items():
            query, z = tokens[:, n, :dim], tokens[:, : n + 1].copy()
            z[:, n, dim:] = 0.0
            z = z if with_query else z[:, :n]
            c = divisor(normalization, n)
            attention = activate(activation, np.einsum("psa,hpa->hps", z, np.einsum("hab,pb->hpa", scores, query)))
            pooled = c * np.einsum("hps,psa->hpa", attention, z)
            error = np.einsum("hoa,hpa->po", readout, pooled) - labels[:, n]
            value += probability * float(np.mean(error**2))
            up = error * (2 * probability / error.size)
            by_readout += np.einsum("po,hpa->hoa", up, pooled)
            above = c * np.einsum("hpa,psa->hps", np.einsum("po,hoa->hpa", up, readout), z)
            by_scores += np.einsum(
                "hpa,pb->hab", np.einsum("hps,psa->hpa", back(activation, attention, above), z), query
            )
        return value, by_readout, by_scores

    return loss


def of_weights(kind: str, loss: Callable[..., Any]) -> Loss:
    """A loss of U and W as one of the weights of a kind of model."""

    def of(w: Weights) -> tuple[float, Weights]:
        if kind == "merged":
            value, u, s = loss(w["value"], w["key_query"])
            return value, {"value": u, "key_query": s}
        if kind == "separate":
            value, u, s = loss(w["value"], np.einsum("hra,hrb->hab", w["key"], w["query"]))
            key, query = np.einsum("hab,hrb->hra", s, w["query"]), np.einsum("hab,hra->hrb", s, w["key"])
            return value, {"value": u, "key": key, "query": query}
        root = w["query"].shape[1] ** -0.5  # of the width of a head
        scores = root * np.einsum("hea,heb->hab", w["key"], w["query"])
        value, u, s = loss(np.einsum("hoe,hea->hoa", w["output"], w["value"]), scores)
        return value, {
            "output": np.einsum("hoa,hea->hoe", u, w["value"]),
            "value": np.einsum("hoa,hoe->hea", u, w["output"]),
            "key": root * np.einsum("hab,heb->hea", s, w["query"]),
            "query": root * np.einsum("hab,hea->heb", s, w["key"]),
        }

    return of


def eigenvalues(weights: Weights, dims: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ of spectral attention: ω = k q/(d_i √d_e), d_e = Σ d_i, and μ = v o."""
    return weights["key"] * weights["query"] / (dims * dims.sum() ** 0.5), weights["value"] * weights["output"]


def spectral(task: dict[str, Any]) -> Loss:
    """Σ_i S_i (1 − Σ_h μω)² + (S_i + σ²)/L Σ_hg μ_i^h μ_i^g exp(Σ_j d_j ω_j^h ω_j^g), S_i = λ_i d_i."""
    d = np.array(task["dims"], dtype=float)
    s = d * task["strengths"]
    spread = (s + task["noise"]) / task["context"]

    def loss(w: Weights) -> tuple[float, Weights]:
        omega, mu = eigenvalues(w, d)
        tilt = np.exp((omega * d) @ omega.T)
        missing = 1 - np.sum(mu * omega, axis=0)
        value = float(np.sum(s * missing**2) + np.sum(spread * mu * (tilt @ mu)))
        by_mu = -2 * s * missing * omega + 2 * spread * (tilt @ mu)
        by_omega = -2 * s * missing * mu + 2 * d * (((mu * spread) @ mu.T * tilt) @ omega)
        by_omega = by_omega / (d * d.sum() ** 0.5)
        gradient = {"key": by_omega * w["query"], "query": by_omega * w["key"]}
        return value, gradient | {"value": by_mu * w["output"], "output": by_mu * w["value"]}

    return loss


def division(task: dict[str, Any], heads: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ω and μ (head, task) where each task is in one of the heads and the spectral loss is least, and their losses.

    With μ at its best the loss of a task is S b/(S ω² + b), b = (S + σ²)/L exp(Σ_j d_j ω_j²), j over those of its head.
    """
    d = np.array(task["dims"], dtype=float)
    s = d * task["strengths"]
    spread, omega = (s + task["noise"]) / task["context"], np.empty(d.size)
    for head in np.unique(heads):
        own = heads == head

        def parts(scaled: np.ndarray, own: np.ndarray = own) -> tuple[np.ndarray, np.ndarray]:
            w = scaled / d[own] ** 0.5
            b = spread[own] * np.exp(np.sum(d[own] * w**2))
            return s[own] * b / (s[own] * w**2 + b), s[own] * w / (s[own] * w**2 + b)

        found = minimize(lambda x: np.sum(parts(x)[0]), np.full(own.sum(), 0.7), tol=1e-14)  # noqa: B023
        omega[own] = found.x / d[own] ** 0.5
    tilt = np.array([np.exp(np.sum((d * omega**2)[heads == head])) for head in heads])
    mu, places = s * omega / (s * omega**2 + spread * tilt), np.arange(heads.max() + 1)[:, None] == heads
    return omega * places, mu * places, s * spread * tilt / (s * omega**2 + spread * tilt)


# ---- training ----


def descend(loss: Loss, weights: Weights, rates: np.ndarray, rule: str, rng: Rng, change: float) -> list[Weights]:
    """The weights before each step and after the last: `sgd`, `momentum` of 0.9, or `adam`. After each step they are
    changed at random by a part `change` of themselves, as by rounding."""
    first, second, path = dict.fromkeys(weights, 0.0), dict.fromkeys(weights, 0.0), [weights]
    for step, rate in enumerate(rates, start=1):
        moved = gradient = loss(path[-1])[1]
        if rule == "momentum":
            moved = first = {name: g + 0.9 * first[name] for name, g in gradient.items()}
        elif rule == "adam":
            first = {name: 0.1 * g + 0.9 * first[name] for name, g in gradient.items()}
            second = {name: 0.001 * g**2 + 0.999 * second[name] for name, g in gradient.items()}
            sizes = {name: np.sqrt(v / (1 - 0.999**step)) + 1e-8 for name, v in second.items()}
            moved = {name: m / (1 - 0.9**step) / sizes[name] for name, m in first.items()}
        ahead = {name: w - rate * moved[name] for name, w in path[-1].items()}
        path.append({name: w * (1 + change * rng.choice([-1, 1], w.shape)) for name, w in ahead.items()})
    return path


def rates(schedule: str, rate: float, steps: int) -> np.ndarray:
    """The rate of each step: as it is, along half a cosine or a line to zero, or to a tenth exponentially."""
    part = np.arange(steps) / steps
    return (
        rate
        * {
            "constant": np.ones(steps),
            "cosine": (1 + np.cos(np.pi * part)) / 2,
            "linear": 1 - part,
            "exponential:decay_rate=0.1": 0.1**part,
        }[schedule]
    )


class Flow:
    """dw/dt = −½ ∂L/∂w from given weights until a time, by DOP853: weights at any time.

    `balanced` keeps key and query, and value and output, equal, which the flow does and rounding need not.
    """

    def __init__(self, loss: Loss, weights: Weights, until: float, *, balanced: bool = False):
        self._loss, self._shapes = loss, {name: w.shape for name, w in weights.items()}
        half = {"query": "key", "output": "value"} if balanced else {}
        self._twins, self._ends = half, np.cumsum([w.size for name, w in weights.items() if name not in half])
        flat = np.concatenate([w.ravel() for name, w in weights.items() if name not in half])
        done = solve_ivp(self._slope, (0.0, until), flat, "DOP853", rtol=1e-11, atol=1e-14, dense_output=True)
        assert done.success, done.message
        self._at = done.sol

    def _named(self, flat: np.ndarray) -> Weights:
        names = [name for name in self._shapes if name not in self._twins]
        parts = dict(zip(names, np.split(flat, self._ends[:-1]), strict=True))
        return {name: parts[self._twins.get(name, name)].reshape(shape) for name, shape in self._shapes.items()}

    def _slope(self, _: float, flat: np.ndarray) -> np.ndarray:
        gradient = self._loss(self._named(flat))[1]
        return -0.5 * np.concatenate([gradient[name].ravel() for name in self._shapes if name not in self._twins])

    def weights(self, time: float) -> Weights:
        return self._named(self._at(time))

    def passage(self, level: float) -> float:
        """When the loss first comes down to a level; nan if it does not."""
        below = np.flatnonzero([self._loss(self.weights(time))[0] <= level for time in self._at.ts])
        if not below.size or below[0] == 0:
            return float("nan")
        begin, end = self._at.ts[below[0] - 1 : below[0] + 1]
        return root_scalar(lambda time: self._loss(self.weights(time))[0] - level, bracket=(begin, end)).root


# ---- what is read off ----


def levels(m: Moments, rank: int) -> np.ndarray:
    """The least loss of maps of rank 0, 1, …: gains are the eigenvalues of MᵀC⁻¹M against Λ⁻¹, the largest first."""
    gains = eigh(m.cross.T @ np.linalg.solve(m.second, m.cross), np.linalg.inv(m.inputs), eigvals_only=True)[::-1]
    return m.power - np.concatenate([[0.0], np.cumsum(gains[:rank])])


def passage(times: np.ndarray, losses: np.ndarray, level: float) -> tuple[float, float]:
    """When a curve of recorded points first comes down to a level, and the distance of the points around; else nan."""
    below = np.flatnonzero(losses <= level)
    if not below.size or below[0] == 0:
        return float("nan"), float("nan")
    a, b = below[0] - 1, below[0]
    part = (losses[a] - level) / (losses[a] - losses[b])
    return float(times[a] + part * (times[b] - times[a])), float(times[b] - times[a])


class Estimate(NamedTuple):
    """A mean by Monte Carlo, its standard error, and the standard deviation of one sample."""

    mean: float
    error: float
    deviation: float

    @classmethod
    def of(cls, samples: np.ndarray) -> "Estimate":
        deviation = float(np.std(samples, ddof=1))
        return cls(float(np.mean(samples)), deviation / samples.size**0.5, deviation)


def draw(rng: Rng, count: int, length: int, inputs: np.ndarray, tasks: Any, noise: float) -> tuple[np.ndarray, ...]:
    """Tokens and labels of a regression: `tasks` are covariances of the task vector of each output."""
    x = rng.standard_normal((count, length + 1, len(inputs))) @ np.linalg.cholesky(inputs).T
    roots = [(v * np.sqrt(np.clip(s, 0, None))) @ v.T for s, v in map(np.linalg.eigh, tasks)]
    w = np.stack([rng.standard_normal((count, len(inputs))) @ root for root in roots], axis=2)
    labels = x @ w
    return np.concatenate([x, labels + noise**0.5 * rng.standard_normal(labels.shape)], axis=2), labels


def softmax_risk(rng: Rng, count: int, task: dict[str, Any], omega: np.ndarray, mu: np.ndarray) -> Estimate:
    """The loss of spectral softmax attention: task vectors and noise are integrated out of drawn inputs and queries,
    λ_i |q_i − X_iᵀP_i|² + σ² |P_i|², P_i = Σ_h μ_i^h softmax_l(x_l · ω^h q)."""
    block = np.repeat(np.arange(len(task["dims"])), task["dims"])
    x, q = rng.standard_normal((count, task["context"], block.size)), rng.standard_normal((count, block.size))
    attention = activate("softmax", np.einsum("pla,hpa->hpl", x, omega[:, None, block] * q, optimize=True))
    weights = np.einsum("hi,hpl->pil", mu, attention)
    missing = q - np.einsum("pla,pal->pa", x, weights[:, block], optimize=True)
    signal = missing**2 @ np.array(task["strengths"])[block]
    return Estimate.of(signal + task["noise"] * np.sum(weights**2, axis=(1, 2)))


def bayes_risk(rng: Rng, count: int, task: dict[str, Any], place: int) -> Estimate:
    """Of one of several regressions: the posterior covariance of its task vector is (I/λ + XᵀX/σ²)⁻¹."""
    dim, strength = task["dims"][place], task["strengths"][place]
    x = rng.standard_normal((count, task["context"], dim))
    precision = np.eye(dim) / strength + np.einsum("pla,plb->pab", x, x, optimize=True) / task["noise"]
    return Estimate.of(np.trace(np.linalg.inv(precision), axis1=1, axis2=2))
