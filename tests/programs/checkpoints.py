"""Checkpoints written by n ranks and read by q, for all n and q up to the ranks here: `checkpoints.py FOLDER`."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.grid.field import Field
from hpckit.io.checkpoint.choose import choose
from hpckit.io.checkpoint.manifest import committed, generations
from hpckit.io.checkpoint.state import Piece, State, read_into
from hpckit.io.checkpoint.writer import Writer
from hpckit.plan.blocks import block
from hpckit.plan.grid.decomposition import Decomposition

world = MPI.COMM_WORLD
folder = Path(sys.argv[1])
SHAPE = (13, 11)
AXES = {1: (1, 1), 2: (1, 2), 3: (3, 1), 4: (2, 2)}


def fields_on(comm):
    """A scalar at centers, one on faces, and three components in a smaller type, with halos of rubbish."""
    y, x = AXES[comm.size]
    mesh = Mesh(comm, y=y, x=x, periodic="x")
    centers = Decomposition(SHAPE, mesh.topology, halo=2)
    made = [
        Field.zeros(mesh, centers, name="height"),
        Field.zeros(mesh, centers.at(("face", "center")), name="flow/v"),
        Field.zeros(mesh, centers, np.float32, name="stack", components=3),
    ]
    for field in made:
        field.data[...] = np.nan
    return mesh, made


def coded(field, step):
    """Values that name their global place, field and step."""
    whole = np.arange(np.prod((*field.components, *field.decomposition.global_shape)), dtype=np.float64)
    whole = whole.reshape(*field.components, *field.decomposition.global_shape) + 1000 * step + len(field.name)
    cuts = field.decomposition.global_slices(field.mesh.rank)
    return whole[(slice(None),) * len(field.components) + tuple(cuts)].astype(field.data.dtype)


def save(comm, root, step, asynchronous):
    mesh, fields = fields_on(comm)
    for field in fields:
        field.set_from_host(coded(field, step))
    first, count = block(7, comm.size, comm.rank)  # fewer elements than some ranks need
    pieces = [Piece.of_field(field) for field in fields]
    pieces.append(Piece("ids", (7,), (first,), np.arange(first, first + count)))
    if comm.rank == comm.size - 1:
        pieces.append(Piece("table", (2, 2), (0, 0), np.array([[step, 0.5], [-0.0, 1e300]])))
    writer = Writer(comm, root, keep=10, facts={"app": "test"})
    state = State(pieces, {"step": step, "third": 1 / 3})
    if asynchronous:
        writer.start(step, state, {"frames": step})
        for field in fields:
            field.data[...] = -1.0  # the run goes on: what was given is copied
        writer.finish()
    else:
        writer.save(step, state, {"frames": step})
    writer.close()
    assert (writer.count, writer.latest) == (1, max(committed(root))), writer.summary()
    mesh.close()


def check(comm, root, step):
    generation, notes = choose(comm, root)
    assert not notes, notes
    assert (generation.step, generation.values) == (step, {"step": step, "third": 1 / 3})
    assert generation.outputs == {"frames": step}
    mesh, fields = fields_on(comm)
    for field in fields:
        read_into(generation, field)
        assert np.array_equal(field.interior, coded(field, step)), field.name
        assert np.isnan(field.data).sum() == field.data.size - field.interior.size
    assert np.array_equal(generation.read("ids", (2,), (4,)), [2, 3, 4, 5])
    table = generation.read("table", (0, 0), (2, 2))
    assert table.tobytes() == np.array([[step, 0.5], [-0.0, 1e300]]).tobytes()
    mesh.close()


for n in range(1, world.size + 1):
    root = folder / f"from-{n}"
    comm = world.Split(world.rank < n, world.rank)
    if world.rank < n:
        for number, asynchronous in enumerate((False, True), 1):
            save(comm, root, 10 * n + number, asynchronous)
    comm.Free()
    for q in range(1, world.size + 1):
        comm = world.Split(world.rank < q, world.rank)
        if world.rank < q:
            check(comm, root, 10 * n + 2)
        comm.Free()

# What is no whole array is refused on every rank alike, and nothing of it stays.
writer = Writer(world, folder / "from-1")
before = generations(folder / "from-1")
gap = Piece("gap", (world.size + 1,), (world.rank,), np.zeros(1))
try:
    writer.save(99, State([gap]))
except InputError as error:
    assert f"hold {world.size} elements" in error.message, error.message
else:
    raise AssertionError("a gap was saved")
world.Barrier()
assert generations(folder / "from-1") == before

# A shard that one rank finds damaged makes all of them fall back, and the damaged generation is marked.
root = folder / f"from-{world.size}"
newest = max(committed(root))
if world.rank == 0:
    path = root / f"g{newest:06d}" / f"shard-{world.size - 1:05d}.h5"
    data = bytearray(path.read_bytes())
    data[-9] ^= 4
    path.write_bytes(data)
world.Barrier()
generation, notes = choose(world, root)
assert (generation.number, [note[:7] for note in notes]) == (newest - 1, [f"g{newest:06d}"]), notes
world.Barrier()
assert max(committed(root)) == newest - 1
