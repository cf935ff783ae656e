"""What the doctor tries in a child: `python -m hpckit.cli.verbs.doctor.child NAME`; one JSON line a stage."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ABI_LETTERS = {"mpich": "MPICH", "openmpi": "Open MPI", "impi": "MPICH"}
THREAD_LEVELS = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
KERNEL = """
extern "C" __global__ void axpy(const double a, const double* x, double* y, const int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""


def say(stage: str, status: str = "ok", text: str = "", **more: Any) -> None:
    """Tell the outcome of a stage."""
    print(json.dumps({"stage": stage, "status": status, "text": text, **more}), flush=True)


def mpi() -> None:
    """Start MPI."""
    from mpi4py import MPI

    level = MPI.Query_thread()
    names = dict(
        zip(
            (MPI.THREAD_SINGLE, MPI.THREAD_FUNNELED, MPI.THREAD_SERIALIZED, MPI.THREAD_MULTIPLE),
            THREAD_LEVELS,
            strict=True,
        )
    )
    major, minor = MPI.Get_version()
    library = MPI.Get_library_version().strip().split("\n")[0]
    text = f"{' '.join(library.split())}, standard {major}.{minor}, thread level {names[level]}"
    if level < MPI.THREAD_FUNNELED:
        say("mpi", "warn", text, do="use an MPI that is built with threads")
    else:
        say("mpi", "ok", text)


def abi() -> None:
    """The MPI that mpi4py's module is for, and the library that it loaded."""
    from mpi4py import MPI

    from hpckit.launch.launcher import mpi_kind

    module = Path(MPI.__file__).name.split(".")
    wanted = next((ABI_LETTERS[part] for part in module if part in ABI_LETTERS), "unknown")
    say("abi", wanted=wanted, found=mpi_kind(MPI.Get_library_version()))


def ranks() -> None:
    """On each of two ranks: meet, pass data around a ring, exchange halos."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.size != 2:
        say("start", size=comm.size)
        return
    mine = np.zeros(1025, np.int64)
    allowed = sorted(os.sched_getaffinity(0))[:1024]
    mine[0] = len(allowed)
    mine[1 : 1 + len(allowed)] = allowed
    every = np.empty((comm.size, mine.size), np.int64)
    comm.Allgather(mine, every)
    if comm.rank == 0:
        say("start", size=comm.size, cores=[row[1 : 1 + row[0]].tolist() for row in every])
    _ring(comm)
    _halo(comm)


def _ring(comm: Any) -> None:
    """Messages from small to large go around; every byte must come back as it left."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    wrong = 0
    sizes = (1, 7, 1000, 300_001)
    for size in sizes:
        own = np.arange(size, dtype=np.float64) + 1e6 * comm.rank
        here = np.empty(size)
        for _ in range(comm.size):
            comm.Sendrecv(own, right, 1, here, left, 1)
            own, here = here, own
        wrong += int(np.count_nonzero(own != np.arange(size) + 1e6 * comm.rank))
    total = np.zeros(1, np.int64)
    comm.Allreduce(np.array([wrong], np.int64), total)
    if comm.rank == 0:
        if total[0]:
            say("ring", "fail", f"{total[0]} values came back changed")
        else:
            say("ring", "ok", f"messages of 8 B to {8 * sizes[-1] / 1e6:.1f} MB came back as they left")


def _halo(comm: Any) -> None:
    """Every halo value must name the cell it stands for."""
    from hpckit.comm.mesh import Mesh
    from hpckit.grid.exchange import HaloExchange
    from hpckit.grid.field import Field
    from hpckit.plan.grid.decomposition import Decomposition

    shape = (7, 11)
    with Mesh(comm, y=1, x=0, periodic=("y", "x")) as mesh:
        cells = Decomposition(shape, mesh.topology, halo=2)
        field = Field.zeros(mesh, cells, name="position")
        field.data[...] = -1.0
        field.interior[...] = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)[cells.global_slices(mesh.rank)]
        HaloExchange(mesh, field)(field)
        places = [
            (np.arange(start - width, start + n + width) % whole)
            for start, n, width, whole in zip(
                cells.start(mesh.rank), cells.owned(mesh.rank), cells.halo, shape, strict=True
            )
        ]
        expected = places[0][:, None] * shape[1] + places[1][None]
        wrong = np.array([np.count_nonzero(field.data != expected)], np.int64)
        total = np.zeros_like(wrong)
        comm.Allreduce(wrong, total)
    if comm.rank == 0:
        if total[0]:
            say("halo", "fail", f"{total[0]} halo values name another cell than the one they stand for")
        else:
            say("halo", "ok", "every halo value names the cell it stands for, corners included")


def hdf5() -> None:
    """Write, read, damage, read again, in the folder given."""
    import h5py

    from hpckit.io.fields.hdf5 import filters

    path = Path(sys.argv[2]) / "round-trip.h5"
    values = np.random.default_rng(0).random((37, 53))
    with h5py.File(path, "w") as file:
        chunk = file.create_dataset("values", data=values, chunks=values.shape, **filters(1)).id.get_chunk_info(0)
        place = chunk.byte_offset + chunk.size // 2
    with h5py.File(path, "r") as file:
        if file["values"][()].tobytes() != values.tobytes():
            say("hdf5", "fail", "values come back changed")
            return
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    try:
        with h5py.File(path, "r") as file:
            file["values"][()]
    except OSError:
        version = h5py.version.hdf5_version
        say("hdf5", "ok", f"HDF5 {version}: a compressed file comes back bit for bit, and one flipped bit is noticed")
    else:
        say("hdf5", "fail", "a flipped bit is read back as good data")


