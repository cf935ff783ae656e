"""The hash of checkpoints: BLAKE3 where its package is there (5.8 GB/s a core here), else SHA-256 (1.5 GB/s)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from hpckit.errors import SetupError

PIECE = 8 << 20  # bytes that have a hash of their own: what is read and checked at least
Hash = Callable[[bytes | memoryview], str]


class Hasher(Protocol):
    """A hash that is fed part by part, as of hashlib."""

    def update(self, data: memoryview, /) -> object:
        """The next bytes."""

    def hexdigest(self) -> str:
        """The hash of all of them."""


HASHES: dict[str, Callable[[], Hasher]] = {"sha256": hashlib.sha256}
try:
    from blake3 import blake3

    HASHES["blake3"] = blake3
except ImportError:  # slower, and as safe
    pass

BEST = "blake3" if "blake3" in HASHES else "sha256"


def hasher_named(name: object) -> Callable[[], Hasher]:
    """What begins a hash; raises `SetupError` where its package is missing."""
    if name in HASHES:
        return HASHES[str(name)]
    raise SetupError(
        f"the checkpoint has hashes of the kind {name!r}, and there is no package for them here",
        do="pip install blake3" if name == "blake3" else "read it with the hpckit that wrote it",
    )


def hash_named(name: object) -> Hash:
    """The hash of some bytes as a function; raises as `hasher_named`."""
    begin = hasher_named(name)

    def hashed(data: bytes | memoryview) -> str:
        hasher = begin()
        hasher.update(memoryview(data))
        return hasher.hexdigest()

    return hashed
