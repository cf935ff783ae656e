"""Prices against closed forms, machine files, drawings."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from conftest import by_day

from hpckit.errors import InputError
from hpckit.plan.collective.algorithms import ALGORITHMS, collective_plan
from hpckit.plan.drawing import draw, draw_svg
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import halo_plan
from hpckit.plan.machine.machine import Level, Machine, machine_of, shipped
from hpckit.plan.machine.sharing import Links, _kinds, _left, leave
from hpckit.plan.machine.timeline import timeline
from hpckit.plan.pricing import at_least, price, walk_length
from hpckit.plan.protocol import NOTHING, Claim, Ends, Step
from hpckit.plan.topology import Topology

FLAT = Machine("flat", (Level("all", 0, 2e-6, 5e9),), 1e-6, 10e9)
ALPHA, BETA, GAMMA = 4e-6, 1 / 5e9, 1 / 10e9
N = 64e6


@pytest.mark.parametrize("p", [2, 3, 4, 7, 16])
def test_closed_forms(p):
    """T = steps alpha + bytes beta + added bytes gamma (Thakur, Rabenseifner and Gropp 2005)."""
    log = (p - 1).bit_length()
    forms = {"ring": 2 * (p - 1) * (ALPHA + N / p * BETA) + (p - 1) * N / p * GAMMA}
    if p == 2**log:
        forms["halving_doubling"] = 2 * log * ALPHA + (p - 1) / p * N * (2 * BETA + GAMMA)
        forms["recursive_doubling"] = log * (ALPHA + N * (BETA + GAMMA))
        forms["tree"] = 2 * log * (ALPHA + N * BETA) + log * N * GAMMA
    for algorithm, seconds in forms.items():
        it = price(collective_plan("all_reduce", algorithm, p), FLAT, N)
        assert it.seconds == pytest.approx(seconds, rel=1e-12)
        assert sum(it.critical.values()) == pytest.approx(it.seconds, rel=1e-12)
        assert it.critical["contention"] == 0.0


def test_segments_hide_the_adding_behind_the_transfer():
    whole, cut = (price(collective_plan("all_reduce", "ring", 8, segments=k), FLAT, N).seconds for k in (1, 16))
    transfer, adding = 2 * 7 / 8 * N * BETA, 7 / 8 * N * GAMMA
    assert whole == pytest.approx(transfer + adding, rel=1e-2)
    assert transfer < cut < transfer + 0.1 * adding + 2 * 7 * 16 * ALPHA


def test_shared_links_and_levels():
    """Two nodes of 2: all-to-all between nodes shares the uplink of 1e9 bytes/s."""
    levels = (Level("node", 2, 0.0, 8e9, uplink=1e9), Level("net", 0, 0.0, 4e9))
    it = price(collective_plan("all_to_all", "pairwise", 4), Machine("two", levels, 0.0, 1e9, copy=8e9), 4e6)
    # Step 0 copies within the rank. In step 1 one message leaves each node, in step 2 both, in step 3 one.
    assert it.seconds == pytest.approx(1e6 / 8e9 + (1e6 + 2e6 + 1e6) / 1e9, rel=1e-12)
    assert it.critical["contention"] > it.critical["transfer"]
    assert it.link_bytes["node"] == 4e6
    bus = Machine("bus", (Level("node", 4, 0.0, 8e9, shared=8e9), Level("net", 0, 0.0, 4e9)), 0.0, 1e30)
    assert price(collective_plan("all_gather", "ring", 4), bus, 4e6).seconds == pytest.approx(3 * 4e6 / 8e9, rel=1e-9)


class Several:
    """Messages of one step: those of ranks 0 and 4 share adapters."""

    ranks = 8

    def title(self):
        return "several messages"

    def steps(self):
        s, d, amount = np.array([(0, 1, 1), (0, 2, 2), (4, 2, 1), (5, 7, 1), (6, 3, 1)]).T
        at = np.zeros(len(s), np.int64)
        yield Step(Ends(d, at, at + 1, s, amount), Ends(s, at, at + 1, d, amount), itemsize=1e9)

    def claim(self):
        return Claim(np.full((8, 1), NOTHING), np.full((8, 1), NOTHING))


def test_messages_of_one_step_share_their_adapters_fairly():
    """Each at half speed until s 2; then the rest of the larger one at full speed. Uplinks hold up all that cross."""
    plan = Several()
    flat = Machine("flat", (Level("all", 0, 0.0, 1e9),), 0.0, 1e30)
    seconds = {e.sender * 10 + e.receiver: e.end for e in timeline(plan, flat)}
    assert seconds == pytest.approx({1: 2.0, 2: 3.0, 42: 2.0, 57: 1.0, 63: 1.0}, rel=1e-9)
    it = price(plan, flat)
    assert it.rank_seconds[:3] == pytest.approx([3.0, 2.0, 3.0])
    assert it.critical["transfer"] == pytest.approx(2.0)
    assert it.critical["contention"] == pytest.approx(1.0)
    # Two leave the second node, each at a quarter of its speed; what they leave to the other one into rank 2 is taken.
    levels = (Level("node", 4, 0.0, 1e9, uplink=0.5e9), Level("net", 0, 0.0, 1e9))
    seconds = {e.sender * 10 + e.receiver: e.end for e in timeline(plan, Machine("two", levels, 0.0, 1e30))}
    assert seconds == pytest.approx({1: 2.0, 2: 10 / 3, 42: 4.0, 57: 1.0, 63: 4.0}, rel=1e-9)


@pytest.mark.parametrize(("machine", "ranks"), [("infiniband", 4096), ("nvlink", 1024), ("ethernet", 768)])
def test_a_stretch_taken_whole_costs_what_its_steps_cost(machine, ranks):
    machine = machine_of(machine)
    small = Machine(machine.name, tuple(_smaller(level) for level in machine.levels), machine.overhead, 8e9)
    plan = collective_plan("all_reduce", "ring", ranks // 16, segments=2)
    quick = price(plan, small, 3e7)
    stepwise = price(dataclasses.replace(plan, runs=()), small, 3e7)
    np.testing.assert_allclose(quick.rank_seconds, stepwise.rank_seconds, rtol=1e-9)
    assert quick.critical == pytest.approx(stepwise.critical, rel=1e-9)
    assert quick.link_bytes == pytest.approx(stepwise.link_bytes, rel=1e-12)


def _smaller(level):
    return Level(level.name, level.ranks // 8, level.latency, level.bandwidth, level.uplink, level.shared)


def test_ten_thousand_ranks_are_priced():
    it = price(collective_plan("all_reduce", "torus", 16384, shape=(2048, 8)), machine_of("nvlink"), 64 << 20)
    assert it.steps == 2 * (2047 + 7)
    assert 0 < it.seconds < 1


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("ranks", [96, pytest.param(1000, marks=pytest.mark.nightly)])
def test_the_bound_of_a_ring_is_below_its_price_and_near(name, ranks):
    machine = machine_of(name)
    for segments in (1, 3):
        plan = collective_plan("all_reduce", "ring", ranks, segments=segments)
        for nbytes in (1e4, 1e9):
            seconds = price(plan, machine, nbytes).seconds
            assert 0.2 * seconds < at_least(plan, machine, nbytes) <= seconds * (1 + 1e-12)
    tree = collective_plan("all_reduce", "tree", ranks)
    assert at_least(tree, machine, 1e6) == 0.0
    assert walk_length(tree, machine) == tree.length * ranks
    unit = machine.largest_unit()
    assert walk_length(plan, machine) == plan.length * (unit if ranks % unit == 0 else ranks)


def test_halo_plans_are_priced_too():
    topology = Topology(("y", "x"), (1, 2))
    plan = halo_plan(Decomposition((10, 8), topology, halo=(0, 1)))
    # One column of 10 items of 8 bytes each way at the same time.
    assert price(plan, FLAT, itemsize=8).seconds == pytest.approx(ALPHA + 80 * BETA, rel=1e-12)


def test_shipped_machines_say_where_their_numbers_come_from():
    assert shipped() == ["ethernet", "infiniband", "llama3", "nvlink", "selene"]
    for name in shipped():
        machine = machine_of(name)
        assert "data sheet" in machine.source or "IEEE" in machine.source
        assert machine.levels[-1].ranks == 0


def test_all_mistakes_of_a_machine_file_at_once(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(
        "reduction = -1\ncolor = 1\n[[level]]\nname='a'\nranks=3\nlatency=0\nbandwidth='x'\n"
        "[[level]]\nname='b'\nranks=4\nlatency=0\nbandwidth=1\nspeed=2\n[[level]]\nlatency=-1\nbandwidth=1\n"
    )
    with pytest.raises(InputError) as caught:
        machine_of(path)
    for said in ("unknown: color", "overhead", "reduction (bytes/s) is a number above 0, not -1", "not 'x'", "3 to 4",
                 "level b: unknown speed", "latency (s) is a number 0 or more, not -1"):  # fmt: skip
        assert said in caught.value.do
    large = f"1{400 * '0'}"  # more than a float holds
    path.write_text(
        f"reduction = {large}\noverhead = 0\n[[level]]\nname='a'\nlatency=0\nbandwidth=1\n[[measured]]\n"
        f"ranks = 2\nmessages = 1\nstart = 0\nlatency = 0\nbytes = [{large}]\nstored = [1]\nadded = [1]\n"
    )
    with pytest.raises(InputError) as caught:
        machine_of(path)
    for said in ("reduction (bytes/s) is a number above 0", "bytes is a list of numbers above 0"):
        assert said in caught.value.do
    path.write_text("level = 3\n[")
    with pytest.raises(InputError, match="not TOML"):
        machine_of(path)
    with pytest.raises(InputError, match="no machine 'nix'") as caught:
        machine_of("nix")
    assert "nvlink" in caught.value.do


def test_the_table_of_a_ring():
    lines = draw(collective_plan("all_reduce", "ring", 4)).splitlines()
    assert lines[0] == "all_reduce by ring: 4 ranks, 6 steps, 4 slots"
    assert collective_plan("broadcast", "tree", 2).title() == "broadcast by tree: 2 ranks, 1 step, 1 slot"
    assert lines[1].split() == ["step", "rank", "0", "rank", "1", "rank", "2", "rank", "3"]
    assert lines[2].split() == ["1+", "1>3", "2>0", "3>1", "0>2"]
    assert lines[5].split() == ["4", "0>1", "1>2", "2>3", "3>0"]
    assert len(lines) == 8
    assert "4-0>2" in draw(collective_plan("all_gather", "doubling", 5))


@pytest.mark.parametrize("operation", ALGORITHMS)
def test_pictures_hold_every_message_twice(operation):
    algorithm = next(iter(ALGORITHMS[operation]))
    plan = collective_plan(operation, algorithm, 6)
    sent = sum(int((step.sends.peer >= 0).sum()) for step in plan.steps())
    for machine in (None, FLAT):
        root = ElementTree.fromstring(draw_svg(plan, machine, 1e6))
        bars = [element for element in root.iter() if element.tag.endswith("title")]
        assert len(bars) == 2 * sent
    assert sum(1 for _ in timeline(plan, FLAT, 1e6)) == sent


def test_what_is_too_large_to_draw_is_refused():
    with pytest.raises(InputError, match="too large to draw"):
        draw(collective_plan("all_reduce", "ring", 65))


@pytest.mark.parametrize("seed", by_day([0, 1], 1))
def test_alike_messages_share_links_as_if_each_were_looked_at(seed):
    rng, ranks, node = np.random.default_rng(seed), 48, 8
    sender, receiver = (each.ravel() for each in np.meshgrid(range(ranks), range(ranks), indexing="ij"))
    away = sender != receiver
    sender, receiver = sender[away], receiver[away]
    far = sender // node != receiver // node
    ends = [sender, ranks + receiver, 2 * ranks + sender // node, 3 * ranks + receiver // node]
    uplink = np.where(far, 0.6, 0.0)
    load = np.stack([np.ones(len(sender)), np.ones(len(sender)), uplink, 0.5 * uplink], axis=1)
    links = Links(np.stack(ends, axis=1), load)
    stage = sender % 3 if seed else sender // node % 2  # ranks of a stage begin together
    begin, alone = 1e-3 * stage.astype(float), np.where(far, 2e-3, 1e-3) * (1 + stage)
    one, _, _ = _kinds(begin, alone, links)
    assert len(one) < len(sender) / 10
    np.testing.assert_allclose(leave(begin, alone, links), _left(begin, alone, links), rtol=1e-9)
    begin += rng.random(len(begin)) * 1e-3  # none is as another
    assert len(_kinds(begin, alone, links)[0]) == len(sender)
    np.testing.assert_allclose(leave(begin, alone, links), _left(begin, alone, links), rtol=1e-9)
