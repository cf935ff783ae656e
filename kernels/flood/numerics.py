"""The arithmetic of one point, written once: pieces that become part of their callers.

Nothing here is contracted (STRICT), and every formula is odd or even under a mirror: a start that is symmetric stays
so to the bit, and no water passes a wall.
"""

from __future__ import annotations

import math

from hpckit.kernels.compile.jit import STRICT, inlined
from hpckit.kernels.flood.constants import STILL


@inlined(math=STRICT)
def greater(a, b):
    """max(a, b), as one instruction."""
    return a if a > b else b


@inlined(math=STRICT)
def lesser(a, b):
    """min(a, b), as one instruction."""
    return a if a < b else b


@inlined(math=STRICT)
def half_slope(low, middle, high):
    """Half the difference over a cell by the monotonized central limiter (van Leer 1977, J. Comput. Phys. 23, 276).

    The values at both faces, middle -+ half_slope, lie between those of the cells on either side.
    """
    below, above = middle - low, high - middle
    size = lesser(0.25 * abs(below + above), lesser(abs(below), abs(above)))
    size = size if below > 0.0 else -size
    return size if below * above > 0.0 else 0.0


@inlined(math=STRICT)
def per_depth(h, dry):
    """What a momentum is multiplied by to give its velocity: 1/h, which fades to 0 where h is below `dry`, 1/m.

    Kurganov and Petrova (2007, Commun. Math. Sci. 5, 133-160), with squares for their fourth powers.
    """
    return 2.0 * h / (h * h + greater(h * h, dry * dry))


@inlined(math=STRICT)
def face_flux(h_l, level_l, u_l, v_l, h_r, level_r, u_r, v_r, gravity):
    """Fluxes through a face from the values on both its sides (l, r): depth h, level of the surface, velocities.

    u is the velocity across the face, v along it. Returns mass flux, the flux of momentum across less the hydrostatic
    pressure of the left and of the right side, flux of momentum along, and the greatest speed of a wave. At rest the
    first four are 0 to the bit.

    Hydrostatic reconstruction (Audusse et al. 2004, SIAM J. Sci. Comput. 25, 2050-2065, eq. 2.9 and 2.10): both sides
    stand on the higher of the two bottoms. HLL with the wave speeds of two rarefactions, also beside dry ground (Toro
    2001, Shock-Capturing Methods for Free-Surface Shallow Flows, ch. 10); the momentum along goes with the mass.
    """
    bottom = greater(level_l - h_l, level_r - h_r)
    h_l, h_r = greater(level_l - bottom, 0.0), greater(level_r - bottom, 0.0)
    c_l, c_r = math.sqrt(gravity * h_l), math.sqrt(gravity * h_r)
    u_mid, c_mid = 0.5 * (u_l + u_r) + (c_l - c_r), 0.5 * (c_l + c_r) + 0.25 * (u_l - u_r)
    slow, fast = lesser(u_l - c_l, u_mid - c_mid), greater(u_r + c_r, u_mid + c_mid)
    slow = slow if h_l > 0.0 else u_r - 2.0 * c_r
    fast = fast if h_l > 0.0 else u_r + c_r
    slow = slow if h_r > 0.0 else u_l - c_l
    fast = fast if h_r > 0.0 else u_l + 2.0 * c_l
    slow, fast = lesser(slow, 0.0), greater(fast, 0.0)
    span = fast - slow
    per_span = 1.0 / (span if span > STILL else 1.0)
    of_l, of_r, mixing = fast * per_span, -slow * per_span, (fast * -slow) * per_span
    q_l, q_r = h_l * u_l, h_r * u_r
    mass = (of_l * q_l + of_r * q_r) - mixing * (h_r - h_l)
    across = (of_l * (q_l * u_l) + of_r * (q_r * u_r)) - mixing * (q_r - q_l)
    pressure = (0.5 * gravity) * ((h_r - h_l) * (h_r + h_l))
    along = mass * (v_l if mass > 0.0 else v_r)
    return mass, across + of_r * pressure, across - of_l * pressure, along, greater(fast, -slow)


@inlined(math=STRICT)
def push(h, half_level, gravity):
    """What the slope of the surface of a cell adds to the flux of momentum through it, m3/s2."""
    return 2.0 * gravity * h * half_level


@inlined(math=STRICT)
def rub(momentum_x, momentum_y, h, dt, manning_squared, drag, gravity):
    """What both momenta are multiplied by for the bottom friction of a time dt, taken at its end.

    d(hu)/dt = -k |hu| hu, k = (g n**2 / h**(1/3) + drag) / h**2, solved exactly for the state at the end: it never
    turns the flow around, and a steady flow down a slope stays so.
    """
    if h <= 0.0:
        return 0.0
    k = (gravity * manning_squared / h ** (1.0 / 3.0) + drag) / (h * h)
    size = math.sqrt(momentum_x * momentum_x + momentum_y * momentum_y)
    return 2.0 / (1.0 + math.sqrt(1.0 + 4.0 * dt * k * size))


@inlined(math=STRICT)
def taken(mass, mass_beyond, from_high, from_low_beyond, push, along, along_beyond, per_spacing):
    """What a cell loses in a direction a second, of depth and of momentum across and along: from what its low face and
    the one beyond it leave (`face_flux`), and the push of its surface.
    """
    return (
        (mass_beyond - mass) * per_spacing,
        ((from_low_beyond - from_high) + push) * per_spacing,
        (along_beyond - along) * per_spacing,
    )


@inlined(math=STRICT)
def ahead(h, hu, hv, in_x, in_y, dt, coriolis):
    """Depth and momenta a time dt later; in_x, in_y: what is `taken` in each direction."""
    mass_x, u_x, v_x = in_x
    mass_y, v_y, u_y = in_y
    return (
        h - dt * (mass_x + mass_y),
        hu - dt * ((u_x + u_y) - coriolis * hv),
        hv - dt * ((v_y + v_x) + coriolis * hu),
    )


@inlined(math=STRICT)
def ended(h, hu, hv, dry, slack):
    """The end of a stage: depths less than nothing by less than `slack` are nothing, thin water slows down."""
    h = 0.0 if (h < 0.0) & (h > -slack) else h
    kept = h * per_depth(h, dry)
    return h, hu * kept if h < dry else hu, hv * kept if h < dry else hv
