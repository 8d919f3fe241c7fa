"""Random experiments for the oracle: long enough to have drops, and small enough that a plain loop follows them.

Shapes and numbers of steps are drawn from a few, so that compiled programs are shared; all other numbers are free.
Rates of softmax attention are well below the edge of stability, beyond which rounding decides a run.
"""

import math
from typing import Any

import numpy as np
from numpy_oracle import spectrum

FACTORS = {"separate": 3, "merged": 2}
"""How many weights are multiplied in a prediction."""
FAMILIES = (
    *("separate flow", "separate descent", "softmax flow", "merged flow", "sample", "softmax attention"),
    *("any covariance", "separate flow", "merged descent", "softmax sample", "sample flow", "several attention"),
)


def described(seed: int, number: int) -> tuple[str, dict[str, Any]]:
    """The family of an experiment, and what `Experiment(**…)` takes."""
    rng = np.random.default_rng([seed, number])
    family = FAMILIES[number % len(FAMILIES)]
    made = {"task": {}, "model": {}, "objective": {}, "training": {}, "record": {"points": 61, "spacing": "linear"}}
    if family in ("softmax flow", "softmax sample", "several attention"):
        _several(rng, family, made)
    else:
        _single(rng, family, made)
    if made["training"]["kind"] == "descent":
        made["record"]["snapshots"] = 31
    return family, made | {"seed": int(rng.integers(2**31))}


def _number(rng: np.random.Generator, low: float, high: float) -> float:
    return float(f"{rng.uniform(low, high):.4g}")


def _task(rng: np.random.Generator, family: str) -> dict[str, Any]:
    dim = int(rng.integers(2, 4))
    named = str(rng.choice(["eigenvalues", "published", "white", "power", "spiked"]))
    if named == "eigenvalues":
        made: dict[str, Any] = {"eigenvalues": [_number(rng, 0.2, 1.0) for _ in range(dim)]}
    else:
        made = {"spectrum": named, "dim": dim}
    if named == "power":
        made["exponent"] = _number(rng, 0.1, 1.5)
    if named == "spiked":
        made["ratio"] = _number(rng, 1.0, 5.0)
    if "sample" in family or "attention" in family:
        made["context"] = [9, [5, 9]][int(rng.integers(2))]
    else:
        made["context"] = [int(rng.integers(4, 61)), int(rng.integers(4, 61)), [7, 20, 31], 10**9][int(rng.integers(4))]
    if rng.integers(2):
        made["noise"] = _number(rng, 0.01, 0.5)
    if rng.integers(2):
        made["task_eigenvalues"] = [_number(rng, 0.3, 1.5) for _ in range(dim)]
    return made


def _single(rng: np.random.Generator, family: str, made: dict[str, Any]) -> None:
    """One regression."""
    task = _task(rng, family)
    kind = family.split()[0] if family.split()[0] in FACTORS else str(rng.choice(["separate", "merged"]))
    context, softmax = task["context"], family == "softmax attention"
    if not softmax and rng.integers(4) == 0:
        task["outputs"] = 2
    divided = "1/N" if isinstance(context, list) or softmax else str(rng.choice(["1/N", "1/N", "none", "1/tokens"]))
    longest = max(context) if isinstance(context, list) else context
    factor = {"1/N": 1.0, "none": float(longest), "1/tokens": longest / (longest + 1)}[divided]
    scale = _number(rng, 0.08, 0.3)
    model = {"kind": kind, "heads": 2, "scale": float(f"{scale / factor ** (1 / FACTORS[kind]):.4g}")}
    if kind == "separate":
        model |= {"rank": int(rng.integers(1, 3)), "scheme": str(rng.choice(["plain", "plain", "per-head", "stacked"]))}
    if rng.integers(5) == 0:
        model["balanced"] = True
        model.pop("scheme", None)
    model |= {"activation": "softmax", "scale": 3 * scale} if softmax else {"normalization": divided}
    drive = float(np.max(spectrum(task) ** 2 * task.get("task_eigenvalues", 1.0)))
    if "flow" in family or family == "any covariance":
        late = _number(rng, 1, 12) / (drive * scale) if kind == "separate" else -3 * math.log(scale) / drive
        late *= 0.1 if "sample" in family else 1.0
        training = {"kind": "flow", "until": float(f"{late:.4g}"), "tolerance": 1e-9}
    else:
        rule = [("sgd", "constant"), ("sgd", "cosine"), ("momentum", "linear"), ("adam", "exponential:decay_rate=0.1")]
        optimizer, schedule = rule[int(rng.integers(4))]
        rate = 0.01 if optimizer == "adam" else _number(rng, 0.05, 0.2) * (0.2 if optimizer == "momentum" else 1.0)
        rate *= 1.0 if optimizer == "adam" else 0.2 if softmax else factor ** (-2 / FACTORS[kind])
        training = {"kind": "descent", "rate": float(f"{rate:.4g}"), "steps": 300}
        training |= {"optimizer": optimizer, "schedule": schedule}
    objective: dict[str, Any] = {"kind": "population"}
    if "sample" in family or softmax:
        names = ["sampled"] if softmax else ["moments"] if "flow" in family else ["moments", "sampled"]
        objective = {"kind": str(rng.choice(names)), "sequences": 40}
    made.update(task=task, model=model, objective=objective, training=training)


def _several(rng: np.random.Generator, family: str, made: dict[str, Any]) -> None:
    """Several regressions, by softmax attention: spectral, or with whole matrices."""
    dims = [[3, 4], [5]][int(rng.integers(2))]
    task = {"kind": "multitask", "dims": dims, "context": 12 if "attention" in family else int(rng.integers(20, 80))}
    task |= {"strengths": [_number(rng, 0.3, 1.5) for _ in dims], "noise": _number(rng, 0.1, 1.0)}
    descent = {"kind": "descent", "rate": 0.004 if "attention" in family else 0.02, "steps": 300}
    if family == "several attention":
        model, objective = {"kind": "multihead", "heads": 2, "scale": _number(rng, 0.1, 0.4)}, "sampled"
    else:
        several = family == "softmax flow"
        model = {"kind": "spectral", "heads": 1 if not several else len(dims) + 1, "scale": _number(rng, 0.02, 0.1)}
        objective = str(rng.choice(["exact", "reduced"])) if not several else "spectral"
    flow = {"kind": "flow", "until": _number(rng, 2.0, 20.0), "tolerance": 1e-9}
    by_flow = family == "softmax flow" and rng.integers(4) > 0
    sequences = {"sampled": {"sequences": 40}, "reduced": {"sequences": 2000}}.get(objective, {})
    made.update(
        task=task, model=model, objective={"kind": objective} | sequences, training=flow if by_flow else descent
    )
