"""Velocities of groups between two stages of a run: settings, and what they do."""

from __future__ import annotations

import math

import numpy as np

from hpckit.apps.md.lammps.making import velocities as drawn
from hpckit.apps.md.motion.dynamics import group_of
from hpckit.apps.md.motion.groups import AXES, VelocityOf
from hpckit.apps.md.start import Start
from hpckit.md.external.groups import Warmth, scale, slots_of
from hpckit.md.motion.corrections import still, unturned
from hpckit.md.system import System


def change_velocities(system: System, start: Start, given: VelocityOf, at_start: bool = False) -> None:
    """Collective: do what the settings say to the velocities of a group; at_start: before the first step."""
    group, particles, slots = group_of(start, given.group), system.particles, system.particles.slots
    here = slots_of(system, group)
    velocities = particles.velocities[:slots]
    before = velocities[:, :3].copy()
    if given.kind in ("still", "unturned"):
        (still if given.kind == "still" else unturned)(system, group)
        return
    if given.kind == "draw":
        which = system.device.xp.flatnonzero(here)
        masses = system.slot_masses[which][:, None]
        ids, places = system.device.to_host(particles.ids[which]), system.device.to_host(particles.positions[which])
        places = start.places_read(places[:, :3], ids) if at_start else places
        numbers = _drawn(start, given, ids, places)
        numbers[:, system.dims :] = 0.0
        velocities[which, :3] = system.device.to_device(numbers) / masses**0.5
        if "momentum" in given.remove:
            still(system, group)
        if "rotation" in given.remove:
            unturned(system, group)
    if given.kind in ("draw", "scale"):
        now = Warmth(group).temperature(system)
        scale(system, group, math.sqrt(given.temperature / now) if now else 0.0)
    else:
        share = 0.0
        if given.kind == "ramp":
            first, last = given.between
            places = particles.positions[:slots, AXES.index(given.across)]
            share = system.device.xp.clip((places - first) / (last - first), 0.0, 1.0)
        for axis in given.along:
            dim = AXES.index(axis)
            values = given.velocity[dim] + share * (given.last[dim] - given.velocity[dim])
            velocities[:, dim] = system.device.xp.where(here, values, velocities[:, dim])
    if given.add:
        changed = AXES if given.kind == "draw" else given.along
        for axis in changed:
            dim = AXES.index(axis)
            velocities[:, dim] = system.device.xp.where(here, velocities[:, dim] + before[:, dim], velocities[:, dim])


def _drawn(start: Start, given: VelocityOf, ids: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Random numbers, float64[n, 3], as LAMMPS draws them in the order of the particles, or by their places."""
    if given.draw == "lammps":
        return drawn.in_order(given.seed, ids)
    if given.draw == "lammps_gaussian":
        return drawn.normal_in_order(given.seed, ids, start.count)
    return (drawn.by_place if given.draw == "lammps_geom" else drawn.normal_by_place)(given.seed, places[:, :3])
