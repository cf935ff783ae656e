"""Constrained distances, NumPy: definition and test oracle of the compiled form.

SHAKE (Ryckaert, Ciccotti and Berendsen 1977, J. Comput. Phys. 23, 327) as forces, as LAMMPS has it: along the present
distances r_k of a cluster act forces l_k r_k such that the places after the next drift keep the lengths. The
multipliers are found by Newton's method, for all distances of a cluster at once.
"""

from __future__ import annotations

import numpy as np

MOST_STEPS, ENOUGH = 20, 1e-14  # of Newton's method; error of squared lengths, relative
PARTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))  # of a virial


def hold_distances(  # type: ignore[no-untyped-def]
    own, positions, moves, weights, found, numbers, pairs, squares, scale, forces, tallies, measure
) -> int:
    """Add the forces of constraints to those of own slots, and with `measure` their virial, 2 / n for each of the n
    particles of a cluster; returns how many clusters have no solution.

    moves, [3, slots]: what the next drift would add to the positions without constraints; weights: inverse masses of
    all slots; found[k]: the slots of a cluster, numbers[k]: its row in squares [clusters, m], of the lengths between
    the pairs [m, 2] of its particles; scale: force per weighted move. With VIRIAL (`pair.reference`) only the sum of
    the virials over all slots counts.
    """
    failed, m = 0, len(pairs)
    for places, number in zip(found, numbers, strict=True):
        x, moved, w = positions[places, :3], positions[places, :3] + moves[:, places].T, weights[places]
        ends = np.zeros((m, len(places)))
        ends[np.arange(m), pairs[:, 0]], ends[np.arange(m), pairs[:, 1]] = 1.0, -1.0
        r, s, wanted = ends @ x, ends @ moved, squares[number]
        coupled = (ends * w) @ ends.T
        factors = np.zeros(m)
        for _ in range(MOST_STEPS):
            now = s + (coupled * factors) @ r
            error = (now * now).sum(axis=1) - wanted
            if np.abs(error / wanted).max() < ENOUGH:
                break
            factors -= np.linalg.solve(2.0 * (now @ r.T) * coupled, error)
        else:
            failed += not np.abs(error / wanted).max() < 1e-8
        pull = scale * factors
        f = ends.T @ (pull[:, None] * r)
        virial = (pull[:, None] * r).T @ r
        for k, slot in enumerate(places):
            if slot < own:
                forces[slot, :3] += f[k]
                if measure:
                    tallies[slot] += 2.0 / len(places) * np.array([0.0, *(virial[a, b] for a, b in PARTS), 0.0])
    return failed


def hold_speeds(own, positions, speeds, weights, found, pairs, scale, forces, tallies, measure) -> None:  # type: ignore[no-untyped-def]
    """Add to the forces of own slots those that take away the speeds along the distances of clusters, and with
    `measure` their virial: RATTLE (Andersen 1983, J. Comput. Phys. 52, 24). See `hold_distances`.

    speeds, [3, slots]: what they would be without; scale: force per weighted speed.
    """
    m = len(pairs)
    for places in found:
        x, w = positions[places, :3], weights[places]
        ends = np.zeros((m, len(places)))
        ends[np.arange(m), pairs[:, 0]], ends[np.arange(m), pairs[:, 1]] = 1.0, -1.0
        r, u = ends @ x, ends @ speeds[:, places].T
        pull = -scale * np.linalg.solve((r @ r.T) * ((ends * w) @ ends.T), (r * u).sum(axis=1))
        f, virial = ends.T @ (pull[:, None] * r), (pull[:, None] * r).T @ r
        for k, slot in enumerate(places):
            if slot < own:
                forces[slot, :3] += f[k]
                if measure:
                    tallies[slot] += 2.0 / len(places) * np.array([0.0, *(virial[a, b] for a, b in PARTS), 0.0])


def sums_of(per_velocity, per_force, velocities, forces, weights, found) -> None:  # type: ignore[no-untyped-def]
    """found[:, s] = a sum of velocities, by a factor of each dim, and accelerations of the slots that weights has."""
    own = len(weights)
    accelerations = forces[:own, :3] * weights[:, None]
    found[:, :own] = (per_velocity * velocities[:own, :3] + per_force * accelerations).T
