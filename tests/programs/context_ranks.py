"""Transformers whose samples' tokens are spread over ranks equal the serial model: losses, gradients, norms, steps.

`context_ranks.py 2 5`: only the third and the sixth case; `context_ranks.py axes 1`: all meshes of dp, cp, tp and ep
with one stage, with experts, a shared one among them, and with losses that balance them.
"""

import itertools
import sys

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.nn.gpt import gpt2, llama
from hpckit.nn.layer import Pass
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW, clip_scale

WORLD = MPI.COMM_WORLD
KINDS = ("gather", "ring", "ulysses")
VOCAB, LENGTH, LIMIT, STEPS = 29, 23, 0.05, 4
WORDS = np.random.default_rng(3).integers(0, VOCAB, (48, LENGTH + 1)).astype(np.int32)
WORDS[5, 7:] = VOCAB - 1


def model_of(kind):
    """Widths: of one GPT-2 no multiple of 4, so that dropout draws across tokens."""
    if kind in ("gpt2", "wide"):
        width = 12 if kind == "wide" else 10
        return gpt2(31, 3, width, 2, LENGTH, dropout=0.1, hidden=14), CrossEntropy(VOCAB, 31)
    if kind == "heads":
        return llama(VOCAB, 2, 24, 6, 6, 12, LENGTH, attention_dropout=0.2), CrossEntropy(VOCAB)
    experts = {"experts": 5, "balance": 0.02} if kind == "experts" else {}
    if kind in ("axes", "deep"):  # all five, and for many stages
        return llama(
            VOCAB,
            6 if kind == "deep" else 3,
            16,
            8,
            8,
            12,
            LENGTH,
            attention_dropout=0.2,
            router_z=0.01,
            shared=8,
            experts=9,
            balance=0.02,
        ), CrossEntropy(VOCAB)
    return llama(
        VOCAB, 2, 16, 4, 2, 12, LENGTH, tied=kind == "tied", attention_dropout=0.2,
        recompute={"tied": True, "llama": "attention"}.get(kind, False), **experts,
    ), CrossEntropy(VOCAB)  # fmt: skip


def trained(comm, kind, *, pp=1, cp=1, tp=1, ep=1, batch=4, samples=13, length=LENGTH, whole=False, **how):
    """Losses and norms of the steps, gradients of the first, values after the last, logits without training."""
    model, loss = model_of(kind)
    given = {name: how.pop(name) for name in ("microbatches", "schedule") if name in how}
    plan = hp.plan.training_plan(
        comm.size,
        len(model.layers),
        batch=batch,
        pp=pp,
        cp=cp,
        tp=tp,
        ep=ep,
        tied=kind in ("gpt2", "wide", "tied"),
        **given,
    )
    with hp.Mesh(comm, dp=plan.dp, pp=pp, cp=cp, tp=tp) as mesh:
        it = hp.training.Pipeline(mesh, model, loss, plan, dtype=np.float64, recompute=whole, **how)
        it.initialize(3)
        optimizer, told, grads = AdamW(it.parameters), [], {}
        sampler = hp.training.Sampler(samples, batch, shuffle=False)
        for step in range(STEPS):
            share = sampler.take(mesh["dp"].rank, plan.dp)
            words = WORDS[share.indices, : length + 1]
            targets = np.where(words[:, 1:] == VOCAB - 1, -1, words[:, 1:])  # padding that does not count
            it.zero_grads()
            result = it.run(words[:, :-1], targets, Pass(step=step, seed=1, first_sample=share.first_sample))
            squared = it.squared_norm()
            if step == 0 and not how.get("sharding"):
                grads = everything(it, "grad")
            optimizer.step(1e-2, clip_scale(squared, LIMIT))
            told.append((result.loss, squared, result.targets))
        it.check()
        for stage in plan.stages_of(mesh["pp"].rank):
            it.need(stage)
        values = everything(it, "value")
        x = WORDS[:2, :length]
        logits = it.forward(x)
        it.finish()
        if logits is not None and tp > 1:
            logits = np.concatenate(mesh["tp"].allgather(np.array(logits)), axis=-1)
        seen = None if logits is None else (it.context.own(np.arange(length)[None])[0], np.array(logits))
        return np.array(told), grads, values, seen


def everything(it, what):
    """Arrays of all parameters that this rank has, and the parameters."""
    return {p.origin: (p, np.array(getattr(p, what))) for p in it.parameters.list}


def close(mine, theirs, what, most=1e-12, scale=0.0):
    scale = max(scale, np.abs(theirs).max(initial=0), 1e-3)
    worst = np.abs(mine - theirs).max(initial=0) / scale
    assert worst <= most, (what, worst)


