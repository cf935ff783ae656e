"""The case of `hpckit bench adjoint`: Burgers' equation in 2-D, central differences, periodic, as three programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.adjoint.models import model
from hpckit.kernels.compile.jit import jit

ADVECTION, DIFFUSION = 0.05, 0.1  # dt / 2h and nu dt / h^2, as constants of all programs


@model
def step(u: Any, v: Any) -> Any:
    """One step, traced."""

    def advanced(w: Any) -> Any:
        east, west, north, south = w[0, 1], w[0, -1], w[1, 0], w[-1, 0]
        carried = u * (east - west) + v * (north - south)
        return w - ADVECTION * carried + DIFFUSION * (east + west + north + south - 4 * w)

    return advanced(u), advanced(v)


@model
def energy(u: Any, v: Any) -> Any:
    """The cost at the end."""
    return (u * u + v * v).sum()


@jit(noalias=True)
def step_by_hand(u, v, new_u, new_v):
    """One step as a loop over cells, of arrays with a halo of one cell."""
    for j in range(np.uint64(1), np.uint64(u.shape[0] - 1)):
        for i in range(np.uint64(1), np.uint64(u.shape[1] - 1)):
            n, s, e, w = j + np.uint64(1), j - np.uint64(1), i + np.uint64(1), i - np.uint64(1)
            a, b = u[j, i], v[j, i]
            carried = a * (u[j, e] - u[j, w]) + b * (u[n, i] - u[s, i])
            new_u[j, i] = a - ADVECTION * carried + DIFFUSION * (u[j, e] + u[j, w] + u[n, i] + u[s, i] - 4 * a)
            carried = a * (v[j, e] - v[j, w]) + b * (v[n, i] - v[s, i])
            new_v[j, i] = b - ADVECTION * carried + DIFFUSION * (v[j, e] + v[j, w] + v[n, i] + v[s, i] - 4 * b)


@jit
def fill_by_hand(field):
    """The periodic halo of an array."""
    field[0], field[-1] = field[-2], field[1]
    for j in range(field.shape[0]):
        field[j, 0], field[j, -1] = field[j, -2], field[j, 1]


def jax_step(state: Any) -> Any:
    """One step as array expressions of JAX; state: (u, v) without halos."""
    import jax.numpy as jnp

    def advanced(w: Any) -> Any:
        east, west, north, south = jnp.roll(w, -1, 1), jnp.roll(w, 1, 1), jnp.roll(w, -1, 0), jnp.roll(w, 1, 0)
        carried = u * (east - west) + v * (north - south)
        return w - ADVECTION * carried + DIFFUSION * (east + west + north + south - 4 * w)

    u, v = state
    return advanced(u), advanced(v)
