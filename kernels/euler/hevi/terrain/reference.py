"""The split dynamics over terrain, NumPy: definition and test oracle of the compiled forms.

Levels follow the ground: z = zeta + the height of the level over a point, J = dz/dzeta (Gal-Chen and Somerville 1975,
J. Comput. Phys. 17, 209-228). The prognostic variables are those of the flat box (`kernels.euler.hevi.reference`) per
unit of zeta, so that its continuity and advection hold as they are: J rho', J rho u, J rho v, J (rho theta)', and as
the fourth the mass flux through the levels,

    Omega = rho (w - u dz/dx - v dz/dy), 0 at the ground.

Deviations are from a base state in hydrostatic balance at the true height of each cell: it exerts no force on
any slope, so that an atmosphere at rest stays at rest. The pressure p' (P in the acoustic substeps) and rho' force

    J rho u:  -(J dp/dx - dz/dx dp/dzeta)     along a level, alike in y
    Omega:    -(1 + (dz/dx)**2 + (dz/dy)**2) / J dp/dzeta - g rho + dz/dx dp/dx + dz/dy dp/dy

In a substep the first two terms of Omega are implicit by column, the others explicit. Other tendencies
R of Omega come from those of J rho w, J rho u and J rho v, of which Omega is a sum that does not change in time.

Moist air: as in the flat box all forces are divided by 1 + q_t, and J (1 + q_t) rho weighs. `water` is q_t, an empty
array in dry air.

metric: J at the faces of rho u and of rho v, the slopes dz/dx and dz/dy there; at the low faces of levels
(1 + (dz/dx)**2 + (dz/dy)**2) / J, 1 / J, dz/dx and dz/dy; J of the cells. tilt: the weights a, b of dp/dzeta in the
middle of level k, a (p[m + 1] - p[m]) + b (p[m + 2] - p[m + 1]), where m is k - 1 but within 0 and nz - 3. levels,
weights and the other arguments are those of the flat kernels.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.box.constants import RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import GAMMA, GRAVITY
from hpckit.kernels.euler.hevi import reference as flat
from hpckit.kernels.euler.hevi.constants import (
    DRY,
    HALO,
    PER_FACE,
    PRESSURE,
    STIFFNESS,
    THETA,
    WEIGHT,
    LargeStage,
    Substep,
    U,
    V,
    W,
)
from hpckit.kernels.euler.hevi.constants import WORKS as FLAT_WORKS
from hpckit.kernels.euler.hevi.terrain.constants import (
    EXCESS,
    J_U,
    J_V,
    PER_W,
    SLOPE_U,
    SLOPE_V,
    SLOPE_X,
    SLOPE_Y,
    STEEP,
    Ground,
)

OWNED, WIDE, BEYOND = flat.OWNED, flat.WIDE, flat.BEYOND


def prepare(state: np.ndarray, water: np.ndarray, ground: Ground, levels: np.ndarray, work: np.ndarray) -> None:
    """Fill `work`, float64[9, …], as `flat.prepare` does: w is the true vertical wind; the rest of p' comes last."""
    base, metric = ground.base, ground.metric
    rho, heat = state[RHO] + base[0], state[RHO_THETA] + base[1]
    new = np.zeros_like(work)
    new[U] = state[RHO_U] / (0.5 * (np.roll(rho, 1, 2) + rho))
    new[V] = state[RHO_V] / (0.5 * (np.roll(rho, 1, 1) + rho))
    speed = state[RHO_W] / (metric[PER_W] * flat.at_faces(rho, levels)[:-1])
    new[W] = speed + metric[SLOPE_X] * _at_w(new[U], 2, levels) + metric[SLOPE_Y] * _at_w(new[V], 1, levels)
    new[THETA] = heat / rho
    excess = base[2] * np.expm1(GAMMA * np.log1p(state[RHO_THETA] / base[1]))
    new[STIFFNESS] = GAMMA * (base[2] + excess) / heat
    new[EXCESS], new[PRESSURE] = excess - new[STIFFNESS] * state[RHO_THETA], 0.0
    new[DRY], new[WEIGHT] = 1.0, state[RHO]
    if water.size:
        new[DRY] = 1 / (1 + water)
        new[WEIGHT] = state[RHO] * (1 + water) + base[0] * (water - base[3])
    work[:, :, WIDE, WIDE] = new[:, :, WIDE, WIDE]


