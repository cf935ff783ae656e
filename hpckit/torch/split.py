"""The backward pass of a module of PyTorch in two halves: the gradient of its input, then those of its parameters.

Qi et al., Zero bubble pipeline parallelism, 2024, arXiv:2401.10241. Autograd computes only what it is asked for: the
first half asks for the gradient of the input, and keeps the gradients of the outputs of all inner modules with
parameters on its way; the second asks each of those modules for its own parameters, with the gradient that was kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge


class Uses:
    """What a forward pass used: the inner modules' outputs in the graph, and their gradients once they are known."""

    def __init__(self) -> None:
        self.edges: dict[nn.Module, GradientEdge] = {}
        self.gradients: dict[nn.Module, torch.Tensor] = {}
        self.is_split = True  # False: some module was used twice, or gives several tensors


class SplitBackward:
    """A module whose backward pass can be halved. Each forward pass gives `Uses`, for as many as are under way.

    Where a module is used twice in a pass, gives several tensors, or has its output overwritten in place, the second
    half goes through the whole graph again. The gradients have the same bits either way.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._now: Uses | None = None
        owners: dict[int, list[nn.Module]] = {}
        for inner in module.modules():
            for parameter in inner.parameters(recurse=False):
                if parameter.requires_grad:
                    owners.setdefault(id(parameter), []).append(inner)
        self._shared = any(len(own) > 1 for own in owners.values())
        self._trained = [p for p in module.parameters() if p.requires_grad]
        for inner in {each for own in owners.values() for each in own}:
            inner.register_forward_hook(self._seen)

    def forward(self, x: torch.Tensor) -> tuple[Any, Uses]:
        """What the module gives, with gradients to come."""
        self._now = uses = Uses()
        uses.is_split = not self._shared
        try:
            with torch.enable_grad():
                return self.module(x), uses
        finally:
            self._now = None

    def _seen(self, inner: nn.Module, _: Any, output: Any) -> None:
        uses = self._now
        if uses is None:
            return
        if not isinstance(output, torch.Tensor) or inner in uses.edges:
            uses.is_split = False
        elif output.requires_grad:
            uses.edges[inner] = get_gradient_edge(output)
            output.register_hook(lambda gradient: self._keep(uses, inner, gradient))

    def _keep(self, uses: Uses, inner: nn.Module, gradient: torch.Tensor) -> None:
        uses.gradients[inner] = gradient

    def input_gradient(self, y: torch.Tensor, x: torch.Tensor, dy: torch.Tensor | None) -> torch.Tensor | None:
        """The first half: the gradient of x. The graph stays."""
        return torch.autograd.grad(y, x, dy, retain_graph=True, allow_unused=True)[0]

    def add_weight_gradients(self, uses: Uses, y: torch.Tensor, dy: torch.Tensor | None) -> None:
        """The second half: add to the gradients of the parameters."""
        if not uses.is_split or len(uses.gradients) < len(uses.edges):  # such as what is overwritten in place
            if self._trained:
                torch.autograd.backward(y, dy, inputs=self._trained)
            return
        for inner, gradient in uses.gradients.items():
            own: Sequence[nn.Parameter] = [p for p in inner.parameters(recurse=False) if p.requires_grad]
            torch.autograd.backward((uses.edges[inner],), (gradient,), retain_graph=True, inputs=own)
        uses.gradients.clear()
        uses.edges.clear()
