"""Experts on several ranks: losses, norms, gradients and values are those of one rank, on every mesh.

`expert_ranks.py few`: only some of the meshes; `expert_ranks.py 2`: only the third; `expert_ranks.py nodes`: as if two
ranks shared a node.
"""

import sys

import numpy as np
from mpi4py import MPI

import hpckit as hp
import hpckit.collectives.axis as axes
from hpckit.comm.shared import group
from hpckit.nn.gpt import llama
from hpckit.nn.layer import Pass
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW, clip_scale
from hpckit.training.experts.model import experts_of
from hpckit.training.experts.way import OverNodes

WORLD = MPI.COMM_WORLD
SAMPLES, BATCH = 27, 12
SPLIT = "dp", "pp", "cp", "tp", "ep", "etp", "stage", "schedule"  # what changes no result
WORDS = np.random.default_rng(3).integers(0, 17, (SAMPLES, 6)).astype(np.int32)


def trained(
    comm,
    dtype,
    *,
    dp=1,
    pp=1,
    cp=1,
    tp=1,
    ep=1,
    etp=1,
    stage=0,
    schedule="1f1b",
    parts=0,
    microbatches=1,
    bias=0,
    short="",
    **more,
):
    """Losses and norms of three steps; gradients of the last one, and the values after it, of this rank."""
    made = {"experts": 5, "top_k": 2, "balance": 0.3, "router_z": 0.1} | more
    model = llama(17, 2, 24, 4, 2, 20, 5, **made)
    chunks = len(model.layers) if schedule == "looped_bfs" else None
    plan = hp.plan.training_plan(
        comm.size, len(model.layers), batch=BATCH, dp=dp, pp=pp, cp=cp, tp=tp, ep=ep, etp=etp, parts=parts,
        schedule=schedule, chunks=chunks, microbatches=microbatches,
    )  # fmt: skip
    inner = {name: size for name, size in (("cp", cp), ("tp", tp)) if size > 1}
    with hp.Mesh(comm, dp=dp, pp=pp, **inner) as mesh:
        it = hp.training.Pipeline(mesh, model, CrossEntropy(17), plan, dtype=dtype, sharding=stage, gradients=short)
        if ep > 2:
            two = {type(part.way(np.zeros(part.experts, int))) is OverNodes for part in it.experts().values()}
            assert two <= {sys.argv[1:2] == ["nodes"]}  # a stage may have no experts
        it.initialize(3)
        routers = [p for p in it.parameters.list if bias and p.origin.endswith("router.weight")]
        optimizer, told = AdamW(it.parameters), []
        sampler = hp.training.Sampler(SAMPLES, BATCH, shuffle=False)
        for step in range(3):  # the last batch has 3 samples: replicas of 1 and of none
            share = sampler.take(mesh["dp"].rank, dp, parts)
            for p in routers:  # at each step, or rounding would choose among experts that nobody chose in the first
                it.parameters.set_value(p, 0.0)  # all tokens choose the same experts
            it.parameters.updated()
            it.zero_grads()
            own = WORDS[share.indices, :-1], WORDS[share.indices, 1:]
            result = it.run(*own, Pass(step=step, seed=1, first_sample=share.first_sample))
            squared = it.squared_norm()
            optimizer.step(1e-2, clip_scale(squared, 0.05))
            told.append((result.loss, squared))
        it.check()
        values = {}
        for number in plan.stages_of(mesh["pp"].rank):
            it.need(number)
            for layer in plan.partition.layers(number):
                for p in it.model.layers[layer].parameters():
                    held = [p.value if p.stored is None else p.stored]
                    held += [p.grad] if stage < 1 else []
                    values[p.name] = [(p, array.copy()) for array in held]
                for part in experts_of(it.model.layers[layer]):
                    values[part.name] = [(None, part.shares.copy())]
        return told, values


def same(dtype, **how):
    alone = {name: value for name, value in how.items() if name not in SPLIT}
    wanted, every = trained(MPI.COMM_SELF, dtype, **alone)
    told, values = trained(WORLD, dtype, **how)
    exact = bool(how.get("parts"))
    assert told == wanted if exact else np.allclose(told, wanted, rtol=1e-12, atol=0), (dtype, how, told, wanted)
    for name, held in values.items():
        for (p, found), (_, whole) in zip(held, every[name.partition("#")[0]], strict=False):
            expected = whole if p is None else p.own(whole)
            close = np.array_equal(found, expected) if exact else np.allclose(found, expected, rtol=0, atol=1e-12)
            assert close, (dtype, how, name, np.abs(found - expected).max())


