"""The first pass over a row of interfaces, in lines of x and in rings alike: velocity and pressure.

Cells stand in flat buffers, field after field in the order of `SLOTS`: rho', the momentum across the interfaces,
(rho theta)', then whatever else the flow carries, momenta along the interfaces first. So the loops do not know how many
fields there are, nor in how many dimensions.

A pass is short, so that a processor has several interfaces under way: velocity and pressure in this one, then one pass
for each field. Loops run over whole lanes of LANES cells, also where a row ends early: without a scalar tail the bits
of a cell do not depend on where its row is cut. Lanes beyond the end hold zeros or leftovers and are never stored.
Indices are unsigned: to Numba a signed one may be negative, and its wrap-around turns vector loads into gathers.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.constants import NOT_FINITE, OUT_OF_RANGE
from hpckit.kernels.euler.numerics import crossing

u8 = np.uint64
LANES = 8  # the widest vector; loops with products must not take more at a time, or they would have a tail after all
SLOTS = RHO, NORMAL, HEAT, CARRIED = range(4)  # places of the fields in a buffer; the carried ones from CARRIED on


@inlined
def whole_lanes(count):
    """That many cells, rounded up to whole vectors."""
    return u8((count + LANES - 1) // LANES * LANES)


@inlined
def cross(cells, velocity, excess, pitch, r0, r1, r2, r3, lanes, rho, rho_theta, scale):
    """`crossing` at a row of interfaces by the series, and again with pow where that fails; return a status.

    cells: fields `pitch` (a constant) apart. r0 to r3: where the neighbors of the first interface stand. velocity,
    excess: take the results, of the first interface first. rho, rho_theta: the base state.
    """
    status = 0
    if _cross_once(cells, velocity, excess, pitch, r0, r1, r2, r3, lanes, rho, rho_theta, scale, False):
        _cross_once(cells, velocity, excess, pitch, r0, r1, r2, r3, lanes, rho, rho_theta, scale, True)
        status = OUT_OF_RANGE
        for i in range(lanes):
            if not np.isfinite(velocity[i] + excess[i]):
                status |= NOT_FINITE
    return status


@inlined
def _cross_once(cells, velocity, excess, pitch, r0, r1, r2, r3, lanes, rho, rho_theta, scale, exact):
    """One pass; return whether the series failed anywhere."""
    failed = 0
    rho_12, per_rho_theta_12 = 12.0 * rho, 1.0 / (12.0 * rho_theta)
    normal, heat = u8(NORMAL * pitch), u8(HEAT * pitch)
    for i in range(lanes):
        speed, over, out = crossing(
            cells, r0 + i, r1 + i, r2 + i, r3 + i, normal, heat, rho_12, per_rho_theta_12, scale, exact
        )
        velocity[i] = speed
        excess[i] = over
        failed |= out
    return failed
