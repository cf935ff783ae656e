"""Mixing by unresolved turbulence, NumPy: definition and test oracle of the compiled forms.

Smagorinsky-Lilly (Smagorinsky 1963, MWR 91, 99-164; Lilly 1962, Tellus 14, 148-172; as in WRF, Skamarock et al. 2021,
NCAR/TN-556, section 4.2): the eddy viscosity of a cell is

    K = (Cs Delta)**2 sqrt(max(0, D**2 - N**2 / Pr)),   Delta = (dx dy dz)**(1/3),   D**2 = sum_ij D_ij**2 / 2,
    D_ij = d(u_i)/dx_j + d(u_j)/dx_i,   N**2 = g d(ln theta)/dz,

of the whole wind and theta, with central differences (one-sided at ground and lid). Momentum gets the divergence of the
stress rho K D_ij, theta and tracers that of rho K / Pr grad phi; both act on deviations from the base state, which
processes outside the model are assumed to maintain. Explicit, second order; stresses are at cell faces, with tangential
derivatives averaged over the two cells. Ground and lid are free-slip: no flux but that of rho w, which is odd there.
Uniform flow and solid-body rotation have D_ij = 0 and are not mixed.

The explicit step is stable while K dt (1/dx2 + 1/dy2 + 1/dz2) <= 1/4 for momentum and Pr/2 for scalars: K is limited to
`limit`, which the caller derives from this.

State, column and halo as in `kernels.euler.box.reference`; corners of the halo are used here. base: u, v, w (0) and
theta of the base state by rows, float64[4, nz]. work: scratch like the state, holds rho, u, v, w, theta after
`eddy_viscosity`. viscosity: float64[nz, ny + 12, nx + 12] (m2/s), valid in the owned cells and one cell around them.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.box.constants import RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import GRAVITY, HALO, REACH

OWNED = slice(HALO, -HALO)
NEAR = slice(HALO - 1, 1 - HALO)  # the owned cells and one cell around them
WIDER = slice(HALO - 2, 2 - HALO)


@np.errstate(all="ignore")  # the sweeps report a lost solution
def eddy_viscosity(
    state: np.ndarray,
    column: np.ndarray,
    spacing: tuple[float, float, float],
    coefficient: float,
    prandtl: float,
    limit: float,
    work: np.ndarray,
    viscosity: np.ndarray,
) -> float:
    """Fill `work` and `viscosity`; needs two halo cells. Returns the maximum K of the owned cells (m2/s).

    spacing: dx, dy, dz (m). coefficient: Cs. prandtl: Pr. limit: maximum K allowed (m2/s).
    """
    work[RHO] = state[RHO] + column[0, :, None, None]
    work[1:] = state[1:] / work[RHO]
    work[RHO_THETA] += column[1, :, None, None] / work[RHO]
    dx, dy, dz = spacing
    wind, theta = work[RHO_U : RHO_W + 1, :, WIDER, WIDER], work[RHO_THETA, :, WIDER, WIDER]
    gradient = [[np.gradient(each, d, axis=dim) for dim, d in ((2, dx), (1, dy), (0, dz))] for each in wind]
    square = sum(0.5 * (gradient[i][j] + gradient[j][i]) ** 2 for i in range(3) for j in range(3))
    stability = GRAVITY * np.gradient(theta, dz, axis=0) / theta
    length = coefficient * np.cbrt(dx * dy * dz)
    mixing = length**2 * np.sqrt(np.maximum(0, square - stability / prandtl))
    viscosity[:, NEAR, NEAR] = np.minimum(mixing, limit)[:, 1:-1, 1:-1]
    return float(viscosity[:, OWNED, OWNED].max())


@np.errstate(all="ignore")
def mix(
    state: np.ndarray,
    base: np.ndarray,
    spacing: tuple[float, float, float],
    dt: float,
    prandtl: float,
    work: np.ndarray,
    viscosity: np.ndarray,
) -> None:
    """Apply the stress and the flux of theta over dt (s) to the state in place, after `eddy_viscosity`."""
    phi = work[1:, :, NEAR, NEAR] - base[:, :, None, None]
    weight = work[RHO, :, NEAR, NEAR] * viscosity[:, NEAR, NEAR]
    widths = dict(zip((2, 1, 0), spacing, strict=True))
    slopes = {dim: [np.gradient(phi[i], widths[dim], axis=dim) for i in range(3)] for dim in range(3)}
    component = {2: 0, 1: 1, 0: 2}  # of the wind along a dim
    for dim, width in widths.items():
        normal = component[dim]
        weights = 0.5 * _sum(weight, dim)
        for i in range(4):
            strain = np.diff(phi[i], axis=dim) / width
            if i == normal:
                strain = 2 * strain
            elif i < 3:
                along = next(d for d, c in component.items() if c == i)
                strain = strain + 0.5 * _sum(slopes[along][normal], dim)
            flux = weights * strain
            if dim == 0:
                flux = np.pad(flux, ((1, 1), (0, 0), (0, 0)))
                if i == normal:
                    flux[0], flux[-1] = 4 / width * weight[0] * phi[2, 0], -4 / width * weight[-1] * phi[2, -1]
            change = np.diff(flux, axis=dim)
            inside = tuple(slice(None) if d in (0, dim) else slice(1, -1) for d in range(3))
            state[1 + i, :, OWNED, OWNED] += dt / width / (prandtl if i == 3 else 1.0) * change[inside]


def mix_tracers(
    tracers: np.ndarray,
    out: np.ndarray,
    state: np.ndarray,
    column: np.ndarray,
    spacing: tuple[float, float, float],
    dt: float,
    viscosity: np.ndarray,
) -> None:
    """Diffuse tracers (as `kernels.euler.tracers.reference` has them) with `viscosity` (m2/s) over dt (s) into `out`.

    Needs one halo cell of both. A constant mixing ratio stays constant; the sum of rho q is conserved.
    """
    rho = (state[RHO] + column[0, :, None, None])[:, NEAR, NEAR]
    weight = rho * viscosity[:, NEAR, NEAR]
    for q, result in zip(tracers, out, strict=True):
        near = q[:, REACH - 1 : 1 - REACH, REACH - 1 : 1 - REACH]
        total = near[:, 1:-1, 1:-1].copy()
        for dim, width in zip((2, 1, 0), spacing, strict=True):
            flux = 0.5 * _sum(weight, dim) * np.diff(near, axis=dim)
            if dim == 0:
                flux = np.pad(flux, ((1, 1), (0, 0), (0, 0)))
            inside = tuple(slice(None) if d in (0, dim) else slice(1, -1) for d in range(3))
            total += dt / width**2 * np.diff(flux, axis=dim)[inside] / rho[:, 1:-1, 1:-1]
        result[:, REACH:-REACH, REACH:-REACH] = total


def drag(state: np.ndarray, column: np.ndarray, coefficient: float, dz: float, dt: float) -> None:
    """Slow the wind of the lowest level over dt (s) in place, by the stress rho Cd |V| V of the ground (bulk formula).

    Implicit, with the initial speed: stable for any step. coefficient: Cd, about 1e-3 over water.
    """
    rho = state[RHO, 0, OWNED, OWNED] + column[0, 0]
    u, v = state[RHO_U, 0, OWNED, OWNED], state[RHO_V, 0, OWNED, OWNED]
    keep = 1 / (1 + dt / dz * coefficient * (np.sqrt(u * u + v * v) / rho))
    u *= keep
    v *= keep


def _sum(values: np.ndarray, dim: int) -> np.ndarray:
    """Sums of neighbors along a dim."""
    near = np.moveaxis(values, dim, 0)
    return np.moveaxis(near[1:] + near[:-1], 0, dim)
