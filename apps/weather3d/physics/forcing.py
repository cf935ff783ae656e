"""What acts on the split dynamics from outside: fluxes at the ground, tendencies by level, subsidence, radiation.

Each process is in flux form or known by column, in whole arrays, so that what entered is summed to rounding.

Over terrain densities are per unit of zeta, J rho (`kernels.euler.hevi.terrain.reference`), and the lowest level has
the thickness of its place. Fluxes count per area of the map, the horizontal wind drives them; the drag takes momentum
at unchanged mass flux through the levels, so that the wind stays parallel to the slope. Tendencies of theta and vapor
are those of the true height.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.atmosphere.base import BaseState
from hpckit.apps.atmosphere.settings import Points
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.physics.radiation import flux, warming
from hpckit.apps.weather3d.settings.physics import WARM
from hpckit.apps.weather3d.terrain import Terrain
from hpckit.kernels.euler.box.constants import RHO, RHO_THETA, RHO_U, RHO_V
from hpckit.kernels.euler.constants import RD, REACH
from hpckit.kernels.euler.hevi.constants import HALO
from hpckit.kernels.euler.rain.constants import RV

OWNED = (slice(None), slice(HALO, -HALO), slice(HALO, -HALO))
INNER = slice(HALO, -HALO)
CALM = 0.01  # m/s: no wind at the ground is slower, where the friction velocity is given
KAPPA = RV / RD


def levels_of(points: Points, height: np.ndarray) -> np.ndarray:
    """Values at heights (m), linear between points (height, value), constant beyond; 0 without points."""
    return np.interp(height, *np.transpose(points)) if points else np.zeros_like(height)


def is_forced(config: Config) -> bool:
    """Whether anything acts from outside, but for a geostrophic wind."""
    surface, forcing = config.surface, config.forcing
    fluxes = (surface.heat, surface.vapor, surface.exchange, surface.friction, config.drag)
    return any(fluxes) or any((forcing.cooling, forcing.drying, forcing.subsidence, config.radiation.top))


class Forced:
    """The processes on a rank. entered: moist theta (K kg) and water (kg) since the start, of this rank's cells."""

    def __init__(
        self, config: Config, base: BaseState, edges: np.ndarray, column: Any, table: Any, terrain: Terrain | None
    ) -> None:
        """column: rows of the base state on the device; table: takes an array there."""
        forcing, thick = config.forcing, np.diff(edges)
        self.config = config
        self._volume = table((thick * config.grid.dx * config.grid.dy)[:, None, None])
        gap = np.append(2 / (thick[1:] + thick[:-1]), 0.0)
        height = base.height[:, None, None] if terrain is None else terrain.height
        self._warming = table(levels_of(forcing.cooling, height))
        self._wetting = table(levels_of(forcing.drying, height))
        sinking = -levels_of(forcing.subsidence, base.height) * gap  # 1/s, of what is above less what is here
        self._sinking = table(sinking[:, None, None]) if forcing.subsidence else None
        self._faces = table(edges[:, None, None])
        if terrain is None:
            self._base = column[:, :, None, None]
            lowest = float(base.column[0][0]), float(thick[0])
            self._lowest = dict.fromkeys(("cells", "u", "v"), lowest)
        else:
            self._base = terrain.ground.base[:3][(slice(None), *OWNED)]
            self._lowest = {place: (table(rho), table(low)) for place, (rho, low) in terrain.lowest().items()}
        self.entered: list[Any] = [0.0, 0.0]

    def apply(self, state: Any, carried: Any, dt: float) -> None:
        """Over dt (s), in place, on a state whose halo is filled; carried: mixing ratios, None of dry air."""
        speed = self._speed(state)
        self._slow(state, dt)  # first: it reads the halo
        if self._sinking is not None:
            for field in (RHO_U, RHO_V):
                wind = state[field][OWNED] / self._base[0]
                state[field][OWNED] += dt * self._base[0] * self._from_above(wind)
        rho, heat = state[RHO][OWNED] + self._base[0], state[RHO_THETA]
        vapor = 0.0 * rho if carried is None else carried[0, :, REACH:-REACH, REACH:-REACH]
        theta = (heat[OWNED] + self._base[1]) / (rho * (1 + KAPPA * vapor))
        rate = dt / self._lowest["cells"][1]
        warmer, wetter = dt * self._warming + 0.0 * rho, dt * self._wetting + 0.0 * rho
        if self._sinking is not None:
            warmer += dt * self._from_above(theta)
            wetter += dt * self._from_above(vapor)
        if self.config.radiation.top:
            water = carried[: len(self.config.moisture.water), :, REACH:-REACH, REACH:-REACH]
            up = flux(water[1 : len(WARM)].sum(axis=0), water.sum(axis=0), rho, self._faces, self.config.radiation)
            warmer += dt * warming(up, rho, self._base[2], self._faces)
        heating, wetting = self._through_ground(speed, theta[0], vapor[0])
        warmer[0] += rate * heating
        if carried is not None:
            wetter[0] += rate * wetting
            wetter = np.maximum(wetter, -vapor)
            carried[0, :, REACH:-REACH, REACH:-REACH] += wetter
            for other in (
                carried[1 : len(self.config.moisture.water)] if self._sinking is not None else ()
            ):  # and the rest
                here = other[:, REACH:-REACH, REACH:-REACH]
                sunk = dt * self._from_above(here)
                here += sunk
                self.entered[1] = self.entered[1] + (rho * sunk * self._volume).sum()
            self.entered[1] = self.entered[1] + (rho * wetter * self._volume).sum()
            added = rho * (warmer * (1 + KAPPA * vapor) + KAPPA * theta * wetter)
        else:
            added = rho * warmer
        heat[OWNED] += added
        self.entered[0] = self.entered[0] + (added * self._volume).sum()

    def _through_ground(self, speed: Any, theta: Any, vapor: Any) -> tuple[Any, Any]:
        """Upward fluxes of theta (K m/s) and vapor (m/s), by the wind's speed, theta and vapor of the lowest level."""
        surface = self.config.surface
        return (
            surface.heat + surface.exchange * speed * (surface.theta - theta),
            surface.vapor + surface.exchange * speed * (surface.humidity - vapor),
        )

    def at_ground(self, u: np.ndarray, v: np.ndarray, theta: np.ndarray, vapor: np.ndarray) -> dict[str, np.ndarray]:
        """Upward fluxes of u, v (m2/s2), theta (K m/s) and vapor (m/s), from the middles of the lowest cells, [ny, nx].

        The stress is that of `apply` on the faces around, to second order.
        """
        speed = np.hypot(u, v)
        pull = self.config.drag * speed + self.config.surface.friction**2 / np.maximum(speed, CALM)
        heat, wet = self._through_ground(speed, theta, vapor)
        return {"u": -pull * u, "v": -pull * v, "theta": heat + 0.0 * speed, "vapor": wet + 0.0 * speed}

    def _from_above(self, values: Any) -> Any:
        """Tendency by subsidence, upwind: what comes down."""
        change = 0.0 * values
        change[:-1] = values[1:] - values[:-1]
        return self._sinking * change

    def _speed(self, state: Any) -> Any:
        """Of the wind in the middles of the lowest cells, m/s."""
        beyond = slice(HALO + 1, -HALO + 1)
        u = 0.5 * (state[RHO_U, 0, INNER, INNER] + state[RHO_U, 0, INNER, beyond])
        v = 0.5 * (state[RHO_V, 0, INNER, INNER] + state[RHO_V, 0, beyond, INNER])
        return np.sqrt(u * u + v * v) / self._lowest["cells"][0]

    def _slow(self, state: Any, dt: float) -> None:
        """The stress of the ground on the wind of the lowest level, implicit: stable for any step."""
        coefficient, friction = self.config.drag, self.config.surface.friction
        if not coefficient and not friction:
            return
        before, beyond = slice(HALO - 1, -HALO - 1), slice(HALO + 1, -HALO + 1)
        u, v = state[RHO_U, 0], state[RHO_V, 0]
        v_there = 0.25 * ((v[INNER, before] + v[INNER, INNER]) + (v[beyond, before] + v[beyond, INNER]))
        u_there = 0.25 * ((u[before, INNER] + u[INNER, INNER]) + (u[before, beyond] + u[INNER, beyond]))
        kept = []
        for place, own, other in (("u", u[INNER, INNER], v_there), ("v", v[INNER, INNER], u_there)):
            rho, low = self._lowest[place]
            speed = np.sqrt(own * own + other * other) / rho
            pull = coefficient * speed + friction**2 / np.maximum(speed, CALM)
            kept.append(1 / (1 + dt / low * pull))
        u[INNER, INNER] *= kept[0]
        v[INNER, INNER] *= kept[1]
