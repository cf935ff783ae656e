"""Boundary conditions: fills for the halo beyond the walls of dims that are not periodic.

A fill gets `halo`, the layers beyond the wall, and `inside`, the owned layers. In both, layers run along the first dim
away from the wall (index 0 is next to it), with the full extent of all other dims; the fill writes `halo`. In a dim
with values on faces, `inside[0]` is the wall itself.

A function of your own with the arguments (halo, inside) is a fill too. It must treat all cells of a layer alike or by
their values, not by their position in the array: how much of a wall a rank holds depends on the decomposition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Complex, Number

import numpy as np

from hpckit.errors import InputError

__all__ = ["Fill", "antisymmetric", "as_fill", "fixed", "mirror", "zero_gradient"]


@dataclass(frozen=True)
class Fill:
    """A named fill; `apply(halo, inside, on_face)` writes the halo, and the wall itself if values sit on it."""

    name: str
    apply: Callable[[np.ndarray, np.ndarray, bool], None]
    layers_inside: int = 0  # owned layers needed beyond the halo width if values sit on faces
    value: complex | None = None  # the number it writes, if it is a constant
    signed: bool = False  # whether it changes signs

    @property
    def sets_wall(self) -> bool:
        """Whether it writes what sits on the wall itself."""
        return self.signed or self.value is not None

    def fits(self, dtype: np.dtype) -> bool:
        """Whether fields of this dtype can hold the values it writes."""
        if self.signed and dtype.kind in "ub":
            return False
        if isinstance(self.value, complex) and dtype.kind != "c":
            return False
        if self.value is None or isinstance(self.value, complex) or dtype.kind not in "iu":
            return True
        limits = np.iinfo(dtype)
        return float(self.value).is_integer() and limits.min <= self.value <= limits.max

    def __repr__(self) -> str:
        return self.name


def fixed(value: complex) -> Fill:
    """The halo holds `value` (Dirichlet), a number; on faces the wall does too."""
    if not isinstance(value, Number):
        raise InputError(f"a wall is fixed at a number, not at {value!r}", do="give a function for anything else")

    def apply(halo: np.ndarray, inside: np.ndarray, on_face: bool) -> None:
        halo[...] = value
        if on_face:
            inside[0] = value

    return Fill(f"fixed({value})", apply, value=value)


def _zero_gradient(halo: np.ndarray, inside: np.ndarray, on_face: bool) -> None:
    halo[...] = inside[0]


def _mirror(halo: np.ndarray, inside: np.ndarray, on_face: bool) -> None:
    halo[...] = inside[int(on_face) : int(on_face) + len(halo)]


def _antisymmetric(halo: np.ndarray, inside: np.ndarray, on_face: bool) -> None:
    np.negative(inside[int(on_face) : int(on_face) + len(halo)], out=halo)
    if on_face:
        inside[0] = 0


zero_gradient = Fill("zero_gradient", _zero_gradient)
"""Each halo layer repeats the layer next to the wall (Neumann)."""

mirror = Fill("mirror", _mirror, layers_inside=1)
"""The halo mirrors the inside: even about the wall, as for a scalar or the velocity along a free-slip wall."""

antisymmetric = Fill("antisymmetric", _antisymmetric, layers_inside=1, signed=True)
"""The halo mirrors the inside with the sign changed: odd about the wall, as for the velocity through it; 0 on it."""

_BY_NAME = {fill.name: fill for fill in (zero_gradient, mirror, antisymmetric)}


def as_fill(given: object) -> Fill | None:
    """A fill from the user's argument: a Fill, its name, a number (fixed), a function, or None (left unchanged)."""
    if given is None or isinstance(given, Fill):
        return given
    if isinstance(given, str) and given in _BY_NAME:
        return _BY_NAME[given]
    if isinstance(given, Complex) and not isinstance(given, bool):
        return fixed(given)  # type: ignore[arg-type]
    if given is fixed:
        raise InputError("a wall is fixed at a value", do="give fixed(0.0), or the number alone")
    if callable(given):
        function = given
        return Fill(getattr(function, "__name__", "function"), lambda halo, inside, on_face: function(halo, inside))
    raise InputError(
        f"{given!r} is not a wall fill",
        do=f"give {', '.join(_BY_NAME)}, fixed(value), a number, or a function of (halo, inside)",
    )
