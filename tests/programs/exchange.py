"""What a halo exchange does beyond copying: walls, accumulation, overlap, refusals, and letting go of arrays."""

from __future__ import annotations

import functools
import gc
import itertools
import sys

import numpy as np
from checks import run_checks
from mpi4py import MPI
from refusals import refused

import hpckit as hp

COMM = MPI.COMM_WORLD
SHAPE = (13, 17)
BRIEF = sys.argv[1:] == ["brief"]  # one halo for each pair of fills and location, not three


def serial_and_parallel(location, walls, width, periodic=()):
    """A random field with its walls filled on one rank, and the part of it each rank must hold."""
    names = ("y", "x")
    whole_axes = hp.Topology(names, (1, 1), periodic)
    alone = hp.Decomposition(SHAPE, whole_axes, width, location)
    values = np.random.default_rng(1).random(alone.global_shape)
    with hp.Mesh(MPI.COMM_SELF, y=1, x=1, periodic=periodic) as one:
        field = hp.Field.from_global(one, alone, values)
        hp.HaloExchange(one, field, walls)(field)
        expected = field.data.copy()
    mesh = hp.Mesh(COMM, y=0, x=0, periodic=periodic, shape=SHAPE, halo=width)
    dec = hp.Decomposition(SHAPE, mesh.topology, width, location)
    part = hp.Field.from_global(mesh, dec, values if mesh.rank == 0 else None)
    box = tuple(slice(s, s + n) for s, n in zip(dec.start(mesh.rank), dec.local_shape(mesh.rank), strict=True))
    return mesh, part, expected, expected[box]


def double_inside(halo, inside):
    halo[...] = 2 * inside[0]


def test_walls_do_not_depend_on_the_decomposition():
    fills = [hp.bc.mirror, hp.bc.antisymmetric, hp.bc.zero_gradient, hp.bc.fixed(2.5), -1.5, "mirror", double_inside]
    pairs, locations = enumerate(zip(fills, fills[1:] + fills[:1], strict=True)), ("center", "face", ("center", "face"))
    for (number, (low, high)), (at, location) in itertools.product(pairs, enumerate(locations)):
        halos = [(1, ()), (2, ()), (2, ("x",))]
        for width, periodic in [halos[(number + at) % 3]] if BRIEF else halos:
            walls = {"y": (low, high)} | ({} if periodic else {"x": (high, low)})
            mesh, part, _, expected = serial_and_parallel(location, walls, width, periodic)
            hp.HaloExchange(mesh, part, walls)(part)
            assert np.array_equal(part.data, expected), (low, high, location, width, periodic)
            mesh.close()


def test_walls_are_what_they_say():
    with hp.Mesh(MPI.COMM_SELF, x=1) as mesh:
        for location, n in (("center", 5), ("face", 6)):
            dec = hp.Decomposition((5,), mesh.topology, 2, location)
            field = hp.Field.zeros(mesh, dec)
            inside = 1.0 + np.arange(n)
            for fill, low in (
                (hp.bc.mirror, [2, 1] if n == 5 else [3, 2]),
                (hp.bc.antisymmetric, [-2, -1] if n == 5 else [-3, -2]),
                (hp.bc.zero_gradient, [1, 1]),
                (hp.bc.fixed(9.0), [9, 9]),
                (double_inside, [2, 2]),
            ):
                field.data[...] = 0
                field.interior[...] = inside
                hp.HaloExchange(mesh, field, {"x": (fill, None)})(field)
                assert list(field.data[:2]) == low, (fill, field.data)
                assert list(field.data[-2:]) == [0, 0]
                wall = {hp.bc.antisymmetric: 0.0, hp.bc.fixed: 9.0}.get(fill, 1.0) if n == 6 else 1.0
                assert fill is not hp.bc.antisymmetric or field.data[2] == wall


