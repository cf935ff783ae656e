"""The Coriolis force over terrain, Numba: on what momenta have beyond those of the base state's wind."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.hevi.constants import HALO
from hpckit.kernels.euler.hevi.rows import place

u8 = np.uint64


@jit(borrowed=True)
def add_coriolis(state, base, wind, coriolis, slow, first, last):
    """To some rows of `slow`, which may have room for few. base: J rho of the base state; wind: `Ground.wind`."""
    nz, tall, wide = state.shape[1:]
    lo, hi = HALO, wide - HALO
    for k in range(nz):
        for j in range(first, last):
            o = place(j, slow.shape[2])
            south, here = state[0, k, j - 1, lo - 1 : hi + 1], state[0, k, j, lo - 1 : hi + 1]
            north = state[0, k, j + 1, lo - 1 : hi + 1]
            base_south, base_here = base[k, j - 1, lo - 1 : hi + 1], base[k, j, lo - 1 : hi + 1]
            base_north = base[k, j + 1, lo - 1 : hi + 1]
            if j < tall - HALO:
                _turned(
                    state[2, k, j, lo - 1 : hi + 1], state[2, k, j + 1, lo - 1 : hi + 1], south, here, north,
                    base_south, base_here, base_north, wind[1, k, j, lo - 1 : hi + 1],
                    wind[1, k, j + 1, lo - 1 : hi + 1], coriolis, slow[1, k, o, lo : hi + 1],
                )  # fmt: skip
            _turned_back(
                state[1, k, j - 1, lo : hi + 1], state[1, k, j, lo : hi + 1], south, here, base_south, base_here,
                wind[0, k, j - 1, lo : hi + 1], wind[0, k, j, lo : hi + 1], coriolis, slow[2, k, o, lo:hi],
            )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _turned(v, v_north, south, here, north, base_south, base, base_north, wind, wind_north, coriolis, out):
    for i in range(u8(len(out))):
        e = i + u8(1)
        rho_west, rho_east = here[i] + base[i], here[e] + base[e]
        west = v[i] - 0.5 * ((south[i] + base_south[i]) + rho_west) * wind[i]
        east = v[e] - 0.5 * ((south[e] + base_south[e]) + rho_east) * wind[e]
        north_west = v_north[i] - 0.5 * (rho_west + (north[i] + base_north[i])) * wind_north[i]
        north_east = v_north[e] - 0.5 * (rho_east + (north[e] + base_north[e])) * wind_north[e]
        out[i] += coriolis * (0.25 * ((west + east) + (north_west + north_east)))


@jit(noalias=True, borrowed=True)
def _turned_back(u_south, u, south, here, base_south, base, wind_south, wind, coriolis, out):
    """Densities start a cell before the faces of u."""
    for i in range(u8(len(out))):
        e, f = i + u8(1), i + u8(2)
        rho_south, rho = south[e] + base_south[e], here[e] + base[e]
        south_west = u_south[i] - 0.5 * ((south[i] + base_south[i]) + rho_south) * wind_south[i]
        west = u[i] - 0.5 * ((here[i] + base[i]) + rho) * wind[i]
        south_east = u_south[e] - 0.5 * (rho_south + (south[f] + base_south[f])) * wind_south[e]
        east = u[e] - 0.5 * (rho + (here[f] + base[f])) * wind[e]
        out[i] -= coriolis * (0.25 * ((south_west + west) + (south_east + east)))
