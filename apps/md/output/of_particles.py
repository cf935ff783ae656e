"""Numbers that each particle has: their profiles over bins, and what they reduce to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from hpckit.apps.md.motion.groups import AXES
from hpckit.apps.md.settings.averages import OF_BINS, OF_PARTICLES, Bins, Histogram, Profile
from hpckit.apps.md.settings.formulas import values_of
from hpckit.apps.md.settings.table import COMPUTED, OF_EACH, Computed
from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.kernels.particles.records.dispatch import types_of
from hpckit.md import snapshots
from hpckit.md.external.groups import (
    TENSOR,
    ParticleGroup,
    Some,
    Warmth,
    center_of,
    count_of,
    slots_of,
    sums_by,
    sums_of,
    unwrapped,
    weighted_sums,
)
from hpckit.md.observables.frame import part_of
from hpckit.md.observables.radial import RadialDistribution, neighbor_counts
from hpckit.md.system import System
from hpckit.md.thermo import volume
from hpckit.plan.particles.snapshot import Snapshot

ORIGINS = {"lower": 0.0, "center": 0.5, "upper": 1.0}
ROWS = (((0, 0), (3, 1), (4, 2)), ((3, 0), (1, 1), (5, 2)), ((4, 0), (5, 1), (2, 2)))  # of a tensor: parts, and dims
NOWHERE = -1e20  # the largest coordinate of no particles, as in LAMMPS
ROUNDED = 0.5  # of a bin, that a number of bins may be off


class OfParticles:
    """The numbers of the particles of a group on this rank at one step. scalar: the value of another name in a
    formula.
    """

    def __init__(
        self,
        system: System,
        group: Some,
        computed: Mapping[str, Computed],
        groups: Mapping[str, ParticleGroup | None],
        formulas: Mapping[str, str],
        scalar: Callable[[str], float],
    ) -> None:
        self.system, self.computed, self.groups, self.formulas = system, computed, groups, formulas
        self.scalar = scalar
        self.slots = np.flatnonzero(system.device.to_host(slots_of(system, group)))
        self.named: Callable[[str], np.ndarray] = cache(self._named)

    def rows(self, values: Any) -> np.ndarray:
        """These of the values of all slots of this rank, on the host."""
        return np.asarray(self.system.device.to_host(values)[self.slots])

    @property
    def masses(self) -> np.ndarray:
        """float64[n]."""
        return self.rows(self.system.slot_masses)

    def _named(self, name: str) -> np.ndarray:
        """What a name stands for: float64[n]."""
        particles = self.system.particles
        if name in OF_PARTICLES:
            if name == "id":
                return self.rows(particles.ids) + 1.0
            if name == "type":
                return types_of(self.rows(particles.positions)) + 1.0
            if name == "mass":
                return self.masses
            if name == "q":
                return self.rows(particles.charges)
            arrays = {"": particles.positions, "v": particles.velocities, "f": particles.forces}
            return self.rows(arrays[name[:-1]])[:, AXES.index(name[-1])].astype(np.float64)
        match = COMPUTED.match(name)
        if match and self.computed[match[1]].kind in OF_EACH:
            found = self._each(self.computed[match[1]], int(match[2] or 0))
            return np.asarray(np.where(self.rows(slots_of(self.system, self.groups[match[1]])), found, 0.0))
        if name not in self.formulas:
            return np.full(len(self.slots), self.scalar(name))
        return np.zeros(len(self.slots)) + values_of(self.formulas[name], self.named)

    def _each(self, given: Computed, part: int) -> np.ndarray:
        """The energies of particles, a part of their stress, from 1, or how many partners are near; collective."""
        units, v = self.system.units, self.rows(self.system.particles.velocities)[:, :3]
        if given.kind == "ke/atom":
            return np.asarray(0.5 * units.energy * self.masses * (v * v).sum(axis=1))
        if given.kind == "coord/atom":
            return self._partners(given)
        tallies = 0.5 * self.rows(self.system.forces.tallies)
        if given.kind == "pe/atom":
            return np.asarray(tallies[:, 0])
        a, b = TENSOR[part - 1]
        moving = units.energy * self.masses * v[:, a] * v[:, b] if given.moving else 0.0
        return np.asarray(-units.pressure * (moving + tallies[:, part]))

    def _partners(self, given: Computed) -> np.ndarray:
        """Collective: how many partners are nearer to each particle than `reach`, without those in its molecule that
        have no share of the pair forces. Each rank gets all particles for it.
        """
        group, frame = self.groups[f"{given.name} partners"], snapshots.frame(self.system)
        chosen = np.ones(self.system.count, bool) if group is None else group.members
        if given.types:
            chosen = chosen & np.isin(frame.types + 1, given.types)
        own, lost = self.rows(self.system.particles.ids), np.zeros(self.system.count, np.int64)
        one, other, gaps = left_out(self.system, frame)
        np.add.at(lost, one[gaps < given.reach], chosen[other[gaps < given.reach]])
        return (neighbor_counts(frame, own, chosen, given.reach) - lost[own]).astype(np.float64)


def left_out(system: System, frame: Snapshot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Partners in molecules without any share of the pair forces, from each side, and their distances."""
    one, other = getattr(system.exclusions, "left_out", np.zeros((0, 2), np.int64)).T
    gaps = frame.cell.nearest(frame.positions[one] - frame.positions[other], np.array(frame.periodic))
    return one, other, np.linalg.norm(gaps, axis=1)


