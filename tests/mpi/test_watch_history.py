"""From the last calls of the ranks to the one that left the path, and calls of mpi4py that tell the watch."""

from __future__ import annotations

from hpckit.comm.observe.diagnosis import RUNNING, Call, Rank, Stall, diagnose
from hpckit.comm.observe.history import differing, due_there, odd_one, rare

WORLD = (0, 1, 2)


def call(sequence, operation="sum", number=1, line=10, root=-1, group="world 0 (0, 1, 2)", inside=False, count=4):
    place = {"file": "/a/b.py", "line": line, "function": "f", "inside": inside, "sequence": sequence}
    return Call(operation, "world", "f8", count, root, group, WORLD, number, **place)


def steps(*operations):
    """A history of so many calls on all ranks, a line each."""
    return [call(k + 1, name, k + 1, line) for k, (name, line) in enumerate(operations)]


LOOP = (("halo", 1), ("sum", 2), ("halo", 1), ("sum", 2), ("halo", 1))


def test_the_first_difference_names_the_rank_that_took_a_new_step():
    good, bad = steps(*LOOP, ("sum", 2)), steps(*LOOP, ("reduce", 7), ("halo", 1))
    for who in WORLD:  # of two ranks too: the habit decides where there is no majority
        for ranks in (WORLD, (who, (who + 1) % 3)):
            odd = differing({rank: bad if rank == who else good for rank in ranks})
            assert odd.culprits == (who,)
            assert (odd.did[who].operation, odd.due.operation, odd.due.number) == ("reduce", "sum", 6)
            assert set(odd.others) == set(ranks) - {who}
    assert differing(dict.fromkeys(WORLD, good)) is None
    # In the first step nothing is known: of three the fewer, of two both.
    first = {rank: steps(("reduce" if rank == 1 else "sum", 2)) for rank in WORLD}
    assert differing(first).culprits == (1,)
    both = differing({rank: first[rank] for rank in (0, 1)})
    assert (both.culprits, both.due) == ((0, 1), None)


def test_counts_and_types_differ_only_where_both_say_them():
    told, other, unknown = call(1, count=4), call(1, count=5), call(1, count=-1)
    assert differing({0: [told], 1: [other]}) is not None
    assert differing({0: [told], 1: [unknown]}) is None
    assert differing({0: [call(1, root=0)], 1: [call(1, root=1)]}) is not None
    assert differing({0: [call(1, number=0)], 1: [call(1, "recv", number=0)]}) is None, "messages have no numbers"


def test_an_operation_that_few_ranks_ever_called_is_rare():
    usual = [call(0, "bcast", root=0), call(0, "sum", line=3)]
    odd = [*usual, call(0, "bcast", root=1)]
    found = rare({0: usual, 1: odd, 2: usual})
    assert {rank: it.root for rank, it in found.items()} == {1: 1}
    due, others = due_there({0: usual, 1: odd, 2: usual}, found)
    assert (due.operation, due.root, others) == ("bcast", 0, (0, 2))
    told = Stall("differed", 0.0, (1,), (), {}, did=found, due=due, others=others)
    assert told.text() == (
        "rank 1 called bcast of 4 f8 with root 1 on world at b.py:10 (f), "
        "where ranks 0, 2 called bcast of 4 f8 with root 0 on world at b.py:10 (f)"
    )


def test_ranks_in_the_same_call_on_another_communicator():
    history = {rank: steps(*LOOP) for rank in WORLD}
    last = {rank: call(9, group="3 ranks 0 (0, 1, 2)" if rank == 2 else "world 0 (0, 1, 2)") for rank in WORLD}
    assert odd_one(history, last).culprits == (2,)


def test_messages_wait_for_their_other_end():
    def rank(number, last, still=9.0):
        return Rank(number, 100 + number, RUNNING, last, {last.group: last.number}, still)

    waits = [rank(r, call(3, "Recv", number=0, root=(r + 1) % 3, inside=True)) for r in WORLD]
    assert diagnose(waits, 1.0).kind == "crossed"
    late = rank(2, call(2, inside=False))
    stall = diagnose([waits[0], waits[1], late], 1.0)
    assert (stall.kind, stall.culprits, stall.waiting) == ("late", (2,), (0, 1))
    assert "rank 2 has not answered Recv of 4 f8 with rank 2 on world" in stall.text()
    nobody = rank(0, call(3, "Send", number=0, root=-2, inside=True))
    assert diagnose([nobody, waits[1], late], 1.0).culprits == (2,)
    anyone = [rank(0, call(3, "Recv", number=0, root=-1, inside=True)), late, rank(1, call(2), still=0.1)]
    assert diagnose(anyone, 1.0).culprits == (2,)
