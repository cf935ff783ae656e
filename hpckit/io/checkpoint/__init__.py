"""Checkpoints: numbered generations that cannot be torn and load on any number of ranks."""

from hpckit.io.checkpoint.reader import Generation, choose, open_generation
from hpckit.io.checkpoint.writer import Writer

__all__ = ["Generation", "Writer", "choose", "open_generation"]
