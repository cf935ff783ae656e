"""Files in TOML that describe jobs: sites, task graphs, lists of scripts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hpckit.errors import InputError


def read_toml_file(path: Path, what: str, do: str = "") -> dict[str, Any]:
    """The tables of a TOML file. what: what it is, as "the graph"; do: what to type where it cannot be read.

    Raises `InputError`.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{what} {path} cannot be read: {error.strerror}", do=do) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is no UTF-8 text: {error.reason}", where=str(path)) from None
    except ValueError as error:
        raise InputError(f"{what} is not TOML: {error}", where=str(path)) from None