def hdf5_parallel() -> None:
    """Whether h5py is built with MPI."""
    import h5py

    if h5py.get_config().mpi:
        say("hdf5_parallel", "ok", 'h5py is built with MPI: the output driver "mpio" can be used')
    else:
        text = "h5py is built without MPI; the default output (a file a rank) does not need it"
        say("hdf5_parallel", "skipped", text)


def numba() -> None:
    """Compile a kernel and compare it with NumPy."""
    import numba as package

    from hpckit.kernels.compile.jit import jit

    factor = 3.0

    def axpy(x: np.ndarray, y: np.ndarray) -> None:
        for i in range(x.size):
            y[i] += factor * x[i]  # a closure without a key is compiled anew, not taken from the cache

    kernel = jit(axpy, noalias=True, math=frozenset())
    x, y = np.arange(101.0), np.full(101, 0.5)
    expected = y + factor * x
    kernel(x, y)
    if not np.array_equal(y, expected):
        say("numba", "fail", "a compiled kernel computes something else than NumPy")
        return
    compiled = "".join(kernel.inspect_llvm().values())
    text = f"Numba {package.__version__} compiles a kernel that agrees with NumPy"
    if re.search(r"noalias[^,]*%arg\.", compiled):  # Numba's own arguments have it in any case
        say("numba", "ok", f"{text}; noalias is active")
    else:
        say("numba", "warn", f"{text}, but without noalias: kernels are slower", do="use the Numba of hpckit's tests")


def _cupy() -> tuple[Any, int, str]:
    """CuPy (None without it), the number of GPUs it sees, and why there are none."""
    devices = list(Path("/dev").glob("nvidia[0-9]*"))
    if importlib.util.find_spec("cupy") is None:
        return None, len(devices), "no CuPy"
    import cupy

    try:
        return cupy, cupy.cuda.runtime.getDeviceCount(), ""
    except Exception as problem:  # the driver is absent or too old
        return cupy, 0, " ".join(str(problem).split())


def gpu() -> None:
    """Run a kernel on the first GPU."""
    from hpckit.comm.gpu import driver_count

    cupy, count, problem = _cupy()
    if count == 0:
        devices = list(Path("/dev").glob("nvidia[0-9]*"))
        if devices:
            say("gpu", "fail", f"a GPU is there, but CuPy does not see it: {problem}")
        else:
            say("gpu", "skipped", "no GPU")
        return
    if cupy is None:
        say("gpu", "fail", "a GPU is there, but CuPy is not installed")
        return
    n = 1000
    x, y = cupy.arange(n, dtype=np.float64), cupy.ones(n, dtype=np.float64)
    cupy.RawKernel(KERNEL, "axpy")(((n + 127) // 128,), (128,), (np.float64(2.0), x, y, np.int32(n)))
    if not np.array_equal(cupy.asnumpy(y), 1.0 + 2.0 * np.arange(n)):
        say("gpu", "fail", "a kernel on the GPU computes something else than NumPy")
        return
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"]
    found = f"{count} x {name.decode() if isinstance(name, bytes) else name}"
    if driver_count():
        _own_kernel(found)
    else:
        say("gpu", "ok", f"{found}: a kernel agrees with NumPy")


def _own_kernel(found: str) -> None:
    """Run one of our kernels, as `hpckit run --gpu` would."""
    from hpckit.comm.gpu import Gpu, missing
    from hpckit.kernels import stencil

    if problem := missing():
        say("gpu", "warn", f"{found}, but `hpckit run --gpu` cannot use it: {problem}", do="pip install 'hpckit[gpu]'")
        return
    device, field, out = Gpu(), np.random.default_rng(0).normal(size=(23, 45, 67)), np.zeros((23, 45, 67))
    there = device.zeros(out.shape)
    stencil.diffuse(out, field, 0.3, 0.05, (0.7, 1.1, 0.9))
    stencil.diffuse(there, device.to_device(field), 0.3, 0.05, (0.7, 1.1, 0.9))
    difference = np.abs(device.to_host(there) - out).max()
    if difference > 1e-12:
        say(
            "gpu",
            "fail",
            f"{found}: a kernel differs from the CPU by {difference:.2g}",
            do="pytest -m gpu in a checkout",
        )
    else:
        say("gpu", "ok", f"{found}: CuPy and hpckit's own kernels agree with the CPU")


def gpu_mpi() -> None:
    """Ask MPI whether it takes device memory, then give it some."""
    cupy, count, _ = _cupy()
    if cupy is None or count == 0:
        say("gpu_mpi", "skipped", "no GPU")
        return
    from mpi4py import MPI

    from hpckit.comm.gpu import takes_device_memory

    if not takes_device_memory():
        say("gpu_mpi", "ok", "this MPI does not take device memory; hpckit copies through the host")
        return
    n = 4099
    sent, received = cupy.arange(n, dtype=np.float64), cupy.zeros(n, dtype=np.float64)
    cupy.cuda.runtime.deviceSynchronize()
    MPI.COMM_SELF.Sendrecv(sent, 0, 0, received, 0, 0)
    right = np.array_equal(cupy.asnumpy(received), np.arange(n))
    say("gpu_mpi", "ok" if right else "fail", "MPI takes device memory" if right else "device memory arrives changed")


CHILDREN: dict[str, Callable[[], None]] = {
    "mpi": mpi,
    "abi": abi,
    "ranks": ranks,
    "hdf5": hdf5,
    "hdf5_parallel": hdf5_parallel,
    "numba": numba,
    "gpu": gpu,
    "gpu_mpi": gpu_mpi,
}

if __name__ == "__main__":
    CHILDREN[sys.argv[1]]()
