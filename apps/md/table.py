"""The thermo table, as LAMMPS prints it."""

from __future__ import annotations

from hpckit.md.thermo import Thermo

HEADER = "   Step          Temp          E_pair         E_mol          TotEng         Press     "
BOX = "     Volume        Density   "  # behind the header where the box changes


def row(step: int, thermo: Thermo, count: int, per_particle: bool, box: tuple[float, ...] = ()) -> str:
    """A line of the table; energies for each particle in reduced units, of the whole system in others; box: its volume
    and density where it changes.
    """
    share = 1 / max(count, 1) if per_particle else 1.0
    pairs = thermo.potential - thermo.bonded
    values = [thermo.temperature, pairs * share, thermo.bonded * share, thermo.total * share, thermo.pressure, *box]
    return f"{step:10d} " + " ".join(f"{'-' if value < 0 else ' '}{abs(value):<13.8g}" for value in values)


def performance(count: int, steps: int, seconds: float, dt: float, ranks: int, units: str) -> list[str]:
    """The lines below the table: loop time, and how much simulated time that is in a day."""
    rate = steps / seconds if seconds > 0 else 0.0
    per_day = {
        "lj": f"{rate * dt * 86400:.3f} tau/day",
        "metal": f"{rate * dt * 86400 / 1e3:.3f} ns/day",
        "real": f"{rate * dt * 86400 / 1e6:.3f} ns/day",
    }[units]
    return [
        f"Loop time of {seconds:.6g} on {ranks} procs for {steps} steps with {count} atoms",
        f"Performance: {per_day}, {rate:.3f} timesteps/s, {count * rate / 1e6:.3f} Matom-step/s",
    ]
