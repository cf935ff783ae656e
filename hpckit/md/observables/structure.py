"""The static structure factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.particles.observables.dispatch import density_sums
from hpckit.md.observables.frame import Floats, Frame, Ints, own_block, summed
from hpckit.plan.particles.cell import Cell

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Structure:
    """k: float64[shells], mean length of the wave vectors of a shell. s: float64[shells]. waves: how many it has."""

    k: Floats
    s: Floats
    waves: Ints


class StructureFactor:
    """S(k) = |sum of exp(-i k . r)|^2 / N over the wave vectors of the box up to `k_max`, averaged in `shells` shells.

    Of more than `most` wave vectors it takes a fixed random choice, equally many of each shell as far as they go, so
    all of the small shells. k = 0 is left out. Raises `InputError` unless the box is periodic and of constant size.
    """

    def __init__(self, k_max: float, shells: int = 100, most: int = 4000) -> None:
        if not k_max > 0 or shells < 1 or most < 1:
            raise InputError(f"a structure factor takes k_max above 0 and shells, not {k_max} and {shells}")
        self.k_max, self.shells, self.most, self.frames = k_max, shells, most, 0
        self._cell: Cell | None = None
        self._waves: Ints = np.zeros((0, 3), np.int64)
        self._squares = np.zeros(0)

    def add(self, frame: Frame, comm: MPI.Comm | None = None) -> None:
        """Sum over the particles of a frame. Collective with a communicator."""
        cell = frame.cell
        if not all(frame.periodic):
            raise InputError("a structure factor needs a box that is periodic in x, y and z")
        if self._cell is None:
            self._cell, self._waves = cell, self._choose(cell)
            self._squares = np.zeros(len(self._waves))
        elif not np.array_equal(cell.matrix, self._cell.matrix):
            raise InputError("a structure factor needs a box of constant size")
        own = own_block(frame, comm)
        sums = np.zeros((2, len(self._waves)))
        density_sums(cell.straight(frame.positions[own]), cell.lengths, self._waves, sums[0], sums[1])
        sums = summed(sums, comm)
        self._squares += (sums**2).sum(0) / max(len(frame.positions), 1)
        self.frames += 1

    def result(self, comm: MPI.Comm | None = None) -> Structure:
        """The result of the frames so far; the same on every rank."""
        if self._cell is None or not self.frames:
            raise InputError("a structure factor needs a frame first")
        length = _lengths(self._waves, self._cell)
        shell = self._shells(length)
        waves = np.bincount(shell, minlength=self.shells)
        full = waves > 0
        s = np.bincount(shell, self._squares / self.frames, self.shells)[full] / waves[full]
        return Structure(np.bincount(shell, length, self.shells)[full] / waves[full], s, waves[full])

    def _shells(self, length: Floats) -> Ints:
        """The shells of wave vectors of these lengths."""
        return np.minimum((length / self.k_max * self.shells).astype(np.int64), self.shells - 1)

    def _choose(self, cell: Cell) -> Ints:
        """The wave vectors, one of each pair k and -k."""
        edges = np.linalg.norm(cell.matrix, axis=1) if cell.tilted else cell.lengths
        most = np.floor(self.k_max * edges / (2 * np.pi)).astype(np.int64)
        axes = [np.arange(-n, n + 1) for n in most]
        waves = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
        waves = waves[len(waves) // 2 + 1 :]  # the second half is the first half with all signs changed
        length = _lengths(waves, cell)
        waves = waves[length <= self.k_max]
        if len(waves) > self.most:
            waves = waves[_evenly(self._shells(length[length <= self.k_max]), self.most)]
        return np.ascontiguousarray(waves)


def _lengths(waves: Ints, cell: Cell) -> Floats:
    """The lengths of wave vectors with these numbers."""
    each = waves @ cell.reciprocal if cell.tilted else 2 * np.pi * waves / cell.lengths
    return np.asarray(np.linalg.norm(each, axis=1))


def _evenly(shell: Ints, most: int) -> Ints:
    """Which `most` of these shells' waves to take, in order: shells take turns, each with a random one of its own."""
    mixed = np.random.default_rng(0).permutation(len(shell))
    order = mixed[np.argsort(shell[mixed], kind="stable")]  # by shell, at random within each
    turn = np.arange(len(shell)) - np.searchsorted(shell[order], shell[order])
    return np.sort(order[np.argsort(turn, kind="stable")[:most]])
