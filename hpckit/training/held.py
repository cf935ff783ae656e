"""The memory of arrays in nested values, such as those that layers keep for their backward passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpckit.kernels.device_array import address


def held_bytes(values: Any) -> int:
    """Bytes of all arrays in nested lists, tuples and dicts; memory shared by several arrays counts once."""
    parts = sorted({(address(array), array.nbytes) for array in _arrays(values) if array.nbytes})
    total = end = 0
    for start, nbytes in parts:
        total += max(0, start + nbytes - max(start, end))
        end = max(end, start + nbytes)
    return total


def _arrays(values: Any) -> Iterator[Any]:
    if isinstance(values, dict):
        values = values.values()
    elif hasattr(values, "nbytes"):
        yield values
        return
    elif not isinstance(values, list | tuple):
        return
    for value in values:
        yield from _arrays(value)
