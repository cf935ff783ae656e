"""Potentials made here as files that LAMMPS and hpckit read: embedded atoms, Stillinger and Weber's; chains."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.io.particles.lammps_data import write_lammps_data
from hpckit.plan.particles.cell import Cell
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
    """Stillinger and Weber's potential of elements X and Y, for distances about 1; a comment and two lines an entry."""
    lines = ["# made by a test"]
    pairs = {"XX": "0.95 1.8 12.0 1.2\n -0.3 7.0 0.6", "XY": "0.9 1.85 11.0 1.1\n -0.2 6.8 0.62"}
    pairs |= {"YX": pairs["XY"], "YY": "0.97 1.75 12.5 1.25\n -0.33 7.1 0.58"}
    for i, j, k in product("XY", repeat=3):
        of_pair = f"1.0 {pairs[i + j]} 4 0 0"
        of_three = f"1.0 0.0 0.0 {11.5 if i == 'X' else 12.2} 0.0\n -0.28 0.0 0.0 0 0 0"
        lines.append(f"{i} {j} {k} {of_pair if j == k else of_three}")
    path.write_text("\n".join(lines) + "\n")


def write_tersoff(path: Path) -> None:
    """Tersoff's potential of elements X and Y, for distances about 1, whose entries are all different."""
    rng, lines = np.random.default_rng(9), ["# made by a test", ""]
    bounds = (
        *((0.8, 1.2), (0.8, 1.2), (0.9, 1.1), (0.6, 0.7), (-0.6, -0.4), (0.7, 2.3), (0.1, 0.3), (1.7, 1.9)),
        *((90, 110), (1.45, 1.55), (0.08, 0.1), (3.4, 3.6), (900, 1100)),
    )  # gamma, lambda3, c, d, costheta0, n, beta, lambda2, B, R, D, lambda1, A
    for k, elements in enumerate(product("XY", repeat=3)):
        numbers = [f"{rng.uniform(*each):.6g}" for each in bounds]
        lines += [f"{' '.join(elements)} {1 + 2 * (k % 2)} {' '.join(numbers[:6])}", f"  {' '.join(numbers[6:])}"]
    path.write_text("\n".join(lines) + "\n")


def write_chain(path: Path, n: tuple[int, int, int] = (12, 9, 8)) -> None:
    """Chains of eight beads, 0.97 apart, that cross the sides of a periodic box, as a data file with bonds."""
    rng, edge = np.random.default_rng(6), 1.1
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


def write_charged_chains(path: Path) -> None:
    """Chains of five charged beads of two types and two types of bonds, some across the sides of a periodic box."""
    rng, n, edge = np.random.default_rng(8), (4, 4, 4), np.array([8.0, 4.5, 4.5])
    sites = np.stack(np.meshgrid(*map(np.arange, n), indexing="ij"), axis=-1).reshape(-1, 1, 3)
    chain = np.array([[0, 0, 0], [1.2, 0.7, 0], [2.4, 0, 0], [3.6, 0.7, 0], [4.8, 0, 0.2]])
    beads = (sites * edge + chain + rng.uniform(-0.05, 0.05, (len(sites), 5, 3))).reshape(-1, 3)
    beads[:, 0] += 3.3
    count, box = len(beads), np.array(n) * edge
    order = rng.permutation(count)  # ids have nothing to do with places
    bonds = np.array([(k % 2, 5 * j + k, 5 * j + k + 1) for j in range(len(sites)) for k in range(4)])
    bonds[:, 1:] = order[bonds[:, 1:]]
    charges, types = [0.4, -0.3, 0.2, -0.4, 0.1], [0, 1, 0, 1, 0]
    write_lammps_data(path, _chains(rng, box, beads, order, charges, types, bonds=bonds))


