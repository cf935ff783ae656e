"""What must be refused, for the programs beside this file."""

from __future__ import annotations

from collections.abc import Callable

from hpckit.errors import InputError


def refused(call: Callable[[], object], words: str) -> None:
    """The call raises `InputError` whose message has these words."""
    try:
        call()
    except InputError as error:
        assert words in error.message, error.message
    else:
        raise AssertionError(f"not refused: {words}")
