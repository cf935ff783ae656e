"""The arithmetic of one interface, written once for slab and box: pieces that become part of their callers."""

from __future__ import annotations

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.constants import GAMMA, SERIES_RANGE


def _binomials(count: int) -> list[float]:
    """Coefficients of e, e**2, … in (1 + e)**gamma."""
    coefficients = [1.0]
    for k in range(1, count + 1):
        coefficients.append(coefficients[-1] * (GAMMA - k + 1) / k)
    return coefficients[1:]


_B1, _B2, _B3, _B4, _B5, _B6, _B7, _B8, _B9, _B10, _B11, _B12 = _binomials(12)
_TWELFTH = 1 / 12
_RANGE_SQUARED = SERIES_RANGE * SERIES_RANGE


@inlined
def twelvefold(a, b, c, d):
    """Twelve times the value at the interface between b and c, fourth order, from the means of four cells.

    The twelfth is taken where a factor is there anyway: a product less for each field.
    """
    return 7.0 * (b + c) - (a + d)


@inlined
def third_difference(a, b, c, d):
    """What the hyperviscosity acts on."""
    return 3.0 * (b - c) + (d - a)


@inlined
def outside(e):
    """1 where the series of the pressure does not hold, and for nan; 0 elsewhere."""
    return 0 if e * e <= _RANGE_SQUARED else 1


@inlined
def power(e, exact):
    """(1 + e)**gamma - 1, without cancellation.

    A series of degree 12 in Estrin's form, good to 2e-14 of its value for |e| <= SERIES_RANGE: no call, so the loop
    around it is vectorized. With `exact` (a constant) arguments outside that range take pow, all others the same
    series.
    """
    e2 = e * e
    e4 = e2 * e2
    low = (_B1 + _B2 * e) + (_B3 + _B4 * e) * e2
    middle = (_B5 + _B6 * e) + (_B7 + _B8 * e) * e2
    high = (_B9 + _B10 * e) + (_B11 + _B12 * e) * e2
    value = e * (low + e4 * (middle + e4 * high))
    if exact and not e2 <= _RANGE_SQUARED:
        value = (1.0 + e) ** GAMMA - 1.0
    return value


@inlined
def crossing(cells, a, b, c, d, normal, heat, rho_12, per_rho_theta_12, scale, exact):
    """What crosses one interface: `scale` times the velocity, the pressure's excess p'/p of the base, and `outside`.

    cells: all fields, flat. a, b, c, d: where the rho' of the four neighbors stand; normal, heat: the distance from
    there to the momentum across and to (rho theta)'. rho_12, per_rho_theta_12: 12 rho and 1 / (12 rho theta) of the
    base state. scale: 0 at a wall.
    """
    density = twelvefold(cells[a], cells[b], cells[c], cells[d]) + rho_12
    across = twelvefold(cells[a + normal], cells[b + normal], cells[c + normal], cells[d + normal])
    e = twelvefold(cells[a + heat], cells[b + heat], cells[c + heat], cells[d + heat]) * per_rho_theta_12
    return scale * across / density, power(e, exact), outside(e)


@inlined
def flux_of(cells, a, b, c, d, velocity, base_12, nu):
    """Flux at one interface of a density (whose base is base_12 / 12), with a twelfth of the velocity across."""
    third = third_difference(cells[a], cells[b], cells[c], cells[d])
    return (twelvefold(cells[a], cells[b], cells[c], cells[d]) + base_12) * velocity + nu * third


@inlined
def carried(cells, a, b, c, d, velocity, nu, nu_shear):
    """Flux at one interface of what the flow merely carries: momentum along the interface, or a tracer.

    cells: all fields, flat. a, b, c, d: where the four neighbors stand. velocity: as `fluxes` returns it. nu: the
    hyperviscosity. nu_shear: its flux of the base's part.
    """
    return flux_of(cells, a, b, c, d, velocity, 0.0, nu) - nu_shear


@inlined
def fluxes(cells, a, b, c, d, normal, heat, rho, rho_theta, per_rho_theta, pressure, nu, gate, exact):
    """Fluxes of rho, the momentum across and rho theta at one interface, a twelfth of the velocity, and `outside`.

    cells: all fields, flat. a, b, c, d: where the rho' of the four neighbors stand; normal, heat: the distance from
    there to the momentum across and to (rho theta)'. rho, rho_theta, per_rho_theta (its inverse), pressure: the base
    state. nu: the hyperviscosity. gate: 0 at a wall, 1 elsewhere.
    """
    velocity, excess, out = crossing(
        cells, a, b, c, d, normal, heat, 12.0 * rho, _TWELFTH * per_rho_theta, _TWELFTH * gate, exact
    )
    f_rho = flux_of(cells, a, b, c, d, velocity, 12.0 * rho, gate * nu)
    f_normal = flux_of(cells, a + normal, b + normal, c + normal, d + normal, velocity, 0.0, nu)
    f_heat = flux_of(cells, a + heat, b + heat, c + heat, d + heat, velocity, 12.0 * rho_theta, nu)
    return f_rho, f_normal + pressure * excess, f_heat, velocity, out
