"""Attention over blocks of keys and values, NumPy: definition and test oracle of the compiled forms.

qkv [rows, groups, group + 2, d]: of each group the queries of its heads, then its key, then its value. Rows are tokens
of several texts; piece p of them, rows[p] to rows[p + 1], follows `starts[p]` tokens of its text, whose blocks are
tables[p]. keys and values: see `pages`.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.nn.paged.pages import PAGE


def keep(
    qkv: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    positions: np.ndarray,
    slots: np.ndarray,
    cosines: np.ndarray,
    sines: np.ndarray,
) -> None:
    """Rotate queries and keys in place, then store keys and values in slot `slots[row]` (block PAGE + place).

    Numbers i and i + d / 2 of a head turn by the angle [positions[row], i] (Su et al., "RoFormer", 2021, in the pairing
    of Llama's published weights). cosines, sines: [tokens, d / 2]; without tokens nothing turns.
    """
    width, panel = qkv.shape[3], keys.shape[4]
    if len(cosines):
        half = width // 2
        c, s = cosines[positions][:, None, None], sines[positions][:, None, None]
        x, y = qkv[:, :, :-1, :half].copy(), qkv[:, :, :-1, half:].copy()
        qkv[:, :, :-1, :half] = x * c - y * s
        qkv[:, :, :-1, half:] = y * c + x * s
    for row, slot in enumerate(slots.tolist()):
        block, place = divmod(slot, PAGE)
        keys[:, block, place // panel, :, place % panel] = qkv[row, :, -2]
        padded = np.zeros((qkv.shape[1], values.shape[2] * panel), qkv.dtype)
        padded[:, :width] = qkv[row, :, -1]
        values[:, block, :, place] = padded.reshape(qkv.shape[1], -1, panel)


def attend(
    qkv: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    rows: np.ndarray,
    starts: np.ndarray,
    tables: np.ndarray,
    window: int,
    out: np.ndarray,
) -> None:
    """Set out = softmax(query key^T / sqrt(d)) value, each token over the `window` last ones of its text up to itself,
    or over all of them for a window of 0.

    out: [rows, groups group d]. Vaswani et al., "Attention is all you need", 2017, equation 1; blocks as in Kwon et
    al., "Efficient memory management for large language model serving with PagedAttention", 2023.
    """
    groups, heads, width = qkv.shape[1], qkv.shape[2] - 2, qkv.shape[3]
    for piece, start in enumerate(starts.tolist()):
        first, last = int(rows[piece]), int(rows[piece + 1])
        seen = start + last - first
        blocks = tables[piece, : -(-seen // PAGE)]
        of_blocks = keys[:, blocks].transpose(0, 1, 2, 4, 3).reshape(groups, -1, width)[:, :seen]
        held = values[:, blocks].transpose(0, 1, 3, 2, 4).reshape(groups, len(blocks) * PAGE, -1)[:, :seen, :width]
        query = qkv[first:last, :, :heads].transpose(1, 2, 0, 3)  # [groups, heads, tokens, d]
        scores = query @ of_blocks[:, None].swapaxes(-1, -2) * qkv.dtype.type(width**-0.5)
        is_seen = np.tri(last - first, seen, start, dtype=bool)
        if window:
            is_seen &= ~np.tri(last - first, seen, start - window, dtype=bool)
        scores = np.where(is_seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        found = (weights / weights.sum(axis=-1, keepdims=True)) @ held[:, None]
        out[first:last] = found.transpose(2, 0, 1, 3).reshape(last - first, -1)
