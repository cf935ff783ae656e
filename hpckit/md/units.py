"""Systems of units, with the constants that LAMMPS has for them, so that the two agree to the last digits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Units:
    """boltzmann: energy per temperature; energy: of mass x velocity squared; pressure: of energy per volume; names of
    the units for tables and files.
    """

    name: str
    boltzmann: float
    energy: float
    pressure: float
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
        {
            "length": "sigma",
            "time": "tau",
            "energy": "epsilon",
            "mass": "m",
            "temperature": "epsilon/k",
            "pressure": "epsilon/sigma3",
        },
    ),
    "metal": Units(
        "metal",
        8.617343e-05,
        1.0364269e-4,
        1.6021765e6,
        {
            "length": "angstrom",
            "time": "ps",
            "energy": "eV",
            "mass": "g/mol",
            "temperature": "K",
            "pressure": "bar",
        },
    ),
    "real": Units(
        "real",
        0.0019872067,
        48.88821291 * 48.88821291,
        68568.415,
        {
            "length": "angstrom",
            "time": "fs",
            "energy": "kcal/mol",
            "mass": "g/mol",
            "temperature": "K",
            "pressure": "atm",
        },
    ),
}
