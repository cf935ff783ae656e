"""A step of a pipeline: the execution of each action of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.nn.memory import empty_like
from hpckit.nn.layer import Turns, at_once
from hpckit.plan.pipeline.program import Together
from hpckit.plan.pipeline.schedule import COMPUTE, Action
from hpckit.plan.pipeline.training import TrainingPlan
from hpckit.training.context.ranks import ContextRanks
from hpckit.training.experts.shards import JoinedParts, JoinedShards
from hpckit.training.grouped import LossOfParts
from hpckit.training.messages import Messages, form_of
from hpckit.training.parts import Parts
from hpckit.training.pipeline.stage import FORWARD, INPUT, Left, Stage, held_bytes
from hpckit.training.replicas import add_second
from hpckit.training.sharded.shards import Shards
from hpckit.training.tensor.ranks import Ranks

if TYPE_CHECKING:
    from hpckit.nn.layer import Pass
    from hpckit.nn.parameters import Parameter

Key = tuple[int, int]  # stage, microbatch
OVER = object()  # of turns
Form = tuple[tuple[int, ...], np.dtype]


@dataclass(frozen=True)
class Holding:
    """The state of a pipeline's rank between steps.

    stages: its own, by number. units: their numbers in `shards`. following: for each action of the program the stage
    that is computed after this one, -1 for none. shared: a weight of the first and the last stage, if it has one of
    these. everywhere: ranks without samples of a microbatch work on it, too: they have experts for those of others.
    forms: of each stage's input and output, by the form of a microbatch of x.
    """

    plan: TrainingPlan
    rank: int
    loss: Any
    stages: dict[int, Stage]
    units: dict[int, int]
    following: Sequence[int]
    shared: list[Parameter]
    messages: Messages
    shards: Shards | JoinedShards
    tensor: Ranks
    context: ContextRanks
    parts: Parts | JoinedParts | None = None
    everywhere: bool = False
    forms: dict[Form, dict[int, tuple[Form, Form]]] = field(default_factory=dict)


class BatchStep:
    """Forward and backward of one batch. All ranks skip microbatches without samples.

    starts: of the fixed parts of each microbatch (`TrainingPlan.part_starts`). done:
    the compute actions with their begin and end, s, each turn of those that are taken together; on a GPU without a
    pipeline the last one ends when all is done.
    held: with `weigh`, the peak of the bytes kept for backward passes.
    """

    def __init__(
        self,
        own: Holding,
        x: Any,
        targets: Any,
        cuts: Sequence[slice],
        starts: Sequence[tuple[int, ...]],
        passing: Pass,
        scale: float,
        weigh: bool = False,
    ) -> None:
        self._own, self._weigh, self.held = own, weigh, 0
        self.x, self.targets, self.cuts, self.scale = own.context.own(x), own.context.own(targets), cuts, scale
        self.passes = [
            replace(
                passing,
                first_sample=passing.first_sample + cut.start,
                tokens=tokens_of(self.x[cut]),
                whole=tokens_of(x)[1],
                scale=scale,
                parts=own_starts,
            )
            for cut, own_starts in zip(cuts, starts, strict=True)
        ]
        self._losses: list[list[Any]] = [[0.0] * max(1, len(own_starts) - 1) for own_starts in starts]
        self.done: list[tuple[Action, float, float]] = []
        self._outputs: dict[Key, Any] = {}  # made for the next stage
        self._gradients: dict[Key, Any] = {}  # of a stage's input, for the previous stage
        self._coming: dict[tuple[int, str, int], Any] = {}  # posted receives, by stage, kind and microbatch
        self._kept: dict[Key, list[Any]] = {}  # what F saved
        self._left: dict[Key, Left] = {}  # what W still needs
        self._loss_kept: dict[int, Any] = {}
        self._order = [number for number, cut in enumerate(cuts) if cut.start < cut.stop or own.everywhere]
        self._ready: set[Key] = set()  # whose W is due, and waits for W of earlier microbatches
        self._weighed: dict[int, int] = {}  # stage -> number of W done
        self._waiting: list[Action] | None = None  # backward passes whose gradient leaves behind a forward's output
        self._compute: dict[str, Callable[[Action], Turns[None]]] = {
            "F": self._forward,
            "B": self._backward,
            "I": self._backward_input,
            "W": self._backward_weight,
        }
        self._do: dict[str, Callable[[Action], None]] = {
            "SEND_F": self._send_output,
            "SEND_I": self._send_gradient,
            "RECV_F": self._receive_output,
            "RECV_I": self._receive_gradient,
            "SEND_T": self._send_tied,
            "RECV_T": self._receive_tied,
            "TIE": self._tie,
            "REDUCE": self._reduce,
        }

    @property
    def losses(self) -> list[Any]:
        """The sum of each fixed part, or else microbatch, on the rank of the last stage, a number or an array of one on
        a GPU.
        """
        return [loss for own in self._losses for loss in own]

    def work_off(self, actions: Sequence[Action], sync: bool) -> None:
        """Execute the program; without `sync` gradients are not summed over replicas and stages."""
        if self._own.parts is not None:
            self._own.parts.begin()
        pairs, place = self._own.plan.together(self._own.rank), 0
        while place < len(actions):
            action = actions[place]
            if place in pairs:
                self._take_together(pairs[place])
            elif action.kind in COMPUTE:
                self._have(action, self._own.following[place])
                if self._has_samples(action):
                    self._take(action)
            elif self._has_samples(action) if action.microbatch >= 0 else sync:
                self._do[action.kind](action)
            if self._weigh:
                self.held = max(self.held, held_bytes([self._kept, self._left, self._loss_kept]))
            place = pairs[place].end if place in pairs else place + 1
        self._settle()
        self._own.messages.finish()
        self._own.shards.finish_sums()

    def _has_samples(self, action: Action) -> bool:
        """Whether this rank works on the microbatch."""
        cut = self.cuts[action.microbatch]
        return cut.start < cut.stop or self._own.everywhere

    def _take(self, action: Action) -> None:
        """A computation."""
        turns = self._compute[action.kind](action)
        next(turns)  # what it needs is there
        begin = perf_counter()
        at_once(turns)
        self.done.append((Action(*action[:3]), begin, perf_counter()))

    def _take_together(self, it: Together) -> None:
        """Two computations, a turn of each in turn: the messages of one fly while the other computes."""
        for action in it.before:
            self._do[action.kind](action)
        pair, self._waiting = [it.forward, it.backward], []
        for action, other in (pair, pair[::-1]):
            self._have(action, other.stage)
        under_way = {action: self._compute[action.kind](action) for action in pair}
        for turns in under_way.values():
            next(turns)  # what it needs is there
        while under_way:
            for action, turns in list(under_way.items()):
                begin = perf_counter()
                over = next(turns, OVER) is OVER
                self.done.append((Action(*action[:3]), begin, perf_counter()))
                if over:
                    del under_way[action]
                if over and action is it.forward:
                    for message in it.after:
                        self._do[message.kind](message)
                    waiting, self._waiting = self._waiting or [], None
                    for message in waiting:
                        self._send_gradient(message)

    def _have(self, action: Action, following: int) -> None:
        """Have the parameters of a stage, and memory for its gradients; the ranks of a replica without samples too."""
        shards, units = self._own.shards, self._own.units
        if shards.gathers:
            shards.need(units[action.stage], units.get(following, -1))
        if action.kind in ("B", "W"):
            shards.open(units[action.stage])

    def _settle(self) -> None:
        """On a GPU that still computes, wait for it: then its last action ends."""
        if self._own.shards.replicas.device.is_gpu and self.done:
            self._own.shards.replicas.device.wait()
            action, begin, _ = self.done[-1]
            self.done[-1] = action, begin, perf_counter()

    # Computations in turns: the first one of each is over when what it needs is there.

    def _forward(self, action: Action) -> Turns[None]:
        stage, _, number, _ = action
        x = self.x[self.cuts[number]] if stage == 0 else self._handed(self._outputs, stage - 1, action)
        yield
        y, self._kept[stage, number] = yield from self._own.stages[stage].forward_turns(x, self.passes[number])
        if stage + 1 < self._own.plan.schedule.stages:
            self._outputs[stage, number] = y
        else:
            own, targets, behind = self._own, self.targets[self.cuts[number]], perf_counter()
            if parts := self.passes[number].parts:
                self._losses[number], self._loss_kept[number] = LossOfParts(own.loss).forward(y, targets, parts)
            else:
                total, self._loss_kept[number] = own.loss.forward(y, targets)
                self._losses[number] = [total]
            own.stages[stage].add_loss(FORWARD, behind)

    def _backward(self, action: Action) -> Turns[None]:
        stage, _, number, _ = action
        if self._order[self._weighed.get(stage, 0)] != number:  # its W waits for W of earlier microbatches
            yield from self._backward_input(action)
            self._send_ready(action)
            at_once(self._backward_weight(action))
            return
        dy = yield from self._output_gradient(action)

        def ready(dx: Any) -> None:
            self._keep_gradient(stage, number, dx)
            self._send_ready(action)

        self._begin_part(stage, number)
        yield from self._own.stages[stage].backward_turns(self._kept.pop((stage, number)), dy, ready=ready)
        self._weighed[stage] = self._weighed.get(stage, 0) + 1
        self._weigh_ready(stage)

    def _backward_input(self, action: Action) -> Turns[None]:
        stage, _, number, _ = action
        dy = yield from self._output_gradient(action)
        turns = self._own.stages[stage].backward_input_turns(self._kept.pop((stage, number)), dy)
        dx, self._left[stage, number] = yield from turns
        self._keep_gradient(stage, number, dx)

    def _backward_weight(self, action: Action) -> Turns[None]:
        yield
        stage, _, number, _ = action
        self._ready.add((stage, number))
        self._weigh_ready(stage)

    def _weigh_ready(self, stage: int) -> None:
        """W of all microbatches whose turn it is: a stage adds to its gradients in the order of the microbatches."""
        done = self._weighed.get(stage, 0)
        while done < len(self._order) and (stage, self._order[done]) in self._ready:
            self._begin_part(stage, self._order[done])
            self._own.stages[stage].backward_weight(self._left.pop((stage, self._order[done])))
            done += 1
        self._weighed[stage] = done

    def _is_last(self, stage: int) -> bool:
        return stage + 1 == self._own.plan.schedule.stages

    def _begin_part(self, stage: int, number: int) -> None:
        """From now on the stage adds to the gradients of this part."""
        if self._own.parts is not None:
            self._own.parts.reach(self._own.units[stage], number, self._is_last(stage))

    def _close_parts(self, stage: int) -> None:
        """The gradients of all parts of the stage are there."""
        if self._own.parts is not None:
            self._own.parts.close(self._own.units[stage], self._is_last(stage))

    def _output_gradient(self, action: Action) -> Turns[Any]:
        """The gradient of a stage's output: behind the first turn, if it comes from the loss."""
        stage, _, number, _ = action
        if stage + 1 < self._own.plan.schedule.stages:
            dy = self._handed(self._gradients, stage + 1, action)
            yield
            return dy
        yield
        begin = perf_counter()
        loss = LossOfParts(self._own.loss) if self.passes[number].parts else self._own.loss
        dy = loss.backward(self._loss_kept.pop(number), self.scale)
        self._own.stages[stage].add_loss(INPUT, begin)
        return dy

    def _handed(self, made: dict[Key, Any], source: int, action: Action) -> Any:
        """The array from stage `source` for this one, made on this rank or received."""
        stage, kind, number, _ = action
        if self._own.plan.schedule.rank_of[source] == self._own.rank:
            return made.pop((source, number))
        posted = self._coming.pop((stage, "F" if kind == "F" else "I", number))
        return self._own.messages.wait(posted, f"{stage}{kind}")

    def _keep_gradient(self, stage: int, number: int, dx: Any) -> None:
        if not stage:
            return
        if dx is None:
            raise InputError(
                f"stage {stage} begins with a layer that gives no gradient of its input",
                likely="a layer for data (input_gradient=False) that is not in the first stage",
                do="make it one layer with those before it: Sequential([before, it])",
            )
        self._gradients[stage, number] = dx

    def _send_output(self, action: Action) -> None:
        self._own.messages.send(action.peer, self._outputs.pop((action.stage, action.microbatch)))

    def _send_ready(self, action: Action) -> None:
        """Send the gradient that B has made; if it is taken together with a forward pass, behind its output."""
        if self._waiting is None:
            self._send_gradient(action)
        else:
            self._waiting.append(action)

    def _send_gradient(self, action: Action) -> None:
        if action.sends is not None:
            self._own.messages.send(action.peer, self._gradients.pop((action.stage, action.microbatch)))

    def _receive_output(self, action: Action) -> None:
        self._receive(action, "F", 0)

    def _receive_gradient(self, action: Action) -> None:
        self._receive(action, "I", 1)

    def _receive(self, action: Action, kind: str, side: int) -> None:
        stage, _, number, peer = action
        form = self._own.forms[form_of(self.x[self.cuts[number]])][stage][side]
        self._coming[stage, kind, number] = self._own.messages.post(peer, *form)

    # A weight of the first and the last stage: the first adds to `grad`, the last to `second_grad`; both get the sum.

    def _send_tied(self, action: Action) -> None:
        self._close_parts(action.stage)
        for parameter in self._own.shared:
            self._own.messages.send(action.peer, parameter.grad if action.stage == 0 else parameter.second_grad)

    def _receive_tied(self, action: Action) -> None:
        coming = self._coming[action.stage, "T", -1] = []
        for parameter in self._own.shared:
            into = parameter.second_grad if action.stage == 0 else parameter.grad
            if self._own.parts is not None:  # the layers may still add to the gradients of a part there
                into = empty_like(into)
            coming.append(self._own.messages.post_into(action.peer, into))

    def _tie(self, action: Action) -> None:
        came = [self._own.messages.wait(each, "tied weights") for each in self._coming.pop((action.stage, "T", -1), ())]
        self._own.messages.finish()  # sent memory is added to from now on
        if self._own.parts is None:
            add_second(self._own.shared)
            return
        for stage in {0, self._own.plan.schedule.stages - 1} & set(self._own.stages):
            self._close_parts(stage)
        for parameter, other in zip(self._own.shared, came, strict=False):  # nothing comes where both are on this rank
            (parameter.second_grad if action.stage == 0 else parameter.grad)[...] = other

    def _reduce(self, action: Action) -> None:
        unit, shards = self._own.units[action.stage], self._own.shards
        if self._own.parts is not None:
            self._close_parts(action.stage)
            shards.start_sum(unit)
            shards.add_second(unit, self._own.shared)
            return
        if self._own.tensor.size > 1:
            shards.open(unit)
            self._own.tensor.add_up(shards.units[unit].parameters)
        if not self._own.plan.program.tied:
            add_second(self._own.shared)
        shards.start_sum(unit)


def tokens_of(x: Any) -> tuple[int, int]:
    """Samples, and tokens of each where x has tokens."""
    return len(x), int(x.shape[1]) if x.ndim > 1 else 1
