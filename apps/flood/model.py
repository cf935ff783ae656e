"""The flood model on a mesh: state, time step, diagnostics and output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.apps.common.lost import first_lost
from hpckit.apps.flood import setups
from hpckit.apps.flood.config import LIMIT_CFL, Config
from hpckit.apps.flood.layout import AXES
from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError
from hpckit.grid.boundary_conditions import antisymmetric, mirror, zero_gradient
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, State, read_into
from hpckit.kernels.flood.constants import (
    BROKEN,
    DEPTH_MAX,
    DEPTH_MIN,
    ENERGY,
    HALO,
    HU,
    HV,
    MASS,
    RATE,
    SPEED,
    WET,
    H,
    Physics,
)
from hpckit.kernels.flood.dispatch import diagnose, ends, found_by, stage
from hpckit.kernels.parts import INNER, OUTER, WHOLE
from hpckit.plan.grid.decomposition import Decomposition

MOST_TRIES = 40  # of a time step, each half as long as the last


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics over all ranks: volume (m3), energy over density (m5/s2), maximum speed (m/s) and depth (m), wet
    area (m2), lost cells; the relative error of the depth if an exact solution is known.
    """

    mass: float
    energy: float
    speed_max: float
    depth_max: float
    wet_area: float
    broken_cells: int
    depth_error: float | None


