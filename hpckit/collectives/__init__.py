"""Collective operations on the ranks of a mesh axis: plans that run, in shared memory where the ranks share a node."""

from hpckit.collectives.operations import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from hpckit.collectives.work import Work

__all__ = [
    "Work",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]
