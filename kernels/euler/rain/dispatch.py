"""Chooses the form of warm rain by the arrays it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.euler.constants import REACH
from hpckit.kernels.euler.hevi.constants import HALO
from hpckit.kernels.forms import double_form_for

WITHIN = 512 << 10  # bytes


def total(carried: Any, kinds: int, out: Any) -> None:
    """The sum of the first so many mixing ratios; see `reference.total`."""
    nz, tall, wide = carried.shape[1:]
    beyond = 2 * (HALO - REACH)
    if out.shape != (nz, tall + beyond, wide + beyond) or not 2 <= kinds <= len(carried):
        raise ValueError(f"{kinds} of the mixing ratios {carried.shape} have no sum of {out.shape}")
    double_form_for(__package__, carried, out).total(carried, kinds, out)


def rain(
    state: Any, column: Any, size: Any, carried: Any, air: Any, water: Any, thickness: Any, dt: float, rained: Any
) -> None:
    """Air, Kessler's rain over dt and what became of both, in one pass; see `reference.rain`.

    air, water: room for some rows of owned cells, on a GPU for all; what is in few rows stays in the cache.
    """
    form = double_form_for(__package__, state, column, size, carried, air, water, thickness, rained)
    (nz, few, nx), ny = air.shape[1:], len(rained)
    _check_owned(air, water, state, carried, column, size, ny)
    least = ny if is_device_array(state) else 1
    if thickness.shape not in ((nz,), (nz, ny, nx)) or rained.shape != (ny, nx) or few < least:
        raise ValueError(f"thickness {thickness.shape} and rained {rained.shape} do not fit air of {air.shape}")
    form.rain(state, by_cell(column, 2), by_cell(size, 1), carried, air, water, by_cell(thickness, 1), dt, rained)


def rows_at_once(levels: int, columns: int) -> int:
    """Of how many rows air and water stay in the second-level cache while it rains."""
    return max(1, WITHIN // (8 * (4 + 3) * levels * columns))


def air_of(state: Any, column: Any, size: Any, carried: Any, air: Any, water: Any) -> None:
    """The air and the water of the owned cells; see `reference.air_of`."""
    form = double_form_for(__package__, state, column, size, carried, air, water)
    _check_owned(air, water, state, carried, column, size)
    form.air_of(state, by_cell(column, 2), by_cell(size, 1), carried, air, water)


def put_back(air: Any, water: Any, column: Any, size: Any, state: Any, carried: Any) -> None:
    """Into state and mixing ratios what became of them; see `reference.put_back`."""
    form = double_form_for(__package__, air, water, column, size, state, carried)
    _check_owned(air, water, state, carried, column, size)
    form.put_back(air, water, by_cell(column, 2), by_cell(size, 1), state, carried)


def kessler(
    theta: Any, water: Any, rho: Any, exner: Any, pressure: Any, thickness: Any, dt: float, rained: Any
) -> None:
    """Rain over dt in place; see `reference.kessler`."""
    form = double_form_for(__package__, theta, water, rho, exner, pressure, thickness, rained)
    _check(theta, water, rho, exner, pressure)
    if thickness.shape not in (theta.shape[:1], theta.shape) or rained.shape != theta.shape[1:]:
        raise ValueError(f"thickness is {theta.shape[:1]} and rained {theta.shape[1:]} for cells of {theta.shape}")
    form.kessler(theta, water, rho, exner, pressure, by_cell(thickness, 1), dt, rained)


def saturate(theta: Any, water: Any, exner: Any, pressure: Any) -> None:
    """Saturation adjustment in place; see `reference.saturate`."""
    form = double_form_for(__package__, theta, water, exner, pressure)
    _check(theta, water, exner, pressure)
    form.saturate(theta, water, exner, pressure)


def compress(
    state: Any,
    start: Any,
    carried: Any,
    column: Any,
    levels: Any,
    flux_x: Any,
    flux_y: Any,
    flux_z: Any,
    spacing: tuple[float, float],
    dt: float,
) -> None:
    """What water changes in the heating by compression, in place; see `reference.compress`."""
    form = double_form_for(__package__, state, start, carried, column, levels, flux_x, flux_y, flux_z)
    nz, ny, nx = state.shape[1], *(n - 2 * HALO for n in state.shape[2:])
    faces = flux_x.shape, flux_y.shape, flux_z.shape
    if faces != ((nz, ny, nx + 1), (nz, ny + 1, nx), (nz + 1, ny, nx)) or start.shape != state.shape:
        raise ValueError(f"a state of {state.shape} cannot have fluxes of {faces} from {start.shape}")
    form.compress(state, start, carried, column, levels, flux_x, flux_y, flux_z, spacing, dt)


def condense(theta: Any, water: Any, rho: Any, exner: Any, pressure: Any) -> None:
    """Condensation at constant volume, in place; see `reference.condense`."""
    form = double_form_for(__package__, theta, water, rho, exner, pressure)
    _check(theta, water, rho, exner, pressure)
    form.condense(theta, water, rho, exner, pressure)


def by_cell(rows: Any, dims: int) -> Any:
    """Rows of levels, of so many dims, as one cell a level: all compiled forms take rows by cell."""
    return rows.reshape((*rows.shape, 1, 1)) if rows.ndim == dims else rows


def _check_owned(
    air: Any, water: Any, state: Any, carried: Any, column: Any, size: Any, rows: int | None = None
) -> None:
    """rows: of the owned cells, where air and water have fewer."""
    nz, ny, nx = air.shape[1], rows or air.shape[2], air.shape[3]
    around = [(nz, ny + 2 * width, nx + 2 * width) for width in (HALO, REACH)]
    if water.shape[1:] != air.shape[1:] or state.shape[1:] != around[0] or carried.shape[1:] != around[1]:
        raise ValueError(f"air of {air.shape[1:]} has water of {water.shape}, state {state.shape}, {carried.shape}")
    if (column.shape, size.shape) not in (((3, nz), (nz,)), ((3, *around[0]), around[0])):
        raise ValueError(f"a base state of {column.shape} and sizes of {size.shape} do not fit a state {state.shape}")


def _check(theta: Any, water: Any, *others: Any) -> None:
    if water.shape != (3, *theta.shape) or any(each.shape != theta.shape for each in others):
        raise ValueError(f"cells of {theta.shape} need water of {(3, *theta.shape)} and other fields like theta")
