"""Mixed precision on a mesh: the bits of one rank under pipelines, those of whole replicas with shards; overflows.

`mixed_ranks.py brief`: one of the two kinds of 16 bits, in one node.
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
from hpckit.nn.gpt import gpt2
from hpckit.nn.layer import Pass
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW, clip_scale
from hpckit.training.precision import LossScale

WORLD = MPI.COMM_WORLD
BRIEF = sys.argv[1:] == ["brief"]
SIZE, BATCH = WORLD.size, 24
WORDS = np.random.default_rng(3).integers(0, 17, (BATCH, 6)).astype(np.int32)


def as_nodes_of_one():
    """From now on each rank is a node of its own."""
    group._split_by_node = lambda given: given if given.size == 1 else given.Split(given.rank, 0)
    axes._node_size = lambda given: 1


def trained(kind, comm, dp, pp, schedule, parts, sharding=0, steps=3, tp=1, tree=0, short=""):
    """Losses and norms, hashes of master and rounded values, bytes that this rank holds."""
    whole = gpt2(64, 4, 32, 2, 5, tied=True, dropout=0.1)
    chunks = len(whole.layers) if schedule == "looped_bfs" else None
    plan = hp.plan.training_plan(
        comm.size, len(whole.layers), batch=BATCH, dp=dp, pp=pp, tp=tp, microbatches=1 if tree else parts,
        schedule=schedule, chunks=chunks, tied=True, parts=tree,
    )  # fmt: skip
    with hp.Mesh(comm, dp=dp, pp=pp, tp=tp) as mesh:
        it = hp.training.Pipeline(
            mesh,
            whole,
            CrossEntropy(17, 64),
            plan,
            dtype=kind,
            sharding=sharding,
            recompute=schedule == "zb_h1",
            gradients=short,
        )
        it.initialize(3)
        optimizer, told, scale = AdamW(it.parameters), [], LossScale(2.0**12)
        share = hp.training.Sampler(BATCH, BATCH, shuffle=False).take(mesh["dp"].rank, dp, plan.parts)
        for step in range(steps):
            it.zero_grads()
            own, passing = WORDS[share.indices], Pass(step=step, seed=1, first_sample=share.first_sample)
            result = it.run(own[:, :-1], own[:, 1:], passing, loss_scale=scale.value)
            squared = it.squared_norm() / scale.value**2
            assert scale.update(np.isfinite(squared))
            optimizer.step(1e-2, clip_scale(squared, 0.1) / scale.value)
            told.append((result.loss, squared))
        it.check()
        hashes, model = {}, it.model
        for number in plan.stages_of(mesh["pp"].rank):
            it.need(number)
            for layer in plan.partition.layers(number):
                for p in model.layers[layer].parameters():
                    held = np.ascontiguousarray(p.value if p.stored is None else p.stored)
                    hashes[p.name] = hashlib.sha256(held.tobytes()).hexdigest()
        count = sum(owned.end - owned.start for owned in it.parameters.owned)
        assert optimizer.mean.size == count
        sizes = it.shards.memory()
        assert sizes["masters"] == 4 * count * (kind != "float32")
        if sharding:  # a shard is at most a chunk away from its part, in each unit
            assert count < it.parameters.size / dp + 2048 * len(plan.stages_of(mesh["pp"].rank))
        assert sizes["gradients"] < 4.1 * it.parameters.size + 4.1 * count * (sharding > 1)
        sent = it._own.messages.sent
        assert (
            pp == 1
            or tree
            or all(bytes_ == 2 * BATCH // dp // parts * 5 * 32 for bytes_ in sent if bytes_ != 4 * 64 * 32)
        )
    return told, hashes


def shards_and_stages_change_no_bit(kind):
    whole = trained(kind, WORLD, SIZE, 1, "1f1b", 2)
    for sharding in (1, 2, 3):
        assert trained(kind, WORLD, SIZE, 1, "looped_bfs", 2, sharding) == whole, (kind, sharding)
    alone = trained(kind, MPI.COMM_SELF, 1, 1, "1f1b", 3)
    for schedule in ("1f1b", "zb_h1"):
        told, hashes = trained(kind, WORLD, 1, SIZE, schedule, 3)
        assert told == alone[0], (kind, schedule, told, alone[0])
        assert hashes.items() <= alone[1].items(), (kind, schedule)


def fixed_parts_and_tensor_parallelism(kind):
    """Parts of a batch have the same bits on one replica and on all; tp rounds sums elsewhere, and is as near."""
    alone = trained(kind, MPI.COMM_SELF, 1, 1, "1f1b", 1, tree=4)
    for sharding in (0, 2):
        told, hashes = trained(kind, WORLD, SIZE, 1, "1f1b", 1, sharding, tree=4)
        assert (told, hashes) == alone, (kind, sharding, told, alone[0])
    if SIZE == 2:
        told, _ = trained(kind, WORLD, 1, 1, "1f1b", 2, tp=2)
        wanted, _ = trained(kind, MPI.COMM_SELF, 1, 1, "1f1b", 2)
        unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[kind]
        assert np.abs(np.array(told) / wanted - 1).max() < 8 * unit, (told, wanted)


def gradients_in_16_bits_have_their_own_bits_at_every_stage(kind, short):
    """Rounded, added in float32, rounded: alike at every stage; as parts at each node, so that one rank has them."""
    whole = trained(kind, WORLD, SIZE, 1, "1f1b", 2, short=short)
    exact = trained(kind, WORLD, SIZE, 1, "1f1b", 2)[0]
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[short]
    apart = np.abs(np.array(whole[0]) / exact - 1)  # losses and norms; later norms are those of other values
    assert apart[0, 0] == 0
    assert SIZE == 1 or 0 < apart[0, 1] < unit, (whole[0], exact)
    assert apart[:, 0].max() < unit, (whole[0], exact)
    for sharding in (1, 2, 3):
        assert trained(kind, WORLD, SIZE, 1, "looped_bfs", 2, sharding, short=short) == whole, (kind, sharding)
    alone = trained(kind, MPI.COMM_SELF, 1, 1, "1f1b", 1, tree=4, short=short)
    for sharding in (0, 1, 2, 3):
        assert trained(kind, WORLD, SIZE, 1, "1f1b", 1, sharding, tree=4, short=short) == alone, (kind, sharding)


def sums_are_those_of_rounded_gradients(short, sharding):
    """Against a sum by NumPy of what each replica has; with float32 numbers elsewhere."""
    x, targets = np.random.default_rng(1).standard_normal((2 * SIZE, 7)).astype(np.float32), np.arange(2 * SIZE) % 5
    data, loss = (
        hp.training.DataParallel(WORLD, mlp([7, 300, 300, 5]), sharding=sharding, gradients=short),
        CrossEntropy(5),
    )
    data.initialize(3)
    own = slice(2 * WORLD.rank, 2 * WORLD.rank + 2)
    data.parameters.zero_grads()
    y, saved = data.forward(x[own])
    with data.no_sync():
        data.backward(saved, loss.backward(loss.forward(y, targets[own])[1], 1 / len(x)))
    every = WORLD.allgather(data.parameters.grads.copy())
    data.skip()
    rounded = np.dtype({"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}[short])
    wanted = np.zeros_like(every[0])
    for each in every:
        wanted += each.astype(rounded).astype(np.float32)
    wanted = wanted.astype(rounded).astype(np.float32) if SIZE > 1 else every[0]
    for part in data.parameters.owned:
        assert np.array_equal(part.grads, wanted[part.start : part.end]), (short, sharding)
    assert data.parameters.size > 1 << 16, "more than one piece is rounded"


def what_cannot_be_is_refused():
    for how in ({"dtype": np.float64, "gradients": "bfloat16"}, {"gradients": "int8"}):
        try:
            hp.training.DataParallel(WORLD, mlp([7, 5]), **how)
        except hp.errors.InputError as error:
            assert error.do
        else:
            raise AssertionError(how)


def an_overflow_on_one_replica_is_skipped_by_all(short):
    """The samples of the last replica have a large weight; the scale that fits them is found by all."""
    x, targets = np.random.default_rng(1).standard_normal((2 * SIZE, 7)).astype(np.float32), np.arange(2 * SIZE) % 5
    weight = 1000 if WORLD.rank == SIZE - 1 else 1
    data, loss = (
        hp.training.DataParallel(WORLD, mlp([7, 50, 60, 5]), dtype="float16", sharding=1, gradients=short),
        CrossEntropy(5),
    )
    data.initialize(3)
    optimizer, scale = AdamW(data.parameters), LossScale(2.0**24, growth=100)
    start, own, skipped = data.parameters.values.copy(), slice(2 * WORLD.rank, 2 * WORLD.rank + 2), []
    alone_fits = []
    for _ in range(22):
        data.parameters.zero_grads()
        y, saved = data.forward(x[own])
        with data.no_sync():
            data.backward(saved, loss.backward(loss.forward(y, targets[own])[1], weight * scale.value / len(x)))
        alone_fits.append(bool(np.isfinite(data.parameters.grads).all()))
        data.skip()  # the sums
        squared = data.squared_norm() / scale.value**2
        used = scale.update(np.isfinite(squared))
        skipped.append(not used)
        if used:
            optimizer.step(1e-3, clip_scale(squared, 1.0) / scale.value)
        elif not any(not each for each in skipped[:-1]):
            assert np.array_equal(data.parameters.values, start)
        data.check()
    every = WORLD.allgather(skipped)
    assert every == [skipped] * SIZE, "all ranks skip alike"
    assert 1 < sum(skipped) < 22, skipped
    assert optimizer.count == 22 - sum(skipped)
    assert not np.array_equal(data.parameters.values, start)
    fits = WORLD.allgather(alone_fits)
    assert SIZE == 1 or any(a != b for a, b in zip(fits[0], fits[-1], strict=True)), "one replica overflows alone"


for kind in ("bfloat16",) if BRIEF else ("bfloat16", "float16"):
    shards_and_stages_change_no_bit(kind)
    fixed_parts_and_tensor_parallelism(kind)
if not BRIEF:
    an_overflow_on_one_replica_is_skipped_by_all("")
an_overflow_on_one_replica_is_skipped_by_all("float16")
what_cannot_be_is_refused()
for nodes in (False,) if BRIEF else (False, True):
    if nodes:
        as_nodes_of_one()
        shards_and_stages_change_no_bit("bfloat16")
    gradients_in_16_bits_have_their_own_bits_at_every_stage(
        *(("float32", "bfloat16") if nodes else ("float16", "float16"))
    )
    for sharding in (0, 1):
        sums_are_those_of_rounded_gradients("bfloat16", sharding)
        sums_are_those_of_rounded_gradients("float16", sharding)
if WORLD.rank == 0:
    print("good")
