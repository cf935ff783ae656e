"""Free energies of runs beside exact ones: couplings, restraints and metadynamics in known potentials."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import by_day
from scipy import stats
from test_physics import run_app

from hpckit.apps.md.free_energy.report import free_energy_sections
from hpckit.md.motion.replicas import swaps

pytestmark = pytest.mark.usefixtures("quick_runs")

GAS = (
    *("system.lattice=sc", "system.temperature=1.0", "interaction.epsilon=[0.0]", "interaction.cutoff=1.5"),
    *("dynamics.kind=langevin", "dynamics.temperature=1.0", "dynamics.damping=0.5", "time.thermo=1000"),
)


def results(folder):
    return json.loads((folder / "output" / "free_energy.json").read_text())


def toml(folder, text):
    (folder / "more.toml").write_text(text)
    return str(folder / "more.toml")


@pytest.mark.parametrize("steps", by_day([1200, 6000], 1200))
def test_springs_that_grow_have_their_exact_free_energy(tmp_path, steps):
    """Eight springs k l on places: F = 4 k T ln of the ratio of l; and a moving restraint's work is the difference."""
    parts = ['app = "md"\n[system]\ncells = [2, 2, 2]\ndensity = 0.008\n']
    for k in range(8):
        parts.append(
            f'[[variables]]\nname = "x{k}"\nkind = "position"\ngroups = [[{k + 1}]]\naxis = "{"xyz"[k % 3]}"\n'
        )
        parts.append(f'[[restraints]]\nvariable = "x{k}"\nstrength = 20.0\ncenter = 0.3\ncoupled = true\n')
    parts.append('[[variables]]\nname = "pulled"\nkind = "position"\ngroups = [[8]]\naxis = "x"\n')
    parts.append(
        f'[[restraints]]\nvariable = "pulled"\nstrength = 20.0\ncenter = 0.0\nto = 2.0\nover = {steps * 5 // 6}\n'
    )
    parts.append("[coupling]\nstates = [0.25, 0.5, 1.0]\nevery = 10\n")
    path = toml(tmp_path, "\n".join(parts))
    words = *GAS[:-1], f"time.steps={steps}", f"time.thermo={steps // 6}", "time.dt=0.03"
    run_app(tmp_path / "run", path, *words)
    found = results(tmp_path / "run")["coupling"]
    exact = 4 * np.log(np.array([1.0, 2.0, 4.0]))
    values, errors = np.array(found["mbar"]["values"]), np.array(found["mbar"]["errors"])
    assert 0.01 < errors[-1] < 0.4
    assert np.abs(values - exact)[1:].max() < 4 * errors[-1]
    rows = np.genfromtxt(tmp_path / "run" / "output" / "variables.csv", delimiter=",", names=True)
    assert rows["center_9"].tolist() == pytest.approx([0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.0])
    assert np.isfinite(rows["work_9"]).all()
    assert results(tmp_path / "run")["work"] == [{"restraint": 9, "work": pytest.approx(rows["work_9"][-1])}]
    assert abs(rows["pulled"][-1] - 2.0) < 1.5
    (section,) = free_energy_sections(tmp_path / "run" / "output", {"energy": "", "time": "tau"})
    assert section.numbers["mbar"]["value"] == values[-1]
    assert section.html.count("<svg") > 10
    assert np.array(found["slopes"]) == pytest.approx(4 / np.array([0.25, 0.5, 1.0]), rel=0.2)


