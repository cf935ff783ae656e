"""The stability limit of the time step."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

from hpckit.apps.atmosphere.settings import Base
from hpckit.kernels.euler.constants import GAMMA, RD

STANDARD_GROUND = 288.15  # K, US Standard Atmosphere 1976
COLDEST = 216.65  # K, its tropopause: a sounding's ground is warmer


@functools.cache
def stable_cfl(beta: float) -> float:
    """The largest Courant number (wind and sound together) at which no wave grows, with hyperviscosity `beta`.

    From the amplification of one linear sweep: in a wave of phase angle k per cell the fourth-order interpolation moves
    with i (8 sin k - sin 2k) / 6 cells, the hyperviscosity removes beta sin(k/2)**4 in each of the three stages. 1.262
    without hyperviscosity, 1.346 with the usual 0.05.
    """
    angles = np.linspace(1e-3, np.pi, 2000)
    drift = (8 * np.sin(angles) - np.sin(2 * angles)) / 6
    damping = beta * np.sin(angles / 2) ** 4

    def grows(courant: float) -> bool:
        wave = -1j * courant * drift
        first = 1 + wave / 3 - damping
        second = 1 + (wave / 2 - damping) * first
        third = 1 + (wave - damping) * second
        return bool((np.abs(third) > 1 + 1e-9).any())

    low, high = 0.0, 4.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if grows(middle) else (middle, high)
    return low


def outruns_sound(base: Base, cfl: float, max_speed: float, beta: float) -> Iterator[str]:
    """A problem if steps of `cfl` cells over `max_speed` (m/s) are unstable for sound at the ground alone. `blow_up`
    checks wind and the evolving state.
    """
    ground = {"neutral": base.theta, "stable": base.theta, "isothermal": base.temperature, "standard": STANDARD_GROUND}
    sound = math.sqrt(GAMMA * RD * ground.get(base.kind, COLDEST))
    limit = stable_cfl(beta)
    if cfl * sound / max_speed > limit:
        yield (
            f"time.cfl = {cfl:g} is unstable: with time.max_speed = {max_speed:g} m/s sound, {sound:.0f} m/s, passes"
            f" {cfl * sound / max_speed:.3g} cells in a step, but the scheme allows {limit:.3f} with beta = {beta:g}:"
            f" at most {math.floor(100 * limit * max_speed / sound) / 100:g}"
        )
