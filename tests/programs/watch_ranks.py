"""Watched ranks: planted mismatches, late, slow and lost ranks. Each case is a job of its own; see test_watch.py."""

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.comm.observe.observer import observer_of
from hpckit.comm.observe.watch import Watch
from hpckit.comm.observe.watched_comm import Requests, WatchedComm
from hpckit.errors import InputError, MismatchError, StallError
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.migration import send_to
from hpckit.particles.particles import Particles, pack_particles
from hpckit.plan.particles.domain import DomainDecomposition

CASE, FOLDER, LIMIT = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
comm = hp.world()
OBSERVER = observer_of(comm)
F4 = np.dtype("f4")
PATIENCE = 150  # s: longer than any machine takes to report
REPORT = FOLDER / "node-00000" / "stall.json"


def until_reported(culprits, waiting, **last):
    """A lock that is free as soon as these culprits are reported, with those that wait for them in the call `last`.

    A machine that holds up a rank may have others reported before and after: the report is kept in `right.json`. What
    takes the lock stands still in its own line.
    """

    def is_right(found):
        if (found["culprits"], found["waiting"]) != (culprits, waiting):
            return False
        return all(found["ranks"][rank]["last"][name] == value for rank in waiting for name, value in last.items())

    def look():
        while not REPORT.exists() or not is_right(json.loads(REPORT.read_text(encoding="utf-8"))):
            time.sleep(0.05)
        (FOLDER / "right.json").write_bytes(REPORT.read_bytes())
        lock.release()

    lock = threading.Lock()
    lock.acquire()
    threading.Thread(target=look, daemon=True).start()
    return lock


def operate(on, operation="all_reduce sum", dtype=F4, count=10, root=-1):
    """A stand-in for a collective that waits for all, reported as collectives report."""
    with OBSERVER.operation(on, operation, dtype, count, root):
        request = on.Ibarrier()
        while not request.Test():
            time.sleep(1e-3)


def refused(call, *said):
    """The call raises on this rank, and the message names all of what is said."""
    try:
        call()
    except MismatchError as error:
        assert all(text in str(error) for text in said), str(error)
        return
    raise AssertionError("no mismatch was seen")


def mismatches():
    odd = comm.rank == comm.size - 1
    with hp.Watch(comm, limit=LIMIT, check=True):
        for _ in range(3):
            operate(comm)
        refused(
            lambda: operate(comm, count=11 if odd else 10),
            "of 10 float32",
            "of 11 float32",
            "watch_ranks.py:",
            "number 4",
        )
        if odd:
            refused(lambda: operate(comm, ("broadcast",), root=0), "all_reduce sum", "broadcast of 10", "root 0")
        else:
            refused(lambda: operate(comm), "all_reduce sum of 10", f"rank {comm.size - 1} broadcast", "root 0")
        for name in ("sum", "max") if odd else ("max", "sum"):  # in the wrong order
            refused(lambda name=name: operate(comm, f"all_reduce {name}"), "all_reduce sum", "all_reduce max")
        refused(lambda: operate(comm, dtype=np.dtype("f8") if odd else F4), "float32", "float64")
        refused(lambda: operate(comm, "broadcast", root=int(odd)), "root 0", "root 1")
        operate(comm, count=-1)
        line = comm.Split(comm.rank % 2, comm.rank)
        line.Set_name("dp")
        operate(line, "on an axis")
        # Started in one order, waited for in another, which is allowed; and one pair that differs.
        begun = [OBSERVER.begin(comm, f"all_reduce {k}", F4, 5) for k in range(3)] + [
            OBSERVER.begin(comm, "odd one", F4, 5 + odd)
        ]
        for k in (0, 2, 1) if odd else (2, 1, 0):
            begun[k].wait()
            begun[k].end()
        refused(begun[3].wait, "odd one of 5", "odd one of 6")
        line.Free()
    assert OBSERVER.listening(Watch) is None


