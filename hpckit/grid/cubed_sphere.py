"""The geometry of a cubed sphere: six gnomonic panels in equal angles (Ronchi, Iacono and Paolucci 1996)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpckit.kernels.sphere.constants import HALO, ORDER, Tables
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.panels import FRAMES, PanelPlan


@dataclass(frozen=True)
class CubedSphere:
    """Six panels of n x n cells on a sphere of some radius (m); n at least 6.

    Panel p shows the face of a cube to whose middle FRAMES[p, 0] points; angles x and y go from -pi/4 to pi/4, x along
    FRAMES[p, 1] and y along FRAMES[p, 2]. Cell (p, y, x) is row y and column x. The lines of cells are great circles.
    """

    n: int
    radius: float

    @cached_property
    def edges(self) -> np.ndarray:
        """The angles of the edges between cells, n + 1 of them."""
        return np.pi / 2 * (np.arange(self.n + 1) / self.n - 0.5)

    @cached_property
    def middles(self) -> np.ndarray:
        """The angles of the middles of cells."""
        return np.pi / 2 * ((np.arange(self.n) + 0.5) / self.n - 0.5)

    @cached_property
    def stretch(self) -> np.ndarray:
        """sqrt(1 + tan(x)**2 + tan(y)**2) at the middles, [n, n]."""
        square = np.tan(self.middles) ** 2
        return np.sqrt(1.0 + square + square[:, None])

    @cached_property
    def centers(self) -> np.ndarray:
        """The unit vectors to the middles of all cells, [3, 6, n, n]."""
        return _on_the_cube(self.middles) / self.stretch

    @property
    def corners(self) -> np.ndarray:
        """The corners of all cells in space, m, [6, n + 1, n + 1, 3]."""
        cube = np.moveaxis(_on_the_cube(self.edges), 0, -1)
        return self.radius * cube / np.linalg.norm(cube, axis=-1, keepdims=True)

    @cached_property
    def area(self) -> np.ndarray:
        """The areas of the cells of a panel, m2, [n, n]."""
        tan = np.tan(self.edges)
        corner = np.arctan2(tan * tan[:, None], np.sqrt(1.0 + tan**2 + tan[:, None] ** 2))
        return self.radius**2 * np.diff(np.diff(corner, axis=0), axis=1)

    @cached_property
    def length_x(self) -> np.ndarray:
        """The lengths of the edges between cells in x, m, [n, n + 1]."""
        return self.radius * np.diff(np.arctan(np.tan(self.edges)[:, None] * np.cos(self.edges)), axis=0)

    @property
    def latitude(self) -> np.ndarray:
        """Of all cells, radians, [6, n, n]."""
        return np.arcsin(np.clip(self.centers[2], -1.0, 1.0))

    @property
    def longitude(self) -> np.ndarray:
        """Of all cells, radians from -pi to pi, [6, n, n]."""
        return np.arctan2(self.centers[1], self.centers[0])

    @cached_property
    def east_north(self) -> tuple[np.ndarray, np.ndarray]:
        """The unit vectors to the east and to the north at all cells, [3, 6, n, n]."""
        x, y, z = self.centers
        across = np.hypot(x, y)
        return np.stack([-y, x, 0 * x]) / across, np.stack([-x * z, -y * z, x * x + y * y]) / across

    def interpolation(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each row beyond a seam and each cell along it, the first of `ORDER` cells of the row from which its value
        is interpolated, int64[HALO, n], and their weights (Lagrange), [HALO, n, ORDER].
        """
        step = np.pi / 2 / self.n
        beyond = np.pi / 4 + (np.arange(HALO)[:, None] + 0.5) * step
        place = (np.arctan(np.tan(self.middles) / np.tan(beyond)) + np.pi / 4) / step - 0.5
        first = np.clip(np.floor(place).astype(np.int64) - (ORDER // 2 - 1), 0, self.n - ORDER)
        at = place - first
        weights = np.ones((*place.shape, ORDER))
        for k in range(ORDER):
            for other in range(ORDER):
                if other != k:
                    weights[..., k] *= (at - other) / (k - other)
        return first, weights

    def places(self, latitude: np.ndarray, longitude: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of points (radians) the panel that shows each, and its places along y and x in cells, -0.5 to n - 0.5."""
        across = np.cos(latitude)
        point = np.stack(
            np.broadcast_arrays(
                across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude) + 0 * longitude
            )
        )
        views = np.einsum("pdc,c...->dp...", FRAMES.astype(float), point)
        panel = views[0].argmax(axis=0)
        middle, right, up = (np.take_along_axis(each, panel[None], axis=0)[0] for each in views)
        along_y, along_x = (np.arctan2(each, middle) * 2 * self.n / np.pi + 0.5 * (self.n - 1) for each in (up, right))
        return panel, along_y, along_x

    def tables(self, decomposition: Decomposition, rank: int) -> Tables:
        """What the kernels need of the geometry of a rank's blocks."""
        panels, rows, columns = decomposition.global_slices(rank)
        edges_y, edges_x = slice(rows.start, rows.stop + 1), slice(columns.start, columns.stop + 1)
        frames = FRAMES[panels].astype(float)
        per_cell = 2 * self.n / (np.pi * self.radius)
        cut = np.ascontiguousarray
        first, weights = self.interpolation()
        return Tables(
            length_x=cut(self.length_x[rows, edges_x]),
            length_y=cut(self.length_x.T[edges_y, columns]),
            per_area=cut(1.0 / self.area[rows, columns]),
            stretch=cut(self.stretch[rows, columns]),
            edge_x=_normals(frames, 1, self.edges[edges_x]),
            edge_y=_normals(frames, 2, self.edges[edges_y]),
            along_x=_normals(frames, 1, self.middles[columns]) * np.cos(self.middles[columns]) * per_cell,
            along_y=_normals(frames, 2, self.middles[rows]) * np.cos(self.middles[rows]) * per_cell,
            tan_x=np.tan(self.middles[columns]),
            tan_y=np.tan(self.middles[rows]),
            frames=frames,
            sides=np.array(PanelPlan(decomposition).strips(rank), np.int64),
            near=first,
            weights=weights,
            start=np.array([rows.start, columns.start]),
        )


def _normals(frames: np.ndarray, dim: int, angles: np.ndarray) -> np.ndarray:
    """The unit normals of the planes of the lines at some angles along x (1) or y (2), [panels, 3, angles]."""
    return frames[:, dim, :, None] * np.cos(angles) - frames[:, 0, :, None] * np.sin(angles)


def _on_the_cube(angles: np.ndarray) -> np.ndarray:
    """The points of the panels' faces at these angles along both axes, on a cube with edges of 2, [3, 6, m, m]."""
    tan = np.tan(angles)
    middle, right, up = FRAMES.transpose(1, 2, 0)[:, :, :, None, None].astype(float)
    return middle + right * tan + up * tan[:, None]
