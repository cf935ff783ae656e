"""FullyShardedDataParallel has the bits of DistributedDataParallel, by pointers and by messages; states go anywhere."""

import collections
import contextlib
import copy
import dataclasses
import functools
from typing import Any

import torch
import torch_models as models
from mpi4py import MPI
from refusals import refused
from torch import nn
from torch.optim import SGD, AdamW
from torch.utils.checkpoint import checkpoint

from hpckit.errors import MismatchError
from hpckit.torch import DistributedDataParallel, FullyShardedDataParallel
from hpckit.torch.units import cast

WORLD = MPI.COMM_WORLD
RANKS = WORLD.size
adamw = functools.partial(AdamW, lr=1e-2, weight_decay=0.1, eps=1e-4)
fused = functools.partial(AdamW, lr=1e-2, eps=1e-4, fused=True)
momentum = functools.partial(SGD, lr=1e-2, momentum=0.9)


@dataclasses.dataclass
class Answer:
    """What a module may return."""

    pair: tuple[Any, Any]
    named: Any


def step(model, optimizer, batch, parts=1):
    """A step on this rank's part, which may be empty, in so many passes of which the last one averages."""
    optimizer.zero_grad()
    x, y = models.share(batch, WORLD.rank, RANKS)
    if not len(x):
        model.skip()
    for number in range(parts if len(x) else 0):
        own = [tensor[number::parts] for tensor in (x, y)]
        if number + 1 < parts:
            with model.no_sync():
                (models.loss_of(model(own[0]), own[1]) / parts).backward()
        else:
            (models.loss_of(model(own[0]), own[1]) / parts).backward()
    optimizer.step()
    return len(x)


def twins(model, optimizer_of, batches, blocks, by_pointer, weighted, parts=1, reduced=None):
    """The same steps by DDP and by FSDP: the bits of gradients and parameters."""
    whole = DistributedDataParallel(copy.deepcopy(model), WORLD, reduce_dtype=reduced)
    cut = FullyShardedDataParallel(
        copy.deepcopy(model), WORLD, blocks=blocks, by_pointer=by_pointer, reduce_dtype=reduced
    )
    optimizers = optimizer_of(whole.parameters()), optimizer_of(cut.parameters())
    for batch in batches:
        for each, optimizer in zip((whole, cut), optimizers, strict=True):
            if weighted:
                each.samples = len(models.share(batch, WORLD.rank, RANKS)[0])
            step(each, optimizer, batch, parts)
        gradients = {name: p.grad for name, p in whole.module.named_parameters()}
        for unit in cut.units:
            for each in unit.parameters:
                first, end = each.rows[WORLD.rank : WORLD.rank + 2]
                there = gradients[each.name]
                assert (there is None) == (each.shard.grad is None), each.name
                assert there is None or torch.equal(each.shard.grad, there[first:end]), each.name
    models.same(cut.full_state_dict(), models.values_of(whole.module))
    return whole, cut, optimizers


def bits_of_data_parallel():
    """Ten steps with uneven parts, an empty one, passes that only accumulate, convolutions, unused parameters."""
    gpt = models.made(models.Transformer)
    texts = [models.texts(number, 7) for number in range(9)] + [models.texts(9, 1)]
    for by_pointer in (True, False):
        _, cut, _ = twins(gpt, adamw, texts, models.Block, by_pointer, True)
        assert cut.by_pointer == (by_pointer and cut.replicas.share_node)
        _, values = models.serial(gpt, texts, adamw)[1:3]
        models.close(cut.full_state_dict(), values)
        even = [models.texts(number, 4 * RANKS) for number in range(3)]
        twins(gpt, adamw, even, (models.Block,) if RANKS == 1 else None, by_pointer, False, parts=2)
        for kind in (torch.bfloat16, torch.float16):
            twins(gpt, adamw, texts[-2:], models.Block, by_pointer, True, reduced=kind)
        twins(copy.deepcopy(gpt).bfloat16(), adamw, even[:1], models.Block, by_pointer, False, reduced=torch.float32)
        net = models.made(models.ResNet)
        pictures = [models.images(number, 2 * RANKS) for number in range(3)]
        twins(net, momentum, pictures, models.Residual, by_pointer, False)
        branches = models.made(models.Branches)
        branches.threshold = float("inf") if WORLD.rank % 2 else -float("inf")
        # By messages all ranks run the same blocks: there everything is one.
        kind = nn.Linear if by_pointer and cut.by_pointer else None
        twins(branches, adamw, [models.vectors(1, 2 * RANKS)] * 3, kind, by_pointer, False)


