"""The presets of the molecular dynamics app."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "melt": (
        "a Lennard-Jones crystal melts: the benchmark of LAMMPS, 32 000 atoms",
        {
            "neighbors": {"every": 20, "check": False},
            "time": {"steps": 1000},
        },
    ),
    "argon": (
        "liquid argon at 94.4 K, 864 atoms, as Rahman had it in 1964",
        {
            "system": {
                "units": "real",
                "cells": (6, 6, 6),
                "density": 0.020539,  # the box of the paper, 10.229 diameters
                "masses": (39.95,),
                "temperature": 180.5,  # half of it goes into melting the lattice
            },
            "interaction": {"epsilon": (0.238465,), "sigma": (3.4,), "cutoff": 7.65},
            "neighbors": {"skin": 1.2},
            "time": {"steps": 5000, "dt": 5.0},
            "output": {"every": 100},
            "analysis": {
                "every": 50,
                "motion_every": 8,
                "after": 1000,
                "reach": 17.0,
                "k_max": 5.0,
                "lags": 125,
                "spacing": 5,
            },
        },
    ),
    "npt": (
        "a Lennard-Jones liquid at a temperature and a pressure finds its density",
        {
            "system": {"cells": (8, 8, 8), "density": 0.8, "temperature": 2.0},
            "interaction": {"tail": True},
            "dynamics": {"kind": "nose_hoover", "temperature": 1.0, "damping": 1.0, "equilibrate": 500},
            "barostat": {"kind": "mtk", "pressure": 1.0, "damping": 5.0},
            "time": {"steps": 6000, "thermo": 50},
            "output": {"every": 500},
            "analysis": {"every": 100, "after": 2000},
        },
    ),
    "spce": (
        "SPC/E water at 298 K and 1 bar finds its density: rigid molecules, charges on a mesh",
        {
            "system": {
                "units": "real",
                "kind": "water",
                "cells": (4, 4, 4),
                "density": 0.0334,  # molecules per cubic angstrom: 0.999 g/cm3
                "masses": (15.9994, 1.008),
                "temperature": 298.0,
            },
            "interaction": {"epsilon": (0.15535, 0.0), "sigma": (3.166, 1.0), "cutoff": 9.0, "tail": True},
            "bonds": {
                "kind": "harmonic",
                "parameters": ((450.0, 1.0),),
                "pair_shares": (0.0, 0.0, 0.0),
                "charge_shares": (0.0, 0.0, 0.0),
            },
            "angles": {"kind": "harmonic", "parameters": ((55.0, 109.47),)},
            "constraints": {"bonds": (1,), "angles": (1,)},
            "coulomb": {"kind": "pppm", "charges": (-0.8476, 0.4238)},
            "neighbors": {"skin": 1.0},
            "dynamics": {"kind": "nose_hoover", "temperature": 298.0, "damping": 200.0, "equilibrate": 1500},
            "barostat": {"kind": "mtk", "pressure": 0.986923, "damping": 1000.0},  # atm: 1 bar
            "time": {"steps": 6000, "dt": 2.0, "thermo": 50},
            "output": {"every": 1000},
            "analysis": {"every": 100, "after": 2000, "reach": 9.0},
        },
    ),
    "droplet": (
        "a droplet in its vapor: most of the work is in the middle",
        {
            "system": {"cells": (24, 24, 24), "density": 0.8, "droplet": 10.0, "temperature": 0.7},
            "ranks": {"balance": 100},
            "time": {"steps": 2000},
            "output": {"every": 200},
            "analysis": {"every": 50, "after": 500, "axis": "r", "slabs": 40},
        },
    ),
    "mixture": (
        "the glass former of Kob and Andersen: 80 % of A, 20 % of B, which attract each other most",
        {
            "system": {
                "cells": (10, 10, 10),
                "density": 1.2,
                "masses": (1.0, 1.0),
                "fractions": (0.8, 0.2),
                "temperature": 2.0,
            },
            "interaction": {
                "epsilon": (1.0, 0.5),
                "sigma": (1.0, 0.88),
                "shift": True,
                "pairs": (
                    {"types": (1, 2), "epsilon": 1.5, "sigma": 0.8, "cutoff": 2.0},
                    {"types": (2, 2), "cutoff": 2.2},
                ),
            },
            "time": {"steps": 2000, "dt": 0.004},
            "output": {"every": 200},
            "analysis": {"every": 50, "motion_every": 10, "after": 500, "k_max": 15.0, "lags": 100},
        },
    ),
}