def reduced(given: Computed, of: OfParticles) -> tuple[float, ...]:
    """Collective: what numbers of all particles reduce to: one value, or nan and those of several."""
    system, columns = of.system, np.stack([of.named(name) for name in given.of], axis=1)
    if given.how in ("min", "max"):
        sign = 1.0 if given.how == "max" else -1.0
        found = sign * max_of_ranks(system.mesh.comm, (sign * columns).max(axis=0, initial=-np.inf))
    else:
        powers = columns if given.how in ("sum", "ave") else columns * columns
        sums = sums_of(system, np.concatenate([powers, np.ones((len(columns), 1))], axis=1))
        found = sums[:-1] / (sums[-1] if given.how.startswith("ave") else 1.0)
    found = found.tolist()
    return (found[0],) if len(found) == 1 else (np.nan, *found)


def of_group(system: System, group: Some, what: str, axis: str, end: str) -> float:
    """Collective: a function of a group, None for all particles, or of those in a region, as variables of LAMMPS have
    them. what: count, mass, charge, ke, gyration; of an axis xcm, vcm, fcm: place and velocity of the center of mass,
    and force; bound: the least or largest coordinate, by `end`.
    """
    dim, particles, slots = AXES.index(axis or "x"), system.particles, system.particles.slots
    if what == "count":
        return float(count_of(system, group))
    if what == "ke":
        return 0.5 * Warmth(group).doubled(system)
    if what == "xcm":
        return float(np.nan_to_num(center_of(system, group)[0][dim]))
    if what == "bound":
        sign = 1.0 if end == "max" else -1.0
        own = system.device.to_host(particles.positions[:slots, dim][slots_of(system, group)])
        return float(sign * max_of_ranks(system.mesh.comm, np.array([(sign * own).max(initial=NOWHERE)]))[0])
    masses = system.slot_masses[:, None]
    if what == "gyration":
        away = unwrapped(system) - system.device.to_device(center_of(system, group)[0])
        columns = masses * (away * away).sum(axis=1)[:, None]
    elif what == "vcm":
        columns = masses * particles.velocities[:slots, dim : dim + 1]
    elif what == "fcm":
        columns = particles.forces[:slots, dim : dim + 1]
    else:
        columns = masses if what == "mass" else particles.charges[:slots, None]
    total, mass = weighted_sums(system, group, system.device.xp.concatenate([columns, masses], axis=1)).tolist()
    if what in ("vcm", "gyration"):
        total = total / mass if mass else 0.0
    return float(np.sqrt(total)) if what == "gyration" else float(total)


def heat_flux(given: Computed, of: OfParticles) -> tuple[float, ...]:
    """Collective: the heat current times the volume along x, y, z, and its part by particles that move."""
    kinetic, potential, stress = given.of
    v = of.rows(of.system.particles.velocities)[:, :3]
    carried = (of.named(kinetic) + of.named(potential))[:, None] * v
    stresses = [of.named(f"{stress}[{k}]") / of.system.units.pressure for k in range(1, 7)]
    done = -np.stack([sum(stresses[k] * v[:, b] for k, b in row) for row in ROWS], axis=1)
    sums = sums_of(of.system, np.concatenate([carried, done], axis=1))
    return (np.nan, *(sums[:3] + sums[3:]).tolist(), *sums[:3].tolist())


