"""Free energies from samples: thermodynamic integration, Bennett's acceptance ratio over many states (MBAR).

Shirts and Chodera (2008), J. Chem. Phys. 129, 124105. Energies are reduced, U / k T; free energies are, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpckit.errors import InputError

MOST_STEPS, ENOUGH = 500, 1e-11
FEWEST = 3  # samples of a state
TINY, APART = 1e-300, 1e-9
NO_OVERLAP, MORE_STATES = "the samples of neighbor states do not overlap", "give more states between them"


@dataclass(frozen=True, eq=False)
class FreeEnergies:
    """Of each state less that of the first, and standard errors of these differences: float64[states]."""

    values: np.ndarray
    errors: np.ndarray


def mbar(energies: np.ndarray, counts: Sequence[int]) -> FreeEnergies:
    """The free energies of states from samples of all of them: BAR for two states.

    energies: float64[samples, states], the reduced energy of each sample in each state; samples of the first state come
    first, `counts` of each. Errors are those of independent samples; `inefficiency` says how many are. Raises
    `InputError` for states without samples, or whose samples do not overlap.
    """
    counts_of = np.asarray(counts, np.float64)
    u = np.asarray(energies, np.float64)
    if u.ndim != 2 or u.shape != (int(counts_of.sum()), len(counts_of)) or (counts_of < FEWEST).any():
        raise InputError(
            f"MBAR takes energies [samples, states] and {FEWEST} samples of each state or more, not {list(u.shape)}"
            f" and {list(counts)}"
        )
    u = u - u.min(axis=1, keepdims=True)
    found = np.zeros(len(counts_of))

    def weights(at: np.ndarray) -> np.ndarray:
        logs = at - u
        top = logs.max(axis=1, keepdims=True)
        parts = np.exp(logs - top)
        return parts / (parts @ counts_of)[:, None]

    def miss(at: np.ndarray) -> np.ndarray:
        return np.asarray(1.0 - weights(at).sum(axis=0))

    for _ in range(MOST_STEPS):
        w = weights(found)
        sums = w.sum(axis=0)
        if np.abs(sums - 1.0).max() < ENOUGH:
            break
        # Newton's step of the convex objective, and one of the iteration that always converges; the better of the two.
        plain = found - np.log(np.maximum(sums, TINY))
        slope = np.diag(counts_of * sums) - (w.T @ w) * np.outer(counts_of, counts_of)
        newton = found.copy()
        newton[1:] += np.linalg.lstsq(slope[1:, 1:], counts_of[1:] * (1.0 - sums[1:]), rcond=None)[0]
        plain -= plain[0]
        better = bool(np.isfinite(newton).all()) and np.abs(miss(newton)).max() < np.abs(miss(plain)).max()
        found = newton if better else plain
    else:
        raise InputError(NO_OVERLAP, do=MORE_STATES)
    w = weights(found)
    # How samples of one state are those of another: where the second eigenvalue is 1, too, the states fall apart.
    overlap = np.sort(np.linalg.eigvals((w.T @ w) * counts_of).real)
    if len(overlap) > 1 and overlap[-2] > 1.0 - APART:
        raise InputError(NO_OVERLAP, do=MORE_STATES)
    _, sizes, right = np.linalg.svd(w, full_matrices=False)
    # One direction, a constant added to all free energies, has no inverse.
    inner = np.eye(len(sizes)) - (sizes[:, None] * (right * counts_of) @ right.T * sizes)
    theta = right.T @ (sizes[:, None] * np.linalg.pinv(inner, rcond=APART) * sizes) @ right
    spread = theta.diagonal() - 2 * theta[0] + theta[0, 0]
    return FreeEnergies(found - found[0], np.sqrt(np.maximum(spread, 0.0)))


def integrated(states: Sequence[float], slopes: np.ndarray, errors: np.ndarray) -> FreeEnergies:
    """Thermodynamic integration of mean slopes dF/dl at the states, by the trapezoidal rule; errors of the means."""
    steps = np.diff(np.asarray(states, np.float64))
    values = np.concatenate([[0.0], np.cumsum(0.5 * steps * (slopes[1:] + slopes[:-1]))])
    spread = np.zeros(len(values))
    for k in range(1, len(values)):
        share = np.zeros(len(values))
        share[:k] += 0.5 * steps[:k]
        share[1 : k + 1] += 0.5 * steps[:k]
        spread[k] = np.sqrt(((share * errors) ** 2).sum())
    return FreeEnergies(values, spread)


def inefficiency(series: np.ndarray) -> float:
    """How many samples of a correlated series count as one: 1 + 2 times the sum of its correlation while above 0."""
    x = np.asarray(series, np.float64) - np.mean(series)
    count, power = len(x), float(np.mean(np.square(x)))
    if count < FEWEST or power == 0.0:
        return 1.0
    found = 1.0
    for lag in range(1, count - 1):
        correlation = float(x[:-lag] @ x[lag:]) / ((count - lag) * power)
        if correlation <= 0:
            break
        found += 2.0 * correlation * (1.0 - lag / count)
    return max(found, 1.0)
