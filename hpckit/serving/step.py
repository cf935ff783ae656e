"""A step of serving as a plan: a plain value that rank 0 decides, that goes to all ranks as numbers, and that can be
replayed and proved without a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError
from hpckit.kernels.nn.paged.pages import PAGE

HEAD = 5  # words of a piece before its tokens and blocks


@dataclass(frozen=True)
class TextPiece:
    """Tokens of one text that a step computes.

    text: its number. start: of its tokens whose keys and values are there. blocks: those of the text, up to the last
    one of these tokens. answers: of how many of the last of these tokens the logits are wanted. replica: which one
    computes them.
    """

    text: int
    start: int
    tokens: tuple[int, ...]
    blocks: tuple[int, ...]
    answers: int
    replica: int = 0

    @property
    def end(self) -> int:
        """Tokens of the text that are computed after the step."""
        return self.start + len(self.tokens)


@dataclass(frozen=True)
class ServingStep:
    """The pieces of one pass through the model, by replicas; their rows stand one after the other, and so do their
    answers.
    """

    pieces: tuple[TextPiece, ...]

    @property
    def rows(self) -> int:
        """Tokens that are computed."""
        return sum(len(piece.tokens) for piece in self.pieces)

    @property
    def answers(self) -> int:
        """Rows of logits."""
        return sum(piece.answers for piece in self.pieces)

    def of_replica(self, replica: int) -> tuple[ServingStep, int]:
        """What a replica computes, and how many answers stand before its own."""
        own = tuple(piece for piece in self.pieces if piece.replica == replica)
        return ServingStep(own), sum(piece.answers for piece in self.pieces if piece.replica < replica)

    def words(self) -> npt.NDArray[np.int64]:
        """The step as numbers: what rank 0 tells the others."""
        found = [len(self.pieces)]
        for piece in self.pieces:
            head = piece.text, piece.start, piece.answers, piece.replica, len(piece.tokens)
            found += [*head, *piece.tokens, *piece.blocks]
        return np.array(found, np.int64)

    @classmethod
    def of(cls, words: npt.NDArray[np.int64]) -> ServingStep:
        """The step that `words` are."""
        given, at, pieces = words.tolist(), 1, []
        for _ in range(given[0]):
            text, start, answers, replica, count = given[at : at + HEAD]
            at += HEAD
            held = -(-(start + count) // PAGE)
            tokens, blocks = given[at : at + count], given[at + count : at + count + held]
            pieces.append(TextPiece(text, start, tuple(tokens), tuple(blocks), answers, replica))
            at += count + held
        return cls(tuple(pieces))


class StepReplay:
    """Replays steps on fingerprints: `run` raises `InputError` where a step would compute a wrong answer.

    Each place of a block holds a fingerprint of the whole text up to its token. A piece must find those of its own text
    in its blocks, write only to blocks that no other piece of the step holds, and compute each token once. rows: of
    each replica.
    """

    def __init__(self, blocks: int, rows: int, replicas: int = 1) -> None:
        self._held = [[b""] * PAGE for _ in range(blocks)]
        self._rows, self._replicas = rows, replicas
        self._computed: dict[int, int] = {}

    def run(self, step: ServingStep, texts: Mapping[int, Sequence[int]]) -> None:
        """Check a step and do it; texts: the tokens of each text, at least those before its piece."""
        order = [piece.replica for piece in step.pieces]
        if not order or order != sorted(order) or not 0 <= order[0] <= order[-1] < self._replicas:
            self._fail(f"its pieces are those of the replicas {order}, of {self._replicas}")
        for replica in set(order):
            rows = step.of_replica(replica)[0].rows
            if not 0 < rows <= self._rows:
                self._fail(f"a step of {rows} tokens, of at most {self._rows}")
        if len({piece.text for piece in step.pieces}) < len(step.pieces):
            self._fail("a text is twice in it")
        written = [block for piece in step.pieces for block in piece.blocks[piece.start // PAGE :]]
        read = {block for piece in step.pieces for block in piece.blocks[: piece.start // PAGE]}
        if len(set(written)) < len(written) or set(written) & read:
            self._fail("a block is written for two texts, or while another text reads it")
        for piece in step.pieces:
            self._check(piece, texts[piece.text])
        for piece in step.pieces:
            chains = list(_chains([*texts[piece.text][: piece.start], *piece.tokens]))
            for place in range(piece.start, piece.end):
                self._held[piece.blocks[place // PAGE]][place % PAGE] = chains[place]
            self._computed[piece.text] = piece.end

    def dropped(self, text: int) -> None:
        """The text has lost its blocks, or ended."""
        self._computed.pop(text, None)

    def _check(self, piece: TextPiece, text: Sequence[int]) -> None:
        if len(piece.blocks) != -(-piece.end // PAGE) or not 0 <= piece.answers <= len(piece.tokens):
            self._fail(f"text {piece.text} has {len(piece.blocks)} blocks for {piece.end} tokens")
        for place, chain in enumerate(_chains(text[: piece.start])):
            if self._found(piece, place) != chain:
                self._fail(f"token {place} in the blocks of text {piece.text} is that of another text")
        *_, first = _chains([*text[: piece.start], piece.tokens[0]])
        if piece.start < self._computed.get(piece.text, 0) and self._found(piece, piece.start) == first:
            self._fail(f"token {piece.start} of text {piece.text} is computed twice")

    def _found(self, piece: TextPiece, place: int) -> bytes:
        return self._held[piece.blocks[place // PAGE]][place % PAGE]

    def _fail(self, why: str) -> None:
        raise InputError(f"a step that is wrong: {why}")


def _chains(tokens: Iterable[int]) -> Iterator[bytes]:
    """A fingerprint of the tokens up to each."""
    chain = b""
    for token in tokens:
        chain = hashlib.blake2b(chain + token.to_bytes(8, "little"), digest_size=16).digest()
        yield chain
