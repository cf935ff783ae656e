"""Chooses the form of the tile by the arrays it is given, and checks what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.forms import form_for
from hpckit.kernels.nn.tile.packed import KINDS, Packed, kind_of

SUMS = {kind: np.dtype(it.sums) for kind, it in KINDS.items()}


def pack(weight: Any, kind: str = "", out: Any = None) -> Packed:
    """See `reference.pack`; the kind is the dtype of the weight if none is given. Raises `ValueError` for what does
    not fit.
    """
    if weight.ndim != 2 or weight.dtype.name not in ("float32", "float64"):
        raise ValueError(f"a weight to pack is float32 or float64 [K, N], not {weight.dtype.name}{list(weight.shape)}")
    kind_of(kind or weight.dtype.name)
    return form_for(__package__, weight).pack(weight, kind or weight.dtype.name, out)


def pack_gguf(data: np.ndarray, kind: str) -> Packed:
    """See `reference.pack_gguf`. Raises `ValueError` for other blocks."""
    return form_for(__package__, data).pack_gguf(data, kind)


def multiply(a: Any, weight: Packed, out: Any, add: bool = False, bounds: np.ndarray | None = None) -> None:
    """See `reference.multiply`. Raises `ValueError` for what does not fit."""
    sums = SUMS[weight.kind]
    if a.ndim != 2 or a.shape[1] != weight.inputs or out.shape != (a.shape[0], weight.outputs):
        raise ValueError(
            f"{list(a.shape)} times a weight [{weight.inputs}, {weight.outputs}] does not go to {list(out.shape)}"
        )
    if a.dtype != sums or out.dtype != sums:
        raise ValueError(f"a weight of {weight.kind} takes rows and sums of {sums}, not {a.dtype} and {out.dtype}")
    if bounds is not None:
        ends = np.asarray(bounds)
        if ends.ndim != 1 or len(ends) < 2 or ends[0] != 0 or ends[-1] != weight.inputs or (np.diff(ends) < 0).any():
            raise ValueError(f"bounds of parts go up from 0 to {weight.inputs}, not {ends.tolist()}")
    form_for(__package__, weight.panels).multiply(a, weight, out, add, bounds)
