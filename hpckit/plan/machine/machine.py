"""The machine model for prices of plans: the levels of a machine, from the cores of a node to the network."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.inputs.text import parse_toml, read_text
from hpckit.plan.protocol import Floats, Ints

SHIPPED = Path(__file__).parent
MEASURED = ("ranks", "messages", "start", "latency", "bytes", "stored", "added")
SMALL = 1 << 16  # bytes of a message whose cost is mostly its own, not that of its bytes
FIELDS = ("pieces", "rows", "slabs", "mail")  # places of what slabs of fields take
PLACES = ("messages", "memory", "copy", *FIELDS)
NUMBERS = ("latency", "bandwidth", "uplink", "shared")
COMPUTE = ("peak", "memory", "bandwidth", "efficiency")


@dataclass(frozen=True)
class Level:
    """One level: units of `ranks` ranks each, 0 for the outermost, which holds all.

    A message belongs to the innermost level with a unit that holds both its ranks. latency: s until its first byte
    arrives. bandwidth: bytes/s of one message alone. uplink: bytes/s out of a unit, and as much into it, shared by the
    messages that leave it for the levels above; 0: unlimited. shared: bytes/s of all messages of this level in a unit
    together, as for a memory bus; 0: unlimited.
    """

    name: str
    ranks: int
    latency: float
    bandwidth: float
    uplink: float = 0.0
    shared: float = 0.0


@dataclass(frozen=True)
class MeasuredSteps:
    """What steps of so many messages at once took on so many ranks of a node, by the size of a message.

    place: "messages"; "memory": what as many ranks took at once in the shared memory of the node; "copy": what they
    copied at once within their own memory. Slabs of fields, which caches hold less often than a buffer: "pieces":
    copies of strided ones in so many pieces as `nbytes` says, and pieces/s; its start is that of an exchange of fields,
    its latency that of a message of one within the node; "rows": copies of longer pieces, by all bytes; "slabs":
    messages from array to array; "mail": copied into the memory of the node and out of it.
    start: s until the first message of a collective leaves. latency: s of an empty step. nbytes: of a message,
    ascending. stored, added: bytes/s of a message that is stored, and of one that is taken and added, all in all.
    """

    ranks: int
    messages: int
    start: float
    latency: float
    nbytes: tuple[float, ...]
    stored: tuple[float, ...]
    added: tuple[float, ...]
    place: str = "messages"

    def seconds_per_byte(self, rates: tuple[float, ...], nbytes: float, moved: Floats) -> Floats:
        """Of each message of `moved` bytes, of buffers of `nbytes`; rates: `stored` or `added`."""
        # Where all ranks send and take at once, the messages that were measured were half a buffer each. Fields have no
        # buffer in common: each message of theirs is one.
        largest = (nbytes / 2 if self.messages >= self.ranks else nbytes) or moved
        sizes = np.maximum([np.maximum(moved, largest), np.where(moved <= SMALL, moved, largest)], 1.0)
        if self.place == "memory":
            sizes = np.maximum([np.full_like(moved, nbytes)], 1.0)
        if self.place in ("copy", *FIELDS):
            sizes = np.maximum([moved], 1.0)
        return 1.0 / np.exp(np.interp(np.log(sizes), np.log(self.nbytes), np.log(rates)).min(axis=0))


@dataclass(frozen=True)
class Compute:
    """What a rank computes with: peak FLOP/s of matrix products, bytes of memory, and bytes/s to and from it, by the
    data sheet. efficiency: the share of the data sheet's rates, those of the links included, that programs reach.
    """

    peak: float
    memory: float
    bandwidth: float
    efficiency: float = 1.0


@dataclass(frozen=True)
class Machine:
    """Levels from the innermost out; overhead: s a rank spends on sending, and on taking, a message; reduction:
    bytes/s of the data that a rank adds; copy: bytes/s of what it copies within its own memory, 0: as `reduction`;
    source: where the numbers come from.

    measured: of a node whose cores copy the messages themselves; takes the place of the numbers of the levels. There a
    rank that adds does not copy meanwhile. compute: of a rank, for plans of training.
    """

    name: str
    levels: tuple[Level, ...]
    overhead: float
    reduction: float
    source: str = ""
    measured: tuple[MeasuredSteps, ...] = ()
    copy: float = 0.0
    compute: Compute | None = None

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

    def gathering(self, ranks: int, nbytes: Floats, pieces: Floats) -> Floats:
        """Seconds of copies of fields' slabs of so many bytes each in so many pieces, within the memory of a rank."""
        strided = self.moving(ranks, "pieces", pieces)
        if strided is None:
            return self.copying(ranks, nbytes)
        for place in ("rows", "copy"):  # no slab is copied faster than a buffer that caches hold
            whole = self.moving(ranks, place, nbytes)
            strided = strided if whole is None else np.maximum(whole, strided)
        return strided

    def moving(self, ranks: int, place: str, amount: Floats) -> Floats | None:
        """Seconds of so many bytes, or pieces, each, by the table of a place without its latency; None without one."""
        tables = self.tables(ranks, place)
        return amount * tables[-1].seconds_per_byte(tables[-1].stored, 0.0, amount) if tables else None

    def copying(self, ranks: int, nbytes: Floats) -> Floats:
        """Seconds of copies of so many bytes each within the memory of a rank."""
        tables = self.tables(ranks, "copy")
        if not tables:
            return nbytes / (self.copy or self.reduction)
        return tables[-1].latency + nbytes * tables[-1].seconds_per_byte(tables[-1].stored, 0.0, nbytes)

    @property
    def in_memory(self) -> bool:
        """Whether steps in shared memory were measured."""
        return any(it.place == "memory" for it in self.measured)

    def tables(self, ranks: int, place: str = "messages") -> list[MeasuredSteps]:
        """What was measured on the nearest number of ranks, from below if there is one; by the number of messages."""
        measured = [it for it in self.measured if it.place == place]
        counts = sorted({it.ranks for it in measured})
        nearest = max((count for count in counts if count <= ranks), default=counts[0] if counts else 0)
        return sorted((it for it in measured if it.ranks == nearest), key=lambda it: it.messages)

    def step(
        self, ranks: int, messages: int, nbytes: float, moved: Floats, place: str = "messages"
    ) -> tuple[float, Floats, Floats]:
        """Of a step of so many messages at once on so many ranks with buffers of `nbytes`, as measured: s of an empty
        one, s a byte of each message of `moved` bytes that is stored, and of each that is added.

        What a byte takes depends on the buffer, of which caches hold much or little, however it is cut. Only messages
        of up to `SMALL` bytes also take what small ones do. Between numbers of messages, and between sizes, it is
        interpolated; beyond the most messages they share what those had.
        """
        tables = self.tables(ranks, place)
        at = [float(it.messages) for it in tables]
        beyond = max(messages / at[-1], 1.0)
        latency = float(np.interp(messages, at, [it.latency for it in tables]))
        stored = _between(messages, at, [it.seconds_per_byte(it.stored, nbytes, moved) for it in tables])
        added = _between(messages, at, [it.seconds_per_byte(it.added, nbytes, moved) for it in tables])
        return latency, stored * beyond, added * beyond


