"""The cell of a box: its corner, edges and tilt, and what follows from them; no MPI.

A tilted cell has the edges a = (lx, 0, 0), b = (xy, ly, 0), c = (xz, yz, lz), as in LAMMPS. Its *straight* coordinates
are places with the tilt taken away: those of the box lower <= u < upper. Domains are cut and particles are wrapped in
straight coordinates; without tilt these are the places themselves, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
TILTS = ("xy", "xz", "yz")
SPANS = ((0, 1), (0, 2), (1, 2))  # of each tilt: the dim that it leans along, and that of the edge that leans
ALLOWED = 1e-9  # beyond half an edge


@dataclass(frozen=True)
class Cell:
    """A cell with its lower corner, the upper corner that it has without tilt, and the tilt xy, xz, yz."""

    lower: tuple[float, float, float]
    upper: tuple[float, float, float]
    tilt: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @classmethod
    def of(cls, lower: npt.ArrayLike, upper: npt.ArrayLike, tilt: npt.ArrayLike = (0.0, 0.0, 0.0)) -> Cell:
        """A cell from arrays of three numbers."""
        return cls(*(_three(each) for each in (lower, upper, tilt)))

    @classmethod
    def of_edges(cls, edges: npt.ArrayLike, lower: npt.ArrayLike = (0.0, 0.0, 0.0)) -> tuple[Cell, Floats]:
        """The cell of any three edges, the rows of [3, 3], turned such that a lies along x and b in the plane of x and
        y; and the rotation [3, 3] for places about `lower` as rows, places @ rotation. Raises `ValueError` for edges
        without volume, or in the order of a left hand.
        """
        given = np.asarray(edges, np.float64)
        if given.shape != (3, 3) or not np.isfinite(given).all() or not np.linalg.det(given) > 0:
            raise ValueError(f"expected three edges a, b, c with a volume a . (b x c) above 0, found {given.tolist()}")
        turned = given
        if np.triu(given, 1).any() or (np.diagonal(given) <= 0).any():
            q, r = np.linalg.qr(given.T)
            signs = np.sign(np.diagonal(r))
            turned = (r * signs[:, None]).T
            rotation = q * signs
        else:
            rotation = np.eye(3)
        low = np.asarray(lower, np.float64)
        tilt = turned[1, 0], turned[2, 0], turned[2, 1]
        return cls.of(low, low + np.diagonal(turned), tilt), rotation

    def rests(self, factors: npt.ArrayLike) -> Floats:
        """The point that stays where it is when the edges grow by factors: the middle of the cell, along edges that do
        not change its corner: float64[3].
        """
        lower, upper = np.array(self.lower), np.array(self.upper)
        return np.where(np.asarray(factors) == 1.0, lower, 0.5 * (lower + upper))

    def grown(self, factors: npt.ArrayLike, tilt: npt.ArrayLike | None = None) -> Cell:
        """The cell with its edges longer by factors about its middle, as in LAMMPS, and this tilt."""
        point, lower, upper = self.rests(factors), np.array(self.lower), np.array(self.upper)
        low, high = (point + np.asarray(factors) * (end - point) for end in (lower, upper))
        return Cell.of(low, high, self.tilt if tilt is None else tilt)

    @property
    def tilted(self) -> bool:
        """Whether the cell is tilted at all."""
        return any(self.tilt)

    @property
    def lengths(self) -> Floats:
        """lx, ly, lz: float64[3]."""
        return np.array(self.upper) - np.array(self.lower)

    @property
    def matrix(self) -> Floats:
        """The edges a, b, c as rows: float64[3, 3]; a place is lower + s @ matrix, with s in the unit cube."""
        (lx, ly, lz), (xy, xz, yz) = self.lengths.tolist(), self.tilt
        return np.array([[lx, 0.0, 0.0], [xy, ly, 0.0], [xz, yz, lz]])

    @property
    def inverse(self) -> Floats:
        """The inverse of `matrix`, lower triangular like it."""
        (lx, ly, lz), (xy, xz, yz) = self.lengths.tolist(), self.tilt
        return np.array(
            [
                [1 / lx, 0.0, 0.0],
                [-xy / (lx * ly), 1 / ly, 0.0],
                [(xy * yz - ly * xz) / (lx * ly * lz), -yz / (ly * lz), 1 / lz],
            ]
        )

    @property
    def reciprocal(self) -> Floats:
        """The reciprocal vectors as rows, with 2 pi: a wave with the numbers n has k = n @ reciprocal."""
        return 2 * np.pi * self.inverse.T

    @property
    def volume(self) -> float:
        """The volume, which the tilt does not change."""
        return float(np.prod(self.lengths))

    @property
    def widths(self) -> Floats:
        """The distances between opposite faces: float64[3]; the lengths where there is no tilt."""
        return 1.0 / np.linalg.norm(self.inverse, axis=0) if self.tilted else self.lengths

    @property
    def slopes(self) -> Floats:
        """How far places lean per straight length: xy / ly, xz / lz, yz / lz."""
        lengths = self.lengths
        return np.array([tilt / lengths[edge] for tilt, (_, edge) in zip(self.tilt, SPANS, strict=True)])

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """The corners of the smallest upright box around the cell."""
        xy, xz, yz = self.tilt
        low = np.array([min(0.0, xy, xz, xy + xz), min(0.0, yz), 0.0])
        high = np.array([max(0.0, xy, xz, xy + xz), max(0.0, yz), 0.0])
        return self.lower + low, self.upper + high

    @property
    def skewed(self) -> bool:
        """Whether a tilt is beyond half of the edge along which it leans."""
        lengths = self.lengths
        return any(abs(tilt) > (0.5 + ALLOWED) * lengths[dim] for tilt, (dim, _) in zip(self.tilt, SPANS, strict=True))

    def reaches(self, reach: float) -> Floats:
        """What a distance spans at most of each straight coordinate: float64[3]."""
        return reach * (self.lengths / self.widths) if self.tilted else np.full(3, reach)

    def straight(self, positions: Floats) -> Floats:
        """Places [n, 3 or more] without the tilt: float64[n, 3]."""
        straight = np.array(positions[:, :3], np.float64)
        if self.tilted:
            xy, xz, yz = self.slopes
            high = straight[:, 2] - self.lower[2]
            straight[:, 1] -= yz * high
            straight[:, 0] -= xy * (straight[:, 1] - self.lower[1]) + xz * high
        return straight

    def leaning(self, straight: Floats) -> Floats:
        """Places from straight coordinates [n, 3]: the inverse of `straight`."""
        places = np.array(straight, np.float64)
        if self.tilted:
            xy, xz, yz = self.slopes
            high = straight[:, 2] - self.lower[2]
            places[:, 0] += xy * (straight[:, 1] - self.lower[1]) + xz * high
            places[:, 1] += yz * high
        return places

    def shifts(self, images: npt.ArrayLike) -> Floats:
        """The vectors of image flags [n, 3]: float64[n, 3]."""
        n = np.asarray(images)
        moved = n * self.lengths
        if self.tilted:
            xy, xz, yz = self.tilt
            moved[:, 0] += n[:, 1] * xy + n[:, 2] * xz
            moved[:, 1] += n[:, 2] * yz
        return moved

    def wrapped(self, positions: Floats, periodic: npt.ArrayLike) -> tuple[Floats, npt.NDArray[np.int32]]:
        """Places [n, 3] put into the cell along periodic dims, and the image flags that lead back."""
        away = np.floor((self.straight(positions) - self.lower) / self.lengths)
        images = np.where(periodic, away, 0.0).astype(np.int32)
        return positions - self.shifts(images), images

    def nearest(self, separations: Floats, periodic: npt.ArrayLike) -> Floats:
        """The shortest images of separations [n, 3]; for tilts of at most half an edge, within half the least width."""
        found = np.array(separations, np.float64)
        for dim in (2, 1, 0):
            if np.broadcast_to(periodic, 3)[dim]:
                found -= np.rint(found[:, dim] / self.lengths[dim])[:, None] * self.matrix[dim]
        return found

    def map_to(self, other: Cell) -> Floats:
        """The map of places about the lower corners that takes this cell to another: float64[3, 3], upper triangular,
        for places as columns.
        """
        f = np.diag(other.lengths / self.lengths)
        (_, ly, lz), (xy, xz, yz) = self.lengths, self.tilt
        f[0, 1] = (other.tilt[0] - f[0, 0] * xy) / ly
        f[1, 2] = (other.tilt[2] - f[1, 1] * yz) / lz
        f[0, 2] = (other.tilt[1] - f[0, 0] * xz - f[0, 1] * yz) / lz
        return f

    def flipped(self) -> tuple[Cell, npt.NDArray[np.int32]]:
        """The cell of the same lattice whose tilts are within half an edge, and the matrix [3, 3] that takes image
        flags to those of it: flags @ matrix.
        """
        (lx, ly, _), (xy, xz, yz) = self.lengths.tolist(), self.tilt
        by_y = round(yz / ly) if abs(yz) > (0.5 + ALLOWED) * ly else 0  # c gives b, and then both give a
        yz, xz = yz - by_y * ly, xz - by_y * xy
        by_x = round(xy / lx) if abs(xy) > (0.5 + ALLOWED) * lx else 0
        xy -= by_x * lx
        over = round(xz / lx) if abs(xz) > (0.5 + ALLOWED) * lx else 0
        xz -= over * lx
        # a, b and c of before in those of now: b = b' + by_x a, c = c' + by_y b + over a.
        change = np.array([[1, 0, 0], [by_x, 1, 0], [over + by_y * by_x, by_y, 1]], np.int32)
        return replace(self, tilt=(xy, xz, yz)), change


def _three(values: npt.ArrayLike) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in np.asarray(values, np.float64))
    return x, y, z
