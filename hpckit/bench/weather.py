"""The weather slab, 400 x 200 cells on one core, against a plain C version of the same algorithm.

The C version (`c/euler2d.c`, built with -O3 -march=native) has one loop nest for each operation and pow for the
pressure. Both advance two colliding bubbles; their fields must agree to 1e-11 of each field's range before anything is
timed. `weather_vs_c` is how many times faster the kernels of hpckit are.
"""

from __future__ import annotations

import ctypes
from statistics import median
from typing import Any

import numpy as np

from hpckit.apps.weather.config import PRESETS, Config
from hpckit.apps.weather.setups import initial_state
from hpckit.atmosphere.base import BaseState, base_state
from hpckit.atmosphere.profiles import profile_of
from hpckit.bench import c_rival
from hpckit.bench.measure import interleave, ratio
from hpckit.kernels.euler2d.constants import HALO
from hpckit.kernels.euler2d.dispatch import sweep_x, sweep_z

NONE = np.zeros((0, 0))
NO_INFLOW = np.zeros((2, 0))
TOLERANCE = 1e-11


class Slab:
    """The bench's case on one core, for either version."""

    def __init__(self, nx: int = 400, nz: int = 200) -> None:
        self.config = Config.model_validate({**PRESETS["collision"][1], "grid": {"nx": nx, "nz": nz}})
        grid = self.config.grid
        profile = profile_of(self.config.base)
        self.base: BaseState = base_state(profile, nz, grid.dz)
        self.start = initial_state(self.config, profile, self.base, np.arange(nx))
        self.dt = min(grid.dx, grid.dz) / self.config.time.max_speed * self.config.time.cfl
        self.state = np.zeros((4, nz, nx + 2 * HALO))
        self.c_state = np.zeros((4, nz + 4, nx + 4))
        self.restart()

    def restart(self) -> None:
        """Both versions back to the start."""
        self.state[:, :, HALO:-HALO] = self.start
        self.c_state[:, 2:-2, 2:-2] = self.start

    def run(self, steps: int) -> None:
        """Advance by hpckit's kernels."""
        grid, base = self.config.grid, self.base
        for step in range(steps):
            for direction in "xz" if step % 2 == 0 else "zx":
                if direction == "x":
                    self.state[:, :, :HALO] = self.state[:, :, -2 * HALO : -HALO]
                    self.state[:, :, -HALO:] = self.state[:, :, HALO : 2 * HALO]
                    sweep_x(self.state, base.column, grid.dx, self.dt, self.config.beta, NONE, NO_INFLOW, True, True)
                else:
                    sweep_z(self.state, base.faces, base.ghost, grid.dz, self.dt, self.config.beta, NONE)

    def run_c(self, library: ctypes.CDLL, steps: int) -> None:
        """Advance by the C version."""
        grid, base = self.config.grid, self.base
        arrays = (self.c_state, base.column, np.ascontiguousarray(base.faces[:3]), base.ghost)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
        numbers = [ctypes.c_double(value) for value in (grid.dx, grid.dz, self.config.beta, self.dt)]
        if library.euler2d_run(*pointers, grid.nx, grid.nz, *numbers, steps):
            raise MemoryError("the C version found no memory")

    def difference(self) -> float:
        """The greatest difference between the versions, over the range of its field."""
        ours, theirs = self.state[:, :, HALO:-HALO], self.c_state[:, 2:-2, 2:-2]
        each = np.abs(ours - theirs).max(axis=(1, 2)) / np.ptp(theirs, axis=(1, 2))
        return float(each.max())


def slab_rows(quick: bool = False) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    """Rows with ns per cell-step of each version, and the ratio `weather_vs_c` where there is a C compiler."""
    slab = Slab()
    grid = slab.config.grid
    steps, rounds = (4, 5) if quick else (10, 15)
    candidates = {"simd": lambda: slab.run(steps)}
    library = c_rival.build("euler2d.c")
    if library is not None:
        slab.run(20)
        slab.run_c(library, 20)
        if slab.difference() > TOLERANCE:
            raise AssertionError(f"the C version differs by {slab.difference():.2e} of a field's range")
        slab.restart()
        candidates["C"] = lambda: slab.run_c(library, steps)
    times = interleave(candidates, rounds)
    rows = [
        {
            "case": f"weather slab {grid.nx} x {grid.nz}",
            "candidate": name,
            "milliseconds": round(median(seconds) / steps * 1e3, 3),
            "ns_per_cell_step": round(median(seconds) / steps / grid.nx / grid.nz * 1e9, 2),
            "rounds": len(seconds),
        }
        for name, seconds in times.items()
    ]
    return rows, {"weather_vs_c": ratio(times["C"], times["simd"])} if library is not None else {}
