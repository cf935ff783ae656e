"""The report of a run: one HTML file with inline pictures, and the same numbers as JSON."""

from __future__ import annotations

import importlib

_HOME = {"build_report": "hpckit.report.build", "save_picture": "hpckit.report.draw.picture"}

__all__ = ["build_report", "save_picture"]


def __getattr__(name: str) -> object:
    """Import the home of a name when it is first asked for: settings of apps need neither HDF5 nor pictures."""
    if name not in _HOME:
        raise AttributeError(f"module 'hpckit.report' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
