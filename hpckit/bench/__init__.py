"""Measurements against rivals: `hpckit bench NAME` runs `run` of the module that stands here beside the name."""

from __future__ import annotations

from typing import NamedTuple


class Benchmark(NamedTuple):
    """module: has `run(quick, **options)` and, where it takes options, `add_options`; measures: one line for a list."""

    module: str
    measures: str


BENCHMARKS = {
    "checkpoint": Benchmark(
        "hpckit.bench.overhead.checkpoint",
        "What checkpoints cost: a whole one against the raw disk, and the stall of one that is written beside the run",
    ),
    "collectives": Benchmark(
        "hpckit.bench.collectives.verb",
        "All-reduce, or the collective asked for, by every algorithm against MPI's and torch's gloo; `--tune` keeps the"
        " table",
    ),
    "gpu": Benchmark(
        "hpckit.bench.gpu.verb",
        "A GPU: steps of every app against the bandwidth of a copy, and training against PyTorch",
    ),
    "halo": Benchmark(
        "hpckit.bench.halo.verb",
        "Halo exchange on 2 ranks against Sendrecv with NumPy slices, and against the package mpiarray",
    ),
    "machine": Benchmark(
        "hpckit.bench.machine.verb",
        "Figures of this node: peaks for rooflines; with --machine-file or --predict the price model of collectives",
    ),
    "md": Benchmark(
        "hpckit.bench.md.verb",
        "Molecular dynamics: the Lennard-Jones melt beside LAMMPS (`lj/cut`, and the tuned `lj/cut/opt`), on 1 and 2"
        " cores",
    ),
    "scaling": Benchmark(
        "hpckit.bench.scaling.verb",
        "Scaling studies of any app: time, efficiency and phases on more and more ranks, fits, and the price of 4,096",
    ),
    "shallow_water": Benchmark(
        "hpckit.bench.shallow_water.verb",
        "Shallow water, 2048 x 2048 cells: fused stages against a plain copy and against jitted JAX, 2 ranks against 1",
    ),
    "stencil": Benchmark(
        "hpckit.bench.stencil",
        "Stencils on one core: the heat equation against a plain copy and against C, stars and the slab against C",
    ),
    "trace": Benchmark(
        "hpckit.bench.overhead.trace",
        "What it costs to know where the time goes: the records behind the phase table and the timeline, in a step",
    ),
    "train": Benchmark(
        "hpckit.bench.train.verb",
        "Training: GPT and MLP steps on one core against PyTorch eager, and on 2 ranks against its DDP and pipelines",
    ),
    "watch": Benchmark(
        "hpckit.bench.overhead.watch",
        "What it costs to watch, a call and a step of apps, and to check: steps computed twice, checksums of messages",
    ),
    "weather": Benchmark(
        "hpckit.bench.weather.verb",
        "The weather kernels, slab and box, on one core against plain C of the same schemes, and 2 ranks against 1",
    ),
}