def narrow_parameters():
    """Shards and optimizer in float32, the module in bfloat16: the bits of a module in bfloat16 whose gradients one
    process applies to values in float32; several passes are added in the dtype of the sums, to arguments in any dtype.
    """
    model = models.made(models.Transformer).float()
    for by_pointer in (True, False):
        narrow = copy.deepcopy(model).bfloat16()
        twin = DistributedDataParallel(narrow, WORLD)
        cut = FullyShardedDataParallel(
            copy.deepcopy(model), WORLD, blocks=models.Block, by_pointer=by_pointer, param_dtype=torch.bfloat16
        )
        values = models.values_of(model)
        masters = {name: nn.Parameter(values[name].clone()) for name, _ in narrow.named_parameters()}
        alone, own = adamw(masters.values()), adamw(cut.parameters())
        for number in range(3):
            batch = models.texts(number, 2 * RANKS)
            x, y = models.share(batch, WORLD.rank, RANKS)
            for each in (twin, cut):
                output = each(x)
                assert output.dtype == torch.bfloat16
                models.loss_of(output, y).backward()
            for name, parameter in narrow.named_parameters():
                masters[name].grad = parameter.grad.float()
            for unit in cut.units:
                for each in unit.parameters:
                    first, end = each.rows[WORLD.rank : WORLD.rank + 2]
                    assert torch.equal(each.shard.grad, masters[each.name].grad[first:end]), each.name
            for optimizer in (alone, own):
                optimizer.step()
                optimizer.zero_grad()
            with torch.no_grad():
                for name, parameter in narrow.named_parameters():
                    parameter.copy_(masters[name])
                    parameter.grad = None
        full = cut.full_state_dict()
        models.same({name: full[name] for name in masters}, {name: each.data for name, each in masters.items()})
        sums = []
        for parts in (1, 6):
            net = FullyShardedDataParallel(
                models.made(models.Branches).float(), WORLD, param_dtype=torch.bfloat16, reduce_dtype=torch.float32
            )
            x, y = models.share(models.vectors(1, 2 * RANKS), WORLD.rank, RANKS)
            for part in range(parts):
                with net.no_sync() if part + 1 < parts else contextlib.nullcontext():
                    models.loss_of(net(x), y).backward()
            sums.append({name: p.grad for name, p in net.module.named_parameters() if p.grad is not None})
        for name, once in sums[0].items():
            torch.testing.assert_close(sums[1][name], 6 * once, rtol=1e-6, atol=0)
    short_values = {"param_dtype": torch.bfloat16}
    plain = FullyShardedDataParallel(copy.deepcopy(model), WORLD, **short_values)
    wide = FullyShardedDataParallel(copy.deepcopy(model), WORLD, **short_values, output_dtype=torch.float32)
    x, y = models.share(models.texts(0, 2 * RANKS), WORLD.rank, RANKS)
    short, long = plain(x), wide(x)
    assert (short.dtype, long.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(short.float(), long)
    models.loss_of(short.float(), y).backward()
    models.loss_of(long, y).backward()
    for one, other in zip(plain.parameters(), wide.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    nested = cast(Answer((short, short[0].argmax()), collections.OrderedDict(loss=short)), torch.float32)
    assert (nested.pair[0].dtype, nested.pair[1].dtype) == (torch.float32, torch.int64)
    assert (type(nested.named), nested.named["loss"].dtype) == (collections.OrderedDict, torch.float32)
    refused(lambda: FullyShardedDataParallel(model, WORLD, param_dtype=torch.int32), "no module computes in")
    refused(lambda: FullyShardedDataParallel(model, WORLD, output_dtype=torch.int32), "no module returns")


class Recomputed(models.Transformer):
    """With checkpoints of activations, and a loss of its own, as transformers' models return it."""

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False)
        logits = self.lm_head(self.ln_f(x))
        return {"loss": models.loss_of(logits, targets), "logits": logits}


def recompute():
    """Blocks that run again in backward; two forward passes before a backward pass; evaluation between steps."""
    model = models.made(Recomputed)
    texts = models.texts(1, 2 * RANKS)
    x, y = models.share(texts, WORLD.rank, RANKS)
    alone = copy.deepcopy(model)
    (alone(*texts)["loss"] + alone(*texts)["loss"]).backward()
    for by_pointer in (True, False):
        cut = FullyShardedDataParallel(copy.deepcopy(model), WORLD, by_pointer=by_pointer)
        with torch.no_grad():
            assert torch.isfinite(cut(x, y)["loss"])
        cut(x, y)
        here = [unit for unit in cut.units if any(each.whole.untyped_storage().size() for each in unit.parameters)]
        assert here == (cut.units if cut.by_pointer else cut.units[-1:]), "blocks are freed behind their use"
        (cut(x, y)["loss"] + cut(x, y)["loss"]).backward()
        assert set(cut.parameters()) == {each.shard for unit in cut.units for each in unit.parameters}
        models.same(cut.full_state_dict(), models.values_of(model))
        for unit in cut.units:
            for each in unit.parameters:
                assert cut.by_pointer or not each.whole.untyped_storage().size()
                first, end = each.rows[WORLD.rank : WORLD.rank + 2]
                wanted = dict(alone.named_parameters())[each.name].grad[first:end]
                models.close({each.name: each.shard.grad}, {each.name: wanted})
        norm = float(cut.clip_grad_norm_(0.1))
        wanted = float(nn.utils.clip_grad_norm_(copy.deepcopy(alone).parameters(), 0.1))
        grads = [p.grad for p in alone.parameters()]
        wanted = float(torch.stack([g.square().sum() for g in grads]).sum().sqrt())
        assert abs(norm - wanted) < 1e-12 * wanted, (norm, wanted)
        after = cut.clip_grad_norm_(10.0)
        assert abs(float(after) - 0.1) < 1e-5


def states():
    """Whole and sharded states of model and optimizer: to one process and back, and what does not fit."""
    model = models.made(models.Transformer, layers=1)
    texts = [models.texts(number, 2 * RANKS) for number in range(6)]
    whole, cut, (plain, own) = twins(model, adamw, texts[:3], models.Block, True, False)
    full, state = cut.full_state_dict(), cut.full_optimizer_state(own)
    alone = copy.deepcopy(model)
    alone.load_state_dict(full)
    adamw(alone.parameters()).load_state_dict(state)
    index = {name: number for number, (name, _) in enumerate(cut.module.named_parameters())}
    for number, (name, _) in enumerate(whole.module.named_parameters()):
        models.same(state["state"][index[name]], plain.state_dict()["state"][number])
    again = FullyShardedDataParallel(models.made(models.Transformer, seed=2, layers=1), WORLD, by_pointer=False)
    again.load_full_state_dict(full)
    other = adamw(again.parameters())
    again.load_full_optimizer_state(other, state)
    for batch in texts[3:]:
        for each, optimizer in ((whole, plain), (again, other)):
            step(each, optimizer, batch)
    models.same(again.full_state_dict(), models.values_of(whole.module))
    cut.load_sharded_state_dict(again.sharded_state_dict())
    models.same(cut.full_state_dict(), again.full_state_dict())
    full.pop("wpe.weight")
    full["more"] = full["ln_f.weight"]
    refused(lambda: cut.load_full_state_dict(full), "wpe.weight is missing; more is not in the model")


def refusals():
    """What cannot be cut, and blocks that are not there."""
    scalar = nn.Linear(2, 2)
    scalar.scale = nn.Parameter(torch.zeros(()))
    refused(lambda: FullyShardedDataParallel(scalar, WORLD), "scale has no dim")
    refused(lambda: FullyShardedDataParallel(nn.Linear(2, 2), WORLD, blocks=nn.Conv2d), "Conv2d is not in it")
    refused(lambda: FullyShardedDataParallel(nn.Linear(2, 2), WORLD, blocks=[nn.Linear(2, 2)]), "blocks are modules")
    refused(FullyShardedDataParallel(nn.Linear(2, 2), WORLD).skip, "skip() with samples=None")


def orders():
    """Blocks of one size, run in another order on one rank: nobody goes on with the values of another block."""
    blocks = [nn.Sequential(nn.Linear(6, 6)) for _ in range(3)]
    model = FullyShardedDataParallel(nn.Sequential(*blocks), WORLD, blocks=nn.Sequential, by_pointer=False)
    order = (2, 1, 0) if WORLD.rank == RANKS - 1 else (0, 1, 2)
    model(torch.ones(2, 6)).sum().backward()
    model.module.forward = lambda x: blocks[order[2]](blocks[order[1]](blocks[order[0]](x)))
    try:
        model(torch.ones(2, 6)).sum().backward()
    except MismatchError as error:
        assert "different orders" in str(error)
    else:
        assert RANKS == 1


CASES = (bits_of_data_parallel, narrow_parameters, recompute, states, refusals, orders)
