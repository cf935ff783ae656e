"""The protocol of plans: a class of four members is proved, priced and drawn; faults of all steps are found."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import hpckit.plan
from hpckit.errors import PlanError
from hpckit.plan import protocol
from hpckit.plan.collective.algorithms import collective_plan
from hpckit.plan.collective.memory import ACROSS, IN_MEMORY
from hpckit.plan.drawing import draw, draw_svg
from hpckit.plan.machine.machine import Level, Machine
from hpckit.plan.pipeline.program import pipeline_program
from hpckit.plan.pipeline.schedules import pipeline_schedule
from hpckit.plan.pricing import price
from hpckit.plan.protocol import EMPTY, NOTHING, Claim, Ends, Step, Work, transposed
from hpckit.plan.proving import prove

FLAT = Machine("flat", (Level("all", 0, 2e-6, 5e9),), 1e-6, 10e9)
NODE = Machine("node", (Level("node", 8, 1e-6, 8e9, shared=16e9), Level("net", 0, 5e-6, 1e9)), 0.0, 4e9)


class Sparse:
    """Every rank sends rank + 1 items to each other rank, in messages of a step, from cells that lie scattered."""

    ranks = 4

    def __init__(self, **changes):
        self.changes = changes

    def title(self):
        return "sparse"

    def steps(self):
        sender, receiver = (each.reshape(-1) for each in np.indices((4, 4)))
        away = sender != receiver
        sender, receiver = sender[away], receiver[away]
        first = receiver * 4
        order = np.lexsort((sender, receiver))
        into = 16 + sender[order] * 4
        listed = np.concatenate([np.arange(16)[::-1], np.arange(16, 32)])
        parts = {
            "sender": sender,
            "to": receiver,
            "first": first,
            "last": first + sender + 1,
            "receiver": receiver[order],
            "whence": sender[order],
            "into": into,
            "until": into + sender[order] + 1,
        }
        for name, change in self.changes.items():
            if name in parts:
                parts[name] = change(parts[name])
        yield Step(
            Ends(parts["to"], parts["first"], parts["last"], rank=parts["sender"], cells=listed),
            Ends(parts["whence"], parts["into"], parts["until"], rank=parts["receiver"]),
            place=self.changes.get("place", "messages"),
            add=self.changes.get("add", False),
        )

    def claim(self):
        start, end = np.full((4, 32), NOTHING), np.full((4, 32), EMPTY)
        for sender in range(4):
            for receiver in range(4):
                for k in range(sender + 1):
                    index = (sender * 4 + receiver) * 4 + k
                    if sender != receiver:
                        start[sender, 15 - (receiver * 4 + k)] = index
                        end[receiver, 16 + sender * 4 + k] = index
        end[:, :16] = NOTHING
        return Claim(start, end, node=self.changes.get("node"), fixed=self.changes.get("fixed"))


def at(place, value):
    def change(values):
        values = np.array(values)
        values[place] = value
        return values

    return change


def test_a_class_of_four_members_is_proved_priced_and_drawn():
    plan = Sparse()
    assert prove(plan).messages == 12
    prove(transposed(plan))
    prove(transposed(transposed(plan)))
    # Rank 3 sends most: 3 messages of 4 items of 8 bytes, one after the other.
    message = 1e-6 + 32 / 5e9
    assert 3 * message + 3e-6 <= price(plan, FLAT, itemsize=8).seconds <= 6 * message + 3e-6
    assert draw(plan).count(">") == 12
    assert draw_svg(plan, FLAT, itemsize=8).count("<title>") == 24
    shared = Sparse(place="memory", node=np.zeros(4, np.int64))
    prove(shared)
    # Rank 0 takes 2 + 3 + 4 items, as one of four on a memory bus.
    assert price(shared, NODE, itemsize=1e6).seconds == pytest.approx(1e-6 + 9e6 / 4e9, rel=1e-9)
    assert "1m" in draw(shared)


def test_the_example_of_the_protocol_runs():
    program = re.search(r"::\n\n(.*)", protocol.__doc__, re.S).group(1)
    lines = [line.removeprefix("    ") for line in program.splitlines()]
    names = {**vars(protocol), "prove": prove, "price": price, "machine_of": lambda name: FLAT}
    exec("\n".join(lines), names)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"to": at(2, -1)}, "step 0: rank 3 receives from rank 0, whose side of it is with nobody"),
        ({"whence": at(2, -1)}, "rank 3 sends to rank 0, whose side"),
        ({"to": at(2, 2)}, "whose side of it is with nobody"),  # doubled: one goes where another goes, too
        ({"to": at(2, 9)}, "rank 0 sends to rank 9, there are 4 ranks"),
        ({"sender": at(2, -3)}, "there are 4 ranks"),
        ({"first": at(3, 1), "last": at(3, 3)}, "must hold|which nobody"),
        ({"last": at(4, 15)}, "rank 1 sends . cells .*, rank 2 takes 2"),
        ({"into": at(0, 31), "until": at(0, 33)}, "rank 0 receives the cells 31 to 33, and has the cells 0 to 32"),
        ({"into": at(0, -2), "until": at(0, 0)}, "rank 0 receives the cells -2 to 0"),
        ({"first": at(0, 40), "last": at(0, 41)}, "rank 0 sends the cells 40 to 41, and has a list of 32"),
        ({"into": at(1, 20), "until": at(1, 23)}, "rank 0 stores into cell 2. while it receives twice it"),
        ({"into": at(0, 11), "until": at(0, 13)}, "rank 0 stores into cell 11 while it sends it"),
        ({"place": "memory"}, "rank 0 sends to rank 1 in shared memory, and they share none"),
        ({"place": "memory", "node": np.array([0, 0, 1, 1])}, "rank 0 sends to rank 2 in shared memory"),
        ({"fixed": np.ones((4, 32), bool)}, "which is fixed"),
        ({"add": True}, "ends with an incomplete or doubled sum"),
    ],
)
def test_faults_of_sparse_steps_are_named(changes, said):
    with pytest.raises(PlanError, match=said):
        prove(Sparse(**changes))


class Ahead:
    """Two steps that may be under way together; `tag` of both, and what the second stores."""

    ranks = 2

    def __init__(self, lag=2, tags=(0, 1), into=2):
        self.lag, self.tags, self.into = lag, tags, into

    def title(self):
        return "ahead"

    def steps(self):
        other, one = np.array([1, 0]), np.ones(2, np.int64)
        yield Step(Ends(other, 0 * one, one), Ends(other, one, 2 * one), tag=self.tags[0])
        into = self.into * one
        yield Step(Ends(other, 0 * one, one), Ends(other, into, into + 1), tag=self.tags[1], lag=self.lag)

    def claim(self):
        start = np.array([[0, NOTHING, NOTHING], [1, NOTHING, NOTHING]])
        return Claim(start, np.array([[0, 1, 1], [1, 0, 0]]))


def test_steps_under_way_together_stay_apart():
    prove(Ahead())
    prove(Ahead(lag=1, tags=(0, 0)))
    with pytest.raises(
        PlanError, match="step 1: rank 0 sends two messages to rank 1 at once, and they share the tag 0"
    ):
        prove(Ahead(tags=(0, 0)))
    with pytest.raises(PlanError, match=r"step 1: rank \d stores into cell 0 while it sends it"):
        prove(Ahead(into=0))
    with pytest.raises(PlanError, match=r"step 1: rank \d stores into cell 1 while it receives it"):
        prove(Ahead(into=1))


@pytest.mark.parametrize("operation", IN_MEMORY)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_collectives_in_shared_memory_do_what_they_promise(operation, ranks):
    for name, (_, takes) in IN_MEMORY[operation].items():
        if name == "nodes":
            continue
        for root in {0, ranks - 1} if "root" in takes else {0}:
            plan = collective_plan(operation, name, ranks, **({"root": root} if "root" in takes else {}))
            assert prove(plan).ranks == ranks
            assert all(step.place == "memory" for step in plan.steps())
            assert price(plan, NODE, 8e6).seconds > 0 or ranks == 1


@pytest.mark.parametrize("across", ACROSS)
def test_all_reduce_over_nodes_meets_in_the_memory_of_each(across):
    for ranks, size in ((6, 1), (6, 2), (6, 3), (6, 6), (15, 5), (512, 16)):
        plan = collective_plan("all_reduce", "nodes", ranks, node_size=size, across=across)
        assert prove(plan).ranks == ranks
        elsewhere = dataclasses.replace(plan, node=(np.arange(ranks) + 1) // size)
        if 1 < size < ranks:
            with pytest.raises(PlanError, match="in shared memory, and they share none"):
                prove(elsewhere)


@pytest.mark.parametrize("algorithm", ["flat", "staged", "symmetric"])
def test_planted_faults_in_shared_memory_are_found(algorithm):
    """Every message of every step lost, moved by one cell, or done by another rank, one at a time."""
    plan = collective_plan("all_reduce", algorithm, 3)
    for number in range(plan.length):
        entries = len(plan.step(number).sends.peer)
        for entry in range(entries):
            for end, field, by in (("sends", "first", 1), ("receives", "first", 1), ("sends", "peer", 1)):

                def step(i, number=number, entry=entry, end=end, field=field, by=by, entries=entries):
                    it = plan.step(i)
                    if i != number:
                        return it
                    old = getattr(it, end)
                    values = getattr(old, field).copy()
                    values[entry] = (values[entry] + by) % (3 if field == "peer" else 100)
                    more = {"last": old.last + (np.arange(entries) == entry)} if field == "first" else {}
                    return dataclasses.replace(it, **{end: dataclasses.replace(old, **{field: values}, **more)})

                with pytest.raises(PlanError, match=r"rank \d"):
                    prove(dataclasses.replace(plan, step=step))


def test_what_is_computed_must_be_there():
    program = pipeline_program(pipeline_schedule("1f1b", 2, 3))
    good = list(program.steps())
    number = next(i for i, step in enumerate(good) if len(step.sends.peer))

    class Changed:
        ranks = 2

        def __init__(self, change):
            self.change = change

        def title(self):
            return "changed"

        def steps(self):
            for i, step in enumerate(good):
                yield self.change(step) if i == number else step

        def claim(self):
            return program.claim()

    prove(Changed(lambda step: step))
    none = Ends(*(np.zeros(0, np.int64),) * 3, rank=np.zeros(0, np.int64))
    with pytest.raises(PlanError, match="rank 1 computes 1F0 before 0F0 is there"):
        prove(Changed(lambda step: dataclasses.replace(step, sends=none, receives=none)))

    def moved(step):
        return dataclasses.replace(
            step,
            receives=dataclasses.replace(step.receives, first=step.receives.first + 1, last=step.receives.last + 1),
        )

    with pytest.raises(PlanError, match="rank 1 computes 1F0 before 0F0 is there"):
        prove(Changed(moved))
    work = good[number].work
    wrong = Work(work.rank, work.seconds, work.reads, work.needs, work.writes + 1, work.makes, work.names)
    with pytest.raises(PlanError):
        prove(Changed(lambda step: dataclasses.replace(step, work=wrong)))


def test_nothing_asks_which_plan_it_has():
    """Proofs, prices and drawings know the protocol alone."""
    folder = Path(hpckit.plan.__file__).parent
    kinds = {
        node.name
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and {"steps", "claim"} <= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    } - {"Plan"}
    assert {"HaloPlan", "CollectivePlan", "Schedule", "Program", "Transposed"} <= kinds
    for name in ("protocol.py", "proving.py", "pricing.py", "drawing.py", "machine/clocks.py"):
        tree = ast.parse((folder / name).read_text(encoding="utf-8"))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert not imported & kinds
    for file in folder.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "singledispatch" not in text
        for call in re.findall(r"isinstance\(\w+, ([^)]*)\)", text):
            assert not set(re.findall(r"\w+", call)) & kinds, f"{file}: isinstance(…, {call})"
