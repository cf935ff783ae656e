"""Models of PyTorch for tests, of torchvision's and of transformers' shape; and what one process makes of them."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional

VOCAB, LENGTH = 19, 7


class Residual(nn.Module):
    """The basic block of ResNet: two convolutions with batch norms beside a shortcut."""

    def __init__(self, inputs, outputs, stride, norm):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = norm(outputs)
        same = stride == 1 and inputs == outputs
        self.downsample = (
            None if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))
        )

    def forward(self, x):
        beside = x if self.downsample is None else self.downsample(x)
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + beside)


class ResNet(nn.Module):
    """torchvision's names: conv1, bn1, layer1, layer2, fc."""

    def __init__(self, width=5, classes=3, norm=nn.BatchNorm2d):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), norm(width)
        self.layer1 = nn.Sequential(Residual(width, width, 1, norm))
        self.layer2 = nn.Sequential(Residual(width, 2 * width, 2, norm))
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)))


class Block(nn.Module):
    """A block of GPT-2, with transformers' names."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, dim=2)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.c_out(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Transformer(nn.Module):
    """wte, wpe, h, ln_f; the head is the embedding."""

    def __init__(self, width=12, heads=3, layers=3):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, width), nn.Embedding(LENGTH, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Branches(nn.Module):
    """Which parameters have a gradient depends on the data; `never` has none anywhere, `frozen` is not trained."""

    def __init__(self):
        super().__init__()
        self.stem, self.left, self.right, self.never = (nn.Linear(6, 6) for _ in range(4))
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        x = self.frozen(torch.tanh(self.stem(x)))
        return self.out(self.left(x) if x.detach().mean() < self.threshold else self.right(x))

    threshold = 0.0


def made(kind, seed=1, **options):
    """A model in float64 with values from a seed."""
    torch.manual_seed(seed)
    return kind(**options).double()


def images(number, count):
    random = np.random.default_rng(number)
    return torch.from_numpy(random.standard_normal((count, 3, 6, 6))), torch.from_numpy(random.integers(0, 3, count))


def texts(number, count):
    tokens = torch.from_numpy(np.random.default_rng(number).integers(0, VOCAB, (count, LENGTH + 1)))
    return tokens[:, :-1], tokens[:, 1:]


def vectors(number, count):
    random = np.random.default_rng(number)
    return torch.from_numpy(random.standard_normal((count, 6))), torch.from_numpy(random.integers(0, 3, count))


def loss_of(logits, targets):
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def grads_of(module):
    return {name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}


def values_of(module):
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def close(found, wanted, bound=1e-12):
    """Each tensor within `bound` of the largest number of the other; None only where None is."""
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for name, value in wanted.items():
        other = found[name]
        assert (value is None) == (other is None), f"{name}: {value is None} {other is None}"
        if value is not None:
            scale = max(float(value.abs().max()), 1e-3) if value.numel() else 1.0
            off = float((other - value).abs().max()) / scale if value.numel() else 0.0
            assert off <= bound, f"{name} is off by {off}"


def same(found, wanted):
    """The same bits."""
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for name, value in wanted.items():
        assert (value is None) == (found[name] is None), name
        assert value is None or torch.equal(found[name], value), f"{name}: {(found[name] - value).abs().max()}"


def serial(model, batches, optimizer_of):
    """Steps of one process on whole batches: losses, the gradients of each step, the values at the end."""
    model, losses, grads = copy.deepcopy(model), [], []
    optimizer = optimizer_of(model.parameters())
    for x, y in batches:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        losses.append(loss.item())
        grads.append(grads_of(model))
        optimizer.step()
    return losses, grads, values_of(model), optimizer


def share(tensors, rank, ranks):
    """A rank's part of a batch: sizes differ by at most 1, some may be empty."""
    count = len(tensors[0])
    first, end = rank * count // ranks, (rank + 1) * count // ranks
    return [tensor[first:end] for tensor in tensors]
