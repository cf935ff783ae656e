"""Tokens and classes: integers, wherever they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import is_device_array


def whole_numbers(values: Any, what: str) -> Any:
    """Integers of the host as contiguous int64, those of a GPU as they are. Raises `InputError` for other numbers."""
    on_device = is_device_array(values)
    given = values if on_device else np.asarray(values)
    if given.dtype.kind not in "iu":
        raise InputError(f"{what} are integers, not {given.dtype}", do=f"give {what}.astype(np.int64)")
    return given if on_device else np.ascontiguousarray(given, np.int64)
