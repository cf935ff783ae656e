"""Systems of units, with the constants that LAMMPS has for them, so that the two agree to the last digits."""

from __future__ import annotations

from dataclasses import dataclass

GRAMS = 1.0 / 0.602214129  # g/cm3 in a g/mol per cubic angstrom


@dataclass(frozen=True)
class Units:
    """boltzmann: energy per temperature; energy: of mass x velocity squared; pressure: of energy per volume; coulomb:
    energy of two elementary charges at unit distance; mass_density: of mass per volume; names of
    the units for tables and files.
    """

    name: str
    boltzmann: float
    energy: float
    pressure: float
    coulomb: float
    mass_density: float
    names: dict[str, str]

    @property
    def acceleration(self) -> float:
        """The conversion factor from force per mass to acceleration."""
        return 1.0 / self.energy


UNITS = {
    "lj": Units(
        "lj",
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        {
            "length": "sigma",
            "time": "tau",
            "energy": "epsilon",
            "mass": "m",
            "temperature": "epsilon/k",
            "pressure": "epsilon/sigma3",
            "mass_density": "m/sigma3",
        },
    ),
    "metal": Units(
        "metal",
        8.617343e-05,
        1.0364269e-4,
        1.6021765e6,
        14.399645,
        GRAMS,
        {
            "length": "angstrom",
            "time": "ps",
            "energy": "eV",
            "mass": "g/mol",
            "temperature": "K",
            "pressure": "bar",
            "mass_density": "g/cm3",
        },
    ),
    "real": Units(
        "real",
        0.0019872067,
        48.88821291 * 48.88821291,
        68568.415,
        332.06371,
        GRAMS,
        {
            "length": "angstrom",
            "time": "fs",
            "energy": "kcal/mol",
            "mass": "g/mol",
            "temperature": "K",
            "pressure": "atm",
            "mass_density": "g/cm3",
        },
    ),
}
