"""Spectra: a mode gives one ring with its energy, Parseval's sum, walls, slopes and where they end."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day
from made_waves import write_waves

from hpckit.report.draw.spectra import fit, mirrored, rings_of, spectrum
from hpckit.report.field_file import Dim, FieldFile
from hpckit.report.sections.spectra import density_units, spectra, spectra_section

pytest.importorskip("matplotlib")


def dim(axis, n, length, periodic=True, face=False):
    points = (np.arange(n) + (0.0 if face else 0.5)) * length / (n - 1 if face and not periodic else n)
    return Dim(axis, points, "m", face, periodic)


@pytest.mark.parametrize(("nx", "mode"), by_day([(36, 5), (35, 17), (36, 18)], (35, 17)))
def test_a_mode_is_one_ring_with_its_variance(nx, mode):
    x = dim("x", nx, 700.0)
    values = 3.0 + 2.0 * np.cos(2 * np.pi * mode * x.points / 700.0 + 0.3 * (2 * mode < nx))
    k, density, dk = rings_of(values[None], [x])
    assert dk == pytest.approx(2 * np.pi / 700.0)
    assert k[mode - 1] == pytest.approx(2 * np.pi * mode / 700.0)
    assert density[mode - 1] * dk == pytest.approx(values.var(), rel=1e-12)
    density[mode - 1] = 0.0
    assert np.abs(density).max() * dk < 1e-24


def test_a_wave_in_two_dims_lies_in_the_ring_of_its_length():
    y, x = dim("y", 45, 500.0), dim("x", 63, 700.0)
    values = np.sin(2 * np.pi * 3 * y.points / 500.0)[:, None] * np.cos(2 * np.pi * 4 * x.points / 700.0)
    _, density, dk = rings_of(values[None], [y, x])
    assert dk == pytest.approx(2 * np.pi / 700.0)
    ring = round(np.hypot(3 / 500.0, 4 / 700.0) * 700.0)
    assert density[ring - 1] * dk == pytest.approx(0.25, rel=1e-12)
    assert density.sum() * dk == pytest.approx(0.25, rel=1e-12)


@pytest.mark.parametrize("walls", [(True, True), (False, True), (False, False)])
def test_parseval_with_and_without_walls(walls):
    values = np.random.default_rng(1).random((4, 21, 17)) + np.linspace(0, 3, 17)
    dims = [dim("y", 21, 30.0, walls[0]), dim("x", 17, 20.0, walls[1])]
    _, density, dk = rings_of(values, dims)
    assert density.sum() * dk == pytest.approx(values.var(axis=(1, 2)).mean(), rel=1e-12)


def test_walls_of_centers_and_of_faces():
    n, length = 24, 12.0
    centers, faces = dim("x", n, length, False), dim("x", n + 1, length, False, face=True)
    cosine = np.cos(np.pi * 5 * centers.points / length)
    sine = 2 * np.sin(np.pi * 5 * faces.points / length)
    for one, values in ((centers, cosine), (faces, sine)):
        k, density, dk = rings_of(values[None], [one])
        assert dk == pytest.approx(np.pi / length)
        assert k[4] == pytest.approx(np.pi * 5 / length)
        assert density[4] / density.sum() == pytest.approx(1.0, abs=1e-14)
    assert density.sum() * dk == pytest.approx(2.0)
    open_ended = 1.0 + np.arange(25.0)
    assert mirrored(open_ended, faces, 0)[-1] == open_ended[1]  # not zero at the walls: even


def test_slope_and_effective_resolution_of_a_made_spectrum():
    spacing, k = 1000.0, 2 * np.pi / 512e3 * np.arange(1, 257)
    density = 7.0 * k ** (-5 / 3)
    law = fit(k, density, spacing)
    assert law.slope == pytest.approx(-5 / 3, abs=1e-2)
    assert law.cutoff is None
    end = 2 * np.pi / (6 * spacing)
    law = fit(k, np.where(k > end, density * (end / k) ** 9, density), spacing)
    assert law.slope == pytest.approx(-5 / 3, abs=1e-2)
    assert 4.8 < 2 * np.pi / law.cutoff / spacing < 6.0
    assert fit(k[:5], density[:5], spacing) is None
    assert fit(k, np.zeros(256), spacing) is None


def test_what_is_no_power_law_has_no_slope():
    """A comb of a wave and its overtones, noise that rises with the wavenumber."""
    k = 2 * np.pi / 512e3 * np.arange(1, 257)
    density = k ** (-5 / 3)
    comb = np.where(np.arange(1, 257) % 4 == 0, density, 1e-6 * density)
    assert fit(k, comb, 1000.0) is None
    assert fit(k, np.where(k > 3 * k[0], k**1.5, k[40] ** 1.5), 1000.0) is None
    assert fit(k, density * np.where(np.arange(256) % 2, 1.5, 1 / 1.5), 1000.0).slope == pytest.approx(-5 / 3, abs=0.1)


def test_kinetic_energy_of_a_file(tmp_path):
    speed, length = 3.0, 8000.0

    def values(time, z, y, x):
        u = speed * np.cos(2 * np.pi * 4 * x / length) * (1 + 0 * z)
        return {"theta": 0.5 * np.sin(2 * np.pi * 2 * y / length + time), "u": u, "v": 0 * u}

    variables = {"theta": {"units": "K"}, "u": {"units": "m s-1"}, "v": {"units": "m s-1"}}
    path = write_waves(tmp_path / "o", "zyx", (1e3, length, length), (3, 20, 24), "yx", (0.0, 60.0), variables, values)
    with FieldFile(path, ("y", "x")) as file:
        energy, theta = spectra(file, file.main())
        assert spectrum(file, [file.variables["v"]], "v", "", 1.0) is None  # nothing in it
    assert energy.said == "transformed along y and x, summed over rings of wavenumber, the mean over z"
    assert energy.density[:, 3] * energy.dk == pytest.approx([speed**2 / 4] * 2)
    assert energy.variance == pytest.approx([speed**2 / 4] * 2)
    assert theta.density[1, 1] * theta.dk == pytest.approx(0.125)
    assert (energy.units, theta.units) == ("m3 s-2", "m K2")
    assert "mirrored" not in theta.said
    with FieldFile(path) as file:
        assert spectra(file, file.main())[0].said.endswith("y and x mirrored at the walls (cosine transform)")
    assert "<svg" in spectra_section([energy, theta])


def test_units_of_a_density():
    assert [density_units(unit) for unit in ("m s-1", "K", "1", "s-1", "m")] == ["m3 s-2", "m K2", "m", "m s-2", "m3"]


def test_large_fields_are_read_in_lines_and_levels(tmp_path, monkeypatch):
    def values(time, z, y, x):
        return {"u": np.cos(2 * np.pi * 3 * x / 100.0) + 0 * z}

    path = write_waves(tmp_path / "o", "zyx", (9.0,) * 2 + (100.0,), (5, 16, 20), "yx", (0.0,), {"u": {}}, values)
    monkeypatch.setattr("hpckit.report.draw.spectra.SLAB_BYTES", 1000)
    with FieldFile(path, ("y", "x")) as file:
        whole = spectrum(file, [file.main()], "u", "", 1.0)
        monkeypatch.setattr("hpckit.report.draw.spectra.PLANE_POINTS", 100)
        lines = spectrum(file, [file.main()], "u", "", 1.0)
    assert whole.variance == pytest.approx([0.5])
    assert lines.variance == pytest.approx([0.5])
    assert lines.said == "transformed along x, the mean over z and y"
