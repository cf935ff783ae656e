"""Training on a mesh: data parallelism, pipelines, and which samples a rank takes."""

from hpckit import loaded_on_use

_HOMES = {
    "ColumnParallel": "hpckit.training.tensor.linear",
    "DataParallel": "hpckit.training.data",
    "LocalSGD": "hpckit.training.averaging.gossip",
    "LossScale": "hpckit.training.precision",
    "MixedPrecision": "hpckit.training.precision",
    "ParameterServer": "hpckit.training.averaging.parameter_server",
    "Pipeline": "hpckit.training.pipeline.pipeline",
    "RowParallel": "hpckit.training.tensor.linear",
    "Sampler": "hpckit.training.sampler",
    "gossip": "hpckit.training.averaging.gossip",
    "measure_layers": "hpckit.training.pipeline.stage",
    "mixed": "hpckit.training.precision",
    "parameter_server": "hpckit.training.averaging.server",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
