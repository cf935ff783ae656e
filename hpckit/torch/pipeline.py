"""Modules of PyTorch as the stages of a pipeline, under any of hpckit's schedules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

from hpckit.collectives import all_reduce
from hpckit.comm.agree import share_json
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.plan.blocks import block_starts
from hpckit.plan.pipeline.program import pipeline_program
from hpckit.plan.pipeline.schedule import Action, Schedule
from hpckit.plan.pipeline.schedules import pipeline_schedule
from hpckit.plan.proving import prove
from hpckit.torch.gradients import Gradients
from hpckit.torch.split import SplitBackward, Uses
from hpckit.torch.tensors import KINDS, as_array, as_tensor, bound_threads, broadcast_tensors, require_model
from hpckit.training.messages import Messages
from hpckit.training.replicas import Replicas

Key = tuple[int, int]  # stage, microbatch
Form = tuple[tuple[int, ...], torch.dtype]
LossOf = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class PipelineStage(nn.Module):
    """The stages of a rank of a pipeline on `mesh["pp"]`, with replicas on `mesh["dp"]`; either axis may be missing.

        layers = [embedding, *blocks, head]
        stages = [nn.Sequential(*layers[:4]), nn.Sequential(*layers[4:])]
        pipeline = PipelineStage(stages, mesh, functional.cross_entropy, schedule="1f1b", microbatches=8)
        optimizer = torch.optim.AdamW(pipeline.parameters())
        for x, y in share:  # the same on all ranks of a pipeline
            optimizer.zero_grad()
            loss = pipeline.run(x, y)
            optimizer.step()

    stages: all modules in their order, of which this rank keeps its own; or {number: module} of its own alone. A stage
    takes one tensor and gives one. loss: a mean over samples. schedule: a name (`hpckit plan pipeline`) or a value;
    chunks: stages a rank, where it leaves that open. It is proved before it runs. Gradients are added in the order of
    the microbatches, so every schedule has the bits of one process that takes the microbatches one by one. Schedules
    that split backward halve it as `hpckit.torch.split` does.

    Collective; raises `InputError` on every rank where stages and mesh do not fit.
    """

    def __init__(
        self,
        stages: Sequence[nn.Module] | Mapping[int, nn.Module],
        mesh: Mesh,
        loss: LossOf,
        *,
        schedule: str | Schedule = "1f1b",
        microbatches: int = 1,
        chunks: int | None = None,
        deterministic: bool = True,
    ) -> None:
        super().__init__()
        others = [name for name in mesh.topology.names if name not in ("dp", "pp")]
        if others:
            raise InputError(f"the mesh has the axis {others[0]}, and a pipeline runs on dp and pp")
        self.mesh, self.loss_of = mesh, loss
        self._line = mesh["pp"] if "pp" in mesh.topology.names else MPI.COMM_SELF
        rank, ranks = self._line.rank, self._line.size
        if isinstance(schedule, str):
            schedule = pipeline_schedule(
                schedule, ranks, microbatches, **({} if chunks is None else {"chunks": chunks})
            )
        if schedule.ranks != ranks:
            raise InputError(f"the schedule {schedule.name} is for {schedule.ranks} ranks, and pp has {ranks}")
        self.schedule = schedule
        self._program = pipeline_program(schedule, reduce=True)
        prove(schedule)
        prove(self._program)
        own = self._own_of(stages, rank)
        self.replicas = Replicas(mesh["dp"] if "dp" in mesh.topology.names else MPI.COMM_SELF, deterministic)
        self.stages = nn.ModuleDict({str(number): module for number, module in own.items()})
        require_model(self.replicas.comm, self.stages)
        bound_threads(mesh)
        broadcast_tensors(self.replicas, [*self.stages.parameters(), *self.stages.buffers()])
        self._trained = {number: [p for p in module.parameters() if p.requires_grad] for number, module in own.items()}
        self.gradients = {number: Gradients(self.replicas, held, sys.maxsize) for number, held in self._trained.items()}
        for each in self.gradients.values():
            each.sync = False  # REDUCE of the program says when
        self._halves = {number: SplitBackward(module) for number, module in own.items()} if _splits(schedule) else {}
        self._rank, self._messages = rank, Messages(self._line)
        self._forms: dict[Form, dict[int, tuple[Form, Form]]] = {}

    def _own_of(self, stages: Sequence[nn.Module] | Mapping[int, nn.Module], rank: int) -> dict[int, nn.Module]:
        wanted = [number for number, home in enumerate(self.schedule.rank_of) if home == rank]
        given = dict(stages) if isinstance(stages, Mapping) else dict(enumerate(stages))
        if not isinstance(stages, Mapping) and len(given) != self.schedule.stages:
            raise InputError(
                f"{len(given)} stages are given, and {self.schedule.title()} has {self.schedule.stages}",
                do=f"cut the model into {self.schedule.stages} modules",
            )
        missing = [number for number in wanted if not isinstance(given.get(number), nn.Module)]
        if missing:
            raise InputError(f"stage {missing[0]} is not a module on its rank {rank}", do=f"give it stages {wanted}")
        seen: dict[int, int] = {}
        for number, module in given.items():
            for parameter in module.parameters():
                if seen.setdefault(id(parameter), number) != number:
                    raise InputError(
                        f"stages {seen[id(parameter)]} and {number} share a parameter",
                        do="give each a parameter of its own, or cut the model elsewhere",
                    )
        return {number: given[number] for number in wanted}

    def forward(self, *_: Any) -> Any:
        """Refused: raises `InputError`."""
        raise InputError("a pipeline has no forward pass of one rank", do="call run(x, targets)")

    def run(self, x: torch.Tensor, targets: torch.Tensor) -> float:
        """Forward and backward of this replica's part of the batch; adds to the gradients, and averages them over the
        replicas by their samples. Returns the mean loss of the whole batch, on every rank. Collective over the mesh.

        x, targets: dim 0 counts samples, the same on all ranks of a pipeline; there may be none on some replicas.
        """
        if len(x) != len(targets):
            raise InputError(f"{len(x)} samples have {len(targets)} targets", do="give as many targets as samples")
        step = ModuleStep(self, x, targets)
        for each in self.gradients.values():
            each.weight = float(len(x))
        for cut in step.cuts:
            self._learn_forms(x[cut])
        for action in self._program.actions[self._rank]:
            step.do(action)
        self._messages.finish()
        for each in self.gradients.values():
            each.wait()
        sums = np.zeros(2)
        if self.schedule.stages - 1 in self._trained:
            sums[:] = sum(step.losses) * len(x), len(x)
        all_reduce(sums, self.mesh, "sum", deterministic=True).wait()
        return float(sums[0] / sums[1]) if sums[1] else 0.0

    def module(self, stage: int) -> nn.Module:
        """One of this rank's stages."""
        return self.stages[str(stage)]

    def _learn_forms(self, x: torch.Tensor) -> None:
        """Learn what stages take and give by a forward pass of such a microbatch, which leaves no trace."""
        form: Form = tuple(x.shape), x.dtype
        if form in self._forms or self.schedule.ranks == 1 or not len(x):
            return
        forms: dict[int, tuple[Form, Form]] = {}
        y, came = x, form
        for stage, home in enumerate(self.schedule.rank_of):
            if home == self._rank:
                given = y if (tuple(y.shape), y.dtype) == came else torch.zeros(came[0], dtype=came[1])
                module = self.module(stage)
                kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
                with torch.no_grad(), torch.random.fork_rng(devices=[]):
                    y = module(given)
                    for buffer, value in kept:
                        buffer.copy_(value)
                if not isinstance(y, torch.Tensor):
                    raise InputError(f"stage {stage} gives a {type(y).__name__}", do="let it give one tensor")
                forms[stage] = came, (tuple(y.shape), y.dtype)
            told = share_json(self._line, [list(y.shape), str(y.dtype).removeprefix("torch.")], home)
            came = tuple(told[0]), getattr(torch, told[1])
        self._forms[form] = forms


