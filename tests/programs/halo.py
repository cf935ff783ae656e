"""Halo exchange by position-coded data: a value names its global cell, so every wrong side, offset or corner shows."""

from __future__ import annotations

import itertools
import sys

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.errors import DecompositionError

AXES = ("z", "y", "x")
SHAPES = {1: (29,), 2: (13, 19), 3: (7, 11, 13)}
OUTSIDE = 0
# All widths for all layouts in 1-D and 2-D; in 3-D, where a layout has three dims, one after the other. Brief: fewer.
STRIDES = {1: 1, 2: 4, 3: 7} if sys.argv[1:] == ["brief"] else {1: 1, 2: 1, 3: 4}


def coded(dec, places):
    """The number of the global point at each place, wrapped where periodic, `OUTSIDE` beyond walls."""
    number, valid = np.zeros((), np.int64), np.ones((), bool)
    for n, closed, place in zip(dec.global_shape, dec.periodic, places, strict=True):
        number = number * n + place % n
        valid = valid & (closed | ((place >= 0) & (place < n)))
    return np.where(valid, number + 1, OUTSIDE)


def index_places(field):
    """Global indices of all local points, halo included."""
    dec = field.decomposition
    start, local = dec.start(field.mesh.rank), dec.local_shape(field.mesh.rank)
    return np.ix_(*(np.arange(n) - w + s for n, w, s in zip(local, dec.halo, start, strict=True)))


def prepared(dec, mesh, dtype, components):
    """A field whose owned points are coded and whose halo is `OUTSIDE`, and what it must become."""
    field = hp.Field.zeros(mesh, dec, dtype, components=components)
    number = coded(dec, index_places(field))
    stack = np.arange(np.prod(components, dtype=int)).reshape(*components, *(1,) * dec.ndim) * 3
    expected = np.where(number == OUTSIDE, OUTSIDE, number + stack).astype(dtype)
    field.data[...] = OUTSIDE
    field.interior[...] = expected[(..., *dec.interior)]
    return field, expected


def check(fields, expected, halo, what):
    needs_halo = any(not np.array_equal(f.data, e) for f, e in zip(fields, expected, strict=True))
    has_halo = any(
        (coded(f.decomposition, index_places(f)) != OUTSIDE).sum() > f.interior[(0,) * len(f.components)].size
        for f in fields
    )
    assert needs_halo == has_halo, f"{what}: the data would not show a missing exchange"
    halo(fields)
    for field, wanted in zip(fields, expected, strict=True):
        assert np.array_equal(field.data, wanted), f"{what}: {field} on rank {field.mesh.rank}"


def clear(fields, expected):
    for field, wanted in zip(fields, expected, strict=True):
        interior = wanted[(..., *field.decomposition.interior)]
        field.data[...] = OUTSIDE
        field.interior[...] = interior


def every_periodicity(dims):
    names = AXES[-dims:]
    for flags in itertools.product((False, True), repeat=dims):
        yield tuple(name for name, flag in zip(names, flags, strict=True) if flag)


def meshes(dims):
    """The chosen layout of the ranks and every other one, largest factor on each axis in turn."""
    names, size = AXES[-dims:], MPI.COMM_WORLD.size
    yield dict.fromkeys(names, 0)
    for name in names if size > 1 else ():
        yield {other: size if other == name else 1 for other in names}


def test_all():
    count, pairs = 0, MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank // 2, MPI.COMM_WORLD.rank)
    for dims in (1, 2, 3):
        shape = SHAPES[dims]
        layouts = itertools.product(meshes(dims), every_periodicity(dims), (1, 2, 3))
        for axes, periodic, width in itertools.islice(layouts, 0, None, STRIDES[dims]):
            try:
                with hp.Mesh(MPI.COMM_WORLD, **axes, periodic=periodic, shape=shape, halo=width) as mesh:
                    dec = hp.Decomposition(shape, mesh.topology, width)
                    faces = [dec.at(tuple("face" if d == k else "center" for d in range(dims))) for k in range(dims)]
                    cases = [
                        [prepared(dec, mesh, np.float64, ())],
                        [
                            prepared(dec, mesh, np.float32, ()),
                            *(prepared(face, mesh, np.float64, ()) for face in faces),
                            prepared(dec, mesh, np.uint8, (2,)),
                            prepared(hp.Decomposition(shape, mesh.topology, 1), mesh, np.complex128, ()),
                        ],
                    ]
                    if width == 1:
                        cases.append([prepared(dec, mesh, dtype, (3, 2)) for dtype in ("f2", "u1", ">f8", "g")])
                    for case in cases:
                        fields, expected = [f for f, _ in case], [e for _, e in case]
                        # By memory, by MPI, by both on nodes of two ranks; all slabs as small ones, or most as large.
                        within_node = (True, False, pairs)[count % 3]
                        large = 100 if count % 4 > 1 else 1 << 16
                        with hp.HaloExchange(mesh, fields, within_node=within_node, large=large) as halo:
                            for _ in range(3):  # messages in memory have two buffers
                                check(fields, expected, halo, f"{mesh}, {shape}, width {width}, exchange {count}")
                                clear(fields, expected)
                            count += 1
            except DecompositionError as error:
                assert "halo needs" in error.message or "blocks of at least" in error.message, error.message
    pairs.Free()
    return count


if __name__ == "__main__":
    checked = test_all()
    if MPI.COMM_WORLD.rank == 0:
        print(f"checked {checked} exchanges")
