"""Settings of the molecular dynamics app, and its presets."""

from __future__ import annotations

from collections.abc import Iterator

from hpckit.apps.common.settings import CheckedTogether
from hpckit.apps.md.presets import PRESETS
from hpckit.apps.md.settings.sections import Settings
from hpckit.apps.md.settings.together import problems

__all__ = ["GPU", "PRESETS", "SCRIPTS", "SUMMARY", "Config"]
SUMMARY = "molecular dynamics: liquids, metals, silicon, salts, molecules, grains, LAMMPS's inputs, your potentials"
SCRIPTS = "lammps.script"  # reads inputs of LAMMPS
GPU = True  # supports `hpckit run --gpu`


class Config(CheckedTogether, Settings):
    """All settings of a run, which go together."""

    def problems(self) -> Iterator[str]:
        """What does not go together, and what to do."""
        return problems(self)
