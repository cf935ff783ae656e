"""Random wrong plans of every kind against a simulation in whole numbers that shares no code with the proofs.

A mutant is a plan with one or two random changes: of peers, extents, ranks, order, operations, waits, roots, nodes,
types. Whatever the simulation finds wrong, `prove` must refuse; and refuse with `PlanError`, whatever the change.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import random
from collections import Counter, defaultdict

import numpy as np
import pytest

from hpckit.errors import DecompositionError, PlanError
from hpckit.plan.collective import plan as collective
from hpckit.plan.collective.algorithms import ALGORITHMS, collective_plan
from hpckit.plan.collective.gossip import GRAPHS, gossip_plan
from hpckit.plan.collective.memory import IN_MEMORY
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import HaloPlan, halo_plan
from hpckit.plan.grid.panels import PanelPlan
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.particles.ghosts import GhostPlan
from hpckit.plan.particles.migration import MigrationPlan
from hpckit.plan.pipeline.program import pipeline_program
from hpckit.plan.pipeline.schedules import SCHEDULES, pipeline_schedule
from hpckit.plan.protocol import Step
from hpckit.plan.proving import prove
from hpckit.plan.tensors.fourier import FourierPlan
from hpckit.plan.tensors.layout import Layout, Partial, Replicate, Shard
from hpckit.plan.tensors.redistribution import RedistributionPlan, ways
from hpckit.plan.topology import Topology
from hpckit.plan.training.dispatch import DispatchPlan
from hpckit.plan.training.model import language_model
from hpckit.plan.training.step import TrainingStep
from hpckit.plan.training.strategy import Strategy

MADE = 1 << 62
DIGIT = 40  # bits of the number of times that a contribution is in a sum


class Wrong(Exception):
    """What the simulation finds."""


# --- the simulation -------------------------------------------------------------------------------------------------


def whole(value, least, below):
    if isinstance(value, bool) or int(value) != value or not least <= value < below:
        raise Wrong(f"{value} is not one of {least} to {below}")
    return int(value)


def side(step, ends, ranks, cells):
    """Of each pair of sender and receiver the lists of cells of its messages, in order; and their amounts."""
    found = defaultdict(list)
    n = len(ends.peer)
    if not len(ends.first) == len(ends.last) == n or (n != ranks if ends.rank is None else len(ends.rank) != n):
        raise Wrong("lengths")
    for m in range(n):
        if ends.peer[m] == -1:
            continue
        rank = m if ends.rank is None else whole(ends.rank[m], 0, ranks)
        peer = whole(ends.peer[m], 0, ranks)
        first, last = whole(ends.first[m], 0, 10**9), whole(ends.last[m], 0, 10**9)
        room = cells if ends.cells is None else len(ends.cells)
        wraps = step.wraps and ends.cells is None
        if last < first or last > (first + room if wraps else room) or (wraps and last > first >= room):
            raise Wrong("an extent")
        places = [k % room if wraps else k for k in range(first, last)]
        if ends.cells is not None:
            places = [whole(ends.cells[k], 0, cells) for k in places]
        amount = len(places) if ends.amount is None else float(ends.amount[m])
        found[(rank, peer) if ends is step.sends else (peer, rank)].append((places, amount))
    return found


def messages_of(step, number, ranks, cells, node, sizes):
    """The messages of a step; raises `Wrong` where the two ends do not meet."""
    if step.place not in ("messages", "memory") or step.lag < 1:
        raise Wrong("place or lag")
    sent, taken = side(step, step.sends, ranks, cells), side(step, step.receives, ranks, cells)
    made = []
    for pair in sent.keys() | taken.keys():
        if len(sent[pair]) != len(taken[pair]):
            raise Wrong("a message without its other end")
        for (out, much), (into, wanted) in zip(sent[pair], taken[pair], strict=True):
            if len(out) != len(into) or much != wanted:
                raise Wrong("unequal ends")
            if step.place == "memory" and (node is None or node[pair[0]] != node[pair[1]]) and pair[0] != pair[1]:
                raise Wrong("no shared memory")
            for a, b in zip(out, into, strict=True):
                two = {sizes[pair[0]][a], sizes[pair[1]][b]} if sizes is not None else {0}
                if len(two) > 1 and None not in two:
                    raise Wrong("cells of different sizes")
            made.append([number, pair, out, into, step, None])
    return made


def simulate(plan, steps, memory, cells, rng, late, node=None, sizes=None):
    """What is in memory at the end. late: messages read and arrive as late as the plan allows, in a random order."""
    pending = []

    def read(message):
        _, (sender, _), out, _, step, values = message
        if values is None:
            message[5] = [memory[sender][c] for c in out]
            if step.clears:
                for c in out:
                    memory[sender][c] = 0

    def arrive(message):
        _, (_, receiver), _, into, step, _ = message
        if step.add and step.place == "messages":  # who adds waits until what it sent has left
            for other in pending:
                if other[1][0] == receiver and other[4].place == "messages" and set(other[2]) & set(into):
                    read(other)
        read(message)
        for cell, value in zip(into, message[5], strict=True):
            memory[receiver][cell] = memory[receiver][cell] + value if step.add else value

    def deliver(until):
        due = [m for m in pending if m[0] <= until]
        rng.shuffle(due)
        due.sort(key=lambda m: m[0])
        for message in due:
            arrive(message)
            pending.remove(message)

    number = -1
    for number, step in enumerate(steps):
        deliver(number - step.lag)
        if not late:
            deliver(number)
        if step.work is not None:
            compute(step.work, memory, plan.ranks, cells)
        new = messages_of(step, number, plan.ranks, cells, node, sizes)
        pending += new
        for message in new:
            if not late or step.clears:
                read(message)
    deliver(number)
    return memory


def compute(work, memory, ranks, cells):
    """All entries at once: each finds what it needs, and leaves what it makes; content i is the number MADE + i."""
    tables = work.reads, work.needs, work.writes, work.makes
    if any(len(each) != len(work.rank) for each in tables) or len(work.seconds) != len(work.rank):
        raise Wrong("lengths")
    for rank, reads, needs in zip(work.rank, work.reads, work.needs, strict=True):
        for cell, need in zip(reads, needs, strict=True):
            if need != -1 and memory[whole(rank, 0, ranks)][whole(cell, 0, cells)] != MADE + whole(need, 0, MADE):
                raise Wrong("what is needed is not there")
    for rank, writes, makes in zip(work.rank, work.writes, work.makes, strict=True):
        for cell, made in zip(writes, makes, strict=True):
            if made != -1:
                memory[whole(rank, 0, ranks)][whole(cell, 0, cells)] = MADE + whole(made, 0, MADE)


def is_right(plan, steps, start, end, cells, rng, node=None, sizes=None, zeros=False):
    """Whether the cells of `end` hold the sums of contributions that they must, however messages are delayed. zeros:
    what cells without data hold.
    """
    for late in (False, True, True):
        place = iter(range(10**9))
        memory = [
            [0 if zeros and (r, c) not in start else 1 << DIGIT * next(place) for c in range(cells)]
            for r in range(plan.ranks)
        ]
        given = defaultdict(int)
        for (rank, cell), index in start.items():
            given[index] += memory[rank][cell]
        fixed = [(rank, cell, memory[rank][cell]) for rank, cell in start if end.get((rank, cell)) == "fixed"]
        try:
            simulate(plan, steps, memory, cells, rng, late, node, sizes)
        except Wrong:
            return False
        if any(memory[r][c] != value for r, c, value in fixed):
            return False
        if any(memory[r][c] != given.get(index) for (r, c), index in end.items() if index != "fixed"):
            return False
    return True


# --- plans and their changes -----------------------------------------------------------------------------------------


class Changed:
    """A plan with other steps; `claim` is that of the plan."""

    def __init__(self, plan, steps):
        self.plan, self.ranks, self.made = plan, plan.ranks, steps

    def title(self):
        return "a mutant"

    def steps(self):
        return iter(self.made)

    def claim(self):
        return self.plan.claim()


def changed_end(ends, rng, ranks, cells):
    """One number of an end changed."""
    name = rng.choice(["peer", "first", "last", "both", "both", "wider", "swap", "rank", "type", "short", "cells"])
    arrays = {key: np.array(getattr(ends, key)) for key in ("peer", "first", "last")}
    if not len(arrays["peer"]):
        return ends
    m = rng.randrange(len(arrays["peer"]))
    by = rng.choice([-1, 1, 1, -2, 2, -cells, cells])
    if name == "peer":
        arrays["peer"][m] = rng.randint(-2, ranks)
    elif name in ("first", "last"):
        arrays[name][m] += by
    elif name == "both":
        arrays["first"][m] += by
        arrays["last"][m] += by
    elif name == "wider":
        arrays["last"] = arrays["last"] + by
    elif name == "swap":
        other, key = rng.randrange(len(arrays["peer"])), rng.choice(list(arrays))
        arrays[key][[m, other]] = arrays[key][[other, m]]
    elif name == "rank" and ends.rank is not None:
        arrays["rank"] = np.array(ends.rank)
        arrays["rank"][m] = rng.randint(-1, ranks)
    elif name == "type":
        key = rng.choice(list(arrays))
        arrays[key] = rng.choice([arrays[key] + 0.5, arrays[key].astype(str), None, list(arrays[key])])
    elif name == "short":
        key = rng.choice(list(arrays))
        arrays[key] = arrays[key][:-1]
    elif name == "cells" and ends.cells is not None and len(ends.cells):
        arrays["cells"] = np.array(ends.cells)
        arrays["cells"][rng.randrange(len(ends.cells))] += by
    return dataclasses.replace(ends, **arrays)


def changed_step(step, rng, ranks, cells):
    """A step with one change, which may be of both ends alike."""
    kind = rng.choice(
        ["end"] * 4 + ["alike"] * 3 + ["lost", "add", "wraps", "lag", "place", "ranks", "crossed", "twice"]
    )
    ends = {"sends": step.sends, "receives": step.receives}
    if kind == "end":
        name = rng.choice(list(ends))
        return dataclasses.replace(step, **{name: changed_end(ends[name], rng, ranks, cells)})
    if kind == "add":
        return dataclasses.replace(step, add=not step.add)
    if kind == "wraps":
        return dataclasses.replace(step, wraps=not step.wraps)
    if kind == "lag":
        return dataclasses.replace(step, lag=rng.choice([0, step.lag + 1, step.lag + 2, 1]))
    if kind == "place":
        return dataclasses.replace(step, place="memory" if step.place == "messages" else "messages")
    sent = np.flatnonzero(step.sends.peer >= 0)
    if not len(sent) or kind == "ranks":  # all ranks by other numbers
        order = list(range(ranks))
        rng.shuffle(order)
        to = np.array([*order, -1])
        new = {}
        for name, it in ends.items():
            if it.rank is None:
                back = np.argsort(order)
                more = {key: getattr(it, key)[back] for key in ("first", "last")}
                new[name] = dataclasses.replace(it, peer=to[it.peer][back], **more)
            else:
                new[name] = dataclasses.replace(it, peer=to[it.peer], rank=to[it.rank])
        return dataclasses.replace(step, **new)
    m = int(rng.choice(list(sent)))
    sender, receiver = int(step.sends.ranks()[m]), int(step.sends.peer[m])
    met = np.flatnonzero((step.receives.ranks() == receiver) & (step.receives.peer == sender))[0]
    new = {name: {key: np.array(getattr(it, key)) for key in ("peer", "first", "last")} for name, it in ends.items()}
    if kind == "alike":  # both ends of a message move, or widen
        by, key = rng.choice([-1, 1, 2]), rng.choice([("first", "last"), ("last",), ("first",)])
        for name, at in (("sends", m), ("receives", met)):
            for each in key:
                new[name][each][at] += by
    elif kind == "lost":
        new["sends"]["peer"][m] = new["receives"]["peer"][met] = -1
    elif kind == "crossed" and step.sends.rank is None and len(sent) > 1:  # two messages go to each other's receivers
        n = int(rng.choice([k for k in sent if k != m]))
        others = new["sends"]["peer"]
        others[[m, n]] = others[[n, m]]
        receivers = step.sends.peer[[m, n]]
        for key in new["receives"].values():
            key[receivers] = key[receivers] if rng.random() < 0.5 else key[receivers[::-1]]
        new["receives"]["peer"][others[[m, n]]] = [m, n]
    elif kind == "twice" and step.sends.rank is not None:
        more = {"sends": m, "receives": met}
        return dataclasses.replace(
            step,
            **{
                name: dataclasses.replace(
                    it,
                    **{
                        key: np.append(getattr(it, key), getattr(it, key)[more[name]])
                        for key in ("peer", "first", "last", "rank", *(["amount"] if it.amount is not None else []))
                    },
                )
                for name, it in ends.items()
            },
        )
    return dataclasses.replace(step, **{name: dataclasses.replace(it, **new[name]) for name, it in ends.items()})


def changed_steps(steps, rng, ranks, cells):
    """The steps with one or two changes."""
    steps = list(steps)
    for _ in range(rng.choice([1, 1, 2])):
        if not steps:
            return steps
        at, kind = rng.randrange(len(steps)), rng.random()
        if kind < 0.8:
            with contextlib.suppress(IndexError, TypeError, ValueError):  # the step is malformed by an earlier change
                steps[at] = changed_step(steps[at], rng, ranks, cells)
        elif kind < 0.85:
            del steps[at]
        elif kind < 0.9:
            steps.insert(at, steps[at])
        else:
            other = rng.randrange(len(steps))
            steps[at], steps[other] = steps[other], steps[at]
    return steps


# --- each kind of plan: a mutant, and whether it is right ------------------------------------------------------------


def promise(plan):
    """Cells with data before, and what cells must hold after, by the definition of the operation."""
    p, slots = plan.ranks, plan.slots
    if plan.operation == "all_to_all":
        start = {(r, q): (r, q) for r in range(p) for q in range(p)}
        return start, {(q, p + r): (r, q) for r in range(p) for q in range(p)}
    every = {(r, s): s for r in range(p) for s in range(slots)}
    root = {(plan.root, s): s for s in range(slots)}
    blocks = np.array_split(np.arange(slots), p)
    own = {(r, int(s)): int(s) for r in range(p) for s in blocks[r]}
    return {
        "all_reduce": (every, every),
        "reduce": (every, root),
        "reduce_scatter": (every, own),
        "broadcast": (root, every),
        "scatter": (root, own),
        "gather": (own, root),
        "all_gather": (own, every),
    }[plan.operation]


def elements(plan, count):
    """Elements of each slot of each rank; None in memory behind the slots."""
    p, behind = plan.ranks, [None] * plan.room
    if plan.operation == "all_to_all":
        each = [len(part) for part in np.array_split(np.arange(count), p)]
        return [[*each, *[each[r]] * p, *behind] for r in range(p)]
    return [[len(part) for part in np.array_split(np.arange(count), plan.slots)] + behind] * p


def a_collective(rng):
    operation = rng.choice(list(ALGORITHMS))
    every = ALGORITHMS[operation] | IN_MEMORY.get(operation, {})
    algorithm = rng.choice(list(every))
    ranks = rng.choice([1, 2, 3, 4, 5, 6, 8])
    options = {}
    takes = every[algorithm][1]
    if "root" in takes:
        options["root"] = rng.randrange(ranks)
    if "segments" in takes and rng.random() < 0.3:
        options["segments"] = rng.choice([2, 3])
    if "node_size" in takes:
        options["node_size"] = rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0])
    plan = collective_plan(operation, algorithm, ranks, **options)
    cells = plan.slots + plan.room
    steps = changed_steps(plan.steps(), rng, ranks, cells)
    start, end = promise(plan)
    if rng.random() < 0.05:  # a fact about the plan is wrong
        name, value = rng.choice(
            [
                ("root", ranks),
                ("root", -1),
                ("slots", 0),
                ("slots", -1),
                ("ranks", 0),
                ("operation", "sum"),
                ("room", -1),
            ]
        )
        plan = dataclasses.replace(plan, **{name: value})
        return plan, lambda: False
    if plan.node is not None and rng.random() < 0.1:
        node = np.array([rng.randrange(2) for _ in range(ranks)])
        plan = dataclasses.replace(plan, node=node)
    sizes = elements(plan, 7 * plan.slots + rng.randrange(1, plan.slots + 1))
    return Changed(plan, steps), lambda: is_right(plan, steps, start, end, cells, rng, plan.node, sizes)


def a_gossip(rng):
    graph, ranks = rng.choice(list(GRAPHS)), rng.choice([1, 2, 4, 8])
    plan = gossip_plan(graph, ranks, rng.randrange(3))
    steps, shares = list(plan.steps()), np.array(plan.shares)
    if rng.random() < 0.4:
        for _ in range(rng.choice([1, 2, 4])):
            shares[rng.randrange(plan.slots), rng.randrange(ranks)] += rng.choice([-1, 1])
    else:
        steps = changed_steps(steps, rng, ranks, plan.slots)
    plan = dataclasses.replace(plan, shares=shares)

    def right():
        for late in (False, True):
            place = iter(range(10**6))
            memory = [[1 << DIGIT * next(place) for _ in range(plan.slots)] for _ in range(ranks)]
            own = [row[0] for row in memory]
            try:
                simulate(plan, steps, memory, plan.slots, rng, late)
            except Wrong:
                return False
            if (shares < 0).any() or [row[0] for row in memory] != own:
                return False
            given = [sum(int(shares[s, r]) * memory[r][s] for s in range(plan.slots)) for r in range(ranks)]
            digits = [[value >> DIGIT * (r * plan.slots) & (1 << DIGIT) - 1 for r in range(ranks)] for value in given]
            rest = [v - sum(d * own[r] for r, d in enumerate(row)) for v, row in zip(given, digits, strict=True)]
            sums = [sum(row) for row in digits] + [sum(column) for column in zip(*digits, strict=True)]
            if any(rest) or set(sums) != {plan.parts}:
                return False
        return True

    return Changed(plan, steps), right


def a_migration(rng):
    ranks = rng.choice([1, 2, 3, 5])
    counts = np.array([[rng.choice([0, 0, 1, 3]) for _ in range(ranks)] for _ in range(ranks)])
    plan = MigrationPlan(counts)
    most = int(counts.sum(axis=1).max())
    cells = most + int(counts.sum(axis=0).max())
    start, end = {}, {}
    fills = [most] * ranks
    for r in range(ranks):
        cell = 0
        for q in range(ranks):
            for _ in range(counts[r, q]):
                start[r, cell] = r, cell
                end[q, fills[q]] = r, cell
                cell, fills[q] = cell + 1, fills[q] + 1
    if rng.random() < 0.3:
        taken = counts.T.copy()
        at = rng.randrange(ranks), rng.randrange(ranks)
        taken[at] += rng.choice([-1, 1])
        plan = dataclasses.replace(plan, taken=taken)
        return plan, lambda: False
    steps = changed_steps(plan.steps(), rng, ranks, cells)
    return Changed(plan, steps), lambda: is_right(plan, steps, start, end, cells, rng)


@functools.cache
def some_ghosts(sizes):
    axes = ("z", "y", "x")
    domains = DomainDecomposition.even(Topology(axes, sizes, axes[:2]), (0.0, 0.0, 0.0), (4.0, 5.0, 6.0))
    where = np.random.default_rng(2).uniform((0, 0, 0), (4.0, 5.0, 6.0), (9, 3))
    node = np.arange(np.prod(sizes)) // 2
    plan = GhostPlan.of(domains, 0.9, where, node=node)
    return plan, plan.claim(), list(plan.steps()), node


def by_claim(plan, steps, rng, node=None):
    """Whether steps do what a plan claims, which is taken for true; where no data may arrive there is none."""
    claim = plan.claim()
    start, end = (np.broadcast_to(each, (plan.ranks, each.shape[1])) for each in (claim.start, claim.end))
    given = {(int(r), int(c)): int(start[r, c]) for r, c in np.argwhere(start >= 0)}
    due = {(int(r), int(c)): int(end[r, c]) for r, c in np.argwhere(end >= 0)}
    cells = start.shape[1]
    if not is_right(plan, steps, given, due, cells, rng, node, zeros=claim.zeros):
        return False
    memory = [[0] * cells for _ in range(plan.ranks)]
    for rank, cell in given:
        memory[rank][cell] = 1
    simulate(plan, steps, memory, cells, rng, late=False, node=node)
    return not any(memory[r][c] for r, c in np.argwhere(end == -2))


def a_ghost_plan(rng):
    """The images are those of the plan's own claim, which found them by looking at all images of all particles."""
    sizes = rng.choice([(1, 1, 1), (2, 1, 1), (1, 3, 1), (2, 1, 2)])
    plan, claim, steps, node = some_ghosts(sizes)
    steps = changed_steps(steps, rng, plan.ranks, claim.start.shape[1])
    return Changed(plan, steps), lambda: by_claim(plan, steps, rng, node)