def distances(given: Computed, reach: float, system: System, group: ParticleGroup | None) -> np.ndarray:
    """Collective: a table of pair distances in a group, None for all particles: the middles of bins, and of each pair
    of types g(r) and the neighbors up to the end of the bin: float64[bins, 1 + 2 pairs]. Partners in a molecule without
    any share of the pair forces are left out. Each rank gets all particles for it, and counts the pairs of a share.
    """
    types, comm, frame = len(system.masses), system.mesh.comm, snapshots.frame(system)
    members = np.ones(system.count, bool) if group is None else group.members
    counted = RadialDistribution(reach, given.bins, types)
    counted.add(part_of(frame, members), comm)
    counts = counted.counts(comm)
    one, other, gaps = left_out(system, frame)
    near = members[one] & members[other] & (gaps * (given.bins / reach) < given.bins)
    places = (gaps * (given.bins / reach))[near].astype(np.int64)
    np.subtract.at(counts, (frame.types[one[near]], frame.types[other[near]], places), 1)
    edges = np.linspace(0.0, reach, given.bins + 1)
    shells = np.diff(4.0 / 3.0 * np.pi * edges**3 if system.dims == 3 else np.pi * edges**2) / volume(system)
    number, columns = np.bincount(frame.types[members], minlength=types), [0.5 * (edges[1:] + edges[:-1])]
    every = tuple(range(1, types + 1))
    for left, right in given.pairs or ((every, every),):
        of, others, same = (np.array(sorted(each), np.int64) - 1 for each in (left, right, {*left} & {*right}))
        found = counts[np.ix_(of, others)].sum((0, 1))
        count = number[of].sum()
        partners = number[others].sum() - number[same].sum() / count if count else 0.0
        columns.append(found / np.maximum(shells * partners * count, 1e-300))
        columns.append(found.cumsum() / max(count, 1))
    return np.stack(columns, axis=1)


class Binned:
    """The bins of a box with these ends, low and high. counts: their numbers along each dim; firsts: where the first
    ones begin.
    """

    def __init__(self, given: Bins, system: System, ends: Sequence[Sequence[float]]) -> None:
        self.given, self.system = given, system
        self.dims = [AXES.index(axis) for axis in given.along]
        self.low, self.high = np.array(((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)) if given.reduced else ends)
        self.firsts, self.counts = list[float](), list[int]()
        for dim, width, origin in zip(self.dims, given.widths, given.origins, strict=True):
            low, high = self.low[dim], self.high[dim]
            at = low + ORIGINS[origin] * (high - low) if isinstance(origin, str) else origin
            inverse = 1.0 / width  # steps from the origin, in the order of LAMMPS
            first = at + int((low - at) * inverse) * width if at < low else at - int((at - low) * inverse) * width
            first -= width if first > low else 0.0
            last = at + int((high - at) * inverse) * width if at < high else at - int((at - high) * inverse) * width
            last += width if last < high else 0.0
            self.firsts.append(float(first))
            self.counts.append(int((last - first) * inverse + ROUNDED))

    @property
    def number(self) -> int:
        """The bins, or types."""
        return int(np.prod(self.counts)) if self.dims else len(self.system.masses)

    @property
    def volume(self) -> float:
        """The volume of a bin; that of the box for types."""
        whole = volume(self.system)  # now, of shares of the box
        if self.dims and not self.given.reduced:
            whole = float(np.prod((self.high - self.low)[: self.system.dims]))
        for dim, width in zip(self.dims, self.given.widths, strict=True):
            whole *= width / (self.high[dim] - self.low[dim])
        return whole

    def middles(self) -> list[np.ndarray]:
        """Where the bins are along each of their dims: float64[number]."""
        zipped = zip(self.firsts, self.counts, self.given.widths, strict=True)
        lines = [first + (np.arange(count) + 0.5) * width for first, count, width in zipped]
        return [each.ravel() for each in np.meshgrid(*lines, indexing="ij")] if lines else []

    def labels(self, of: OfParticles) -> np.ndarray:
        """In which bin each particle is: int64[n]. Those beyond the ends of a box are in the outermost ones."""
        positions, box = of.rows(of.system.particles.positions), of.system.domains
        if not self.dims:
            return types_of(positions).astype(np.int64)
        places = positions[:, :3].astype(np.float64)
        if self.given.reduced:
            places = (box.cell.straight(places) - np.array(box.lower)) / np.array(box.cell.lengths)
        found = np.zeros(len(places), np.int64)
        for dim, first, count, width in zip(self.dims, self.firsts, self.counts, self.given.widths, strict=True):
            along = places[:, dim]
            if box.periodic[dim]:
                low, high = (0.0, 1.0) if self.given.reduced else (float(box.lower[dim]), float(box.upper[dim]))
                along = np.where(along < low, along + (high - low), along)
                along = np.where(along >= high, along - (high - low), along)
            layer = np.floor((along - first) * (1.0 / width)).astype(np.int64)
            found = found * count + np.clip(layer, 0, count - 1)
        return found


