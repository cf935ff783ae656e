"""Kernels of neural networks, NumPy: definition and test oracle of the compiled forms.

Arrays are C-contiguous, float32 or float64, all of one dtype; n rows (tokens, samples) of d numbers. Functions work in
place: each docstring names the arrays it overwrites. Statistics of a row are kept for the backward pass.
"""

from __future__ import annotations

import math

import numpy as np

from hpckit.kernels.noise.reference import uniforms

GELU_SLOPE, GELU_CUBIC = 0.7978845608028654, 0.044715  # sqrt(2 / pi), and Hendrycks and Gimpel's coefficient
LEAST_LOG = 708.0  # exp of minus this is still a normal double


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    return 1 / (1 + np.exp(-np.clip(x, -LEAST_LOG if x.dtype == np.float64 else -87, None)))


# ---- activations


def relu(x: np.ndarray, y: np.ndarray) -> None:
    """Set y = max(x, 0); x becomes the derivative, 0 or 1."""
    y[...] = np.maximum(x, 0)
    x[...] = x > 0


def gelu(x: np.ndarray, y: np.ndarray) -> None:
    """Set y = x / 2 (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3); x becomes the derivative.

    Hendrycks and Gimpel, "Gaussian error linear units", 2016, in the tanh approximation of GPT-2,
    computed as x sigmoid(2 u).
    """
    gate = sigmoid(2 * GELU_SLOPE * x * (1 + GELU_CUBIC * x * x))
    y[...] = x * gate
    x[...] = gate + y * (1 - gate) * (2 * GELU_SLOPE) * (1 + 3 * GELU_CUBIC * x * x)


def gelu_erf(x: np.ndarray, y: np.ndarray) -> None:
    """Set y = x / 2 (1 + erf(x / sqrt(2))), x times the normal cumulative distribution; x becomes the derivative.

    Hendrycks and Gimpel's exact definition: the GELU of BERT, and PyTorch's default.
    """
    gate = _half_erfc(-math.sqrt(0.5) * x.astype(np.float64))
    density = np.exp(-0.5 * np.square(x, dtype=np.float64)) / math.sqrt(2 * math.pi)
    y[...] = x * gate
    x[...] = gate + x * density


def _half_erfc(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(value) for value in x.ravel().tolist()]).reshape(x.shape)


def silu(x: np.ndarray, y: np.ndarray) -> None:
    """Set y = x sigmoid(x) (also named swish); x becomes the derivative."""
    gate = sigmoid(x)
    y[...] = x * gate
    x[...] = gate + y * (1 - gate)


def swiglu(gate: np.ndarray, up: np.ndarray, y: np.ndarray) -> None:
    """Set y = silu(gate) up; gate becomes dy/dgate and up becomes dy/dup. Shazeer, "GLU variants", 2020."""
    value = np.empty_like(gate)
    silu(gate, value)
    y[...] = value * up
    gate *= up
    up[...] = value


def scale(x: np.ndarray, factor: np.ndarray) -> None:
    """Multiply x by `factor` elementwise, in place."""
    x *= factor


