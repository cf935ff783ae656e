"""Lifted parcels: a dry parcel in closed form, Bolton's theta_ep and dew point, a second formula for CAPE, a report."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hpckit.apps.atmosphere.parcel import lift, lift_profile, lift_sounding
from hpckit.apps.atmosphere.profiles import exner, isothermal, neutral, weisman_klemp
from hpckit.apps.atmosphere.saturated import equivalent, mixing_ratio, vapor_pressure
from hpckit.apps.atmosphere.sounding import Sounding
from hpckit.apps.weather3d.report import parcel as parcel_section
from hpckit.errors import InputError
from hpckit.kernels.euler.constants import CP, GRAVITY, P0, RD
from hpckit.kernels.euler.rain.constants import RV


def convective(vapor: float = 0.014):
    return weisman_klemp(vapor, 0.0, 3000.0)


def test_a_dry_warm_parcel_in_isothermal_air_has_the_cape_of_its_formula():
    """T' / T = (1 + d) exp(-g z / (c_p T)) - 1, so CAPE = c_p T (d - ln(1 + d)), EL = (c_p T / g) ln(1 + d)."""
    warm = 3.0 / 280.0
    found = lift_profile(isothermal(280.0), excess=3.0)
    np.testing.assert_allclose(found.cape, CP * 280.0 * (warm - np.log1p(warm)), rtol=1e-5)
    np.testing.assert_allclose(found.el, CP * 280.0 / GRAVITY * np.log1p(warm), rtol=1e-5)
    assert (found.lfc, found.cin) == (0.0, 0.0)
    assert np.isnan(found.lcl)


@pytest.mark.parametrize("profile", [neutral(300.0), isothermal(250.0)])
def test_dry_air_at_its_own_theta_is_not_buoyant(profile):
    found = lift_profile(profile)
    assert found.cape == 0.0
    assert found.numbers() == {"cape": 0.0, "cin": 0.0, "lcl": None, "lfc": None, "el": None}


def test_the_levels_of_the_convective_sounding():
    """LCL after Bolton (1980, eq. 21, from the vapor pressure); theta_ep (eq. 43) along the pseudoadiabat."""
    profile = convective()
    found = lift_profile(profile)
    pressure = P0 * 0.014 / (RD / RV + 0.014) / 100  # of the vapor, hPa
    lowest = 2840 / (3.5 * np.log(300.0) - np.log(pressure) - 4.805) + 55
    at_lcl = np.interp(found.lcl, found.height, found.temperature)
    assert abs(at_lcl - lowest) < 0.2
    z, above = found.height, found.height > found.lcl + 10
    p, r, warm = profile.pressure(z), mixing_ratio(found.temperature, profile.pressure(z)), found.temperature
    theta_ep = (
        warm * (P0 / p) ** (0.2854 * (1 - 0.28 * r)) * np.exp((3.376 / warm - 0.00254) * 1e3 * r * (1 + 0.81 * r))
    )
    assert np.ptp(theta_ep[above & (z < 12_000)]) < 0.2
    assert found.lcl < found.lfc < found.el
    inside = (z > found.lfc) & (z < found.el)
    assert (found.buoyancy[inside] > 0).all()


def test_the_cape_of_the_convective_sounding_agrees_with_a_second_formula():
    """The pseudoadiabat without the heat of vapor, marched in small steps, as programs for soundings have it."""

    def slope(warm, pressure):
        held = 0.622 * vapor_pressure(warm) / (pressure - vapor_pressure(warm))
        return (RD * warm + 2.5e6 * held) / (CP + 2.5e6**2 * held * 0.622 / (RD * warm**2))

    profile = convective()
    found = lift_profile(profile)
    z = found.height
    p, vapor = profile.pressure(z), profile.vapor(z)
    column = profile.theta(z) * exner(p) / (1 + vapor)  # virtual
    first = np.count_nonzero(z <= found.lcl)  # 1 m above the level of condensation
    warm, cape = found.temperature[first], 0.0
    for k in range(first + 1, len(z)):
        step, half = np.log(p[k] / p[k - 1]), np.sqrt(p[k] * p[k - 1])
        middle = warm + 0.5 * step * slope(warm, p[k - 1])
        warm += step * slope(middle, half)
        held = 0.622 * vapor_pressure(warm) / (p[k] - vapor_pressure(warm))
        cape += max(0.0, GRAVITY * (warm * (1 + held / 0.622) / (1 + held) / column[k] - 1)) * (z[k] - z[k - 1])
    assert abs(found.cape / cape - 1) < 0.02
    assert 1800 < found.cape < 2300


def test_the_reversible_parcel_keeps_theta_e_and_carries_its_water():
    profile = convective()
    found, pseudo = lift_profile(profile, adiabat="reversible"), lift_profile(profile)
    above = found.height > found.lcl + 10
    p, warm = profile.pressure(found.height)[above], found.temperature[above]
    kept = equivalent(warm, p, mixing_ratio(warm, p), np.full_like(p, 0.014))
    np.testing.assert_allclose(kept, kept[0], rtol=1e-6)
    assert found.cape < pseudo.cape
    assert found.temperature[above][-500] > pseudo.temperature[above][-500]  # its water keeps it warm
    np.testing.assert_allclose(found.lcl, pseudo.lcl)


def test_a_sounding_has_what_its_profile_has():
    """Levels of 100 m of the same column, whose hydrostatic pressure is worked out again."""
    profile = convective(0.015)
    z = np.arange(0.0, 20_000.0, 100.0)
    vapor = profile.vapor(z)
    theta = profile.theta(z) / (1 + RV / RD * vapor)
    sounding = Sounding(1e5, z, theta, vapor, np.zeros_like(z), np.zeros_like(z))
    found, expected = lift_sounding(sounding), lift_profile(profile)
    np.testing.assert_allclose(found.cape, expected.cape, rtol=0.01)
    np.testing.assert_allclose([found.lcl, found.lfc, found.el], [expected.lcl, expected.lfc, expected.el], rtol=0.01)


def test_few_levels_have_the_cape_of_the_same_column_on_many():
    """Theta linear over 9 km; the pressure between the levels is hydrostatic, its logarithm is not linear."""
    z, theta, vapor = np.array(
        [[0.0, 300.0, 0.014], [1e3, 302.0, 0.01], [3e3, 312.0, 4e-3], [12e3, 345.0, 1e-4], [20e3, 480.0, 0.0]]
    ).T
    many = np.arange(0.0, 20_001.0, 100.0)
    few, fine = (
        lift_sounding(Sounding(1e5, at, np.interp(at, z, theta), np.interp(at, z, vapor), 0.0 * at, 0.0 * at))
        for at in (z, many)
    )
    assert fine.cape > 500.0
    np.testing.assert_allclose([few.cape, few.lfc, few.el], [fine.cape, fine.lfc, fine.el], rtol=3e-3)


def test_columns_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="heights that rise"):
        lift(np.array([0.0, 0.0]), np.full(2, 1e5), np.full(2, 300.0), np.zeros(2))
    with pytest.raises(InputError, match="no adiabat"):
        lift(np.array([0.0, 9.0]), np.full(2, 1e5), np.full(2, 300.0), np.zeros(2), adiabat="ice")


def test_the_report_shows_the_parcel_and_levels_that_are_not_there():
    lifted = {"pseudo": lift_profile(convective()).numbers(), "reversible": lift_profile(neutral(300.0)).numbers()}
    (section,) = parcel_section(SimpleNamespace(summary={"parcel": lifted}))
    assert "1889" in section.html
    assert section.html.count("none") == 3
    assert list(parcel_section(SimpleNamespace(summary={}))) == []
