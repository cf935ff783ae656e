"""Layouts of tensors and the plans that change them: ranges, proofs, planted faults, and NumPy as the oracle."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest

from hpckit.errors import InputError, PlanError
from hpckit.plan.drawing import draw
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.pricing import price
from hpckit.plan.protocol import transposed
from hpckit.plan.proving import prove
from hpckit.plan.tensors import redistribution as module
from hpckit.plan.tensors.hop import Hop
from hpckit.plan.tensors.layout import Layout, Partial, Replicate, Shard, matmul_layout
from hpckit.plan.tensors.redistribution import RedistributionPlan, redistribution, ways
from hpckit.tensors.exchange import program

R, P, ROWS, COLUMNS = Replicate(), Partial(), Shard(0), Shard(1)
FOUR = {"dp": 2, "tp": 2}


def test_two_axes_cut_five_rows_in_the_order_that_is_stated():
    for names, rows in (
        (("dp", "tp"), [(0, 2), (2, 3), (3, 4), (4, 5)]),
        (("tp", "dp"), [(0, 2), (3, 4), (2, 3), (4, 5)]),
    ):
        layout = Layout((5, 3), FOUR, dict.fromkeys(names, ROWS))
        assert [(each.start, each.stop) for each, _ in map(layout.slices, range(4))] == rows
        assert [layout.local_shape(rank) for rank in range(4)] == [(b - a, 3) for a, b in rows]
        layout.check()
    assert str(layout) == "5 x 3: dp=2 S0 after tp, tp=2 S0"
    assert layout != Layout((5, 3), FOUR, {"dp": ROWS, "tp": ROWS})
    assert layout == layout.placed(tp=ROWS, dp=ROWS)
    assert layout.placed(tp=R) == Layout((5, 3), FOUR, {"dp": ROWS})
    assert layout.gradient.gradient == layout
    assert Layout((5,), FOUR, {"tp": P}).gradient == Layout((5,), FOUR, {"dp": P})


def random_layout(random, shape, axes):
    names = list(axes)
    random.shuffle(names)
    kinds = [R, P, *(Shard(dim) for dim in range(len(shape)))]
    return Layout(shape, axes, {name: kinds[random.integers(len(kinds))] for name in names})


def cases(count, seed):
    """Shapes with dims of 0 and 1, meshes of one to three axes."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        shape = tuple(int(n) for n in random.integers(0, 8, random.integers(0, 4)))
        axes = {name: int(random.integers(1, 4)) for name in "abc"[: random.integers(1, 4)]}
        yield random, shape, axes


def test_blocks_of_blocks_are_those_of_array_split():
    for random, shape, axes in cases(60, 1):
        layout = random_layout(random, shape, axes)
        layout.check()
        values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        coords = layout.axes.all_coords()
        for rank in range(layout.ranks):
            part = values
            for dim, cut in enumerate(layout.cuts):
                for axis in cut:
                    part = np.array_split(part, layout.axes.sizes[axis], axis=dim)[coords[axis, rank]]
            np.testing.assert_array_equal(values[layout.slices(rank)], part)
        for dim, size in enumerate(shape):
            for index in range(size):
                for axis, at in layout.owners(dim, index).items():
                    inside = (layout.bounds()[:, dim, 0] <= index) & (index < layout.bounds()[:, dim, 1])
                    assert (coords[axis, inside] == at).all()


