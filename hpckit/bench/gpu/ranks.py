"""The ranks of `hpckit bench gpu`: halo exchanges of fields on the GPUs, and the melt of LAMMPS's benchmark."""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

from mpi4py import MPI

from hpckit.apps.md.config import PRESETS, Config
from hpckit.apps.md.model import make_system
from hpckit.apps.md.start import Start
from hpckit.bench.gpu.figure import seconds, size
from hpckit.bench.ranks import answer
from hpckit.comm.device import Device
from hpckit.comm.gpu import find_gpu
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels.particles.pair.cuda import gather
from hpckit.md.motion.dynamics import NVE
from hpckit.plan.grid.decomposition import Decomposition

EXCHANGES, WARM_EXCHANGES = 50, 5
WARM, STEPS, ROUNDS = 100, 200, 5
ENTRY, RECORD, FORCE = 4, {"double": 32, "mixed": 16}, 32  # bytes


def halo(device: Device, n: int) -> dict[str, Any]:
    """Microseconds of an exchange between blocks of n^3 doubles, periodic, halo 1, until the GPU has done it."""
    comm = MPI.COMM_WORLD
    with Mesh(comm, z=0, y=1, x=1, periodic=("z", "y", "x")) as mesh:
        field = Field.zeros(mesh, Decomposition((n * comm.size, n, n), mesh.topology), device=device)
        with HaloExchange(mesh, field) as exchange:
            times = []
            for _ in range(size(device, EXCHANGES, 2)):
                comm.Barrier()
                begin = time.perf_counter()
                exchange(field)
                device.wait()
                times.append(time.perf_counter() - begin)
            sent = exchange.nbytes
    middle = median(times[min(WARM_EXCHANGES, len(times) - 1) :])
    return {"case": f"halo {n}^3 a rank, {device.describe()}", "microseconds": middle * 1e6, "bytes_sent": sent}


def melt(device: Device, edge: int, precision: str, cutoff: float) -> dict[str, Any]:
    """Atom-steps a second, rebuilds every 20 steps included, of 4 edge^3 particles, half melted; the seconds of the
    force kernel, of the gather of the same neighbors, and the bytes that a force must move at least.
    """
    settings = PRESETS["melt"][1]
    more = {"system": {"cells": (edge,) * 3}, "interaction": {"cutoff": cutoff}, "precision": precision}
    config = Config.model_validate({**settings, **more})
    system = make_system(config, Start(config), MPI.COMM_WORLD, PhaseTimer(), device)
    dynamics, dt = NVE(), config.time.dt

    def steps(count: int) -> float:
        device.wait()
        MPI.COMM_WORLD.Barrier()
        begin = time.perf_counter()
        for _ in range(count):
            dynamics.step(system, dt, False)
        device.wait()
        return time.perf_counter() - begin

    warm, timed, rounds = size(device, (WARM, STEPS, ROUNDS), (1, 1, 1))
    steps(warm)
    times = [steps(timed) / timed for _ in range(rounds)]
    row = {
        "case": f"md melt, {system.count} particles, {precision}, {device.describe()}",
        "million_atom_steps_per_s": system.count / median(times) / 1e6,
        "milliseconds_a_step": median(times) * 1e3,
        "step_seconds": times,
        **_limits(system, device, precision),
    }
    system.mesh.close()
    return row


def _limits(system: Any, device: Device, precision: str) -> dict[str, Any]:
    particles, neighbors = system.particles, system.neighbors
    slots, forces, lists = particles.slots, system.forces, neighbors.lists
    records = forces.records(particles)
    sums = device.zeros(particles.forces.shape)
    entries = int(device.to_host(lists.bounds[:slots]).sum())
    return {
        "neighbors": entries / slots,
        "force_seconds": seconds(device, lambda: system.compute()),
        "gather_seconds": seconds(device, lambda: gather(records, slots, lists.entries, lists.bounds, sums)),
        "bytes": ENTRY * entries + RECORD[precision] * neighbors.slots + FORCE * slots,
        "gathered_bytes": (ENTRY + RECORD[precision]) * entries,
    }


def case(name: str, *arguments: Any) -> dict[str, Any]:
    """One case: "halo" of n^3 blocks, or "melt"."""
    return (halo if name == "halo" else melt)(find_gpu(MPI.COMM_WORLD), *arguments)


if __name__ == "__main__":
    answer(sys.argv[1:], case)
