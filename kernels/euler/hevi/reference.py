"""Split-explicit, vertically implicit dynamics of a box (HEVI), NumPy: definition and test oracle of compiled forms.

The prognostic variables are those of the box as deviations from its base state: rho', rho u, rho v, rho w, (rho theta)'
(float64[5, nz, ny + 8, nx + 8]), but on Arakawa's C grid: rho u stands at the low face of its cell in x, rho v in y,
rho w in z. rho w of level 0 is the ground's, 0; that of the lid, 0 too, is not stored. Levels may be stretched.

A large step is Runge and Kutta's in three stages of dt/3, dt/2 and dt (Wicker and Skamarock 2002, MWR 130, 2088-2097).
Each stage linearizes the equations of sound about the latest state * (`prepare`), finds what they leave of the
tendencies at it, R (`tendencies`), and then advances the state of t in acoustic substeps (`begin`, `substep`), after
Klemp, Skamarock and Dudhia (2007, MWR 135, 2897-2913, eqs. 19 to 24), in terms of P = (gamma p / rho theta)* Theta,
where Theta is (rho theta)':

    U += dt (R_U - dP/dx), V alike                             explicit, with the old pressure, forward
    rho'  += dt (-dU/dx - dV/dy - dW/dz)                        with the new U, V; W implicit
    Theta += dt (R_Theta - d(U theta*)/dx - … )
    W += dt (R_W - dP/dz - g rho')                             P, rho' implicit: a tridiagonal system by column

Theirs are deviations from *, which is the same but for rounding; the state itself needs neither a beginning nor an end
of a stage, hence two passes over memory less. R_U has the rest of the pressure, p'* - P*, and R_Theta that of the
fluxes, which means of two theta* leave of those of fifth order.

The vertical is off-centered: the share `implicit` of the new level. The horizontal pressure gradient uses
P + damping (P - P of the substep before), which damps the divergence (Skamarock and Klemp 1992, MWR 120, 2109-2127).

Moist air: rho is the density of dry air, theta the moist theta (1 + (R_v / R_d) q_v) theta, for which
p = C0 (rho theta)**gamma; `water` is the mixing ratio of all water, q_t: the pressure gradient is divided by 1 + q_t,
and the weight in the vertical is that of (1 + q_t) rho. Without water it is an empty array.

levels: float64[5, nz + 1]: 1 / thickness of cells (the last is not used), 1 / distance of middles at faces (0 at ground
and lid), the share of the cell below and of that above in a mean at a face (by thickness), q_t of the base state.
work: float64[8, …] as the state: u, v, w, theta, p' - P, gamma p / (rho theta), 1 / (1 + q_t), deviation of
(1 + q_t) rho; the last two may be left alone in dry air: kernels are told so (`LargeStage.wet`, `Substep.wet`) and do
not read them.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.box.constants import RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import GAMMA, GRAVITY
from hpckit.kernels.euler.hevi.constants import (
    ABOVE,
    BELOW,
    DRY,
    FACES_BACK,
    HALO,
    PER_CELL,
    PER_FACE,
    PRESSURE,
    SMALLEST,
    STIFFNESS,
    THETA,
    WATER,
    WEIGHT,
    LargeStage,
    Substep,
    U,
    V,
    W,
)
from hpckit.kernels.euler.hevi.numerics import TINY

OWNED = slice(HALO, -HALO)
BEYOND = slice(HALO, 1 - HALO)  # and one more: the faces of the owned cells
WIDE = slice(HALO - FACES_BACK, FACES_BACK + 1 - HALO or None)  # where `work` is filled


def prepare(
    state: np.ndarray, water: np.ndarray, column: np.ndarray, levels: np.ndarray, work: np.ndarray, sounds: bool = True
) -> None:
    """Fill `work` in the owned cells and as far around them as faces reach. column: float64[3, nz] as in the box.

    sounds: False leaves alone what sound and weight alone need: p' - P, stiffness and the deviation of (1 + q_t) rho.
    """
    base_rho, base_heat, base_pressure = column[:, :, None, None]
    rho, heat = state[RHO] + base_rho, state[RHO_THETA] + base_heat
    west, south = np.roll(rho, 1, axis=2), np.roll(rho, 1, axis=1)
    new = np.zeros_like(work)
    new[U], new[V] = state[RHO_U] / (0.5 * (west + rho)), state[RHO_V] / (0.5 * (south + rho))
    new[W, 1:] = state[RHO_W, 1:] / at_faces(rho, levels)[1:-1]
    new[THETA] = heat / rho
    excess = base_pressure * np.expm1(GAMMA * np.log1p(state[RHO_THETA] / base_heat))
    new[STIFFNESS] = GAMMA * (base_pressure + excess) / heat
    new[PRESSURE] = excess - new[STIFFNESS] * state[RHO_THETA]
    new[DRY], new[WEIGHT] = 1.0, state[RHO]
    if water.size:
        new[DRY] = 1 / (1 + water)
        new[WEIGHT] = state[RHO] * (1 + water) + base_rho * (water - levels[WATER, :-1, None, None])
    for row in range(len(work)) if sounds else (U, V, W, THETA, DRY):
        work[row, :, WIDE, WIDE] = new[row, :, WIDE, WIDE]


def tendencies(
    state: np.ndarray,
    work: np.ndarray,
    column: np.ndarray,
    levels: np.ndarray,
    wind: np.ndarray,
    weights: np.ndarray,
    stage: LargeStage,
    slow: np.ndarray,
) -> None:
    """What substeps leave of the tendencies at the owned cells; of rho u and rho v at the face beyond the last, too.

    wind: u and v of the base state, float64[2, nz]: the Coriolis force acts on what the wind has beyond them, for the
    pressure gradient that balances them accelerates all air alike. weights: `constants.upwind_weights`. slow:
    float64[5, …] as the state; substeps leave nothing of rho': its row is not used.
    """
    momenta, speeds = state[RHO_U : RHO_W + 1], work[U : W + 1]
    u, v, w = momenta
    per_cell, dry, pressure = levels[PER_CELL, :-1, None, None], work[DRY], work[PRESSURE]
    per_face = levels[PER_FACE, :-1, None, None]
    new = np.zeros_like(slow)
    lid = np.zeros_like(w[:1])
    w_lid = np.concatenate([w, lid])

    # at the low faces of cells
    theta = work[THETA]
    low_x, low_y = (lambda a: 0.5 * (np.roll(a, 1, 2) + a)), (lambda a: 0.5 * (np.roll(a, 1, 1) + a))
    x, y, z = u * low_x(theta), v * low_y(theta), w_lid * at_faces(theta, levels)
    linear = (_up(x) - x) / stage.dx + (np.roll(y, -1, 1) - y) / stage.dy + np.diff(z, axis=0) * per_cell
    new[RHO_THETA] = linear - _divergence(theta, u, v, w_lid, weights, stage, per_cell)
    middle = _upwind(speeds[0], 0.5 * (u + _up(u)), 2, weights[2], 1)
    new[RHO_U] = -(middle - np.roll(middle, 1, 2)) / stage.dx
    new[RHO_U] -= _divergence(speeds[0], None, low_x(v), low_x(w_lid), weights, stage, per_cell)
    new[RHO_U] -= low_x(dry) * (pressure - np.roll(pressure, 1, 2)) / stage.dx
    middle = _upwind(speeds[1], 0.5 * (v + np.roll(v, -1, 1)), 1, weights[2], 1)
    new[RHO_V] = -(middle - np.roll(middle, 1, 1)) / stage.dy
    new[RHO_V] -= _divergence(speeds[1], low_y(u), None, low_y(w_lid), weights, stage, per_cell)
    new[RHO_V] -= low_y(dry) * (pressure - np.roll(pressure, 1, 1)) / stage.dy
    if stage.coriolis:
        rho = state[RHO] + column[0][:, None, None]
        more_u, more_v = u - low_x(rho) * wind[0][:, None, None], v - low_y(rho) * wind[1][:, None, None]
        new[RHO_U] += stage.coriolis * low_x(0.5 * (more_v + np.roll(more_v, -1, 1)))
        new[RHO_V] -= stage.coriolis * low_y(0.5 * (more_u + _up(more_u)))

    # at the faces between levels; those of ground and lid stay 0
    flux_x, flux_y = at_faces(u, levels)[:-1], at_faces(v, levels)[:-1]
    speed = np.concatenate([speeds[2], lid])
    middle = np.empty_like(w)
    for k in range(len(w)):
        row = weights[min(k, len(w) - 1 - k, 2)]
        six = [speed[np.clip(k + at, 0, len(w))] for at in range(-2, 4)]
        middle[k] = _face(six, 0.5 * (w_lid[k] + w_lid[k + 1]), row)
    change = np.zeros_like(w)
    change[1:] = np.diff(middle, axis=0)
    new[RHO_W] = -change * per_face
    new[RHO_W] -= _divergence(speeds[2], flux_x, flux_y, None, weights, stage, per_cell)
    gradient = np.zeros_like(w)
    gradient[1:] = np.diff(pressure, axis=0)
    force = gradient * per_face
    if stage.wet:
        force += GRAVITY * at_faces(work[WEIGHT], levels)[:-1]
        new[RHO_W] += GRAVITY * at_faces(state[RHO], levels)[:-1]
    new[RHO_W] -= at_faces(dry, levels)[:-1] * force
    new[RHO_W, 0] = 0
    beyond = BEYOND
    slow[RHO_U:, :, OWNED, OWNED] = new[RHO_U:, :, OWNED, OWNED]
    slow[RHO_U, :, OWNED, beyond] = new[RHO_U, :, OWNED, beyond]
    slow[RHO_V, :, beyond, OWNED] = new[RHO_V, :, beyond, OWNED]


def linearize(
    state: np.ndarray,
    water: np.ndarray,
    column: np.ndarray,
    levels: np.ndarray,
    work: np.ndarray,
    wind: np.ndarray,
    weights: np.ndarray,
    stage: LargeStage,
    slow: np.ndarray,
    start: np.ndarray,
    pressure: np.ndarray,
) -> None:
    """`prepare`, `tendencies` and `begin` at once, for substeps alone.

    Of `work` they read theta, gamma p / (rho theta) and 1 / (1 + q_t), in the owned cells and one beyond; only these
    are filled by all forms.
    """
    prepare(state, water, column, levels, work)
    tendencies(state, work, column, levels, wind, weights, stage, slow)
    begin(start, work, pressure)


def begin(start: np.ndarray, work: np.ndarray, pressure: np.ndarray) -> None:
    """P at the start of a stage, in the owned cells and one beyond. start: the state of t; pressure: a halo of 1."""
    around = slice(HALO - 1, 1 - HALO)
    pressure[...] = (work[STIFFNESS] * start[RHO_THETA])[:, around, around]


def substep(
    old: np.ndarray,
    new: np.ndarray,
    work: np.ndarray,
    slow: np.ndarray,
    pressure: np.ndarray,
    levels: np.ndarray,
    flux_x: np.ndarray,
    flux_y: np.ndarray,
    flux_z: np.ndarray,
    numbers: Substep,
) -> None:
    """Advance the owned cells of a state, and the faces beyond them, by an acoustic substep.

    new: where it goes; it may be `old`. What is below SMALLEST becomes 0. pressure: P as the horizontal gradient takes
    it, of all owned cells and one cell around them; its owned cells are written. flux_x, flux_y, flux_z: mean mass
    fluxes at the faces of the owned cells, which start as 0, to which the share of this substep is added; not used
    where share is 0.
    """
    dx, dy, dt, _, _, share, _ = numbers
    dry, beyond = work[DRY], BEYOND
    chi_x, chi_y = mean_x(dry), mean_y(dry)
    across, along = pressure[:, 1:-1, :], pressure[:, :, 1:-1]
    push(old, new, RHO_U, dt * (slow[RHO_U, :, OWNED, beyond] - chi_x * np.diff(across, axis=2) / dx))
    push(old, new, RHO_V, dt * (slow[RHO_V, :, beyond, OWNED] - chi_y * np.diff(along, axis=1) / dy))
    add_means(new, flux_x, flux_y, share)
    tension = at_faces(dry[:, OWNED, OWNED], levels) * levels[PER_FACE, :, None, None]
    gravity = np.full_like(tension, GRAVITY)
    columns(old, new, work, slow, pressure, levels, flux_z, numbers, tension, gravity, 0 * tension)


def push(old: np.ndarray, new: np.ndarray, field: int, change: np.ndarray) -> None:
    """A horizontal momentum at the faces of the owned cells."""
    faces = (field, slice(None), *((OWNED, BEYOND) if field == RHO_U else (BEYOND, OWNED)))
    new[faces] = settled(old[faces] + change)


def add_means(new: np.ndarray, flux_x: np.ndarray, flux_y: np.ndarray, share: float) -> None:
    """The share of the new horizontal momenta in the mean mass fluxes."""
    if share:
        flux_x += share * new[RHO_U, :, OWNED, BEYOND]
        flux_y += share * new[RHO_V, :, BEYOND, OWNED]


def settled(value: np.ndarray) -> np.ndarray:
    """What is too small to matter is 0."""
    return np.where(np.abs(value) < SMALLEST, 0.0, value)


def columns(
    old: np.ndarray,
    new: np.ndarray,
    work: np.ndarray,
    slow: np.ndarray,
    pressure: np.ndarray,
    levels: np.ndarray,
    flux_z: np.ndarray,
    numbers: Substep,
    tension: np.ndarray,
    gravity: np.ndarray,
    lift: np.ndarray,
) -> None:
    """The part of a substep that is implicit: rho', Theta and W of all columns, after U and V.

    At the faces between levels, float64[nz + 1, ny, nx]: tension, what the difference of P across a face pulls;
    gravity, what rho' there weighs; lift, what else moves W.
    """
    dx, dy, dt, implicit, damping, share, _ = numbers
    nz, beyond = len(pressure), BEYOND
    theta, stiff = work[THETA], work[STIFFNESS, :, OWNED, OWNED]
    u, v = new[RHO_U, :, OWNED, beyond], new[RHO_V, :, beyond, OWNED]

    def divergence(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.diff(a, axis=2) / dx + np.diff(b, axis=1) / dy

    per_cell = levels[PER_CELL, :-1, None, None]
    below, above = levels[BELOW, :, None, None], levels[ABOVE, :, None, None]
    rho, heat, w = (old[each, :, OWNED, OWNED] for each in (RHO, RHO_THETA, RHO_W))
    theta_face = at_faces(theta[:, OWNED, OWNED], levels)
    lifted = np.concatenate([w, np.zeros_like(w[:1])])
    explicit = 1 - implicit
    new_rho = rho - dt * (divergence(u, v) + explicit * np.diff(lifted, axis=0) * per_cell)
    carried = divergence(u * mean_x(theta), v * mean_y(theta))
    carried += explicit * np.diff(theta_face * lifted, axis=0) * per_cell
    new_heat = heat + dt * (slow[RHO_THETA, :, OWNED, OWNED] - carried)
    mixed_rho = implicit * new_rho + explicit * rho
    mixed_p = stiff * (implicit * new_heat + explicit * heat)
    size = (dt * implicit) ** 2
    factor, value = np.zeros_like(lifted), np.zeros_like(lifted)
    for k in range(1, nz):
        down, up = per_cell[k - 1], per_cell[k]
        lower = -size * (tension[k] * stiff[k - 1] * down * theta_face[k - 1] - gravity[k] * below[k] * down)
        upper = -size * (tension[k] * stiff[k] * up * theta_face[k + 1] + gravity[k] * above[k] * up)
        diagonal = 1 + size * (
            tension[k] * theta_face[k] * (stiff[k] * up + stiff[k - 1] * down)
            + gravity[k] * (above[k] * up - below[k] * down)
        )
        gradient = tension[k] * (mixed_p[k] - mixed_p[k - 1])
        weight = gravity[k] * (below[k] * mixed_rho[k - 1] + above[k] * mixed_rho[k])
        right = w[k] + dt * (slow[RHO_W, k, OWNED, OWNED] + lift[k] - gradient - weight)
        pivot = 1 / (diagonal - lower * factor[k - 1])
        factor[k] = upper * pivot
        value[k] = (right - lower * value[k - 1]) * pivot
    new_w = np.zeros_like(lifted)
    for k in range(nz - 1, 0, -1):
        new_w[k] = value[k] - factor[k] * new_w[k + 1]
    new_rho -= dt * implicit * np.diff(new_w, axis=0) * per_cell
    new_heat = settled(new_heat - dt * implicit * np.diff(theta_face * new_w, axis=0) * per_cell)
    pressure[:, 1:-1, 1:-1] = stiff * (new_heat + damping * (new_heat - heat))
    if share:
        flux_z[:-1] += share * (implicit * new_w[:-1] + explicit * w)
    for field, values in ((RHO, new_rho), (RHO_THETA, new_heat), (RHO_W, new_w[:-1])):
        new[field, :, OWNED, OWNED] = settled(values)


def mean_x(a: np.ndarray) -> np.ndarray:
    """At the faces of the owned cells across x."""
    return 0.5 * (a[:, OWNED, HALO - 1 : -HALO] + a[:, OWNED, BEYOND])


def mean_y(a: np.ndarray) -> np.ndarray:
    """At the faces of the owned cells across y."""
    return 0.5 * (a[:, HALO - 1 : -HALO, OWNED] + a[:, BEYOND, OWNED])


def _up(a: np.ndarray) -> np.ndarray:
    return np.roll(a, -1, axis=2)


def at_faces(a: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Means at the nz + 1 faces between levels; at ground and lid the value beside them."""
    below, above = (levels[each, :, None, None] for each in (BELOW, ABOVE))
    return below * np.concatenate([a[:1], a]) + above * np.concatenate([a, a[-1:]])


