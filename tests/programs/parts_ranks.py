"""Fixed parts: losses, norms, gradients and values have the bits of one rank on every mesh, with every stage of shards.

`parts_ranks.py`: every dp x pp x tp of the ranks and every stage, in float32, float64 and bfloat16, ten steps of AdamW;
each is told when it is done, and how many at the end.
`parts_ranks.py few`: only some of the meshes. `parts_ranks.py from 40`: from the 40th case on, after a break.
"""

import functools
import sys

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.nn.feedforward import mlp
from hpckit.nn.gpt import gpt2, llama
from hpckit.nn.layer import Pass
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW, clip_scale
from hpckit.plan.pipeline.parts import group_fault

WORLD = MPI.COMM_WORLD
DEPTH = max(WORLD.size, 3)  # stages of a pipeline, at most
SAMPLES, BATCH = 29, 13  # parts of 2 and of 1 sample; then of 1 and of none in the last batch, which has 3
WORDS = np.random.default_rng(3).integers(0, 17, (SAMPLES, 6)).astype(np.int32)
LONG = np.random.default_rng(5).integers(0, 17, (SAMPLES, 33)).astype(np.int32)  # parts that go through layers together
PICTURES = np.random.default_rng(4).standard_normal((SAMPLES, 7))


def model_of(kind):
    if kind == "deep":  # a stage for each of 8 ranks, a part of each layer for each of 8, too
        return gpt2(21, DEPTH - 2, 16, 8, 5, tied=True, dropout=0.1, hidden=24), CrossEntropy(17, 21)
    if kind == "deep_llama":
        return llama(17, DEPTH - 2, 32, 16, 8, 24, 5, attention_dropout=0.1, recompute="attention"), CrossEntropy(17)
    if kind == "long":
        return gpt2(24, 1, 128, 2, 32, tied=True, dropout=0.1), CrossEntropy(17, 24)
    if kind == "mlp":
        return mlp([7, 20, 30, 20, 5]), CrossEntropy(5)
    if kind == "eight":  # parts of a layer: vocabulary, padding and tokens that do not divide
        return gpt2(21, 2, 40, 8, 5, tied=True, dropout=0.1, hidden=48), CrossEntropy(17, 21)
    if kind == "eight_llama":
        return llama(17, 2, 32, 16, 8, 48, 5, attention_dropout=0.1, recompute=True), CrossEntropy(17)
    if kind == "llama":
        return llama(17, 4, 32, 4, 2, 48, 5), CrossEntropy(17)
    return gpt2(24, 4, 32, 2, 5, tied=kind == "tied", dropout=0.1), CrossEntropy(17, 24)


def trained(
    comm,
    kind,
    dtype,
    *,
    dp=1,
    pp=1,
    tp=1,
    stage=0,
    schedule="1f1b",
    parts=8,
    layer_parts=0,
    group=0,
    steps=3,
    chunks=1,
    short="",
):
    """Losses and norms of the steps, gradients of the first, and the values of this rank's stages after the last."""
    model, loss = model_of(kind)
    of_rank = len(model.layers) if schedule == "looped_bfs" else None
    plan = hp.plan.training_plan(
        comm.size, len(model.layers), batch=BATCH, dp=dp, pp=pp, tp=tp, parts=parts, schedule=schedule,
        chunks=of_rank, tied=kind in ("tied", "eight", "deep", "long"), layer_parts=layer_parts,
    )  # fmt: skip
    with hp.Mesh(comm, dp=dp, pp=pp, tp=tp) as mesh:
        it = hp.training.Pipeline(
            mesh, model, loss, plan, dtype=dtype, sharding=stage, shard_group=group, tensor_chunks=chunks,
            gradients=short,
        )  # fmt: skip
        it.initialize(3)
        optimizer, told, grads = AdamW(it.parameters), [], {}
        sampler = hp.training.Sampler(SAMPLES, BATCH, shuffle=False)
        for step in range(steps):
            share = sampler.take(mesh["dp"].rank, dp, parts)
            it.zero_grads()
            if kind == "mlp":
                own = PICTURES[share.indices].astype(dtype), WORDS[share.indices, 0] % 5
            else:
                words = LONG if kind == "long" else WORDS
                own = words[share.indices, :-1], words[share.indices, 1:]
            result = it.run(*own, Pass(step=step, seed=1, first_sample=share.first_sample))
            squared = it.squared_norm()
            if step == 0 and stage == 0:
                grads = {p.name: p.grad.copy() for p in it.parameters.list}
            optimizer.step(1e-2, clip_scale(squared, 0.05))
            told.append((result.loss, squared))
        it.check()
        values = {}
        for number in plan.stages_of(mesh["pp"].rank):
            it.need(number)
            for layer in plan.partition.layers(number):
                own = it.model.layers[layer].parameters()
                values |= {p.name: (p.value if p.stored is None else p.stored).copy() for p in own}
        return told, grads, values


@functools.cache
def serial(kind, dtype, **how):
    return trained(MPI.COMM_SELF, kind, dtype, **how)


def same(kind, dtype, reference=None, **how):
    alone = {name: value for name, value in how.items() if name in ("parts", "layer_parts", "steps", "chunks", "short")}
    wanted, *arrays = reference or serial(kind, dtype, **alone)
    told, *found = trained(WORLD, kind, dtype, **how)
    assert told == wanted, (kind, dtype, how, told, wanted)
    for what, mine, every in zip(("gradient", "value"), found, arrays, strict=True):
        for name, value in mine.items():
            worst = np.abs(value.astype(float) - every[name]).max()
            assert np.array_equal(value, every[name]), (kind, dtype, how, what, name, worst)


