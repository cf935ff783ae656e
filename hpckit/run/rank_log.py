"""Warnings and log records of each rank, in a file of its own below the run directory."""

from __future__ import annotations

import logging
import os
from io import TextIOWrapper

from hpckit.run.directory import RunDirectory


class _RankLog(logging.FileHandler):
    """A log file that is never reached through a link."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return open(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8")


def rank_logger(directory: RunDirectory, rank: int) -> None:
    """Send warnings and log records (level WARNING and above) of this rank to its own file, made at the first one."""
    handler = _RankLog(directory.attempt / "ranks" / f"{rank:05d}.log", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
