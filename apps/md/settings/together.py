"""What the sections of a run file of molecular dynamics require of each other."""

from __future__ import annotations

from collections.abc import Iterator

from hpckit.apps.md.motion.groups import ALL, named_in
from hpckit.apps.md.settings.interaction import OF_BRICKS, OF_FILES
from hpckit.apps.md.settings.sections import Settings
from hpckit.apps.md.settings.table import OF_PAIRS
from hpckit.plan.particles.snapshot import BOUND

TAKEN = (  # names in output/, and of what is kept beside checkpoints
    *("analysis.json", "coupling.csv", "elastic.json", "end.data", "free_energy.csv", "free_energy.json", "metrics"),
    *("series.json", "trajectory", "trajectory.dump", "trajectory.h5md", "trajectory.h5md.frames", "variables.csv"),
)


def problems(it: Settings) -> Iterator[str]:
    """What does not go together, and what to do."""
    yield from _wrong_averages(it)
    if it.stages:
        yield from _wrong_stages(it)
        return
    checks = getattr(it, "checks", None)  # a section that every app gets
    if checks is not None and checks.replay and not it.repro:
        yield "checks.replay compares bits: forces are reproducible only with repro = true (--repro)"
    yield from _wrong_motion(it)
    yield from _wrong_groups(it)
    yield from _wrong_interaction(it)
    yield from _wrong_slow(it)
    if it.repro and it.precision == "mixed":
        yield "repro adds forces in double precision: set precision to double"


def _wrong_motion(it: Settings) -> Iterator[str]:
    """A dynamics, constraints, a barostat and a program of the box that do not go together."""
    held_at = it.dynamics.kind in ("langevin", "bussi", "nose_hoover")
    if it.dynamics.ramp_to is not None and (not held_at or it.replicas.temperatures):
        yield "dynamics.ramp_to needs a thermostat, and no replicas: omit it"
    if it.barostat.ramp_to is not None and it.barostat.kind in ("none", "relax"):
        yield "barostat.ramp_to needs barostat.kind = 'mtk' or 'cell_rescaling': omit it"
    if it.dynamics.longest is not None and it.dynamics.kind != "fire" and _is_whole(it):
        yield (
            "dynamics.longest goes with fire, and with nve or langevin alone: without barostat, deform, constraints,"
            " spheres that touch, equilibrate, inner and also"
        )
    if it.dynamics.kind == "fire" and it.dynamics.equilibrate:
        yield "dynamics.equilibrate precedes a motion in time, and fire is a minimization: omit it"
    if it.analysis.elastic and (
        it.dynamics.kind != "fire" or set(it.system.periodic) != {"x", "y", "z"} or it.coulomb.kind == "ewald"
    ):
        yield (
            "analysis.elastic goes with dynamics.kind = 'fire' in a box that is periodic in x, y and z, without"
            " coulomb.kind = 'ewald'"
        )
    held, moved = it.barostat, it.dynamics.kind
    fixed = it.constraints
    if fixed.some or fixed.angles:
        if moved == "langevin":
            yield "constraints go with nve, bussi, nose_hoover and fire, not with langevin"
        if it.bonds.kind != "harmonic" or (fixed.angles and it.angles.kind not in ("harmonic", "charmm")):
            yield "constraints need harmonic bonds and harmonic or charmm angles, and keep r0, theta0"
    if (fixed.velocities or fixed.bodies) and it.resizes:
        name = "bodies" if fixed.bodies else "velocities"
        yield f"constraints.{name} go with a box of constant size: omit them, or what changes it"
    if fixed.bodies and (moved in ("langevin", "fire") or it.dynamics.inner > 1):
        yield "constraints.bodies go with nve, bussi and nose_hoover, and without dynamics.inner"
    if it.dynamics.inner > 1 and (
        moved not in ("nve", "bussi", "nose_hoover") or it.resizes or fixed.some or it.bonds.kind == "none"
    ):
        yield (
            "dynamics.inner above 1 needs bonds, and goes with nve, bussi and nose_hoover, at constant volume and"
            " without constraints"
        )
    partners = {
        "mtk": ("nose_hoover", "nve", "langevin"),
        "cell_rescaling": ("bussi",),
        "berendsen": ("nve", "langevin", "bussi", "nose_hoover"),
        "relax": ("fire",),
    }
    if held.kind != "none":
        if moved not in partners[held.kind]:
            known = " or ".join(partners[held.kind])
            yield f"barostat.kind = {held.kind!r} goes with dynamics.kind = {known}, not {moved}"
        if not set(held.dims) <= set(it.system.periodic):
            yield f"barostat.dims {list(held.dims)} must be in system.periodic, {list(it.system.periodic)}"
        if not {tilt[1] for tilt in held.tilts} <= set(it.system.periodic):
            yield f"barostat.tilts {list(held.tilts)} need edges that are periodic (system.periodic)"
        if held.kind == "berendsen" and (held.tilts or fixed.some or fixed.angles or it.dynamics.equilibrate):
            yield "barostat.kind = 'berendsen' goes without tilts, constraints and dynamics.equilibrate: omit them"
        if held.tilts and (fixed.some or fixed.angles):
            yield "barostat.tilts and constraints do not go together: omit one of them"
        if it.analysis.k_max:
            yield "analysis.k_max needs a box of constant size: omit it with a barostat"
        if it.dynamics.walls or it.dynamics.mirrors:
            yield "dynamics.walls and mirrors do not move with a box that a barostat changes: omit them"
    if it.deform.changes:
        if moved == "fire":
            yield "deform.changes change the box by a program: omit dynamics.kind = 'fire'"
        yield from _wrong_beside(it)
        yield from _wrong_flow(it)
        if it.analysis.k_max:
            yield "analysis.k_max needs a box of constant size: omit it with deform.changes"
        if it.time.steps <= it.dynamics.equilibrate:
            yield "deform.changes begin after dynamics.equilibrate steps, but the run ends before"
    if it.dynamics.sllod and not (it.deform.changes and it.deform.remap == "v"):
        yield "dynamics.sllod is for a box that changes while particles stay: set deform.changes and remap = 'v'"
    if (it.dynamics.walls or it.dynamics.mirrors) and (it.deform.changes or it.deform.start):
        yield "dynamics.walls and mirrors do not move with a box that changes: omit them"
    for key in ("walls", "mirrors"):
        for each in getattr(it.dynamics, key):
            if each.dim in it.system.periodic:
                yield f"dynamics.{key} need open dims, but {each.dim} is in system.periodic"


