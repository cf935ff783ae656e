"""Molecular dynamics on a simulated GPU, against the engine for the CPU."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_simulated import ON_GPU, hpckit, on_gpu

from hpckit.io.particles.lammps_data import read_lammps_data
from tests.md.potential_files import write_branched_chains, write_chain

SMALL = ("system.cells=[3,3,4]", "time.steps=3", "time.thermo=2", "interaction.cutoff=1.5", "--no-report")


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_particles_on_a_device_move_as_on_the_host(mpirun, monkeypatch, ranks):
    on_gpu(monkeypatch)
    assert "all good 3" in mpirun(ranks, "md_device.py", timeout=280).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_kind_of_motion_on_a_device_is_that_of_the_host(mpirun, monkeypatch, ranks):
    on_gpu(monkeypatch)
    assert "all good 11" in mpirun(ranks, "md_device_motion.py", timeout=280).stdout


BESIDE = (
    "snap",
    "ewald",
    "ewald, tilted",
    "pppm",
    "pppm in blocks",
    "inner steps",
    "biases",
    "rigid bodies",
    "coupling",
)


@pytest.mark.parametrize(
    ("ranks", "names"),
    [
        *(pytest.param(n, BESIDE, marks=pytest.mark.nightly) for n in (1, 2)),
        pytest.param(3, tuple(name for name in BESIDE if name != "pppm"), marks=pytest.mark.nightly),  # 8 cells along x
    ],
)
def test_what_acts_beside_pairs_on_a_device_is_that_of_the_host(mpirun, monkeypatch, ranks, names):
    on_gpu(monkeypatch)
    assert f"all good {len(names)}" in mpirun(ranks, "md_device_bound.py", *names, timeout=280).stdout


@pytest.mark.nightly
def test_a_run_with_gpu_equals_one_without(tmp_path):
    for name, ranks, gpu, more in (("host", 1, (), {}), ("gpus", 2, ("--gpu",), ON_GPU)):
        done = hpckit("run", "md/melt", *SMALL, *gpu, "-n", ranks, "--directory", name, cwd=tmp_path, **more)
        assert done.code == 0, done.stdout + done.stderr
    assert "GPU: " in done.stdout
    assert "2 ranks share it" in done.stdout
    host, gpus = (read_lammps_data(tmp_path / name / "output/end.data") for name in ("host", "gpus"))
    np.testing.assert_allclose(gpus.unwrapped, host.unwrapped, atol=1e-12)
    energies = [
        json.loads((tmp_path / name / "summary.json").read_text())["conserved"]["energy"]["final"]
        for name in ("host", "gpus")
    ]
    assert energies[1] == pytest.approx(energies[0], rel=1e-12)


CHAIN = """units lj
atom_style bond
special_bonds fene
read_data chain.data
neighbor 0.08 bin
neigh_modify every 1 delay 1 check yes
bond_style fene
bond_coeff 1 30.0 1.5 1.0 1.0
pair_style lj/cut 1.12
pair_modify shift yes
pair_coeff 1 1 1.0 1.0 1.12
fix 1 all nve
timestep 0.01
thermo 3
run 3
"""
# As `BRANCHED`, with charges over all images.
WAVES = {"ewald": "kspace_style ewald 1e-2", "pppm": "kspace_style pppm 1e-4"}
BRANCHED = """units real
atom_style full
special_bonds charmm
improper_style harmonic
read_data branched.data
pair_style lj/cut/coul/cut 3.0 3.4
pair_coeff 1 1 0.08 2.4
pair_coeff 2 2 0.1 2.0
bond_style harmonic
bond_coeff * 300 1.4
angle_style charmm
angle_coeff * 40 112 12.0 2.3
dihedral_style charmm
dihedral_coeff 1 1.2 3 40 0.5
dihedral_coeff 2 0.4 1 180 1.0
neighbor 0.4 bin
neigh_modify every 2 delay 0 check no
fix 1 all nve
fix 2 all shake 1e-10 20 0 b 1
timestep 1.0
thermo 2
run 2
"""


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        *(
            pytest.param(name, n, marks=pytest.mark.nightly)
            for name, n in (("branched", 2), ("chain", 1), ("ewald", 1), ("pppm", 2))
        ),
    ],
)
def test_molecules_on_gpus_move_as_on_cores(tmp_path, name, ranks):
    """FENE chains; charged molecules with all that bonds them, some by constraints, and potentials for their ends."""
    write_chain(tmp_path / "chain.data", (2, 2, 8))
    write_branched_chains(tmp_path / "branched.data", n=(1, 1, 1))
    scripts = {"chain": CHAIN, "branched": BRANCHED}
    for each, command in WAVES.items():
        far = BRANCHED.replace("lj/cut/coul/cut", "lj/cut/coul/long")
        scripts[each] = far.replace("neighbor", f"{command}\nneighbor", 1)
    (tmp_path / f"in.{name}").write_text(scripts[name])
    found = []
    for where, gpu, more in (("host", (), {}), ("gpus", ("--gpu", "-n", ranks), ON_GPU)):
        words = "run", f"in.{name}", *gpu, "--no-report", "--directory", where
        done = hpckit(*words, cwd=tmp_path, **more)
        assert done.code == 0, done.stdout + done.stderr
        lines = (tmp_path / where / "metrics.jsonl").read_text().splitlines()
        found.append((read_lammps_data(tmp_path / where / "output/end.data"), json.loads(lines[-1])))
    (host, metrics), (gpus, there) = found
    np.testing.assert_allclose(gpus.unwrapped, host.unwrapped, atol=1e-12)
    np.testing.assert_allclose(gpus.velocities, host.velocities, atol=1e-11 * np.abs(host.velocities).max())
    parts = {"energy", "bonded", "pressure", "coulomb", "long_range", "angles", "dihedrals", "impropers"}
    parts &= metrics.keys()
    for what in parts:
        assert there[what] == pytest.approx(metrics[what], rel=1e-11), what
    assert len(parts) == (3 if name == "chain" else 8)
    assert there["rebuilds"] > 1


@pytest.mark.nightly
def test_what_has_no_form_for_gpus_is_refused_by_name(tmp_path):
    done = hpckit("run", "md/melt", *SMALL, "repro=true", "--gpu", "--directory", "r", cwd=tmp_path, **ON_GPU)
    assert done.code != 0
    assert "repro = True does not run on GPUs" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


TABLE = """app = "md"
[system]
cells = [3, 3, 4]
[interaction]
cutoff = 1.5
[time]
steps = 6
thermo = 3
[table]
columns = [
    "v_groups", "c_fastest", "f_layers[3][4]", "c_flux[1]", "c_warm", "f_stress[1][3]", "f_near[30][2]", "c_mean",
]
computed = [
    { name = "energy", kind = "ke/atom" },
    { name = "pot", kind = "pe/atom" },
    { name = "stress", kind = "stress/atom", moving = false },
    { name = "flux", kind = "heat/flux", of = ["c_energy", "c_pot", "c_stress"] },
    { name = "fastest", kind = "reduce", how = "max", of = ["c_energy"] },
    { name = "mean", kind = "reduce", how = "ave", of = ["v_warmth"] },
    { name = "warm", kind = "temp", within = [0, 3, 0, 9, 0, 3] },
    { name = "pairs", kind = "rdf", bins = 50 },
]
formulas = [
    { name = "warmth", formula = "c_energy / 1.5 + vx^2*x+q+type+id/mass" },
    { name = "groups", formula = "count(all)*gyration(all)+xcm(all,x)-vcm(all,y)*fcm(all,z)+ke(all)/bound(all,zmax)" },
]
averages = [{ name = "near", columns = ["c_pairs[1]", "c_pairs[2]"], mode = "vector", every = 3, period = 3 }]
correlations = [{ name = "stress", columns = ["pxy"], lags = 3, period = 3, running = true }]
[[table.profiles]]
name = "layers"
columns = ["v_warmth", "density/number", "vx", "temp"]
bins = { along = ["z"], widths = [0.1], origins = ["lower"], reduced = true }
repeat = 3
period = 3
"""


@pytest.mark.nightly
def test_the_table_of_a_run_with_gpu_has_the_numbers_of_one_without(tmp_path):
    (tmp_path / "run.toml").write_text(TABLE)
    found = []
    for name, ranks, gpu, more in (("host", 1, (), {}), ("gpus", 2, ("--gpu",), ON_GPU)):
        done = hpckit("run", "run.toml", *gpu, "-n", ranks, "--no-report", "--directory", name, cwd=tmp_path, **more)
        assert done.code == 0, done.stdout + done.stderr
        lines = map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
        found.append([[value for key, value in line.items() if key[1:2] == "_"] for line in lines])
    assert len(found[0][-1]) == 8
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9, atol=1e-12)
