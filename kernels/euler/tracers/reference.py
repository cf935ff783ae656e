"""Passive tracers carried by the air of a box, NumPy: definition and test oracle of the compiled forms.

A tracer is a mixing ratio q (kg per kg of air) in each cell. Its flux form uses the same mass flux F that changed the
density in the preceding sweep, direction by direction,

    rho_new q_new = rho_old q - dt/dx (F_high qhat_high - F_low qhat_low)

where qhat is the mean of q over the air that passed the face: a parabola in each cell (Colella and Woodward 1984, J.
Comput. Phys. 54, 174-201, eqs. 1.5-1.12), integrated over the share c = |F| dt / (rho_old dx) of the cell upstream.
Since density and tracer change by the same F within each sweep (the splitting of Easter 1993, MWR 121, 297-304),

- a constant mixing ratio stays constant to rounding in any flow;
- the mass of a tracer, the sum of rho q, is conserved to rounding;
- no sweep makes new extremes: q_new is a mean of parabolas that stay within the neighboring values. So q >= 0 stays.

Not `bounded`, a parabola has the cell's mean and values at its edges of fifth order in space, as the upwind fluxes of
the split dynamics have: what depends on theta and vapor together, as theta_e, then moves as one. New extremes may
arise, below 0 too, where cells do not resolve what they carry.

Tracers are float64[n, nz, ny + 6, nx + 6], with a halo of 3 cells in y and in x, filled in the direction of the sweep.
Beyond ground and lid q repeats the level next to the wall; no mass passes there.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.constants import REACH


def transport(
    tracers: np.ndarray,
    out: np.ndarray,
    old: np.ndarray,
    new: np.ndarray,
    column: np.ndarray,
    mass_flux: np.ndarray,
    dim: int,
    rates: np.ndarray,
    bounded: bool,
    thins: bool,
) -> None:
    """Advect the tracers along a dim (0: z, 1: y, 2: x) with the air, into the owned cells of `out`.

    old, new: rho' before its mass has passed and after, float64[nz, ny + 2 halo, nx + 2 halo]; old has its halo in this
    direction. With `thins` the owned cells of `new` are filled here, by the mass flux, else they are given. column:
    the base state's rho is its first row; mass_flux: through the faces along dim, as `kernels.euler.box.reference` has
    it. rates: dt over the width of cells along dim, by level, s/m, float64[nz].
    """
    halo = REACH + (new.shape[2] - tracers.shape[3]) // 2
    near = [slice(None)] + [slice(halo, -halo)] * 2
    rate = rates[:, None, None]
    if thins:
        new[tuple(near)] = old[tuple(near)] - rate * np.diff(mass_flux, axis=dim)
    rho_old, rho_new = (each + column[0, :, None, None] for each in (old, new))
    owned = [slice(None)] + [slice(REACH, -REACH)] * 2
    rho_owned, rho_after = rho_old[tuple(near)], rho_new[tuple(near)]
    if dim:
        owned[dim], near[dim] = slice(None), slice(halo - 1, 1 - halo)
        rho = np.moveaxis(rho_old[tuple(near)], dim, 0)
        upstream = np.moveaxis(rate, dim, 0)
    else:
        rho = np.pad(rho_owned, ((1, 1), (0, 0), (0, 0)), mode="edge")
        ends = np.pad(rates, 1, mode="edge")
        upstream = np.where(mass_flux > 0, *(each[:, None, None] for each in (ends[:-1], ends[1:])))
    flux = np.moveaxis(mass_flux, dim, 0)
    share = np.abs(flux) * upstream / np.where(flux > 0, rho[:-1], rho[1:])
    for q, result in zip(tracers, out, strict=True):
        line = np.moveaxis(q[tuple(owned)], dim, 0)
        if not dim:
            line = np.pad(line, ((REACH, REACH), (0, 0), (0, 0)), mode="edge")
        six = [line[k : len(line) - 2 * REACH + 1 + k] for k in range(2 * REACH)]
        five = [np.where(flux > 0, six[k], six[5 - k]) for k in range(5)]  # in the direction of the wind
        carried = np.moveaxis(flux * (_passing if bounded else _linear)(five, share), 0, dim)
        q_owned = q[:, REACH:-REACH, REACH:-REACH]
        result[:, REACH:-REACH, REACH:-REACH] = (rho_owned * q_owned - rate * np.diff(carried, axis=dim)) / rho_after


def borrow(tracers: np.ndarray, density: np.ndarray) -> None:
    """What is below 0 in an owned cell is made up for from the cell below, or above it, by mass, in place.

    What a whole column lacks comes from the first tracer, vapor, of its lowest cell. Diffusion of deviations from a
    base state, and across levels that slope, may leave a little less than nothing where the air is dry; microphysics
    would lift it to 0 and so make water. density: of mass, by thickness, [1, nz, ny + 2 halo, nx + 2 halo].
    """
    halo = REACH + (density.shape[3] - tracers.shape[3]) // 2
    rho, q = density[0, :, halo:-halo, halo:-halo], tracers[:, :, REACH:-REACH, REACH:-REACH]
    top = len(rho) - 1
    for k, other in [(k, k - 1) for k in range(top, 0, -1)] + [(k, k + 1) for k in range(top)]:
        lack = np.minimum(q[:, k], 0.0)
        q[:, other] += lack * rho[k] / rho[other]
        q[:, k] -= lack
    lack = np.minimum(q[:, top], 0.0)
    q[:, top] -= lack
    q[0, 0] += lack.sum(axis=0) * rho[top] / rho[0]


def _passing(five: list[np.ndarray], share: np.ndarray) -> np.ndarray:
    """Mean of q over the downstream share of the third of five cells, in the direction of the wind."""
    far, near, q = _edge(*five[:4]), _edge(*five[1:]), five[2]
    steep = near - far
    curve = 6 * (q - 0.5 * (far + near))
    flat = (near - q) * (q - far) <= 0
    far_over, near_over = steep * curve > steep * steep, steep * curve < -steep * steep
    far, near = np.where(far_over, 3 * q - 2 * near, far), np.where(near_over, 3 * q - 2 * far, near)
    far, near = np.where(flat, q, far), np.where(flat, q, near)
    curve = 6 * (q - 0.5 * (far + near))
    return near - 0.5 * share * (near - far - (1 - 2 / 3 * share) * curve)


def _linear(five: list[np.ndarray], share: np.ndarray) -> np.ndarray:
    """The same of an unlimited parabola, whose values at the edges are of fifth order where the share is small."""
    q0, q1, q, q3, q4 = five
    near = (2 * q0 - 13 * q1 + 47 * q + 27 * q3 - 3 * q4) / 60
    far = (2 * q4 - 13 * q3 + 47 * q + 27 * q1 - 3 * q0) / 60
    curve = 6 * (q - 0.5 * (far + near))
    return near - 0.5 * share * (near - far - (1 - 2 / 3 * share) * curve)


def _edge(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Value between b and c, fourth order where smooth, always within [b, c]."""
    return 0.5 * (b + c) - (_slope(b, c, d) - _slope(a, b, c)) * (1 / 6)


def _slope(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Difference across b, limited so that its parabola makes no new extreme."""
    middle = 0.5 * (c - a)
    least = np.minimum(np.abs(middle), 2 * np.minimum(np.abs(b - a), np.abs(c - b)))
    return np.where((b - a) * (c - b) > 0, np.copysign(least, middle), 0.0)