def _face(six: list[np.ndarray], flux: np.ndarray, row: np.ndarray) -> np.ndarray:
    """What a mass flux carries through the face in the middle of six cells."""
    a, b, c, d, e, f = six
    if row[6]:
        return _weno(np.where(flux > 0, [a, b, c, d, e], [f, e, d, c, b]), flux)
    even = row[0] * (d + c) + row[1] * (e + b) + row[2] * (f + a)
    odd = row[3] * (d - c) + row[4] * (e - b) + row[5] * (f - a)
    return flux * even - np.abs(flux) * odd


def _weno(five: np.ndarray, flux: np.ndarray) -> np.ndarray:
    """The same from five cells, the third upstream of the face: see `numerics.weno`."""
    q0, q1, q2, q3, q4 = five
    rough = [
        13 / 12 * bend**2 + tilt**2 / 4
        for bend, tilt in (
            (q0 - 2 * q1 + q2, q0 - 4 * q1 + 3 * q2),
            (q1 - 2 * q2 + q3, q1 - q3),
            (q2 - 2 * q3 + q4, 3 * q2 - 4 * q3 + q4),
        )
    ]
    whole = np.abs(rough[0] - rough[2])
    weights = [best * (1 + (whole / (each + TINY)) ** 2) for best, each in zip((0.1, 0.6, 0.3), rough, strict=True)]
    parts = (2 * q0 - 7 * q1 + 5 * q2, 2 * q3 - q1 - q2, 5 * q3 - 4 * q2 - q4)
    change = sum(weight * part for weight, part in zip(weights, parts, strict=True))
    return flux * (q2 + change / (6 * sum(weights)))