def _is_whole(it: Settings) -> bool:
    """Whether more than velocity Verlet and friction move particles and box."""
    given, fixed = it.dynamics, it.constraints
    held = it.resizes or fixed.some or fixed.angles or fixed.bodies or it.interaction.kind == "granular"
    more = given.equilibrate or given.inner > 1 or given.also or given.kind not in ("nve", "langevin")
    return bool(held or more)


def _wrong_beside(it: Settings) -> Iterator[str]:
    """A barostat beside a program of the box: each has edges and tilts of its own."""
    held = it.barostat
    if held.kind == "none":
        return
    twice = sorted({*held.dims, *held.tilts} & {each.of for each in it.deform.changes})
    if twice or held.kind != "mtk" or any(each.style == "volume" for each in it.deform.changes):
        both = f", not both {', '.join(twice)}" if twice else ""
        yield (
            "a barostat beside deform.changes is mtk, and changes other edges and tilts (barostat.dims, tilts)"
            f"{both}; without the style volume"
        )
    if it.constraints.some or it.constraints.angles:
        yield "a barostat, deform.changes and constraints do not go together: omit one of them"


def _wrong_flow(it: Settings) -> Iterator[str]:
    """A box that changes while its particles stay."""
    given = it.dynamics
    if given.sllod and (given.kind != "nose_hoover" or given.inner > 1):
        yield "dynamics.sllod is a way of nose_hoover, with dynamics.inner = 1"
    if it.deform.remap == "x":
        return
    fixed = it.constraints
    if it.barostat.kind != "none" or fixed.some or fixed.angles or fixed.bodies or it.interaction.kind == "granular":
        yield "deform.remap = 'v' goes without barostat, constraints and spheres that touch: omit them"
    if any(each.style == "volume" for each in it.deform.changes):
        yield "deform.remap = 'v' goes without the style volume: give the edge by another style"


