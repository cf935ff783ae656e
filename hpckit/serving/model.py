"""A language model that runs steps: rows of many texts at once, with the bits that each text alone would give.

What a rank does in a step, and in which order, is `plan.program`, which every plan of a step is made of, too. The
layers are one compiled call (`decoder`): products are the tile's, attention goes over the blocks of a text in its
order, and everything else is done row by row or number by number. Ranks split columns and heads, never a sum
(`weights`): between two products all ranks write their columns where all see them, and wait for each other. A replica
computes its own pieces of a step, beside the others. On several stages rows go from one to the next, each through its
layers; the last one has the logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.kernels.nn.norm import dispatch as norms
from hpckit.kernels.nn.paged.pages import PAGE, page_shapes
from hpckit.kernels.nn.tile.tile import width_of
from hpckit.nn.transformer.rotary import angles
from hpckit.serving.checkpoint.weights import Norm, Weights
from hpckit.serving.decoder import ACTIVATIONS, MatrixTable, Sizes, decoder
from hpckit.serving.plan.program import ATTEND, LOWER, PROJECT, RAISE, program
from hpckit.serving.step import ServingStep
from hpckit.serving.team import Team

ACTIONS = ATTEND, PROJECT, RAISE, LOWER  # in the order of the decoder's numbers
Floats = npt.NDArray[np.float32]


class ServedModel:
    """A model with memory for `blocks` blocks of keys and values, and for steps of up to `rows` tokens.

    answers: most rows of logits of a step. Collective over the team.
    """

    def __init__(self, weights: Weights, team: Team, blocks: int, rows: int, answers: int) -> None:
        s = self.shape = weights.shape
        self.weights, self.team, self.count = weights, team, blocks
        self.rows, self.answers = rows, answers
        first, groups = weights.groups
        shapes = page_shapes(max(1, groups), blocks, s.head_width, width_of("float32"))
        self._keys, self._values = (team.array_of_twins((len(weights.blocks), *shape), np.float32) for shape in shapes)
        if s.rope_base:
            tables = (
                table.astype(np.float32) for table in angles(s.context, s.head_width, s.rope_base, s.rope_scaling)
            )
            self._cosines, self._sines = tables
        else:
            self._cosines = self._sines = np.zeros((0, s.head_width // 2), np.float32)
        most = rows * max(1, s.chosen)
        self._mixed = team.array(rows, s.heads * s.head_width)
        self._hidden = team.array(most, s.hidden)
        self._branch = team.array(rows, s.width)
        every = program(team.stage, team.stages, len(weights.blocks))
        self._program = np.array(
            [[ACTIONS.index(one.does), one.block, one.shows == "branch"] for one in every if one.does in ACTIONS]
        ).reshape(-1, 3)
        self._tables, self._barrier = MatrixTable(weights.blocks), team.barrier()
        kind = ACTIVATIONS.index(s.activation)
        eps, factor = np.float32(s.eps), np.float32(s.head_width**-0.5)
        own = groups, first, s.group, s.head_width, weights.group_columns, s.experts, s.chosen, kind, s.is_gated
        self._sizes = Sizes(*own, eps, factor)
        self._logits = team.array_of_all(team.replicas * answers if team.is_last else 0, s.vocab)

    @property
    def kv_bytes(self) -> int:
        """Bytes of this rank's keys and values."""
        return self._keys.nbytes + self._values.nbytes

    def run(self, step: ServingStep) -> Floats:
        """The logits of the step's answers, [answers, vocab], on the last stage; the next step writes over them.
        Collective.
        """
        own, before = step.of_replica(self.team.replica)
        if own.pieces:
            self._run(own, self._logits[before : before + own.answers])
        self.team.meet()
        return self._logits[: step.answers]

    def _run(self, step: ServingStep, logits: Floats) -> None:
        """The part of a step that is ours."""
        rows = np.cumsum([0, *(len(piece.tokens) for piece in step.pieces)])
        starts = np.array([piece.start for piece in step.pieces])
        tables = np.zeros((len(step.pieces), max(len(piece.blocks) for piece in step.pieces)), np.int64)
        for n, piece in enumerate(step.pieces):
            tables[n, : len(piece.blocks)] = piece.blocks
        owner = np.repeat(np.arange(len(starts)), np.diff(rows))
        positions = np.arange(rows[-1]) - rows[owner] + starts[owner]
        slots = tables[owner, positions // PAGE] * PAGE + positions % PAGE
        places = positions, slots, rows, starts, tables
        x = self.team.carried(len(positions)) if self.team.stage else self._embed(step, positions)
        self._decode(x, places)
        if self.team.is_last and step.answers:
            self._answer(step, rows, x, logits)
        if not self.team.is_last:
            self.team.carry(x)

    def _decode(self, x: Floats, places: tuple[Any, ...]) -> None:
        """The layers of this stage, which change the rows."""
        shared, pages = (self._mixed, self._hidden, self._branch), (self._keys, self._values)
        tables = self._tables.layers, self._tables.matrices
        turns = self._cosines, self._sines
        self.team.came(decoder()(self._program, *tables, self._sizes, x, places, pages, turns, shared, self._barrier))

    def _embed(self, step: ServingStep, positions: Any) -> Floats:
        """The rows of the tokens, with their positions where these are learned."""
        x = self.weights.embed(np.array([token for piece in step.pieces for token in piece.tokens], np.int64))
        return np.ascontiguousarray(x if self.weights.positions is None else x + self.weights.positions[positions])

    def _answer(self, step: ServingStep, rows: Any, x: Floats, logits: Floats) -> None:
        """Our columns of the logits of the step's answers."""
        wanted = [
            row
            for first, piece in zip(rows[1:], step.pieces, strict=True)
            for row in range(first - piece.answers, first)
        ]
        head = self.weights.head
        if head is not None:
            head.multiply(self._normed(self.weights.norm, x[wanted]), logits[:, head.begin : head.end])

    def _normed(self, norm: Norm, x: Floats) -> Floats:
        y, mean, spread = np.empty_like(x), np.empty(len(x), np.float32), np.empty(len(x), np.float32)
        if norm.bias is None:
            norms.rms_norm(x, norm.gain, self.shape.eps, y, spread)
        else:
            norms.layer_norm(x, norm.gain, norm.bias, self.shape.eps, y, mean, spread)
        return y
