"""The commands of LAMMPS input scripts that hpckit knows, turned into the settings of one run.

Those of one subject are the methods of one object, which lists them by name; all work on one `ScriptState`. What is not
known, or says what a run of hpckit cannot do, is a mistake with its line; reading goes on, so that all are found at
once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from hpckit.apps.md.lammps.forces import ForceCommands
from hpckit.apps.md.lammps.molecules import MoleculeCommands
from hpckit.apps.md.lammps.particles import MAKERS, ParticleCommands
from hpckit.apps.md.lammps.stages import MotionCommands
from hpckit.apps.md.lammps.state import Reading, ScriptMistake, ScriptState
from hpckit.errors import InputError

# Commands without an effect on the motion, or that hpckit does in its own way.
PASSED_OVER = (
    *("atom_modify", "balance", "comm_modify", "comm_style", "dump_modify", "echo", "info", "log"),
    *("min_modify", "newton", "package", "print", "restart", "shell", "suffix"),
    *("timer", "uncompute", "write_data", "write_dump", "write_restart"),
)
INSTEAD = {  # of commands that are not known
    "read_restart": "read_restart is not known here: `lmp -restart2data FILE start.data` makes a file for read_data",
    "rerun": "rerun is not known here: `hpckit analyze FILE` measures the frames of a dump",
}
REPEATED = (  # after a run, word for word as before it: they change nothing
    *("angle_coeff", "angle_style", "atom_style", "bond_coeff", "bond_style", "boundary", "dihedral_coeff"),
    *("dihedral_style", "improper_coeff", "improper_style", "kspace_modify", "kspace_style", "mass", "pair_coeff"),
    *("pair_modify", "pair_style", "special_bonds", "units"),
)
OF_PAIRS = ("pair_coeff", "pair_modify", "pair_style")  # after a run, for the runs that follow
BETWEEN = (  # runs of a script
    *OF_PAIRS,
    *(
        "change_box",
        "compute",
        "compute_modify",
        "dump",
        "fix",
        "fix_modify",
        "group",
        "min_style",
        "minimize",
        "region",
        "reset_timestep",
        "run",
        "run_style",
        "thermo",
    ),
    *("thermo_modify", "thermo_style", "timestep", "undump", "unfix", "velocity"),
)


class Commands:
    """All commands, by name, and the script that they work on."""

    def __init__(self, path: Path) -> None:
        self.script = ScriptState(path)
        self.particles, self.molecules = ParticleCommands(self.script), MoleculeCommands(self.script)
        self.forces = ForceCommands(self.script)
        self.motion = MotionCommands(self.script, self.particles, self.forces)
        self.known: dict[str, Callable[..., None]] = {
            **self.particles.commands,
            **self.molecules.commands,
            **self.forces.commands,
            **self.motion.commands,
        }
        self.within: tuple[int, str] = (0, "")  # the line that includes a file, and its name
        self.said: set[tuple[str, ...]] = set()  # commands so far, word for word

    def place(self, number: int) -> None:
        """The line that comes now."""
        self.script.number = self.within[0] or number

    def do(self, number: int, words: list[str]) -> None:
        """Take up a command, or note what is wrong with it."""
        name, *rest = words
        self.place(number)
        try:
            self._do(name, rest)
        except InputError as error:  # of a file that it reads
            self.refuse(number, name, error.message)
        except ValueError as error:
            wrong = re.match(r"(?:invalid literal for int|could not convert string to float).*: (.*)", str(error))
            self.refuse(number, name, f"{' '.join(words)}: {wrong[1]} is not a number here" if wrong else str(error))

    def refuse(self, number: int, name: str, why: str) -> None:
        """Note what is wrong with a command."""
        self.script.failed.add(name)
        outer, file = self.within
        self.script.mistakes.append(ScriptMistake(outer or number, f"{file}:{number}: {why}" if file else why))

    def _do(self, name: str, rest: list[str]) -> None:
        if name in PASSED_OVER:
            self.script.note(f"{name} is passed over")
            return
        if name == "clear" and not self.script.tree.keys() - {"app"}:
            return
        if name == "clear":
            raise ValueError("clear: a run has one set of particles: make a script of each, or a loop in the shell")
        if name not in self.known:
            raise ValueError(INSTEAD.get(name, f"{name} is not known here"))
        if self.motion.stages and name in ("neighbor", "neigh_modify"):
            self.script.note(f"{name} after a run is passed over: lists are made as before")
            return
        repeated = name in REPEATED and (name, *rest) in self.said and not (name in OF_PAIRS and self.forces.is_fresh)
        if self.motion.stages and repeated:
            self.script.note(f"{name} is what it was before the run")
            return
        if self.motion.stages and name in OF_PAIRS and not self.script.failed:
            self.forces.begin_anew(name, rest)
            if name == "pair_style":
                self.said = {each for each in self.said if each[0] not in OF_PAIRS}
        self.said.add((name, *rest))
        if "clear" in self.script.failed and self.motion.stages:
            return  # what is wrong with other particles is no mistake of these
        if self.motion.stages and name not in BETWEEN:
            raise ValueError(f"{name} after a run: known there are {', '.join(BETWEEN)}")
        try:
            self.known[name](*rest)
        except (TypeError, IndexError):
            raise ValueError(f"{name} {' '.join(rest)}: words are missing, or too many") from None

    def reading(self) -> Reading:
        """The settings, after the last command."""
        finishes = {
            self.molecules.finish: {*self.molecules.commands, "read_data"},
            self.particles.finish: {*MAKERS, "mass"},
            self.forces.finish: {"kspace_style", "pair_style", "pair_coeff", *MAKERS},
            self.motion.finish: {"fix", "run", "minimize"},
        }
        script = self.script
        for finish, about in finishes.items():
            try:
                if not about & script.failed:
                    finish()
            except ValueError as error:
                script.mistakes.append(ScriptMistake(script.number, str(error)))
        return Reading(script.tree, script.lines, tuple(script.notes))
