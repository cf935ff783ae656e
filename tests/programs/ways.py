"""The way of one argument through the house, on these ranks: the functions of hpckit that a call enters.

`mpiexec -n 2 python tests/programs/ways.py` prints a row a call, with `-v` the functions, too. A climb is an entry from
a lower floor. An all-reduce enters few functions where the other ranks have come already, more where it waits for them.
"""

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import hpckit as hp
from hpckit.apps.md.config import Config as Particles
from hpckit.apps.md.model import make_system
from hpckit.apps.md.start import Start
from hpckit.apps.weather.config import Config as Weather
from hpckit.apps.weather.model import Model
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.md.motion.dynamics import NVE

SPEC = importlib.util.spec_from_file_location(
    "architecture", Path(__file__).parents[2] / "docs" / "generate" / "architecture.py"
)
architecture = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(architecture)
FLOOR = {room: floor for floor, rooms in architecture.floors().items() for room in rooms}
PLACE = {str(path): (architecture.room(module), module) for module, path in architecture.modules().items()}


@dataclass
class Way:
    """What a call enters: functions by name, the longest chain of callers, and the climbs between two functions."""

    functions: list[str] = field(default_factory=list)
    deepest: list[str] = field(default_factory=list)
    climbs: list[str] = field(default_factory=list)


def way(call) -> Way:
    """The way of one call, by the interpreter's own profile; compiled kernels end a chain."""
    found, chain = Way(), []  # of (code's name or "", floor of the nearest function of hpckit)

    def note(frame, event, _) -> None:
        if event == "call":
            at = PLACE.get(frame.f_code.co_filename)
            floor = next((above for _, above in reversed(chain) if above), 0)
            if at is None or frame.f_code.co_qualname.endswith(">"):  # a library, or a comprehension
                chain.append(("", 0))
                return
            name = f"{at[1].removeprefix('hpckit.')}.{frame.f_code.co_qualname}"
            mine = FLOOR.get(at[0], 0)
            if name not in found.functions:
                found.functions.append(name)
            climb = f"{next((above for above, _ in reversed(chain) if above), '')} -> {name}"
            if floor and mine > floor and climb not in found.climbs:
                found.climbs.append(climb)
            chain.append((name, mine))
            through = [above for above, _ in chain if above]
            if len(through) > len(found.deepest):
                found.deepest = through
        elif event == "return" and chain:
            chain.pop()

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def calls(comm):
    """Name -> a call that has been made before, as all but the first ones of a run."""
    with hp.Mesh(comm, dp=0) as mesh:
        for words in (1, 1 << 10, 1 << 21):
            values = np.zeros(words)

            def reduce(values=values) -> None:
                hp.all_reduce(values, mesh["dp"]).wait()

            yield f"all_reduce, {values.nbytes} B", reduce
    with hp.Mesh(comm, z=1, x=0, periodic=("x",)) as mesh:
        model, timer = Model(Weather.model_validate({"grid": {"nx": 32, "nz": 16}}), mesh), PhaseTimer()
        dt = model.dt
        yield "weather step", lambda: model.step(dt, timer)
    system = make_system(config := Particles.model_validate(MELT), Start(config), comm, PhaseTimer())
    yield "MD step", lambda: NVE().step(system, 0.005, True)


MELT = {"system": {"cells": [6, 5, 5]}}

if __name__ == "__main__":
    comm = hp.world()
    for name, call in calls(comm):
        for _ in range(3):
            call()
        found = way(call)
        if comm.rank == 0:
            print(
                f"{name}: {len(found.functions)} functions, a chain of {len(found.deepest)}, {len(found.climbs)} climbs"
            )
            if "-v" in sys.argv:
                print(*found.functions, "climbs:", *found.climbs, sep="\n    ")
