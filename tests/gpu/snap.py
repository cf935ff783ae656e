"""Checks of SNAP."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.comm.device import Device
from hpckit.io.particles.lammps_snap import _repulsions
from hpckit.kernels.particles.cells.constants import CLUSTER, FAR, RECORD
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.many_body.snap import dispatch, reference
from tests.gpu.checks import DOUBLE, Check, Pairs, size
from tests.gpu.particles import Sorted


def snap(device: Device, dtype: np.dtype) -> Pairs:
    """Two elements, with products of B and repulsion, and without: forces on all slots, energies and virials."""
    own, others = size(device, (256, 100), (8, 3))
    case, found = Sorted(device, own, others, 2), dict[str, Any]()
    first, second = case.pairs()
    starts = np.searchsorted(first, np.arange(own + 1))
    host = np.concatenate([case.host, np.full((CLUSTER, RECORD), FAR)])
    for twice_j, quadratic, densities in ((3, True, 1), (2, False, 1), (1, False, 2)):
        rng, n = np.random.default_rng(twice_j), densities**3 * len(reference.tables(twice_j).triples)
        count = 1 + n + (n * (n + 1) // 2 if quadratic else 0)
        coefficients = rng.normal(size=(2, count)) / (1 + np.arange(count))
        zbl = _repulsions((0.9, 1.3), (3, 5)) if quadratic else np.zeros((2, 2, reference.ZBL))
        radii, weights = np.array([0.7, 0.8]), np.array([1.0, 0.6])
        given = reference.Snap(
            twice_j,
            coefficients,
            radii,
            weights,
            0.99,
            0.1,
            True,
            True,
            zbl,
            densities,
            np.arange(2) % densities,
            False,
        )
        lists = Lists((RECORD * second).astype(np.int32), starts, None, None, [])
        pushed, tallies = np.zeros((len(host), RECORD)), np.zeros((own, 8))
        kernel, room = dispatch.force_kernel(False, True, pushed), dispatch.room(given, lists, own, None)
        dispatch.forces(kernel, np.arange(own // CLUSTER, dtype=np.int32), host, lists, given, room, pushed, tallies)
        there = Lists(case.entries, case.lengths, None, None, [])
        work = dispatch.room(given, there, own, None)
        for measure in (False, True):
            out, sums = device.zeros((own + others, RECORD)), device.to_device(np.ones((own, 8)))
            made = dispatch.force_kernel(False, measure, out)
            dispatch.forces(made, range(own), case.records, there, given, work, out, sums)
            found[f"forces, {twice_j}, measure {measure}"] = out, pushed[: own + others]
            found[f"tallies, {twice_j}, measure {measure}"] = sums, tallies if measure else np.ones((own, 8))
    return found


CHECKS = [Check("SNAP", snap, DOUBLE)]
