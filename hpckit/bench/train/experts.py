"""What `hpckit bench train` runs for experts: the layer, and a loop of every expert over all tokens; one thread."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hpckit.bench.measure import interleave
from hpckit.bench.ranks import answer
from hpckit.kernels.nn import dispatch
from hpckit.nn.feedforward import Experts
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Parameters

WIDTH, HIDDEN, EXPERTS, TOP_K = 256, 896, 8, 2  # the proportions of Mixtral's


def case(tokens: int, rounds: int) -> dict[str, Any]:
    """Seconds of a forward pass over so many tokens; results compared first."""
    layer = Experts(WIDTH, HIDDEN, EXPERTS, TOP_K)
    Parameters(layer.parameters()).initialize(1)
    x = np.random.default_rng(1).standard_normal((1, tokens, WIDTH)).astype(np.float32)
    flat, gate, hidden = x[0], np.empty((tokens, HIDDEN), np.float32), np.empty((tokens, HIDDEN), np.float32)
    up, y = np.empty_like(gate), np.empty_like(x[0])

    def dense() -> None:
        values = flat @ layer.router.weight.value
        least = np.partition(values, -TOP_K, axis=1)[:, -TOP_K, None]
        raised = np.where(values >= least, np.exp(values - values.max(axis=1, keepdims=True)), np.float32(0))
        weights = raised / raised.sum(axis=1, keepdims=True)
        y[...] = 0
        for expert in range(EXPERTS):
            np.matmul(flat, layer.gate.value[expert], out=gate)
            np.matmul(flat, layer.up.value[expert], out=up)
            dispatch.swiglu(gate, up, hidden)
            y[...] += weights[:, expert, None] * (hidden @ layer.down.value[expert])

    def grouped() -> Any:
        x[...] *= 1.0  # rewritten before each pass
        return layer.forward(x, Pass())[0]

    dense()
    np.testing.assert_allclose(grouped()[0], y, rtol=1e-3, atol=1e-4)
    return {"times": interleave({"experts": grouped, "dense loop": dense}, rounds)}


if __name__ == "__main__":
    answer(sys.argv[1:], case)
