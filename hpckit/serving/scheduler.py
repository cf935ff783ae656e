"""What the next step computes: running texts first, then waiting ones, until the step's tokens are spent.

There is no phase of prefill or decode: a text has tokens, of which some are computed, and a step takes as many of the
others as fit, so that pieces of long prompts run beside texts that get their next token. Where no block is left, the
text that came last, of the lowest priority, loses its blocks and waits at the head: it is computed again later.

Replicas share blocks, so each may go on with any text. A text goes to the replica that computed its beginning, whose
caches and memory have it, unless that one has clearly more to do in this step than another; and running texts change
over where that shortens the step, which lasts as long as its longest part.

Where a model's layers stand on several stages, as many steps are under way at once: each takes its share of the texts,
and a text whose next token is awaited waits for it. Every stage runs the steps in one order, so that a block which is
given away is written after all that read it.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpckit.kernels.nn.paged.pages import PAGE
from hpckit.serving.blocks import Blocks, chain
from hpckit.serving.step import ServingStep, TextPiece

LEAN = PAGE  # tokens of a step that a replica may have more than another, and still get a text for its beginning


@dataclass
class Text:
    """A text that is written: its prompt, and what came after it.

    priority: smaller ones go first, of equal ones those with the smaller number, which came earlier. leader: another
    text with the same prompt that is computed first, so that this one finds its blocks. needs_all: the logits of the
    whole prompt are wanted. drafts: guesses of the next tokens.
    """

    number: int
    tokens: list[int]
    prompt: int
    priority: int = 0
    salt: str = ""
    leader: Text | None = None
    needs_all: bool = False
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    drafts: tuple[int, ...] = ()
    hashes: list[bytes] = field(default_factory=list)
    found: int = 0  # tokens of the prompt that were there already
    preempted: int = 0
    replica: int = 0
    awaited: bool = False  # its logits are under way

    @property
    def order(self) -> tuple[int, int]:
        """The order of texts: by priority, then by arrival."""
        return self.priority, self.number

    @property
    def count(self) -> int:
        """How many tokens came after the prompt."""
        return len(self.tokens) - self.prompt

    @property
    def written(self) -> list[int]:
        """The tokens after the prompt."""
        return self.tokens[self.prompt :]


class Scheduler:
    """Texts that wait and run on `blocks`; a step has up to `rows` tokens and `answers` logits of each of so many
    replicas, and `texts` texts in all.

    chunk: most tokens of a prompt in a step while other texts are there, so that these do not wait long. stages: of
    the model, and steps that are under way at once.
    """

    def __init__(
        self,
        blocks: Blocks,
        rows: int,
        answers: int,
        texts: int,
        chunk: int | None = None,
        replicas: int = 1,
        stages: int = 1,
    ) -> None:
        self.blocks, self.rows, self.answers, self.texts = blocks, rows, answers, texts
        self.chunk = chunk or rows
        self.waiting: list[Text] = []
        self.running: list[Text] = []
        self.preemptions = self.moves = 0
        self.replicas, self.stages = replicas, stages
        self._homes: dict[int, int] = {}  # which replica wrote a block

    def add(self, text: Text) -> None:
        """Add a text to those that wait."""
        bisect.insort(self.waiting, text, key=lambda one: one.order)

    def drop(self, text: Text) -> None:
        """End a text and free its blocks."""
        for texts in (self.waiting, self.running):
            if text in texts:
                texts.remove(text)
        self._release(text)

    def plan(self) -> ServingStep | None:
        """The next step; None where no text waits or runs. Texts that were preempted for it are among the waiting."""
        self._rows, self._answers = [self.rows] * self.replicas, [self.answers] * self.replicas
        preempted = self.preemptions
        pieces: list[TextPiece] = []
        several = len(self.running) + len(self.waiting) > 1
        self._balance(several)
        most = -(-min(self.texts, len(self.running) + len(self.waiting)) // self.stages)
        for text in list(self.running):
            if len(pieces) == most:
                break
            if text.awaited or text not in self.running:  # preempted for one before it
                continue
            count = self._count(text, several)
            while count and text in self.running and not self._extend(text, text.computed + count):
                last = next(one for one in reversed(self.running) if not one.awaited)
                if last is text and any(one.awaited for one in self.running):
                    count = 0  # those give their blocks back before it does
                else:
                    self._preempt(last)
            if count and text in self.running:
                pieces.append(self._piece(text, count))
        if self.preemptions == preempted:
            for text in list(self.waiting):
                if len(self.running) >= self.texts or len(pieces) == most or not any(self._rows):
                    break
                if text.leader is not None and text.leader.computed < text.leader.prompt and self._alive(text.leader):
                    continue
                piece = self._admit(text, several)
                if piece is None:
                    break
                pieces.append(piece)
        return ServingStep(tuple(sorted(pieces, key=lambda piece: piece.replica))) if pieces else None

    def begin(self, step: ServingStep, texts: Sequence[Text]) -> None:
        """The step is under way. Pieces without answers count as computed: every stage runs later steps after it."""
        for piece, text in zip(step.pieces, texts, strict=True):
            text.awaited = piece.answers > 0
            if not piece.answers:
                self._advance(piece, text, len(piece.tokens))

    def done(self, piece: TextPiece, text: Text, accepted: int) -> None:
        """A piece with answers is computed; accepted: of how many of its tokens the keys and values count (all but
        wrong drafts). Full blocks may be found by other texts from now on.
        """
        text.awaited = False
        self._advance(piece, text, accepted)

    def _advance(self, piece: TextPiece, text: Text, count: int) -> None:
        before = text.computed // PAGE
        text.computed = piece.start + count
        self._hash(text, text.computed // PAGE)
        for n in range(before, text.computed // PAGE):
            self.blocks.keep(text.blocks[n], text.hashes[n])
            self._homes[text.blocks[n]] = piece.replica

    def _count(self, text: Text, several: bool) -> int:
        """How many tokens of a text the step takes; drafts go along only where all of them fit."""
        left = len(text.tokens) - text.computed
        if left < 1:
            return 0
        rows, answers = self._rows[text.replica], self._answers[text.replica]
        room = min(rows, self.chunk if several and left > 1 else rows)
        if text.needs_all and text.computed < text.prompt:
            room = min(room, answers)
        count = min(left, room)
        if count == left:
            if not answers:
                return 0
            text.drafts = text.drafts[: max(0, min(rows - count, answers - 1))]
            return count + len(text.drafts)
        return count

    def _piece(self, text: Text, count: int) -> TextPiece:
        every = [*text.tokens, *text.drafts]
        end = text.computed + count
        answers = 1 + len(text.drafts) if end >= len(text.tokens) else 0
        if text.needs_all and text.computed < text.prompt:
            answers = count
        self._rows[text.replica] -= count
        self._answers[text.replica] -= answers
        own = tuple(every[text.computed : end])
        return TextPiece(text.number, text.computed, own, tuple(text.blocks), answers, text.replica)

    def _balance(self, several: bool) -> None:
        """Running texts go to other replicas where that makes the longest part of the step shorter."""
        if self.replicas == 1:
            return
        free = [text for text in self.running if not text.awaited]
        wanted = {text.number: self._wanted(text, several) for text in free}
        while True:
            loads = [0] * self.replicas
            for text in free:
                loads[text.replica] += wanted[text.number]
            most, least = loads.index(max(loads)), loads.index(min(loads))
            gap = loads[most] - loads[least]
            movable = [text for text in free if text.replica == most and 0 < wanted[text.number] < gap]
            if not movable:
                return
            best = min(movable, key=lambda text: abs(2 * wanted[text.number] - gap))
            best.replica = least
            self.moves += 1

    def _wanted(self, text: Text, several: bool) -> int:
        """Tokens that a running text would have in the next step."""
        left = len(text.tokens) - text.computed
        return min(left, self.chunk if several and left > 1 else self.rows) + len(text.drafts)

    def _route(self, text: Text) -> None:
        """Choose the replica of a text that begins."""
        least = max(range(self.replicas), key=lambda replica: (self._rows[replica], self._answers[replica]))
        home = self._homes.get(text.blocks[-1], least) if text.blocks else least
        has_room = self._rows[home] and self._answers[home]
        text.replica = home if has_room and self._rows[home] + LEAN >= self._rows[least] else least

    def _admit(self, text: Text, several: bool) -> TextPiece | None:
        """Begin to compute a text that waits, from the blocks that are known already; None where blocks are lacking."""
        most = 0 if text.needs_all else (len(text.tokens) - 1) // PAGE
        self._hash(text, most)
        known = self.blocks.find(text.hashes[:most])
        self.blocks.hold(known)
        text.blocks, text.computed = list(known), len(known) * PAGE
        self._route(text)
        count = self._count(text, several)
        if not count or not self._extend(text, text.computed + count):
            self._release(text)
            return None
        text.found = text.computed
        self.waiting.remove(text)
        bisect.insort(self.running, text, key=lambda one: one.order)
        return self._piece(text, count)

    def _extend(self, text: Text, end: int) -> bool:
        """Blocks for `end` tokens of a text; False, and none taken, where there are not enough. One too many from
        drafts that were wrong goes back.
        """
        lacking = -(-end // PAGE) - len(text.blocks)
        if lacking > self.blocks.free:
            return False
        for _ in range(lacking):
            block = self.blocks.take()
            assert block is not None
            text.blocks.append(block)
        if lacking < 0:
            self.blocks.release(text.blocks[lacking:])
            del text.blocks[lacking:]
        return True

    def _preempt(self, text: Text) -> None:
        self.running.remove(text)
        self._release(text)
        text.preempted += 1
        self.preemptions += 1
        self.add(text)

    def _release(self, text: Text) -> None:
        self.blocks.release(text.blocks)
        text.blocks, text.computed, text.drafts = [], 0, ()

    def _hash(self, text: Text, count: int) -> None:
        """The hashes of the first blocks of a text; those that are there stay, as its tokens do."""
        if len(text.hashes) < count:
            text.hashes = list(chain(text.tokens[: count * PAGE], text.salt))

    def _alive(self, text: Text) -> bool:
        return text in self.running or text in self.waiting