def _upwind(a: np.ndarray, flux: np.ndarray, dim: int, row: np.ndarray, shift: int = 0) -> np.ndarray:
    """What passes the low faces of cells across a dim; with shift 1 what passes the middle of the cells of faces."""
    return _face([np.roll(a, 3 - shift - at, axis=dim) for at in range(6)], flux, row)


def _divergence(
    a: np.ndarray,
    flux_x: np.ndarray | None,
    flux_y: np.ndarray | None,
    flux_z: np.ndarray | None,
    weights: np.ndarray,
    stage: LargeStage,
    per_cell: np.ndarray,
) -> np.ndarray:
    """Of what the mass fluxes at the low faces carry; flux_z with that of the lid."""
    total = np.zeros_like(a)
    for flux, dim, width in ((flux_x, 2, stage.dx), (flux_y, 1, stage.dy)):
        if flux is not None:
            carried = _upwind(a, flux, dim, weights[2])
            total += (np.roll(carried, -1, dim) - carried) / width
    if flux_z is not None:
        nz = len(a)
        carried_z = np.zeros_like(flux_z)
        for k in range(1, nz):
            row = weights[min(k - 1, nz - 1 - k, 2)]
            carried_z[k] = _face([a[np.clip(k + at, 0, nz - 1)] for at in range(-3, 3)], flux_z[k], row)
        total += np.diff(carried_z, axis=0) * per_cell
    return total
