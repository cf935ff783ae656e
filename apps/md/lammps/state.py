"""What the commands of a script have in common: the settings so far, with their lines, and what they name."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hpckit.apps.md.lammps.making.making import Making

Kinds = set[int]  # types of particles, from 1


@dataclass
class ScriptVariable:
    """A variable: its style; the values of index and loop and the one that counts, else a formula or a text."""

    style: str
    values: list[str]
    at: int = 0


class ScriptMistake(NamedTuple):
    """What is wrong with a line."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.line}: {self.text}"


@dataclass(frozen=True)
class Reading:
    """Settings of the app from a script: a tree, the line that said each, and what was passed over."""

    tree: dict[str, Any]
    lines: dict[tuple[str | int, ...], int]
    notes: tuple[str, ...] = ()


@dataclass
class ScriptState:
    """The state of a script: its settings so far, the mistakes in it, and the facts that many commands need."""

    path: Path
    mistakes: list[ScriptMistake] = field(default_factory=list)
    tree: dict[str, Any] = field(default_factory=lambda: {"app": "md"})
    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    units: str = "lj"
    making: Making = field(default_factory=Making)  # the particles that it makes
    made: bool = False  # whether these are more than settings say
    moved: bool = False  # whether these have velocities of groups
    data_file: str = ""  # that was read
    types: int = 0
    masses: dict[int, float] = field(default_factory=dict)  # of types, by the last command that says them
    charges: dict[int, float] = field(default_factory=dict)  # of types, as `set` says
    variables: dict[str, ScriptVariable] = field(default_factory=dict)
    frozen: list[str] = field(default_factory=list)  # variables that stay what they are when the next run begins
    computes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # their groups, styles and words
    named: list[str] = field(default_factory=list)  # the groups on which something acts
    apart: list[tuple[int, int, int]] = field(default_factory=list)  # types whose pairs are left out, and lines
    started: bool = False  # whether a run was there
    late: set[str] = field(default_factory=set)  # groups that hang on where particles are after a run
    counts: dict[str, int] = field(default_factory=dict)  # types of bonds, angles, …
    bound: dict[str, int] | None = None  # how many bonds, angles, … a data file has
    kinds: dict[str, Kinds] = field(default_factory=dict)  # the types of groups that are made of types
    number: int = 0  # of the line that is being done
    failed: set[str] = field(default_factory=set)  # commands with mistakes, of whose absence nothing is said

    @property
    def unit(self) -> float:
        """What counts as one: the length of a lattice cell, or 1 without a lattice. Raises `ValueError` where dims
        differ.
        """
        x, y, z = map(float, self.making.spacing)
        if max(x, y, z) - min(x, y, z) > 1e-9 * x:
            raise ValueError("the cells of the lattice have several lengths: say units box, and lengths")
        return x

    def set(self, key: str, value: Any, line: int | None = None) -> None:
        """Set what a key with dots names, as said in this line, or in another one."""
        *tables, name = key.split(".")
        table = self.tree
        for each in tables:
            table = table.setdefault(each, {})
        table[name] = value
        self.lines[tuple(key.split("."))] = self.number if line is None else line

    def section(self, name: str) -> dict[str, Any]:
        """The settings of a section so far."""
        found: dict[str, Any] = self.tree.get(name, {})
        return found

    def note(self, text: str) -> None:
        """Say what this line has not the effect of."""
        self.notes[f"line {self.number}: {text}"] = None

    def block(self, region: str) -> list[float] | None:
        """The ends along x, y and z of a region of style block, inf where it has none; None for other regions."""
        shape = self.making.regions[region].shape if len(self.making.blocks.get(region, [])) == 6 else None
        return None if shape is None else shape["block"]

    def file(self, name: str) -> Path:
        """A file that a command names: beside the script, in this folder, or in that of LAMMPS's potentials."""
        for folder in (self.path.parent, Path.cwd(), Path(os.environ.get("LAMMPS_POTENTIALS", "."))):
            if (folder / name).is_file():
                return (folder / name).resolve()
        raise ValueError(f"there is no file {name} beside the script, nor in the folder LAMMPS_POTENTIALS")

    def types_of(self, word: str) -> range:
        """The types that a word names: 2, *, 2*, *3, 2*3; none where the box that says how many there are failed."""
        if not self.types and self.failed:
            return range(0)
        return self.among(word, self.types)

    def kinds_of(self, group: str) -> Kinds | None:
        """The types that a group is made of; None where it is not."""
        return {*range(1, self.types + 1)} if group == "all" else self.kinds.get(group)

    def among(self, word: str, count: int) -> range:
        """The numbers that a word names, of 1 to `count`."""
        low, star, high = word.partition("*")
        first = int(low) if low else 1
        last = (int(high) if high else count) if star else first
        if not 1 <= first <= last <= count:
            raise ValueError(f"type {word}: there are {count} types")
        return range(first, last + 1)
