"""What all forms of the kernels of a cubed sphere share."""

from __future__ import annotations

from typing import Any, NamedTuple

HALO = 3  # cells beyond a side: upwind values of fifth order need them
ORDER = 6  # cells that a value between them is interpolated from
DEPTH, X, Y, Z = range(4)  # the components of the state: depth (m), and velocity in space (m/s)
SEAM, FIRST, START, COUNT = range(4)  # columns of `Tables.sides`


class Physics(NamedTuple):
    """The numbers of a run."""

    gravity: float  # m/s2
    x: float  # angular velocity of the sphere, 1/s
    y: float
    z: float


class Tables(NamedTuple):
    """The shape of a rank's panels: P of them, ny x nx cells each. Lengths in m.

    length_x [ny, nx + 1] and length_y [ny + 1, nx]: of the edges between cells in x and in y; per_area [ny, nx];
    stretch [ny, nx]: sqrt(1 + tan(x)**2 + tan(y)**2) at the middles; edge_x [P, 3, nx + 1] and edge_y [P, 3, ny + 1]:
    unit normals of the edges; along_x [P, 3, nx] and along_y [P, 3, ny]: times `stretch` and a velocity they give the
    cells crossed in a second; tan_x [nx], tan_y [ny] and frames [P, 3, 3]: the middle of a cell is (frames[0] + tan_x
    frames[1] + tan_y frames[2]) / stretch. sides int64[P, 4, 4]: of west, east, south and north whether it is a seam,
    the first of its rows among the ghosts, the first cell of a row, and how many. near int64[3, n], weights
    [3, n, 6]: of each row beyond a seam and each cell along it the first of six cells of a row of the next panel,
    from which the value on this panel's line is interpolated, and their weights. start (y, x): the first cell of the
    rank's blocks along a panel.
    """

    length_x: Any
    length_y: Any
    per_area: Any
    stretch: Any
    edge_x: Any
    edge_y: Any
    along_x: Any
    along_y: Any
    tan_x: Any
    tan_y: Any
    frames: Any
    sides: Any
    near: Any
    weights: Any
    start: Any
