"""Several meshes in one process, each with an observer of its own; tags of lasting and of passing users."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from checks import run_checks
from mpi4py import MPI

import hpckit as hp
from hpckit.comm.checksums import Checksums
from hpckit.comm.observe.observer import UNHEARD, Listener, Observer, observer_of
from hpckit.comm.observe.waits import Waits
from hpckit.errors import SetupError

COMM = MPI.COMM_WORLD


class Heard(Listener):
    """Counts what it hears."""

    def __init__(self):
        self.counts = Counter()

    def begun(self, operation):
        if not operation.is_exchange:
            self.counts[operation.name[0] if isinstance(operation.name, tuple) else operation.name] += 1

    def again(self, operation, note):
        self.counts[operation.name] += 1

    def ended(self, operation, note, result, waited):
        assert operation.waiting, operation.name
        self.counts["ended"] += 1


def halo_on(mesh):
    field = hp.Field.zeros(mesh, hp.Decomposition((12, 5), mesh.topology))
    return field, hp.HaloExchange(mesh, field)


def test_each_mesh_reports_to_its_own_observer():
    heard, other, world = Heard(), Heard(), Heard()
    one = hp.Mesh(COMM, Observer(heard), y=0, x=1, periodic="y")
    two = hp.Mesh(COMM, Observer(other), y=0, x=1, periodic="y")
    shared = hp.Mesh(one["y"], y=0, x=1)
    plain = hp.Mesh(COMM, y=0, x=1)
    assert shared.observer is one.observer is observer_of(one["y"]) is observer_of(one.comm.Dup())
    assert plain.observer is observer_of(COMM) is observer_of(COMM.Split(0, COMM.rank))
    plain.observer.listen(world)
    (field, halo), (_, halo_of_two) = halo_on(one), halo_on(two)
    twin = hp.Field.zeros(two, hp.Decomposition((12, 5), two.topology))
    for _ in range(3):
        halo(field)
        halo_of_two(twin)
    halo.accumulate(field)
    hp.all_reduce(np.ones(3), one["y"]).wait()
    hp.broadcast(np.ones(3), two).wait()
    hp.all_reduce(np.ones(3), plain).wait()
    with plain.observer.operation(plain.comm, "mine"):
        pass
    plain.observer.forget(world)
    hp.all_reduce(np.ones(3), plain).wait()
    first = {"the first collective": 1}
    assert heard.counts == {"halo exchange": 3, "halo accumulation": 1, "all_reduce": 1, "ended": 6, **first}
    assert other.counts == {"halo exchange": 3, "broadcast": 1, "ended": 5, **first}
    assert world.counts == {"all_reduce": 1, "mine": 1, "ended": 3, **first}
    for mesh in (shared, one, two, plain):
        mesh.close()


def test_what_nobody_hears_is_one_object_and_listeners_may_come_later():
    mesh = hp.Mesh(COMM, Observer(), y=0, x=1, periodic="y")
    assert mesh.observer.begin(mesh.comm, "anything") is UNHEARD
    field, halo = halo_on(mesh)
    halo(field)
    waits = Waits(COMM)
    mesh.observer.listen(waits)
    halo(field)
    mesh.observer.forget(waits)
    halo(field)
    assert [channel.calls for channel in waits.channels] == [1]
    mesh.close()


def test_two_watches_of_two_meshes():
    one, two = hp.Mesh(COMM, Observer(), x=0), hp.Mesh(COMM, Observer(), x=0)
    with hp.Watch(one.comm) as first, hp.Watch(two.comm) as second:
        before = first.calls, second.calls
        hp.all_reduce(np.ones(3), one["x"], algorithm="ring").wait()
        assert first.calls > before[0]
        assert second.calls == before[1]
    one.close()
    two.close()


def test_lasting_and_passing_tags_never_meet():
    mesh = hp.Mesh(COMM, x=0, periodic="x")
    lasting, passing = set(), set()
    mesh._most_tags = 50  # as if MPI had a hundred
    for _ in range(8):
        first = mesh.lasting_tags(6)
        assert lasting.isdisjoint(range(first, first + 6))
        lasting.update(range(first, first + 6))
    for _ in range(40):
        first = mesh.tags(7)
        passing.update(range(first, first + 7))
    assert len(passing) <= 50
    assert lasting.isdisjoint(passing)
    assert max(lasting | passing) < 100
    with pytest.raises(SetupError, match="no tags left"):
        mesh.lasting_tags(6)
    mesh.close()


def test_checksums_are_those_of_a_mesh():
    mesh, plain = hp.Mesh(COMM, Observer(Checksums()), y=0, x=1, periodic="y"), hp.Mesh(COMM, y=0, x=1, periodic="y")
    for each, sealed in ((mesh, COMM.size > 1), (plain, False)):
        field, halo = halo_on(each)
        halo(field)
        assert any(phase._seals is not None for phase in halo._phases) == sealed
        each.close()


if __name__ == "__main__":
    run_checks(globals())