def sample(given: Profile, of: OfParticles, bins: Binned) -> list[float]:
    """Collective: a sample of a profile: the numbers of particles in the bins, then each column."""
    columns = [np.ones(len(of.slots))]
    for name in given.columns:
        if name == "temp":
            velocities = of.rows(of.system.particles.velocities)[:, :3]
            columns.append(of.system.units.energy * of.masses * (velocities * velocities).sum(axis=1))
        else:
            columns.append(of.masses if name == "density/mass" else columns[0] if name in OF_BINS else of.named(name))
    sums = sums_by(of.system, bins.labels(of), np.stack(columns, axis=1), bins.number).T
    return [each for row in (sums if given.per == "all" else _divided(given, sums, bins, 1)) for each in row.tolist()]


def finished(given: Profile, sums: list[float], bins: Binned) -> list[float]:
    """The means of a period, from the sums of its samples: the places of bins, numbers of particles, and columns."""
    rows = np.array(sums).reshape(1 + len(given.columns), -1)
    rows = _divided(given, rows, bins, given.repeat) if given.per == "all" else rows / given.repeat
    return [each for row in (*bins.middles(), *rows) for each in row.tolist()]


def counted(given: Histogram, of: OfParticles, values: Mapping[str, float | None]) -> list[float]:
    """Collective: a sample of a histogram: counts of the bins, of what is beyond, the least and the largest value.
    values: of each column, None where particles have it.
    """
    comm, own, whole = of.system.mesh.comm, list[np.ndarray](), list[float]()
    for name, value in values.items():
        if value is None:
            own.append(of.named(name))
        elif comm.rank == 0:
            whole.append(value)
    found = np.concatenate([*own, whole])
    below, above = found < given.low, found > given.high
    bins = np.floor((found - given.low) * (given.number / (given.high - given.low))).clip(0, given.number - 1)
    bins = np.where(below, 0, np.where(above, given.number + 1, bins + 1)).astype(np.int64)
    counts = np.bincount(bins, minlength=given.number + 2)
    missing = int((below | above).sum()) if given.beyond == "ignore" else 0
    if given.beyond == "end":
        counts[1] += counts[0]
        counts[-2] += counts[-1]
    counts = counts if given.beyond == "extra" else counts[1:-1]
    sums = sum_of_ranks(comm, np.array([*counts, missing], np.int64)).tolist()
    ends = np.array([-found.min(initial=np.inf), found.max(initial=-np.inf)])
    low, high = max_of_ranks(comm, ends).tolist()
    return [*map(float, sums), -low, high]


def _divided(given: Profile, sums: np.ndarray, bins: Binned, samples: int) -> np.ndarray:
    """Sums over particles of some samples, [1 + columns, bins], as numbers in a sample and means."""
    counts, system = sums[0], bins.system
    some = np.maximum(counts, 1.0)
    found = [counts / samples]
    for name, each in zip(given.columns, sums[1:], strict=True):
        if name == "temp":
            found.append(each / (system.dims * some * system.units.boltzmann))
        elif name in OF_BINS:
            unit = system.units.mass_density if name == "density/mass" else 1.0
            found.append(unit * each / (bins.volume * samples))
        else:
            found.append(each / (samples if given.per == "none" else some))
    return np.array(found)
