"""Measurements against rivals: `hpckit bench NAME` runs `run` of the module that stands here beside the name."""

from __future__ import annotations

from typing import NamedTuple


class Benchmark(NamedTuple):
    """module: has `run(quick, **options)` and, where it takes options, `add_options`; measures: one line for a list."""

    module: str
    measures: str


def _in(module: str, measures: str) -> Benchmark:
    return Benchmark(f"{__name__}.{module}", measures)


BENCHMARKS = {
    "adjoint": _in("stencil.traced", "traced models and their gradients against loops by hand and jitted JAX"),
    "checkpoint": _in("overhead.checkpoint", "a checkpoint against the raw disk, and the stall of one beside the run"),
    "collectives": _in("collectives.verb", "any collective by every algorithm against MPI and gloo; --tune"),
    "gpu": _in("gpu.verb", "a GPU: steps of every app against the bandwidth of a copy, training against PyTorch"),
    "halo": _in("stencil.halo", "halo exchange on 2 ranks against Sendrecv with NumPy slices, and against mpiarray"),
    "machine": _in("machine.verb", "peaks of this node for rooflines, and the model that collectives are priced with"),
    "md": _in("md.verb", "the Lennard-Jones melt beside LAMMPS (lj/cut, and the tuned lj/cut/opt), on 1 and 2 cores"),
    "planner": _in("planner.verb", "the planner of training against published steps and memories; its largest search"),
    "price": _in("machine.price", "prices of all-reduces and halos against measured times, on 2 ranks"),
    "scaling": _in("scaling.verb", "scaling studies of any app: times, fits, and the price on 4,096 ranks"),
    "serve": _in("train.serving.load", "an OpenAI server at a URL under load: TTFT, TPOT, ITL, tokens/s, goodput"),
    "serving": _in(
        "train.serving.verb", "a language model: decoding against memory and transformers, 32 texts at once"
    ),
    "shallow_water": _in("shallow_water.verb", "fused stages against a plain copy and jitted JAX, 2 ranks against 1"),
    "stencil": _in(
        "stencil.verb", "the heat equation against a plain copy and C, stars and the weather slab against C"
    ),
    "torch": _in("train.modules", "DDP and FSDP of hpckit.torch against torch.distributed's over gloo, on 2 ranks"),
    "trace": _in("overhead.trace", "what phase table and timeline cost: their records as part of a step"),
    "train": _in("train.verb", "GPT and MLP steps against PyTorch, on 2 ranks against its DDP and its pipelines"),
    "watch": _in("overhead.watch", "what it costs to watch, to compute steps twice, to send checksums"),
    "weather": _in("weather.verb", "slab and box on one core against plain C of the same schemes, 2 ranks against 1"),
}
