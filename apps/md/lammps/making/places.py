"""Which places and which particles the commands of a script mean: drawn at random, moved, too near, named, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from hpckit.apps.md.lammps.making import velocities as drawn
from hpckit.apps.md.lammps.making.lattices import Extent, Inside
from hpckit.apps.md.lammps.making.made import Made

WARM_UP, TRIES = 30, 1000  # numbers that `create_atoms random` leaves out; how often it tries for each particle
PER_CELL = 10  # particles, where they are sorted
DRAWS = 4096  # places that are drawn at once


def ramp(dims: list[str], numbers: list[str], steps: np.ndarray) -> Callable[[Made], np.ndarray]:
    """Places that go up evenly along one dim, from one place along another to the next; dims: the other and the one."""
    across, along = map("xyz".index, dims)
    low, high, first, last = map(float, numbers)

    def moved(made: Made) -> np.ndarray:
        a, b = first * steps[across], last * steps[across]
        share = np.clip((made.positions[:, across] - a) / (b - a), 0.0, 1.0)
        places = made.positions.copy()
        places[:, along] += (low + share * (high - low)) * steps[along]
        return places

    return moved


def turn(numbers: list[str], steps: np.ndarray) -> Callable[[Made], np.ndarray]:
    """Places turned about an axis through a place, by degrees."""
    values = np.array([float(word) for word in numbers])
    center, axis = values[:3] * steps, values[3:6]
    turn = Rotation.from_rotvec(axis / np.linalg.norm(axis) * values[6], degrees=True)

    def moved(made: Made) -> np.ndarray:
        places = made.positions + made.cell.shifts(made.images)
        return np.asarray(turn.apply(places - center) + center - made.cell.shifts(made.images))

    return moved


def overlapping(cutoff: float, first: str, second: str) -> Callable[[Made], np.ndarray]:
    """Particles of a group that are nearer than a cutoff to one of another group, which stays, as LAMMPS chooses them:
    one after the other; of two that could both go, over a side of the box, the one of the smaller number.
    """

    def which(made: Made) -> np.ndarray:
        one, two = made.group(first), made.group(second)
        cell, wraps = made.cell, [(-1, 0, 1) if each else (0,) for each in made.periodic]
        places = cell.wrapped(made.positions, made.periodic)[0]
        goes = np.zeros(len(places), bool)
        shifts = [(a, b, c) for c in wraps[2] for b in wraps[1] for a in wraps[0]]
        images = np.concatenate([places + cell.shifts(np.array([shift])) for shift in shifts])
        owned = shifts.index((0, 0, 0))
        tree = cKDTree(images)
        for i in np.flatnonzero(one):
            for k in tree.query_ball_point(places[i], cutoff):
                image, j = divmod(k, len(places))
                gap = places[i] - images[k] if i < j else images[k] - places[i]
                if (gap @ gap) >= cutoff * cutoff or not two[j] or (i == j and image == owned):
                    continue
                if image == owned:
                    goes[i] |= not goes[j]
                elif not (two[i] and one[j] and i > j):
                    goes[i] = True
        return goes

    return which


def by_cells(made: Made) -> np.ndarray:
    """The order of particles by cells of about ten, x fastest, and in a cell by places, as LAMMPS sorts them."""
    low, high = made.positions.min(axis=0), made.positions.max(axis=0)
    lengths = np.where(high > low, high - low, 1.0)[: made.dims]
    size = (np.prod(lengths) / (len(made.types) // PER_CELL + 1)) ** (1.0 / made.dims)
    counts = (lengths / size).astype(int) + 1
    cells = ((made.positions - low)[:, : made.dims] / lengths * counts).astype(int)
    cells = np.minimum(cells, counts - 1)
    return np.lexsort((*made.positions.T[::-1], *cells.T))


def named(numbers: np.ndarray, words: list[str], most: int) -> np.ndarray:
    """Which numbers are named: 2, 2*, *3, 2*3, *, 2:5, 2:8:3, `<= 3`, `<> 2 5` from one to the other."""
    if words and words[0] == "<>":
        return np.asarray((numbers >= float(words[1])) & (numbers <= float(words[2])))
    if words and words[0] in ("<", "<=", ">", ">=", "==", "!="):
        value = float(words[1])
        compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
        return np.asarray({**compare, "==": np.equal, "!=": np.not_equal}[words[0]](numbers, value))
    found = np.zeros(len(numbers), bool)
    for word in words:
        if ":" in word:
            first, last, *step = map(int, word.split(":"))
            found |= (numbers >= first) & (numbers <= last) & ((numbers - first) % (step or [1])[0] == 0)
            continue
        low, star, high = word.partition("*")
        first = int(low or 1)
        found |= (numbers >= first) & (numbers <= (int(high or most) if star else first))
    return found


@dataclass(frozen=True)
class RandomPlaces:
    """Places at random, drawn as LAMMPS draws them: a number of them, a seed, the region and the box around it, the
    least distance to what is there, and how often each is tried.
    """

    count: int
    seed: int
    inside: Inside | None
    extent: Extent
    near: float
    tries: int

    def fill(self, made: Made, kind: int) -> None:
        """Add particles of a type. Those for which no place is found are left out."""
        if made.tilt.any():
            raise ValueError("random places are known in upright boxes")
        low, high = made.lower.copy(), made.upper.copy()
        if self.extent is not None:
            low, high = np.maximum(low, self.extent[0]), np.minimum(high, self.extent[1])
        if made.dims == 2:
            low[2] = high[2] = 0.5 * (low[2] + high[2])
        if not (high[: made.dims] > low[: made.dims]).all():
            raise ValueError("the region is not in the box")
        found, tried, drawn_so_far = list[np.ndarray](), 0, WARM_UP
        missing = self.count
        while missing:
            draws = drawn.sequence(self.seed, drawn_so_far, 3 * DRAWS).reshape(-1, 3)
            drawn_so_far += 3 * DRAWS
            places = low + draws * (high - low)
            fits = np.ones(DRAWS, bool) if self.inside is None else self.inside(places)
            if not self.near and fits.all():  # as in a block
                found += [*places[:missing]]
                missing, tried = max(missing - DRAWS, 0), 0
                continue
            for place, fit in zip(places, fits.tolist(), strict=True):
                tried += 1
                takes = fit and not self._is_near(made, found, place)
                if takes:
                    found.append(place)
                if takes or tried == self.tries:
                    missing, tried = missing - 1, 0
                    if not missing:
                        break
        made.add(np.array(found).reshape(-1, 3), np.full(len(found), kind))

    def _is_near(self, made: Made, found: list[np.ndarray], place: np.ndarray) -> bool:
        if not self.near:
            return False
        lengths = np.where(made.periodic, made.upper - made.lower, np.inf)
        for others in (made.positions, np.array(found).reshape(-1, 3)):
            away = np.abs(others - place)
            away = np.minimum(away, np.abs(lengths - away))
            if ((away * away).sum(axis=1) < self.near * self.near).any():
                return True
        return False
