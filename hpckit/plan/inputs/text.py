"""Text files of unknown origin: regular files, within limits of size and depth that are checked before parsing."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, BinaryIO

from hpckit.errors import InputError, did_you_mean

MOST_BYTES = 16 << 20  # of a file of settings, a table, a record
MOST_DEPTH = 64  # of brackets
MOST_BESIDE = 1000  # files of a folder that are compared with a missing name
MOST_TOML, MOST_KEYS, MOST_PARTS = 1 << 20, 20_000, 32  # characters, keys, and names joined by dots in a key
# Strings and comments, which may hold brackets; then brackets.
_TOML = re.compile(
    r'"{3}(?:[^\\]|\\.)*?"{3}|' r"'{3}.*?'{3}|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'|#[^\n]*|([\[{])|([\]}])", re.S
)
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_PARTS = re.compile(rf"(?<![A-Za-z0-9_-])(?:{_PART}[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")


def open_regular(path: str | Path, what: str, do: str = "") -> BinaryIO:
    """A regular file, open for reading. Raises `InputError`: a pipe would wait for a writer, a device has no end."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputError(
            f"{what} {path} cannot be read: there is no such file", likely=_near(Path(path)), do=do
        ) from None
    except OSError as error:
        raise InputError(f"{what} {path} cannot be read: {error.strerror}", do=do) from None
    except ValueError as error:  # a null character in its name
        raise InputError(f"{what} {str(path)!r} cannot be read: {error}", do=do) from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise InputError(f"{what} {path} cannot be read: it is not a regular file", do=do)
    return open(file, "rb")


def _near(path: Path) -> str:
    """The file beside a missing one with the nearest name, as a question."""
    try:
        beside = [entry.name for entry, _ in zip(os.scandir(path.parent), range(MOST_BESIDE), strict=False)]
    except OSError:
        return f"there is no folder {path.parent} either"
    return did_you_mean(path.name, beside)


def read_bytes(path: str | Path, what: str, most: int = MOST_BYTES, do: str = "", whole: bool = True) -> bytes:
    """The content of a regular file of at most `most` bytes; what: its name in errors, such as "the graph". Without
    `whole` the first `most` bytes of one that may be longer.

    Raises `InputError`.
    """
    with open_regular(path, what, do) as content:
        try:
            data = content.read(most + 1)
        except OSError as error:
            raise InputError(f"{what} {path} cannot be read: {error.strerror}", do=do) from None
    if len(data) > most and whole:
        raise InputError(f"{what} {path} has more than {most >> 20} MiB", do=do)
    return data[:most]


def read_text(path: str | Path, what: str, most: int = MOST_BYTES, do: str = "") -> str:
    """The UTF-8 text of a file, without a byte order mark. Raises `InputError`, see `read_bytes`."""
    data = read_bytes(path, what, most, do)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{what} is not UTF-8 text: {error.reason}", where=f"{path}, line {line}", do=do) from None


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises `tomllib.TOMLDecodeError` for text that is not TOML, and `ValueError` for a text beyond the limits, on which
    the parser would take all of its stack or minutes.
    """
    if len(text) > MOST_TOML or text.count("=") > MOST_KEYS:
        raise ValueError(f"it has more than {MOST_TOML >> 20} MiB or {MOST_KEYS} keys")
    _require_depth(text)
    if _PARTS.search(text):
        raise ValueError(f"a key has more than {MOST_PARTS} parts")
    return tomllib.loads(text)


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises `ValueError`, also for one that is nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deep") from None


def _require_depth(text: str) -> None:
    """Raise `ValueError` if brackets are nested too deep."""
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return
    depth = 0
    for found in _TOML.finditer(text):
        depth += bool(found[1]) - bool(found[2])
        if depth > MOST_DEPTH:
            raise ValueError(f"its brackets are nested more than {MOST_DEPTH} deep")
