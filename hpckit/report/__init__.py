"""The report of a run: one HTML file with inline pictures, and the same numbers as JSON."""

from hpckit.report.build import build_report
from hpckit.report.picture import save_picture

__all__ = ["build_report", "save_picture"]
