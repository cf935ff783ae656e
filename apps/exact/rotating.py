"""Linear shallow water, on an f-plane and without rotation: phase speeds, small waves, the adjustment of a step.

Gill, A. E., 1982: Atmosphere-Ocean Dynamics. Academic Press, sections 7.2 (adjustment), 8.2 (Poincaré waves), 10.4
(Kelvin waves). g: m/s2, depth: m, f: 1/s, k: 1/m throughout.
"""

from __future__ import annotations

import math

import numpy as np


def gravity_wave_speed(gravity: float, depth: float) -> float:
    """sqrt(g H), m/s: of long waves without rotation, and of Kelvin waves along a wall with it."""
    return math.sqrt(gravity * depth)


def rossby_radius(gravity: float, depth: float, f: float) -> float:
    """sqrt(g H) / |f|, m."""
    return gravity_wave_speed(gravity, depth) / abs(f)


def poincare_speed(gravity: float, depth: float, f: float, k: float) -> float:
    """Phase speed of an inertia-gravity wave, m/s: sqrt(f2 + g H k2) / k."""
    return math.sqrt(f * f + gravity * depth * k * k) / k


def poincare_speed_c_grid(gravity: float, depth: float, f: float, k: float, dx: float) -> float:
    """The same on a C-grid of spacing dx (m) in x with exact time: sqrt(f2 cos2(k dx/2) + g H (2 sin(k dx/2)/dx)2) / k.

    Arakawa, A. and V. R. Lamb, 1977: Methods in Computational Physics 17, 173-265, section III.
    """
    half = k * dx / 2
    return math.sqrt((f * math.cos(half)) ** 2 + gravity * depth * (2 * math.sin(half) / dx) ** 2) / k


def adjusted_step(
    x: np.ndarray, width: float, amplitude: float, gravity: float, depth: float, f: float
) -> tuple[np.ndarray, np.ndarray]:
    """Surface (m) and v (m/s) that a step of the surface from `amplitude` to -`amplitude` at width / 2 adjusts to.

    Periodic in x (m, 0 to width): the step back lies at 0. Linear; potential vorticity is kept: eta'' - (eta - eta0) /
    a2 = 0 with the Rossby radius a, v = (g / f) d eta/dx. Far between the steps it is the classic
    eta = amplitude (1 - exp(-d / a)), v = -(g amplitude / (f a)) exp(-d / a) at the distance d from a step.
    """
    a = rossby_radius(gravity, depth, f)
    left = x < width / 2
    middle = np.where(left, width / 4, 3 * width / 4)
    sign = np.where(left, 1.0, -1.0)
    ratio = np.cosh((x - middle) / a) / np.cosh(width / (4 * a))
    slope = -np.sinh((x - middle) / a) / np.cosh(width / (4 * a)) / a
    return amplitude * sign * (1 - ratio), gravity / f * amplitude * sign * slope


def adjustment_energies(width: float, amplitude: float, gravity: float, depth: float, f: float) -> tuple[float, float]:
    """Potential energy lost and kinetic energy gained by the adjustment of `adjusted_step`, m4/s2 (over density and y).

    For steps far from one another the ratio of gained to lost is 1/3 (Gill 1982, eq. 7.2.23 and below).
    """
    a = rossby_radius(gravity, depth, f)
    r = width / (4 * a)
    # Means of cosh and of sinh squared over |s| < r, relative to cosh(r).
    first = math.tanh(r) / r
    cosh2 = (0.5 + math.sinh(2 * r) / (4 * r)) / math.cosh(r) ** 2
    sinh2 = (math.sinh(2 * r) / (4 * r) - 0.5) / math.cosh(r) ** 2
    scale = 0.5 * gravity * amplitude**2 * width
    return scale * (2 * first - cosh2), scale * sinh2


def long_waves(
    surface: np.ndarray, width: float, height: float, time: float, gravity: float, depth: float
) -> np.ndarray:
    """Surface (m) at `time` (s) of small long waves from a surface at rest, without rotation; float64[ny, nx].

    surface: elevation at first, on a grid periodic in x and y over width and height (m). Each Fourier mode is a
    standing wave, cos(sqrt(g H) |k| t).
    """
    ny, nx = surface.shape
    k = 2 * np.pi * np.hypot(np.fft.fftfreq(ny, height / ny)[:, None], np.fft.rfftfreq(nx, width / nx))
    turned = np.fft.rfft2(surface) * np.cos(gravity_wave_speed(gravity, depth) * k * time)
    return np.fft.irfft2(turned, s=surface.shape)


ROSSBY_HAURWITZ = (7.848e-6, 4)  # the wave of Williamson's test 6: its angular velocity in 1/s, wave number


def rossby_haurwitz_speed(omega: float, wave: int, rotation: float) -> float:
    """The angular velocity (1/s, eastward) of a Rossby-Haurwitz wave of a layer without divergence (Haurwitz 1940)."""
    return (wave * (3 + wave) * omega - 2 * rotation) / ((1 + wave) * (2 + wave))
