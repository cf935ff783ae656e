"""LAMMPS data files: box, masses, atoms with images, velocities (LAMMPS manual, read_data and write_data)."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np

from hpckit.errors import InputError
from hpckit.io.files import write_file
from hpckit.io.particles.text import NumberedLines
from hpckit.plan.particles.snapshot import BOUND, Floats, Ints, Snapshot, sorted_by_id

# Atom style -> its columns; three image flags may follow.
STYLES = {
    "atomic": ("id", "type", "x", "y", "z"),
    "charge": ("id", "type", "charge", "x", "y", "z"),
    "bond": ("id", "molecule", "type", "x", "y", "z"),
    "angle": ("id", "molecule", "type", "x", "y", "z"),
    "molecular": ("id", "molecule", "type", "x", "y", "z"),
    "full": ("id", "molecule", "type", "charge", "x", "y", "z"),
    "sphere": ("id", "type", "diameter", "density", "x", "y", "z"),
}
TERMS = {name.capitalize(): name for name in BOUND}  # section -> what it counts
COEFFICIENTS = {f"{name.removesuffix('s').capitalize()} Coeffs": name for name in BOUND}
SECTIONS = ("Masses", "Atoms", "Velocities", *TERMS, *COEFFICIENTS)
# Columns of velocities; spheres turn too.
VELOCITIES, OF_SPHERES = ("id", "vx", "vy", "vz"), ("id", "vx", "vy", "vz", "wx", "wy", "wz")
# Sections that another program's force field may have; what they say is set in hpckit's own run file.
PASSED_OVER = ("Pair Coeffs", "PairIJ Coeffs")
LABELS = "Atom Type Labels"
# What hpckit has not yet: files may count it, as 0.
NOT_YET = ("ellipsoids", "lines", "triangles", "bodies")
COUNT = re.compile(rf"^\s*(\S+)\s+(atoms|{'|'.join((*BOUND, *NOT_YET))}|\w+ types|extra .*)\s*$")
EDGES = re.compile(r"^\s*(\S+)\s+(\S+)\s+([xyz])lo\s+([xyz])hi\s*$")
TILT = re.compile(r"^\s*(\S+)\s+(\S+)\s+(\S+)\s+xy\s+xz\s+yz\s*$")
UNITS_OF_TITLE = re.compile(r"\bunits = (\w+)")


def read_lammps_data(
    path: str | Path, style: str | None = None, periodic: tuple[bool, bool, bool] = (True, True, True)
) -> Snapshot:
    """The particles of a LAMMPS data file.

    style: the atom style; by default the one in the comment behind `Atoms`, else `atomic` where the columns allow it.
    periodic: a data file does not say it. Raises `InputError` with the line, what was expected there and what was
    found; for boxes of general vectors (avec, bvec, cvec), too.
    """
    return read_in_order(path, style, periodic)[0]


def read_in_order(
    path: str | Path, style: str | None = None, periodic: tuple[bool, bool, bool] = (True, True, True)
) -> tuple[Snapshot, Ints]:
    """`read_lammps_data`, and where each row of the file is among the particles, int64[n]: LAMMPS keeps their order."""
    lines = NumberedLines(Path(path))
    try:
        reader = _Reader(lines, style)
        found = reader.read(periodic)
        return found, np.searchsorted(found.ids, reader.ids)
    finally:
        lines.close()


class _Reader:
    """One pass through a data file."""

    def __init__(self, lines: NumberedLines, style: str | None) -> None:
        if style is not None and style not in STYLES:
            raise InputError(f"the atom style {style!r} is not supported", do=f"choose {', '.join(STYLES)}")
        self.lines, self.style = lines, style
        self.counts: dict[str, int] = {}
        self.box, self.tilt = np.full((3, 2), np.nan), np.zeros(3)
        self.passed_over: list[str] = []
        self.labels: dict[str, str] = {}  # of types, and their numbers
        self.masses: Floats | None = None
        self.atoms: dict[str, Floats] = {}
        self.ids: Ints = np.zeros(0, np.int64)
        self.images = np.zeros((0, 3), np.int32)
        self.velocities: tuple[Ints, Floats] | None = None  # with spins
        self.terms: dict[str, tuple[Ints, list[int]]] = {}
        self.coefficients: dict[str, list[tuple[float, ...]]] = {}

    def read(self, periodic: tuple[bool, bool, bool]) -> Snapshot:
        """Header and sections."""
        title = self.lines.next()  # LAMMPS ignores the first line
        self._header()
        seen: set[str] = set()
        while (line := self._section_line()) is not None:
            name, _, comment = (part.strip() for part in line.partition("#"))
            if name in seen:
                raise self.lines.fault("every section once", repr(name))
            seen.add(name)
            self._section(name, comment)
        for name, what in (("Atoms", "atoms"), *TERMS.items()):
            if name not in seen and self.counts.get(what):
                raise self.lines.fault(f"a section {name}", "the end of the file")
        return self._snapshot(periodic, title or "")

    def _header(self) -> None:
        while (line := self.lines.next()) is not None:
            text = line.partition("#")[0]
            if not text.strip():
                continue
            if (match := EDGES.match(text)) is not None and match[3] == match[4]:
                self._edge("xyz".index(match[3]), match[1], match[2])
            elif (match := COUNT.match(text)) is not None:
                self._count(match[2], match[1])
            elif (match := TILT.match(text)) is not None:
                self._tilt(match.groups())
            elif re.search(r"\bavec\b|\babc\s+origin\b", text):
                raise self.lines.fault("a box of xlo xhi, ylo yhi, zlo zhi and xy xz yz", "one of general vectors")
            elif text.strip() in (LABELS, *SECTIONS, *PASSED_OVER) or text.strip().endswith("Coeffs"):
                self.lines.put_back(line)
                break
            else:
                raise self.lines.fault("a line of the header or the name of a section", repr(text.strip()))
        for needed in ("atoms", "atom types"):
            if needed not in self.counts:
                raise self.lines.fault(f"a header line `N {needed}`", "none before the first section")
        for dim, name in enumerate("xyz"):
            if np.isnan(self.box[dim]).any():
                raise self.lines.fault(f"a header line `low high {name}lo {name}hi`", "none before the first section")

    def _edge(self, dim: int, low: str, high: str) -> None:
        name = "xyz"[dim]
        try:
            ends = float(low), float(high)
        except ValueError:
            raise self.lines.fault(f"two numbers for {name}lo {name}hi", f"{low} {high}") from None
        if not np.isfinite(ends).all() or ends[0] >= ends[1]:
            raise self.lines.fault(f"{name}lo below {name}hi", f"{low} {high}")
        self.box[dim] = ends

    def _tilt(self, words: tuple[str, ...]) -> None:
        try:
            tilt = np.array([float(word) for word in words])
        except ValueError:
            tilt = np.full(3, np.nan)
        if not np.isfinite(tilt).all():
            raise self.lines.fault("three numbers for xy xz yz", " ".join(words))
        self.tilt = tilt

    def _count(self, what: str, word: str) -> None:
        if not word.isdigit():
            raise self.lines.fault(f"a whole number of {what}, 0 or more", repr(word))
        count = int(word)
        if what in NOT_YET and count:
            raise self.lines.fault(f"0 {what}: hpckit has no particles other than points and spheres", f"{count}")
        self.counts[what] = count

    def _section_line(self) -> str | None:
        while (line := self.lines.next()) is not None:
            if line.partition("#")[0].strip():
                return line
        return None

    def _section(self, name: str, comment: str) -> None:
        if name == "Masses":
            self._masses()
        elif name == "Atoms":
            self._atoms(comment)
        elif name == "Velocities":
            self._velocities()
        elif name in TERMS:
            self._terms(TERMS[name])
        elif name in COEFFICIENTS:
            self._coefficients(COEFFICIENTS[name])
        elif name == LABELS:
            self._labels()
        elif name in PASSED_OVER:
            self.passed_over.append(name)
            self._pass_over()
        elif name.endswith("Coeffs"):
            raise self.lines.fault(f"coefficients of one style ({', '.join(COEFFICIENTS)})", repr(name))
        else:
            raise self.lines.fault(f"a section ({', '.join(SECTIONS)})", repr(name))

    def _table(
        self, rows: int, what: str, columns: tuple[int, ...], type_at: int | None = None
    ) -> tuple[Floats, list[int]]:
        """Rows of numbers; in the column of types labels may stand for them."""

        def is_section(line: str) -> bool:
            return line.strip()[:1].isalpha() and line.split()[0] not in self.labels

        def without_labels(fields: list[str]) -> list[str]:
            if type_at is not None and fields[type_at] in self.labels:
                fields[type_at] = self.labels[fields[type_at]]
            return fields

        values, numbers = self.lines.table(rows, what, is_section, columns, change=without_labels)
        return (values if rows else np.zeros((0, columns[0]))), numbers

    def _labels(self) -> None:
        types = self.counts["atom types"]
        expected = f"{types} lines of type labels (type, label)"
        numbers: set[int] = set()
        while len(numbers) < types:
            fields = self.lines.needed(expected).partition("#")[0].split()
            if not fields:
                continue
            if len(fields) != 2 or not fields[0].isdigit() or not 1 <= int(fields[0]) <= types:
                raise self.lines.fault(expected, repr(" ".join(fields)))
            if int(fields[0]) in numbers or fields[1] in self.labels:
                raise self.lines.fault("every type and label once", repr(" ".join(fields)))
            numbers.add(int(fields[0]))
            self.labels[fields[1]] = fields[0]

    def _pass_over(self) -> None:
        known = (*SECTIONS, *PASSED_OVER)
        while (line := self.lines.next()) is not None:
            if line.strip()[:1].isalpha() and line.partition("#")[0].strip() in known:
                self.lines.put_back(line)
                return

    def _masses(self) -> None:
        types = self.counts["atom types"]
        values, numbers = self._table(types, "masses (type, mass)", (2,), type_at=0)
        index = self.lines.whole(values[:, 0], numbers, "an atom type", 1, types)
        self.lines.unique(index, numbers, "atom type")
        wrong = np.flatnonzero(values[:, 1] <= 0)
        if wrong.size:
            raise self.lines.fault("a mass above 0", f"{values[wrong[0], 1]:.17g}", numbers[wrong[0]])
        self.masses = np.zeros(types)
        self.masses[index - 1] = values[:, 1]

    def _atoms(self, comment: str) -> None:
        style = self.style or (comment.split() or [""])[0]
        if style and style not in STYLES:
            raise self.lines.fault(f"an atom style ({', '.join(STYLES)}) behind Atoms", repr(comment))
        columns = STYLES[style or "atomic"]
        width = len(columns)
        try:
            what, at = f"atoms ({', '.join(columns)})", columns.index("type")
            values, numbers = self._table(self.counts["atoms"], what, (width, width + 3), type_at=at)
        except InputError as error:
            if not style and "columns" in error.message:
                error.do = (
                    "atoms of another style than atomic: write it behind the section's name, as in `Atoms # full`"
                )
            raise
        self.ids = self.lines.whole(values[:, 0], numbers, "an atom id", 1)
        self.lines.unique(self.ids, numbers, "atom id")
        types = self.counts["atom types"]
        self.lines.whole(values[:, at], numbers, "an atom type", 1, types)
        self.style = style or "atomic"
        self.atoms = {name: values[:, column] for column, name in enumerate(columns)}
        self.images = np.zeros((len(values), 3), np.int32)
        if values.shape[1] == width + 3:
            for dim in range(3):
                flags = values[:, width + dim]
                self.images[:, dim] = self.lines.whole(flags, numbers, "an image flag", -(2**31) + 1, 2**31 - 1)

    def _velocities(self) -> None:
        columns = OF_SPHERES if self.style == "sphere" else VELOCITIES
        what = f"velocities ({', '.join(columns)})"
        values, numbers = self._table(self.counts["atoms"], what, (len(columns),))
        ids = self.lines.whole(values[:, 0], numbers, "an atom id", 1)
        self.lines.unique(ids, numbers, "atom id")
        if self.atoms:
            strange = np.flatnonzero(~np.isin(ids, self.ids))
            if strange.size:
                raise self.lines.fault("the id of an atom", str(ids[strange[0]]), numbers[strange[0]])
        self.velocities = ids, values[:, 1:]

    def _terms(self, name: str) -> None:
        """Bonds, angles, dihedrals or impropers as type and ids, and their lines."""
        size, one = BOUND[name], name.removesuffix("s")
        what = f"{name} (id, type{', atom' * size})"
        values, numbers = self._table(self.counts.get(name, 0), what, (2 + size,))
        kinds = self.lines.whole(values[:, 1], numbers, f"a {one} type", 1, self.counts.get(f"{one} types", 0))
        ends = [self.lines.whole(values[:, 2 + k], numbers, "an atom id", 1) for k in range(size)]
        self.terms[name] = np.stack([kinds - 1, *ends], axis=1), numbers

    def _coefficients(self, name: str) -> None:
        """The numbers of each type of bonds, angles, …."""
        types = self.counts.get(f"{name.removesuffix('s')} types", 0)
        expected = f"{types} lines of coefficients (type, numbers)"
        found: dict[int, tuple[float, ...]] = {}
        while len(found) < types:
            fields = self.lines.needed(expected).partition("#")[0].split()
            if not fields:
                continue
            try:
                number, values = int(fields[0]), tuple(map(float, fields[1:]))
            except ValueError:
                raise self.lines.fault(expected, repr(" ".join(fields))) from None
            if not 1 <= number <= types or number in found:
                raise self.lines.fault(expected, repr(" ".join(fields)))
            found[number] = values
        self.coefficients[name] = [found[number] for number in sorted(found)]

    def _places_of(self, name: str) -> Ints | None:
        """Bonds, angles, … with the places of their particles in the order of the ids."""
        if name not in self.terms:
            return None
        rows, numbers = self.terms[name]
        ordered = np.sort(self.ids)
        places = np.searchsorted(ordered, rows[:, 1:])
        there = ordered[np.minimum(places, len(ordered) - 1)] == rows[:, 1:] if len(ordered) else rows[:, 1:] < 0
        twice = (np.diff(np.sort(rows[:, 1:], axis=1), axis=1) == 0).any(axis=1)
        strange = np.flatnonzero(~there.all(axis=1) | twice)
        if strange.size:
            found = " ".join(map(str, rows[strange[0], 1:]))
            raise self.lines.fault(f"the ids of {BOUND[name]} atoms", found, numbers[strange[0]])
        return np.column_stack([rows[:, 0], places])

    def _snapshot(self, periodic: tuple[bool, bool, bool], title: str) -> Snapshot:
        n = self.counts["atoms"]
        atoms = self.atoms or {name: np.zeros(n) for name in STYLES["atomic"]}
        positions = np.stack([atoms[dim] for dim in "xyz"], axis=1)
        types = atoms["type"].astype(np.int64) - 1
        ids, types, positions, images, charges = sorted_by_id(
            self.ids, types, positions, self.images, atoms.get("charge")
        )
        velocities = spins = spheres = numbers = None
        if "molecule" in atoms:
            _, numbers = sorted_by_id(self.ids, atoms["molecule"].astype(np.int64))
        if self.velocities is not None:
            _, velocities = sorted_by_id(*self.velocities)
            velocities, spins = velocities[:, :3], velocities[:, 3:] if velocities.shape[1] == 6 else None
        if "diameter" in atoms:
            _, spheres = sorted_by_id(self.ids, np.stack([atoms["diameter"], atoms["density"]], axis=1))
        return Snapshot(
            lower=self.box[:, 0].copy(),
            upper=self.box[:, 1].copy(),
            tilt=self.tilt,
            periodic=periodic,
            ids=ids,
            types=types,
            positions=np.ascontiguousarray(positions),
            images=images,
            velocities=None if velocities is None else np.ascontiguousarray(velocities),
            masses=self.masses,
            charges=charges,
            spheres=spheres,
            numbers=numbers,
            spins=None if spins is None else np.ascontiguousarray(spins),
            bonds=self._places_of("bonds"),
            angles=self._places_of("angles"),
            dihedrals=self._places_of("dihedrals"),
            impropers=self._places_of("impropers"),
            coefficients=self.coefficients,
            step=_step_of(title),
            units=match[1] if (match := UNITS_OF_TITLE.search(title)) else "",
            passed_over=tuple(self.passed_over),
        )


def write_lammps_data(path: str | Path, snapshot: Snapshot, units: str = "lj") -> None:
    """Write a data file that LAMMPS and `read_lammps_data` read back to the last bit; whole or not at all.

    Style `bond` where the snapshot has bonds alone, `molecular` where it has angles, too, `charge` where it has
    charges, `full` for both, `sphere` where it has spheres, else `atomic`. Raises
    `SetupError` where it cannot be written.
    """
    path = Path(path)
    types = len(snapshot.masses) if snapshot.masses is not None else int(snapshot.types.max(initial=0)) + 1
    out = io.StringIO()
    out.write(f"LAMMPS data file by hpckit, timestep = {snapshot.step}, units = {units}\n\n")
    out.write(f"{snapshot.count} atoms\n{types} atom types\n")
    for name, rows in snapshot.terms.items():
        kinds = int(rows[:, 0].max(initial=-1)) + 1
        out.write(f"{len(rows)} {name}\n{max(kinds, len(snapshot.coefficients.get(name, ())))} {name[:-1]} types\n")
    out.write("\n")
    for name, low, high in zip("xyz", snapshot.lower, snapshot.upper, strict=True):
        out.write(f"{low:.17g} {high:.17g} {name}lo {name}hi\n")
    if snapshot.cell.tilted:
        out.write(" ".join(f"{tilt:.17g}" for tilt in snapshot.tilt) + " xy xz yz\n")
    if snapshot.masses is not None and snapshot.spheres is None:
        out.write("\nMasses\n\n")
        for number, mass in enumerate(snapshot.masses, 1):
            out.write(f"{number} {mass:.17g}\n")
    charges = snapshot.charges
    bound = "full" if charges is not None else "molecular" if {*snapshot.terms} - {"bonds"} else "bond"
    is_molecular = bool(snapshot.terms) or (snapshot.numbers is not None and bool(snapshot.numbers.any()))
    style = bound if is_molecular else "atomic" if charges is None else "charge"
    for section, name in COEFFICIENTS.items():
        if name in snapshot.coefficients and name in snapshot.terms:
            out.write(f"\n{section}\n\n")
            for number, values in enumerate(snapshot.coefficients[name], 1):
                out.write(" ".join([str(number), *(_number(value) for value in values)]) + "\n")
    spheres, spins = snapshot.spheres, snapshot.spins
    if spheres is not None:
        style = "sphere"
    out.write(f"\nAtoms # {style}\n\n")
    charge = [] if charges is None else [charges]
    molecule = [snapshot.molecules] if is_molecular and style != "sphere" else []
    sizes = [] if spheres is None else [*spheres.T]
    _rows(out, snapshot.ids, *molecule, snapshot.types + 1, *charge, *sizes, *snapshot.positions.T, *snapshot.images.T)
    if snapshot.velocities is not None:
        out.write("\nVelocities\n\n")
        turning = [] if spheres is None else [*(np.zeros((snapshot.count, 3)) if spins is None else spins).T]
        _rows(out, snapshot.ids, *snapshot.velocities.T, *turning)
    for section, name in TERMS.items():
        if name in snapshot.terms:
            rows = snapshot.terms[name]
            out.write(f"\n{section}\n\n")
            _rows(out, np.arange(1, len(rows) + 1), rows[:, 0] + 1, *snapshot.ids[rows[:, 1:]].T)
    write_file(path, out.getvalue().encode())


def _number(value: float) -> str:
    """Whole numbers as such: LAMMPS asks for them where it means them."""
    return str(int(value)) if float(value).is_integer() else f"{value:.17g}"


def _rows(out: io.StringIO, *columns: np.ndarray) -> None:
    form = " ".join("{}" if values.dtype.kind == "i" else "{:.17g}" for values in columns) + "\n"
    out.writelines(form.format(*row) for row in zip(*(values.tolist() for values in columns), strict=True))


def _step_of(title: str) -> int:
    """The time step that LAMMPS and hpckit note in the first line."""
    match = re.search(r"timestep = (\d{1,18})\b", title)
    return int(match[1]) if match else 0