def _between(x: float, at: list[float], rows: list[Floats]) -> Floats:
    """Linear interpolation of whole rows, constant beyond the ends."""
    above = min(int(np.searchsorted(at, x)), len(at) - 1)
    if above == 0 or x >= at[-1]:
        return rows[above]
    part = (x - at[above - 1]) / (at[above] - at[above - 1])
    return (1 - part) * rows[above - 1] + part * rows[above]


def machine_of(name: str | Path) -> Machine:
    """A machine from a TOML file, or a shipped one by its name.

    Raises `InputError` with all faults of the file; for an unknown name it lists the shipped ones.
    """
    path = Path(name)
    if not path.exists():
        path = SHIPPED / f"{name}.toml"
    do = f"give a file, or one of {', '.join(shipped())}"
    if not path.exists():
        raise InputError(f"there is no machine {str(name)!r}", do=do)
    text = read_text(path, "the machine file", do=do)
    try:
        given = parse_toml(text)
    except ValueError as error:
        raise InputError(f"the machine file is not TOML: {error}", where=str(path)) from error
    faults: list[str] = []
    machine = _machine(given, path.stem, faults)
    if faults or machine is None:
        raise InputError("a machine file is wrong", where=str(path), do="fix: " + "; ".join(faults))
    return machine


def toml_of(machine: Machine) -> str:
    """A machine as the text of its file."""
    lines = [f"name = {json.dumps(machine.name)}", f"source = {json.dumps(machine.source)}"]
    keys = ("overhead", "reduction", *(["copy"] if machine.copy else []))
    lines += [f"{key} = {getattr(machine, key):.6g}" for key in keys]
    if machine.compute:
        lines += ["", "[compute]", *(f"{key} = {getattr(machine.compute, key):.6g}" for key in COMPUTE)]
    for level in machine.levels:
        numbers = [f"{key} = {getattr(level, key):.6g}" for key in NUMBERS if getattr(level, key)]
        lines += ["", "[[level]]", f"name = {json.dumps(level.name)}", f"ranks = {level.ranks}", *numbers]
        if not level.latency:
            lines.append("latency = 0")
    for it in machine.measured:
        lines += ["", "[[measured]]", f"ranks = {it.ranks}", f"messages = {it.messages}"]
        if it.place != "messages":
            lines.append(f"place = {json.dumps(it.place)}")
        lines += [f"start = {it.start:.6g}", f"latency = {it.latency:.6g}"]
        for key, values in (("bytes", it.nbytes), ("stored", it.stored), ("added", it.added)):
            lines.append(f"{key} = [{', '.join(f'{value:.6g}' for value in values)}]")
    return "\n".join(lines) + "\n"