def scale_two(dy: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
    """Multiply both derivatives by dy, in place."""
    first *= dy
    second *= dy


# ---- rows


def add_columns(x: np.ndarray, sums: np.ndarray) -> None:
    """Add the sum over the rows of x [n, d] to sums [d]: the gradient of a bias."""
    sums += x.sum(axis=0)


def squared_sum(x: np.ndarray) -> float:
    """The sum of squares of x, in float64."""
    return float(np.square(x, dtype=np.float64).sum())


def squared_sums(x: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """`squared_sum` of the parts x[parts[k, 0] : parts[k, 1]] of a vector, float64 [k]."""
    return np.array([squared_sum(x[start:stop]) for start, stop in parts.tolist()])


def choose(scores: np.ndarray, chosen: np.ndarray, shares: np.ndarray) -> None:
    """The router of experts: in `chosen`, int64 [n, k], the columns of the k largest scores of each row, the largest
    first and of equal ones the lower number; in `shares`, [n, k], the softmax of these scores.
    """
    chosen[...] = np.argsort(-scores, axis=1, kind="stable")[:, : chosen.shape[1]]
    best = np.take_along_axis(scores, chosen, axis=1)
    raised = np.exp(best - best[:, :1])
    shares[...] = raised / raised.sum(axis=1, keepdims=True)


def cross_entropy(logits: np.ndarray, targets: np.ndarray, vocab: int, inverse: np.ndarray) -> float:
    """The sum over rows of log(sum_j exp(logits[j])) - logits[target], j < vocab, in float64.

    Columns from `vocab` on are padding and are ignored, as are rows with a negative target. logits become
    exp(logits - their maximum), 0 in the padding; inverse[n] becomes 1 / their sum, 0 for ignored rows.
    """
    rows = np.arange(len(logits))
    counted = targets >= 0
    largest = logits[:, :vocab].max(axis=1)
    chosen = logits[rows, np.maximum(targets, 0)]
    logits[:, :vocab] = np.exp(logits[:, :vocab] - largest[:, None])
    logits[:, vocab:] = 0
    sums = logits[:, :vocab].sum(axis=1)
    inverse[...] = counted / sums
    loss = np.log(sums.astype(np.float64)) + (largest.astype(np.float64) - chosen)
    return float(loss[counted].sum())


def cross_entropy_gradient(logits: np.ndarray, targets: np.ndarray, inverse: np.ndarray, factor: float) -> None:
    """Turn the `logits` that `cross_entropy` left into `factor` times the gradient of the loss."""
    logits *= (factor * inverse)[:, None].astype(logits.dtype)
    rows = np.flatnonzero(targets >= 0)
    logits[rows, targets[rows]] -= logits.dtype.type(factor)


# ---- optimizers, over flat vectors


def adamw(
    values: np.ndarray,
    grads: np.ndarray,
    mean: np.ndarray,
    square: np.ndarray,
    bounds: np.ndarray,
    decays: np.ndarray,
    settings: np.ndarray,
) -> None:
    """One step of AdamW in place. Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, algorithm 2.

    Part k of the vectors, from bounds[k] to bounds[k + 1], has the factor decays[k] = 1 - rate weight_decay. settings:
    scale of the gradients, beta1, beta2, 1 - beta1, 1 - beta2, rate / (1 - beta1^t), 1 / sqrt(1 - beta2^t), eps.
    """
    factor, beta1, beta2, rest1, rest2, rate, unbias, eps = settings
    for start, stop, decay in zip(bounds[:-1], bounds[1:], decays, strict=True):
        part = slice(start, stop)
        g = factor * grads[part]
        mean[part] = beta1 * mean[part] + rest1 * g
        square[part] = beta2 * square[part] + rest2 * g * g
        values[part] = decay * values[part] - rate * mean[part] / (np.sqrt(square[part]) * unbias + eps)


def momentum(
    values: np.ndarray,
    grads: np.ndarray,
    velocity: np.ndarray,
    bounds: np.ndarray,
    decays: np.ndarray,
    settings: np.ndarray,
) -> None:
    """One step of stochastic gradient descent with momentum in place: v = mu v + g + decay x, x -= rate v.

    With `nesterov` the step is rate (g + decay x + mu v). bounds as in `adamw`; decays[k] is the decay of part k.
    settings: scale of the gradients, mu, rate, nesterov (0 or 1).
    """
    factor, mu, rate, nesterov = settings
    for start, stop, decay in zip(bounds[:-1], bounds[1:], decays, strict=True):
        part = slice(start, stop)
        g = factor * grads[part] + decay * values[part]
        velocity[part] = mu * velocity[part] + g
        values[part] -= rate * (g + mu * velocity[part] if nesterov else velocity[part])


# ---- embeddings, dropout


def embed(tokens: np.ndarray, table: np.ndarray, positions: np.ndarray, y: np.ndarray) -> None:
    """y[i, t] = table[tokens[i, t]] + positions[t]: [B, T, d]; positions [T or more, d], or [0, d] for none."""
    y[...] = table[tokens]
    if len(positions):
        y += positions[: tokens.shape[1]]


def embed_gradient(tokens: np.ndarray, dy: np.ndarray, dtable: np.ndarray, dpositions: np.ndarray) -> None:
    """Add dy to the rows of the tables that it came from, in the order of the tokens."""
    np.add.at(dtable, tokens.reshape(-1), dy.reshape(-1, dy.shape[-1]))
    if len(dpositions):
        dpositions[: tokens.shape[1]] += dy.sum(axis=0)


def dropout(x: np.ndarray, y: np.ndarray, key: int, step: int, first: int, rate: float) -> None:
    """Set y = x / (1 - rate), or 0 with probability `rate`. Srivastava et al., "Dropout", 2014.

    x: [samples, numbers of a sample]. Whether number i of sample `first` + k is kept depends on (key, step, first + k,
    i) alone: word i % 4 of Philox under counter i // 4 + (first + k) ceil(numbers / 4), below 2^48.
    """
    samples, each = x.shape
    groups = -(-each // 4)
    ids = ((first + np.arange(samples))[:, None] * groups + np.arange(groups)).reshape(-1)
    words = np.empty((ids.size, 4))
    uniforms(key, step, ids, 0, words)
    kept = words.reshape(samples, -1)[:, :each] > rate
    y[...] = np.where(kept, x * x.dtype.type(1 / (1 - rate)), 0)