@functools.cache
def some_panels(sizes):
    """A plan of a cubed sphere, and its steps."""
    plan = PanelPlan(Decomposition((6, 6, 6), Topology(("panel", "y", "x"), sizes), 0))
    return plan, list(plan.steps()), plan.claim().start.shape[1]


def panels(rng):
    plan, steps, cells = some_panels(rng.choice([(1, 1, 1), (2, 1, 1), (1, 2, 1), (6, 1, 1), (1, 2, 2)]))
    steps = changed_steps(steps, rng, plan.ranks, cells)
    return Changed(plan, steps), lambda: by_claim(plan, steps, rng)


def a_dispatch(rng):
    ranks = rng.choice([1, 2, 3, 4, 6])
    node = rng.choice([0, *(n for n in (1, 2, 3) if ranks % n == 0)])
    homes = np.array(
        [[[rng.randrange(ranks) for _ in range(2)] for _ in range(rng.choice([1, 3]))] for _ in range(ranks)][:1]
        * ranks
    )
    for rank in range(ranks):
        for token in range(homes.shape[1]):
            homes[rank, token] = -1 if rng.random() < 0.2 else [rng.randrange(ranks) for _ in range(2)]
    plan = DispatchPlan(homes, node, combine=rng.random() < 0.7)
    if rng.random() < 0.1:  # a fact about it is wrong
        wrong = rng.choice([("node_size", ranks + 1), ("node_size", -1), ("homes", homes + ranks), ("homes", homes[0])])
        return dataclasses.replace(plan, **dict([wrong])), lambda: not (homes >= 0).any()
    steps = changed_steps(plan.steps(), rng, ranks, plan.claim().start.shape[1])
    return Changed(plan, steps), lambda: by_claim(plan, steps, rng)


