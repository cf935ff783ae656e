"""The commands that say how particles move: lists of neighbors, fixes, steps, and the runs that become stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpckit.apps.md.lammps.fixes.boxes import deformed
from hpckit.apps.md.lammps.fixes.commands import FixCommands
from hpckit.apps.md.lammps.fixes.motion import motion_of
from hpckit.apps.md.lammps.fixes.outside import Scales, outside_of
from hpckit.apps.md.lammps.fixes.styles import MOVERS, OUTSIDE, PUSHES, RELAX, UNMOVED, Fix
from hpckit.apps.md.lammps.forces import ForceCommands
from hpckit.apps.md.lammps.particles import ParticleCommands
from hpckit.apps.md.lammps.state import ScriptState
from hpckit.apps.md.lammps.table_commands import TableCommands
from hpckit.apps.md.lammps.velocity_commands import VelocityCommands
from hpckit.apps.md.molecules.settings import IN_WAVES
from hpckit.apps.md.motion.settings import ANEW
from hpckit.md.units import UNITS

DEFAULT_STEP = {"lj": 0.005, "metal": 0.001, "real": 1.0}
DUMPS = ("atom", "custom", "cfg", "dcd", "h5md", "netcdf", "vtk", "xtc", "xyz", "yaml")  # frames of particles
PICTURES = ("image", "local", "movie")  # nothing stands for these
NEVER = 10**9  # steps between lines of the thermo table that has the ends of runs alone
SMALLEST_FORCE = {"lj": 1e-10, "metal": 1e-10, "real": 1e-9}  # of a minimization that gives none
PULLS = {"real": 23.060549}  # of a volt per length on a unit charge, as LAMMPS has it
DEFAULT_SKIN = {"lj": 0.3, "metal": 2.0, "real": 2.0}


@dataclass
class ScriptStage:
    """A run or a minimize: the settings of its sections by key, their lines, and its own line."""

    line: int
    steps: int
    settings: dict[str, Any]
    lines: dict[str, int]
    velocity: dict[str, Any]
    fixes: dict[str, Fix]  # none of a minimize
    interaction: dict[str, Any] | None = None  # that of the pairs from here on, if it is another one

    @property
    def goes_on(self) -> bool:
        """Whether a second run of it is the same as one of twice as many steps."""
        ends = any(key.endswith("ramp_to") or key == "deform.changes" for key in self.settings)
        ends = ends or any("ramp_to" in each for each in self.settings.get("dynamics.corrections", []))
        return not ends and bool(self.fixes)

    @property
    def resizes(self) -> bool:
        """Whether the box may be another one after it, in which LAMMPS splits charges anew."""
        return any(key.startswith(("barostat.", "deform.")) for key in self.settings)

    @property
    def movers(self) -> list[Fix]:
        """The fixes that hold a temperature or a pressure, whose state lives as long as they do."""
        return [fix for fix in self.fixes.values() if fix.words[0] in MOVERS]


class MotionCommands:
    """The runs and minimizations of a script, and what lives between them."""

    def __init__(self, script: ScriptState, particles: ParticleCommands, forces: ForceCommands) -> None:
        self.script, self.particles, self.forces = script, particles, forces
        self.fixes = FixCommands(script, particles)
        self.velocities = VelocityCommands(script, particles, self.fixes)
        self.table = TableCommands(script, particles, self.fixes)
        self.stages: list[ScriptStage] = []
        self.pending: dict[str, Any] = {}  # settings that wait for the next run, by key
        self.now: int | None = 0  # LAMMPS's number of the step, None where a minimization makes it unknown
        self.total: int | None = 0  # the same without reset_timestep
        self.reset = 0  # at which stage LAMMPS's time began anew, by a reset_timestep
        self.inner = 1  # steps of bonds in one of the run
        self.span = (0.0, 1.0)  # the part of what start and stop of a run are the ends of
        self.by_fire = False  # as min_style says
        self.commands: dict[str, Callable[..., None]] = {
            **self.fixes.commands,
            **self.table.commands,
            **self.velocities.commands,
            "neighbor": self._neighbor,
            "neigh_modify": self._neigh_modify,
            "change_box": self._change_box,
            "timestep": self._timestep,
            "run_style": self._run_style,
            "reset_timestep": self._reset_timestep,
            "thermo": self._thermo,
            "dump": self._dump,
            "undump": self._undump,
            "min_style": self._min_style,
            "minimize": self._minimize,
            "run": self._run,
        }

    @property
    def resized(self) -> bool:
        """Whether the box may be another one than at the start."""
        relaxed = any(fix.words[0] == RELAX for fix in self.fixes.named.values())
        follows = "follows" in self.script.section("system")
        return follows or relaxed or "deform.start" in self.pending or any(each.resizes for each in self.stages)

    @property
    def dt(self) -> float:
        """The time step that a run would have now."""
        steps = (each.settings["time.dt"] for each in reversed(self.stages) if "time.dt" in each.settings)
        return float(self.pending.get("time.dt", next(steps, DEFAULT_STEP[self.script.units])))

    def finish(self) -> None:
        """Set times, motion and stages; raises `ValueError` where nothing runs."""
        if not self.stages:
            raise ValueError("the script has no run, and no minimize")
        self.fixes.finish()
        if "skin" not in self.script.section("neighbors"):
            self.script.set("neighbors.skin", DEFAULT_SKIN[self.script.units])
        first, *others = self.stages
        self.script.set("time.steps", first.steps, first.line)
        self.script.set("time.thermo", first.settings.pop("time.thermo", max(1, first.steps)), first.line)
        self.script.set("time.dt", first.settings.pop("time.dt", DEFAULT_STEP[self.script.units]), first.line)
        for key, value in first.settings.items():
            self.script.set(key, value, first.lines.get(key, first.line))
        for key, value in (first.interaction or {}).items():
            self.script.set(f"interaction.{key}", value, first.line)
        before, movers, stages = _sections(first.settings), first.movers, list[dict[str, Any]]()
        for stage in others:
            before["deform"] = {key: value for key, value in before["deform"].items() if key != "start"}
            now = _sections(stage.settings)
            for name in ("time.dt", "time.thermo", "output.every"):
                if name in stage.settings:
                    now[name.split(".")[1]] = stage.settings[name]
            entry = {"steps": stage.steps, **stage.velocity}
            if stage.interaction is not None:
                entry["interaction"] = stage.interaction
            anew = bool(stage.fixes) and stage.movers != movers
            again = anew or any("ramp_to" in now[name] for name in ("dynamics", "barostat"))
            for name, value in now.items():
                if name not in ANEW or value != before[name] or (again and name in ("dynamics", "barostat")):
                    entry[name] = value
            if stage.movers and not anew and entry.keys() & {"dynamics", "barostat"}:
                entry["goes_on"] = True
            stages.append(entry)
            self.script.lines["stages", len(stages) - 1] = stage.line
            before, movers = {name: now[name] for name in ANEW}, stage.movers if stage.fixes else movers
        if stages:
            self.script.set("stages", stages, others[0].line)

    def _neighbor(self, skin: str, style: str = "bin") -> None:
        self.script.set("neighbors.skin", float(skin))

    def _neigh_modify(self, *words: str) -> None:
        if words[:2] == ("exclude", "group") and len(words) == 4 and words[2] == words[3]:
            self.fixes.apart.append((words[2], self.script.number))
            return
        if words[:2] == ("exclude", "type") and len(words) == 4:
            a, b = sorted(map(int, words[2:]))
            self.script.apart.append((a, b, self.script.number))
            return
        for key, value in zip(words[::2], words[1::2], strict=True):
            if key in ("every", "delay"):
                self.script.set(f"neighbors.{key}", int(value))
            elif key == "check":
                self.script.set("neighbors.check", value == "yes")
            elif key not in ("one", "page", "cluster", "binsize") and (key, value) != ("once", "no"):
                raise ValueError(
                    f"neigh_modify {key}: known are every, delay, check, one, page, and exclude type and group"
                )

    def _change_box(self, group: str, *words: str) -> None:
        if group != "all":
            raise ValueError(f"change_box {group}: known is the group all")
        kept = [word for word in words if word not in ("triclinic", "remap")]
        changes = deformed(["1", *kept], self.script.unit)["changes"]
        wrong = [each["style"] for each in changes if each["style"] not in ("final", "delta", "scale", "volume")]
        if wrong or (changes and words.count("remap") != 1) or {"flip"} & {*words}:
            known = "x, y, z, xy, xz, yz by final, delta, scale and volume, once each, and then remap"
            raise ValueError(f"change_box all {' '.join(words)}: known are triclinic, and {known}")
        if "deform.start" in self.pending:
            raise ValueError("change_box comes twice: give all edges and tilts in one")
        if changes:
            self.pending["deform.start"] = changes

    def _timestep(self, dt: str) -> None:
        self.pending["time.dt"] = float(dt)

    def _run_style(self, style: str, *words: str) -> None:
        if style == "verlet" and not words:
            self.inner = 1
            return
        levels = dict(zip(words[2::2], words[3::2], strict=False))
        inner = {name: levels.get(name, levels.get("bond", "1")) for name in ("bond", "angle", "dihedral", "improper")}
        outer = {name: levels.get(name, "2") for name in ("pair", "kspace")}
        known = {*inner, *outer}
        sound = style == "respa" and len(words) >= 2 and len(words) % 2 == 0 and words[0] == "2" and words[1].isdigit()
        if not sound or {*levels} - known or {*inner.values()} != {"1"} or {*outer.values()} != {"2"}:
            raise ValueError(
                f"run_style {style} {' '.join(words)}: known are verlet, and respa 2 N with bond, angle, dihedral and"
                " improper 1, pair and kspace 2"
            )
        self.inner = max(1, int(words[1]))

    def _thermo(self, every: str) -> None:
        self.pending["time.thermo"] = int(every) or NEVER

    def _dump(self, name: str, group: str, style: str, every: str, file: str, *rest: str) -> None:
        if style not in (*DUMPS, *PICTURES):
            raise ValueError(f"dump {name} {group} {style}: known are {', '.join((*DUMPS, *PICTURES))}")
        if style in PICTURES:
            self.script.note(f"dump {style} is passed over")
            return
        self.pending["output.every"] = int(every)
        self.script.set("output.format", "dump")
        self.script.note("the dump is output/ in the run directory, of style atom with velocities, of all particles")

    def _undump(self, name: str) -> None:
        self.pending["output.every"] = 0

    def _min_style(self, name: str, *rest: str) -> None:
        self.by_fire = name in ("fire", "quickmin")
        if name != "fire":
            self.script.note(f"min_style {name}: hpckit goes down by fire")

    def _minimize(self, energy: str, force: str, steps: str, evaluations: str) -> None:
        if float(energy):
            self.script.note("minimize ends by the largest force alone, not by energies")
        least = float(force) or SMALLEST_FORCE[self.script.units]
        settings = {"dynamics.kind": "fire", "dynamics.largest_force": least}
        # A step of fire has one evaluation, an iteration of others some of them.
        most = int(evaluations) if int(steps) else 0
        self._add_stage(min(int(steps), most) if self.by_fire else most, settings, {})
        if most:
            self.now = self.total = None
        if self.by_fire:  # it brings the particles to rest; other styles leave their velocities alone
            self.velocities.given = {"velocities": "rest"}

    def _run(self, steps: str, *rest: str) -> None:
        left, number, span = [*rest], int(steps), dict[str, int]()
        if "every" in left:  # what comes between may print
            at = left.index("every")
            printing = {word.split(maxsplit=1)[0] for word in left[at + 2 :] if word} <= {"print", "NULL"}
            left = left[:at] if printing else left
        if "upto" in left and self.now is not None:
            left.remove("upto")
            number -= self.now
        options = dict(zip(left[::2], left[1::2], strict=False))
        if len(left) % 2 or not options.keys() <= {"pre", "post", "start", "stop"}:
            known = "a number of steps, pre, post, start, stop, upto, and every N with print"
            raise ValueError(f"run {steps} {' '.join(rest)}: known are {known}")
        if number < 0:
            raise ValueError(f"run {steps}: fewer than 0 steps")
        if {"start", "stop"} & options.keys():
            if self.now is None:
                raise ValueError(f"run {steps} … start, stop: known before a minimization, or after reset_timestep")
            span = {key: int(options[key]) for key in ("start", "stop") if key in options}
            begin, end = span.get("start", self.now), span.get("stop", self.now + number)
            if not begin <= self.now <= self.now + number <= end:
                raise ValueError(f"run {steps} … start {begin} stop {end}: the run is from {self.now} on")
            self.span = (self.now - begin) / max(end - begin, 1), (self.now + number - begin) / max(end - begin, 1)
        settings = {"dynamics.inner": self.inner} if self.inner > 1 else {}
        self._add_stage(number, settings, dict(self.fixes.named))
        self.span = (0.0, 1.0)
        self.now = None if self.now is None else self.now + number
        self.total = None if self.total is None else self.total + number

    def _reset_timestep(self, number: str, *rest: str) -> None:
        self.now, self.reset = int(number), len(self.stages)

    def _unit_of(self, fixes: dict[str, Fix]) -> float:
        """The unit of lengths in fixes."""
        return self.script.unit if any(fix.words[0] == "deform" for fix in fixes.values()) else 1.0

    def _add_stage(self, steps: int, settings: dict[str, Any], fixes: dict[str, Fix]) -> None:
        """A run, or a minimize, with what was said before it."""
        last = self.stages[-1] if self.stages else None
        same = last is not None and last.fixes == fixes and last.settings.get("dynamics.inner", 1) == self.inner
        same = same and last is not None and last.settings.get("dynamics.counted", {}) == self.fixes.counted
        table = {f"table.{key}": value for key, value in self.table.settings(self._counts()).items()}
        kept = {} if last is None else {key: value for key, value in last.settings.items() if key.startswith("table.")}
        same = same and kept == table
        split = bool(last and last.resizes) and self.script.section("coulomb").get("kind") in IN_WAVES
        interaction = self.forces.taken()
        ramp = None if "dynamics.kind" in settings else self.fixes.ramp
        if ramp is not None and "fix" not in self.script.failed:
            interaction = ramp.of(interaction or self.forces.settings(), steps, self.now)
        same = same and interaction is None
        if last and same and last.goes_on and not (self.pending or self.velocities.given or split):
            last.steps += steps
            return
        lines, minimizes = dict.fromkeys(settings, self.script.number), "dynamics.kind" in settings
        given = self.fixes.named if minimizes else fixes  # fix box/relax acts in a minimize
        outer = (*OUTSIDE, *PUSHES)
        outside_too = (*outer, UNMOVED)
        inside = {name: fix for name, fix in given.items() if fix.words[0] not in outer}
        outside = [fix for fix in given.values() if fix.words[0] in outside_too]
        if self.fixes.counted:
            settings["dynamics.counted"], lines["dynamics.counted"] = self.fixes.counted, self.script.number
        if "fix" not in self.script.failed:
            spacing, energy = self.script.making.spacing, UNITS[self.script.units].energy
            scales = Scales(spacing, self.dt, self.script.types, energy, PULLS.get(self.script.units, 1.0))
            for key, value, line in (
                *outside_of(outside, minimizes, scales),
                *motion_of(inside, minimizes, self._unit_of(inside), spacing.tolist()),
            ):
                settings[key], lines[key] = value, line
        if self.velocities.all_freedom and any(key.startswith("constraints.") for key in settings):
            if self.stages and self.velocities.given:
                self.velocities.given["all_freedom"] = True
            elif "temperature" in self.script.section("system"):
                self.script.set("system.all_freedom", True)
        self.velocities.all_freedom = False
        settings |= table
        self._take_part(settings)
        self._count_steps(settings)
        self.script.started = True
        self.stages.append(
            ScriptStage(
                self.script.number, steps, settings | self.pending, lines, self.velocities.given, fixes, interaction
            )
        )
        self.pending, self.velocities.given = {}, {}

    def _counts(self) -> dict[str, Any]:
        """LAMMPS's numbers of steps and its time in the next stage, as settings of the table: by those of the run, or
        of the stage after a minimization, whose steps nobody knows before. Nothing without a reset_timestep.
        """
        times, dt = list[float](), DEFAULT_STEP[self.script.units]
        for stage in self.stages:
            dt = float(stage.settings.get("time.dt", dt))
            times.append(stage.steps * dt)
        if self.now is None or self.now == self.total:
            return {}
        if self.total is None:
            return {"counts": "stage", "first_step": self.now, "first_time": sum(times[self.reset :])}
        return {"first_step": self.now - self.total, "first_time": -sum(times[: self.reset])}

    def _take_part(self, settings: dict[str, Any]) -> None:
        """Of what grows from the start to the stop of several runs, that of this one."""
        if self.span == (0.0, 1.0):
            return
        if "deform.changes" in settings:
            raise ValueError("run … start, stop: known without fix deform")
        each = [dict(one) for one in settings.get("dynamics.corrections", [])]
        for table, prefix in ((settings, "dynamics."), (settings, "barostat."), *((one, "") for one in each)):
            name = "pressure" if prefix == "barostat." else "temperature"
            if f"{prefix}ramp_to" in table:
                first, last = table[prefix + name], table[f"{prefix}ramp_to"]
                begin, end = (first + share * (last - first) for share in self.span)
                table[prefix + name], table[f"{prefix}ramp_to"] = begin, end
        if each:
            settings["dynamics.corrections"] = each

    def _count_steps(self, settings: dict[str, Any]) -> None:
        """Give corrections that come every so many steps those of the stages before, after the last minimization."""
        before = 0
        for stage in self.stages:
            before = before + stage.steps if stage.fixes else 0
        if any(before % each.get("every", 1) for each in settings.get("dynamics.corrections", [])):
            each = settings["dynamics.corrections"]
            settings["dynamics.corrections"] = [{**one, "before": before} for one in each]


def _sections(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of the sections that a stage may have anew."""
    found: dict[str, dict[str, Any]] = {name: {} for name in ANEW}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if section in found:
            found[section][name] = value
    return found
