"""The arithmetic of one interface, written once for slab and box: pieces that become part of their callers."""

from __future__ import annotations

from hpckit.kernels.euler2d.constants import GAMMA, SERIES_RANGE
from hpckit.kernels.jit import inlined


def _binomials(count: int) -> list[float]:
    """Coefficients of e, e**2, … in (1 + e)**gamma."""
    coefficients = [1.0]
    for k in range(1, count + 1):
        coefficients.append(coefficients[-1] * (GAMMA - k + 1) / k)
    return coefficients[1:]


_B1, _B2, _B3, _B4, _B5, _B6, _B7, _B8, _B9, _B10, _B11, _B12 = _binomials(12)
_NEAR, _FAR = 7 / 12, 1 / 12
_RANGE_SQUARED = SERIES_RANGE * SERIES_RANGE


@inlined
def interpolate(a, b, c, d):
    """The value at the interface between b and c, fourth order, from the means of four cells."""
    return _NEAR * (b + c) - _FAR * (a + d)


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
def carried(cells, a, b, c, d, velocity, nu, nu_shear):
    """Flux at one interface of what the flow merely carries: momentum along the interface, or a tracer.

    cells: all fields, flat. a, b, c, d: where the four neighbors stand. velocity: across the interface. nu: the
    hyperviscosity. nu_shear: its flux of the base's part.
    """
    third = third_difference(cells[a], cells[b], cells[c], cells[d])
    return interpolate(cells[a], cells[b], cells[c], cells[d]) * velocity + nu * third - nu_shear


@inlined
def fluxes(cells, a, b, c, d, normal, heat, rho, rho_theta, per_rho_theta, pressure, nu, gate, exact):
    """Fluxes of rho, the momentum across and rho theta at one interface, the velocity across it, and `outside`.

    cells: all fields, flat. a, b, c, d: where the rho' of the four neighbors stand; normal, heat: the distance from
    there to the momentum across and to (rho theta)'. rho, rho_theta, per_rho_theta (its inverse), pressure: the base
    state. nu: the hyperviscosity. gate: 0 at a wall, 1 elsewhere.
    """
    density = interpolate(cells[a], cells[b], cells[c], cells[d])
    d_density = third_difference(cells[a], cells[b], cells[c], cells[d])
    across = gate * interpolate(cells[a + normal], cells[b + normal], cells[c + normal], cells[d + normal])
    d_across = third_difference(cells[a + normal], cells[b + normal], cells[c + normal], cells[d + normal])
    warmth = interpolate(cells[a + heat], cells[b + heat], cells[c + heat], cells[d + heat])
    d_warmth = third_difference(cells[a + heat], cells[b + heat], cells[c + heat], cells[d + heat])
    velocity = across / (density + rho)
    e = warmth * per_rho_theta
    return (
        across + gate * nu * d_density,
        across * velocity + pressure * power(e, exact) + nu * d_across,
        (warmth + rho_theta) * velocity + nu * d_warmth,
        velocity,
        outside(e),
    )
