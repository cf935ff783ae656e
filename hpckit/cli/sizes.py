"""Sizes as users write them."""

from __future__ import annotations

import re

from hpckit.errors import InputError

UNITS = {"": 1, "b": 1, **{f"{prefix}b": 1000**n for n, prefix in enumerate("kmgt", 1)}}
UNITS |= {f"{prefix}ib": 1024**n for n, prefix in enumerate("kmgt", 1)} | {
    prefix: 1024**n for n, prefix in enumerate("kmgt", 1)
}


def parse_bytes(text: str) -> int:
    """A size as users write it: 4096, 64KiB, 1.5GB. K, M, G, T alone are powers of 1024. Raises `InputError`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in UNITS:
        raise InputError(f"{text!r} is no size", do="write a number of bytes with a unit, as in 4096, 64KiB or 1.5GB")
    return round(float(match[1]) * UNITS[match[2].lower()])
