"""The box model with split dynamics (HEVI): large steps of the flow, acoustic substeps implicit in the vertical."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpckit.apps.weather3d.model import Diagnostics
from hpckit.apps.weather3d.sides import HORIZONTAL
from hpckit.apps.weather3d.split.watches import WatchedState
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError
from hpckit.kernels.euler.box.constants import RHO, RHO_U, RHO_V
from hpckit.kernels.euler.hevi import dispatch as hevi
from hpckit.kernels.euler.hevi.constants import DRY, HALO, LargeStage, Substep
from hpckit.kernels.euler.hevi.stress import dispatch as stress
from hpckit.kernels.euler.hevi.terrain import dispatch as sloping
from hpckit.kernels.euler.hevi.terrain.constants import J_U, J_V, SIZE, SLOPE_U, SLOPE_V
from hpckit.kernels.euler.hevi.terrain.stress import dispatch as sloping_stress
from hpckit.kernels.euler.hevi.turns import core, rims
from hpckit.kernels.euler.rain.dispatch import air_of, compress, condense, put_back, rain, saturate
from hpckit.kernels.euler.rain.ice.dispatch import microphysics
from hpckit.kernels.euler.relaxation.dispatch import relax

FASTEST = 1.0  # cells that the wind may pass in a large step


WAVES = 30.0  # m/s: speed of the waves that leave through open sides


def across(rows: Any, axis: str) -> Any:
    """A view of [nz, ny, nx] as [nz, n along the axis, …]."""
    return rows.swapaxes(1, 2) if axis == "x" else rows


class SplitModel(WatchedState):
    """The state of a run on this rank, and its time step; as `weather3d.model.Model`."""

    @property
    def wait_seconds(self) -> float:
        """Seconds spent in MPI waits so far."""
        waited = self.exchange.wait_seconds + self.pressure_exchange.wait_seconds
        return waited + (self.carried.wait_seconds if self.carried else 0.0)

    def step(self, dt: float, timer: PhaseTimer) -> None:
        """Advance by dt (s): the dynamics, then the physics."""
        with timer("halo"):
            self.exchange(self.state)
            if self.is_moist:
                self.carried.total_water(self.water)
        # The start is kept where it is: the first stage writes the state into the other array.
        self.start, self.state.data = self.state.data, self.start
        for stage, (share, count) in enumerate(zip((1 / 3, 1 / 2, 1.0), self.config.substeps, strict=True)):
            if stage:
                with timer("halo"):
                    self.exchange(self.state)
            self._stage(dt * share / count, count, stage, timer)
        for axis in self.open_axes:
            self.through_sides[0] += self._mass_through(axis) * dt
        if self.carried:
            if self.is_complete:
                with timer("water"):
                    self._compress(dt)
            forward = self.steps_done % 2 == 0
            self.carried.move(self.start, self.column, self.mass_flux, dt, forward, timer)
        self._physics(dt, timer)
        self.steps_done += 1

    def _stage(self, dt: float, count: int, stage: int, timer: PhaseTimer) -> None:
        """The slow tendencies at the state, and `count` acoustic substeps of dt (s) from the start of the step."""
        config, spacing = self.config, self.spacing
        state = self.state.data if stage else self.start
        numbers = LargeStage(spacing["x"], spacing["y"], config.coriolis, self.is_moist)
        share = 1 / count if stage == 2 and (self.carried or self.open_axes) else 0.0
        if share:
            for flux in self.mass_flux:
                flux[...] = 0.0
        dynamics = config.dynamics
        fast = Substep(spacing["x"], spacing["y"], dt, dynamics.implicit, dynamics.damping, share, self.is_moist)
        if not self.joins:
            with timer("slow"):
                self._linearize(state, numbers)
        if self.sweeps:
            self._sweep(fast, count, timer, (state, numbers) if self.joins else None)
            return
        for substep in range(count):
            if substep:
                with timer("halo"):
                    self.pressure_exchange(self.pressure)
            self._hold_sides()
            with timer("sound"):
                states = (self.state.data if substep else self.start, self.state.data)
                rest = (self.slow, self.pressure.data, self.levels, *self.mass_flux, fast)
                if self.terrain:
                    sloping.substep(*states, self.work, self.terrain.ground, *rest)
                else:
                    hevi.substep(*states, self.work, *rest)

    def _linearize(self, state: Any, numbers: LargeStage) -> None:
        """The slow tendencies at a state, and what substeps need of it."""
        tables = (self.levels, self.weights, numbers, self.slow)
        if self.terrain:
            sloping.prepare(state, self.water, self.terrain.ground, self.levels, self.work)
            sloping.tendencies(state, self.work, self.terrain.ground, self.column, *tables)
        elif self.open_axes:  # their sides need the winds
            hevi.prepare(state, self.water, self.column, self.levels, self.work)
            hevi.tendencies(state, self.work, self.column, self.levels, self.wind, *tables[1:])
        else:
            rest = (self.wind, *tables[1:], self.start, self.pressure.data)
            hevi.linearize(state, self.water, self.column, self.levels, self.work, *rest)
        self._close_walls(state)
        if self.terrain or self.open_axes:
            hevi.begin(self.start, self.work, self.pressure.data)

    def _sweep(self, fast: Substep, count: int, timer: PhaseTimer, slow: tuple[Any, LargeStage] | None) -> None:
        """The substeps of a stage, several at once: what they share stays in the cache, messages pass meanwhile.

        slow: the state and the numbers of the slow tendencies, where they come with the first of them.
        """
        rows, done = self.state.interior.shape[2], 0
        far = not self.pressure_exchange.within_node

        def advance(turns: np.ndarray) -> None:
            begins = not done and turns[0, 0] == 0
            with timer("sound"):
                states = (self.start if begins else self.state.data, self.state.data)
                rest = (self.pressure.data, self.levels, *self.mass_flux, fast, turns, self.ends)
                work, found = self.near
                ground = self.terrain.ground if self.terrain else None
                if begins and slow:
                    state, numbers = slow
                    if ground:
                        linear = (state, self.water, ground, self.column, self.weights, numbers)
                        kept = (self.faces_kept, self._walls)
                        sloping.linearize_and_sweep(*linear, *states, work, found, *rest, *kept)
                    else:
                        linear = (state, self.water, self.column, self.wind, self.weights, numbers)
                        hevi.linearize_and_sweep(*linear, *states, work, found, *rest, self._walls)
                elif ground:
                    sloping.sweep(*states, work, ground, found, *rest, self.faces_kept)
                else:
                    hevi.sweep(*states, work, found, *rest)

        while done < count:
            depth = min(self.sweeps, count - done)
            goes_on = done + depth < count
            is_read = depth > 1 or goes_on  # the pressure of the first of them
            if far:  # it travels during the core; within a node it is there at once
                advance(rims(rows, 0))
                if is_read:
                    with timer("halo"):
                        self.pressure_exchange.start(self.pressure)
            advance(core(rows, depth, far))
            if is_read:
                with timer("halo"):
                    if far:
                        self.pressure_exchange.finish(self.pressure)
                    else:
                        self.pressure_exchange(self.pressure)
            for substep in range(1, depth):
                advance(rims(rows, substep))
                if substep < depth - 1 or goes_on:
                    with timer("halo"):
                        self.pressure_exchange(self.pressure)
            done += depth

    def _close_walls(self, state: Any) -> None:
        """No momentum through walls. At open sides the wind leaves with the waves (Klemp and Wilhelmson 1978).

        At the first face within a side it is carried outward with the wind and WAVES; that of the side is the same.
        """
        for axis, side, outward in self._sides:
            normal = RHO_U if axis == "x" else RHO_V
            slow, momentum, wind = (
                across(each, axis) for each in (self.slow[normal], state[normal], self.work[normal - RHO_U])
            )
            if axis not in self.open_axes:
                slow[:, side] = 0.0
                continue
            face, within = side - outward, side - 2 * outward
            leaves = self._greater(outward * wind[:, face] + WAVES, 0.0)
            change = momentum[:, within] - momentum[:, face]
            if self.terrain:  # not of the base state's flow, which differs with the thickness of levels
                still = across(self.still[normal], axis)
                change = change - (still[:, within] - still[:, face])
            slow[:, side] = leaves * (change / self.spacing[axis])

    def _hold_sides(self) -> None:
        """No acoustic force at the first faces within open sides: what the next substep would do there is undone."""
        inner = slice(HALO, -HALO)
        for axis, side, outward in self._sides:
            if axis in self.open_axes:
                normal, face = RHO_U if axis == "x" else RHO_V, side - outward
                slow, dry = across(self.slow[normal], axis), across(self.work[DRY], axis)
                pressure, last = across(self.pressure.data, axis)[:, :, 1:-1], 1 if outward < 0 else -2
                edge, within = pressure[:, last], pressure[:, last - outward]
                force = outward * (edge - within) / self.spacing[axis]
                if self.terrain:
                    rows = (J_U, SLOPE_U) if axis == "x" else (J_V, SLOPE_V)
                    size, slope = (across(self.terrain.ground.metric[row], axis)[:, face, inner] for row in rows)
                    force = size * force - slope * (0.5 * (self._upward(edge) + self._upward(within)))
                share = 0.5 * (dry[:, face, inner] + dry[:, face - 1, inner]) if self.is_moist else 1.0
                slow[:, face, inner] = slow[:, side, inner] + share * force

    def _upward(self, p: Any) -> Any:
        """Vertical gradient of p, [nz, n], in the middles of levels, as the kernels of terrain take it."""
        low, high = self.terrain.ground.tilt[:, :, None]
        rise, slope = p[1:] - p[:-1], 0.0 * p
        slope[1:-1] = low[1:-1] * rise[:-1] + high[1:-1] * rise[1:]
        slope[0], slope[-1] = low[0] * rise[0] + high[0] * rise[1], low[-1] * rise[-2] + high[-1] * rise[-1]
        return slope

    @property
    def _sides(self) -> Iterator[tuple[str, int, int]]:
        """The sides of the box that this rank has: axis, their faces in the state, and -1 if low or 1 if high."""
        topology, rank = self.mesh.topology, self.mesh.rank
        for axis in HORIZONTAL:
            for outward, side in ((-1, HALO), (1, -HALO)):
                if not topology.is_periodic(axis) and topology.shift(rank, axis, outward) is None:
                    yield axis, side, outward

    @property
    def _walls(self) -> tuple[bool, bool, bool, bool]:
        """Whether this rank has a wall in the west, east, south and north."""
        there = {(axis, outward) for axis, _, outward in self._sides if axis not in self.open_axes}
        return ("x", -1) in there, ("x", 1) in there, ("y", -1) in there, ("y", 1) in there

    @staticmethod
    def _greater(values: Any, least: float) -> Any:
        """No less than least; on the device as on the host."""
        return 0.5 * (values + abs(values - least) + least)

    def _mass_through(self, axis: str) -> float:
        """Air that enters through this rank's part of the open sides of an axis in a large step, kg/s."""
        flux = across(self.mass_flux[0] if axis == "x" else self.mass_flux[1], axis)
        area = np.diff(self.edges) * self.spacing["y" if axis == "x" else "x"]
        total = 0.0
        for _, _, outward in (each for each in self._sides if each[0] == axis):
            levels = self.state.device.to_host(flux[:, 0 if outward < 0 else -1].sum(axis=1, dtype=np.float64))
            total -= outward * float(levels @ area)
        return total

    def _physics(self, dt: float, timer: PhaseTimer) -> None:
        """All physics, one process after the other, each in place on the state after the last."""
        if self.forced:
            with timer("halo"):
                self.exchange(self.state)
            with timer("forcing"):
                self.forced.apply(self.state.data, self.carried.field.data if self.is_moist else None, dt)
        if self.mu is not None:
            with timer("halo"):
                self.exchange(self.state)
            state, spacing = self.state.data, (self.spacing["x"], self.spacing["y"])
            mixings = self.viscosities(dt)
            for _ in range(bool(self.config.smagorinsky.coefficient) + bool(self.config.diffusion)):
                with timer("halo"):
                    if self.carried:
                        self.carried.corners(self.carried.field)
                with timer("mixing"):
                    prandtl, cross, self._greatest = next(mixings)
                    numbers = (self.levels, spacing, dt, prandtl, cross)
                    if self.terrain:
                        mixed = (state, self.work, self.mu, self.terrain.ground)
                        sloping_stress.mix(*mixed, *numbers, self.stresses, self.slow)
                    else:
                        stress.mix(state, self.work, self.mu, self.unmixed, *numbers)
                    self._mix_carried(dt / prandtl)
        if self.is_moist:
            with timer("water"):
                if self.mu is not None:
                    self.carried.fill_holes(self.column)
                self._water(dt)
        if self.relaxes:
            if self.terrain or self.config.lid.depth:
                with timer("halo"):
                    self.exchange(self.state)
            with timer("relaxation"):
                self._relax(dt)

    def _relax(self, dt: float) -> None:
        """Relax toward the base state and its wind over dt (s), below the lid and beside open sides."""
        rates, state = self.rates, self.state.data
        before, old = (self._mass(), state[RHO].copy()) if self.open_axes else (0.0, None)
        lost = None if self.beside is None else dt * self.beside / (1 + dt * self.beside)
        if self.terrain:
            sloping.relax(state, self.terrain.ground, self.levels, rates["z"], dt)
            if lost is not None:
                own, still = (each[:, :, HALO:-HALO, HALO:-HALO] for each in (state, self.still))
                own -= lost[:, None] * (own - still)
        else:
            relax(state, self.column, self.rest, rates["x"], rates["y"], rates["z"], dt, 1)
        if self.open_axes:
            self.through_sides[1] += self._mass() - before
            if self.is_moist and lost is not None:
                self.through_sides[2] += self.carried.relax(old, state, self.column, self.still_water, lost[RHO])

    def _mass(self) -> float:
        """The deviation of the mass of the owned cells, kg."""
        inner = slice(HALO, -HALO)
        levels = self.state.device.to_host(self.state.data[RHO, :, inner, inner].sum(axis=(1, 2), dtype=np.float64))
        return float(levels @ np.diff(self.edges)) * self.spacing["x"] * self.spacing["y"]

    def viscosities(self, dt: float) -> Iterator[tuple[float, float, Any]]:
        """Fill `work` and `mu` (rho K) for one mixing of a step of dt (s) after the other; all halos are filled.

        Each: Prandtl number, 1 for Smagorinsky's symmetric stress (else 0), the greatest eddy viscosity (m2/s).
        """
        config, state, greatest = self.config, self.state.data, 0.0
        assert self.mu is not None
        if self.is_moist:
            self.carried.sum_water(self.water)
        if self.terrain:
            sloping.prepare(state, self.water, self.terrain.ground, self.levels, self.work)
        else:
            hevi.prepare(state, self.water, self.column, self.levels, self.work, sounds=False)
        if config.smagorinsky.coefficient:
            coefficient, prandtl = config.smagorinsky.coefficient, config.smagorinsky.prandtl
            spacing = self.spacing["x"], self.spacing["y"]
            numbers = (self.levels, spacing, coefficient, prandtl, min(0.25, prandtl / 2) / dt)
            if self.terrain:
                ground = self.terrain.ground
                greatest = sloping_stress.viscosity(state, self.work, ground, *numbers, self.stresses, self.mu)
            else:
                greatest = stress.viscosity(state, self.work, self.column, *numbers, self.mu)
            yield prandtl, 1.0, greatest
        if config.diffusion:
            if self.terrain:
                base, metric = self.terrain.ground.base, self.terrain.ground.metric
                self.mu[...] = (state[RHO] + base[0]) / metric[SIZE] * config.diffusion
            else:
                self.mu[...] = (state[RHO] + self.column[0][:, None, None]) * config.diffusion
            yield config.prandtl, 0.0, greatest

    def _mix_carried(self, dt: float) -> None:
        """Diffuse what the air carries with rho K over dt (s), after a mixing of the air."""
        if self.carried:
            q, spacing = self.carried, (self.spacing["x"], self.spacing["y"])
            state, deviates = self.state.data, self.is_moist and not self.forced
            if deviates:
                q.field.data[0] -= self._still_vapor
            if self.terrain:
                where = (state, self.mu, self.terrain.ground)
                sloping_stress.mix_carried(q.field.data, q.spare.data, *where, self.levels, spacing, dt)
            else:
                stress.mix_carried(q.field.data, q.spare.data, state, self.mu, self.column, self.levels, spacing, dt)
            q.field, q.spare = q.spare, q.field
            if deviates:
                q.field.data[0] += self._still_vapor

    def _water(self, dt: float) -> None:
        """What water does over dt (s): it condenses, evaporates, rains; at the pressure that the air has."""
        assert self.carried
        state, carried, (air, water) = self.state.data, self.carried.field.data, self.parcels
        if self.config.moisture.kind == "kessler":
            rain(state, *self.of_air, carried, air, water, self.thickness, dt, self.rained.data[0])
            return
        air_of(state, *self.of_air, carried, air, water)
        theta, rho, exner, pressure = air
        if self.heated:
            microphysics(theta, water, rho, exner, pressure, self.thickness, dt, self.rained.data, self.heated.data)
        elif self.is_complete:
            condense(theta, water, rho, exner, pressure)
        else:
            saturate(theta, water, exner, pressure)
        put_back(air, water, *self.of_air, state, carried)

    def _compress(self, dt: float) -> None:
        """What water changes in the heating by compression over dt (s)."""
        assert self.carried
        spacing = self.spacing["x"], self.spacing["y"]
        carried = self.carried.field.data
        compress(self.state.data, self.start, carried, self.column, self.levels, *self.mass_flux, spacing, dt)

    def require_sound(self, watch: Diagnostics, dt: float) -> None:
        """Collective: raise `BlowUpError` on every rank if a value is not finite or the wind outruns the step."""
        if watch.broken_cells:
            raise BlowUpError(
                f"the state is not finite (or no air is left) in {watch.broken_cells} cells",
                where=f"step {self.steps_done}",
                likely="a large step too long for this flow, or an initial state too violent for it",
                do="lower dynamics.step, or take more cells",
            )
        for axis in "xyz":
            speed = getattr(watch, f"speed_{axis}")
            if speed * dt > FASTEST * self.spacing[axis] * (1 if axis != "z" else self._thickness_there):
                raise BlowUpError(
                    f"the wind of {speed:.1f} m/s passes more than {FASTEST:g} cell in {axis} in a large step of"
                    f" {dt:.3g} s",
                    where=f"step {self.steps_done}",
                    likely="a step too long for this flow",
                    do=f"set dynamics.step to at most {0.9 * self.spacing[axis] / speed:.2g}",
                )

    @property
    def _thickness_there(self) -> float:
        """Thickest over thinnest level: fast air is not beside the ground, where levels are thin."""
        thick = np.diff(self.edges)
        return float(thick.max() / thick.min())
