"""The halo plan proved without MPI, and planted faults that the proof must name."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from hpckit.errors import PlanError
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import HaloPlan, halo_plan
from hpckit.plan.grid.halo_lines import lines_of
from hpckit.plan.prove import execute_halo, prove
from hpckit.plan.topology import Topology


def periodicities(names):
    for flags in itertools.product((False, True), repeat=len(names)):
        yield tuple(name for name, flag in zip(names, flags, strict=True) if flag)


@pytest.mark.parametrize("width", [1, 2, 3])
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
        prove(halo_plan(Decomposition(shape, Topology(names, sizes, periodic), width, location)))


def test_mixed_widths_and_no_halo_at_all():
    topology = Topology(("z", "y", "x"), (2, 2, 2), ("x",))
    assert prove(halo_plan(Decomposition((9, 9, 9), topology, (0, 3, 1)))).phases == 2
    assert prove(halo_plan(Decomposition((9, 9, 9), topology, 0))).messages == 0


def test_a_hundred_thousand_ranks():
    topology = Topology(("y", "x"), (512, 256), ("y",))
    proof = prove(halo_plan(Decomposition((4099, 2053), topology, (2, 6))))
    assert (proof.ranks, proof.phases, proof.copies) == (131072, 2, 0)
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
    plan = Planted(good.decomposition, order or good.order)
    object.__setattr__(plan, "fault", fault)
    prove(plan)


def changed(values, rank, value):
    values = values.copy()
    values[rank] = value
    return values


def test_the_unharmed_plan_passes():
    prove_with(lambda step: step)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda s: dataclasses.replace(s, send_to=changed(s.send_to, 1, 4)), "rank 1 sends to rank 4"),
        (lambda s: dataclasses.replace(s, send_to=changed(s.send_to, 2, 99)), "there are 6 ranks"),
        (lambda s: dataclasses.replace(s, send_to=changed(s.send_to, 2, -1)), "rank [0-9] receives from rank 2, whose"),
        (lambda s: dataclasses.replace(s, tag=0), "share the tag 0"),
        (lambda s: dataclasses.replace(s, send=(s.send[0], s.send[1] - 1)), "sends 1 layers, rank"),
        (lambda s: dataclasses.replace(s, send=(s.send[0] - s.side, s.send[1] - s.side)), "must hold the point"),
        (
            lambda s: dataclasses.replace(s, send=(s.send[0] + s.side, s.send[1] + s.side)),
            "phase x, leaving low: rank 0 receives into cells that it sends phase x, leaving high",
        ),
        (
            lambda s: dataclasses.replace(s, recv=(0 * s.recv[0], 0 * s.recv[1] + 2)),
            "rank 0 receives into cells that it receives phase x, leaving high",
        ),
        (
            lambda s: dataclasses.replace(s, recv=(s.recv[0] + s.side * 2, s.recv[1] + s.side * 2)),
            "cells that it owns|must hold",
        ),
        (lambda s: dataclasses.replace(s, send_to=s.recv_from, recv_from=s.send_to), "must hold the point"),
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
    lines = lines_of(plan.decomposition, list(plan.phases()))
    assert [(line.shape, line.halo, len(steps)) for line, steps in lines] == [
        ((5,), (1,), 1),
        ((10,), (3,), 1),
        ((7,), (0,), 0),
    ]
    for line, steps in lines:
        execute_halo(line, steps)
    execute_halo(plan.decomposition, list(plan.phases()))
    twice = [*plan.phases(), *plan.phases()]
    assert lines_of(plan.decomposition, twice) is None
    bent = [tuple(dataclasses.replace(s, send_to=changed(s.send_to, 7, 0)) for s in steps) for steps in plan.phases()]
    assert lines_of(plan.decomposition, bent) is None


def test_a_missing_phase_is_named():
    with pytest.raises(PlanError, match="ends with nothing in the local cell"):
        prove_with(lambda step: step, order=(1,))


def test_proofs_do_not_depend_on_the_block_size():
    topology = Topology(("x",), (3,), ("x",))
    assert prove(halo_plan(Decomposition((3 * 10**9,), topology, 2))).messages == 6
