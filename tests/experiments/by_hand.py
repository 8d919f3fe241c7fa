"""Recordings made in plain NumPy with gradients written out by hand: whole matrices, nothing dropped, any precision."""

import json
from pathlib import Path
from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]
Data = tuple[np.ndarray, ...]


def activate(name: str, scores: np.ndarray) -> np.ndarray:
    if name == "softmax":
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)
    return np.maximum(scores, 0) if name == "relu" else scores


def back(name: str, attention: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The derivative by the scores, from that by the attention."""
    if name == "softmax":
        return attention * (above - (attention * above).sum(axis=-1, keepdims=True))
    return above * (attention > 0) if name == "relu" else above


def sequence_loss(config: dict, weights: Weights, data: Data, vary_len: bool) -> tuple[float, Weights]:
    """attnM and attnS: the loss and its gradient by every entry of every matrix."""
    tokens, labels = data
    outputs, activation = labels.shape[2], "softmax" if config["softmax"] else "linear"
    merged = config["model"] == "attnM"
    value = weights["value"]
    bilinear = weights["key_query"] if merged else np.einsum("hra,hrb->hab", weights["key"], weights["query"])
    sizes = range(2, tokens.shape[1] + 1) if vary_len else [tokens.shape[1]]
    loss, by_value, by_bilinear = 0.0, np.zeros_like(value), np.zeros_like(bilinear)
    for size in sizes:
        z = tokens[:, :size].copy()
        z[:, -1, -outputs:] = 0
        query, divisor = z[:, -1], size if config["vary_len"] else 1
        attention = activate(activation, np.einsum("psa,hab,pb->hps", z, bilinear, query, optimize=True))
        pooled = np.einsum("hps,psa->hpa", attention, z)
        answer = np.einsum("hea,hpa->pe", value, pooled)[:, -outputs:] / divisor
        error = answer - labels[:, size - 1]
        loss += (error**2).mean() / len(sizes)
        by_output = np.zeros((len(z), value.shape[1]))
        by_output[:, -outputs:] = 2 * error / error.size / divisor / len(sizes)
        by_value += np.einsum("pe,hpa->hea", by_output, pooled)
        by_attention = np.einsum("pe,hea,psa->hps", by_output, value, z, optimize=True)
        by_bilinear += np.einsum("hps,psa,pb->hab", back(activation, attention, by_attention), z, query, optimize=True)
    if merged:
        return loss, {"value": by_value, "key_query": by_bilinear}
    by_key = np.einsum("hab,hrb->hra", by_bilinear, weights["query"])
    return loss, {"value": by_value, "key": by_key, "query": np.einsum("hab,hra->hrb", by_bilinear, weights["key"])}


def multihead_loss(config: dict, weights: Weights, data: Data, vary_len: bool) -> tuple[float, Weights]:
    z, query, target = data
    scale = z.dtype.type(z.shape[2] ** -0.5)
    asked = np.einsum("hra,pa->hpr", weights["query"], query, optimize=True)
    offered = np.einsum("hra,psa->hpsr", weights["key"], z, optimize=True)
    attention = activate(config["attention"], np.einsum("hpr,hpsr->hps", asked, offered, optimize=True) * scale)
    pooled = np.einsum("hps,psa->hpa", attention, z, optimize=True)
    values = np.einsum("hva,hpa->hpv", weights["value"], pooled, optimize=True)
    error = np.einsum("hov,hpv->po", weights["output"], values, optimize=True) - target
    by_answer = error * z.dtype.type(2 / error.size)
    by_values = np.einsum("po,hov->hpv", by_answer, weights["output"], optimize=True)
    by_pooled = np.einsum("hpv,hva->hpa", by_values, weights["value"], optimize=True)
    by_attention = np.einsum("hpa,psa->hps", by_pooled, z, optimize=True)
    by_score = back(config["attention"], attention, by_attention) * scale
    by_asked = np.einsum("hps,hpsr->hpr", by_score, offered, optimize=True)
    return (error**2).mean(), {
        "query": np.einsum("hpr,pa->hra", by_asked, query, optimize=True),
        "key": np.einsum("hpr,hpa->hra", asked, np.einsum("hps,psa->hpa", by_score, z, optimize=True), optimize=True),
        "value": np.einsum("hpv,hpa->hva", by_values, pooled, optimize=True),
        "output": np.einsum("po,hpv->hov", by_answer, values, optimize=True),
    }


def network_loss(config: dict, weights: Weights, data: Data, vary_len: bool) -> tuple[float, Weights]:
    features, labels = data
    hidden = features @ weights["hidden"].T
    error = hidden @ weights["readout"].T - labels[:, -1]
    by_answer = 2 * error / error.size
    return (error**2).mean(), {
        "readout": by_answer.T @ hidden,
        "hidden": (by_answer @ weights["readout"]).T @ features,
    }


LOSSES = {"attnM": sequence_loss, "attnS": sequence_loss, "mlp": network_loss, "multihead_softmax": multihead_loss}


def train(config: dict, weights: Weights, data: Data, tests: dict[str, Data], steps: int):
    """Losses before each of `steps` steps, on the training and test data, and the weights after the last."""
    loss_of, curves = LOSSES[config["model"]], {name: [] for name in ("loss", *tests)}
    (b1, b2), eps = config.get("betas", (0.9, 0.999)), config.get("eps", 1e-8)
    means = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in weights.items()}
    for step in range(1, steps + 1):
        loss, gradient = loss_of(config, weights, data, config.get("vary_len", False))
        curves["loss"].append(loss)
        for name, test in tests.items():
            curves[name].append(loss_of(config, weights, test, False)[0])
        if config.get("optimizer") == "adam":
            for name, slope in gradient.items():
                first, second = means[name]
                means[name] = (b1 * first + (1 - b1) * slope, b2 * second + (1 - b2) * slope**2)
                first, second = means[name][0] / (1 - b1**step), means[name][1] / (1 - b2**step)
                gradient[name] = first / (np.sqrt(second) + eps)
        weights = {name: value - value.dtype.type(config["lr"]) * gradient[name] for name, value in weights.items()}
    return {name: np.array(curve) for name, curve in curves.items()}, weights


def _one_axis(labels: np.ndarray) -> np.ndarray:
    return labels[:, :, 0] if labels.shape[2] == 1 else labels


def recording(
    model: str,
    *,
    dim: int = 3,
    outputs: int = 1,
    heads: int = 2,
    rank: int = 2,
    head_width: tuple[int, int] | None = None,
    tokens: int = 6,
    sequences: int = 30,
    steps: int = 40,
    rate: float = 0.05,
    softmax: bool = False,
    attention: str = "softmax",
    vary_len: bool = False,
    tests: tuple[str, ...] = (),
    seed: int = 0,
    rule: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The arrays of a recording, in float64. Every entry of every initial matrix is random."""
    draw = np.random.default_rng(seed)
    width = dim + outputs
    names = {"": ()} | {f"_{test}": () for test in tests}
    data: dict[str, Data] = {}
    arrays: dict[str, Any] = {}
    for suffix in names:
        z = draw.normal(size=(sequences, tokens, width)) * 0.6
        labels = z[:, :, dim:].copy()
        z[:, -1, dim:] = 0
        if model == "mlp":
            features = np.einsum("ps,psi,pj->pij", z[:, :-1, -1], z[:, :-1, :dim], z[:, -1, :dim]).reshape(
                sequences, -1
            )
            data[suffix] = (features, labels)
            arrays |= {f"features{suffix}": features, f"labels{suffix}": _one_axis(labels)}
        elif model == "multihead_softmax":
            data[suffix] = (z[:, :-1], z[:, -1], labels[:, -1])
            arrays |= dict(zip((f"context{suffix}", f"query{suffix}", f"target{suffix}"), data[suffix], strict=True))
        else:
            data[suffix] = (z, labels)
            arrays |= {f"tokens{suffix}": z, f"labels{suffix}": _one_axis(labels)}

    config: dict[str, Any] = {"model": model, "lr": rate, "a key that nobody reads": None} | (rule or {})
    if model == "multihead_softmax":
        score_width, value_width = head_width or (width, width)
        config |= {"attention": attention, "dx": dim, "dy": outputs, "steps": steps}
        shapes = {"query": (heads, score_width, width), "key": (heads, score_width, width)}
        shapes |= {"value": (heads, value_width, width), "output": (heads, outputs, value_width)}
    else:
        config |= {"softmax": softmax, "vary_len": vary_len, "epoch": steps, "in_dim": dim}
        shapes = {
            "attnM": {"value": (heads, width, width), "key_query": (heads, width, width)},
            "attnS": {"value": (heads, width, width), "key": (heads, rank, width), "query": (heads, rank, width)},
            "mlp": {"hidden": (heads, dim * dim), "readout": (outputs, heads)},
        }[model]
    weights = {name: 0.4 * draw.normal(size=shape) for name, shape in shapes.items()}
    training = data.pop("")
    curves, final = train(config, weights, training, {f"loss{suffix}": test for suffix, test in data.items()}, steps)
    arrays |= {f"init_{name}": value for name, value in weights.items()} | curves
    return arrays | {f"final_{name}": value for name, value in final.items()} | {"config": json.dumps(config)}


def write(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path
