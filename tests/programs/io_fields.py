"""Write frames from all ranks and check them on rank 0: `io_fields.py DIRECTORY`."""

import json
import resource
import signal
import sys
from pathlib import Path

import h5py
import numpy as np
from mpi4py import MPI

from hpckit.comm.mesh import Mesh
from hpckit.errors import HpckitError, InputError, SetupError
from hpckit.io import FieldWriter
from hpckit.io.fields.pack import pack_fields
from hpckit.plan.grid.decomposition import Decomposition

comm = MPI.COMM_WORLD
top = Path(sys.argv[1])
TIMES = (0.0, 2.5, 7.0)


def position_coded(decomposition, frame, dtype=np.float64):
    """The global field whose values name frame and place, with bits that decimal output would lose."""
    shape = decomposition.global_shape
    return ((np.arange(np.prod(shape)).reshape(shape) + 1e6 * frame) / 3.0).astype(dtype)


def write_all(directory, mesh, decomposition, variables, *, dtypes=None, times=TIMES, first=0, **options):
    """Frames of every variable; returns the writer."""
    names = mesh.topology.names
    coords = {name: 10.0 * np.arange(n) + 5.0 for name, n in zip(names, decomposition.shape, strict=True)}
    units = dict.fromkeys(names, "m")
    with FieldWriter(mesh, directory, decomposition, coords, units, variables, **options) as writer:
        for frame, time in enumerate(times, first):
            fields = {}
            for name, variable in writer.layout.variables.items():
                whole = position_coded(variable.decomposition, frame, (dtypes or {}).get(name, np.float64))
                fields[name] = whole[variable.decomposition.global_slices(mesh.rank)]
            writer.write(time, fields)
    return writer


def check(directory, layout, dtypes=None, frames=3):
    """Every value on disk is bitwise the one that was given (rank 0)."""
    if comm.rank == 0:
        with h5py.File(directory / "fields.h5") as file:
            for name, variable in layout.variables.items():
                assert file[name].shape == (frames, *variable.shape)
                for frame in range(frames):
                    expected = position_coded(variable.decomposition, frame, (dtypes or {}).get(name, np.float64))
                    found = file[name][frame]
                    assert found.dtype == expected.dtype
                    assert found.tobytes() == expected.tobytes(), f"{name} frame {frame}"
    comm.Barrier()


def raises(kind, action):
    """The error that `action` must raise on every rank."""
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"rank {comm.rank}: no {kind.__name__}")


slab = {"theta": {"units": "K", "long_name": "potential temperature"}, "w": {"units": "m/s"}}

