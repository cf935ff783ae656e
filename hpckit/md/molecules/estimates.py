"""How fine a sum over all images must be: errors of forces by Kolafa and Perram (1992, Mol. Simul. 9, 351) and by
Deserno and Holm (1998, J. Chem. Phys. 109, 7678 and 7694), put together as LAMMPS does it, so that the same accuracy
gives the same splitting, waves and mesh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hpckit.errors import InputError

# Deserno and Holm 1998 (II), table I: the coefficients of the error of differentiation ik, by the order of assignment.
SERIES: dict[int, tuple[float, ...]] = {
    1: (2 / 3,),
    2: (1 / 50, 5 / 294),
    3: (1 / 588, 7 / 1440, 21 / 3872),
    4: (1 / 4320, 3 / 1936, 7601 / 2271360, 143 / 28800),
    5: (1 / 23232, 7601 / 13628160, 143 / 69120, 517231 / 106536960, 106640677 / 11737571328),
    6: (
        *(691 / 68140800, 13 / 57600, 47021 / 35512320, 9694607 / 2095994880, 733191589 / 59609088000),
        326190917 / 11700633600,
    ),
    7: (
        *(1 / 345600, 3617 / 35512320, 745739 / 838397952, 56399353 / 12773376000, 25091609 / 1560084480),
        *(1755948832039 / 36229939200000, 4887769399 / 37838389248),
    ),
}
MOST_WAVES = 200  # along a dim
NEAR_ROOT = 1e-5  # of the splitting's own accuracy
GOOD = (2, 3, 5)  # the factors of a mesh


@dataclass(frozen=True)
class Charges:
    """Charges in a periodic box: how many particles there are; squares: the sum of q^2 times the strength; the lengths
    and the tilt of the box; the cutoff of pairs; accuracy: of forces, absolute.
    """

    count: int
    squares: float
    lengths: tuple[float, ...]
    cutoff: float
    accuracy: float
    tilt: tuple[float, ...] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        if not self.squares > 0:
            raise InputError(
                "a sum over all images of charges needs particles with charges", do="give charges, or none"
            )
        if not self.accuracy > 0:
            raise InputError(f"the accuracy of a sum over all images is above 0, not {self.accuracy:g}")

    @property
    def scale(self) -> float:
        """N rc V."""
        return self.count * self.cutoff * math.prod(self.lengths)

    def splitting(self) -> float:
        """The splitting g, inverse length, at which pairs beyond the cutoff have this error."""
        g = self.accuracy * math.sqrt(self.scale) / (2.0 * self.squares)
        return (
            (1.35 - 0.15 * math.log(self.accuracy)) / self.cutoff if g >= 1 else math.sqrt(-math.log(g)) / self.cutoff
        )

    def near_error(self, g: float) -> float:
        """The error of forces by pairs beyond the cutoff."""
        return 2.0 * self.squares * math.exp(-((g * self.cutoff) ** 2)) / math.sqrt(self.scale)

    def waves(self, g: float) -> tuple[int, int, int]:
        """The largest wave numbers of an Ewald sum along each dim."""
        found = []
        for length in self.lengths:
            n = 1
            while self.wave_error(n, length, g) > self.accuracy:
                n += 1
                if n > MOST_WAVES:
                    raise InputError("an Ewald sum of this accuracy needs too many waves", do="use pppm")
            found.append(n)
        return found[0], found[1], found[2]

    def wave_error(self, n: int, length: float, g: float) -> float:
        """The error of forces by waves beyond n along a dim of this length."""
        fade = math.exp(-((math.pi * n / (g * length)) ** 2))
        return 2.0 * self.squares * g / length * math.sqrt(1.0 / (math.pi * n * self.count)) * fade

    def mesh_error(self, g: float, mesh: tuple[int, ...], order: int) -> float:
        """The error of forces by a mesh whose forces are differentiated by ik."""
        each = [self._ik_error(h, length, g, order) for h, length in zip(self._steps(mesh), self.lengths, strict=True)]
        return math.sqrt(sum(error**2 for error in each)) / math.sqrt(3.0)

    def _ik_error(self, step: float, length: float, g: float, order: int) -> float:
        width = step * g
        series = sum(c * width ** (2 * m) for m, c in enumerate(SERIES[order]))
        root = math.sqrt(g * length * math.sqrt(2 * math.pi) * series / self.count)
        return self.squares * width**order * root / length**2

    def mesh(self, g: float, order: int) -> tuple[int, int, int]:
        """The points of a mesh along each dim, products of 2, 3 and 5."""
        found, counts = [], list[int]()
        for length in self.lengths:
            n, step = int(length / (1.0 / g)) + 1, 1.0 / g
            error = self._ik_error(step, length, g, order)
            while error > self.accuracy:  # the first step is 1 / g, as in LAMMPS: the error is that of one point fewer
                error = self._ik_error(step, length, g, order)
                n += 1
                step = length / n
            counts.append(n)
        for n in self._leaning(counts):
            while not _is_smooth(n):
                n += 1
            found.append(n)
        return found[0], found[1], found[2]

    def _leaning(self, counts: list[int]) -> list[int]:
        """The points along edges that lean, which are longer: the most that those of before can need, as in LAMMPS
        for tilts above 0; below 0 as many here, and fewer there.
        """
        if not any(self.tilt):
            return counts
        (x, y, z), (xy, xz, yz) = np.array(counts) / self.lengths, np.abs(self.tilt)
        lx, ly, lz = self.lengths
        return [int(n) + 1 for n in (x * lx, xy * x + ly * y, xz * x + yz * y + lz * z)]

    def _steps(self, mesh: tuple[int, ...]) -> list[float]:
        """The steps of a mesh, of which errors are estimated: the inverse of `_leaning`."""
        if not any(self.tilt):
            return [length / n for n, length in zip(mesh, self.lengths, strict=True)]
        (lx, ly, lz), (xy, xz, yz) = self.lengths, np.abs(self.tilt)
        x = mesh[0] / lx
        y = (mesh[1] - xy * x) / ly
        return [float(1.0 / each) for each in (x, y, (mesh[2] - xz * x - yz * y) / lz)]

    def adjusted(self, g: float, mesh: tuple[int, ...], order: int) -> float:
        """The splitting at which pairs and mesh have the same error, by Newton's method."""

        def difference(at: float) -> float:
            return self.near_error(at) - self.mesh_error(at, mesh, order)

        for _ in range(10_000):
            slope = (difference(g + 1e-6) - difference(g)) / 1e-6
            g -= difference(g) / slope
            if abs(difference(g)) < NEAR_ROOT:
                return g
        raise InputError("no splitting of the charges balances pairs and mesh", do="give another accuracy or cutoff")

    def error(self, g: float, mesh: tuple[int, ...], order: int) -> float:
        """The error of forces by pairs and mesh, absolute."""
        return math.hypot(self.near_error(g), self.mesh_error(g, mesh, order))


