"""Potentials made here as files that LAMMPS and hpckit read: embedded atoms, Stillinger and Weber's; chains."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpckit.io.particles.lammps_data import write_lammps_data
from hpckit.plan.particles.snapshot import Snapshot

CUTOFF, POINTS = 2.5, 600


def functions(finnis_sinclair: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """Embedding [2, n], density [2, 2, n] (at the first from the second), r times pair energy [2, 2, n], two steps."""
    r, n = np.arange(POINTS) * (CUTOFF / (POINTS - 1)), np.arange(POINTS) * 0.05
    fade = np.clip(1 - r / CUTOFF, 0, None) ** 3
    strength = np.array([[1.0, 1.3], [0.8, 1.1]]) if finnis_sinclair else np.array([[1.0, 1.2], [1.0, 1.2]])
    density = strength[..., None] * fade * 12 * np.exp(-r)
    pair = np.array([[1.0, 1.1], [1.1, 0.9]])[..., None] * fade * 600 * r * np.exp(-3.5 * r)
    embedding = -np.array([[2.0], [2.2]]) * np.sqrt(n + 0.01)
    return embedding, density, pair, float(n[1]), float(r[1])


def write_eam(path: Path, finnis_sinclair: bool) -> None:
    """The functions as a setfl or Finnis-Sinclair file."""
    embedding, density, pair, density_step, step = functions(finnis_sinclair)
    lines = ["made by a test", "", "", "2 A B", f"{POINTS} {density_step!r} {POINTS} {step!r} {CUTOFF}"]
    for b in range(2):
        lines.append(f"{b + 1} {1.0 + 0.7 * b} 1.6 fcc")
        blocks = [embedding[b], *(density[a, b] for a in ((0, 1) if finnis_sinclair else (0,)))]
        for block in blocks:
            lines += [" ".join(f"{float(value):.17g}" for value in row) for row in block.reshape(-1, 5)]
    for a, b in ((0, 0), (1, 0), (1, 1)):
        lines += [" ".join(f"{float(value):.17g}" for value in row) for row in pair[a, b].reshape(-1, 5)]
    path.write_text("\n".join(lines) + "\n")


def write_sw(path: Path) -> None:
    """Stillinger and Weber's potential of an element X, for distances about 1; a comment and two lines an entry."""
    path.write_text(
        "# made by a test\nY Y Y 1 1 1 1 1 1\n  1 1 1 1 0\nX X X 1.0 0.95 1.8 12.0 1.2\n -0.3 7.0 0.6 4 0 0\n"
    )


def write_chain(path: Path) -> None:
    """Chains of eight beads, 0.97 apart, that cross the sides of a periodic box, as a data file with bonds."""
    rng, edge, n = np.random.default_rng(6), 1.1, (12, 9, 8)
    sites = np.stack(np.meshgrid(*map(np.arange, n), indexing="ij"), axis=-1).reshape(-1, 3)
    count, box = len(sites), np.array(n) * [edge, edge, 0.97]
    velocities = rng.normal(0, 1.0, (count, 3))
    beads = np.arange(count - 1)
    beads = beads[beads % 8 < 7]
    order = rng.permutation(count)  # ids have nothing to do with places
    bonds = np.column_stack([np.zeros(len(beads), np.int64), order[beads], order[beads + 1]])
    places = np.empty((count, 3))
    places[order] = (sites + 0.4) * [edge, edge, 0.97] + rng.uniform(-0.02, 0.02, (count, 3)) + [0, 0, 2.0]
    shifted = np.floor(places / box)
    snapshot = Snapshot(
        lower=np.zeros(3),
        upper=box,
        periodic=(True, True, True),
        ids=np.arange(1, count + 1),
        types=np.zeros(count, np.int64),
        positions=places - shifted * box,
        images=shifted.astype(np.int32),
        velocities=velocities - velocities.mean(axis=0),
        masses=np.ones(1),
        bonds=bonds,
    )
    write_lammps_data(path, snapshot)
