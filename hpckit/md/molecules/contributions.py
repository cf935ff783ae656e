"""What molecules add to the forces of pairs, as a `System` calls it: after a rebuild `attach`, then in each step `add`.

system: the `hpckit.md.system.System`. measure: whether energies and virials are wanted, too; `VIRIAL` for virials whose
sum alone counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

STRETCH = {1: 1.5, 2: 2.25, 3: 3.125}  # how far partners over so many bonds may be, in lengths of one at rest


class Bonded(Protocol):
    """Adds the forces of bonds to those of pairs: `hpckit.md.molecules.bonds`; or of angles: `….terms`."""

    @property
    def topology(self) -> np.ndarray:
        """Type and ids, from 0, of each: int64[n, 1 + particles]."""

    def require_fit(self, interaction: Any) -> None:
        """Raise `InputError` for what bonds do not go with."""

    def attach(self, system: Any) -> None:
        """Collective, after a rebuild: find the slots of the bonds."""

    def add(self, system: Any, measure: int) -> None:
        """Add to the forces, and with `measure` to the energies, of this rank."""


class BondForces(Bonded, Protocol):
    """Bonds, of which `length` is the longest at rest."""

    @property
    def length(self) -> float:
        """The longest of the lengths at rest."""


class MoleculeTerms(Bonded, Protocol):
    """Angles, dihedrals or impropers (`name`); `energies`: what each own slot has, of the last measured step."""

    name: str
    energies: np.ndarray

    @property
    def over(self) -> int:
        """Over how many bonds particles of a term are apart."""


class Held(Protocol):
    """Holds distances by forces that depend on all others: `hpckit.md.molecules.constraints`; `count`: how many. Or, if
    it `moves` the particles by itself, shapes: `….rigid`. longest_step: of a minimization.
    """

    count: int
    moves: bool
    longest_step: float

    def attach(self, system: Any) -> None:
        """Collective, after a rebuild: find the slots."""

    def add(self, system: Any, measure: int) -> None:
        """Collective: add to the forces, and with `measure` to the virials, of this rank; with VIRIAL to their sum."""

    def expect(self, stretch: np.ndarray, slowing: np.ndarray) -> None:
        """Take the factors by which a barostat is about to change the box, and velocities up to the next drift."""

    def ready(self, system: Any) -> None:
        """Collective, before the first kick of a step: make the forces those of its drift."""

    def drift(self, system: Any, dt: float) -> None:
        """Collective: the first kick of a step, and its drift."""

    def kick(self, system: Any, dt: float) -> None:
        """Collective: the last kick of a step."""

    def correct(self, system: Any) -> None:
        """Collective: move the particles of this rank such that the distances are those held."""


class Excluded(Protocol):
    """Leaves pairs out of the lists, or a part of them: `hpckit.md.molecules.exclusions`. each: how many neighbors of a
    particle, on average; over: the most bonds between partners.
    """

    each: float
    over: int

    def find(self, system: Any) -> tuple[Any, Any] | None:
        """Collective, in a rebuild before pairs are listed: the partners of own slots, where lists leave them out."""

    def require_fit(self, interaction: Any) -> None:
        """Raise `InputError` for what exclusions do not go with."""

    def attach(self, system: Any) -> None:
        """Collective, after a rebuild: take the partners out of what was listed with them."""

    def add(self, system: Any, measure: int) -> None:
        """Add to the forces, and with `measure` to the energies, of this rank."""


def span(bonds: BondForces | None, terms: Sequence[MoleculeTerms], exclusions: Excluded | None) -> float:
    """How far partners in a molecule may be from each other: ghosts come from as far, beside the skin."""
    over = [1, *(each.over for each in terms), *([] if exclusions is None else [exclusions.over])]
    return 0.0 if bonds is None else STRETCH[max(over)] * bonds.length


class LongRange(Protocol):
    """A sum over all images of the charges, beside their pairs: `hpckit.md.molecules.ewald`.

    energy, virial [6] (xx, yy, zz, xy, xz, yz): of the whole system, the same on every rank; of the last `add` that
    measured.
    """

    energy: float
    virial: np.ndarray

    def meet(self, system: Any) -> None:
        """Collective, after a rebuild: take up the charges and the box."""

    def start(self, system: Any) -> None:
        """Before the forces of pairs: give the other ranks what they need of this one's places."""

    def add(self, system: Any, measure: bool) -> None:
        """Collective: add to the forces of this rank."""
