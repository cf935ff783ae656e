"""What bounds the box: which axes are periodic, what stands in the halo beyond the others, where air is relaxed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpckit.apps.weather3d.config import Config
from hpckit.grid.boundary_conditions import Fill, mirror, zero_gradient
from hpckit.kernels.euler.box.constants import RHO_U, RHO_V
from hpckit.plan.grid.decomposition import Decomposition

HORIZONTAL = ("y", "x")


def periodic_axes(config: Config) -> tuple[str, ...]:
    """The mesh axes that wrap around."""
    return tuple(axis for axis in HORIZONTAL if getattr(config.sides, axis) == "periodic")


def open_axes(config: Config) -> tuple[str, ...]:
    """The axes whose sides are open."""
    return tuple(axis for axis in HORIZONTAL if getattr(config.sides, axis) == "open")


def state_walls(config: Config) -> dict[str, Fill]:
    """What the state's halo holds beyond the sides: air mirrored at a free-slip wall, the last cell's where open."""
    return {
        axis: zero_gradient if kind == "open" else _MIRRORS[axis]
        for axis in HORIZONTAL
        if (kind := getattr(config.sides, axis)) != "periodic"
    }


def scalar_walls(config: Config) -> dict[str, Fill]:
    """The same for what the air carries."""
    return {
        axis: zero_gradient if kind == "open" else mirror
        for axis in HORIZONTAL
        if (kind := getattr(config.sides, axis)) != "periodic"
    }


def staggered_walls(config: Config) -> dict[str, tuple[Fill, Fill]]:
    """What bounds the staggered state: at a free-slip wall's face nothing passes, beyond it air is mirrored.

    Beyond an open side the last cell is repeated, and at its face what passes the last face before it.
    """
    kinds = {"walls": _staggered, "open": _staggered_open}
    return {axis: kinds[kind](axis) for axis in HORIZONTAL if (kind := getattr(config.sides, axis)) != "periodic"}


def relaxation_rates(config: Config, decomposition: Decomposition, rank: int) -> dict[str, np.ndarray]:
    """Rates of the absorbing layers (1/s) for a rank's cells by column ("x"), row ("y") and level ("z").

    Those of columns and rows are [2, n]: in the middle of cells, and where the momentum normal to the side stands. A
    rate falls from 1 / time at a side or at the lid as sin(pi/2 (1 - distance / depth))**2 to 0 in the interior.
    """
    grid, sides, lid = config.grid, config.sides, config.lid
    middles = 0.5 * (grid.edges[1:] + grid.edges[:-1])
    rates = {"z": _fade(grid.height - middles, lid.depth, lid.time)}
    for axis, count, width in (("y", grid.ny, grid.dy), ("x", grid.nx, grid.dx)):
        dim = "zyx".index(axis)
        cells = np.arange(decomposition.owned(rank)[dim]) + decomposition.start(rank)[dim]
        depth = sides.width if axis in open_axes(config) else 0.0
        middles = (np.minimum(cells, count - 1 - cells) + 0.5) * width
        faces = np.minimum(cells, count - cells) * width if config.dynamics.kind == "hevi" else middles
        rates[axis] = _fade(np.stack([middles, faces]), depth, sides.time)
    return rates


def distance(way: np.ndarray, extent: float, periodic: bool) -> np.ndarray:
    """How far it is; the shorter way around where an axis is periodic."""
    far = np.abs(way)
    return np.minimum(far, extent - far) if periodic else far


def _fade(distance: np.ndarray, depth: float, time: float) -> np.ndarray:
    if not depth:
        return np.zeros(distance.shape)
    return np.sin(np.pi / 2 * np.clip(1 - distance / depth, 0, 1)) ** 2 / time


def _mirrored(normal: int) -> Callable[[np.ndarray, np.ndarray, bool], None]:
    """All fields even about the wall but the momentum through it, which is odd: [layers, fields, …]."""

    def apply(halo: np.ndarray, inside: np.ndarray, on_face: bool) -> None:
        halo[...] = inside[: len(halo)]
        np.negative(halo[:, normal], out=halo[:, normal])

    return apply


_MIRRORS = {
    axis: Fill(f"free_slip({axis})", _mirrored(normal), signed=True) for axis, normal in (("x", RHO_U), ("y", RHO_V))
}


def _staggered_open(axis: str) -> tuple[Fill, Fill]:
    normal = RHO_U if axis == "x" else RHO_V

    def low(halo: np.ndarray, inside: np.ndarray, on_face: bool) -> None:
        inside[0, normal] = inside[1, normal]
        halo[...] = inside[0]

    def high(halo: np.ndarray, inside: np.ndarray, on_face: bool) -> None:
        halo[...] = inside[0]

    return Fill(f"staggered_open_low({axis})", low), Fill(f"staggered_open_high({axis})", high)


def _staggered(axis: str) -> tuple[Fill, Fill]:
    normal = RHO_U if axis == "x" else RHO_V

    def low(halo: np.ndarray, inside: np.ndarray, on_face: bool) -> None:
        halo[...] = inside[: len(halo)]
        some = min(len(halo), len(inside) - 1)
        halo[:some, normal] = -inside[1 : some + 1, normal]
        inside[0, normal] = 0.0

    def high(halo: np.ndarray, inside: np.ndarray, on_face: bool) -> None:
        halo[...] = inside[: len(halo)]
        halo[0, normal] = 0.0
        halo[1:, normal] = -inside[: len(halo) - 1, normal]

    return (
        Fill(f"staggered_wall_low({axis})", low, signed=True),
        Fill(f"staggered_wall_high({axis})", high, signed=True),
    )