class Model:
    """The state of a run on this rank, and its time step: depth and momenta at centers.

    `mesh` splits y and x: `Mesh(comm, y=0, x=0, periodic=config.grid.periodic, …)`. Raises `DecompositionError` for
    blocks thinner than 2 cells and `InputError` for a bottom file that does not fit, on every rank alike.
    """

    def __init__(self, config: Config, mesh: Mesh, device: Device = HOST) -> None:
        grid, self.config, self.mesh = config.grid, config, mesh
        self.physics = physics_of(config)
        self.decomposition = Decomposition((grid.ny, grid.nx), mesh.topology, halo=HALO)
        self.bottom = Field.zeros(mesh, self.decomposition, name="bottom", units="m")
        shape = (3, *self.decomposition.local_shape(mesh.rank))
        self._states: list[Any] = [np.zeros(shape) for _ in range(3)]  # now, between the stages, next
        self._fields = [self._as_fields(state) for state in self._states]
        self.exchange = self._exchange_of(self.fields)
        self.cuts = self.decomposition.global_slices(mesh.rank)
        self.bottom.interior[...] = setups.bottom(config, self.cuts)
        with HaloExchange(mesh, self.bottom, walls=self._walls(None)) as exchange:
            exchange(self.bottom)
        depth, u, v = setups.start(config, self.cuts, self.bottom.interior)
        for field, values in zip(self.fields, (depth, depth * u, depth * v), strict=True):
            field.interior[...] = values
        self.steps_done, self.time, self.tries = 0, 0.0, 0
        self.exchange(self.fields)
        self.found = [found_by(self.state) for _ in range(2)]  # by the first stage, and by the second
        self.rate = self._agree(self._stage(1, 0, 1.0, 0.0, WHOLE))[0]
        if device.is_gpu:
            self._go_to(device)

    def _go_to(self, device: Device) -> None:
        """Move the arrays from the host to a device, in the precision of the run."""

        def moved(array: np.ndarray) -> Any:
            return device.to_device(array.astype(self.config.precision))

        self.exchange.close()
        host = self.bottom
        self.bottom = Field(self.mesh, host.decomposition, moved(host.data), host.name, host.units, device)
        self._states = [moved(state) for state in self._states]
        self._fields = [self._as_fields(state, device) for state in self._states]
        self.exchange = self._exchange_of(self.fields)
        self.found = [found_by(self.state) for _ in range(2)]

    @property
    def fields(self) -> list[Field]:
        """The state: h, hu, hv."""
        return self._fields[0]

    @property
    def state(self) -> Any:
        """The same as one array with halo, float64[3, ny + 4, nx + 4]."""
        return self._states[0]

    def _as_fields(self, state: Any, device: Device = HOST) -> list[Field]:
        names = (("h", "m"), ("hu", "m2 s-1"), ("hv", "m2 s-1"))
        return [Field(self.mesh, self.decomposition, state[k], *names[k], device) for k in (H, HU, HV)]

    def _exchange_of(self, fields: list[Field]) -> HaloExchange:
        return HaloExchange(self.mesh, fields, walls=[self._walls(across) for across in (None, "x", "y")])

    def _walls(self, across: str | None) -> dict[str, object]:
        """The boundary condition of each axis, for a scalar (None) or the momentum along an axis."""
        closed = {axis: antisymmetric if axis == across else mirror for axis in AXES}
        sides = self.config.grid.sides.items()
        return {axis: closed[axis] if side == "closed" else zero_gradient for axis, side in sides if side != "periodic"}

    def step(self, longest: float, timer: PhaseTimer) -> float:
        """Advance by one step of at most `longest` (s) and return its length; afterwards the halo is stale.

        Heun's method. If the waves turn out too fast for the step, or a cell would lose more water than it holds, the
        step is repeated at half the length. Raises `BlowUpError` if no length works, on every rank alike.
        """
        dt = min(longest, self.config.time.cfl / self.rate) if self.rate > 0 else longest
        for _ in range(MOST_TRIES):
            first = self._advance(1, 0, 1.0, dt, timer)
            second = self._advance(2, 1, 0.5, dt, timer)
            with timer("step"):
                rate_first, rate, depth = self._agree(first, second)
            if depth >= 0 and dt * rate_first <= LIMIT_CFL:
                break
            self.tries += 1
            dt *= 0.5
        else:
            raise BlowUpError(
                f"no time step is short enough: the last was {dt:.3g} s",
                where=f"step {self.steps_done + 1}, time {self.time:.6g} s",
                likely="a state that is not finite",
                do="look at the bottom and the start of the run",
            )
        self._states = [self._states[2], self._states[1], self._states[0]]
        self._fields = [self._fields[2], self._fields[1], self._fields[0]]
        self.steps_done, self.rate = self.steps_done + 1, max(rate_first, rate)
        return dt

    def _advance(self, new: int, now: int, weight: float, dt: float, timer: PhaseTimer) -> Any:
        """One stage with its halo exchange, from state number `now` into `new`; returns its rate and minimum depth."""
        fields, part = self._fields[now], WHOLE
        if self.bottom.device.is_gpu:  # on CPU cores splitting costs more than the overlap saves
            with timer("halo"):
                self.exchange.start(fields)
            with timer("step"):
                self._stage(new, now, weight, dt, INNER)
            with timer("halo"):
                self.exchange.finish(fields)
            part = OUTER
        else:
            with timer("halo"):
                self.exchange(fields)
        with timer("step"):
            return self._stage(new, now, weight, dt, part)

    def _stage(self, new: int, now: int, weight: float, dt: float, part: int) -> Any:
        states, found = self._states, self.found[now]
        stage(states[new], states[now], states[0], self.bottom.data, weight, dt, self.physics, found, part)
        return found

    def _agree(self, *found: Any) -> tuple[float, ...]:
        """Collective: the wave rate of each stage over all ranks, then the least depth."""
        results = [ends(each) for each in found]
        own = np.array([result[RATE] for result in results] + [-min(result[DEPTH_MIN] for result in results)])
        max_of_ranks(self.mesh.comm, own)
        return (*(float(rate) for rate in own[:-1]), -float(own[-1]))

    def watch(self) -> Diagnostics:
        """Collective: the diagnostics; sums may differ in the last bits between numbers of ranks."""
        grid = self.config.grid
        own = diagnose(self.state, self.bottom.data, self.physics)
        exact = setups.exact_depth(self.config, self.cuts, self.time)
        error = np.abs(self.fields[H].to_host() - exact).sum() if exact is not None else 0.0
        sums = np.array([*own[[MASS, ENERGY, WET, BROKEN]], error, 0.0 if exact is None else exact.sum()])
        sum_of_ranks(self.mesh.comm, sums)
        ends = max_of_ranks(self.mesh.comm, own[[SPEED, DEPTH_MAX]])
        mass, energy, wet = (float(value) for value in sums[:3] * (grid.dx * grid.dy))
        relative = float(sums[4] / sums[5]) if sums[5] else None
        return Diagnostics(mass, energy, float(ends[0]), float(ends[1]), wet, round(sums[3]), relative)

    def require_sound(self, watch: Diagnostics) -> None:
        """Collective: raise `BlowUpError` on every rank if a cell is lost, naming the first one."""
        if not watch.broken_cells:
            return
        values = [field.to_host() for field in self.fields]
        masks = [~(each >= 0) if number == H else ~np.isfinite(each) for number, each in enumerate(values)]
        lost = first_lost(self.mesh, self.decomposition, masks, self.steps_done)
        name = self.fields[lost.mask].name
        raise BlowUpError(
            f"{name} is not finite{' or below 0' if lost.mask == H else ''}; {watch.broken_cells} cells are lost",
            where=f"{lost.where}, field {name}",
            likely="extreme values in the bottom or the initial state",
            do="look at bottom.file and start, or lower time.cfl",
        )

    def saved(self, **values: Any) -> State:
        """The content of a checkpoint: state, step, time and wave rate, and extra `values`."""
        own = {"step": self.steps_done, "time": self.time, "rate": self.rate, "tries": self.tries}
        return State([Piece.of_field(field) for field in self.fields], {**own, **values})

    def restore(self, restored: Restored) -> None:
        """Continue from a checkpoint."""
        for field in self.fields:
            read_into(restored, field)
        self.steps_done, self.time, self.rate, self.tries = (
            restored.values[name] for name in ("step", "time", "rate", "tries")
        )

    def output(self) -> dict[str, np.ndarray]:
        """The output fields, on the owned cells."""
        h, hu, hv, bottom = (field.to_host() for field in (*self.fields, self.bottom))
        dry = self.config.physics.dry
        per_depth = 2 * h / (h * h + np.maximum(h * h, dry * dry))
        fields = {"depth": h, "surface": h + bottom, "u": hu * per_depth, "v": hv * per_depth}
        dtype = np.float32 if self.config.output.single else np.float64
        return {name: np.ascontiguousarray(values, dtype) for name, values in fields.items()}


def physics_of(config: Config) -> Physics:
    """The physical parameters of the kernels."""
    grid, physics = config.grid, config.physics
    return Physics(physics.gravity, grid.dx, grid.dy, physics.f, physics.manning, physics.drag, physics.dry)


def warm_up(config: Config, device: Device = HOST) -> None:
    """Compile the kernels of a run (or load them), so that the time loop does not."""
    host = Physics(1.0, 1.0, 1.0)
    for place, physics in ((HOST, host), (device, physics_of(config)))[: 1 + device.is_gpu]:  # a run starts on the host
        dtype = config.precision if place.is_gpu else np.float64
        now, new, bottom = (place.to_device(np.ones(shape, dtype)) for shape in ((3, 6, 6), (3, 6, 6), (6, 6)))
        stage(new, now, now, bottom, 1.0, 1e-6, physics, found_by(now))
        diagnose(now, bottom, physics)
