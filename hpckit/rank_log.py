"""Warnings and log records of each rank, in a file of its own below the run directory."""

from __future__ import annotations

import logging


class _RankLog(logging.FileHandler):
    """A log file that is never reached through a link."""