def every_mesh(size):
    """All ways of so many ranks: dp x pp x tp, and what replicas hold in shards; with schedules that take turns."""
    for dp in range(1, size + 1):
        for pp in range(1, size // dp + 1):
            if size % (dp * pp) == 0:
                for stage in range(4) if dp > 1 else (0,):
                    yield {"dp": dp, "pp": pp, "tp": size // (dp * pp), "stage": stage}
                for group in [n for n in range(2, dp) if dp % n == 0 and not group_fault(n, dp, 8)[0]]:
                    yield {"dp": dp, "pp": pp, "tp": size // (dp * pp), "stage": 1 + pp % 3, "group": group}


f4, f8 = np.float32, np.float64
cases = {
    2: [
        ("tied", f8, {"pp": 2, "schedule": "zb_v"}),
        ("llama", f4, {"dp": 2, "stage": 3, "schedule": "looped_bfs"}),
        ("eight", "bfloat16", {"tp": 2, "layer_parts": 8}),
        ("eight", f4, {"tp": 2, "layer_parts": 8}),
        ("tied", f4, {"dp": 2}),
        ("mlp", f8, {"dp": 2, "stage": 1, "parts": 4}),
        ("long", f4, {"pp": 2}),
        ("eight_llama", f8, {"tp": 2, "layer_parts": 4, "parts": 2}),
    ],
    3: [
        ("tied", f4, {"dp": 3}),
        ("gpt2", f8, {"dp": 3, "stage": 2}),
        ("long", f4, {"dp": 3, "stage": 1}),
        ("deep", "bfloat16", {"tp": 3, "layer_parts": 8, "chunks": 2}),  # ranks without tokens
        ("deep", "bfloat16", {"dp": 3, "stage": 3, "schedule": "looped_bfs", "short": "bfloat16"}),
    ],
    4: [
        ("tied", f4, {"dp": 2, "pp": 2, "schedule": "zb_h1"}),
        ("tied", f8, {"dp": 4, "stage": 3, "schedule": "looped_bfs"}),
        ("eight_llama", f4, {"tp": 2, "dp": 2, "stage": 2, "layer_parts": 4}),
        ("deep_llama", "float16", {"tp": 2, "dp": 2, "stage": 1, "layer_parts": 8, "short": "float16"}),
        ("deep", f4, {"pp": 2, "dp": 2, "stage": 2, "short": "bfloat16"}),
        ("tied", f4, {"dp": 4, "stage": 3, "group": 2, "short": "bfloat16"}),
    ],
    8: [
        ("deep_llama", f4, {"dp": 2, "tp": 2, "pp": 2, "stage": 1, "layer_parts": 8, "short": "bfloat16"}),
        ("deep", f4, {"dp": 4, "tp": 2, "stage": 2, "group": 2, "layer_parts": 8, "short": "bfloat16"}),
    ],
}
few = sys.argv[1:2] == ["few"]
first = int(sys.argv[2]) if sys.argv[1:2] == ["from"] else 1
for kind, dtype, how in cases.get(WORLD.size, []) if first == 1 else ():
    same(kind, dtype, **how)
walked = 0
if not few:
    kinds = [("deep", f4), ("deep_llama", f8), ("deep", "bfloat16")]
    fixed = {kind: {"layer_parts": 8, "steps": 10, "chunks": 2 if kind == "deep_llama" else 1} for kind, _ in kinds}
    mine = [serial(*each, **fixed[each[0]]) if n % WORLD.size == WORLD.rank else None for n, each in enumerate(kinds)]
    references = [WORLD.bcast(each, n % WORLD.size) for n, each in enumerate(mine)]
    for number, how in enumerate(every_mesh(WORLD.size)):
        orders = ["looped_bfs"] if how["pp"] == 1 and how["stage"] > 1 else ["1f1b", "zb_h1", "gpipe", "zb_v"]
        how["schedule"] = orders[number % len(orders) if 2 * how["pp"] <= DEPTH else 0]  # zb_v has two stages a rank
        for (kind, dtype), wanted in zip(kinds, references, strict=True):
            walked += 1
            if walked < first:
                continue
            same(kind, dtype, wanted, **how, **fixed[kind])
            if WORLD.rank == 0:
                print(WORLD.size, walked, kind, dtype, how, flush=True)
if WORLD.size == 4 and not few:  # with tp the bits are those of tp alone
    pair = WORLD.Split(WORLD.rank // 2)
    wanted, _, every = trained(pair, "tied", f8, tp=2)
    for how in ({"dp": 2}, {"pp": 2}, {"dp": 2, "stage": 2}):
        told, _, values = trained(WORLD, "tied", f8, tp=2, **how)
        assert told == wanted, (how, told, wanted)
        assert all(np.array_equal(value, every[name]) for name, value in values.items()), how
    pair.Free()
if WORLD.size == 2:  # work arrays of more than 64 KB come from kept memory
    model, text = gpt2(300, 1, 256, 4, 64), np.random.default_rng(5).integers(0, 300, (4, 65))
    plan = hp.plan.training_plan(2, len(model.layers), batch=4, tp=2, tied=True)
    with hp.Mesh(WORLD, dp=1, pp=1, tp=2) as mesh:
        it = hp.training.Pipeline(mesh, model, CrossEntropy(300), plan)
        it.initialize(3)
        assert abs(it.run(text[:, :-1], text[:, 1:]).loss - np.log(300)) < 0.5
if WORLD.rank == 0:
    print("good", walked)
