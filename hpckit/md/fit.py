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
from hpckit.kernels.particles.pair.parameters import normal_equations, pairs_within

Floats = npt.NDArray[np.float64]
DAMPING, LEAST, MOST = 1e-3, 1e-12, 1e12  # of Marquardt: at the start, and its range


@dataclass(frozen=True)
class Frame:
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
    frames: Sequence[Frame],
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


def _read(frames: Sequence[Frame], start: Sequence[float], cutoff: float, switch: float | None) -> list[_Read]:
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
    """Both ends of each pair within the cutoff, and the way between them."""
    volume, count = float(np.prod(frame.box)), len(frame.positions)
    room = int(1.5 * count * count / volume * cutoff**3 * 2.1) + 16
    while True:
        i, j, apart = np.empty(room, np.int64), np.empty(room, np.int64), np.empty((room, 3))
        found = pairs_within(frame.positions, frame.box, cutoff, i, j, apart)
        if found <= room:
            return i[:found], j[:found], apart[:found]
        room = found


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
