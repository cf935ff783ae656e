"""Chooses the form of paged attention by the arrays it is given, and checks what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.forms import form_for
from hpckit.kernels.nn.paged.pages import page_shapes

FLOAT32, FLOAT64 = (3 * (np.dtype(name),) for name in ("float32", "float64"))


def _check(qkv: Any, keys: Any, values: Any) -> None:
    groups, blocks, _, width, panel = keys.shape
    if page_shapes(groups, blocks, width, panel) != (keys.shape, values.shape):
        raise ValueError(f"keys {list(keys.shape)} and values {list(values.shape)} are not of the same blocks")
    if qkv.ndim != 4 or qkv.shape[1] != groups or qkv.shape[2] < 3 or qkv.shape[3] != width:
        raise ValueError(f"{groups} groups of width {width} do not fit queries, keys and values {list(qkv.shape)}")
    given = qkv.dtype, keys.dtype, values.dtype
    if given != FLOAT32 and not (given == FLOAT64 and is_device_array(qkv)):
        raise ValueError(f"paged attention takes float32, on a GPU also float64, not {', '.join(map(str, given))}")


def keep(qkv: Any, keys: Any, values: Any, positions: Any, slots: Any, cosines: Any, sines: Any) -> None:
    """See `reference.keep`. Raises `ValueError` for arrays that do not fit."""
    _check(qkv, keys, values)
    form_for(__package__, qkv).keep(qkv, keys, values, positions, slots, cosines, sines)


def attend(qkv: Any, keys: Any, values: Any, rows: Any, starts: Any, tables: Any, window: int, out: Any) -> None:
    """See `reference.attend`. Raises `ValueError` for arrays that do not fit."""
    _check(qkv, keys, values)
    if out.shape != (len(qkv), qkv.shape[1] * (qkv.shape[2] - 2) * qkv.shape[3]) or len(rows) != len(starts) + 1:
        raise ValueError(f"{list(qkv.shape)} in {len(starts)} pieces does not go to {list(out.shape)}")
    form_for(__package__, qkv).attend(qkv, keys, values, rows, starts, tables, window, out)
