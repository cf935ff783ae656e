"""The cases of the weather kernels on one core: slab, box and split dynamics, advanced by hpckit and by plain C.

The C versions (`rivals/sources/euler2d.c`, `euler3d.c`, `hevi3d.c`) have one loop nest for each operation and pow for
the pressure; that of the split dynamics solves column by column.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from hpckit.apps.atmosphere.base import BaseState, base_state, levels_state
from hpckit.apps.atmosphere.profiles import profile_of
from hpckit.apps.weather.config import PRESETS, Config
from hpckit.apps.weather.setups import initial_state
from hpckit.apps.weather3d.config import Config as Config3d
from hpckit.apps.weather3d.setups import column_of
from hpckit.apps.weather3d.setups import initial_state as initial_state_3d
from hpckit.apps.weather3d.split.state import level_tables
from hpckit.bench.rivals.c import pointers
from hpckit.comm.device import HOST
from hpckit.kernels.euler.box import dispatch as box_kernels
from hpckit.kernels.euler.constants import HALO, Sweep
from hpckit.kernels.euler.hevi import dispatch as hevi
from hpckit.kernels.euler.hevi.constants import HALO as SPLIT_HALO
from hpckit.kernels.euler.hevi.constants import NO_WATER, WORKS, WRAPPED, LargeStage, Substep, upwind_weights
from hpckit.kernels.euler.hevi.turns import core, rims
from hpckit.kernels.euler.slab import dispatch as slab_kernels
from hpckit.kernels.euler.status import new_status
from hpckit.kernels.pack.dispatch import slab_kernels as pack_kernels

NONE = np.zeros((0, 0))
NO_INFLOW = np.zeros((2, 0))
C_HALO = 4  # of `hevi3d.c`
TOLERANCE = 1e-11  # of a field's range: the largest difference between the versions that is allowed


class WeatherCase:
    """A state [fields, cells…] in the form of either version. sizes: cells along (x, (y,) z); widths: of a cell, m."""

    source: str  # of the C version
    halo = HALO

    def __init__(self, config: Any, base: BaseState, start: np.ndarray, shape: tuple[int, ...]) -> None:
        self.config, self.base, self.start = config, base, start
        dims = "xz" if start.ndim == 3 else "xyz"
        self.sizes = [getattr(config.grid, f"n{dim}") for dim in dims]
        self.widths = {dim: getattr(config.grid, f"d{dim}") for dim in dims}
        self.title = f"weather {'slab' if len(dims) == 2 else 'box'} {' x '.join(map(str, self.sizes))}"
        self.cells = int(np.prod(self.sizes))
        self.dt = min(self.widths.values()) / config.time.max_speed * config.time.cfl
        self.state = np.zeros(shape)
        self.status = new_status(self.state)
        self.c_state = np.zeros((len(start), *(n + 4 for n in start.shape[1:])))
        self._owned: Any = (..., *[slice(self.halo, -self.halo)] * (len(dims) - 1))
        self._owned_c: Any = (slice(None), *[slice(2, -2)] * len(dims))
        self.restart()

    def restart(self) -> None:
        """Both versions back to the start."""
        self.state[self._owned] = self.start
        self.c_state[self._owned_c] = self.start

    def sweep(self, direction: str, step: int) -> Sweep:
        """The numbers of a sweep."""
        return Sweep(self.widths[direction], self.dt, self.config.beta, step)

    def run(self, steps: int) -> None:
        """Advance by hpckit's kernels."""
        raise NotImplementedError

    def faces(self) -> np.ndarray:
        """The base state at the faces, as the C version takes it."""
        raise NotImplementedError

    def run_c(self, library: ctypes.CDLL, steps: int) -> None:
        """Advance by the C version."""
        arrays = pointers(self.c_state, self.base.column, self.faces(), self.base.ghost)
        numbers = [ctypes.c_double(value) for value in (*self.widths.values(), self.config.beta, self.dt)]
        if getattr(library, self.source.replace(".c", "_run"))(*arrays, *self.sizes, *numbers, steps):
            raise MemoryError("the C version found no memory")

    def difference(self) -> float:
        """The greatest difference between the versions, over the range of its field."""
        ours, theirs = self.state[self._owned], self.c_state[self._owned_c]
        dims = tuple(range(1, ours.ndim))
        return float((np.abs(ours - theirs).max(axis=dims) / np.ptp(theirs, axis=dims)).max())


