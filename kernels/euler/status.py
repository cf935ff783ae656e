"""The status of sweeps, int32[2] on the device of the state: the sum of what they have seen, and the number of the
first time step in which a value was not finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import from_host, to_host
from hpckit.kernels.euler.constants import NOT_FINITE

NEVER = np.iinfo(np.int32).max


def new_status(like: Any) -> Any:
    """A status of which no sweep has seen anything, on the device of an array."""
    return from_host(np.array([0, NEVER], np.int32), like)


def read_status(status: Any) -> tuple[int, int | None]:
    """The sum of OUT_OF_RANGE and NOT_FINITE, and the first step that had NOT_FINITE; waits for the device."""
    seen, step = (int(value) for value in to_host(status))
    return seen, None if step == NEVER else step


def note(status: np.ndarray, seen: int, step: int) -> None:
    """Add what the sweep of a time step has seen."""
    status[0] |= seen
    if seen & NOT_FINITE:
        status[1] = min(status[1], step)
