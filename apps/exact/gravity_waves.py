"""Linear sound and inertia-gravity waves in an isothermal channel: the exact solution of Baldauf and Brdar (2013).

Baldauf, M. and S. Brdar, 2013: An analytic solution for linear gravity waves in a channel as a test for numerical
models using the non-hydrostatic, compressible Euler equations. Q. J. R. Meteorol. Soc. 139, 1977-1989.

Their test: a base state of one temperature T and wind u0 between rigid walls at z = 0 and z = H, periodic in x, on an
f-plane on which u0 is geostrophic; at t = 0 a band of warm air at undisturbed pressure,

    T' = amplitude exp(z / (2 S)) sin(pi z / H) exp(-((x - x0) / d)**2),   S = R T / g.

Solved here as they do, by Bretherton's transformation and Fourier transforms in x and z, but with numbers instead of
formulas for the temporal part. With u = u_b exp(z/2S), p' = p_b exp(-z/2S), … the linear equations get constant
coefficients. In P = p_b / (rho_s c), the buoyancy b = g (p_b/c2 - rho_b) / (rho_s N) and D = d/dt + u0 d/dx:

    D u = -c dP/dx + f v      D v = -f u      D w = -c (d/dz - G) P + N b
    D P = -c (du/dx + (d/dz + G) w)           D b = -N w
    G = 1/(2S) - g/c2,  N2 = g (1/S - g/c2),  c2 = gamma R T

For one Fourier mode exp(i (k x + m z)) this is dq/dt = A q with A skew-Hermitian: q(t) = V exp(-i w t) V^H q(0). The
waves start with rho_b ~ sin(m z), m = pi/H; the equation of w alone has only even derivatives in z, so w stays ~ sin
(m z) and vanishes at both walls, as it must; u, v, P and b hold both sine and cosine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

U, V, W, P, B = range(5)
SAMPLES = 4096  # of the start along x, at least


@dataclass(frozen=True)
class WaveChannel:
    """The channel and the start of its waves. width, height, x0, d: m; temperature, amplitude: K; wind: m/s; f: 1/s.

    Constants of the gas: gravity m/s2, gas_constant and heat_capacity (at constant pressure) J/(kg K), p0 (Pa) at the
    ground, where theta is the temperature.
    """

    width: float
    height: float
    temperature: float
    wind: float
    amplitude: float
    x0: float
    d: float
    f: float
    gravity: float
    gas_constant: float
    heat_capacity: float
    p0: float = 1.0e5

    @property
    def scale_height(self) -> float:
        """S = R T / g, m."""
        return self.gas_constant * self.temperature / self.gravity

    @property
    def sound(self) -> float:
        """The speed of sound, m/s."""
        gamma = self.heat_capacity / (self.heat_capacity - self.gas_constant)
        return float(np.sqrt(gamma * self.gas_constant * self.temperature))

    @property
    def frequency(self) -> float:
        """The Brunt-Väisälä frequency, 1/s."""
        return float(np.sqrt(self.gravity * (1 / self.scale_height - self.gravity / self.sound**2)))

    @property
    def surface_density(self) -> float:
        """Density at the ground, kg/m3."""
        return self.p0 / (self.gas_constant * self.temperature)


def waves(channel: WaveChannel, time: float, x: np.ndarray, z: np.ndarray) -> dict[str, np.ndarray]:
    """The linear solution at `time` (s) on the points x (m, evenly spaced over the whole width) and z (m).

    Returns float64[len(z), len(x)] each: u, v, w (m/s, without the base wind), p (Pa), rho (kg/m3), theta (K), all as
    deviations from the base state. Raises `ValueError` where x does not cover the width evenly.
    """
    _check(channel, x)
    s, c = channel.scale_height, channel.sound
    fields = np.zeros((5, len(z), len(x)))
    for m in (np.pi / channel.height, -np.pi / channel.height):
        k, modes = _evolve(channel, time, m)
        # sin(m z) = (exp(i m z) - exp(-i m z)) / 2i
        along = _to_points(channel, modes * (0.5 / 1j * np.sign(m)), k, x)
        fields += np.real(along[:, None, :] * np.exp(1j * m * z)[None, :, None])
    up = np.exp(z / (2 * s))[:, None]
    density_s = channel.surface_density
    pressure = fields[P] * density_s * c / up
    rho = pressure / c**2 - fields[B] * density_s * channel.frequency / channel.gravity / up
    base_pressure = channel.p0 * np.exp(-z / s)[:, None]
    base_rho = density_s * np.exp(-z / s)[:, None]
    base_theta = channel.temperature * (channel.p0 / base_pressure) ** (channel.gas_constant / channel.heat_capacity)
    gamma = channel.heat_capacity / (channel.heat_capacity - channel.gas_constant)
    theta = base_theta * (pressure / (gamma * base_pressure) - rho / base_rho)
    return {"u": fields[U] * up, "v": fields[V] * up, "w": fields[W] * up, "p": pressure, "rho": rho, "theta": theta}


def matrices(channel: WaveChannel, k: np.ndarray, m: float) -> np.ndarray:
    """A of dq/dt = A q for wave numbers k and m (1/m), without advection by the base wind: complex[len(k), 5, 5]."""
    c, g = channel.sound, 1 / (2 * channel.scale_height) - channel.gravity / channel.sound**2
    a = np.zeros((len(k), 5, 5), complex)
    a[:, U, P] = a[:, P, U] = -1j * c * k
    a[:, U, V], a[:, V, U] = channel.f, -channel.f
    a[:, W, P], a[:, P, W] = -c * (1j * m - g), -c * (1j * m + g)
    a[:, W, B], a[:, B, W] = channel.frequency, -channel.frequency
    return a


def _evolve(channel: WaveChannel, time: float, m: float) -> tuple[np.ndarray, np.ndarray]:
    """Wave numbers k >= 0 and the Fourier coefficients of q at `time`, complex[5, len(k)], for vertical exp(i m z)."""
    n = SAMPLES * max(1, round(channel.width / channel.d / 512))
    points = np.arange(n) * channel.width / n
    far = np.abs(points - channel.x0)
    far = np.minimum(far, channel.width - far)
    warm = channel.amplitude / channel.temperature * np.exp(-((far / channel.d) ** 2))
    start = np.fft.rfft(warm) / n
    k = 2 * np.pi / channel.width * np.arange(len(start))
    kept = np.abs(start) > 1e-17 * np.abs(start).max()
    k, start = k[kept], start[kept]
    frequencies, vectors = np.linalg.eigh(1j * matrices(channel, k, m))
    q = np.zeros((len(k), 5, 1), complex)
    q[:, B, 0] = start * channel.gravity / channel.frequency  # rho_b = -rho_s T_b / T at P = 0
    moved = vectors @ (np.exp(-1j * frequencies * time)[:, :, None] * (np.conj(vectors.transpose(0, 2, 1)) @ q))
    return k, (moved[:, :, 0] * np.exp(-1j * k * channel.wind * time)[:, None]).T


def _to_points(channel: WaveChannel, modes: np.ndarray, k: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Sum over wave numbers of both signs at the points x: complex[5, len(x)].

    Modes of -k follow from those of k with the complex structures of x and z told apart: q(-k, m) is the conjugate of
    q(k, -m), and since both m are summed, twice the real part over k > 0 of their sum is wanted.
    """
    weight = np.where(k > 0, 2.0, 1.0)
    return (modes * weight) @ np.exp(1j * np.outer(k, x))


def _check(channel: WaveChannel, x: np.ndarray) -> None:
    if len(x) > 1 and not np.allclose(np.diff(x), channel.width / len(x)):
        raise ValueError(f"the {len(x)} points do not cover the width of {channel.width:g} m evenly")
