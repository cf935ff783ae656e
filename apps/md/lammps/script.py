"""Input scripts of LAMMPS, as far as one run of hpckit can say what they say: their language of lines and variables.

A script is executed line by line as LAMMPS does it: comments, `&`, `${name}`, `$x` and `$(…)`, variables of the styles
index, loop, equal, string and getenv, `next`, `label`, `jump SELF`, `if` and `quit`. The commands that come out are in
`commands`.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import numpy as np

from hpckit.apps.md.lammps.commands import Commands
from hpckit.apps.md.lammps.fixes.styles import ADAPTS, SAMPLING
from hpckit.apps.md.lammps.making.made import Made
from hpckit.apps.md.lammps.state import Reading, ScriptMistake, ScriptVariable
from hpckit.apps.md.molecules import files
from hpckit.apps.md.settings.formulas import holds, value_of
from hpckit.errors import InputError
from hpckit.io.particles.topologies import is_topology
from hpckit.md.units import Units
from hpckit.plan.inputs.text import read_text
from hpckit.plan.particles.snapshot import Snapshot

ENDINGS = (".in", ".lmp", ".lmps", ".lammps")
MOST_BYTES, MOST_LINES = 1 << 20, 100_000  # of a file; executed, with those of loops
MOST_DEEP = 16  # files in files
FAR_STEP = 1 << 20  # at which a variable that grows evenly is looked at
OF_BOX = ("lx", "ly", "lz", "xlo", "xhi", "ylo", "yhi", "zlo", "zhi", "vol")
OF_PARTICLES = ("atom", "vector")  # styles of variables that only measuring needs
WORD = re.compile(r"\"\"\"(.*?)\"\"\"(?!\S)|\"([^\"]*)\"(?!\S)|'([^']*)'(?!\S)|(\S+)")
RAMP = re.compile(r"\s*ramp\(([^,()]*),([^,()]*)\)\s*")
REFERENCE = re.compile(r"\$(?:\{(\w+)\}|\(([^()]*(?:\([^()]*\)[^()]*)*)\)|(\w))")


class _LaterError(ValueError):
    """A formula has no value when the script is read."""


def reads(path: Path) -> bool:
    """Whether a file is an input script by its name: in.NAME, NAME.in, NAME.lmp, NAME.lammps; or a topology."""
    return is_topology(path) or path.name.startswith("in.") or path.suffix in ENDINGS


def settings_of(path: Path) -> Reading:
    """The settings that a script amounts to, or a topology.

    Raises `InputError` that lists every line that is not known here, with its number.
    """
    if is_topology(path):
        return files.settings_of(path)
    lines = _joined(read_text(path, "the input script", MOST_BYTES, "give a LAMMPS input script"))
    commands = Commands(path)
    _Execution(lines, commands).run()
    found = commands.reading()
    if commands.script.mistakes:
        each = sorted(set(commands.script.mistakes))
        raise InputError(
            "\n".join([f"{len(each)} of its lines cannot be done here", *(f"  {path.name}:{m}" for m in each)])
            if len(each) > 1
            else f"{path.name}:{each[0]}",
            do="take these lines out, or write what they mean into a run file (docs: Coming from LAMMPS)",
        )
    return found


def particles_of(
    path: Path, periodic: tuple[bool, bool, bool], masses: np.ndarray, units: Units, dims: int = 3
) -> Snapshot:
    """The particles that a script makes before its first run; dims: 2 in a plane. Raises `InputError`."""
    commands = Commands(path)
    _Execution(_joined(read_text(path, "the input script", MOST_BYTES, "give a LAMMPS input script")), commands).run()
    boltzmann = units.boltzmann / units.energy
    return commands.script.making.particles(Made(periodic, masses, boltzmann, dims=dims)).snapshot()


def _joined(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers, those that end with & in one, comments too, then without comments."""
    found: list[tuple[int, str]] = []
    held, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.rstrip()
        first = first or number
        if line.endswith("&"):
            held += line[:-1] + " "
            continue
        found.append((first, _without_comment(held + line).strip()))
        held, first = "", 0
    if held:
        found.append((first, _without_comment(held).strip()))
    return found


def _words(line: str) -> list[str]:
    """The words of a line; what is in quotes is one."""
    return ["".join(match.groups(default="")) for match in WORD.finditer(line)]


def _quoted(line: str) -> list[tuple[str, bool]]:
    """The parts of a line, and whether each is in quotes."""
    found, at = list[tuple[str, bool]](), 0
    for match in WORD.finditer(line):
        if match[4] is None:
            found += [(line[at : match.start()], False), (match[0], True)]
            at = match.end()
    return [*found, (line[at:], False)]


def _without_comment(line: str) -> str:
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#":
            return line[:place]
    return line


