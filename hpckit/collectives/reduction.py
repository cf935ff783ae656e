"""How the numbers of a collective are combined: operations, and the precision in which they are added."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.errors import InputError, did_you_mean

UFUNCS = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "mean": np.add, "average": np.add,
}  # fmt: skip
BFLOAT16 = "bfloat16"


@functools.lru_cache(maxsize=256)
def reduction_of(dtype: np.dtype, op: str, weight: float | None = None, kind: str | None = None) -> Reduction:
    """The `Reduction` of these arguments, made once."""
    return Reduction(dtype, op, weight, kind)


class Reduction:
    """One operation on numbers of one dtype.

    op: "sum", "prod", "max", "min", "mean" (the sum over the number of ranks), or "average", sum(w x) / sum(w) with the
    `weight` w of each rank. float16 and bfloat16 are widened to float32, combined, and rounded once at the end;
    bfloat16 is a dtype of ml_dtypes, or uint16 with kind="bfloat16". max and min are nan where any number is. Raises
    `InputError` for what cannot be combined.
    """

    def __init__(self, dtype: np.dtype, op: str, weight: float | None = None, kind: str | None = None) -> None:
        if op not in UFUNCS:
            raise InputError(
                f"there is no operation {op!r}", do=did_you_mean(op, UFUNCS, f"choose {', '.join(UFUNCS)}")
            )
        self.op, self.dtype = op, dtype
        self.ufunc = UFUNCS[op]
        self.is_brain = dtype.name == BFLOAT16 or kind == BFLOAT16
        self.weight = _checked_weight(op, weight)
        self._check(kind)
        self.working = np.dtype(np.float32) if self.is_brain or dtype == np.float16 else dtype

    def _check(self, kind: str | None) -> None:
        if kind not in (None, BFLOAT16):
            raise InputError(f"kind is {BFLOAT16!r} or left out, not {kind!r}")
        if kind == BFLOAT16 and not (self.dtype.name == BFLOAT16 or self.dtype == np.uint16):
            raise InputError(f"bfloat16 is given as uint16, or as ml_dtypes.bfloat16, not as {self.dtype}")
        if self.is_brain:
            return
        letter = self.dtype.kind
        if letter == "b" and self.op in ("max", "min"):
            return
        if letter not in "fciu":
            raise InputError(f"{self.op} of {self.dtype} means nothing", do="give numbers: float, complex or integers")
        if self.op in ("mean", "average") and letter not in "fc":
            raise InputError(
                f"the {self.op} of {self.dtype} is not {self.dtype}", do="give a buffer of floats, or take the sum"
            )
        if self.op in ("max", "min") and letter == "c":
            raise InputError(f"complex numbers have no order, so no {self.op}")

    def for_node(self) -> dict[str, Any]:
        """The same for a call in shared memory."""
        brain = self.is_brain and self.dtype == np.uint16
        return {"op": self.op, "weight": self.weight, "kind": BFLOAT16 if brain else None}

    def combine(self, target: Any, incoming: Any) -> None:
        """Combine in place: target = target (op) incoming."""
        self.ufunc(target, incoming, out=target)

    def widened(self, values: Any) -> Any:
        """The values in the precision in which they are combined: themselves, or a copy."""
        if self.is_brain:
            return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return values if self.working == self.dtype else values.astype(self.working)

    def narrow(self, working: Any, values: Any) -> None:
        """Round to the nearest (ties to even) and store; nothing to do where nothing was widened."""
        if self.is_brain:
            bits = working.view(np.uint32)
            rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
            quiet = (bits >> 16) | np.uint32(0x40)  # rounding could turn a nan into inf
            values.view(np.uint16)[...] = np.where(np.isnan(working), quiet, rounded).astype(np.uint16)
        elif self.working != self.dtype:
            with np.errstate(over="ignore"):  # inf, as of any sum that is too large
                values[...] = working.astype(self.dtype)

    def weighed(self, working: Any, weight: float, in_place: bool = True) -> Any:
        """The numbers times a rank's weight, for an average; as they are for other operations."""
        if self.op != "average":
            return working
        return np.multiply(working, working.dtype.type(weight), out=working if in_place else None)

    def own(self, values: Any, keep: bool) -> Any:
        """What this rank puts in, widened and weighed; in memory of its own if the values must be kept."""
        working = self.widened(values)
        fresh = working is not values
        if keep and not fresh and self.op != "average":
            return working.copy()
        return self.weighed(working, self.weight, in_place=fresh or not keep)

    def finish(self, working: Any, weights: np.ndarray) -> None:
        """Divide, for mean and average, by the number of the weights or by their sum. Raises `InputError` for 0."""
        if self.op == "mean":
            np.divide(working, working.dtype.type(len(weights)), out=working)
        elif self.op == "average":
            total = sum(weights.tolist())
            if total == 0:
                raise InputError("the weights of all ranks are 0, so there is no average")
            np.divide(working, working.dtype.type(total), out=working)


def _checked_weight(op: str, weight: float | None) -> float:
    if op != "average":
        if weight is not None:
            raise InputError(f"a weight belongs to the operation 'average', not to {op!r}")
        return 1.0
    if weight is None or isinstance(weight, complex) or not math.isfinite(weight) or weight < 0:
        raise InputError(f"an average needs the weight of this rank, a finite number of 0 or more, not {weight!r}")
    return float(weight)
