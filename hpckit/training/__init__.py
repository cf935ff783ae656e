"""Training on a mesh: data parallelism, pipelines, and which samples a rank takes."""

from hpckit import loaded_on_use

_HOMES = {
    "LocalSGD": "hpckit.training.averaging.gossip",
    "ParameterServer": "hpckit.training.averaging.parameter_server",
    "gossip": "hpckit.training.averaging.gossip",
    "measure_layers": "hpckit.training.measure",
    "parameter_server": "hpckit.training.averaging.server",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
