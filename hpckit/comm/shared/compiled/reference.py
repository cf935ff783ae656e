"""The reduction of shared-memory collectives, NumPy: definition and test oracle of the compiled form.

Parts are combined in the order of the ranks, ((x0 + x1) + x2) + ..., element by element, so a result depends neither
on the rank that computes it nor on how the buffer is cut. float16 and bfloat16 are widened to float32 and rounded once,
at the end, to the nearest, ties to even. Integers wrap. A nan in any part gives a nan, also in max and min.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpckit.comm.shared.compiled.constants import FLOATS, KINDS, OPS


def check(kind: str, op: str) -> None:
    """Raise `TypeError` unless the operation can reduce numbers of this kind."""
    if kind not in KINDS:
        raise TypeError(f"cannot reduce {kind}; the kinds are {', '.join(KINDS)}")
    if op not in OPS:
        raise TypeError(f"unknown reduction {op!r}; the reductions are {', '.join(OPS)}")
    if op in ("mean", "average") and kind not in FLOATS:
        raise TypeError(f"the {op} of {kind} numbers is not of kind {kind}: use sum, or a buffer of floats")


def widen(values: np.ndarray, kind: str) -> np.ndarray:
    """The values in the kind of the accumulator; bfloat16 is represented by its bits, uint16."""
    if kind == "bfloat16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32) if kind == "float16" else values


def narrow(values: np.ndarray, kind: str) -> np.ndarray:
    """Accumulated values rounded to the kind of the buffers."""
    if kind == "bfloat16":
        bits = values.view(np.uint32)
        rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
        return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)
    with np.errstate(over="ignore"):
        return values.astype(np.float16) if kind == "float16" else values


def fold(parts: Sequence[np.ndarray], op: str, factors: Sequence[float] | None = None, kind: str = "") -> np.ndarray:
    """The reduction of the arrays of all ranks, each [count]; `factors` of "average" are weight over sum of weights.

    kind: "bfloat16" for arrays of its bits (uint16), by default the name of the dtype. Raises `TypeError`.
    """
    kind = kind or parts[0].dtype.name
    check(kind, op)
    wide = [widen(part, kind) for part in parts]
    with np.errstate(all="ignore"):
        if op == "average" and factors is not None:
            wide = [x * x.dtype.type(factor) for x, factor in zip(wide, factors, strict=True)]
        total = wide[0]
        combine = {"max": np.maximum, "min": np.minimum, "prod": np.multiply}.get(op, np.add)
        for x in wide[1:]:
            total = combine(total, x)
        if op == "mean":
            total = total / total.dtype.type(len(parts))
    return narrow(total, kind)
