"""Collective variables: a number that tells where a system is on its way, with its slope by every particle.

Groups of several particles count by their center of mass. Distances are those to the nearest image, so a group and a
distance are shorter than half of a periodic box. Angles and dihedrals are in degrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.particles.cell import Cell

# How many groups each kind takes.
KINDS = {"distance": 2, "angle": 3, "dihedral": 4, "coordination": 2, "position": 1}
TURN = 360.0
NEAR_ONE = 1e-5  # of a distance over the radius: there the switch of coordination is a series


@dataclass(frozen=True, eq=False)
class CollectiveVariable:
    """A collective variable of groups of particles, ids from 0.

    kind: distance (between two groups), angle (at the second of three), dihedral (of four), coordination (pairs of the
    first and the second group: the sum of (1 - x^n) / (1 - x^m), x = r / radius), position (of a group along an axis,
    from `origin`). powers: n and m. Raises `InputError` for groups that do not fit.
    """

    name: str
    kind: str
    groups: tuple[tuple[int, ...], ...]
    axis: str = "x"
    origin: float = 0.0
    radius: float = 1.0
    powers: tuple[int, int] = (6, 12)

    def __post_init__(self) -> None:
        wanted = KINDS.get(self.kind)
        if wanted is None:
            raise InputError(f"there are no variables of kind {self.kind!r}", do=f"choose {', '.join(KINDS)}")
        if len(self.groups) != wanted or not all(self.groups):
            raise InputError(f"{self.kind} {self.name!r} takes {wanted} groups of particles, not {len(self.groups)}")
        if any(len(set(group)) != len(group) for group in self.groups) or min(self.ids) < 0:
            raise InputError(f"a group of {self.name!r} names a particle twice, or one below 1")
        if self.kind == "coordination" and (self.powers[0] < 1 or self.powers[1] <= self.powers[0] or self.radius <= 0):
            raise InputError(f"{self.name!r} takes a radius above 0 and powers n < m, not {self.radius}, {self.powers}")

    @property
    def ids(self) -> tuple[int, ...]:
        """The particles of all groups, one after the other."""
        return tuple(id_ for group in self.groups for id_ in group)

    def period(self, box: Box) -> float:
        """After which the same values come again; 0 where they do not."""
        if self.kind == "position":
            along = "xyz".index(self.axis)
            return float(box.cell.lengths[along]) if box.periodic[along] else 0.0
        return TURN if self.kind == "dihedral" else 0.0

    def value(self, places: np.ndarray, masses: np.ndarray, box: Box) -> Value:
        """The variable and its slopes; places: float64[n, 3], of `ids`; masses: float64[n]."""
        groups, first = [], 0
        for group in self.groups:
            rows = slice(first, first + len(group))
            groups.append((places[rows], masses[rows] / masses[rows].sum()))
            first = rows.stop
        if self.kind == "coordination":
            return self._coordination(groups[0][0], groups[1][0], box)
        centers = np.stack([_center(points, weights, box) for points, weights in groups])
        value, slopes, strain = {
            "distance": _distance,
            "angle": _angle,
            "dihedral": _dihedral,
            "position": self._position,
        }[self.kind](centers, box)
        each = [weights[:, None] * slope for (_, weights), slope in zip(groups, slopes, strict=True)]
        return Value(value, np.concatenate(each), strain)

    def _position(self, centers: np.ndarray, box: Box) -> tuple[float, np.ndarray, np.ndarray]:
        along, slope = "xyz".index(self.axis), np.zeros((1, 3))
        slope[0, along] = 1.0
        gap = np.zeros(3)
        gap[along] = centers[0, along] - self.origin
        return float(box.nearest(gap)[along]), slope, np.zeros((3, 3))

    def _coordination(self, ones: np.ndarray, others: np.ndarray, box: Box) -> Value:
        gaps = box.nearest(others[None] - ones[:, None])
        r = np.sqrt((gaps * gaps).sum(axis=2))
        x, (n, m) = r / self.radius, self.powers
        near = np.abs(x - 1.0) < NEAR_ONE
        away = np.where(near, 2.0, x)
        up, down = 1.0 - away**n, 1.0 - away**m
        share = np.where(near, n / m * (1.0 + 0.5 * (n - m) * (x - 1.0)), up / down)
        fall = (up * m * away ** (m - 1) / down - n * away ** (n - 1)) / down
        fall = np.where(near, 0.5 * n * (n - m) / m, fall) / self.radius
        pull = np.where(r > 0, fall / np.where(r > 0, r, 1.0), 0.0)[:, :, None] * gaps
        slopes = np.concatenate([-pull.sum(axis=1), pull.sum(axis=0)])
        return Value(float(share.sum()), slopes, np.einsum("ija,ijb->ab", gaps, pull))


@dataclass(frozen=True, eq=False)
class Value:
    """A variable, its slopes by the places of its particles, float64[n, 3], and by the strain of the box, [3, 3]: what
    moves along with it adds - dE/dvalue times that to the virial.
    """

    value: float
    slopes: np.ndarray
    strain: np.ndarray


@dataclass(frozen=True, eq=False)
class Box:
    """The cell of a box, and which of its dims are periodic, [3]."""

    cell: Cell
    periodic: np.ndarray

    def nearest(self, gaps: np.ndarray) -> np.ndarray:
        """Differences of places, [..., 3], to the nearest image."""
        return self.cell.nearest(gaps.reshape(-1, 3), self.periodic).reshape(gaps.shape)


def _center(points: np.ndarray, weights: np.ndarray, box: Box) -> np.ndarray:
    """The center of mass of points that lie around the first of them."""
    return np.asarray(points[0] + weights @ box.nearest(points - points[0]))


def _distance(centers: np.ndarray, box: Box) -> tuple[float, np.ndarray, np.ndarray]:
    gap = box.nearest(centers[1] - centers[0])
    r = float(np.sqrt(gap @ gap))
    way = gap / r if r > 0 else np.zeros(3)
    return r, np.stack([-way, way]), np.outer(gap, way)


def _angle(centers: np.ndarray, box: Box) -> tuple[float, np.ndarray, np.ndarray]:
    a, b = box.nearest(centers[0] - centers[1]), box.nearest(centers[2] - centers[1])
    normal = np.cross(a, b)
    sine = float(np.sqrt(normal @ normal))
    angle = float(np.degrees(np.arctan2(sine, a @ b)))
    if sine == 0.0:  # straight: no direction to bend to
        return angle, np.zeros((3, 3)), np.zeros((3, 3))
    unit = np.degrees(normal / sine)
    by_a, by_b = np.cross(a, unit) / (a @ a), np.cross(unit, b) / (b @ b)
    return angle, np.stack([by_a, -by_a - by_b, by_b]), np.outer(a, by_a) + np.outer(b, by_b)


def _dihedral(centers: np.ndarray, box: Box) -> tuple[float, np.ndarray, np.ndarray]:
    """Blondel and Karplus (1996), J. Comput. Chem. 17, 1132: no term is singular but those of straight angles."""
    f = box.nearest(centers[0] - centers[1])
    g = box.nearest(centers[1] - centers[2])
    h = box.nearest(centers[3] - centers[2])
    a, b, width = np.cross(f, g), np.cross(h, g), float(np.sqrt(g @ g))
    angle = float(np.degrees(np.arctan2(np.cross(b, a) @ g / width, a @ b)))
    if not (a @ a and b @ b):
        return angle, np.zeros((4, 3)), np.zeros((3, 3))
    one, four = -width / (a @ a) * a, width / (b @ b) * b
    between = (f @ g) / ((a @ a) * width) * a - (h @ g) / ((b @ b) * width) * b
    slopes = np.degrees(np.stack([one, -one + between, -four - between, four]))
    arms = np.stack([f, np.zeros(3), -g, h - g])  # from the second
    return angle, slopes, arms.T @ slopes


def named(variables: Sequence[CollectiveVariable], name: str) -> int:
    """The place of a variable by its name. Raises `InputError` for an unknown one."""
    names = [each.name for each in variables]
    if name not in names:
        raise InputError(f"there is no variable {name!r}", do=f"choose {', '.join(names) or 'none: give variables'}")
    return names.index(name)