def test_any_layout_becomes_any_other_and_so_does_its_gradient():
    kinds = set()
    for random, shape, axes in cases(40, 2):
        source, target = (random_layout(random, shape, axes) for _ in range(2))
        for plan in ways(source, target):
            prove(plan)
            kinds |= {hop.name for hop in plan.hops}
            if not any(hop.doubling for hop in plan.hops):  # an all-reduce is its own gradient
                prove(transposed(plan))
            prove(redistribution(target.gradient, source.gradient))
    assert kinds == {"slice", "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "exchange"}


def run(plan, parts):
    """What a plan makes of the ranks' arrays: its messages and additions, by NumPy in one process."""
    for hop in plan.hops:
        programs = [program(hop, rank) for rank in range(plan.ranks)]
        if hop.doubling:
            parts = [part.copy() for part in parts]
            for step in range(len(programs[0].doubled)):
                before = [part.copy() for part in parts]
                for rank, it in enumerate(programs):
                    taker = it.doubled[step][1]
                    assert taker < 0 or rank in programs[taker].doubled[step][0]
                    parts[rank] = parts[rank] + before[taker] if taker >= 0 else parts[rank]
            continue
        made = []
        for rank, it in enumerate(programs):
            slots = [np.zeros(it.shape) for _ in range(hop.summands)]
            for part in it.receives:
                (sent,) = [each for each in programs[part.peer].sends if each.peer == rank]
                slots[part.summand][part.box] = parts[part.peer][sent.box]
            made.append(sum(slots))
        parts = made
    return parts


def held(layout, values, random):
    """The parts of the ranks: of sums integers that add up to the values, so that no order shows."""
    parts = [values[layout.slices(rank)].astype(float) for rank in range(layout.ranks)]
    coords = layout.axes.all_coords()
    for axis, placement in enumerate(layout.placements):
        if placement == P:
            for rank in np.flatnonzero(coords[axis] == 0):
                line = [
                    r
                    for r in range(layout.ranks)
                    if coords[axis, r] and (np.delete(coords[:, r], axis) == np.delete(coords[:, rank], axis)).all()
                ]
                for other in line:
                    parts[other] = (
                        np.random.default_rng([axis, coords[axis, other]]).integers(-9, 9, parts[other].shape) * 1.0
                    )
                    parts[rank] = parts[rank] - parts[other]
    return parts


def test_the_messages_move_what_numpy_indexing_says():
    for random, shape, axes in cases(60, 3):
        source, target = (random_layout(random, shape, axes) for _ in range(2))
        if sum(placement == P for placement in source.placements) > 1:
            continue  # `held` makes one sum
        values = random.integers(0, 99, shape)
        for plan in ways(source, target):
            parts = run(plan, held(source, values, random))
            whole = run(redistribution(target, Layout(shape, axes)), parts)
            for rank in range(plan.ranks):
                np.testing.assert_array_equal(whole[rank], values, err_msg=plan.title())
                if P not in target.placements:
                    np.testing.assert_array_equal(parts[rank], values[target.slices(rank)], err_msg=plan.title())


@pytest.mark.parametrize(("axes", "axis"), [({"a": 12}, "a"), ({"b": 2, "a": 6}, "a"), ({"a": 4, "b": 3}, "a")])
def test_a_long_axis_goes_in_two(axes, axis, monkeypatch):
    monkeypatch.setattr(module, "MOST_LISTED", 0)
    random, shape = np.random.default_rng(2), (24, 36)
    values, others = random.integers(0, 99, shape), {name: ROWS for name in axes if name != axis}
    for before, after in ((ROWS, COLUMNS), (COLUMNS, ROWS), (COLUMNS, R)):
        source, target = (Layout(shape, axes, others | {axis: each}) for each in (before, after))
        (plan,) = [way for way in ways(source, target) if way.ends]
        assert (plan.source, plan.target) == (source, target)
        prove(plan)
        for rank, part in enumerate(run(plan, held(source, values, random))):
            np.testing.assert_array_equal(part, values[target.slices(rank)], err_msg=f"{plan.title()} on {rank}")
        messages = [next(hop.steps()).sends.peer.size for hop in plan.hops]
        assert max(messages) <= plan.ranks * axes[axis] / 2


@pytest.mark.parametrize(
    ("axes", "source", "target", "shape"),
    [
        ({"dp": 100, "tp": 100}, {"dp": ROWS, "tp": COLUMNS}, {"dp": COLUMNS, "tp": ROWS}, (4097, 333)),
        *(
            pytest.param(*each, marks=pytest.mark.nightly)
            for each in (
                ({"dp": 10_000}, {"dp": ROWS}, {"dp": COLUMNS}, (20_000, 10_000)),
                ({"dp": 10_000}, {"dp": ROWS}, {"dp": R}, (20_000, 7)),
                ({"dp": 10_000}, {"dp": P}, {"dp": R}, (4097, 333)),
                ({"dp": 10, "pp": 20, "tp": 50}, {"dp": ROWS, "tp": P}, {"dp": ROWS, "tp": ROWS}, (4097, 333)),
            )
        ),
    ],
)
def test_ten_thousand_ranks(axes, source, target, shape):
    plan = redistribution(Layout(shape, axes, source), Layout(shape, axes, target))
    assert prove(plan).ranks == 10_000


def test_the_price_chooses():
    machine = machine_of("infiniband")
    for size, name in ((1, "all-reduce"), (1 << 20, "reduce-scatter, all-gather")):
        source, target = (Layout((size, 4), {"tp": 16}, {"tp": each}) for each in (P, R))
        plan = redistribution(source, target)
        assert plan.name == name
        assert price(plan, machine).seconds == min(price(way, machine).seconds for way in ways(source, target))
    assert redistribution(source.placed(tp=R), source.placed(tp=ROWS)).traffic() == (0, 0.0)  # a slice is free
    messages, sent = redistribution(source.placed(tp=ROWS), source.placed(tp=R), 4).traffic()
    assert (messages, sent) == (15, 15 * (1 << 20) // 16 * 4 * 4)


def test_a_drawing_shows_boxes():
    plan = redistribution(Layout((5, 7), {"tp": 2}, {"tp": ROWS}), Layout((5, 7), {"tp": 2}, {"tp": COLUMNS}))
    assert "[0:3,4:7]>1" in draw(plan)
    assert plan.title() == "redistribution of 5 x 7 by all-to-all: tp=2 S0 to tp=2 S1"


@dataclass(frozen=True)
class Wrong(Layout):
    """A layout with the ranges of one rank moved."""

    shift: tuple[int, int] = (0, 0)

    def bounds(self):
        found = super().bounds()
        found[1, 0] += self.shift
        return found


def test_an_element_with_two_owners_or_none_is_found():
    right = Layout((6, 2), {"tp": 3})
    for shift, words in (
        ((-1, 0), r"the element \[1, 0\] belongs to ranks 0 and 1"),
        ((0, 1), r"the element \[4, 0\] belongs to ranks 1 and 2"),
        ((1, 0), r"the element \[2, 0\] belongs to no rank"),
        ((0, 9), "rank 1 has indices"),
    ):
        wrong = Wrong((6, 2), {"tp": 3}, {"tp": ROWS}, shift=shift)
        with pytest.raises(PlanError, match=words):
            wrong.check()
        for plan in (Hop(wrong, right), Hop(right, wrong)):
            with pytest.raises(PlanError, match=words):
                prove(plan)


@dataclass(frozen=True, eq=False)
class Faulty(Hop):
    """A change of layout one of whose steps is spoilt."""

    fault: str = ""

    def steps(self):
        first, *rest = super().steps()
        sends, takes = first.sends, first.receives
        if self.fault == "offset":
            cells = takes.cells.copy()
            last = np.flatnonzero(takes.rank == 0)[-1]  # its box goes where that of the first message belongs
            cells[[0, takes.first[last]]] = cells[[takes.first[last], 0]]
            first = replace(first, receives=replace(takes, cells=cells))
        if self.fault == "lost":
            keep = np.arange(len(sends.peer)) != 1
            cut = [
                replace(
                    each, **{name: getattr(each, name)[keep] for name in ("peer", "first", "last", "rank", "amount")}
                )
                for each in (sends, takes)
            ]
            first = replace(first, sends=cut[0], receives=cut[1])
        yield first
        yield from rest
        if self.fault == "twice":
            yield rest[-1]


@pytest.mark.parametrize("fault", ["offset", "lost", "twice"])
def test_a_wrong_offset_a_lost_box_and_a_sum_taken_twice_are_found(fault):
    axes = {"a": 3, "b": 2}
    start = Layout((6, 4), axes, {"a": ROWS} if fault == "offset" else {"a": P, "b": ROWS})
    middle = start.placed(b=COLUMNS, a=R) if fault == "offset" else start.placed(a=COLUMNS)
    spoilt, end = Faulty(start, middle, 0 if fault != "offset" else -1, fault=fault), middle.placed(b=R)
    prove(replace(spoilt, fault=""))
    with pytest.raises(PlanError, match="rank"):
        prove(spoilt)
    chain = RedistributionPlan((spoilt, Hop(middle, end)))
    with pytest.raises(PlanError, match="rank"):
        prove(chain)
    with pytest.raises(PlanError, match="comes a change of"):
        prove(replace(chain, hops=chain.hops[::-1]))


def test_a_product_infers_its_layout():
    def product(one, other):
        a = Layout((4, 5, 6), FOUR, one)
        return matmul_layout(a, Layout((6, 8), FOUR, other)).placements

    last = Shard(2)
    assert product({"dp": ROWS}, {"tp": COLUMNS}) == (ROWS, last)  # column parallel
    assert product({"dp": COLUMNS, "tp": last}, {"tp": ROWS}) == (COLUMNS, P)  # row parallel
    assert product({"tp": P}, {}) == product({}, {"tp": P}) == (R, P)
    for one, other in itertools.product((ROWS, last, R, P), (ROWS, COLUMNS, R, P)):
        fits = (one, other) in ((last, ROWS), (ROWS, R), (R, COLUMNS), (R, R), (R, P), (P, R))
        if fits:
            product({"tp": one}, {"tp": other})
        else:
            with pytest.raises(InputError, match="along tp"):
                product({"tp": one}, {"tp": other})
    orders = {"dp": last, "tp": last}, {"tp": ROWS, "dp": ROWS}
    with pytest.raises(InputError, match="another order"):
        product(*orders)
    with pytest.raises(InputError, match="does not multiply"):
        matmul_layout(Layout((4, 5), FOUR), Layout((6, 8), FOUR))


def test_every_mistake_of_a_layout_is_told_at_once():
    with pytest.raises(InputError, match=r"no mesh axis 'pp'.*dp cuts dim 2 of 2.*tp has 'R'"):
        Layout((5, 7), FOUR, {"pp": R, "dp": Shard(2), "tp": "R"})
    with pytest.raises(InputError, match="a dim has -1"):
        Layout((5, -1), FOUR)
    with pytest.raises(InputError, match="cannot become"):
        redistribution(Layout((5, 7), FOUR), Layout((7, 5), FOUR))
    with pytest.raises(InputError, match="boxes on 9973 ranks"):
        prove(redistribution(*(Layout((10**5, 10**5), {"tp": 9_973}, {"tp": each}) for each in (ROWS, COLUMNS))))
