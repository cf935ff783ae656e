"""The arithmetic of stresses at an edge of a cell, written once for CPU and GPU. Arrays: as in `reference`."""

from __future__ import annotations

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.hevi.constants import PER_FACE


@inlined
def shears_xy(work, dx, dy, k, j, i):
    """du/dy and dv/dx at the low corner of a cell in x and y."""
    return (work[0, k, j, i] - work[0, k, j - 1, i]) / dy, (work[1, k, j, i] - work[1, k, j, i - 1]) / dx


@inlined
def shears_xz(work, rest, levels, dx, k, j, i):
    """du/dz, without the base's, and dw/dx at the low edge in x and z of a cell above the ground."""
    u_z = ((work[0, k, j, i] - rest[0, k]) - (work[0, k - 1, j, i] - rest[0, k - 1])) * levels[PER_FACE, k]
    return u_z, (work[2, k, j, i] - work[2, k, j, i - 1]) / dx


@inlined
def shears_yz(work, rest, levels, dy, k, j, i):
    """dv/dz, without the base's, and dw/dy at the low edge in y and z of a cell above the ground."""
    v_z = ((work[1, k, j, i] - rest[1, k]) - (work[1, k - 1, j, i] - rest[1, k - 1])) * levels[PER_FACE, k]
    return v_z, (work[2, k, j, i] - work[2, k, j - 1, i]) / dy


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
