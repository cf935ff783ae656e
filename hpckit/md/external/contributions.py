"""What acts on particles from outside, as a `System` calls it, and which of them it acts on.

system: the `hpckit.md.system.System`. measure: whether energies and virials are wanted, too.
"""

from __future__ import annotations

from typing import Any, Protocol


class External(Protocol):
    """Adds external forces to those of pairs: `hpckit.md.external.fields`."""

    def add(self, system: Any, measure: bool) -> None:
        """Add to `system.particles.forces`, and with `measure` to the energies, of this rank."""

    def reflect(self, system: Any) -> None:
        """Turn particles back that have crossed a mirror in a step, before the forces."""

    @property
    def sees_velocities(self) -> bool:
        """Whether forces depend on velocities."""


class Biased(Protocol):
    """Adds forces by collective variables: `hpckit.md.external.biases`."""

    def attach(self, system: Any) -> None:
        """Collective, after a rebuild: find the slots."""

    def add(self, system: Any, measure: bool) -> None:
        """Collective: add to the forces, and with `measure` to energies and virials, of this rank."""


class Chosen(Protocol):
    """Some of the particles: `hpckit.md.external.groups`."""

    def slots(self, system: Any) -> Any:
        """Which slots of this rank have its particles."""
