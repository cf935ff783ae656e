"""A model whose columns and heads are split over ranks has the bits of one rank: on 1, 2, 3, 4 ranks."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.comm.agree import share_json
from hpckit.serving import Engine, Sampling

WORLD = MPI.COMM_WORLD


class Watched(Engine):
    """An engine that keeps the bits of the logits."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.bits = []

    def _next(self, sample, row):
        self.bits.append((sample.request, len(sample.text.tokens), row.tobytes()))
        return super()._next(sample, row)


def written(engine):
    random = np.random.default_rng(1)
    prompts = [random.integers(0, 61, n).tolist() for n in (1, 40, 70)]
    ways = [Sampling(max_tokens=9, ignore_end=True, temperature=0.8 * n, seed=n) for n in range(3)]
    return [one.tokens for one in engine.generate(prompts, ways)]


for folder in sorted(Path(sys.argv[1]).iterdir()):
    for kind in ("float32", "q8_0"):
        engine = Watched(folder, weights=kind, rows=50, texts=4, comm=WORLD)
        found = [written(engine), written(engine)]  # it can be used again
        alone = Watched(folder, weights=kind, rows=256, texts=4)
        expected = written(alone)
        found, bits = share_json(WORLD, found), engine.bits
        assert found == [expected, expected], (folder.name, kind)
        if WORLD.rank == 0:
            assert set(bits) == set(alone.bits) | {
                (f"request-{int(name[8:]) + 3}", *rest) for name, *rest in alone.bits
            }
        total = np.array([engine.weights.nbytes], np.int64)
        WORLD.Allreduce(MPI.IN_PLACE, total)
        assert total[0] <= alone.weights.nbytes * 1.01  # each weight once

if WORLD.rank == 0:
    print("good")
