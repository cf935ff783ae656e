"""What `hpckit bench train` runs for experts: one thread a rank.

On one rank the layer, and a loop of every expert over all tokens. On two ranks, each with half of the experts and half
of the tokens, forward and backward, against one that has all of them.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.measure import interleave
from hpckit.bench.ranks import answer
from hpckit.bench.train.ranks import time_in_turn
from hpckit.comm.mesh import Mesh
from hpckit.kernels.nn import dispatch
from hpckit.nn.feedforward import Experts
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Parameters
from hpckit.training.experts.model import own_experts
from hpckit.training.experts.way import ExpertRanks

WIDTH, HIDDEN, EXPERTS, TOP_K = 256, 896, 8, 2  # the proportions of Mixtral's
WIDE = 512  # of the layer that ranks share


def case(tokens: int, rounds: int) -> dict[str, Any]:
    """What the ranks that there are measure."""
    return alone(tokens, rounds) if MPI.COMM_WORLD.size == 1 else together(tokens, rounds)


def together(tokens: int, rounds: int) -> dict[str, Any]:
    """Seconds of a layer forward and backward over so many tokens; results compared first.

    apart: a rank with half of the tokens and half of the experts, without messages: what the machine allows.
    """
    comm = MPI.COMM_WORLD
    x, dy = np.random.default_rng(1).standard_normal((2, 1, tokens, WIDE)).astype(np.float32)
    first, end = tokens * comm.rank // comm.size, tokens * (comm.rank + 1) // comm.size
    with Mesh(comm, edp=1, ep=comm.size, etp=1) as mesh:
        whole = Experts(WIDE, 7 * WIDE // 2, EXPERTS, TOP_K)
        own = own_experts(Experts(WIDE, 7 * WIDE // 2, EXPERTS, TOP_K), ExpertRanks(mesh))
        part = Experts(WIDE, 7 * WIDE // 2, EXPERTS // comm.size, TOP_K)
        for layer in (whole, own, part):
            Parameters(layer.parameters()).initialize(1)

        def step(layer: Experts, x: Any, dy: Any) -> tuple[Any, Any]:
            x *= 1.0  # rewritten before each pass
            y, saved = layer.forward(x, Pass())
            dx = layer.backward_input(saved, dy)
            layer.backward_weight(saved, dy)
            return y, dx

        mine, its = x[:, first:end].copy(), dy[:, first:end].copy()
        for found, expected in zip(step(own, mine, its), step(whole, x, dy), strict=True):
            np.testing.assert_allclose(found, expected[:, first:end], rtol=1e-3, atol=1e-4)
        steps = {
            "one": lambda: float(step(whole, x, dy)[0][0, 0, 0]),
            "experts": lambda: float(step(own, mine, its)[0][0, 0, 0]),
            "apart": lambda: float(step(part, mine, its)[0][0, 0, 0]),
        }
        return {"times": time_in_turn(steps, ("one",), rounds)}


def alone(tokens: int, rounds: int) -> dict[str, Any]:
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
