"""Whether a user's function of the squared distance has a form for vectors, and what is wrong where it has none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numba

from hpckit.kernels.compile import dual, vectors


def require_form(made: Any, parameters: int, types: int, derived: bool) -> None:
    """Raise `TypeError`, with what is wrong in it, for a function of (r2, p) that vectors cannot be put through.

    made: the function as `jit.compiled` gives it; types: of particles, of which more than one make the parameters
    vectors too; derived: whether the slope is needed.
    """
    isa = vectors.available()[0]
    lanes: Any = numba.float64 if isa == "scalar" else vectors.Vec("d", 8 if isa == "avx512" else 4)
    r2, p = (dual.Dual(lanes) if derived else lanes), (numba.float64 if types == 1 else lanes)
    try:
        made.compile((r2, numba.types.UniTuple(p, parameters)))
    except numba.core.errors.NumbaError as error:
        raise TypeError(_explained(str(error))) from error
    if made.nopython_signatures[-1].return_type != r2:
        raise TypeError("what it returns does not depend on r2")


def _explained(message: str) -> str:
    """What is wrong, and where, from a message of Numba."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    first = next((line for line in lines if not line.startswith("Failed in")), "it does not compile")
    unknown = re.search(r"Function\(<(?:built-in function|class|ufunc) '?(\w+)'?>\)", first)
    if unknown and unknown[1] == "bool":
        first = "an `if` (or `and`, `or`, `not`) decides on r2"
    elif unknown:
        first = f"{unknown[1]} cannot be taken of r2"
    place = re.search(r'(?:at (\S+) \((\d+)\)|File "([^"<]+)", line (\d+))', message)
    return first if place is None else f"{first} ({Path(place[1] or place[3]).name}, line {place[2] or place[4]})"