def _chains(
    rng: np.random.Generator,
    box: np.ndarray,
    beads: np.ndarray,
    order: np.ndarray,
    charges: list[float],
    types: list[int],
    **more: Any,
) -> Snapshot:
    """Beads with the ids of `order`, wrapped into the box, with velocities; charges and types of each molecule."""
    count = len(beads)
    places, of_each, kinds = np.empty((count, 3)), np.empty(count), np.empty(count, np.int64)
    places[order], of_each[order] = beads, np.tile(charges, count // len(charges))
    kinds[order] = np.tile(types, count // len(types))
    velocities, shifted = rng.normal(0, 0.004, (count, 3)), np.floor(places / box)
    return Snapshot(
        lower=np.zeros(3),
        upper=box,
        periodic=(True, True, True),
        ids=np.arange(1, count + 1),
        types=kinds,
        positions=places - shifted * box,
        images=shifted.astype(np.int32),
        velocities=velocities - velocities.mean(axis=0),
        masses=np.array([12.0, 14.0]),
        charges=of_each,
        **more,
    )


def write_branched_chains(path: Path, charged: bool = True, n: tuple[int, int, int] = (3, 4, 4)) -> None:
    """Molecules of seven beads, a zigzag of six and one beside it, some across the sides of a periodic box: bonds,
    angles, dihedrals of two types each, and an improper around the branch; coefficients of the angles are in the file.
    """
    rng, edge = np.random.default_rng(9), np.array([9.0, 5.0, 5.0])
    sites = np.stack(np.meshgrid(*map(np.arange, n), indexing="ij"), axis=-1).reshape(-1, 1, 3)
    turned = [[1.2 * k, 0.6 * (k % 2), 0.5 * (k // 2 % 2)] for k in range(6)]
    shape = np.array([*turned, [2.5, -0.9, -0.8]])
    beads = (sites * edge + shape + rng.uniform(-0.1, 0.1, (len(sites), 7, 3))).reshape(-1, 3)
    beads[:, 0] += 4.1
    count, box = len(beads), np.array(n) * edge
    order = rng.permutation(count)  # ids have nothing to do with places
    each = {
        "bonds": [(k % 2, k, k + 1) for k in range(5)] + [(1, 2, 6)],
        "angles": [(k % 2, k, k + 1, k + 2) for k in range(4)] + [(1, 6, 2, 3)],
        "dihedrals": [(k % 2, k, k + 1, k + 2, k + 3) for k in range(3)] + [(0, 6, 2, 3, 4)],
        "impropers": [(0, 2, 1, 3, 6)],
    }
    terms = {}
    for name, rows in each.items():
        all_rows = np.array([(kind, *(7 * j + k for k in places)) for j in range(len(sites)) for kind, *places in rows])
        all_rows[:, 1:] = order[all_rows[:, 1:]]
        terms[name] = all_rows
    charges, types = [0.4, -0.3, 0.2, -0.4, 0.1, 0.2, -0.2], [0, 1, 0, 1, 0, 1, 1]
    found = _chains(rng, box, beads, order, charges, types, coefficients={"impropers": [(20.0, 35.0)]}, **terms)
    write_lammps_data(path, found if charged else replace(found, charges=None))


TILTED = {
    "monoclinic4": Cell((0.0,) * 3, (36.0, 36.0, 31.1769145362), (0.0, 18.0, 0.0)),
    "triclinic3": Cell((0.0,) * 3, (30.0, 29.5442325904, 28.9492293782), (5.2094453300, 7.7645713531, 1.2859043938)),
}


def write_water(path: Path, name: str, velocities: np.ndarray | None = None, angle: float = 0.0) -> Snapshot:
    """A reference configuration of SPC/E water of NIST (public domain; `nist_spce.npz`): cubic1 or cubic2, 100 or 200
    molecules in a box of 20, or one of `TILTED`, as a data file. angle: of all molecules of a cubic one, which then
    have bonds of 1 to the last digit.
    """
    cell = TILTED.get(name, Cell((0.0,) * 3, (20.0,) * 3))
    positions = np.load(Path(__file__).with_name("nist_spce.npz"))[name]
    if angle:
        arms = positions.reshape(-1, 3, 3)[:, 1:] - positions[::3, None]
        arms -= 20.0 * np.rint(arms / 20.0)
        along, across = arms.sum(axis=1), arms[:, 0] - arms[:, 1]
        along /= np.linalg.norm(along, axis=1)[:, None]
        across -= along * (along * across).sum(axis=1)[:, None]
        across *= np.sin(np.radians(angle / 2)) / np.linalg.norm(across, axis=1)[:, None]
        along *= np.cos(np.radians(angle / 2))
        positions[1::3], positions[2::3] = positions[::3] + along + across, positions[::3] + along - across
    count = len(positions)
    first = np.arange(0, count, 3)
    pairs = np.stack([first, first + 1, first, first + 2], axis=1).reshape(-1, 2)
    snapshot = Snapshot(
        lower=np.array(cell.lower),
        upper=np.array(cell.upper),
        tilt=np.array(cell.tilt),
        periodic=(True, True, True),
        ids=np.arange(1, count + 1),
        types=np.tile([0, 1, 1], count // 3),
        positions=cell.wrapped(positions, True)[0] if cell.tilted else positions % 20.0,
        images=np.zeros((count, 3), np.int32),
        velocities=velocities,
        masses=np.array([15.9994, 1.00794]),
        charges=np.tile([-0.8476, 0.4238, 0.4238], count // 3),
        bonds=np.column_stack([np.zeros(len(pairs), np.int64), pairs]),
        angles=np.column_stack([np.zeros(len(first), np.int64), first + 1, first, first + 2]),
    )
    write_lammps_data(path, snapshot, "real")
    return snapshot
