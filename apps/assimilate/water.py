"""The water of the twin experiments: a layer on a rotating plane, as traced models.

Shallow water in the vector-invariant form on a C grid, periodic: thickness h at the centers of cells, u at their west
faces, v at their south faces, potential vorticity at their south-west corners; the enstrophy-conserving scheme of
Sadourny (1975, J. Atmos. Sci. 32, 680-689), three stages of Runge and Kutta (Wicker and Skamarock 2002).
"""

from __future__ import annotations

from typing import Any

from hpckit.adjoint.models import model
from hpckit.apps.assimilate.config import Config
from hpckit.grid.field import Field

State = tuple[Field, Field, Field]  # h, u, v


class Water:
    """The models of a run: `step` of all fields, and `balanced`, the geostrophic current of a change of the surface.

    step: h (m), u, v (m/s) -> those after `window.dt`. balanced: a change of h (m) -> changes of u and v.
    """

    def __init__(self, config: Config) -> None:
        it, dx, dt = config.physics, config.grid.dx, config.window.dt
        f, gravity, viscosity = it.f, it.gravity, it.viscosity / dx**2

        def tendencies(h: Any, u: Any, v: Any) -> tuple[Any, Any, Any]:
            flux_x, flux_y = u * 0.5 * (h + h[0, -1]), v * 0.5 * (h + h[-1, 0])
            corner = 0.25 * (h + h[0, -1] + h[-1, 0] + h[-1, -1])
            q = (f + (v - v[0, -1] - u + u[-1, 0]) / dx) / corner
            head = gravity * h + 0.25 * (u * u + u[0, 1] * u[0, 1] + v * v + v[1, 0] * v[1, 0])
            along, across = 0.25 * q * (flux_y + flux_y[0, -1]), 0.25 * q * (flux_x + flux_x[-1, 0])
            dh = (flux_x - flux_x[0, 1] + flux_y - flux_y[1, 0]) / dx
            du = along + along[1, 0] - (head - head[0, -1]) / dx + viscosity * _around(u)
            dv = -across - across[0, 1] - (head - head[-1, 0]) / dx + viscosity * _around(v)
            return dh, du, dv

        @model
        def step(h: Any, u: Any, v: Any) -> Any:
            now = h, u, v
            for share in (3.0, 2.0, 1.0):
                rates = tendencies(*now)
                new = [a + dt / share * rate for a, rate in zip((h, u, v), rates, strict=True)]
                now = tuple(each.hold() for each in new) if share > 1 else tuple(new)
            return now

        @model
        def balanced(h: Any) -> Any:
            north, south = h[1, 0] + h[1, -1], h[-1, 0] + h[-1, -1]
            east, west = h[0, 1] + h[-1, 1], h[0, -1] + h[-1, -1]
            turn = gravity / (4 * f * dx)
            return -turn * (north - south), turn * (east - west)

        self.step, self.balanced = step, balanced


def _around(a: Any) -> Any:
    return a[0, 1] + a[0, -1] + a[1, 0] + a[-1, 0] - 4 * a


@model
def smoothed(a: Any) -> Any:
    """One step of diffusion, which is its own adjoint."""
    return a + 0.125 * _around(a)


@model
def misfit(h: Any, u: Any, v: Any, seen_h: Any, seen_u: Any, seen_v: Any, weight_h: Any, weight_u: Any) -> Any:
    """Half the squares of what is observed less what the model has, in units of the observations' errors.

    weight_h, weight_u: 1 / error^2 where there is an observation, else 0.
    """
    return 0.5 * (weight_h * (h - seen_h) ** 2 + weight_u * ((u - seen_u) ** 2 + (v - seen_v) ** 2)).sum()


@model
def energy(h: Any, u: Any, v: Any, gravity: Any, depth: Any) -> Any:
    """Twice the energy of a disturbance, the square of its norm."""
    return (gravity * h * h + depth * (u * u + v * v)).sum()


@model
def paired(h: Any, u: Any, v: Any, with_h: Any, with_u: Any, with_v: Any) -> Any:
    """A linear cost, whose gradient takes the weights back through the window."""
    return (h * with_h + u * with_u + v * with_v).sum()
