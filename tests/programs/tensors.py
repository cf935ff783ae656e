"""Tensors on a mesh: every change of layout against NumPy, sums as a tree, products, printing and refusals."""

from __future__ import annotations

import itertools
import sys

import numpy as np
from mpi4py import MPI
from refusals import refused

import hpckit as hp
from hpckit.bench.ranks import wait_asleep
from hpckit.comm.checksums import Checksums
from hpckit.comm.observe.observer import Observer
from hpckit.plan.tensors import redistribution
from hpckit.plan.tensors.layout import Layout, Partial, Replicate, Shard, matmul_layout
from hpckit.tensors.changes import LayoutChange
from hpckit.tensors.exchange import redistribute
from hpckit.tensors.tensor import Tensor

COMM = MPI.COMM_WORLD
MESHES = {1: ({"a": 1},), 2: ({"a": 2},), 3: ({"a": 3},), 4: ({"a": 2, "b": 2},), 6: ({"a": 3, "b": 2}, {"a": 6})}
MOST = 10  # pairs of layouts of a mesh and a shape; tests/plan/test_layouts.py runs many more in one process
EVERY = (Shard(0), Shard(1), Replicate(), Partial())


def layouts(mesh, shape):
    names = mesh.topology.names
    for placed in itertools.product(EVERY, repeat=len(names)):
        yield Layout(shape, mesh.topology, dict(zip(names, placed, strict=True)))
        if len(set(placed)) == 1 and len(placed) > 1:
            yield Layout(shape, mesh.topology, dict(zip(names[::-1], placed, strict=True)))


