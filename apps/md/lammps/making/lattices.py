"""The lattices and regions of LAMMPS input scripts: sites in a box, and which places are inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hpckit.apps.md.settings.formulas import is_number

HALF = 0.5
DIAMOND = [
    *([0.0, 0.0, 0.0], [0.0, HALF, HALF], [HALF, 0.0, HALF], [HALF, HALF, 0.0]),
    *([0.25, 0.25, 0.25], [0.25, 0.75, 0.75], [0.75, 0.25, 0.75], [0.75, 0.75, 0.25]),
]
BASES: dict[str, list[list[float]]] = {
    "sc": [[0.0, 0.0, 0.0]],
    "bcc": [[0.0, 0.0, 0.0], [HALF, HALF, HALF]],
    "fcc": [*DIAMOND[:1], [HALF, HALF, 0.0], [HALF, 0.0, HALF], [0.0, HALF, HALF]],
    "diamond": DIAMOND,
    "hcp": [[0.0, 0.0, 0.0], [HALF, HALF, 0.0], [HALF, 5.0 / 6.0, HALF], [0.0, 1.0 / 3.0, HALF]],
    "custom": [],
    "sq": [[0.0, 0.0, 0.0]],
    "sq2": [[0.0, 0.0, 0.0], [HALF, HALF, 0.0]],
    "hex": [[0.0, 0.0, 0.0], [HALF, HALF, 0.0]],
}
FLAT = ("sq", "sq2", "hex", "custom")  # those of a plane
EDGES = {  # of a cell, rows; of the others a unit cube
    "hcp": np.diag([1.0, math.sqrt(3.0), math.sqrt(8.0 / 3.0)]),
    "hex": np.diag([1.0, math.sqrt(3.0), 1.0]),
}
OPTIONS = {"origin": 3, "orient": 4, "spacing": 3, "a1": 3, "a2": 3, "a3": 3, "basis": 3}
CORNERS = np.array(list(np.ndindex(2, 2, 2)), float)
ENDS = 1e20  # of a region without an end

Inside = Callable[[np.ndarray], np.ndarray]
Extent = tuple[np.ndarray, np.ndarray] | None


class Region(NamedTuple):
    """Which places are inside, the box around them (`extent_of`), and what settings say of it (`shape_of`)."""

    inside: Inside
    extent: Extent
    shape: dict[str, Any] | None


@dataclass(frozen=True)
class Lattice:
    """A lattice: rows of cell vectors, sites in shares of them, the scale, rows of the turn, and of the steps along x,
    y, z that count as one in a script.
    """

    edges: np.ndarray
    basis: np.ndarray
    scale: float
    turn: np.ndarray
    origin: np.ndarray
    spacing: np.ndarray

    @classmethod
    def of(cls, words: Sequence[str], reduced: bool, dims: int = 3) -> Lattice:
        """A lattice by the words of its command; reduced: the scale is a density; dims: 2 of a plane. Raises
        `ValueError`.
        """
        name, scale, *rest = words
        allowed = FLAT if dims == 2 else [each for each in BASES if each not in FLAT or each == "custom"]
        if name not in allowed or not is_number(scale) or float(scale) <= 0:
            where = " of dimension 2" if dims == 2 else ""
            raise ValueError(f"lattice {' '.join(words)}: known{where} are {', '.join(allowed)}, with a scale above 0")
        edges, basis = EDGES.get(name, np.eye(3)).copy(), [list(site) for site in BASES[name]]
        turn, origin, spacing = np.eye(3), np.zeros(3), None
        while rest:
            key = rest.pop(0)
            values, rest = rest[: OPTIONS.get(key, 0)], rest[OPTIONS.get(key, 0) :]
            axis = values.pop(0) if key == "orient" and values else ""
            sound = len(values) == 3 and all(map(is_number, values)) and (key != "orient" or axis in ("x", "y", "z"))
            if not sound or (key in ("a1", "a2", "a3", "basis") and name != "custom"):
                known = "origin, orient x, y or z, spacing with three numbers, and of custom a1, a2, a3, basis"
                raise ValueError(f"lattice {' '.join(words)}: known are {known}")
            numbers = np.array([float(value) for value in values])
            if key == "orient":
                turn["xyz".index(axis)] = numbers / math.sqrt(float((numbers * numbers).sum()))
            elif key == "origin":
                origin = numbers
            elif key == "spacing":
                spacing = numbers
            elif key == "basis":
                basis.append(numbers.tolist())
            else:
                edges[int(key[1]) - 1] = numbers
        if not basis or not np.allclose(turn @ turn.T, np.eye(3)) or np.linalg.det(turn) < 0:
            raise ValueError(f"lattice {' '.join(words)}: it needs sites, and right-handed, orthogonal directions")
        size = float(scale)
        if reduced:
            volume = abs(float(edges[0] @ np.cross(edges[1], edges[2])))
            size = math.pow(len(basis) / volume / size, 1.0 / dims)
        found = cls(edges, np.array(basis), size, turn, origin, np.ones(3))
        cube = replace(found, origin=np.zeros(3)).placed(CORNERS)
        return replace(found, spacing=np.ptp(cube, axis=0) if spacing is None else spacing * size)

    def placed(self, shares: np.ndarray) -> np.ndarray:
        """Places of sites in shares of the cell's vectors: added in LAMMPS's order, since random numbers of commands
        come from the bits of places.
        """
        (ax, bx, cx), (ay, by, cy), (az, bz, cz) = self.edges.T
        i, j, k = shares.T
        x, y, z = ((a * i + b * j + c * k) * self.scale for a, b, c in ((ax, bx, cx), (ay, by, cy), (az, bz, cz)))
        turned = [row[0] * x + row[1] * y + row[2] * z for row in self.turn]
        return np.ascontiguousarray(np.stack(turned, axis=1) + self.spacing * self.origin)

    def sites(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All sites between two corners, and some beyond, as LAMMPS makes them: x fastest, then y, z; and which of
        the basis each is.
        """
        corners = np.where(CORNERS > 0, high, low) - self.spacing * self.origin
        ends = corners @ self.turn @ np.linalg.inv(self.edges * self.scale)
        first, last = np.floor(ends.min(axis=0) - 1).astype(int), np.ceil(ends.max(axis=0) + 1).astype(int)
        z, y, x = np.meshgrid(
            *(np.arange(a, b + 1) for a, b in zip(first[::-1], last[::-1], strict=True)), indexing="ij"
        )
        cells = np.stack([x, y, z], axis=-1).reshape(-1, 1, 3)
        places = self.placed((cells + self.basis).reshape(-1, 3))
        return places, np.tile(np.arange(len(self.basis)), cells.size // 3)


def region_of(words: Sequence[str], spacing: np.ndarray, others: dict[str, Inside]) -> tuple[Inside, list[float]]:
    """What is inside a region by the words of its command, and the numbers of a block or prism, as lengths.

    Raises `ValueError`.
    """
    style, *rest = words
    options, rest = _options(rest)
    step = np.ones(3) if options.get("units") == "box" else spacing
    x, y, z = map(float, step)
    turned = options.get("side") == "out"
    if style in ("union", "intersect"):
        if len(rest) < 2 or rest[0] != str(len(rest) - 1) or not {*rest[1:]} <= others.keys():
            raise ValueError(f"region … {' '.join(words)}: known are N and the names of N regions")
        every, any_of = [others[name] for name in rest[1:]], style == "union"

        def joined(r: np.ndarray) -> np.ndarray:
            found = np.array([inside(r) for inside in every])
            return np.asarray(found.any(axis=0) if any_of else found.all(axis=0))

        return _sided(joined, turned), []
    scales = {"block": (x, x, y, y, z, z), "prism": (x, x, y, y, z, z, x, x, y), "sphere": (x, y, z, x)}
    if style == "cylinder":
        dim = rest[0] if rest and rest[0] in ("x", "y", "z") else ""
        along = {"x": (y, z, y, x, x), "y": (x, z, x, y, y), "z": (x, y, x, z, z)}.get(dim, ())
        ends = _numbers(words, rest[1:], along)
        k = "xyz".index(dim)
        a, b = (each for each in range(3) if each != k)
        return _sided(
            lambda r: (
                (np.hypot(r[:, a] - ends[0], r[:, b] - ends[1]) <= ends[2])
                & (r[:, k] >= ends[3])
                & (r[:, k] <= ends[4])
            ),
            turned,
        ), []
    if style in ("cone", "ellipsoid", "plane"):
        return _sided(_round(words, rest, step), turned), []
    ends = _numbers(words, rest, scales.get(style, ()))
    if style == "sphere":
        middle = np.array(ends[:3])
        return _sided(lambda r: np.linalg.norm(r - middle, axis=1) <= ends[3], turned), []
    low, high = np.array(ends[:6:2]), np.array(ends[1:6:2])
    xy, xz, yz = ends[6:] or (0.0, 0.0, 0.0)

    def block(r: np.ndarray) -> np.ndarray:
        zs = (r[:, 2] - low[2]) / (high[2] - low[2])
        ys = (r[:, 1] - low[1] - yz * zs) / (high[1] - low[1])
        xs = (r[:, 0] - low[0] - xy * ys - xz * zs) / (high[0] - low[0])
        shares = np.stack([xs, ys, zs], axis=1)
        return np.asarray(((shares >= 0) & (shares <= 1)).all(axis=1))

    if style == "block":
        return _sided(lambda r: np.asarray(((r >= low) & (r <= high)).all(axis=1)), turned), ends
    return _sided(block, turned), ends


def extent_of(words: Sequence[str], spacing: np.ndarray, others: Mapping[str, Extent]) -> Extent:
    """The corners of the box around a region whose words `region_of` takes; None where it has no such box, as LAMMPS
    sees it: `create_atoms random` draws places in it.
    """
    style, *rest = words
    options, rest = _options(rest)
    step = np.ones(3) if options.get("units") == "box" else spacing
    if options.get("side") == "out" or style == "plane":
        return None
    if style in ("union", "intersect"):
        every = [found for name in rest[1:] if (found := others[name]) is not None]
        if not every or (style == "union" and len(every) < len(rest) - 1):
            return None
        lows, highs = [low for low, _ in every], [high for _, high in every]
        joined = (np.minimum, np.maximum) if style == "union" else (np.maximum, np.minimum)
        return joined[0].reduce(lows), joined[1].reduce(highs)
    if style in ("cylinder", "cone"):
        k = "xyz".index(rest[0])
        a, b = (each for each in range(3) if each != k)
        x, y, *radii, first, last = [
            (-ENDS if place else ENDS) if word in ("INF", "EDGE") else float(word)
            for word, place in zip(rest[1:], [*[0] * (len(rest) - 3), 1, 0], strict=True)
        ]
        radius = max(radii) * step[a]
        low, high = np.zeros(3), np.zeros(3)
        low[[a, b, k]] = x * step[a] - radius, y * step[b] - radius, first * step[k]
        high[[a, b, k]] = x * step[a] + radius, y * step[b] + radius, last * step[k]
        return low, high
    if style in ("sphere", "ellipsoid"):
        middle = np.array(rest[:3], float) * step
        away = np.array(rest[3:], float) * (step if style == "ellipsoid" else step[0])
        return middle - away, middle + away
    corners = np.array(region_of(words, spacing, {})[1])
    xy, xz, yz = corners[6:] if len(corners) > 6 else (0.0, 0.0, 0.0)
    more = np.array([[xy, 0.0, 0.0], [xz, yz, 0.0]])
    return corners[:6:2] + np.minimum(more, 0.0).sum(axis=0), corners[1:6:2] + np.maximum(more, 0.0).sum(axis=0)


def shape_of(words: Sequence[str], spacing: np.ndarray) -> dict[str, Any] | None:
    """A block, sphere or cylinder, whose words `region_of` takes, as settings; None for other regions."""
    style, *rest = words
    options, rest = _options(rest)
    steps = [1.0] * 3 if options.get("units") == "box" else spacing.tolist()
    found: dict[str, Any] = {"outside": True} if options.get("side") == "out" else {}
    if style == "block":
        return {**found, "block": [_open(end) for end in region_of(words, spacing, {})[1]]}
    if style == "sphere":
        center = [float(word) * step for word, step in zip(rest, steps, strict=False)]
        return {**found, "center": center, "radius": float(rest[3]) * steps[0], "across": ["x", "y", "z"]}
    if style != "cylinder":
        return None
    axis, *middle = rest[:3]
    across = [each for each in "xyz" if each != axis]
    center, ends = [0.0] * 3, [-math.inf, math.inf] * 3
    for each, word in zip(across, middle, strict=True):
        center["xyz".index(each)] = float(word) * steps["xyz".index(each)]
    k = "xyz".index(axis)
    for at, word in enumerate(rest[4:6], 2 * k):
        ends[at] = ends[at] if word in ("INF", "EDGE") else float(word) * steps[k]
    radius = float(rest[3]) * steps["xyz".index(across[0])]
    return {**found, "block": ends, "center": center, "radius": radius, "across": across}


def _open(end: float) -> float:
    """An end of a block, inf where it has none."""
    return math.copysign(math.inf, end) if abs(end) >= ENDS else end


def _round(words: Sequence[str], rest: list[str], step: np.ndarray) -> Inside:
    """What is inside a cone or an ellipsoid, or above a plane."""
    x, y, z = map(float, step)
    if words[0] == "plane":
        ends = np.array(_numbers(words, rest, (x, y, z, 1.0, 1.0, 1.0)))
        return lambda r: np.asarray((r - ends[:3]) @ ends[3:] >= 0)
    if words[0] == "ellipsoid":
        ends = np.array(_numbers(words, rest, (x, y, z, x, y, z)))
        return lambda r: np.asarray((((r - ends[:3]) / ends[3:]) ** 2).sum(axis=1) <= 1)
    dim = rest[0] if rest and rest[0] in ("x", "y", "z") else ""
    along = {"x": (y, z, y, y, x, x), "y": (x, z, x, x, y, y), "z": (x, y, x, x, z, z)}.get(dim, ())
    a, b, first, last, low, high = _numbers(words, rest[1:], along)
    k = "xyz".index(dim)
    one, other = (each for each in range(3) if each != k)

    def inside(r: np.ndarray) -> np.ndarray:
        radius = first + (r[:, k] - low) * (last - first) / (high - low)
        far = np.hypot(r[:, one] - a, r[:, other] - b)
        return np.asarray((far <= radius) & (r[:, k] >= low) & (r[:, k] <= high))

    return inside


def _sided(inside: Inside, turned: bool) -> Inside:
    return (lambda r: ~inside(r)) if turned else inside


def _options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options at the end of a region's words, and the words before."""
    found: dict[str, str] = {}
    while len(words) > 2 and words[-2] in ("units", "side"):
        if words[-1] not in {"units": ("box", "lattice"), "side": ("in", "out")}[words[-2]]:
            break
        found[words[-2]] = words[-1]
        words = words[:-2]
    return found, words


def _numbers(words: Sequence[str], given: Sequence[str], scales: tuple[float, ...]) -> list[Any]:
    """Numbers in lengths; INF and EDGE lie far away."""
    if not scales or len(given) != len(scales) or not all(is_number(w) or w in ("INF", "EDGE") for w in given):
        known = (
            "block (6 numbers), prism (9), sphere (4), cylinder DIM (5), cone DIM (6), ellipsoid (6), plane (6), union"
        )
        known += " and intersect; units and side"
        raise ValueError(f"region … {' '.join(words)}: known are {known}")
    signs = (-1.0, 1.0) if len(given) != 5 else (1.0, -1.0)
    return [
        signs[k % 2] * ENDS if word in ("INF", "EDGE") else float(word) * scale
        for k, (word, scale) in enumerate(zip(given, scales, strict=True))
    ]