def test_accumulate_adds_every_halo_value_to_its_owner():
    for periodic, width, components in itertools.product(((), ("x",), ("y", "x")), (1, 2), ((), (2,))):
        with hp.Mesh(COMM, y=0, x=0, periodic=periodic, shape=SHAPE, halo=width) as mesh:
            dec = hp.Decomposition(SHAPE, mesh.topology, width)
            field = hp.Field.zeros(mesh, dec, np.int64, components=components)
            twin = hp.Field.zeros(mesh, dec.at("face"), np.float32, components=components)
            halo = hp.HaloExchange(mesh, [field, twin])
            weight = field.like()
            weight.interior[...] = 1
            hp.HaloExchange(mesh, weight)(weight)  # 1 where a cell is a copy of an owned one
            field.data[...] = weight.data
            before = COMM.allreduce(int(field.data.sum()))
            for _ in range(2):
                halo.accumulate([field, twin])
            counted = np.zeros((*components, *dec.global_shape), np.int64)
            for rank in range(mesh.size):
                cells = np.ix_(*(np.arange(n) for n in dec.local_shape(rank)))
                places = [c - w + s for c, w, s in zip(cells, dec.halo, dec.start(rank), strict=True)]
                inside = np.ones(dec.local_shape(rank), bool)
                for place, n, closed in zip(places, dec.global_shape, dec.periodic, strict=True):
                    inside &= closed | ((place >= 0) & (place < n))
                index = tuple(
                    np.broadcast_to(p % n, inside.shape)[inside] for p, n in zip(places, dec.global_shape, strict=True)
                )
                np.add.at(counted, (..., *index), 1)
            assert np.array_equal(field.interior, counted[(..., *dec.global_slices(mesh.rank))])
            assert COMM.allreduce(int(field.data.sum())) == before


def test_overlap_equals_the_exchange_in_one():
    with hp.Mesh(COMM, y=0, x=0, periodic=("y", "x"), shape=SHAPE) as mesh:
        dec = hp.Decomposition(SHAPE, mesh.topology, 1)
        values = np.random.default_rng(2).random(SHAPE)
        field = hp.Field.from_global(mesh, dec, values if mesh.rank == 0 else None)
        halo, at_once, split = hp.HaloExchange(mesh, field), field.like(), field.like()

        def average(out, box):
            a, (y, x) = field.data, box
            up, down = slice(y.start - 1, y.stop - 1), slice(y.start + 1, y.stop + 1)
            left, right = slice(x.start - 1, x.stop - 1), slice(x.start + 1, x.stop + 1)
            out[y, x] = a[up, x] + a[down, x] + a[y, left] + a[y, right] + a[up, left] + a[down, right]

        halo.start(field)
        average(split.data, field.core)
        halo.finish(field)
        for box in field.rim:
            average(split.data, box)
        average(at_once.data, tuple(slice(1, n - 1) for n in field.data.shape))
        assert np.array_equal(split.interior, at_once.interior)


def test_wrong_use_is_refused_on_every_rank():
    with hp.Mesh(COMM, y=0, x=0, periodic=("x",), shape=SHAPE) as mesh:
        dec = hp.Decomposition(SHAPE, mesh.topology, 1)
        field = hp.Field.zeros(mesh, dec)
        halo = hp.HaloExchange(mesh, field)
        refused(lambda: halo.finish(field), "has not been started")
        refused(lambda: halo(field.data.astype(np.float32)), "float32")
        refused(lambda: halo(field.data[:, ::-1]), "C-contiguous")
        refused(lambda: halo([field, field]), "for 1 fields, not 2")
        refused(lambda: hp.HaloExchange(mesh, field, {"x": hp.bc.mirror}), "periodic and has no walls")
        refused(lambda: hp.HaloExchange(mesh, field, {"z": hp.bc.mirror}), "no axis is called 'z'")
        refused(lambda: hp.HaloExchange(mesh, field, {"y": "mirorr"}), "wall fill")
        halo.start(field)
        refused(lambda: halo.start(field), "started already")
        refused(lambda: halo.finish(field.like()), "different fields")
        halo.finish(field)
        if mesh.size > 1:
            dtype = np.float32 if mesh.rank == mesh.size - 1 else np.float64
            refused(lambda: hp.HaloExchange(mesh, hp.Field.zeros(mesh, dec, dtype)), f"on rank {mesh.size - 1}")
        halo.start(field)
        refused(halo.close, "under way")
        halo.finish(field)
        halo.close()
        refused(lambda: halo(field), "closed")
        refused(lambda: hp.HaloExchange(mesh, field, hp.bc.mirror), "walls map axis names")
        refused(lambda: hp.HaloExchange(mesh, field)(3), "not int")
        counts = hp.Field.zeros(mesh, dec, np.int8)
        refused(lambda: hp.HaloExchange(mesh, counts, {"y": 3.7}), "fixed(3.7) of axis y does not fit fields of int8")
        refused(lambda: hp.HaloExchange(mesh, counts, {"y": hp.bc.fixed(300)}), "does not fit")
        hp.HaloExchange(mesh, counts, {"y": np.int64(3)})(counts)
        unsigned = hp.Field.zeros(mesh, dec, np.uint8)
        refused(lambda: hp.HaloExchange(mesh, unsigned, {"y": hp.bc.antisymmetric}), "does not fit")
        with hp.Mesh(COMM, y=0, x=0) as other:
            refused(lambda: hp.HaloExchange(other, field), "another mesh")
    refused(field.sum, "the mesh is closed")
    refused(lambda: mesh["x"], "the mesh is closed")
    refused(mesh.__enter__, "the mesh is closed")
    assert mesh.coords == mesh.topology.coords(COMM.rank)
    refused(lambda: hp.Mesh(MPI.COMM_NULL, x=0), "COMM_NULL")
    refused(lambda: hp.Mesh(COMM, x="2"), "the size of axis x is a whole number")
    refused(lambda: hp.Mesh(COMM, x=0, periodic=True), "axis names")


