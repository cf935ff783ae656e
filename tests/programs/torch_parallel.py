"""Linear layers cut over ranks and stages of pipelines, of PyTorch's modules, against one process."""

import copy
import functools
from dataclasses import replace
from itertools import pairwise

import torch
import torch_models as models
from mpi4py import MPI
from refusals import refused
from torch import nn
from torch.nn import functional
from torch.optim import AdamW

import hpckit as hp
from hpckit.torch import ActivationMoves, ColumnParallelLinear, PipelineStage, RowParallelLinear
from hpckit.torch.split import SplitBackward

WORLD = MPI.COMM_WORLD
RANKS = WORLD.size
adamw = functools.partial(AdamW, lr=1e-2, weight_decay=0.1, eps=1e-4)
WIDTH, HEADS = 12, 4


class CutBlock(nn.Module):
    """A block of a GPT whose heads and inner widths are cut over the ranks; with `sequence`, what is between too."""

    def __init__(self, block, axis, sequence):
        super().__init__()
        self.ln_1, self.ln_2, self.head = copy.deepcopy(block.ln_1), copy.deepcopy(block.ln_2), WIDTH // HEADS
        how = {"sequence_dim": 1 if sequence else None}
        self.c_attn = ColumnParallelLinear(block.c_attn, axis, parts=3, unit=self.head, **how)
        self.c_proj = RowParallelLinear(block.c_proj, axis, unit=self.head, **how)
        self.c_fc = ColumnParallelLinear(block.c_fc, axis, **how)
        self.c_out = RowParallelLinear(block.c_out, axis, **how)
        if sequence:
            for norm in (self.ln_1, self.ln_2):
                self.c_attn.moves.sum_gradients(norm)

    def forward(self, x):
        query, key, value = (
            part.unflatten(2, (-1, self.head)).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).chunk(3, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).flatten(2))
        return x + self.c_out(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


def heads_on_ranks():
    """Two blocks, whole and with sequence parallel, ten steps: outputs, every gradient, weights put together again."""
    torch.manual_seed(3)
    whole = nn.Sequential(*(models.Block(WIDTH, HEADS) for _ in range(2))).double()
    data = [torch.randn(2, models.LENGTH, WIDTH, dtype=torch.float64, generator=seeded(n)) for n in range(10)]
    for sequence in (False, True):
        alone = copy.deepcopy(whole)
        cut = nn.Sequential(*(CutBlock(block, WORLD, sequence) for block in alone))
        optimizers, moves = (adamw(alone.parameters()), adamw(cut.parameters())), ActivationMoves(WORLD)
        for x in data:
            for optimizer in optimizers:
                optimizer.zero_grad()
            x, twin = x.clone().requires_grad_(), x.clone().requires_grad_()
            y = cut(part_of(moves, twin) if sequence else twin)
            y = moves.gathered(y, 1) if sequence else y
            wanted = alone(x)
            wanted.square().mean().backward()
            y.square().mean().backward()
            models.close({"y": y.detach(), "dx": twin.grad}, {"y": wanted.detach(), "dx": x.grad})
            for one, other in zip(cut, alone, strict=True):
                models.close(grads_of(one), grads_of(other, one))
            for optimizer in optimizers:
                optimizer.step()
        for one, other in zip(cut, alone, strict=True):
            for name in ("c_attn", "c_proj", "c_fc", "c_out"):
                models.close(models.values_of(getattr(one, name).whole()), models.values_of(getattr(other, name)))


def part_of(moves, x):
    count = x.shape[1]
    sizes = torch.tensor([len(part) for part in torch.tensor_split(torch.arange(count), moves.size)]).numpy()
    return moves.part(x, 1, sizes)


def grads_of(block, cut=None):
    """The gradients of a block; of a whole one the rows and columns that a cut one has."""
    found = models.grads_of(block)
    for name, layer in (cut or block).named_children():
        if cut is not None and isinstance(layer, (ColumnParallelLinear, RowParallelLinear)):
            own = torch.from_numpy(layer.own)
            found[f"{name}.weight"] = found[f"{name}.weight"].index_select(layer.dim, own)
            if layer.dim == 0:
                found[f"{name}.bias"] = found[f"{name}.bias"][own]
    return found


def seeded(number):
    return torch.Generator().manual_seed(number)


def single_layers():
    """Outputs that are gathered, inputs that are whole, no bias, one sample; what cannot be cut is refused."""
    torch.manual_seed(0)
    for bias in (True, False):
        linear = nn.Linear(7, 5, bias=bias).double()
        for cut in (
            ColumnParallelLinear(linear, WORLD, gather_output=True), RowParallelLinear(linear, WORLD, whole_input=True),
        ):  # fmt: skip
            x = torch.randn(1, 7, dtype=torch.float64, generator=seeded(1), requires_grad=True)
            twin = x.detach().clone().requires_grad_()
            alone = copy.deepcopy(linear)
            alone(x).square().sum().backward()
            cut(twin).square().sum().backward()
            models.close({"x": twin.grad}, {"x": x.grad})
            wanted = alone.weight.grad.index_select(cut.dim, torch.from_numpy(cut.own))
            models.close({"w": cut.weight.grad}, {"w": wanted})
            models.same(models.values_of(cut.whole()), models.values_of(linear))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y, wanted = copy.deepcopy(cut).float()(x.float()), alone.float()(x.float())
            torch.testing.assert_close(y, wanted, rtol=0.02, atol=0.02)  # and of one dtype
    refused(lambda: ColumnParallelLinear(nn.Linear(4, 6), WORLD, unit=4), "6 outputs")
    refused(lambda: RowParallelLinear(nn.Linear(1, 6), WORLD, unit=2), "1 inputs")
    refused(lambda: ColumnParallelLinear(nn.ReLU(), WORLD), "ReLU")
    if RANKS > 1:
        refused(lambda: ColumnParallelLinear(nn.Linear(9, 8 + WORLD.rank), WORLD), "weight is [8, 9]")


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.inner(torch.tanh(self.inner(x)))


def halves():
    """Backward in two halves has the bits of the whole, also where the second must go through all again."""
    made = {
        True: nn.Sequential(models.Block(WIDTH, HEADS), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)),
        False: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), Twice()),
    }
    for simple, module in made.items():
        module, twin = module.double(), copy.deepcopy(module).double()
        split = SplitBackward(module)
        x, dy = (torch.randn(2, 3, WIDTH, dtype=torch.float64, generator=seeded(n)) for n in range(2))
        x.requires_grad_()
        twin(x).backward(dy)
        y, uses = split.forward(x)
        dx = split.input_gradient(y, x, dy)
        assert torch.equal(dx, x.grad)
        assert all(p.grad is None for p in module.parameters())
        assert (uses.is_split and len(uses.gradients) == len(uses.edges)) == simple
        split.add_weight_gradients(uses, y, dy)
        models.same(models.grads_of(module), models.grads_of(twin))


