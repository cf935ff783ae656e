"""Topologies of AMBER and GROMACS as settings: `hpckit run complex.prmtop`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.md.lammps.state import Reading
from hpckit.io.particles.topologies import read_topology

HYDROGEN = 1.1  # masses up to it


def settings_of(path: Path) -> Reading:
    """The settings of a topology: its force field in units `real`, charges by pppm, bonds of hydrogen and rigid water
    held, steps of 2 fs. Raises the errors of `read_topology`.
    """
    given = read_topology(path)
    found, tree = given.snapshot, dict[str, Any]()
    shares = {"pair_shares": [0.0, 0.0, given.pairs], "charge_shares": [0.0, 0.0, given.charges]}
    tree["system"] = {"file": str(path.resolve()), "units": "real"}
    tree["interaction"] = {
        "epsilon": list(given.epsilon),
        "sigma": list(given.sigma),
        "mixing": "geometric" if given.geometric else "lorentz_berthelot",
        "cutoff": 9.0,
        "tail": True,
    }
    terms = found.terms
    for name, kind in (
        ("bonds", "harmonic"),
        ("angles", "harmonic"),
        ("dihedrals", "charmm"),
        ("impropers", "harmonic"),
    ):
        if name in terms:
            tree[name] = {"kind": kind}
    if "bonds" in terms:
        tree["bonds"] |= shares
    assert found.masses is not None
    light = sorted({round(float(mass), 4) for mass in found.masses if mass <= HYDROGEN})
    if light and "bonds" in terms:
        tree["constraints"] = {"masses": light}
        if waters := given.waters:
            tree["constraints"]["angles"] = list(waters)
    if found.charges is not None and np.any(found.charges):
        tree["coulomb"] = {"kind": "pppm"}
    tree["neighbors"] = {"skin": 1.0}
    tree["time"] = {"dt": 2.0 if light else 1.0}
    return Reading({"app": "md", **tree}, {})
