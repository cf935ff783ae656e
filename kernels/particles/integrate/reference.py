"""Motion of particles, NumPy: definition and test oracle of the compiled forms.

Velocity Verlet (Swope et al. 1982): a half kick and a drift, new forces, a half kick. Positions, velocities and forces
are records [slots, 4] whose fourth components are the type, 0 and 0.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.noise.reference import normals
from hpckit.kernels.particles.cells.constants import FAR

MOST_IMAGES = 1e9  # boxes that a particle may travel between checks


def kick(velocities: np.ndarray, forces: np.ndarray, inverse_mass: np.ndarray, slots: int, half: float) -> None:
    """Add half F / m to the velocities of the first `slots` slots."""
    velocities[:slots] += (half * inverse_mass[:slots])[:, None] * forces[:slots]


def drift(positions: np.ndarray, velocities: np.ndarray, slots: int, dt: float) -> None:
    """Add dt v to the positions."""
    positions[:slots] += dt * velocities[:slots]


def kick_drift(
    positions: np.ndarray,
    velocities: np.ndarray,
    forces: np.ndarray,
    inverse_mass: np.ndarray,
    slots: int,
    half: float,
    dt: float,
) -> None:
    """`kick`, then `drift`."""
    kick(velocities, forces, inverse_mass, slots, half)
    drift(positions, velocities, slots, dt)


def largest_move(positions: np.ndarray, built: np.ndarray, slots: int) -> float:
    """The square of the largest displacement of a particle since `built`."""
    return float(((positions[:slots, :3] - built[:slots, :3]) ** 2).sum(axis=1).max(initial=0.0))


def wrap(
    positions: np.ndarray, images: np.ndarray, slots: int, lower: np.ndarray, upper: np.ndarray, periodic: np.ndarray
) -> int:
    """Move particles by whole boxes into lower <= x < upper along periodic dims, and count the moves in `images`.

    Returns the number of coordinates that are nan or at least `MOST_IMAGES` boxes away: these stay as they are.
    """
    filled, lost = positions[:slots, 0] < 0.5 * FAR, 0
    filled |= np.isnan(positions[:slots, 0])
    for d in np.flatnonzero(periodic):
        length = upper[d] - lower[d]
        boxes = np.where(filled, np.floor((positions[:slots, d] - lower[d]) / length), 0.0)
        far = ~(np.abs(boxes) < MOST_IMAGES)
        lost += int(far.sum())
        boxes[far] = 0.0
        positions[:slots, d] -= boxes * length
        images[:slots, d] += boxes.astype(images.dtype)
        rounded_up = filled & ~far & (positions[:slots, d] >= upper[d])
        positions[:slots, d][rounded_up] = lower[d]
        images[:slots, d] += rounded_up
    return lost


def find_leavers(positions: np.ndarray, slots: int, lower: np.ndarray, upper: np.ndarray, leavers: np.ndarray) -> int:
    """The number of particles outside lower <= x < upper; `leavers` receives as many of their slots as fit."""
    x = positions[:slots, :3]
    found = np.flatnonzero(~((x >= lower) & (x < upper)).all(axis=1) & (x[:, 0] < 0.5 * FAR))
    leavers[: len(found)] = found[: len(leavers)]
    return len(found)


def sort_leavers(
    positions: np.ndarray,
    leavers: np.ndarray,
    x_cuts: np.ndarray,
    y_cuts: np.ndarray,
    z_cuts: np.ndarray,
    counts: np.ndarray,
    order: np.ndarray,
) -> None:
    """order: the slots `leavers` by their owners' ranks, which are counted along x, y and z as cuts within the box lie
    below a particle (`DomainDecomposition.owners`); counts: how many each rank gets.
    """
    owners = np.zeros(len(leavers), np.int64)
    for d, cuts in enumerate((x_cuts, y_cuts, z_cuts)):
        owners = owners * (len(cuts) + 1) + np.searchsorted(cuts, positions[leavers, d], side="right")
    order[:] = leavers[np.argsort(owners, kind="stable")]
    counts[:] = np.bincount(owners, minlength=len(counts))


def kinetic(velocities: np.ndarray, masses: np.ndarray, ids: np.ndarray, slots: int, sums: np.ndarray) -> None:
    """The sums of m v_a v_b over the particles, as xx, yy, zz, xy, xz, yz."""
    own = ids[:slots] >= 0
    v, m = velocities[:slots][own, :3], masses[:slots][own]
    for k, (a, b) in enumerate(((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))):
        sums[k] = (m * v[:, a] * v[:, b]).sum()


def dilate(records: np.ndarray, slots: int, factors: np.ndarray, center: np.ndarray) -> None:
    """Move x to center + factor (x - center) in each dim: positions in a box that grows, velocities about 0."""
    records[:slots, :3] = center + factors * (records[:slots, :3] - center)


def langevin(
    positions: np.ndarray,
    velocities: np.ndarray,
    forces: np.ndarray,
    inverse_mass: np.ndarray,
    widths: np.ndarray,
    ids: np.ndarray,
    slots: int,
    half: float,
    way: float,
    keep: float,
    strength: float,
    noise: tuple[int, int, int],
) -> None:
    """`kick_drift` of half and way, v = keep v + strength width normal numbers (the exact solution of friction with
    noise), and another drift of `way`.

    widths: 1 / sqrt(m) of particles, 0 of empty slots; noise: seed, step and stream of the numbers of each id.
    """
    kick_drift(positions, velocities, forces, inverse_mass, slots, half, way)
    own = ids[:slots] >= 0
    seed, step, stream = noise
    numbers = np.zeros((slots, 4))
    normals(seed, step, ids[:slots], stream, numbers)
    spread = strength * widths[:slots][own]
    velocities[:slots, :3][own] = keep * velocities[:slots, :3][own] + spread[:, None] * numbers[own, :3]
    drift(positions, velocities, slots, way)


def powers(velocities: np.ndarray, forces: np.ndarray, ids: np.ndarray, slots: int, sums: np.ndarray) -> None:
    """The sums of F v, F F and v v over the particles, and the largest |component| of a force."""
    own = ids[:slots] >= 0
    v, f = velocities[:slots, :3][own], forces[:slots, :3][own]
    sums[:] = (f * v).sum(), (f * f).sum(), (v * v).sum(), np.abs(f).max(initial=0.0)


def steer(velocities: np.ndarray, forces: np.ndarray, slots: int, keep: float, toward: float) -> None:
    """Set v = keep v + toward F."""
    velocities[:slots] = keep * velocities[:slots] + toward * forces[:slots]


def push(
    forces: np.ndarray,
    tallies: np.ndarray,
    positions: np.ndarray,
    masses: np.ndarray,
    ids: np.ndarray,
    slots: int,
    field: np.ndarray,
    measure: bool,
) -> None:
    """Add m field to the forces; with `measure`, twice the energy -m field . x to the tallies (which count twice)."""
    own = ids[:slots] >= 0
    m = masses[:slots][own]
    forces[:slots, :3][own] += m[:, None] * field
    if measure:
        tallies[:slots, 0][own] -= 2 * m * (positions[:slots, :3][own] @ field)


def hold_off(
    forces: np.ndarray,
    tallies: np.ndarray,
    positions: np.ndarray,
    ids: np.ndarray,
    slots: int,
    dim: int,
    side: float,
    place: float,
    epsilon: float,
    sigma: float,
    cutoff: float,
    measure: bool,
) -> int:
    """A wall normal to dim at `place` that pushes toward side (+1 or -1): a half space of Lennard-Jones particles,
    E = epsilon (2/15 (sigma/d)^9 - (sigma/d)^3), shifted to 0 at the cutoff. Returns the number behind it.
    """

    def energy(d: np.ndarray) -> np.ndarray:
        return epsilon * (2 / 15 * (sigma / d) ** 9 - (sigma / d) ** 3)

    gap = np.where(ids[:slots] >= 0, (positions[:slots, dim] - place) * side, np.inf)
    near = (gap > 0) & (gap < cutoff)
    d = gap[near]
    forces[:slots, dim][near] += side * epsilon * (6 / 5 * (sigma / d) ** 9 - 3 * (sigma / d) ** 3) / d
    if measure:
        tallies[:slots, 0][near] += 2 * (energy(d) - energy(np.array(cutoff)))
    return int((gap <= 0).sum())
