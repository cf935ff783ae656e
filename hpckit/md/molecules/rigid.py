"""Rigid bodies: groups of particles that keep their shape, moved by the forces and torques on them.

Rotations are split into turns about the principal axes (Dullweber, Leimkuhler and McLachlan 1997, J. Chem. Phys. 107,
5840; Miller et al. 2002, J. Chem. Phys. 116, 8649), the order that LAMMPS's `fix rigid/nve` has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.collectives.whole import rows_of_ranks
from hpckit.errors import InputError
from hpckit.md.system import System

ROW = np.dtype([("id", "i8"), ("place", "f8", 3), ("velocity", "f8", 3), ("force", "f8", 3)])
THIN = 1e-10  # of the largest moment of inertia: what counts as none
TURNS = ((2, 0.5), (1, 0.5), (0, 1.0), (1, 0.5), (2, 0.5))  # axis, share of a step
PARTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))  # of a virial


@dataclass(frozen=True)
class Bodies:
    """Of bodies the middle of their masses [b, 3], its velocity, the angular momentum about it, principal axes
    [b, 3, 3] as columns; of the particles in the order of bodies the arms from there and the forces [n, 3]; and the
    sums of forces and torques [b, 3].
    """

    middle: np.ndarray
    velocity: np.ndarray
    angular: np.ndarray
    axes: np.ndarray
    arms: np.ndarray
    forces: np.ndarray
    force: np.ndarray
    torque: np.ndarray


class RigidBodies:
    """Bodies of all particles, by their ids from 0: body int64[n], from 0 and each with a particle; places float64
    [n, 3], unwrapped, that give them their shapes; masses float64[n]; dt: the time step of the dynamics. A body may be
    a single particle.

    Positions and velocities of the particles are all that a body is: every rank gathers those of all particles at each
    half of a step, moves the bodies in the same order, and takes its own particles back. So bits do not depend on the
    ranks, a run goes on on any number of them, and memory and messages grow with all particles. The host moves them:
    particles of a GPU are copied to it and back at each half of a step. `Held`; thermostats that scale velocities go
    with it. Raises `InputError` for bodies of particles in one place.
    """

    moves, longest_step = True, math.inf

    def __init__(self, body: np.ndarray, places: np.ndarray, masses: np.ndarray, dt: float) -> None:
        self.dt = dt
        self._ids = np.argsort(body, kind="stable")
        self._body, self._masses = body[self._ids], np.asarray(masses, np.float64)[self._ids]
        self._starts = np.flatnonzero(np.diff(self._body, prepend=-1))
        self._sizes = np.diff(np.append(self._starts, len(self._body)))
        self._place = np.argsort(self._ids)
        self._whole = self._sums(self._masses)
        arms = places[self._ids] - self._mean(places[self._ids])[self._body]
        inertia = self._sums(
            self._masses[:, None, None]
            * ((arms**2).sum(axis=1)[:, None, None] * np.eye(3) - arms[:, :, None] * arms[:, None, :])
        )
        moments, axes = np.linalg.eigh(inertia)
        axes[:, :, 2] *= np.sign(np.linalg.det(axes))[:, None]
        largest = moments[:, 2:]
        if not (largest[self._sizes > 1] > 0).all():
            raise InputError("a rigid body has all of its particles in one place")
        self._moments = np.where(moments > THIN * np.maximum(largest, 1e-300), moments, 0.0)
        linear = (self._sizes > 1) & (self._moments[:, 0] == 0.0)
        self.count = int((3 * self._sizes - np.where(linear, 5, np.where(self._sizes > 1, 6, 3))).sum())
        # A frame that moves along: toward the particle that is farthest away, and the one farthest from that line.
        self._first = self._farthest((arms**2).sum(axis=1))
        along = arms[self._first] / np.maximum(np.linalg.norm(arms[self._first], axis=1), 1e-300)[:, None]
        self._second = self._farthest((np.cross(along[self._body], arms) ** 2).sum(axis=1))
        self._linear = (self._sizes == 1) | linear
        self._turn = np.swapaxes(self._frame(arms, np.zeros_like(along)), 1, 2) @ axes
        self._turn[self._linear] = np.eye(3)  # the thin axis is the first, the momentum along the second

    def attach(self, system: System) -> None:
        """Nothing: bodies are known by ids."""

    def expect(self, stretch: np.ndarray, slowing: np.ndarray) -> None:
        """Nothing: no barostat goes with bodies."""

    def ready(self, system: System) -> None:
        """Nothing: `drift` moves the bodies."""

    def correct(self, system: System) -> None:
        """Collective: give the particles the velocities of rigid bodies with their momenta."""
        it = self._gather(system, 0.0)
        self._give(system, it, it.axes, None)

    def drift(self, system: System, dt: float) -> None:
        """Collective: half a kick by the present forces, and a step of places and turns."""
        it = self._gather(system, 0.5 * dt)
        axes = it.axes
        for axis, share in TURNS:
            about, moment = axes[:, :, axis], self._moments[:, axis]
            along = (about * it.angular).sum(axis=1)
            angle = share * dt * np.divide(along, moment, out=np.zeros_like(along), where=moment > 0)
            axes = axes.copy()
            one, two = (axis + 1) % 3, (axis + 2) % 3
            c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
            axes[:, :, one], axes[:, :, two] = (
                c * axes[:, :, one] + s * axes[:, :, two],
                c * axes[:, :, two] - s * axes[:, :, one],
            )
        self._give(system, it, axes, it.middle + dt * it.velocity)

    def kick(self, system: System, dt: float) -> None:
        """Collective: half a kick by the present forces."""
        it = self._gather(system, 0.5 * dt)
        self._give(system, it, it.axes, None)

    def add(self, system: System, measure: bool) -> None:
        """Collective: add to the virials what holds the shapes; forces stay those that act on the bodies."""
        if not measure:
            return
        it = self._gather(system, 0.5 * self.dt if system.within_step else 0.0)
        spin, per_mass = self._spin(it.angular, it.axes), system.units.acceleration
        bent = self._spin(it.torque * per_mass - np.cross(spin, it.angular), it.axes)
        b = self._body
        turned = np.cross(spin[b], np.cross(spin[b], it.arms)) + np.cross(bent[b], it.arms)
        whole = (it.force / self._whole[:, None])[b]
        held = self._masses[:, None] * (turned / per_mass + whole) - it.forces
        own, place = self._whose(system)
        each = np.stack([2.0 * it.arms[place, x] * held[place, y] for x, y in PARTS], axis=1)
        system.forces.tallies[own, 1:7] += system.device.to_device(each)

    def _gather(self, system: System, dt: float) -> Bodies:
        """Collective: the bodies of all particles, with momenta after a kick of dt."""
        particles, cell, host = system.particles, system.domains.cell, system.device.to_host
        slots = particles.own
        each = np.zeros(len(slots), ROW)
        each["id"] = host(particles.ids[slots])
        each["place"] = host(particles.positions[slots, :3]) + cell.shifts(host(particles.images[slots]))
        each["velocity"], each["force"] = host(particles.velocities[slots, :3]), host(particles.forces[slots, :3])
        came = np.concatenate(rows_of_ranks(each, system.mesh))
        rows = np.empty(system.count, ROW)
        rows[came["id"]] = came
        own, m = rows[self._ids], self._masses[:, None]
        middle, velocity = self._mean(own["place"]), self._mean(own["velocity"])
        arms = own["place"] - middle[self._body]
        angular = self._sums(m * np.cross(arms, own["velocity"]))
        force, torque = self._sums(own["force"]), self._sums(np.cross(arms, own["force"]))
        per_force = dt * system.units.acceleration
        angular = angular + per_force * torque
        axes = self._frame(arms, angular) @ self._turn
        kicked = velocity + per_force * force / self._whole[:, None]
        return Bodies(middle, kicked, angular, axes, arms, own["force"], force, torque)

    def _give(self, system: System, it: Bodies, axes: np.ndarray, middle: np.ndarray | None) -> None:
        """Give the own particles the velocities of bodies with these axes, and places about these middles."""
        particles, cell, device = system.particles, system.domains.cell, system.device
        own, place = self._whose(system)
        b, arms = self._body[place], it.arms[place]
        if middle is not None:
            turn = axes @ np.swapaxes(it.axes, 1, 2)
            arms = np.einsum("ijk,ik->ij", turn[b], arms)
            shifts = cell.shifts(device.to_host(particles.images[own]))
            particles.positions[own, :3] = device.to_device(middle[b] + arms - shifts)
        spin = self._spin(it.angular, axes)
        particles.velocities[own, :3] = device.to_device(it.velocity[b] + np.cross(spin[b], arms))

    def _whose(self, system: System) -> tuple[Any, np.ndarray]:
        """The slots of own particles, on the device, and their places in the order of bodies."""
        own = system.particles.own
        return own, self._place[system.device.to_host(system.particles.ids[own])]

    def _spin(self, angular: np.ndarray, axes: np.ndarray) -> np.ndarray:
        """Angular velocities."""
        along = np.einsum("ijk,ij->ik", axes, angular)
        found = np.divide(along, self._moments, out=np.zeros_like(along), where=self._moments > 0)
        return np.asarray(np.einsum("ijk,ik->ij", axes, found))

    def _frame(self, arms: np.ndarray, angular: np.ndarray) -> np.ndarray:
        """An orthogonal frame that moves along with each body, [b, 3, 3] as columns; of what is thin about its axis
        the second is across the angular momentum, so that its turn is exact.
        """
        one = _unit(arms[self._first])
        two = np.where(self._linear[:, None], angular, arms[self._second])
        two = two - (two * one).sum(axis=1)[:, None] * one
        none = np.linalg.norm(two, axis=1) == 0.0
        if none.any():
            spare = np.eye(3)[np.abs(one[none]).argmin(axis=1)]
            two[none] = spare - (spare * one[none]).sum(axis=1)[:, None] * one[none]
        two = _unit(two)
        return np.stack([one, two, np.cross(one, two)], axis=2)

    def _sums(self, values: np.ndarray) -> np.ndarray:
        """Sums over the particles of each body, in the order of their ids."""
        return np.asarray(np.add.reduceat(values, self._starts, axis=0))

    def _mean(self, values: np.ndarray) -> np.ndarray:
        return self._sums(self._masses[:, None] * values) / self._whole[:, None]

    def _farthest(self, squares: np.ndarray) -> np.ndarray:
        """The place of the particle of each body with the largest of these numbers."""
        ends = zip(self._starts.tolist(), (self._starts + self._sizes).tolist(), strict=True)
        return np.array([start + int(squares[start:end].argmax()) for start, end in ends])


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1)[:, None]
    return np.divide(vectors, lengths, out=np.tile([1.0, 0.0, 0.0], (len(vectors), 1)), where=lengths > 0)
