"""The commands of fixes, and of what temperatures count: what holds from one run of a script to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpckit.apps.md.lammps.fixes.granular import FIXES as OF_SPHERES
from hpckit.apps.md.lammps.fixes.granular import FREEZE, ROLLING
from hpckit.apps.md.lammps.fixes.motion import require_known
from hpckit.apps.md.lammps.fixes.outside import require_readable
from hpckit.apps.md.lammps.fixes.styles import (
    ADAPTS,
    CORRECTIONS,
    GRAVITY,
    HEATS,
    MEASURES,
    OF_GROUPS,
    OUTSIDE,
    PUSHES,
    REFLECTS,
    RESCALES,
    SAMPLING,
    SHIFTS,
    WALLS,
    Fix,
    SoftRamp,
    ramp_of,
)
from hpckit.apps.md.lammps.particles import MAKERS, ParticleCommands
from hpckit.apps.md.lammps.state import ScriptMistake, ScriptState


class FixCommands:
    """The fixes of a script by name, spheres that stand still, and what temperatures count."""

    def __init__(self, script: ScriptState, particles: ParticleCommands) -> None:
        self.script, self.particles = script, particles
        self.counted: dict[str, Any] = {}  # what temperatures of the thermo table count
        self.named: dict[str, Fix] = {}
        self.sampled: dict[str, tuple[str, ...]] = {}  # group, style and words of fixes that take samples
        self.ramps: dict[str, SoftRamp] = {}  # of each fix adapt
        self.fixed = 0  # fixes so far
        self.frozen: dict[str, set[int]] = {}  # the types of each fix freeze
        self.rolling: set[int] = set()  # those of fix nve/sphere
        self.apart: list[tuple[str, int]] = []  # groups without contacts among themselves, and lines
        self.commands: dict[str, Callable[..., None]] = {
            "compute_modify": self._compute_modify,
            "fix": self._fix,
            "fix_modify": self._fix_modify,
            "unfix": self._unfix,
        }

    @property
    def ramp(self) -> SoftRamp | None:
        """How the strength of soft pairs changes in the next run; None: not."""
        if len(self.ramps) > 1:
            raise ValueError(f"fix {ADAPTS} comes {len(self.ramps)} times: give one")
        return next(iter(self.ramps.values()), None)

    def finish(self) -> None:
        """Set the types of spheres that do not move."""
        script, still = self.script, set().union(*self.frozen.values())
        for group, number in self.apart:
            if not (script.kinds_of(group) or {0}) <= still:
                text = f"neigh_modify exclude group {group} {group}: known for types of fix {FREEZE} alone"
                script.mistakes.append(ScriptMistake(number, text))
        if script.section("interaction").get("kind") != "granular":
            if self.frozen or self.rolling:
                raise ValueError(f"fix {FREEZE} and {ROLLING} go with spheres: pair_style gran/…")
            return
        if self.rolling != {*range(1, script.types + 1)} - still:
            raise ValueError(f"fix {ROLLING} must move all types but those of fix {FREEZE}")
        script.set("granular.still", sorted(still))

    def count(self, name: str) -> None:
        """Let temperatures count what this compute does. Raises `ValueError` for one of another style."""
        self.counted = self._counted(name)

    def _counted(self, name: str) -> dict[str, Any]:
        """What the temperature of a compute counts, as settings; nothing of all particles. Raises `ValueError`."""
        if "compute" in self.script.failed or {"group", *MAKERS} & self.script.failed:
            return {}
        group, style, *words = self.script.computes.get(name, ("all", "temp") if name == "thermo_temp" else ("", ""))
        flags = words if style == "temp/partial" else ["1", "1", "1"]
        sound = style in ("temp", "temp/deform", "temp/partial") and len(flags) == 3
        if not sound or not {*flags} <= {"0", "1"} or "1" not in flags:
            raise ValueError(f"temp {name}: known are computes of style temp, temp/deform, and temp/partial X Y Z")
        self.particles.choose(group)
        along = [axis for axis, flag in zip("xyz", flags, strict=True) if flag == "1"]
        if style == "temp/deform":
            return {"group": group, "thermal": True}
        return {} if (group, along) == ("all", ["x", "y", "z"]) else {"group": group, "along": along}

    def _compute_modify(self, name: str, *words: str) -> None:
        known = {"dynamic": ("yes", "no"), "dynamic/dof": ("yes", "no")}
        options = dict(zip(words[::2], words[1::2], strict=False))
        if not words or len(words) % 2 or any(value not in known.get(key, ()) for key, value in options.items()):
            raise ValueError(f"compute_modify {name} {' '.join(words)}: known is dynamic/dof")

    def _fix(self, name: str, group: str, style: str, *rest: str) -> None:
        if style in SAMPLING:
            count = SAMPLING[style]
            if len(rest) <= count or not all(word.isdigit() and int(word) for word in rest[:count]):
                numbers = "NEVERY NREPEAT NFREQ" if count > 1 else "N"
                raise ValueError(f"fix {name} {group} {style}: known are {numbers} above 0, and values")
            self.sampled[name] = group, style, *rest
            return
        if style == ADAPTS:
            self.ramps[name] = ramp_of(rest)
            return
        if style.startswith(MEASURES):
            self.script.note(f"fix {style} is passed over: see the sections analysis and ranks")
            return
        if style in OF_SPHERES:
            self._fix_of_spheres(name, group, style, rest)
            return
        if style == SHIFTS and group == "all" and not {*rest[:3]} - {"INIT", "NULL"}:
            self.script.note(f"fix {SHIFTS} is passed over: places keep their shift")
            return
        if style in HEATS and rest[2:3] == ("region",) and rest[3:] and (ends := self.script.block(rest[3])):
            rest = *rest[:3], *map(repr, ends), *rest[4:]
        of_groups = (*OF_GROUPS, *PUSHES, *WALLS, REFLECTS)
        if group != "all" and style not in of_groups:
            known = ", ".join(of_groups)
            raise ValueError(f"fix {name} {group} {style}: known is the group all, and of other groups {known}")
        if style in (*OUTSIDE, *PUSHES):
            require_readable(style, list(rest))
            if style == "spring/self" and self.script.started:
                raise ValueError(f"fix {name} {group} {style}: known before the first run, where its places are")
            if style in (GRAVITY, *WALLS):
                self.script.note(f"fix {style}: the potential energy has its energy, as with fix_modify energy yes")
        else:
            require_known(name, style, list(rest))
        if style == "enforce2d" and self.script.section("system").get("dims") != 2:
            raise ValueError(f"fix {name} {group} {style}: it goes with dimension 2")
        self.particles.choose(group)
        self.fixed += 1
        self.named[name] = Fix(self.script.number, [style, *rest], self.fixed, group)

    def _fix_of_spheres(self, name: str, group: str, style: str, words: tuple[str, ...]) -> None:
        kinds = self.script.kinds_of(group)
        if words or kinds is None or self.script.started:
            known = "known is a group made of types, alone, before the first run"
            raise ValueError(f"fix {name} {group} {style} {' '.join(words)}: {known}")
        if style == FREEZE:
            self.frozen[name] = kinds
            return
        self.rolling = kinds
        self.fixed += 1
        self.named[name] = Fix(self.script.number, [style], self.fixed)

    def _fix_modify(self, name: str, *words: str) -> None:
        known = {"energy": ("yes", "no"), "virial": ("no",)}
        options = dict(zip(words[::2], words[1::2], strict=False))
        sound = words and len(words) % 2 == 0 and all(value in known.get(key, ()) for key, value in options.items())
        if "fix" in self.script.failed:
            return
        if "temp" in options and name in self.named and self.named[name].words[0] == "langevin":
            whose, style, *region = self.script.computes.get(options["temp"], ("", ""))
            ends = self.script.block(region[0]) if style == "temp/region" and region else None
            if options.keys() > {"temp"} or ends is None or whose not in ("all", self.named[name].group):
                raise ValueError(
                    f"fix_modify {name} {' '.join(words)}: known is temp of a compute temp/region of a block"
                )
            self.named[name] = self.named[name]._replace(counted={"within": ends})
            return
        if "temp" in options and name in self.named and self.named[name].words[0] in CORRECTIONS:
            counted = self._counted(options.pop("temp")) or {"group": "all"}
            if options or self.named[name].words[0] not in RESCALES:
                raise ValueError(
                    f"fix_modify {name} {' '.join(words)}: known is temp of fix temp/rescale and berendsen"
                )
            self.named[name] = self.named[name]._replace(counted=counted)
            return
        if not sound or name not in self.named or self.named[name].words[0] not in OUTSIDE:
            raise ValueError(
                f"fix_modify {name} {' '.join(words)}: known are energy and virial no of fix {', '.join(OUTSIDE)}, and"
                " temp of fix temp/rescale, temp/berendsen and langevin"
            )

    def _unfix(self, name: str) -> None:
        if name in self.frozen:
            raise ValueError(f"unfix {name}: fix {FREEZE} stays")
        self.named.pop(name, None)
        self.sampled.pop(name, None)
        self.ramps.pop(name, None)
