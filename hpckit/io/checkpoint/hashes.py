"""The hash of checkpoints: BLAKE3 where its package is there (5.8 GB/s a core here), else SHA-256 (1.5 GB/s)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from hpckit.errors import SetupError

PIECE = 8 << 20  # bytes that have a hash of their own: what is read and checked at least
Hash = Callable[[bytes | memoryview], str]


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


HASHES: dict[str, Hash] = {"sha256": _sha256}
try:
    from blake3 import blake3

    def _blake3(data: bytes | memoryview) -> str:
        return blake3(data).hexdigest()

    HASHES["blake3"] = _blake3
except ImportError:  # slower, and as safe
    pass

BEST = "blake3" if "blake3" in HASHES else "sha256"


def hash_named(name: object) -> Hash:
    """The hash function; raises `SetupError` where its package is missing."""
    if name in HASHES:
        return HASHES[str(name)]
    raise SetupError(
        f"the checkpoint has hashes of the kind {name!r}, and there is no package for them here",
        do="pip install blake3" if name == "blake3" else "read it with the hpckit that wrote it",
    )
