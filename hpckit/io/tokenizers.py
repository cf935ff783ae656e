"""Texts as token ids: bytes, or the pieces of a `tokenizer.json`."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hpckit.errors import InputError, SetupError
from hpckit.plan.inputs.text import read_bytes

MOST_BYTES = 256 << 20  # of a tokenizer.json
SPACE = "\u2581"  # in pieces of SentencePiece
A_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")  # the same for bytes that are in no piece


class Tokenizer(Protocol):
    """The mapping between a text and its token ids, 0 to `vocab` - 1."""

    vocab: int

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """The tokens, int32 [n]; special: with those that begin or end a text, where there are any."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text; invalid bytes become a replacement character."""

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for inside a text: a part of a character, too."""


class Bytes:
    """Each byte of the text in UTF-8 is a token."""

    vocab = 256

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """The bytes."""
        return np.frombuffer(text.encode(), np.uint8).astype(np.int32)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of the bytes."""
        return bytes(int(token) & 0xFF for token in tokens).decode(errors="replace")

    def bytes_of(self, token: int) -> bytes:
        """The byte."""
        return bytes([token & 0xFF])


class Pieces:
    """The tokens of a `tokenizer.json`, as written by the package tokenizers, or of a tokenizer `made` with it.

    Raises `SetupError` without that package, `InputError` for a file that it cannot read.
    """

    def __init__(self, path: Path | None = None, made: Any = None) -> None:
        self._loaded: Any = self._read(path) if path is not None else made
        self.vocab = int(self._loaded.get_vocab_size())
        decoder = b"" if self._loaded.decoder is None else self._loaded.decoder.__getstate__()
        self._is_bytes, self._has_spaces = b'"ByteLevel"' in decoder, SPACE.encode() in decoder

    @staticmethod
    def _read(path: Path) -> Any:
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError as problem:
            raise SetupError(
                f"{path.name} needs the package tokenizers",
                likely="it is not installed",
                do="pip install tokenizers",
            ) from problem
        content = read_bytes(path, "the tokenizer", MOST_BYTES, "give a tokenizer.json")
        try:
            return Loaded.from_buffer(content)
        except Exception as problem:  # the package does not name its class
            raise InputError(
                f"{path} is not a file of the package tokenizers: {problem}", do="give a tokenizer.json"
            ) from None

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """The tokens; special: with the marks of a text's start or end that the file asks for."""
        return np.array(self._loaded.encode(text, add_special_tokens=special).ids, np.int32)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of the tokens."""
        return self._loaded.decode([int(token) for token in tokens], skip_special_tokens=False)

    def bytes_of(self, token: int) -> bytes:
        """The bytes of its piece, with the space that may stand before it."""
        piece = self._loaded.id_to_token(token)
        if piece is None or token in self._loaded.get_added_tokens_decoder():
            return (piece or "").encode()
        if self._is_bytes:
            table = _byte_letters()
            return bytes(table[letter] for letter in piece if letter in table)
        if found := A_BYTE.fullmatch(piece):
            return bytes([int(found[1], 16)])
        return piece.replace(SPACE, " ").encode() if self._has_spaces else self.decode([token]).encode()


@functools.cache
def _byte_letters() -> dict[str, int]:
    """The bytes by the letters that stand for them in GPT-2's pieces: those that cannot be printed are moved up."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + n): byte for n, byte in enumerate(moved)}


def tokenizer_of(path: Path | None) -> Tokenizer:
    """The tokenizer of a file, or bytes without one."""
    return Bytes() if path is None else Pieces(path)
