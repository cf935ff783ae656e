"""The radial distribution function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import cKDTree

from hpckit.errors import InputError
from hpckit.kernels.particles.observables.dispatch import pair_histogram
from hpckit.md.observables.frame import Floats, Frame, Ints, own_block, summed

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Radial:
    """r: float64[bins], middles of the bins. g: float64[bins], of all particles. partial: float64[types, types, bins].
    coordination: float64[bins], mean number of neighbors up to the outer edge of each bin.
    """

    r: Floats
    g: Floats
    partial: Floats
    coordination: Floats

    @property
    def peak(self) -> tuple[float, float]:
        """Place and height of the highest bin."""
        at = int(self.g.argmax())
        return float(self.r[at]), float(self.g[at])


class RadialDistribution:
    """g(r) up to `reach` in `bins` bins, for each pair of types and for all (Hansen and McDonald, section 2.5).

    g is the density of neighbors over the mean density of the box; pairs count once from each side. Counts are whole
    numbers, so the result does not depend on the number of ranks. Raises `InputError` where the reach passes half a
    width of the box along which it is periodic.
    """

    def __init__(self, reach: float, bins: int = 200, types: int = 1) -> None:
        if not reach > 0 or bins < 1 or types < 1:
            raise InputError(
                f"a radial distribution takes a reach above 0, bins and types, not {reach}, {bins}, {types}"
            )
        self.reach, self.frames = float(reach), 0
        self._counts = np.zeros((types, types, bins), np.int64)
        self._ideal = np.zeros((types, types))  # sum over frames of N_a N_b / V
        self._particles = np.zeros(types)

    def add(self, frame: Frame, comm: MPI.Comm | None = None) -> None:
        """Count the pairs of a frame."""
        cell, periodic = frame.cell, np.array(frame.periodic)
        positions = np.ascontiguousarray(frame.positions, np.float64)
        if cell.skewed:
            cell, _ = cell.flipped()
            positions = cell.wrapped(positions, periodic)[0]
        widths = cell.widths
        if (widths[periodic] < 2 * self.reach).any():
            raise InputError(
                f"a radial distribution up to {self.reach:g} does not fit a periodic box of widths {widths.tolist()}",
                do=f"choose a reach of at most half the least width, {widths[periodic].min() / 2:g}",
            )
        own = own_block(frame, comm)
        types = np.ascontiguousarray(frame.types, np.int64)
        if len(types) and types.max() >= len(self._counts):
            raise InputError(
                f"a particle has type {types.max()}, the radial distribution has {len(self._counts)} types"
            )
        straight = cell.straight(positions) if cell.tilted else positions
        box = cell.lengths, np.array(cell.tilt), periodic
        pair_histogram(positions, straight, types, own.start, own.stop, *box, self.reach, self._counts)
        number = np.bincount(types, minlength=len(self._counts)).astype(np.float64)
        self._ideal += np.outer(number, number) / cell.volume
        self._particles += number
        self.frames += 1

    def counts(self, comm: MPI.Comm | None = None) -> Ints:
        """The pairs so far, from each side: int64[types, types, bins]. Collective with a communicator."""
        return summed(self._counts, comm)

    def result(self, comm: MPI.Comm | None = None) -> Radial:
        """The result of the frames so far. Collective with a communicator."""
        counts = self.counts(comm).astype(np.float64)
        bins = counts.shape[2]
        outer = np.linspace(0.0, self.reach, bins + 1)
        shells = 4.0 / 3.0 * np.pi * np.diff(outer**3)
        with np.errstate(divide="ignore", invalid="ignore"):
            partial = np.nan_to_num(counts / (self._ideal[:, :, None] * shells))
            g = np.nan_to_num(counts.sum((0, 1)) / (self._ideal.sum() * shells))
            coordination = np.nan_to_num(counts.sum((0, 1)).cumsum() / self._particles.sum())
        return Radial(0.5 * (outer[1:] + outer[:-1]), g, partial, coordination)


def neighbor_counts(frame: Frame, own: Ints, chosen: np.ndarray, reach: float) -> Ints:
    """How many others, of those that are chosen, bool[particles], are within `reach` of each particle `own`, over the
    sides of the box too: int64[own].
    """
    cell, periodic = frame.cell, np.array(frame.periodic)
    places = cell.wrapped(np.ascontiguousarray(frame.positions, np.float64), periodic)[0]
    turns = np.where(periodic, np.ceil(reach / cell.widths), 0).astype(int)
    images = np.stack(np.meshgrid(*(np.arange(-n, n + 1) for n in turns), indexing="ij"), axis=-1).reshape(-1, 3)
    shifted = (places[chosen][None] + cell.shifts(images)[:, None]).reshape(-1, 3)
    low, high = places.min(axis=0, initial=np.inf) - reach, places.max(axis=0, initial=-np.inf) + reach
    tree = cKDTree(shifted[((shifted >= low) & (shifted <= high)).all(axis=1)])
    found = tree.query_ball_point(places[own], reach, return_length=True)
    return np.asarray(found - chosen[own], np.int64)
