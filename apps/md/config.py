"""Settings of the molecular dynamics app, and its presets."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from hpckit.apps.md.presets import PRESETS
from hpckit.apps.md.settings.sections import Settings
from hpckit.apps.md.settings.together import require_together

__all__ = ["GPU", "PRESETS", "SCRIPTS", "SUMMARY", "Config"]
SUMMARY = "molecular dynamics: liquids, metals, silicon, salts, molecules, grains, LAMMPS's inputs, your potentials"
SCRIPTS = "lammps.script"  # reads inputs of LAMMPS
GPU = True  # supports `hpckit run --gpu`


class Config(Settings):
    """All settings of a run, which go together."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        require_together(self)
        return self
