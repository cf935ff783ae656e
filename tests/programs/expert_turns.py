"""Messages to experts fly behind the other one of two microbatches: their order on a rank, and the bits of a step.

`expert_turns.py 2`: only the third case.
"""

import sys
from time import perf_counter

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.comm.observe.observer import Listener
from hpckit.nn.gpt import llama
from hpckit.nn.layer import Pass
from hpckit.nn.loss import CrossEntropy

WORLD = MPI.COMM_WORLD
BATCH = 16
WORDS = np.random.default_rng(3).integers(0, 17, (BATCH, 6)).astype(np.int32)


class Heard(Listener):
    """When messages to experts were posted and waited for, and when passes took their turns, s."""

    def __init__(self):
        self.messages, self.turns = [], []

    def begun(self, operation):
        if isinstance(operation.name, tuple) and str(operation.dtype) == "float32":
            self.messages.append([perf_counter(), 0.0])
            return self.messages[-1]
        return None

    def waits(self, operation, note):
        if note is not None:
            note[1] = perf_counter()

    def acted(self, name, begin, end):
        self.turns.append((begin, end))

    def hidden(self):
        """Messages between whose posting and whose wait the rank took a turn."""
        return sum(
            any(posted <= begin and end <= waited for begin, end in self.turns) for posted, waited in self.messages
        )


def stepped(paired, *, dtype=np.float32, stage=0, recompute=False, capacity=0.0, **split):
    """Loss, norm and gradients or values of a rank after a step, the plan's pairs of this rank, and what was heard."""
    model = llama(17, 4, 24, 4, 2, 20, 5, experts=4, top_k=2, shared=8, recompute=recompute, capacity=capacity)
    axes = {"dp": 1, "pp": 2, "cp": 1, "tp": 1, "ep": 2, "etp": 1, "microbatches": 4} | split
    plan = hp.plan.training_plan(WORLD.size, len(model.layers), batch=BATCH, paired=paired, **axes)
    with hp.Mesh(WORLD, **plan.mesh) as mesh:
        pipeline = hp.training.Pipeline(
            mesh, model, CrossEntropy(17), plan, dtype=dtype, sharding=stage, recompute=recompute
        )
        pipeline.initialize(3)
        heard = Heard()
        mesh.observer.listen(heard)
        own = WORDS[mesh["dp"].rank :: axes["dp"]]
        result = pipeline.run(own[:, :-1], own[:, 1:], Pass(seed=1))
        mesh.observer.forget(heard)
        squared = pipeline.squared_norm()
        grads = [p.grad.copy() for p in pipeline.parameters.list if p.grad is not None and stage < 2]
        rank = mesh["pp"].rank
        return (result.loss, squared, grads), plan.together(rank), heard, rank > 0


def same(one, other):
    return one[:2] == other[:2] and all(np.array_equal(a, b) for a, b in zip(one[2], other[2], strict=True))


CASES = [
    {"dp": 2, "schedule": "dualpipe_v"},
    {"dp": 2, "schedule": "zb_v", "dtype": "bfloat16", "stage": 3},
    {"dp": 2, "schedule": "dualpipe_v", "parts": 8},
    {"tp": 2, "schedule": "dualpipe_v", "recompute": True},
    {"cp": 2, "schedule": "zb_v", "capacity": 0.7},
    {"dp": 2, "schedule": "zb_v", "ep": 1, "etp": 2},
]
for how in [CASES[int(sys.argv[1])]] if sys.argv[1:] else CASES:
    found, pairs, heard, middle = stepped(True, **how)
    apart, none, told, _ = stepped(False, **how)
    assert same(found, apart), (how, found[:2], apart[:2])
    assert pairs
    assert not none
    assert not told.hidden(), how
    # Of each pair a forward pass sends twice in a block, and so does a backward pass; the ends have few blocks.
    assert not middle or heard.hidden() >= 4 * len(pairs), (how, heard.hidden(), len(pairs))
if WORLD.rank == 0:
    print("good")
