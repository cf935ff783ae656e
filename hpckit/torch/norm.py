"""Batch norms whose mean and variance are those of the whole batch, over the ranks of a mesh axis."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from hpckit.collectives import all_reduce
from hpckit.errors import InputError
from hpckit.torch.tensors import as_array, kind_of
from hpckit.training.replicas import Replicas


class Normalized(torch.autograd.Function):
    """x less the mean over all ranks, over their standard deviation; every dim but 1 is averaged."""

    @staticmethod
    def forward(
        context: Any, x: torch.Tensor, replicas: Replicas, eps: float, seen: list[torch.Tensor]
    ) -> torch.Tensor:
        """The normalized x; seen gets the mean, the variance and the number of values of a channel.

        The variance is the mean of squares about the mean, in a second sum over the ranks: the squares of x less the
        square of the mean would lose digits.
        """
        dims = [dim for dim in range(x.dim()) if dim != 1]
        count = x.new_tensor([x.numel() / x.shape[1] if x.shape[1] else 0.0])
        sums = _summed(replicas, torch.cat([x.sum(dims), count]))
        total = sums[-1].clone()
        mean = _wide(sums[:-1] / total, x)
        away = x - mean
        variance = _summed(replicas, away.square().sum(dims)) / total
        scale = _wide((variance + eps).rsqrt(), x)
        y = away * scale
        context.save_for_backward(y, scale, total)
        context.replicas, context.dims = replicas, dims
        seen[:] = [mean.reshape(-1), variance, total]
        return y

    @staticmethod
    def backward(context: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """The gradient of x: dy less its mean and its part along y, over all ranks."""
        y, scale, total = context.saved_tensors
        channels = y.shape[1]
        sums = _summed(context.replicas, torch.cat([dy.sum(context.dims), (dy * y).sum(context.dims)])) / total
        first, along = _wide(sums[:channels], y), _wide(sums[channels:], y)
        return (dy - first - y * along) * scale, None, None, None


class SyncBatchNorm(_BatchNorm):
    """`torch.nn.BatchNorm1d`, `2d` or `3d` with the mean and the variance of the whole batch on all ranks of an axis.

        model = SyncBatchNorm.convert(model, mesh["dp"])  # before DistributedDataParallel
        model = DistributedDataParallel(model, mesh["dp"])

    PyTorch's own needs a GPU. In training forward and backward are collective. Each rank's gradients hold parts of the
    others' losses: so where parts of a batch differ in size, leave `samples` alone, and scale the mean loss of n of N
    samples on p ranks by n p / N.
    """

    replicas: Replicas

    @classmethod
    def convert(cls, module: nn.Module, mesh_axis: Any) -> nn.Module:
        """The module with every batch norm in it replaced; parameters and buffers are the same objects."""
        found = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            if isinstance(module, nn.modules.lazy.LazyModuleMixin):
                raise InputError("a lazy batch norm has no channels yet", do="run the model once, then convert it")
            found = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
            found.replicas = Replicas(mesh_axis)
            for name in ("weight", "bias"):
                setattr(found, name, getattr(module, name))
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(found, name, getattr(module, name))
            found.training = module.training
        for name, child in module.named_children():
            other = cls.convert(child, mesh_axis)
            if other is not child:
                setattr(found, name, other)
        return found

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized x [samples, channels, ...]. Collective in training."""
        if x.dim() < 2:
            raise InputError(f"a batch norm takes [samples, channels, ...], not {list(x.shape)}")
        if not self.training and self.running_mean is not None:
            return super().forward(x)
        seen: list[torch.Tensor] = []
        y: torch.Tensor = Normalized.apply(x, self.replicas, self.eps, seen)
        if self.training and self.running_mean is not None:
            self._remember(*seen)
        if self.weight is None:
            return y
        return torch.addcmul(_wide(self.bias, x), y, _wide(self.weight, x))

    @torch.no_grad()
    def _remember(self, mean: torch.Tensor, variance: torch.Tensor, total: torch.Tensor) -> None:
        """Move the running mean and the running, unbiased variance."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        part = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        count = float(total)
        self.running_mean.mul_(1 - part).add_(mean, alpha=part)
        self.running_var.mul_(1 - part).add_(variance, alpha=part * count / max(1.0, count - 1))

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Any number of dims from 2 on."""


def _wide(channels: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A number a channel in the shape [1, channels, 1, ...]."""
    return channels.view(1, -1, *[1] * (like.dim() - 2))


def _summed(replicas: Replicas, numbers: torch.Tensor) -> torch.Tensor:
    """The sum over the ranks, in place."""
    held = numbers.detach().contiguous()
    if replicas.size > 1:
        all_reduce(as_array(held), replicas.comm, "sum", deterministic=True, kind=kind_of(held.dtype)).wait()
    return held