def _wrong_groups(it: Settings) -> Iterator[str]:
    """Groups that are not there, and what does not work with them, or in a plane."""
    names, given = [each.name for each in it.groups], it.dynamics
    if len({*names}) < len(names):
        yield f"groups need different names, not {names}"
    for key, name in (*named_in(given), *it.table.groups()):
        if name not in (ALL, *names):
            yield f"{key} is {name!r}, and the groups are {[ALL, *names]}"
    if unknown := {each.group for each in it.system.changes} - {ALL, *names}:
        yield f"system.changes name the groups {sorted(unknown)}, and the groups are {[ALL, *names]}"
    if it.replicas.temperatures and (it.table.columns or it.table.sampled):
        yield "table.columns and averages are those of one set of particles: omit them, or replicas"
    if ALL in given.moves:
        yield "dynamics.moves is a list of groups; omit it where all particles move"
    fixed, parts = it.constraints, bool(given.moves or given.also or given.drives) or given.group != ALL
    bound = fixed.some or fixed.angles or fixed.bodies or it.interaction.kind == "granular"
    if parts and (it.barostat.kind != "none" or it.deform.changes or bound or given.inner > 1 or given.equilibrate):
        yield (
            "dynamics.moves, group, also and drives do not go with a box that changes, constraints, spheres that touch,"
            " dynamics.inner and equilibrate"
        )
    if parts and (given.kind == "fire" or it.replicas.temperatures):
        yield "dynamics.moves and group are for a motion in time, without replicas: push forces to 0 in a minimization"
    if given.kind != "langevin" and (given.within is not None or given.name or given.balanced):
        yield f"dynamics.within, name and balanced are of langevin, and dynamics.kind is {given.kind}"
    if given.also and given.kind in ("nve", "fire"):
        yield f"dynamics.also are more thermostats, but dynamics.kind is {given.kind}: name the first of them there"
    if any(each.kind == "friction" for each in given.pushes) and (bound or given.inner > 1 or given.kind == "fire"):
        yield "dynamics.pushes of kind friction go without fire, constraints, spheres that touch and dynamics.inner"
    if any(each.kind == "charges" for each in given.pushes) and it.coulomb.kind == "none":
        yield "dynamics.pushes of kind charges need charges: set coulomb.kind"
    if given.corrections and (given.kind == "fire" or bound):
        yield "dynamics.corrections change velocities in time: without fire, constraints and spheres that touch"
    if it.system.dims == 2:
        wrong = {
            "barostat": it.barostat.kind != "none",
            "deform of z, xz and yz": any("z" in each.of for each in (*it.deform.changes, *it.deform.start)),
            "tilts xz and yz": any(it.system.tilt[1:]),
            "interaction.tail": it.interaction.tail,
            "constraints": bool(bound),
            "dynamics.equilibrate": given.equilibrate > 0,
        }
        if named := [name for name, there in wrong.items() if there]:
            yield f"system.dims = 2 does not go with {', '.join(named)}"


