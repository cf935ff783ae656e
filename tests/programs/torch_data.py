"""DistributedDataParallel and ZeRO-1 for modules of PyTorch against one process on the whole batch."""

import copy
import functools

import numpy as np
import torch
import torch_models as models
from mpi4py import MPI
from refusals import refused
from torch import nn
from torch.optim import SGD, AdamW

import hpckit as hp
from hpckit.torch import DistributedDataParallel, SyncBatchNorm, ZeroRedundancyOptimizer, bound_threads

WORLD = MPI.COMM_WORLD
RANKS = WORLD.size
# The bias of keys has no gradient but what rounding leaves, which AdamW would divide by its eps.
OPTIONS = {"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-4}
adamw = functools.partial(AdamW, **OPTIONS)


def trained(model, batches, optimizer, kept=None):
    """Steps on this rank's parts: mean losses over the whole batches, the gradients of each step."""
    losses, grads = [], []
    for batch in batches:
        x, y = models.share(batch, WORLD.rank, RANKS)
        optimizer.zero_grad()
        model.samples = len(x)
        part = np.zeros(1)
        if len(x):
            loss = models.loss_of(model(x), y)
            loss.backward()
            part[0] = loss.item() * len(x)
        else:
            model.skip()
        hp.all_reduce(part, WORLD).wait()
        losses.append(part[0] / len(batch[0]))
        grads.append(models.grads_of(model.module))
        optimizer.step()
    return losses, grads


def the_whole_batch():
    """Ten steps of AdamW: losses, gradients, parameters; batches that do not divide, the last one of 1 sample."""
    model = models.made(models.Transformer)
    batches = [models.texts(number, 7) for number in range(9)] + [models.texts(9, 1)]
    losses, grads, values, _ = models.serial(model, batches, adamw)
    for bucket_bytes, zero in ((None, False), (2000, False), (0, True)):
        data = DistributedDataParallel(copy.deepcopy(model), WORLD, bucket_bytes=bucket_bytes)
        if zero:
            optimizer = ZeroRedundancyOptimizer(data.parameters(), AdamW, WORLD, **OPTIONS)
        else:
            optimizer = adamw(data.parameters())
        found, found_grads = trained(data, batches, optimizer)
        np.testing.assert_allclose(found, losses, rtol=1e-12)
        for one, other in zip(found_grads, grads, strict=True):
            models.close(one, other)
        models.close(models.values_of(data.module), values)
        data.check()


def the_order_of_ranks():
    """Equal parts without weights: the bits of parts that one process adds in order; batch norms as on each rank."""
    model = models.made(models.ResNet)
    every = [models.images(number, 2 * RANKS) for number in range(3)]
    own = DistributedDataParallel(copy.deepcopy(model), WORLD)
    optimizer = adamw(own.parameters())
    alone = copy.deepcopy(model)
    alone_optimizer = adamw(alone.parameters())
    for batch in every:
        optimizer.zero_grad()
        x, y = models.share(batch, WORLD.rank, RANKS)
        models.loss_of(own(x), y).backward()
        buffers, sums = None, {}
        start = copy.deepcopy(dict(alone.named_buffers()))
        for rank in range(RANKS):
            for name, buffer in alone.named_buffers():
                buffer.copy_(start[name])
            alone_optimizer.zero_grad()
            x, y = models.share(batch, rank, RANKS)
            models.loss_of(alone(x), y).backward()
            for name, grad in models.grads_of(alone).items():
                sums[name] = grad if rank == 0 else sums[name] + grad
            buffers = copy.deepcopy(dict(alone.named_buffers())) if rank == 0 else buffers
        for name, parameter in alone.named_parameters():
            parameter.grad = sums[name] / RANKS
        for name, buffer in alone.named_buffers():
            buffer.copy_(buffers[name])
        models.same(models.grads_of(own.module), models.grads_of(alone))
        optimizer.step()
        alone_optimizer.step()
    models.same(dict(own.module.named_parameters()), dict(alone.named_parameters()))
    if WORLD.rank == 0:
        models.same(models.values_of(own.module), models.values_of(alone))


def gradients_in_16_bits():
    """Rounded, averaged in float32, rounded again: PyTorch's own arithmetic, to the bit, in small buckets and one."""
    x, y = models.share(models.texts(1, 2 * RANKS), WORLD.rank, RANKS)
    for own, reduced in (("float32", "bfloat16"), ("float32", "float16"), ("bfloat16", "float32")):
        dtype, short = getattr(torch, own), getattr(torch, reduced)
        model = models.made(models.Transformer).to(dtype)
        models.loss_of(model(x), y).backward()
        data = DistributedDataParallel(copy.deepcopy(model), WORLD, bucket_bytes=2000, reduce_dtype=short)
        data.zero_grad()
        for _ in range(2):  # the second backward pass adds to what the first has averaged
            models.loss_of(data(x), y).backward()
        for name, grad in models.grads_of(model).items():
            averaged = grad * 0
            for _ in range(2):
                every = [torch.from_numpy(one) for one in WORLD.allgather((averaged + grad).to(short).float().numpy())]
                total = functools.reduce(torch.add, every) / RANKS
                averaged = total.to(short).to(dtype) if RANKS > 1 else averaged + grad
            assert torch.equal(models.grads_of(data.module)[name], averaged), (own, reduced, name)
    data = DistributedDataParallel(models.made(models.Branches), WORLD, reduce_dtype=torch.bfloat16)
    assert all(bucket.message.itemsize == 2 for bucket in data.gradients._buckets)
    refused(lambda: DistributedDataParallel(nn.Linear(2, 2), WORLD, reduce_dtype=torch.int8), "torch.int8")
    if RANKS > 1:
        kind = torch.float16 if WORLD.rank else torch.bfloat16
        refused(lambda: DistributedDataParallel(nn.Linear(2, 2), WORLD, reduce_dtype=kind), "every rank")


def the_mean_of_the_whole_batch():
    """A ResNet with batch norms over all ranks: ten steps of the whole batch by one process, running means too."""
    model = models.made(models.ResNet)
    batches = [models.images(number, 2 * RANKS + 1) for number in range(10)]
    _, grads, values, _ = models.serial(model, batches, adamw)
    synchronous = SyncBatchNorm.convert(copy.deepcopy(model), WORLD)
    assert not any(type(each) is nn.BatchNorm2d for each in synchronous.modules())
    data = DistributedDataParallel(synchronous, WORLD)
    optimizer = adamw(data.parameters())
    for batch, wanted in zip(batches, grads, strict=True):
        x, y = models.share(batch, WORLD.rank, RANKS)
        optimizer.zero_grad()
        scale = len(x) * RANKS / len(batch[0])  # all ranks' losses in one scale: each has gradients of the others'
        (models.loss_of(data(x), y) * scale).backward()
        models.close(models.grads_of(data.module), wanted)
        optimizer.step()
    models.close(models.values_of(data.module), values)
    x = batches[0][0]
    alone = models.made(models.ResNet)
    alone.load_state_dict(values)
    models.close({"y": data.module.eval()(x).detach()}, {"y": alone.eval()(x).detach()})


def what_is_unused():
    """Each rank takes the branch that its data take; no gradient anywhere stays None, and decay leaves it alone."""
    model = models.made(models.Branches)
    batches = [models.vectors(number, 2 * RANKS) for number in range(3)]
    data = DistributedDataParallel(copy.deepcopy(model), WORLD, bucket_bytes=100)
    optimizer = adamw(data.parameters())
    alone = copy.deepcopy(model)
    alone_optimizer = adamw(alone.parameters())
    for batch in batches:
        optimizer.zero_grad()
        data.module.threshold = np.inf if WORLD.rank % 2 else -np.inf
        x, y = models.share(batch, WORLD.rank, RANKS)
        models.loss_of(data(x), y).backward()
        alone_optimizer.zero_grad()
        for rank in range(RANKS):
            alone.threshold = np.inf if rank % 2 else -np.inf
            x, y = models.share(batch, rank, RANKS)
            (models.loss_of(alone(x), y) / RANKS).backward()
        models.close(models.grads_of(data.module), models.grads_of(alone))
        assert data.module.never.weight.grad is None
        assert data.module.frozen.weight.grad is None
        assert (data.module.left.weight.grad is None) == (RANKS == 1)
        optimizer.step()
        alone_optimizer.step()
    models.close(models.values_of(data.module), models.values_of(alone))


def accumulation():
    """no_sync and a last pass outside; gradients kept over steps; both as on one process."""
    model = models.made(models.Transformer, layers=1)
    parts = [models.texts(number, 2 * RANKS) for number in range(4)]
    for set_to_none in (True, False):
        data = DistributedDataParallel(copy.deepcopy(model), WORLD)
        for turn in range(2):
            data.zero_grad(set_to_none=set_to_none)
            for number, part in enumerate(parts):
                x, y = models.share(part, WORLD.rank, RANKS)
                if number + 1 < len(parts):
                    with data.no_sync():
                        models.loss_of(data(x), y).backward()
                else:
                    models.loss_of(data(x), y).backward()
            alone = copy.deepcopy(model)
            for x, y in parts:
                models.loss_of(alone(x), y).backward()
            models.close(models.grads_of(data.module), models.grads_of(alone))
            assert turn < 2
        x, y = models.share(parts[0], WORLD.rank, RANKS)
        models.loss_of(data(x), y).backward()  # averaged gradients are added to
        models.loss_of(alone(parts[0][0]), parts[0][1]).backward()
        models.close(models.grads_of(data.module), models.grads_of(alone))


def the_state_of_optimizers():
    """ZeRO-1 has the bits of the whole optimizer; its state goes to one process, and back; schedulers reach it."""
    model = models.made(models.Transformer, layers=1)
    batches = [models.texts(number, RANKS) for number in range(6)]
    for kind, options in ((AdamW, {"lr": 1e-2, "fused": True}), (SGD, {"lr": 1e-2, "momentum": 0.9})):
        whole = DistributedDataParallel(copy.deepcopy(model), WORLD)
        every = kind(whole.parameters(), **options)
        cut = DistributedDataParallel(copy.deepcopy(model), WORLD)
        zero = ZeroRedundancyOptimizer(groups(cut), kind, WORLD, **options)
        rates = [torch.optim.lr_scheduler.OneCycleLR(each, 0.03, total_steps=7) for each in (every, zero)]
        for number, batch in enumerate(batches):
            if number == 3:  # from a checkpoint of one process, and from that of the shards
                state = zero.state_dict()
                assert state["state"].keys() == every.state_dict()["state"].keys()
                zero = ZeroRedundancyOptimizer(groups(cut), kind, WORLD, **options)
                zero.load_state_dict(state)
                rates[1].optimizer = zero
                plain = kind(groups(whole), **options)
                plain.load_state_dict(state)
            for one, optimizer in ((whole, every), (cut, zero)):
                optimizer.zero_grad()
                x, y = models.share(batch, WORLD.rank, RANKS)
                models.loss_of(one(x), y).backward()
                optimizer.step()
            for rate in rates:
                rate.step()
        models.same(models.values_of(cut.module), models.values_of(whole.module))
        held = sum(len(state) > 0 for state in zero.own.state.values())
        assert RANKS == 1 or held < len(list(model.parameters()))
        states = zero.state_dict()["state"]
        for number, state in every.state_dict()["state"].items():
            models.same(tensors(states[number]), tensors(state))


def tensors(state):
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def groups(model):
    every = list(model.parameters())
    return [{"params": every[:2]}, {"params": every[2:]}]


def refusals():
    """Models that differ are told before training, by name; and what else does not fit."""
    rank = WORLD.rank
    torch.set_num_threads(64)
    assert bound_threads(WORLD) <= 64
    if RANKS > 1:
        refused(lambda: DistributedDataParallel(nn.Linear(4 + rank, 3), WORLD), "weight is [3, 4] float32")
        refused(lambda: DistributedDataParallel(nn.Linear(4, 3, bias=rank == 0), WORLD), "bias is")
        refused(lambda: DistributedDataParallel(nn.Linear(4, 3).requires_grad_(rank == 0), WORLD), "frozen")
        uneven = nn.Linear(4, 3).to(torch.float64 if rank else torch.float32)
        refused(lambda: DistributedDataParallel(uneven, WORLD), "float64")
    refused(lambda: DistributedDataParallel(nn.Linear, WORLD), "torch.nn.Module")
    refused(lambda: DistributedDataParallel(nn.ReLU(), WORLD), "no parameter")
    refused(lambda: ZeroRedundancyOptimizer(nn.Linear(2, 2).parameters(), "adam", WORLD), "class of an optimizer")
    data = DistributedDataParallel(nn.Linear(2, 2), WORLD)
    refused(data.skip, "skip() with samples=None")
    refused(lambda: setattr(data, "samples", -1), "samples is -1")
    zero = ZeroRedundancyOptimizer(data.parameters(), SGD, WORLD, lr=1.0)
    refused(lambda: zero.add_param_group({"params": [torch.zeros(1)]}), "dealt to the replicas")
    refused(lambda: zero.load_state_dict({"state": {}, "param_groups": [{"params": [0]}]}), "groups of [1]")


CASES = (
    the_whole_batch, the_mean_of_the_whole_batch, the_order_of_ranks, what_is_unused, accumulation,
    the_state_of_optimizers, gradients_in_16_bits, refusals,
)  # fmt: skip