def a_layout(rng, shape, sizes, partial):
    """Any layout of a shape on axes of these sizes."""
    kinds = [Replicate(), *map(Shard, range(len(shape))), *[Partial()] * partial]
    names = ["a", "b"][: len(sizes)]
    placed = [(name, rng.choice(kinds)) for name in names]
    rng.shuffle(placed)  # which cuts a dim first
    return Layout(shape, Topology(tuple(names), sizes), dict(placed))


def a_redistribution(rng):
    """A change within one step of it; or the steps in another order, one too few, or one for another layout."""
    shape = rng.choice([(5,), (7, 4), (2, 3, 5)])
    sizes = rng.choice([(2,), (3,), (2, 2), (2, 3)])
    source, target = (a_layout(rng, shape, sizes, partial) for partial in (True, False))
    plan = rng.choice(ways(source, target))
    hops = list(plan.hops)
    if rng.random() < 0.8:
        hop = rng.choice(hops)
        steps = changed_steps(hop.steps(), rng, hop.ranks, hop.width)
        return Changed(hop, steps), lambda: by_claim(hop, steps, rng)
    kind, at = rng.choice(["gone", "twice", "swap", "other"]), rng.randrange(len(hops))
    if kind == "gone":
        del hops[at]
    elif kind == "twice":
        hops.insert(at, hops[at])
    elif kind == "swap":
        other = rng.randrange(len(hops))
        hops[at], hops[other] = hops[other], hops[at]
    else:
        name = rng.choice(["source", "target"])
        hops[at] = dataclasses.replace(hops[at], **{name: a_layout(rng, shape, sizes, False)})
    chained = all(one.target == other.source for one, other in itertools.pairwise(hops))

    def right():
        return bool(hops) and chained and all(by_claim(hop, list(hop.steps()), rng) for hop in hops)

    return RedistributionPlan(tuple(hops)), right


