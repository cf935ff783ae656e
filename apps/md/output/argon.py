"""Liquid argon as Rahman simulated it, and what he found (A. Rahman 1964, Phys. Rev. 136, A405)."""

from __future__ import annotations

from typing import Any

from hpckit.apps.common.validation import Check, near
from hpckit.apps.md.config import Config

SOURCE = "Rahman 1964"
TEMPERATURE, DENSITY = 94.4, 864 / (10.229 * 3.4) ** 3  # K; particles per angstrom^3
DIAMETER, DEPTH, MASS = 3.4, 0.238465, 39.95  # angstrom; kcal/mol, 120 K; g/mol
DIFFUSION, PEAK, WAVE = 2.43e-5, 3.7, 6.8 / DIAMETER  # cm^2/s; angstrom; 1/angstrom, highest of S(k)


def is_rahmans(config: Config, temperature: float) -> bool:
    """Whether a run has his liquid, his density, and his temperature within 3 K."""
    system, pair = config.system, config.interaction
    given = (*pair.sigma, *pair.epsilon, *system.masses)
    if system.units != "real" or system.file or len(given) != 3:
        return False
    alike = [abs(a / b - 1) < 0.01 for a, b in zip(given, (DIAMETER, DEPTH, MASS), strict=True)]
    return all(alike) and abs(system.density / DENSITY - 1) < 0.01 and abs(temperature - TEMPERATURE) < 3.0


def beside_rahman(config: Config, temperature: float, found: dict[str, Any]) -> list[Check]:
    """Our figures against his, with tolerances; empty for other systems."""
    if not is_rahmans(config, temperature):
        return []
    checks = [near("argon", "temperature", temperature, TEMPERATURE, 3.0, SOURCE, "K")]
    if radial := found.get("radial"):
        checks.append(near("argon", "first peak of g(r)", radial["peak"][0], PEAK, 0.08, SOURCE, "angstrom"))
    if structure := found.get("structure"):
        k = structure["k"][max(range(len(structure["k"])), key=structure["s"].__getitem__)]
        checks.append(near("argon", "highest of S(k)", k, WAVE, 0.08, SOURCE, "1/angstrom"))
    if einstein := (found.get("motion") or {}).get("einstein"):
        ours = einstein["diffusion"] * 0.1
        checks.append(near("argon", "diffusion coefficient", ours, DIFFUSION, 0.4e-5, SOURCE, "cm\u00b2/s"))
    return checks
