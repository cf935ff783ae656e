"""Input scripts of LAMMPS, as far as one run of hpckit can say what they say: their language of lines and variables.

A script is executed line by line as LAMMPS does it: comments, `&`, `${name}`, `$x` and `$(…)`, variables of the styles
index, loop, equal and string, `next`, `label`, `jump SELF` and `if`. The commands that come out are in `commands`.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.md.lammps.commands import Commands
from hpckit.apps.md.lammps.fixes import is_number
from hpckit.apps.md.lammps.made import Made
from hpckit.apps.md.lammps.state import Reading, ScriptMistake
from hpckit.apps.md.molecules import files
from hpckit.errors import InputError
from hpckit.io.particles.topologies import is_topology
from hpckit.md.units import Units
from hpckit.plan.inputs.text import read_text
from hpckit.plan.particles.snapshot import Snapshot

ENDINGS = (".in", ".lmp", ".lmps", ".lammps")
MOST_BYTES, MOST_LINES = 1 << 20, 100_000  # of a file; executed, with those of loops
MOST_DEEP = 16  # files in files
OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: math.fmod,
    ast.Pow: math.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
COMPARISONS: dict[str, Callable[..., bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CONDITION = re.compile(r"\s*(&&|\|\||[=!<>]=|[<>()]|[^\s=!<>()&|]+)")
FUNCTIONS: dict[str, Callable[..., float]] = {
    **{name: getattr(math, name) for name in ("sqrt", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "ceil")},
    "ln": math.log,
    "log": math.log10,
    "abs": abs,
    "floor": math.floor,
    "round": round,
}
REFERENCE = re.compile(r"\$(?:\{(\w+)\}|\(([^()]*(?:\([^()]*\)[^()]*)*)\)|(\w))")


@dataclass
class ScriptVariable:
    """A variable: the values of index and loop styles and the one that counts, else a formula or a text."""

    values: list[str]
    at: int = 0
    formula: str | None = None


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


def particles_of(path: Path, periodic: tuple[bool, bool, bool], masses: np.ndarray, units: Units) -> Snapshot:
    """The particles that a script makes before its first run. Raises `InputError`."""
    commands = Commands(path)
    _Execution(_joined(read_text(path, "the input script", MOST_BYTES, "give a LAMMPS input script")), commands).run()
    boltzmann = units.boltzmann / units.energy
    return commands.script.making.particles(Made(periodic, masses, boltzmann)).snapshot()


def _joined(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers, without comments, those that end with & in one."""
    found: list[tuple[int, str]] = []
    held, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = _without_comment(raw).rstrip()
        first = first or number
        if line.endswith("&"):
            held += line[:-1] + " "
            continue
        found.append((first, (held + line).strip()))
        held, first = "", 0
    if held:
        found.append((first, held.strip()))
    return found


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
        self.variables: dict[str, ScriptVariable] = {}
        self.skips = False  # the next jump, as a variable has no more values
        self.done = 0  # lines so far
        self.depth = 0  # of files in files

    def run(self) -> None:
        """Execute all lines; mistakes are in `commands`."""
        at = 0
        while at < len(self.lines):
            number, line = self.lines[at]
            at, self.done = at + 1, self.done + 1
            if self.done > MOST_LINES:
                self.commands.script.mistakes.append(
                    ScriptMistake(number, "the script does not end: too many lines were executed")
                )
                return
            self.commands.place(number)
            try:
                words = self._substituted(line).split()
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
            if rest[:1] != ["SELF"]:
                raise ValueError(f"jump {' '.join(rest)}: only jump SELF LABEL is known")
            if not self.skips:
                return self._label(rest[1] if len(rest) > 1 else "")
            self.skips = False
        elif name == "include":
            self._include(number, rest)
        elif name == "if":
            return self._if(number, words)
        elif name != "label":
            self.commands.do(number, words)
        return None

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
        said = shlex.split(" ".join(words))
        at, branches = 0, list[tuple[str, list[str]]]()
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
            if self._holds(REFERENCE.sub(self._of, condition)):
                for command in commands:
                    again = self._substituted(command).split()
                    target = self._do(number, again) if again else None
                    if target is not None:
                        return target
                break
        return None

    def _holds(self, condition: str) -> bool:
        """Whether a condition of numbers or texts is true: comparisons, &&, || and parentheses."""
        tokens = CONDITION.findall(condition)
        if "".join(tokens) != "".join(condition.split()):
            raise ValueError(f"the condition {condition!r} cannot be read")

        def value() -> Any:
            token = tokens.pop(0)
            if token == "(":
                found = either()
                if not tokens or tokens.pop(0) != ")":
                    raise ValueError(f"the condition {condition!r} has no closing parenthesis")
                return found
            return float(token) if is_number(token) else token

        def compared() -> Any:
            left = value()
            if tokens and tokens[0] in COMPARISONS:
                compare, right = COMPARISONS[tokens.pop(0)], value()
                return compare(*((left, right) if type(left) is type(right) else (str(left), str(right))))
            return left

        def both() -> Any:
            found = compared()
            while tokens and tokens[0] == "&&":
                tokens.pop(0)
                found = bool(compared()) and bool(found)
            return found

        def either() -> Any:
            found = both()
            while tokens and tokens[0] == "||":
                tokens.pop(0)
                found = bool(both()) or bool(found)
            return found

        try:
            found = either()
        except (IndexError, TypeError):
            raise ValueError(f"the condition {condition!r} cannot be read") from None
        if tokens or isinstance(found, str):
            raise ValueError(f"the condition {condition!r} cannot be read")
        return bool(found)

    def _label(self, name: str) -> int:
        for at, (_, line) in enumerate(self.lines):
            if not name or line.split() == ["label", name]:
                return at
        raise ValueError(f"there is no label {name}")

    def _define(self, words: list[str]) -> None:
        name, style, *values = words if len(words) > 1 else (*words, "", "")
        if style in ("index", "loop") and name in self.variables and self.variables[name].formula is None:
            return  # as in LAMMPS, the first definition stays
        if style in ("index", "string", "getenv") and values:
            self.variables[name] = ScriptVariable(values if style == "index" else [" ".join(values).strip("\"'")])
        elif style == "loop" and values:
            ends = [int(value) for value in values if value != "pad"]
            first, last = (1, ends[0]) if len(ends) == 1 else ends[:2]
            self.variables[name] = ScriptVariable([str(k) for k in range(first, last + 1)])
        elif style == "equal" and values:
            self.variables[name] = ScriptVariable([], formula="".join(values).strip("\"'"))
        elif style == "delete":
            self.variables.pop(name, None)
        else:
            raise ValueError(f"variable {' '.join(words)}: known are the styles index, loop, equal, string and delete")

    def _next(self, names: list[str]) -> None:
        for name in names:
            variable = self.variables.get(name)
            if variable is None or variable.formula is not None:
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
        return REFERENCE.sub(self._of, line) if name != ["print"] else "print"

    def _of(self, match: re.Match[str]) -> str:
        """What stands for ${name}, $x or $(formula)."""
        if match[2] is not None:
            formula, _, form = match[2].partition(":")
            return (form or "%.15g") % self._evaluate(formula)
        return self._value(match[1] or match[3])

    def _value(self, name: str) -> str:
        variable = self.variables.get(name)
        if variable is None:
            raise ValueError(f"there is no variable {name}")
        return variable.values[variable.at] if variable.formula is None else f"{self._evaluate(variable.formula):.15g}"

    def _evaluate(self, formula: str) -> float:
        """The value of a formula of numbers, v_name, + - * / ^ % and functions."""
        try:
            return float(self._node(ast.parse(formula.replace("^", "**").strip(), mode="eval").body))
        except (SyntaxError, KeyError, TypeError, ArithmeticError) as error:
            raise ValueError(f"the formula {formula!r} cannot be evaluated here") from error

    def _node(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](self._node(node.left), self._node(node.right))
        if isinstance(node, ast.UnaryOp):
            return OPERATORS[type(node.op)](self._node(node.operand))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return FUNCTIONS[node.func.id](*map(self._node, node.args))
        if isinstance(node, ast.Name) and node.id == "PI":
            return math.pi
        if isinstance(node, ast.Name) and node.id == "dt":
            return self.commands.motion.dt
        if isinstance(node, ast.Name) and node.id.startswith("v_"):
            return float(self._value(node.id[2:]))
        raise KeyError(ast.dump(node))
