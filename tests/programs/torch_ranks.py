"""The cases of programs for PyTorch, one after the other in one job: python torch_ranks.py torch_data torch_sharded.

With `apart` every rank takes itself for a node, so that all goes by messages.
"""

import importlib
import sys

import torch

import hpckit as hp
import hpckit.collectives.axis as axes
from hpckit.comm.shared import group

if __name__ == "__main__":
    torch.set_num_threads(1)
    if "apart" in sys.argv:
        group._split_by_node = lambda given: given if given.size == 1 else given.Split(given.rank)
        axes._node_size = lambda given: 1
    for name in sys.argv[1:]:
        for case in importlib.import_module(name).CASES if name != "apart" else ():
            case()
            hp.print_root(name, case.__name__, "done")