@pytest.mark.nightly
def test_metadynamics_finds_a_double_well_between_two_particles(tmp_path):
    (tmp_path / "well.py").write_text(
        "import math\n\n\ndef energy(r2, p):\n    x = math.sqrt(r2) - p[1]\n"
        "    return p[0] * (x * x - 0.16) * (x * x - 0.16) / 0.0256\n"
    )
    path = toml(
        tmp_path,
        'app = "md"\n[system]\nlattice = "sc"\ncells = [2, 1, 1]\nedge = 1.2\nperiodic = []\ntemperature = 1.0\n'
        '[interaction]\nkind = "python"\nfunction = "well.py:energy"\nparameters = [3.0, 1.5]\ncutoff = 4.0\n'
        '[[variables]]\nname = "r"\nkind = "distance"\ngroups = [[1], [2]]\n'
        '[[restraints]]\nvariable = "r"\nstrength = 400.0\ncenter = 2.3\nside = "above"\n'
        '[metadynamics]\nvariables = ["r"]\nwidths = [0.08]\nheight = 0.3\nevery = 100\nfactor = 8.0\n'
        "lower = [0.4]\nupper = [2.8]\n"
        '[dynamics]\nkind = "langevin"\ntemperature = 1.0\ndamping = 1.0\n'
        "[time]\nsteps = 120000\ndt = 0.005\nthermo = 1000\n",
    )
    run_app(tmp_path / "run", path)
    found = results(tmp_path / "run")["metadynamics"]
    r, free = np.array(found["axes"][0]), np.array(found["free_energy"])
    x = r - 1.5
    exact = 3.0 * (x * x - 0.16) ** 2 / 0.0256 - 2 * np.log(r) + np.where(r > 2.3, 200.0 * (r - 2.3) ** 2, 0.0)
    chosen = exact - exact.min() < 5.0
    gap = (free - exact)[chosen]
    assert (gap - gap.mean()).std() < 0.25
    assert found["hills"] == 1200


@pytest.mark.nightly
def test_a_pair_that_is_switched_on_has_the_free_energy_of_its_configuration_integral(tmp_path):
    edge, kt, states = 4.2, 0.4, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    path = toml(
        tmp_path,
        f'app = "md"\n[system]\nlattice = "sc"\ncells = [1, 1, 2]\nedge = {edge}\ntemperature = {kt}\n'
        "masses = [1.0, 1.0]\nfractions = [0.5, 0.5]\n"
        "[interaction]\nepsilon = [1.0, 1.0]\nsigma = [1.0, 1.0]\ncutoff = 2.0\n"
        f"[coupling]\nstates = {states}\ntypes = [2]\nevery = 20\n"
        f'[dynamics]\nkind = "langevin"\ntemperature = {kt}\ndamping = 1.0\n'
        "[time]\nsteps = 150000\ndt = 0.01\nthermo = 10000\n",
    )
    run_app(tmp_path / "run", path)
    r = (np.arange(20000) + 0.5) * 2.0 / 20000
    whole = []
    for value in states:
        y = 0.5 * (1 - value) ** 2 + r**6
        energy = 4 * value * (1 / y**2 - 1 / y)
        shell = 4 * np.pi * r**2 * (np.exp(-energy / kt) - 1)
        whole.append(2 * edge**3 + shell.sum() * 2.0 / 20000)
    exact = -kt * np.log(np.array(whole) / whole[0])
    found = results(tmp_path / "run")["coupling"]
    for name in ("mbar", "integration"):
        values, error = np.array(found[name]["values"]), found[name]["errors"][-1]
        assert np.abs(values - exact).max() < 4 * error + 0.01 * (name == "integration")
        assert error < 0.25 * np.abs(exact).max()


