"""What the weather models do besides their dynamics, on a GPU: diffusion, mixing, relaxation, drag, tracers."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.atmosphere.base import base_state
from hpckit.apps.atmosphere.profiles import neutral
from hpckit.comm.device import Device
from hpckit.kernels.compile.cuda.jit import compiling
from hpckit.kernels.euler.constants import HALO, REACH
from hpckit.kernels.euler.relaxation.dispatch import relax
from hpckit.kernels.euler.slab import dispatch as slab
from hpckit.kernels.euler.tracers.dispatch import transport
from hpckit.kernels.euler.turbulence import dispatch as mixing
from tests.gpu.checks import Check, Pairs, size
from tests.gpu.euler import DX, DZ, noise, on_both

DT = 0.1
SPACING = (DX, 0.8 * DX, DZ)
SINGLE = 1e-5


def slab_case(device: Device, dtype: np.dtype) -> Pairs:
    """Diffusion of the slab."""
    nz, nx = size(device, (37, 533), (3, 7))
    base, state = base_state(neutral(300.0), nz, DZ), noise((4, nz, nx + 2 * HALO), dtype, 1.0)
    calm = np.random.default_rng(3).normal(size=(3, nz))

    def diffuse(s: Any, column: Any, calm: Any, work: Any) -> None:
        slab.diffuse(s, column, calm, DX, DZ, 30.0, work)

    return on_both("diffusion", device, dtype, diffuse, state, base.column, calm, np.zeros_like(state))


def box_case(device: Device, dtype: np.dtype) -> Pairs:
    """Relaxation at open sides and lid, drag, and the eddy viscosity with what it does to the air."""
    nz, ny, nx = size(device, (21, 37, 301), (3, 6, 7))
    base = base_state(neutral(300.0), nz, DZ)
    state = noise((5, nz, ny + 2 * HALO, nx + 2 * HALO), dtype, 1.0)
    rng = np.random.default_rng(4)
    calm = np.array([*rng.normal(size=(2, nz)), np.zeros(nz), base.theta])
    sides = [np.maximum(rng.normal(size=n), 0.0) for n in ((2, nx), (2, ny), nz)]

    def relaxed(s: Any, column: Any, calm: Any, x: Any, y: Any, z: Any) -> Any:
        return _number(relax(s, column, calm, x, y, z, DT, 0))

    def relaxed_at_faces(s: Any, column: Any, calm: Any, x: Any, y: Any, z: Any) -> Any:
        return _number(relax(s, column, calm, x, y, z, DT, 1))

    def slowed(s: Any, column: Any) -> None:
        mixing.drag(s, column, 0.01, DZ, DT)

    def mixed(s: Any, column: Any, calm: Any, work: Any, viscosity: Any) -> Any:
        greatest = mixing.eddy_viscosity(s, column, SPACING, 0.2, 1 / 3, 60.0, work, viscosity)
        mixing.mix(s, calm, SPACING, DT, 1 / 3, work, viscosity)
        return _number(greatest)

    viscosity = np.zeros(state.shape[1:])
    pairs = on_both("relaxation", device, dtype, relaxed, state, base.column, calm, *sides)
    pairs |= on_both("relaxation at faces", device, dtype, relaxed_at_faces, state, base.column, calm, *sides)
    pairs |= on_both("drag", device, dtype, slowed, state, base.column)
    return pairs | on_both("mixing", device, dtype, mixed, state, base.column, calm, np.zeros_like(state), viscosity)


def tracers_case(device: Device, dtype: np.dtype) -> Pairs:
    """Transport along each dim and diffusion of tracers."""
    nz, ny, nx = shape = size(device, (21, 37, 301), (3, 6, 7))
    base, rng = base_state(neutral(300.0), nz, DZ), np.random.default_rng(6)
    state = noise((5, nz, ny + 2 * HALO, nx + 2 * HALO), dtype, 1.0)
    q = rng.random((size(device, 2, 1), nz, ny + 2 * REACH, nx + 2 * REACH))
    old, viscosity = state[0] + 1e-3 * rng.normal(size=state.shape[1:]), 20.0 * rng.random(state.shape[1:])
    pairs: Pairs = {}

    def diffused(q: Any, out: Any, s: Any, column: Any, viscosity: Any) -> None:
        mixing.mix_tracers(q, out, s, column, SPACING, DT, viscosity)

    there, here = _copies(device, dtype, q, np.zeros_like(q), state, base.column, viscosity)
    diffused(*there)
    if not compiling():
        diffused(*here)
    pairs["diffusion"] = (there[1], here[1])
    for dim, width in enumerate(reversed(SPACING)):
        flux = 20.0 * rng.normal(size=[n + (d == dim) for d, n in enumerate(shape)])
        if dim == 0:
            flux[[0, -1]] = 0.0
        for bounded, thins in ((True, False), (True, True), (False, False)):
            inputs = q, np.zeros_like(q), old, state[0], base.column, flux, DT / width * rng.uniform(0.5, 1.0, nz)
            there, here = _copies(device, dtype, *inputs)
            for *arrays, rates in (there,) if compiling() else (there, here):
                transport(*arrays, dim, rates, bounded, thins)
            name = f"{'' if bounded else 'linear '}transport along {'zyx'[dim]}"
            pairs[f"{name} with the air" if thins else name] = (there[1], here[1])
            if thins:
                pairs[f"air along {'zyx'[dim]}"] = (there[3], here[3])
    return pairs


def _copies(device: Device, dtype: np.dtype, *arrays: np.ndarray) -> tuple[list[Any], list[np.ndarray]]:
    """The arrays on the device, and the same values on the host in double precision."""
    rounded = [array.astype(dtype) for array in arrays]
    return [device.to_device(array) for array in rounded], [array.astype(np.float64) for array in rounded]


def _number(value: Any) -> float:
    """A number that may be on the device."""
    return 0.0 if compiling() else float(value)


CHECKS = [
    Check("slab diffusion", slab_case, SINGLE),
    Check("box physics", box_case, SINGLE),
    Check("tracers", tracers_case, SINGLE),
]
