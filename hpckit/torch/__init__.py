"""PyTorch's modules on hpckit's meshes, over plain MPI: data parallel, sharded, tensor parallel, pipelined.

Needs the extra `torch`. Nothing else in hpckit imports PyTorch, and nothing here is loaded before it is used.
"""

from hpckit import loaded_on_use
from hpckit.errors import SetupError

_HOMES = {
    "ColumnParallelLinear": "hpckit.torch.linear",
    "DistributedDataParallel": "hpckit.torch.data",
    "FullyShardedDataParallel": "hpckit.torch.sharded",
    "ActivationMoves": "hpckit.torch.linear",
    "PipelineStage": "hpckit.torch.pipeline",
    "RowParallelLinear": "hpckit.torch.linear",
    "SyncBatchNorm": "hpckit.torch.norm",
    "ZeroRedundancyOptimizer": "hpckit.torch.optimizer",
    "bound_threads": "hpckit.torch.tensors",
}
__all__ = list(_HOMES)
_get, __dir__ = loaded_on_use(__name__, _HOMES)


def __getattr__(name: str) -> object:
    try:
        return _get(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise SetupError(
            "PyTorch is not installed, and hpckit.torch runs its modules", do="pip install 'hpckit[torch]'"
        ) from None
