"""Output files with waves whose diagrams and spectra are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from lone import LoneMesh

from hpckit.io import FieldWriter
from hpckit.plan.grid.decomposition import Decomposition


def write_waves(output: Path, axes, lengths, shape, periodic, times, variables, values) -> Path:
    """Fields `values(time, *places)` -> {name: array} at cell centers of a box; returns the master file.

    `variables` are the writer's; places broadcast against one another in the order of `axes`.
    """
    mesh = LoneMesh(*axes, periodic=tuple(periodic))
    cells = Decomposition(shape, mesh.topology)
    coords = {axis: (np.arange(n) + 0.5) * length / n for axis, n, length in zip(axes, shape, lengths, strict=True)}
    places = np.meshgrid(*coords.values(), indexing="ij")
    with FieldWriter(mesh, output, cells, coords, dict.fromkeys(axes, "m"), variables) as writer:
        for time in times:
            writer.write(float(time), values(float(time), *places))
    return output / "fields.h5"
