"""Parameters of a pair potential, written in Python, from energies and forces of a reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from hpckit.comm.agree import sum_of_ranks
from hpckit.errors import BlowUpError, InputError
from hpckit.kernels.particles.cells import dispatch as cells
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.cells.reference import list_entries
from hpckit.kernels.particles.pair.parameters import normal_equations

Floats = npt.NDArray[np.float64]
DAMPING, LEAST, MOST = 1e-3, 1e-12, 1e12  # of Marquardt: at the start, and its range


@dataclass(frozen=True)
class ReferenceFrame:
    """Positions [N, 3] in a periodic box [3], and their forces [N, 3] and energy (or None) in a reference."""

    positions: npt.ArrayLike
    box: npt.ArrayLike
    forces: npt.ArrayLike
    energy: float | None = None


@dataclass(frozen=True)
class Fit:
    """A fitted potential: its parameters, their standard errors, and what is left of the reference.

    offset: the energy of a particle without neighbors (0 where it was not fitted). force_error, energy_error: root mean
    squares of a force's component and of an energy a particle. iterations: steps that were taken.
    """

    parameters: Floats
    errors: Floats
    offset: float
    force_error: float
    energy_error: float
    iterations: int


def fit_potential(
    energy: Callable,
    start: Sequence[float],
    frames: Sequence[ReferenceFrame],
    cutoff: float,
    *,
    switch: float | None = None,
    force_weight: float = 1.0,
    energy_weight: float = 1.0,
    offset: bool = False,
    iterations: int = 100,
    tolerance: float = 1e-10,
    comm: MPI.Comm | None = None,
) -> Fit:
    """The parameters of `energy(r2, p)` whose forces and energies are nearest to those of the frames.

    Collective; every rank has all frames and computes its share of them. The sum of the squares of
    force_weight x (forces - reference) and energy_weight x (energy - reference) / N is made least by Levenberg's and
    Marquardt's method (Marquardt 1963, J. SIAM 11, 431-441), with exact derivatives and the same bits on any number of
    ranks. switch: the energy fades to 0 from there to the cutoff, as `interaction.switch` says. offset: the energy of a
    lone particle, in which references differ, is fitted too. It ends when a step changes the sum by less than
    `tolerance` of it, or each parameter by less than that of its size. comm: by default that of the world. Raises
    `InputError`, which lists all mistakes, `TypeError` for a function that cannot be traced, `BlowUpError` where the
    energies at the start are not finite.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    read = _read(frames, start, cutoff, switch)
    count = len(start)
    kernel = normal_equations(energy, count, cutoff**2, None if switch is None else switch**2)
    pairs = {n: _pairs(read[n], cutoff) for n in range(comm.rank, len(read), comm.size)}
    free = np.array([*[True] * count, offset])

    def equations(p: Floats) -> tuple[Floats, Floats, float, Floats]:
        """A, g of the normal equations, the cost, and the squares of [forces, energies a particle]."""
        size = count + 1
        shares = np.zeros((len(read), size * size + size + 2))
        for n, found in pairs.items():
            own, frame = shares[n], read[n]
            matrix, slopes = own[: size * size].reshape(size, size), own[size * size : -2]
            weight = 0.0 if math.isnan(frame.energy) else energy_weight / len(frame.forces)
            wanted = 0.0 if math.isnan(frame.energy) else frame.energy
            squares, error = kernel(p, *found, frame.forces, wanted, force_weight, weight, matrix, slopes)
            own[-2:] = squares, 0.0 if math.isnan(frame.energy) else (error / len(frame.forces)) ** 2
        # Each number comes from one rank, the others add 0: the sum is exact, and that over frames has one order.
        total = np.add.reduce(sum_of_ranks(comm, shares), axis=0)
        squares = total[-2:]
        cost = float(force_weight**2 * squares[0] + energy_weight**2 * squares[1])
        matrix, slopes = total[: size * size].reshape(size, size), total[size * size : -2]
        return matrix[np.ix_(free, free)], slopes[free], cost, squares

    p = np.array([*start, 0.0], dtype=np.float64)
    matrix, slopes, cost, squares = equations(p)
    if not (math.isfinite(cost) and np.isfinite(matrix).all()):
        raise BlowUpError(
            "energies or forces at the start are not finite", do="start from parameters that give finite ones"
        )
    damping, taken = DAMPING, 0
    while taken < iterations and damping <= MOST:
        scale = np.where(np.diag(matrix) > 0.0, np.diag(matrix), 1.0)
        step = np.linalg.lstsq(matrix + damping * np.diag(scale), -slopes, rcond=None)[0]
        there = p.copy()
        there[free] += step
        found = equations(there)
        if not (found[2] <= cost and np.isfinite(found[0]).all()):  # true for nan
            damping *= 4.0
            continue
        small = bool((np.abs(step) <= tolerance * np.abs(there[free])).all())
        done = small or cost - found[2] <= tolerance * cost
        p, (matrix, slopes, cost, squares) = there, found
        damping, taken = max(damping / 8.0, LEAST), taken + 1
        if done:
            break
    return _fit(p, offset, matrix, cost, squares, read, taken)


