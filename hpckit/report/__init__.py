"""The report of a run: one HTML file with inline pictures, and the same numbers as JSON."""

from hpckit import loaded_on_use

# Settings of apps need neither HDF5 nor pictures.
_HOMES = {"build_report": "hpckit.report.build", "save_picture": "hpckit.report.draw.picture"}
__all__ = list(_HOMES)
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
