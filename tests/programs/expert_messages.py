"""What the ranks of ep and etp send in a training step, beside what the planner says of it: to the byte.

Each token takes all experts, so that they are used evenly, as the planner counts them.
"""

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.nn.gpt import llama
from hpckit.nn.loss import CrossEntropy
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.training.model import ExpertSizes, LanguageModel
from hpckit.plan.training.step import TrainingStep
from hpckit.plan.training.strategy import SINGLE, Strategy
from hpckit.plan.training.traffic import traffic
from hpckit.training.experts import way

WORLD = MPI.COMM_WORLD
LAYERS, WIDTH, EXPERTS, LENGTH, BATCH = 2, 24, 4, 6, 4
MODEL = LanguageModel(
    "small", LAYERS, WIDTH, 4, 2, 20, 17, LENGTH, head=6, value=6, experts=ExpertSizes(EXPERTS, EXPERTS, 20)
)
sent = {"ep": 0, "etp": 0}


def counted(name, call):
    """The collective, and the bytes of tokens that leave this rank in it."""

    def made(buffer, comm, *rest, counts=None, **more):
        if buffer.dtype.kind == "f":
            own = np.asarray(counts).sum(axis=-1)[comm.rank] if name == "ep" else 0
            kept = np.asarray(counts)[comm.rank]
            if name == "ep":
                sent[name] += int(own - kept[comm.rank]) * buffer.itemsize
            else:  # own rows to all others, or their rows to them
                rows = kept * (comm.size - 1) if call.__name__ == "all_gather" else np.sum(counts) - kept
                sent[name] += int(rows) * buffer.itemsize
        return call(buffer, comm, *rest, counts=counts, **more) if counts is not None else call(buffer, comm, *rest)

    return made


way.all_to_all = counted("ep", way.all_to_all)
way.all_gather = counted("etp", way.all_gather)
way.reduce_scatter = counted("etp", way.reduce_scatter)

words = np.random.default_rng(1).integers(0, 17, (BATCH, LENGTH + 1)).astype(np.int32)
for axes in (
    {"dp": 4, "ep": 4},
    {"dp": 2, "tp": 2, "ep": 2, "etp": 2},
    {"cp": 2, "tp": 2, "etp": 4},
    {"dp": 2, "pp": 2, "etp": 2},
):
    split = {"dp": 1, "pp": 1, "cp": 1, "tp": 1, "ep": 1, "etp": 1} | axes
    plan = hp.plan.training_plan(WORLD.size, LAYERS + 2, batch=BATCH, microbatches=BATCH // split["dp"], **split)
    sent.update(ep=0, etp=0)
    with hp.Mesh(WORLD, **plan.mesh) as mesh:
        model = llama(17, LAYERS, WIDTH, 4, 2, 20, LENGTH, experts=EXPERTS, top_k=EXPERTS)
        pipeline = hp.training.Pipeline(mesh, model, CrossEntropy(17), plan)
        pipeline.initialize(1)
        own = words[mesh["dp"].rank :: split["dp"]]
        pipeline.run(own[:, :-1], own[:, 1:])
    strategy = Strategy(BATCH, LENGTH, **split, precision=SINGLE)
    said = traffic(MODEL, strategy, machine_of("llama3"))
    step = TrainingStep(MODEL, strategy, machine_of("llama3"))
    shape = split["dp"], split["pp"], split["cp"], split["tp"]
    lines = np.arange(step.lines)
    for name in ("ep", "etp"):
        whole = WORLD.allreduce(sent[name])
        planned = (
            BATCH
            // split["dp"]
            * split["pp"]
            * sum(
                len(each.source) * (sum(each.before) + sum(each.after)) for each in step.exchanges if each.axis == name
            )
        )
        assert whole == round(planned) == round((said[name].nbytes if name in said else 0) * WORLD.size), (
            axes,
            name,
            whole,
            planned,
            said.get(name),
        )
if not WORLD.rank:
    print("good")
