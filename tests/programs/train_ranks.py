"""Training on 2 ranks: `train_ranks.py FOLDER short` leaves a run directory for each mesh, and a resumed one; `long`,
a network that has learned a page by heart, and one that reads digits.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.train.config import Config
from hpckit.apps.train.layout import layout
from hpckit.apps.train.output import figures
from hpckit.apps.train.run import run
from hpckit.apps.train.trainer import Trainer
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.run.context import Run
from hpckit.run.directory import RunDirectory

WORLD = MPI.COMM_WORLD
figures.gemm_peak = functools.cache(figures.gemm_peak)  # once for all runs: a third of their time
FOLDER = Path(sys.argv[1])
TEXT = FOLDER / "text.txt"
TINY = {
    "model": {"kind": "gpt2", "layers": 3, "width": 24, "heads": 3, "context": 13, "dropout": 0.1},
    "data": {"file": TEXT, "validation": 0.2},
    "batch": {"size": 8, "microbatches": 4},
    "optimizer": {"lr": 0.01, "warmup": 2},
    "time": {"steps": 6, "validate_every": 3},
    "sample": {"tokens": 30, "prompt": "the ", "temperature": 0.0},
    "precision": "float64",
}
MLP = {"model": {"kind": "mlp", "layers": 3, "width": 10, "activation": "silu"}, "data": {"validation": 0.2},
       "optimizer": {"lr": 0.03}}  # fmt: skip
EVEN = {"balance": "arithmetic"}  # where memory is weighed: measured times may put one layer alone on a stage
LLAMA = {"kind": "llama", "layers": 3, "width": 36, "heads": 6, "kv_heads": 2, "context": 13}
MESHES = {
    "serial": {},
    "dp": {"mesh": {"dp": 2}, "batch": {"size": 8, "microbatches": 2}},
    "pp": {"mesh": {"pp": 2}, "pipeline": {"schedule": "1f1b", **EVEN}},
    "zb": {"mesh": {"pp": 2}, "pipeline": {"schedule": "zb_h1", **EVEN}},
    "mlp": {"mesh": {"pp": 2}, "pipeline": {"schedule": "zb_v"}, **MLP},
    "mlp_serial": MLP,
    "zb_v": {"mesh": {"pp": 2}, "pipeline": {"schedule": "zb_v"}},
    "recompute": {"model": {**TINY["model"], "recompute": True}},
    "llama": {"mesh": {"pp": 2}, "model": LLAMA},
    "llama_serial": {"model": LLAMA},
}
PAGE = """\
A halo is the ring of cells around a block that belongs to its neighbors. Before each step every rank sends the cells at
its own edges, and receives those of the others; while the messages are on their way, it computes all cells that need
none of them. Where a domain ends, a boundary condition says what lies beyond: a wall, an open end, or the opposite side
of the box.
"""
BY_HEART = {
    "model": {"kind": "gpt2", "layers": 2, "width": 48, "heads": 4, "context": 16},
    "data": {"file": FOLDER / "page.txt"},
    "batch": {"size": 16},
    "optimizer": {"lr": 6e-3, "weight_decay": 0.01},
    "time": {"steps": 1000, "validate_every": 0},
    "sample": {"tokens": 290, "prompt": "A halo is", "temperature": 0.0},
}
CNN = {
    "model": {"kind": "cnn"},
    "data": {"validation": 0.2},
    "batch": {"size": 64},
    "optimizer": {"lr": 4e-3},
    "time": {"steps": 300, "validate_every": 0},
}


def train(name, comm, settings):
    config = Config.model_validate(settings)
    # As the front end leaves it: a report reads the settings there.
    directory = None
    if comm.rank == 0:
        directory = RunDirectory.create(FOLDER / name)
        values = {"app": "train", "title": name, "values": config.model_dump(mode="json")}
        directory.write_json("resolved.json", values)
    comm.Barrier()
    with contextlib.redirect_stdout(io.StringIO()) as told:
        run(config, Run(comm, FOLDER / name, app="train", title=name, lines=False, traced=name == "zb_v"))
    if comm.rank == 0:
        (FOLDER / f"{name}.said").write_text(told.getvalue())


class Saved:
    """The pieces of all ranks, as a checkpoint gives them back."""

    def __init__(self, trainer):
        state = trainer.state()
        own = {piece.name: piece.block for piece in state.pieces}
        assert all(piece.shape == piece.block.shape for piece in state.pieces)
        np.savez(FOLDER / f"state{WORLD.rank}.npz", **{name.replace("/", ":"): block for name, block in own.items()})
        WORLD.Barrier()
        self.arrays, self.values = {}, json.loads(json.dumps(state.values))
        for rank in range(WORLD.size):
            with np.load(FOLDER / f"state{rank}.npz") as found:
                assert not set(found) & set(self.arrays), "two ranks give one array"
                self.arrays |= {name: found[name] for name in found}

    def read(self, name, start, shape):
        array = self.arrays[name.replace("/", ":")]
        assert tuple(shape) == array.shape
        return array


def losses(trainer, steps):
    return [trainer.step(PhaseTimer()).loss for _ in range(steps)]


def goes_on(first, second):
    """Four steps on one mesh, a state, and two on another; and six on one. Exact where the sums are the same."""
    config = Config.model_validate({**TINY, **MESHES[first]})
    with Mesh(WORLD, dp=config.mesh.dp or 1, pp=config.mesh.pp) as mesh:
        trainer = Trainer(config, layout(config, 2), mesh)
        four, saved = losses(trainer, 4), Saved(trainer)
        two = losses(trainer, 2)
    config = Config.model_validate({**TINY, **MESHES[second]})
    with Mesh(WORLD, dp=config.mesh.dp or 1, pp=config.mesh.pp) as mesh:
        trainer = Trainer(config, layout(config, 2), mesh)
        trainer.warm_up()
        trainer.restore(saved)
        again = losses(trainer, 2)
    return {"four": four, "two": two, "again": again}


def main():
    alone = WORLD.Split(WORLD.rank)
    if WORLD.rank == 0:
        TEXT.write_text("the quick brown fox jumps over the lazy dog; " * 11)  # 4 batches of TINY
        BY_HEART["data"]["file"].write_text(PAGE)
    WORLD.Barrier()
    if sys.argv[2] == "long":
        single = {"by_heart": BY_HEART, "cnn": CNN}
    else:
        for name, changes in MESHES.items():
            if "mesh" in changes:
                train(name, WORLD, TINY | changes)
        resumed = {f"{a} {b}": goes_on(a, b) for a, b in (("zb", "zb"), ("dp", "zb_v"))}
        if WORLD.rank == 0:
            (FOLDER / "resumed.json").write_text(json.dumps(resumed))
        single = {name: TINY | changes for name, changes in MESHES.items() if "mesh" not in changes}
    for name in list(single)[WORLD.rank :: 2]:  # neither rank waits for the other
        train(name, alone, single[name])
    alone.Free()


main()
