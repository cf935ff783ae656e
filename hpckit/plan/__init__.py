"""Plans: pure values that define the ownership of data and the messages between ranks. No MPI here."""

from hpckit import loaded_on_use

_HOMES = {
    "HaloField": "hpckit.plan.grid.halo",
    "Layout": "hpckit.plan.tensors.layout",
    "PanelPlan": "hpckit.plan.grid.panels",
    "Partial": "hpckit.plan.tensors.layout",
    "Replicate": "hpckit.plan.tensors.layout",
    "Shard": "hpckit.plan.tensors.layout",
    "StageTimes": "hpckit.plan.pipeline.times",
    "add_algorithm": "hpckit.plan.collective.algorithms",
    "collective_plan": "hpckit.plan.collective.algorithms",
    "draw_schedule": "hpckit.plan.pipeline.draw",
    "draw_schedule_svg": "hpckit.plan.pipeline.draw",
    "draw_svg": "hpckit.plan.drawing",
    "fourier_plan": "hpckit.plan.tensors.fourier",
    "gossip_plan": "hpckit.plan.collective.gossip",
    "halo_plan": "hpckit.plan.grid.halo",
    "machine_of": "hpckit.plan.machine.machine",
    "md_plans": "hpckit.plan.particles.uniform",
    "matmul_layout": "hpckit.plan.tensors.layout",
    "partition_layers": "hpckit.plan.pipeline.partition",
    "pipeline_program": "hpckit.plan.pipeline.program",
    "pipeline_schedule": "hpckit.plan.pipeline.schedules",
    "price_schedule": "hpckit.plan.pipeline.price",
    "read_schedule": "hpckit.plan.pipeline.table",
    "redistribution": "hpckit.plan.tensors.redistribution",
    "spectral_gap": "hpckit.plan.collective.gossip",
    "training_plan": "hpckit.plan.pipeline.training",
    "transposed": "hpckit.plan.protocol",
    "write_schedule": "hpckit.plan.pipeline.table",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