class Embedding(nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.wte, self.wpe = whole.wte, whole.wpe

    def forward(self, tokens):
        return self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]


def stages_of(model, count):
    """An embedding, blocks and a head in so many parts."""
    layers = [Embedding(model), *model.h, nn.Sequential(model.ln_f, model.lm_head)]
    cuts = [round(number * len(layers) / count) for number in range(count + 1)]
    return [nn.Sequential(*layers[first:end]) for first, end in pairwise(cuts)]


def pipelines():
    """Ten steps: the bits of one process that takes microbatches one by one, under every schedule; replicas too."""
    model = models.made(models.Transformer, layers=4)
    model.lm_head = nn.Linear(WIDTH, models.VOCAB, bias=False).double()
    batches = [models.texts(number, 9) for number in range(4)] + [models.texts(9, 1)]
    wanted = one_by_one(model, batches, 4)
    models.close(wanted[1], models.serial(model, batches, adamw)[2])
    chunks = {"zb_v": None, "looped_bfs": 2}
    for name in ("1f1b", "gpipe", "zb_h1", "zb_v", "looped_bfs", last_first()):
        count = RANKS * (2 if name in chunks else 1)
        if count > len(model.h) + 2:
            continue
        found = piped(model, batches, hp.Mesh(WORLD, pp=RANKS), count, name, chunks.get(name))
        assert found[0] == wanted[0] or RANKS > 1, (found[0], wanted[0])
        for one, other in zip(found[0], wanted[0], strict=True):
            assert abs(one - other) < 1e-12
        models.same(found[1], {key: wanted[1][key] for key in found[1]})
    if RANKS > 1:
        mesh = hp.Mesh(WORLD, dp=RANKS) if RANKS != 4 else hp.Mesh(WORLD, dp=2, pp=2)
        found = piped(model, batches, mesh, mesh.topology.sizes[-1] if RANKS == 4 else 1, "1f1b", None)
        models.close(found[1], {key: wanted[1][key] for key in found[1]})
    sharing = nn.Linear(2, 2)
    mesh = hp.Mesh(WORLD, pp=RANKS)
    refused(lambda: PipelineStage([sharing] * (RANKS + 1), mesh, None), f"{RANKS + 1} stages are given")
    refused(lambda: PipelineStage({}, mesh, None), "is not a module")
    if RANKS > 1:
        refused(lambda: PipelineStage([sharing] * RANKS, mesh, None), "share a parameter")


def last_first():
    """GPipe whose backward passes begin with the last microbatch: gradients are added in their order all the same."""
    plain = hp.plan.pipeline_schedule("gpipe", RANKS, 4)
    actions = tuple((*each[:4], *each[:3:-1]) for each in plain.actions)
    assert all([a.kind for a in each] == ["F"] * 4 + ["B"] * 4 for each in actions)
    return replace(plain, name="last_first", actions=actions)


def piped(model, batches, mesh, count, schedule, chunks):
    stages = stages_of(copy.deepcopy(model), count)
    it = PipelineStage(stages, mesh, models.loss_of, schedule=schedule, microbatches=4, chunks=chunks)
    optimizer, losses = adamw(it.parameters()), []
    dp = mesh["dp"] if "dp" in mesh.topology.names else MPI.COMM_SELF
    for batch in batches:
        optimizer.zero_grad()
        losses.append(it.run(*models.share(batch, dp.rank, dp.size)))
        optimizer.step()
    places = {id(p): name for name, p in model.named_parameters()}
    originals = stages_of(model, count)
    return losses, {
        places[id(p)]: dict(it.module(number).named_parameters())[name].detach()
        for number, stage in enumerate(originals)
        if str(number) in it.stages
        for name, p in stage.named_parameters()
    }


def one_by_one(model, batches, microbatches):
    """One process: the gradients of microbatches added in their order."""
    model, losses = copy.deepcopy(model), []
    optimizer = adamw(model.parameters())
    for x, y in batches:
        optimizer.zero_grad()
        total = 0
        for xs, ys in zip(torch.tensor_split(x, microbatches), torch.tensor_split(y, microbatches), strict=True):
            if len(xs):
                loss = models.loss_of(model(xs), ys) * (len(xs) / len(x))
                loss.backward()
                total += loss.item()
        losses.append(total)
        optimizer.step()
    return losses, models.values_of(model)


CASES = (heads_on_ranks, single_layers, halves, pipelines)
