"""Sharded replicas on 4 ranks, in one node and in several, have the bits of whole ones: ZeRO-1, -2 and -3.

`sharded_ranks.py brief`: a case of each kind.
"""

import hashlib
import sys

import ml_dtypes
import numpy as np
from mpi4py import MPI

import hpckit as hp
import hpckit.collectives.axis as axes
from hpckit.comm.shared import group
from hpckit.nn.feedforward import mlp
from hpckit.nn.gpt import gpt2, llama
from hpckit.nn.layer import Pass
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import SGD, AdamW, clip_scale

WORLD = MPI.COMM_WORLD
BRIEF = sys.argv[1:] == ["brief"]
BATCH, LIMIT = 24, 0.1
WORDS = np.random.default_rng(3).integers(0, 17, (BATCH, 6)).astype(np.int32)
split_by_node, node_size = group._split_by_node, axes._node_size


def as_nodes_of(count):
    """From now on `count` neighboring ranks share a node; 0: as it is."""
    group._split_by_node, axes._node_size = split_by_node, node_size
    if count:
        group._split_by_node = lambda given: (
            given if given.size <= count else given.Split(given.rank // count, given.rank)
        )
        axes._node_size = lambda given: min(count, given.size)


def trained(stage, dp, pp, schedule, microbatches, tied, kind=AdamW, samples=BATCH, parts=0, group=0, damage=False):
    """Losses, norms, the hashes of all values that this rank uses, and the bytes that it holds."""
    model = gpt2(64, 6, 32, 2, 5, tied=tied, dropout=0.1)
    chunks = len(model.layers) if schedule == "looped_bfs" else None
    plan = hp.plan.training_plan(
        WORLD.size, len(model.layers), batch=BATCH, dp=dp, pp=pp, microbatches=microbatches, schedule=schedule,
        chunks=chunks, tied=tied, parts=parts,
    )  # fmt: skip
    mesh = hp.Mesh(WORLD, dp=dp, pp=pp)
    it = hp.training.Pipeline(mesh, model, CrossEntropy(17, 64), plan, sharding=stage, shard_group=group)
    it.initialize(3)
    optimizer, told = kind(it.parameters), []
    share = hp.training.Sampler(samples, BATCH, shuffle=False).take(mesh["dp"].rank, dp, parts)
    for step in range(2):
        it.zero_grads()
        own = WORDS[share.indices]
        result = it.run(own[:, :-1], own[:, 1:], Pass(step=step, seed=1, first_sample=share.first_sample))
        squared = it.squared_norm()
        assert squared > LIMIT**2, "clipping is tested too"
        optimizer.step(1e-2, clip_scale(squared, LIMIT))
        told.append((result.loss, squared))
    it.check()
    if damage:
        it.parameters.owned[0].values[:1] += WORLD.rank
        try:
            it.check()
        except hp.errors.MismatchError:
            pass
        else:
            raise AssertionError("copies that differ are not found")
    hashes = {}
    for number in plan.stages_of(mesh["pp"].rank):
        it.need(number)
        for layer in plan.partition.layers(number):
            for p in model.layers[layer].parameters():
                hashes[p.name] = hashlib.sha256(np.ascontiguousarray(p.value).tobytes()).hexdigest()
    state = sum(array.nbytes for array in optimizer.state().values() if array.ndim)
    held = {**it.shards.memory(), "optimizer": state, "whole": it.parameters.size * 4}
    mesh.close()
    return told, hashes, held


def stages_have_the_bits_of_whole_replicas():
    cases = [
        ((4, 1, "looped_bfs", 2), True, AdamW, BATCH),
        ((2, 2, "1f1b", 3), True, AdamW, BATCH),
        ((2, 2, "zb_v", 3), True, SGD, 13),
        ((4, 1, "1f1b", 1), False, AdamW, 3),  # a replica has no sample
    ]
    for (dp, pp, schedule, parts), tied, kind, samples in cases[:1] if BRIEF else cases:
        for node in (2,) if BRIEF else (0, 2):
            as_nodes_of(node)
            wanted = trained(0, dp, pp, schedule, parts, tied, kind, samples)[:2]
            for stage in (1, 3) if node else (1, 2, 3):
                told, hashes, held = trained(stage, dp, pp, schedule, parts, tied, kind, samples)
                assert (told, hashes) == wanted, (dp, pp, schedule, tied, node, stage, told, wanted[0])
                if WORLD.rank == 0 and schedule == "looped_bfs" and stage == 3:
                    whole = held["whole"]
                    assert held["optimizer"] < 2 * whole / dp * 1.1, held
                    assert held["gradients"] < whole / dp * 1.1 + whole / 4, held  # a layer's, besides
                    assert held["parameters"] < whole / dp * 1.1 + (node > 0) * whole, held
    as_nodes_of(0)


def groups_have_the_bits_of_whole_replicas():
    """Two groups of two replicas, each on a node: with fixed parts sums over groups are those of all replicas."""
    as_nodes_of(2)
    wanted = trained(0, 4, 1, "looped_bfs", 1, True, parts=4)[:2]
    for stage in (2,) if BRIEF else (1, 2, 3):
        told, hashes, held = trained(stage, 4, 1, "looped_bfs", 1, True, parts=4, group=2)
        assert (told, hashes) == wanted, (stage, told, wanted[0])
        part = held["whole"] / 2
        assert abs(held["optimizer"] - 2 * part) < 0.1 * part, held
        assert abs(held["parameters"] - part) < 0.1 * part, held
    trained(3, 4, 1, "looped_bfs", 1, True, parts=4, group=2, damage=True)
    if not BRIEF:
        as_nodes_of(1)  # groups over nodes, in order: to rounding
        told, _, held = trained(3, 4, 1, "looped_bfs", 2, True, group=2)
        assert np.allclose(told, wanted[0], rtol=1e-5), (told, wanted[0])
    for wrong, how in ((3, {}), (2, {"stage": 0})):
        try:
            trained(how.get("stage", 1), 4, 1, "1f1b", 1, True, group=wrong)
        except hp.errors.InputError as error:
            assert error.do
        else:
            raise AssertionError((wrong, how))
    as_nodes_of(0)


def data_parallel_shards_the_optimizer():
    x, targets = np.random.default_rng(1).standard_normal((8, 7)).astype(np.float32), np.arange(8) % 5
    found = []
    for sharding, bucket in ((0, None), (1, 6000)) if BRIEF else ((0, None), (1, None), (1, 0), (1, 6000)):
        data, loss = (
            hp.training.DataParallel(WORLD, mlp([7, 50, 60, 5]), sharding=sharding, bucket_bytes=bucket),
            CrossEntropy(5),
        )
        data.initialize(3)
        optimizer = AdamW(data.parameters)
        own = slice(2 * WORLD.rank, 2 * WORLD.rank + 2)
        for _ in range(3):
            data.parameters.zero_grads()
            y, saved = data.forward(x[own])
            data.backward(saved, loss.backward(loss.forward(y, targets[own])[1], 1 / 8))
            optimizer.step(1e-2, clip_scale(data.squared_norm(), LIMIT))
        data.check()
        found.append([p.value.tobytes() for p in data.parameters.list])
        assert found[-1] == found[0], (sharding, bucket)
    assert WORLD.allreduce(optimizer.mean.size) == data.parameters.size


def gradients_in_16_bits_are_sums_of_rounded_ones(short, *, stage=0, group=0, ep=1, **sizes):
    """Against NumPy's sum of what each replica has of its own samples, of experts over their own replicas."""
    model = llama(17, 2, 16, 4, 2, 12, 5, experts=4)
    plan = hp.plan.training_plan(WORLD.size, len(model.layers), batch=8, ep=ep, **sizes)
    rounded = np.dtype({"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}[short])

    def added(every):
        total = np.zeros_like(every[0])
        for each in every:
            total += each.astype(rounded).astype(np.float32)
        return total.astype(rounded).astype(np.float32) if len(every) > 1 else total

    with hp.Mesh(WORLD, dp=plan.dp, **{name: size for name, size in sizes.items() if name != "dp"}) as mesh:
        own = slice(8 // plan.dp * mesh["dp"].rank, 8 // plan.dp * (mesh["dp"].rank + 1))
        every = {}
        for how in ({}, {"gradients": short, "sharding": stage, "shard_group": group}):
            it = hp.training.Pipeline(mesh, model, CrossEntropy(17), plan, **how)
            it.initialize(3)
            it.zero_grads()
            it.run(WORDS[own, :-1], WORDS[own, 1:], total=40, sync=bool(how))
            parts = [it.shards] if ep == 1 else [it.shards.common, it.shards.experts]
            for number, shards in enumerate(parts):
                if not how:
                    every[number] = shards.replicas.comm.allgather(shards.parameters.grads)
                    continue
                groups = [every[number][at : at + (group or 64)] for at in range(0, len(every[number]), group or 64)]
                wanted, compared = added([added(each) for each in groups]), 0
                for part in shards.parameters.owned:
                    for p, low, high in parts_in(shards.parameters, part):
                        if not (p.partial and sizes.get("tp")):  # sums over tp come before those over replicas
                            assert np.array_equal(part.grads[low - part.start : high - part.start], wanted[low:high])
                            compared += high - low
                assert compared or not wanted.size


def parts_in(parameters, part):
    """The parameters in an owned part, and the elements of each there."""
    for p in parameters.list:
        first = parameters.offsets[p.name]
        low, high = max(first, part.start), min(first + p.size, part.end)
        if low < high:
            yield p, low, high


stages_have_the_bits_of_whole_replicas()
groups_have_the_bits_of_whole_replicas()
gradients_in_16_bits_are_sums_of_rounded_ones("bfloat16", dp=4, stage=2, group=2)
if not BRIEF:
    gradients_in_16_bits_are_sums_of_rounded_ones("float16", dp=2, cp=2)
    gradients_in_16_bits_are_sums_of_rounded_ones("bfloat16", dp=2, pp=2)
    gradients_in_16_bits_are_sums_of_rounded_ones("bfloat16", dp=2, tp=2)
    gradients_in_16_bits_are_sums_of_rounded_ones("bfloat16", dp=4, ep=2)
data_parallel_shards_the_optimizer()
if WORLD.rank == 0:
    print("good")