def equals_serial(kind, **how):
    serial = {name: how[name] for name in ("batch", "samples", "length") if name in how}
    told, grads, values, seen = trained(WORLD, kind, **how)
    wanted_told, wanted_grads, wanted, (_, wanted_logits) = trained(MPI.COMM_SELF, kind, **serial)
    close(told, wanted_told, (kind, how, "losses, norms and targets"))
    assert np.abs(wanted_told[:, 1]).min() > LIMIT**2, "clipping is tested too"
    for name, (p, grad) in grads.items():
        whole = wanted_grads[name][1]
        close(grad, p.own(whole), (kind, how, "gradient", name), scale=np.abs(whole).max())
    for name, (p, value) in values.items():
        assert np.abs(value - p.own(wanted[name][1])).max(initial=0) <= 1e-11, (kind, how, name)
    count = WORLD.allreduce(len(grads)), WORLD.allreduce(len(values))
    assert WORLD.rank or min(count[1], count[0] or how.get("sharding", 0)) >= 1
    if seen is not None:
        close(seen[1], wanted_logits[:, seen[0]], (kind, how, "logits"), 1e-9)


cases = {
    1: [("gpt2", {}), ("llama", {})],
    2: [
        ("gpt2", {"cp": 2, "context": "gather"}),
        ("gpt2", {"cp": 2, "context": "ring"}),
        ("gpt2", {"cp": 2, "context": "ulysses"}),
        ("llama", {"cp": 2, "length": 22, "sharding": 2}),
        *(("tied", {"cp": 2, "length": 1, "context": kind}) for kind in KINDS),  # one token: a rank has none
        ("experts", {"cp": 2, "ep": 2, "context": "ring"}),
    ],
    3: [
        ("wide", {"cp": 3, "length": 5, "microbatches": 2, "context": "gather"}),  # of 6 chunks one is empty
        ("wide", {"cp": 3, "length": 5, "microbatches": 2, "context": "ring"}),
        ("llama", {"cp": 3, "length": 2, "sharding": 1, "context": "ring"}),
        *(("heads", {"cp": 3, "context": kind}) for kind in KINDS),  # all heads of keys
        ("experts", {"cp": 3}),
        ("heads", {"cp": 3, "context": "plain_ring", "length": 7}),
    ],
    4: [
        ("tied", {"cp": 4, "sharding": 3, "context": "ring"}),
        ("heads", {"cp": 4, "context": "ulysses", "length": 3}),  # 6 heads on 4 ranks
        ("heads", {"cp": 4, "context": "ulysses", "sharding": 1}),
        ("gpt2", {"cp": 2, "sharding": 1, "context": "ulysses"}),  # in the last batch one replica has no sample
        ("llama", {"cp": 2, "pp": 2, "microbatches": 2, "schedule": "zb_h1", "context": "ring"}),
        ("wide", {"cp": 2, "pp": 2, "microbatches": 4, "whole": True, "length": 3}),
        ("experts", {"cp": 2, "ep": 4, "sharding": 2, "batch": 6}),
        ("gpt2", {"cp": 2, "tp": 2, "context": "ring"}),
        ("wide", {"cp": 2, "tp": 2, "context": "gather", "length": 2}),  # a rank has a token, or two ranks share one
        ("llama", {"cp": 2, "tp": 2, "context": "gather", "length": 22}),
        ("heads", {"cp": 2, "tp": 2, "context": "ulysses", "batch": 6, "microbatches": 3}),
        ("experts", {"cp": 2, "tp": 2, "ep": 2, "context": "ring"}),
        ("tied", {"cp": 2, "tp": 2, "length": 1}),  # two ranks have no token
    ],
    8: [
        ("llama", {"cp": 2, "tp": 2, "pp": 2, "microbatches": 2, "context": "ring"}),
        ("experts", {"cp": 2, "tp": 2, "ep": 4, "sharding": 1, "context": "gather"}),
        ("experts", {"cp": 2, "tp": 2, "pp": 2, "ep": 4, "microbatches": 2}),
    ],
    16: [("axes", {"cp": 2, "tp": 2, "pp": 2, "ep": 4, "batch": 16, "microbatches": 2, "schedule": "zb_v"})],
}  # fmt: skip


def every_mesh(pp):
    """All meshes of the world's ranks with so many stages, and all numbers of ranks that share the experts."""
    ranks = WORLD.size // pp
    sizes = [n for n in range(1, ranks + 1) if ranks % n == 0]
    order = {"microbatches": 2, "schedule": "zb_h1"} if pp > 1 else {}
    for cp, tp, ep in itertools.product(sizes, sizes, sizes):
        if ranks % (cp * tp) == 0:
            ways = KINDS if cp == 2 and ep == 2 else ["ring", "gather"][ep % 2 : ep % 2 + 1] if cp > 1 else ["auto"]
            for way in ways:
                yield (
                    "deep" if pp > 4 else "axes",
                    {"pp": pp, "cp": cp, "tp": tp, "ep": ep, "batch": 16, "samples": 37, "context": way, **order},
                )


given = sys.argv[1:]
if given[:1] == ["axes"]:
    found = list(every_mesh(int(given[1])))
    chosen = found if len(given) < 3 else found[int(given[2]) :: int(given[3])]
else:
    chosen = [cases[WORLD.size][int(n)] for n in given] or cases[WORLD.size]
for kind, how in chosen:
    equals_serial(kind, **how)
if WORLD.rank == 0:
    print("good", len(chosen))
