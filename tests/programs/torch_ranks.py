"""The cases of programs for PyTorch, one after the other in one job: python torch_ranks.py torch_data torch_sharded.

With `apart` every rank takes itself for a node, so that all goes by messages.
"""

import importlib
import sys
import types

import torch

import hpckit as hp
import hpckit.collectives.axis as axes
from hpckit.comm.shared import group


def leave_out_the_compiler():
    """Optimizers load PyTorch's compiler, 4 s of each process, to tell it that it need not look at them."""
    absent = types.ModuleType("torch._dynamo")
    absent.disable = lambda function=None, *_, **__: function
    absent.graph_break = lambda: None
    absent.config = types.SimpleNamespace(error_on_nested_fx_trace=False)
    sys.modules["torch._dynamo"] = absent


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "torch_transformers" not in sys.argv:
        leave_out_the_compiler()
    if "apart" in sys.argv:
        group._split_by_node = lambda given: given if given.size == 1 else given.Split(given.rank)
        axes._node_size = lambda given: 1
    for name in sys.argv[1:]:
        for case in importlib.import_module(name).CASES if name != "apart" else ():
            case()
            hp.print_root(name, case.__name__, "done")