def test_exchanges_keep_the_energies_of_each_temperature_canonical_and_are_accepted_by_the_formula():
    """Energies of 12 degrees of freedom: gamma numbers before, and by temperature the same after the swaps."""
    rng, thermal = np.random.default_rng(6), np.array([1.0, 1.2, 1.5, 1.8])
    which, seen, counts = np.arange(4), [[] for _ in thermal], np.zeros((2, 3))
    visited = np.zeros((4, 4))
    for number in range(4000):
        energies = rng.gamma(6.0, thermal[which])
        holder = np.argsort(which)
        gaps = (1 / thermal[:-1] - 1 / thermal[1:]) * (energies[holder[:-1]] - energies[holder[1:]])
        which, tried, swapped = swaps(which, energies, thermal, 3, number)
        assert np.array_equal(np.flatnonzero(tried), np.arange(number % 2, 3, 2))
        assert (swapped[(gaps >= 0) & (tried > 0)] == 1).all()
        counts += [swapped, np.where(tried > 0, np.minimum(1.0, np.exp(np.minimum(gaps, 0.0))), 0.0)]
        for one, energy in zip(which, energies, strict=True):
            seen[one].append(energy)
        visited[np.arange(4), which] += 1
    assert np.abs(counts[0] - counts[1]).max() < 4 * np.sqrt(counts[1].max())
    assert (visited > 500).all()
    for found, kt in zip(seen, thermal, strict=True):
        assert stats.kstest(found, "gamma", args=(6.0, 0, kt)).pvalue > 1e-3


@pytest.mark.nightly
def test_umbrellas_hold_ideal_pairs_in_the_distribution_of_their_distance(tmp_path):
    """Springs on the distances of pairs without forces: r is found with the weight r^2 exp(-k (r - r0)^2 / 2 k T)."""
    parts = ['app = "md"\n[system]\ncells = [4, 4, 4]\ndensity = 0.2\n']
    for k in range(8):
        parts.append(f'[[variables]]\nname = "r{k}"\nkind = "distance"\ngroups = [[{8 * k + 1}], [{8 * k + 2}]]\n')
        parts.append(f'[[restraints]]\nvariable = "r{k}"\nstrength = 4.0\ncenter = 1.0\n')
    path = toml(tmp_path, "\n".join(parts) + "[output]\nvariables = 10\n")
    run_app(tmp_path / "run", path, *GAS, "time.steps=8000", "time.dt=0.04")
    rows = np.loadtxt(tmp_path / "run" / "output" / "variables.csv", delimiter=",", skiprows=1)[100:, 2:10]
    r = np.linspace(1e-3, 4, 4000)
    weight = r**2 * np.exp(-2.0 * (r - 1.0) ** 2)
    mean = (r * weight).sum() / weight.sum()
    spread = np.sqrt((r * r * weight).sum() / weight.sum() - mean**2)
    assert rows.mean() == pytest.approx(mean, abs=0.04)
    assert rows.std() == pytest.approx(spread, rel=0.08)


@pytest.mark.nightly
def test_replicas_have_the_same_bits_on_any_number_of_ranks_and_after_a_resume(tmp_path):
    words = (
        *("md", "system.cells=[3,3,3]", "system.temperature=1.5", "dynamics.kind=langevin", "dynamics.temperature=1.0"),
        *("replicas.temperatures=[1.0,1.08]", "replicas.every=5", "dynamics.equilibrate=20", "time.steps=400"),
        *("time.thermo=20", "output.every=100", "--repro", "--no-report"),
    )
    found = []
    for name, ranks, limit in (("two", 2, ""), ("four", 4, ""), ("stopped", 4, "0.1 s")):
        folder = tmp_path / name
        more = [f"time.limit={limit}"] if limit else []
        command = [sys.executable, "-m", "hpckit.cli.main"]
        done = run_words([*command, "run", *words, *more, "-n", str(ranks), "--directory", str(folder)])
        if limit:
            assert done.returncode == 75, "it is to stop early"
            done = run_words([*command, "resume", str(folder), "time.limit=1000 s", "-n", "2", "--no-report"])
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        keys = ("step", "temperature", "potential", "pressure", "potential_1", "potential_2", "replica_1")
        rows = [[line[key] for key in keys] for line in lines if "potential_1" in line]
        told = json.loads((folder / "summary.json").read_text())["replicas"]
        found.append((rows, (folder / "output" / "end.data").read_text(), told))
    assert found[0] == found[1] == found[2]
    rows, _, told = found[0]
    assert len(rows) == 21
    assert told["attempts"] == 76
    assert {row[-1] for row in rows} == {1.0, 2.0}, "nobody swapped"


def run_words(words):
    return subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
