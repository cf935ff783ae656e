"""Thermostats have their distributions, minimization its minimum, walls and fields their energy; on any ranks alike."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import by_day, made_once
from mpi4py import MPI
from scipy import stats

from hpckit.apps.md.config import Config
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.md.thermo import measure

LIQUID = {"system": {"cells": [4, 4, 4], "density": 0.7, "temperature": 1.5}, "neighbors": {"skin": 0.4}}


def thermostat(kind, steps, every, **more):
    dynamics = {"kind": kind, "temperature": 1.2, "damping": 0.1, **more}
    smooth = {"interaction": {"switch": 2.0}} if kind == "nose_hoover" else {}
    return {"settings": LIQUID | smooth | {"dynamics": dynamics, "time": {"steps": steps, "dt": 0.004}}, "every": every}


def held(kind, moved, steps, every, system, **more):
    """A system that barostats hold at a pressure."""
    settings = {"system": {**LIQUID["system"], **system}, "barostat": {"kind": kind, "pressure": 1.2, **more}}
    made = thermostat(moved, steps, every)
    made["settings"] |= settings
    if system.get("density") == 1.0:
        made["settings"]["interaction"] = {"epsilon": [0.0]}
    return made


CASES = {
    "mtk": held("mtk", "nose_hoover", 1500, 25, {"density": 0.7}, damping=1.0, coupled="none"),
    "cell_rescaling": held("cell_rescaling", "bussi", 1500, 25, {}, damping=0.5, compressibility=0.1),
    "noisy": held("mtk", "langevin", 1500, 25, {}, damping=1.0),
    "noisy gas": held("mtk", "langevin", 12000, 12, {"density": 1.0}, damping=0.3),
    "gas": held("cell_rescaling", "bussi", 12000, 12, {"density": 1.0}, damping=0.05, compressibility=1 / 1.2),
    "langevin": thermostat("langevin", 1500, 25),
    "bussi": thermostat("bussi", 1500, 25),
    "nose_hoover": thermostat("nose_hoover", 1500, 25, damping=0.2),
    "fire": {
        "settings": {
            "system": {"cells": [3, 3, 3], "density": 1.1, "temperature": 0.3},
            "dynamics": {"kind": "fire", "largest_force": 1e-8},
            "interaction": {"switch": 2.0},
            "time": {"steps": 1500},
        },
        "every": 1500,
        "shake": 50,
    },
    "walls": {
        "settings": {
            "system": {"cells": [4, 4, 6], "density": 0.4, "periodic": ["x", "y"], "temperature": 0.9},
            "dynamics": {"walls": [{"dim": "z", "sigma": 0.8, "cutoff": 2.0}], "field": [0.0, 0.0, -0.2]},
            "time": {"steps": 800, "dt": 0.002},
            "interaction": {"shift": True},
        },
        "every": 100,
    },
}


MOVED = ("langevin", "bussi", "nose_hoover", "mtk", "cell_rescaling", "noisy")


def short(case):
    """A case that is looked at after 50 and 100 steps."""
    settings = case["settings"]
    return {"settings": settings | {"time": settings["time"] | {"steps": 100}}, "every": 50}


DAILY = "md_motion"


def group_of(name):
    """The folder of a case: those of the day are done together, others by themselves, at night."""
    name = name.removesuffix(" short")
    others = ("gas", "noisy gas", "noisy", "bussi", "nose_hoover", "cell_rescaling")
    return f"md_motion_{name.replace(' ', '_')}" if name in others else DAILY


@pytest.fixture
def found(mpirun, tmp_path_factory):
    """`found(name, ranks=1)`: figures of a case, made once; of short ones on four ranks, too."""

    def make(folder):
        folder.mkdir()
        moved = {f"{name} short": short(CASES[name]) for name in MOVED if group_of(name) == folder.name}
        long = {name: case for name, case in CASES.items() if group_of(name) == folder.name}
        for ranks, cases in ((1, long | moved), (4, moved)):
            (folder / "cases.json").write_text(json.dumps(cases))
            mpirun(ranks, "md_motion.py", folder, timeout=200)

    def load(name, ranks=1):
        folder = made_once(tmp_path_factory, group_of(name), make)
        return dict(np.load(folder / f"{name}-{ranks}.npz"))

    return load


@pytest.mark.parametrize("kind", by_day(["langevin", "bussi", "nose_hoover"], "langevin"))
def test_velocities_and_kinetic_energies_are_canonical(found, kind):
    rows, speeds = found(kind)["rows"][12:], found(kind)["speeds"][12 * 256 :]
    assert stats.kstest(speeds[::3], "norm", args=(0, np.sqrt(1.2))).pvalue > 1e-3
    if kind != "nose_hoover":
        kinetic = rows[:, 2] / 1.2
        assert stats.kstest(kinetic, "gamma", args=((3 * 256 - 3) / 2,)).pvalue > 1e-3
    assert rows[:, 1].mean() == pytest.approx(1.2, rel=0.02)


@pytest.mark.nightly
def test_the_chain_keeps_its_energy(found):
    kept = found("nose_hoover")["rows"][:, 4]
    assert np.ptp(kept) < 5e-3 * np.ptp(found("nose_hoover")["rows"][:, 3])


@pytest.mark.parametrize("kind", by_day(MOVED, "langevin", "mtk"))
def test_thermostats_and_barostats_do_not_see_the_number_of_ranks(found, kind):
    one, four = found(f"{kind} short"), found(f"{kind} short", 4)
    np.testing.assert_allclose(four["rows"], one["rows"], rtol=1e-9)
    np.testing.assert_allclose(four["positions"], one["positions"], atol=1e-9)
    np.testing.assert_allclose(four["velocities"], one["velocities"], atol=1e-9)


def test_the_barostat_keeps_its_conserved_quantity(found):
    rows = found("mtk")["rows"]
    assert np.ptp(rows[:, 4]) < 1e-2 * np.ptp(rows[:, 3] + rows[:, 2])
    assert np.ptp(rows[:, 6]) > 0.05 * rows[0, 6], "the box hardly changes"


@pytest.mark.parametrize("kind", by_day(["mtk", "cell_rescaling", "noisy"], "mtk"))
def test_barostats_hold_the_pressure(found, kind):
    late = found(kind)["rows"][12:]
    assert late[:, 5].mean() == pytest.approx(1.2, abs=0.15)
    assert late[:, 1].mean() == pytest.approx(1.2, rel=0.03)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "order"), [("gas", 256), ("noisy gas", 257)])
def test_volumes_of_an_ideal_gas_are_canonical(found, name, order):
    """P V / k T of N particles has the gamma distribution of order N + 1, of order N where their center rests."""
    volumes = found(name)["rows"][100:, 6] * 1.2 / 1.2
    assert volumes.mean() == pytest.approx(order, rel=0.02)
    assert volumes.var() == pytest.approx(256, rel=0.25)
    assert stats.kstest(volumes[::3], "gamma", args=(order,)).pvalue > 1e-3


def test_the_energy_in_a_field_has_no_jump_where_particles_go_over_a_side():
    """Along a periodic dim it is that of places which are never put back into the box."""
    settings = LIQUID | {"dynamics": {"field": [0.5, 0.0, 0.0]}, "interaction": {"switch": 2.0}, "time": {"dt": 0.002}}
    config = Config.model_validate(settings)
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
    first = measure(system).total
    for step in range(300):
        dynamics.step(system, 0.002, step == 299)
    assert abs(system.particles.images[system.particles.own, 0]).sum() > 8
    assert measure(system).total == pytest.approx(first, abs=0.5)  # each one over a side would be 4.5
    system.mesh.close()


def test_minimization_ends_in_the_crystal(found):
    fire = found("fire")
    assert fire["largest"] < 1e-8
    assert 10 < fire["steps"] < 1500
    gaps = fire["positions"][:, None] - fire["positions"][None]
    edge = fire["box"][1] - fire["box"][0]
    gaps -= np.rint(gaps / edge) * edge
    nearest = np.sort(np.linalg.norm(gaps, axis=2), axis=1)[:, 1:13]
    lattice = (4 / 1.1) ** (1 / 3) / np.sqrt(2)
    np.testing.assert_allclose(nearest, lattice, rtol=1e-6)


def test_walls_and_a_field_keep_the_energy_and_the_particles(found):
    walls = found("walls")
    total = walls["rows"][:, 4]
    assert np.ptp(total) < 5e-4 * abs(total.mean())
    z = walls["positions"][:, 2]
    assert (z > walls["box"][0][2]).all()
    assert (z < walls["box"][1][2]).all()
    assert z.mean() < 0.5 * (walls["box"][0][2] + walls["box"][1][2]), "nothing falls"