def tendencies(
    state: np.ndarray,
    work: np.ndarray,
    ground: Ground,
    column: np.ndarray,
    levels: np.ndarray,
    weights: np.ndarray,
    stage: LargeStage,
    slow: np.ndarray,
) -> None:
    """The slow tendencies, as `flat.tendencies`. column: float64[3, nz], not used but for its shape."""
    base, metric, wind, tilt = ground
    calm = np.zeros((2, len(tilt[0])))
    plain = LargeStage(stage.dx, stage.dy, 0.0, False)
    flat.tendencies(state, work[:FLAT_WORKS], column, levels, calm, weights, plain, slow)
    if stage.coriolis:
        rho = state[RHO] + base[0]
        u = state[RHO_U] - 0.5 * (np.roll(rho, 1, 2) + rho) * wind[0]
        v = state[RHO_V] - 0.5 * (np.roll(rho, 1, 1) + rho) * wind[1]
        turn_u = 0.25 * ((np.roll(v, 1, 2) + v) + np.roll(np.roll(v, 1, 2) + v, -1, 1))
        turn_v = 0.25 * ((np.roll(u, 1, 1) + u) + np.roll(np.roll(u, 1, 1) + u, -1, 2))
        slow[RHO_U, :, OWNED, BEYOND] += stage.coriolis * turn_u[:, OWNED, BEYOND]
        slow[RHO_V, :, BEYOND, OWNED] -= stage.coriolis * turn_v[:, BEYOND, OWNED]
    sloped = metric[SLOPE_X] * _at_w(slow[RHO_U] / metric[J_U], 2, levels)
    sloped += metric[SLOPE_Y] * _at_w(slow[RHO_V] / metric[J_V], 1, levels)
    slow[RHO_W, 1:, OWNED, OWNED] *= metric[PER_W, 1:, OWNED, OWNED]
    slow[RHO_W, 1:, OWNED, OWNED] -= sloped[1:, OWNED, OWNED]
    dry_u, dry_v, dry_w = _dry_at_faces(work[DRY], levels)
    force_u, force_v, lift = _horizontal(work[EXCESS], metric, tilt, levels, stage.dx, stage.dy)
    pull = np.zeros_like(lift)
    pull[1:] = metric[STEEP, 1:] * (np.diff(work[EXCESS], axis=0) * levels[PER_FACE, 1:-1, None, None])
    if stage.wet:
        pull += GRAVITY * metric[PER_W] * flat.at_faces(work[WEIGHT], levels)[:-1]
        weight = GRAVITY * metric[PER_W] * flat.at_faces(state[RHO], levels)[:-1]
        slow[RHO_W, 1:, OWNED, OWNED] += weight[1:, OWNED, OWNED]
    slow[RHO_U, :, OWNED, BEYOND] += (dry_u * force_u)[:, OWNED, BEYOND]
    slow[RHO_V, :, BEYOND, OWNED] += (dry_v * force_v)[:, BEYOND, OWNED]
    slow[RHO_W, 1:, OWNED, OWNED] += (dry_w * (lift - pull))[1:, OWNED, OWNED]


