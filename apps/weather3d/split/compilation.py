"""The kernels of the box with split dynamics are compiled, or loaded, before the time loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.physics.tracers import warm_up as warm_up_transport
from hpckit.apps.weather3d.sides import open_axes
from hpckit.comm.device import HOST, Device
from hpckit.kernels.device_array import is_simulated
from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.constants import REACH
from hpckit.kernels.euler.hevi import dispatch as hevi
from hpckit.kernels.euler.hevi.constants import (
    HALO,
    LEVELS,
    NO_WATER,
    WORKS,
    WRAPPED,
    LargeStage,
    Substep,
    upwind_weights,
)
from hpckit.kernels.euler.hevi.stress.dispatch import mix, mix_carried, viscosity
from hpckit.kernels.euler.hevi.terrain import dispatch as sloping
from hpckit.kernels.euler.hevi.terrain.constants import METRICS, Ground
from hpckit.kernels.euler.hevi.terrain.constants import WORKS as SLOPING_WORKS
from hpckit.kernels.euler.hevi.terrain.stress import dispatch as sloping_stress
from hpckit.kernels.euler.hevi.terrain.stress.constants import ROWS
from hpckit.kernels.euler.hevi.turns import core
from hpckit.kernels.euler.rain.dispatch import air_of, compress, condense, put_back, rain, saturate, total
from hpckit.kernels.euler.rain.ice.dispatch import microphysics
from hpckit.kernels.euler.relaxation.dispatch import relax
from hpckit.kernels.euler.tracers.dispatch import borrow


def warm_up(config: Config, device: Device = HOST) -> None:
    """Compile the kernels of a run (or load them); nothing to do in the simulator."""
    if is_simulated(device.zeros(())):
        return

    def table(*shape: int) -> Any:
        return device.to_device(np.ones(shape, config.precision))

    state = device.zeros((FIELDS, 4, 3 * HALO, 3 * HALO), config.precision)
    work, levels, column = table(WORKS, *state.shape[1:]), table(LEVELS, 5), table(3, 4)
    slow, pressure = state.copy(), table(4, HALO + 2, HALO + 2)
    hevi.prepare(state, device.to_device(NO_WATER.astype(state.dtype)), column, levels, work)
    dynamics, wet = config.dynamics, config.moisture.kind != "none"
    weights = device.to_device(upwind_weights(dynamics.order, dynamics.weno).astype(state.dtype))
    stage, water = LargeStage(1.0, 1.0, 0.0, wet), table(*state.shape[1:])
    flux = table(4, HALO, HALO + 1), table(4, HALO + 1, HALO), table(5, HALO, HALO)
    sound, starts = Substep(1.0, 1.0, 1e-3, 0.5, 0.0, 0.0, wet), [slow, state]
    sloping_ground, joins = config.terrain.kind != "flat", not device.is_gpu and not open_axes(config)
    rest = (slow, pressure, levels, *flux, sound)
    if open_axes(config) or sloping_ground:
        hevi.tendencies(state, work, column, levels, table(2, 4), weights, stage, slow)
    elif device.is_gpu:
        hevi.linearize(state, water, column, levels, work, table(2, 4), weights, stage, slow, state, pressure)
    else:
        given, first = (state, water, column, table(2, 4), weights, stage), starts.pop(0)
        hevi.linearize_and_sweep(*given, first.copy(), state, work, *rest, core(HALO, 1, False), WRAPPED)
    hevi.begin(state, work, pressure)
    for start in starts:  # the first substep of a stage, and the others, which are in place
        hevi.substep(start, state, work, *rest)
    if sloping_ground:
        cells = state.shape[1:]
        ground = Ground(table(4, *cells), table(METRICS, *cells), table(2, *cells), table(2, 4))
        work = table(SLOPING_WORKS, *cells)
        sloping.prepare(state, device.to_device(NO_WATER.astype(state.dtype)), ground, levels, work)
        stage = LargeStage(1.0, 1.0, config.coriolis, wet)
        if joins:
            given, kept = (state, water, ground, column, weights, stage), sloping.faces_kept(state, 1)
            first = starts.pop(0).copy()
            sloping.linearize_and_sweep(*given, first, state, work, *rest, core(HALO, 1, False), WRAPPED, kept)
        else:
            sloping.tendencies(state, work, ground, column, levels, weights, stage, slow)
        for start in starts:
            sloping.substep(start, state, work, ground, *rest)
        sloping.relax(state, ground, levels, table(4), 1.0)
    relax(state, column, table(4, 4), table(2, HALO), table(2, HALO), table(4), 1.0, 1)
    mu, spacing = table(*state.shape[1:]), (1.0, 1.0)
    mixes = bool(config.smagorinsky.coefficient or config.diffusion)
    if mixes and sloping_ground:
        rows, numbers = table(ROWS, *cells), (levels, spacing, 0.1, 1.0, 0.1)
        sloping_stress.viscosity(state, work, ground, *numbers, rows, mu)
        sloping_stress.mix(state, work, mu, ground, levels, spacing, 0.0, 1.0, 1.0, rows, slow)
    elif mixes:
        viscosity(state, work, column, levels, spacing, 0.1, 1.0, 0.1, mu)
        mix(state, work, mu, table(4, 4), levels, spacing, 0.0, 1.0, 1.0)
    if config.tracers or config.moisture.kind != "none":
        warm_up_transport(state, column)
        q = table(1, 4, HALO + 6, HALO + 6)
        if mixes and sloping_ground:
            sloping_stress.mix_carried(q, q.copy(), state, mu, ground, levels, spacing, 0.0)
            borrow(q, table(1, *cells))
        elif mixes:
            mix_carried(q, q.copy(), state, mu, column, levels, spacing, 0.0)
    if config.moisture.kind != "none":
        nz, ny, nx = state.shape[1], *(n - 2 * HALO for n in state.shape[2:])
        kinds = len(config.moisture.water)
        air, water = table(4, nz, ny, nx), table(kinds, nz, ny, nx)
        carried = table(kinds, nz, ny + 2 * REACH, nx + 2 * REACH)
        total(carried, kinds, state[0])
        if config.moisture.kind == "kessler":
            rain(state, column, table(nz), carried, air, water, table(nz), 1.0, table(ny, nx))
        else:
            air_of(state, column, table(nz), carried, air, water)
            put_back(air, water, column, table(nz), state, carried)
        if config.moisture.kind == "ice":
            microphysics(air[0], water, *air[1:], table(nz), 1.0, table(3, ny, nx), table(2, ny, nx))
        elif config.moisture.equations == "complete":
            compress(state, state, carried, column, levels, *flux, spacing, 1.0)
            condense(air[0], water, *air[1:])
        elif config.moisture.kind != "kessler":
            saturate(air[0], water, *air[2:])
