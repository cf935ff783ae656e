"""Checks of shallow water."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.comm.device import Device
from hpckit.kernels.compile.cuda.jit import compiling
from hpckit.kernels.device_array import empty, is_device_array
from hpckit.kernels.shallow_water.constants import CORNER, FACE, HALO, STRESS, WATER, F, Physics
from hpckit.kernels.shallow_water.dispatch import diagnose, step, step_free
from tests.gpu.checks import Check, Pairs, size

FORCES = (2e3, 1e-3, 0.2)  # viscosity, drag, quadratic drag
OWNED = (slice(HALO, -HALO), slice(HALO, -HALO))


def case(device: Device, dtype: np.dtype) -> Pairs:
    """Both steps and what is watched: a free basin, and a closed one with all terms."""
    ny, nx = size(device, (151, 507), (11, 13))
    rng = np.random.default_rng(1)
    high, wide = ny + 2 * HALO, nx + 2 * HALO
    h = 100.0 + 3.0 * rng.normal(size=(high, wide))
    u, v, bottom = rng.normal(size=(high, wide + 1)), rng.normal(size=(high + 1, wide)), rng.normal(size=(high, wide))
    rows, columns = np.ones((5, high)), np.ones((3, wide))
    for table, n in ((rows, ny), (columns, nx)):
        table[WATER, :HALO] = table[WATER, n + HALO :] = 0
        table[FACE, : HALO + 1] = table[FACE, n + HALO :] = 0
        table[CORNER, :HALO] = table[CORNER, n + HALO + 1 :] = 0
    rows[F], rows[STRESS] = 1e-4 + 1e-6 * np.arange(high), 1e-3 * np.cos(np.arange(high))
    u[:, :wide] *= rows[WATER][:, None] * columns[FACE]
    v[:high] *= rows[FACE][:, None] * columns[WATER]
    u[:, wide] = v[high] = 0
    free, physics = Physics(9.81, 900.0, 1100.0), Physics(9.81, 900.0, 1100.0, *FORCES)

    def advanced(call: Any, fields: Any, *arguments: Any) -> Any:
        """By a step, in place on the host."""
        out = tuple(empty(each.shape, each) for each in fields) if is_device_array(fields[0]) else fields
        call(fields, out, *arguments, 5.0)
        owned = tuple(slice(HALO, n - HALO) for n in fields[0].shape)  # of u and v too: the step leaves the last face
        for field, target in zip(fields, out, strict=True):
            field[owned] = target[owned]

    pairs: Pairs = {}
    for label, call in (
        ("free", lambda h, u, v, b, r, c, f: advanced(step_free, (h, u, v), f, free)),
        ("all terms", lambda h, u, v, b, r, c, f: advanced(step, (h, u, v), b, r, c, physics)),
        ("watch", lambda h, u, v, b, r, c, f: diagnose((h, u, v), b, f, free)),
    ):
        given = [each.astype(dtype) for each in (h, u, v, bottom, rows, columns, rows[F])]
        there, here = [device.to_device(each) for each in given], [each.astype(np.float64) for each in given]
        found, expected = call(*there), None if compiling() else call(*here)
        for name, got, wanted in zip("huv", there, here, strict=False):
            pairs[f"{label}, {name}"] = (got[OWNED], wanted[OWNED])
        if expected is not None:
            for k, value in enumerate(expected):
                pairs[f"{label}, {k}"] = (device.to_device(np.array([found[k]])), np.array([value]))
    return pairs


CHECKS = [Check("shallow_water", case, 1e-5)]
