"""The ranks of the molecular dynamics figures of `hpckit bench gpu`: the melt of LAMMPS's benchmark on GPUs."""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

from mpi4py import MPI

from hpckit.apps.md.config import PRESETS, Config
from hpckit.apps.md.model import make_system
from hpckit.apps.md.start import Start
from hpckit.bench.gpu_cases import seconds, size
from hpckit.bench.job import answer
from hpckit.comm.device import Device
from hpckit.comm.gpu_choice import find_gpu
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.kernels.particles.pair.cuda import gather
from hpckit.md.dynamics import NVE

WARM, STEPS, ROUNDS = 100, 200, 5
ENTRY, RECORD, FORCE = 4, {"double": 32, "mixed": 16}, 32  # bytes


def melt(edge: int, precision: str, cutoff: float) -> dict[str, Any]:
    """Atom-steps a second, rebuilds every 20 steps included, of 4 edge^3 particles, half melted; the seconds of the
    force kernel, of the gather of the same neighbors, and the bytes that a force must move at least.
    """
    settings = PRESETS["melt"][1]
    more = {"system": {"cells": (edge,) * 3}, "interaction": {"cutoff": cutoff}, "precision": precision}
    config, device = Config.model_validate({**settings, **more}), find_gpu(MPI.COMM_WORLD)
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


if __name__ == "__main__":
    answer(sys.argv[1:], melt)