def a_fourier(rng):
    """Stages in another order, lost, doubled, of other dims or layouts; or a change of layout that is wrong."""
    shape = rng.choice([(6, 5), (4, 6, 5), (7, 4)])
    cuts = [Shard(rng.randrange(len(shape))) for _ in range(2)]
    sizes = rng.choice([(2, 2), (3, 1), (2, 3)])
    source = Layout(shape, Topology(("a", "b"), sizes), dict(zip("ab", cuts, strict=True)))
    plan = FourierPlan(source, rng.random() < 0.5)
    stages = list(plan.stages)
    at, kind = rng.randrange(len(stages)), rng.choice(["gone", "twice", "swap", "dims", "layout", "change", "none"])
    stage = stages[at]
    if kind == "gone":
        del stages[at]
    elif kind == "twice":
        stages.insert(at, stage)
    elif kind == "swap":
        other = rng.randrange(len(stages))
        stages[at], stages[other] = stages[other], stages[at]
    elif kind == "dims":
        dims = [rng.randrange(-1, len(shape) + 1) for _ in stage.dims]
        stages[at] = dataclasses.replace(stage, dims=tuple(dims))
    elif kind == "layout":
        stages[at] = dataclasses.replace(stage, layout=a_layout(rng, stage.layout.shape, sizes, False))
    elif kind == "none":
        stages[at] = dataclasses.replace(stage, change=None)
    elif stage.change is not None:
        hops = list(stage.change.hops)
        hops[rng.randrange(len(hops))] = dataclasses.replace(
            rng.choice(hops), **{rng.choice(["source", "target"]): a_layout(rng, stage.layout.shape, sizes, False)}
        )
        stages[at] = dataclasses.replace(stage, change=RedistributionPlan(tuple(hops)))
    plan.__dict__["stages"] = tuple(stages)

    def right():
        layout, done = source, []
        for stage in stages:
            if stage.change is not None:
                for hop in stage.change.hops:
                    if hop.source != layout or not by_claim(hop, list(hop.steps()), rng):
                        return False
                    layout = hop.target
            if stage.layout != layout:
                return False
            for dim in stage.dims:
                cut = [axis for axis in layout.cuts[dim] if sizes[axis] > 1] if 0 <= dim < len(shape) else [0]
                if cut:
                    return False
                if plan.real and not done:  # halved along the last dim, which must come first
                    if dim != len(shape) - 1:
                        return False
                    layout = dataclasses.replace(layout, shape=(*layout.shape[:-1], layout.shape[-1] // 2 + 1))
                done.append(dim)
        return sorted(done) == list(range(len(shape)))

    return plan, right


@functools.cache
def some_training(form):
    """A small step of training, and its steps."""
    dp, pp, cp, tp, schedule = form
    model = dataclasses.replace(language_model("llama3-8b"), layers=4)
    strategy = Strategy(dp * pp, 64, dp=dp, pp=pp, cp=cp, tp=tp, schedule=schedule)
    plan = TrainingStep(model, strategy, machine_of("selene"))
    return plan, list(plan.steps()), plan.claim().end


def a_training_step(rng):
    """Changes of messages, or of computations: where, of what and into what."""
    plan, steps, end = some_training(rng.choice([(2, 1, 1, 1, "1f1b"), (1, 2, 1, 2, "1f1b"), (1, 2, 2, 1, "zb_h1")]))
    cells = end.shape[1]
    busy = [at for at, step in enumerate(steps) if step.work is not None and len(step.work.rank)]
    if rng.random() < 0.5:
        steps = changed_steps(steps, rng, plan.ranks, cells)
    else:
        steps, at = list(steps), rng.choice(busy)
        work = steps[at].work
        name, m = (
            rng.choice(["rank", "reads", "needs", "writes", "makes", "gone", "moved"]),
            rng.randrange(len(work.rank)),
        )
        if name == "moved":
            other = rng.choice(busy)
            steps[at] = dataclasses.replace(steps[at], work=steps[other].work)
            steps[other] = dataclasses.replace(steps[other], work=work)
        elif name == "gone":
            keep = np.arange(len(work.rank)) != m
            tables = {
                each: getattr(work, each)[keep] for each in ("rank", "seconds", "reads", "needs", "writes", "makes")
            }
            names = [each for each, kept in zip(work.names, keep, strict=True) if kept]
            steps[at] = dataclasses.replace(steps[at], work=dataclasses.replace(work, **tables, names=names))
        else:
            table = np.array(getattr(work, name))
            flat = table.reshape(-1)
            if flat.size:
                flat[rng.randrange(flat.size)] += rng.choice([-1, 1, 2, -cells, cells])
            steps[at] = dataclasses.replace(steps[at], work=dataclasses.replace(work, **{name: table}))
    due = {(int(r), int(c)): MADE + int(end[r, c]) for r, c in np.argwhere(end >= 0)}

    def right():
        for late in (False, True, True):
            memory = [[-1 - r * cells - c for c in range(cells)] for r in range(plan.ranks)]
            try:
                simulate(plan, steps, memory, cells, rng, late)
            except Wrong:
                return False
            if any(memory[r][c] != value for (r, c), value in due.items()):
                return False
        return True

    return Changed(plan, steps), right


class ChangedHalo(HaloPlan):
    """A halo plan with other phases."""

    def phases(self):
        return iter(self.other)


def a_halo(rng):
    names = ("y", "x")[-rng.choice([1, 2]) :]
    sizes = tuple(rng.choice([1, 2, 3]) for _ in names)
    shape = tuple(size * rng.choice([2, 3, 7]) + rng.randrange(2) for size in sizes)
    halo = tuple(rng.choice([0, 1, 2]) for _ in names)
    periodic = tuple(name for name in names if rng.random() < 0.6)
    try:
        dec = Decomposition(shape, Topology(names, sizes, periodic), halo, rng.choice(["center", "face"]))
    except DecompositionError:
        return a_halo(rng)
    good = halo_plan(dec)
    phases = [list(steps) for steps in good.phases()]
    ranks = dec.topology.size
    for _ in range(rng.choice([1, 1, 2])):
        if not phases:
            break
        phase = rng.choice(phases)
        if not phase:
            continue
        at, kind = rng.randrange(len(phase)), rng.random()
        step = phase[at]
        if kind < 0.5:
            name, row, rank = (
                rng.choice(["send", "recv", "alike"]),
                rng.choice([(0,), (1,), (0, 1)]),
                rng.randrange(ranks),
            )
            by = rng.choice([-1, 1, 2, -3, 9])
            everyone = rng.random() < 0.4
            for each in ("send", "recv") if name == "alike" else (name,):
                bounds = [np.array(bound) for bound in getattr(step, each)]
                for k in row:
                    bounds[k][slice(None) if everyone else rank] += by
                step = dataclasses.replace(step, **{each: tuple(bounds)})
        elif kind < 0.75:
            peers = {each: np.array(getattr(step, each)) for each in ("send_to", "recv_from")}
            if rng.random() < 0.5:
                peers[rng.choice(list(peers))][rng.randrange(ranks)] = rng.randint(-2, ranks)
            else:
                rank = rng.randrange(ranks)
                to = peers["send_to"][rank]
                peers["send_to"][rank] = -1
                if 0 <= to < ranks:  # the change before may have made it anything
                    peers["recv_from"][to] = -1
            step = dataclasses.replace(step, **peers)
        elif kind < 0.85:
            phase.append(step)
        elif kind < 0.9:
            step = dataclasses.replace(step, send=step.recv, recv=step.send)
        else:
            rng.shuffle(phases)
        phase[at] = step
    plan = ChangedHalo(good.fields, good.order)
    object.__setattr__(plan, "other", [tuple(phase) for phase in phases])
    return plan, lambda: halo_is_right(dec, phases, rng)


def halo_is_right(dec, phases, rng):
    """All local arrays, cell by cell: boxes are copied in the order of the phases, at once within each."""
    ranks = range(dec.topology.size)
    shapes = [dec.local_shape(r) for r in ranks]
    arrays, wanted, owned = [], [], []
    for r in ranks:
        array, want, own = np.full(shapes[r], -7), np.full(shapes[r], -7), np.zeros(shapes[r], bool)
        for cell in np.ndindex(*shapes[r]):
            point = [c - w + s for c, w, s in zip(cell, dec.halo, dec.start(r), strict=True)]
            mine = all(w <= c < n - w for c, w, n in zip(cell, dec.halo, shapes[r], strict=True))
            point = [x % n if on else x for x, n, on in zip(point, dec.global_shape, dec.periodic, strict=True)]
            if all(0 <= x < n for x, n in zip(point, dec.global_shape, strict=True)):
                want[cell] = np.ravel_multi_index(point, dec.global_shape)
                array[cell] = want[cell] if mine else -7
            own[cell] = mine
        arrays.append(array)
        wanted.append(want)
        owned.append(own)
    try:
        for steps in phases:
            flying, touched = [], [np.zeros(shape, int) for shape in shapes]
            for step in steps:
                for r in ranks:
                    to, giver = step.send_to[r], step.recv_from[r]
                    if to != -1 and step.recv_from[whole(to, 0, len(ranks))] != r:
                        raise Wrong("no receive")
                    if giver != -1 and step.send_to[whole(giver, 0, len(ranks))] != r:
                        raise Wrong("no send")
                    if to == -1:
                        continue
                    out, into = box(step.dim, step.send, r, shapes[r]), box(step.dim, step.recv, to, shapes[to])
                    if arrays[r][out].shape != arrays[to][into].shape:
                        raise Wrong("extents")
                    touched[r][out] |= 1
                    if (touched[to][into] & 2).any():
                        raise Wrong("two messages into a cell")
                    touched[to][into] |= 2
                    flying.append((to, into, arrays[r][out].copy()))
            if any((each == 3).any() for each in touched):
                raise Wrong("a store into what is sent")
            for to, into, data in flying:
                if owned[to][into].any():
                    raise Wrong("owned cells are written")
                arrays[to][into] = data
    except Wrong:
        return False
    return all((a == b).all() for a, b in zip(arrays, wanted, strict=True))


def box(dim, bounds, rank, shape):
    low, high = int(bounds[0][rank]), int(bounds[1][rank])
    if not 0 <= low <= high <= shape[dim]:
        raise Wrong("a box leaves the array")
    return (*[slice(None)] * dim, slice(low, high))


def a_pipeline(rng):
    name = rng.choice(list(SCHEDULES))
    ranks = rng.choice([1, 2, 3])
    schedule = pipeline_schedule(name, ranks, ranks * rng.choice([1, 2]))
    program = pipeline_program(schedule)
    compute = rng.random() < 0.5
    lists = [list(each) for each in (schedule.actions if compute else program.actions)]
    for _ in range(rng.choice([1, 1, 2])):
        actions = rng.choice(lists)
        if not actions:
            continue
        at, kind = rng.randrange(len(actions)), rng.random()
        if kind < 0.4:
            other = rng.randrange(len(actions))
            actions[at], actions[other] = actions[other], actions[at]
        elif kind < 0.5:
            del actions[at]
        elif kind < 0.6:
            actions.insert(at, actions[at])
        elif kind < 0.7:
            rng.choice(lists).append(actions.pop(at))
        else:
            field = rng.choice(["stage", "microbatch", "peer", "kind"])
            by = rng.choice(["F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_I", "RECV_I"]) if field == "kind" else None
            actions[at] = actions[at]._replace(**{field: by or getattr(actions[at], field) + rng.choice([-1, 1])})
    frozen = tuple(map(tuple, lists))
    if compute:
        return dataclasses.replace(schedule, actions=frozen), lambda: computes_all(schedule, lists)
    return dataclasses.replace(program, actions=frozen), lambda: runs(schedule, lists)


def done_once(schedule, lists):
    """Every half of every stage and microbatch once, on its rank."""
    done = Counter()
    for rank, actions in enumerate(lists):
        for stage, kind, number, _ in actions:
            if kind in "FBIW" and len(kind) == 1:
                if not (0 <= stage < schedule.stages and schedule.rank_of[stage] == rank):
                    return False
                done.update((stage, half, number) for half in ({"B": "IW"}.get(kind, kind)))
    return done == Counter(
        (s, k, n) for s in range(schedule.stages) for k in "FIW" for n in range(schedule.microbatches)
    )


def inputs(schedule, stage, kind, number):
    """What a computation needs, by stage, kind and microbatch."""
    if kind == "F":
        return [(stage - 1, "F", number)] if stage else []
    if kind == "W":
        return [(stage, "I", number)]
    return [(stage, "F", number)] + ([(stage + 1, "I", number)] if stage + 1 < schedule.stages else [])


def computes_all(schedule, lists):
    """Whether lists of computations end, data being sent as soon as it is there."""
    if not done_once(schedule, lists):
        return False
    there, at = set(), [0] * len(lists)
    while True:
        moved = False
        for rank, actions in enumerate(lists):
            while at[rank] < len(actions):
                stage, kind, number, _ = actions[at[rank]]
                if any(need not in there for need in inputs(schedule, stage, kind, number)):
                    break
                there.update((stage, half, number) for half in ("IW" if kind == "B" else kind))
                at[rank] += 1
                moved = True
        if not moved:
            return all(place == len(actions) for place, actions in zip(at, lists, strict=True))


def runs(schedule, lists):
    """Whether a program with its messages ends: the n-th receive of one rank from another gets its n-th send."""
    if not done_once(schedule, lists):
        return False
    ranks, at = len(lists), [0] * len(lists)
    there = [set() for _ in lists]
    sent, posted = defaultdict(list), defaultdict(list)
    while True:
        moved = False
        for rank, actions in enumerate(lists):
            while at[rank] < len(actions):
                stage, kind, number, peer = actions[at[rank]]
                if kind.startswith(("SEND", "RECV")) and not (0 <= peer < ranks and kind[5:] in ("F", "I")):
                    return False
                if kind.startswith("RECV"):
                    posted[peer, rank].append((stage + (1 if kind[5:] == "I" else -1), kind[5:], number))
                elif kind.startswith("SEND"):
                    if (stage, kind[5:], number) not in there[rank]:
                        break
                    sent[rank, peer].append((stage, kind[5:], number))
                else:
                    if any(need not in there[rank] for need in inputs(schedule, stage, kind, number)):
                        break
                    there[rank].update((stage, half, number) for half in ("IW" if kind == "B" else kind))
                    if kind == "B" and peer != -1:
                        sent[rank, peer].append((stage, "I", number))
                at[rank] += 1
                moved = True
        for way in set(sent) & set(posted):
            for data, wanted in zip(sent[way], posted[way], strict=False):
                if data != wanted:
                    return False
                moved |= data not in there[way[1]]
                there[way[1]].add(data)
        if not moved:
            break
    if any(len(sent[way]) != len(posted[way]) for way in sent.keys() | posted.keys()):
        return False
    return all(place == len(actions) for place, actions in zip(at, lists, strict=True))


KINDS = {
    "collectives": a_collective,
    "gossip": a_gossip,
    "migration": a_migration,
    "ghosts": a_ghost_plan,
    "panels": panels,
    "dispatches": a_dispatch,
    "redistributions": a_redistribution,
    "Fourier": a_fourier,
    "training": a_training_step,
    "halos": a_halo,
    "pipelines": a_pipeline,
}


def campaign(kind, seeds):
    """How many mutants were wrong, and how many right ones accepted; raises for a wrong one that is accepted."""
    wrong = accepted = 0
    for seed in seeds:
        rng = random.Random(f"{kind} {seed}")
        try:
            plan, right = KINDS[kind](rng)
            prove(plan)
        except PlanError:
            wrong += 1
            continue
        assert right(), f"{kind}, seed {seed}: a wrong plan is accepted"
        accepted += 1
    return wrong, accepted


@pytest.mark.parametrize("kind", KINDS)
def test_no_wrong_plan_is_accepted(kind):
    wrong, accepted = campaign(kind, range(60))
    assert wrong > 20
    assert accepted > 0  # some changes change nothing that counts


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_none_of_fifty_thousand_wrong_plans_is_accepted(kind):
    wrong, _ = campaign(kind, range(1000, 1000 + {"collectives": 40_000, "halos": 10_000}.get(kind, 6_000)))
    assert wrong > 2_000


def test_right_plans_are_right_in_the_simulation():
    """The simulation refuses nothing that is right."""
    rng = random.Random(1)
    for operation, algorithms in ALGORITHMS.items():
        for algorithm, (_, takes) in (algorithms | IN_MEMORY.get(operation, {})).items():
            for ranks in (1, 2, 3, 6):
                options = {"node_size": ranks} if "node_size" in takes else {}
                plan = collective_plan(operation, algorithm, ranks, **options)
                sizes = elements(plan, 5 * plan.slots + 1)
                assert is_right(plan, list(plan.steps()), *promise(plan), plan.slots + plan.room, rng, plan.node, sizes)


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "scatter", "gather", "all_to_all", "reduce_scatter"])
def test_proofs_by_strands_refuse_what_others_refuse(operation, monkeypatch):
    """The same mutants, with the proof of plans of many ranks."""
    for seed in range(40):
        rng = random.Random(f"{operation} {seed}")
        algorithm = rng.choice(list(ALGORITHMS[operation]))
        ranks = rng.choice([2, 3, 4, 6, 8])
        options = {"node_size": 2} if algorithm == "hierarchical" else {}
        plan = collective_plan(operation, algorithm, ranks, **options)
        mutant = Changed(plan, changed_steps(plan.steps(), rng, ranks, plan.slots))
        said = []
        for most in (2**18, 0):
            monkeypatch.setattr(collective, "MOST_DENSE", most)
            try:
                said.append(prove(mutant).messages)
            except PlanError:
                said.append(None)
        assert said[1] in (said[0], None)
        if said[0] is not None and said[1] is None:  # data that moves about in the buffer is not proved by strands
            assert any((step.sends.peer >= 0).any() for step in mutant.made if isinstance(step, Step))
