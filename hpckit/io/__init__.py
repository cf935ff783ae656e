"""Files: fields that xarray and VTK open, written in parallel with a plain h5py."""

from hpckit.io.fields.reader import open_fields
from hpckit.io.fields.writer import FieldWriter

__all__ = ["FieldWriter", "open_fields"]
