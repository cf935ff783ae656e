"""Checks of sums over all images of charges: waves one by one, and charges on a mesh."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.comm.device import Device
from hpckit.kernels.particles.ewald import reference as ewald_reference
from hpckit.kernels.particles.mesh import reference as mesh_reference
from hpckit.md.molecules.estimates import waves_within
from hpckit.md.molecules.ewald import rounding
from tests.gpu.checks import DOUBLE, Check, Pairs, size


def _some_charges(n: int, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Records and charges, of which each seventh is none."""
    rng = np.random.default_rng(4)
    charges = rng.uniform(-1, 1, n)
    charges[::7] = 0.0
    return np.column_stack([rng.uniform(0, lengths, (n, 3)), np.ones(n)]), charges


def waves(device: Device, dtype: np.dtype) -> Pairs:
    """The sums over particles of each wave, whose bits do not depend on the order, and the forces."""
    from hpckit.kernels.particles.ewald import cuda

    lengths, most = np.array([7.0, 9.0, 8.0]), np.array(size(device, (6, 9, 7), (1, 2, 2)))
    x, charges = _some_charges(n := size(device, 1000, 11), lengths)
    rows, numbers = waves_within(tuple(most), lengths)
    weights = np.random.default_rng(5).uniform(0, 1, len(numbers))
    where, big = (2 * np.pi / lengths, most), rounding(np.abs(charges).sum())
    sums, forces = np.zeros((2, len(numbers))), np.ones((n, 4))
    ewald_reference.structure(x, charges, n, rows, *where, big, *sums)
    ewald_reference.wave_forces(x, charges, n, rows, *where, *sums, weights, forces)
    there = [device.to_device(each) for each in (x, charges)]
    found, out = device.zeros(sums.shape), device.to_device(np.ones((n, 4)))
    rows_there, back = device.to_device(rows), device.zeros(sums.shape)
    cuda.structure(*there, n, rows_there, *where, big, *found)
    cuda.wave_forces(*there, n, rows_there, *where, *device.to_device(sums), device.to_device(weights), out)
    cuda.structure(*(device.to_device(each[::-1]) for each in (x, charges)), n, rows_there, *where, big, *back)
    return {"sums": (found, sums), "forces": (out, forces), "order": ((back != found).astype(float), 0 * sums)}


def meshes(device: Device, dtype: np.dtype) -> Pairs:
    """Charges on the points of a mesh, of which some are beyond it, and forces from there; even and odd orders."""
    from hpckit.kernels.particles.mesh import cuda

    pairs: dict[str, Any] = {}
    n, shape, start = size(device, 600, 9), np.array([11, 13, 12]), np.array([-3, -2, -4])
    count = int(shape.prod())
    x, charges = _some_charges(n, np.ones(3))
    x[:, :3] += 1.0
    x[1, 0] = 40.0
    place = np.array([0.9, 0.8, 1.0]), np.array([4.0, 5.0, 3.5]), start, shape
    big, kept = rounding(256.0), np.arange(n) != 1
    fields = np.random.default_rng(6).normal(size=(3, 7, 9, 10))  # periodic, and smaller than the box of points
    room = (count + mesh_reference.WIDTH, mesh_reference.SIDE)
    beside, there, total, whole = np.zeros(room), device.zeros(room), device.zeros((7, 9, 10)), np.zeros((7, 9, 10))
    mesh_reference.lay_beside(fields, start, shape, beside)
    cuda.lay_beside(device.to_device(fields), start, shape, there)
    pairs["side by side"] = there, beside
    given = np.random.default_rng(7).normal(size=tuple(shape.tolist()))
    mesh_reference.fold(given, start, whole)
    cuda.fold(device.to_device(given), start, total)
    pairs["folded"] = total, whole
    for order in (5, 6):
        grid, forces = np.zeros(count + mesh_reference.WIDTH), np.ones((n, 4))
        lost = mesh_reference.spread(x, charges, n, *place, order, big, grid)
        one = np.ones((n - 1, 4))
        mesh_reference.gather(x[kept], charges[kept], n - 1, *place, order, beside, one)
        forces[kept] = one
        charged = [device.to_device(each) for each in (x, charges)]
        out, pushed = device.zeros(grid.shape), device.to_device(np.ones((n, 4)))
        found = cuda.spread(*charged, n, *place, order, big, out)
        cuda.gather(*charged, n, *place, order, there, pushed)
        pairs[f"lost of order {order}"] = found, np.array(float(lost))
        pairs[f"grid of order {order}"] = out, grid
        pairs[f"forces of order {order}"] = pushed, forces
    return pairs


CHECKS = [Check("waves of charges", waves, DOUBLE), Check("charges on a mesh", meshes, DOUBLE)]
