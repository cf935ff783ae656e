"""Pictures that verbs write where the user says."""

from __future__ import annotations

from pathlib import Path

from hpckit.errors import InputError
from hpckit.io.files import replace_file, write_error


def write_svg(path: Path, text: str) -> None:
    """Write an SVG picture, whole or not at all.

    Raises `InputError` for a name that says another kind of picture, `SetupError` where it cannot be written.
    """
    if path.suffix.lower() != ".svg":
        raise InputError(f"{str(path)!r} is no name of an SVG picture", do="use a name that ends in .svg")
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise write_error(error, path) from None
