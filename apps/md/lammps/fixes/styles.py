"""The styles of fixes that scripts may have, and what is kept of a fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hpckit.apps.md.settings.formulas import is_number
from hpckit.md.motion.deformation import EDGES
from hpckit.plan.particles.cell import TILTS

HOOVER = {
    "nvt": "temp T T DAMPING, tchain N and drag D",
    "nvt/sllod": "temp T T DAMPING, tchain N, drag D and psllod no",
    "npt": "temp T T DAMPING, iso, aniso, tri, x, y or z P P DAMPING, xy, xz or yz 0 0 DAMPING, couple, tchain N,"
    " pchain N, drag D, dilate all and mtk",
    "nph": "iso, aniso, tri, x, y or z P P DAMPING, xy, xz or yz 0 0 DAMPING, couple, pchain N, drag D, dilate all"
    " and mtk",
}
MOVERS = (*HOOVER, "langevin", "temp/csvr")  # with a state of their own
STREAMING = "nvt/sllod"
LIMITED = "nve/limit"
FIXES = ("nve", LIMITED, "nve/noforce", *MOVERS)
PLAIN = ("nve", LIMITED, "nve/sphere", "nve/noforce")  # velocity Verlet alone
THERMAL = ("nvt", "langevin", "temp/csvr")  # hold a temperature, each of a group
HELD = {"temp", "iso", "aniso", "tri", *EDGES, *TILTS}  # two values, and a damping
OPTIONS = {"nvt": {"tchain", "drag"}, "nph": {"couple", "mtk", "pchain", "drag", "dilate"}}
OPTIONS["npt"] = OPTIONS["nvt"] | OPTIONS["nph"]
OPTIONS[STREAMING] = OPTIONS["nvt"] | {"psllod"}
RELAX = "box/relax"
HOLDS = ("shake", "rattle")
GRAVITY = "gravity"
WALLS = {"wall/lj93": "lj93", "wall/lj126": "lj126", "wall/harmonic": "harmonic"}
REFLECTS = "wall/reflect"
OUTSIDE = (GRAVITY, *WALLS, REFLECTS)  # act from outside
PUSHES = (  # on groups
    *("setforce", "addforce", "aveforce", "spring", "spring/self", "viscous", "efield", "indent", "enforce2d"),
)
UNMOVED, DRIVEN = "nve/noforce", "move"  # particles that move whatever their forces
WEAK = "press/berendsen"
SHIFTS = "recenter"
# How many numbers of steps come before what they take.
SAMPLING = {"ave/time": 3, "ave/chunk": 3, "ave/correlate": 3, "ave/histo": 3, "vector": 1}
ADAPTS = "adapt"
MEASURES = ("ave/", "balance", "print", "store/")  # fixes that measure, print, or balance ranks
RIGID = ("rigid", "rigid/small", "rigid/nve", "rigid/nve/small")
CORRECTIONS = {
    "temp/rescale": "N T T WINDOW FRACTION",
    "temp/berendsen": "T T DAMPING",
    "momentum": "N and linear X Y Z, angular, rescale",
    "heat": "N FLUX, and region of a block",
    "ehex": "N FLUX, and region of a block, hex",
    "thermal/conductivity": "N AXIS NBIN, and swap",
    "viscosity": "N DIM AXIS NBIN, swap, and vtarget",
}
RESCALES = ("temp/rescale", "temp/berendsen")  # toward a temperature, which fix_modify may choose
HEATS = ("heat", "ehex")
SWAPS = ("thermal/conductivity", "viscosity")  # which count what they exchange
OF_GROUPS = ("nve", LIMITED, UNMOVED, DRIVEN, "nvt", "langevin", "temp/csvr", *CORRECTIONS)

Settings = Iterator[tuple[str, Any, int]]  # key, value, line


class Fix(NamedTuple):
    """A fix: its line, its style with the words behind it, and a number of its own: it may come again in a loop."""

    line: int
    words: list[str]
    number: int
    group: str = "all"
    counted: dict[str, Any] | None = None  # by the temperature of fix_modify


class SoftRamp(NamedTuple):
    """A fix adapt of soft pairs: steps between two changes, and the strength: at both ends of a run, or at step 0 and
    how much it grows in a step.
    """

    every: int
    first: float
    last: float
    by_step: bool

    def of(self, given: dict[str, Any], steps: int, now: int | None) -> dict[str, Any]:
        """The settings of pairs that are changed over so many steps from now on. Raises `ValueError`."""
        pairs = [dict(pair) for pair in given.get("pairs", [])]
        reaches = {pair.pop("parameters", given.get("parameters", [0.0]))[-1] for pair in pairs}
        if given.get("kind") != "soft" or len(reaches) > 1:
            raise ValueError(f"fix {ADAPTS}: known of pair_style soft with one cutoff")
        first, last = self.first, self.last
        if self.by_step:
            if now is None:
                raise ValueError(f"fix {ADAPTS}: the step is not known after a minimization")
            first, last = self.first + self.last * now, self.first + self.last * (now + steps)
        reach = reaches.pop()
        apart = [pair for pair in pairs if pair.keys() > {"types"}]
        ends = {"parameters": [first, reach], "ramp_to": [last, reach], "ramp_every": self.every}
        return {**given, **ends, "pairs": apart}


def ramp_of(words: Sequence[str]) -> SoftRamp:
    """A fix adapt from its words, in which a variable is A..B, A:B or a number. Raises `ValueError`."""
    every, what, value, more = "".join(words[:1]), list(words[1:6]), "".join(words[6:7]), [*words[7:]]
    ends = value.split("..") if ".." in value else value.split(":")
    sound = every.isdigit() and int(every) > 0 and what == ["pair", "soft", "a", "*", "*"]
    if not sound or more not in ([], ["reset", "no"], ["scale", "no"]) or not all(map(is_number, ends)):
        known = "N pair soft a * * v_NAME, of a variable ramp(A,B) or one that grows evenly with the step"
        raise ValueError(f"fix {ADAPTS} {' '.join(words)}: known is {known}")
    first, last = (*map(float, ends), 0.0)[:2]
    return SoftRamp(int(every), first, last, ".." not in value)
