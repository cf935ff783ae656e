"""Files of embedded atoms, and of Stillinger and Weber: what is read is what was written; faults name their lines."""

from __future__ import annotations

import numpy as np
import pytest
from potential_files import CUTOFF, functions, write_eam, write_sw

from hpckit.errors import InputError
from hpckit.io.particles.lammps_eam import read_eam
from hpckit.io.particles.lammps_eam import write_eam as write_ours
from hpckit.io.particles.lammps_sw import read_sw
from hpckit.md.many_body.embedded import embedded_atoms


@pytest.mark.parametrize("form", ["setfl", "fs"])
def test_a_file_of_two_elements_is_read_whole(tmp_path, form):
    write_eam(tmp_path / "ab.eam", form == "fs")
    found = read_eam(tmp_path / "ab.eam")
    embedding, density, pair, density_step, step = functions(form == "fs")
    assert (found.form, found.elements, found.cutoff) == (form, ("A", "B"), CUTOFF)
    assert (found.density_step, found.step, found.masses.tolist()) == (density_step, step, [1.0, 1.7])
    for one, other in ((found.embedding, embedding), (found.density, density), (found.pair, pair)):
        np.testing.assert_array_equal(one, other)
    write_ours(tmp_path / "again.eam", found)
    again = read_eam(tmp_path / "again.eam")
    for name in ("form", "elements", "cutoff", "step", "density_step"):
        assert getattr(again, name) == getattr(found, name)
    for name in ("masses", "embedding", "density", "pair"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    turned = embedded_atoms([found], ["B", "A", "B"])
    np.testing.assert_array_equal(turned.density[0, 1], density[1, 0])
    np.testing.assert_array_equal(turned.pair[1, 2], pair[0, 1])
    with pytest.raises(InputError, match="no element 'C'"):
        embedded_atoms([found], ["A", "C"])


def test_a_funcfl_file_is_one_element_of_charges(tmp_path):
    r, n = np.arange(50) * 0.1, np.arange(40) * 0.02
    rows = [*(-np.sqrt(n)), *(2 - 0.4 * r), *np.exp(-r)]
    text = "\n".join(["one element", "29 63.5 3.6 FCC", "40 0.02 50 0.1 4.9", *(f"{float(v)!r}" for v in rows)])
    (tmp_path / "X.eam").write_text(text.replace("e-", "D-") + "\n")
    made = embedded_atoms([read_eam(tmp_path / "X.eam")])
    assert made.pair.shape == (1, 1, 49)  # as LAMMPS resamples it
    np.testing.assert_allclose(made.pair[0, 0], 27.2 * 0.529 * (2 - 0.4 * r[:49]) ** 2, rtol=1e-12)
    np.testing.assert_allclose(made.density[0, 0], np.exp(-r[:49]), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("2 A B", "3 A B"), "line 4"),
        (("1 1.0 1.6 fcc", "one 1.0 1.6 fcc"), "line 6"),
        (("600 0.05", "3 0.05"), "line 5"),
        (("2 1.7 1.6 fcc\n", "2 1.7 1.6 fcc\nnone "), "embedding function of B"),
    ],
)
def test_faults_name_their_lines(tmp_path, change, said):
    write_eam(tmp_path / "ab.eam", False)
    text = (tmp_path / "ab.eam").read_text()
    assert change[0] in text
    (tmp_path / "ab.eam").write_text(text.replace(*change))
    with pytest.raises(InputError) as error:
        read_eam(tmp_path / "ab.eam")
    assert said in f"{error.value} {error.value.where}"


def test_a_file_that_ends_early_is_refused(tmp_path):
    write_eam(tmp_path / "ab.eam", True)
    lines = (tmp_path / "ab.eam").read_text().splitlines()
    (tmp_path / "ab.eam").write_text("\n".join(lines[:-3]) + "\n")
    with pytest.raises(InputError, match="the end of the file"):
        read_eam(tmp_path / "ab.eam")


def test_parameters_of_pairs_are_those_of_the_entries_of_two_and_of_angles_those_of_three(tmp_path):
    write_sw(tmp_path / "XY.sw")
    found = read_sw(tmp_path / "XY.sw", ["X", "Y"])
    np.testing.assert_allclose(found.pairs[..., 5], [[0.95 * 1.8, 0.9 * 1.85], [0.9 * 1.85, 0.97 * 1.75]])
    np.testing.assert_allclose(found.triples[:, 0, 1, 0], [11.5, 12.2])
    np.testing.assert_allclose(found.triples[1, 0, 1, 1:], [12.2 * -0.28, 12.2 * 0.28**2])
    np.testing.assert_allclose(found.pairs[0, 1, 8:], [11 * 1.2**2 * 2, 11 * 1.2**2])
    assert found.powers == (4.0, 0.0)
    assert read_sw(tmp_path / "XY.sw", ["Y", "Y", "Y"]).kinds == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("X Y X", "X Z X"), "no entry X Y X"),
        (("Y X X 1.0 0.9 ", "Y X X 1.0 0.91 "), "i j j and j i i differ"),
        (("Y X Y 1.0 0.0 0.0 12.2", "Y X Y 1.0 0.0 0.0 12.3"), "i j k and i k j differ"),
        (("Y Y Y 1.0 0.97", "Y Y Y 1.0 -0.97"), "sigma = -0.97"),
        (("Y Y Y 1.0", "Y Y Y one"), "line 16"),
    ],
)
def test_entries_that_make_no_potential_are_refused(tmp_path, change, said):
    write_sw(tmp_path / "XY.sw")
    text = (tmp_path / "XY.sw").read_text()
    assert change[0] in text
    (tmp_path / "XY.sw").write_text(text.replace(*change))
    with pytest.raises(InputError) as caught:
        read_sw(tmp_path / "XY.sw", ["X", "Y"])
    assert said in caught.value.report()