def _is_smooth(n: int) -> bool:
    for factor in GOOD:
        while n % factor == 0:
            n //= factor
    return n == 1


@dataclass(frozen=True)
class Fineness:
    """The splitting g of a sum over all images, and its largest waves, or its mesh and the order of assignment.

    error: estimated, of forces, absolute. squares: the largest nx^2 + ny^2 + nz^2 of waves; 0: see `waves_within`.
    """

    splitting: float
    waves: tuple[int, int, int] = (0, 0, 0)
    mesh: tuple[int, int, int] = (0, 0, 0)
    order: int = 5
    error: float = 0.0
    squares: int = 0


def ewald_fineness(
    charges: Charges, splitting: float = 0.0, waves: tuple[int, int, int] = (0, 0, 0), squares: int = 0
) -> Fineness:
    """The fineness of an Ewald sum; numbers that are given are kept."""
    g = splitting or charges.splitting()
    n = waves if all(waves) else charges.waves(g)
    each = [charges.wave_error(m, length, g) for m, length in zip(n, charges.lengths, strict=True)]
    error = math.hypot(charges.near_error(g), math.sqrt(sum(e * e for e in each) / 3))
    return Fineness(g, waves=n, error=error, squares=squares)


def mesh_fineness(
    charges: Charges, order: int = 5, splitting: float = 0.0, mesh: tuple[int, int, int] = (0, 0, 0)
) -> Fineness:
    """The fineness of a mesh; numbers that are given are kept. Raises `InputError` for orders other than 2 to 7."""
    if not 2 <= order <= 7:
        raise InputError(f"charges are assigned to a mesh with order 2 to 7, not {order}")
    g = splitting or charges.splitting()
    points = mesh if all(mesh) else charges.mesh(g, order)
    g = splitting or charges.adjusted(g, points, order)
    return Fineness(g, mesh=points, order=order, error=charges.error(g, points, order))


def waves_within(most: tuple[int, int, int], lengths: np.ndarray, squares: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The rows of waves (`kernels.particles.ewald.reference`) with |n| up to `most` within the sphere that the largest
    of the three touches, or where nx^2 + ny^2 + nz^2 is at most `squares`; one of each pair k, -k; and their numbers,
    int64[waves, 3].
    """
    unit = np.ones(3) if squares else 2 * np.pi / lengths
    limit = 1.00001 * (squares or max((unit[d] * most[d]) ** 2 for d in range(3)))
    rows, place = [], 0
    for x in range(most[0] + 1):
        for y in range(-most[1] if x else 0, most[1] + 1):
            left = limit - (unit[0] * x) ** 2 - (unit[1] * y) ** 2
            if left < 0:
                continue
            top = min(int(math.sqrt(left) / unit[2]), most[2])
            first = -top if x or y else 1
            if top >= first:
                rows.append((x, y, first, top - first + 1, place))
                place += top - first + 1
    found = np.array(rows, np.int64).reshape(-1, 5)
    n_z = np.array([z for row in rows for z in range(row[2], row[2] + row[3])], np.int64)
    x_and_y = np.repeat(found[:, :2], found[:, 3], axis=0)
    return found, np.column_stack([x_and_y, n_z])