def tree(parts):
    """The sum of neighbors in pairs, then of pairs."""
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)] + parts[len(parts) // 2 * 2 :]
    return parts[0]


def summand(shape, rank):
    """What a rank holds of a sum, of magnitudes that make the order of additions show."""
    random = np.random.default_rng([7, rank])
    return random.standard_normal(shape) * 10.0 ** random.integers(-8, 8, shape)


def whole_of(layout):
    """The whole of a tensor made by `made`, computed on each rank alone."""
    sizes, partial = layout.axes.sizes, [isinstance(each, Partial) for each in layout.placements]
    parts = np.empty([size if is_sum else 1 for size, is_sum in zip(sizes, partial, strict=True)], object)
    for place in np.ndindex(parts.shape):
        parts[place] = summand(layout.shape, int(np.ravel_multi_index(place, sizes)))
    while parts.ndim:
        sums = np.empty(parts.shape[:-1], object)
        for place in np.ndindex(sums.shape):
            sums[place] = tree(list(parts[place]))
        parts = sums
    return parts[()]


def made(mesh, layout):
    """A tensor whose copies are equal, and whose summands differ."""
    partial = [isinstance(each, Partial) for each in layout.placements]
    place = tuple(at if is_sum else 0 for at, is_sum in zip(mesh.coords, partial, strict=True))
    values = summand(layout.shape, int(np.ravel_multi_index(place, mesh.topology.sizes)))
    return Tensor(mesh, layout, values[layout.slices(mesh.rank)].copy())


def check_every_change(mesh, shape):
    every = list(layouts(mesh, shape))
    pairs = list(itertools.product(every, every))
    few = np.random.default_rng(mesh.size).permutation(len(pairs))[:MOST]
    for source, target in (pairs[n] for n in few):
        tensor = made(mesh, source)
        kept, whole = tensor.local.copy(), whole_of(source)
        for plan in redistribution.ways(source, target):
            moved = Tensor(mesh, target, redistribute(mesh, plan, tensor.local))
            assert np.array_equal(tensor.local, kept), plan.title()
            if Partial() not in target.placements:
                assert np.array_equal(moved.local, whole[target.slices(mesh.rank)]), plan.title()
            again = LayoutChange(mesh, plan, tensor.local.dtype)  # through shared memory, whose buffers take turns
            for factor in (1, 2, 4):  # powers of 2, by which sums do not round
                again.start(factor * tensor.local)
                assert np.array_equal(again.finish(), factor * moved.local), plan.title()
        if Partial() not in source.placements:  # then no sum of several numbers is left to round
            assert np.array_equal(tensor.redistribute(target).full(), whole), (source, target)


def check_products(mesh, shape):
    rows, inner, columns = (*shape, 9)
    x, y = summand((rows, inner), 1).astype(np.float32), summand((inner, columns), 2).astype(np.float32)
    whole = Tensor.from_global(mesh, Layout((rows, inner), mesh.topology), x)
    serial = (whole @ Tensor.from_global(mesh, Layout((inner, columns), mesh.topology), y)).full()
    assert np.allclose(serial, x.astype(float) @ y, rtol=1e-4, atol=1e-4 * np.abs(serial).max())
    found = set()
    for one, other in itertools.product(layouts(mesh, (rows, inner)), layouts(mesh, (inner, columns))):
        try:
            layout = matmul_layout(one, other)
        except hp.errors.InputError:
            continue
        found.add(layout.text())
        product = Tensor.from_global(mesh, one, x) @ Tensor.from_global(mesh, other, y)
        assert product.layout == layout
        if any(str(placement).startswith("P") for placement in layout.placements):
            assert np.allclose(product.full(), serial, rtol=1e-4, atol=1e-4 * np.abs(serial).max())
        else:  # no product adds in another order for being cut
            assert np.array_equal(product.full(), serial), (one, other)
    assert len(found) >= 3


def check_the_rest(mesh, shape):
    layout = Layout(shape, mesh.topology, {"a": Shard(0)})
    tensor = Tensor.from_global(mesh, layout, np.arange(np.prod(shape)).reshape(shape))
    assert f"rank {mesh.rank} holds [{layout.slices(mesh.rank)[0].start}:" in repr(tensor)
    assert f"a={mesh.topology.sizes[0]} S0" in repr(tensor)
    assert tensor.redistribute(layout) is tensor
    copied = tensor.full()
    copied[...] = -1
    assert tensor.full().flat[1] == 1
    number = Tensor.from_global(mesh, Layout((), mesh.topology, dict.fromkeys(mesh.topology.names, Partial())), 7.5)
    assert number.full() == 7.5
    assert number.full().shape == ()
    other = {"z": mesh.size}
    for wrong, words in (
        (lambda: Tensor(mesh, layout, np.zeros((99, 1))), "the array is (99, 1)"),
        (lambda: Tensor(mesh, layout, [1.0]), "NumPy array"),
        (lambda: Tensor.from_global(mesh, layout, np.zeros(3)), "(3,)"),
        (lambda: Tensor.from_global(mesh, Layout(shape, other), np.zeros(shape)), f"z={mesh.size}"),
        (lambda: Tensor.from_global(layout, mesh, np.zeros(shape)), "lives on a mesh"),
        (lambda: tensor.redistribute(Layout(shape, other)), "cannot become"),
        (lambda: tensor @ tensor, "does not multiply"),
    ):
        refused(wrong, words)


if __name__ == "__main__":
    for size, meshes in ((n, each) for n, each in MESHES.items() if n <= COMM.size):
        comm = COMM.Split(0 if COMM.rank < size else MPI.UNDEFINED)
        for axes in meshes if comm != MPI.COMM_NULL else ():
            with hp.Mesh(comm, Observer(), **axes) as mesh:  # one of its own: not all ranks listen
                if size == 3:
                    mesh.observer.listen(Checksums())
                check_every_change(mesh, (5, 7))
                check_every_change(mesh, (1, 2))
                check_products(mesh, (5, 7))
                check_the_rest(mesh, (5, 7))
        wait_asleep(COMM)
    if COMM.rank == 0:
        print("all good")
    sys.exit(0)
