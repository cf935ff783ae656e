"""Tabulated potentials: splines, the forms of the lookup, table files and their faults."""

from __future__ import annotations

import numpy as np
import pytest
from test_particle_kernels import VECTOR_ISAS, clustered, listed, scattered

from hpckit.apps.md.config import Config
from hpckit.apps.md.potentials import interaction_of
from hpckit.comm.device import HOST
from hpckit.errors import InputError
from hpckit.io.particles.lammps_table import PairTable, read_lammps_table, write_lammps_table
from hpckit.kernels.particles.cells import reference as cells_reference
from hpckit.kernels.particles.pair import curves
from hpckit.kernels.particles.pair import reference as pair_reference
from hpckit.kernels.particles.pair.simd import Form, force_kernel, stored_table
from hpckit.kernels.particles.pair.tabulated import FIRST, POTENTIAL
from hpckit.kernels.particles.records import simd as records
from hpckit.md.interaction import tabulated

FORMS = [Form("scalar"), *(Form(isa, kind, types) for isa in VECTOR_ISAS for kind, types in (("d", 3), ("f", 1)))]
FILE = "# tables\n\nA\nN 4\n\n1 1.0 3.0 4.0\n2 1.5 2.0 3.0\n3 2.0 1.0 2.0\n4 2.5 0.0 1.0\n\n"
FILE += "B\nN 3 RSQ 1 2 FPRIME -4 -1\n\n1 1 9 7\n2 1 8 6\n3 1 7 5\n"


def lennard_jones(power=6, points=400, first=0.3):
    """Close to it the energy of two inverse powers, of which a spline through many points has all digits but seven."""
    r = np.linspace(first, 2.7, points)
    return PairTable(r, r ** (-2 * power) - r**-power, 2 * power * r ** (-2 * power - 1) - power * r ** (-power - 1))


def test_a_spline_through_a_cubic_is_that_cubic():
    x = np.array([0.5, 0.7, 1.6, 2.0, 3.1])
    y, slope = x**3 - 2 * x, 3 * x**2 - 2
    second = curves.spline(x, y, slope[0], slope[-1])
    np.testing.assert_allclose(second, 6 * x, rtol=1e-12)
    at = np.linspace(0.5, 3.1, 40)
    np.testing.assert_allclose(curves.interpolate(x, y, second, at), at**3 - 2 * at, rtol=1e-12)


@pytest.mark.parametrize(("interpolation", "order"), [("linear", 2), ("spline", 4)])
def test_more_points_come_closer_to_what_is_tabulated(interpolation, order):
    errors = []
    for points in (100, 200):
        found = tabulated(lennard_jones(3, 5000, 0.8), 2.5, points=points, interpolation=interpolation)
        r = np.linspace(0.9, 2.4, 977)
        energy, force = curves.energy_and_force(r * r, found.table[0, 0], found.rows)
        errors.append([abs(energy - (r**-6 - r**-3)).max(), abs(force * r - (6 * r**-7 - 3 * r**-4)).max()])
    factors = np.log2(np.divide(*errors))
    assert (factors > order - 0.5).all(), factors


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_forms_of_the_lookup_match_the_reference(form):
    extent, count = (9.0, 11.0, 13.0), 901
    slots, starts, grid = clustered(scattered(count, extent, form.types), extent)
    start, entries, clusters = listed(slots, starts, grid, extent, 2.8, form.isa, form.lanes)
    own = clusters * 8
    kinds = [[lennard_jones(3 + (a + b) % 2) for b in range(form.types)] for a in range(form.types)]
    cutoffs = 2.5 - 0.1 * np.add.outer(np.arange(form.types), np.arange(form.types))
    given = tabulated(kinds, cutoffs, points=301, shift=True)
    pairs = cells_reference.neighbors(slots[:own], own, 2.5)
    expected, tallies = pair_reference.forces_of_pairs(slots, *pairs, POTENTIAL, given.table, given.rows)
    positions = slots
    if form.kind == "f":
        positions = HOST.zeros(slots.shape, np.float32)
        records.to_single(slots, 0, len(slots), np.array(extent) / 2, positions)
    tolerance = 1e-4 if form.kind == "f" else 1e-13
    for measure in (False, True):
        forces, found = HOST.zeros((own, 4)), np.zeros((own, 8))
        out = forces.ravel(), found.ravel()
        kernel = force_kernel(POTENTIAL, Form(form.isa, form.kind, form.types, measure))
        table = stored_table(given.table, form, given.rows, FIRST)
        kernel(np.arange(clusters, dtype=np.int32), positions.ravel(), start, start[1:], entries, table, *out)
        assert np.abs(forces - expected[:own]).max() < tolerance * np.abs(expected).max()
        if measure:
            assert np.abs(found - tallies[:own]).max() < tolerance * np.abs(tallies).max()


