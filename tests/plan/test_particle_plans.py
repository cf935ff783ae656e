"""Plans of particles: ghosts of uneven domains and migration are proved; planted faults are found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from hpckit.errors import PlanError
from hpckit.plan.drawing import draw
from hpckit.plan.machine.machine import Level, Machine, machine_of
from hpckit.plan.particles.charge_mesh import ChargeMeshPlan, charge_mesh_plan
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.particles.ghosts import POSITION, GhostPlan
from hpckit.plan.particles.migration import MigrationPlan, migration_of
from hpckit.plan.particles.uniform import FORCE, md_plans
from hpckit.plan.pricing import price, traffic
from hpckit.plan.protocol import Claim, Factors, Plan, transposed
from hpckit.plan.proving import prove
from hpckit.plan.topology import Topology

AXES = ("x", "y", "z")
LOWER, UPPER = np.array([-1.0, 0.0, 2.0]), np.array([4.0, 7.0, 5.0])


def uneven(sizes, periodic):
    rng = np.random.default_rng(7)
    cuts = []
    for a, b, n in zip(LOWER, UPPER, sizes, strict=True):
        inner = np.sort(rng.uniform(a, b, n - 1))
        cuts.append((float(a), *map(float, inner), float(b)))
    return DomainDecomposition(Topology(AXES, sizes, periodic), tuple(cuts))


def ghosts(sizes=(3, 1, 2), periodic=AXES, reach=0.8, count=113, **more):
    positions = np.random.default_rng(3).uniform(LOWER, UPPER, (count, 3))
    return GhostPlan.of(uneven(sizes, periodic), reach, positions, **more)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 1, 1), (1, 3, 1), (2, 1, 2), (5, 1, 1), (3, 1, 2), (2, 3, 2)])
@pytest.mark.parametrize(("periodic", "reach"), [(AXES, 0.8), (("y",), 3.1), ((), 0.8), (AXES, 7.5)])
def test_ghosts_are_proved(sizes, periodic, reach):
    """Reaches beyond a domain, and beyond the box, among them."""
    plan = ghosts(sizes, periodic, reach, 31 if reach > 7 else 113)
    proof = prove(plan)
    assert proof.ranks == np.prod(sizes)
    assert proof.messages > 0 or np.prod(sizes) == 1


def test_ranks_of_a_node_use_its_memory():
    node = np.array([0, 0, 0, 1, 1, 1])
    plan = ghosts(node=node)
    prove(plan)
    assert {step.place for step in plan.steps()} == {"memory", "messages"}
    by_message = next(step for step in plan.steps() if step.place == "messages")
    assert (node[by_message.sends.ranks()] != node[by_message.sends.peer]).all()


def faulty(change):
    """The plan with one row of what is sent, from rank 1 to rank 2, changed."""
    plan = ghosts()
    row = int(np.flatnonzero((plan.sent.sender == 1) & (plan.sent.receiver == 2))[2])
    every = np.arange(len(plan.sent.sender))
    if change == "lost":
        return replace(plan, sent=plan.sent.of(np.delete(every, row)))
    if change == "doubled":
        return replace(plan, sent=plan.sent.of(np.insert(every, row, row)))
    sent = plan.sent._replace(**{name: values.copy() for name, values in plan.sent._asdict().items()})
    if change == "another image":
        sent.image[row, 1] += 1
    elif change == "far image":
        sent.image[row, 1] += 5
    elif change == "another particle":
        sent.particle[row] = np.setdiff1d(np.arange(113), sent.particle[sent.receiver == 2])[0]
    elif change == "of another rank":
        sent.particle[row] = np.flatnonzero(plan.domains.owners(plan.positions) != 1)[0]
    elif change == "to another rank":
        sent.receiver[row] = 3
        sent = sent.of(np.lexsort((sent.receiver, sent.sender)))
    return replace(plan, sent=sent)


@pytest.mark.parametrize(
    "change",
    ["lost", "doubled", "another image", "far image", "another particle", "of another rank", "to another rank"],
)
def test_a_fault_in_what_is_sent_is_found(change):
    with pytest.raises(PlanError):
        prove(faulty(change))


def test_ranks_that_take_other_numbers_than_are_sent_are_found():
    plan = ghosts()
    taken = np.zeros((6, 6), np.int64)
    np.add.at(taken, (plan.sent.receiver, plan.sent.sender), 1)
    prove(replace(plan, taken=taken))
    for fewer in (1, taken[2, 1]):  # a shorter message; none at all
        other = taken.copy()
        other[2, 1] -= fewer
        with pytest.raises(PlanError):
            prove(replace(plan, taken=other))


def test_memory_that_ranks_do_not_share_is_found():
    class Wrong(GhostPlan):
        def claim(self):
            return replace(super().claim(), node=np.arange(self.ranks))

    plan = ghosts(node=np.zeros(6, np.int64))
    with pytest.raises(PlanError):
        prove(Wrong(plan.domains, plan.reach, plan.positions, plan.sent, node=plan.node))


def test_ghosts_are_priced_and_drawn_by_what_they_send():
    plan, machine = ghosts(), machine_of("infiniband")
    assert plan.bytes_sent.sum() == POSITION * (plan.sent.sender != plan.sent.receiver).sum()
    cost = price(plan, machine).seconds
    assert price(replace(plan, share=1000.0), machine).seconds > 10 * cost > 0
    assert "ghosts" in draw(plan)
    prove(transposed(plan))


def counts():
    rng = np.random.default_rng(5)
    return rng.integers(0, 7, (5, 5)) * rng.integers(0, 2, (5, 5))


def test_migration_is_proved():
    assert prove(MigrationPlan(counts())).messages == np.count_nonzero(counts() - np.diag(np.diag(counts())))
    prove(MigrationPlan(np.zeros((3, 3), np.int64)))
    assert price(MigrationPlan(counts()), machine_of("infiniband")).seconds > 0


def test_faults_of_a_migration_are_found():
    plan = MigrationPlan(counts())
    r, q = map(int, np.argwhere(plan.counts > 1)[1])
    for change in (-1, 1, -plan.counts[r, q]):
        taken = plan.counts.T.copy()
        taken[q, r] += change
        with pytest.raises(PlanError):
            prove(replace(plan, taken=taken))
    taken = plan.counts.T.copy()
    taken[q] = np.roll(taken[q], 1)
    with pytest.raises(PlanError):
        prove(replace(plan, taken=taken))
    with pytest.raises(PlanError):
        prove(MigrationPlan(-plan.counts))


def test_particles_that_stay_do_not_migrate():
    owners, homes = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 1, 0, 2, 1, 1])
    np.testing.assert_array_equal(migration_of(homes, owners, 3), [[0, 1, 0], [1, 0, 0], [0, 2, 0]])


def test_a_uniform_fluid_sends_what_a_shell_holds():
    """On 3 x 2 x 2 ranks of edge 10: ghosts are the particles of the shell around a domain."""
    plans = md_plans((30.0, 20.0, 20.0), 0.8, 2.2, 0.3, Topology(AXES, (3, 2, 2), AXES), node=4)
    prove(plans.ghosts)
    prove(plans.migration)
    shell = 0.8 * (15.0**3 - 10.0**3)
    each = np.bincount(plans.ghosts.sent.receiver, minlength=12) * plans.ghosts.share
    assert each.mean() == pytest.approx(shell, rel=0.05)
    leaving = plans.migration.counts.sum() * plans.migration.share
    faces = 12 * 6 * 10.0**2 * 0.8
    assert leaving == pytest.approx(faces * 0.25 * 0.3 / 4, rel=0.15)  # a quarter of the way, on average, outward


@pytest.mark.nightly
@pytest.mark.parametrize("sizes", [pytest.param((4, 4, 4), marks=pytest.mark.nightly), (3, 4, 5)])
def test_ghosts_leave_by_direction_so_that_receivers_are_not_met_by_all_at_once(sizes):
    """In the order of the ranks' numbers the price was six times what the busiest rank sends."""
    topology = Topology(("z", "y", "x"), sizes, periodic=("z", "y", "x"))
    plan = md_plans(84.0, 0.8442, 2.5, 0.3, topology).ghosts
    machine = Machine("flat", (Level("all", 0, 0.0, 1e9),), 0.0, 1e15)
    assert price(plan, machine).seconds < 1.4 * plan.bytes_sent.max() / 1e9


