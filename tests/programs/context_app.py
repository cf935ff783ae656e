"""The training app with cp: a state that goes on anywhere, the same validation and weights. `context_app.py FOLDER`."""

import sys
from pathlib import Path

import numpy as np
import trained as app
from mpi4py import MPI

from hpckit.apps.train import weights
from hpckit.apps.train.output.evaluation import evaluate

WORLD = MPI.COMM_WORLD
FOLDER = Path(sys.argv[1])
SETTINGS = {
    "model": {"kind": "llama", "layers": 2, "width": 24, "heads": 2, "context": 13, "experts": 3, "top_k": 2},
    "data": {"file": FOLDER / "text.txt", "validation": 0.2},
    "batch": {"size": 4},
    "optimizer": {"lr": 0.01, "warmup": 2},
    "time": {"steps": 4},
    "precision": "float64",
}


def trained(comm, changes, steps, saved=None):
    """Losses of the steps, the state after them, validation, and the weights on rank 0."""

    def told(trainer, laid):
        found, folder = evaluate(trainer, laid.data.validation), FOLDER / f"model-{WORLD.rank}-of-{comm.size}"
        weights.save(trainer, folder)
        every = weights.gathered(trainer)
        for p in weights.read(folder, laid.shape, trainer.config).parameters() if every else ():
            np.testing.assert_array_equal(p.value, every[p.name])
        return found.loss, found.accuracy

    losses, kept, found, said = app.trained({**SETTINGS, **changes}, comm, steps, saved, told)
    return losses, kept, said, found


if WORLD.rank == 0:
    (FOLDER / "text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 11)
WORLD.Barrier()
straight, _, checked, wanted = trained(MPI.COMM_SELF, {}, 4)
meshes = {
    2: [{"mesh": {"cp": 2}}, {"mesh": {"cp": 2, "ep": 2}, "sharding": {"stage": 2}}],
    4: [
        {"mesh": {"cp": 2}, "sharding": {"stage": 3}},
        {"mesh": {"cp": 2, "pp": 2}, "batch": {"size": 4, "microbatches": 2}},
        {"mesh": {"cp": 4, "ep": 2}},
    ],
}[WORLD.size]
_, saved, _, _ = trained(MPI.COMM_SELF, {}, 2)
for number, changes in enumerate(meshes):
    first, kept, _, _ = trained(WORLD, changes, 2)
    losses, _, told, found = trained(WORLD, meshes[number - 1], 2, kept)  # on another mesh
    assert np.allclose(first + losses, straight, rtol=1e-12, atol=0), (changes, first + losses, straight)
    assert np.allclose(told, checked, rtol=1e-10, atol=0), (changes, told, checked)
    assert (found is None) == (WORLD.rank > 0)
    assert not found or all(np.allclose(found[name], value, rtol=0, atol=1e-10) for name, value in wanted.items())
    losses, _, _, _ = trained(MPI.COMM_SELF, {}, 2, kept)
    assert np.allclose(losses, straight[2:], rtol=1e-12, atol=0), changes
    losses, _, _, _ = trained(WORLD, changes, 2, saved)
    assert np.allclose(losses, straight[2:], rtol=1e-12, atol=0), changes
if WORLD.rank == 0:
    print("good")