@dataclass(frozen=True)
class _Read:
    positions: Floats
    box: Floats
    forces: Floats
    energy: float  # nan: not known


def _read(frames: Sequence[ReferenceFrame], start: Sequence[float], cutoff: float, switch: float | None) -> list[_Read]:
    """The frames as arrays; raises `InputError` for all that does not fit."""
    wrong: list[str] = []
    if not len(frames):
        wrong.append("there is no frame")
    if not len(start):
        wrong.append("there is no parameter to fit")
    if not cutoff > 0.0 or (switch is not None and not 0.0 < switch < cutoff):
        wrong.append(f"cutoff is {cutoff} and switch {switch}: 0 < switch < cutoff is needed")
    read = []
    for n, frame in enumerate(frames):
        one = _Read(
            np.ascontiguousarray(frame.positions, np.float64),
            np.ascontiguousarray(frame.box, np.float64),
            np.ascontiguousarray(frame.forces, np.float64),
            math.nan if frame.energy is None else float(frame.energy),
        )
        read.append(one)
        if one.positions.ndim != 2 or one.positions.shape[1] != 3 or one.forces.shape != one.positions.shape:
            wrong.append(
                f"frame {n}: positions {one.positions.shape} and forces {one.forces.shape}, both must be [N, 3]"
            )
        elif not (np.isfinite(one.positions).all() and np.isfinite(one.forces).all()):
            wrong.append(f"frame {n}: a position or a force is not finite")
        if one.box.shape != (3,) or not (one.box >= 2.0 * cutoff).all():
            wrong.append(
                f"frame {n}: the box is {one.box.tolist()}; three lengths of at least {2.0 * cutoff:g} are needed"
            )
    if wrong:
        raise InputError("; ".join(wrong), do="correct the frames, the cutoff or the start")
    return read


def _pairs(frame: _Read, cutoff: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
    """Both ends i < j of each pair within the cutoff, in the order of their numbers, and the way x_i - x_j.

    Found by the cells and lists of a run: the images beyond the box are its ghosts.
    """
    box, count, reach = frame.box, len(frame.positions), cutoff * (1 + 1e-6)
    records, whose = np.zeros((count, RECORD)), np.arange(count)
    records[:, :3] = frame.positions - box * np.floor(frame.positions / box)
    for dim in range(3):
        parts = [
            (slice(None), 0.0),
            (records[:, dim] < reach, box[dim]),
            (records[:, dim] > box[dim] - reach, -box[dim]),
        ]
        copies = [records[part].copy() for part, _ in parts]
        for each, (_, shift) in zip(copies, parts, strict=True):
            each[:, dim] += shift
        whose = np.concatenate([whose[part] for part, _ in parts])
        records = np.concatenate(copies)
    grid = cells.grid_over(records, count, np.zeros(3), box, reach)
    order, starts = cells.sort(records[:count], count, grid, ghosts=False)
    beyond, beyond_starts = cells.sort(records[count:], len(records) - count, grid, ghosts=True)
    own, all_slots = len(order), len(order) + len(beyond)
    slots, numbers = np.empty((all_slots + CLUSTER, RECORD)), np.full(all_slots + CLUSTER, -1)
    cells.place(records[:count], order, own, 0, slots)
    cells.place(records[count:], beyond, len(beyond), own, slots)
    numbers[:own] = np.where(order >= 0, order, -1)
    numbers[own:all_slots] = np.where(beyond >= 0, whose[count:][beyond], -1)
    everywhere = np.full(3, -np.inf), np.full(3, np.inf)
    both = starts, beyond_starts
    lists = cells.list_neighbors(slots, own, len(beyond), grid, both, everywhere, "scalar", 1, np.zeros(0), None, None)
    i, j = (numbers[each] for each in list_entries(lists.bounds, lists.entries, own))
    once = (i >= 0) & (i < j)
    i, j = i[once], j[once]
    apart = frame.positions[i] - frame.positions[j]
    apart -= box * np.rint(apart / box)
    near = np.flatnonzero(np.einsum("nk,nk->n", apart, apart) < cutoff * cutoff)
    near = near[np.lexsort((j[near], i[near]))]  # so that sums have one order
    return i[near], j[near], np.ascontiguousarray(apart[near])


def _fit(
    p: Floats, offset: bool, matrix: Floats, cost: float, squares: Floats, read: Sequence[_Read], taken: int
) -> Fit:
    components = sum(frame.forces.size for frame in read)
    energies = sum(not math.isnan(frame.energy) for frame in read)
    spare = max(components + energies - len(matrix), 1)
    variances = np.diag(np.linalg.pinv(matrix)) * cost / spare
    return Fit(
        parameters=p[:-1],
        errors=np.sqrt(np.maximum(variances, 0.0))[: len(p) - 1],
        offset=float(p[-1]) if offset else 0.0,
        force_error=math.sqrt(squares[0] / max(components, 1)),
        energy_error=math.sqrt(squares[1] / max(energies, 1)),
        iterations=taken,
    )
