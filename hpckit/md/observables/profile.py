"""Density along an axis of the box, and around the middle of a droplet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpckit.errors import InputError
from hpckit.md.observables.frame import Floats, Frame, own_block, summed

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class ProfileResult:
    """x: float64[bins], middles of the bins (of a radial profile: distances). density: particles per volume;
    mass_density: mass per volume.
    """

    x: Floats
    density: Floats
    mass_density: Floats


class DensityProfile:
    """The mean density in `bins` slabs across the axis "x", "y" or "z" of a box of constant size; in a tilted box the
    slabs lie along its faces, and places are straight coordinates (`Cell`).

    Particles are counted, so the number density does not depend on the number of ranks. Particles beyond a box that is
    not periodic are left out.
    """

    def __init__(self, axis: str = "z", bins: int = 100) -> None:
        if axis not in ("x", "y", "z") or bins < 1:
            raise InputError(f"a profile goes along x, y or z with 1 bin or more, not {axis!r} with {bins}")
        self.dim, self.frames = "xyz".index(axis), 0
        self._counts = np.zeros((0, bins), np.int64)
        self._box: Floats | None = None
        self._masses = np.zeros(0)

    def add(self, frame: Frame, comm: MPI.Comm | None = None) -> None:
        """Count the particles of a frame."""
        box = np.array([frame.lower, frame.upper, frame.cell.tilt])
        types = int(frame.types.max(initial=0)) + 1 if frame.masses is None else len(frame.masses)
        if self._box is None:
            self._box = box
            self._counts = np.zeros((types, self._counts.shape[1]), np.int64)
            self._masses = np.ones(types) if frame.masses is None else np.asarray(frame.masses)
        elif not np.array_equal(box, self._box):
            raise InputError("a profile needs a box of constant size")
        own, bins = own_block(frame, comm), self._counts.shape[1]
        low, high = box[:2, self.dim]
        place = np.floor((frame.cell.straight(frame.positions[own])[:, self.dim] - low) / (high - low) * bins).astype(
            np.int64
        )
        inside = (place >= 0) & (place < bins)
        np.add.at(self._counts, (frame.types[own][inside], place[inside]), 1)
        self.frames += 1

    def result(self, comm: MPI.Comm | None = None) -> ProfileResult:
        """The result of the frames so far. Collective with a communicator."""
        if self._box is None:
            raise InputError("a profile needs a frame first")
        counts, bins = summed(self._counts, comm), self._counts.shape[1]
        low, high = self._box[:2, self.dim]
        slab = (self._box[1] - self._box[0]).prod() / bins
        x = low + (np.arange(bins) + 0.5) * (high - low) / bins
        samples = slab * max(self.frames, 1)
        return ProfileResult(x, counts.sum(0) / samples, self._masses @ counts / samples)


class RadialProfile:
    """The mean density in `bins` shells around the center of all particles, up to half the least width of the box.

    The center is found in each frame, along periodic dims as the mean of angles (Bai and Breen 2008, J. Graphics Tools
    13): an even vapor around a droplet does not move it.
    """

    def __init__(self, bins: int = 100) -> None:
        if bins < 1:
            raise InputError(f"a profile has 1 bin or more, not {bins}")
        self.frames = 0
        self._counts = np.zeros((0, bins), np.int64)
        self._reach = 0.0
        self._masses = np.zeros(0)

    def add(self, frame: Frame, comm: MPI.Comm | None = None) -> None:
        """Count the particles of a frame."""
        cell, bins = frame.cell, self._counts.shape[1]
        least = 0.5 * float(cell.widths.min())
        if not self.frames:
            types = int(frame.types.max(initial=0)) + 1 if frame.masses is None else len(frame.masses)
            self._counts = np.zeros((types, bins), np.int64)
            self._masses = np.ones(types) if frame.masses is None else np.asarray(frame.masses)
            self._reach = least
        elif not np.isclose(self._reach, least, rtol=1e-12):
            raise InputError("a profile needs a box of constant size")
        own, periodic = own_block(frame, comm), np.array(frame.periodic)
        gaps = cell.nearest(frame.positions[own] - _center(frame, periodic), periodic)
        shell = np.floor(np.linalg.norm(gaps, axis=1) / self._reach * bins).astype(np.int64)
        inside = shell < bins
        np.add.at(self._counts, (frame.types[own][inside], shell[inside]), 1)
        self.frames += 1

    def result(self, comm: MPI.Comm | None = None) -> ProfileResult:
        """The result of the frames so far; x are distances. Collective with a communicator."""
        if not self.frames:
            raise InputError("a profile needs a frame first")
        counts, bins = summed(self._counts, comm), self._counts.shape[1]
        ends = np.linspace(0.0, self._reach, bins + 1)
        samples = 4 / 3 * np.pi * np.diff(ends**3) * self.frames
        return ProfileResult(0.5 * (ends[:-1] + ends[1:]), counts.sum(0) / samples, self._masses @ counts / samples)


def _center(frame: Frame, periodic: np.ndarray) -> Floats:
    """The center of the masses of all particles."""
    edges, straight = frame.cell.lengths, frame.cell.straight(frame.positions)
    masses = np.ones(len(frame.types)) if frame.masses is None else np.asarray(frame.masses)[frame.types]
    angles = 2 * np.pi * (straight - frame.lower) / edges
    around = np.arctan2(masses @ np.sin(angles), masses @ np.cos(angles)) / (2 * np.pi) % 1.0
    middle = np.where(periodic, frame.lower + around * edges, masses @ straight / masses.sum())
    return frame.cell.leaning(middle[None])[0]