class SlabCase(WeatherCase):
    """Two colliding bubbles."""

    source = "euler2d.c"

    def __init__(self, nx: int = 400, nz: int = 200, compat: bool = False) -> None:
        config = Config.model_validate({**PRESETS["collision"][1], "grid": {"nx": nx, "nz": nz}, "compat": compat})
        profile = profile_of(config.base)
        base = base_state(profile, nz, config.grid.dz, compat)
        start = initial_state(config, profile, base, np.arange(nx))
        super().__init__(config, base, start, (4, nz, nx + 2 * HALO))

    def run(self, steps: int) -> None:
        """Advance by hpckit's kernels."""
        state, base = self.state, self.base
        for step in range(steps):
            for direction in "xz" if step % 2 == 0 else "zx":
                numbers = self.sweep(direction, step), self.status
                if direction == "x":
                    _fill(state)
                    slab_kernels.sweep_x(state, state, base.column, NONE, NO_INFLOW, True, True, *numbers)
                else:
                    slab_kernels.sweep_z(state, state, base.faces, base.ghost, NONE, *numbers)

    def faces(self) -> np.ndarray:
        """The base state at the faces, as the C version takes it."""
        return np.ascontiguousarray(self.base.faces[:3])


class BoxCase(WeatherCase):
    """One bubble in a wind."""

    source = "euler3d.c"

    def __init__(self, nx: int = 128, ny: int = 128, nz: int = 128) -> None:
        config = Config3d.model_validate({"grid": {"nx": nx, "ny": ny, "nz": nz}, "base": {"u": 10.0, "v": 5.0}})
        profile = column_of(config.base)
        base = base_state(profile, nz, config.grid.dz)
        start = initial_state_3d(config, profile, base, np.arange(ny), np.arange(nx))
        super().__init__(config, base, start, (5, nz, ny + 2 * HALO, nx + 2 * HALO))

    def run(self, steps: int) -> None:
        """Advance by hpckit's kernels."""
        state, base, none = self.state, self.base, box_kernels.NO_FLUX
        for step in range(steps):
            for direction in "xyz" if step % 2 == 0 else "zyx":
                numbers = self.sweep(direction, step), self.status
                if direction == "x":
                    _fill(state)
                    box_kernels.sweep_x(state, state, base.column, none, *numbers)
                elif direction == "y":
                    _fill(state.swapaxes(2, 3))
                    box_kernels.sweep_y(state, state, base.column, none, *numbers)
                else:
                    box_kernels.sweep_z(state, state, base.faces_3d, base.ghost, none, *numbers)

    def faces(self) -> np.ndarray:
        """The base state at the faces, as the C version takes it."""
        return self.base.faces_3d


