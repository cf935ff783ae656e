"""Pipeline-parallel training: one loop executes this rank's part of the plan, on any mesh dp x pp."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from hpckit.collectives import all_reduce
from hpckit.collectives.whole import rows_of_ranks
from hpckit.comm.agree import share_json, sum_of_ranks
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Squares
from hpckit.plan.pipeline.partition import TimedLayer as LayerTimes
from hpckit.plan.pipeline.price import MeasuredStep
from hpckit.plan.pipeline.schedule import COMPUTE, Action
from hpckit.plan.pipeline.training import TrainingPlan
from hpckit.training.experts.mesh import TOKENS
from hpckit.training.experts.model import every_part, experts_of
from hpckit.training.experts.shards import JoinedShards
from hpckit.training.grouped import Tried, grouped
from hpckit.training.messages import Messages, form_of
from hpckit.training.pipeline.fit import require_fit
from hpckit.training.pipeline.roles import Roles
from hpckit.training.pipeline.shards import shards_of_stages, trees_of_parts
from hpckit.training.pipeline.stage import Stage, nothing
from hpckit.training.pipeline.step import BatchStep, Form, Holding, tokens_of
from hpckit.training.precision import mixed

if TYPE_CHECKING:
    from hpckit.nn.feedforward import Experts
    from hpckit.nn.layer import Sequential


class StepResult(NamedTuple):
    """loss: the mean over all targets of the batch. targets: their number. seconds: of the step, on this rank.

    held: the peak of the bytes that this rank kept for backward passes, if the step was weighed, else 0.
    """

    loss: float
    targets: float
    seconds: float
    held: int = 0


class Pipeline:
    """A model cut into stages on `mesh["pp"]`, with replicas on `mesh["dp"]`; any axis may be missing.

        plan = hp.plan.training_plan(comm.size, len(model.layers), pp=2, batch=32, microbatches=8, schedule="zb_h1")
        pipeline = hp.training.Pipeline(hp.Mesh(comm, dp=plan.dp, pp=plan.pp), model, loss, plan)
        pipeline.initialize(seed=1)
        optimizer = AdamW(pipeline.parameters)
        for share in ...:  # hp.training.Sampler, the same on all ranks of a pipeline
            pipeline.zero_grads()
            result = pipeline.run(x, targets)
            optimizer.step(rate, clip_scale(pipeline.squared_norm(), 1.0))

    Every rank makes the whole model; only the layers of its own stages get memory. The gradients of a stage are added
    in the order of the microbatches, so that parameters have the same bits under every schedule and any number of
    stages, one rank included. deterministic: see `Replicas`. sharding: what the replicas hold in shards, 0 to 3 (see
    `hpckit.training.sharded`); it changes no bit. shard_group: so many neighboring replicas hold a copy in shards, and
    others further copies (0: all hold one); sums are then those of groups, with the same bits where the plan has
    `parts`. dtype: float32, float64, or "bfloat16" or "float16" for mixed
    precision (`hpckit.training.precision`): messages between stages are then of 16 bits, too. gradients: "bfloat16" or
    "float16", in which those of weights go between replicas, where they are not float64. recompute: stages keep
    their input only, and run forward again in backward; it changes no bit. device: where the stages live and compute.
    On a mesh with an axis "tp" its ranks share each layer (`hpckit.training.tensor`): `model` and `loss` are then the
    parts of this rank; tensor_chunks: see `Ranks` there. On an axis "cp" they share the tokens of each sample
    (`hpckit.training.context`), which every one of them gives whole; replicas of the parameters are then the ranks of
    dp and cp. context: how attention meets the keys of other ranks of cp, "gather", "ring", "ulysses",
    "plain_ring" or "auto" (`hpckit.plan.training.context`). Collective;
    raises `InputError` if mesh, model and plan do not fit together.
    """

    def __init__(
        self,
        mesh: Mesh,
        model: Sequential,
        loss: Any,
        plan: TrainingPlan,
        *,
        dtype: npt.DTypeLike = np.float32,
        deterministic: bool = True,
        sharding: int = 0,
        shard_group: int = 0,
        recompute: bool = False,
        device: Device = HOST,
        context: str = "auto",
        tensor_chunks: int = 1,
        gradients: str = "",
    ) -> None:
        require_fit(model, mesh, plan)
        self.plan, self.mesh, self.device = plan, mesh, device
        roles = self._roles = Roles.on(
            mesh,
            plan,
            deterministic=deterministic,
            device=device,
            tensor_chunks=tensor_chunks,
            context=context,
            sharding=sharding,
            shard_group=shard_group,
        )
        self.tensor, self.context, self.replicas = roles.tensor, roles.context, roles.replicas
        self._line, rank = roles.line, roles.line.rank
        whole = model
        self.model, self.loss = model, loss = roles.own_parts(model, loss)
        every = every_part(self.tensor.every_part(whole), plan.ep, plan.etp)
        layers = {s: [model.layers[number] for number in plan.partition.layers(s)] for s in plan.stages_of(rank)}
        program = plan.program.actions[rank]
        self.shards = shards_of_stages(layers, program, roles, sharding, dtype, gradients)
        self.parameters = self.shards.parameters
        self._names = list(model.names)
        # The first stage counts a tied weight.
        second = [p.name for p in self.parameters.list if p.shared and 0 not in layers]
        second += [p.name for p in self.parameters.list if p.cut is None and self.tensor.rank]  # they hold it, too
        if isinstance(self.shards, JoinedShards):
            second += [p.name for p in self.parameters.list if not self.shards.saves(p)]
        self._squares = Squares(self.parameters, every, second)
        messages = Messages(roles.line, device)
        settle = device.wait if device.is_gpu and plan.pp > 1 else nothing
        tried: Tried = {}
        self._own = Holding(
            plan,
            rank,
            loss,
            {
                s: Stage(
                    grouped(
                        mixed(own, self.parameters.storage, first=s == 0, last=s == plan.schedule.stages - 1),
                        gradients if plan.grouped > 1 else None,
                        self.parameters.storage,
                        tried,
                    ),
                    messages.move,
                    settle=settle,
                    recompute=recompute,
                )
                for s, own in layers.items()
            },
            {s: unit for unit, s in enumerate(layers)},
            _following(program),
            [parameter for parameter in self.parameters.list if parameter.shared],
            messages,
            self.shards,
            self.tensor,
            self.context,
            trees_of_parts(plan, roles, self.shards) if plan.parts else None,
            everywhere=roles.experts is not None,
        )
        self._done: list[tuple[Action, float, float]] = []  # compute actions of the last step, with their times

    def initialize(self, seed: int) -> None:
        """Set the parameters by a seed, the same numbers whatever the mesh, and check that replicas agree."""
        self.parameters.initialize(seed)
        self.broadcast()

    def broadcast(self, root: int = 0) -> None:
        """Broadcast the parameters of one replica, for instance from a checkpoint. Raises `MismatchError`."""
        self.shards.broadcast(root)

    def check(self) -> None:
        """Raise `MismatchError` unless all replicas hold the same parameters, to the bit."""
        self.shards.check()

    def need(self, stage: int) -> None:
        """Have the parameters of one of this rank's stages here, where shards are gathered for use. Collective."""
        self.shards.need(self._own.units[stage])

    def zero_grads(self) -> None:
        """Set all gradients to 0."""
        self.parameters.zero_grads()

    def run(
        self,
        x: Any,
        targets: Any,
        passing: Pass | None = None,
        *,
        total: float | None = None,
        sync: bool = True,
        weigh: bool = False,
        loss_scale: float = 1.0,
    ) -> StepResult:
        """Forward and backward of this replica's part of the batch; adds to the gradients.

        x, targets: arrays of the host whose first dim counts samples, the same on all ranks of the pipeline; with fewer
        samples than the plan's, as at the end of the data, microbatches are smaller, and there may be none. total:
        targets of the whole batch; left out, the replicas add up theirs. sync: False only accumulates; the next run
        sums over the replicas. loss_scale: a factor of all gradients (`hp.training.LossScale`), not of the loss that is
        returned. weigh: measure the kept bytes after each action, which takes time. Collective over the
        mesh. Raises `InputError` for arrays that do not fit.
        """
        samples, most = len(x), self.plan.samples(self._roles.replica)
        if len(targets) != samples or samples > most:
            raise InputError(
                f"{samples} samples with {len(targets)} targets, where the plan has {most} samples a replica",
                do="give as many targets as samples, and no more samples than planned",
            )
        begin = perf_counter()
        self._own.messages.sent.clear()
        if self.device.is_gpu and x.dtype.kind == "f":  # tokens and targets: the layers check them first
            x = self.device.to_device(x)
        whole = self.replicas.total(_count(self.context.own(targets))) if total is None else float(total)
        if not sync and self.plan.parts:
            raise InputError("fixed parts are those of one run, and sync=False continues in another", do="take parts=0")
        if not sync and self.shards.stage > 1:
            raise InputError(
                f"sharding={self.shards.stage} keeps no gradients between runs, which sync=False asks for",
                do="give the plan more microbatches, or take sharding=1",
            )
        cuts = self.plan.cuts(samples, self._roles.replica)
        for cut in cuts:
            self._learn_forms(self.context.own(x[cut]), tokens_of(x)[1])
        scale = 1.0 / whole if whole else 0.0
        starts = self.plan.part_starts(samples, self._roles.replica)
        step = BatchStep(self._own, x, targets, cuts, starts, passing or Pass(), scale * loss_scale, weigh)
        step.work_off(self.plan.program.actions[self._own.rank], sync)
        if sync:
            self._settle_experts()
        self._done = step.done
        observer = self.mesh.observer
        if observer.on:
            for action, start, end in step.done:
                observer.act(str(action), start, end)
        return StepResult(self._loss(step) * scale, whole, perf_counter() - begin, step.held)

    def forward(self, x: Any) -> Any:
        """The output for x without training, on the rank of the last stage; None on the others. With an axis cp it is
        that of this rank's tokens, `context.own` of all.

        x: as for `run`, at most as many samples as in a microbatch. Stages hand on one x after another: while a stage
        works on one, the next stage works on the x before. Collective over the pipeline, where shards are gathered over
        the mesh, so that a replica without samples calls it too, and gets None. Call `finish` after the last.
        """
        own, rank_of = self._own, self.plan.schedule.rank_of
        if not len(x) and not self._roles.experts:
            for stage in own.stages:
                self.need(stage)
            return None
        y = self.context.own(self.device.to_device(x) if self.device.is_gpu and x.dtype.kind == "f" else x)
        step = Pass(training=False, tokens=tokens_of(y), whole=tokens_of(x)[1])
        self._learn_forms(y, step.whole)
        given, sent = form_of(y), len(own.messages.sent)
        for stage, each in own.stages.items():
            if stage and rank_of[stage - 1] != own.rank:
                posted = own.messages.post(rank_of[stage - 1], *own.forms[given][stage][0])
                y = own.messages.wait(posted, f"{stage}F")
            self.need(stage)
            y = each.output(y, step)
            if stage + 1 < len(rank_of) and rank_of[stage + 1] != own.rank:
                own.messages.send(rank_of[stage + 1], y)
        del own.messages.sent[sent:]  # they are not messages of a step
        return y if rank_of[-1] == own.rank and len(x) else None

    def _settle_experts(self) -> None:
        """A batch is over: add up which experts its tokens chose, on all ranks of a stage."""
        own = list(self.experts().values())
        if not own:
            return
        chosen = np.concatenate([layer.chosen for layer in own]).astype(np.float64)
        for name in [name for name in TOKENS if name in self.mesh.topology.names]:
            sum_of_ranks(self.mesh[name], chosen)
        at = np.cumsum([layer.experts for layer in own])[:-1]
        for layer, part in zip(own, np.split(chosen, at), strict=True):
            layer.settle(part)

    def experts(self) -> dict[str, Experts]:
        """The mixtures of experts of this rank's stages, by their names."""
        own = [n for stage in self._own.stages for n in self.plan.partition.layers(stage)]
        return {part.name: part for n in own for part in experts_of(self.model.layers[n])}

    @property
    def expert_line(self) -> Any:
        """The communicator of the ranks that have all experts among them, this one included."""
        return self._roles.experts.ranks.line if self._roles.experts else MPI.COMM_SELF

    @property
    def has_first_experts(self) -> bool:
        """Whether this rank is of the first of these lines."""
        return self._roles.experts is None or not self._roles.experts.replicas.rank

    def finish(self) -> None:
        """Wait until the messages of `forward` have left."""
        self._own.messages.finish()

    def squared_norm(self) -> float:
        """The sum of squares of all gradients of the model, each parameter's counted once; the same on all ranks.

        Added chunk by chunk in the order of the model, so that its bits depend neither on stages nor on shards.
        Collective over the mesh.
        """
        squares = self._squares()
        if self.plan.pp > 1:
            all_reduce(squares, self.mesh["pp"], "sum", deterministic=True).wait()
        if self.plan.tp > 1 and not self._roles.experts:  # else the sum over all ranks of a stage has it
            all_reduce(squares, self.mesh["tp"], "sum", deterministic=True).wait()
        return self.shards.squared_norm(squares)

    def measured(self) -> MeasuredStep:
        """The last step on the time axis, and the stages' times since `reset_times`. Collective over the pipeline."""
        ahead = self._own.messages.clock_ahead()
        rows = [
            (action.stage, COMPUTE.index(action.kind), action.microbatch, begin - ahead, end - ahead)
            for action, begin, end in self._done
        ]
        sent = [(len(self._own.messages.sent), sum(self._own.messages.sent))]
        sums = [(stage, *each.mean_times()) for stage, each in self._own.stages.items()]
        return MeasuredStep.of(
            self.plan.schedule,
            rows_of_ranks(np.array(rows, np.float64).reshape(-1, 5), self._line),
            rows_of_ranks(np.array(sent, np.float64), self._line),
            rows_of_ranks(np.array(sums, np.float64).reshape(-1, 4), self._line),
        )

    def layer_times(self) -> list[LayerTimes]:
        """The time of each layer for a microbatch since `reset_times`, s; the last one's with the loss.

        Collective over the pipeline.
        """
        rows = [
            (number, *times)
            for stage, each in self._own.stages.items()
            for number, times in zip(self.plan.partition.layers(stage), each.means().tolist(), strict=True)
        ]
        every = np.concatenate(rows_of_ranks(np.array(rows, np.float64).reshape(-1, 4), self._line))
        every = every[np.argsort(every[:, 0])]
        return [LayerTimes(self._names[int(number)], *times) for number, *times in every.tolist()]

    def reset_times(self) -> None:
        """Reset the layers' times, for instance after a step that compiled kernels."""
        for stage in self._own.stages.values():
            stage.reset_times()

    def _learn_forms(self, x: Any, whole: int) -> None:
        """Learn shape and dtype of the stages' inputs and outputs by a forward pass of the first such microbatch.

        whole: tokens of a sample on all ranks that share them.
        """
        form = form_of(x)
        if form in self._own.forms or self.plan.pp == 1 or not (len(x) or self._roles.experts):
            return
        forms: dict[int, tuple[Form, Form]] = {}
        y, came, step = x, form, Pass(training=False, tokens=tokens_of(x), whole=whole, shapes=True)
        for stage, home in enumerate(self.plan.schedule.rank_of):
            if home == self._own.rank:
                self.need(stage)
                y = self._own.stages[stage].output(y if form_of(y) == came else self.device.zeros(*came), step)
                forms[stage] = came, form_of(y)
            shape, dtype = share_json(self._line, [y.shape, y.dtype.name], home)
            came = tuple(shape), np.dtype(dtype)
        self._own.forms[form] = forms

    def _loss(self, step: BatchStep) -> float:
        """The loss of the batch, on every rank: parts, or else microbatches, in order, then replicas in theirs."""
        node = None if self._own.parts is None else self._own.parts.node
        sums = np.zeros(self.plan.parts or self.plan.replicas)
        if self.plan.schedule.stages - 1 in self._own.stages and not self.tensor.rank:
            for number, loss in enumerate(step.losses):
                if node is None:
                    sums[self.replicas.rank] += float(loss)
                elif number < node.parts:
                    sums[node.first + number] = float(loss)
        if self.mesh.size > 1:
            all_reduce(sums, self.mesh, "sum", deterministic=True).wait()
        total = 0.0
        for each in sums.tolist():
            total += each
        return total


def _count(targets: Any) -> float:
    """The number of targets; negative class numbers do not count."""
    return float(np.count_nonzero(targets >= 0) if targets.dtype.kind in "iu" else targets.size)


def _following(program: Sequence[Action]) -> list[int]:
    """For each action the stage that is computed next after another one; -1 where there is none."""
    found, current, later = [], -1, -1
    for action in reversed(program):
        if action.kind in COMPUTE and action.stage != current:
            current, later = action.stage, current
        found.append(later)
    return found[::-1]
