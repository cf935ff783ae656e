"""What `hpckit bench train` runs for products in a fixed order: the tile and NumPy's BLAS in turn, one thread."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np

from hpckit.bench.measure import interleave
from hpckit.bench.ranks import answer
from hpckit.kernels.nn.tile import dispatch

INPUTS, OUTPUTS = 1024, 5632  # both halves of a gated feed-forward layer of width 1024
COPIES = 8  # of the weight: more than a cache holds, as the layers of a model are


def case(rows: int, kinds: list[str], rounds: int) -> dict[str, Any]:
    """Seconds of a product of so many rows with each copy of a weight; results compared first."""
    random = np.random.default_rng(1)
    a, out = random.standard_normal((rows, INPUTS), np.float32), np.empty((rows, OUTPUTS), np.float32)
    weights = [random.standard_normal((INPUTS, OUTPUTS), np.float32) for _ in range(COPIES)]
    packed = {kind: [dispatch.pack(weight, kind) for weight in weights] for kind in kinds}
    dispatch.multiply(a, packed["float32"][0], out)
    np.testing.assert_allclose(out, a @ weights[0], rtol=1e-3, atol=1e-3)

    def ours(kind: str) -> None:
        for weight in packed[kind]:
            dispatch.multiply(a, weight, out)

    def theirs() -> None:
        for weight in weights:
            np.matmul(a, weight, out=out)

    times = interleave({**{kind: partial(ours, kind) for kind in kinds}, "blas": theirs}, rounds)
    return {"times": times, "flops": 2 * rows * INPUTS * OUTPUTS * COPIES}


if __name__ == "__main__":
    answer(sys.argv[1:], case)
