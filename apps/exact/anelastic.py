"""The acceleration of air at rest by its buoyancy, from the anelastic equations.

Ogura, Y. and N. A. Phillips, 1962: Scale analysis of deep and shallow convection in the atmosphere. J. Atmos. Sci. 19,
173-179. In an isentropic base state of density rho(z):

    dv/dt = -grad phi + b k,    div(rho v) = 0,    so    div(rho grad phi) = d(rho b)/dz,  dphi/dz = b at the walls.

It is what compressible air does once the sound of its start has left, as long as nothing has moved far.
"""

from __future__ import annotations

import numpy as np


def initial_acceleration(buoyancy: np.ndarray, rho: np.ndarray, dx: float, dz: float) -> np.ndarray:
    """Vertical acceleration (m/s2) at cell centers, float64[nz, nx], periodic in x, walls below and above.

    buoyancy: b (m/s2) at cell centers, float64[nz, nx]. rho: float64[nz], kg/m3. dx, dz: m. Second order in dz, exact
    in x (Fourier): a is the solution of d/dz(1/rho d(rho a)/dz) - k2 a = -k2 b with a = 0 at the walls.
    """
    nz, nx = buoyancy.shape
    k = 2 * np.pi * np.fft.rfftfreq(nx, dx)
    modes = np.fft.rfft(buoyancy, axis=1)
    # Momentum rho a at faces 1 … nz - 1; the walls hold none.
    face_rho = 0.5 * (rho[1:] + rho[:-1])
    face_modes = 0.5 * (modes[1:] + modes[:-1])
    diagonal = -(1 / rho[1:] + 1 / rho[:-1]) / dz**2
    beside = 1 / rho[1:-1] / dz**2
    second = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    faces = np.zeros((nz + 1, len(k)), complex)
    for index, number in enumerate(k):
        if number:
            matrix = second - np.diag(number**2 / face_rho)
            faces[1:-1, index] = np.linalg.solve(matrix, -(number**2) * face_modes[:, index]) / face_rho
    return np.fft.irfft(0.5 * (faces[1:] + faces[:-1]), n=nx, axis=1)
