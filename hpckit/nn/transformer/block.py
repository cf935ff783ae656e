"""The residual branches of a transformer's block, and recomputation that saves memory."""

from __future__ import annotations

from typing import Any

from hpckit.nn.feedforward import Experts, FeedForward, GatedFeedForward
from hpckit.nn.layer import Layer, Pass, Turns, at_once, backward_turns, forward_turns
from hpckit.nn.parameters import Parameter
from hpckit.nn.transformer.attention import Attention


class Residual:
    """y = x + dropout(branch(norm(x))). Without dropout the branch's last product does the sum.

    norm: a `LayerNorm`, an `RMSNorm`, or what a rank computes of one; dropout: a `Dropout` alike.
    """

    def __init__(
        self,
        norm: Any,
        branch: Attention | FeedForward | GatedFeedForward | Experts,
        dropout: Any = None,
    ) -> None:
        self.norm, self.branch, self.dropout = norm, branch, dropout if dropout and dropout.rate else None

    def parameters(self) -> list[Parameter]:
        """Those of the norm, then those of the branch."""
        return self.norm.parameters() + self.branch.parameters()

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` holds what norm and branch saved, and the pass for dropout."""
        return at_once(self.forward_turns(x, step))

    def forward_turns(self, x: Any, step: Pass) -> Turns[tuple[Any, Any]]:
        """`forward` in turns."""
        normed, of_norm = self.norm.forward(x, step)
        if self.dropout is None:
            y, of_branch = yield from forward_turns(self.branch, normed, step, onto=x)
        else:
            change, of_branch = yield from forward_turns(self.branch, normed, step)
            y = x + self.dropout.forward(change, step)[0]
        step.rounded(y)
        return y, {"norm": of_norm, "branch": of_branch, "pass": step}

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x. `saved` keeps those between the parts for W."""
        return at_once(self.backward_turns(saved, dy))

    def backward_turns(self, saved: Any, dy: Any) -> Turns[Any]:
        """`backward_input` in turns."""
        saved["dbranch"] = dy if self.dropout is None else self.dropout.backward_input(saved["pass"], dy)
        saved["dnorm"] = yield from backward_turns(self.branch, saved["branch"], saved["dbranch"])
        return self.norm.backward_input(saved["norm"], saved["dnorm"], carry=dy)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of the branch, then of the norm."""
        self.branch.backward_weight(saved["branch"], saved["dbranch"])
        self.norm.backward_weight(saved["norm"], saved["dnorm"])


class Recompute:
    """A layer that keeps only its input and runs forward again in backward: the same bits with less memory.

    Chen et al., "Training deep nets with sublinear memory cost", 2016. Dropout draws the same numbers again.
    """

    def __init__(self, layer: Layer) -> None:
        self.layer = layer

    def parameters(self) -> list[Parameter]:
        """Those of the layer."""
        return self.layer.parameters()

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is x and the pass."""
        return at_once(self.forward_turns(x, step))

    def forward_turns(self, x: Any, step: Pass) -> Turns[tuple[Any, Any]]:
        """`forward` in turns."""
        y, _ = yield from forward_turns(self.layer, x, step)
        return y, [x, step]

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """Run forward again, then B."""
        return at_once(self.backward_turns(saved, dy))

    def backward_turns(self, saved: Any, dy: Any) -> Turns[Any]:
        """`backward_input` in turns."""
        _, inner = yield from forward_turns(self.layer, *saved)
        saved[:] = [inner]
        return (yield from backward_turns(self.layer, inner, dy))

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W, from what B computed."""
        self.layer.backward_weight(saved[0], dy)
