"""What a plan is priced on: the levels of a machine, from the cores of a node to the network."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.lines import Ints

SHIPPED = Path(__file__).parent / "machines"
NUMBERS = ("latency", "bandwidth", "uplink", "shared")


@dataclass(frozen=True)
class Level:
    """One level: units of `ranks` ranks each, 0 for the outermost, which holds all.

    A message belongs to the innermost level with a unit that holds both its ranks. latency: s until its first byte
    arrives. bandwidth: bytes/s of one message alone. uplink: bytes/s out of a unit, and as much into it, shared by the
    messages that leave it for the levels above; 0 is no limit. shared: bytes/s of all messages of this level in a unit
    together, as of a memory bus; 0 is no limit.
    """

    name: str
    ranks: int
    latency: float
    bandwidth: float
    uplink: float = 0.0
    shared: float = 0.0


@dataclass(frozen=True)
class Machine:
    """Levels from the innermost out; overhead: s a rank spends on sending, and on taking, a message; reduction:
    bytes/s of the data that a rank adds; source: where the numbers come from.
    """

    name: str
    levels: tuple[Level, ...]
    overhead: float
    reduction: float
    source: str = ""

    def largest_unit(self) -> int:
        """Ranks in a unit of the largest level below the outermost, 0 where there is none."""
        return max((level.ranks for level in self.levels[:-1]), default=0)

    def level_of(self, sender: Ints, receiver: Ints) -> Ints:
        """The level of the messages between ranks, counted from the innermost: int64, as many as senders."""
        level = np.full(len(sender), len(self.levels) - 1)
        for number in reversed(range(len(self.levels) - 1)):
            size = self.levels[number].ranks
            level[sender // size == receiver // size] = number
        return level


def machine_of(name: str | Path) -> Machine:
    """A machine from a TOML file, or a shipped one by its name.

    Raises `InputError` with all that is wrong in the file; the message for an unknown name lists the shipped ones.
    """
    path = Path(name)
    if not path.exists():
        path = SHIPPED / f"{name}.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        known = ", ".join(shipped())
        raise InputError(f"there is no machine {str(name)!r}", do=f"give a file, or one of {known}") from error
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the machine file is no TOML: {error}", where=str(path)) from error
    faults: list[str] = []
    machine = _machine(given, path.stem, faults)
    if faults or machine is None:
        raise InputError("a machine file is wrong", where=str(path), do="mend: " + "; ".join(faults))
    return machine


def shipped() -> list[str]:
    """The names of the machine files that come with hpckit."""
    return sorted(file.stem for file in SHIPPED.glob("*.toml"))


def _machine(given: dict, name: str, faults: list[str]) -> Machine | None:
    unknown = sorted(set(given) - {"name", "source", "overhead", "reduction", "level"})
    if unknown:
        faults.append(f"unknown: {', '.join(unknown)} (known: name, source, overhead, reduction, level)")
    overhead = _number(given, "overhead", "overhead (s)", faults, least=0.0)
    reduction = _number(given, "reduction", "reduction (bytes/s)", faults)
    tables = given.get("level")
    if not isinstance(tables, list) or not tables:
        faults.append("give at least one [[level]] with name, ranks, latency, bandwidth")
        return None
    levels = [_level(table, number, number == len(tables) - 1, faults) for number, table in enumerate(tables)]
    sizes = [level.ranks for level in levels[:-1]]
    for inner, outer in pairwise(sizes):
        if inner <= 0 or outer <= inner or outer % inner:
            faults.append(f"ranks of the levels grow by whole factors from the innermost out, not {inner} to {outer}")
    return Machine(str(given.get("name", name)), tuple(levels), overhead, reduction, str(given.get("source", "")))


def _level(table: dict, number: int, outermost: bool, faults: list[str]) -> Level:
    name = str(table.get("name", number))
    unknown = sorted(set(table) - {"name", "ranks", *NUMBERS})
    if unknown:
        faults.append(f"level {name}: unknown {', '.join(unknown)} (known: name, ranks, {', '.join(NUMBERS)})")
    ranks = table.get("ranks", 0)
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < (0 if outermost else 1):
        faults.append(f"level {name}: ranks is a whole number, 1 or more (0 for the outermost), not {ranks!r}")
        ranks = 0
    latency = _number(table, "latency", f"level {name}: latency (s)", faults, least=0.0)
    bandwidth = _number(table, "bandwidth", f"level {name}: bandwidth (bytes/s)", faults)
    limits = [
        _number(table, key, f"level {name}: {key} (bytes/s)", faults, least=0.0) if key in table else 0.0
        for key in ("uplink", "shared")
    ]
    return Level(name, 0 if outermost else ranks, latency, bandwidth, *limits)


def _number(table: dict, key: str, what: str, faults: list[str], least: float | None = None) -> float:
    """A finite number, above 0 or from `least` on; notes a fault otherwise."""
    value = table.get(key)
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")
    if np.isfinite(number) and (number > 0 or (least is not None and number >= least)):
        return number
    allowed = "above 0" if least is None else f"{least:g} or more"
    faults.append(f"{what} is a number {allowed}, not {value!r}")
    return 1.0
