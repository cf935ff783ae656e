"""Collective operations on the ranks of a mesh axis: plans that run, in shared memory where the ranks share a node."""

from hpckit.collectives.operations import (
    all_gather,
    all_gather_init,
    all_reduce,
    all_reduce_init,
    all_to_all,
    all_to_all_init,
    broadcast,
    broadcast_init,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_init,
    scatter,
)
from hpckit.collectives.request import Request

__all__ = [
    "Request",
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
