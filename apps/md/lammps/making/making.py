"""The particles that a LAMMPS input script makes or changes before its first run, command by command.

A script whose particles fill a box of whole lattice cells says as much in settings. Of all others the run takes the
particles from the script itself (`system.file`), by what is here: lattices in any direction, regions, groups, changed
types, moved and deleted particles, velocities of groups.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from hpckit.apps.md.lammps.making import velocities as drawn
from hpckit.apps.md.lammps.making.lattices import Lattice, Region, extent_of, region_of, shape_of
from hpckit.apps.md.lammps.making.made import Made, Step
from hpckit.apps.md.lammps.making.places import TRIES, RandomPlaces, by_cells, named, overlapping, ramp, turn
from hpckit.apps.md.settings.formulas import is_number
from hpckit.errors import InputError
from hpckit.io.particles.lammps_data import read_in_order

NEAR_END = 1e-6  # of an edge: sites so near to the upper end of a periodic dim are those of the lower one
SHRINKS = 1e-4  # of an edge: how much a box with open ends that follow the particles is wider at first


class Making:
    """The commands of a script that make particles: each is read, and done later by `particles`."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, str, Step]] = []
        self.lattice: Lattice | None = None
        self.regions: dict[str, Region] = {}
        self.blocks: dict[str, list[float]] = {}  # the numbers of blocks and prisms
        self.box = ""

    @property
    def spacing(self) -> np.ndarray:
        """What counts as one along x, y and z."""
        return self.lattice.spacing if self.lattice else np.ones(3)

    def add(self, line: int, what: str, step: Step) -> None:
        """Another step, and where the script says it."""
        self.steps.append((line, what, step))

    def particles(self, made: Made) -> Made:
        """Do all steps. Raises `InputError` with the line of one that cannot be done."""
        for line, what, step in self.steps:
            try:
                step(made)
            except (ValueError, KeyError, IndexError) as error:
                raise InputError(f"line {line}: {what}: {error}", do="change this line of the script") from None
        if not len(made.types):
            raise InputError("the script makes no particles", do="give create_atoms a region that has sites in it")
        return made

    def grouped(self, made: Made) -> Made:
        """Do the steps that make groups, of particles of a file. Raises `ValueError`."""
        for _, what, step in self.steps:
            if what == "group":
                step(made)
        return made

    def region(self, name: str, words: list[str]) -> None:
        """A region."""
        others = self.regions.items()
        inside, ends = region_of(words, self.spacing, {key: each.inside for key, each in others})
        extent = extent_of(words, self.spacing, {key: each.extent for key, each in others})
        self.regions[name] = Region(inside, extent, shape_of(words, self.spacing))
        self.blocks.pop(name, None)
        if ends and words[0] in ("block", "prism") and "out" not in words:
            self.blocks[name] = ends

    def create_box(self, region: str, follow: tuple[bool, ...]) -> Step:
        """A box with the ends of a region; follow: along which dims they follow the particles."""
        ends = self.blocks[region]

        def step(made: Made) -> None:
            wider = SHRINKS * np.array(follow) * (np.array(ends[1:6:2]) - ends[:6:2])
            made.lower, made.upper = np.array(ends[:6:2]) - wider, np.array(ends[1:6:2]) + wider
            made.tilt = np.array(ends[6:] or (0.0, 0.0, 0.0))

        return step

    def read_data(self, path: Path) -> Step:
        """The particles of a data file."""
        return lambda made: made.take(*read_in_order(path, "atomic", made.periodic))

    def create_atoms(self, words: list[str]) -> Step:
        """Particles on the lattice, in a region, at random or one. Raises `ValueError`."""
        kind, style, *rest = words
        wanted = {"box": 0, "region": 1, "single": 3, "random": 3}.get(style)
        given, options = rest[: wanted or 0], rest[wanted or 0 :]
        sound = wanted is not None and len(given) == wanted and kind.isdigit()
        basis: dict[int, int] = {}
        scale, near, tries = self.spacing, 0.0, TRIES
        while sound and options:
            if options[0] == "basis" and len(options) > 2 and self.lattice and options[1].isdigit():
                basis[int(options[1]) - 1] = int(options[2]) - 1
                options = options[3:]
            elif options[:1] == ["units"] and options[1:2] in (["box"], ["lattice"]):
                scale = np.ones(3) if options[1] == "box" else scale
                options = options[2:]
            elif style == "random" and options[0] == "overlap" and is_number("".join(options[1:2])):
                near, options = float(options[1]), options[2:]
            elif style == "random" and options[0] == "maxtry" and "".join(options[1:2]).isdigit() and int(options[1]):
                tries, options = int(options[1]), options[2:]
            else:
                sound = False
        if style == "random":
            sound = sound and given[0].isdigit() and given[1].isdigit()
        if style == "region" or (style == "random" and sound and given[2] != "NULL"):
            sound = sound and given[-1] in self.regions
        if not sound or (style in ("box", "region") and self.lattice is None):
            known = "box, region ID, single X Y Z, random N SEED REGION, then basis N TYPE, units, overlap, maxtry"
            raise ValueError(f"create_atoms {' '.join(words)}: known are {known}; a lattice and its region first")
        if style == "single":
            place = np.array([[float(word) for word in given]]) * scale
            return lambda made: made.add(place, np.array([int(kind) - 1]))
        if style == "random":
            inside, extent, _ = self.regions.get(given[2], (None, None, None))
            places = RandomPlaces(int(given[0]), int(given[1]), inside, extent, near, tries)
            return lambda made: places.fill(made, int(kind) - 1)
        lattice, region = self.lattice, self.regions[given[0]].inside if given else None
        assert lattice is not None

        def step(made: Made) -> None:
            low, high = made.cell.bounds
            places, sites = lattice.sites(np.array(low), np.array(high))
            straight, near = made.cell.straight(places), NEAR_END * made.cell.lengths
            lowest = made.lower - np.where(made.periodic, near, 0.0)
            highest = made.upper - np.where(made.periodic, 2.0 * near, 0.0)
            within = ((straight >= lowest) & (straight < highest)).all(axis=1)
            if region is not None:
                within &= region(places)
            types = np.full(len(lattice.basis), int(kind) - 1)
            for site, other in basis.items():
                types[site] = other
            made.add(places[within], types[sites[within]])

        return step

    def group(self, name: str, style: str, words: list[str]) -> Step | None:
        """A group; None for styles that only measuring needs. Raises `ValueError`."""
        if style == "region" and words[0] not in self.regions:
            raise ValueError(f"group {name} region {words[0]}: there is no such region")
        finders: dict[str, Callable[[Made], np.ndarray]] = {
            "region": lambda made: self.regions[words[0]].inside(made.positions),
            "type": lambda made: named(made.types + 1, words, int(made.types.max(initial=0)) + 1),
            "id": lambda made: named(made.ids, words, int(made.ids.max(initial=0))),
            "molecule": lambda made: named(made.molecules, words, int(made.molecules.max(initial=0))),
            "union": lambda made: np.logical_or.reduce([made.group(word) for word in words]),
            "intersect": lambda made: np.logical_and.reduce([made.group(word) for word in words]),
            "subtract": lambda made: (
                made.group(words[0]) & ~np.logical_or.reduce([made.group(word) for word in words[1:]])
            ),
            "empty": lambda made: np.zeros(len(made.types), bool),
        }
        if style not in finders:
            return None

        def step(made: Made) -> None:
            made.groups[name] = finders[style](made) | made.groups.get(name, np.zeros(len(made.types), bool))

        return step

    def set_types(self, words: list[str]) -> Step:
        """The command set: types, whole or of a share of the particles. Raises `ValueError`."""
        style, name, *rest = words
        length = {"type": 2, "type/fraction": 4}.get(rest[0] if rest else "", 0)
        if style not in ("group", "type", "region", "atom") or not length or len(rest) != length:
            raise ValueError(
                f"set {' '.join(words)}: known are group, type, region, atom, with type N or type/fraction N SHARE SEED"
            )
        which = self._chosen(style, name)
        kind = int(rest[1]) - 1

        def step(made: Made) -> None:
            chosen = which(made)
            if length == 4:
                chosen &= drawn.first_by_place(int(rest[3]), made.positions) <= float(rest[2])
            made.types = np.where(chosen, kind, made.types)

        return step

    def displace_atoms(self, words: list[str]) -> Step:
        """Particles that are moved. Raises `ValueError`."""
        group, style, *rest = words
        count = {"move": 3, "random": 4, "ramp": 6, "rotate": 7}.get(style, 0)
        numbers, options = rest[:count], rest[count:]
        whole = bool(count) and len(numbers) == count
        dims = [numbers.pop(3), numbers.pop(0)] if style == "ramp" and len(numbers) == 6 else ["x"]
        sound = whole and {*dims} <= {*"xyz"} and all(map(is_number, numbers))
        if not sound or options not in ([], ["units", "box"], ["units", "lattice"]):
            known = "move X Y Z, random X Y Z SEED, ramp DIM LOW HIGH DIM LOW HIGH, rotate X Y Z AX AY AZ ANGLE"
            raise ValueError(f"displace_atoms {' '.join(words)}: known are GROUP {known}; units")
        if style in ("ramp", "rotate"):
            steps = np.ones(3) if "box" in options else self.spacing
            way = ramp(dims, numbers, steps) if style == "ramp" else turn(numbers, steps)
            return lambda made: made.move(np.where(made.group(group)[:, None], way(made), made.positions))
        far = np.array([float(word) for word in numbers[:3]]) * (np.ones(3) if "box" in options else self.spacing)

        def step(made: Made) -> None:
            chosen = made.group(group)
            moves = np.tile(far, (len(chosen), 1))
            if style == "random":
                moves = far * 2.0 * drawn.by_place(int(numbers[3]), made.positions)
            made.move(np.where(chosen[:, None], made.positions + moves, made.positions))

        return step

    def delete_atoms(self, words: list[str]) -> Step:
        """Particles of a group or a region go, or those that are too near to others. Raises `ValueError`."""
        numbered_anew = words[-2:] != ["compress", "no"]
        if words[-2:-1] == ["compress"] and words[-1] in ("yes", "no"):
            words = words[:-2]
        near = words[0] == "overlap" and len(words) == 4 and is_number(words[1])
        if not near and (len(words) != 2 or words[0] not in ("group", "region")):
            known = "group ID, region ID and overlap CUTOFF GROUP GROUP; compress"
            raise ValueError(f"delete_atoms {' '.join(words)}: known are {known}")
        which = overlapping(float(words[1]), *words[2:]) if near else self._chosen(*words)

        def step(made: Made) -> None:
            goes, order, at = which(made).tolist(), list(range(len(made.types))), 0
            while at < len(order):  # the last one takes the place of one that goes, as in LAMMPS
                if not goes[order[at]]:
                    at += 1
                    continue
                last = order.pop()
                if at < len(order):
                    order[at] = last
            if not numbered_anew:
                made.given = made.ids
            made.keep(np.array(order, np.int64))
            if numbered_anew:
                made.given = None

        return step

    def reset_atoms(self, words: list[str]) -> Step:
        """The command reset_atoms id: numbers from 1 on, as they stand or by places. Raises `ValueError`."""
        if words[:1] != ["id"] or words[1:] not in ([], ["sort", "yes"], ["sort", "no"]):
            raise ValueError(f"reset_atoms {' '.join(words)}: known is id, with sort yes or no")

        def step(made: Made) -> None:
            made.given = None
            if words[-1] == "yes":
                made.given = np.empty(len(made.types), np.int64)
                made.given[by_cells(made)] = np.arange(1, len(made.types) + 1)

        return step

    def _chosen(self, style: str, name: str) -> Callable[[Made], np.ndarray]:
        """Which particles a word means."""
        if style == "region" and name not in self.regions:
            raise ValueError(f"there is no region {name}")
        return {
            "group": lambda made: made.group(name).copy(),
            "region": lambda made: self.regions[name].inside(made.positions),
            "type": lambda made: named(made.types + 1, [name], int(made.types.max(initial=0)) + 1),
            "atom": lambda made: named(made.ids, [name], int(made.ids.max(initial=0))),
        }[style]
