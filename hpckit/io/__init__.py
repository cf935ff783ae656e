"""Files: fields that xarray and VTK open, written in parallel with a plain h5py."""

from hpckit.io.fields import FieldWriter
from hpckit.io.reader import open_fields

__all__ = ["FieldWriter", "open_fields"]
