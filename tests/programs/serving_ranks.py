"""A model whose columns and heads are split over ranks, which several replicas compute, or whose layers stand on
several stages, has the bits of one rank: on 1, 2, 3, 4 ranks.
"""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.comm.agree import share_json
from hpckit.comm.shared import group
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


def on_replicas(engine):
    """Weights are there once: what one replica writes, its twins see. What one wrote, another finds."""
    panels, team = engine.weights.blocks[-1].out.packed.panels, engine.team
    kept = panels.reshape(-1)[:1].copy()  # none where a rank has no columns
    team.meet()
    if not team.replica:
        panels.reshape(-1)[:1] = 7
    team.meet()
    assert (panels.reshape(-1)[:1] == 7).all(), team.rank
    team.meet()
    panels.reshape(-1)[:1] = kept
    team.meet()
    if WORLD.rank:
        return engine.follow()
    long = np.random.default_rng(2).integers(0, 61, 40).tolist()
    way = Sampling(max_tokens=2, ignore_end=True)
    places, found = set(), 0
    engine.add(long, way)
    while not engine.idle:
        engine.step()
    for n in range(6):  # they crowd the replica that has computed the beginning
        engine.add([*long[:33], *[n] * 12], way)
    while not engine.idle:
        found += sum(event.found for event in engine.step() if event.reason)
        places |= {text.replica for text in engine.scheduler.running}
    assert min(2, team.replicas) <= len(places), places
    assert found == 6 * 32, found
    return engine.close()


def abandoned(engine):
    """Requests that are aborted while steps of them are under way bring nothing, and leave nothing behind."""
    if WORLD.rank:
        return engine.follow()
    for n in range(4):
        engine.add([5 + n] * 20, Sampling(max_tokens=9, ignore_end=True), name=str(n))
    engine.step()
    for n in (0, 3):
        engine.abort(str(n))
    brought = {event.request for _ in range(40) for event in engine.step()}
    assert brought == {"1", "2"}, brought
    assert engine.idle
    assert engine.blocks.used == 0
    engine.blocks.check()
    return engine.close()


def two_nodes(comm):
    """The ranks of `comm` on this half of the world, as if it was a node."""
    node = comm.Split(2 * WORLD.rank // WORLD.size)
    alike = np.array([node.size == comm.size])
    comm.Allreduce(MPI.IN_PLACE, alike, MPI.LAND)
    return comm if alike[0] else node


replicas, stages = (int(word) for word in sys.argv[2:])
if not stages:  # one a node
    group._split_by_node = two_nodes
for folder in sorted(Path(sys.argv[1]).iterdir()):
    for kind in ("float32", "q8_0"):
        engine = Watched(folder, weights=kind, rows=50, texts=4, comm=WORLD, replicas=replicas, stages=stages)
        assert engine.team.stages == (stages or 2)
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
        assert total[0] <= alone.weights.nbytes * replicas * 1.01  # each weight once
        on_replicas(engine)
        abandoned(engine)

if WORLD.rank == 0:
    print("good")