class _Execution:
    """The lines of a script, one after the other, with its variables, and those of files that it includes."""

    def __init__(self, lines: list[tuple[int, str]], commands: Commands) -> None:
        self.lines, self.commands = lines, commands
        self.variables = commands.script.variables
        self.skips = False  # the next jump, as a variable has no more values
        self.done = 0  # lines so far
        self.depth = 0  # of files in files
        self.is_over = False  # by quit
        self.step = -1  # in formulas, where it has a value

    def run(self) -> None:
        """Execute all lines; mistakes are in `commands`."""
        at = 0
        while at < len(self.lines) and not self.is_over:
            number, line = self.lines[at]
            at, self.done = at + 1, self.done + 1
            if self.done > MOST_LINES:
                self.commands.script.mistakes.append(
                    ScriptMistake(number, "the script does not end: too many lines were executed")
                )
                return
            self.commands.place(number)
            try:
                try:
                    words = _words(self._substituted(line))
                except _LaterError:
                    words = _words(line)
                    if words[0] != "variable" or len(words) < 4 or words[2] not in ("equal", "string"):
                        raise  # but a variable may wait for a value that only what is printed needs
                    if words[2] == "equal":
                        words[3:] = [REFERENCE.sub(self._frozen, word) for word in words[3:]]
                target = self._do(number, words) if words else None
            except ValueError as error:
                self.commands.refuse(number, line.split()[0], str(error))
                continue
            if target is not None:
                at = target

    def _do(self, number: int, words: list[str]) -> int | None:
        """One command; the line to go to, None for the next one."""
        name, *rest = words
        if name == "variable":
            self._define(rest)
        elif name == "next":
            self._next(rest)
        elif name == "jump":
            own = () if self.depth else (self.commands.script.path.name,)
            if not rest or Path(rest[0]).name not in ("SELF", *own):
                raise ValueError(f"jump {' '.join(rest)}: only jump SELF LABEL is known")
            if not self.skips:
                return self._label(rest[1] if len(rest) > 1 else "")
            self.skips = False
        elif name == "include":
            self._include(number, rest)
        elif name == "if":
            return self._if(number, words)
        elif name == "quit":
            self.is_over = True
        elif name != "label":
            if name == "fix" and " ".join(words[3:4]) not in SAMPLING:  # which take them anew each time
                ramps = words[3:4] == [ADAPTS]
                words = [(ramps and self._ramped(word)) or self._grown(word) for word in words]
            self.commands.do(number, words)
        return None

    def _ramped(self, word: str) -> str:
        """A variable of a fix that is ramp(A,B): A..B, its values at both ends of a run; else nothing."""
        variable = self.variables.get(word.removeprefix("v_")) if word.startswith("v_") else None
        found = RAMP.fullmatch("".join(variable.values)) if variable and variable.style == "equal" else None
        return f"{self._evaluate(found[1]):.17g}..{self._evaluate(found[2]):.17g}" if found else ""

    def _grown(self, word: str) -> str:
        """A variable of a fix: its value, or A:B where it grows evenly with the step, from A by B in each; else the
        word itself.
        """
        if not word.startswith("v_"):
            return word
        values = []
        try:
            for self.step in (0, 1, FAR_STEP):
                values.append(float(self._value(word[2:])))
        except ValueError:
            return word
        finally:
            self.step = -1
        first, second, last = values
        motion = self.commands.motion
        if first == second == last:
            return f"{first:.17g}"
        slope = (last - first) / FAR_STEP
        if motion.now is None or motion.total is None:
            return word
        even = abs(first + slope - second) <= 1e-12 * max(abs(first), abs(second))
        first -= slope * (motion.total - motion.now)  # those before a reset_timestep
        return f"{first:.17g}:{slope:.17g}" if even else word

    def _include(self, number: int, words: list[str]) -> None:
        """Execute the lines of another file; what is wrong in it is told with the line that includes it."""
        path = self.commands.script.file(words[0] if len(words) == 1 else "")
        if self.depth == MOST_DEEP:
            raise ValueError(f"include {words[0]}: files include each other more than {MOST_DEEP} times")
        before, within = self.lines, self.commands.within
        self.lines = _joined(read_text(path, "the included script", MOST_BYTES, "give a LAMMPS input script"))
        self.commands.within, self.depth = (within[0] or number, path.name), self.depth + 1
        try:
            self.run()
        finally:
            self.lines, self.depth, self.commands.within = before, self.depth - 1, within

    def _if(self, number: int, words: list[str]) -> int | None:
        """Do the commands behind the first condition that is true; the line to go to, None for the next one."""
        said, at, branches = words, 0, list[tuple[str, list[str]]]()
        while at < len(said):
            key = said[at]
            ends = [k for k in range(at + 1, len(said)) if said[k] in ("elif", "else")] + [len(said)]
            first = at + {"if": 3, "elif": 2}.get(key, 1)
            if first >= len(said) or (key == "if" and said[at + 2] != "then"):
                break
            branches.append(("1" if key == "else" else said[at + 1], said[first : ends[0]]))
            at = ends[0]
        if at < len(said) or not all(commands for _, commands in branches):
            known = 'if "CONDITION" then "COMMAND" … elif "CONDITION" "COMMAND" … else "COMMAND" …'
            raise ValueError(f"{' '.join(words)}: known is {known}")
        for condition, commands in branches:
            if holds(REFERENCE.sub(self._of, condition)):
                for command in commands:
                    again = _words(self._substituted(command))
                    target = self._do(number, again) if again else None
                    if target is not None or self.is_over:
                        return target
                break
        return None

    def _label(self, name: str) -> int:
        for at, (_, line) in enumerate(self.lines):
            if not name or line.split() == ["label", name]:
                return at
        raise ValueError(f"there is no label {name}")

    def _define(self, words: list[str]) -> None:
        name, style, *values = words if len(words) > 1 else (*words, "", "")
        before = self.variables.get(name)
        if style in ("index", "loop") and before is not None:
            return  # as in LAMMPS, the first definition stays
        if style == "delete":
            self.variables.pop(name, None)
            return
        if style == "index" and values:
            found = values
        elif style == "string" and values:
            found = [" ".join(values)]
        elif style == "getenv" and len(values) == 1:
            found = [os.environ.get(values[0], "")]
        elif style == "loop" and values:
            ends = [int(value) for value in values if value != "pad"]
            first, last = (1, ends[0]) if len(ends) == 1 else ends[:2]
            wide = len(str(last)) if "pad" in values else 0
            found = [f"{k:0{wide}}" for k in range(first, last + 1)]
        elif style in ("equal", *OF_PARTICLES) and values:
            found = ["".join(values)]
        else:
            known = f"index, loop, equal, string, getenv, {', '.join(OF_PARTICLES)} and delete"
            raise ValueError(f"variable {' '.join(words)}: known are the styles {known}")
        if before is not None and before.style != style:
            raise ValueError(f"variable {name} {style}: it is of style {before.style} already")
        self.variables[name] = ScriptVariable(style, found)

    def _next(self, names: list[str]) -> None:
        for name in names:
            variable = self.variables.get(name)
            if variable is None or variable.style not in ("index", "loop"):
                raise ValueError(f"next {name}: no such variable of style index or loop")
            variable.at += 1
            if variable.at >= len(variable.values):
                del self.variables[name]
                self.skips = True

    def _substituted(self, line: str) -> str:
        """A line with the values of its variables."""
        name = line.split(maxsplit=1)[:1]
        if name == ["if"]:  # what is in its branches has its value when it is done
            return line
        if name == ["print"]:
            return "print"
        return "".join(
            part if quoted else REFERENCE.sub(self._of, part)  # what is in quotes stays, as in LAMMPS
            for part, quoted in _quoted(line)
        )

    def _of(self, match: re.Match[str]) -> str:
        """What stands for ${name}, $x or $(formula)."""
        if match[2] is not None:
            formula, _, form = match[2].partition(":")
            return (form or "%.20g") % self._evaluate(formula)
        return self._value(match[1] or match[3])

    def _frozen(self, match: re.Match[str]) -> str:
        """What stands for a reference in a formula: its value, or a variable that has it when the next run begins."""
        try:
            return self._of(match)
        except _LaterError:
            formula = match[2] or "".join(self.variables[match[1] or match[3]].values)
            name = f"at_start_{len(self.commands.script.frozen) + 1}"
            self.variables[name] = ScriptVariable("equal", [formula.partition(":")[0]])
            self.commands.script.frozen.append(name)
            return f"v_{name}"

    def _value(self, name: str) -> str:
        variable = self.variables.get(name)
        if variable is None:
            raise ValueError(f"there is no variable {name}")
        if variable.style in OF_PARTICLES:
            raise ValueError(f"variable {name} of style {variable.style} has not one value")
        value = variable.values[variable.at]
        return f"{self._evaluate(value):.15g}" if variable.style == "equal" else value

    def _evaluate(self, formula: str) -> float:
        """The value of a formula of numbers, v_name, dt, step, PI, operators and functions."""
        try:
            return value_of(formula, self._named)
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError) as error:
            raise _LaterError(f"the formula {formula.strip()!r} cannot be evaluated here") from error

    def _named(self, token: str) -> float:
        """The value of a variable or of a constant. Raises `KeyError` for other names."""
        if token.startswith("v_"):
            return float(self._value(token[2:]))
        if token == "step" and (self.step >= 0 or self.commands.motion.now is not None):
            return float(self.step if self.step >= 0 else self.commands.motion.now or 0)
        if token in OF_BOX:
            return self._of_box(token)
        if token == "count(all)":
            return float(self.commands.particles.count())
        x, y, z = map(float, self.commands.script.making.spacing)
        return {"PI": math.pi, "dt": self.commands.motion.dt, "xlat": x, "ylat": y, "zlat": z}[token]

    def _of_box(self, token: str) -> float:
        """An end or a length of the box, or its volume, while nothing has changed it. Raises `KeyError`."""
        ends = [] if self.commands.motion.resized else self.commands.particles.ends()
        if not ends:
            raise KeyError(token)
        if token == "vol":
            return math.prod(high - low for low, high in ends)
        low, high = ends["xyz".index(token.strip("lohi"))]
        return high - low if token[0] == "l" else low if token[1:] == "lo" else high
