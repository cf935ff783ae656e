"""A model whose columns and heads are split over ranks, which several replicas compute, or whose layers stand on
several stages, has the bits of one rank: on 1, 2, 3, 4 ranks.
"""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.comm.agree import share_json
from hpckit.comm.shared import group
from hpckit.comm.shared.compiled.constants import SEQUENCE
from hpckit.plan.proving import prove
from hpckit.serving import Engine, Sampling
from hpckit.serving.model import ACTIONS
from hpckit.serving.plan.plan import ServingPlan

WORLD = MPI.COMM_WORLD


class Watched(Engine):
    """An engine that keeps the bits of the logits. What a rank computes, sends and waits for in a step is what the plan
    of the step says, which rank 0 proves.
    """

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.bits, self.did, self.proved = [], [], 0
        for name in ("embed", "answer"):
            self._record(self.model, f"_{name}", name)
        self.model._decode = self._decoded(self.model._decode)
        lead = not self.team.column
        self._record(self.team, "carry", *["sends"] * lead)
        self._record(self.team, "carried", *["receives"] * lead)
        self._record(self.team, "wait", *["waits"] * (self.team.columns > 1))
        run = self.model.run

        def compared(step):
            self.did.clear()
            logits = run(step)
            plan = ServingPlan(self.team.places, tuple(map(len, self.shape.layers_of(self.team.stages))), step)
            planned = list(of_rank(plan, self.team.rank))
            assert self.did == planned, (self.team.rank, self.did, planned)
            if not WORLD.rank and self.proved < 4:
                prove(plan)
                self.proved += 1
            return logits

        self.model.run = compared

    def _record(self, owner, method, *told):
        does = getattr(owner, method)

        def recorded(*given):
            self.did += told
            return does(*given)

        setattr(owner, method, recorded)

    def _decoded(self, decode):
        """The layers of a stage are one compiled call: what it walks through, and how often its replica met."""

        def recorded(*given):
            group = self.team._own if self.team.columns > 1 else None
            before = int(group.record[SEQUENCE]) if group else 0
            decode(*given)
            actions = [ACTIONS[does] for does in self.model._program[:, 0]]
            assert group is None or int(group.record[SEQUENCE]) - before == len(actions)
            self.did += [word for name in actions for word in (name, *["waits"] * (group is not None))]

        return recorded

    def _next(self, sample, row):
        self.bits.append((sample.request, len(sample.text.tokens), row.tobytes()))
        return super()._next(sample, row)


def of_rank(plan, rank):
    """What a rank does in a step, by its plan, after it has heard it and before all of its stage meet."""
    for step in plan.steps():
        work, (sends, receives) = step.work, (step.sends, step.receives)
        if work is not None:
            for at in np.flatnonzero(work.rank == rank):
                yield from [word for word in work.names[at].split()[:1] if word != "adds"]
        if "tells" in step.name or "meet" in step.name:
            continue
        if step.place == "messages":
            yield from ["sends"] * int((sends.rank == rank).sum())
            yield from ["receives"] * int((receives.rank == rank).sum())
        elif rank in (*sends.rank, *receives.rank):
            yield "waits"


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


replicas, stages = (int(word) for word in sys.argv[2:4])
brief = {"gpt2": ("float32",), "llama": ("q8_0",), "mixtral": ("float32",)} if sys.argv[4] == "brief" else {}
if not stages:  # one a node
    group._split_by_node = two_nodes
for folder in sorted(Path(sys.argv[1]).iterdir()):
    for kind in brief.get(folder.name, ("float32", "q8_0")):
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
