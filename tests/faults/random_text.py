"""Texts and bytes changed at random: what bad disks, bad editors and bad people leave."""

from __future__ import annotations

import re
from random import Random

LONG = "9223372036854775808"  # one more than 64 bits hold
VALUES = (
    *("0", "-1", "1", "1e-300", "1e300", "-1e308", "1e999", "nan", "inf", "-inf", "0.1", LONG, "1" * 400),
    *('""', '"x"', "x", "true", "false", "[]", "[1]", "[[1], [2]]", "{}", "{a = 1}", "2026-01-01"),
    *("'", '"', "\\", "%s%n", "/", "../..", "/dev/null", "/etc/passwd", "~", "none", "a" * 5000),
    *("\u00e9\u4e2d\U0001f600", "\x00", "\x1b[31m"),
)
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")


def changed(random: Random, text: str) -> str:
    """One change: a number, a line, a character or the end of the text."""
    lines = text.split("\n")
    at = random.randrange(len(lines))
    kind = random.randrange(8)
    if kind <= 2:
        numbers = list(NUMBER.finditer(text))
        if numbers:
            found = random.choice(numbers)
            return text[: found.start()] + random.choice(VALUES) + text[found.end() :]
    if kind == 3:
        del lines[at]
    elif kind == 4:
        lines.insert(at, random.choice(lines))
    elif kind == 5:
        other = random.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 6:
        return text[: random.randrange(len(text) + 1)]
    else:
        place = random.randrange(len(text) + 1)
        return (
            text[:place]
            + random.choice((*VALUES, "=", "[", "]", "#", "\t", "\r", " "))
            + text[place + random.randint(0, 2) :]
        )
    return "\n".join(lines)


def changed_bytes(random: Random, data: bytes) -> bytes:
    """One change: a bit, some bytes, or the end."""
    kind, at = random.randrange(4), random.randrange(max(len(data), 1))
    if kind == 0 and data:
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + random.randbytes(random.randint(1, 16)) + data[at:]
    return data[:at] + random.randbytes(min(16, len(data) - at)) + data[at + 16 :]
