"""A language model that runs steps: rows of many texts at once, with the bits that each text alone would give.

What a rank does in a step, and in which order, is `plan.program`, which every plan of a step is made of, too.
Products are the tile's, attention goes over the blocks of a text in its order, and everything else is done row by row
or number by number. Ranks split columns and heads, never a sum (`weights`): between two products all ranks write their
columns where all see them, and wait for each other. A replica computes its own pieces of a step, beside the others. On
several stages rows go from one to the next, each through its layers; the last one has the logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.kernels.nn import dispatch as numbers
from hpckit.kernels.nn.norm import dispatch as norms
from hpckit.kernels.nn.paged import dispatch as paged
from hpckit.kernels.nn.paged.pages import PAGE, page_shapes
from hpckit.kernels.nn.tile import dispatch as tile
from hpckit.kernels.nn.tile.tile import width_of
from hpckit.nn.rotary import angles
from hpckit.serving.checkpoint.weights import BlockWeights, Feed, Norm, Weights
from hpckit.serving.plan import ANSWER, EMBED, program
from hpckit.serving.step import ServingStep
from hpckit.serving.team import Team

WHOLE = 128  # numbers of which activations take a multiple, so that none is left over from their vectors
Floats = npt.NDArray[np.float32]


class ServedModel:
    """A model with memory for `blocks` blocks of keys and values, and for steps of up to `rows` tokens.

    answers: most rows of logits of a step. Collective over the team.
    """

    def __init__(self, weights: Weights, team: Team, blocks: int, rows: int, answers: int) -> None:
        s = self.shape = weights.shape
        self.weights, self.team, self.count = weights, team, blocks
        self.rows, self.answers = rows, answers
        _, groups = weights.groups
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
        self._chosen: list[tuple[Feed, Any, Floats, Floats]] = []  # experts, their tokens, shares and hidden rows
        self._program = program(team.stage, team.stages, len(weights.blocks))
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
        x = self.team.carried(len(positions)) if self.team.stage else self._branch[:0]
        for action in self._program:
            if action.does == EMBED:
                x = self._embed(step, positions)
            elif action.does == ANSWER:
                if step.answers:
                    self._answer(step, rows, x, logits)
            else:
                getattr(self, f"_{action.does}")(action.block, x, places)
                self.team.wait()
                if action.shows == "branch":
                    x = x + self._branch[: len(x)]
        if not self.team.is_last:
            self.team.carry(x)

    def _embed(self, step: ServingStep, positions: Any) -> Floats:
        """The rows of the tokens, with their positions where these are learned."""
        x = self.weights.embed(np.array([token for piece in step.pieces for token in piece.tokens], np.int64))
        return x if self.weights.positions is None else x + self.weights.positions[positions]

    def _attend(self, number: int, x: Floats, places: tuple[Any, ...]) -> None:
        """Keys and values of the rows, and the heads of this rank over those of each text."""
        s, count, block = self.shape, len(x), self.weights.blocks[number]
        first, groups = self.weights.groups
        if not groups:
            return
        flat = np.empty((count, groups * self.weights.group_columns), np.float32)
        block.qkv.multiply(self._normed(block.norm1, x), flat)
        lines = s.group + 2
        qkv = flat.reshape(count, groups, -1)[:, :, : lines * s.head_width]
        qkv = np.ascontiguousarray(qkv).reshape(count, groups, lines, s.head_width)
        keys, values = self._keys[number], self._values[number]
        positions, slots, rows, starts, tables = places
        paged.keep(qkv, keys, values, positions, slots, self._cosines, self._sines)
        each = s.group * s.head_width
        paged.attend(
            qkv, keys, values, rows, starts, tables, self._mixed[:count, first * each : (first + groups) * each]
        )

    def _project(self, number: int, x: Floats, _: Any) -> None:
        """The columns of the branch that attention is."""
        out, count = self.weights.blocks[number].out, len(x)
        out.multiply(self._mixed[:count], self._branch[:count, out.begin : out.end])

    def _raise(self, number: int, x: Floats, _: Any) -> None:
        """The hidden columns of the MLP, or of the experts that the rows choose."""
        block = self.weights.blocks[number]
        normed = self._normed(block.norm2, x)
        if block.router is None:
            self._up(block.feeds[0], normed, self._hidden[: len(x)])
        else:
            self._choose(block, normed)

    def _lower(self, number: int, x: Floats, _: Any) -> None:
        """The columns of the branch that the MLP is."""
        block, count = self.weights.blocks[number], len(x)
        down = block.feeds[0].down
        branch = self._branch[:count, down.begin : down.end]
        if block.router is None:
            down.multiply(self._hidden[:count], branch)
            return
        added = np.zeros(branch.shape, np.float32)
        for feed, tokens, share, hidden in self._chosen:
            found = np.empty((len(tokens), branch.shape[1]), np.float32)
            feed.down.multiply(hidden, found)
            added[tokens] += share * found
        branch[:] = added

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

    def _choose(self, block: BlockWeights, normed: Floats) -> None:
        """Each token to the experts with the largest shares, in the order of their numbers, and into these."""
        assert block.router is not None
        count, chosen = len(normed), self.shape.chosen
        scores = np.empty((count, self.shape.experts), np.float32)
        tile.multiply(normed, block.router, scores)
        shares = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
        picked = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :chosen], axis=1)
        shares = np.take_along_axis(shares, picked, axis=1)
        total = shares[:, 0].copy()
        for n in range(1, chosen):
            total += shares[:, n]
        shares = (shares / total[:, None]).astype(np.float32)
        self._chosen, at = [], 0
        for expert in np.unique(picked).tolist():
            tokens, order = np.nonzero(picked == expert)
            hidden = self._hidden[at : at + len(tokens)]
            self._up(block.feeds[expert], normed[tokens], hidden)
            self._chosen.append((block.feeds[expert], tokens, shares[tokens, order, None], hidden))
            at += len(tokens)

    def _up(self, feed: Feed, rows: Floats, hidden: Floats) -> None:
        """The columns of this rank of activation(up(rows)), or of silu(gate(rows)) up(rows)."""
        up = feed.up
        shape = len(rows), up.end - up.begin
        size = shape[0] * shape[1]
        raw, done = (np.zeros(-(-size // WHOLE) * WHOLE, np.float32) for _ in range(2))
        up.multiply(rows, raw[:size].reshape(shape))
        if feed.gate is None:
            getattr(numbers, self.shape.activation)(raw, done)
        else:
            gate = np.zeros_like(raw)
            feed.gate.multiply(rows, gate[:size].reshape(shape))
            numbers.swiglu(gate, raw, done)
        hidden[:, up.begin : up.end] = done[:size].reshape(shape)

    def _normed(self, norm: Norm, x: Floats) -> Floats:
        y, mean, spread = np.empty_like(x), np.empty(len(x), np.float32), np.empty(len(x), np.float32)
        if norm.bias is None:
            norms.rms_norm(x, norm.gain, self.shape.eps, y, spread)
        else:
            norms.layer_norm(x, norm.gain, norm.bias, self.shape.eps, y, mean, spread)
        return y
