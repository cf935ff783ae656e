"""The halo plan proved without MPI, and planted faults that the proof must name."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from conftest import by_day

from hpckit.errors import PlanError
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import HaloField, HaloPlan, halo_plan
from hpckit.plan.grid.halo_cells import BACK, JOINED, MEMORY, PACKED, SINGLE
from hpckit.plan.pricing import price
from hpckit.plan.protocol import transposed
from hpckit.plan.proving import prove
from hpckit.plan.topology import Topology


def periodicities(names):
    for flags in itertools.product((False, True), repeat=len(names)):
        yield tuple(name for name, flag in zip(names, flags, strict=True) if flag)


@pytest.mark.parametrize("width", by_day([1, 2, 3], 2))
@pytest.mark.parametrize(
    ("names", "sizes", "shape"),
    [
        (("x",), (1,), (7,)),
        (("x",), (2,), (7,)),
        (("x",), (6,), (19,)),
        (("y", "x"), (2, 3), (7, 11)),
        (("y", "x"), (1, 4), (5, 13)),
        (("z", "y", "x"), (2, 1, 3), (7, 5, 11)),
        (("z", "y", "x"), (1, 2, 2), (4, 7, 9)),
    ],
)
def test_every_halo_is_filled(names, sizes, shape, width):
    for periodic, location in itertools.product(
        periodicities(names), itertools.product(("center", "face"), repeat=len(names))
    ):
        plan = halo_plan(Decomposition(shape, Topology(names, sizes, periodic), width, location))
        prove(plan)
        if width == 2:
            prove(plan.claim().whole())  # all ranks, not a line of each axis


@pytest.mark.parametrize("width", [1, 2, 3])
def test_halos_are_added_to_the_cells_that_they_copy(width):
    names = ("z", "y", "x")
    for sizes, shape in (((1, 1, 1), (3, 4, 5)), ((2, 1, 3), (7, 5, 11)), ((1, 2, 2), (4, 7, 9))):
        for periodic in periodicities(names):
            plan = transposed(halo_plan(Decomposition(shape, Topology(names, sizes, periodic), width)))
            prove(plan)
            if width == 2:
                prove(plan.claim().whole())


@pytest.mark.parametrize("width", [3, 4, 11])
@pytest.mark.parametrize(
    ("names", "sizes", "shape"),
    [(("x",), (1,), (3,)), (("x",), (4,), (9,)), (("x",), (6,), (7,)), (("y", "x"), (3, 2), (5, 3))],
)
def test_halos_wider_than_blocks_are_filled_in_rounds(names, sizes, shape, width):
    for periodic, location in itertools.product(
        periodicities(names), itertools.product(("center", "face"), repeat=len(names))
    ):
        topology = Topology(names, sizes, periodic)
        plan = halo_plan(Decomposition(shape, topology, width, location, deep=True))
        for each in (plan, transposed(plan)):
            prove(each)
            prove(each.claim().whole())
    more = Decomposition(shape, topology, 1)
    prove(halo_plan([HaloField(more), HaloField(plan.decomposition)]))


def test_mixed_widths_and_no_halo_at_all():
    topology = Topology(("z", "y", "x"), (2, 2, 2), ("x",))
    assert prove(halo_plan(Decomposition((9, 9, 9), topology, (0, 3, 1)))).steps == 4
    assert prove(halo_plan(Decomposition((9, 9, 9), topology, 0))).messages == 0


def test_a_hundred_thousand_ranks():
    topology = Topology(("y", "x"), (512, 256), ("y",))
    proof = prove(halo_plan(Decomposition((4099, 2053), topology, (2, 6))))
    assert (proof.ranks, proof.steps, proof.copies) == (131072, 4, 0)
    assert proof.messages == 2 * 512 * 256 + 2 * 512 * 255


def test_thousands_of_ranks():
    topology = Topology(("z", "y", "x"), (16, 16, 16), ("z", "y", "x"))
    proof = prove(halo_plan(Decomposition((1600, 1601, 1603), topology, 1)))
    assert (proof.ranks, proof.messages) == (4096, 6 * 4096)


def test_whole_dims_are_copied_first_and_never_sent():
    plan = halo_plan(Decomposition((8, 8, 8), Topology(("z", "y", "x"), (2, 1, 1), ("z", "y", "x")), 1))
    assert plan.order == (2, 1, 0)
    *local, split = plan.messages(0)
    assert all(m.send_to == m.recv_from == 0 for phase in local for m in phase)
    assert [(m.send_to, m.recv_from) for m in split] == [(1, 1), (1, 1)]
    assert split[0].tag != split[1].tag
    assert plan.nbytes(0, 8) == 2 * 10 * 10 * 8


def test_a_wall_has_no_message():
    plan = halo_plan(Decomposition((8,), Topology(("x",), (2,)), 1))
    assert [(m.send_to, m.recv_from) for m in plan.messages(0)[0]] == [(None, 1), (1, None)]
    assert [(m.send_to, m.recv_from) for m in plan.messages(1)[0]] == [(0, None), (None, 0)]


class Planted(HaloPlan):
    """A plan with one step changed by `fault(step)`."""

    fault = staticmethod(lambda step: step)

    def phases(self):
        for steps in super().phases():
            yield tuple(self.fault(step) for step in steps)


def prove_with(fault, order=None):
    topology = Topology(("y", "x"), (3, 2), ("y", "x"))
    good = halo_plan(Decomposition((9, 8), topology, 2))
    plan = Planted(good.fields, order or good.order)
    object.__setattr__(plan, "fault", fault)
    prove(plan)
    prove(plan.claim().whole())


def changed(values, rank, value):
    values = values.copy()
    values[rank] = value
    return values


def test_the_unharmed_plan_passes():
    prove_with(lambda step: step)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            lambda s: dataclasses.replace(s, send_to=changed(s.send_to, 1, 4)),
            "rank 1, whose side of it is with nobody|rank 1 sends to rank 4",
        ),
        (lambda s: dataclasses.replace(s, send_to=changed(s.send_to, 2, 99)), "there are 6 ranks"),
        (lambda s: dataclasses.replace(s, send_to=changed(s.send_to, 2, -1)), "rank [0-9] receives from rank 2, whose"),
        (lambda s: dataclasses.replace(s, tag=0), "share the tag 0"),
        (lambda s: dataclasses.replace(s, send=(s.send[0], s.send[1] - 1)), "sends 1 items .*, rank . takes 2"),
        (lambda s: dataclasses.replace(s, send=(s.send[0] - s.side, s.send[1] - s.side)), "must hold the point"),
        (
            lambda s: dataclasses.replace(s, send=(s.send[0] + s.side, s.send[1] + s.side)),
            "step . .x high.: rank 0 sends the local cell .*, which step 0 completed",
        ),
        (
            lambda s: dataclasses.replace(s, recv=(0 * s.recv[0], 0 * s.recv[1] + 2)),
            "step . .x high.: rank . stores into the local cell .* while it receives it",
        ),
        (
            lambda s: dataclasses.replace(s, recv=(s.recv[0] + s.side * 2, s.recv[1] + s.side * 2)),
            "receives into the local cell .* which is fixed",
        ),
        (lambda s: dataclasses.replace(s, send_to=s.recv_from, recv_from=s.send_to), "must hold the point"),
        (lambda s: dataclasses.replace(s, sent_by=changed(s.sent_by, 1, JOINED)), "whose side of it is with nobody"),
        (
            lambda s: dataclasses.replace(
                s,
                sent_by=changed(s.sent_by, 1, MEMORY),
                taken_by=changed(s.taken_by, s.send_to[1], MEMORY),
            ),
            "rank 1 sends to rank . in shared memory, and they share none",
        ),
    ],
)
def test_a_planted_fault_is_named(fault, message):
    with pytest.raises(PlanError, match=message):
        prove_with(fault)


@pytest.mark.parametrize("cell", range(4))
def test_a_fault_of_one_rank_is_found_however_alike_the_other_lines_are(cell):
    """Every entry of every step, one at a time: what the first line of an axis does says nothing about this rank."""
    for number, dim, side in itertools.product(range(6), (0, 1), (-1, 1)):

        def fault(step, number=number, dim=dim, side=side):
            if (step.dim, step.side) != (dim, side):
                return step
            (low, high), (into, until) = step.send, step.recv
            ends = [changed(end, number, end[number] + (k == cell)) for k, end in enumerate((low, high, into, until))]
            return dataclasses.replace(step, send=tuple(ends[:2]), recv=tuple(ends[2:]))

        with pytest.raises(PlanError, match="rank "):
            prove_with(fault)


def test_lines_of_ranks_say_what_all_ranks_say():
    """The quick proof looks at one line of ranks a dim; what it accepts or refuses, executing all ranks does, too."""
    topology = Topology(("z", "y", "x"), (2, 3, 2), ("z", "x"))
    plan = halo_plan(Decomposition((5, 10, 7), topology, (1, 3, 0), ("face", "center", "face")))
    assert [line.ranks for line in plan.claim().plans] == [2, 3, 2]
    for line in plan.claim().plans:
        prove(line)
    prove(plan.claim().whole())

    class Twice(HaloPlan):
        def phases(self):
            yield from super().phases()
            yield from super().phases()

    class Bent(HaloPlan):
        def phases(self):
            for steps in super().phases():
                yield tuple(dataclasses.replace(s, send_to=changed(s.send_to, 7, 0)) for s in steps)

    for kind in (Twice, Bent):  # not alike, so all ranks are executed
        (whole,) = kind(plan.fields, plan.order).claim().plans
        assert whole.ranks == 12


def three_fields():
    """A small one, one of two components with another halo, and one whose slabs of dim 0 are large."""
    topology = Topology(("z", "y", "x"), (2, 3, 2), ("z", "x"))
    return [
        HaloField(Decomposition((5, 10, 7), topology, (1, 3, 0), ("face", "center", "face")), itemsize=8),
        HaloField(Decomposition((5, 10, 7), topology, (1, 1, 1)), (2,), itemsize=4),
        HaloField(Decomposition((50, 600, 400), topology, (1, 1, 1)), itemsize=8),
    ]


@pytest.mark.parametrize("node", [None, [rank // 4 for rank in range(12)], [rank % 2 for rank in range(12)]])
def test_fields_are_joined_into_messages_by_ways_that_meet(node):
    fields = three_fields()
    plan = halo_plan(fields, node=node)
    for each in (plan, transposed(plan)):
        prove(each)
        prove(each.claim().whole())
    sent, taken, ways = {}, {}, set()
    for rank in range(12):
        for number, phase in enumerate(plan.messages(rank)):
            for it in phase:
                ways.add(it.way)
                parts = tuple((part.field, shape(part.send)) for part in it.parts)
                if it.send_to is not None:
                    sent[rank, it.send_to, number, it.way, it.tag] = parts
                if it.recv_from is not None:
                    taken[it.recv_from, rank, number, it.way, it.tag] = parts
                if it.way == MEMORY:
                    peers = {it.send_to, it.recv_from} - {None}
                    assert {node[peer] for peer in peers} == {node[rank]}
    assert sent == taken
    assert ways - {JOINED} == {PACKED, SINGLE + 2} | ({MEMORY} if node else set())
    assert max(key[-1] for key in sent) < plan.tags
    small = price(halo_plan(fields[:1])).steps
    assert small < price(plan).steps


def shape(box):
    return tuple(part.stop - part.start for part in box)


def test_the_way_back_is_the_program_of_the_transposed_plan():
    plan = halo_plan(three_fields())
    forward = {
        (rank, it.send_to, it.dim, it.side, part.field, shape(part.send))
        for rank in range(12)
        for phase in plan.messages(rank)
        for it in phase
        for part in it.parts
        if it.send_to is not None
    }
    back = set()
    for rank in range(12):
        dims = [phase[0].dim for phase in plan.messages_back(rank) if phase]
        assert dims == list(reversed([phase[0].dim for phase in plan.messages(rank) if phase]))
        for phase in plan.messages_back(rank):
            for it in phase:
                assert BACK * plan.tags_of_a_way <= it.tag < (BACK + 1) * plan.tags_of_a_way
                back |= {
                    (it.send_to, rank, it.dim, it.side, part.field, shape(part.send))
                    for part in it.parts
                    if it.send_to is not None
                }
    assert back == forward


def test_a_missing_phase_is_named():
    with pytest.raises(PlanError, match="rank 0 ends with what nobody gave in a wrong place: the local cell"):
        prove_with(lambda step: step, order=(1,))


def test_proofs_do_not_depend_on_the_block_size():
    topology = Topology(("x",), (3,), ("x",))
    assert prove(halo_plan(Decomposition((3 * 10**9,), topology, 2))).messages == 6