f4, f8 = np.float32, np.float64
cases = {
    2: [
        (f4, {"dp": 2, "ep": 2, "parts": 8}),
        (f8, {"dp": 2, "ep": 2, "microbatches": 2, "shared": 8, "capacity": 0.6}),
        (f8, {"dp": 2, "ep": 2, "bias": 1, "top_k": 1, "parts": 2}),
        (f8, {"dp": 1, "tp": 2, "ep": 2}),
        (f4, {"dp": 2, "ep": 2, "parts": 4, "stage": 2, "schedule": "looped_bfs", "short": "bfloat16"}),
        ("bfloat16", {"dp": 2, "ep": 2, "parts": 8}),
        (f8, {"dp": 2, "parts": 8}),
        (f8, {"tp": 2, "capacity": 0.7}),
        (f8, {"cp": 2, "ep": 2, "capacity": 0.6}),
        (f8, {"tp": 2, "etp": 2, "shared": 4}),
    ],
    3: [
        (f4, {"dp": 3, "ep": 3, "parts": 4, "bias": 1}),
        (f8, {"dp": 3, "ep": 3, "recompute": True}),
    ],
    4: [
        (f4, {"dp": 4, "ep": 2, "parts": 8}),
        (f4, {"dp": 2, "pp": 2, "ep": 2, "parts": 8, "schedule": "interleaved_zb"}),
        (f8, {"dp": 2, "tp": 2, "ep": 4, "shared": 4}),
        (f8, {"dp": 2, "tp": 2, "ep": 2, "stage": 1}),
        (f4, {"dp": 4, "ep": 4, "parts": 8, "stage": 3}),
        (f4, {"dp": 4, "ep": 2, "parts": 4, "stage": 3, "schedule": "looped_bfs", "short": "bfloat16"}),
        (f8, {"cp": 2, "tp": 2, "ep": 4, "capacity": 0.7, "microbatches": 2, "recompute": True}),
        (f8, {"dp": 2, "tp": 2, "ep": 2, "etp": 2, "capacity": 0.9, "microbatches": 2}),
        (f8, {"dp": 2, "pp": 2, "etp": 2, "stage": 3, "schedule": "zb_h1", "microbatches": 2}),
        (f8, {"dp": 2, "pp": 2, "ep": 2, "shared": 4, "schedule": "dualpipe_v", "microbatches": 3}),
    ],
    6: [
        (f8, {"dp": 6, "ep": 3}),
        (f8, {"dp": 3, "pp": 2, "ep": 3, "schedule": "zb_v", "microbatches": 4}),
        (f4, {"dp": 3, "pp": 2, "ep": 3, "parts": 8}),
    ],
    8: [
        (f8, {"dp": 2, "pp": 2, "tp": 2, "ep": 4, "schedule": "zb_h1"}),
        (f4, {"dp": 8, "ep": 4, "parts": 8, "stage": 2, "short": "bfloat16"}),
        (f4, {"dp": 4, "pp": 2, "ep": 2, "parts": 8}),
        (f8, {"dp": 4, "tp": 2, "ep": 4, "stage": 3}),
        (f8, {"dp": 2, "cp": 2, "tp": 2, "ep": 2, "etp": 2, "bias": 1}),
    ],
}
cases["nodes"] = [
    (f4, {"dp": 4, "ep": 4, "parts": 8, "top_k": 3, "capacity": 0.7}),
    (f8, {"dp": 4, "ep": 4, "top_k": 3}),
    (f8, {"dp": 2, "tp": 2, "ep": 4, "experts": 7}),
]
given, own = sys.argv[1:], cases[WORLD.size]
if given[:1] == ["nodes"]:  # as if two ranks shared a node
    group._split_by_node = lambda comm: comm if comm.size <= 2 else comm.Split(comm.rank // 2, comm.rank)
    axes._node_size = lambda comm: min(2, comm.size)
    given, own = given[1:], cases["nodes"]
for dtype, how in own[:2] if given == ["few"] else [own[int(given[0])]] if given else own:
    same(dtype, **how)
if WORLD.rank == 0:
    print("good")