# A slab split in x, unevenly where ranks do not divide 13; mixed types.
with Mesh(comm, z=1, x=0, periodic=("x",)) as mesh:
    halo = (0, 2)
    cells = Decomposition((7, 13), mesh.topology, halo=halo)
    types = {"theta": np.float32}
    for driver in ("shards", "gather"):
        made = write_all(top / driver, mesh, cells, slab, dtypes=types, driver=driver)
        check(top / driver, made.layout, types)
        assert made.nbytes > 0
        assert made.seconds > 0
    if comm.rank == 0:
        with h5py.File(top / "shards/fields.h5") as one, h5py.File(top / "gather/fields.h5") as other:
            assert all(np.array_equal(one[name][()], other[name][()]) for name in ("theta", "w", "time", "z", "x"))
            assert not any(item.is_virtual for item in one.values() if isinstance(item, h5py.Dataset))
            assert "values_in" not in one.attrs
        assert not (top / "shards/frames").exists()
    assert made.driver == "gather"
    assert write_all(top / "auto", mesh, cells, slab).driver == "gather"  # a tiny frame

    # Go on after frames that are there; one of them is written anew.
    write_all(top / "again", mesh, cells, slab, driver="shards", times=(0.0, 2.5, 9.0))
    added = write_all(top / "again", mesh, cells, slab, driver="gather", times=(7.0, 8.0), first=2, append=True)
    check(top / "again", added.layout, frames=4)
    if comm.rank == 0:
        with h5py.File(top / "again/fields.h5") as file:
            assert file["time"][:].tolist() == [0.0, 2.5, 7.0, 8.0]
            assert file.attrs["frame_numbers"].tolist() == [0, 1, 3, 4]
    comm.Barrier()

    # Frames that are larger than one file may be stay in theirs; so they do where the disk takes no more.
    made = write_all(top / "apart", mesh, cells, slab, driver="shards", one_file=1)
    check(top / "apart", made.layout)
    if comm.rank == 0:
        assert len(list((top / "apart/frames/000002").glob("rank-*.h5"))) == comm.size
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    raises(SetupError, lambda: pack_fields(top / "apart", comm))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    comm.Barrier()
    check(top / "apart", made.layout)
    if comm.rank == 0:  # which makes it anew at once
        assert not (top / "apart/fields.h5.tmp").exists()
    pack_fields(top / "apart", comm)
    check(top / "apart", made.layout)

    # Several chunks in a frame, which meet the borders of the ranks nowhere.
    wide = Decomposition((301, 701), mesh.topology)
    check(top / "wide", write_all(top / "wide", mesh, wide, {"q": {}}, driver="shards").layout)

    # What does not fit is refused on every rank alike, also when only one rank is wrong.
    error = raises(InputError, lambda: write_all(top / "shards", mesh, cells, slab))
    assert "append=True" in error.do
    other_grid = Decomposition((7, 26), mesh.topology)
    error = raises(InputError, lambda: write_all(top / "shards", mesh, other_grid, slab, append=True))
    assert "26" in error.message
    coords = {"z": np.arange(7.0), "x": np.arange(13.0)}
    with FieldWriter(mesh, top / "bad", cells, coords, {}, {"w": {}}) as writer:
        good = np.zeros(cells.owned(comm.rank))
        bad = np.zeros((7, 99)) if comm.rank == comm.size - 1 else good
        error = raises(InputError, lambda: writer.write(0.0, {"w": bad}))
        assert f"rank {comm.size - 1}" in error.where
        mixed = good.astype(np.float32 if comm.rank == 0 else np.float64)
        if comm.size > 1:
            raises(InputError, lambda: writer.write(0.0, {"w": mixed}))
        raises(InputError, lambda: writer.write(0.0, {"w": good.astype(int)}))
        raises(InputError, lambda: writer.write(float("nan"), {"w": good}))
        writer.write(0.0, {"w": good})
        raises(InputError, lambda: writer.write(0.0, {"w": good}))
        raises(InputError, lambda: writer.write(1.0, {"w": good.astype(np.float32)}))
    raises(InputError, lambda: writer.write(2.0, {"w": good}))

    # A file where a directory should be, and a disk that takes no more: an error, and the frames before it stay.
    if comm.rank == 0:
        (top / "taken").write_text("not a directory")
    comm.Barrier()
    error = raises(SetupError, lambda: FieldWriter(mesh, top / "taken", cells, coords, {}, {"w": {}}))
    assert error.do
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    noise = np.random.default_rng(comm.rank).random(cells.owned(comm.rank))
    writer = FieldWriter(mesh, top / "full", cells, coords, {}, {"w": {}}, driver="shards")
    writer.write(0.0, {"w": noise})
    if comm.rank == comm.size - 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    error = raises(HpckitError, lambda: writer.write(1.0, {"w": noise}))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert "limit" in error.message, error.report()
    assert error.exit_code == 3
    comm.Barrier()
    if comm.rank == 0:
        with h5py.File(top / "full/fields.h5") as file:
            assert file["time"][:].tolist() == [0.0]
    writer.write(1.0, {"w": noise})
    writer.close()
    if comm.rank == 0:
        with h5py.File(top / "full/fields.h5") as file:
            assert file["time"][:].tolist() == [0.0, 1.0]
            assert np.isfinite(file["w"][()]).all()

    # The master cannot be put in place, which only rank 0 meets.
    writer = FieldWriter(mesh, top / "blocked", cells, coords, {}, {"w": {}}, driver="shards")
    if comm.rank == 0:
        (top / "blocked/fields.h5").mkdir()
    error = raises(SetupError, lambda: writer.write(0.0, {"w": noise}))
    assert "fields.h5" in error.message + error.where, error.report()
    comm.Barrier()

# Staggered variables in 2-D, 1-D and 3-D, also split in several dims.
with Mesh(comm, z=0, x=0, periodic=("x",)) as mesh:
    cells = Decomposition((11, 9), mesh.topology)
    staggered = {
        "p": {"units": "Pa"},
        "u": {"units": "m/s", "location": ("center", "face")},
        "w": {"units": "m/s", "location": ("face", "center")},
    }
    check(top / "staggered", write_all(top / "staggered", mesh, cells, staggered, driver="shards").layout)
with Mesh(comm, x=0) as mesh:
    cells = Decomposition((17,), mesh.topology)
    check(top / "line", write_all(top / "line", mesh, cells, {"q": {"units": "1"}}, driver="shards").layout)
with Mesh(comm, z=0, y=0, x=0) as mesh:
    cells = Decomposition((5, 7, 9), mesh.topology)
    volume = {"T": {"units": "K"}, "corner": {"units": "1", "location": "face"}}
    check(top / "volume", write_all(top / "volume", mesh, cells, volume, driver="shards").layout)
    if h5py.get_config().mpi:
        check(top / "mpio", write_all(top / "mpio", mesh, cells, volume, driver="mpio").layout)
    else:
        error = raises(SetupError, lambda: write_all(top / "mpio", mesh, cells, volume, driver="mpio"))
        assert "shards" in error.do
if comm.rank == 0:
    print(json.dumps({"ok": True, "mpio": h5py.get_config().mpi}))
