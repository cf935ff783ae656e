"""LAMMPS text dumps: a frame after the other, each with its box and the columns that it names (LAMMPS manual, dump)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpckit.io.appended import AppendedText
from hpckit.io.particles.text import NumberedLines
from hpckit.plan.particles.cell import TILTS, Cell
from hpckit.plan.particles.snapshot import Snapshot, sorted_by_id

# How positions may be given: column names -> (whether scaled to the box, whether unwrapped).
POSITIONS = {
    ("x", "y", "z"): (False, False),
    ("xs", "ys", "zs"): (True, False),
    ("xu", "yu", "zu"): (False, True),
    ("xsu", "ysu", "zsu"): (True, True),
}
VECTORS = {"images": ("ix", "iy", "iz"), "velocities": ("vx", "vy", "vz"), "forces": ("fx", "fy", "fz")}
# Columns of words rather than numbers, which are passed over.
WORDS = ("element",)


def read_lammps_dump(path: str | Path) -> Iterator[Snapshot]:
    """The frames of a text dump, read one at a time.

    Needs the columns id, type and positions in any of LAMMPS's forms; images, velocities, forces and q are taken where
    they are. Raises `InputError` with the line, what was expected and what was found.
    """
    lines = NumberedLines(Path(path))
    try:
        while (frame := _frame(lines)) is not None:
            yield frame
    finally:
        lines.close()


def _frame(lines: NumberedLines) -> Snapshot | None:
    line = lines.next()
    while line is not None and not line.strip():
        line = lines.next()
    if line is None:
        return None
    step, time, count, box = None, 0.0, None, None
    while True:
        item = line.strip()
        if item == "ITEM: TIMESTEP":
            step = _whole(lines, "a time step")
        elif item == "ITEM: TIME":
            time = _float(lines, "a time")
        elif item == "ITEM: UNITS":
            lines.needed("the name of the units")
        elif item == "ITEM: NUMBER OF ATOMS":
            count = _whole(lines, "a number of atoms")
        elif item.startswith("ITEM: BOX BOUNDS"):
            box = _box(lines, item)
        elif item.startswith("ITEM: ATOMS"):
            break
        else:
            raise lines.fault("a line ITEM: TIMESTEP, NUMBER OF ATOMS, BOX BOUNDS or ATOMS", repr(item))
        line = lines.needed("the next ITEM")
    if step is None or count is None or box is None:
        missing = [n for n, v in (("TIMESTEP", step), ("NUMBER OF ATOMS", count), ("BOX BOUNDS", box)) if v is None]
        raise lines.fault(f"ITEM: {missing[0]} before ITEM: ATOMS", repr(item))
    return _atoms(lines, item.split()[2:], step, time, count, box)


def _whole(lines: NumberedLines, what: str) -> int:
    word = lines.needed(what).strip()
    if not word.isdigit():
        raise lines.fault(f"{what}, a whole number", repr(word))
    return int(word)


def _float(lines: NumberedLines, what: str) -> float:
    word = lines.needed(what).strip()
    try:
        return float(word)
    except ValueError:
        raise lines.fault(f"{what}, a number", repr(word)) from None


def _box(lines: NumberedLines, item: str) -> tuple[Cell, tuple[bool, bool, bool]]:
    words, tilt = item.split()[3:], np.zeros(3)
    if "abc" in words:
        raise lines.fault("box bounds, with xy xz yz or without", "a box of general vectors")
    if words[:3] == [*TILTS]:
        words = words[3:]
        ends, numbers = lines.table(3, "box bounds (low, high, tilt)", _is_item, (3,))
        ends, tilt = ends[:, :2].copy(), ends[:, 2].copy()
        low, high = Cell((0.0,) * 3, (0.0,) * 3, (tilt[0], tilt[1], tilt[2])).bounds  # bounds are those of the whole
        ends[:, 0] -= low
        ends[:, 1] -= high
    else:
        ends, numbers = lines.table(3, "box bounds (low, high)", _is_item, (2,))
    for dim in range(3):
        if ends[dim, 0] >= ends[dim, 1]:
            raise lines.fault("low bounds below high ones", f"{ends[dim, 0]:.17g} {ends[dim, 1]:.17g}", numbers[dim])
    kinds = words if len(words) == 3 else ["pp"] * 3
    return Cell.of(ends[:, 0], ends[:, 1], tilt), (kinds[0] == "pp", kinds[1] == "pp", kinds[2] == "pp")


def _atoms(
    lines: NumberedLines,
    names: list[str],
    step: int,
    time: float,
    count: int,
    box: tuple[Cell, tuple[bool, bool, bool]],
) -> Snapshot:
    for needed in ("id", "type"):
        if needed not in names:
            raise lines.fault(f"a column {needed} in ITEM: ATOMS", " ".join(names) or "no columns")
    form = next((columns for columns in POSITIONS if set(columns) <= set(names)), None)
    if form is None:
        raise lines.fault("columns x y z, xs ys zs, xu yu zu or xsu ysu zsu in ITEM: ATOMS", " ".join(names))
    words_at = [column for column, name in enumerate(names) if name in WORDS]
    kept = [name for name in names if name not in WORDS]
    values, numbers = lines.table(count, f"atoms ({' '.join(names)})", _is_item, (len(names),), words_at)
    if not count:
        values = np.zeros((0, len(kept)))
    at = {name: values[:, column] for column, name in enumerate(kept)}
    ids = lines.whole(at["id"], numbers, "an atom id", 1)
    lines.unique(ids, numbers, "atom id")
    types = lines.whole(at["type"], numbers, "an atom type", 1) - 1
    cell, periodic = box
    scaled, unwrapped = POSITIONS[form]
    positions = np.stack([at[name] for name in form], axis=1)
    if scaled:
        positions = cell.leaning(cell.lower + positions * cell.lengths)
    found = {
        what: np.stack([at[name] for name in columns], axis=1) if set(columns) <= set(at) else None
        for what, columns in VECTORS.items()
    }
    images = np.zeros((count, 3), np.int32) if found["images"] is None else found["images"].astype(np.int32)
    if unwrapped:
        positions, images = cell.wrapped(positions, periodic)
    ids, types, positions, images, velocities, forces, charges = sorted_by_id(
        ids, types, positions, images, found["velocities"], found["forces"], at.get("q")
    )
    ends = np.array(cell.lower), np.array(cell.upper)
    return Snapshot(
        *ends, periodic, ids, types, positions, images, velocities, forces, None, charges, (), step, time,
        tilt=np.array(cell.tilt),
    )  # fmt: skip


class DumpWriter(AppendedText):
    """Writes frames one after the other into a dump that LAMMPS, OVITO and `read_lammps_dump` read: id, type, place in
    the box, images and, where the frame has them, velocities and forces; numbers to the last bit.

    A frame is handed to the system in one write and forced to disk: a process killed at any instant leaves whole
    frames, and at most one that breaks off at the end. `resume` and errors: see `AppendedText`.
    """

    def write(self, snapshot: Snapshot) -> None:
        """Append a frame."""
        self.append(_text(snapshot))

    def close(self, last: bool = True) -> None:
        """Close the file; frames may follow whether they come last or not."""
        super().close()


def _text(snapshot: Snapshot) -> str:
    """A frame as LAMMPS writes it."""
    out = io.StringIO()
    bounds = " ".join("pp" if wraps else "ff" for wraps in snapshot.periodic)
    cell = snapshot.cell
    columns = [*cell.bounds, snapshot.tilt] if cell.tilted else [snapshot.lower, snapshot.upper]
    bounds = f"{' '.join(TILTS)} {bounds}" if cell.tilted else bounds
    out.write(f"ITEM: TIMESTEP\n{snapshot.step}\nITEM: NUMBER OF ATOMS\n{snapshot.count}\nITEM: BOX BOUNDS {bounds}\n")
    for row in zip(*columns, strict=True):
        out.write(" ".join(f"{number:.17g}" for number in row) + "\n")
    names = ["id", "type", "x", "y", "z"]
    numbers: list[np.ndarray] = [snapshot.ids, snapshot.types + 1, *snapshot.positions.T]
    for what, more in VECTORS.items():
        values = getattr(snapshot, what)
        if values is not None:
            names += more
            numbers += list(values.T)
    if snapshot.charges is not None:
        names.append("q")
        numbers.append(snapshot.charges)
    form = " ".join("{}" if values.dtype.kind == "i" else "{:.17g}" for values in numbers) + "\n"
    out.write(f"ITEM: ATOMS {' '.join(names)}\n")
    out.writelines(form.format(*row) for row in zip(*(values.tolist() for values in numbers), strict=True))
    return out.getvalue()


def _is_item(line: str) -> bool:
    return line.startswith("ITEM:")
