"""The arithmetic of stresses at an edge of a cell, written once for CPU and GPU. Arrays: as in `reference`."""

from __future__ import annotations

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.constants import REACH
from hpckit.kernels.euler.hevi.constants import HALO, PER_CELL, PER_FACE


@inlined
def shears_xy(work, per_dx, per_dy, k, j, i):
    """du/dy and dv/dx at the low corner of a cell in x and y."""
    return (work[0, k, j, i] - work[0, k, j - 1, i]) * per_dy, (work[1, k, j, i] - work[1, k, j, i - 1]) * per_dx


@inlined
def shears_xz(work, rest, levels, per_dx, k, j, i):
    """du/dz, without the base's, and dw/dx at the low edge in x and z of a cell above the ground."""
    u_z = ((work[0, k, j, i] - rest[0, k]) - (work[0, k - 1, j, i] - rest[0, k - 1])) * levels[PER_FACE, k]
    return u_z, (work[2, k, j, i] - work[2, k, j, i - 1]) * per_dx


@inlined
def shears_yz(work, rest, levels, per_dy, k, j, i):
    """dv/dz, without the base's, and dw/dy at the low edge in y and z of a cell above the ground."""
    v_z = ((work[1, k, j, i] - rest[1, k]) - (work[1, k - 1, j, i] - rest[1, k - 1])) * levels[PER_FACE, k]
    return v_z, (work[2, k, j, i] - work[2, k, j - 1, i]) * per_dy


@inlined
def four_xy(mu, k, j, i):
    """Mean of mu around the low corner in x and y."""
    return 0.25 * ((mu[k, j, i - 1] + mu[k, j, i]) + (mu[k, j - 1, i - 1] + mu[k, j - 1, i]))


@inlined
def four_xz(mu, k, j, i):
    """Mean of mu around the low edge in x and z."""
    return 0.25 * ((mu[k, j, i - 1] + mu[k - 1, j, i - 1]) + (mu[k, j, i] + mu[k - 1, j, i]))


@inlined
def four_yz(mu, k, j, i):
    """Mean of mu around the low edge in y and z."""
    return 0.25 * ((mu[k, j - 1, i] + mu[k - 1, j - 1, i]) + (mu[k, j, i] + mu[k - 1, j, i]))


@inlined
def carried_change(q, mu, levels, dx, dy, k, j, i):
    """What diffusion brings to rho times a mixing ratio in a cell, per s; k, j, i: of q."""
    top, y, x = q.shape[0] - 1, j + HALO - REACH, i + HALO - REACH
    low, high, here, weight = max(k - 1, 0), min(k + 1, top), q[k, j, i], mu[k, y, x]
    along_x = (mu[k, y, x + 1] + weight) * (q[k, j, i + 1] - here) - (weight + mu[k, y, x - 1]) * (
        here - q[k, j, i - 1]
    )
    along_y = (mu[k, y + 1, x] + weight) * (q[k, j + 1, i] - here) - (weight + mu[k, y - 1, x]) * (
        here - q[k, j - 1, i]
    )
    above = (mu[high, y, x] + weight) * (q[high, j, i] - here) * levels[PER_FACE, k + 1]
    below = (weight + mu[low, y, x]) * (here - q[low, j, i]) * levels[PER_FACE, k]
    return 0.5 * (along_x / (dx * dx) + along_y / (dy * dy) + (above - below) * levels[PER_CELL, k])