class ModuleStep:
    """Forward and backward of one batch: what each action of the program does. Microbatches may be empty."""

    def __init__(self, own: PipelineStage, x: torch.Tensor, targets: torch.Tensor) -> None:
        self._own, self._x, self._targets = own, x, targets
        starts = block_starts(len(x), own.schedule.microbatches).tolist()
        self.cuts = [slice(first, end) for first, end in pairwise(starts)]
        self.losses = [0.0] * len(self.cuts)  # each a part of the mean
        self._order = [number for number, cut in enumerate(self.cuts) if cut.start < cut.stop]
        self._given: dict[Key, torch.Tensor] = {}  # inputs, which collect their gradients
        self._made: dict[Key, torch.Tensor] = {}  # outputs, or the loss
        self._uses: dict[Key, Uses] = {}  # where backward is split
        self._outputs: dict[Key, torch.Tensor] = {}
        self._gradients: dict[Key, torch.Tensor] = {}
        self._left: dict[Key, tuple[Uses, torch.Tensor, torch.Tensor | None]] = {}  # for W
        self._coming: dict[tuple[int, str, int], Any] = {}
        self._ready: set[Key] = set()
        self._weighed = dict.fromkeys(own._trained, 0)  # microbatches whose W is done

    def do(self, action: Action) -> None:
        """One action."""
        stage, kind, number, peer = action
        own = self._own
        if kind == "REDUCE":
            own.gradients[stage].open()
            own.gradients[stage].start()
            return
        if number not in self._order:
            return
        if kind == "F":
            self._forward(action)
        elif kind == "B":
            if self._order[self._weighed[stage]] == number:
                self._backward(action)
            else:  # its W waits for W of earlier microbatches
                self._backward_input(action)
                self._send_gradient(action)
                self._backward_weight(action)
        elif kind == "I":
            self._backward_input(action)
        elif kind == "W":
            self._backward_weight(action)
        elif kind == "SEND_F":
            own._messages.send(peer, as_array(self._outputs.pop((stage, number)).contiguous()))
        elif kind == "SEND_I":
            self._send_gradient(action)
        else:
            form = own._forms[tuple(self._x[self.cuts[number]].shape), self._x.dtype][stage][kind == "RECV_I"]
            self._coming[stage, kind[-1], number] = own._messages.post(peer, form[0], numpy_dtype(form[1])), form[1]
        own._messages.move()

    def _forward(self, action: Action) -> None:
        stage, _, number, _ = action
        own, cut = self._own, self.cuts[action.microbatch]
        x = self._x[cut] if stage == 0 else self._handed(self._outputs, stage - 1, action)
        if stage:
            x.requires_grad_(x.is_floating_point())
        with torch.enable_grad():
            if stage in own._halves:
                y, self._uses[stage, number] = own._halves[stage].forward(x)
            else:
                y = own.module(stage)(x)
            if stage + 1 == own.schedule.stages:
                y = own.loss_of(y, self._targets[cut]) * ((cut.stop - cut.start) / len(self._x))
                self.losses[number] = y.item()
            else:
                self._outputs[stage, number] = y.detach()
        self._given[stage, number], self._made[stage, number] = x, y

    def _backward(self, action: Action) -> None:
        stage, _, number, _ = action
        dy = self._output_gradient(action)
        x = self._given.pop((stage, number))
        self._uses.pop((stage, number), None)
        torch.autograd.backward(self._made.pop((stage, number)), dy)
        self._keep(stage, number, x.grad)
        self._send_gradient(action)
        self._weighed[stage] += 1
        self._weigh_ready(stage)

    def _backward_input(self, action: Action) -> None:
        stage, _, number, _ = action
        dy = self._output_gradient(action)
        x, y = self._given.pop((stage, number)), self._made.pop((stage, number))
        if stage:
            self._keep(stage, number, self._own._halves[stage].input_gradient(y, x, dy))
        self._left[stage, number] = self._uses.pop((stage, number)), y, dy

    def _backward_weight(self, action: Action) -> None:
        self._ready.add((action.stage, action.microbatch))
        self._weigh_ready(action.stage)

    def _weigh_ready(self, stage: int) -> None:
        """W of all microbatches whose turn it is: a stage adds to its gradients in the order of the microbatches."""
        while self._weighed[stage] < len(self._order):
            key = stage, self._order[self._weighed[stage]]
            if key not in self._ready:
                return
            self._own._halves[stage].add_weight_gradients(*self._left.pop(key))
            self._weighed[stage] += 1

    def _output_gradient(self, action: Action) -> torch.Tensor | None:
        stage = action.stage
        return None if stage + 1 == self._own.schedule.stages else self._handed(self._gradients, stage + 1, action)

    def _handed(self, made: dict[Key, torch.Tensor], source: int, action: Action) -> torch.Tensor:
        """The tensor from stage `source` for this one, made on this rank or received."""
        stage, kind, number, _ = action
        if self._own.schedule.rank_of[source] == self._own._rank:
            return made.pop((source, number))
        posted, dtype = self._coming.pop((stage, "F" if kind == "F" else "I", number))
        return as_tensor(self._own._messages.wait(posted, f"{stage}{kind}"), dtype)

    def _keep(self, stage: int, number: int, dx: torch.Tensor | None) -> None:
        if stage:
            if dx is None:
                raise InputError(f"stage {stage} gives no gradient of its input", do="let it use what it is given")
            self._gradients[stage, number] = dx

    def _send_gradient(self, action: Action) -> None:
        if action.sends is not None and action.stage:
            dx = self._gradients.pop((action.stage, action.microbatch))
            self._own._messages.send(action.peer, as_array(dx.contiguous()))


def _splits(schedule: Schedule) -> bool:
    """Whether any backward pass is halved: by the schedule, or as B of an earlier microbatch comes later."""
    done: dict[int, list[int]] = {}
    for action in (action for actions in schedule.actions for action in actions):
        if action.kind in ("I", "W"):
            return True
        if action.kind == "B":
            done.setdefault(action.stage, []).append(action.microbatch)
    return any(numbers != sorted(numbers) for numbers in done.values())


def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """NumPy's dtype of the memory of a tensor."""
    return np.dtype(KINDS[dtype][0]) if dtype in KINDS else torch.empty(0, dtype=dtype).numpy().dtype
