"""The rivals of `hpckit bench train` on several ranks: torch DDP and torch.distributed.pipelining, over gloo."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch import nn
from torch.distributed import pipelining

from hpckit.bench.collectives.ranks import start_gloo
from hpckit.bench.rivals.torch import GPT, adamw, cross_entropy, gpt, training_step
from hpckit.nn.layer import Sequential

Step = Callable[[], float]


def data_steps(
    ours: Sequential, heads: int, x: np.ndarray, targets: np.ndarray, rate: float
) -> dict[str, Callable[[], float]]:
    """Steps from the values of our model: of one process, and of DistributedDataParallel; the mean loss before it."""
    start_gloo(torch, torch.distributed)
    model = gpt(ours, heads)
    twin = nn.parallel.DistributedDataParallel(copy.deepcopy(model))
    return {
        "torch_one": training_step(model, x, targets, rate),
        "torch_ddp": training_step(twin, x, targets, rate),
    }


class StageModule(nn.Module):
    """A stage of a GPT: some blocks, the first one with the embedding, the last one with the head."""

    def __init__(self, whole: GPT, stage: int, stages: int) -> None:
        super().__init__()
        count = len(whole.blocks) // stages
        self.blocks = nn.ModuleList(list(whole.blocks)[stage * count : (stage + 1) * count])
        first, last = stage == 0, stage + 1 == stages
        self.token: Any = whole.token if first else None
        self.position: Any = whole.position if first else None
        self.norm: Any = whole.norm if last else None
        self.head: Any = whole.head if last else None

    def forward(self, x: Any) -> Any:
        """Tokens or activations to activations or logits."""
        if self.token is not None:
            x = self.token(x) + self.position.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return x if self.norm is None else self.head(self.norm(x))


# Name -> the schedule, and the stages of each of 2 ranks.
SCHEDULES = {
    "torch_gpipe": (pipelining.ScheduleGPipe, ([0], [1])),
    "torch_1f1b": (pipelining.Schedule1F1B, ([0], [1])),
    "torch_interleaved": (pipelining.ScheduleInterleaved1F1B, ([0, 2], [1, 3])),
    "torch_interleaved_zb": (pipelining.ScheduleInterleavedZeroBubble, ([0, 2], [1, 3])),
    "torch_zbv": (pipelining.ScheduleZBVZeroBubble, ([0, 3], [1, 2])),
}


def pipe_steps(
    ours: Sequential, heads: int, x: np.ndarray, targets: np.ndarray, microbatches: int, rate: float
) -> dict[str, Step]:
    """Steps of each schedule on 2 ranks, from the values of our model; the loss where the last stage is, else ours."""
    start_gloo(torch, torch.distributed)
    return {name: _pipe_step(name, ours, heads, x, targets, microbatches, rate) for name in SCHEDULES}


def _pipe_step(
    name: str, ours: Sequential, heads: int, x: np.ndarray, targets: np.ndarray, microbatches: int, rate: float
) -> Step:
    comm = MPI.COMM_WORLD
    kind, placed = SCHEDULES[name]
    stages, own = sum(map(len, placed)), placed[comm.rank]
    whole = gpt(ours, heads)
    parts = [StageModule(whole, number, stages) for number in own]
    made = [
        pipelining.PipelineStage(part, number, stages, torch.device("cpu"))
        for part, number in zip(parts, own, strict=True)
    ]
    given: Any = made[0] if len(made) == 1 else made
    schedule: Any = kind(given, microbatches, loss_fn=cross_entropy)
    optimizer = adamw(parts, rate)
    inputs, wanted = torch.from_numpy(x), torch.from_numpy(targets)
    last = next(rank for rank, held in enumerate(placed) if stages - 1 in held)

    def step() -> float:
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        arguments = (inputs,) if 0 in own else ()
        schedule.step(*arguments, **({"target": wanted, "losses": losses} if comm.rank == last else {}))
        optimizer.step()
        mean = np.array(np.mean([loss.item() for loss in losses]) if losses else 0.0)
        comm.Bcast(mean, last)
        return float(mean)

    return step
