"""Collective operations on the ranks of a mesh axis: plans that run, in shared memory where the ranks share a node."""

from hpckit.collectives.gossip import LocalSGD, gossip
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
from hpckit.collectives.parameter_server import ParameterServer
from hpckit.collectives.work import Work

__all__ = [
    "LocalSGD",
    "ParameterServer",
    "Work",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "gather",
    "gossip",
    "reduce",
    "reduce_scatter",
    "scatter",
]
