"""hpckit: a rank mesh with named axes carries everything, and every communication on it is a plan.

Names are loaded on first use, so that `import hpckit` starts neither MPI nor a GPU.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches

__version__ = "0.1.0"

_HOME = {
    "Checkpoints": "hpckit.run.checkpoints",
    "DataParallel": "hpckit.training.data",
    "Decomposition": "hpckit.plan.grid.decomposition",
    "DecompositionError": "hpckit.errors",
    "Field": "hpckit.grid.field",
    "HaloExchange": "hpckit.grid.exchange",
    "LocalSGD": "hpckit.training.averaging.gossip",
    "Mesh": "hpckit.comm.mesh",
    "ParameterServer": "hpckit.training.averaging.parameter_server",
    "Pipeline": "hpckit.training.pipeline",
    "Request": "hpckit.collectives",
    "Sampler": "hpckit.training.sampler",
    "StageTimes": "hpckit.plan.pipeline.times",
    "Swarm": "hpckit.particles.swarm",
    "Topology": "hpckit.plan.topology",
    "Watch": "hpckit.comm.observe.watch",
    "add_algorithm": "hpckit.plan.collective.algorithms",
    "all_gather": "hpckit.collectives",
    "all_gather_init": "hpckit.collectives",
    "all_reduce": "hpckit.collectives",
    "all_reduce_init": "hpckit.collectives",
    "all_to_all": "hpckit.collectives",
    "all_to_all_init": "hpckit.collectives",
    "antisymmetric": "hpckit.grid.boundary_conditions",
    "broadcast": "hpckit.collectives",
    "broadcast_init": "hpckit.collectives",
    "collective_plan": "hpckit.plan.collective.algorithms",
    "draw": "hpckit.plan.draw",
    "draw_svg": "hpckit.plan.draw",
    "empty_shared": "hpckit.comm.shared.symmetric",
    "find_gpu": "hpckit.comm.gpu_choice",
    "fixed": "hpckit.grid.boundary_conditions",
    "gather": "hpckit.collectives",
    "gossip": "hpckit.training.averaging.gossip",
    "gossip_plan": "hpckit.plan.collective.gossip",
    "halo_plan": "hpckit.plan.grid.halo",
    "machine_of": "hpckit.plan.machine.machine",
    "mirror": "hpckit.grid.boundary_conditions",
    "measure_layers": "hpckit.training.measure",
    "parameter_server": "hpckit.training.averaging.server",
    "partition_layers": "hpckit.plan.pipeline.partition",
    "pipeline_program": "hpckit.plan.pipeline.program",
    "pipeline_schedule": "hpckit.plan.pipeline.schedules",
    "price": "hpckit.plan.price",
    "print_root": "hpckit.comm.mesh",
    "prove": "hpckit.plan.prove",
    "read_schedule": "hpckit.plan.pipeline.table",
    "reduce": "hpckit.collectives",
    "reduce_scatter": "hpckit.collectives",
    "reduce_scatter_init": "hpckit.collectives",
    "scatter": "hpckit.collectives",
    "spectral_gap": "hpckit.plan.collective.gossip",
    "training_plan": "hpckit.plan.pipeline.training",
    "world": "hpckit.comm.mesh",
    "write_schedule": "hpckit.plan.pipeline.table",
    "zero_gradient": "hpckit.grid.boundary_conditions",
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
