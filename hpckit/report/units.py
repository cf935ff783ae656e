"""Numbers as people read them."""

from __future__ import annotations

import math
import re
from typing import Any

MINUS = "\u2212"
POWERS = str.maketrans("-/0123456789", "\u207b\u141f\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
LETTERS = {"epsilon": "\u03b5", "sigma": "\u03c3", "tau": "\u03c4", "Angstrom": "\u00c5", "angstrom": "\u00c5"}
COARSER = {"fs": "ps", "ps": "ns"}  # units a thousand times as long


def pretty(unit: str) -> str:
    """A unit with its powers raised and its letters as symbols: m s-1 as m s⁻¹, epsilon/sigma3 as ε/σ³; '' for none.

    A power may be a fraction, as in s m-1/3.
    """
    if unit in ("", "1"):
        return ""
    unit = re.sub(r"[a-z]+", lambda word: LETTERS.get(word.group(), word.group()), unit)
    return re.sub(r"(?<=[^\W\d])-?\d+(/\d+)?", lambda power: power.group().translate(POWERS), unit)


def with_units(name: str, unit: str) -> str:
    """A name with its unit behind it, where it has one: `wind along x (m s⁻¹)`."""
    return f"{name} ({pretty(unit)})" if pretty(unit) else name


def number(value: Any, digits: int = 4) -> str:
    """A number with `digits` significant digits, a true minus sign and narrow unbreakable spaces between thousands."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "\u2013" if value is None else str(value)
    if not math.isfinite(value):
        return str(value)
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e6):
        text = f"{int(value):,}"
    elif value != 0 and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.{max(0, digits - 1)}e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
        text = f"{value:,.{places}f}"
    return _typeset(text)


def few_ticks(axis: Any) -> None:
    """Numbers as plain text at 1, 2 and 5 of each decade of a logarithmic axis of matplotlib, at 1 alone where it has
    more than two decades; none at others, which would cover each other.
    """

    def text(value: float, _: object = None) -> str:
        low, high = sorted(axis.get_view_interval())
        return number(value, 1) if f"{value:e}"[0] in ("1" if high > 100 * low else "125") else ""

    axis.set_major_formatter(text)
    axis.set_minor_formatter(text)


def power_of_ten(value: float, _: int = 0) -> str:
    """A tick of a logarithmic axis, its exponent in raised digits of full size: 10⁻³."""
    mantissa, exponent = f"{value:.2e}".split("e")
    power = "10" + str(int(exponent)).translate(POWERS)
    return power if float(mantissa) == 1 else f"{float(mantissa):g}\u00d7{power}"


def signs(text: str) -> str:
    """Numbers in a text with true minus signs, and exponents without a zero before them: 1e-09 as 1e-9."""
    return re.sub(r"(?<=\d)e-0?", f"e{MINUS}", re.sub(r"(?<!\w)-(?=\d)", MINUS, text))


def _typeset(text: str) -> str:
    return text.replace(",", "\u202f").replace("-", MINUS)


def with_error(value: float, error: float, digits: int = 4) -> tuple[str, str]:
    """A value rounded to two digits of its error: 94.87 and 0.36; without an error to `digits` digits, and ''."""
    if not (math.isfinite(error) and error > 0):
        return number(value, digits), ""
    last = math.floor(math.log10(float(f"{error:.1e}"))) - 1
    size = max(abs(value), error)
    if not 1e-3 <= size < 1e6:
        return number(value, max(1, math.floor(math.log10(size)) - last + 1)), number(error, 2)
    places = max(0, -last)
    return _typeset(f"{round(value, -last) + 0.0:,.{places}f}"), _typeset(f"{round(error, -last):,.{places}f}")


def counted(count: int, thing: str) -> str:
    """1 rank, 2 ranks."""
    return f"{count} {thing}" + "s" * (count != 1)


def scaled(value: float, unit: str) -> str:
    """A rate or size with k, M, G: `12.3 M cell-steps/s`."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{number(value / factor, 3)}\u202f{prefix} {unit}".rstrip()
    return f"{number(value, 3)} {unit}".rstrip()


def percent(share: float) -> str:
    """A share of one as a percentage."""
    return f"{100 * share:.1f}\u202f%".replace("-", MINUS)


def duration(seconds: float) -> str:
    """Seconds in the units that suit their size."""
    if seconds < 1:
        return f"{number(1e3 * seconds, 3)} ms"
    if seconds < 120:
        return f"{number(seconds, 3)} s"
    if seconds >= 3 * 86400:
        return f"{number(seconds / 86400, 3)} days"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min" if minutes else f"{hours} h"
    return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"


def moment(time: float, end: float, unit: str = "s") -> str:
    """A simulated time in the unit that suits a run until `end`, both in `unit`: 3 min 20 s."""
    scale, unit = time_scale(end, unit)
    if unit == "min":
        minutes, rest = divmod(round(time), 60)
        if rest and not minutes:
            return f"{rest} s"
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    return f"{number(time / scale, 3)} {unit}".rstrip()


def time_scale(end: float, unit: str = "s") -> tuple[float, str]:
    """The divisor of times in `unit` for axes up to `end`, and the resulting unit."""
    if unit in COARSER and end >= 1e4:
        return 1e3, COARSER[unit]
    if unit != "s":
        return 1.0, pretty(unit)
    if end >= 3 * 86400:
        return 86400.0, "days"
    if end >= 3 * 3600:
        return 3600.0, "h"
    if end >= 300:
        return 60.0, "min"
    return 1.0, "s"


def length_scale(extent: float, unit: str) -> tuple[float, str]:
    """Meters become kilometers from 2 km on; other units stay."""
    return (1000.0, "km") if unit == "m" and abs(extent) >= 2000 * (1 - 1e-9) else (1.0, "" if unit == "1" else unit)


def scaled_place(value: float, unit: str, extent: float | None = None) -> str:
    """A coordinate for people: 10.25 km; in the unit of an axis that reaches to `extent`, if given."""
    scale, name = length_scale(value if extent is None else extent, unit)
    return f"{number(value / scale)} {name}".strip()