class SplitCase(WeatherCase):
    """The split dynamics (HEVI): a bubble in stable air in a wind, at steps of the flow, on levels of one thickness."""

    source = "hevi3d.c"
    halo = SPLIT_HALO

    def __init__(self, nx: int = 64, ny: int = 64, nz: int = 40) -> None:
        config = Config3d.model_validate(
            {
                "grid": {"nx": nx, "ny": ny, "nz": nz, "width": 1e3 * nx, "length": 1e3 * ny, "height": 500.0 * nz},
                "dynamics": {"kind": "hevi"},
                "base": {"kind": "stable", "u": 10.0, "v": 5.0},
                "bubbles": [{"x": 2e4, "y": 2e4, "z": 5e3, "radius_x": 8e3, "radius_y": 8e3, "radius_z": 3e3}],
            }
        )
        profile = column_of(config.base)
        base = levels_state(profile, config.grid.edges)
        start = initial_state_3d(config, profile, base, np.arange(ny), np.arange(nx))
        for row, dim in ((1, 2), (2, 1)):  # momenta to the low faces of cells
            start[row] = 0.5 * (start[row] + np.roll(start[row], 1, dim))
        super().__init__(config, base, start, (5, nz, ny + 2 * SPLIT_HALO, nx + 2 * SPLIT_HALO))
        self.state = self._cells(5)  # as the app has it: owned rows start at lines of the cache
        self.dt = config.full_step
        around = slice(C_HALO, -C_HALO)
        self.c_state, self._owned_c = (
            np.zeros((5, nz, ny + 2 * C_HALO, nx + 2 * C_HALO)),
            (..., around, around),
        )
        self.levels, self.weights = level_tables(config.grid.edges), upwind_weights(config.dynamics.order)
        self.old = self._cells(5)
        rows = min(self.old.shape[2], hevi.rows_kept(self.old))
        self.slow, self.work = self._cells(5, rows), self._cells(WORKS, rows)
        self.pressure = HOST.zeros((nz, ny + 2, nx + 2), np.dtype(np.float64))
        self.none = np.zeros((0, 0, 0))
        self.restart()

    def _cells(self, count: int, rows: int | None = None) -> np.ndarray:
        nz, tall, wide = self.state.shape[1:]
        return HOST.zeros((count, nz, rows or tall, wide), np.dtype(np.float64), lead=SPLIT_HALO)

    def run(self, steps: int) -> None:
        """Advance by hpckit's kernels, as `apps.weather3d.split.model` does."""
        for _ in range(steps):
            _wrap(self.state)
            self.old, self.state = self.state, self.old
            for stage, (share, count) in enumerate(zip((1 / 3, 1 / 2, 1.0), self.config.substeps, strict=True)):
                if stage:
                    _wrap(self.state)
                self._stage(self.state if stage else self.old, self.dt * share / count, count)

    def _stage(self, state: np.ndarray, dt: float, count: int) -> None:
        numbers, dynamics = LargeStage(self.widths["x"], self.widths["y"], 0.0, False), self.config.dynamics
        sound = Substep(numbers.dx, numbers.dy, dt, dynamics.implicit, dynamics.damping, 0.0, False)
        column, levels, none, calm = self.base.column, self.levels, self.none, self.levels[:2]
        # all substeps at once: stages have no more than may be swept together
        rows = state.shape[2] - 2 * SPLIT_HALO
        given = self.work, self.slow, self.pressure, levels, none, none, none, sound
        linear, first = (state, NO_WATER, column, calm, self.weights, numbers), core(rows, count, False)
        hevi.linearize_and_sweep(*linear, self.old, self.state, *given, first, WRAPPED)
        for substep in range(1, count):
            pack_kernels(state.dtype).wrap_ends(self.pressure, 1)
            hevi.sweep(self.state, self.state, *given, rims(rows, substep), WRAPPED)

    def run_c(self, library: ctypes.CDLL, steps: int) -> None:
        """Advance by the C version."""
        dynamics, counts = self.config.dynamics, np.array(self.config.substeps, np.int32)
        arrays = pointers(self.c_state, self.base.column, self.levels, np.ascontiguousarray(self.weights[:, :6]))
        numbers = (self.widths["x"], self.widths["y"], dynamics.implicit, dynamics.damping, self.dt)
        if library.hevi3d_run(*arrays, *self.sizes, *map(ctypes.c_double, numbers), *pointers(counts), steps):
            raise MemoryError("the C version found no memory")


def _fill(state: np.ndarray) -> None:
    """The halo of a periodic state along its last dim."""
    state[..., :HALO], state[..., -HALO:] = state[..., -2 * HALO : -HALO], state[..., HALO : 2 * HALO]


def _wrap(state: np.ndarray, halo: int = SPLIT_HALO) -> None:
    """The halos of a periodic state along its last two dims, as an exchange within a rank fills them."""
    tall, wide = state.shape[-2:]
    kernels = pack_kernels(state.dtype)
    kernels.wrap_ends(state.reshape(-1, wide, 1), halo)
    kernels.wrap_ends(state.reshape(-1, tall, wide), halo)
