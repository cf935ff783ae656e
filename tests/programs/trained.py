"""The training app for a few steps, and its state on any mesh, for the programs beside this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hpckit as hp
from hpckit.apps.train import weights
from hpckit.apps.train.config import Config
from hpckit.apps.train.layout import layout
from hpckit.apps.train.trainer import Trainer
from hpckit.comm.observe.timer import PhaseTimer


class Saved:
    """The pieces of all ranks, as a checkpoint gives them back; every element is saved once."""

    def __init__(self, comm, trainer):
        state = trainer.state()
        self.values, self.arrays = state.values, {}
        own = [(p.name, p.shape, p.start, p.block) for p in state.pieces]
        for name, shape, start, block in [piece for pieces in comm.allgather(own) for piece in pieces]:
            whole = self.arrays.setdefault(name, np.full(shape, np.nan))
            part = tuple(slice(a, a + n) for a, n in zip(start, block.shape, strict=True))
            assert np.isnan(whole[part]).all(), f"{name} is saved twice"
            whole[part] = block
        assert not any(np.isnan(whole).any() for whole in self.arrays.values()), "something is not saved"
        self.names = list(self.arrays)

    def read(self, name, start, shape):
        return self.arrays[name][tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))]


def trained(
    settings: dict[str, Any], comm: Any, steps: int, saved: Saved | None = None, told: Callable | None = None
) -> tuple:
    """Losses of the steps, the state after them, the weights on rank 0, and what `told` says of trainer and layout."""
    config = Config.model_validate(settings)
    laid = layout(config, comm.size)
    with hp.Mesh(comm, **laid.mesh) as mesh:
        trainer = Trainer(config, laid, mesh)
        trainer.warm_up()
        if saved is not None:
            trainer.restore(saved)
        losses = [trainer.step(PhaseTimer()).loss for _ in range(steps)]
        said = told and told(trainer, laid)
        return losses, Saved(comm, trainer), weights.gathered(trainer), said
