"""Gradient descent on the population loss in NumPy: no compiler, no native pass, no automatic differentiation."""

import numpy as np


def merged(objective, value, key_query, rate, steps):
    r"""Losses before each step and after the last, and all weights, of $A = \sum_h v_h W_h$.

    $L = c - 2 \langle A, M\Lambda \rangle + \langle A, C A \Lambda \rangle$ has the gradient $S = 2 (C A \Lambda -
    M\Lambda)$ by A, so that $\partial v_h = \langle W_h, S \rangle$ and $\partial W_h = v_h S$.
    """
    losses, weights = [], [(value, key_query)]
    for _ in range(steps + 1):
        loss, slope = _loss_and_slope(objective, np.einsum("h,hij->ij", value, key_query))
        by_value, by_map = np.einsum("hij,ij->h", key_query, slope), value[:, None, None] * slope
        value, key_query = value - rate * by_value, key_query - rate * by_map
        losses.append(loss)
        weights.append((value, key_query))
    return np.array(losses), weights


def separate(objective, value, key, query, rate, steps):
    r"""The same of $A = \sum_h v_h k_h q_h^\top$: $\partial v = k^\top S q$, $\partial k = v S q$, $\partial q = v
    S^\top k$ in every head."""
    losses, weights = [], [(value, key, query)]
    for _ in range(steps + 1):
        loss, slope = _loss_and_slope(objective, np.einsum("h,hi,hj->ij", value, key, query))
        by_value = np.einsum("hi,ij,hj->h", key, slope, query)
        by_key, by_query = value[:, None] * (query @ slope.T), value[:, None] * (key @ slope)
        value, key, query = value - rate * by_value, key - rate * by_key, query - rate * by_query
        losses.append(loss)
        weights.append((value, key, query))
    return np.array(losses), weights


def _loss_and_slope(objective, whole):
    lam, cross, second = (np.asarray(part) for part in (objective.input, objective.cross, objective.second))
    linear, quadratic = np.sum(whole * (cross @ lam)), np.sum(whole * (second @ whole @ lam))
    return float(objective.label_power) - 2 * linear + quadratic, 2 * (second @ whole @ lam - cross @ lam)
