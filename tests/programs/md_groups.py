"""Scripts of several runs on these ranks: `md_groups.py FOLDER NAME…` runs in.NAME; its thermo table and particles."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of, give_flow
from hpckit.apps.md.motion.stages import Stages
from hpckit.apps.md.output.columns import TableColumns
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.io.checkpoint.state import State
from hpckit.md.saved import pieces_of, restore, values_of
from hpckit.md.snapshots import snapshot
from hpckit.md.thermo import measure


class Kept:
    """A checkpoint in memory."""

    def __init__(self, state, comm):
        self.values = state.values
        self.names = tuple(piece.name for piece in state.pieces)
        self._whole = {each.name: np.concatenate(comm.allgather(each.block)) for each in state.pieces}

    def shape(self, name):
        return self._whole[name].shape

    def read(self, name, start, count):
        return self._whole[name][tuple(slice(a, a + n) for a, n in zip(start, count, strict=True))]


def run(comm: MPI.Intracomm, folder: Path, names: list[str], again: int = -1) -> None:
    """Run the scripts on the ranks of `comm`; rank 0 writes NAME-RANKS.npz. again: a step from which a new system goes
    on by a checkpoint.
    """
    for name in names:
        config = Config.model_validate({**settings_of(folder / f"in.{name}").tree, "repro": True})
        system, stages, dynamics = _made(config, comm)
        step, rows, columns = 0, [], TableColumns(stages.config, stages.start, system)

        def look(step, system, stages, columns, rows, wanted=True):
            place = step, stages.steps_in(step), stages.time_at(step)
            list(columns.sample(measure(system), *place))
            if wanted:
                rows.append([*columns.values(measure(system), *place).values()])

        look(step, system, stages, columns, rows)
        while True:
            while stages.steps_in(step) < stages.config.time.steps:
                step += 1
                wanted = stages.prints(step)
                sampled = columns.samples(step, stages.steps_in(step))
                stages.ramp(step)
                dynamics.step(system, stages.config.time.dt, wanted or sampled)
                if step == again:
                    values = {"system": values_of(system), "dynamics": dynamics.saved()}
                    values["columns"] = columns.saved()
                    kept = Kept(stages.saved(State([*pieces_of(system), *columns.pieces()], values)), comm)
                    system.mesh.close()
                    system, stages, _ = _made(config, comm)
                    stages.restore(kept)
                    dynamics = dynamics_of(stages.config, stages.begins[-1], stages.start)
                    stages.ramp(step, anew=True)
                    restore(system, kept, wanted or sampled or stages.config.barostat.kind != "none")
                    columns = TableColumns(stages.config, stages.start, system)
                    columns.restore(kept, stages.config, step)
                    dynamics.restore(kept.values["dynamics"])
                if wanted or sampled:
                    look(step, system, stages, columns, rows, wanted)
            if stages.is_last:
                break
            dynamics = stages.enter_next(step, dynamics)
            columns.enter(stages.config, step)
            look(step, system, stages, columns, rows)
        found = snapshot(system)
        if found is not None:
            given = {key: getattr(found, key) for key in ("positions", "images", "velocities")}
            np.savez(folder / f"{name}-{comm.size}{'-again' if again >= 0 else ''}.npz", rows=rows, **given)
        system.mesh.close()


def _made(config, comm):
    start = Start(config)
    system = make_system(config, start, comm, PhaseTimer())
    stages = Stages(config, start, system)
    dynamics = dynamics_of(stages.config, 0, start)
    give_flow(dynamics, system, stages.config.time.dt)
    return system, stages, dynamics


if __name__ == "__main__":
    run(MPI.COMM_WORLD, Path(sys.argv[1]), sys.argv[2:])