def shipped() -> list[str]:
    """The names of the machine files that come with hpckit."""
    return sorted(file.stem for file in SHIPPED.glob("*.toml"))


def _machine(given: dict, name: str, faults: list[str]) -> Machine | None:
    known = ("name", "source", "overhead", "reduction", "copy", "compute", "level", "measured")
    unknown = sorted(set(given) - set(known))
    if unknown:
        faults.append(f"unknown: {', '.join(unknown)} (known: {', '.join(known)})")
    overhead = _number(given, "overhead", "overhead (s)", faults, least=0.0)
    reduction = _number(given, "reduction", "reduction (bytes/s)", faults)
    copy = _number(given, "copy", "copy (bytes/s)", faults) if "copy" in given else 0.0
    tables = given.get("level")
    if not isinstance(tables, list) or not tables:
        faults.append("give at least one [[level]] with name, ranks, latency, bandwidth")
        return None
    levels = [_level(table, number, number == len(tables) - 1, faults) for number, table in enumerate(tables)]
    sizes = [level.ranks for level in levels[:-1]]
    for inner, outer in pairwise(sizes):
        if inner <= 0 or outer <= inner or outer % inner:
            faults.append(f"ranks of the levels grow by whole factors from the innermost out, not {inner} to {outer}")
    rows = given.get("measured", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        faults.append(f"[[measured]] are tables with {', '.join(MEASURED)}")
        rows = []
    measured = tuple(_measured(row, number, faults) for number, row in enumerate(rows))
    compute = _compute(given["compute"], faults) if "compute" in given else None
    source = str(given.get("source", ""))
    return Machine(str(given.get("name", name)), tuple(levels), overhead, reduction, source, measured, copy, compute)


def _compute(table: object, faults: list[str]) -> Compute | None:
    if not isinstance(table, dict):
        faults.append(f"[compute] is a table with {', '.join(COMPUTE)}")
        return None
    unknown = sorted(set(table) - set(COMPUTE))
    if unknown:
        faults.append(f"compute: unknown {', '.join(unknown)} (known: {', '.join(COMPUTE)})")
    units = {"peak": "FLOP/s", "memory": "bytes", "bandwidth": "bytes/s"}
    peak, memory, bandwidth = (_number(table, key, f"compute: {key} ({unit})", faults) for key, unit in units.items())
    efficiency = _number(table, "efficiency", "compute: efficiency", faults) if "efficiency" in table else 1.0
    if efficiency > 1:
        faults.append(f"compute: efficiency is a share of the peak, 1 or less, not {efficiency:g}")
    return Compute(peak, memory, bandwidth, efficiency)


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


def _measured(table: dict, number: int, faults: list[str]) -> MeasuredSteps:
    name = f"measured {number + 1}"
    unknown = sorted(set(table) - {*MEASURED, "place"})
    if unknown:
        faults.append(f"{name}: unknown {', '.join(unknown)} (known: {', '.join((*MEASURED, 'place'))})")
    whole = []
    for key in ("ranks", "messages"):
        value = table.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            faults.append(f"{name}: {key} is a whole number, 1 or more, not {value!r}")
            value = 1
        whole.append(value)
    seconds = [_number(table, key, f"{name}: {key} (s)", faults, least=0.0) for key in ("start", "latency")]
    lists = []
    for key in ("bytes", "stored", "added"):
        values = table.get(key)
        numbers = [value for value in values if _is_positive(value)] if isinstance(values, list) else []
        if not numbers or len(numbers) != len(values or []):
            faults.append(f"{name}: {key} is a list of numbers above 0, not {values!r}")
            numbers = [1.0]
        lists.append(tuple(map(float, numbers)))
    if len({len(each) for each in lists}) > 1 or any(b <= a for a, b in pairwise(lists[0])):
        faults.append(f"{name}: bytes ascend, and stored and added have a number for each")
        lists = [(1.0,)] * 3
    place = table.get("place", "messages")
    if place not in PLACES:
        faults.append(f"{name}: place is one of {', '.join(PLACES)}, not {place!r}")
    return MeasuredSteps(whole[0], whole[1], seconds[0], seconds[1], lists[0], lists[1], lists[2], str(place))


def _is_positive(value: object) -> bool:
    number = _float(value)
    return math.isfinite(number) and number > 0


def _float(value: object) -> float:
    """A number of a file: nan for what is none, infinity for one that is too large."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.inf


def _number(table: dict, key: str, what: str, faults: list[str], least: float | None = None) -> float:
    """A finite number, above 0 or from `least` on; notes a fault otherwise."""
    value = table.get(key)
    number = _float(value)
    if math.isfinite(number) and (number > 0 or (least is not None and number >= least)):
        return number
    allowed = "above 0" if least is None else f"{least:g} or more"
    faults.append(f"{what} is a number {allowed}, not {value!r}")
    return 1.0