@pytest.mark.parametrize("isa", ["scalar", *VECTOR_ISAS])
def test_pairs_closer_than_the_table_are_not_silently_wrong(isa):
    form, slots = Form(isa), HOST.zeros((24, 4))
    slots[:, 0] = 100.0 + np.arange(24)
    slots[:3, :3] = [[0, 0, 0], [1.5, 0, 0], [1.5, 0.5, 0]]
    given = tabulated(lennard_jones(first=0.8), 2.5)
    entries = np.full(64, 80, np.int32)
    start = np.arange(17) * form.lanes
    for i, j in enumerate((1, 2, 1)):
        entries[start[i]] = 4 * j
    forces, table = HOST.zeros((16, 4)), stored_table(given.table, form, given.rows, FIRST)
    force_kernel(POTENTIAL, form)(
        np.zeros(1, np.int32), slots.ravel(), start, start[1:], entries, table, forces.ravel(), np.zeros(128)
    )
    assert np.isfinite(forces[0]).all()
    assert forces[0, 0] != 0
    assert np.isnan(forces[1:3, :3]).all()


def test_a_file_comes_back_to_the_last_bit(tmp_path):
    table = lennard_jones()
    for slopes in (None, (-0.1, 1 / 3)):
        write_lammps_table(tmp_path / "t.table", PairTable(table.r, table.energy, table.force, slopes, "mine"))
        for keyword in ("", "mine"):
            back = read_lammps_table(tmp_path / "t.table", keyword)
            assert all((getattr(back, name) == getattr(table, name)).all() for name in ("r", "energy", "force"))
            assert (back.slopes, back.name) == (slopes, "mine")


def test_sections_are_found_by_their_keyword(tmp_path):
    (tmp_path / "t.table").write_text(FILE)
    first, second = (read_lammps_table(tmp_path / "t.table", name) for name in "AB")
    assert first.force.tolist() == [4, 3, 2, 1]
    np.testing.assert_allclose(second.r, np.sqrt([1, 2.5, 4]), rtol=1e-15)
    assert second.slopes == (-4, -1)
    settings = {"kind": "table", "file": str(tmp_path / "t.table"), "keyword": "A", "cutoff": 2.0}
    pairs = [{"types": [1, 2], "keyword": "B", "cutoff": 1.9}]
    atoms = {"file": str(tmp_path / "t.table")}  # any file: what is looked at is the interaction
    config = Config.model_validate({"system": atoms, "interaction": settings | {"pairs": pairs}})
    found = interaction_of(config, 2)
    assert found.table[:, :, FIRST].tolist() == [[0, 2000], [2000, 0]]
    assert len(found.rows) == 4000


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("3 2.0 1.0 2.0", "3 2.0 1.0", "expected 4 columns"),
        ("3 2.0 1.0 2.0", "3 2.0 1.0 nan", "a finite number"),
        ("3 2.0 1.0 2.0", "3 1.2 1.0 2.0", "distances that grow, from above 0, found 1.2"),
        ("N 4", "N 4000000000000", r"expected 4000000000000 lines .* found 'B' after 4"),
        ("N 4", "N 1", "2 or more, found 1"),
        ("N 4", "M 4", "found 'M'"),
        ("N 4", "N", "found nothing"),
        ("N 4", "N 4 BITMAP 1 2", "bitmapped tables are not read"),
        ("RSQ 1 2", "RSQ 2 1", "two distances that grow"),
        ("RSQ 1 2", "RSQ 1", "two numbers"),
        ("3 1 7 5\n", "", "the end of the file after 2"),
    ],
)
def test_faults_are_told_with_their_line(tmp_path, old, new, said):
    (tmp_path / "t.table").write_text(FILE.replace(old, new, 1))
    with pytest.raises(InputError, match=said) as fault:
        read_lammps_table(tmp_path / "t.table", "B")
    assert "line" in fault.value.where


def test_what_is_no_table_is_refused(tmp_path):
    (tmp_path / "t.table").write_text(FILE)
    with pytest.raises(InputError, match="no section 'C'") as fault:
        read_lammps_table(tmp_path / "t.table", "C")
    assert fault.value.likely == "it has A, B"
    with pytest.raises(InputError, match="one section, where no keyword"):
        read_lammps_table(tmp_path / "t.table")
    with pytest.raises(InputError, match="cannot be read"):
        read_lammps_table(tmp_path / "none.table")
    r = np.array([1.0, 2.0])
    for r_, said in ((r[::-1], "must grow"), (r[:1], "one length, 2 or more"), (r * np.nan, "not finite")):
        with pytest.raises(InputError, match=said):
            PairTable(r_, r, r)
    for options, said in (({"points": 1}, "2 points"), ({"interpolation": "cubic"}, "linear"), ({}, "from 0.3 to 2.7")):
        with pytest.raises(InputError, match=said):
            tabulated(lennard_jones(), 3.0, **options)


def test_settings_of_a_table(tmp_path):
    (tmp_path / "t.table").write_text(FILE)
    tail = {"file": str(tmp_path / "t.table"), "tail": True}
    for more, said in [({}, "needs interaction.file"), (tail, "go with functions")]:
        with pytest.raises(ValueError, match=said):
            Config.model_validate({"interaction": {"kind": "table", **more}})
