"""What the sections of a run file of the box require of each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from hpckit.apps.atmosphere import output, settings
from hpckit.apps.atmosphere.stability import outruns_sound
from hpckit.apps.weather3d.settings.physics import AT_GROUND, WATER
from hpckit.apps.weather3d.settings.sections import MOIST_DAMPING, MOIST_SUBSTEPS, SOUND, Settings

MOST_PARCELS = 10_000
FIELD_NAMES = (
    *WATER,
    *(f"{kind}_at_ground" for kind in AT_GROUND),
    *output.DEVIATIONS,
    *output.FULL,
    "theta_base",
    "rho_base",
    "pressure_base",
    "altitude",
    "surface_altitude",
    "x",
    "y",
    "z",
    "time",
)
STATISTICS = ("_variance", "_flux")  # how their names end


def problems(it: Settings) -> Iterator[str]:
    """What does not go together, and what to do."""
    for rule in (_misplaced, _wrong_sides, _wrong_names, _unstable, _unsplit, _over_terrain):
        yield from rule(it)


def _misplaced(it: Settings) -> Iterator[str]:
    """Positions outside the box."""
    grid, jet = it.grid, it.jet
    box = f"the box of {grid.width:g} m by {grid.length:g} m by {grid.height:g} m"
    for i, bubble in enumerate(it.bubbles):
        above, below = bubble.z + bubble.radius_z <= 0, bubble.z - bubble.radius_z >= grid.height
        if above or below or not (0 <= bubble.x <= grid.width and 0 <= bubble.y <= grid.length):
            yield (
                f"bubbles.{i} at x {bubble.x:g} m, y {bubble.y:g} m, z {bubble.z:g} m lies outside {box}: move it,"
                " or enlarge the grid"
            )
    if jet.speed and not (0 <= jet.y <= grid.length and 0 <= jet.z <= grid.height):
        yield f"the jet at y {jet.y:g} m, z {jet.z:g} m lies outside {box}: move jet.y or jet.z"
    if it.band.amplitude and not 0 <= it.band.x <= grid.width:
        yield f"band.x of {it.band.x:g} m lies outside {box}: move it"
    extent = grid.width if it.wave.along == "x" else grid.length
    if it.wave.amplitude and not 0 <= it.wave.x <= extent:
        yield f"wave.x of {it.wave.x:g} m lies outside {box}, along {it.wave.along}: move it"
    for i, tracer in enumerate(it.tracers):
        above, below = tracer.z + tracer.radius_z <= 0, tracer.z - tracer.radius_z >= grid.height
        beside = tracer.shape == "blob" and not (0 <= tracer.x <= grid.width and 0 <= tracer.y <= grid.length)
        if tracer.shape != "uniform" and (above or below or beside):
            yield (
                f"tracers.{i} at x {tracer.x:g} m, y {tracer.y:g} m, z {tracer.z:g} m lies outside {box}: move it,"
                " or enlarge the grid"
            )
    for axis, extent in (("x", grid.width), ("y", grid.length), ("z", grid.height)):
        low, high, count = getattr(it.parcels, axis)
        inside = 0 <= low <= high <= extent or not it.parcels.count  # where none are asked for, in any box
        if not (0 <= count <= MOST_PARCELS and inside):
            yield f"parcels.{axis}: give first and last place from 0 to {extent:g} m and a number of parcels"
    if it.parcels.count > MOST_PARCELS:
        yield f"{it.parcels.count} parcels are too many: at most {MOST_PARCELS}"
    for i, station in enumerate(it.output.stations):
        if not (0 <= station.x <= grid.width and 0 <= station.y <= grid.length):
            yield f"output.stations.{i} at x {station.x:g} m, y {station.y:g} m lies outside {box}: move it"
        if station.name in [each.name for each in it.output.stations[:i]]:
            yield f"output.stations.{i}.name = {station.name!r} is taken: give each station its own"
    if it.wave.amplitude and it.base.kind != "isothermal":
        yield f"the wave needs an isothermal base state: base.kind is {it.base.kind!r}, set it to 'isothermal'"
    if it.lid.depth >= grid.height:
        yield f"lid.depth of {it.lid.depth:g} m fills the box of {grid.height:g} m: lower it"


def _wrong_sides(it: Settings) -> Iterator[str]:
    """Sides that contradict the wind, and relaxation zones that fill the box."""
    grid, base, sides = it.grid, it.base, it.sides
    for axis, wind, extent in (("x", base.u, grid.width), ("y", base.v, grid.length)):
        kind = getattr(sides, axis)
        if kind == "walls" and (wind or base.wind):
            name = "base.wind" if base.wind else "base.u" if axis == "x" else "base.v"
            yield f"sides.{axis} are walls, and the wind of {name} blows through them: drop one of the two"
        if kind == "open" and 2 * sides.width >= extent:
            yield f"sides.width of {sides.width:g} m leaves no interior in {axis}, which is {extent:g} m: lower it"

    if it.jet.speed and it.jet.balanced and not (it.coriolis and sides.y == "walls"):
        yield "jet.balanced needs a Coriolis force and walls beside the jet: set coriolis and sides.y = 'walls'"


def _wrong_names(it: Settings) -> Iterator[str]:
    """Tracers whose names are taken."""
    names = [tracer.name for tracer in it.tracers]
    for i, name in enumerate(names):
        if name in FIELD_NAMES:
            yield f"tracers.{i}.name = {name!r} is taken: {', '.join(FIELD_NAMES)} are other fields of the output"
        elif it.output.statistics and name.endswith(STATISTICS):
            yield f"tracers.{i}.name = {name!r} may not end in {' or '.join(STATISTICS)}: statistics are called so"
        elif name in names[:i]:
            yield f"tracers.{i}.name = {name!r} is taken by tracers.{names.index(name)}"


def _unstable(it: Settings) -> Iterator[str]:
    grid, dt = it.grid, it.full_step
    if it.dynamics.kind == "explicit":
        yield from outruns_sound(it.base, it.time.cfl, it.time.max_speed, it.beta)
    too_high = grid.lowest * grid.nz > grid.height  # told among the rules of split dynamics
    thinnest = grid.dz if too_high else float(np.diff(grid.edges).min())
    most = 0.5 / (dt * (grid.dx**-2 + grid.dy**-2 + thinnest**-2))
    if it.diffusion / min(it.prandtl, 1.0) > most:
        yield (
            f"diffusion = {it.diffusion:g} m2/s is unstable with steps of {dt:.4g} s: at most {most:.4g} m2/s on"
            f" this grid, or lower {'time.cfl' if it.dynamics.kind == 'explicit' else 'dynamics.step'}"
        )


def _unsplit(it: Settings) -> Iterator[str]:
    """Settings that one of the two dynamics does not have."""
    grid, dynamics = it.grid, it.dynamics
    if dynamics.kind == "explicit":
        if grid.lowest:
            yield "grid.lowest (stretched levels) needs the split dynamics: set dynamics.kind = 'hevi'"
        for name, is_on in (("output.maps", it.output.maps), ("parcels", it.parcels.count)):
            if is_on:
                yield f"{name} needs the split dynamics: set dynamics.kind = 'hevi'"
        if it.prandtl != 1:
            yield "prandtl needs the split dynamics: set dynamics.kind = 'hevi'"
        if it.noise.vapor:
            yield "noise.vapor needs the split dynamics: set dynamics.kind = 'hevi', and moisture.kind"
        for name in ("surface", "forcing", "radiation"):
            if getattr(it, name) != type(getattr(it, name))():
                yield f"{name} needs the split dynamics: set dynamics.kind = 'hevi'"
        if it.terrain.kind != "flat":
            yield f"terrain.kind = {it.terrain.kind!r} needs the split dynamics: set dynamics.kind = 'hevi'"
        if it.moisture.kind != "none":
            yield f"moisture.kind = {it.moisture.kind!r} needs the split dynamics: set dynamics.kind = 'hevi'"
        if it.moisture.transport != "monotone":
            yield "moisture.transport = 'linear' needs the split dynamics: set dynamics.kind = 'hevi'"
        if it.base.kind == "saturated":
            yield "base.kind = 'saturated' is moist: set dynamics.kind = 'hevi' and moisture.kind = 'reversible'"
        if it.base.kind == "weisman_klemp":
            yield "base.kind = 'weisman_klemp' is moist: set dynamics.kind = 'hevi' and moisture.kind = 'kessler'"
        return
    moisture = it.moisture
    if moisture.equations == "complete" and moisture.kind != "reversible":
        yield f"moisture.equations = 'complete' needs moisture.kind = 'reversible', not {moisture.kind!r}: no rain"
    if moisture.transport == "linear" and moisture.kind in ("kessler", "ice"):
        yield (
            "moisture.transport = 'linear' may leave less than no rain, which cannot fall: set it to 'monotone'"
            f" with moisture.kind = {moisture.kind!r}"
        )
    if it.base.kind == "saturated" and moisture.equations != "complete":
        yield "base.kind = 'saturated' needs moisture.kind = 'reversible' and moisture.equations = 'complete'"
    if it.base.kind == "weisman_klemp" and it.moisture.kind == "none":
        yield "base.kind = 'weisman_klemp' is moist: set moisture.kind = 'kessler', 'ice' or 'reversible'"
    if it.jet.speed and it.moisture.kind != "none":
        yield "a jet has no moisture: leave jet.speed out, or set moisture.kind = 'none'"
    if grid.lowest * grid.nz > grid.height:
        yield f"grid.lowest of {grid.lowest:g} m times {grid.nz} levels is above grid.height: lower it"
    if it.parcels.count and "open" in (it.sides.x, it.sides.y):
        yield "parcels would leave the box: leave them out, or set sides.x and sides.y to 'periodic' or 'walls'"
    wet = any((it.surface.vapor, it.surface.humidity, it.forcing.drying, it.noise.vapor))
    if wet and moisture.kind == "none":
        yield "surface.vapor, surface.humidity, forcing.drying and noise.vapor need moist air: set moisture.kind"
    if it.radiation.top and moisture.kind == "none":
        yield "radiation needs clouds: set moisture.kind"
    for name, points in it.forcing:
        if any(high[0] <= low[0] for low, high in itertools.pairwise(points)):
            yield f"forcing.{name}: the heights of its points must grow"
    if any(wind > 0 for _, wind in it.forcing.subsidence):
        yield "forcing.subsidence must not be above 0: air that sinks has a wind below 0"
    if it.jet.speed and it.jet.balanced:
        yield "jet.balanced is balanced for the explicit scheme: set dynamics.kind = 'explicit'"
    if dynamics.weno and dynamics.order != 5:
        yield f"dynamics.weno is of fifth order: leave out dynamics.order = {dynamics.order}"
    if moisture.kind != "none" and it.substeps[-1] < MOIST_SUBSTEPS:
        yield (
            f"dynamics.substeps = {dynamics.substeps} is unstable in cloud, which slows sound after each step: take"
            f" at least {MOIST_SUBSTEPS}, or leave it out"
        )
    if moisture.kind != "none" and dynamics.damping < MOIST_DAMPING:
        yield (
            f"dynamics.damping = {dynamics.damping:g} is unstable in cloud, which slows sound after each step: take"
            f" at least {MOIST_DAMPING:g}"
        )
    most = 1 / math.sqrt(1 + 2 * dynamics.damping)  # forward-backward, with the damping of the divergence
    each = max(share / count for share, count in zip((1 / 3, 1 / 2, 1.0), it.substeps, strict=True))
    passed = SOUND * math.hypot(1 / grid.dx, 1 / grid.dy) * it.full_step * each
    if passed > most:
        yield (
            f"sound passes {passed:.2f} cells in a substep of {it.full_step * each:.3g} s, at most {most:.2f}"
            f" with dynamics.damping = {dynamics.damping:g}: raise dynamics.substeps or lower dynamics.acoustic_cfl"
        )


def _over_terrain(it: Settings) -> Iterator[str]:
    """What terrain does not have."""
    terrain, grid = it.terrain, it.grid
    if (terrain.kind == "file") != (terrain.file is not None):
        yield "terrain.file goes with terrain.kind = 'file': give both or neither"
    if terrain.kind == "flat":
        return
    if terrain.kind != "file":
        if not (0 <= terrain.x <= grid.width and (terrain.ridge or 0 <= terrain.y <= grid.length)):
            yield f"the terrain at x {terrain.x:g} m, y {terrain.y:g} m lies outside the box: move it"
        if terrain.height >= 0.5 * grid.height:
            yield f"terrain.height of {terrain.height:g} m is half of grid.height or more: lower it"
    missing = {
        "moisture.equations = 'complete'": it.moisture.equations == "complete",
        **{f"forcing.{name}": getattr(it.forcing, name) for name in ("subsidence", "geostrophic_u", "geostrophic_v")},
        "radiation": it.radiation != settings.Radiation(),
        "jet.speed": it.jet.speed,
        "parcels": it.parcels.count,
    }
    given = [name for name, is_on in missing.items() if is_on]
    if given:
        yield (
            f"there is no {', '.join(given)} over terrain: leave {'it' if len(given) == 1 else 'them'} out, or set"
            " terrain.kind = 'flat'"
        )
