"""hpckit: a rank mesh with named axes carries everything, and every communication on it is a plan.

Names are loaded on first use, so that `import hpckit` starts neither MPI nor a GPU.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches

__version__ = "0.1.0"

_HOME = {
    "Checkpoints": "hpckit.io.checkpoint.program",
    "DataParallel": "hpckit.parallel.data",
    "Decomposition": "hpckit.plan.decomposition",
    "DecompositionError": "hpckit.errors",
    "Field": "hpckit.field",
    "HaloExchange": "hpckit.exchange",
    "LocalSGD": "hpckit.collectives",
    "Mesh": "hpckit.mesh",
    "ParameterServer": "hpckit.collectives",
    "Pipeline": "hpckit.parallel.pipeline",
    "Sampler": "hpckit.parallel.sampler",
    "StageTimes": "hpckit.plan.stage_times",
    "Swarm": "hpckit.swarm",
    "Topology": "hpckit.plan.topology",
    "Watch": "hpckit.watch",
    "Work": "hpckit.collectives",
    "add_algorithm": "hpckit.plan.algorithms",
    "all_gather": "hpckit.collectives",
    "all_reduce": "hpckit.collectives",
    "all_to_all": "hpckit.collectives",
    "antisymmetric": "hpckit.walls",
    "broadcast": "hpckit.collectives",
    "collective_plan": "hpckit.plan.algorithms",
    "draw": "hpckit.plan.draw",
    "draw_svg": "hpckit.plan.draw",
    "empty_shared": "hpckit.shared",
    "find_gpu": "hpckit.gpu_choice",
    "fixed": "hpckit.walls",
    "gather": "hpckit.collectives",
    "gossip": "hpckit.collectives",
    "gossip_plan": "hpckit.plan.gossip",
    "halo_plan": "hpckit.plan.halo",
    "machine_of": "hpckit.plan.machine",
    "mirror": "hpckit.walls",
    "measure_layers": "hpckit.parallel.measure",
    "parameter_server": "hpckit.parallel.server",
    "partition_layers": "hpckit.plan.partition",
    "pipeline_program": "hpckit.plan.program",
    "pipeline_schedule": "hpckit.plan.schedules",
    "price": "hpckit.plan.price",
    "print_root": "hpckit.mesh",
    "prove": "hpckit.plan.prove",
    "read_schedule": "hpckit.plan.schedule_table",
    "reduce": "hpckit.collectives",
    "reduce_scatter": "hpckit.collectives",
    "scatter": "hpckit.collectives",
    "spectral_gap": "hpckit.plan.gossip",
    "training_plan": "hpckit.plan.training",
    "world": "hpckit.mesh",
    "write_schedule": "hpckit.plan.schedule_table",
    "zero_gradient": "hpckit.walls",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    """Import the home of a public name when it is first asked for."""
    if name not in _HOME:
        near = get_close_matches(name, _HOME, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(_HOME))}"
        raise AttributeError(f"module 'hpckit' has no attribute {name!r}; {hint}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
