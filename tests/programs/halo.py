"""Halo exchange by position-coded data: a value names its global cell, so every wrong side, offset or corner shows."""

from __future__ import annotations

import itertools

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.comm.shared import mailboxes
from hpckit.errors import DecompositionError
from hpckit.grid import regions

AXES = ("z", "y", "x")
SHAPES = {1: (29,), 2: (13, 19), 3: (7, 11, 13)}
OUTSIDE = 0
WHOLE_NODE = mailboxes.node_comm


def pairs(comm):
    """Nodes of two ranks."""
    return comm.Split(comm.rank // 2, comm.rank)


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
    field = hp.Field.zeros(dec, mesh, dtype, components=components)
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


def check_beside(field, expected, mesh, what):
    """One axis at a time, what comes by mailbox left there; returns how many halos stood there."""
    found = 0
    for dim, (name, width) in enumerate(zip(mesh.topology.names, field.decomposition.halo, strict=True)):
        with hp.HaloExchange(mesh, field, axes=name) as halo:
            for _ in range(3):
                clear([field], [expected])
                halo.start(field)
                ends = halo.finish_beside(field)
                for end, place in zip(ends, (slice(0, width), slice(-width, None)), strict=True):
                    across = [slice(w, -w) for w in field.decomposition.halo]
                    across[dim] = place
                    wanted = expected[tuple(across)]
                    if end.size:
                        shape = list(field.data.shape)
                        shape[dim] = width
                        across[dim] = slice(None)
                        assert np.array_equal(end.reshape(shape)[tuple(across)], wanted), f"{what}, beside {name}"
                        across[dim] = place
                        assert (field.data[tuple(across)] == OUTSIDE).all(), f"{what}: the halo was filled, too"
                        found += 1
                    else:
                        assert np.array_equal(field.data[tuple(across)], wanted), f"{what}, along {name}"
    return found


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


def every_fourth(layouts):
    return itertools.islice(layouts, 0, None, 4)


def test_all():
    count = beside = 0
    for dims in (1, 2, 3):
        shape = SHAPES[dims]
        layouts = itertools.product(meshes(dims), every_periodicity(dims), (1, 2, 3))
        # All widths for all layouts in 1-D and 2-D; in 3-D, where a layout has three dims, one after the other.
        for axes, periodic, width in layouts if dims < 3 else every_fourth(layouts):
            try:
                with hp.Mesh(MPI.COMM_WORLD, **axes, periodic=periodic, shape=shape, halo=width) as mesh:
                    dec = hp.Decomposition(shape, mesh.topology, width)
                    faces = [dec.at(tuple("face" if d == k else "center" for d in range(dims))) for k in range(dims)]
                    cases = [
                        [prepared(dec, mesh, np.float64, ())],
                        [
                            prepared(dec, mesh, np.float32, ()),
                            *(prepared(face, mesh, np.float64, ()) for face in faces),
                            prepared(dec, mesh, np.int16, (2,)),
                            prepared(hp.Decomposition(shape, mesh.topology, 1), mesh, np.complex128, ()),
                        ],
                    ]
                    if width == 1:
                        cases.append([prepared(dec, mesh, dtype, (3, 2)) for dtype in ("f2", "u1", ">f8", "g")])
                    for case in cases:
                        fields, expected = [f for f, _ in case], [e for _, e in case]
                        # By memory, by MPI, by both on nodes of two ranks; all slabs as small ones, or most as large.
                        mailboxes.node_comm = pairs if count % 3 == 2 else WHOLE_NODE
                        regions.LARGE = 100 if count % 4 > 1 else 1 << 16
                        with hp.HaloExchange(mesh, fields, mailboxes=count % 3 != 1) as halo:
                            for _ in range(3):  # a mailbox has two buffers
                                check(fields, expected, halo, f"{mesh}, {shape}, width {width}, exchange {count}")
                                clear(fields, expected)
                            count += 1
                    regions.LARGE, mailboxes.node_comm = 1 << 16, WHOLE_NODE
                    if width == 3:
                        beside += check_beside(*cases[0][0], mesh, f"{mesh}")
            except DecompositionError as error:
                assert "halo needs" in error.message or "cannot be laid" in error.message, error.message
    assert bool(beside) == (MPI.COMM_WORLD.size > 1)
    return count


if __name__ == "__main__":
    checked = test_all()
    if MPI.COMM_WORLD.rank == 0:
        print(f"checked {checked} exchanges")
