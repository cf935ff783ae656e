"""Tensor-parallel transformers equal the serial model: losses, gradients, norms, parameters after ten steps."""

import sys

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.nn.gpt import gpt2, llama
from hpckit.nn.layer import Pass
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW, clip_scale

WORLD = MPI.COMM_WORLD
VOCAB, LENGTH, LIMIT, STEPS = 29, 7, 0.05, 10  # a vocabulary and tokens that do not divide
WORDS = np.random.default_rng(3).integers(0, VOCAB, (64, LENGTH + 1)).astype(np.int32)


def model_of(kind, heads):
    """Widths: of GPT-2 no multiple of 4 for two heads, so that dropout draws across tokens."""
    if kind == "gpt2":
        return gpt2(31, 3, 5 * heads, heads, LENGTH, dropout=0.1, hidden=6 * heads), CrossEntropy(VOCAB, 31)
    return llama(
        VOCAB, 2, 4 * heads, 2 * heads, heads, 6 * heads, LENGTH, tied=kind == "tied", attention_dropout=0.2,
        recompute=True,
    ), CrossEntropy(VOCAB)  # fmt: skip


def trained(comm, kind, heads, *, pp=1, tp=1, batch=8, samples=24, length=LENGTH, sharding=0, microbatches=1, chunks=1):
    """Losses and norms of the steps, gradients of the first, and the values after the last."""
    model, loss = model_of(kind, heads)
    plan = hp.plan.training_plan(
        comm.size, len(model.layers), batch=batch, pp=pp, tp=tp, microbatches=microbatches, tied=kind != "llama"
    )
    with hp.Mesh(comm, dp=plan.dp, pp=pp, tp=tp) as mesh:
        it = hp.training.Pipeline(mesh, model, loss, plan, dtype=np.float64, sharding=sharding, tensor_chunks=chunks)
        it.initialize(3)
        optimizer, told, grads = AdamW(it.parameters), [], {}
        sampler = hp.training.Sampler(samples, batch, shuffle=False)
        for step in range(STEPS):
            share = sampler.take(mesh["dp"].rank, plan.dp)
            words = WORDS[share.indices, : length + 1]
            it.zero_grads()
            passing = Pass(step=step, seed=1, first_sample=share.first_sample)
            result = it.run(words[:, :-1], words[:, 1:], passing)
            squared = it.squared_norm()
            assert step or squared > LIMIT**2, "clipping is tested too"
            if step == 0 and sharding == 0:
                grads = whole(mesh, it, "grad")
            optimizer.step(1e-2, clip_scale(squared, LIMIT))
            told.append((result.loss, squared))
        it.check()
        for stage in plan.stages_of(mesh["pp"].rank):
            it.need(stage)
        return np.array(told), grads, whole(mesh, it, "value")


def whole(mesh, it, what):
    """Arrays of all parameters that this stage has, whole."""
    found = {}
    for p in it.parameters.list:
        parts = mesh["tp"].allgather(np.array(getattr(p, what)))
        if p.cut is None:
            assert all(np.array_equal(part, parts[0]) for part in parts), f"{what} of {p.name} differs over tp"
        found[p.origin] = parts[0] if p.cut is None else p.cut.join(parts)
    return found


def close(mine, theirs, what):
    scale = np.abs(theirs).max()
    assert np.abs(mine - theirs).max() <= 1e-12 * max(scale, 1e-3), (what, np.abs(mine - theirs).max() / scale)


def equals_serial(kind, heads, **how):
    serial = {name: how[name] for name in ("batch", "samples", "length") if name in how}
    told, grads, values = trained(WORLD, kind, heads, **how)
    wanted_told, wanted_grads, wanted = trained(MPI.COMM_SELF, kind, heads, **serial)
    close(told, wanted_told, (kind, how, "losses and norms"))
    for name, grad in grads.items():
        close(grad, wanted_grads[name], (kind, how, "gradient", name))
    for name, value in values.items():
        assert np.abs(value - wanted[name]).max() <= 1e-11, (kind, how, name, np.abs(value - wanted[name]).max())


ranks = WORLD.size
cases = {
    1: [("gpt2", 2, {"tp": 1})],
    2: [
        ("gpt2", 2, {"tp": 2}),
        ("llama", 2, {"tp": 2, "chunks": 3}),
        ("tied", 4, {"tp": 2, "batch": 1, "samples": 3, "length": 1}),  # one token
    ],
    3: [("gpt2", 3, {"tp": 3}), ("llama", 3, {"tp": 3, "samples": 9, "chunks": 2})],
    4: [
        ("gpt2", 2, {"tp": 2, "pp": 2, "microbatches": 2}),
        ("tied", 2, {"tp": 2, "sharding": 2, "samples": 9, "chunks": 2}),  # of the last batch one replica has no sample
        ("gpt2", 4, {"tp": 4, "sharding": 1}),
    ],
    6: [
        ("gpt2", 3, {"tp": 3, "pp": 2, "microbatches": 2}),
        ("tied", 3, {"tp": 3, "sharding": 3}),
        ("llama", 6, {"tp": 6}),
    ],
}  # fmt: skip
cases[5] = [("gpt2", 5, {"tp": 5}), ("llama", 5, {"tp": 5, "samples": 9})]
for kind, heads, how in cases[ranks] if len(sys.argv) < 2 else [cases[ranks][int(sys.argv[1])]]:
    equals_serial(kind, heads, **how)
if WORLD.rank == 0:
    print("good")