def _wrong_interaction(it: Settings) -> Iterator[str]:
    """Forces that do not go with the particles, or with each other."""
    fixed = it.constraints
    types, given = len(it.system.masses or it.system.fractions), it.interaction
    if it.system.kind == "water":
        sound = it.bonds.kind == "harmonic" and it.angles.kind in ("harmonic", "charmm")
        if not sound or len(it.bonds.parameters) != 1 or len(it.angles.parameters) != 1:
            yield "system.kind = 'water' needs harmonic bonds and angles, and parameters of one type each"
        elif len(it.bonds.parameters[0]) < 2 or len(it.angles.parameters[0]) < 2:
            yield "system.kind = 'water' needs r0 and theta0, the second number of bonds and angles"
        if bool(fixed.bonds) != bool(fixed.angles):
            yield "water is rigid (constraints.bonds = [1] and angles = [1]) or has no constraints"
    if not it.system.file and given.kind == "lennard_jones" and types != len(given.epsilon):
        yield f"interaction has {len(given.epsilon)} types of particles and system.masses {types}"
    if not it.system.file and any(max(pair.types) > types for pair in given.pairs):
        yield f"interaction.pairs name unknown types: the types are 1 to {types}"
    if it.coulomb.kind != "none" and given.kind in (*OF_FILES, *OF_BRICKS, "table"):
        yield f"coulomb.kind = {it.coulomb.kind!r} goes with pair potentials, not with {given.kind}"
    if it.coulomb.kind in ("ewald", "pppm") and set(it.system.periodic) != {"x", "y", "z"}:
        yield f"coulomb.kind = {it.coulomb.kind!r} needs a box that is periodic in x, y and z"
    if it.coulomb.kind == "pppm" and it.ranks.balance:
        yield "coulomb.kind = 'pppm' needs equal domains: omit ranks.balance, or take ewald"
    if it.interaction.shift and it.interaction.tail:
        yield "interaction.tail corrects a truncated potential, not one that is shifted"
    if given.ramp_to and (it.coulomb.kind != "none" or it.coupling.states or it.dynamics.kind == "fire"):
        yield "interaction.ramp_to goes with a motion in time, without charges and coupling: omit it"
    if given.kind == "granular":
        yield from _wrong_spheres(it)


def _wrong_spheres(it: Settings) -> Iterator[str]:
    """What does not go with spheres that touch."""
    given = it.interaction
    wrong = {
        "dynamics.kind other than nve": it.dynamics.kind != "nve",
        "dynamics.equilibrate": it.dynamics.equilibrate > 0,
        "barostat": it.barostat.kind != "none",
        "deform": bool(it.deform.changes or it.deform.start),
        "bonds and other terms": any(getattr(it, name).kind != "none" for name in BOUND),
        "coulomb": it.coulomb.kind != "none",
        "restraints and metadynamics": bool(it.restraints or it.metadynamics.variables),
        "units other than lj": it.system.units != "lj",
        "system.masses (granular.densities give them)": bool(it.system.masses),
        "precision = 'mixed'": it.precision == "mixed",
        "interaction.shift, tail, switch, pairs": bool(given.shift or given.tail or given.switch or given.pairs),
    }
    if named := [name for name, there in wrong.items() if there]:
        yield f"interaction.kind = 'granular' does not go with {', '.join(named)}"
    if not it.system.file and len(it.system.fractions) != len(it.granular.diameters):
        yield "granular.diameters and densities need one number for each of system.fractions"


def _wrong_stages(it: Settings) -> Iterator[str]:
    """Stages that do not go with each other, or with the rest."""
    if it.variables or it.coupling.states or it.replicas.temperatures:
        yield "stages do not go with variables, coupling and replicas: omit one of them"
    if it.interaction.kind == "granular" and any(stage.velocities != "keep" for stage in it.stages):
        yield "spheres keep their velocities from stage to stage: omit stages.velocities"
    staged, movers = it.staged, set[str]()
    for number, each in enumerate(staged, 1):
        if number > 1 and it.stages[number - 2].goes_on and each.mover not in movers:
            known = ", ".join(sorted(movers))
            yield f"stage {number} goes on from {each.mover}, but before it are {known}"
        movers.add(each.mover)
        yield from (f"in stage {number} of {len(staged)}: {problem}" for problem in problems(each))
    names = [ALL, *(each.name for each in it.groups)]
    for number, stage in enumerate(it.stages, 2):
        yield from (
            f"in stage {number} of {len(staged)}: changes.group is {each.group!r}, and the groups are {names}"
            for each in stage.changes
            if each.group not in names
        )
    others = {"granular" for each in staged if each.interaction.kind == "granular"}
    others |= {"coulomb" for each in staged if each.coulomb.kind != "none"}
    if others and any(stage.interaction is not None for stage in it.stages):
        yield f"stages.interaction is for particles without charges, and not for spheres that touch: {sorted(others)}"
    if len({each.constraints.bodies for each in staged}) > 1:
        yield "constraints.bodies are the same in all stages, or in none"