def collectives():
    """The collectives of hpckit tell the watch by themselves; the call sites are those of this program."""
    odd = comm.rank == comm.size - 1
    mesh = hp.Mesh(comm, dp=0)
    with hp.Watch(comm, limit=LIMIT, check=True):
        for algorithm in ("auto", "ring"):
            x = np.full(7, comm.rank, "f4")
            hp.all_reduce(x, mesh["dp"], algorithm=algorithm).wait()
            assert (x == sum(range(comm.size))).all()
        assert hp.all_gather(x[:2], mesh["dp"]).wait().size == 2 * comm.size
        for turn in range(2):
            hp.training.gossip(x, mesh["dp"], "exponential", turn).wait()
        count = 8 if odd else 7
        said = ("all_reduce", "of 7 float32 on dp", "of 8 float32 on dp", "watch_ranks.py:", "(<lambda>)")
        refused(lambda: hp.all_reduce(np.ones(count, "f4"), mesh["dp"]).wait(), *said)
        operation = hp.all_reduce if odd else hp.broadcast
        refused(lambda: operation(np.ones(7, "f4"), mesh["dp"]).wait(), "all_reduce", "broadcast", "root 0")
        gossip = "torus" if odd else "ring"
        refused(lambda: hp.training.gossip(np.ones(7), mesh["dp"], gossip).wait(), "gossip ring", "gossip torus")
        # On an axis that was never used ranks first make together what collectives need there.
        fresh = comm.Dup()
        first = (lambda: operate(fresh, "Barrier")) if odd else (lambda: hp.all_reduce(np.ones(3), fresh).wait())
        refused(first, "the first collective", "Barrier", "watch_ranks.py:")
        fresh.Free()
        several_requests()
    mesh.close()


def several_requests():
    """Waits and tests of several watched requests do what those of MPI do."""
    seen, size, rank = WatchedComm(comm), comm.size, comm.rank
    right, left = (rank + 1) % size, (rank - 1) % size
    for wait in ("all", "any", "some"):
        for test in ("Wait", "Test"):
            got = np.zeros((3, 2))
            requests = [seen.Irecv(got[k], left, k) for k in range(3)]
            requests += [seen.Isend(np.full(2, 10.0 * rank + k), right, k) for k in range(3)]
            requests += [comm.Isend(np.ones(1), right, 9), MPI.Request()]
            statuses, name = [], getattr(Requests, test + wait)
            while any(requests):
                name(requests, statuses) if wait != "any" else name(requests)
            assert np.array_equal(got, 10.0 * left + np.arange(3)[:, None] + [0, 0])
            if wait == "all":
                assert len(statuses) == len(requests)
                assert [(each.source, each.tag, each.Get_count(MPI.DOUBLE)) for each in statuses[:3]] == [
                    (left, k, 2) for k in range(3)
                ]
            comm.Recv(np.ones(1), left, 9)
    requests = [seen.isend([rank, "text"], right), seen.irecv(None, left)]
    assert Requests.waitall(requests)[1] == [left, "text"]
    request = seen.irecv(None, left)
    seen.send("more", right)
    while not (answer := request.test())[0]:
        pass
    assert answer[1] == "more"
    assert isinstance(request, Requests)
    barrier = comm.Ibarrier()
    assert isinstance(barrier, Requests)
    barrier.Wait()
    assert not isinstance(3, Requests)


def late():
    """The last rank comes late, from a known line; the others are told, and go on when it comes."""
    with hp.Watch(comm, limit=LIMIT, folder=FOLDER):
        operate(comm)
        last = comm.size - 1
        if comm.rank == last:
            reported = until_reported([last], list(range(last)), count=33)
            reported.acquire(timeout=PATIENCE)  # LATE
        operate(comm, count=33)  # DUE
        operate(comm)


def ghosts():
    """The last rank comes late to an exchange of ghosts, then to a migration; the others are told of both."""
    last = comm.size - 1
    mesh = hp.Mesh(comm, periodic=("x",), x=0, y=1, z=1)
    domains = DomainDecomposition.even(mesh.topology, np.zeros(3), np.full(3, 6.0))
    places = np.random.default_rng(comm.rank).uniform(*domains.bounds(comm.rank), (40, 3))
    own, ghosts = Particles(), GhostExchange(mesh)
    own.append(pack_particles(np.arange(40), places, np.zeros((40, 3)), np.zeros(40, np.int64)))
    count = len(ghosts.rebuild(domains, own, 1.0))
    own.reserve(40 + count)
    ghosts.settle(np.arange(40, 40 + count))

    def refresh():
        ghosts.start(own)
        ghosts.finish(own)

    with hp.Watch(comm, limit=LIMIT, folder=FOLDER):
        for name, step in (
            ("ghost exchange", refresh),
            ("migration", lambda: send_to(mesh, np.arange(5), np.zeros(5, int))),
        ):
            step()
            if comm.rank == last:
                until_reported([last], list(range(last)), operation=name).acquire(timeout=PATIENCE)
                (FOLDER / "right.json").rename(FOLDER / f"{name}.json")
            step()
    mesh.close()


