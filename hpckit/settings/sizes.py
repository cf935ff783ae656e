"""Sizes as users write them."""

from __future__ import annotations

import re

from hpckit.errors import InputError

UNITS = {"": 1, "b": 1, **{f"{prefix}b": 1000**n for n, prefix in enumerate("kmgt", 1)}}
UNITS |= {f"{prefix}ib": 1024**n for n, prefix in enumerate("kmgt", 1)} | {
    prefix: 1024**n for n, prefix in enumerate("kmgt", 1)
}

MOST = 2.0**63


def parse_bytes(text: str) -> int:
    """A size as users write it: 4096, 64KiB, 1.5GB. K, M, G, T alone are powers of 1024. Raises `InputError`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in UNITS:
        raise InputError(
            f"{text!r} is not a size", do="write a number of bytes with a unit, as in 4096, 64KiB or 1.5GB"
        )
    size = float(match[1]) * UNITS[match[2].lower()]
    if size > MOST:
        raise InputError(f"{text!r} is more than any machine has", do="write a size of fewer bytes")
    return round(size)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Sizes in rising order, each once, from a list of sizes and of ranges FROM:TO:FACTOR, as 8,32KiB or 8:1MiB:4.

    A range ends at the last size that is not above TO; the factor is 2 where it is left out. Raises `InputError`.
    """
    found = set[int]()
    for part in text.split(","):
        words = part.split(":")
        ends, factor = [parse_bytes(word) for word in words[:2]], words[2] if len(words) == 3 else "2"
        if len(words) > 3:
            raise InputError(f"{part!r} is not a range of sizes", do="write FROM:TO:FACTOR, as in 8:128MiB:4")
        if not (re.fullmatch(r"\s*\d{1,9}\s*", factor) and int(factor) > 1):
            raise InputError(f"{factor!r} in {part!r} is not a factor", do="give a whole number of 2 or more")
        if ends[0] < 1 or ends[-1] < ends[0]:
            raise InputError(f"{part!r} holds no size", do="sizes are 1 byte or more, and ranges rise")
        size = ends[0]
        while size <= ends[-1]:
            found.add(size)
            size *= int(factor)
    return tuple(sorted(found))
