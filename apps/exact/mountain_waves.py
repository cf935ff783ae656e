"""Linear waves over terrain in a uniform wind: as they build up in an isothermal channel, and steady in other air.

`channel`: air of one temperature T between a rigid lid and ground of a height h(x) that is small, which at t = 0 blows
with the wind U along levels that fade linearly from the ground to the lid. In the variables of `gravity_waves`, with
w = U dh/dx at the ground, one mode exp(i k x) is the steady solution

    w_b = W sin(m (H - z)) / sin(m H),   m**2 = (N**2 / U**2 - k**2) (1 - U**2 / c**2) - G**2,   W = i k U h,

and free waves in w_b = sin(n pi z / H). With the operator D+ = d/dz + G of continuity and D- = d/dz - G of the vertical
pressure gradient, D- P and D- u are sines too, (n pi / H)**2 + G**2 is -D- D+, and each n has four equations whose
matrix is skew-Hermitian.

`boussinesq`: the steady waves of constant N above which nothing reflects, m**2 = N**2 / U**2 - k**2 (Smith 1979, Adv.
Geophys. 21, 87-230), with the density of the air.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.constants import CP, GAMMA, GRAVITY, RD

SINES = 300  # terms of the free waves
POINTS = 4000  # of the integrals over height


def channel(
    ground: np.ndarray,
    width: float,
    height: float,
    z: np.ndarray,
    time: float,
    wind: float,
    temperature: float,
    sound: bool = True,
) -> np.ndarray:
    """The wind w (m/s) at heights z (m) and the places of `ground` after a time (s), float64[len(z), nx].

    ground: heights of a period of `width` (m), at equal distances. height: of the lid, m. wind: m/s. temperature: K.
    sound: with the free waves of sound that the start sends out.
    """
    scale, speed = RD * temperature / GRAVITY, np.sqrt(GAMMA * RD * temperature)
    frequency, tilt = GRAVITY / np.sqrt(CP * temperature), 1 / (2 * scale) - GRAVITY / speed**2
    k = 2 * np.pi * np.fft.rfftfreq(len(ground), width / len(ground))[1:, None]
    lift = 1j * k * wind * np.fft.rfft(ground)[1:, None]
    m = np.sqrt(((frequency / wind) ** 2 - k**2) * (1 - (wind / speed) ** 2) - tilt**2 + 0j)
    rows = np.pi * np.arange(1, SINES + 1)[None, :] / height
    # The sines of the steady w_b, and of w at the start; the steady u, D- P and buoyancy follow from the first.
    steady = lift * (2 / height) * rows / (rows**2 - m**2)
    points = (np.arange(POINTS) + 0.5) * height / POINTS
    shape = (1 - points / height) * np.exp(-points / (2 * scale))
    begin = lift * (2 / POINTS) * (np.sin(rows[0][:, None] * points) @ shape)
    size = np.sqrt(rows**2 + tilt**2)
    buoyancy = 1j * frequency / (k * wind) * steady
    pressed = (frequency * buoyancy - 1j * k * wind * steady) / speed
    start = np.stack([speed / wind * pressed / size, begin - steady, -pressed / size, -buoyancy], axis=-1)
    # i times the matrix of (D- u / size, w_b, D- P / size, b) in air that moves with the wind
    turn = np.zeros((*start.shape, 4), complex)
    turn[..., 0, 2] = turn[..., 2, 0] = speed * k
    turn[..., 1, 2], turn[..., 2, 1] = -1j * speed * size, 1j * speed * size
    turn[..., 1, 3], turn[..., 3, 1] = 1j * frequency, -1j * frequency
    rates, vectors = np.linalg.eigh(turn)
    parts = np.einsum("knab,kna->knb", vectors.conj(), start) * np.exp(-1j * rates * time)
    if not sound:  # the two fastest of four
        parts[..., [0, 3]] = 0
    free = np.einsum("knb,knb->kn", vectors[..., 1, :], parts) * np.exp(-1j * k * wind * time)
    above = _over(m * (height - z), m * height) * lift + free @ np.sin(rows[0][:, None] * z)
    modes = np.concatenate([np.zeros((1, len(z))), above * np.exp(z / (2 * scale))])
    return np.fft.irfft(modes, n=len(ground), axis=0).T


def boussinesq(
    ground: np.ndarray, width: float, z: np.ndarray, wind: float, frequency: float, rho: np.ndarray, ground_rho: float
) -> np.ndarray:
    """The steady wind w (m/s) in air of constant N (1/s), as `channel` has it; rho: its density at z, float64[len(z)].

    Above the hill energy goes upward: m has the sign of U where m**2 > 0; other waves fade with height.
    """
    k = 2 * np.pi * np.fft.rfftfreq(len(ground), width / len(ground))
    squared = (frequency / wind) ** 2 - k**2
    m = np.where(squared > 0, np.sign(wind) * np.sqrt(np.maximum(squared, 0)) + 0j, 1j * np.sqrt(np.abs(squared)))
    modes = 1j * k * wind * np.fft.rfft(ground) * np.exp(1j * m * z[:, None])
    modes[:, 0] = 0
    return np.fft.irfft(modes, n=len(ground), axis=1) * np.sqrt(ground_rho / rho)[:, None]


def _over(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The quotient sin(part) / sin(whole), also where both have large imaginary parts, not below 0."""
    grown = np.exp(-np.imag(whole))
    up, down = np.exp(1j * part - np.imag(whole)), np.exp(-1j * part - np.imag(whole))
    return (up - down) / ((np.exp(1j * np.real(whole)) * grown**2) - np.exp(-1j * np.real(whole)))
