"""Shallow water on a sphere by spherical harmonics (vorticity, divergence, depth; RK4): another program, for tests."""

from __future__ import annotations

import numpy as np


class Spectral:
    """Triangular truncation on a Gaussian grid that holds products without aliases. Hack and Jakob 1992."""

    def __init__(self, truncation: int, radius: float, rotation: float, gravity: float) -> None:
        t, rows = truncation, (3 * truncation + 3) // 4 * 2
        self.radius, self.gravity, self.columns = radius, gravity, 2 * rows
        self.mu, self.weights = np.polynomial.legendre.leggauss(rows)
        self.latitude, self.longitude = np.arcsin(self.mu), 2 * np.pi * np.arange(2 * rows) / (2 * rows)
        self.m, n = np.arange(t + 1)[:, None], np.arange(t + 1)

        def epsilon(n: int, m: int) -> float:
            return np.sqrt((n * n - m * m) / (4.0 * n * n - 1.0))

        p, h = np.zeros((t + 1, t + 2, rows)), np.zeros((t + 1, t + 1, rows))
        for m in range(t + 1):
            p[m, m] = np.sqrt(0.5) if m == 0 else p[m - 1, m - 1] * np.sqrt((m + 0.5) / m * (1 - self.mu**2))
            for degree in range(m + 1, t + 2):
                before = epsilon(degree - 1, m) * p[m, degree - 2] if degree > m + 1 else 0.0
                p[m, degree] = (self.mu * p[m, degree - 1] - before) / epsilon(degree, m)
            for degree in range(m, t + 1):
                below = (degree + 1) * epsilon(degree, m) * p[m, degree - 1] if degree > m else 0.0
                h[m, degree] = below - degree * epsilon(degree + 1, m) * p[m, degree + 1]
        self.p, self.h = p[:, : t + 1], h  # functions of Legendre, and (1 - mu**2) times their derivatives
        self.laplace = -n * (n + 1) / radius**2
        self.inverse = np.divide(1.0, self.laplace, out=np.zeros(t + 1), where=n > 0)
        self.across, self.turn = (1 - self.mu**2)[:, None], 2 * rotation * self.mu[:, None]

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Latitude and longitude of the grid, radians from -pi to pi."""
        latitude, longitude = np.meshgrid(self.latitude, (self.longitude + np.pi) % (2 * np.pi) - np.pi, indexing="ij")
        return latitude, longitude

    def _fourier(self, values: np.ndarray) -> np.ndarray:
        return np.fft.rfft(values, axis=1)[:, : len(self.m)].T / self.columns

    def spectrum(self, values: np.ndarray) -> np.ndarray:
        return np.einsum("mk,mnk->mn", self._fourier(values) * self.weights, self.p)

    def values(self, spectrum: np.ndarray, basis: np.ndarray | None = None) -> np.ndarray:
        waves = np.zeros((len(self.mu), self.columns // 2 + 1), complex)
        waves[:, : len(self.m)] = np.einsum("mn,mnk->km", spectrum, self.p if basis is None else basis)
        return np.fft.irfft(waves * self.columns, n=self.columns, axis=1)

    def _divergence(self, east: np.ndarray, north: np.ndarray) -> np.ndarray:
        """Of a vector times the cosine of latitude."""
        scale = self.weights / (self.radius * self.across[:, 0])
        along = np.einsum("mk,mnk->mn", 1j * self.m * self._fourier(east) * scale, self.p)
        return along - np.einsum("mk,mnk->mn", self._fourier(north) * scale, self.h)

    def _winds(self, vorticity: np.ndarray, divergence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        stream, potential = vorticity * self.inverse, divergence * self.inverse
        east = self.values(1j * self.m * potential) - self.values(stream, self.h)
        return east / self.radius, (self.values(1j * self.m * stream) + self.values(potential, self.h)) / self.radius

    def _rates(self, state: np.ndarray, bottom: np.ndarray) -> np.ndarray:
        vorticity, divergence, depth = state
        u, v = self._winds(vorticity, divergence)
        total, h = self.values(vorticity) + self.turn, self.values(depth)
        energy = (u * u + v * v) / (2 * self.across) + self.gravity * (h + bottom)
        flows = ((-u * total, -v * total), (v * total, -u * total), (-u * h, -v * h))
        rates = [self._divergence(*flow) for flow in flows]
        rates[1] = rates[1] - self.laplace * self.spectrum(energy)
        return np.array(rates)

    def run(self, depth, u, v, bottom, seconds, dt):
        """Depth, velocities to the east and to the north, and vorticity after some seconds."""
        cosine = np.sqrt(self.across)
        u, v = u * cosine, v * cosine
        state = np.array([self._divergence(v, -u), self._divergence(u, v), self.spectrum(depth)])
        steps = int(np.ceil(seconds / dt))
        dt = seconds / steps
        for _ in range(steps):
            first = self._rates(state, bottom)
            second = self._rates(state + dt / 2 * first, bottom)
            third = self._rates(state + dt / 2 * second, bottom)
            fourth = self._rates(state + dt * third, bottom)
            state = state + dt / 6 * (first + 2 * second + 2 * third + fourth)
        u, v = self._winds(state[0], state[1])
        return self.values(state[2]), u / cosine, v / cosine, self.values(state[0])
