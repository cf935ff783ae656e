"""Charges and fields on a mesh, NumPy: definition and test oracle of the compiled forms.

A particle has the `order` points nearest to it along each dim, with the weights of a cardinal B-spline (Hockney and
Eastwood 1988, Computer Simulation Using Particles, chapter 5; Essmann et al. 1995, J. Chem. Phys. 103, 8577).
"""

from __future__ import annotations

import itertools
import math

import numpy as np

WIDTH = 8  # points that the compiled forms touch along the last dim, at most, those beyond `order` with weight 0
SIDE = 4  # numbers of a point where fields lie side by side, the last one 0


def weights_at(place: float, order: int) -> tuple[int, np.ndarray]:
    """The first point of a particle at `place`, in steps of the mesh, and the weights of its `order` points."""
    place += 0.5 * (order % 2)
    first = int(np.floor(place))
    w = place - first
    found = np.array([1.0 - w, w])
    for m in range(3, order + 1):
        longer = np.zeros(m)
        for k in range(m):
            before = (w + m - 1 - k) * found[k - 1] if k else 0.0
            longer[k] = (before + ((k + 1 - w) * found[k] if k < m - 1 else 0.0)) / (m - 1)
        found = longer
    return first - (order - 1) // 2, found


def spread(positions, charges, slots, lower, scale, start, shape, order, big, grid) -> int:  # type: ignore[no-untyped-def]
    """Add the charges of the first `slots` slots to the flat local grid; returns how many are beyond it.

    lower [3], scale [3]: corner of the box, and points per length; start [3]: the point at the corner of the local grid
    of `shape`; `WIDTH` numbers stand behind it in `grid`. Each term is rounded by adding and taking away `big`, so that
    sums of multiples of its last bit are exact, in any order and on any number of ranks.
    """
    lost, cells = 0, grid[: int(np.prod(shape))].reshape(tuple(shape))
    for s in np.flatnonzero(charges[:slots] != 0.0):
        each = [weights_at((positions[s, d] - lower[d]) * scale[d], order) for d in range(3)]
        firsts = [first - start[d] for d, (first, _) in enumerate(each)]
        if any(first < 0 or first + order > n for first, n in zip(firsts, shape, strict=True)):
            lost += 1
            continue
        a, b, c = (slice(first, first + order) for first in firsts)
        whole = charges[s] * np.einsum("i,j,k->ijk", *(weights for _, weights in each))
        cells[a, b, c] += (whole + big) - big
    return lost


def boxes(start, shape, whole):  # type: ignore[no-untyped-def]
    """The parts of a box of `shape` that begins at the point `start` of a periodic mesh of the shape `whole`: slices of
    the box, and those of the mesh.
    """
    along = []
    for first, count, size in zip(map(int, start), map(int, shape), whole, strict=True):
        parts, at = [], 0
        while at < count:
            place = (first + at) % size
            taken = min(count - at, size - place)
            parts.append((slice(at, at + taken), slice(place, place + taken)))
            at += taken
        along.append(parts)
    return [tuple(zip(*each, strict=True)) for each in itertools.product(*along)]


def fold(grid, start, whole) -> None:  # type: ignore[no-untyped-def]
    """Add a box of points [nx, ny, nz], which begins at the point `start`, to those of a periodic mesh."""
    for here, there in boxes(start, grid.shape, whole.shape):
        whole[there] += grid[here]


def lay_beside(fields, start, shape, beside) -> None:  # type: ignore[no-untyped-def]
    """Lay the three fields [3, nx, ny, nz] of a periodic mesh side by side, for the box of `shape` that begins at the
    point `start`: beside [points + WIDTH, SIDE], of whose points the last column stays.
    """
    points = beside[: math.prod(map(int, shape))].reshape(*map(int, shape), SIDE)
    for here, there in boxes(start, shape, fields.shape[1:]):
        for d in range(3):
            points[(*here, d)] = fields[(d, *there)]


def gather(positions, charges, slots, lower, scale, start, shape, order, fields, forces) -> None:  # type: ignore[no-untyped-def]
    """Add charge times field to the forces [slots, 4] of the first `slots` slots; fields: [cells + WIDTH, SIDE], of
    `lay_beside`.
    """
    cells = fields[: int(np.prod(shape)), :3].reshape(*shape, 3)
    for s in np.flatnonzero(charges[:slots] != 0.0):
        each = [weights_at((positions[s, d] - lower[d]) * scale[d], order) for d in range(3)]
        a, b, c = (slice(first - start[d], first - start[d] + order) for d, (first, _) in enumerate(each))
        near = np.einsum("ijkd,i,j,k->d", cells[a, b, c], *(weights for _, weights in each))
        forces[s, :3] += charges[s] * near