@pytest.mark.parametrize(("whole", "slabs"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("sizes", [(1, 2, 1), (1, 3, 2), (2, 2, 2)], ids=str)
def test_meshes_of_charges_are_proved_in_all_ways(sizes, whole, slabs):
    plan = ChargeMeshPlan((25, 32, 30), Topology(AXES, sizes, AXES), (5, 6, 5), whole, slabs)
    proof = prove(plan)
    assert proof.ranks == np.prod(sizes)
    assert proof.messages > 0
    # Charges home, the transform there and back, the field: each change of layout once for all three components.
    changes = {(1, 2, 1): 1, (1, 3, 2): 3, (2, 2, 2): 3}[sizes]
    if slabs:  # sums, the transform there and back, the field
        assert plan.exchanges == 4
    else:
        assert plan.exchanges <= 2 if whole else plan.exchanges == 2 + 2 * changes
        assert "all-reduce" in draw(plan) or not whole or sizes != (1, 2, 1)
    parts = list(plan.parts)
    parts[0] = Wrong(parts[0])
    plan.__dict__["parts"] = tuple(parts)
    with pytest.raises(PlanError):
        prove(plan)


@dataclass
class Wrong:
    """A plan whose last step is missing."""

    plan: Plan

    @property
    def ranks(self):
        return self.plan.ranks

    def title(self):
        return "a wrong plan"

    def steps(self):
        return list(self.plan.steps())[:-1]

    def claim(self):
        return self.plan.claim() if isinstance(self.plan.claim(), Claim) else Factors((self.part(),), self.part)

    def part(self):
        return Wrong(self.plan.claim().plans[-1])


def test_small_meshes_are_transformed_whole_and_large_ones_in_blocks():
    two, halo = Topology(AXES, (1, 2, 1), AXES), (6, 6, 6)
    assert charge_mesh_plan((25, 32, 32), two, halo).whole
    assert charge_mesh_plan((25, 32, 32), two, halo).sharing
    assert not charge_mesh_plan((25, 32, 32), two, halo, shares=False).sharing
    assert not charge_mesh_plan((7, 7, 7), two, halo).sharing
    assert not charge_mesh_plan((25, 2, 1024), Topology(AXES, (1, 1, 3), AXES), halo).sharing  # each has a slab
    assert not charge_mesh_plan((128, 128, 128), two, halo).whole
    assert not charge_mesh_plan((64, 64, 64), Topology(AXES, (4, 2, 1), AXES), halo).whole
    thin = charge_mesh_plan((128, 128, 40), Topology(AXES, (1, 1, 20), AXES), halo)  # blocks of 2 points
    assert thin.whole
    alone = charge_mesh_plan((128, 128, 128), Topology(AXES, (1, 1, 1), AXES), halo)
    assert alone.whole
    assert prove(alone).messages == 0


def test_forces_of_ghosts_and_the_mesh_count_in_what_a_step_sends():
    topology = Topology(AXES, (1, 2, 1), AXES)
    plain = md_plans(10.0, 1.0, 2.0, 0.5, topology)
    more = md_plans(10.0, 1.0, 2.0, 0.5, topology, returned=FORCE, mesh=(20, 15, 15))
    assert plain.of_a_step() == (plain.ghosts,)
    assert list(more.named()) == ["ghosts", "migration", "returns", "mesh"]
    prove(more.returns)
    there, back, mesh = (traffic(plan)[1] for plan in more.of_a_step())
    np.testing.assert_allclose(there, plain.ghosts.bytes_sent)
    np.testing.assert_allclose(back, there[::-1] * FORCE / POSITION)  # a rank returns what the other sent
    assert mesh.tolist() == [20 * 15 * 15 * 8] * 2
    # Of slabs the sums of the other's, the transform there and back, and the field of the own one.
    slabs = traffic(md_plans(10.0, 1.0, 2.0, 0.5, topology, mesh=(25, 32, 32)).mesh)[1]
    points, waves = 32 * 32 * 8, 16 * 17 * 16
    sent = [(25 - n) * (points + 3 * waves) + n * (waves + 3 * points) for n in (13, 12)]
    assert slabs.tolist() == sent