def test_chosen_axes_only():
    with hp.Mesh(COMM, y=0, x=0, periodic=("y", "x"), shape=SHAPE, halo=2) as mesh:
        dec = hp.Decomposition(SHAPE, mesh.topology, 2)
        values = np.arange(13.0 * 17).reshape(SHAPE) if mesh.rank == 0 else None
        whole, part = (hp.Field.from_global(mesh, dec, values) for _ in range(2))
        hp.HaloExchange(mesh, whole)(whole)
        for axes, box in (("x", np.s_[2:-2, :]), (("y",), np.s_[:, 2:-2]), ((), np.s_[2:-2, 2:-2])):
            part.data[...] = -1.0
            part.interior[...] = whole.interior
            hp.HaloExchange(mesh, part, axes=axes)(part)
            beyond = np.ones(part.data.shape, bool)
            beyond[box] = False
            assert np.array_equal(part.data[box], whole.data[box]), axes
            assert axes == () or (part.data[:2, :2] == -1.0).all(), axes
            assert axes != () or (part.data[beyond] == -1.0).all()
        refused(lambda: hp.HaloExchange(mesh, part, axes="q"), "q")


def test_arrays_are_not_kept_alive():
    with hp.Mesh(COMM, y=0, x=0, periodic=("y", "x"), shape=SHAPE) as mesh:
        dec = hp.Decomposition(SHAPE, mesh.topology, 1)
        fields = [hp.Field.zeros(mesh, dec) for _ in range(3)]
        halo = hp.HaloExchange(mesh, fields[0])
        for _ in range(3):
            for field in fields:
                halo(field)
        assert len(halo._bindings._bound) == 3
        del field
        fields.pop()
        gc.collect()
        assert len(halo._bindings._bound) == 2
        for _ in range(20):
            halo(hp.Field.zeros(mesh, dec))
        assert len(halo._bindings._bound) <= 8


def test_new_views_of_the_same_memory_share_their_requests():
    with hp.Mesh(COMM, y=0, x=0, periodic=("y", "x"), shape=SHAPE) as mesh:
        dec = hp.Decomposition(SHAPE, mesh.topology, 1)
        state = hp.Field.zeros(mesh, dec, components=3)
        one = hp.Field.zeros(mesh, dec)
        halo = hp.HaloExchange(mesh, one)
        for turn in range(30):
            state.interior[...] = turn + mesh.rank
            halo(state.data[turn % 3])
            assert state.data[turn % 3].min() >= turn
        assert len(halo._bindings._bound) == 3
        assert not halo._bindings.known, "views are known only while they live"
        refused(functools.partial(halo, state.data), "was made for")
        del state
        gc.collect()
        assert not halo._bindings._bound


def test_sub_communicators_are_lines_of_the_mesh():
    mesh = hp.Mesh(COMM, y=0, x=0)
    for name in ("y", "x"):
        axis = mesh.topology.axis(name)
        assert mesh[name].size == mesh.topology.sizes[axis]
        assert mesh[name].rank == mesh.coords[axis]
    total = mesh["y"].allreduce(mesh["x"].allreduce(mesh.rank))
    assert total == sum(range(mesh.size))
    mesh.close()
    mesh.close()


if __name__ == "__main__":
    run_checks(globals())
