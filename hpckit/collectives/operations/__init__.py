"""The collective operations: arguments are checked, an algorithm is chosen, and a `Request` is started.

All take C-contiguous NumPy or CuPy arrays of any shape, seen as flat: counts and blocks are in elements. `mesh_axis` is
`mesh["x"]`, a mesh for all its ranks, or any communicator. Every rank calls the same operations in the same order. What
is wrong with the arguments raises `InputError` before any message leaves.

Each has a form that only makes the request, `all_reduce_init` and so on, for programs that keep it and start it again
and again with the same buffers: arguments are checked and an algorithm is chosen once.
"""

from hpckit.collectives.operations.movements import (
    all_gather,
    all_gather_init,
    all_to_all,
    all_to_all_init,
    broadcast,
    broadcast_init,
    gather,
    scatter,
)
from hpckit.collectives.operations.reductions import (
    all_reduce,
    all_reduce_init,
    reduce,
    reduce_scatter,
    reduce_scatter_init,
)

__all__ = [
    "all_gather",
    "all_gather_init",
    "all_reduce",
    "all_reduce_init",
    "all_to_all",
    "all_to_all_init",
    "broadcast",
    "broadcast_init",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_init",
    "scatter",
]
