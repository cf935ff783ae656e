"""Texts as numbers: a token for each byte, or those of a `tokenizers` file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import hpckit
from hpckit.errors import InputError, SetupError


class Tokenizer(Protocol):
    """Between a text and the numbers of its tokens, 0 to `vocab` - 1."""

    vocab: int

    def encode(self, text: str) -> np.ndarray:
        """The tokens, int32 [n]."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text; what is no text is shown as a replacement character."""


class Bytes:
    """Each byte of the text in UTF-8 is a token."""

    vocab = 256

    def encode(self, text: str) -> np.ndarray:
        """The bytes."""
        return np.frombuffer(text.encode(), np.uint8).astype(np.int32)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of the bytes."""
        return bytes(int(token) & 0xFF for token in tokens).decode(errors="replace")


class Pieces:
    """The tokens of a `tokenizer.json`, as the package tokenizers writes it.

    Raises `SetupError` without that package, `InputError` for a file that it does not read.
    """

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError as problem:
            raise SetupError(
                f"{path.name} needs the package tokenizers",
                likely="it is not installed",
                do="pip install tokenizers, or leave data.tokenizer out: each byte is then a token",
            ) from problem
        try:
            self._loaded: Any = Loaded.from_file(str(path))
        except Exception as problem:  # of a class that the package does not name
            raise InputError(
                f"{path} is no file of the package tokenizers: {problem}", do="give a tokenizer.json"
            ) from None
        self.vocab = int(self._loaded.get_vocab_size())

    def encode(self, text: str) -> np.ndarray:
        """The tokens, without those that mark the start or the end of a text."""
        return np.array(self._loaded.encode(text, add_special_tokens=False).ids, np.int32)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of the tokens."""
        return self._loaded.decode([int(token) for token in tokens], skip_special_tokens=False)


def tokenizer_of(path: Path | None) -> Tokenizer:
    """The tokenizer of a file, or bytes without one."""
    return Bytes() if path is None else Pieces(path)


def read_text(path: Path | None) -> str:
    """The text of a file; without one the sources of hpckit. Raises `InputError` where it is no UTF-8."""
    if path is None:
        home = Path(str(hpckit.__file__)).parent
        return "\n".join(file.read_text(encoding="utf-8") for file in sorted(home.rglob("*.py")))
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise InputError(
            f"{path} is no text in UTF-8: byte {problem.start} is 0x{problem.object[problem.start]:02x}",
            likely="another encoding, or no text at all",
            do="convert it, as with iconv -f LATIN1 -t UTF-8",
        ) from None