def _wrong_averages(it: Settings) -> Iterator[str]:
    """Files of means over steps that are those of others, and bins of a box without ends."""
    tables = (it.table, *(stage.table for stage in it.stages if stage.table is not None))
    names = [each.file for each in dict.fromkeys(one for table in tables for one in table.sampled) if each.file]
    if twice := {*(name for name in names if names.count(name) > 1), *({*names} & {*TAKEN})}:
        yield f"table.averages: {', '.join(sorted(twice))} is a file of something else: give another name"
    dynamics = [stage.dynamics for stage in it.staged]
    given = {each.name for one in dynamics for each in (one, *one.also, *one.corrections)}
    if unknown := {name for table in tables for name in table.exchanged} - given:
        yield f"table.exchanged: there are no dynamics.corrections or baths {', '.join(sorted(unknown))}"
    kinds = {each.kind for table in tables for each in table.computed} & {*OF_PAIRS}
    if kinds and not all(each.is_of_pairs for each in it.staged):
        said = "are of pairs alone, or of embedded atoms, without charges and bonds"
        yield f"table.computed: {', '.join(sorted(kinds))} {said}"
    along = {dim for table in tables for each in table.profiles for dim in each.bins.along}
    if ends := along & {*it.system.follows}:
        yield f"table.profiles: no bins go along {', '.join(sorted(ends))}, where the ends of the box follow particles"


def _wrong_slow(it: Settings) -> Iterator[str]:
    """Variables, biases and a coupling that do not go together, or with the rest."""
    if it.replicas.temperatures:
        if it.dynamics.kind not in ("langevin", "bussi", "nose_hoover") or it.resizes:
            yield "replicas need dynamics.kind langevin, bussi or nose_hoover, at constant volume"
        if it.variables or it.coupling.states or it.analysis.measures:
            yield "replicas do not work with variables, coupling and [analysis]: omit these"
        if it.dynamics.temperature != it.replicas.temperatures[0]:
            yield (
                f"dynamics.temperature is {it.dynamics.temperature:g}, and that of the first replica"
                f" {it.replicas.temperatures[0]:g}: set both alike"
            )
    names = [each.name for each in it.variables]
    asked = [*(each.variable for each in it.restraints), *it.metadynamics.variables]
    if len(set(names)) != len(names):
        yield f"variables need different names, not {names}"
    if unknown := sorted({*asked} - {*names}):
        yield f"there are no variables {unknown}: the variables are {names}"
    if it.resizes and any(each.kind == "position" for each in it.variables):
        yield "variables of kind position need a box of constant size: omit barostat and deform"
    if it.variables and it.dynamics.kind == "fire":
        yield "collective variables need a motion in time, but fire is a minimization: omit them"
    if (it.metadynamics.variables or it.coupling.states) and not it.target:
        yield "metadynamics and coupling need a thermostat: set dynamics.kind = 'langevin', for example"
    coupled, pair = any(each.coupled for each in it.restraints), it.interaction
    if coupled and not it.coupling.states:
        yield "a restraint has coupled = true, but coupling.states is empty: give states"
    if not it.coupling.states:
        return
    if not (coupled or it.coupling.types):
        yield "coupling.states change nothing: give coupling.types, or a restraint that is coupled"
    if len(it.coupling.states) > it.time.steps:
        yield f"coupling has {len(it.coupling.states)} states, but time.steps is {it.time.steps}"
    plain = pair.kind == "lennard_jones" and not pair.switch and not pair.tail and it.coulomb.kind == "none"
    if it.coupling.types and not plain:
        yield "coupling.types needs Lennard-Jones pairs without switch, tail and charges"
    if it.coupling.types and it.bonds.kind != "none":
        yield "coupling.types does not work with bonds: omit one of them"
    if it.coupling.types and it.precision == "mixed":
        yield "a coupling measures energies in double precision: set precision to double"
