"""Normalization of rows, NumPy: definition and test oracle of the compiled forms.

x and y are [n, d], gain and bias [d], mean and rstd (1 / standard deviation) [n]. `carry`, [n, d], is added
to the gradient of x, as for a residual around the norm; [0, d] for none.
"""

from __future__ import annotations

import numpy as np


def layer_norm(
    x: np.ndarray,
    gain: np.ndarray,
    bias: np.ndarray,
    eps: float,
    y: np.ndarray,
    mean: np.ndarray,
    rstd: np.ndarray,
) -> None:
    """Set y = (x - mean) rstd gain + bias, with the statistics of each row. Ba et al., "Layer normalization", 2016."""
    mean[...] = x.mean(axis=1)
    centered = x - mean[:, None]
    rstd[...] = 1 / np.sqrt(np.square(centered).mean(axis=1) + eps)
    y[...] = centered * rstd[:, None] * gain + bias


def layer_norm_input(
    x: np.ndarray,
    gain: np.ndarray,
    mean: np.ndarray,
    rstd: np.ndarray,
    dy: np.ndarray,
    carry: np.ndarray,
    dx: np.ndarray,
) -> None:
    """Set dx = carry + rstd (g - mean(g) - h mean(g h)) with g = dy gain and h = (x - mean) rstd."""
    h = (x - mean[:, None]) * rstd[:, None]
    g = dy * gain
    slope = g - g.mean(axis=1, keepdims=True) - h * (g * h).mean(axis=1, keepdims=True)
    dx[...] = rstd[:, None] * slope
    if len(carry):
        dx += carry


def layer_norm_weight(
    x: np.ndarray, mean: np.ndarray, rstd: np.ndarray, dy: np.ndarray, dgain: np.ndarray, dbias: np.ndarray
) -> None:
    """Add to the gradients of gain and bias."""
    dgain += (dy * (x - mean[:, None]) * rstd[:, None]).sum(axis=0)
    dbias += dy.sum(axis=0)


def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float, y: np.ndarray, rstd: np.ndarray) -> None:
    """Set y = x rstd gain, rstd = 1 / sqrt(mean(x^2) + eps). Zhang, Sennrich, "Root mean square layer norm", 2019."""
    rstd[...] = 1 / np.sqrt(np.square(x).mean(axis=1) + eps)
    y[...] = x * rstd[:, None] * gain


def rms_norm_input(
    x: np.ndarray, gain: np.ndarray, rstd: np.ndarray, dy: np.ndarray, carry: np.ndarray, dx: np.ndarray
) -> None:
    """Set dx = carry + rstd (g - h mean(g h)) with g = dy gain and h = x rstd."""
    h = x * rstd[:, None]
    g = dy * gain
    dx[...] = rstd[:, None] * (g - h * (g * h).mean(axis=1, keepdims=True))
    if len(carry):
        dx += carry


def rms_norm_weight(x: np.ndarray, rstd: np.ndarray, dy: np.ndarray, dgain: np.ndarray) -> None:
    """Add to the gradient of gain."""
    dgain += (dy * x * rstd[:, None]).sum(axis=0)