def busy():
    """The first rank computes for ever, in compiled code that holds the interpreter; the job is ended."""
    hp.Watch(comm, limit=LIMIT, end=10 * LIMIT, folder=FOLDER)
    operate(comm)
    if comm.rank == 0:
        np.sort(np.zeros(1))
        sum(range(10**12))  # LATE
    operate(comm)  # DUE


def slow():
    """Ranks that are slow and live: late by part of the limit, busy on another axis, in long computations."""
    part, more = 0.1 * LIMIT, 12  # so many parts are more than the limit
    with hp.Watch(comm, limit=LIMIT, folder=FOLDER) as watch:
        pairs = comm.Split(comm.rank // 2, comm.rank)
        for step in range(4):
            time.sleep(part * ((comm.rank + step) % 2))
            operate(comm)
        if comm.rank < 2:  # for longer than the limit these two are busy with each other
            for _ in range(more):
                time.sleep(part)
                operate(pairs)
        operate(comm)
        if comm.rank == 1:
            for _ in range(more):
                time.sleep(part)
                watch.beat()
        operate(comm)
        pairs.Free()


def gone():
    """A rank ends early; the one that waits in a check raises instead of hanging."""
    hp.Watch(comm, limit=LIMIT, check=True, folder=FOLDER)
    operate(comm)
    if comm.rank == 1:
        return
    try:
        operate(comm)  # DUE
    except StallError as error:
        assert "rank 1 has not come to all_reduce sum" in error.message, error.message
        assert "through with the program" in error.message, error.message
        return
    raise AssertionError("no stall was seen")


def crossed():
    """Two ranks call two axes in opposite orders."""
    first, second = comm.Dup(), comm.Dup()
    first.Set_name("dp")
    second.Set_name("tp")
    hp.Watch(comm, limit=LIMIT, check=True, folder=FOLDER)
    try:
        operate(first if comm.rank else second)
    except StallError as error:
        assert "rank 0 is in all_reduce sum of 10 float32 on tp" in error.message, error.message
        assert "rank 1 is in all_reduce sum of 10 float32 on dp" in error.message, error.message
        return
    raise AssertionError("no stall was seen")


def exchange():
    """A halo exchange that a rank does not come to, and the mistakes of a watch itself."""
    for wrong in ({"limit": 0}, {"limit": "x"}, {"limit": 5, "end": 1}, {"limit": 5 + comm.rank}):
        try:
            hp.Watch(comm, **wrong)
        except InputError as error:
            assert "watch" in error.report(), error.report()
        else:
            raise AssertionError(wrong)
    mesh = hp.Mesh(comm, x=0, periodic="x")
    field = hp.Field.zeros(mesh, hp.Decomposition((12,), mesh.topology))
    halo = hp.HaloExchange(mesh, field)
    with hp.Watch(comm, limit=LIMIT, folder=FOLDER):
        try:
            hp.Watch(comm)
        except InputError as error:
            assert "watched already" in error.report()
        else:
            raise AssertionError("two watches")
        halo(field)
        halo.start(field)
        if comm.rank == 1:
            halo.finish(field)
            reported = until_reported([1], [0, 2], number=3)
            reported.acquire(timeout=PATIENCE)  # LATE
            halo(field)  # DUE
        else:
            halo.finish(field)
            halo(field)  # DUE
    mesh.close()


if __name__ == "__main__":
    {f.__name__: f for f in (mismatches, collectives, late, ghosts, busy, slow, gone, crossed, exchange)}[CASE]()
    if CASE == "slow" and comm.rank == 0:
        print(json.dumps(REPORT.exists()))
