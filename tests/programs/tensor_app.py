"""The training app with tp=2 on 2 ranks: a state that goes on anywhere, and logits of weights of transformers.

`tensor_app.py FOLDER`: FOLDER/gpt2 and FOLDER/llama may hold checkpoints, whose logits go to FOLDER/logits.npz.
"""

import sys
from pathlib import Path

import numpy as np
import trained as app
from mpi4py import MPI

import hpckit as hp
from hpckit.apps.train import weights
from hpckit.apps.train.config import Config
from hpckit.apps.train.layout import layout
from hpckit.apps.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
FOLDER = Path(sys.argv[1])
SETTINGS = {
    "model": {"kind": "gpt2", "layers": 2, "width": 24, "heads": 2, "context": 13, "dropout": 0.1},
    "data": {"file": FOLDER / "text.txt", "validation": 0.2},
    "batch": {"size": 4},
    "optimizer": {"lr": 0.01, "warmup": 2},
    "time": {"steps": 6},
    "precision": "float64",
}


def trained(comm, changes, steps, saved=None):
    """Losses of the steps, the state after them, the weights on rank 0."""
    return app.trained({**SETTINGS, **changes}, comm, steps, saved)[:3]


if WORLD.rank == 0:
    (FOLDER / "text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 11)
WORLD.Barrier()
TP, SERIAL, PP = {"mesh": {"tp": 2}}, {}, {"mesh": {"pp": 2}, "batch": {"size": 4, "microbatches": 2}}
straight, _, wanted = trained(MPI.COMM_SELF, SERIAL, 6)
first, saved, _ = trained(WORLD, TP, 3)
for comm, changes in ((WORLD, TP), (MPI.COMM_SELF, SERIAL), (WORLD, PP)):
    losses, _, found = trained(comm, changes, 3, saved)
    assert np.allclose(first + losses, straight, rtol=1e-12, atol=0), (changes, first + losses, straight)
    if comm.rank == 0:
        assert all(np.allclose(found[name], value, rtol=0, atol=1e-10) for name, value in wanted.items())
_, saved, _ = trained(MPI.COMM_SELF, SERIAL, 3)
losses, _, _ = trained(WORLD, TP, 3, saved)
assert np.allclose(losses, straight[3:], rtol=1e-12, atol=0)

FIXED = {"batch": {"size": 4, "parts": 4, "layer_parts": 2}}  # the bits of one rank
straight, _, wanted = trained(MPI.COMM_SELF, FIXED, 4)
first, saved, _ = trained(WORLD, {**FIXED, "mesh": {"tp": 2}}, 2)
losses, _, found = trained(WORLD, {**FIXED, "mesh": {"dp": 2}, "sharding": {"stage": 2}}, 2, saved)
assert first + losses == straight, (first, losses, straight)
assert WORLD.rank or all(np.array_equal(found[name], value) for name, value in wanted.items())

tokens = np.random.default_rng(5).integers(0, 50, (3, 11)).astype(np.int32)
found = {}
for kind in ("gpt2", "llama"):
    if (FOLDER / kind).is_dir():
        config = Config.model_validate(
            {**SETTINGS, "model": {"kind": kind, "weights": FOLDER / kind}, "precision": "float32", **TP}
        )
        with hp.Mesh(WORLD, dp=1, pp=1, tp=2) as mesh:
            trainer = Trainer(config, layout(config, 2), mesh)
            weights.load(trainer, FOLDER / kind)
            parts = WORLD.allgather(trainer.pipeline.forward(tokens))
            found[kind] = np.concatenate(parts, axis=-1)
if WORLD.rank == 0:
    np.savez(FOLDER / "logits.npz", tokens=tokens, **found)
    print("good")