def substep(
    old: np.ndarray,
    new: np.ndarray,
    work: np.ndarray,
    ground: Ground,
    slow: np.ndarray,
    pressure: np.ndarray,
    levels: np.ndarray,
    flux_x: np.ndarray,
    flux_y: np.ndarray,
    flux_z: np.ndarray,
    numbers: Substep,
) -> None:
    """Advance a state by an acoustic substep, as `flat.substep`."""
    dx, dy, dt, _, _, share, _ = numbers
    metric, whole = ground.metric, np.zeros_like(work[THETA])
    whole[:, HALO - 1 : 1 - HALO, HALO - 1 : 1 - HALO] = pressure
    force_u, force_v, lift = _horizontal(whole, metric, ground.tilt, levels, dx, dy)
    dry_u, dry_v, dry_w = _dry_at_faces(work[DRY], levels)
    flat.push(old, new, RHO_U, dt * (slow[RHO_U] + dry_u * force_u)[:, OWNED, BEYOND])
    flat.push(old, new, RHO_V, dt * (slow[RHO_V] + dry_v * force_v)[:, BEYOND, OWNED])
    flat.add_means(new, flux_x, flux_y, share)
    tension = (dry_w * metric[STEEP])[:, OWNED, OWNED] * levels[PER_FACE, :-1, None, None]
    gravity, rises = GRAVITY * metric[PER_W, :, OWNED, OWNED], (dry_w * lift)[:, OWNED, OWNED]
    flat.columns(old, new, work, slow, pressure, levels, flux_z, numbers, tension, gravity, rises)


def relax(state: np.ndarray, ground: Ground, levels: np.ndarray, lid: np.ndarray, dt: float) -> None:
    """Relax the owned cells toward base state and wind over dt (s) in place, by rates of the sponge, float64[nz] (1/s).

    As `kernels.euler.relaxation.reference.relax` below the lid; the true vertical wind relaxes toward 0. Reads the
    halo's density.
    """
    base, metric, wind, _ = ground
    rho, keep = state[RHO] + base[0], 1 / (1 + dt * lid[:, None, None])
    goals = {
        RHO_U: 0.5 * (np.roll(rho, 1, 2) + rho) * wind[0],
        RHO_V: 0.5 * (np.roll(rho, 1, 1) + rho) * wind[1],
        RHO_THETA: state[RHO] * (base[1] / base[0]),
    }
    flow = metric[SLOPE_X] * _at_w(wind[0], 2, levels) + metric[SLOPE_Y] * _at_w(wind[1], 1, levels)
    goals[RHO_W] = -metric[PER_W] * flat.at_faces(rho, levels)[:-1] * flow
    goals[RHO_W][0] = 0.0
    for field, goal in goals.items():
        own, aim = state[field, :, OWNED, OWNED], goal[:, OWNED, OWNED]
        own[...] = aim + keep * (own - aim)


def _dry_at_faces(dry: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """1 / (1 + q_t) where rho u, rho v and Omega stand."""
    return 0.5 * (np.roll(dry, 1, 2) + dry), 0.5 * (np.roll(dry, 1, 1) + dry), flat.at_faces(dry, levels)[:-1]


def _at_w(a: np.ndarray, dim: int, levels: np.ndarray) -> np.ndarray:
    """Means of what stands at faces across a dim, at the low faces of levels."""
    return flat.at_faces(0.5 * (a + np.roll(a, -1, dim)), levels)[:-1]


def _horizontal(
    p: np.ndarray, metric: np.ndarray, tilt: np.ndarray, levels: np.ndarray, dx: float, dy: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forces of a pressure along levels on J rho u and J rho v, and what its horizontal gradients do to Omega."""
    first = np.clip(np.arange(len(p)) - 1, 0, len(p) - 3)
    low, high = tilt[:, :, None, None]
    upward = low * (p[first + 1] - p[first]) + high * (p[first + 2] - p[first + 1])
    across, along = (p - np.roll(p, 1, 2)) / dx, (p - np.roll(p, 1, 1)) / dy
    force_u = metric[SLOPE_U] * (0.5 * (np.roll(upward, 1, 2) + upward)) - metric[J_U] * across
    force_v = metric[SLOPE_V] * (0.5 * (np.roll(upward, 1, 1) + upward)) - metric[J_V] * along
    lift = metric[SLOPE_X] * _at_w(across, 2, levels) + metric[SLOPE_Y] * _at_w(along, 1, levels)
    return force_u, force_v, lift
