"""The command velocity: what it says before the first run, and what of it waits for the next one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hpckit.apps.md.lammps.fixes.commands import FixCommands
from hpckit.apps.md.lammps.fixes.styles import HOLDS, RIGID
from hpckit.apps.md.lammps.making.pushes import change_of, velocity_of
from hpckit.apps.md.lammps.particles import MAKERS, ParticleCommands
from hpckit.apps.md.lammps.state import ScriptState


class VelocityCommands:
    """Velocities that a script draws, scales, sets or stops."""

    def __init__(self, script: ScriptState, particles: ParticleCommands, fixes: FixCommands) -> None:
        self.script, self.particles, self.fixes = script, particles, fixes
        self.given: dict[str, Any] = {}  # between two runs: settings of the stage that comes
        self.all_freedom = False  # whether no fix shake was there at the last `velocity`
        self.commands: dict[str, Callable[..., None]] = {"velocity": self._velocity}

    def _velocity(self, group: str, style: str, *rest: str) -> None:
        self._require_temperature(group, rest)
        plain = group == "all" and style in ("create", "zero") and not {"temp", "sum"} & {*rest}
        making, system = self.script.making, self.script.section("system")
        still = "temperature" in system and "momentum" in system.get("remove", ["momentum"])
        if not plain and {"group", *MAKERS} & self.script.failed:
            return
        if making.box and not self.script.started:
            if group != "all" and group not in self.particles.groups:
                raise ValueError(f"velocity {group} {style}: there is no group {group}")
            making.add(self.script.number, "velocity", velocity_of([group, style, *rest], making.spacing))
            again = style == "create" and "temperature" in system
            if not plain or again or (style == "zero" and "temperature" in system and not still):
                self.script.moved = True
            if self.script.moved:
                return
        if self.script.started and (self.given.get("changes") or not self._is_plain(group, style, rest)):
            self.particles.choose(group)
            change = change_of([group, style, *rest], making.spacing)
            self.given = {**self.given, "changes": [*self.given.get("changes", []), change]}
            return
        lost = style == "zero" and not (still and rest == ("linear",))
        if "file" in system and not self.script.started and (not plain or "changes" in system or lost):
            self.particles.choose(group)
            change = change_of([group, style, *rest], making.spacing)
            self.script.set("system.changes", [*system.get("changes", []), change])
            return
        known = {"create": 2, "scale": 1, "zero": 1}.get(style, 9)
        if group != "all" or len(rest) < known or (style == "scale" and not self.script.started):
            raise ValueError(
                f"velocity {group} {style}: known are velocity all create T SEED, zero linear, and scale T after a run"
            )
        if style == "zero":
            drawn = self.given.get("velocities") == "draw" and "momentum" in self.given.get("remove", ["momentum"])
            if rest[0] != "linear" or (self.given and not drawn):
                raise ValueError("velocity all zero: known is linear, without scale between two runs")
            if not self.script.started and "file" in system and not still:
                raise ValueError("velocity all zero before the first run: known of velocities that are drawn mom yes")
            if self.script.started and not drawn:
                self.given = {"velocities": "center"}
            return
        options = dict(zip(rest[known::2], rest[known + 1 :: 2], strict=False))
        flags = ("yes", "no")
        allowed = {"dist": ("uniform", "gaussian"), "mom": flags, "rot": flags, "loop": ("all", "geom")}
        for key, value in options.items():
            if value not in allowed.get(key, ()):
                raise ValueError(f"velocity … {key} {value}: not known here")
        self.all_freedom = not any(fix.words[0] in HOLDS for fix in self.fixes.named.values())
        if style == "scale":
            if self.given:
                raise ValueError("velocity all scale: known alone between two runs, and not after min_style fire")
            self.given = {"velocities": "scale", "temperature": float(rest[0])}
            return
        drawn = "lammps_geom" if options.get("loop") == "geom" else "lammps"
        drawn += "_gaussian" if options.get("dist") == "gaussian" else ""
        found: dict[str, Any] = {"temperature": float(rest[0]), "seed": int(rest[1]), "draw": drawn}
        removed = {"momentum": options.get("mom", "yes"), "rotation": options.get("rot", "no")}
        if [*removed.values()] != ["yes", "no"]:
            found["remove"] = [name for name, flag in removed.items() if flag == "yes"]
        if self.script.started:
            self.given = {"velocities": "draw", **found}
            return
        for key, value in found.items():
            self.script.set(f"system.{key}", value)
        if "file" in self.script.section("system"):
            self.script.set("system.velocities", "draw")

    def _is_plain(self, group: str, style: str, words: tuple[str, ...]) -> bool:
        """Whether a stage has a word of its own for what a velocity between two runs does."""
        held = any(fix.words[0] in (*HOLDS, *RIGID) for fix in self.fixes.named.values())
        if self.given and style != "create" and not held:
            return self.given.get("velocities") == "draw" and words[:1] == ("linear",)
        return group == "all" and (style in ("create", "scale") or words[:1] == ("linear",)) and "sum" not in words

    def _require_temperature(self, group: str, words: tuple[str, ...]) -> None:
        """Raise `ValueError` for a temperature other than that of the group itself."""
        for key, name in pairwise(words):
            if key == "temp" and self.script.computes.get(name) != (group, "temp"):
                raise ValueError(f"velocity {group} … temp {name}: known is a compute {name} {group} temp")
